"""What an expression of a user's operator is made of, so that C and numpy read it alike.

C and numpy agree on values of the accumulator. They part where truth values are added up (numpy says "or", C counts),
where whole numbers are divided (numpy gives a fraction, C cuts it off), and where a word for values is given a whole
number (C rounds it to a float). Such expressions are refused, with what to write instead.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from redtune.errors import UsageError
from redtune.expressions import BINARY, parse
from redtune.operators import NO_INDEX, Operator

# "value": of the accumulator. "whole": 64-bit (an index, a count) or a flag. "truth": of a comparison. "literal": a
# number without a point, which takes the type of what it meets.
Sort = Literal["value", "whole", "truth", "literal"]

SORTS: dict[str, Sort] = {"value": "value", "sum": "value", "wrapping": "value"}
SORTS |= {"flag": "whole", "index": "whole", "count": "whole"}
LIMITS: dict[str, Sort] = dict.fromkeys(("lowest", "highest", "nan_or_lowest", "nan_or_highest"), "value")
LIMITS |= {"no_index": "whole"}
COUNTS: dict[str, Sort] = {"count": "whole", "ddof": "whole"}
# What the entry of norm_l2 scales with: only floats have them.
SCALES: dict[str, Sort] = dict.fromkeys(("huge_from", "huge_scale", "tiny_below", "tiny_scale"), "value")

MAX_NESTING = 60  # Python's own tools for trees recurse several calls a level
# Roundings that a language may take for one of these (OpenCL: 2.5 and 3 units in the last place, two roundings each).
OUR_OWN = {"decay"}  # words that mean what they say in some places only
COSTS = {"/": 5, "sqrt": 6, "exp": 6, "log": 6, "real": 1}


@dataclass(slots=True)
class Facts:
    """What an expression does. `roundings`: how many float operations; `orders`: names whose order or sign matters;
    `mixes`: whole numbers met values."""

    sort: Sort = "literal"
    makes_floats: bool = False
    needs_whole: bool = False
    mixes: bool = False
    negates_literal: bool = False
    roundings: int = 0
    orders: set[str] = field(default_factory=set)


def read(text: str, where: str) -> ast.expr:
    """The tree of an expression in the language of operators. Raises UsageError saying where it stands."""
    try:
        tree = parse(text)
    except UsageError as error:
        hint = "; there is no power, so write x * x for a square" if "**" in text else ""
        raise UsageError(f"{where}: {error}{hint}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{where}: the expression {text[:40]!r} does not parse") from error
    if any(isinstance(node, ast.Name) and node.id in OUR_OWN for node in ast.walk(tree)):
        raise UsageError(f"{where}: {text[:40]!r} is not in the language of operators: write exp for decay")
    level: list[ast.AST] = [tree]
    for _ in range(MAX_NESTING):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise UsageError(f"{where}: the expression {text[:40]!r} is nested too deeply; at most {MAX_NESTING} levels")
    return tree


def facts_of(text: str, names: Mapping[str, Sort], where: str) -> Facts:
    """What an expression does that may read `names`. Raises UsageError for another name, and for what C and numpy
    would read differently."""
    facts = Facts()
    facts.sort = _Reader(names, where, text, facts).sort(read(text, where))
    return facts


@dataclass(frozen=True, slots=True)
class _Reader:
    names: Mapping[str, Sort]
    where: str
    text: str
    facts: Facts

    def sort(self, node: ast.expr) -> Sort:
        match node:
            case ast.Name() | ast.Attribute():
                return self._name(ast.unparse(node))
            case ast.Constant(bool()):
                return "truth"
            case ast.Constant(int(value)):
                if value > NO_INDEX:
                    raise self._refused(node, f"is more than {NO_INDEX}")
                return "literal"
            case ast.Constant(float(value)):
                if not math.isfinite(value):
                    raise self._refused(node, "is no finite number: write highest")
                self.facts.makes_floats = True
                return "value"
            case ast.UnaryOp(_, operand):
                sort = self.sort(operand)
                self.facts.negates_literal |= sort == "literal"
                if sort == "truth":
                    raise self._refused(node, "negates a truth value: write pick(..., -1, 0)")
                return sort
            case ast.BinOp(left, op, right):
                return self._binary(node, BINARY[type(op)], left, right)
            case ast.Compare(left, [op], [right]):
                if not isinstance(op, (ast.Eq, ast.NotEq)):
                    self._ordered(node)
                self.sort(left)
                self.sort(right)
                return "truth"
            case ast.Call(ast.Name(word), args):
                return self._call(node, word, args)
        raise AssertionError(ast.dump(node))

    def _refused(self, node: ast.expr, reason: str) -> UsageError:
        return UsageError(f"{self.where}: {ast.unparse(node)!r} in {self.text!r} {reason}")

    def _name(self, name: str) -> Sort:
        if name not in self.names:
            shown = [known for known in self.names if known not in SCALES]
            raise UsageError(
                f"{self.where} reads {name!r}, which has no meaning there: it may read numbers and {', '.join(shown)}"
            )
        return self.names[name]

    def _ordered(self, node: ast.expr) -> None:
        self.facts.orders |= {ast.unparse(part) for part in ast.walk(node) if isinstance(part, ast.Attribute)}

    def _binary(self, node: ast.expr, sign: str, left: ast.expr, right: ast.expr) -> Sort:
        sorts = {self.sort(left), self.sort(right)}
        if sign in "&|^":
            self.facts.needs_whole |= "value" in sorts
            return "value" if "value" in sorts else "truth" if sorts == {"truth"} else "whole"
        if sorts == {"truth"}:
            if sign == "*":
                return "truth"
            raise self._refused(node, "adds up truth values: write pick(..., 1, 0) for each")
        if sign == "/":
            self.facts.makes_floats = True
            self._ordered(node)
            if "value" not in sorts:
                raise self._refused(node, "divides whole numbers: write real(...) around one of them")
        if "value" in sorts:
            self.facts.roundings += COSTS.get(sign, 1)
            self.facts.mixes |= "whole" in sorts
            return "value"
        return "literal" if sorts == {"literal"} else "whole"

    def _call(self, node: ast.expr, word: str, args: list[ast.expr]) -> Sort:
        sorts = [self.sort(arg) for arg in args]
        if word == "pick":
            chosen = set(sorts[1:])
            self.facts.mixes |= chosen == {"value", "whole"}
            if "value" in chosen:
                return "value"
            return "truth" if chosen == {"truth"} else "whole"
        self._ordered(node)
        if word == "real":
            if "truth" in sorts:
                raise self._refused(node, "makes a number of a truth value: write pick(..., 1, 0)")
            self.facts.roundings += COSTS[word] * ("value" not in sorts)
            return "value"
        if word in ("above", "below"):
            return "truth"
        if "value" not in sorts or set(sorts) & {"truth", "whole"}:
            instead = "compare and pick" if word in ("larger", "smaller") else "write real(...) around it"
            raise self._refused(node, f"is of whole numbers, and {word} takes values: {instead}")
        self.facts.makes_floats |= word in ("sqrt", "exp", "log")
        self.facts.roundings += COSTS.get(word, 0)
        return "value"


def fields_of(op: Operator, *records: str) -> dict[str, Sort]:
    """The fields of the states `a` and `b` and their sorts."""
    return {f"{record}.{name}": SORTS[kind] for record in records for name, kind in op.state}


def lift_names(inputs: int) -> dict[str, Sort]:
    """What `lift` may read: an element of each input, and the index."""
    names: dict[str, Sort] = {"x": "value", "y": "value", "i": "whole"}
    return {name: sort for name, sort in names.items() if name != "y" or inputs > 1}


def facts_by_part(op: Operator) -> dict[str, Facts]:
    """What every expression of an operator does, by its place: "lift low", "finish". Raises UsageError for the first
    that reads a name without meaning there, or that C and numpy would read differently."""
    limits = LIMITS | (SCALES if op.accumulates == "float" else {})
    found: dict[str, Facts] = {}

    def look(part: str, text: str, names: Mapping[str, Sort]) -> Facts:
        found[part] = facts_of(text, names, f"operator {op.name}: {part}")
        return found[part]

    both = fields_of(op, "a", "b")
    for let in op.lets:
        facts = look(f"let {let.name}", let.text, both | limits)
        both[let.name] = "truth" if let.kind == "flag" else "value"
        if let.kind == "flag" and facts.sort != "truth":
            raise UsageError(f"operator {op.name}: let {let.name} is {let.text!r}, and a flag needs a comparison")
    rows = zip(op.state, op.identity, op.lift, op.merge, strict=True)
    for (name, kind), identity, lift, merge in rows:
        places = (
            ("identity", identity, limits),
            ("lift", lift, lift_names(op.inputs) | limits),
            ("merge", merge, both | limits),
        )
        for part, text, names in places:
            facts = look(f"{part} {name}", text, names)
            if SORTS[kind] == "whole" and facts.sort == "value":
                raise UsageError(
                    f"operator {op.name}: {part} {name} is {text!r}, and a field of kind {kind} needs whole numbers "
                    "(i, no_index, comparisons, fields of kind index, count or flag)"
                )
    for text in op.finish:
        look("finish", text, fields_of(op, "a") | COUNTS | limits)
    for facts in found.values():
        facts.orders &= {f"{r}.{name}" for r in "ab" for name, kind in op.state if kind in ("sum", "wrapping")}
    return found


# --- sums -------------------------------------------------------------------------------------------------------------


def check_sums(op: Operator) -> None:
    """Raises UsageError where a field of kind sum is not merged by a sum whose every term is linear in it: only such
    terms can carry what the sum lost to rounding."""
    for (name, kind), merge in zip(op.state, op.merge, strict=True):
        if kind != "sum":
            continue
        reads = _Reads(name)
        for let in op.lets:
            if reads.is_in(parse(let.text)):
                reads.lets.add(let.name)
        terms = _terms(parse(merge))
        wrong = next((t for t in terms if reads.is_in(t) and not _is_linear(t, reads)), None)
        if len(terms) < 2 or wrong is not None:
            what = repr(ast.unparse(wrong)) if wrong is not None else "one term alone"
            raise UsageError(
                f"operator {op.name}: merge {name} is {merge!r}; a field of kind sum is merged by a sum of terms, "
                f"each linear in a.{name} or b.{name} if it reads them, and {what} is not: give it the kind value"
            )


@dataclass(slots=True)
class _Reads:
    """Who reads a field: expressions that name it, or a let that does."""

    name: str
    lets: set[str] = field(default_factory=set)

    def is_in(self, node: ast.expr) -> bool:
        return any(
            (isinstance(part, ast.Attribute) and part.attr == self.name)
            or (isinstance(part, ast.Name) and part.id in self.lets)
            for part in ast.walk(node)
        )


def _terms(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _terms(node.left) + _terms(node.right)
    return [node]


def _is_linear(node: ast.expr, reads: _Reads) -> bool:
    """Whether doubling the field in `a` and `b` doubles the value, everything else being the same."""
    match node:
        case ast.Attribute(_, attr):
            return attr == reads.name
        case ast.UnaryOp(_, operand):
            return _is_linear(operand, reads)
        case ast.BinOp(left, ast.Add() | ast.Sub(), right):
            return _is_linear(left, reads) and _is_linear(right, reads)
        case ast.BinOp(left, ast.Mult(), right) if not reads.is_in(left):
            return _is_linear(right, reads)
        case ast.BinOp(left, ast.Mult() | ast.Div(), right):
            return _is_linear(left, reads) and not reads.is_in(right)
        case ast.Call(ast.Name("pick"), [condition, *chosen]):
            zeros = (isinstance(part, ast.Constant) and part.value == 0 for part in chosen)
            fits = [zero or _is_linear(part, reads) for zero, part in zip(zeros, chosen, strict=True)]
            return not reads.is_in(condition) and all(fits)
    return False
