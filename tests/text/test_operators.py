"""The laws every operator keeps, on values where a wrong entry would show; numpy evaluates the entries' own text."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest

from redtune.dtypes import DTYPES, Dtype, dtype_named
from redtune.errors import UsageError
from redtune.expressions import parse
from redtune.operators import (
    OPERATORS,
    Operator,
    State,
    accumulate_type,
    is_order_free,
    numpy_finish,
    numpy_identity,
    numpy_lift,
    numpy_merge,
    operator_named,
    result_type,
)

PAIRS = [(op, dtype) for op in OPERATORS for dtype in DTYPES]
ENTRIES = pytest.mark.parametrize(
    ("op", "dtype"), [(OPERATORS[o], DTYPES[d]) for o, d in PAIRS], ids=map("-".join, PAIRS)
)
INDICES = np.array([0, 1, 7, 2**31, 2**62])


def special_values(dtype: Dtype) -> np.ndarray[Any, Any]:
    """The ends of the range, what is next to them, zeros, NaN, infinities, subnormals and a tie."""
    if dtype.kind != "float":
        info = np.iinfo(dtype.name)
        return np.array(
            [info.min, info.min + 1, 0, 1, 3, 3, info.max - 1, info.max] + [-1] * bool(info.min), dtype.name
        )
    largest = {"float16": 65504.0, "bfloat16": 3.3895e38}.get(dtype.name) or float(np.finfo(dtype.name).max)
    smallest = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 5e-324}[dtype.name]
    sides = [0.0, 1.0, 3.0, 3.0, smallest, largest, np.inf]
    return dtype.decode(dtype.encode(np.array([np.nan, *sides, *(-x for x in sides)])))


def exact_values(op: Operator, dtype: Dtype) -> np.ndarray[Any, Any]:
    """Values on which the operator does not round: all of them where it never does."""
    if is_order_free(op, accumulate_type(op, dtype)):
        return special_values(dtype)
    few = {"small": [-8.0, -3.0, 1.0, 5.0], "units": [-1.0, 1.0, 2.0, 0.5]}[op.bites]
    return dtype.decode(dtype.encode(np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, *few])))


def every_state(op: Operator, dtype: Dtype, values: np.ndarray[Any, Any]) -> State:
    """The states of each value at each index."""
    x, i = np.meshgrid(values, INDICES)
    return numpy_lift(op, accumulate_type(op, dtype), x.ravel(), i.ravel())


def at(state: State, where: Any) -> State:
    return {field: values[where] for field, values in state.items()}


def assert_same(a: State, b: State) -> None:
    """Equal in every field, NaN equal to NaN."""
    for field in a:
        np.testing.assert_array_equal(a[field], b[field], strict=True)


@ENTRIES
def test_the_identity_changes_nothing(op: Operator, dtype: Dtype) -> None:
    accumulate = accumulate_type(op, dtype)
    states = every_state(op, dtype, special_values(dtype))
    nothing = {f: np.broadcast_to(v, states[f].shape) for f, v in numpy_identity(op, accumulate).items()}
    assert_same(numpy_merge(op, accumulate, states, nothing), states)
    assert_same(numpy_merge(op, accumulate, nothing, states), states)
    assert_same(numpy_merge(op, accumulate, nothing, nothing), nothing)


@ENTRIES
def test_merging_is_commutative(op: Operator, dtype: Dtype) -> None:
    accumulate = accumulate_type(op, dtype)
    states = every_state(op, dtype, special_values(dtype))
    a, b = np.indices((len(INDICES) * len(special_values(dtype)),) * 2).reshape(2, -1)
    merged = numpy_merge(op, accumulate, at(states, a), at(states, b))
    assert_same(merged, numpy_merge(op, accumulate, at(states, b), at(states, a)))


@ENTRIES
def test_merging_is_associative(op: Operator, dtype: Dtype) -> None:
    accumulate = accumulate_type(op, dtype)
    values = exact_values(op, dtype)
    states = every_state(op, dtype, values)
    rng = np.random.default_rng(0)
    count = len(values) * len(INDICES)
    a, b, c = (at(states, rng.integers(0, count, 60_000)) for _ in range(3))
    left = numpy_merge(op, accumulate, numpy_merge(op, accumulate, a, b), c)
    assert_same(left, numpy_merge(op, accumulate, a, numpy_merge(op, accumulate, b, c)))


@ENTRIES
def test_folding_gives_what_numpy_gives(op: Operator, dtype: Dtype) -> None:
    accumulate = accumulate_type(op, dtype)
    values = exact_values(op, dtype)
    result = dtype_named(result_type(op, dtype))
    rng = np.random.default_rng(1)
    for n in [*range(1, 8), 40] * 12:
        x = rng.choice(values, n)
        state = numpy_identity(op, accumulate)
        for i in rng.permutation(n):  # no order may matter here
            state = numpy_merge(op, accumulate, state, numpy_lift(op, accumulate, x[i], np.int64(i)))
        with np.errstate(all="ignore"):
            # bfloat16 arrives as float32, in which these values do not round either
            expected = result.decode(result.encode(getattr(np, op.name)(x)))
            reference = result.decode(result.encode(np.asarray(op.reference(x))))
        got = numpy_finish(op, dtype, state)
        np.testing.assert_array_equal(got, expected, err_msg=str(x), strict=True)
        np.testing.assert_array_equal(reference, expected, err_msg=str(x), strict=True)


@pytest.mark.parametrize("op", OPERATORS.values(), ids=OPERATORS)
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bfloat16"])
def test_types_are_numpys(op: Operator, dtype: str) -> None:
    expected = getattr(np, op.name)(np.zeros(3, dtype)).dtype.name
    assert result_type(op, DTYPES[dtype]) == expected
    if op.result == "value" and DTYPES[dtype].bytes >= 4:
        assert accumulate_type(op, DTYPES[dtype]) == expected


@pytest.mark.parametrize("op", OPERATORS.values(), ids=OPERATORS)
def test_16_bit_floats_accumulate_in_float32(op: Operator) -> None:
    assert {accumulate_type(op, DTYPES[d]) for d in ("float16", "bfloat16", "float32")} == {"float32"}
    assert result_type(op, DTYPES["bfloat16"]) == ("int64" if op.result == "index" else "bfloat16")


def fold(name: str, dtype: str, values: Any) -> Any:
    op = OPERATORS[name]
    accumulate = accumulate_type(op, DTYPES[dtype])
    state = numpy_identity(op, accumulate)
    for i, x in enumerate(np.asarray(values, dtype)):
        state = numpy_merge(op, accumulate, state, numpy_lift(op, accumulate, x, np.int64(i)))
    return numpy_finish(op, DTYPES[dtype], state)


@pytest.mark.parametrize(
    ("op", "dtype", "values", "expected"),
    [
        ("sum", "int64", [2**63 - 1, 1], -(2**63)),
        ("sum", "int64", [-(2**63), -1], 2**63 - 1),
        ("sum", "uint64", [2**64 - 1, 2], 1),
        ("sum", "int8", [-128] * 3, -384),
        ("sum", "uint8", [255] * 3, 765),
        ("sum", "int32", [2**31 - 1] * 2, 2**32 - 2),
        ("prod", "int64", [2**62, 3], 3 * 2**62 - 2**64),
        ("prod", "int8", [-128, -128, -128], -(2**21)),
        ("max", "int8", [-128, -127], -127),
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
    ],
)
def test_known_results(op: str, dtype: str, values: list[Any], expected: Any) -> None:
    np.testing.assert_equal(fold(op, dtype, values).item(), expected)


@pytest.mark.parametrize("op", OPERATORS.values(), ids=OPERATORS)
def test_empty_is_numpys(op: Operator) -> None:
    if op.empty is None:
        with pytest.raises(ValueError, match=r"empty|zero-size"):
            getattr(np, op.name)(np.zeros(0))
    else:
        assert getattr(np, op.name)(np.zeros(0)) == op.empty


@pytest.mark.parametrize("op", OPERATORS.values(), ids=OPERATORS)
def test_entries_are_well_formed(op: Operator) -> None:
    assert 1 <= len(op.state) <= 3
    assert len(op.identity) == len(op.lift) == len(op.merge) == len(op.state)
    fields = {field for field, _ in op.state}
    limits = {"lowest", "highest", "no_index"}
    allowed = [(op.identity, limits), (op.lift, {"x", "i"}), ((op.finish,), {"a"})]
    allowed += [(op.merge, {"a", "b"} | ({"wins"} if op.wins else set())), ((op.wins,) if op.wins else (), {"a", "b"})]
    for expressions, names in allowed:
        for text in expressions:
            called = {id(node.func) for node in ast.walk(parse(text)) if isinstance(node, ast.Call)}
            nodes = [node for node in ast.walk(parse(text)) if id(node) not in called]
            assert {node.id for node in nodes if isinstance(node, ast.Name)} <= names
            assert {node.attr for node in nodes if isinstance(node, ast.Attribute)} <= fields
    assert op.exact or op.bound is not None, "the judge needs a bound for what rounds"


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
