"""Compiled kernels by their code, so that those which differ in their grids alone are compiled once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING

from redtune.types import Kernel

if TYPE_CHECKING:
    from redtune.lab import Compiled

KEPT = 128  # a search may go on for days


class Codes:
    """The last few kernels that were compiled, or are being compiled by another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Future[Compiled]] = {}

    def compiled(self, kernel: Kernel, compile: Callable[[Kernel], Compiled]) -> Compiled:
        """The kernel with the binary of its code. A compiler that failed, crashed or never returned costs that kernel
        alone: the next of the same code is tried for itself."""
        code = kernel.code
        mine: Future[Compiled] = Future()
        with self._lock:
            first = self._known.setdefault(code, mine)
            if len(self._known) > KEPT:
                del self._known[next(iter(self._known))]
        if first is not mine:
            found = first.result()
            return replace(found, kernel=kernel) if found.binary is not None else compile(kernel)
        try:
            made = compile(kernel)
        except BaseException as error:
            self._forget(code, mine)
            mine.set_exception(error)
            raise
        if made.binary is None:
            self._forget(code, mine)
        mine.set_result(made)
        return made

    def _forget(self, code: str, future: Future[Compiled]) -> None:
        with self._lock:
            if self._known.get(code) is future:
                del self._known[code]
