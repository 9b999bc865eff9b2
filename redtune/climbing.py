"""The ladder: one reduction in every classic way, from a divergent tree to the tuned kernel, judged and timed together.

Every rung is a config over the same templates (`redtune.rungs`). The times are of the whole reduction, down to one
value, all launches included; all rungs and the kernels that only read take turns in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from redtune.clock import is_time, paired_ratio, summary
from redtune.config import Config
from redtune.errors import RedtuneError
from redtune.lab import Compiled, Lab
from redtune.outcome import Progress, gigabytes_per_second
from redtune.plan import make_plan, read_bytes
from redtune.refusals import hindrances, problem_refusal, refusals
from redtune.render import render
from redtune.rungs import Rung, config_of, rungs, tuned_rung
from redtune.store import lookup
from redtune.types import Device, Problem, Timing, Verdict

ROUNDS = {"gpu": 41, "cpu": 15}
PASSED, FAILED, REFUSED, ABSENT = "PASSED", "FAILED", "REFUSED", "ABSENT"
Ratio = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Climbed:
    """One rung on a device. `verdict` is PASSED, FAILED, REFUSED (it cannot run here) or ABSENT, and `note` says why,
    or what else there is to know. `over_first` and `over_before` are how many times faster than rung 1, and than the
    nearest rung below that was timed, it is: median of the paired rounds and the interval that holds the true one 19
    times in 20. `error` is relative, against float64; `bound_share` the largest error the judge saw over its bound.
    """

    rung: Rung
    verdict: str
    note: str = ""
    config: Config | None = None
    launches: int = 0
    blocks: int = 0
    timing: Timing | None = None
    gbps: float | None = None
    of_ceiling: float | None = None
    over_first: Ratio | None = None
    over_before: Ratio | None = None
    error: float | None = None
    bound_share: float | None = None


@dataclass(frozen=True, slots=True)
class Ladder:
    """All rungs of one problem on one device, and the read ceiling of the same rounds."""

    problem: Problem
    device: Device
    block: int
    rows: tuple[Climbed, ...]
    ceiling: Timing | None
    temperature: str
    seed: int

    def check(self) -> None:
        """Raises RedtuneError where a rung is wrong, or none could be timed."""
        failed = [row for row in self.rows if row.verdict == FAILED]
        if failed:
            raise RedtuneError(f"rung {failed[0].rung.number} of {self.problem.op} FAILED: {failed[0].note}")
        if not any(row.timing for row in self.rows):
            raise RedtuneError("no rung could run: " + "; ".join(dict.fromkeys(row.note for row in self.rows)))


def climb(
    problems: Sequence[Problem],
    device: Device,
    block: int,
    *,
    seed: int = 0,
    is_cold: bool = True,
    progress: Callable[[Progress], None] = lambda step: None,
) -> list[Ladder]:
    """The ladder of each problem, in one process of the device."""
    found = []
    with Lab(device, problems[0], seed=seed, is_cold=is_cold) as lab:
        for problem in problems:
            lab.turn_to(problem)
            found.append(_ladder(lab, problem, block, progress))
    return found


def planned(problem: Problem, lab: Lab, block: int) -> list[Climbed]:
    """Every rung with its config and launches, or why there is none."""
    rows = [_planned(rung, config_of(rung, block, problem, lab.dialect), problem, lab) for rung in rungs()]
    return [*rows, _tuned(problem, lab)]


def _planned(rung: Rung, config: Config, problem: Problem, lab: Lab) -> Climbed:
    reasons = [problem_refusal(problem, lab.device), *hindrances(config, problem, lab.dialect, lab.device)]
    if against := [reason for reason in reasons if reason]:
        return Climbed(rung, REFUSED, against[0], config)
    plan = make_plan(problem, config, lab.dialect, lab.device)
    lossy = refusals(config, problem, lab.dialect, lab.device)
    note = f"no search takes it: {lossy[0]}" if lossy else ""
    return Climbed(rung, PASSED, note, config, len(plan.launches), plan.launches[-1 if plan.parts == 1 else 0].grid)


def _tuned(problem: Problem, lab: Lab) -> Climbed:
    """The stored or shipped config, if there is one."""
    rung, found = tuned_rung(), lookup(problem, lab.dialect, lab.device, "cold" if lab.is_cold else "warm")
    if found.best is None:
        dtype = f" --dtype {problem.dtype}" if problem.dtype != "float32" else ""
        command = f"redtune search --op {problem.op}{dtype} --n {problem.n}"
        return Climbed(rung, ABSENT, f"nothing is tuned for this on {lab.device.arch}: {command}, or --tune here")
    row = _planned(rung, found.config, problem, lab)
    return replace(row, note="; ".join(filter(None, (found.origin, row.note))))


def _ladder(lab: Lab, problem: Problem, block: int, progress: Callable[[Progress], None]) -> Ladder:
    rows = planned(problem, lab, block)
    ahead = {
        k: lab.compile_ahead(render(problem, row.config, lab.dialect, lab.device))
        for k, row in enumerate(rows)
        if row.verdict == PASSED and row.config is not None
    }
    there: dict[int, Compiled] = {}
    compiled = {k: future.result() for k, future in ahead.items()}  # on a CPU nothing compiles beside a measurement
    for k, one in compiled.items():
        progress(Progress(f"{problem.op}: judging rung {rows[k].rung.number}", k + 1, len(rows)))
        trial = lab.trial(one, None)
        if trial.verdict == Verdict.OK:
            there[k] = one
            rows[k] = replace(rows[k], bound_share=trial.error)
        else:
            rows[k] = replace(rows[k], verdict=FAILED, note=f"{trial.verdict.value}: {trial.note}")
    if not there:
        return _made(lab, problem, block, rows, None)
    progress(Progress(f"{problem.op}: timing all rungs in turns", len(rows), len(rows)))
    for k, error in zip(there, lab.errors(list(there.values())), strict=True):
        rows[k] = replace(rows[k], error=error)
    beside = lab.beside(problem, list(there.values()), ROUNDS[lab.device.kind], with_libraries=False, seed=lab.seed)
    if not all(is_time(sample) for samples in beside.samples for sample in samples):
        raise RedtuneError("the clock showed no time, so nothing can be compared")
    samples = dict(zip(there, beside.samples, strict=True))
    return _made(lab, problem, block, timed(rows, samples, beside.ceiling(), problem), beside.ceiling())


def timed(
    rows: Sequence[Climbed], samples: dict[int, tuple[float, ...]], ceiling: Timing | None, problem: Problem
) -> list[Climbed]:
    """The rows with their times: `samples` in seconds by the place of the row, of the same rounds."""
    found, below, data_bytes = list(rows), None, read_bytes(problem)
    first = next(iter(samples))
    for k, own in samples.items():
        timing = summary(own)
        found[k] = replace(
            found[k],
            timing=timing,
            gbps=gigabytes_per_second(data_bytes, timing.median_us),
            of_ceiling=ceiling.median_us / timing.median_us if ceiling else None,
            over_first=faster(samples[first], own) if rows[first].rung.number == 1 else None,
            over_before=faster(samples[below], own) if below is not None else None,
        )
        below = k
    return found


def faster(before: Sequence[float], after: Sequence[float]) -> Ratio:
    """How many times faster, over the rounds that both took part in."""
    both = min(len(before), len(after))
    return paired_ratio(before[:both], after[:both])


def _made(lab: Lab, problem: Problem, block: int, rows: Sequence[Climbed], ceiling: Timing | None) -> Ladder:
    return Ladder(problem, lab.device, block, tuple(rows), ceiling, "cold" if lab.is_cold else "warm", lab.seed)
