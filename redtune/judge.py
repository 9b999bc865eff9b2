"""The judge: no candidate is timed before its results are right on inputs that bite.

Three kinds of check. Windows into small arrays with known results, at every edge that the config has (vector, wave,
block, tile, grid) and at every alignment. Arrays of the full size with results that any order must give exactly. Random
values against a reference in higher precision, within a bound computed from the config's own tree. Result and scratch
are poisoned before every launch, and watched beyond their ends.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from redtune.backends import Session
from redtune.config import Config, is_read
from redtune.data import WINDOW, Array, Dataset, judged_datasets, random_dataset
from redtune.dialect import Dialect
from redtune.dtypes import dtype_named
from redtune.operators import operator_named, result_type
from redtune.plan import Plan, make_plan
from redtune.types import Device, Problem

POISON = 0xA5
GUARD = 64  # bytes behind the result and the partials that must stay as they were
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
    _poison: Array = field(default_factory=lambda: np.full(GUARD * 2, POISON, np.uint8))

    def prepare(self, largest_n: int) -> None:
        """Allocates result and scratch for up to `largest_n` elements."""
        plan = self.plan(largest_n)
        self.partials_bytes = plan.partials_bytes
        self.partials = self.session.upload(np.full(plan.partials_bytes + GUARD, POISON, np.uint8))
        self.counter = self.session.upload(np.zeros(4, np.uint32))
        self.out = self.session.upload(self._poison)

    def plan(self, n: int) -> Plan:
        """The launches and sizes over `n` elements."""
        return make_plan(replace(self.problem, n=n), self.config, self.dialect, self.device)

    def bind(self, data: Any, first: int, n: int) -> Any:
        """The launches over `n` elements of `data` from `first` on."""
        plan = self.plan(n)
        values = {"data": data, "first": first, "n": n, "blocks": plan.blocks, "out": self.out}
        values |= {"partials": self.partials, "counter": self.counter}
        return self.session.bind(self.program, plan.launches, values)

    def result(self, call: Any, dtype: np.dtype[Any]) -> Any:
        """Poisons the result, runs the call, reads the result and checks that nothing lies beyond it."""
        self.session.write(self.out, self._poison)
        self.session.run(call)
        after = self.session.download(self.out, self._poison)
        if (after[dtype.itemsize :] != POISON).any():
            raise Wrong("the kernel wrote beyond its result")
        return after[: dtype.itemsize].view(dtype)[0]

    def check_guards(self) -> None:
        """Scratch beyond its end is untouched and the counter is back at zero."""
        after = self.session.download(self.partials, np.empty(self.partials_bytes + GUARD, np.uint8))
        if (after[self.partials_bytes :] != POISON).any():
            raise Wrong("the kernel wrote beyond its scratch")
        if self.session.download(self.counter, np.empty(4, np.uint32)).any():
            raise Wrong("the kernel left its counter at another value than zero")


def same(got: Any, right: Any) -> bool:
    """Equality in which NaN equals NaN."""
    return bool(got == right) or bool(got != got and right != right)


class Judge:
    """Holds the inputs and their right results for one problem; judges any number of candidates on them."""

    def __init__(
        self, session: Session, problem: Problem, full: Sequence[Dataset], full_data: Sequence[Any], seed: int
    ):
        self.session, self.problem = session, problem
        self.op, self.dtype = operator_named(problem.op), dtype_named(problem.dtype)
        self.result = dtype_named(result_type(self.op, self.dtype))
        self.sets = judged_datasets(self.op, self.dtype, seed)
        self.data = [session.upload(dataset.raw) for dataset in self.sets]
        self.random = random_dataset(self.op, self.dtype, min(problem.n, RANDOM_N), seed)
        self.random_data = session.upload(self.random.raw)
        self.full, self.full_data = full, full_data
        self.full_right = [self.right(dataset.values) for dataset in full[:2]]
        self._known: dict[tuple[str, int, int], Any] = {}

    def right(self, values: Array) -> Any:
        """The result for these values, rounded once to the result dtype."""
        with np.errstate(all="ignore"):
            return self.result.decode(self.result.encode(np.asarray([self.op.reference(values)])))[0]

    def decoded(self, bits: Any) -> Any:
        """A result as the device wrote it, as a value."""
        return self.result.decode(np.asarray([bits]))[0]

    def judge(self, bench: Bench, patience_s: float = math.inf) -> float:
        """Raises Wrong at the first wrong result; returns the largest error over its bound.

        A candidate that takes longer than `patience_s` at full size is judged there once and not repeatedly: the small
        inputs have already repeated it.
        """
        for index, first, n in windows(self.sets, bench.config, bench.plan(self.problem.n).tile, self.dtype.bytes):
            dataset = self.sets[index]
            key = (dataset.name, first, n)
            if key not in self._known:
                self._known[key] = self.right(dataset.values[first : first + n])
            self._expect(bench, dataset.name, self.data[index], first, n, self._known[key])
        for dataset, data, right, times in zip(self.full, self.full_data, self.full_right, (REPEATS, 1), strict=False):
            for _ in range(times):
                start = time.perf_counter()
                self._expect(bench, dataset.name, data, 0, self.problem.n, right)
                if time.perf_counter() - start > patience_s:
                    break
        error = self._judge_random(bench)
        bench.check_guards()
        return error

    def repeats(self, bench: Bench, times: int) -> bool:
        """Whether the same input gives the same bits every time, on random values."""
        call = bench.bind(self.random_data, 0, len(self.random.values))
        seen = {bench.result(call, self.result.storage()).tobytes() for _ in range(times)}
        return len(seen) == 1

    def _expect(self, bench: Bench, name: str, data: Any, first: int, n: int, right: Any) -> None:
        got = self.decoded(bench.result(bench.bind(data, first, n), self.result.storage()))
        if not same(got, right):
            raise Wrong(f"{self.problem.op} of {n} elements ({name}, from element {first}) gave {got}, not {right}")

    def _judge_random(self, bench: Bench) -> float:
        values, n = self.random.values, len(self.random.values)
        got = self.decoded(bench.result(bench.bind(self.random_data, 0, n), self.result.storage()))
        if self.random.exact or self.dtype.kind != "float" or self.op.bound is None:
            if not same(got, self.right(values)):
                raise Wrong(f"{self.problem.op} of {n} random elements gave {got}, not {self.right(values)}")
            return 0.0
        plan = bench.plan(n)
        exact = self.op.reference(values)
        u = dtype_named(self.problem.accumulate).u
        rounding = self.result.u * abs(float(exact)) if self.result.u > u else 0.0
        bound = self.op.bound(values, plan.depth, u) + rounding
        error = abs(float(got) - float(exact))
        if not error <= bound:
            raise Wrong(f"{self.problem.op} of {n} random elements gave {got}, not {float(exact)} within {bound:.3g}")
        return error / bound if bound else 0.0


def edge_sizes(config: Config, tile: int) -> list[int]:
    """The numbers of elements at which some part of the kernel begins, ends or is empty."""
    wave = config.wave if is_read("wave", config) else 1
    row = config.block * config.vector
    around = (config.vector, wave, config.block, row, tile, 2 * tile)
    sizes = {1, 2, 3, 7, 31, 33, tile + row + 1, 2 * tile + config.block + 1, 3 * tile - 1}
    sizes |= {n + d for n in around for d in (-1, 0, 1)}
    return sorted(n for n in sizes if 1 <= n <= WINDOW // 2)


def windows(sets: Sequence[Dataset], config: Config, tile: int, element_bytes: int) -> Iterator[tuple[int, int, int]]:
    """(dataset, first element, number of elements) of every check on the small arrays."""
    sizes = edge_sizes(config, tile)
    offsets = max(2, 16 // element_bytes) + 1
    wave = config.wave if is_read("wave", config) else 1
    places = sorted(
        {
            0,
            1,
            config.vector,
            wave - 1,
            wave,
            config.block - 1,
            config.block,
            config.block * config.vector,
            tile - 1,
            tile,
        }
    )
    for index, dataset in enumerate(sets):
        if dataset.plant is None:
            every = sizes if dataset.name == "exact" else sizes[:: max(1, len(sizes) // 5)]
            yield from ((index, k % offsets, n) for k, n in enumerate(every))
            if dataset.name == "exact":
                yield from ((index, first, min(tile + 5, WINDOW // 2)) for first in range(offsets))
            continue
        for k, n in enumerate(sizes):
            place = (0, n - 1, n // 2)[k % 3]
            yield index, dataset.plant - place, n
        longest = sizes[-1]
        yield from ((index, dataset.plant - place, longest) for place in places if 0 <= place < longest)
        yield from ((index, dataset.plant - longest + 1 + back, longest) for back in (0, 1, config.block))
