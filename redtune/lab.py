"""The parent's side of the measurements: compile workers, one measuring worker, and a verdict for everything."""

from __future__ import annotations

import base64
import os
import queue
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from redtune.ahead import BUILD_LIMIT_S, Ahead
from redtune.backends import BACKENDS, backend_named
from redtune.beside import Beside, beside_in
from redtune.clock import ROTATION, is_time, summary
from redtune.codes import Codes
from redtune.computing import Computed
from redtune.config import Config
from redtune.dialect import Dialect
from redtune.errors import BackendMissing, RedtuneError, UsageError
from redtune.plan import read_bytes
from redtune.process import Under, WorkerDied, WorkerProcess, WorkerTimedOut
from redtune.readers import reading_kernels
from redtune.types import Device, Kernel, Problem, Repeated, Resources, Timing, Trial, Verdict, as_json, from_json

T = TypeVar("T")

DEVICES_LIMIT_S = 60.0
INPUTS_LIMIT_S = 300.0
COMPILE_LIMIT_S = 60.0
TRIAL_LIMIT_S = 20.0
EXAMINE_LIMIT_S = 300.0  # a checker or a simulator takes its time
FINALS_LIMIT_S = 120.0
BESIDE_LIMIT_S = 180.0
REPEAT_LIMIT_S = 1800.0
MAX_COMPILERS = 8
REPEATS = {"gpu": 200, "cpu": 30}  # runs of one input that label a finalist, idle and as many under load
READERS = 2


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel and its binary, or the verdict that it has none."""

    kernel: Kernel
    binary: str | None  # base64, as it crosses the pipe
    verdict: Verdict = Verdict.OK
    note: str = ""

    def as_job(self) -> dict[str, Any]:
        """The kernel with its binary, as a worker reads it."""
        return {"kernel": as_json(self.kernel), "binary": self.binary}


class FinalistWrong(RedtuneError):
    """A finalist was right before and is wrong now. `digest` names its kernel."""

    def __init__(self, digest: str, note: str) -> None:
        super().__init__(note)
        self.digest = digest


@dataclass(frozen=True, slots=True)
class Finals:
    """Samples in seconds of each finalist, in the same rounds, and what it gave when repeated; the library's, or why it
    is absent; and those of the kernels that only read, where the ceiling was measured before."""

    samples: tuple[tuple[float, ...], ...]
    repeats: tuple[Repeated, ...]
    baseline: str
    baseline_samples: tuple[float, ...]
    baseline_absent: str
    readers: tuple[tuple[float, ...], ...] = ()

    def ceiling(self) -> Timing | None:
        """The read ceiling as it stood in the same rounds: the fastest of the kernels that only read."""
        rows = [row for row in self.readers if all(map(is_time, row))]
        return min((summary(row) for row in rows), key=lambda t: t.median_us, default=None)


def tried_again(step: Callable[[], T]) -> T:
    """A step in which no candidate runs. A process that dies in it was killed from outside, or the device is gone: it
    is tried once more, and what happens then is raised."""
    try:
        return step()
    except WorkerDied:
        return step()


def list_devices(backend: str, under: Under | None = None) -> list[Device]:
    """The devices of a backend, found by a worker: this process opens none. Raises BackendMissing with the reason."""
    backend_named(backend)
    worker = WorkerProcess(under)

    def parse(said: dict[str, Any]) -> list[Device]:
        return [from_json(Device, device) for device in said["devices"]]

    try:
        return tried_again(lambda: worker.read("devices", DEVICES_LIMIT_S, "devices", parse, backend=backend))
    except (WorkerDied, WorkerTimedOut) as error:
        raise BackendMissing(f"the {backend} backend could not list its devices: {error}") from error
    finally:
        worker.kill()


def find_device(backend: str | None, index: int) -> Device:
    """The device asked for: of the named backend, or of the first backend that has one."""
    if index < 0:
        raise UsageError(f"there is no device {index}: devices are counted from 0")
    reasons = []
    for name in [backend] if backend else BACKENDS:
        try:
            devices = list_devices(name)
        except BackendMissing as error:
            reasons.append(str(error))
            continue
        if index >= len(devices):
            raise UsageError(f"{name} has no device {index}: it has {len(devices)}, counted from 0")
        return devices[index]
    raise BackendMissing(reasons[0] if backend else "no device was found: " + "; ".join(reasons))


class Lab:
    """Compiles, judges and times candidates of one problem on one device."""

    def __init__(
        self, device: Device, problem: Problem, *, seed: int = 0, is_cold: bool = True, under: Under | None = None
    ) -> None:
        self.device, self.problem, self.seed, self.is_cold = device, problem, seed, is_cold
        self.dialect: Dialect = backend_named(device.backend).dialect
        self.jobs = max(1, min(MAX_COMPILERS, os.cpu_count() or 1))
        self._compilers: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()
        under = under or Under()
        self._all_compilers = [WorkerProcess(under.for_compilers()) for _ in range(self.jobs)]
        for compiler in self._all_compilers:
            self._compilers.put(compiler)
        self._pool = ThreadPoolExecutor(self.jobs)
        self._codes = Codes()
        self.ahead = Ahead(self.compile_ahead, backend_named(device.backend), device)
        self.patience_s = BUILD_LIMIT_S  # how long a contest waits for a library that is being compiled
        self._fastest_readers: dict[int, list[Compiled]] = {}  # by data size
        self._worker = WorkerProcess(under)
        self._readers: list[Compiled] = []  # the fastest kernels that only read, once the ceiling was measured
        self._open_in = self._inputs_in = 0  # the generation of the measuring worker that holds device and inputs

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends every process."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.ahead.close()
        for worker in (*self._all_compilers, self._worker):
            worker.retire()

    # --- compiling ------------------------------------------------------------------------------------------------

    def compile_ahead(self, kernel: Kernel) -> Future[Compiled]:
        """Starts to compile a kernel in a process of its own."""
        return self._pool.submit(self.compile, kernel)

    def compile(self, kernel: Kernel) -> Compiled:
        """Compiles a kernel, unless one of the same code was compiled before; a compiler that fails, crashes or never
        returns gives a verdict."""
        return self._codes.compiled(kernel, self._compile)

    def _compile(self, kernel: Kernel) -> Compiled:
        def parse(said: dict[str, Any]) -> Compiled:
            if "binary" not in said:
                return Compiled(kernel, None, Verdict.NOT_COMPILED, str(said["refused"]))
            base64.b64decode(said["binary"], validate=True)
            return Compiled(kernel, said["binary"])

        job = {"device": as_json(self.device), "kernel": as_json(kernel)}
        with self._compiler() as compiler:
            try:
                return compiler.read("compile", COMPILE_LIMIT_S, "done", parse, **job)
            except WorkerTimedOut:
                note = f"the compiler took longer than {COMPILE_LIMIT_S:g} s"
                return Compiled(kernel, None, Verdict.TIMED_OUT, note)
            except WorkerDied as died:
                return Compiled(kernel, None, Verdict.CRASHED, f"the compiler crashed: {died}")

    @contextmanager
    def _compiler(self) -> Iterator[WorkerProcess]:
        compiler = self._compilers.get()
        try:
            yield compiler
        finally:
            self._compilers.put(compiler)

    # --- measuring ------------------------------------------------------------------------------------------------

    def _opened(self) -> WorkerProcess:
        """The measuring worker with the device open."""
        if self._worker.ensure() != self._open_in:
            self._worker.ask("open", DEVICES_LIMIT_S, "opened", device=as_json(self.device))
            self._open_in = self._worker.generation
        return self._worker

    def _furnished(self) -> WorkerProcess:
        """The measuring worker with the device open and the inputs made."""
        worker = self._opened()
        if worker.generation != self._inputs_in:
            worker.ask(
                "inputs", INPUTS_LIMIT_S, "copies", problem=as_json(self.problem), seed=self.seed, is_cold=self.is_cold
            )
            self._inputs_in = worker.generation
        return worker

    def trial(self, compiled: Compiled, best_us: float | None) -> Trial:
        """Judges and times one candidate. A crash or a hang costs this candidate and nothing else."""
        kernel = compiled.kernel
        if compiled.binary is None:
            return Trial(kernel.config, kernel.digest, compiled.verdict, note=compiled.note)

        def parse(said: dict[str, Any]) -> Trial:
            trial = from_json(Trial, said["trial"])
            if (trial.config, trial.digest) != (kernel.config, kernel.digest):
                raise ValueError("it is of another kernel")
            return trial

        worker = tried_again(self._furnished)
        try:
            return worker.read("trial", TRIAL_LIMIT_S, "trial", parse, best_us=best_us, **compiled.as_job())
        except WorkerTimedOut:
            return Trial(kernel.config, kernel.digest, Verdict.TIMED_OUT, note=f"no result within {TRIAL_LIMIT_S:g} s")
        except WorkerDied as died:
            return Trial(kernel.config, kernel.digest, Verdict.CRASHED, note=str(died))

    def finals(self, finalists: Sequence[Compiled], rounds: int) -> Finals:
        """Times the finalists and the library at hand in turns, in a fresh process."""
        self._worker.kill()  # nothing of what came before can lean on these measurements
        worker = tried_again(self._furnished)
        said = worker.read(
            "finals",
            FINALS_LIMIT_S,
            "timed",
            _finals_in,
            kernels=[compiled.as_job() for compiled in finalists],
            rounds=rounds,
            repeats=REPEATS[self.device.kind],
            readers=[reader.as_job() for reader in self._readers],
        )
        if isinstance(said, FinalistWrong):
            raise said
        if [len(said.samples), len(said.repeats)] != [len(finalists)] * 2:
            worker.kill()
            raise WorkerDied(f"the worker timed {len(said.samples)} finalists of {len(finalists)}")
        return said

    def beside(
        self, problem: Problem, compiled: Sequence[Compiled], rounds: int, *, with_libraries: bool, seed: int = 0
    ) -> Beside:
        """Times compiled kernels of a problem in turns with kernels that only read, and with every library there is if
        they are asked for, on random data. What all of them give is compared, and nothing is judged. Raises WorkerDied
        or WorkerTimedOut; the next call starts a new process."""
        size = read_bytes(problem)
        library = self.ahead.library_or_reason(problem, self.patience_s) if with_libraries else ""
        readers = self._fastest_readers.get(size) or self._readers_of(size)
        flush = self._readers_of(ROTATION[self.device.kind] * self.device.cache_bytes)[:1] if self.is_cold else []
        job = {
            "problem": as_json(problem),
            "kernels": [one.as_job() for one in compiled],
            "readers": [one.as_job() for one in readers],
            "flush": [one.as_job() for one in flush],
            "with_libraries": with_libraries,
            "library": str(library),
            "library_absent": isinstance(library, str),
        }
        found, fastest = tried_again(self._opened).read(
            "beside", BESIDE_LIMIT_S, "timed", beside_in, rounds=rounds, seed=seed, is_cold=self.is_cold, **job
        )
        if len(found.samples) != len(compiled):
            self._worker.kill()
            raise WorkerDied(f"the worker timed {len(found.samples)} kernels of {len(compiled)}")
        self._fastest_readers[size] = [one for one in readers if one.kernel.digest in fastest]
        return found

    def _readers_of(self, data_bytes: int) -> list[Compiled]:
        """Every kernel that only reads so many bytes. They read whole words; of fewer bytes than one there is none."""
        if data_bytes < 4:
            return []
        kernels = list(reading_kernels(self.device, self.dialect, data_bytes))
        for kernel in kernels:
            self.ahead.kernel(kernel)
        compiled = [self.ahead.compiled(kernel) for kernel in kernels]
        return [one for one in compiled if one.binary is not None]

    def repeat(self, compiled: Compiled, repeats: int) -> Repeated:
        """What one input of full size gives over and over, idle and under load."""
        job = {"repeats": repeats, "seed": self.seed, **compiled.as_job()}
        return self._opened().read(
            "repeat", REPEAT_LIMIT_S, "repeated", lambda said: from_json(Repeated, said["repeated"]), **job
        )

    def errors(self, compiled: Sequence[Compiled]) -> list[float]:
        """The relative error of each kernel of one problem on numbers of one sign, at full size."""
        job = {"kernels": [one.as_job() for one in compiled], "seed": self.seed}
        return self._opened().read("errors", INPUTS_LIMIT_S, "errors", _numbers_in, **job)

    def ceiling(self, data_bytes: int) -> Timing:
        """The shortest time in which a kernel that only reads gets through `data_bytes` on this device."""
        kernels = list(reading_kernels(self.device, self.dialect, data_bytes))
        compiled = [c for c in self._pool.map(self.compile, kernels) if c.binary is not None]
        if not compiled:
            raise RedtuneError("no kernel that only reads could be compiled, so there is no ceiling")
        jobs = [c.as_job() for c in compiled]
        rows = tried_again(
            lambda: self._opened().read(
                "ceiling", FINALS_LIMIT_S, "timings", _timings_in, kernels=jobs, is_cold=self.is_cold
            )
        )
        timed = [pair for pair in zip(rows, compiled, strict=True) if is_time(pair[0].median_us)]
        if not timed:
            raise RedtuneError(f"the clock of {self.device.name} shows no time, so nothing can be measured on it")
        timed.sort(key=lambda pair: pair[0].median_us)
        # Readers read whole words; of fewer bytes than one they would read past the end.
        self._readers = [reader for _, reader in timed[:READERS]] if data_bytes >= 4 else []
        return timed[0][0]

    def copy(self, data_bytes: int) -> Timing:
        """How long a copy of `data_bytes` takes within device memory."""
        timing = self._opened().read(
            "copy", FINALS_LIMIT_S, "timing", lambda said: from_json(Timing, said["timing"]), bytes=data_bytes
        )
        if not is_time(timing.median_us):
            raise RedtuneError(f"the clock of {self.device.name} shows no time for a copy")
        return timing

    def arithmetic(self, compiled: Sequence[Compiled]) -> tuple[list[Computed], Timing]:
        """How long kernels that only compute (`redtune.arithmetic`) take, and a launch that does nothing."""

        def parse(said: dict[str, Any]) -> tuple[list[Computed], Timing]:
            return [from_json(Computed, row) for row in said["timed"]], from_json(Timing, said["empty"])

        jobs = [one.as_job() for one in compiled]
        found, empty = tried_again(
            lambda: self._opened().read("arithmetic", FINALS_LIMIT_S, "timed", parse, kernels=jobs)
        )
        if len(found) != len(compiled) or not all(is_time(one.timing.median_us) for one in found):
            raise RedtuneError(f"the clock of {self.device.name} shows no time for arithmetic")
        return found, empty

    def smallest(self, compiled: Compiled) -> Timing:
        """How long the whole reduction of a small problem takes."""
        return tried_again(
            lambda: self._opened().read(
                "smallest",
                FINALS_LIMIT_S,
                "timing",
                lambda said: from_json(Timing, said["timing"]),
                **compiled.as_job(),
            )
        )

    def examine(self, compiled: Compiled, elements: int, threads: int) -> tuple[Verdict, str]:
        """Runs one kernel on small inputs, of so many elements at most and with so many threads (any number if 0): what
        became of it, and what was wrong."""
        if compiled.binary is None:
            return compiled.verdict, compiled.note
        try:
            said = self._opened().ask(
                "examine", EXAMINE_LIMIT_S, "wrong", elements=elements, threads=threads, **compiled.as_job()
            )
        except WorkerTimedOut as late:
            return Verdict.TIMED_OUT, str(late)
        except WorkerDied as died:
            return Verdict.CRASHED, str(died)
        wrong = [str(text) for text in said["wrong"]]
        return (Verdict.WRONG, wrong[0]) if wrong else (Verdict.OK, "")

    def resources(self, compiled: Compiled) -> Resources:
        """What the main launch of a compiled kernel takes on the device."""
        return self._opened().read(
            "resources",
            COMPILE_LIMIT_S,
            "resources",
            lambda said: from_json(Resources, said["resources"]),
            **compiled.as_job(),
        )

    def turn_to(self, problem: Problem) -> None:
        """Makes the inputs of another problem before the next trial, so that the processes start once for many."""
        self.problem, self._inputs_in = problem, 0

    def reduce_axes(self, path: str, op: str, axis: Any, keepdims: bool, custom: str) -> dict[str, Any]:
        """The reduction of some axes of a .npy file, by the same road as arrays."""
        limit_s = FINALS_LIMIT_S + Path(path).stat().st_size / 20e6
        job = {"path": path, "op": op, "axis": axis, "keepdims": keepdims, "custom": custom}

        def parse(said: dict[str, Any]) -> dict[str, Any]:
            result = dict(said["result"])
            return {**result, "config": from_json(Config, result["config"]) if result["config"] else None}

        return self._opened().read("reduce_axes", limit_s, "result", parse, **job)

    def reduce_file(self, compiled: Compiled, path: str) -> Any:
        """The reduction of a .npy file."""
        # A disk that reads 20 MB/s is the slowest that still counts as working.
        limit_s = FINALS_LIMIT_S + Path(path).stat().st_size / 20e6
        return self._opened().ask("reduce", limit_s, "value", path=path, **compiled.as_job())["value"]


def _numbers_in(said: dict[str, Any]) -> list[float]:
    return [float(number) for number in said["errors"]]


def _timings_in(said: dict[str, Any]) -> list[Timing]:
    return [from_json(Timing, row) for row in said["timings"]]


def _finals_in(said: dict[str, Any]) -> Finals | FinalistWrong:
    """The final rounds as the worker tells them, or which finalist is wrong."""
    if said["wrong"]:
        return FinalistWrong(str(said["wrong"]), str(said["note"]))
    groups: dict[str, list[tuple[str, tuple[float, ...]]]] = defaultdict(list)
    for row in said["timed"]:
        groups[row["group"]].append((str(row["name"]), tuple(map(float, row["samples"]))))
    absent = {str(name): str(reason) for name, reason in said["absent"]}
    baseline, baseline_samples = next(iter(groups["baseline"]), ("", ()))
    return Finals(
        samples=tuple(samples for _, samples in groups["finalist"]),
        repeats=tuple(from_json(Repeated, row) for row in said["repeats"]),
        baseline=baseline,
        baseline_samples=baseline_samples,
        baseline_absent=absent.pop("baseline", ""),
        readers=tuple(samples for _, samples in groups["reader"]),
    )
