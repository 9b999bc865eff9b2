"""Side by side in one run: the stored winner, the default, the libraries that are there, and the read ceiling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from redtune.beside import Answer, Beside
from redtune.clock import is_time, paired_ratio, summary
from redtune.config import Config
from redtune.defaults import default_config
from redtune.errors import RedtuneError
from redtune.lab import Compiled, Lab
from redtune.operators import result_of
from redtune.plan import read_bytes
from redtune.render import render
from redtune.spellings import in_types
from redtune.store import lookup
from redtune.types import Device, Kernel, Problem, Timing

ROUNDS = {"gpu": 41, "cpu": 15}
UNTUNED = "redtune, default (untuned)"
TIMELESS = "the clock showed no time"


@dataclass(frozen=True, slots=True)
class Row:
    """One thing measured: its time, bytes read over it in GB/s, and the share of the read ceiling it reaches. `types`
    says what it accumulates in and gives, `odd` how it disagrees with most of the others, if it does. `config` is that
    of a kernel of redtune's."""

    name: str
    timing: Timing
    gbps: float
    of_ceiling: float
    config: Config | None = None
    types: str = ""
    odd: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows of one problem, the ceiling as measured in the same run, what is absent with its reason, and what
    everybody gave on the same input. `speedup` is how many times faster than the fastest library the fastest kernel of
    redtune's is, with the interval that holds the true median 19 times in 20; None where there is no library."""

    problem: Problem
    device: Device
    ceiling: Timing
    rows: tuple[Row, ...]
    absent: tuple[tuple[str, str], ...]
    temperature: str
    speedup: tuple[float, float, float] | None = None
    answers: tuple[Answer, ...] = ()

    @property
    def ours(self) -> Row:
        """The fastest kernel of redtune's."""
        return min((row for row in self.rows if row.config is not None), key=lambda row: row.timing.median_us)

    @property
    def rival(self) -> Row | None:
        """The fastest library."""
        libraries = (row for row in self.rows if row.config is None)
        return min(libraries, key=lambda row: row.timing.median_us, default=None)

    @property
    def is_losing(self) -> bool:
        """Whether a library is faster."""
        return self.speedup is not None and self.speedup[0] < 1

    @property
    def is_doubtful(self) -> bool:
        """Whether the fastest kernel of redtune's gives something else than most of the others do."""
        return bool(self.ours.odd)


def entries(problem: Problem, lab: Lab) -> dict[str, Kernel]:
    """The kernels of redtune's that take part by name: what is stored for the problem, and the default."""
    temperature = "cold" if lab.is_cold else "warm"
    found = lookup(problem, lab.dialect, lab.device, temperature)
    names = {found.config: f"redtune, {found.origin}" if found.best is not None else UNTUNED}
    names.setdefault(default_config(problem, lab.dialect, lab.device), "redtune, default")
    return {name: render(problem, config, lab.dialect, lab.device) for config, name in names.items()}


def compare_libraries(problem: Problem, device: Device, *, is_cold: bool = True, seed: int = 0) -> Comparison:
    """Times everything in turns, in one process."""
    with Lab(device, problem, seed=seed, is_cold=is_cold) as lab:
        lab.ahead.library(problem)
        return compare(lab, problem, entries(problem, lab), ROUNDS[device.kind], seed)


def compare(lab: Lab, problem: Problem, kernels: dict[str, Kernel], rounds: int, seed: int = 0) -> Comparison:
    """The comparison of one problem. Raises RedtuneError where there is none."""
    for kernel in kernels.values():
        lab.ahead.kernel(kernel)
    tried = {name: lab.ahead.compiled(kernel) for name, kernel in kernels.items()}
    there = {name: one for name, one in tried.items() if one.binary is not None}
    if not there:
        raise RedtuneError(f"no config to compare with compiles: {next(iter(tried.values())).note}")
    found = lab.beside(problem, list(there.values()), rounds, with_libraries=True, seed=seed)
    absent = [(name, f"did not compile: {one.note}") for name, one in tried.items() if name not in there]
    return _comparison(lab, problem, there, found, absent)


def _comparison(
    lab: Lab, problem: Problem, there: dict[str, Compiled], found: Beside, absent: Sequence[tuple[str, str]]
) -> Comparison:
    if not all(is_time(sample) for samples in found.samples for sample in samples):
        raise RedtuneError(f"{TIMELESS}, so nothing can be compared")
    ceiling, data_bytes = found.ceiling(), read_bytes(problem)
    if ceiling is None:
        raise RedtuneError("no kernel that only reads showed a time, so there is no ceiling")
    answers = tuple(_named(found.answers, list(there)))
    odd = {answer.name: str(answer) for answer in answers if answer.is_odd}

    def row(name: str, samples: tuple[float, ...], config: Config | None, types: str) -> Row:
        timing = summary(samples)
        share, rate = ceiling.median_us / timing.median_us, data_bytes / timing.median_us * 1e-3
        return Row(name, timing, rate, share, config, types, odd.get(name, ""))

    types = in_types(problem.accumulate, result_of(problem))
    samples: dict[str, tuple[float, ...]] = dict(zip(there, found.samples, strict=True))
    samples |= {name: row for name, row, _ in found.libraries if all(map(is_time, row))}
    rows = [row(name, samples[name], one.kernel.config, types) for name, one in there.items()]
    rows += [row(name, samples[name], None, given) for name, _, given in found.libraries if name in samples]
    timeless = [(name, TIMELESS) for name, _, _ in found.libraries if name not in samples]
    made = Comparison(
        problem=problem,
        device=lab.device,
        ceiling=ceiling,
        rows=tuple(rows),
        absent=(*absent, *timeless, *found.absent),
        temperature="cold" if lab.is_cold else "warm",
        answers=answers,
    )
    return _against(made, samples)


def _named(answers: Sequence[Answer], kernels: Sequence[str]) -> Iterator[Answer]:
    """The answers with the kernels' names, which a worker does not know."""
    names = {f"kernel {k}": name for k, name in enumerate(kernels)}
    for answer in answers:
        differs = tuple(names.get(name, name) for name in answer.differs_from)
        yield replace(answer, name=names.get(answer.name, answer.name), differs_from=differs)


def _against(made: Comparison, samples: dict[str, tuple[float, ...]]) -> Comparison:
    """The comparison with the ratio of the two that matter, over the rounds that both took part in."""
    if made.rival is None:
        return made
    theirs, ours = samples[made.rival.name], samples[made.ours.name]
    both = min(len(theirs), len(ours))
    return replace(made, speedup=paired_ratio(theirs[:both], ours[:both]))
