"""The verbs. The command line is a skin over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redtune.config import KNOBS, Config, Value, choices, settled
from redtune.dtypes import dtype_named, unknown
from redtune.errors import BackendMissing, RedtuneError, UsageError
from redtune.operators import counts_in_order, operator_for, operator_named
from redtune.plan import read_bytes
from redtune.problems import asked_axes, make_problem, shaped_problem
from redtune.types import Best, Device, Problem

if TYPE_CHECKING:
    from redtune.benching import Benched
    from redtune.checking import Remeasurement
    from redtune.comparing import Compared
    from redtune.dialect import Dialect
    from redtune.limits import Limited
    from redtune.outcome import Progress, Report
    from redtune.probing import Probe
    from redtune.sidebyside import Comparison
    from redtune.verifying import Verified

DEFAULT_N = {"gpu": 1 << 28, "cpu": 1 << 25}
PROBED_N = {"gpu": 1 << 24, "cpu": 1 << 22}
MOST_VERIFIED = 100_000


def check_fixes(fix: Mapping[str, Value]) -> dict[str, Value]:
    """The fixed knobs. Raises UsageError for a knob that is not there or a value it cannot have."""
    for name, value in fix.items():
        if name not in KNOBS:
            raise UsageError(unknown("knob", name, KNOBS))
        if value not in choices(name):
            allowed = ", ".join(map(str, choices(name)))
            raise UsageError(f"knob {name} cannot be {value!r}: choose from {allowed}")
    return dict(fix)


def check_fits(problem: Problem, device: Device) -> None:
    """Raises UsageError when the input is larger than the device can hold."""
    wanted = read_bytes(problem)
    if device.memory_bytes and wanted > 0.8 * device.memory_bytes:
        raise UsageError(
            f"{problem.n * problem.results} elements of {problem.dtype} are {wanted / 2**30:.1f} GiB, "
            f"and {device.name} has {device.memory_bytes / 2**30:.1f} GiB"
        )


def check_seed(seed: int) -> None:
    """Raises UsageError for a seed that numpy does not take."""
    if not 0 <= seed < 2**32:
        raise UsageError(f"seed is {seed}; it must lie between 0 and 2**32 - 1")


@dataclass(frozen=True, slots=True)
class Options:
    """How to search, whatever the problem. `trials` is how many configs a study holds in the end, those of earlier
    calls included; `time_limit_s` ends the measuring after so many seconds; `fix` sets knobs."""

    trials: int | None = None
    time_limit_s: float | None = None
    sampler: str = "tpe"
    seed: int = 0
    fix: Mapping[str, Value] = field(default_factory=dict)
    cold: bool = True
    storage: str | None = None
    study: str | None = None
    progress: Callable[[Progress], None] = lambda progress: None

    def checked(self) -> Options:
        """Raises UsageError for what has no meaning."""
        from redtune.proposals import SAMPLERS

        check_fixes(self.fix)
        if self.sampler not in SAMPLERS:
            raise UsageError(unknown("sampler", self.sampler, SAMPLERS))
        if self.trials is not None and self.trials < 1:
            raise UsageError(f"a search of {self.trials} trials measures nothing; ask for at least 1")
        if self.time_limit_s is not None and not self.time_limit_s > 0:
            raise UsageError(f"a time limit of {self.time_limit_s:g} s leaves no time; ask for more than 0")
        check_seed(self.seed)
        return self

    def run(self, problem: Problem, device: Device) -> Report:
        """Searches for one problem on one device."""
        from redtune.custom import check_laws
        from redtune.preparing import forget
        from redtune.tuner import Search

        check_fits(problem, device)
        if problem.custom:
            check_laws(problem.custom, problem.dtype)
        report = Search(
            problem,
            device,
            trials=self.trials,
            time_limit_s=self.time_limit_s,
            sampler=self.sampler,
            seed=self.seed,
            fixed=self.fix,
            storage=self.storage,
            study=self.study,
            is_cold=self.cold,
            progress=self.progress,
        ).run()
        forget()  # what was prepared before does not know the new config
        return report


def search(
    op: str,
    dtype: str = "float32",
    n: int | None = None,
    *,
    shape: Sequence[int] | None = None,
    axis: Any = None,
    accumulate: str | None = None,
    custom: str = "",
    backend: str | None = None,
    device: int = 0,
    determinism: str = "any",
    **options: Any,
) -> Report:
    """Tunes one reduction and keeps the winner: of `n` elements (2**28 on a GPU and 2**25 on a CPU if None), or of some
    axes of a C-contiguous array of a `shape`.

    `options` are those of `Options`; a search with fixed knobs reports its winner but does not store it. `custom` is
    an operator of one's own (redtune.custom), proven to keep its laws first. Raises UsageError, BackendMissing, or
    NothingVerified when no config came through the judge.
    """
    from redtune.lab import find_device

    how = Options(**options).checked()
    problem = wanted_problem(op, dtype, n, shape, axis, determinism, accumulate, custom)
    found = find_device(backend, device)
    return how.run(sized(problem, n if shape is None else 0, found), found)


def wanted_problem(
    op: str,
    dtype: str,
    n: int | None,
    shape: Sequence[int] | None,
    axis: Any,
    determinism: str = "any",
    accumulate: str | None = None,
    custom: str = "",
) -> Problem:
    """The problem of a flat size or of a shape; of one element where neither is given."""
    if shape is None:
        if axis is not None:
            raise UsageError(f"axis {axis} belongs to a shape: give the shape too")
        return make_problem(op, dtype, 1 if n is None else n, determinism, accumulate=accumulate, custom=custom)
    if n is not None:
        raise UsageError(f"n is {n} and the shape {tuple(shape)}: give one of them")
    return shaped_problem(op, dtype, tuple(shape), axis, determinism, accumulate=accumulate, custom=custom)


def tune(
    x: Any,
    op: str,
    axis: Any = None,
    dtype: Any = None,
    *,
    accumulate: str | None = None,
    determinism: str = "any",
    custom: str = "",
    **options: Any,
) -> Report:
    """Tunes exactly the problem that `redtune.reduce(x, op, axis, ...)` is, on the device that `x` lives on.

    The device runs in a process of its own: the array is neither read nor kept. Later calls of `reduce` find the
    winner. Raises as `reduce` and `search` do.
    """
    from redtune.reducing import problem_of

    how = Options(**options).checked()
    problem, device = problem_of(x, op, axis, dtype, accumulate=accumulate, determinism=determinism, custom=custom)
    return how.run(problem, device)


def search_many(
    wanted: Sequence[tuple[Problem, bool]],
    *,
    backend: str | None = None,
    device: int = 0,
    each: Callable[[int, Problem], None] = lambda index, problem: None,
    **options: Any,
) -> list[Report | RedtuneError]:
    """Tunes problems one after the other, each with whether its size was given: one left open takes the device's.

    Goes on after one that fails: its place in the list holds the error. `each` hears which one begins.
    """
    from redtune.lab import find_device

    how = Options(**options).checked()
    if not wanted:
        raise UsageError("there is no problem to tune")
    found = find_device(backend, device)
    done: list[Report | RedtuneError] = []
    for index, (problem, has_size) in enumerate(wanted):
        problem = sized(problem, 0 if has_size else None, found)
        each(index, problem)
        try:
            done.append(how.run(problem, found))
        except RedtuneError as error:
            done.append(error)
    return done


def devices(backend: str | None = None) -> tuple[list[Device], dict[str, str]]:
    """The devices there are, and for each backend without one the reason. A named backend without one raises."""
    from redtune.backends import BACKENDS
    from redtune.lab import list_devices

    if backend is not None:
        return list_devices(backend), {}
    found: list[Device] = []
    absent: dict[str, str] = {}
    for name in BACKENDS:
        try:
            found += list_devices(name)
        except BackendMissing as error:
            absent[name] = str(error)
    return found, absent


def measure_device(device: Device, n_bytes: int | None = None) -> dict[str, float]:
    """The read and copy ceilings of a device in GB/s (10^9 bytes; a copy counts bytes read and written), cold."""
    from redtune.lab import Lab

    size = n_bytes or 4 * DEFAULT_N[device.kind]
    with Lab(device, make_problem("max", "int32", size // 4)) as lab:
        read, copy = lab.ceiling(size), lab.copy(size)
    return {
        "bytes": size,
        "read_gbps": size / read.median_us * 1e-3,
        "read_spread_us": read.spread_us,
        "copy_gbps": 2 * size / copy.median_us * 1e-3,
        "copy_spread_us": copy.spread_us,
    }


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


def tuned(op: str | None = None) -> list[tuple[str, Best]]:
    """The stored winners: ("here" or "shipped", entry) of every architecture, or of one operator."""
    from redtune import shipped, store

    own = store.entries(store.cache_path() / "configs")
    rows = [("here", best) for best in own if op in (None, best.problem.op)]
    rows += [("shipped", best) for best in shipped.entries(store.shipped_path(), op)]
    if op is not None and not rows:
        operator_named(op)  # one's own operators are known by what was tuned for them
    return rows


def sized(problem: Problem, n: int | None, device: Device) -> Problem:
    """The problem with the device's default size where none was asked for."""
    return problem if n is not None else replace(problem, n=DEFAULT_N[device.kind])


def with_fixes(base: Config, fix: Mapping[str, Value], problem: Problem, dialect: Dialect, device: Device) -> Config:
    """`base` with the fixed knobs. Raises UsageError for one that would have no effect, or a config that cannot run."""
    from redtune.refusals import refusals

    values: dict[str, Any] = check_fixes(fix)
    config = settled(replace(base, **values))
    for name, value in values.items():
        if getattr(config, name) != value:
            raise UsageError(
                f"{name} {value} has no effect beside the other knobs; fix those that it belongs to as well"
            )
    reasons = refusals(config, problem, dialect, device)
    if reasons:
        raise UsageError(reasons[0])
    return config


def source(
    op: str,
    dtype: str = "float32",
    n: int | None = None,
    *,
    shape: Sequence[int] | None = None,
    axis: Any = None,
    accumulate: str | None = None,
    backend: str | None = None,
    device: int = 0,
    arch: str | None = None,
    fix: Mapping[str, Value] | None = None,
) -> str:
    """The text of a kernel: of the stored config for this device, or for a named architecture with no device at all.

    With `arch` the text starts from the default config alone, so that the same command gives the same text everywhere.
    """
    from redtune import store
    from redtune.backends import backend_named
    from redtune.lab import find_device
    from redtune.render import render

    problem = wanted_problem(op, dtype, n, shape, axis, accumulate=accumulate)
    if arch is None:
        target = find_device(backend, device)
        dialect = backend_named(target.backend).dialect
        problem = sized(problem, n if shape is None else 0, target)
        base = store.lookup(problem, dialect, target).config
    elif backend is None:
        raise UsageError("--arch names an architecture of a backend: name the backend too")
    else:
        target = backend_named(backend).describe(arch)
        dialect = backend_named(backend).dialect
        base = Config()
    config = with_fixes(base, fix or {}, problem, dialect, target)
    return render(problem, config, dialect, target).source


def reduce_file(
    path: str,
    op: str,
    *,
    axis: Any = None,
    keepdims: bool = False,
    backend: str | None = None,
    device: int = 0,
    custom: str = "",
    out: str | None = None,
) -> dict[str, Any]:
    """Reduces a .npy file on a device: all its elements, in chunks when they are more than the device's memory, or some
    of its axes, for which the whole file must fit.

    Gives the value as a Python number (nested lists for axes, a complex number as [re, im]) with dtype and shape, the
    config used and where it comes from, and writes the result to the file `out` if there is to be one. A file without
    elements gives numpy's answer, or UsageError where numpy has none.
    """
    from redtune.files import open_npy, write_result
    from redtune.lab import Lab, find_device
    from redtune.operators import entry_of, result_type

    array = open_npy(path)
    dtype = array.dtype.newbyteorder("=").name
    entry = operator_for(entry_of(op, custom), dtype_named(dtype))
    if entry.inputs > 1:
        raise UsageError(f"{op} takes {entry.inputs} arrays, and a file holds one")
    axes = asked_axes(axis, array.ndim)
    if counts_in_order(entry) and isinstance(axis, tuple):
        raise UsageError(f"{op} takes one axis or all, not {axis}")
    if entry.empty is None and any(array.shape[k] == 0 for k in axes) and (axis is None or array.size == 0):
        raise UsageError(f"{path} is empty, and {op} of no elements has no value")
    facts: dict[str, Any] = {"dtype": dtype, "n": int(array.size), "shape": [], "config": None}
    if array.size == 0 and axis is None:
        found = {"value": entry.empty, **facts, "origin": "no elements"}
    else:
        found_device = find_device(backend, device)
        if axis is None and not keepdims:
            problem = make_problem(op, dtype, int(array.size), custom=custom)
            found = facts | _reduce_flat(problem, path, found_device)
        else:
            with Lab(found_device, make_problem("max", "int32", 1)) as lab:
                found = lab.reduce_axes(path, op, axis, keepdims, custom)
    if out is not None:
        write_result(out, found, result_type(entry, dtype_named(dtype)))
    return found


def _reduce_flat(problem: Problem, path: str, device: Device) -> dict[str, Any]:
    """All elements of a file, in chunks where they are many."""
    from redtune import store
    from redtune.backends import backend_named
    from redtune.defaults import starting_points
    from redtune.lab import Lab
    from redtune.render import render

    dialect = backend_named(device.backend).dialect
    found = store.lookup(problem, dialect, device)
    # A stored config may have been compiled by another compiler, and this one may fail on it.
    origins = {found.config: found.origin}
    origins |= {c: "a default that compiles" for c in starting_points(problem, dialect, device) if c not in origins}
    with Lab(device, problem) as lab:
        for config, origin in origins.items():
            compiled = lab.compile(render(problem, config, dialect, device, output="state"))
            if compiled.binary is not None:
                value = lab.reduce_file(compiled, path)
                return {"value": value, "n": problem.n, "shape": [], "config": config, "origin": origin}
            what = f"{problem.op} of {problem.dtype}"
            store.warn_once(f"{what}: a config did not compile, another one runs: {compiled.note}")
    raise RedtuneError(f"no config of {problem.op} compiles on {device.name}: {compiled.note}")
