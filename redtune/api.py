"""The verbs. The command line is a skin over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redtune.config import KNOBS, Config, Value, choices, settled
from redtune.dtypes import unknown
from redtune.errors import BackendMissing, RedtuneError, UsageError
from redtune.operators import operator_named
from redtune.plan import read_bytes
from redtune.problems import make_problem
from redtune.types import Best, Device, Problem

if TYPE_CHECKING:
    from redtune.bench import Comparison
    from redtune.dialect import Dialect
    from redtune.outcome import Progress, Report

DEFAULT_N = {"gpu": 1 << 28, "cpu": 1 << 25}


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


def search(
    op: str,
    dtype: str = "float32",
    n: int | None = None,
    *,
    backend: str | None = None,
    device: int = 0,
    trials: int | None = None,
    time_limit_s: float | None = None,
    sampler: str = "tpe",
    seed: int = 0,
    fix: Mapping[str, Value] | None = None,
    determinism: str = "any",
    cold: bool = True,
    storage: str | None = None,
    study: str | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Report:
    """Tunes the reduction of `n` elements (2**28 on a GPU and 2**25 on a CPU if None) and keeps the winner.

    `trials` is how many configs the study holds in the end, those of earlier calls included; `time_limit_s` ends the
    measuring after so many seconds. `fix` sets knobs; a search with fixed knobs reports its winner but does not store
    it. Raises UsageError, BackendMissing, or NothingVerified when no config came through the judge.
    """
    from redtune.lab import find_device
    from redtune.proposals import SAMPLERS
    from redtune.tuner import Search

    problem = make_problem(op, dtype, 1 if n is None else n, determinism)
    fixed = check_fixes(fix or {})
    if sampler not in SAMPLERS:
        raise UsageError(unknown("sampler", sampler, SAMPLERS))
    if trials is not None and trials < 1:
        raise UsageError(f"a search of {trials} trials measures nothing; ask for at least 1")
    if time_limit_s is not None and not time_limit_s > 0:
        raise UsageError(f"a time limit of {time_limit_s:g} s leaves no time; ask for more than 0")
    if not 0 <= seed < 2**32:
        raise UsageError(f"seed is {seed}; it must lie between 0 and 2**32 - 1")
    found = find_device(backend, device)
    problem = sized(problem, n, found)
    check_fits(problem, found)
    return Search(
        problem,
        found,
        trials=trials,
        time_limit_s=time_limit_s,
        sampler=sampler,
        seed=seed,
        fixed=fixed,
        storage=storage,
        study=study,
        is_cold=cold,
        progress=progress,
    ).run()


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


def bench(
    op: str,
    dtype: str = "float32",
    n: int | None = None,
    *,
    backend: str | None = None,
    device: int = 0,
    cold: bool = True,
) -> Comparison:
    """Times the stored winner, the default and every library that is there, in turns in one run. Tunes nothing."""
    from redtune.bench import compare_libraries
    from redtune.lab import find_device

    problem = make_problem(op, dtype, 1 if n is None else n)
    found = find_device(backend, device)
    problem = sized(problem, n, found)
    check_fits(problem, found)
    return compare_libraries(problem, found, is_cold=cold)


def tuned(op: str | None = None) -> list[tuple[str, Best]]:
    """The stored winners: ("here" or "shipped", entry) of every architecture, or of one operator."""
    from redtune import store

    if op is not None:
        operator_named(op)
    roots = (("here", store.cache_path() / "configs"), ("shipped", store.shipped_path()))
    return [(whose, best) for whose, root in roots for best in store.entries(root) if op in (None, best.problem.op)]


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

    problem = make_problem(op, dtype, 1 if n is None else n)
    if arch is None:
        target = find_device(backend, device)
        dialect = backend_named(target.backend).dialect
        problem = sized(problem, n, target)
        base = store.lookup(problem, dialect, target).config
    elif backend is None:
        raise UsageError("--arch names an architecture of a backend: name the backend too")
    else:
        target = backend_named(backend).describe(arch)
        dialect = backend_named(backend).dialect
        base = Config()
    config = with_fixes(base, fix or {}, problem, dialect, target)
    return render(problem, config, dialect, target).source


def reduce_file(path: str, op: str, *, backend: str | None = None, device: int = 0) -> dict[str, Any]:
    """Reduces all elements of a .npy file on a device, in chunks when it is larger than the device's memory.

    Gives the value as a Python number with the config used and where it comes from. An empty file gives numpy's answer
    for an empty array: 0 for sum, 1 for prod, UsageError for the others.
    """
    from redtune import store
    from redtune.backends import backend_named
    from redtune.files import open_npy
    from redtune.lab import Lab, find_device
    from redtune.render import render

    operator = operator_named(op)
    array = open_npy(path)
    dtype = array.dtype.newbyteorder("=").name
    if array.size == 0:
        if operator.empty is None:
            raise UsageError(f"{path} is empty, and {op} of no elements has no value")
        return {"value": operator.empty, "dtype": dtype, "n": 0, "config": None, "origin": "no elements"}
    problem = make_problem(op, dtype, int(array.size))
    found_device = find_device(backend, device)
    dialect = backend_named(found_device.backend).dialect
    found = store.lookup(problem, dialect, found_device)
    with Lab(found_device, problem) as lab:
        compiled = lab.compile(render(problem, found.config, dialect, found_device, output="state"))
        if compiled.binary is None:
            raise RedtuneError(f"the {found.origin} config did not compile: {compiled.note}")
        value = lab.reduce_file(compiled, path)
    return {"value": value, "dtype": dtype, "n": problem.n, "config": found.config, "origin": found.origin}
