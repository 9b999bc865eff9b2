"""The judge: no candidate is timed before its results are right on inputs that bite.

Three kinds of check. Windows into small arrays with known results, at every edge that the config has (vector, wave,
team, block, tile, grid) and at every alignment. Arrays of the full size with results that any order must give exactly.
Random values against a reference in higher precision, within a bound computed from the config's own tree. Results and
scratch are poisoned before every launch, and watched beyond their ends.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from redtune.backends import Call, Session
from redtune.config import Config
from redtune.data import WINDOW, Array, Dataset, contested_dataset, judged_datasets, random_dataset
from redtune.dialect import Dialect
from redtune.dtypes import Dtype, dtype_named
from redtune.operators import accumulates_in_floats, operator_of, result_of
from redtune.plan import Plan, make_plan, operands_of
from redtune.repeating import repeated
from redtune.types import Device, Problem, Repeated
from redtune.windows import SHIFT, Window, windows

POISON = 0xA5
GUARD = 64  # bytes behind the results and the partials that must stay as they were
RANDOM_N = 1 << 20
REPEATS = 3  # launches in a row on one input: a counter left behind shows at the second


class Wrong(Exception):
    """A candidate gave a wrong result; the text says on what input."""


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

    def plan(self, window: Window) -> Plan:
        """The launches and sizes over a window."""
        problem = replace(self.problem, n=window.n, outer=window.outer, inner=window.inner)
        if problem.layout != self.problem.layout:  # one result, in a kernel for many
            problem = (
                replace(problem, is_strided=True) if self.problem.layout == "columns" else replace(problem, outer=2)
            )
        return make_plan(problem, self.config, self.dialect, self.device)

    def bind(self, data: Any, window: Window, shift: int = SHIFT) -> Any:
        """The launches over a window of `data`; a second input begins `shift` elements later in the same buffer."""
        plan = self.plan(window)
        values: dict[str, Any] = window.arguments(operands_of(self.problem), shift)
        values |= {"data": data, "other": data, "parts": plan.parts, "out": self.out, "ddof": 0}
        values |= {"partials": self.partials, "counter": self.counter}
        return self.session.bind(self.program, plan.launches, values)

    def results(self, call: Any, window: Window, dtype: np.dtype[Any]) -> Array:
        """Poisons the results, runs the call, reads them and checks that nothing lies between or beyond them."""
        places = window.places()
        reach = (int(places[-1]) + 1) * dtype.itemsize
        poison = self._poison[: reach + GUARD]
        self.session.write(self.out, poison)
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


@dataclass(frozen=True, slots=True)
class Known:
    """The right results of a window: rounded to their dtype, as the reference has them, and what errors scale with."""

    rounded: Array
    exact: Array
    measures: tuple[Any, ...] | None


def smallest(dtype: Dtype) -> float:
    """The smallest positive number of a float dtype: rounding to it loses at most half of it."""
    return {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "complex64": 2.0**-149}.get(
        dtype.name, 2.0**-1074
    )


def largest_error(got: Array, known: Known, bound: Any) -> tuple[int | None, float]:
    """The first result that is off by more than `bound` (None for exactly right), and the largest error over it."""
    with np.errstate(all="ignore"):
        same = (got == known.rounded) | ((got != got) & (known.rounded != known.rounded))
        if bound is None:
            ok, share = same, np.zeros(len(got))
        else:
            error = np.abs(got.astype(known.exact.dtype) - known.exact)
            ok = same | (np.isfinite(known.rounded) & (error <= bound))
            share = np.where(same | ~np.isfinite(known.rounded), 0, error / np.where(bound > 0, bound, 1))
    return (None if ok.all() else int(np.argmin(ok))), float(np.nanmax(share, initial=0.0))


class Judge:
    """Holds the inputs and their right results for one problem; judges any number of candidates on them."""

    def __init__(
        self, session: Session, problem: Problem, full: Sequence[Dataset], full_data: Sequence[Any], seed: int
    ):
        self.session, self.problem = session, problem
        self.op, self.dtype = operator_of(problem), dtype_named(problem.dtype)
        self.result = dtype_named(result_of(problem))
        in_floats = accumulates_in_floats(problem)
        self.sets = judged_datasets(self.op, self.dtype, seed, in_floats)
        self.data = [session.upload(dataset.raw) for dataset in self.sets]
        self.whole = Window(0, problem.outer, problem.n, problem.inner)
        self.random = random_dataset(self.op, self.dtype, RANDOM_N, seed, in_floats)
        self.random_data = session.upload(self.random.raw)
        self.contested = session.upload(contested_dataset(self.op, self.dtype, RANDOM_N, seed, in_floats).raw)
        self.sample = _sample(self.whole)
        self.full, self.full_data = full, full_data
        self.full_right = [self.known(dataset, self.whole, self.whole.size) for dataset in full[:2]]
        self._known: dict[tuple[str, Window], Known] = {}

    def shapes(self) -> list[Window]:
        """The largest windows a candidate is launched on."""
        each = [Window(0, 1, WINDOW, 1), Window(0, WINDOW // 2, 1, 1), Window(0, 1, 1, WINDOW // 2)]
        if self.problem.layout == "flat":
            each = each[:1]
        return [self.whole, self.sample, *each]

    def known(self, dataset: Dataset, window: Window, shift: int = SHIFT) -> Known:
        """The right results of a window, rounded once to the result dtype."""
        inputs = [window.of(dataset.values)]
        if self.op.inputs > 1:
            inputs.append(window.of(dataset.values, shift))
        if self.dtype.kind not in ("float", "complex") and self.result.kind == "float":
            inputs = [values.astype(np.float64) for values in inputs]  # as the kernel takes them: squares do not wrap
        with np.errstate(all="ignore"):
            exact = np.asarray(self.op.reference(*inputs))
            rounded = self.result.decode(self.result.encode(exact))
            measures = self.op.tolerance.measures(*inputs) if self.op.tolerance and self._rounds(dataset) else None
        return Known(rounded, exact, measures)

    def _rounds(self, dataset: Dataset) -> bool:
        """Whether the results of a dataset depend on the order of merging, or round at the end."""
        if self.op.tolerance is None or dtype_named(self.problem.accumulate).kind != "float":
            return False
        return self.op.tolerance.rounds or not dataset.exact or self.dtype.kind not in ("float", "complex")

    def judge(self, bench: Bench, patience_s: float = math.inf) -> float:
        """Raises Wrong at the first wrong result; returns the largest error over its bound.

        A candidate that takes longer than `patience_s` at full size is judged there once and not repeatedly: the small
        inputs have already repeated it.
        """
        for index, window in windows(self.sets, self.problem, bench.config, self._tile(bench), self.dtype.bytes):
            dataset = self.sets[index]
            key = (dataset.name, window)
            if key not in self._known:
                self._known[key] = self.known(dataset, window)
            self._expect(bench, dataset.name, self.data[index], window, self._known[key])
        for dataset, data, right, times in zip(self.full, self.full_data, self.full_right, (REPEATS, 1), strict=False):
            for _ in range(times):
                start = time.perf_counter()
                self._expect(bench, dataset.name, data, self.whole, right, self.whole.size)
                if time.perf_counter() - start > patience_s:
                    break
        error = self._expect(bench, "random", self.random_data, self.sample, self.known(self.random, self.sample))
        bench.check_guards()
        return error

    def _tile(self, bench: Bench) -> int:
        return bench.plan(self.whole).tile

    def repeats(self, bench: Bench, runs: int, load: Sequence[Call]) -> Repeated:
        """What one input gives over and over, idle and beside a load, on values where order shows."""
        call = bench.bind(self.contested, self.sample)
        storage = self.result.storage()
        return repeated(self.session, lambda: bench.results(call, self.sample, storage), self.result, runs, load)

    def _expect(self, bench: Bench, name: str, data: Any, window: Window, known: Known, shift: int = SHIFT) -> float:
        count = window.results
        got = self.result.decode(bench.results(bench.bind(data, window, shift), window, self.result.storage()))
        bound = self._bound(bench, window, known)
        wrong, share = largest_error(got, known, bound)
        if wrong is not None:
            place = f" in result {wrong} of {count}" if count > 1 else ""
            within = f" within {float(np.broadcast_to(bound, count)[wrong]):.3g}" if bound is not None else ""
            raise Wrong(
                f"{self.problem.op} of {window.n} elements ({name}, from element {window.first}){place} "
                f"gave {got[wrong]}, not {known.exact[wrong] if bound is not None else known.rounded[wrong]}{within}"
            )
        return share

    def _bound(self, bench: Bench, window: Window, known: Known) -> Any:
        """How far each result may be off, or None where it must be exact."""
        if known.measures is None or self.op.tolerance is None:
            return None
        with np.errstate(all="ignore"):
            u = dtype_named(self.problem.accumulate).u
            bound = self.op.tolerance.bound(known.measures, bench.plan(window).depths, u)
            rounding = self.result.u * np.abs(known.exact) + smallest(self.result) if self.result.u else 0
            return np.where(np.isfinite(bound), bound, 0) + np.where(np.isfinite(rounding), rounding, 0)


def _sample(whole: Window) -> Window:
    """As much of the problem as the random values fill, less the shift of a second input."""
    room = RANDOM_N - SHIFT
    n = min(whole.n, room)
    inner = max(1, min(whole.inner, room // n))
    outer = max(1, min(whole.outer, room // (n * inner)))
    return Window(0, outer, n, inner)
