"""The config to start from when nothing was measured: by device kind, and legal for the problem at hand."""

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
    """The first legal config of a short list. Raises UsageError with the reason when none is legal."""
    options = [settled(replace(Config(), **values)) for values in _shapes(problem, device)]
    for config in options:
        if not refusals(config, problem, dialect, device):
            return config
    raise UsageError(refusals(options[-1], problem, dialect, device)[0])


def _shapes(problem: Problem, device: Device) -> list[dict[str, Any]]:
    """From what suits the device best down to what runs anywhere."""
    anywhere = {"exchange": "lds", "tree": "sequential", "combine": "two_pass"}
    if device.kind == "cpu":
        # One sub-group per block, so that a core walks its memory in order; the compiler turns lanes into vectors.
        wave = max(device.waves, default=32)
        shape = {"block": wave, "wave": wave, "vector": 1, "items": 8, "walk": "chunk", "blocks_per_cu": 1}
    else:
        vector = 16 // dtype_named(problem.dtype).bytes
        shape = {"block": 512, "vector": vector, "items": 4, "walk": "stride", "blocks_per_cu": 2}
    return [shape, shape | {"combine": "two_pass"}, shape | anywhere, {"block": 64, "vector": 1} | anywhere]
