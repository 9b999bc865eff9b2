"""What a search tells while it runs and when it is done."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from redtune.config import Config
from redtune.types import Best, Device, Problem, Repeated, Timing, Trial, Verdict


def gigabytes_per_second(data_bytes: int, micros: float) -> float:
    """Bytes read over time, in 10^9 bytes per second."""
    return data_bytes / micros * 1e-3


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is. Times in microseconds."""

    step: str
    done: int = 0
    budget: int = 0
    best_us: float | None = None
    ceiling_us: float | None = None
    data_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Finalist:
    """One finalist: where it came from, its timing in the final rounds, its ratio to the incumbent, with the interval
    that holds the true median ratio 19 times in 20, and what it gave when one input was repeated."""

    config: Config
    role: str
    timing: Timing
    ratio: float
    low: float
    high: float
    repeated: Repeated


@dataclass(slots=True)
class Report:
    """What a search found, for the terminal and for programs."""

    problem: Problem
    device: Device
    started_from: str
    resumed: int
    temperature: str
    trials: list[Trial] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    finalists: list[Finalist] = field(default_factory=list)
    best: Best | None = None
    verdict: str = ""
    stopped: str = ""
    is_saved: bool = False
    seconds: float = 0.0
    measuring_seconds: float = 0.0  # of them between the first proposal and the last verdict
    baseline_absent: str = ""

    def verdicts(self) -> dict[str, int]:
        """How many trials ended how."""
        counts = Counter(trial.verdict.value for trial in self.trials)
        counts[Verdict.REFUSED.value] += len(self.refused)
        return {v.value: counts[v.value] for v in Verdict if counts[v.value]}

    def first_failures(self) -> dict[str, Trial]:
        """The first trial of each kind of failure."""
        rows: dict[str, Trial] = {}
        for trial in self.trials:
            if trial.verdict != Verdict.OK:
                rows.setdefault(trial.verdict.value, trial)
        return rows
