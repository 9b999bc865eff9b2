"""Is it right, and is it the same each time?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redtune.dtypes import dtype_named, unknown
from redtune.errors import UsageError
from redtune.wanted import check_fits, check_seed, wanted_problem

if TYPE_CHECKING:
    from redtune.outcome import Progress
    from redtune.probing import Probe
    from redtune.verifying import Verified

PROBED_N = {"gpu": 1 << 24, "cpu": 1 << 22}
MOST_VERIFIED = 100_000


def probe(
    op: str = "sum",
    dtype: str = "float32",
    n: int | None = None,
    *,
    shape: Sequence[int] | None = None,
    axis: Any = None,
    accumulate: str | None = None,
    custom: str = "",
    backend: str | None = None,
    device: int = 0,
    repeats: int | None = None,
    seed: int = 0,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Probe:
    """Reduces one input over and over with a config of each way that blocks meet, and compares the results bit for bit.

    Each runs `repeats` times (200 on a GPU and 30 on a CPU if None) on the idle device and as often under load. `n` is
    2**24 on a GPU and 2**22 on a CPU if None. A broken promise is no error here: `Probe.check` raises it.
    """
    from redtune.lab import REPEATS, find_device
    from redtune.probing import probe_strategies

    if repeats is not None and repeats < 2:
        raise UsageError(f"repeats is {repeats}: one run has no other to differ from; ask for at least 2")
    check_seed(seed)
    problem = wanted_problem(op, dtype, n, shape, axis, accumulate=accumulate, custom=custom)
    found = find_device(backend, device)
    if n is None and shape is None:
        problem = replace(problem, n=PROBED_N[found.kind])
    check_fits(problem, found)
    return probe_strategies(problem, found, repeats or REPEATS[found.kind], seed, progress)


def verify(
    ops: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    layouts: Sequence[str] = (),
    *,
    configs: int = 60,
    sanitize: bool = False,
    backend: str | None = None,
    device: int = 0,
    seed: int = 0,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Verified:
    """Judges `configs` valid configs as a search would, drawn over operators, dtypes, layouts (all where none is named)
    and every strategy.

    With `sanitize` they run on small inputs under each checker of the backend instead: memcheck, racecheck, initcheck
    and synccheck of compute-sanitizer on CUDA, oclgrind on OpenCL; one that is not installed is named in `absent`.
    Wrong configs are no error here: `Verified.check` raises it.
    """
    from redtune.lab import find_device
    from redtune.operators import OPERATORS
    from redtune.sampling import LAYOUTS, Scope
    from redtune.verifying import verify_sample

    for name in ops:
        if name not in OPERATORS:
            raise UsageError(unknown("operator", name, list(OPERATORS)))
    for name in layouts:
        if name not in LAYOUTS:
            raise UsageError(unknown("layout", name, LAYOUTS))
    kinds = tuple(dtype_named(name).name for name in dtypes)
    if not 1 <= configs <= MOST_VERIFIED:
        raise UsageError(f"configs is {configs}: ask for 1 to {MOST_VERIFIED}")
    check_seed(seed)
    scope = Scope(tuple(ops), kinds, tuple(layouts) or LAYOUTS)
    return verify_sample(find_device(backend, device), scope, configs, seed, sanitize, progress)
