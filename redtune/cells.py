"""The cells of the benchmark matrix, the most interesting first: a time limit cuts the least interesting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from redtune.dtypes import DTYPES, dtype_named, unknown
from redtune.errors import UsageError
from redtune.operators import OPERATORS, operator_named
from redtune.problems import make_problem
from redtune.types import Problem

LAYOUTS = ("flat", "rows", "columns")
KINDS = ("float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8", "bool")
GIB = 1 << 30
CPU_ELEMENTS = 1 << 25  # at most on a CPU
SPELLED = 1 << 16  # a length up to here is written as a number in a shape
FLAT = {"gpu": (12, 16, 20, 24), "cpu": (12, 16, 20, 22, 24)}  # as powers of two, beside the largest
# More for the operators that libraries are best at, and that the line through times and bytes matters for.
BETWEEN: dict[str, tuple[int, ...]] = {"gpu": (18, 22), "cpu": ()}
FITTED = 26
FITTED_OPS = ("sum", "max", "argmax")
SHAPES = ((24, 4), (20, 8), (16, 12), (12, 16), (7, 21))  # rows and columns of a C array, as powers of two
SHAPED_OPS = ("sum", "max", "argmax", "logsumexp", "var", "mean", "norm_l2", "any")
SHAPED_KINDS = ("float32", "float16", "int8")
SAME_WITHOUT_NAN = ("nanmax", "nanmin", "nansum")  # of a type without NaN these are max, min and sum

# How interesting a part of a cell is; what is not named comes last.
FIRST_OPS = dict.fromkeys(("sum", "max"), 0)
FIRST_OPS |= dict.fromkeys(("argmax", "mean", "prod", "min", "any", "var", "norm_l2", "logsumexp", "count_nonzero"), 1)
FIRST_KINDS = {"float32": 0, "float16": 1, "int8": 1, "int32": 1, "bfloat16": 2, "float64": 2}
FIRST_SIZES = {"2^20": 0, "2^12": 1, "2^24": 1, "2^16": 2}


@dataclass(frozen=True, slots=True)
class Cell:
    """One problem of the matrix, and its size as the matrix calls it."""

    problem: Problem
    size: str

    def __str__(self) -> str:
        return f"{self.problem.op} {self.problem.dtype} {self.problem.layout} {self.size}"


def power(n: int) -> str:
    """2^20 for a large power of two; the number for any other."""
    return f"2^{n.bit_length() - 1}" if n & (n - 1) == 0 and n > SPELLED else str(n)


def most_bytes(op: str, dtype: str, kind: str) -> int:
    """What the largest cell may read on a device of that kind."""
    element = dtype_named(dtype).bytes * operator_named(op).inputs
    return GIB if kind == "gpu" else CPU_ELEMENTS * element


def flat_cell(op: str, dtype: str, n: int, size: str = "") -> Cell:
    """All of `n` elements into one."""
    return Cell(make_problem(op, dtype, n), size or (f"2^{n.bit_length() - 1}" if n & (n - 1) == 0 else str(n)))


def largest_cell(op: str, dtype: str, kind: str) -> Cell:
    """The largest flat cell: of 1 GiB on a GPU."""
    n = most_bytes(op, dtype, kind) // (dtype_named(dtype).bytes * operator_named(op).inputs)
    return flat_cell(op, dtype, n, "1 GiB" if kind == "gpu" else "")


def shaped_cell(op: str, dtype: str, shape: tuple[int, int], axis: int, kind: str) -> Cell:
    """The rows (axis -1) or columns (axis 0) of a C array, with fewer results where it would be too large."""
    rows, columns = shape
    n, results = (columns, rows) if axis == -1 else (rows, columns)
    element, most = dtype_named(dtype).bytes * operator_named(op).inputs, most_bytes(op, dtype, kind)
    while results > 1 and n * results * element > most:
        results //= 2
    if axis == -1:
        return Cell(make_problem(op, dtype, n, outer=results), f"{power(results)} x {power(n)}")
    return Cell(make_problem(op, dtype, n, inner=results), f"{power(n)} x {power(results)}")


def full(kind: str) -> list[Cell]:
    """Every cell for a device of that kind ("gpu" or "cpu")."""
    return _ordered([*_flat(kind), *_shaped(kind)])


def _ordered(cells: Sequence[Cell]) -> list[Cell]:
    """The most interesting first, those of one dtype together: they share their data."""
    return sorted(cells, key=lambda cell: (_rank(cell), KINDS.index(cell.problem.dtype)))


def _takes(op: str, dtype: str) -> bool:
    kind = DTYPES[dtype].kind
    return kind in OPERATORS[op].accepts and (kind == "float" or op not in SAME_WITHOUT_NAN)


def _flat(kind: str) -> Iterator[Cell]:
    for op in OPERATORS:
        for dtype in KINDS:
            if not _takes(op, dtype):
                continue
            last = largest_cell(op, dtype, kind)
            wanted = [1 << power for power in FLAT[kind]]
            wanted += [1 << power for power in BETWEEN[kind] if op in FITTED_OPS]
            wanted += [1 << FITTED] if (op in FITTED_OPS and dtype == "float32") else []
            yield from (flat_cell(op, dtype, n) for n in wanted if n < last.problem.n)
            yield last


def _shaped(kind: str) -> Iterator[Cell]:
    for op in SHAPED_OPS:
        for dtype in SHAPED_KINDS:
            for rows, columns in SHAPES:
                for axis in (-1, 0):
                    yield shaped_cell(op, dtype, (1 << rows, 1 << columns), axis, kind)


def _rank(cell: Cell) -> int:
    problem = cell.problem
    is_large = problem.layout != "flat" or problem.results * problem.n >= CPU_ELEMENTS
    size = 0 if is_large else FIRST_SIZES.get(cell.size, 2)
    return FIRST_OPS.get(problem.op, 3) + FIRST_KINDS.get(problem.dtype, 3) + size + (problem.layout == "columns")


def quick(kind: str) -> list[Cell]:
    """About 40 of them: every layout, every kind of operator, every width of dtype, small and large."""
    cells = [flat_cell("sum", "float32", 1 << k) for k in (*FLAT[kind], *BETWEEN[kind])]
    cells += [flat_cell("sum", "float32", 1 << FITTED)] * (kind == "gpu")
    cells += [flat_cell("max", "float32", 1 << k) for k in (12, 20, 24)]
    cells += [flat_cell(op, dtype, 1 << 20) for op, dtype in (("sum", "int8"), ("max", "int32"), ("argmax", "float32"))]
    for op in ("sum", "max", "argmax", "mean", "var", "logsumexp", "norm_l2", "count_nonzero", "dot"):
        cells.append(largest_cell(op, "float32", kind))
    for dtype in ("float64", "float16", "bfloat16", "int8", "int32"):
        cells.append(largest_cell("sum", dtype, kind))
    cells += [largest_cell("max", dtype, kind) for dtype in ("float16", "int8")] + [largest_cell("any", "bool", kind)]
    for rows, columns in SHAPES:
        cells += [shaped_cell("sum", "float32", (1 << rows, 1 << columns), axis, kind) for axis in (-1, 0)]
    return _ordered(cells)


def restricted(
    cells: Sequence[Cell], ops: Sequence[str] = (), dtypes: Sequence[str] = (), layouts: Sequence[str] = ()
) -> list[Cell]:
    """Those of some operators, dtypes and layouts; all where none is named. Raises UsageError for an unknown name, and
    where no cell is left."""
    for op in ops:
        operator_named(op)
    for dtype in dtypes:
        dtype_named(dtype)
    for layout in layouts:
        if layout not in LAYOUTS:
            raise UsageError(unknown("layout", layout, LAYOUTS))

    def is_wanted(problem: Problem) -> bool:
        wanted = ((problem.op, ops), (problem.dtype, dtypes), (problem.layout, layouts))
        return all(not names or name in names for name, names in wanted)

    left = [cell for cell in cells if is_wanted(cell.problem)]
    if not left:
        asked = " and ".join(", ".join(names) for names in (ops, dtypes, layouts) if names)
        raise UsageError(f"no cell of this matrix is of {asked}; --full has more cells than --quick")
    return left
