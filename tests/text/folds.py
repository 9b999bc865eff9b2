"""Values that bite and what an operator makes of them, for the tests of operators, references and data."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from redtune.dtypes import DTYPES, Dtype
from redtune.evaluation import numpy_finish, numpy_fold
from redtune.operators import Operator, accumulate_type, is_order_free, result_type
from redtune.references import Depths, wide
from tests.text.kernels import PAIRS, operator

Array = np.ndarray[Any, Any]


def entries(wanted: Callable[[Operator, Dtype], bool] = lambda op, dtype: True) -> pytest.MarkDecorator:
    """Every operator with every dtype that it takes, as far as wanted."""
    pairs = [pair for pair in PAIRS if wanted(operator(*pair), DTYPES[pair[1]])]
    found = [(operator(op, dtype), DTYPES[dtype]) for op, dtype in pairs]
    return pytest.mark.parametrize(("op", "dtype"), found, ids=map("-".join, pairs))


def adds_up_floats(op: Operator, dtype: Dtype) -> bool:
    return op.tolerance is not None and DTYPES[accumulate_type(op, dtype)].kind == "float"


def special_values(dtype: Dtype) -> Array:
    """The ends of the range, what is next to them, zeros, NaN, infinities, subnormals and a tie."""
    if dtype.kind == "bool":
        return np.array([False, True, True])
    if dtype.kind == "complex":
        # Of finite parts: a product by one is NaN where a part is infinite, in numpy too.
        parts = [0.0, -0.0, 1.0, -3.0, 0.5]
        return np.array([complex(re, im) for re, im in itertools.product(parts, parts)], dtype.name)
    if dtype.kind != "float":
        low, high = dtype.limits
        return np.array([low, low + 1, 0, 1, 3, 3, high - 1, high] + [-1] * bool(low), dtype.name)
    largest = {"float16": 65504.0, "bfloat16": 3.3895e38}.get(dtype.name) or float(np.finfo(dtype.name).max)
    smallest = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 5e-324}[dtype.name]
    sides = [0.0, 1.0, 3.0, 3.0, smallest, largest, np.inf]
    return dtype.decode(dtype.encode(np.array([np.nan, *sides, *(-x for x in sides)])))


def exact_values(op: Operator, dtype: Dtype) -> Array:
    """Values on which merging does not round: all of them where it never does. Few are moderate, some not finite."""
    if is_order_free(op, accumulate_type(op, dtype)):
        return special_values(dtype)
    few = {"small": [-8.0, -3.0, 1.0, 5.0], "units": [-1.0, 1.0, 2.0, 0.5]}[op.bites]
    if dtype.kind == "complex":
        return np.array([complex(re, im) for re, im in itertools.product([*few, 0.0], [*few, 0.0])], dtype.name)
    if dtype.kind != "float":
        return np.array([x for x in (0, 1, 3, 5, 100, -8, -100) if dtype.limits[0] <= x <= dtype.limits[1]], dtype.name)
    return dtype.decode(dtype.encode(np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, *few])))


def fold(op: Operator, dtype: Dtype, *inputs: Array, ddof: int = 0) -> Any:
    """The results of folding the last axis."""
    accumulate, result = accumulate_type(op, dtype), DTYPES[result_type(op, dtype)]
    state = numpy_fold(op, accumulate, inputs)
    return numpy_finish(op, accumulate, result, state, count=inputs[0].shape[-1], ddof=ddof)


def right(op: Operator, dtype: Dtype, *inputs: Array) -> Any:
    """What the reference says, rounded once."""
    result = DTYPES[result_type(op, dtype)]
    with np.errstate(all="ignore"):
        return result.decode(result.encode(op.reference(*inputs)))


def bound(op: Operator, dtype: Dtype, depth: int, *inputs: Array) -> Any:
    """How far a tree of that depth may be from the reference, and the rounding of the result."""
    assert op.tolerance is not None
    if dtype.kind not in ("float", "complex") and op.accumulates == "float":
        inputs = tuple(values.astype(np.float64) for values in inputs)
    with np.errstate(all="ignore"):
        measures = op.tolerance.measures(*inputs)
        exact = np.abs(op.reference(*inputs))
        off = op.tolerance.bound(measures, Depths(depth, depth), DTYPES[accumulate_type(op, dtype)].u)
        off = off + DTYPES[result_type(op, dtype)].u * exact
    return np.where(np.isfinite(off), off, 0)


def u_of(op: Operator, dtype: Dtype) -> float:
    return DTYPES[result_type(op, dtype)].u


def assert_within(got: Any, right: Any, bound: Any) -> None:
    """Off by no more than the bound; NaN and infinities where the other has them."""
    finite = np.isfinite(right)
    np.testing.assert_array_equal(got[~finite], np.asarray(right).astype(got.dtype)[~finite])
    off = np.abs(wide(got[finite]) - right[finite])
    assert (off <= np.broadcast_to(bound, finite.shape)[finite]).all(), (got, right, bound)


def random_values(op: Operator, dtype: Dtype, shape: tuple[int, ...], spread: float, rng: np.random.Generator) -> Array:
    """Normal values around `spread`, factors around one for a product, whole numbers of the whole range."""
    if dtype.kind in ("bool", "int", "uint"):
        low, high = dtype.limits
        return rng.integers(low, high, shape, "int64" if dtype.kind != "uint" else "uint64", True).astype(dtype.name)
    real = rng.standard_normal(shape) + spread
    if op.bites == "units":
        real = np.exp(rng.standard_normal(shape) / 100)
    if dtype.kind == "complex":
        return np.asarray((real * np.exp(1j * rng.uniform(0, 7, shape))).astype(dtype.name))
    return dtype.decode(dtype.encode(real))
