"""Results of several implementations beside each other: who differs, and what rounding explains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from redtune.agreement import ENDS, agreement, compared_places, tolerance
from redtune.beside import Answer
from redtune.problems import make_problem

SUM = make_problem("sum", "float32", 1 << 20)


def given(*values: Any, dtype: str = "float32", op: str = "sum", n: int = 1 << 20, of: str = "") -> list[Answer]:
    rows = [(f"e{k}", dtype, np.atleast_1d(np.asarray(value, dtype))) for k, value in enumerate(values)]
    return agreement(make_problem(op, of or dtype, n), rows)


def odd(answers: list[Answer]) -> list[str]:
    return [answer.name for answer in answers if answer.is_odd]


def test_rounding_is_no_difference() -> None:
    assert odd(given(1048576.0, 1048577.0, 1048575.0)) == []
    assert [str(answer) for answer in given(1.0, 1.0)] == ["e0 agrees", "e1 agrees"]


def test_one_missing_block_is_found_out() -> None:
    right = float(1 << 20)
    answers = given(right, right + 1, right * (1 - 1 / 1024))
    assert odd(answers) == ["e2"]
    assert answers[2].differs_from == ("e0", "e1")
    assert answers[0].differs_from == ("e2",)
    assert answers[2].off == pytest.approx(1 / 1024, rel=0.01)
    assert str(answers[2]) == "e2 gave 1.047552e+06 and differs from e0, e1 by up to 0.00098"


def test_of_two_that_differ_both_are_in_doubt() -> None:
    assert odd(given(1.0, 2.0)) == ["e0", "e1"]
    assert odd(given(1.0)) == []


def test_two_against_two_are_all_in_doubt() -> None:
    assert odd(given(1.0, 1.0, 2.0, 2.0)) == ["e0", "e1", "e2", "e3"]


def test_what_picks_must_be_equal() -> None:
    above = float(np.nextafter(np.float32(1.5), np.float32(2)))
    assert odd(given(1.5, 1.5, above, op="max")) == ["e2"]
    assert odd(given(7, 7, 8, dtype="int64", op="argmax", of="float32")) == ["e2"]


def test_integers_wrap_around_alike() -> None:
    rows = [("ours", "uint64", np.array([2**64 - 5], np.uint64)), ("other", "int64", np.array([-5], np.int64))]
    assert odd(agreement(make_problem("sum", "uint8", 100), rows)) == []
    assert odd(given(5, 5, 6, dtype="int64", of="int8")) == ["e2"]


def test_a_coarser_dtype_may_be_coarser() -> None:
    rows = [("ours", "float32", np.array([1000.3], np.float32)), ("half", "float16", np.array([1000.5], np.float16))]
    assert odd(agreement(make_problem("sum", "float16", 1000), rows)) == []
    rows[1] = ("half", "float16", np.array([1010.0], np.float16))
    assert odd(agreement(make_problem("sum", "float16", 1000), rows)) == ["ours", "half"]


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_infinities_and_nan_agree_with_themselves_alone(value: float) -> None:
    assert odd(given(value, value, 1.0)) == ["e2"]
    assert given(value, value, 1.0)[2].off == np.inf


def test_a_product_may_reach_zero_earlier() -> None:
    assert odd(given(0.0, 1e-45, op="prod")) == []


def test_different_numbers_of_results_differ() -> None:
    rows = [("a", "float32", np.ones(3, np.float32)), ("b", "float32", np.ones(4, np.float32))]
    assert odd(agreement(SUM, rows)) == ["a", "b"]


def test_of_many_results_both_ends_and_the_middle_are_compared() -> None:
    assert compared_places(100) == [(0, 100)]
    pieces = compared_places(1 << 24)
    assert [count for _, count in pieces] == [ENDS] * 3
    assert pieces[0][0] == 0
    assert pieces[-1][0] + ENDS == 1 << 24


def test_one_long_chain_of_additions_is_no_fault() -> None:
    column = make_problem("sum", "float32", 1 << 20, inner=32)
    assert 2e-5 < tolerance(column, "float32") < 2e-4
    assert tolerance(SUM, "float32") < 1e-5


def test_tolerance_grows_slowly() -> None:
    """A dropped part in ten thousand shows at any size."""
    for n in (1 << 12, 1 << 20, 1 << 28):
        assert tolerance(make_problem("sum", "float32", n), "float32", "float32") < 1e-4
    assert tolerance(make_problem("max", "float32", 9), "float32", "float32") == 0
