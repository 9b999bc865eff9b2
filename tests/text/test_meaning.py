"""What operators mean: folded by numpy's evaluation of their text, they give what numpy and the references give."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from redtune.answers import smallest
from redtune.dtypes import DTYPES, Dtype
from redtune.evaluation import NORM_POWERS, limits, numpy_finish, numpy_identity
from redtune.operators import OPERATORS, Operator, accumulate_type, result_type
from tests.text.folds import (
    Array,
    adds_up_floats,
    assert_within,
    bound,
    entries,
    exact_values,
    fold,
    random_values,
    right,
    u_of,
)
from tests.text.kernels import operator

Function = Callable[..., Any]


def logsumexp(x: Array, axis: int) -> Any:
    """As scipy has it."""
    x = x.astype(np.float64) if x.dtype.kind != "f" else x
    with np.errstate(all="ignore"):
        top = np.max(x, axis=axis, keepdims=True)
        shift = np.where(np.isfinite(top), top, 0)
        found = np.log(np.exp(x - shift).sum(axis=axis, dtype=np.float64)) + np.squeeze(shift, axis)
    return found.astype(np.mean(x[..., :1]).dtype)


# What numpy calls each reduction, over the axis named.
NUMPY: dict[str, Function] = {
    **{name: getattr(np, name) for name in OPERATORS if hasattr(np, name) and not name.startswith(("bitwise", "dot"))},
    **{name: getattr(np, name).reduce for name in OPERATORS if name.startswith("bitwise")},
    "norm_l1": lambda x, axis: np.linalg.norm(x, 1, axis),
    "norm_l2": lambda x, axis: np.linalg.norm(x, 2, axis),
    "norm_inf": lambda x, axis: np.linalg.norm(x, np.inf, axis),
    "sumsq": lambda x, axis: np.sum(np.multiply(x, x, dtype=np.sum(x[..., :1]).dtype), axis=axis),
    "dot": lambda x, y, axis: np.sum(np.multiply(x, y), axis=axis, dtype=x.dtype),
    "logsumexp": logsumexp,
}


@entries()
def test_folding_gives_what_numpy_gives(op: Operator, dtype: Dtype) -> None:
    values = exact_values(op, dtype)
    rng = np.random.default_rng(1)
    for n in (1, 2, 3, 5, 8, 40):
        inputs = [rng.choice(values, (60, n)) for _ in range(op.inputs)]
        if dtype.kind == "complex" and op.bites == "units":
            inputs = [np.where(np.arange(n) < 12, x, 1) for x in inputs]  # the product of more would round
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = np.asarray(NUMPY[op.name](*inputs, axis=-1))
            numpys = 4 * u_of(op, dtype) * np.abs(expected)
        got, reference = fold(op, dtype, *inputs), right(op, dtype, *inputs)
        assert got.dtype == reference.dtype
        if adds_up_floats(op, dtype) and op.tolerance is not None and op.tolerance.rounds:
            near = bound(op, dtype, n.bit_length() + 1, *inputs)
            assert_within(got, reference, near)
            assert_within(expected, reference, near + numpys)
        else:
            np.testing.assert_array_equal(got, reference, strict=True)
            # bfloat16 is float32 to numpy, in which these values do not round either.
            np.testing.assert_array_equal(got, expected.astype(got.dtype))


@entries(adds_up_floats)
def test_what_numpy_folds_is_within_the_tolerance(op: Operator, dtype: Dtype) -> None:
    """Random values: the tolerance must admit a plain tree, as deep as it is."""
    rng = np.random.default_rng(2)
    for n, spread in itertools.product((3, 100, 777), (0.0, 3.0, 1e4 if dtype.name != "float16" else 8.0)):
        inputs = [random_values(op, dtype, (8, n), spread, rng) for _ in range(op.inputs)]
        exact = op.reference(*inputs)
        assert_within(fold(op, dtype, *inputs), exact, bound(op, dtype, n.bit_length() + 1, *inputs))


def zeros(op: Operator, dtype: str, n: int) -> list[Array]:
    return [np.zeros((1, n), dtype) for _ in range(op.inputs)]


@entries(lambda op, dtype: dtype.name != "bfloat16")
def test_the_result_has_numpys_type(op: Operator, dtype: Dtype) -> None:
    inputs = zeros(op, dtype.name, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = NUMPY[op.name](*inputs, axis=-1).dtype.name
    assert result_type(op, dtype) == expected
    assert fold(op, dtype, *inputs).dtype == expected


# --- empty, all of one kind, the ends of the range --------------------------------------------------------------------


@entries(lambda op, dtype: dtype.name != "bfloat16" and op.name != "logsumexp")
def test_empty_is_numpys(op: Operator, dtype: Dtype) -> None:
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            expected = NUMPY[op.name](*zeros(op, dtype.name, 0), axis=-1)[0]
    except ValueError:
        assert op.empty is None or op.name == "norm_inf", "an infinity norm of nothing is 0 since numpy 2.4"
        return
    assert op.empty is not None
    np.testing.assert_equal(np.asarray(op.empty).astype(expected.dtype), expected)


@entries(lambda op, dtype: op.empty is not None)
def test_the_identity_finishes_as_empty(op: Operator, dtype: Dtype) -> None:
    """What a row without elements, or with none that a mask lets through, comes to."""
    assert op.empty is not None
    accumulate, result = accumulate_type(op, dtype), DTYPES[result_type(op, dtype)]
    got = numpy_finish(op, accumulate, result, numpy_identity(op, accumulate), count=0)
    if dtype.kind == "complex" and math.isnan(op.empty):
        assert np.isnan(got)
    else:
        np.testing.assert_equal(got, np.asarray(op.empty).astype(got.dtype))


def folded(name: str, dtype: str, values: Any, ddof: int = 0) -> Any:
    element = DTYPES[dtype]
    x = np.array([values], None if dtype == "bfloat16" else dtype)
    return fold(operator(name, dtype), element, element.decode(element.encode(x)), ddof=ddof)[0]


@pytest.mark.parametrize(
    ("op", "dtype", "values", "expected"),
    [
        ("sum", "int64", [2**63 - 1, 1], -(2**63)),
        ("sum", "int64", [-(2**63), -1], 2**63 - 1),
        ("sum", "uint64", [2**64 - 1, 2], 1),
        ("sum", "int8", [-128] * 3, -384),
        ("sum", "uint8", [255] * 3, 765),
        ("sum", "int32", [2**31 - 1] * 2, 2**32 - 2),
        ("sum", "bool", [True] * 3, 3),
        ("sum", "float32", [np.inf, -np.inf], np.nan),
        ("sum", "complex64", [1 + 2j, 3 - 5j], 4 - 3j),
        ("prod", "int64", [2**62, 3], 3 * 2**62 - 2**64),
        ("prod", "int8", [-128, -128, -128], -(2**21)),
        ("prod", "bool", [True, False], 0),
        ("prod", "complex128", [1 + 2j, 3 - 5j], 13 + 1j),
        ("max", "int8", [-128, -127], -127),
        ("max", "bool", [False, True], True),
        ("max", "float32", [-np.inf, -np.inf], -np.inf),
        ("min", "uint64", [2**64 - 1, 2**64 - 2], 2**64 - 2),
        ("max", "float32", [1, np.nan, np.inf], np.nan),
        ("min", "float64", [1, np.nan, -np.inf], np.nan),
        ("argmax", "float32", [1, 5, 5, 2], 1),
        ("argmax", "float32", [5, np.nan, 9, np.nan], 1),
        ("argmax", "float32", [-np.inf, -np.inf], 0),
        ("argmax", "float32", [-0.0, 0.0], 0),
        ("argmin", "float32", [0.0, -0.0], 0),
        ("argmin", "float64", [3, np.nan, -np.inf], 1),
        ("argmin", "uint8", [255, 255], 0),
        ("argmax", "int64", [-(2**63)] * 2, 0),
        ("nanmax", "float32", [np.nan, -np.inf, np.nan], -np.inf),
        ("nanmax", "float16", [np.nan] * 3, np.nan),
        ("nanmin", "bfloat16", [np.nan] * 3, np.nan),
        ("nanmin", "float64", [np.nan, 3, 2, np.inf], 2),
        ("nanmax", "int8", [-128, -3], -3),
        ("nanmin", "uint8", [255, 255], 255),
        ("nansum", "float32", [np.nan, 1, 2], 3),
        ("nansum", "float32", [np.nan] * 2, 0),
        ("nansum", "float64", [np.nan, np.inf, -np.inf], np.nan),
        ("any", "float32", [0.0, -0.0], False),
        ("any", "float32", [0.0, np.nan], True),
        ("any", "bfloat16", [0.0, 2.0**-133], True),
        ("any", "int8", [0, -128], True),
        ("any", "uint64", [0, 2**63], True),
        ("all", "float64", [np.nan, -1, 5e-324], True),
        ("all", "float64", [1.0, -0.0], False),
        ("count_nonzero", "float16", [0, -0.0, np.nan, 2.0**-24, -np.inf], 3),
        ("count_nonzero", "bool", [True, False, True], 2),
        ("bitwise_and", "int8", [-1, -2, 0x7C], 0x7C),
        ("bitwise_and", "uint64", [2**64 - 1, 2**63 + 1], 2**63 + 1),
        ("bitwise_or", "int16", [1, -(2**15)], 1 - 2**15),
        ("bitwise_xor", "uint8", [255, 1, 255], 1),
        ("bitwise_and", "bool", [True, True], True),
        ("bitwise_xor", "bool", [True, True, True], True),
        ("mean", "int8", [127, 127, 127, -128], 63.25),
        ("mean", "uint64", [2**64 - 1] * 4, 2.0**64),
        ("mean", "float16", [60000.0] * 8, 60000.0),
        ("mean", "complex64", [1 + 2j, 3 - 4j], 2 - 1j),
        ("mean", "bool", [True, False], 0.5),
        ("norm_l1", "int8", [-128, 127], 255.0),
        ("norm_l1", "float32", [-np.inf, 1], np.inf),
        ("norm_inf", "int8", [-128, 127], 128.0),
        ("norm_inf", "int64", [-(2**63), 1], 2.0**63),
        ("norm_inf", "float32", [-np.inf, np.nan], np.nan),
        ("norm_inf", "float16", [-3, 2], 3),
        ("sumsq", "int8", [-128] * 4, 65536),
        ("sumsq", "uint32", [2**32 - 1] * 2, (2 * (2**32 - 1) ** 2) % 2**64),
        ("sumsq", "bool", [True] * 3, 3),
        ("logsumexp", "float32", [-np.inf] * 3, -np.inf),
        ("logsumexp", "float32", [np.inf, 1, -np.inf], np.inf),
        ("logsumexp", "float64", [np.inf, np.nan], np.nan),
        ("logsumexp", "float64", [-np.inf, np.nan], np.nan),
        ("logsumexp", "float64", [1e300, 1e300], 1e300),
        ("logsumexp", "float32", [88.0, 1e5], 1e5),
        ("logsumexp", "float64", [-1e308, 1e308], 1e308),
        ("logsumexp", "int16", [-32768, 32767], 32767.0),
        ("logsumexp", "float64", [0.0, 0.0], math.log(2)),
        ("norm_l2", "float32", [np.inf, 1], np.inf),
        ("norm_l2", "float32", [np.inf, np.nan], np.nan),
        ("norm_l2", "float64", [np.nan, 1e-320], np.nan),
        ("norm_l2", "int8", [-128, -96], 160.0),
        ("norm_l2", "bfloat16", [3, 4], 5.0),
        ("var", "float64", [np.inf, 1], np.nan),
        ("var", "float32", [7.0], 0.0),
        ("var", "float32", [3e38, 3e38], 0.0),
        ("std", "int8", [-128, 127], 127.5),
        ("std", "bool", [True, False], 0.5),
        ("var", "uint64", [2**64 - 1] * 3, 0.0),
    ],
)
def test_known_results(op: str, dtype: str, values: list[Any], expected: Any) -> None:
    np.testing.assert_equal(folded(op, dtype, values).item(), expected)


def test_the_dot_product_of_whole_numbers_wraps_as_numpy_does() -> None:
    x, y = np.array([[127, 127, -128]], "int8"), np.array([[127, 3, 5]], "int8")
    assert fold(OPERATORS["dot"], DTYPES["int8"], x, y) == np.dot(x[0], y[0])
    truths = np.array([[True, False]]), np.array([[True, True]])
    assert fold(OPERATORS["dot"], DTYPES["bool"], *truths).dtype == bool
    assert fold(OPERATORS["dot"], DTYPES["bool"], *truths)[0]
    z = np.array([[1 + 2j, 3j]])
    assert fold(operator("dot", "complex128"), DTYPES["complex128"], z, z) == np.dot(z[0], z[0])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint32", "bool"])
@pytest.mark.parametrize("name", ["var", "std"])
@pytest.mark.parametrize("ddof", [0, 1, 2])
def test_the_variance_is_numpys(name: str, dtype: str, ddof: int) -> None:
    rng = np.random.default_rng(3)
    op, element = operator(name, dtype), DTYPES[dtype]
    for n in (1, 2, 3, 100):
        x = random_values(op, element, (20, n), 2.0, rng)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            wide = x.astype(np.float64) if element.kind != "float" else x.astype(np.longdouble)
            expected = getattr(np, name)(wide, axis=-1, ddof=ddof)
        got = fold(op, element, x, ddof=ddof)
        u = DTYPES[accumulate_type(op, element)].u + DTYPES[result_type(op, element)].u
        np.testing.assert_allclose(got, expected.astype(got.dtype), rtol=30 * u, atol=0 if n > 1 else 30 * u)


@pytest.mark.parametrize(("dtype", "mean"), [("float32", 1e4), ("float32", 1e6), ("float64", 1e8), ("float64", 1e12)])
def test_the_variance_survives_a_large_mean(dtype: str, mean: float) -> None:
    """The textbook formula, mean of squares less square of mean, has nothing left here."""
    x = (np.random.default_rng(4).standard_normal((1, 1000)) + mean).astype(dtype)
    values = [Fraction(float(v)) for v in x[0]]
    centre = sum(values) / len(values)
    exact = float(sum((v - centre) ** 2 for v in values) / len(values))
    off = abs(float(fold(OPERATORS["var"], DTYPES[dtype], x)[0]) - exact)
    assert off <= bound(OPERATORS["var"], DTYPES[dtype], 11, x)[0]
    assert off <= 0.01 * exact


def euclidean(values: Array) -> float:
    """The norm by way of fractions, scaled so that its square is an integer with more bits than a double."""
    square = sum(Fraction(float(v)) ** 2 for v in values)
    shift = 2 * max(0, 120 - (square.numerator.bit_length() - square.denominator.bit_length()) // 2)
    root = math.isqrt(square.numerator * 2 ** (2 * shift) // square.denominator)
    return float(Fraction(root, 2**shift))


@pytest.mark.parametrize(
    ("dtype", "scales"),
    [
        ("float64", [1e200]),
        ("float64", [1e-200]),
        ("float64", [5e-324, 1e-310]),
        ("float64", [1.7e308, 1e-308]),
        ("float64", [1e-160, 1e-140]),
        ("float64", [1e140, 1e150, 1e160]),
        ("float64", [1e-200, 1.0, 1e200]),
        ("float32", [1e20]),
        ("float32", [1e-30]),
        ("float32", [1e-45, 1e-40]),
        ("float32", [3e37, 1e-37]),
        ("float32", [1e-16, 1e-14]),
        ("float32", [1e12, 1e14]),
        ("float16", [6e4]),
        ("float16", [6e-8]),
        ("bfloat16", [1e38]),
        ("bfloat16", [1e-40]),
    ],
)
def test_no_square_overflows_or_underflows_in_a_norm(dtype: str, scales: list[float]) -> None:
    op, element, rng = OPERATORS["norm_l2"], DTYPES[dtype], np.random.default_rng(5)
    for n in (1, 4, 33):
        raw = rng.uniform(0.3, 1, n) * rng.choice(scales, n) * rng.choice([-1, 1], n)
        x = element.decode(element.encode(raw / (math.sqrt(n) if max(scales) > 1e37 else 1)))
        exact = euclidean(x)
        with np.errstate(over="ignore"):
            rounded = element.decode(element.encode(np.array([exact])))
        got = fold(op, element, x.reshape(1, -1))
        u = DTYPES[accumulate_type(op, element)].u
        near = (n.bit_length() + 8) * u * exact + 2 * element.u * exact + smallest(element)
        assert abs(float(got[0]) - exact) <= near or got[0] == rounded[0], (x, got, exact)


@pytest.mark.parametrize("accumulate", NORM_POWERS)
def test_the_scales_of_a_norm_leave_room(accumulate: str) -> None:
    """For 2^40 elements of the largest value, of those at the thresholds, and for the smallest one."""
    info, names = np.finfo(accumulate), limits(DTYPES[accumulate])
    count = 2.0**40
    scaled = float(info.max) * float(names["huge_scale"])
    assert scaled**2 * count < float(info.max)
    assert float(names["huge_from"]) ** 2 * count < float(info.max)
    assert (float(names["huge_from"]) * float(names["huge_scale"])) ** 2 >= float(info.tiny)
    assert float(names["tiny_below"]) ** 2 >= float(info.tiny) / float(info.eps)
    assert (float(names["tiny_below"]) * float(names["tiny_scale"])) ** 2 * count < float(info.max)
    assert (float(info.smallest_subnormal) * float(names["tiny_scale"])) ** 2 >= float(info.tiny)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_logarithm_of_a_sum_of_exponentials(dtype: str) -> None:
    """Far from the range of exp on both sides, against the formula with the largest taken out."""
    rng = np.random.default_rng(6)
    for centre in (-1e4, -700.0, 0.0, 700.0, 1e4):
        x = (rng.standard_normal((8, 200)) * 20 + centre).astype(dtype)
        got, exact = fold(OPERATORS["logsumexp"], DTYPES[dtype], x), logsumexp(x.astype(np.float64), -1)
        np.testing.assert_allclose(got, exact, rtol=16 * DTYPES[dtype].u, atol=64 * DTYPES[dtype].u)
