"""The laws every operator keeps, on values where a wrong entry would show; numpy evaluates the entries' own text."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from redtune.dtypes import DTYPES, Dtype, dtype_named
from redtune.errors import UsageError
from redtune.evaluation import (
    NORM_POWERS,
    State,
    limits,
    numpy_finish,
    numpy_fold,
    numpy_identity,
    numpy_lift,
    numpy_merge,
)
from redtune.expressions import addends, names_in
from redtune.operators import (
    OPERATORS,
    Operator,
    accumulate_type,
    field_type,
    is_order_free,
    keeps_losses,
    operator_for,
    operator_named,
    result_type,
)
from redtune.references import Depths
from tests.text.kernels import PAIRS, operator

Array = np.ndarray[Any, Any]

ENTRIES = pytest.mark.parametrize(
    ("op", "dtype"), [(operator(o, d), DTYPES[d]) for o, d in PAIRS], ids=map("-".join, PAIRS)
)
NAMES = pytest.mark.parametrize("op", OPERATORS.values(), ids=OPERATORS)
EVERY = [*OPERATORS.values(), *(op.on_complex for op in OPERATORS.values() if op.on_complex)]
VARIANTS = pytest.mark.parametrize("op", EVERY, ids=lambda op: f"{op.name}-{'-'.join(op.accepts)}")
INDICES = np.array([0, 1, 7, 2**31, 2**62])


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


def rounds_in_merging(op: Operator, dtype: Dtype) -> bool:
    """Whether merging rounds even whole numbers: something other than sums and products is done with the state."""
    return bool(op.lets) and not is_order_free(op, accumulate_type(op, dtype))


def every_state(op: Operator, dtype: Dtype, values: Array) -> State:
    """The states of each value, or each pair of values, at each index."""
    if op.inputs > 1:
        x, y = (side.ravel() for side in np.meshgrid(values, values))
        return numpy_lift(op, accumulate_type(op, dtype), x, np.zeros(len(x), int), y)
    x, i = (side.ravel() for side in np.meshgrid(values, INDICES if "i" in op.lift else INDICES[:1]))
    return numpy_lift(op, accumulate_type(op, dtype), x, i)


def at(state: State, where: Any) -> State:
    return {field: values[where] for field, values in state.items()}


def count_of(state: State) -> int:
    return len(next(iter(state.values())))


def assert_same(a: State, b: State) -> None:
    """Equal in every field, NaN equal to NaN."""
    for field in a:
        np.testing.assert_array_equal(a[field], b[field], strict=True)


def assert_alike(op: Operator, dtype: Dtype, a: State, b: State) -> None:
    """Equal where merging does not round; else results that are near, and NaN or infinite where the other is."""
    if not rounds_in_merging(op, dtype):
        assert_same(a, b)
        return
    accumulate = dtype_named(accumulate_type(op, dtype))
    left, right = (numpy_finish(op, accumulate.name, accumulate, state, count=7) for state in (a, b))
    np.testing.assert_allclose(left, right, rtol=64 * accumulate.u, atol=64 * accumulate.u, strict=True)


@ENTRIES
def test_the_identity_changes_nothing(op: Operator, dtype: Dtype) -> None:
    accumulate = accumulate_type(op, dtype)
    states = every_state(op, dtype, special_values(dtype))
    nothing = {f: np.broadcast_to(v, states[f].shape) for f, v in numpy_identity(op, accumulate).items()}
    finite = np.logical_and.reduce([np.isfinite(values) for values in states.values()])
    for merged in (numpy_merge(op, accumulate, states, nothing), numpy_merge(op, accumulate, nothing, states)):
        assert_same(at(merged, finite), at(states, finite))
        # A state with an infinity in it need only mean the same.
        assert_alike(op, dtype, merged, states)
    assert_same(numpy_merge(op, accumulate, nothing, nothing), nothing)


@ENTRIES
def test_merging_is_commutative(op: Operator, dtype: Dtype) -> None:
    accumulate = accumulate_type(op, dtype)
    values = exact_values(op, dtype) if rounds_in_merging(op, dtype) else special_values(dtype)
    states = every_state(op, dtype, values)
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, count_of(states), (2, 5000))
    merged = numpy_merge(op, accumulate, at(states, a), at(states, b))
    assert_alike(op, dtype, merged, numpy_merge(op, accumulate, at(states, b), at(states, a)))


@ENTRIES
def test_merging_is_associative(op: Operator, dtype: Dtype) -> None:
    accumulate = accumulate_type(op, dtype)
    states = every_state(op, dtype, exact_values(op, dtype))
    rng = np.random.default_rng(0)
    a, b, c = (at(states, rng.integers(0, count_of(states), 10_000)) for _ in range(3))
    left = numpy_merge(op, accumulate, numpy_merge(op, accumulate, a, b), c)
    assert_alike(op, dtype, left, numpy_merge(op, accumulate, a, numpy_merge(op, accumulate, b, c)))


# --- against numpy ----------------------------------------------------------------------------------------------------

Function = Callable[..., Any]


def logsumexp(x: Array, axis: int) -> Any:
    """As scipy has it."""
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


@ENTRIES
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
        got, reference = fold(op, dtype, *inputs), right(op, dtype, *inputs)
        assert got.dtype == reference.dtype
        if op.tolerance is not None and op.tolerance.rounds and dtype_named(accumulate_type(op, dtype)).kind == "float":
            near = bound(op, dtype, n.bit_length() + 1, *inputs)
            assert_within(got, reference, near)
            assert_within(expected, reference, near + 4 * np.abs(np.nan_to_num(reference)) * u_of(op, dtype))
        else:
            np.testing.assert_array_equal(got, reference, strict=True)
            # bfloat16 is float32 to numpy, in which these values do not round either.
            np.testing.assert_array_equal(got, expected.astype(got.dtype))


def u_of(op: Operator, dtype: Dtype) -> float:
    return DTYPES[result_type(op, dtype)].u


def assert_within(got: Any, right: Any, bound: Any) -> None:
    """Off by no more than the bound; NaN and infinities where the other has them."""
    finite = np.isfinite(right)
    np.testing.assert_array_equal(got[~finite], right[~finite])
    off = np.abs(got.astype(np.longdouble) - right)[finite]
    assert (off <= np.broadcast_to(bound, finite.shape)[finite]).all(), (got, right, bound)


@pytest.mark.parametrize("spread", [0.0, 3.0])
@ENTRIES
def test_what_numpy_folds_is_within_the_tolerance(op: Operator, dtype: Dtype, spread: float) -> None:
    """Random values: the tolerance must admit a plain tree, as deep as it is."""
    if op.tolerance is None or dtype_named(accumulate_type(op, dtype)).kind != "float":
        pytest.skip("its results are exact")
    rng = np.random.default_rng(2)
    for n in (3, 100, 777):
        inputs = [random_values(op, dtype, (8, n), spread, rng) for _ in range(op.inputs)]
        exact = op.reference(*inputs)
        assert_within(fold(op, dtype, *inputs), exact, bound(op, dtype, n.bit_length() + 1, *inputs))


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


def zeros(op: Operator, dtype: str, n: int) -> list[Array]:
    return [np.zeros((1, n), dtype) for _ in range(op.inputs)]


@pytest.mark.parametrize(
    ("op", "dtype"), [pair for pair in PAIRS if pair[1] != "bfloat16"], ids=lambda text: text if text else ""
)
def test_the_result_has_numpys_type(op: str, dtype: str) -> None:
    entry = operator(op, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = NUMPY[op](*zeros(entry, dtype, 3), axis=-1).dtype.name
    assert result_type(entry, DTYPES[dtype]) == expected
    assert fold(entry, DTYPES[dtype], *zeros(entry, dtype, 3)).dtype == expected


# The dtype of the running value by what `accumulates` says, for one dtype of every kind and width.
ACCUMULATES = {
    "register": "bool>uint32 int8>int32 int64>int64 uint16>uint32 uint64>uint64 bfloat16>float32 float64>float64",
    "sum": "bool>int64 int8>int64 int64>int64 uint16>uint64 float16>float32 float64>float64 complex64>float32",
    "float": "bool>float64 int8>float64 uint64>float64 float16>float32 bfloat16>float32 complex128>float64",
}


@pytest.mark.parametrize("rule", ACCUMULATES)
def test_what_accumulates_in_what(rule: Any) -> None:
    for op in (op for op in EVERY if op.accumulates == rule):
        for element, accumulate in (pair.split(">") for pair in ACCUMULATES[rule].split()):
            if DTYPES[element].kind in op.accepts:
                assert accumulate_type(op, DTYPES[element]) == accumulate


# The dtype of the result by what `result` says.
RESULTS = {
    "same": "bool>bool int8>int8 uint64>uint64 bfloat16>bfloat16 complex64>complex64",
    "sum": "bool>int64 int8>int64 uint16>uint64 float16>float16 bfloat16>bfloat16 complex128>complex128",
    "float": "bool>float64 int64>float64 float16>float16 bfloat16>bfloat16 float32>float32 complex64>complex64",
    "index": "bool>int64 uint8>int64 bfloat16>int64 float64>int64",
    "flag": "bool>bool uint8>bool bfloat16>bool float64>bool",
}


@pytest.mark.parametrize("rule", RESULTS)
def test_what_results_in_what(rule: Any) -> None:
    for op in (op for op in EVERY if op.result == rule):
        for element, result in (pair.split(">") for pair in RESULTS[rule].split()):
            if DTYPES[element].kind in op.accepts:
                assert result_type(op, DTYPES[element]) == result


@pytest.mark.parametrize(
    ("kind", "accumulate", "expected"),
    [
        ("value", "int32", "int32"),
        ("value", "float64", "float64"),
        ("sum", "int64", "uint64"),
        ("sum", "uint64", "uint64"),
        ("sum", "float32", "float32"),
        ("wrapping", "int64", "uint64"),
        ("wrapping", "float32", "float32"),
        ("flag", "float32", "uint32"),
        ("flag", "int64", "uint32"),
        ("index", "float32", "int64"),
        ("count", "uint32", "int64"),
    ],
)
def test_what_a_field_holds(kind: Any, accumulate: str, expected: str) -> None:
    assert field_type(kind, accumulate) == expected


def test_what_keeps_its_losses() -> None:
    floats = {name for name in OPERATORS if keeps_losses(OPERATORS[name], "float32")}
    sums = {"sum", "nansum", "mean", "norm_l1", "norm_l2", "sumsq", "dot", "var", "std", "logsumexp"}
    assert floats == sums
    assert not any(keeps_losses(op, "int64") for op in EVERY)
    assert keeps_losses(operator("sum", "complex64"), "float32")
    assert not keeps_losses(operator("prod", "complex64"), "float32")


@pytest.mark.parametrize(("op", "dtype"), [("nanmax", "complex64"), ("bitwise_or", "float32"), ("std", "complex128")])
def test_what_an_operator_does_not_take_is_named(op: str, dtype: str) -> None:
    with pytest.raises(UsageError) as caught:
        operator_for(OPERATORS[op], DTYPES[dtype])
    sentence = str(caught.value)
    assert sentence.startswith(f"{op} of {dtype} has no meaning: choose from bool, int8, ")
    named = sentence.partition("choose from ")[2].split(", ")
    assert named == [d for d in DTYPES if (op, d) in PAIRS]


# --- empty, all of one kind, the ends of the range ----------------------------------------------------------------------


@ENTRIES
def test_empty_is_numpys(op: Operator, dtype: Dtype) -> None:
    if dtype.name == "bfloat16":
        pytest.skip("numpy has no bfloat16")
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            expected = NUMPY[op.name](*zeros(op, dtype.name, 0), axis=-1)[0]
    except (ValueError, IndexError):
        if op.name in ("norm_inf", "logsumexp"):
            pytest.skip("older numpy, and our own, raise where later ones have an answer")
        assert op.empty is None
        return
    assert op.empty is not None
    np.testing.assert_equal(np.asarray(op.empty).astype(expected.dtype), expected)


@ENTRIES
def test_the_identity_finishes_as_empty(op: Operator, dtype: Dtype) -> None:
    """What a row without elements, or with none that a mask lets through, comes to."""
    if op.empty is None:
        pytest.skip("a reduction of nothing is an error")
    accumulate, result = accumulate_type(op, dtype), DTYPES[result_type(op, dtype)]
    got = numpy_finish(op, accumulate, result, numpy_identity(op, accumulate), count=0)
    if dtype.kind == "complex" and math.isnan(op.empty):
        assert np.isnan(got)
    else:
        np.testing.assert_equal(got, np.asarray(op.empty).astype(got.dtype))


def folded(name: str, dtype: str, values: Any, ddof: int = 0) -> Any:
    element = DTYPES[dtype]
    return fold(operator(name, dtype), element, element.decode(element.encode(np.array([values]))), ddof=ddof)[0]


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
        near = (n.bit_length() + 8) * u * exact + 2 * element.u * exact + float(limits_smallest(element))
        assert abs(float(got[0]) - exact) <= near or got[0] == rounded[0], (x, got, exact)


def limits_smallest(dtype: Dtype) -> float:
    return {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149}.get(dtype.name, 5e-324)


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


# --- the entries themselves -------------------------------------------------------------------------------------------


@VARIANTS
def test_entries_are_well_formed(op: Operator) -> None:
    assert 1 <= len(op.state) <= 3
    assert len(op.identity) == len(op.lift) == len(op.merge) == len(op.state)
    assert len(op.finish) == (2 if "complex" in op.accepts else 1)
    fields = {field for field, _ in op.state}
    thresholds = {"huge_from", "huge_scale", "tiny_below", "tiny_scale"}
    extremes = {"lowest", "highest", "nan_or_lowest", "nan_or_highest", "no_index"}
    element = {"x.re", "x.im", "y.re", "y.im"} if "complex" in op.accepts else {"x", "y", "i"} | thresholds
    both = {f"{side}.{field}" for side in "ab" for field in fields}
    lets = [let.name for let in op.lets]
    assert all(names_in(text) <= extremes for text in op.identity)
    assert all(names_in(text) <= element for text in op.lift)
    assert op.inputs == 1 + any({"y", "y.re"} & names_in(text) for text in op.lift)
    for k, let in enumerate(op.lets):
        assert names_in(let.text) <= both | set(lets[:k])
    assert all(names_in(text) <= both | set(lets) for text in op.merge)
    assert set(lets) <= set().union(*map(names_in, op.merge))
    assert all(names_in(text) <= {f"a.{f}" for f in fields} | {"count", "ddof"} | thresholds for text in op.finish)
    assert op.exact or op.tolerance is not None, "the judge needs a bound for what rounds"
    assert op.meaning[0].islower() or op.meaning.startswith("log")
    assert not op.meaning.endswith(".")


@VARIANTS
def test_what_is_added_up_is_written_as_a_sum(op: Operator) -> None:
    """A sum that keeps what it loses is its own field of `a` plus the rest, and what was lost before goes through the
    terms that are linear in the field."""
    for (field, kind), merge in zip(op.state, op.merge, strict=True):
        if kind != "sum":
            continue
        first, *others = addends(merge)
        assert f"a.{field}" in names_in(first)
        assert others
        for term in addends(merge):
            assert term.count(f"a.{field}") <= 1


@NAMES
def test_a_complex_entry_says_the_same(op: Operator) -> None:
    if op.on_complex is None:
        pytest.skip("it has none")
    twin = op.on_complex
    assert (twin.name, twin.meaning.partition(";")[0], twin.inputs) == (op.name, op.meaning, op.inputs)
    np.testing.assert_equal(twin.empty, op.empty)
    assert twin.on_complex is None
    assert operator_for(op, DTYPES["complex64"]) is twin
    assert operator_for(op, DTYPES["float32"]) is op


@pytest.mark.parametrize(
    ("lookup", "name", "nearest", "table"),
    [(operator_named, "smu", "sum", OPERATORS), (dtype_named, "flaot32", "float32", DTYPES)],
)
def test_an_unknown_name_gets_the_nearest_and_the_list(lookup: Any, name: str, nearest: str, table: Any) -> None:
    with pytest.raises(UsageError) as caught:
        lookup(name)
    sentence = str(caught.value)
    assert repr(name) in sentence
    assert f"did you mean {nearest!r}?" in sentence
    assert sentence.endswith(f"choose from {', '.join(sorted(table))}")


def test_an_unknown_name_near_to_none_gets_the_list_only() -> None:
    with pytest.raises(UsageError, match=r"^there is no operator 'xyzzy': choose from ") as caught:
        operator_named("xyzzy")
    assert "did you mean" not in str(caught.value)
