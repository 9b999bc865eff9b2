"""The judge: no candidate is timed before its results are right on inputs that bite.

Three kinds of check. Windows into small arrays with known results, at every edge that the config has (vector, wave,
team, block, tile, grid) and at every alignment. Arrays of the full size with results that any order must give exactly.
Random values against a reference in higher precision, within a bound computed from the config's own tree. Results and
scratch are poisoned before every launch, and watched beyond their ends.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from redtune.answers import Answers, Known, Wrong
from redtune.backends import Call, Session
from redtune.config import Config
from redtune.data import WINDOW, Array, Dataset, contested_dataset, judged_datasets, random_dataset
from redtune.dialect import Dialect
from redtune.operators import accumulates_in_floats
from redtune.plan import Plan, make_plan, operands_of
from redtune.repeating import repeated
from redtune.types import Device, Problem, Repeated
from redtune.windows import SHIFT, Window, resized, windows

POISON = 0xA5
GUARD = 64  # bytes behind the results and the partials that must stay as they were
STALE = 1 << 20  # bytes of scratch that are poisoned anew before every launch
RANDOM_N = 1 << 20
PIECES = 6  # of a sample with a single result
REPEATS = 3  # launches in a row on one input: a counter left behind shows at the second


@dataclass
class Bench:
    """A program with its buffers, ready to be launched on any window of any input."""

    session: Session
    dialect: Dialect
    device: Device
    problem: Problem
    config: Config
    program: Any
    partials: Any = None
    counter: Any = None
    out: Any = None
    partials_bytes: int = 0
    counter_bytes: int = 0
    _poison: Array = field(default_factory=lambda: np.full(0, POISON, np.uint8))
    _stale: Array = field(default_factory=lambda: np.full(0, POISON, np.uint8))
    _plans: dict[tuple[int, int, int], Plan] = field(default_factory=dict)

    def prepare(self, shapes: Sequence[Window], result_bytes: int) -> None:
        """Allocates results and scratch for windows of those shapes."""
        plans = [self.plan(window) for window in shapes]
        self.partials_bytes = max(plan.partials_bytes for plan in plans)
        self.counter_bytes = max(4, *(plan.counter_bytes for plan in plans))
        self.partials = self.session.upload(np.full(self.partials_bytes + GUARD, POISON, np.uint8))
        self.counter = self.session.upload(np.zeros(self.counter_bytes, np.uint8))
        most = max(window.results for window in shapes)
        self._poison = np.full(most * result_bytes + GUARD, POISON, np.uint8)
        self.out = self.session.upload(self._poison.copy())  # a CPU may borrow what it is given
        self._stale = np.full(min(self.partials_bytes, STALE), POISON, np.uint8)

    def plan(self, window: Window) -> Plan:
        """The launches and sizes over a window."""
        sizes = window.outer, window.n, window.inner
        if sizes not in self._plans:
            problem = resized(self.problem, window)
            self._plans[sizes] = make_plan(problem, self.config, self.dialect, self.device)
        return self._plans[sizes]

    def bind(self, data: Any, window: Window, shift: int = SHIFT) -> Any:
        """The launches over a window of `data`; a second input begins `shift` elements later in the same buffer."""
        plan = self.plan(window)
        values: dict[str, Any] = window.arguments(operands_of(self.problem), shift)
        values |= {"data": data, "other": data, "parts": plan.parts, "out": self.out, "ddof": 0}
        values |= {"partials": self.partials, "counter": self.counter}
        return self.session.bind(self.program, plan.launches, values)

    def results(self, call: Any, window: Window, dtype: np.dtype[Any]) -> Array:
        """Poisons results and scratch, runs the call, reads the results and checks that nothing lies between or beyond
        them."""
        plan, places = self.plan(window), window.places()
        reach = (int(places[-1]) + 1) * dtype.itemsize
        poison = self._poison[: reach + GUARD]
        self.session.write(self.out, poison)
        if plan.parts > 1:
            # A state that is read before a block has left it there would else be the right one of the launch before.
            self.session.write(self.partials, self._stale[: plan.partials_bytes])
        self.session.run(call)
        after = self.session.download(self.out, poison)
        results = after[:reach].view(dtype)[places]
        after[:reach].reshape(-1, dtype.itemsize)[places] = POISON
        if (after != POISON).any():
            raise Wrong("the kernel wrote beyond its result")
        return results

    def check_guards(self) -> None:
        """Scratch beyond its end is untouched and the counters are back at zero."""
        after = self.session.download(self.partials, np.empty(self.partials_bytes + GUARD, np.uint8))
        if (after[self.partials_bytes :] != POISON).any():
            raise Wrong("the kernel wrote beyond its scratch")
        if self.session.download(self.counter, np.empty(self.counter_bytes, np.uint8)).any():
            raise Wrong("the kernel left its counter at another value than zero")


def share_scratch(benches: Sequence[Bench]) -> None:
    """Lets benches that never run at once work in the same memory: where scratch lies moves the time of a short launch
    by a percent, and would favour one of them."""
    widest = {name: max(benches, key=lambda bench: getattr(bench, f"{name}_bytes")) for name in ("partials", "counter")}
    largest = max(benches, key=lambda bench: len(bench._poison))
    for bench in benches:
        bench.partials, bench.counter = widest["partials"].partials, widest["counter"].counter
        bench.out = largest.out


class Judge:
    """Holds the inputs and their right results for one problem; judges any number of candidates on them."""

    def __init__(
        self, session: Session, problem: Problem, full: Sequence[Dataset], full_data: Sequence[Any], seed: int
    ):
        self.session, self.problem = session, problem
        self.answers = answers = Answers(problem)
        in_floats = accumulates_in_floats(problem)
        types = problem.accumulate, answers.result.name
        self.sets = judged_datasets(answers.op, answers.dtype, seed, in_floats, problem.is_compensated, *types)
        self.data = [session.upload(dataset.raw) for dataset in self.sets]
        self.whole = Window(0, problem.outer, problem.n, problem.inner)
        self.random = random_dataset(answers.op, answers.dtype, RANDOM_N, seed, in_floats)
        self.random_data = session.upload(self.random.raw)
        self.sample = _sample(self.whole)
        self.full, self.full_data = full, full_data
        self.full_right = [self.answers.known(dataset, self.whole, self.whole.size) for dataset in full[:2]]
        self._known: dict[tuple[str, Window], Known] = {}
        self._seed = seed

    @functools.cached_property
    def contested(self) -> Any:
        """An input on which order shows: only for what is repeated."""
        op, dtype, in_floats = self.answers.op, self.answers.dtype, accumulates_in_floats(self.problem)
        return self.session.upload(contested_dataset(op, dtype, RANDOM_N, self._seed, in_floats).raw)

    def shapes(self) -> list[Window]:
        """The largest windows a candidate is launched on."""
        each = [Window(0, 1, WINDOW, 1), Window(0, WINDOW // 2, 1, 1), Window(0, 1, 1, WINDOW // 2)]
        if self.problem.layout == "flat":
            each = each[:1]
        return [self.whole, self.sample, *each]

    def judge(self, bench: Bench, patience_s: float = math.inf) -> float:
        """Raises Wrong at the first wrong result; returns the largest error over its bound.

        A candidate that takes longer than `patience_s` at full size is judged there once and not repeatedly: the small
        inputs have already repeated it.
        """
        for index, window in windows(
            self.sets, self.problem, bench.config, self._tile(bench), self.answers.dtype.bytes
        ):
            dataset = self.sets[index]
            self._expect(bench, dataset.name, self.data[index], window, self._remembered(dataset, window))
        for dataset, data, right, times in zip(self.full, self.full_data, self.full_right, (REPEATS, 1), strict=False):
            for _ in range(times):
                start = time.perf_counter()
                self._expect(bench, dataset.name, data, self.whole, right, self.whole.size)
                if time.perf_counter() - start > patience_s:
                    break
        error = 0.0
        for window in _pieces(self.sample):
            known = self._remembered(self.random, window)
            error = max(error, self._expect(bench, self.random.name, self.random_data, window, known))
        bench.check_guards()
        return error

    def _remembered(self, dataset: Dataset, window: Window) -> Known:
        key = (dataset.name, window)
        if key not in self._known:
            self._known[key] = self.answers.known(dataset, window)
        return self._known[key]

    def _tile(self, bench: Bench) -> int:
        return bench.plan(self.whole).tile

    def repeats(self, bench: Bench, runs: int, load: Sequence[Call]) -> Repeated:
        """What one input gives over and over, idle and beside a load, on values where order shows."""
        call = bench.bind(self.contested, self.sample)
        storage = self.answers.result.storage()
        return repeated(
            self.session, lambda: bench.results(call, self.sample, storage), self.answers.result, runs, load
        )

    def _expect(self, bench: Bench, name: str, data: Any, window: Window, known: Known, shift: int = SHIFT) -> float:
        bits = bench.results(bench.bind(data, window, shift), window, self.answers.result.storage())
        return self.answers.expect(name, window, bits, known, bench.plan(window))


def _sample(whole: Window) -> Window:
    """As much of the problem as the random values fill, less the shift of a second input."""
    room = RANDOM_N - SHIFT
    n = min(whole.n, room)
    inner = max(1, min(whole.inner, room // n))
    outer = max(1, min(whole.outer, room // (n * inner)))
    return Window(0, outer, n, inner)


def _pieces(sample: Window) -> Iterator[Window]:
    """The sample; and parts of it where it has a single result, as one number may be right by luck."""
    yield sample
    if sample.results == 1:
        for k in range(1, PIECES):
            n = sample.n - sample.n * k // (2 * PIECES)
            yield Window(sample.n - n, 1, n, 1)
