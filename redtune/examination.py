"""One kernel on a few small inputs, for a checker to watch.

The judge gives a kernel large buffers full of poison. A checker of memory needs the opposite: every buffer ends with
its last element, and scratch and results hold nothing, so that a read beyond any of them or of what no kernel wrote
shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from redtune.answers import Answers, Wrong
from redtune.backends import Session
from redtune.data import Array, Dataset, add_factors, background
from redtune.dialect import Dialect
from redtune.operators import accumulates_in_floats
from redtune.plan import Plan, entry_names, make_plan, operands_of
from redtune.types import Device, Kernel, Launch
from redtune.windows import SHIFT, Window, apart, resized, shapes

SEED = 20


@dataclass(frozen=True, slots=True)
class Examination:
    """A kernel and where it runs. `elements` and `threads` are the most that an input may have and may be reduced by
    (any number if 0). `held` keeps every buffer: what a simulator knows of a freed one it believes of the next at the
    same address."""

    session: Session
    dialect: Dialect
    device: Device
    kernel: Kernel
    program: Any
    elements: int
    threads: int
    held: list[Any]

    def wrong(self) -> list[str]:
        """What is wrong with the results."""
        answers = Answers(self.kernel.problem)
        return [text for k, window in enumerate(self._windows()) for text in self._on(window, answers, SEED + k)]

    def _plan(self, window: Window) -> Plan:
        return make_plan(resized(self.kernel.problem, window), self.kernel.config, self.dialect, self.device)

    def _windows(self) -> list[Window]:
        """Some of those that the judge looks at: the smallest, some between, the longest, and that of most results."""
        problem, config = self.kernel.problem, self.kernel.config
        tile = make_plan(problem, config, self.dialect, self.device).tile
        every = [Window(0, *shape) for shape in shapes(problem, config, tile)]
        small = sorted((window for window in every if self._is_small(window)), key=lambda window: window.size)
        if not small:
            raise Wrong("no input is small enough for the checker")
        picked = {0, len(small) // 3, 2 * len(small) // 3, len(small) - 1}
        picked |= {max(range(len(small)), key=lambda k: small[k].results)}
        found = [replace(small[k], first=k % 3) for k in sorted(picked)]
        return [apart(window, problem.layout) if k % 2 else window for k, window in enumerate(found)]

    def _is_small(self, window: Window) -> bool:
        threads = sum(launch.grid * launch.block for launch in self._plan(window).launches)
        return window.size <= self.elements and (not self.threads or threads <= self.threads)

    def _on(self, window: Window, answers: Answers, seed: int) -> list[str]:
        """What is wrong with the results of one window."""
        plan, storage, places = self._plan(window), answers.result.storage(), window.places()
        dataset = self._data(window, answers, seed)
        out = np.zeros(int(places[-1]) + 1, storage)
        counter = np.zeros(max(4, plan.counter_bytes), np.uint8)
        buffers = {
            "data": self._filled(dataset.raw),
            "partials": self._empty(plan.partials_bytes),
            "counter": self._filled(counter),
            # What lies between results is read back with them.
            "out": self._filled(out) if window.gaps.results else self._empty(out.nbytes),
        }
        values: dict[str, Any] = window.arguments(operands_of(self.kernel.problem), SHIFT)
        values |= {**buffers, "other": buffers["data"], "parts": plan.parts, "ddof": 0}
        self.session.run(self.session.bind(self.program, self._named(plan.launches), values))
        said = []
        if self.session.download(buffers["counter"], counter).any():
            said.append("the kernel left its counter at another value than zero")
        bits: Array = self.session.download(buffers["out"], out)[places]
        try:
            answers.expect(dataset.name, window, bits, answers.known(dataset, window), plan)
        except Wrong as found:
            said.append(str(found))
        return said

    def _data(self, window: Window, answers: Answers, seed: int) -> Dataset:
        """Exact values that end with the last element of the window."""
        op, dtype, rng = answers.op, answers.dtype, np.random.default_rng(seed)
        count = window.first + window.reach + SHIFT * (op.inputs - 1)
        values = background(op, dtype, count, rng, accumulates_in_floats(self.kernel.problem))
        raw = add_factors(op, dtype, dtype.encode(values), rng)
        return Dataset("exact", raw, dtype.decode(raw), None, True)

    def _named(self, launches: Sequence[Launch]) -> list[Launch]:
        """Launches of the entries as the kernel names them, which may hold a number."""
        main = entry_names(self.kernel.problem, self.kernel.config).main
        name = next(launch.entry for launch in self.kernel.launches if "data" in launch.args)
        return [replace(launch, entry=launch.entry.replace(main, name, 1)) for launch in launches]

    def _empty(self, size: int) -> Any:
        self.held.append(self.session.empty(size))
        return self.held[-1]

    def _filled(self, host: Array) -> Any:
        buffer = self._empty(host.nbytes)
        self.session.write(buffer, host)
        return buffer
