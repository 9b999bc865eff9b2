"""The cells of the benchmark matrix, how it is restricted, and the line through its large sizes."""

from __future__ import annotations

import pytest

from redtune import cells
from redtune.errors import UsageError
from redtune.fits import Fit, fits_of, line
from redtune.operators import OPERATORS
from redtune.plan import read_bytes


def test_the_full_matrix_has_every_operator_dtype_and_size() -> None:
    full = cells.full("gpu")
    assert len(full) == len(set(full)) > 1200
    flat = {(c.problem.op, c.problem.dtype, c.size) for c in full if c.problem.layout == "flat"}
    for op, entry in OPERATORS.items():
        for dtype in cells.KINDS:
            sizes = {size for o, d, size in flat if (o, d) == (op, dtype)}
            has_meaning = cells.DTYPES[dtype].kind in entry.accepts
            is_another = op in cells.SAME_WITHOUT_NAN and cells.DTYPES[dtype].kind != "float"
            expected = {"2^12", "2^16", "2^20", "2^24", "1 GiB"}
            expected |= {"2^18", "2^22"} if op in cells.FITTED_OPS else set()
            assert sizes - {"2^26"} == (expected if has_meaning and not is_another else set()), (op, dtype)


def test_rows_and_columns_have_every_shape() -> None:
    shaped = [c for c in cells.full("gpu") if c.problem.layout != "flat"]
    assert len(shaped) == len(cells.SHAPES) * 2 * len(cells.SHAPED_OPS) * len(cells.SHAPED_KINDS)
    rows = {(c.problem.outer, c.problem.n) for c in shaped if c.problem.layout == "rows"}
    columns = {(c.problem.n, c.problem.inner) for c in shaped if c.problem.layout == "columns"}
    assert rows == columns == {(1 << 24, 16), (1 << 20, 256), (1 << 16, 4096), (1 << 12, 65536), (128, 1 << 21)}


def test_a_wide_dtype_has_fewer_results_and_the_same_rows() -> None:
    wide = cells.shaped_cell("sum", "float64", (1 << 20, 256), -1, "gpu")
    assert (wide.problem.outer, wide.problem.n) == (1 << 19, 256)
    assert read_bytes(wide.problem) == cells.GIB
    column = cells.shaped_cell("sum", "float64", (1 << 16, 4096), 0, "gpu")
    assert (column.problem.n, column.problem.inner) == (1 << 16, 2048)


@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_no_cell_is_larger_than_the_device_kind_allows(kind: str) -> None:
    for cell in cells.full(kind):
        elements = cell.problem.n * cell.problem.results
        assert read_bytes(cell.problem) <= cells.GIB if kind == "gpu" else elements <= cells.CPU_ELEMENTS
    largest = [read_bytes(c.problem) for c in cells.full("gpu") if c.size == "1 GiB"]
    assert set(largest) == {cells.GIB}


@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_the_quick_matrix_is_a_part_of_the_full_one(kind: str) -> None:
    quick = cells.quick(kind)
    assert 35 <= len(quick) == len(set(quick)) <= 45
    assert set(quick) <= set(cells.full(kind))
    assert {c.problem.layout for c in quick} == set(cells.LAYOUTS)


def test_a_time_limit_cuts_the_least_interesting() -> None:
    full = cells.full("gpu")
    first, last = full[: len(full) // 4], full[-len(full) // 4 :]
    assert {"sum", "max"} <= {c.problem.op for c in first[:40]}
    assert not {("sum", "float32"), ("max", "float32")} & {(c.problem.op, c.problem.dtype) for c in last}


def test_what_is_named_is_left() -> None:
    left = cells.restricted(cells.full("gpu"), ["max"], ["int8"], ["rows", "flat"])
    assert {(c.problem.op, c.problem.dtype) for c in left} == {("max", "int8")}
    assert {c.problem.layout for c in left} == {"rows", "flat"}
    assert cells.restricted(left) == left


@pytest.mark.parametrize(
    ("ops", "dtypes", "layouts", "says"),
    [
        (["summ"], [], [], "no operator 'summ': did you mean 'sum'"),
        ([], ["float23"], [], "no dtype 'float23': did you mean 'float32'"),
        ([], [], ["row"], "no layout 'row': did you mean 'rows'"),
        (["bitwise_or"], ["float32"], [], "no cell of this matrix is of bitwise_or and float32"),
    ],
)
def test_a_wrong_name_is_told(ops: list[str], dtypes: list[str], layouts: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        cells.restricted(cells.full("gpu"), ops, dtypes, layouts)


def test_the_line_is_found_again() -> None:
    sizes = [1 << 26, 1 << 28, 1 << 30]
    c, rate = line((size, 4.2 + size / 4527e3) for size in sizes)
    assert c == pytest.approx(4.2, rel=1e-6)
    assert rate == pytest.approx(4527e3, rel=1e-6)


def test_every_size_counts_alike_in_the_line() -> None:
    """One percent off at the largest size moves c by less than its whole: it would by far more in absolute terms."""
    times = {size: 4.0 + size / 4500e3 for size in (1 << 26, 1 << 28, 1 << 30)}
    times[1 << 30] *= 1.01
    c, rate = line(times.items())
    assert c == pytest.approx(4.0, abs=0.6)
    assert rate == pytest.approx(4500e3, rel=0.02)


def test_a_line_needs_two_sizes() -> None:
    with pytest.raises(ValueError, match="two sizes"):
        line([(100, 1.0), (100, 2.0)])
    times = {("sum", "float32", "CUB"): {1 << 26: 20.0}, ("sum", "float32", "redtune"): {1 << 26: 10.0, 1 << 27: 20.0}}
    assert fits_of(times) == [
        Fit("sum", "float32", "redtune", pytest.approx(0.0, abs=1e-9), pytest.approx(6710.8864), 2)
    ]


def test_a_time_that_does_not_grow_has_no_rate() -> None:
    assert line([(1 << 26, 10.0), (1 << 28, 10.0)])[1] == float("inf")
