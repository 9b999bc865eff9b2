"""Side by side in one run: the stored winner, the default, the libraries that are there, and the read ceiling."""

from __future__ import annotations

from dataclasses import dataclass

from redtune.clock import is_time, summary
from redtune.config import Config
from redtune.defaults import default_config
from redtune.errors import RedtuneError
from redtune.lab import Lab
from redtune.plan import read_bytes
from redtune.render import render
from redtune.store import lookup
from redtune.types import Device, Problem, Timing

ROUNDS = {"gpu": 41, "cpu": 15}


@dataclass(frozen=True, slots=True)
class Row:
    """One thing measured: its time, bytes read over it in GB/s, and the share of the read ceiling it reaches."""

    name: str
    timing: Timing
    gbps: float
    of_ceiling: float
    config: Config | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows of one problem, the ceiling as measured in the same run, and what is absent with its reason."""

    problem: Problem
    device: Device
    ceiling: Timing
    rows: tuple[Row, ...]
    absent: tuple[tuple[str, str], ...]
    temperature: str


def compare_libraries(problem: Problem, device: Device, *, is_cold: bool = True, seed: int = 0) -> Comparison:
    """Times everything in turns, in one process."""
    temperature = "cold" if is_cold else "warm"
    with Lab(device, problem, seed=seed, is_cold=is_cold) as lab:
        found = lookup(problem, lab.dialect, device, temperature)
        default = default_config(problem, lab.dialect, device)
        configs = {found.config: f"redtune, {found.origin}"}
        configs.setdefault(default, "redtune, default")
        data_bytes = read_bytes(problem)
        alone = lab.ceiling(data_bytes)
        tried = [lab.compile(render(problem, config, lab.dialect, device)) for config in configs]
        compiled = [c for c in tried if c.binary is not None]
        if not compiled:
            raise RedtuneError(f"no config to compare with compiles: {tried[0].note}")
        finals = lab.finals(compiled, ROUNDS[device.kind], with_libraries=True)

    ceiling = finals.ceiling() or alone
    timeless = "the clock showed no time"
    if not all(is_time(sample) for samples in finals.samples for sample in samples):
        raise RedtuneError(f"{timeless}, so nothing can be compared")

    def row(name: str, samples: tuple[float, ...], config: Config | None = None) -> Row:
        timing = summary(samples)
        rate = data_bytes / timing.median_us * 1e-3
        return Row(name, timing, rate, ceiling.median_us / timing.median_us, config)

    ran = [c.kernel.config for c in compiled]
    rows = [row(configs[c], samples, c) for c, samples in zip(ran, finals.samples, strict=True)]
    libraries = [(finals.baseline, finals.baseline_samples)] if finals.baseline_samples else []
    libraries += finals.libraries
    rows += [row(name, samples) for name, samples in libraries if all(map(is_time, samples))]
    absent = tuple((configs[c.kernel.config], f"did not compile: {c.note}") for c in tried if c not in compiled)
    absent += tuple((name, timeless) for name, samples in libraries if not all(map(is_time, samples)))
    absent += finals.absent + ((("library at hand", finals.baseline_absent),) if finals.baseline_absent else ())
    return Comparison(problem, device, ceiling, tuple(rows), absent, temperature)
