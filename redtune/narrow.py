"""Where a tile of narrow integers is folded in 32 bits: exactly as in 64 bits or in doubles, and several times faster.

A thread folds at most MAX_UNROLLED elements of a tile. Where none of them can add more than a 128th of what 32 bits
hold, nothing is lost, and the wide accumulator is needed only once a tile.
"""

from __future__ import annotations

import ast
import functools
import itertools

from redtune.config import MAX_UNROLLED
from redtune.dtypes import Dtype, dtype_named
from redtune.expressions import evaluate, parse
from redtune.operators import WHOLE, FieldKind, field_type, operator_of
from redtune.types import Problem

MOST = (2**31 - 1) // MAX_UNROLLED
# What keeps whole numbers whole.
_WHOLE_NODES: tuple[type[ast.AST], ...] = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call)
_WHOLE_NODES += (ast.operator, ast.unaryop, ast.cmpop, ast.expr_context)
_WHOLE_WORDS = {"pick", "absolute", "larger", "smaller"}


@functools.lru_cache(maxsize=4096)
def folds_in_ints(problem: Problem) -> bool:
    """Whether the elements of a tile are folded as 32-bit integers."""
    dtype, op = dtype_named(problem.dtype), operator_of(problem)
    if dtype.kind not in WHOLE or dtype.bytes > 2 or problem.is_compensated or problem.is_seeded:
        return False
    if op.whole_gather is not None:
        texts = (op.whole_gather.lift, op.whole_gather.added)
        return not problem.is_masked and all(_fits(text, dtype) for text in texts)
    is_wide = any(dtype_named(field_type(kind, problem.accumulate)).bytes > 4 for _, kind in op.state)
    return is_wide and all(map(_only_folds, op.state, op.merge)) and all(_fits(text, dtype) for text in op.lift)


def _only_folds(field: tuple[str, FieldKind], merge: str) -> bool:
    """Whether a field is a sum, or one of the values."""
    name, kind = field
    if kind in ("sum", "count"):
        return merge == f"a.{name} + b.{name}"
    return kind == "value" and merge in (f"larger(a.{name}, b.{name})", f"smaller(a.{name}, b.{name})")


def _fits(text: str, dtype: Dtype) -> bool:
    return _is_whole(text) and _largest(text, *dtype.limits) <= MOST


def _is_whole(text: str) -> bool:
    for node in ast.walk(parse(text)):
        if not isinstance(node, _WHOLE_NODES) or isinstance(node, ast.Div):
            return False
        if isinstance(node, ast.Call) and ast.unparse(node.func) not in _WHOLE_WORDS:
            return False
        if isinstance(node, ast.Constant) and not isinstance(node.value, int):
            return False
        if isinstance(node, ast.Name) and node.id not in {"x", "y", *_WHOLE_WORDS}:
            return False
    return True


def _largest(text: str, low: int, high: int) -> int:
    """The largest size of an expression over a range: every expression in use is largest at an end or at zero."""
    import numpy as np

    ends = sorted({low, high, 0, *(v for v in (-1, 1) if low <= v <= high)})
    pairs = itertools.product(ends, ends)
    return max(abs(int(evaluate(text, {"x": np.int64(x), "y": np.int64(y)}))) for x, y in pairs)
