"""The right answers are right, and the bounds around them neither too narrow nor too wide to be of use."""

from __future__ import annotations

import decimal
import itertools
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from redtune import references
from redtune.dtypes import DTYPES, Dtype
from redtune.operators import OPERATORS, Operator, accumulate_type
from redtune.references import Depths
from tests.text.folds import Array, adds_up_floats, entries, exact_values, random_values
from tests.text.kernels import operator

ROUNDING = entries(adds_up_floats)
U = float(np.finfo(np.longdouble).eps)

Exact = Callable[..., Fraction]


def mean(x: list[Fraction]) -> Fraction:
    return sum(x, Fraction()) / len(x)


def variance(x: list[Fraction]) -> Fraction:
    centre = mean(x)
    return mean([(v - centre) ** 2 for v in x])


def root(x: Fraction) -> Fraction:
    return Fraction(math.isqrt(x.numerator * 4**400 // x.denominator), 2**400)


def log_of_sum(x: list[Fraction]) -> Fraction:
    with decimal.localcontext(decimal.Context(prec=60)):
        terms = [(Decimal(v.numerator) / Decimal(v.denominator)).exp() for v in x]
        return Fraction(sum(terms, Decimal()).ln())


EXACT: dict[str, Exact] = {
    "sum": lambda x: sum(x, Fraction()),
    "nansum": lambda x: sum(x, Fraction()),
    "prod": lambda x: Fraction(math.prod(x)),
    "mean": mean,
    "var": variance,
    "std": lambda x: root(variance(x)),
    "norm_l1": lambda x: sum(map(abs, x), Fraction()),
    "norm_l2": lambda x: root(sum((v * v for v in x), Fraction())),
    "norm_inf": lambda x: max(map(abs, x)),
    "sumsq": lambda x: sum((v * v for v in x), Fraction()),
    "dot": lambda x, y: sum((v * w for v, w in zip(x, y, strict=True)), Fraction()),
    "logsumexp": log_of_sum,
}


def as_fraction(x: Any) -> Fraction:
    """An extended float or an integer as a fraction, a float in two halves."""
    if np.asarray(x).dtype.kind in "iu":
        return Fraction(int(x))
    high = float(x)
    return Fraction(high) + Fraction(float(x - np.longdouble(high)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint32"])
@pytest.mark.parametrize("name", EXACT)
def test_a_reference_is_that_of_fractions(name: str, dtype: str) -> None:
    """On positive values, where nothing cancels."""
    op, element, rng = operator(name, dtype), DTYPES[dtype], np.random.default_rng(0)
    for n in (1, 2, 17):
        inputs = [np.abs(random_values(op, element, (1, n), 2.0, rng)) for _ in range(op.inputs)]
        inputs = [x % 100 if element.kind != "float" else x for x in inputs]
        found = as_fraction(op.reference(*inputs)[0])
        exact = EXACT[name](*([as_fraction(v) for v in x[0]] for x in inputs))
        if op.tolerance is None or (element.kind != "float" and op.accumulates == "sum"):
            exact = (exact + 2**63) % 2**64 - 2**63 if name == "prod" and dtype == "int8" else exact
            assert found == exact % 2**64 if dtype == "uint32" else found == exact
        else:
            assert abs(found - exact) <= 4 * n * U * max(exact, Fraction(1, 4))


def test_references_wrap_at_64_bits() -> None:
    big = np.full((1, 3), 2**62, np.int64)
    assert references.total(big)[0] == 3 * 2**62 - 2**64
    assert references.product(big)[0] == 0
    assert references.squares(np.full((1, 3), 2**32 - 1, np.uint32))[0] == 3 * (2**32 - 1) ** 2 % 2**64
    assert references.dot(np.array([[-128]], np.int8), np.array([[-128]], np.int8))[0] == 2**14
    assert references.total(np.full((1, 300), True))[0] == 300


def test_references_keep_special_values_apart() -> None:
    nan, inf = np.nan, np.inf
    rows = np.array([[nan, 1], [inf, 1], [-inf, -inf], [inf, nan], [nan, nan], [inf, -inf]])
    with np.errstate(all="ignore"):
        found = {name: OPERATORS[name].reference(rows).astype(float) for name in ("logsumexp", "norm_l2", "nansum")}
        found |= {name: OPERATORS[name].reference(rows) for name in ("nanmax", "nanmin")}
    np.testing.assert_equal(found["logsumexp"], [nan, inf, -inf, nan, nan, inf])
    np.testing.assert_equal(found["norm_l2"], [nan, inf, inf, nan, nan, inf])
    np.testing.assert_equal(found["nansum"], [1, inf, -inf, inf, 0, nan])
    np.testing.assert_equal(found["nanmax"], [1, inf, -inf, inf, nan, inf])
    np.testing.assert_equal(found["nanmin"], [1, 1, -inf, inf, nan, -inf])


@entries()
def test_a_reference_takes_its_rows_one_by_one(op: Operator, dtype: Dtype) -> None:
    values = exact_values(op, dtype)
    rng = np.random.default_rng(1)
    inputs = [rng.choice(values, (4, 5)) for _ in range(op.inputs)]
    with np.errstate(all="ignore"):
        together = np.asarray(op.reference(*inputs))
        alone = np.array([op.reference(*(x[k] for x in inputs)) for k in range(4)])
    np.testing.assert_array_equal(together, alone)


# --- bounds -----------------------------------------------------------------------------------------------------------


def bounds(op: Operator, dtype: Dtype, depths: Depths, *inputs: Array) -> Any:
    assert op.tolerance is not None
    if dtype.kind not in ("float", "complex"):
        inputs = tuple(x.astype(np.float64) for x in inputs)
    measures = op.tolerance.measures(*inputs)
    return np.broadcast_to(op.tolerance.bound(measures, depths, DTYPES[accumulate_type(op, dtype)].u), len(inputs[0]))


@ROUNDING
def test_bounds_are_finite_and_grow_with_the_depths(op: Operator, dtype: Dtype) -> None:
    rng = np.random.default_rng(2)
    zeros = [np.zeros((3, 7), random_values(op, dtype, (1, 1), 0.0, rng).dtype) for _ in range(op.inputs)]
    for inputs in ([random_values(op, dtype, (3, 50), 1.0, rng) for _ in range(op.inputs)], zeros):
        seen = [bounds(op, dtype, Depths(d, d), *inputs) for d in (0, 1, 5, 100, 100_000)]
        assert all(np.isfinite(found).all() and (found >= 0).all() for found in seen)
        for shallow, deep in itertools.pairwise(seen):
            assert (shallow <= deep).all()
        # The roundings of a whole way are never fewer than those within a tile.
        assert (bounds(op, dtype, Depths(5, 100), *inputs) >= bounds(op, dtype, Depths(5, 5), *inputs)).all()


@ROUNDING
def test_an_infinity_or_nan_gives_no_bound_to_go_by(op: Operator, dtype: Dtype) -> None:
    """The judge compares what is not finite exactly; the bound must not raise, whatever it is."""
    if dtype.kind != "float":
        return
    with np.errstate(all="ignore"):
        for special in (np.nan, np.inf, -np.inf):
            inputs = [np.full((2, 3), special, random_values(op, dtype, (1, 1), 0.0, np.random.default_rng(0)).dtype)]
            bounds(op, dtype, Depths(4, 9), *inputs * op.inputs)


@entries(lambda op, dtype: adds_up_floats(op, dtype) and dtype.name in ("float32", "float64"))
def test_a_lost_element_is_beyond_the_bound(op: Operator, dtype: Dtype) -> None:
    """One of a thousand gone, or taken twice: the bound of a kernel as deep as most must not let it pass."""
    rng = np.random.default_rng(3)
    inputs = [random_values(op, dtype, (1, 1000), 1.0, rng) for _ in range(op.inputs)]
    allowed = bounds(op, dtype, Depths(8, 60), *inputs)[0]
    whole = op.reference(*inputs)[0]
    for broken in ([x[:, 1:] for x in inputs], [np.concatenate([x, x[:, :1]], axis=1) for x in inputs]):
        assert abs(op.reference(*broken)[0] - whole) > allowed


@pytest.mark.parametrize("name", ["logsumexp", "norm_l2", "norm_l1", "sum", "sumsq", "dot"])
def test_what_is_long_is_added_up_in_parts_to_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what is asked of overflow here asked of every part: other threads have a context of their own."""
    op, rng = OPERATORS[name], np.random.default_rng(0)
    rows = 100 * rng.standard_normal((2, 1000)).astype(np.float32)
    rows[1, 7] = np.inf
    inputs = (rows, rows[::-1].copy())[: op.inputs]
    with np.errstate(all="raise", invalid="ignore"):
        whole = op.reference(*inputs)
        assert op.tolerance is not None
        measures = op.tolerance.measures(*inputs)
        monkeypatch.setattr(references, "PART", 64)
        np.testing.assert_allclose(op.reference(*inputs), whole, rtol=1e-17)
        for found, wanted in zip(op.tolerance.measures(*inputs), measures, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-17)
    assert np.asarray(op.reference(*inputs)).dtype == whole.dtype
