"""Kernels that only read: what they reach is the read ceiling of a device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from redtune.config import Config, settled
from redtune.dialect import Dialect
from redtune.refusals import is_legal
from redtune.render import render
from redtune.types import Device, Kernel, Problem


def reading_kernels(device: Device, dialect: Dialect, data_bytes: int) -> Iterator[Kernel]:
    """Kernels to be launched without their combine: max of int32, one instruction an element."""
    problem = _problem(max(1, data_bytes // 4))
    for config in _configs(problem, dialect, device):
        yield render(problem, config, dialect, device)


def is_reading(kernel: Kernel, dialect: Dialect, device: Device) -> bool:
    """Whether a kernel is one of those. Every search needs them, whatever it is for."""
    problem = kernel.problem
    return problem == _problem(problem.n) and kernel.config in _configs(problem, dialect, device)


def _problem(n: int) -> Problem:
    return Problem("max", "int32", "int32", n)


def _configs(problem: Problem, dialect: Dialect, device: Device) -> Iterator[Config]:
    for shape in _shapes(device):
        for exchange in ("shuffle", "lds"):
            config = settled(replace(Config(combine="two_pass"), exchange=exchange, **shape))
            if is_legal(config, problem, dialect, device):
                yield config
                break


def _shapes(device: Device) -> list[dict[str, Any]]:
    if device.kind == "cpu" and not device.waves:
        return [
            {"block": b, "vector": v, "items": 4, "blocks_per_cu": 1, "walk": w}
            for b in (32, 128, 512)
            for v in (1, 4)
            for w in ("chunk", "stride")
        ]
    if device.kind == "cpu":
        return [
            {"block": b, "wave": b, "vector": v, "items": i, "blocks_per_cu": g, "walk": "chunk"}
            for b, v, i in ((32, 1, 8), (32, 1, 16), (32, 2, 16), (64, 1, 8), (64, 1, 16))
            for g in (1, 4)
        ]
    return [
        {"block": b, "vector": 4, "items": i, "blocks_per_cu": g, "walk": w, "hint": h}
        for b, i, g, w in (
            (256, 4, 4, "stride"),
            (256, 4, 8, "stride"),
            (256, 8, 2, "stride"),
            (256, 8, 4, "stride"),
            (512, 4, 2, "stride"),
            (512, 4, 4, "stride"),
            (512, 8, 1, "stride"),
            (512, 8, 2, "stride"),
            (1024, 4, 1, "stride"),
            (1024, 4, 2, "stride"),
            (512, 4, 1, "tile"),
            (256, 8, 1, "tile"),
        )
        for h in ("none", "no_allocate")
    ]
