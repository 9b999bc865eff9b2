"""A lab with no device and no process behind it: what becomes of each config is scripted."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from redtune.backends import backend_named
from redtune.config import Config
from redtune.lab import Compiled, Finals
from redtune.types import Device, Kernel, Problem, Repeated, Resources, Timing, Trial, Verdict

# A time in microseconds for a config that is right (0, negative, NaN and infinity for a clock that lies), or the
# verdict that it meets, or a whole trial.
Outcome = float | Verdict | Trial

NOTES = {
    Verdict.NOT_COMPILED: "no such instruction",
    Verdict.WRONG: "max of 33 elements gave 0, not -1",
    Verdict.TIMED_OUT: "no result within 20 s",
    Verdict.CRASHED: "the process ended with signal SIGSEGV",
}

SAME = Repeated(runs=200, idle=1, loaded=1, distinct=1, spread=0.0, ulps=0, slowed=2.5)
DIFFERENT = Repeated(runs=200, idle=1, loaded=3, distinct=3, spread=0.25, ulps=2, slowed=2.5)


class FakeLab:
    """Stands in for redtune.lab.Lab. `script` decides what becomes of a config; `measured` lists those it was asked
    to measure, in their order. The final rounds repeat `final_us(config)` (the scripted time where there is none) with
    a relative `jitter`, and label a finalist as `label(config)` says.
    """

    def __init__(
        self,
        problem: Problem,
        device: Device,
        script: Callable[[Config], Outcome],
        *,
        final_us: Callable[[Config], float] | None = None,
        label: Callable[[Config], str] = lambda config: "run-to-run",
        ceiling_us: float = 1e-3,
        jitter: float = 0.01,
    ) -> None:
        self.problem, self.device, self.script = problem, device, script
        self.final_us, self.label, self.ceiling_us, self.jitter = final_us, label, ceiling_us, jitter
        self.dialect = backend_named(device.backend).dialect
        self.jobs = 2
        self.measured: list[Config] = []
        self.finalists: list[Config] = []
        self.is_closed = False

    def __enter__(self) -> FakeLab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.is_closed = True

    def compile(self, kernel: Kernel) -> Compiled:
        return self.compile_ahead(kernel).result()

    def resources(self, compiled: Compiled) -> Resources:
        wave = self.dialect.hardware_wave(compiled.kernel.config, self.device)
        return Resources(32, 1024, 0, 0.75, wave, {"shuffles": 5, "barriers": 2})

    def compile_ahead(self, kernel: Kernel) -> Future[Compiled]:
        outcome = self.script(kernel.config)
        future: Future[Compiled] = Future()
        if outcome is Verdict.NOT_COMPILED:
            future.set_result(Compiled(kernel, None, Verdict.NOT_COMPILED, NOTES[Verdict.NOT_COMPILED]))
        else:
            future.set_result(Compiled(kernel, "AAAA"))
        return future

    def trial(self, compiled: Compiled, best_us: float | None) -> Trial:
        config, digest = compiled.kernel.config, compiled.kernel.digest
        self.measured.append(config)
        if compiled.binary is None:
            return Trial(config, digest, compiled.verdict, note=compiled.note)
        outcome = self.script(config)
        if isinstance(outcome, Trial):
            return outcome
        if isinstance(outcome, Verdict):
            return Trial(config, digest, outcome, note=NOTES[outcome])
        return Trial(config, digest, Verdict.OK, outcome, abs(outcome) * self.jitter, 0.0)

    def ceiling(self, data_bytes: int) -> Timing:
        return Timing(self.ceiling_us, 0.0, 11)

    def finals(self, finalists: Sequence[Compiled], rounds: int) -> Finals:
        assert all(compiled.binary is not None for compiled in finalists), "only what was measured is a finalist"
        self.finalists = [compiled.kernel.config for compiled in finalists]
        rng = random.Random(2)
        rows = []
        for config in self.finalists:
            micros = self.final_us(config) if self.final_us else self._scripted_us(config)
            rows.append(tuple(micros * 1e-6 * (1 + self.jitter * rng.uniform(-1, 1)) for _ in range(rounds)))
        repeats = tuple(SAME if self.label(config) == "run-to-run" else DIFFERENT for config in self.finalists)
        return Finals(tuple(rows), repeats, "", (), "no library is faked")

    def _scripted_us(self, config: Config) -> float:
        outcome = self.script(config)
        assert not isinstance(outcome, Verdict), "a config that failed is no finalist"
        micros = outcome.micros if isinstance(outcome, Trial) else outcome
        assert micros is not None
        return micros
