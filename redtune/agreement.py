"""Whether different implementations of one reduction gave the same on the same input. None of them is taken for right:
one that differs from most of the others is the odd one out, and if there are two, both are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from redtune.beside import Answer
from redtune.dtypes import DTYPES
from redtune.operators import is_order_free, operator_of
from redtune.types import Problem

Array = np.ndarray[Any, Any]
ENDS = 1 << 13  # of many results, so many at the beginning, in the middle and at the end are compared


def compared_places(results: int) -> list[tuple[int, int]]:
    """(first, count) of the pieces of so many results that are compared."""
    if results <= 3 * ENDS:
        return [(0, results)]
    return [(0, ENDS), ((results - ENDS) // 2, ENDS), (results - ENDS, ENDS)]


def agreement(problem: Problem, given: Sequence[tuple[str, str, Array]]) -> list[Answer]:
    """An answer for each (name, dtype, results)."""
    apart = {}
    for k, (_, dtype, mine) in enumerate(given):
        for j, (_, other_dtype, other) in enumerate(given[:k]):
            apart[j, k] = distance(problem, (dtype, mine), (other_dtype, other))
    answers = []
    for k, (name, dtype, mine) in enumerate(given):
        far = {j: apart[min(j, k), max(j, k)] for j in range(len(given)) if j != k}
        differs = {j: off for j, off in far.items() if off > 0}
        answers.append(
            Answer(
                name=name,
                dtype=dtype,
                first=str(mine[0]) if len(mine) else "nothing",
                compared=len(mine),
                differs_from=tuple(given[j][0] for j in differs),
                off=max(differs.values(), default=0.0),
                is_odd=2 * len(differs) > len(far),
            )
        )
    return answers


def distance(problem: Problem, mine: tuple[str, Array], other: tuple[str, Array]) -> float:
    """How far two sets of results are apart, relative to their size: 0 where rounding explains it."""
    if mine[1].shape != other[1].shape:
        return float("inf")
    if all(values.dtype.kind in "biu" for _, values in (mine, other)):
        first, second = (_bits(values) for _, values in (mine, other))
        return int(np.count_nonzero(first != second)) / max(1, len(first))
    with np.errstate(all="ignore"):
        first, second = (values.astype(_wide(values)) for _, values in (mine, other))
        same = (first == second) | ((first != first) & (second != second))
        size = np.maximum(np.abs(first), np.abs(second))
        gap = np.where(same, 0, np.abs(first - second))
        allowed = tolerance(problem, mine[0], other[0]) * size
        allowed = allowed if is_picked(problem) else allowed + _floor(mine[0], other[0])
        is_near = same | (np.isfinite(size) & (gap <= allowed))
        far = np.where(is_near, 0, gap / np.where(size > 0, size, 1))
    return float(np.nan_to_num(far, nan=np.inf, posinf=np.inf).max(initial=0.0))


def _bits(values: Array) -> Array:
    """Integers as they wrap around at 64 bits."""
    return values.astype(np.int64).view(np.uint64) if values.dtype.kind != "u" else values.astype(np.uint64)


def _wide(values: Array) -> type[Any]:
    return np.clongdouble if values.dtype.kind == "c" else np.longdouble


def is_picked(problem: Problem) -> bool:
    """Whether every order of merging gives the same: results of one dtype must be equal."""
    return is_order_free(operator_of(problem), problem.accumulate)


def _floor(*dtypes: str) -> float:
    """What is as good as nothing: a product may reach zero a few factors earlier or later."""
    tiny = {"float16": 2.0**-14, "bfloat16": 2.0**-126, "float32": 2.0**-126, "complex64": 2.0**-126}
    return max((2 * tiny.get(name, 2.0**-1022) for name in dtypes if name in DTYPES and DTYPES[name].u), default=0.0)


def tolerance(problem: Problem, *dtypes: str) -> float:
    """How far apart two right results may be, relative to their size.

    The last rounding of each; and roundings on the way, which go either way and add up to the root of their number.
    Chains may reasonably be as long as the root of n; those of products, and of columns in libraries that add one row
    to the other, are as long as n. The factor is for bad luck.
    """
    last = max((DTYPES[name].u for name in dtypes if name in DTYPES), default=0.0)
    if is_picked(problem):
        return 2 * last if len(set(dtypes)) > 1 else 0.0
    steps = max((DTYPES[name].u for name in dtypes if name in ("float32", "float64")), default=0.0)
    steps = max(steps, DTYPES[problem.accumulate].u)
    is_one_chain = operator_of(problem).bites == "units" or problem.layout == "columns"
    drift: float = 2 * problem.n**0.5 if is_one_chain else 4 * problem.n**0.25
    return 4 * last + (16 + drift) * steps
