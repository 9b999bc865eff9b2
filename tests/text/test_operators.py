"""The laws every operator keeps, on values where a wrong entry would show; numpy evaluates the entries' own text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from redtune.dtypes import DTYPES, Dtype, dtype_named
from redtune.errors import UsageError
from redtune.evaluation import State, numpy_finish, numpy_fold, numpy_identity, numpy_lift, numpy_merge
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
    operator_of,
    result_of,
    result_type,
)
from redtune.problems import make_problem
from tests.text.folds import Array, entries, exact_values, special_values
from tests.text.kernels import PAIRS, operator

ENTRIES = entries()
EVERY = [*OPERATORS.values(), *(op.on_complex for op in OPERATORS.values() if op.on_complex)]
VARIANTS = pytest.mark.parametrize("op", EVERY, ids=lambda op: f"{op.name}-{'-'.join(op.accepts)}")
INDICES = np.array([0, 1, 7, 2**31, 2**62])


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


# --- types ------------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("op", [op for op in OPERATORS.values() if op.on_complex], ids=lambda op: op.name)
def test_a_complex_entry_says_the_same(op: Operator) -> None:
    twin = op.on_complex
    assert twin is not None
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


@pytest.mark.parametrize(("dtype", "extreme"), [("int64", -(2**63)), ("uint64", 2**64 - 1)])
@pytest.mark.parametrize("result", ["float32", "float64", None])
def test_no_square_of_an_integer_overflows(dtype: str, extreme: int, result: str | None) -> None:
    problem = make_problem("norm_l2", dtype, 5000, result=result)
    op, accumulate = operator_of(problem), problem.accumulate
    x = np.full((1, 5000), extreme, dtype).astype(accumulate)
    norm = numpy_finish(op, accumulate, dtype_named(result_of(problem)), numpy_fold(op, accumulate, [x]), 5000)
    np.testing.assert_allclose(norm, abs(float(extreme)) * np.sqrt(5000), rtol=1e-5)
    assert len(op.state) == (3 if result == "float32" else 1), "scaling costs, so only where it is needed"
