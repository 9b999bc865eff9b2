"""The choices of a knob beside each other, measured here or compiled for a GPU that is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redtune.config import Value
from redtune.errors import UsageError
from redtune.wanted import DEFAULT_N, check_fits, check_fixes, check_seed, sized, wanted_problem

if TYPE_CHECKING:
    from redtune.comparing import Compared
    from redtune.limits import Limited
    from redtune.outcome import Progress


def compared(
    knobs: Sequence[str],
    op: str,
    dtype: str = "float32",
    n: int | None = None,
    *,
    shape: Sequence[int] | None = None,
    axis: Any = None,
    accumulate: str | None = None,
    determinism: str = "any",
    custom: str = "",
    backend: str | None = None,
    device: int = 0,
    trials: int | None = None,
    time_limit_s: float | None = None,
    cold: bool = True,
    fix: Mapping[str, Value] | None = None,
    seed: int = 0,
    aa: bool = False,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Compared:
    """What `compare` found, as a record: with the ceiling, the noise, and what was refused and why."""
    from redtune.comparing import combined, compare_choices
    from redtune.lab import find_device

    check_seed(seed)
    fixed = check_fixes(fix or {})
    if trials is not None and trials < 1:
        raise UsageError(f"{trials} trials under each choice measure nothing; ask for at least 1")
    problem = wanted_problem(op, dtype, n, shape, axis, determinism, accumulate, custom)
    combined(knobs)
    found = find_device(backend, device)
    problem = sized(problem, n if shape is None else 0, found)
    check_fits(problem, found)
    return compare_choices(
        problem,
        found,
        knobs,
        fixed=fixed,
        trials=trials,
        limit_s=time_limit_s,
        seed=seed,
        is_cold=cold,
        is_aa=aa,
        progress=progress,
    )


def limited(
    knobs: Sequence[str],
    op: str,
    dtype: str = "float32",
    n: int | None = None,
    *,
    target: Sequence[str],
    shape: Sequence[int] | None = None,
    axis: Any = None,
    accumulate: str | None = None,
    determinism: str = "any",
    custom: str = "",
    backend: str | None = None,
    fix: Mapping[str, Value] | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Limited:
    """What limits each choice of some knobs on AMD GPUs that are not here, from code compiled for them: nothing runs,
    nothing is searched, nothing is timed. `target` names architectures: gfx90a, gfx1100, ...

    Raises UsageError, or `redtune.amdgpu.ToolMissing` where no compiler for them is installed.
    """
    from redtune.limits import BACKEND, find_limits

    fixed = check_fixes(fix or {})
    if backend not in (None, BACKEND):
        raise UsageError(f"targets are AMD architectures: leave out the backend {backend}, or name {BACKEND}")
    problem = wanted_problem(op, dtype, n, shape, axis, determinism, accumulate, custom)
    if n is None and shape is None:
        problem = replace(problem, n=DEFAULT_N["gpu"])
    return find_limits(problem, knobs, target, fixed=fixed, progress=progress)


def compare(knobs: str | Sequence[str], op: str, dtype: str = "float32", n: int | None = None, **options: Any) -> Any:
    """The choices of one knob, or of two crossed, beside each other: a pandas DataFrame with one row for each.

    Each choice is searched with the same budget (`trials`, `time_limit_s`), then the winners are timed together, in
    turns. `ratio` is the median time over that of the fastest, `ratio_low` and `ratio_high` the interval that holds the
    true one 19 times in 20; times are in microseconds. A choice that cannot run here is a row with its reason. Takes
    the options of `redtune compare`; raises as `search` does. With `target="gfx942,gfx1100"` nothing runs: the rows are
    what limits each choice in code compiled for those AMD GPUs (`limited`).
    """
    from redtune.compared import compared_frame
    from redtune.limited import limits_frame

    names = [knobs] if isinstance(knobs, str) else list(knobs)
    if (target := options.pop("target", None)) is not None:
        targets = target.split(",") if isinstance(target, str) else target
        return limits_frame(limited(names, op, dtype, n, target=targets, **options))
    return compared_frame(compared(names, op, dtype, n, **options))
