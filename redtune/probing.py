"""Does one input give the same bits in every run? Asked of each way that blocks meet, idle and under load."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from redtune.combine import COMBINES
from redtune.config import WHOLE_BLOCK, Config, settled
from redtune.defaults import starting_points
from redtune.dialect import Dialect
from redtune.errors import RedtuneError
from redtune.lab import Lab
from redtune.outcome import Progress
from redtune.plan import parts_of
from redtune.refusals import hindrances, is_legal, problem_refusal
from redtune.render import render
from redtune.types import Device, Problem, Repeated, as_json

# Two blocks give the same in either order, as a sum and its like commute.
FEWEST_BLOCKS = 3
# How a start is changed until so many blocks meet in it, the first that will do: a larger grid, or results in parts.
CHANGES: tuple[dict[str, Any], ...] = (
    {},
    *({"blocks_per_cu": blocks} for blocks in (4, 2, 3)),
    *({"split": split, **team} for team in ({}, {"team": WHOLE_BLOCK}) for split in (32, 8, 4)),
)


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way that blocks meet: the config it was tried with and how many blocks share a result there, whether the same
    bits in every run are promised, and what the runs gave; or why it cannot run here."""

    combine: str
    config: Config | None = None
    blocks: int = 0
    is_promised: bool = False
    repeated: Repeated | None = None
    refusal: str = ""

    @property
    def fits(self) -> bool:
        """Whether what was seen is within what is promised."""
        return self.repeated is None or self.repeated.distinct == 1 or not self.is_promised

    @property
    def verdict(self) -> str:
        """What the runs showed, in words."""
        seen = self.repeated
        if seen is None:
            return "refused"
        if not self.fits:
            return "VARIES against the promise"
        if seen.distinct > 1:
            return "varies"
        same = f"{2 * seen.runs} of {2 * seen.runs} the same"
        return "bitwise identical" if self.is_promised else f"may vary; {same} here"


@dataclass(frozen=True, slots=True)
class Probe:
    """What a problem on a device gave with every way that blocks meet."""

    problem: Problem
    device: Device
    repeats: int
    seed: int
    strategies: tuple[Strategy, ...]

    def check(self) -> None:
        """Raises RedtuneError where a promise was broken."""
        for s in self.strategies:
            if s.repeated is not None and not s.fits:
                seen = s.repeated
                raise RedtuneError(
                    f"combine {s.combine} promises the same bits in every run, and gave {seen.distinct} different "
                    f"results in {2 * seen.runs} runs ({seen.idle} idle, {seen.loaded} under load)"
                )


def probe_strategies(
    problem: Problem, device: Device, repeats: int, seed: int, progress: Callable[[Progress], None]
) -> Probe:
    """Repeats one random input with a config of every strategy."""
    with Lab(device, problem, seed=seed) as lab:
        tried = [strategy_of(name, problem, lab.dialect, device) for name in COMBINES]
        for k, strategy in enumerate(tried):
            if strategy.config is not None:
                progress(Progress(f"repeating with {strategy.combine}", k + 1, len(tried)))
                tried[k] = replace(strategy, repeated=_repeated(lab, strategy.config, repeats))
    return Probe(problem, device, repeats, seed, tuple(tried))


def strategy_of(combine: str, problem: Problem, dialect: Dialect, device: Device) -> Strategy:
    """The first config in which enough blocks meet so, or what is against the first in which they would."""
    if reason := problem_refusal(problem, device):
        return Strategy(combine, refusal=reason)
    against, too_few = "", ""
    for config in _configs(combine, problem, dialect, device):
        reasons = hindrances(config, problem, dialect, device)  # lost digits are what runs differ in
        blocks = parts_of(problem, config, device)
        if blocks < FEWEST_BLOCKS:
            few = f"fewer than {FEWEST_BLOCKS} blocks share a result of {problem.n} elements: no order can differ"
            too_few = too_few or (reasons[0] if reasons else few)
        elif reasons:
            against = against or reasons[0]
        else:
            fixed_order = replace(problem, determinism="run-to-run")
            return Strategy(combine, config, blocks, is_legal(config, fixed_order, dialect, device))
    return Strategy(combine, refusal=against or too_few)


def _configs(combine: str, problem: Problem, dialect: Dialect, device: Device) -> Iterator[Config]:
    for start in starting_points(problem, dialect, device):
        for changes in CHANGES:
            yield settled(replace(start, combine=combine, **changes))


def _repeated(lab: Lab, config: Config, repeats: int) -> Repeated:
    compiled = lab.compile(render(lab.problem, config, lab.dialect, lab.device))
    if compiled.binary is None:
        raise RedtuneError(f"the config of combine {config.combine} did not compile: {compiled.note}")
    return lab.repeat(compiled, repeats)


def probe_json(probe: Probe) -> dict[str, Any]:
    """The document of `probe --json`."""
    rows = [as_json(s) | {"fits": s.fits, "verdict": s.verdict} for s in probe.strategies]
    return {**as_json(probe), "strategies": rows, "fits": all(s.fits for s in probe.strategies)}
