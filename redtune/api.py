"""The verbs that tune, show and reduce. The command line is a skin over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redtune.config import Config, Value
from redtune.dtypes import dtype_named, unknown
from redtune.errors import BackendMissing, RedtuneError, UsageError
from redtune.operators import counts_in_order, operator_for, operator_named
from redtune.problems import asked_axes, make_problem
from redtune.types import Best, Device, Problem
from redtune.wanted import (
    DEFAULT_N,
    check_fits,
    check_fixes,
    check_seed,
    default_with_fixes,
    sized,
    wanted_problem,
    with_fixes,
)

if TYPE_CHECKING:
    from redtune.outcome import Progress, Report


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


def tuned(op: str | None = None) -> list[tuple[str, Best]]:
    """The stored winners: ("here" or "shipped", entry) of every architecture, or of one operator."""
    from redtune import shipped, store

    own = store.entries(store.cache_path() / "configs")
    rows = [("here", best) for best in own if op in (None, best.problem.op)]
    rows += [("shipped", best) for best in shipped.entries(store.shipped_path(), op)]
    if op is not None and not rows:
        operator_named(op)  # one's own operators are known by what was tuned for them
    return rows


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
        found = store.lookup(problem, dialect, target)
        if found.best is None:
            config = default_with_fixes(fix or {}, problem, dialect, target)
        else:
            config = with_fixes(found.config, fix or {}, problem, dialect, target)
    elif backend is None:
        raise UsageError("--arch names an architecture of a backend: name the backend too")
    else:
        target = backend_named(backend).describe(arch)
        dialect = backend_named(backend).dialect
        config = with_fixes(Config(), fix or {}, problem, dialect, target)
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
