"""What the self-test of an export checks: inputs that any language can make again, and the right results.

An element of the input is taken from a short table, at a place that a hash of its index says. So a few dozen numbers
stand for arrays of any length, and the right results come from redtune's own references, not from the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from redtune.answers import Answers
from redtune.data import background, judged_datasets, make_dataset, random_dataset
from redtune.dtypes import Dtype
from redtune.evaluation import numpy_finish, numpy_identity
from redtune.exporting.variants import Export
from redtune.operators import accumulates_in_floats
from redtune.plan import make_plan
from redtune.windows import SHIFT, Window

Array = np.ndarray[Any, Any]

TABLE = 61  # prime, so that no size of a tile divides it
MULTIPLY, FOLD = 0x9E3779B1, 0x85EBCA6B
SEED = 0
# Of the largest array: whole numbers up to 8, squared, add up to what a float32 has exactly.
MOST = 1 << 18
RANDOM_N = 3001
PLANTS = ("zero", "high", "low", "nan", "infinity", "minus infinity")  # those that show above any background
TELLING = ("high", "low", "zero")  # those that may decide a result, the surest first


@dataclass(frozen=True, slots=True)
class Case:
    """One check: `outer` x `n` x `inner` elements of a table from element `first` on, one of them replaced if `plant`
    is not negative, and the right results. Elements and results are given by their bits, in words; a result may be off
    by `within`."""

    about: str
    table: str
    first: int
    outer: int
    n: int
    inner: int
    plant: int
    value: tuple[int, ...]
    expected: tuple[int, ...]
    within: tuple[float, ...]


def picks(count: int) -> Array:
    """Which element of a table each of the first `count` elements is."""
    i = np.arange(count, dtype=np.uint32)
    with np.errstate(over="ignore"):
        i = i * np.uint32(MULTIPLY)
        i ^= i >> np.uint32(15)
        i *= np.uint32(FOLD)
        i ^= i >> np.uint32(13)
    return np.asarray(i % np.uint32(TABLE), np.int64)


def word_bytes(dtype: Dtype) -> int:
    """How long the words of an element are: a complex number is two of them."""
    return dtype.bytes // dtype.parts


def words_of(dtype: Dtype, raw: Array) -> list[int]:
    """The bits of elements in words of at most 8 bytes."""
    word = f"<u{word_bytes(dtype)}"
    return [int(bits) for bits in np.ascontiguousarray(raw).view(word).ravel()]


class Checks:
    """The cases of an export, and the tables they are made of."""

    def __init__(self, export: Export) -> None:
        self.export, problem = export, export.problem
        self.answers = Answers(problem)
        self.plans = [make_plan(v.problem, v.config, v.dialect, v.device) for v in export.variants]
        in_floats = accumulates_in_floats(problem)
        rng = np.random.default_rng(SEED)
        self.tables = {
            "exact": export.dtype.encode(background(export.op, export.dtype, TABLE, rng, in_floats)),
            "random": random_dataset(export.op, export.dtype, TABLE, SEED, in_floats).raw,
        }
        sets = judged_datasets(export.op, export.dtype, SEED, in_floats)
        self.plants = {d.name: d.raw[d.plant] for d in sets if d.plant is not None and d.name in PLANTS}
        self.telling = self._telling()
        self.cases = list(self._cases())

    size, shift, multiply, fold = TABLE, SHIFT, MULTIPLY, FOLD

    @staticmethod
    def word_bytes(dtype: Dtype) -> int:
        """How long the words of an element are."""
        return word_bytes(dtype)

    def words(self, table: str) -> list[int]:
        """The elements of a table."""
        return words_of(self.export.dtype, self.tables[table])

    def expected(self) -> list[int]:
        """The right results of all cases, one after the other."""
        return [bits for case in self.cases for bits in case.expected]

    def within(self) -> list[float]:
        """How far each of them may be off."""
        return [off for case in self.cases for off in case.within]

    def start(self, index: int) -> int:
        """Where the results of a case begin."""
        return sum(len(case.within) for case in self.cases[:index])

    def _cases(self) -> Iterator[Case]:
        for outer, n, inner in self._shapes():
            yield self._case("", "exact", outer, n, inner)
        outer, n, inner = self._small(MOST - 1)
        for name, value in self.telling:
            yield self._case(f"{name} at the very last", "exact", outer, n, inner, 0, outer * n * inner - 1, value)
        outer, n, inner = self._long()
        for first in (1, 2, 3):
            # The head of an array that is aligned otherwise is longer than a few elements.
            yield from self._from(first, *self._small(2))
            yield from self._from(first, outer, n, inner)
        for name, value in self.plants.items():
            for where, at in (("first", 0), ("middle", n // 2), ("last", n - 1)):
                yield self._case(f"{name}, the {where} element", "exact", outer, n, inner, 0, at * inner, value)
            yield self._case(name, "exact", *self._small(1), 0, 0, value)
        yield self._case("random", "random", *self._small(RANDOM_N))
        if self.export.op.empty is not None:
            yield self._case("no elements", "exact", outer, 0, inner)

    def _from(self, first: int, outer: int, n: int, inner: int) -> Iterator[Case]:
        """Elements that begin somewhere, with a plant that decides the result inside them and must not outside."""
        yield self._case(f"from element {first} on", "exact", outer, n, inner, first)
        behind = first + outer * n * inner
        for name, value in self.telling:
            for where, at in (("before", first - 1), ("first", first), ("last", behind - 1), ("behind", behind)):
                about = f"from element {first} on, {name} {where}"
                yield self._case(about, "exact", outer, n, inner, first, at, value)

    def _telling(self) -> list[tuple[str, Any]]:
        """A plant that decides the result of any elements, if there is one."""
        outer, n, inner = self._long()
        plain = self._case("", "exact", outer, n, inner).expected
        for name in TELLING:
            value = self.plants.get(name)
            if value is not None and self._case("", "exact", outer, n, inner, 0, 0, value).expected != plain:
                return [(name, value)]
        return []

    @property
    def layout(self) -> str:
        """How the elements lie."""
        return self.export.problem.layout

    def _small(self, n: int) -> tuple[int, int, int]:
        return {"flat": (1, n, 1), "rows": (3, n, 1), "columns": (2, n, 3)}[self.layout]

    def _long(self) -> tuple[int, int, int]:
        """More than a tile of every kernel, ragged."""
        return self._small(min(MOST, 3 * max(plan.tile for plan in self.plans) + 5))

    def _shapes(self) -> Iterator[tuple[int, int, int]]:
        """Where something in a kernel begins or ends."""
        lengths = {1, 2, 3, 31, 32, 33, 63, 64, 65, 1000, MOST - 1}
        for variant, plan in zip(self.export.variants, self.plans, strict=True):
            for edge in (variant.config.block, plan.tile, 2 * plan.tile):
                lengths |= {edge - 1, edge, edge + 1}
        for n in sorted(length for length in lengths if 0 < length < MOST):
            yield self._small(n)
        if self.layout != "flat":
            yield {"rows": (301, 7, 1), "columns": (3, 7, 101)}[self.layout]

    def _case(
        self, about: str, table: str, outer: int, n: int, inner: int, first: int = 0, plant: int = -1, value: Any = None
    ) -> Case:
        dtype, window = self.export.dtype, Window(first, outer, n, inner)
        raw = self.tables[table][picks(first + max(1, outer * n * inner) + SHIFT)]
        if plant >= 0:
            raw[plant] = value
        values = dtype.decode(raw)
        is_exact = table == "exact" or self.export.op.exact
        size = "x".join(str(k) for k in ((n,) if self.layout == "flat" else (outer, n, inner)[: 2 + (inner > 1)]))
        expected, within = self._expected(make_dataset(about, values, dtype, exact=is_exact), window)
        words = tuple(words_of(dtype, raw[plant : plant + 1])) if plant >= 0 else ()
        sized = f"{size} element" + "s" * (size != "1")
        text = ", ".join([about] * (about != "") + [sized] * (n > 0))
        return Case(text, table, first, outer, n, inner, plant, words, expected, within)

    def _expected(self, dataset: Any, window: Window) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """The bits of the right results, and how far from them a result may be under any of the kernels."""
        result = self.answers.result
        if window.n == 0:
            op, running = self.export.op, self.export.problem.accumulate
            nothing = numpy_finish(op, running, result, numpy_identity(op, running), 0, 0)
            return tuple(words_of(result, result.encode(nothing.reshape(1)))) * window.results, (0.0,) * window.results
        known = self.answers.known(dataset, window)
        with np.errstate(all="ignore"):
            bits = tuple(words_of(result, result.encode(known.exact)))
        bounds = [self.answers.bound(plan, known) for plan in self.plans]
        if any(bound is None for bound in bounds):
            return bits, (0.0,) * window.results
        with np.errstate(all="ignore"):
            off = np.abs(known.exact - known.rounded.astype(known.exact.dtype))
            within = np.max(bounds, axis=0) + np.where(np.isfinite(off), off, 0)
        return bits, tuple(float(one) for one in np.broadcast_to(within, window.results))
