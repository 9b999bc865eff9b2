"""A sample of the valid space on one device, judged as a search would, or watched by checkers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from redtune.backends import backend_named
from redtune.checkers import CHECKERS, Checker, complaints, log_of
from redtune.config import Config
from redtune.errors import BackendMissing, RedtuneError
from redtune.lab import Lab, list_devices
from redtune.outcome import Progress
from redtune.plan import entry_names
from redtune.problems import make_problem
from redtune.process import Under
from redtune.render import render
from redtune.sampling import Scope, sampled
from redtune.types import Device, Kernel, Problem, Verdict

Done = Callable[[int, int], None]
Pair = tuple[Problem, Config]


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of one valid config, by the judge or by a checker. `note` says why where it is not OK."""

    by: str
    problem: Problem
    config: Config
    verdict: Verdict
    note: str = ""

    @property
    def is_compilers(self) -> bool:
        """Whether the vendor's compiler died or did not end, which is its own fault."""
        return self.note.startswith(("the compiler crashed", "the compiler took longer"))

    @property
    def is_bad(self) -> bool:
        """Whether it is a fault of redtune's."""
        return self.verdict != Verdict.OK and not self.is_compilers


def nobody(done: int, total: int) -> None:
    """Progress that nobody watches."""


def judge_configs(device: Device, pairs: Sequence[Pair], seed: int = 0, progress: Done = nobody) -> list[Checked]:
    """The judge's verdict on every config, while the next ones are compiled."""
    rows = []
    with Lab(device, make_problem("max"), seed=seed, is_cold=False) as lab:
        waiting = [lab.compile_ahead(render(p, c, lab.dialect, device)) for p, c in pairs]
        for k, ((problem, config), future) in enumerate(zip(pairs, waiting, strict=True)):
            compiled = future.result()
            lab.turn_to(problem)
            trial = lab.trial(compiled, None)
            rows.append(Checked("judge", problem, config, trial.verdict, trial.note))
            progress(k + 1, len(pairs))
    return rows


class Watched:
    """Kernels that run under a checker, in a folder for its log."""

    def __init__(self, checker: Checker, folder: Path) -> None:
        self.checker, self.log = checker, log_of(folder)
        self.under: Under = checker.under(folder)
        self.said = ""
        self._read = 0

    def device(self, device: Device) -> Device:
        """The device to write kernels for: what the checker makes of it, in a simulator another one altogether."""
        return (
            list_devices(device.backend, Under(environment=self.under.environment))[0]
            if self.under.environment
            else device
        )

    def run(self, device: Device, kernels: Iterable[Kernel], progress: Done = nobody) -> list[tuple[Verdict, str]]:
        """What became of each kernel."""
        kernels = [numbered(kernel, k) for k, kernel in enumerate(kernels)]
        found: list[tuple[Verdict, str]] = []
        with Lab(device, make_problem("max"), is_cold=False, under=self.under) as lab:
            for k, future in enumerate([lab.compile_ahead(kernel) for kernel in kernels]):
                found.append(lab.examine(future.result(), self.checker.elements, 4 * self.checker.threads))
                self._listen()
                progress(k + 1, len(kernels))
        self._listen()
        for complaint in reversed(complaints(self.said)):
            at = complaint.number if complaint.number is not None else len(kernels) - 1
            found[at] = Verdict.WRONG, f"{self.checker.name}: {complaint.text}"
        return found

    def _listen(self) -> None:
        """Takes over what was logged since; a process that starts anew begins the file anew."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        if len(text) < self._read:
            self._read = 0
        self.said += text[self._read :]
        self._read = len(text)


def numbered(kernel: Kernel, number: int) -> Kernel:
    """The kernel with a number in the names of its entries, by which a checker's log tells it from others."""
    main = entry_names(kernel.problem, kernel.config).main
    name = f"{main}_no{number}"
    launches = tuple(replace(launch, entry=launch.entry.replace(main, name, 1)) for launch in kernel.launches)
    return replace(kernel, source=kernel.source.replace(main, name), launches=launches)


def examine_configs(
    device: Device, checker: Checker, sample: Callable[[Device], Sequence[Pair]], progress: Done = nobody
) -> list[Checked]:
    """What a checker says of every config of a sample, which is drawn for the device that the checker has."""
    with tempfile.TemporaryDirectory(prefix="redtune-check-") as folder:
        watched = Watched(checker, Path(folder))
        there = watched.device(device)
        pairs = sample(there)
        kernels = [render(p, c, backend_named(there.backend).dialect, there) for p, c in pairs]
        found = watched.run(there, kernels, progress)
    return [Checked(checker.name, p, c, *row) for (p, c), row in zip(pairs, found, strict=True)]


@dataclass(frozen=True, slots=True)
class Verified:
    """What the judge, or each checker, said of a sample; `absent` says why a checker is not there."""

    device: Device
    seed: int
    rows: tuple[Checked, ...]
    absent: Mapping[str, str]

    def bad(self) -> list[Checked]:
        """The rows that are faults of redtune's."""
        return [row for row in self.rows if row.is_bad]

    def check(self) -> None:
        """Raises RedtuneError where any config is wrong, or nothing could be looked at."""
        if bad := self.bad():
            raise RedtuneError(f"{len(bad)} of {len(self.rows)} configs did not come through; the first: {bad[0].note}")
        if not self.rows:
            raise RedtuneError("; ".join(self.absent.values()) or "nothing was looked at")


def verify_sample(
    device: Device, scope: Scope, count: int, seed: int, sanitize: bool, progress: Callable[[Progress], None]
) -> Verified:
    """Judges `count` valid configs, or has every checker of the backend watch as many."""

    def told(step: str) -> Done:
        return lambda done, total: progress(Progress(step, done, total))

    if not sanitize:
        judged = judge_configs(device, list(sampled(device, count, seed, scope)), seed, told("judging"))
        return Verified(device, seed, tuple(judged), {})
    checkers = CHECKERS.get(device.backend, ())
    if not checkers:
        return Verified(device, seed, (), {device.backend: f"no checker is known for the {device.backend} backend"})
    rows: list[Checked] = []
    absent: dict[str, str] = {}
    with ThreadPoolExecutor(len(checkers)) as pool:
        tasks = {
            checker.name: pool.submit(
                examine_configs, device, checker, _drawer(checker, scope, count, seed), told(f"under {checker.name}")
            )
            for checker in checkers
        }
        for name, task in tasks.items():
            try:
                rows += task.result()
            except BackendMissing as error:
                absent[name] = str(error)
    return Verified(device, seed, tuple(rows), absent)


def _drawer(checker: Checker, scope: Scope, count: int, seed: int) -> Callable[[Device], Sequence[Pair]]:
    """Draws a sample that the checker gets through."""
    narrow = replace(scope, threads=checker.threads)

    def draw(there: Device) -> Sequence[Pair]:
        # A simulator takes threads one after the other, whatever it calls itself.
        return list(sampled(replace(there, kind="cpu") if narrow.threads else there, count, seed, narrow))

    return draw
