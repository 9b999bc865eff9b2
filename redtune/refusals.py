"""Why a config cannot run for a problem on a device: one sentence each, and no device time spent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from redtune.combine import COMBINES
from redtune.config import KNOBS, Config, Value, choices, is_read, own_refusals, settled
from redtune.dialect import Dialect
from redtune.dtypes import dtype_named
from redtune.operators import OPERATORS
from redtune.plan import make_plan
from redtune.types import Device, Problem

MAX_LOAD_BYTES = 16
# More blocks than this only cost scratch and a longer last fold: 2^22 partials of 16 bytes are 64 MiB.
MAX_BLOCKS = 1 << 22


def refusals(config: Config, problem: Problem, dialect: Dialect, device: Device) -> list[str]:
    """Every reason against the config, in sentences; empty when it can run."""
    own = list(own_refusals(config))
    return own or list(_refusals(config, problem, dialect, device))


def _refusals(config: Config, problem: Problem, dialect: Dialect, device: Device) -> Iterator[str]:
    op, dtype = OPERATORS[problem.op], dtype_named(problem.dtype)
    if config.block > device.max_block:
        yield f"block {config.block} is more than the {device.max_block} threads {device.name} allows"
    if is_read("second_block", config) and config.second_block > device.max_block:
        yield f"second block {config.second_block} is more than the {device.max_block} threads {device.name} allows"
    load = config.vector * dtype.bytes
    if load > MAX_LOAD_BYTES:
        yield f"vector {config.vector} of {dtype.name} is a load of {load} bytes; at most {MAX_LOAD_BYTES}"
        return
    yield from dialect.refusals(config, problem, op, device)
    yield from COMBINES[config.combine].refusals(config, problem, op, device)
    plan = make_plan(problem, config, dialect, device)
    if plan.lds_bytes > device.lds_bytes:
        yield f"{plan.lds_bytes} bytes of shared memory are more than the {device.lds_bytes} of {device.name}"
    if plan.blocks > MAX_BLOCKS:
        yield f"walk {config.walk} would start {plan.blocks} blocks; at most {MAX_BLOCKS}"


def problem_refusal(problem: Problem, device: Device) -> str:
    """Why no config at all can run for the problem on the device, or nothing."""
    needed = {problem.dtype, problem.accumulate}
    if "float64" in needed and "fp64" not in device.features:
        return f"{device.name} has no float64; choose another dtype or device"
    return ""


def admitted_choices(
    problem: Problem, dialect: Dialect, device: Device, fixed: Mapping[str, Value], start: Config
) -> dict[str, tuple[Value, ...]]:
    """The choices of each knob that some legal config uses, found at most two changes away from a legal `start`."""
    base: dict[str, Value] = {name: getattr(start, name) for name in KNOBS} | dict(fixed)
    singles = [(name, value) for name in KNOBS if name not in fixed for value in choices(name)]

    def legal(changes: dict[str, Value]) -> bool:
        config = settled(Config(**(base | changes)))  # type: ignore[arg-type]
        kept = all(getattr(config, name) == value for name, value in (dict(fixed) | changes).items())
        return kept and not refusals(config, problem, dialect, device)

    def options(name: str) -> Iterator[Value]:
        for value in [fixed[name]] if name in fixed else choices(name):
            others = ((other, change) for other, change in singles if other != name)
            if name in fixed or legal({name: value}) or any(legal({name: value, o: change}) for o, change in others):
                yield value

    return {name: tuple(options(name)) for name in KNOBS}
