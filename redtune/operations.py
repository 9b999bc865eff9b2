"""How many operations a reduction takes for an element, counted from the operator's entry.

What is counted is what a kernel does with each element of a tile: `lift` and `merge` with its `lets`, or the sweeps of
`gather` where a tile becomes a state at once (a second sweep that a guard lets few tiles into is left out). Every sign
and every word of the language is one operation. What depends on no element is worked out once a tile and counts
nothing, and neither do loads, addresses, conversions and what sums set aside from tile to tile.

An operation belongs to one of three kinds, and is taken to last as long as the one of its kind that is measured
(`redtune.arithmetic`): "add" is `+ - * & | ^` and a sign, "max" is whatever compares or chooses, "exp" is what a
function unit or a division does.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from redtune.dtypes import dtype_named
from redtune.expressions import parse
from redtune.narrow import folds_in_ints
from redtune.operators import field_type, operator_of
from redtune.plan import operands_of
from redtune.types import Problem

# What stands for elements, or for states that were made of them.
_OF_ELEMENTS = {"x", "y", "i", "a", "b"}
_CHOOSING = {"pick", "larger", "smaller", "above", "below"}
_SPECIAL = {"sqrt", "exp", "decay", "log"}
_FREE = {"real"}  # a conversion
# Integers of both signs are added and compared alike.
_SIGNED = {"uint32": "int32", "uint64": "int64"}

Work = Counter[tuple[str, str]]  # how many operations by (kind, dtype)


def work_of(problem: Problem) -> Work:
    """The operations that one element takes, by kind and by the dtype that they are done in."""
    op, is_narrow = operator_of(problem), folds_in_ints(problem)
    own = "int32" if is_narrow else problem.accumulate
    gather = op.whole_gather if is_narrow else op.gather
    work: Work = Counter()
    if gather is not None and not problem.is_masked and not problem.is_compensated:
        texts = [gather.lift, gather.merge]
        if gather.added and not gather.guard:
            # The sum of what is added takes one addition an element.
            texts += [gather.added, "a + b"]
        rows = [(text, own) for text in texts]
    else:
        fields = ["int32" if is_narrow else field_type(kind, problem.accumulate) for _, kind in op.state]
        rows = [(text, own) for text in op.lift] + [(let.text, own) for let in op.lets]
        rows += list(zip(op.merge, fields, strict=True))
    for text, dtype in rows:
        work.update((kind, _SIGNED.get(dtype, dtype)) for kind in operations_in(text))
    return work


def operations_in(text: str) -> Iterator[str]:
    """The kind of every operation of an expression that depends on an element."""
    for node in ast.walk(parse(text)):
        if isinstance(node, ast.expr) and _names(node) & _OF_ELEMENTS and (kind := _kind(node)):
            yield kind


def _names(node: ast.expr) -> set[str]:
    return {found.id for found in ast.walk(node) if isinstance(found, ast.Name)}


def _kind(node: ast.expr) -> str:
    match node:
        case ast.BinOp(_, ast.Div(), _):
            return "exp"
        case ast.BinOp() | ast.UnaryOp():
            return "add"
        case ast.Compare():
            return "max"
        case ast.Call(ast.Name(word)) if word not in _FREE:
            return "exp" if word in _SPECIAL else "max" if word in _CHOOSING else "add"
    return ""


def element_bytes(problem: Problem) -> int:
    """How many bytes are read for an element: of all arrays that are read in step."""
    return sum(dtype_named("bool" if name == "mask" else problem.dtype).bytes for name in operands_of(problem))
