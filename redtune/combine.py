"""The door for how blocks meet: `COMBINES` has one entry each.

An entry names what it needs on the device (scratch, features), the launches it makes, and when it is not allowed; its
template of the same name in `templates/combine/` writes the code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redtune.operators import Operator, is_order_free, result_type
from redtune.types import Device, Problem

if TYPE_CHECKING:
    from redtune.config import Config

Refusals = Callable[["Config", Problem, Operator, Device], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Combine:
    """One way for blocks to meet.

    `before` and `after` name further entry points, each one block, launched around the main kernel; `partials` says
    whether every block leaves its state in scratch, `counter` whether blocks count themselves in a zeroed cell,
    `in_turn` whether blocks merge into the result one after the other.
    """

    name: str
    meaning: str
    refusals: Refusals
    before: str = ""
    after: str = ""
    partials: bool = False
    counter: bool = False
    in_turn: bool = False


def _always(config: Config, problem: Problem, op: Operator, device: Device) -> Iterator[str]:
    yield from ()


def _needs_device_order(config: Config, problem: Problem, op: Operator, device: Device) -> Iterator[str]:
    if "device_atomics" not in device.features:
        yield f"combine {config.combine} needs acquire-release atomics across blocks, which {device.name} lacks"


def _atomic(config: Config, problem: Problem, op: Operator, device: Device) -> Iterator[str]:
    from redtune.dtypes import dtype_named

    result = result_type(op, dtype_named(problem.dtype))
    if len(op.state) != 1:
        yield f"combine atomic needs a state of one field, and {op.name} has {len(op.state)}"
    elif result != problem.accumulate:
        yield f"combine atomic needs the result to be the accumulator, not {result} from {problem.accumulate}"
    elif dtype_named(result).bytes == 8 and "atomics_64" not in device.features:
        yield f"combine atomic on {result} needs 64-bit atomics, which {device.name} does not offer"
    if problem.determinism == "run-to-run" and not is_order_free(op, problem.accumulate):
        yield f"combine atomic adds {problem.accumulate} in the order blocks finish, so run-to-run is out of its reach"


def _cluster(config: Config, problem: Problem, op: Operator, device: Device) -> Iterator[str]:
    if "clusters" not in device.features:
        yield f"combine cluster needs thread block clusters, which {device.name} does not offer"


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
        ),
        Combine(
            "last_block",
            "the block that finishes last folds what the others left",
            _needs_device_order,
            partials=True,
            counter=True,
        ),
        Combine(
            "cluster",
            "the blocks of a cluster meet in shared memory, then the last cluster folds what the others left",
            _cluster,
            partials=True,
            counter=True,
        ),
    )
}
