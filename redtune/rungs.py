"""The rungs of the ladder: configs over the same templates, from `configs/ladder.yaml`, each one thing further on."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from redtune.config import Config, Value, choices
from redtune.defaults import fitted
from redtune.dialect import Dialect
from redtune.dtypes import dtype_named
from redtune.errors import UsageError
from redtune.plainyaml import read_plain
from redtune.render import templates_path
from redtune.types import Device, Problem
from redtune.wanted import check_fixes

MAX_FILE_BYTES = 1 << 16
TUNED_NAME = "tuned"
TUNED_LACKS = "it holds for this device and about this size; another one wants a search of its own"


@dataclass(frozen=True, slots=True)
class Rung:
    """One rung: its number from 1, what is new on it, the problem that it still has in one sentence, and its knobs.
    `load_bytes` says how wide a load is, where `vector` depends on the type of the elements."""

    number: int
    name: str
    lacks: str
    knobs: Mapping[str, Value]
    load_bytes: int = 0


@functools.cache
def rungs() -> tuple[Rung, ...]:
    """The rungs in their order, all but the tuned one."""
    rows = read_plain(templates_path().parent / "configs" / "ladder.yaml", MAX_FILE_BYTES)["rungs"]
    found = tuple(Rung(number, **row) for number, row in enumerate(rows, 1))
    for rung in found:
        check_fixes(rung.knobs)
    return found


def tuned_rung() -> Rung:
    """The rung above all others: what a search has found."""
    return Rung(len(rungs()) + 1, TUNED_NAME, TUNED_LACKS, {})


def config_of(rung: Rung, block: int, problem: Problem, dialect: Dialect) -> Config:
    """The config of a rung in blocks of that size."""
    values: dict[str, Any] = dict(rung.knobs)
    if rung.load_bytes:
        values["vector"] = max(1, rung.load_bytes // dtype_named(problem.dtype).bytes)
    return fitted(replace(Config(), **values, block=block), problem, dialect)


def check_block(block: int, device: Device | None = None) -> None:
    """Raises UsageError for a block that the trees of the ladder do not halve, or that a device does not run."""
    powers = [size for size in choices("block") if isinstance(size, int) and size & (size - 1) == 0]
    if block not in powers:
        raise UsageError(f"block is {block}: the ladder halves it, so choose from {', '.join(map(str, powers))}")
    if device is not None and block > device.max_block:
        raise UsageError(f"block is {block}, and {device.name} runs at most {device.max_block} threads in one")


def rung_numbered(number: int) -> Rung:
    """The rung of that number. Raises UsageError where there is none."""
    every = (*rungs(), tuned_rung())
    if not 1 <= number <= len(every):
        raise UsageError(f"there is no rung {number}: they are numbered from 1 to {len(every)}")
    return every[number - 1]
