"""redtune beside the libraries, and shipped configs beside what they promise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redtune.errors import UsageError
from redtune.wanted import check_fits, check_seed, sized, wanted_problem

if TYPE_CHECKING:
    from redtune.benching import Benched
    from redtune.checking import Remeasurement
    from redtune.outcome import Progress
    from redtune.sidebyside import Comparison


def side_by_side(
    op: str,
    dtype: str = "float32",
    n: int | None = None,
    *,
    shape: Sequence[int] | None = None,
    axis: Any = None,
    backend: str | None = None,
    device: int = 0,
    cold: bool = True,
    seed: int = 0,
) -> Comparison:
    """Times the stored winner, the default and every library that is there, in turns in one run. Tunes nothing."""
    from redtune.lab import find_device
    from redtune.sidebyside import compare_libraries

    check_seed(seed)
    problem = wanted_problem(op, dtype, n, shape, axis)
    found = find_device(backend, device)
    problem = sized(problem, n if shape is None else 0, found)
    check_fits(problem, found)
    return compare_libraries(problem, found, is_cold=cold, seed=seed)


def benched(
    ops: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    layouts: Sequence[str] = (),
    *,
    quick: bool = False,
    full: bool = False,
    backend: str | None = None,
    device: int = 0,
    cold: bool = True,
    seed: int = 0,
    time_limit_s: float | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Benched:
    """The matrix of operator, dtype, layout and size, each cell as `side_by_side` has it: about 40 cells if `quick` or
    nothing is asked for, else every one, of some operators, dtypes and layouts if there are any named.

    No cell begins after `time_limit_s` seconds; the most interesting come first. Raises UsageError for an unknown name.
    """
    from redtune import cells
    from redtune.benching import measure_cells
    from redtune.lab import find_device

    if quick and full:
        raise UsageError("--quick and --full are two sizes of one matrix: ask for one of them")
    if time_limit_s is not None and not time_limit_s > 0:
        raise UsageError(f"a time limit of {time_limit_s:g} s leaves no time; ask for more than 0")
    check_seed(seed)
    every = cells.quick if quick or not (full or ops or dtypes or layouts) else cells.full
    cells.restricted(every("gpu"), ops, dtypes, layouts)  # wrong names are found before a device is
    found = find_device(backend, device)
    wanted = cells.restricted(every(found.kind), ops, dtypes, layouts)
    return measure_cells(wanted, found, is_cold=cold, seed=seed, limit_s=time_limit_s, progress=progress)


def check_configs(
    folder: str | Path,
    ops: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    layouts: Sequence[str] = (),
    *,
    sample: int | None = None,
    backend: str | None = None,
    device: int = 0,
    seed: int = 0,
    time_limit_s: float | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Remeasurement:
    """Measures a sample of the configs in a folder of shipped ones again, on the device at hand beside the default.

    Raises UsageError where the folder has none for the architecture of the device.
    """
    from redtune.checking import SAMPLE, check_rows, rows_for
    from redtune.lab import find_device

    if sample is not None and sample < 1:
        raise UsageError(f"a sample of {sample} configs checks nothing; ask for at least 1")
    check_seed(seed)
    found = find_device(backend, device)
    rows = rows_for(Path(folder), found, ops, dtypes, layouts)
    return check_rows(rows, found, count=sample or SAMPLE, seed=seed, limit_s=time_limit_s, progress=progress)


def bench(op: str | None = None, dtype: str = "float32", n: int | None = None, **options: Any) -> Any:
    """redtune beside every library that is there, as a pandas DataFrame with one row for each contestant: of one
    problem (`side_by_side`), or without `op` of the matrix (`benched`).

    Times are in microseconds; `speedup` is the time of the fastest library over that of redtune's fastest kernel,
    `speedup_low` and `speedup_high` the interval that holds the true one 19 times in 20. Who is absent has a row with
    the reason.
    """
    from redtune.benched import benched_frame, comparison_frame

    if op is None:
        if n is not None or dtype != "float32":
            raise UsageError("dtype and n are for one problem: name its operator too, or restrict the matrix by dtypes")
        return benched_frame(benched(**options))
    return comparison_frame(side_by_side(op, dtype, n, **options))
