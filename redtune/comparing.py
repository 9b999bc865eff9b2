"""Which choice of a knob is right on this device, and by how much, beyond noise?

Every choice gets a search of its own, with the same budget, that begins with the others' winners under its own value.
Then the winners are timed together, in turns, in one process: what is compared are the paired ratios of those rounds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from redtune.clock import is_time, paired_ratio, summary
from redtune.config import KNOBS, Config, Value, choices, settled
from redtune.dtypes import unknown
from redtune.errors import RedtuneError, UsageError
from redtune.lab import Finals, Lab
from redtune.outcome import Progress, gigabytes_per_second
from redtune.plan import read_bytes
from redtune.render import render
from redtune.tuner import NothingVerified, Search
from redtune.types import Device, Problem, Resources, Timing

ROUNDS = {"gpu": 81, "cpu": 41}
TRIALS = {"gpu": 60, "cpu": 16}
LIMIT_S = {"gpu": 25.0, "cpu": 40.0}  # for each choice
MOST_CHOICES = 64
FEW = 9  # rounds that are enough to find the fastest


@dataclass(frozen=True, slots=True)
class Row:
    """One choice: the best config under it, its time beside that of the fastest choice, and what it takes; or why it
    cannot run here. `ratio` is the median of the paired ratios to the fastest, with the interval that holds the true
    one 19 times in 20."""

    choice: Mapping[str, Value]
    config: Config | None = None
    trials: int = 0
    timing: Timing | None = None
    ratio: tuple[float, float, float] | None = None
    gbps: float | None = None
    of_ceiling: float | None = None
    resources: Resources | None = None
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Compared:
    """All choices in their order, the ceiling of the same rounds, and the width of the noise: how far the ratio of one
    config to itself goes from 1. `is_aa` says that each row is the same config."""

    problem: Problem
    device: Device
    knobs: tuple[str, ...]
    rows: tuple[Row, ...]
    ceiling: Timing
    noise: tuple[float, float, float]
    temperature: str
    seed: int
    is_aa: bool = False

    def check(self) -> None:
        """Raises RedtuneError where no choice could be timed."""
        if not any(row.timing for row in self.rows):
            raise RedtuneError("no choice came through: " + "; ".join(dict.fromkeys(row.verdict for row in self.rows)))


def combined(knobs: Sequence[str]) -> list[dict[str, Value]]:
    """Every combination of choices of some knobs. Raises UsageError for a knob there is not, or too many choices."""
    for name in knobs:
        if name not in KNOBS:
            raise UsageError(unknown("knob", name, tuple(KNOBS)))
    if len(set(knobs)) < len(knobs):
        raise UsageError(f"the knob {knobs[0]} is compared with itself: name two different ones, or one")
    found = [dict(zip(knobs, values, strict=True)) for values in itertools.product(*map(choices, knobs))]
    if len(found) > MOST_CHOICES:
        raise UsageError(f"{' and '.join(knobs)} have {len(found)} combinations; at most {MOST_CHOICES} are compared")
    return found


def check_free(knobs: Sequence[str], fixed: Mapping[str, Value]) -> None:
    """Raises UsageError for a knob that is compared and fixed as well."""
    for name in set(knobs) & set(fixed):
        raise UsageError(f"{name} is compared, so that it cannot be fixed at {fixed[name]}")


def compare_choices(
    problem: Problem,
    device: Device,
    knobs: Sequence[str],
    *,
    fixed: Mapping[str, Value],
    trials: int | None = None,
    limit_s: float | None = None,
    seed: int = 0,
    is_cold: bool = True,
    is_aa: bool = False,
    progress: Callable[[Progress], None] = lambda step: None,
) -> Compared:
    """Searches under each choice, then times the winners together. With `is_aa` the fastest of them is timed against
    itself, as many times as there are choices: all that shows then is noise."""
    asked = combined(knobs)
    check_free(knobs, fixed)
    rows = [Row(choice) for choice in asked]
    winners: dict[int, Config] = {}
    for k, choice in enumerate(asked):
        whole = {**fixed, **choice}
        told = _counted(progress, f"{words(choice)}: ")
        try:
            report = Search(
                problem,
                device,
                trials=trials if trials is not None else TRIALS[device.kind],
                time_limit_s=limit_s if limit_s is not None else LIMIT_S[device.kind],
                seed=seed,
                fixed=whole,
                compared=tuple(knobs),
                seeds=[settled(replace(config, **dict[str, Any](choice))) for config in winners.values()],
                is_cold=is_cold,
                progress=told,
            ).run()
        except (UsageError, NothingVerified) as refused:
            rows[k] = replace(rows[k], verdict=f"refused: {refused}")
            continue
        assert report.best is not None
        winners[k] = report.best.config
        rows[k] = replace(rows[k], config=report.best.config, trials=len(report.trials))
    progress(Progress("timing the winners together"))
    return _together(problem, device, tuple(knobs), rows, winners, seed, is_cold, is_aa)


def _counted(progress: Callable[[Progress], None], prefix: str) -> Callable[[Progress], None]:
    return lambda step: progress(replace(step, step=prefix + step.step))


def words(choice: Mapping[str, Value]) -> str:
    """A choice as a person writes it."""
    return ", ".join(f"{name} {value}" for name, value in choice.items())


def _together(
    problem: Problem,
    device: Device,
    knobs: tuple[str, ...],
    rows: list[Row],
    winners: Mapping[int, Config],
    seed: int,
    is_cold: bool,
    is_aa: bool,
) -> Compared:
    """Times the winners in turns, one of them twice: how far that one's ratio to itself goes from 1 is the noise."""
    temperature = "cold" if is_cold else "warm"
    data_bytes = read_bytes(problem)
    with Lab(device, problem, seed=seed, is_cold=is_cold) as lab:
        alone = lab.ceiling(data_bytes)
        if not winners:
            return Compared(problem, device, knobs, tuple(rows), alone, (1.0, 1.0, 1.0), temperature, seed)
        compiled = {k: lab.compile(render(problem, config, lab.dialect, device)) for k, config in winners.items()}
        order = list(compiled)
        if is_aa:
            first = _fastest(lab.finals([compiled[k] for k in order], FEW), order)
            compiled = dict.fromkeys(order, compiled[first])
        taken = {k: lab.resources(c) for k, c in compiled.items()}
        finals = lab.finals([*(compiled[k] for k in order), compiled[order[0]]], ROUNDS[device.kind])
    if not all(is_time(sample) for samples in finals.samples for sample in samples):
        raise RedtuneError("the clock showed no time, so nothing can be compared")
    samples = dict(zip(order, finals.samples, strict=False))
    noise = paired_ratio(finals.samples[-1], samples[order[0]])
    ceiling = finals.ceiling() or alone
    best = order[0] if is_aa else min(order, key=lambda k: summary(samples[k]).median_us)
    for k in order:
        timing, ratio = summary(samples[k]), paired_ratio(samples[k], samples[best])
        rows[k] = replace(
            rows[k],
            config=compiled[k].kernel.config,
            timing=timing,
            ratio=ratio,
            gbps=gigabytes_per_second(data_bytes, timing.median_us),
            of_ceiling=ceiling.median_us / timing.median_us,
            resources=taken[k],
            verdict=verdict_of(rows[k].choice, ratio, k == best, largest(noise)),
        )
    return Compared(problem, device, knobs, tuple(rows), ceiling, noise, temperature, seed, is_aa)


def _fastest(finals: Finals, order: Sequence[int]) -> int:
    medians = [summary(samples).median_us for samples in finals.samples]
    return order[medians.index(min(medians))]


def largest(interval: tuple[float, float, float]) -> float:
    """How far an interval of ratios reaches from 1."""
    return max(abs(interval[1] - 1), abs(interval[2] - 1))


def verdict_of(choice: Mapping[str, Value], ratio: tuple[float, float, float], is_best: bool, noise: float) -> str:
    """A row in words: what its interval says beyond what one config shows against itself."""
    if is_best:
        return "the fastest here"
    middle, low, _ = ratio
    if low <= 1 or middle - 1 <= noise:
        return f"no difference above noise of {100 * max(noise, middle - 1, 0):.1f} %"
    return f"{words(choice)} is {100 * (middle - 1):.1f} % slower here, beyond noise"
