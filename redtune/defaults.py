"""Where a search begins, and what runs when nothing was measured: shapes that suit a device, best guess first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from redtune.config import Config, settled
from redtune.dialect import Dialect
from redtune.dtypes import dtype_named
from redtune.errors import UsageError
from redtune.refusals import refusals
from redtune.types import Device, Problem


def default_config(problem: Problem, dialect: Dialect, device: Device) -> Config:
    """The config to use when nothing is tuned. Raises UsageError with the reason when none is legal."""
    legal = starting_points(problem, dialect, device)
    if legal:
        return legal[0]
    last = settled(replace(Config(), **_shapes(problem, device)[-1]))
    raise UsageError(refusals(last, problem, dialect, device)[0])


def starting_points(problem: Problem, dialect: Dialect, device: Device) -> list[Config]:
    """The legal ones among the shapes, in their order."""
    configs = [settled(replace(Config(), **values)) for values in _shapes(problem, device)]
    return [config for config in configs if not refusals(config, problem, dialect, device)]


def _shapes(problem: Problem, device: Device) -> list[dict[str, Any]]:
    """From what suits the device best down to what runs anywhere."""
    anywhere = {"exchange": "lds", "tree": "sequential", "combine": "two_pass"}
    if device.kind == "cpu":
        # One sub-group per block, so that a core walks its memory in order; the compiler turns lanes into vectors.
        wave = max(device.waves, default=32)
        first: dict[str, Any] = {"block": wave, "wave": wave, "items": 8, "walk": "chunk", "blocks_per_cu": 1}
        others: list[dict[str, Any]] = [
            {"items": 2, "vector": 2},
            {"accumulators": 2, "hint": "streaming", "blocks_per_cu": 2},
            {"block": 32, "wave": 32, "items": 16},
            {"accumulators": 1},
            {"items": 16, "blocks_per_cu": 4},
        ]
    else:
        vector = 16 // dtype_named(problem.dtype).bytes
        first = {"block": 512, "vector": vector, "items": 4, "walk": "stride", "blocks_per_cu": 2}
        others = [
            {"block": 256, "items": 8, "walk": "tile", "combine": "atomic", "hint": "streaming"},
            {"items": 6, "walk": "tile", "combine": "two_pass"},
            {"block": 256, "items": 8, "blocks_per_cu": 4, "hint": "no_allocate"},
            {"walk": "tile"},
            {"block": 1024, "blocks_per_cu": 1},
        ]
    fallbacks = [
        first | {"combine": "two_pass"},
        first | anywhere,
        {"block": 64, "vector": 1, "second_block": 64} | anywhere,
    ]
    return [first, *(first | other for other in others), *fallbacks]
