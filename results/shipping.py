"""How configs to ship are chosen on a device: compiled ahead, timed in turns, proven right. The driver is ship.py."""

from __future__ import annotations

import base64
import os
import queue
import statistics
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shortlist import carried_over, shortlist

from redtune.backends import backend_named
from redtune.clock import is_time, paired_ratio, summary
from redtune.config import Config, default_of
from redtune.defaults import default_config
from redtune.errors import RedtuneError
from redtune.keys import apart, folder_name
from redtune.lab import Compiled, Lab
from redtune.likeness import like_operators
from redtune.outcome import gigabytes_per_second
from redtune.plan import read_bytes
from redtune.problems import make_problem
from redtune.process import WorkerDied, WorkerTimedOut
from redtune.refusals import is_legal
from redtune.render import render
from redtune.shipped import Row, near
from redtune.space import make_space
from redtune.store import shipped_path, write_atomically
from redtune.types import Device, Kernel, Problem, Timing, Verdict, as_json

FIRST_ROUNDS, LAST_ROUNDS = 3, 11
FINALISTS = 4  # beside the default
AHEAD = 24  # problems whose kernels are compiled while others are timed
EXTRAS = 4  # configs that won elsewhere, tried here
MOST_JUDGES = 8  # processes that prove kernels at once
JUDGED_S = 0.7  # what the proof of one problem takes at first guess
# What the judge gets: a kernel's text serves every size, and these have ragged ends.
MODERATE: dict[str, dict[str, int]] = {
    "flat": {"n": 300_007},
    "rows": {"n": 5_003, "outer": 37},
    "columns": {"n": 1_003, "inner": 208},
}


class Binaries:
    """Compiled kernels in a folder by the digest of their text. Only for a folder of one's own: they are code."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __contains__(self, digest: str) -> bool:
        return self._path(digest).exists()

    def read(self, kernel: Kernel) -> Compiled:
        """The compiled kernel. Raises OSError where there is none."""
        binary = zlib.decompress(self._path(kernel.digest).read_bytes())
        return Compiled(kernel, base64.b64encode(binary).decode())

    def keep(self, compiled: Compiled) -> int:
        """Keeps one; how many bytes that takes."""
        assert compiled.binary is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        packed = zlib.compress(base64.b64decode(compiled.binary), 9)
        write_atomically(self._path(compiled.kernel.digest), packed)
        return len(packed)

    def _path(self, digest: str) -> Path:
        return self.folder / f"{digest}.z"


def compile_all(device: Device, problems: Sequence[Problem], binaries: Binaries, end: float) -> None:
    """Compiles every candidate of the problems that is not there yet, until the time is up."""
    dialect = backend_named(device.backend).dialect
    kernels: dict[str, Kernel] = {}
    for problem in problems:
        for config in shortlist(problem, dialect, device):
            kernel = render(problem, config, dialect, device)
            kernels.setdefault(kernel.digest, kernel)
    missing = [kernel for digest, kernel in kernels.items() if digest not in binaries]
    print(f"{len(problems)} problems, {len(kernels)} kernels, {len(missing)} of them to be compiled", flush=True)
    taken = done = 0
    with Lab(device, make_problem("max")) as lab:
        # A few ahead, so that what is left when the time is up is not compiled.
        waiting: deque[Future[Compiled]] = deque()
        for k, kernel in enumerate(missing):
            waiting.append(lab.compile_ahead(kernel))
            while len(waiting) > 2 * lab.jobs or (waiting and k == len(missing) - 1):
                compiled = waiting.popleft().result()
                if compiled.binary is None:
                    print(f"{compiled.kernel.problem.op} {compiled.kernel.problem.dtype}: {compiled.note}", flush=True)
                    continue
                taken += binaries.keep(compiled)
                done += 1
                if done % 100 == 0:
                    print(f"{done} compiled, {taken / 2**20:.1f} MiB", flush=True)
            if time.monotonic() > end:
                break
    print(f"{done} of {len(missing)} compiled, {taken / 2**20:.1f} MiB")


@dataclass(frozen=True, slots=True)
class Result:
    """What timing one problem gave."""

    problem: Problem
    compiled: Compiled
    timing: Timing
    default_us: float | None
    ceiling_us: float | None
    candidates: int

    def __str__(self) -> str:
        p, config = self.problem, self.compiled.kernel.config
        share = f"{self.ceiling_us / self.timing.median_us:.1%} of the ceiling" if self.ceiling_us else "no ceiling"
        gain = f"{1 - self.timing.median_us / self.default_us:+.1%}" if self.default_us else "no default"
        size = f"{p.outer}x{p.n}x{p.inner}"
        knobs = " ".join(f"{name}={value}" for name, value in changes(config).items())
        return f"{p.op} {p.dtype} {p.layout} {size}: {self.timing.median_us:.2f} us, {gain}, {share}: {knobs}"

    def row(self, device: Device) -> Row:
        """The same as it is shipped."""
        p, config = self.problem, self.compiled.kernel.config
        dialect, size = backend_named(device.backend).dialect, read_bytes(self.problem)
        strict = replace(p, determinism="run-to-run")
        ceiling = gigabytes_per_second(size, self.ceiling_us) if self.ceiling_us else None
        return Row(
            layout=p.layout,
            n=p.n,
            config=config,
            median_us=rounded(self.timing.median_us),
            spread_us=rounded(self.timing.spread_us),
            gbps=rounded(gigabytes_per_second(size, self.timing.median_us)),
            ceiling_gbps=rounded(ceiling) if ceiling else None,
            default_us=rounded(self.default_us) if self.default_us else None,
            candidates=self.candidates,
            outer=p.outer,
            inner=p.inner,
            determinism="run-to-run" if is_legal(config, strict, dialect, device) else "varies",
        )


def rounded(value: float) -> float:
    """Five digits: more than any clock here holds."""
    return float(f"{value:.5g}")


def changes(config: Config) -> dict[str, Any]:
    """The knobs that differ from the default config."""
    return {name: value for name, value in as_json(config).items() if value != default_of(name)}


class Shipper:
    """Times problems one after the other and remembers winners, proofs and failures."""

    def __init__(self, device: Device, binaries: Binaries | None, seed: int, steps: bool = False) -> None:
        self.device, self.binaries, self.seed, self.steps = device, binaries, seed, steps
        self.lab = Lab(device, make_problem("max"), seed=seed)
        self.dialect = self.lab.dialect
        self.results: dict[Problem, Result] = {}
        self.times: dict[Problem, dict[Config, float]] = {}
        self.verdicts: dict[str, tuple[Verdict, str]] = {}  # by the digest of the kernel
        self.failures: list[str] = []
        self._futures: dict[str, Future[Compiled]] = {}
        self._prepared: dict[Problem, Future[list[Kernel]]] = {}
        self._writer, self._lock = ThreadPoolExecutor(1), threading.Lock()
        self._judges: list[Lab] = []
        self._pending: dict[Problem, dict[str, Compiled]] = {}  # winners that are not proven yet
        self._judge_s = JUDGED_S

    def __enter__(self) -> Shipper:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.shutdown(cancel_futures=True)
        for lab in (self.lab, *self._judges):
            lab.close()

    # --- timing ---------------------------------------------------------------------------------------------------

    def timed(self, problems: Sequence[Problem], end: float) -> Iterator[tuple[Problem, Result]]:
        """Every problem with its winner, until there is just time for the proofs that are due."""
        most = self.device.memory_bytes // 2 or 1 << 62
        problems = [problem for problem in problems if read_bytes(problem) <= most]
        ahead = AHEAD if self.device.kind == "gpu" else 1  # a CPU that compiles is no place to measure
        for k, problem in enumerate(problems):
            for coming in problems[k : k + ahead]:
                self._prepare(coming)
            if time.monotonic() + self._due_s() > end:
                self.failures.append(f"the time was up: {len(problems) - k} problems were not measured")
                return
            try:
                result = self._time(problem)
            except (WorkerDied, WorkerTimedOut, RedtuneError) as error:
                self.failures.append(f"{problem.op} of {problem.dtype}, {problem.layout}: {error}")
                continue
            self.results[problem] = result
            self._await_proof(result)
            yield problem, result

    def _prepare(self, problem: Problem) -> Future[list[Kernel]]:
        """The kernels of a problem's shortlist, written by a thread while others are timed, and sent to compilers."""

        def work() -> list[Kernel]:
            configs = list(dict.fromkeys([*shortlist(problem, self.dialect, self.device), *self._shipped(problem)]))
            kernels = [render(problem, config, self.dialect, self.device) for config in configs]
            for kernel in kernels:
                self._start(kernel)
            return kernels

        if problem not in self._prepared:
            self._prepared[problem] = self._writer.submit(work)
        return self._prepared[problem]

    def _shipped(self, problem: Problem) -> Iterator[Config]:
        """What is shipped for the very size, and with `steps` what is beside it."""
        space = make_space(problem, self.dialect, self.device, {})
        for best in near(shipped_path() / folder_name(self.device), problem):
            if not apart(best.problem, problem) and space.allows(best.config):
                yield best.config
                yield from space.beside(best.config) if self.steps else ()

    def _start(self, kernel: Kernel) -> Future[Compiled] | None:
        """The future of a compiled kernel: read, being compiled, or none where only what is prepared is wanted."""
        with self._lock:
            found = self._futures.get(kernel.digest)
            if found is None and self.binaries is not None:
                try:
                    made = self.binaries.read(kernel)
                except (OSError, zlib.error):
                    return None
                found = Future()
                found.set_result(made)
            self._futures[kernel.digest] = found or self.lab.compile_ahead(kernel)
            return self._futures[kernel.digest]

    def _candidates(self, problem: Problem) -> list[Compiled]:
        """What is tried on a problem, compiled: the shortlist, and what won elsewhere."""
        kernels = self._prepare(problem).result()
        del self._prepared[problem]
        known = {kernel.config for kernel in kernels}
        for config in self._won_elsewhere(problem):
            if config not in known and is_legal(config, problem, self.dialect, self.device):
                kernels.append(render(problem, config, self.dialect, self.device))
        futures = [(kernel, self._start(kernel)) for kernel in kernels]
        made = [replace(future.result(), kernel=kernel) for kernel, future in futures if future is not None]
        return [one for one in made if one.binary is not None]

    def _time(self, problem: Problem) -> Result:
        """The fastest of the candidates, or the default where none beats it beyond noise."""
        compiled = self._candidates(problem)
        if not compiled:
            raise RedtuneError("no candidate has a binary")
        first = self.lab.beside(problem, compiled, FIRST_ROUNDS, with_libraries=False, seed=self.seed)
        odd = {answer.name for answer in first.answers if answer.is_odd}
        found = []
        for k, (one, samples) in enumerate(zip(compiled, first.samples, strict=True)):
            config = one.kernel.config
            if f"kernel {k}" in odd:
                self.failures.append(f"{problem.op} of {problem.dtype}: others than {changes(config)} agree")
            elif samples and all(map(is_time, samples)):
                found.append((statistics.median(samples), one))
        if not found:
            raise RedtuneError("the clock showed no time")
        found.sort(key=lambda pair: pair[0])
        self.times[problem] = {one.kernel.config: seconds * 1e6 for seconds, one in found}
        default = default_config(problem, self.dialect, self.device)
        finalists = [one for _, one in found[:FINALISTS]]
        finalists += [one for _, one in found[FINALISTS:] if one.kernel.config == default]
        last = self.lab.beside(problem, finalists, LAST_ROUNDS, with_libraries=False, seed=self.seed + 1)
        timings = [summary(samples) for samples in last.samples]
        best = min(range(len(finalists)), key=lambda k: timings[k].median_us)
        against = next((k for k, one in enumerate(finalists) if one.kernel.config == default), None)
        if against is not None and not self._is_faster(last.samples[best], last.samples[against]):
            best = against
        ceiling = last.ceiling()
        return Result(
            problem=problem,
            compiled=finalists[best],
            timing=timings[best],
            default_us=timings[against].median_us if against is not None else None,
            ceiling_us=ceiling.median_us if ceiling else None,
            candidates=len(compiled),
        )

    @staticmethod
    def _is_faster(mine: Sequence[float], other: Sequence[float]) -> bool:
        """Beyond noise. Who is far slower has samples of the first rounds only."""
        rounds = min(len(mine), len(other))
        return paired_ratio(mine[:rounds], other[:rounds])[2] < 1.0

    def _won_elsewhere(self, problem: Problem) -> list[Config]:
        """The winners of the nearest sizes, of other dtypes and of like operators."""
        like = [problem.op, *like_operators(problem)]
        near = sorted(
            (there for there in self.results if there.layout == problem.layout and there.op in like),
            key=lambda there: apart(there, problem) + (there.dtype != problem.dtype) + 2 * like.index(there.op),
        )
        configs = [
            carried_over(self.results[there].compiled.kernel.config, there, problem, self.dialect)
            for there in near[: 2 * EXTRAS]
        ]
        return list(dict.fromkeys(configs))[:EXTRAS]

    def log_of(self, problem: Problem) -> dict[str, Any]:
        """Every candidate of a problem with its median in the first rounds, the fastest first."""
        rows = [{"us": rounded(us), **changes(config)} for config, us in self.times[problem].items()]
        return {"problem": as_json(problem), "won": changes(self.results[problem].compiled.kernel.config), "rows": rows}

    # --- proving --------------------------------------------------------------------------------------------------

    def _await_proof(self, result: Result) -> None:
        """Remembers a winner that is not proven yet, under the problem that the judge gets."""
        kernel = result.compiled.kernel
        if kernel.digest not in self.verdicts:
            there = self._moderate(result.problem, kernel)
            text = render(there, kernel.config, self.dialect, self.device)
            self._pending.setdefault(there, {})[kernel.digest] = replace(result.compiled, kernel=text)

    def _moderate(self, problem: Problem, kernel: Kernel) -> Problem:
        """The problem that the judge gets: a moderate one, where the kernel's text is the same there."""
        there = replace(problem, outer=1, inner=1) if problem.layout == "flat" else problem
        there = replace(there, **MODERATE[problem.layout])
        same = render(there, kernel.config, self.dialect, self.device).digest == kernel.digest
        return there if same and is_legal(kernel.config, there, self.dialect, self.device) else problem

    def _most_judges(self) -> int:
        return max(1, min(MOST_JUDGES, (os.cpu_count() or 1) // 2)) if self.device.kind == "gpu" else 1

    def _due_s(self) -> float:
        """What the proofs that are due will take."""
        return self._judge_s * (len(self._pending) // self._most_judges() + 2)

    def prove(self) -> None:
        """Judges what is not proven yet, several problems at once: nothing is timed meanwhile."""
        pending, self._pending = self._pending, {}
        if not pending:
            return
        began = time.monotonic()
        waiting: queue.SimpleQueue[tuple[Problem, list[Compiled]]] = queue.SimpleQueue()
        for there, several in pending.items():
            waiting.put((there, list(several.values())))
        # Their processes stay for the next time: to start one takes seconds.
        while len(self._judges) < min(self._most_judges(), len(pending)):
            self._judges.append(Lab(self.device, make_problem("max"), seed=self.seed, is_cold=False))
        threads = [threading.Thread(target=self._judge, args=(lab, waiting)) for lab in self._judges]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._judge_s = (time.monotonic() - began) * len(threads) / len(pending)

    def _judge(self, lab: Lab, waiting: queue.SimpleQueue[tuple[Problem, list[Compiled]]]) -> None:
        while True:
            try:
                problem, several = waiting.get_nowait()
            except queue.Empty:
                return
            lab.turn_to(problem)
            for compiled in several:
                try:
                    trial = lab.trial(compiled, None)
                    verdict, note = trial.verdict, trial.note
                except RedtuneError as error:  # the inputs could not be made
                    verdict, note = Verdict.CRASHED, str(error)
                self.verdicts[compiled.kernel.digest] = verdict, note
                if verdict != Verdict.OK:
                    what = f"{problem.op} of {problem.dtype}, {problem.layout}, {changes(compiled.kernel.config)}"
                    self.failures.append(f"dropped: {what}: {verdict}: {note}")

    def proven_rows(self) -> dict[tuple[str, str], list[Row]]:
        """What is proven, by operator and dtype."""
        rows: dict[tuple[str, str], list[Row]] = {}
        for problem, result in self.results.items():
            verdict, _ = self.verdicts.get(result.compiled.kernel.digest, (None, ""))
            if verdict == Verdict.OK:
                rows.setdefault((problem.op, problem.dtype), []).append(result.row(self.device))
        return rows
