"""Work done ahead of need and once for all: kernels that compile to the same code, and libraries to compare with."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from redtune import cub
from redtune.backends import Backend
from redtune.errors import BackendMissing
from redtune.types import Kernel, Problem

if TYPE_CHECKING:
    from redtune.lab import Compiled

KERNELS_CORES = 4  # left to those who compile kernels and to who measures
BUILD_LIMIT_S = 320.0


class Ahead:
    """Kernels by digest, libraries by problem, each a future that more than one may wait for."""

    def __init__(self, compile_ahead: Callable[[Kernel], Future[Compiled]], backend: Backend, arch: str) -> None:
        self._compile_ahead, self._backend, self._arch = compile_ahead, backend, arch
        self._kernels: dict[str, Future[Compiled]] = {}
        self._libraries: dict[tuple[str, ...], Future[Path]] = {}
        self._lock = threading.Lock()
        self._builders = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - KERNELS_CORES))

    def close(self) -> None:
        """Ends what is still being built."""
        self._builders.shutdown(wait=False, cancel_futures=True)
        cub.stop()

    def kernel(self, kernel: Kernel) -> Future[Compiled]:
        """The compiled kernel. Kernels of the same text, for other sizes say, compile once: see `compiled`."""
        with self._lock:
            if kernel.digest not in self._kernels:
                self._kernels[kernel.digest] = self._compile_ahead(kernel)
            return self._kernels[kernel.digest]

    def compiled(self, kernel: Kernel) -> Compiled:
        """The same once it is there, with the launches of this kernel."""
        return replace(self.kernel(kernel).result(), kernel=kernel)

    def library(self, problem: Problem) -> Future[Path]:
        """The library that a problem needs to be compiled (redtune.backends)."""
        key = (problem.op, problem.dtype, problem.accumulate, problem.result, problem.layout, problem.custom)
        with self._lock:
            if key not in self._libraries:
                self._libraries[key] = self._builders.submit(self._backend.build_library, problem, self._arch)
            return self._libraries[key]

    def library_or_reason(self, problem: Problem, patience_s: float = BUILD_LIMIT_S) -> Path | str:
        """The library, or why there is none."""
        try:
            return self.library(problem).result(patience_s)
        except BackendMissing as error:
            return str(error)
        except TimeoutError:
            return f"it was not compiled within {patience_s:.0f} s more"
