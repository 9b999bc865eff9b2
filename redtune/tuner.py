"""One search: the space, the queue, the trials, the finalists, the winner."""

from __future__ import annotations

import datetime
import itertools
import json
import statistics
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace

from redtune import store
from redtune.clock import is_time, paired_ratio, summary
from redtune.config import Config, Value
from redtune.defaults import default_config, starting_points
from redtune.errors import RedtuneError
from redtune.lab import Compiled, FinalistWrong, Finals, Lab
from redtune.outcome import Finalist, Progress, Report, gigabytes_per_second
from redtune.plan import read_bytes
from redtune.process import WorkerDied, WorkerTimedOut
from redtune.proposals import Proposals
from redtune.render import render, templates_digest
from redtune.reporting.searched import Searched, keep
from redtune.space import Space, make_space
from redtune.types import Best, Device, Problem, Timing, Trial, Verdict

FINALISTS = 3
NEIGHBOURS = 4  # stored configs that a search begins with
ROUNDS = {"gpu": 41, "cpu": 15}
DEFAULT_TRIALS = {"gpu": 150, "cpu": 40}
DEFAULT_TIME_LIMIT_S = 45.0
# A search does not stop at the ceiling before it has seen so many verified configs: the first may have been lucky.
AT_LEAST = 16
# A machine so busy that its noise is wider than this says nothing about the ceiling having been reached.
LARGEST_NOISE = 0.02


class NothingVerified(RedtuneError):
    """No config came through the judge; the text names the first failure of each kind."""


class Search:
    """The steps of a search over one problem on one device. `compared` names fixed knobs that must have an effect in
    every config, `seeds` are configs to begin with."""

    def __init__(
        self,
        problem: Problem,
        device: Device,
        *,
        trials: int | None = None,
        time_limit_s: float | None = None,
        sampler: str = "tpe",
        seed: int = 0,
        fixed: Mapping[str, Value] | None = None,
        compared: tuple[str, ...] = (),
        seeds: Sequence[Config] = (),
        storage: str | None = None,
        study: str | None = None,
        is_cold: bool = True,
        lab: Lab | None = None,
        progress: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        self.began = time.monotonic()
        self.limit_s = time_limit_s if time_limit_s is not None else DEFAULT_TIME_LIMIT_S
        self.problem, self.device, self.seed = problem, device, seed
        self.budget = trials if trials is not None else DEFAULT_TRIALS[device.kind]
        self.temperature = "cold" if is_cold else "warm"
        self.progress = progress
        self.lab = lab or Lab(device, problem, seed=seed, is_cold=is_cold)
        self.space: Space = make_space(problem, self.lab.dialect, device, dict(fixed or {}), compared)
        self.seeds = tuple(seeds)
        self.name, self.study = study or "", self.study_name(study, dict(fixed or {}))
        self.proposals = Proposals(self.space, self.study, sampler, seed, storage)
        self.default = default_config(problem, self.lab.dialect, device)
        self.found = store.lookup(problem, self.lab.dialect, device, self.temperature)
        self.data_bytes = read_bytes(problem)
        self.ceiling: Timing | None = None
        self.report = Report(problem, device, self.found.origin, len(self.proposals.known), self.temperature)
        self.report.trials = list(self.proposals.known.values())

    def study_name(self, given: str | None, fixed: Mapping[str, Value]) -> str:
        """Trials belong together when nothing that changes their time differs, whatever name the user gives them."""
        parts = [given] if given else []
        parts += [self.device.name, self.device.toolchain, self.device.driver, templates_digest()]
        parts += [
            store.file_name(self.problem, self.temperature),
            f"{self.problem.outer}x{self.problem.n}x{self.problem.inner}",
            str(store.format_number()),
        ]
        parts += [f"{name}={value}" for name, value in sorted(fixed.items())]
        # A sampler takes no values but those that its study began with.
        parts.append(f"{zlib.crc32(json.dumps(dict(self.space.admitted)).encode()):08x}")
        return " | ".join(parts)

    # --- the loop -------------------------------------------------------------------------------------------------

    def run(self) -> Report:
        """Measures up to the budget, decides between the finalists, keeps the winner."""
        try:
            self.progress(Progress("measuring the read ceiling"))
            self.ceiling = self.lab.ceiling(self.data_bytes)
            keep(self._searched())
            measuring = time.monotonic()
            self._measure_all()
            self.report.measuring_seconds = time.monotonic() - measuring
            self._decide()
        finally:
            self.lab.close()
            self.proposals.close()
            self.report.seconds = time.monotonic() - self.began
            if self.ceiling is not None:
                keep(self._searched())
        return self.report

    def _measure_all(self) -> None:
        if self.device.kind == "cpu":
            # Compilers share the processor with what is measured, so they work first, a batch at a time.
            for batch in self._batches(self.lab.jobs * 2):
                for compiled in [future.result() for future in batch]:
                    if not self._is_late():
                        self._measure(compiled)
            return
        waiting: deque[Future[Compiled]] = deque()
        configs = self._configs()
        while True:
            while len(waiting) < self.lab.jobs * 2 and (config := next(configs, None)) is not None:
                waiting.append(self._compile(config))
            if not waiting or self._is_late():
                return
            self._measure(waiting.popleft().result())

    def _batches(self, size: int) -> Iterator[list[Future[Compiled]]]:
        configs = self._configs()
        while True:
            batch: list[Future[Compiled]] = []
            while len(batch) < size and (config := next(configs, None)) is not None:
                batch.append(self._compile(config))
            if not batch:
                return
            yield batch

    def _compile(self, config: Config) -> Future[Compiled]:
        return self.lab.compile_ahead(render(self.problem, config, self.lab.dialect, self.device))

    def _configs(self) -> Iterator[Config]:
        """Configs to measure, until a reason to stop."""
        proposals, given = self.proposals, len(self.proposals.known)
        near = store.candidates(self.problem, self.device, self.temperature)
        neighbours = [found.config for found in itertools.islice(near, NEIGHBOURS)]
        known_shapes = starting_points(self.problem, self.lab.dialect, self.device)
        first = [*self.seeds, self.default, self.found.config, *proposals.once_crashed]
        queue = deque(proposals.queue([*first, *neighbours, *known_shapes]))
        if self.space.is_within(self.budget):
            queue.extend(c for c in proposals.queue(list(self.space.walk())) if c not in queue)
            self.report.stopped = "every legal config was measured"
            whole = True
        else:
            whole = False
        while not self._must_stop(given):
            if queue:
                config: Config | None = queue.popleft()
                if config is not None and not proposals.adopt(config):
                    continue
            elif whole:
                return
            else:
                config, refused = proposals.next()
                self.report.refused += refused
            if config is None:
                self.report.stopped = "no legal config is left to measure"
                return
            given += 1
            yield config

    def _is_late(self) -> bool:
        """Whether the time is up; a limit too short for a single trial still gets one."""
        return time.monotonic() - self.began > self.limit_s and bool(self.report.trials)

    def _must_stop(self, given: int) -> bool:
        if given >= self.budget:
            self.report.stopped = self.report.stopped or f"{self.budget} trials were measured"
            return True
        if self._is_late():
            self.report.stopped = f"the time limit of {self.limit_s:g} s was reached"
            return True
        best = self._fastest()
        verified = sum(t.verdict == Verdict.OK for t in self.report.trials)
        if best is None or best.micros is None or self.ceiling is None or verified < AT_LEAST:
            return False
        noise = min(max(best.spread_us or 0.0, self.ceiling.spread_us), LARGEST_NOISE * self.ceiling.median_us)
        if best.micros <= self.ceiling.median_us + noise:
            self.report.stopped = "the best is within noise of the measured read ceiling"
            return True
        return False

    def _fastest(self) -> Trial | None:
        done = [t for t in self.report.trials if t.verdict == Verdict.OK and t.micros is not None]
        return min(done, key=lambda t: t.micros or 0.0, default=None)

    def _measure(self, compiled: Compiled) -> None:
        best = self._fastest()
        trial = _checked(self.lab.trial(compiled, best.micros if best else None))
        self.proposals.tell(trial)
        self.report.trials.append(trial)
        store.append_row(self.device, self.problem, trial, _now())
        best = self._fastest()
        self.progress(
            Progress(
                "searching",
                len(self.report.trials),
                self.budget,
                best.micros if best else None,
                self.ceiling.median_us if self.ceiling else None,
                self.data_bytes,
            )
        )

    # --- the finals -----------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        done = sorted((t for t in self.report.trials if t.verdict == Verdict.OK), key=lambda t: t.micros or 0.0)
        if not done:
            raise NothingVerified(self._no_winner())
        self.progress(Progress("timing the finalists", len(self.report.trials), self.budget, done[0].micros))
        measured = {t.config for t in done}
        roles: dict[Config, str] = {t.config: "found" for t in done[:FINALISTS]}
        for config, role in ((self.found.config, "stored"), (self.default, "default")):
            if config in measured:
                roles[config] = role
        compiled, finals = self._finals([self._compile(config) for config in roles])
        configs = [c.kernel.config for c in compiled]
        incumbent = next((configs.index(c) for c in (self.found.config, self.default) if c in configs), None)
        self._judge_finals(configs, [roles[c] for c in configs], finals, incumbent)

    def _finals(self, futures: list[Future[Compiled]]) -> tuple[list[Compiled], Finals]:
        """The final rounds of those finalists that come through them: one that fails now is out, and named."""
        finalists = [future.result() for future in futures]
        deaths = 0
        while finalists:
            try:
                finals = self.lab.finals(finalists, ROUNDS[self.device.kind])
            except FinalistWrong as wrong:
                named = [c for c in finalists if c.kernel.digest == wrong.digest] or finalists[:1]
                self._drop(finalists, [_failed(c, Verdict.WRONG, str(wrong)) for c in named])
            except (WorkerDied, WorkerTimedOut) as failed:
                deaths += 1
                # Which of them it was shows when each runs alone. If none fails there, the process may have been killed
                # from outside; if it dies again, the fastest is the suspect.
                alone = [self.lab.trial(c, None) for c in finalists]
                guilty = [trial for trial in alone if trial.verdict != Verdict.OK]
                if guilty or deaths > 1:
                    self._drop(finalists, guilty or [_failed(finalists[0], Verdict.CRASHED, str(failed))])
            else:
                timeless = [c for c, row in zip(finalists, finals.samples, strict=True) if not all(map(is_time, row))]
                if not timeless:
                    return finalists, finals
                note = "the clock showed no time in the final rounds"
                self._drop(finalists, [_failed(c, Verdict.CRASHED, note) for c in timeless])
        raise NothingVerified(self._no_winner())

    def _drop(self, finalists: list[Compiled], failed: list[Trial]) -> None:
        """Takes finalists out of the finals and their earlier trials out of the right ones."""
        for trial in failed:
            finalists[:] = [c for c in finalists if c.kernel.config != trial.config]
            self.report.trials = [trial if known.config == trial.config else known for known in self.report.trials]
            self.proposals.revise(trial)
            store.append_row(self.device, self.problem, trial, _now())

    def _judge_finals(self, configs: list[Config], roles: list[str], finals: Finals, incumbent: int | None) -> None:
        timings = [summary(row) for row in finals.samples]
        admitted = [
            k for k, shown in enumerate(finals.repeats) if self.problem.determinism in ("any", shown.determinism)
        ]
        if not admitted:
            runs = finals.repeats[0].runs
            raise NothingVerified(
                f"no finalist gave the same bits in {runs} runs idle and {runs} under load, as run-to-run demands"
            )
        against = incumbent if incumbent is not None and incumbent in admitted else admitted[0]
        ratios = [paired_ratio(row, finals.samples[against]) for row in finals.samples]
        fastest = min(admitted, key=lambda k: timings[k].median_us)
        winner = fastest if ratios[fastest][2] < 1.0 else against
        self.report.finalists = sorted(
            (
                Finalist(config, role, timing, *ratio, shown)
                for config, role, timing, ratio, shown in zip(
                    configs, roles, timings, ratios, finals.repeats, strict=True
                )
            ),
            key=lambda f: f.timing.median_us,
        )
        self.report.baseline_absent = finals.baseline_absent
        self.report.verdict = self._sentence(roles[against], winner == against, ratios[fastest], fastest == against)
        self.report.best = self._best(configs[winner], timings[winner], finals, winner)
        if not self.space.fixed:
            self.report.is_saved = store.save(self.report.best)

    def _sentence(self, role: str, is_kept: bool, ratio: tuple[float, float, float], is_fastest: bool) -> str:
        if is_kept and is_fastest:
            return f"the {role} config is the best that was measured"
        if is_kept:
            return f"the {role} config is within noise of the best that was measured, and is kept"
        gain = 1 - ratio[0]
        return f"{gain:.1%} less time than the {role} config, beyond noise ({1 - ratio[2]:.1%} to {1 - ratio[1]:.1%})"

    def _best(self, config: Config, timing: Timing, finals: Finals, winner: int) -> Best:
        others = [f.timing.median_us for f in self.report.finalists if f.config != config]
        default = next((f.timing.median_us for f in self.report.finalists if f.config == self.default), None)
        times = [t.micros for t in self.report.trials if t.verdict == Verdict.OK and t.micros is not None]
        gbps = gigabytes_per_second
        ceiling = finals.ceiling() or self.ceiling  # of the same rounds, if it was taken in them
        ceiling_us = ceiling.median_us if ceiling else None
        return Best(
            problem=self.problem,
            device=self.device,
            config=config,
            median_us=timing.median_us,
            spread_us=timing.spread_us,
            runner_up_us=min(others, default=None),
            default_us=default,
            worst_us=max(times),
            baseline_us=_median_us(finals.baseline_samples),
            baseline=finals.baseline,
            gbps=gbps(self.data_bytes, timing.median_us),
            ceiling_gbps=gbps(self.data_bytes, ceiling_us) if ceiling_us else None,
            temperature=self.temperature,
            determinism=finals.repeats[winner].determinism,
            trials=len(self.report.trials),
            seed=self.seed,
            found=_now(),
            versions=versions(),
            templates=templates_digest(),
            format=store.format_number(),
            repeated=finals.repeats[winner],
        )

    def _searched(self) -> Searched:
        """The search as it stands, for its report."""
        return Searched(
            format=store.format_number(),
            study=self.study,
            name=self.name,
            problem=self.problem,
            device=self.device,
            temperature=self.temperature,
            sampler=self.proposals.sampler,
            seed=self.seed,
            budget=self.budget,
            data_bytes=self.data_bytes,
            ceiling_us=self.ceiling.median_us if self.ceiling else None,
            when=_now(),
            fixed={name: str(value) for name, value in self.space.fixed.items()},
            finalists=tuple(self.report.finalists),
            best=self.report.best,
            verdict=self.report.verdict,
            stopped=self.report.stopped,
            started_from=self.report.started_from,
            seconds=self.report.seconds,
        )

    def _no_winner(self) -> str:
        failures = [f"{verdict}: {trial.note}" for verdict, trial in self.report.first_failures().items()]
        return "no config came through: " + ("; ".join(failures) or "none was measured within the limits")


def _failed(compiled: Compiled, verdict: Verdict, note: str) -> Trial:
    """The trial of a finalist that did not come through the final rounds."""
    return Trial(compiled.kernel.config, compiled.kernel.digest, verdict, note=f"in the finals: {note}")


def _median_us(samples_s: tuple[float, ...]) -> float | None:
    """The median in microseconds, or None where the clock showed none."""
    return statistics.median(samples_s) * 1e6 if samples_s and all(map(is_time, samples_s)) else None


def _checked(trial: Trial) -> Trial:
    """A time that no clock can show is a failure, not a record."""
    if trial.verdict == Verdict.OK and not (trial.micros is not None and is_time(trial.micros)):
        return replace(trial, verdict=Verdict.CRASHED, micros=None, note=f"the clock said {trial.micros} us")
    return trial


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """What the measurements were made with."""
    import importlib.metadata
    import platform

    found = {"python": platform.python_version()}
    for package in ("redtune", "numpy", "optuna", "pyopencl", "cupy-cuda13x", "cupy-cuda12x", "cupy-rocm-7-0"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
