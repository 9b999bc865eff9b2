"""What a course on reductions shows, shown from redtune's own templates: the ladder and its counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from redtune.dtypes import dtype_named
from redtune.errors import BackendMissing, UsageError
from redtune.operators import OPERATORS, operator_for, operator_named
from redtune.outcome import Progress
from redtune.problems import make_problem
from redtune.rungs import check_block, config_of, rung_numbered, rungs
from redtune.types import Device, Problem
from redtune.wanted import check_fits, check_seed

if TYPE_CHECKING:
    from redtune.climbing import Ladder
    from redtune.counting import Model

N = 1 << 24
BLOCK = 256


def climbed(
    op: str = "sum",
    dtype: str = "float32",
    n: int = N,
    *,
    block: int = BLOCK,
    custom: str = "",
    tune: bool = False,
    backend: str | None = None,
    device: int = 0,
    cold: bool = True,
    seed: int = 0,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Ladder:
    """What `ladder` found, as a record. With `tune` a search makes the last rung first."""
    from redtune.climbing import climb

    problem = make_problem(op, dtype, n, custom=custom)
    check_block(block)
    check_seed(seed)
    found = _device(backend, device, block, problem)
    if tune:
        from redtune.api import Options

        Options(seed=seed, cold=cold, progress=progress).checked().run(problem, found)
    return climb([problem], found, block, seed=seed, is_cold=cold, progress=progress)[0]


def climbed_all(
    dtype: str = "float32",
    n: int = N,
    *,
    block: int = BLOCK,
    backend: str | None = None,
    device: int = 0,
    cold: bool = True,
    seed: int = 0,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> tuple[list[Ladder], dict[str, str]]:
    """The ladder of every operator that takes such elements, and for each of the others the reason."""
    from redtune.climbing import climb

    check_block(block)
    check_seed(seed)
    problems, absent = [], dict[str, str]()
    for op in OPERATORS:
        try:
            operator_for(operator_named(op), dtype_named(dtype))
        except UsageError as reason:
            absent[op] = str(reason)
        else:
            problems.append(make_problem(op, dtype, n))
    found = _device(backend, device, block, *problems)
    return climb(problems, found, block, seed=seed, is_cold=cold, progress=progress), absent


def _device(backend: str | None, device: int, block: int, *problems: Problem) -> Device:
    from redtune.lab import find_device

    found = find_device(backend, device)
    check_block(block, found)
    for problem in problems:
        check_fits(problem, found)
    return found


def ladder(op: str = "sum", dtype: str = "float32", n: int = N, **options: Any) -> Any:
    """Reduces `n` elements in every classic way, from a divergent tree in shared memory to the tuned kernel, as a
    pandas DataFrame with one row for each rung.

    Times are of the whole reduction down to one value, in microseconds, taken in turns with a kernel that only reads;
    `error` is relative to the result in float64. Every rung is judged as a search judges; one that cannot run here has
    its reason in `note`. Takes the options of `redtune ladder`: `block`, `tune`, `backend`, `device`, `cold`, `seed`.
    Raises UsageError or BackendMissing.
    """
    from redtune.climbed import ladder_frame

    return ladder_frame(climbed(op, dtype, n, **options))


def counted(
    op: str = "sum",
    dtype: str = "float32",
    n: int = N,
    *,
    block: int = BLOCK,
    run: bool = True,
    profile: bool = False,
    custom: str = "",
    backend: str | None = None,
    device: int = 0,
    cold: bool = True,
    seed: int = 0,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Model:
    """What `model` counted, as a record. Without `run`, or where no device is, nothing is measured. With `profile`
    Nsight Compute counts as well; where it cannot, BackendMissing, UsageError or RedtuneError say why."""
    from redtune.climbing import climb
    from redtune.counting import beside_clock, weigh, with_counters
    from redtune.profiling import check_tool

    problem = make_problem(op, dtype, n, custom=custom)
    check_block(block)
    check_seed(seed)
    try:
        found = _device(backend, device, block, problem)
    except BackendMissing as missing:
        if backend is not None or profile:
            raise
        return weigh(problem, block, absent=str(missing))
    if profile:
        check_tool(found)
    made = weigh(problem, block, found, "" if run else "it was asked for counts alone")
    if run:
        made = beside_clock(made, climb([problem], found, block, seed=seed, is_cold=cold, progress=progress)[0])
    return with_counters(made) if profile else made


def model(op: str = "sum", dtype: str = "float32", n: int = N, **options: Any) -> Any:
    """What each rung of the ladder costs, counted before anything runs, as a pandas DataFrame with one row for each.

    Counts are of one block: runs of the tree's steps by whole waves of 32 and of 64 lanes, the same with the turns that
    32 banks of shared memory take, merges, barriers, words touched, threads that merge in each step. Beside them stand
    the measured times in microseconds, unless `run` is False or there is no device. Takes the options of `redtune
    model`: `block`, `run`, `profile`, `backend`, `device`, `cold`, `seed`. Raises UsageError.
    """
    from redtune.weighed import model_frame

    return model_frame(counted(op, dtype, n, **options))


def explained(
    number: int,
    op: str = "sum",
    dtype: str = "float32",
    n: int = N,
    *,
    block: int = BLOCK,
    custom: str = "",
    backend: str | None = None,
    device: int = 0,
    arch: str | None = None,
    cold: bool = True,
) -> str:
    """The emitted kernel of a rung, below what is new on it, the problem that it has, and the steps in which the
    threads of a block meet. With `arch` for a GPU that need not be here."""
    from redtune import store
    from redtune.backends import backend_named
    from redtune.explained import explain
    from redtune.refusals import hindrances

    rung, problem = rung_numbered(number), make_problem(op, dtype, n, custom=custom)
    check_block(block)
    if arch is not None and backend is None:
        raise UsageError("--arch names an architecture of a backend: name the backend too")
    if arch is not None:
        target = backend_named(str(backend)).describe(arch)
        check_block(block, target)
    else:
        target = _device(backend, device, block)
    dialect = backend_named(target.backend).dialect
    if number <= len(rungs()):
        config = config_of(rung, block, problem, dialect)
    else:
        found = store.lookup(problem, dialect, target, "cold" if cold else "warm")
        if found.best is None:
            raise UsageError(f"nothing is tuned for {op} on {target.arch}, so rung {number} has no kernel yet")
        config = found.config
    if reasons := hindrances(config, problem, dialect, target):
        raise UsageError(f"rung {number} cannot be here: {reasons[0]}")
    return explain(rung, config, problem, dialect, target)
