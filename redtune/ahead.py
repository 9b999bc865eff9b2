"""Work done ahead of need and once for all: kernels that compile to the same code, and libraries to compare with.

Libraries have two kinds of it: what nvcc compiles for them, and what they compile themselves when they are first called
and keep on the disk. The latter is had by calling them on little data, in processes beside the one that measures.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from redtune import cub
from redtune.backends import Backend
from redtune.errors import BackendMissing, RedtuneError
from redtune.process import Under, WorkerDied, WorkerProcess, WorkerTimedOut
from redtune.types import Device, Kernel, Problem, as_json

if TYPE_CHECKING:
    from redtune.lab import Compiled

KERNELS_CORES = 4  # left to those who compile kernels and to who measures
BUILD_LIMIT_S = 320.0
WARM_LIMIT_S = 120.0
MAX_WARMERS = 8


class Ahead:
    """Kernels by their code, libraries by problem, each a future that more than one may wait for."""

    def __init__(self, compile_ahead: Callable[[Kernel], Future[Compiled]], backend: Backend, device: Device) -> None:
        self._compile_ahead, self._backend, self._device = compile_ahead, backend, device
        self._kernels: dict[str, Future[Compiled]] = {}
        self._libraries: dict[tuple[str, ...], Future[Path]] = {}
        self._lock = threading.Lock()
        cores = os.cpu_count() or 1
        self._builders = ThreadPoolExecutor(max(1, cores - KERNELS_CORES))
        self._warm: dict[tuple[object, ...], Future[None]] = {}
        self._warmers = ThreadPoolExecutor(max(1, min(MAX_WARMERS, cores // 2)))
        self._warm_processes: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()
        self._all_warm: list[WorkerProcess] = []

    def close(self) -> None:
        """Ends what is still being built."""
        self._builders.shutdown(wait=False, cancel_futures=True)
        self._warmers.shutdown(wait=False, cancel_futures=True)
        cub.stop()
        for process in self._all_warm:
            process.retire()

    def kernel(self, kernel: Kernel) -> Future[Compiled]:
        """The compiled kernel. Kernels of the same code, for other sizes say, compile once: see `compiled`."""
        code = kernel.code
        with self._lock:
            if code not in self._kernels:
                self._kernels[code] = self._compile_ahead(kernel)
            return self._kernels[code]

    def compiled(self, kernel: Kernel) -> Compiled:
        """The same once it is there, with the launches of this kernel."""
        return replace(self.kernel(kernel).result(), kernel=kernel)

    def library(self, problem: Problem) -> Future[Path]:
        """The library that a problem needs to be compiled (redtune.backends)."""
        key = (problem.op, problem.dtype, problem.accumulate, problem.result, problem.layout, problem.custom)
        with self._lock:
            if key not in self._libraries:
                self._libraries[key] = self._builders.submit(self._backend.build_library, problem, self._device.arch)
            return self._libraries[key]

    def library_or_reason(self, problem: Problem, patience_s: float = BUILD_LIMIT_S) -> Path | str:
        """The library, or why there is none."""
        try:
            return self.library(problem).result(patience_s)
        except BackendMissing as error:
            return str(error)
        except TimeoutError:
            return f"it was not compiled within {patience_s:.0f} s more"

    def warm(self, problem: Problem) -> Future[None]:
        """Done once the libraries have compiled what they need for problems such as this one."""
        key = (problem.op, problem.dtype, problem.layout, *((problem.n, problem.inner) if problem.results > 1 else ()))
        with self._lock:
            if key not in self._warm and self._backend.is_slow_at_first(problem):
                self._warm[key] = self._warmers.submit(self._call_once, problem)
            elif key not in self._warm:
                self._warm[key] = Future()
                self._warm[key].set_result(None)
            return self._warm[key]

    def _call_once(self, problem: Problem) -> None:
        try:
            process = self._warm_processes.get_nowait()
        except queue.Empty:
            process = WorkerProcess(Under(prefix=tuple(cub.gently())))
            self._all_warm.append(process)
        # It only saves time: what becomes of it shows when the library is measured.
        with suppress(WorkerDied, WorkerTimedOut, RedtuneError):
            process.ask("warm", WARM_LIMIT_S, "warm", device=as_json(self._device), problem=as_json(problem))
        self._warm_processes.put(process)
