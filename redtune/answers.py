"""The right answers of a problem on given elements, and how far a kernel's may be from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from redtune.data import Array, Dataset
from redtune.dtypes import Dtype, dtype_named
from redtune.operators import operator_of, result_of
from redtune.plan import Plan
from redtune.types import Problem
from redtune.windows import SHIFT, Window


class Wrong(Exception):
    """A candidate gave a wrong result; the text says on what input."""


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
            near = got.astype(known.exact.dtype)
            rows = zip(_parts(near), _parts(known.rounded), _parts(known.exact), strict=True)
            error = np.where(same, 0, reduce(np.hypot, (_error(*row) for row in rows)))
            ok = error <= bound
            counts = np.isfinite(known.rounded) | np.isfinite(error)
            share = np.where(counts, error / np.where(bound > 0, bound, 1), 0)
    return (None if ok.all() else int(np.argmin(ok))), float(np.nanmax(share, initial=0.0))


def _parts(values: Array) -> tuple[Array, ...]:
    """The numbers that each value consists of."""
    return (values.real, values.imag) if np.iscomplexobj(values) else (values,)


def _error(got: Array, rounded: Array, exact: Array) -> Array:
    """How far one part is off; one that is not finite is right or wrong."""
    error = np.where(np.isfinite(rounded), np.abs(got - exact), np.inf)
    return np.where((got == rounded) | ((got != got) & (rounded != rounded)), 0, error)


def _finite(values: Array) -> Array:
    """The elements with their parts that are not finite left out: of a complex number the other one has its bound."""
    if not np.iscomplexobj(values):
        return values
    parts = [np.where(np.isfinite(part), part, 0) for part in _parts(values)]
    return np.asarray(parts[0] + 1j * parts[1])


class Answers:
    """What one problem gives on any window of any dataset."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.op, self.dtype = operator_of(problem), dtype_named(problem.dtype)
        self.result = dtype_named(result_of(problem))

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
            measured = map(_finite, inputs)
            measures = self.op.tolerance.measures(*measured) if self.op.tolerance and self._rounds(dataset) else None
        return Known(rounded, exact, measures)

    def _rounds(self, dataset: Dataset) -> bool:
        """Whether the results of a dataset depend on the order of merging, or round at the end."""
        if self.op.tolerance is None or dtype_named(self.problem.accumulate).kind != "float":
            return False
        return self.op.tolerance.rounds or not dataset.exact or self.dtype.kind not in ("float", "complex")

    def expect(self, name: str, window: Window, bits: Array, known: Known, plan: Plan) -> float:
        """Raises Wrong unless the results are right, given as they lie in memory; the largest error over its bound."""
        got = self.result.decode(bits)
        bound = self.bound(plan, known)
        wrong, share = largest_error(got, known, bound)
        if wrong is None:
            return share
        count = window.results
        place = f" in result {wrong} of {count}" if count > 1 else ""
        within = f" within {float(np.broadcast_to(bound, count)[wrong]):.3g}" if bound is not None else ""
        raise Wrong(
            f"{self.problem.op} of {window.n} elements ({name}, from element {window.first}){place} "
            f"gave {got[wrong]}, not {known.exact[wrong] if bound is not None else known.rounded[wrong]}{within}"
        )

    def bound(self, plan: Plan, known: Known) -> Any:
        """How far each result may be off, or None where it must be exact."""
        if known.measures is None or self.op.tolerance is None:
            return None
        with np.errstate(all="ignore"):
            u = dtype_named(self.problem.accumulate).u
            bound = self.op.tolerance.bound(known.measures, plan.depths, u)
            bound = np.where(np.isfinite(bound), bound, 0)
            if self.result.u > u and self.result.kind == "float":
                return self._rounded_once(known.exact, bound + u * np.abs(known.exact))
            rounding = self.result.u * np.abs(_finite(known.exact)) + smallest(self.result) if self.result.u else 0
            return bound + np.where(np.isfinite(rounding), rounding, 0)

    def _rounded_once(self, exact: Array, off: Array) -> Array:
        """How far a result may be that was off by so much in a wider type, and was then rounded to nearest."""
        ends = [self.result.decode(self.result.encode(exact + way * off)) for way in (-1, 1)]
        return np.asarray(np.max([np.where(np.isfinite(end), np.abs(end - exact), 0) for end in ends], axis=0))
