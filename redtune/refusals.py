"""Why a config cannot run for a problem on a device: one sentence each, and no device time spent."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from redtune.combine import COMBINES
from redtune.config import (
    KNOBS,
    WHOLE_BLOCK,
    WITH_TAIL,
    Config,
    Value,
    choices,
    default_of,
    is_read,
    own_refusals,
    settled,
    team_of,
)
from redtune.dialect import Dialect
from redtune.dtypes import dtype_named
from redtune.narrow import folds_in_ints
from redtune.operators import keeps_losses, operator_of, result_of
from redtune.packing import idle_accumulators
from redtune.plan import held_at_once, lanes_of, make_plan, meets_of
from redtune.types import Device, Problem

MAX_LOAD_BYTES = 16
# More blocks than this only cost scratch and a longer last fold: 2^22 partials of 16 bytes are 64 MiB. A grid of HIP
# holds less than 2^32 threads, and so do so many blocks of 1024.
MAX_BLOCKS = (1 << 22) - 1
MAX_SCRATCH_BYTES = 1 << 30
# Float additions in a row within a tile. With the trees around them, so many keep a sum of positive float32 values
# within 1e-6 of the exact one; from tile to tile nothing is lost.
MAX_CHAIN = 8
IDLE_COMBINE = {"combine": "two_pass", "second_block": default_of("second_block")}


def refusals(config: Config, problem: Problem, dialect: Dialect, device: Device) -> list[str]:
    """Every reason against the config, in sentences; empty when it can run."""
    return list(_own_refusals(config)) or list(_refusals(config, problem, dialect, device))


def hindrances(config: Config, problem: Problem, dialect: Dialect, device: Device) -> list[str]:
    """The reasons for which the config cannot run. Those are left out that only keep digits: its result is right within
    the bound that its own tree has, and further off than a search would put up with."""
    return list(_own_refusals(config)) or list(_hindrances(config, problem, dialect, device))


def is_legal(config: Config, problem: Problem, dialect: Dialect, device: Device) -> bool:
    """Whether nothing is against the config; it stops at the first reason, where `refusals` gives all."""
    return not _own_refusals(config) and next(_refusals(config, problem, dialect, device), None) is None


@functools.lru_cache(maxsize=1 << 16)
def _own_refusals(config: Config) -> tuple[str, ...]:
    """Kept, as whoever draws or walks asks the same of many problems."""
    return tuple(own_refusals(config))


def _refusals(config: Config, problem: Problem, dialect: Dialect, device: Device) -> Iterator[str]:
    yield from _hindrances(config, problem, dialect, device)
    yield from _losses(config, problem, device)


def _losses(config: Config, problem: Problem, device: Device) -> Iterator[str]:
    op = operator_of(problem)
    chain = -(-held_at_once(problem, config) // config.accumulators)
    rounds = keeps_losses(op, problem.accumulate) and not folds_in_ints(problem)
    if chain > MAX_CHAIN and rounds and not problem.is_compensated:
        yield f"{chain} float additions in a row lose too much; at most {MAX_CHAIN}, so use more accumulators"
    yield from COMBINES[config.combine].losses(config, problem, op, device)


def _hindrances(config: Config, problem: Problem, dialect: Dialect, device: Device) -> Iterator[str]:
    op, dtype = operator_of(problem), dtype_named(problem.dtype)
    if config.block > device.max_block:
        yield f"block {config.block} is more than the {device.max_block} threads {device.name} allows"
    if is_read("second_block", config) and config.second_block > device.max_block:
        yield f"second block {config.second_block} is more than the {device.max_block} threads {device.name} allows"
    load = config.vector * dtype.bytes
    if load > MAX_LOAD_BYTES:
        yield f"vector {config.vector} of {dtype.name} is a load of {load} bytes; at most {MAX_LOAD_BYTES}"
        return
    if dtype.parts > 1 and config.vector == 1 and config.hint != default_of("hint"):
        yield f"hint {config.hint} needs loads of more than one {dtype.name}, which may lie at any multiple of a part"
    idle = idle_accumulators(problem, config, dialect)
    if idle is not None and config.accumulators != idle:
        yield f"accumulators {config.accumulators} has no effect where words are folded; leave it at {idle}"
    if problem.layout == "flat":
        yield from _flat_refusals(config)
    else:
        yield from _layout_refusals(config, problem)
    if _is_wave_idle(config, problem, dialect, device):
        yield f"wave {config.wave} is wider than any team here; leave it at {default_of('wave')}"
    if is_read("second_launch", config) and config.second_launch != default_of("second_launch"):
        yield from _early_refusals(config, problem, device)
    yield from dialect.refusals(config, problem, op, device)
    yield from COMBINES[config.combine].refusals(config, problem, op, device)
    plan = make_plan(problem, config, dialect, device)
    if plan.lds_bytes > device.lds_bytes:
        yield f"{plan.lds_bytes} bytes of shared memory are more than the {device.lds_bytes} of {device.name}"
    if plan.blocks > MAX_BLOCKS:
        yield f"walk {config.walk} would start {plan.blocks} blocks; at most {MAX_BLOCKS}"
    scratch = plan.partials_bytes + plan.counter_bytes
    if scratch > MAX_SCRATCH_BYTES:
        yield f"split {config.split} would leave {scratch / 2**20:.0f} MiB between blocks; at most 1024"


def _is_wave_idle(config: Config, problem: Problem, dialect: Dialect, device: Device) -> bool:
    """Whether the kernel is the one of the default wave: no more lanes issue together, and none of them is used."""
    if not is_read("wave", config) or config.wave == default_of("wave"):
        return False
    plain = replace(config, wave=int(default_of("wave")))
    meets = meets_of(problem, config, dialect, device)
    if meets != meets_of(problem, plain, dialect, device):
        return False
    if all(meet.lane_moves for meet in meets):  # the steps in registers say themselves which lanes they are of
        return dialect.hardware_wave(config, device) == dialect.hardware_wave(plain, device)
    return lanes_of(config, dialect, device) == lanes_of(plain, dialect, device)


def _flat_refusals(config: Config) -> Iterator[str]:
    for name in ("team", "split"):
        value = getattr(config, name)
        if value != default_of(name):
            yield f"{name} {value} is for rows and columns; a flat reduction leaves it at {default_of(name)}"


def _early_refusals(config: Config, problem: Problem, device: Device) -> Iterator[str]:
    if "early_launches" not in device.features:
        yield f"second_launch {config.second_launch} needs dependent launches, which {device.name} does not offer"
    if problem.layout != "flat":
        yield f"second_launch {config.second_launch} is for flat reductions; leave it at {default_of('second_launch')}"


def _layout_refusals(config: Config, problem: Problem) -> Iterator[str]:
    if config.walk == "tile":
        yield f"walk tile is for flat reductions; {problem.layout} take their tiles in stride or chunk"
    if config.split == 1:
        # Nothing meets, so that the knobs of how blocks meet change nothing.
        for name, value in IDLE_COMBINE.items():
            if getattr(config, name) != value:
                yield f"{name} {getattr(config, name)} has no effect where split is 1; leave it at {value}"
    elif config.team == 1:
        yield f"split {config.split} needs more than the one thread of team 1"
    if config.team != WHOLE_BLOCK and is_read("tree", config) and config.tree in WITH_TAIL:
        yield f"tree {config.tree} needs the whole block as its team"
    if problem.layout != "columns":
        return
    if config.vector > 1:
        yield from _wide_refusals(config, problem)
    elif config.hint != default_of("hint"):
        yield f"hint {config.hint} is for loads of several neighbours, and vector is 1"
    if config.team != 1 and config.exchange != "lds" and team_of(config) != config.block:
        yield f"exchange {config.exchange} needs the threads of a team next to each other; in columns use lds or team 1"


def _wide_refusals(config: Config, problem: Problem) -> Iterator[str]:
    """Why a thread cannot take several columns."""
    if problem.inner % config.vector:
        yield f"vector {config.vector} of columns needs a multiple of {config.vector} of them, not {problem.inner}"
    if problem.is_masked or operator_of(problem).inputs > 1 or dtype_named(problem.dtype).parts > 1:
        yield f"vector {config.vector} of columns is for one array of real numbers without a mask"
    if config.split > 1 and COMBINES[config.combine].counter:
        yield f"combine {config.combine} counts blocks once, and vector {config.vector} gives a thread several columns"
    if config.accumulators > config.items:
        yield f"accumulators {config.accumulators} are more than the {config.items} elements of a column at once"


def problem_refusal(problem: Problem, device: Device) -> str:
    """Why no config at all can run for the problem on the device, or nothing."""
    needed = {problem.dtype, problem.accumulate, result_of(problem)}
    if needed & {"float64", "complex128"} and "fp64" not in device.features:
        return f"{device.name} has no float64; choose another dtype or device"
    return ""


# How results are shared: as the start does, by whole blocks together, by no two threads.
_SHARING: list[dict[str, Any]] = [
    {},
    {"team": WHOLE_BLOCK, "split": 8, "combine": "two_pass", "exchange": "lds", "tree": "sequential"},
    {"team": 1, "split": 1, "combine": "two_pass"},
]


@functools.lru_cache(maxsize=1 << 16)
def _changed(base: Config, changes: tuple[tuple[str, Value], ...]) -> Config | None:
    """A config with some knobs changed, or None where one of them has no effect then. Kept, as the spaces of many
    problems begin at the same config."""
    config = settled(replace(base, **dict[str, Any](changes)))
    return config if all(getattr(config, name) == value for name, value in changes) else None


def admitted_choices(
    problem: Problem, dialect: Dialect, device: Device, fixed: Mapping[str, Value], start: Config
) -> dict[str, tuple[Value, ...]]:
    """The choices of each knob that some legal config uses: one or two changes away from `start` and its like that
    share results in other ways, or one change away from what was found so."""
    free = [name for name in KNOBS if name not in fixed]
    singles = [(name, value) for name in free for value in choices(name)]
    can_run = functools.cache(lambda config: is_legal(config, problem, dialect, device))
    held = tuple(fixed.items())

    def legal(base: Config, *changes: tuple[str, Value]) -> Config | None:
        config = _changed(base, changes)
        if config is None or any(getattr(config, name) != value for name, value in held):
            return None
        return config if can_run(config) else None

    ways = [{}] if problem.layout == "flat" else _SHARING
    starts = [replace(start, **(way | dict[str, Any](fixed))) for way in ways]
    found = set[tuple[str, Value]]()
    for k, base in enumerate(starts):  # grows as it is walked
        for name, value in singles:
            if (name, value) in found:
                continue
            # Pairs are many, and most choices that are left by then no config can have: so from the first few alone.
            pairs = (
                (other, change)
                for other, change in singles
                if k < len(ways) and other != name and change != getattr(base, other)
            )
            config = legal(base, (name, value)) or next(
                filter(None, (legal(base, (name, value), pair) for pair in pairs)), None
            )
            if config is not None:
                found |= {(each, getattr(config, each)) for each in free}
                starts.append(config)
    fits = {name: (value,) for name, value in fixed.items()}
    return fits | {name: tuple(value for value in choices(name) if (name, value) in found) for name in free}
