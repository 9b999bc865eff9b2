"""What each rung of the ladder costs, counted before anything runs, for hardware waves of 32 and of 64 lanes.

The counts are of one block: how often a wave runs a step of the tree, how often with the turns that bank conflicts
take, and what else the steps do (`redtune.trees`). Beside them stands the clock, so that one sees what they explain.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from redtune.backends import backend_named
from redtune.config import Config
from redtune.dialect import Dialect
from redtune.plan import WORD_BYTES, is_light, make_meet, make_plan, state_layout
from redtune.rungs import Rung, config_of, rungs
from redtune.trees import Step, steps_of
from redtune.types import Device, Problem

if TYPE_CHECKING:
    from redtune.climbing import Climbed, Ladder
    from redtune.profiling import Profiled

WAVES = (32, 64)
NEAR = 1.25  # ratios that differ by no more agree


@dataclass(frozen=True, slots=True)
class Counted:
    """What one block does to meet, on waves of `lanes` lanes. `serialised` takes a state for one word, as courses do;
    `serialised_words` for the words that it has. Counts of threads: `additions` are merges, `lds_words` words read and
    written in shared memory; `active` are the threads that merge in each step."""

    lanes: int
    warp_runs: int
    serialised: int
    serialised_words: int
    additions: int
    barriers: int
    tail_waits: int
    lds_words: int
    active: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Weighed:
    """A rung with its counts for each width of wave, its blocks on a device, and what was timed and
    profiled there."""

    rung: Rung
    config: Config
    counted: tuple[Counted, ...]
    blocks: int | None = None
    climbed: Climbed | None = None
    profiled: Profiled | None = None

    def on(self, lanes: int) -> Counted:
        """The counts for waves of so many lanes."""
        return next(one for one in self.counted if one.lanes == lanes)

    def in_all(self, lanes: int) -> int | None:
        """Serialised runs of all blocks."""
        return None if self.blocks is None else self.blocks * self.on(lanes).serialised


@dataclass(frozen=True, slots=True)
class Model:
    """The counts of every rung. `work` and `depth` are additions in all and in a row of any tree over n elements;
    `lanes_at_once` is P of Brent's bound, work / P + depth, on the device; None where there is none. `absent` says why
    nothing was measured."""

    problem: Problem
    block: int
    state_words: int
    rows: tuple[Weighed, ...]
    device: Device | None = None
    absent: str = ""

    @property
    def work(self) -> int:
        """Additions of any tree."""
        return self.problem.n - 1

    @property
    def depth(self) -> int:
        """Additions one after the other in the shallowest tree."""
        return (self.problem.n - 1).bit_length()

    @property
    def lanes_at_once(self) -> int | None:
        """Threads that a device surely has at once: on a GPU a largest block on every unit, on a CPU a wave."""
        if self.device is None:
            return None
        each = self.device.max_block if self.device.kind == "gpu" else max(self.device.waves, default=1)
        return self.device.compute_units * each

    @property
    def brent(self) -> float | None:
        """The bound in steps: no more are needed by so many lanes."""
        return self.work / self.lanes_at_once + self.depth if self.lanes_at_once else None

    @property
    def lanes(self) -> int:
        """The width of wave that the clock is compared with: the device's."""
        return max(w for w in WAVES if w <= max(min(self.device.waves, default=32), 32)) if self.device else 32


def count(steps: Sequence[Step], lanes: int, words: int = 1) -> Counted:
    """The counts of some steps."""
    merges = [step for step in steps if step.is_merge]
    waits = [wait for step in steps for wait in (step.before, step.after)]
    touched = sum(len(slots) for step in steps for slots in (*step.reads, *step.writes))
    return Counted(
        lanes=lanes,
        warp_runs=sum(step.waves(lanes) for step in merges),
        serialised=sum(step.serialised(lanes) for step in merges),
        serialised_words=sum(step.serialised(lanes, words) for step in merges),
        additions=sum(len(step.threads) for step in merges),
        barriers=waits.count("block"),
        tail_waits=waits.count("tail"),
        lds_words=touched * words,
        active=tuple(len(step.threads) for step in merges),
    )


def steps_on(problem: Problem, config: Config, hardware: int) -> list[Step]:
    """How a whole block meets where so many lanes issue together."""
    lanes = min(config.wave, hardware)
    meet = make_meet("meet_block", config.block, config.block, config, lanes, is_light=is_light(problem))
    return steps_of(meet, config, lanes)


def words_of(problem: Problem) -> int:
    """How many words a state has."""
    return math.ceil(state_layout(problem)[1] / WORD_BYTES)


def weigh(problem: Problem, block: int, device: Device | None = None, absent: str = "") -> Model:
    """The counts of all rungs, and their blocks on a device."""
    dialect: Dialect = backend_named(device.backend if device else "cuda").dialect
    words, rows = words_of(problem), []
    for rung in rungs():
        config = config_of(rung, block, problem, dialect)
        counted = tuple(count(steps_on(problem, config, lanes), lanes, words) for lanes in WAVES)
        blocks = make_plan(problem, config, dialect, device).blocks if device else None
        rows.append(Weighed(rung, config, counted, blocks))
    return Model(problem, block, words, tuple(rows), device, absent)


def beside_clock(model: Model, ladder: Ladder) -> Model:
    """The model with what the ladder of the same problem and block measured."""
    measured = {row.rung.number: row for row in ladder.rows}
    rows = tuple(replace(row, climbed=measured[row.rung.number]) for row in model.rows)
    return replace(model, rows=rows, device=ladder.device)


def with_counters(model: Model) -> Model:
    """The model with the bank conflicts and the divergence that a profiler counts."""
    from redtune.profiling import profile

    assert model.device is not None, "a profiler has one"
    found = profile(model.problem, {row.rung.number: row.config for row in model.rows}, model.device)
    return replace(model, rows=tuple(replace(row, profiled=found.get(row.rung.number)) for row in model.rows))


def compared(model: Model) -> list[tuple[Weighed, Weighed, float, float, bool]]:
    """Each timed rung beside the timed one below it: (below, rung, how many times fewer serialised runs of all blocks,
    how many times faster, whether the two agree)."""
    found = []
    timed = [row for row in model.rows if row.climbed is not None and row.climbed.timing is not None]
    for below, row in itertools.pairwise(timed):
        assert row.climbed is not None
        before, after, clock = below.in_all(model.lanes), row.in_all(model.lanes), row.climbed.over_before
        if before is None or after is None or clock is None:
            continue
        fewer = before / after
        found.append((below, row, fewer, clock[0], max(fewer / clock[0], clock[0] / fewer) <= NEAR))
    return found
