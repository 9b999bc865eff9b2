"""What redtune.reduce does on arrays of any kind. A test class of a kind brings a fixture `kind`: what makes an array
of a numpy array, and what reads one back.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import redtune
from redtune.config import Config
from redtune.errors import UsageError
from tests.device.oracle import Asked, answer

AXES: list[Any] = [None, 0, 1, -1, (0,), (0, 2), (2, 0), (-1, 0), (0, 1, 2), ()]
SHAPES = ((0,), (0, 3), (3, 0), (2, 0, 3), (0, 0))
CUTS = ([0, 3, 3, 10, 40], [5, 6], [0, 0, 0], [40, 40], [7], [0, 40], [2, 3, 5, 8, 13, 21, 34])


def numbers(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    """Small whole numbers, whose sums are exact."""
    return np.random.default_rng(seed).integers(0 if dtype[0] == "u" else -9, 9, shape).astype(dtype)


def is_same(got: Any, right: Any) -> bool:
    """Whether dtype, shape and elements are the same."""
    return got.dtype == right.dtype and got.shape == right.shape and bool((got == right).all())


def assert_one_line(error: BaseException, words: tuple[str, ...]) -> None:
    text = str(error)
    assert text
    assert "\n" not in text
    for word in words:
        assert word in text, text


X = numbers(2, 3)
FLAT = numbers(6)

# (what is wrong, the call, the exception that numpy has for it, words that the sentence must have)
Refusal = tuple[str, Callable[[Any], Any], type[Exception], tuple[str, ...]]


def refused(*args: Any, **options: Any) -> Callable[[Any], Any]:
    """A call whose arrays are made at the time."""

    def made(value: Any, make: Any) -> Any:
        if isinstance(value, np.ndarray) and value.dtype.kind not in "OUMmV":
            return make(value)
        return tuple(made(one, make) for one in value) if isinstance(value, tuple) else value

    def call(make: Any) -> Any:
        x, *rest = args
        taken = {name: made(value, make) if name in ("where", "out") else value for name, value in options.items()}
        return redtune.reduce(made(x, make), *rest, **taken)

    return call


REFUSALS: list[Refusal] = [
    ("an axis too high", refused(X, "sum", 2), np.exceptions.AxisError, ("axis 2", "2")),
    ("an axis too low", refused(X, "sum", -3), np.exceptions.AxisError, ("axis -3", "2")),
    ("an axis of several too high", refused(X, "sum", (0, 5)), np.exceptions.AxisError, ("axis 5",)),
    ("an axis of none", refused(np.array(1.0), "sum", 1), np.exceptions.AxisError, ("axis 1", "0")),
    ("an axis too high for an index", refused(X, "argmax", 2), np.exceptions.AxisError, ("axis 2",)),
    ("an axis twice", refused(X, "sum", (0, -2)), ValueError, ("(0, -2)",)),
    ("a float axis", refused(X, "sum", 1.5), TypeError, ("1.5",)),
    ("a float axis of several", refused(X, "sum", (0, 1.5)), TypeError, ("1.5",)),
    ("a name as an axis", refused(X, "sum", "rows"), TypeError, ("'rows'",)),
    ("a mapping as an axis", refused(X, "sum", {}), TypeError, ("{}",)),
    ("several axes of an index", refused(X, "argmax", (0, 1)), TypeError, ("argmax", "(0, 1)")),
    ("the max of nothing", refused(np.zeros((0, 3)), "max"), ValueError, ("max", "(0, 3)")),
    ("the max along nothing", refused(np.zeros((0, 3)), "max", 0), ValueError, ("max", "(0, 3)")),
    ("the index along nothing", refused(np.zeros((3, 0)), "argmin", 1), ValueError, ("argmin", "(3, 0)")),
    ("nanmin of nothing", refused(np.zeros(0), "nanmin"), ValueError, ("nanmin", "(0,)")),
    ("out of another shape", refused(X, "sum", 0, out=np.zeros(2, np.float32)), ValueError, ("(2,)", "(3,)")),
    ("out of another number of axes", refused(X, "sum", out=np.zeros(1, np.float32)), ValueError, ("(1,)", "()")),
    ("out of another dtype", refused(X, "sum", out=np.zeros(())), TypeError, ("float64", "float32")),
    ("out that is no array", refused(X, "sum", out=[1]), TypeError, ("out",)),
    ("out that is a number", refused(X, "sum", out=5), TypeError, ("out",)),
    ("one input of two", refused(X, "dot"), TypeError, ("dot", "2")),
    ("three inputs of two", refused((X, X, X), "dot"), TypeError, ("dot", "2")),
    ("inputs of two dtypes", refused((X, X.astype(int)), "dot"), TypeError, ("dot", "float32", "int64")),
    ("inputs that do not broadcast", refused((X, X[:, :2]), "dot"), ValueError, ("(2, 3)", "(2, 2)")),
    ("offsets that fall", refused(FLAT, "sum", offsets=[0, 3, 2]), ValueError, ("2", "3")),
    ("offsets past the end", refused(FLAT, "sum", offsets=[0, 7]), ValueError, ("7", "6")),
    ("offsets below the start", refused(FLAT, "sum", offsets=[-1, 3]), ValueError, ("-1",)),
    ("no offsets", refused(FLAT, "sum", offsets=[]), ValueError, ("(0,)",)),
    ("offsets of two axes", refused(FLAT, "sum", offsets=[[0, 3]]), ValueError, ("(1, 2)",)),
    ("a number as offsets", refused(FLAT, "sum", offsets=3), ValueError, ("()",)),
    ("float offsets", refused(FLAT, "sum", offsets=[0.0, 3.0]), ValueError, ("float64",)),
    ("words as offsets", refused(FLAT, "sum", offsets=["a"]), ValueError, ("U1",)),
    ("offsets of rows", refused(X, "sum", offsets=[0, 2]), ValueError, ("(2, 3)",)),
    ("an empty row of max", refused(FLAT, "max", offsets=[0, 3, 3]), ValueError, ("1", "max")),
    ("an empty row of an index", refused(FLAT, "argmax", offsets=[2, 2]), ValueError, ("0", "argmax")),
    ("a mask of integers", refused(X, "sum", where=np.ones((2, 3), int)), TypeError, ("int64", "bool")),
    ("a mask of floats", refused(X, "sum", where=np.ones(3)), TypeError, ("float64", "bool")),
    ("a mask that does not broadcast", refused(X, "sum", where=np.ones(2, bool)), ValueError, ("(2,)", "(2, 3)")),
    ("a mask of more axes", refused(X, "sum", where=np.ones((4, 2, 3), bool)), ValueError, ("(4, 2, 3)", "(2, 3)")),
    ("a mask for an index", refused(X, "argmax", where=np.ones((2, 3), bool)), TypeError, ("argmax", "where")),
    ("a mask for max alone", refused(X, "max", where=np.ones((2, 3), bool)), ValueError, ("max", "initial")),
    ("an initial value of var", refused(X, "var", initial=1), TypeError, ("var", "initial")),
    ("an initial value of an index", refused(X, "argmax", initial=1), TypeError, ("argmax", "initial")),
    ("an initial value of mean", refused(X, "mean", initial=1), TypeError, ("mean", "initial")),
    ("a word as an initial value", refused(X, "sum", initial="a"), (TypeError, ValueError), ("'a'",)),
    ("a list as an initial value", refused(X, "sum", initial=[1, 2]), (TypeError, ValueError), ("[1, 2]",)),
    ("a complex initial value", refused(X, "sum", initial=1j), TypeError, ("1j",)),
    ("a float ddof", refused(X, "var", ddof=1.5), TypeError, ("1.5",)),
    ("a word as ddof", refused(X, "std", ddof="1"), TypeError, ("'1'",)),
    ("a truth value as ddof", refused(X, "var", ddof=True), TypeError, ("True",)),
    ("None as ddof", refused(X, "var", ddof=None), TypeError, ("None",)),
    ("an operator that is none", refused(X, "maxx"), UsageError, ("'maxx'", "'max'")),
    ("an operator without a name", refused(X, ""), UsageError, ("''",)),
    ("a number as an operator", refused(X, 3), (TypeError, UsageError), ("3",)),
    ("None as an operator", refused(X, None), (TypeError, UsageError), ("None",)),
    ("a list as an operator", refused(X, ["sum"]), (TypeError, UsageError), ("['sum']",)),
    ("accumulate that is none", refused(X, "sum", accumulate="float46"), UsageError, ("'float46'", "'float64'")),
    ("a number as accumulate", refused(X, "sum", accumulate=3), (TypeError, UsageError), ("3",)),
    ("accumulate of integers", refused(X.astype(int), "sum", accumulate="float64"), UsageError, ("int64", "float64")),
    ("compensated max", refused(X, "max", accumulate="compensated"), UsageError, ("max", "compensated")),
    ("determinism that is none", refused(X, "sum", determinism="always"), UsageError, ("'always'", "run-to-run")),
    ("None as determinism", refused(X, "sum", determinism=None), UsageError, ("None",)),
    ("a dtype that is none", refused(X, "sum", dtype="float23"), TypeError, ("'float23'",)),
    ("a dtype that is reduced by none", refused(X, "sum", dtype=object), TypeError, ("object",)),
    ("a number as a dtype", refused(X, "sum", dtype=3), TypeError, ("3",)),
    ("a dtype for max", refused(X, "max", dtype="float64"), TypeError, ("max", "float64")),
    ("complex of real numbers", refused(X, "sum", dtype="complex64"), TypeError, ("float32", "complex64")),
    ("a whole mean", refused(X, "mean", dtype="int64"), TypeError, ("mean", "int64")),
    ("bits of floats", refused(X, "bitwise_and"), TypeError, ("bitwise_and", "float32")),
    ("the max of complex numbers", refused(X.astype("complex64"), "max"), TypeError, ("max", "complex64")),
    ("a config with a knob out of range", refused(X, "sum", config=Config(block=7)), UsageError, ("block", "7")),
    ("a config that cannot run", refused(X, "sum", config=Config(vector=16)), UsageError, ("vector 16",)),
    ("a config that is none", refused(X, "sum", config=3), (TypeError, UsageError), ("3",)),
]


class ArrayContract:
    """Calls on arrays of one kind."""

    @pytest.mark.parametrize("keepdims", [False, True])
    @pytest.mark.parametrize("axis", AXES, ids=str)
    def test_axes_and_keepdims_are_those_of_numpy(self, kind: Any, axis: Any, keepdims: bool) -> None:
        make, read = kind
        x = numbers(3, 4, 5)
        got = redtune.reduce(make(x), "sum", axis, keepdims=keepdims)
        assert type(got) is type(make(x))
        assert is_same(read(got), np.asarray(np.sum(x, axis, keepdims=keepdims)))

    def test_a_full_reduction_has_no_axis(self, kind: Any) -> None:
        make, _ = kind
        for op in ("sum", "max", "argmax", "any", "var"):
            got = redtune.reduce(make(numbers(3, 4)), op)
            assert type(got) is type(make(numbers(1)))
            assert got.shape == ()

    def test_an_array_without_axes_is_reduced(self, kind: Any) -> None:
        make, read = kind
        for axis in (None, 0, -1, ()):
            assert is_same(read(redtune.reduce(make(np.array(7.0)), "sum", axis)), np.array(7.0))
        assert is_same(read(redtune.reduce(make(np.array(7.0)), "argmax")), np.array(0))

    @pytest.mark.parametrize("keepdims", [False, True])
    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    def test_reductions_of_nothing_are_those_of_numpy(self, kind: Any, shape: tuple[int, ...], keepdims: bool) -> None:
        make, read = kind
        for op, axis in itertools.product(
            ("sum", "prod", "mean", "any", "all", "max", "nanmin", "argmax", "var"), (None, *range(len(shape)))
        ):
            asked = Asked(op, (np.zeros(shape, np.float32),), axis, keepdims=keepdims)
            try:
                right = answer(asked)
            except ValueError:
                with pytest.raises(ValueError, match=op):
                    redtune.reduce(make(asked.inputs[0]), op, axis, keepdims=keepdims)
                continue
            got = redtune.reduce(make(asked.inputs[0]), op, axis, keepdims=keepdims)
            assert type(got) is type(make(np.zeros(1)))
            assert right.fault(read(got)) == "", (op, axis)

    def test_an_initial_value_is_all_there_is_of_nothing(self, kind: Any) -> None:
        make, read = kind
        nothing = make(np.zeros((0, 2), np.float32))
        for op in ("sum", "max", "min", "prod", "nanmax"):
            assert is_same(read(redtune.reduce(nothing, op, 0, initial=3)), np.full(2, 3, np.float32)), op

    def test_out_of_nothing_is_filled(self, kind: Any) -> None:
        make, read = kind
        out = make(np.full(3, 7, np.float32))
        assert redtune.reduce(make(np.zeros((3, 0), np.float32)), "sum", 1, out=out) is out
        assert (read(out) == 0).all()

    @pytest.mark.parametrize("op", ["sum", "argmax", "var"])
    def test_out_is_filled_and_given_back(self, kind: Any, op: str) -> None:
        make, read = kind
        x = numbers(6, 7, dtype="float64")
        right = np.asarray(getattr(np, op)(x, 0))
        out = make(np.full(right.shape, 77, right.dtype))
        assert redtune.reduce(make(x), op, 0, out=out) is out
        np.testing.assert_allclose(read(out), right, 1e-12)

    def test_out_without_axes(self, kind: Any) -> None:
        make, read = kind
        out = make(np.zeros((), np.float32))
        assert redtune.reduce(make(numbers(50)), "sum", out=out) is out
        assert read(out) == numbers(50).sum()

    def test_out_with_keepdims(self, kind: Any) -> None:
        make, read = kind
        x = numbers(4, 5, 6)
        out = make(np.zeros((1, 5, 1), np.float32))
        assert redtune.reduce(make(x), "sum", (0, 2), keepdims=True, out=out) is out
        assert is_same(read(out), x.sum((0, 2), keepdims=True))

    @pytest.mark.parametrize("shape", [(6, 7), (7,), (6, 1), (1, 7), (1,), ()], ids=str)
    @pytest.mark.parametrize("axis", [None, 0, 1])
    def test_a_mask_broadcasts(self, kind: Any, shape: tuple[int, ...], axis: int | None) -> None:
        make, read = kind
        x, mask = numbers(6, 7), np.random.default_rng(2).random(shape) < 0.6
        got = redtune.reduce(make(x), "sum", axis, where=make(np.asarray(mask)))
        assert is_same(read(got), np.asarray(np.sum(x, axis, where=mask)))

    def test_max_with_a_mask_starts_from_its_initial_value(self, kind: Any) -> None:
        make, read = kind
        x, mask = numbers(6, 7), np.zeros((6, 7), bool)
        mask[2, 3] = True
        got = redtune.reduce(make(x), "max", 0, where=make(mask), initial=-50)
        assert is_same(read(got), np.max(x, 0, where=mask, initial=-50))

    @pytest.mark.parametrize("op", ["sum", "prod", "any", "mean", "var", "norm_l2", "logsumexp", "count_nonzero"])
    @pytest.mark.parametrize("cuts", CUTS, ids=str)
    def test_a_row_is_what_lies_between_two_offsets(self, kind: Any, op: str, cuts: list[int]) -> None:
        make, read = kind
        x = numbers(40, dtype="float64")
        got = read(redtune.reduce(make(x), op, offsets=cuts))
        assert got.shape == (len(cuts) - 1,)
        for k, (start, end) in enumerate(itertools.pairwise(cuts)):
            assert answer(Asked(op, (x[start:end],))).fault(got[k]) == "", k

    def test_an_index_counts_from_the_start_of_its_row(self, kind: Any) -> None:
        make, read = kind
        x, cuts = numbers(500), np.array([0, 1, 30, 31, 300, 500])
        right = [x[a:b].argmax() for a, b in itertools.pairwise(cuts)]
        assert is_same(read(redtune.reduce(make(x), "argmax", offsets=cuts)), np.array(right))

    @pytest.mark.parametrize(
        "shapes", [((6, 7), (7,)), ((7,), (6, 7)), ((6, 1), (1, 7)), ((), (6, 7)), ((6, 7), (1, 1, 1))], ids=str
    )
    def test_two_inputs_broadcast(self, kind: Any, shapes: Any) -> None:
        make, read = kind
        x, y = (numbers(*shape, seed=k) for k, shape in enumerate(shapes))
        product = np.asarray(x * y)
        for axis in (None, 0, -1):
            got = redtune.reduce((make(x), make(y)), "dot", axis)
            assert is_same(read(got), np.asarray(product.sum(axis)))

    @pytest.mark.parametrize(
        ("call", "kind_of", "words"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS]
    )
    def test_what_is_wrong_is_said_in_one_line(
        self, kind: Any, call: Any, kind_of: Any, words: tuple[str, ...]
    ) -> None:
        make, _ = kind
        with pytest.raises(kind_of) as caught:
            call(make)
        assert_one_line(caught.value, words)
