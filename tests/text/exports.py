"""Stored winners and exports for tests that need no device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from redtune.config import Config, settled
from redtune.exporting.formats import FORMATS
from redtune.exporting.variants import Export, choose, default_name
from redtune.render import templates_digest
from redtune.store import format_number
from redtune.types import Best, Problem
from tests.text.kernels import problem, target

# What a search of max on an H200 found.
TUNED = settled(Config(block=384, items=8, vector=4, accumulators=4, walk="tile", combine="atomic"))
BACKENDS = {name: entry.backend for name, entry in FORMATS.items()}


def winner(p: Problem | None = None, config: Config = TUNED, arch: str = "sm_90", **changes: Any) -> Best:
    """An entry of the store, as a search leaves one."""
    backend = "hip" if arch.startswith("gfx") else "cuda" if arch.startswith("sm_") else "opencl"
    device = replace(target(backend, arch).device, name=f"A {arch}", toolchain="a compiler 1.0", driver="1.2.3")
    found = Best(
        problem=p or problem("max", n=1 << 28),
        device=device,
        config=config,
        median_us=236.736,
        spread_us=0.252,
        runner_up_us=236.832,
        default_us=239.688,
        worst_us=1576.96,
        baseline_us=249.813,
        baseline="cupy 14.2.0",
        gbps=4535.609,
        ceiling_gbps=4547.749,
        temperature="cold",
        determinism="run-to-run",
        trials=95,
        seed=0,
        found="2026-11-30T12:40:28+00:00",
        versions={"numpy": "2.5.2"},
        templates=templates_digest(),
        format=format_number(),
    )
    return replace(found, **changes)


def exported(format: str, problems: Sequence[Problem], archs: Sequence[str], **fix: Any) -> Export:
    """An export of default configs with some knobs fixed, for no device."""
    devices = [target(BACKENDS[format], arch).device for arch in archs]
    variants = choose(problems, devices, fix=fix, temperature="cold", or_default=True)
    return Export(default_name(problems[0]), variants, "redtune export ...")
