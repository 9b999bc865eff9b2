"""The isolated process: a job comes in as one line of JSON, an answer goes out as one.

It alone opens the device. A hang, a crash or a poisoned context ends this process and nothing else; the parent
(`redtune.lab`) replaces it. Whatever a device or a driver prints goes to stderr, never among the answers.
"""

from __future__ import annotations

import base64
import contextlib
import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from redtune.backends import Backend, Call, Session, backend_named
from redtune.errors import CompileError, RedtuneError
from redtune.plan import entry_names
from redtune.types import Device, Kernel, Problem, Trial, Verdict, as_json, from_json

if TYPE_CHECKING:
    from redtune.contest import Grounds
    from redtune.judge import Bench, Judge

PARENT_VARIABLE = "REDTUNE_PARENT"  # the process that started this one

# Beyond its limit a job ends the process by itself, should the parent be gone and the device never answer.
GRACE_S = 30.0


@dataclass(frozen=True)
class Opened:
    """An open device and the backend it belongs to."""

    backend: Backend
    device: Device
    session: Session


@dataclass(frozen=True)
class Inputs:
    """A problem, its inputs at full size on the device and on the host, and the judge that knows their results."""

    problem: Problem
    data: list[Any]
    hosts: list[Any]
    judge: Judge


class Station:
    """What a worker holds between jobs."""

    def __init__(self) -> None:
        self._opened: Opened | None = None
        self._inputs: Inputs | None = None
        self._held: list[Any] = []  # buffers of examinations
        self._grounds: Grounds | None = None  # of contests
        self._contested: tuple[Problem, int, Any] | None = None  # the last input that was repeated

    @property
    def opened(self) -> Opened:
        """The open device."""
        assert self._opened is not None, "the parent opens the device first"
        return self._opened

    @property
    def made(self) -> Inputs:
        """The inputs."""
        assert self._inputs is not None, "the parent asks for inputs first"
        return self._inputs

    def devices(self, job: dict[str, Any]) -> dict[str, Any]:
        """Every device of a backend."""
        return {"devices": [as_json(device) for device in backend_named(job["backend"]).devices()]}

    def compile(self, job: dict[str, Any]) -> dict[str, Any]:
        """A kernel's binary, or the compiler's log. What every search compiles is kept for the next one."""
        from redtune import store
        from redtune.readers import is_reading

        kernel, device = from_json(Kernel, job["kernel"]), from_json(Device, job["device"])
        backend = backend_named(device.backend)
        is_kept = is_reading(kernel, backend.dialect, device)
        binary = store.read_binary(kernel, device) if is_kept else None
        try:
            if binary is None:
                binary = backend.compile(kernel, device)
                if is_kept:
                    store.keep_binary(kernel, device, binary)
        except CompileError as error:
            return {"done": False, "refused": str(error), "log": error.log}
        return {"done": True, "binary": base64.b64encode(binary).decode()}

    def open(self, job: dict[str, Any]) -> dict[str, Any]:
        """Opens the device."""
        device = from_json(Device, job["device"])
        backend = backend_named(device.backend)
        self._opened = Opened(backend, device, backend.open(device))
        return {"opened": device.name}

    def inputs(self, job: dict[str, Any]) -> dict[str, Any]:
        """Makes the inputs of a problem, with their right results."""
        from redtune.clock import copies_for
        from redtune.data import full_size
        from redtune.dtypes import dtype_named
        from redtune.judge import Judge
        from redtune.operators import accumulates_in_floats, operator_of
        from redtune.plan import read_bytes

        device, session = self.opened.device, self.opened.session
        problem = from_json(Problem, job["problem"])
        dtype = dtype_named(problem.dtype)
        in_floats = accumulates_in_floats(problem)
        copies = copies_for(device, read_bytes(problem), job["is_cold"])
        size, op = problem.n * problem.results, operator_of(problem)
        full = full_size(op, dtype, size, copies, job["seed"], in_floats, problem.results)
        hosts = [dataset.raw for dataset in full]
        data = [session.upload(raw) for raw in hosts]
        self._inputs = Inputs(problem, data, hosts, Judge(session, problem, full, data, job["seed"]))
        return {"copies": copies}

    def _load(self, job: dict[str, Any]) -> tuple[Kernel, Any]:
        kernel = from_json(Kernel, job["kernel"])
        return kernel, self.opened.session.load(kernel, base64.b64decode(job["binary"]))

    def _load_reading(self, job: dict[str, Any]) -> tuple[Kernel, Any]:
        """A kernel that only reads. Its binary may be a kept one of another driver, whatever it says of itself."""
        try:
            return self._load(job)
        except Exception:  # whatever a driver raises
            from redtune import store

            kernel, opened = from_json(Kernel, job["kernel"]), self.opened
            binary = opened.backend.compile(kernel, opened.device)
            store.keep_binary(kernel, opened.device, binary)
            return kernel, opened.session.load(kernel, binary)

    def _bench(self, job: dict[str, Any]) -> Bench:
        from redtune.judge import Bench

        kernel, program = self._load(job)
        problem, opened = self.made.problem, self.opened
        bench = Bench(opened.session, opened.backend.dialect, opened.device, problem, kernel.config, program)
        bench.prepare(self.made.judge.shapes(), self.made.judge.answers.result.bytes)
        return bench

    def _calls(self, bench: Bench) -> list[Call]:
        """The same reduction of each of the rotating inputs."""
        whole = self.made.judge.whole
        return [bench.bind(data, whole, whole.size) for data in self.made.data]

    def trial(self, job: dict[str, Any]) -> dict[str, Any]:
        """Judges one candidate, and times it if it is right."""
        from redtune.answers import Wrong
        from redtune.clock import measure, patience_s

        kernel = from_json(Kernel, job["kernel"])
        bench = self._bench(job)
        try:
            error = self.made.judge.judge(bench, patience_s(job["best_us"]))
        except Wrong as wrong:
            return {"trial": as_json(Trial(kernel.config, kernel.digest, Verdict.WRONG, note=str(wrong)))}
        timing = measure(self.opened.session, self._calls(bench), job["best_us"])
        done = Trial(kernel.config, kernel.digest, Verdict.OK, timing.median_us, timing.spread_us, error)
        return {"trial": as_json(done)}

    def repeat(self, job: dict[str, Any]) -> dict[str, Any]:
        """Reduces one input of full size over and over, on the idle device and under load."""
        from redtune.dtypes import dtype_named
        from redtune.judge import Bench
        from redtune.operators import result_of
        from redtune.repeating import repeated
        from redtune.windows import Window

        kernel, program = self._load(job)
        problem, opened = kernel.problem, self.opened
        data, result = self._contest(problem, job["seed"]), dtype_named(result_of(problem))
        whole = Window(0, problem.outer, problem.n, problem.inner)
        # The load is the same program on the same input, with scratch of its own.
        benches = [
            Bench(opened.session, opened.backend.dialect, opened.device, problem, kernel.config, program)
            for _ in range(2)
        ]
        for bench in benches:
            bench.prepare([whole], result.bytes)
        call, load = (bench.bind(data, whole, whole.size) for bench in benches)
        storage = result.storage()
        seen = repeated(
            opened.session, lambda: benches[0].results(call, whole, storage), result, job["repeats"], [load]
        )
        return {"repeated": as_json(seen)}

    def errors(self, job: dict[str, Any]) -> dict[str, Any]:
        """How far kernels of one problem are from the right result of an input of full size."""
        from redtune.exactness import relative_errors

        opened = self.opened
        place = opened.session, opened.device, opened.backend.dialect
        return {"errors": relative_errors(*place, [self._load(item) for item in job["kernels"]], job["seed"])}

    def _contest(self, problem: Problem, seed: int) -> Any:
        """An input on which order shows, kept for the next kernel of the problem."""
        from redtune.data import contested_dataset
        from redtune.dtypes import dtype_named
        from redtune.operators import accumulates_in_floats, operator_of

        if self._contested is None or self._contested[:2] != (problem, seed):
            op, size = operator_of(problem), problem.n * problem.results
            dtype, in_floats = dtype_named(problem.dtype), accumulates_in_floats(problem)
            made = contested_dataset(op, dtype, size * op.inputs, seed, in_floats)
            self._contested = problem, seed, self.opened.session.upload(made.raw)
        return self._contested[2]

    def ceiling(self, job: dict[str, Any]) -> dict[str, Any]:
        """Times the main launch alone of kernels that only read: what they reach is the read ceiling."""
        import numpy as np

        from redtune.clock import copies_for, measure

        opened = self.opened
        n = from_json(Kernel, job["kernels"][0]["kernel"]).problem.n
        host = np.resize(np.arange(1 << 20, dtype=np.int32), n)
        copies = copies_for(opened.device, host.nbytes, job["is_cold"])
        buffers = [opened.session.upload(host.copy()) for _ in range(copies)]
        rows = [as_json(measure(opened.session, self._reads(item, buffers))) for item in job["kernels"]]
        return {"timings": rows}

    def _reads(self, item: dict[str, Any], buffers: list[Any]) -> list[Call]:
        """The main launch alone, over each of the buffers: the kernel reads them and its blocks never meet."""
        import numpy as np

        from redtune.contest import reading_call

        session, (kernel, program) = self.opened.session, self._load_reading(item)
        scratch = session.upload(np.zeros(kernel.partials_bytes + 64, np.uint8))
        return [reading_call(session, kernel, program, scratch, data) for data in buffers]

    def beside(self, job: dict[str, Any]) -> dict[str, Any]:
        """Times kernels, libraries and readers side by side on random data, and compares what they give."""
        from redtune.contest import Grounds, contend

        self._grounds = self._grounds or Grounds()
        opened = self.opened
        place = opened.session, opened.device, opened.backend.dialect
        return contend(*place, self._grounds, job, self._load)

    def warm(self, job: dict[str, Any]) -> dict[str, Any]:
        """Calls the libraries on little data, so that what they compile then is on the disk."""
        if self._opened is None:
            self.open(job)
        self.opened.session.warm(from_json(Problem, job["problem"]))
        return {"warm": True}

    def copy(self, job: dict[str, Any]) -> dict[str, Any]:
        """Times copies from device memory to device memory."""
        import numpy as np

        from redtune.clock import SAMPLES, copies_for, summary

        session, size = self.opened.session, job["bytes"]
        count = copies_for(self.opened.device, 2 * size, is_cold=True)
        sources = [session.upload(np.ones(size, np.uint8)) for _ in range(count)]
        targets = [session.upload(np.ones(size, np.uint8)) for _ in range(count)]
        turns = [turn % count for turn in range(SAMPLES + count)]
        samples = [session.copy(targets[turn], sources[turn], size) for turn in turns]
        return {"timing": as_json(summary(samples[count:]))}  # the first time round warms up

    def arithmetic(self, job: dict[str, Any]) -> dict[str, Any]:
        """Times kernels that only compute, and launches of the first that do nothing."""
        from redtune.computing import empty, timed

        session, loaded = self.opened.session, [self._load(item) for item in job["kernels"]]
        rows = [as_json(timed(session, kernel, program)) for kernel, program in loaded]
        return {"timed": rows, "empty": as_json(empty(session, *loaded[0]))}

    def smallest(self, job: dict[str, Any]) -> dict[str, Any]:
        """Times the whole of a reduction that has next to nothing to read."""
        from redtune.computing import smallest

        opened = self.opened
        return {"timing": as_json(smallest(opened.session, opened.backend.dialect, opened.device, *self._load(job)))}

    def finals(self, job: dict[str, Any]) -> dict[str, Any]:
        """Judges the finalists again and repeats them, then times them, the library and the readers in turns."""
        from redtune.answers import Wrong
        from redtune.clock import interleave, loads, sampler, shuffled
        from redtune.judge import share_scratch

        session, made = self.opened.session, self.made
        entries: list[tuple[str, str, Callable[[], float]]] = []
        benches: list[Bench] = []
        repeats: list[Any] = []
        for item in job["kernels"]:
            bench = self._bench(item)
            try:
                made.judge.judge(bench)
            except Wrong as wrong:
                return {"timed": [], "wrong": item["kernel"]["digest"], "note": str(wrong)}
            beside = self._calls(self._bench(item))[:1]  # the same program again, with scratch of its own
            repeats.append(as_json(made.judge.repeats(bench, job["repeats"], beside)))
            benches.append(bench)
        share_scratch(benches)
        loaded = [[bench] for bench in benches]
        for _ in range(loads(self.opened.device, job["rounds"]) - 1):  # in turns, so that all lie everywhere alike
            for item, row in zip(job["kernels"], loaded, strict=True):
                row.append(replace(row[0], program=self._load(item)[1]))
        for k, row in enumerate(loaded):
            entries.append(("finalist", "", shuffled([sampler(session, self._calls(bench)) for bench in row], k)))
        absent: list[tuple[str, str]] = []
        try:
            entries.append(("baseline", *session.baseline(made.problem, made.data, made.hosts)))
        except RedtuneError as error:
            absent.append(("baseline", str(error)))
        for item in job["readers"]:
            entries.append(("reader", item["kernel"]["digest"], sampler(session, self._reads(item, made.data))))
        rows = interleave([sample for _, _, sample in entries], job["rounds"])
        timed = [{"group": g, "name": name, "samples": row} for (g, name, _), row in zip(entries, rows, strict=True)]
        return {"timed": timed, "repeats": repeats, "absent": absent, "wrong": ""}

    def examine(self, job: dict[str, Any]) -> dict[str, Any]:
        """What is wrong with one kernel on small inputs, in memory that ends where they end."""
        from redtune.examination import Examination

        (kernel, program), opened = self._load(job), self.opened
        place = opened.session, opened.backend.dialect, opened.device
        return {"wrong": Examination(*place, kernel, program, job["elements"], job["threads"], self._held).wrong()}

    def resources(self, job: dict[str, Any]) -> dict[str, Any]:
        """What the main launch of a compiled kernel takes on the device."""
        (kernel, program), opened = self._load(job), self.opened
        main = entry_names(kernel.problem, kernel.config).main
        launch = next(launch for launch in kernel.launches if launch.entry == main)
        found = opened.session.resources(program, launch)
        return {"resources": as_json(replace(found, counts=opened.backend.counts(kernel, opened.device)))}

    def reduce_axes(self, job: dict[str, Any]) -> dict[str, Any]:
        """Reduces some axes of a .npy file as arrays are reduced."""
        from redtune.files import reduce_axes

        axis = tuple(job["axis"]) if isinstance(job["axis"], list) else job["axis"]
        device = self.opened.device
        return {
            "result": reduce_axes(
                self.opened.session, device, job["path"], job["op"], axis, job["keepdims"], job["custom"]
            )
        }

    def reduce(self, job: dict[str, Any]) -> dict[str, Any]:
        """Reduces a .npy file in chunks with a kernel that leaves its state."""
        from redtune.files import reduce_file

        opened = self.opened
        kernel, program = self._load(job)
        value = reduce_file(opened.session, opened.backend.dialect, opened.device, kernel, program, job["path"])
        return {"value": value}


def answer(station: Station, job: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """What to say about a job, and whether the process can go on after it."""
    try:
        return cast(dict[str, Any], getattr(station, job["job"])(job)), True
    except RedtuneError as error:
        return {"error": str(error), "kind": type(error).__name__}, True
    except Exception as error:  # the border: whatever a driver raises becomes a verdict in the parent
        return {"crashed": f"{type(error).__name__}: {error}"}, False


def _watch_parent() -> None:
    """Ends this process when its parent is gone, so that a killed search leaves nothing behind."""
    # The parent says who it is: it may be gone by now, and this process another's child.
    parent = int(os.environ.get(PARENT_VARIABLE) or os.getppid())

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        if os.getpgid(0) == os.getpid():  # what it has started goes along, such as a compiler
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def serve(jobs: TextIO, answers: TextIO) -> int:
    """Answers jobs until there are no more, or until one leaves the process unfit."""
    station = Station()
    for line in jobs:
        job = json.loads(line)
        faulthandler.dump_traceback_later(job["limit_s"] + GRACE_S, exit=True)
        said, goes_on = answer(station, job)
        faulthandler.cancel_dump_traceback_later()
        answers.write(json.dumps(said) + "\n")
        answers.flush()
        if not goes_on:
            return 1
    return 0


def main() -> int:
    """Entry of the process: jobs on stdin, answers on what was stdout."""
    _watch_parent()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with contextlib.suppress(KeyboardInterrupt):
        return serve(sys.stdin, answers)
    return 1


def command() -> tuple[list[str], dict[str, str]]:
    """How to start a worker: the command, and what to add to its environment."""
    root = str(Path(__file__).resolve().parent.parent)
    return [sys.executable, "-m", "redtune.worker"], {"PYTHONPATH": root}


if __name__ == "__main__":
    # Skip interpreter teardown: a driver with a broken context can hang or crash in it.
    code = main()
    sys.stdout.flush()
    os._exit(code)
