"""The door for how blocks meet: `COMBINES` has one entry each.

An entry names what it needs on the device (scratch, features), the launches it makes, and when it is not allowed; its
template of the same name in `templates/combine/` writes the code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from redtune.operators import Operator, field_type, has_one_answer, keeps_losses, result_of
from redtune.types import Device, Problem

if TYPE_CHECKING:
    from redtune.config import Config

Refusals = Callable[["Config", Problem, Operator, Device], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Combine:
    """One way for blocks to meet.

    `refusals` says when it cannot be, `losses` when a result would lose too many digits. `before` and `after` name
    further entry points, each one block, launched around the main kernel; `partials` says whether every block leaves
    its state in scratch, `in_turn` whether blocks merge into the result one after the other, and `extra` how many
    blocks are started beside those that share the result, where several do. `counter` says what is zero before and
    after: the number of the blocks that are done, marked cells in which each leaves its state, or tallies, to which
    each adds its state and itself.
    """

    name: str
    meaning: str
    refusals: Refusals
    before: str = ""
    after: str = ""
    partials: bool = False
    counter: Literal["", "number", "cells", "tallies"] = ""
    in_turn: bool = False
    extra: int = 0
    losses: Refusals = lambda config, problem, op, device: iter(())


def _always(config: Config, problem: Problem, op: Operator, device: Device) -> Iterator[str]:
    yield from ()


def _needs_device_order(config: Config, problem: Problem, op: Operator, device: Device) -> Iterator[str]:
    if "device_atomics" not in device.features:
        yield f"combine {config.combine} needs acquire-release atomics across blocks, which {device.name} lacks"


# Atomics round each sum once more, one after the other: so many roundings keep a float32 within 1e-6 of the exact sum.
MAX_FLOAT_ATOMICS = {"float32": 4, "float64": 4096}


def _atomic(config: Config, problem: Problem, op: Operator, device: Device) -> Iterator[str]:
    from redtune.dtypes import dtype_named

    result = result_of(problem)
    fields = [field_type(kind, problem.accumulate) for _, kind in op.state]
    if len(fields) != 1:
        yield f"combine atomic needs a state of one field, and {op.name} has {len(fields)}"
        return
    held = {fields[0], problem.accumulate if op.state[0][1] in ("sum", "wrapping") else fields[0]}
    if result not in held or op.finish != (f"a.{op.state[0][0]}",) or problem.is_compensated:
        kept = f"{problem.accumulate} and keeps what it loses" if problem.is_compensated else fields[0]
        yield f"combine atomic needs the result to be what is accumulated, not {result} from {kept}"
    elif dtype_named(result).bytes == 8 and "atomics_64" not in device.features:
        yield f"combine atomic on {result} needs 64-bit atomics, which {device.name} does not offer"
    if problem.determinism == "run-to-run" and not has_one_answer(op, problem.accumulate):
        yield (
            f"combine atomic merges {problem.accumulate} in the order blocks finish, and roundings, signs of zero and "
            "NaNs depend on it: run-to-run is out of its reach"
        )


def _atomic_losses(config: Config, problem: Problem, op: Operator, device: Device) -> Iterator[str]:
    if keeps_losses(op, problem.accumulate) and problem.determinism == "any" and not problem.is_compensated:
        most = MAX_FLOAT_ATOMICS[problem.accumulate]
        blocks = _blocks_per_result(config, problem, device)
        if blocks > most:
            yield f"combine atomic would round {problem.accumulate} sums of {blocks} blocks in turn; at most {most}"


def _blocks_per_result(config: Config, problem: Problem, device: Device) -> int:
    from redtune.plan import parts_of

    return parts_of(problem, config, device)


def _cluster(config: Config, problem: Problem, op: Operator, device: Device) -> Iterator[str]:
    if "clusters" not in device.features:
        yield f"combine cluster needs thread block clusters, which {device.name} does not offer"
    elif problem.layout != "flat" and (config.team or config.split % config.cluster):
        yield (
            f"combine cluster needs whole blocks and a whole number of clusters of {config.cluster} per result, "
            f"not team {config.team} and split {config.split}"
        )


def _collector(config: Config, problem: Problem, op: Operator, device: Device) -> Iterator[str]:
    if "waiting_blocks" not in device.features:
        yield f"combine collector needs blocks that may wait for others, which {device.name} does not promise"
    if problem.layout != "flat":
        yield f"combine collector is for flat reductions; the blocks of {problem.layout} meet in other ways"


# A tally is 64 bits: so many low ones hold the sum of 32-bit words, those above it how many blocks have added theirs.
COUNT_AT = 48
MOST_TALLIED = (1 << (64 - COUNT_AT)) - 1


def _adds_up(op: Operator, accumulate: str) -> bool:
    """Whether the states of all blocks can be added up in tallies: one field, of integers that wrap around or of
    flags."""
    (name, kind), *others = op.state
    adds = op.merge == (f"a.{name} + b.{name}",) and has_one_answer(op, accumulate)
    return not others and (adds or kind == "flag")


def _tally(config: Config, problem: Problem, op: Operator, device: Device) -> Iterator[str]:
    if problem.layout != "flat":
        yield f"combine tally is for flat reductions; the blocks of {problem.layout} meet in other ways"
        return
    if not _adds_up(op, problem.accumulate):
        yield f"combine tally needs integers that add up, or flags, not what {op.name} keeps in {problem.accumulate}"
    if "atomics_64" not in device.features:
        yield f"combine tally needs 64-bit atomics, which {device.name} does not offer"
    if config.walk == "tile":
        yield f"combine tally counts up to {MOST_TALLIED} blocks, and walk tile starts as many as there are tiles"
    elif (blocks := _blocks_per_result(config, problem, device)) > MOST_TALLIED:
        yield f"combine tally counts up to {MOST_TALLIED} blocks, not {blocks}"


COMBINES = {
    c.name: c
    for c in (
        Combine(
            "two_pass",
            "a second launch of one block folds what the blocks left",
            _always,
            after="second",
            partials=True,
        ),
        Combine(
            "atomic",
            "each block merges its state into the result with an atomic",
            _atomic,
            before="reset",
            in_turn=True,
            losses=_atomic_losses,
        ),
        Combine(
            "last_block",
            "the block that finishes last folds what the others left",
            _needs_device_order,
            partials=True,
            counter="number",
        ),
        Combine(
            "cluster",
            "the blocks of a cluster meet in shared memory, then the last cluster folds what the others left",
            _cluster,
            partials=True,
            counter="number",
        ),
        Combine(
            "collector",
            "a block more than share the result waits for what they leave, and folds it",
            _collector,
            counter="cells",
            extra=1,
        ),
        Combine(
            "tally",
            "each block adds its state to a cell that counts blocks too, and the last has the whole",
            _tally,
            counter="tallies",
        ),
    )
}
