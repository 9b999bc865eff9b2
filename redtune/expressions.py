"""The small language operators are written in: the part of C that is also Python, and a few words.

An expression is parsed once, checked against the grammar below, then either spelled in a C-family dialect or evaluated
by numpy. So the text that is proven by the law tests is the text that runs on the device.
"""

from __future__ import annotations

import ast
import copy
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

from redtune.errors import UsageError

# What each word means, over numpy arrays. `above` and `below` are the strict orders in which NaN comes first.
ARITY = {"pick": 3, "larger": 2, "smaller": 2, "above": 2, "below": 2}
# Words of one number. `real` turns a count into the type that the kernel accumulates in; `decay` is `exp` of a number
# that is not above zero, where rounding may grow with its distance from it.
ARITY |= {"absolute": 1, "sqrt": 1, "exp": 1, "decay": 1, "log": 1, "real": 1}

MAX_LENGTH = 500  # nested deeper than Python's parser goes, an expression could not be read at all

BINARY: dict[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
COMPARE: dict[type, str] = {
    ast.Lt: "<",
    ast.Gt: ">",
    ast.LtE: "<=",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}


@functools.cache
def parse(text: str) -> ast.expr:
    """The checked tree of an expression. Raises UsageError naming the part that is not in the language."""
    if len(text) > MAX_LENGTH:
        raise UsageError(f"an expression of {len(text)} characters is too long: at most {MAX_LENGTH}")
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise UsageError(f"the expression {text!r} does not parse: {error.msg}") from error
    _check(tree, text)
    return tree


def _check(node: ast.expr, text: str) -> None:
    match node:
        case ast.Name() | ast.Attribute(value=ast.Name()):
            return
        case ast.Constant(value=bool() | int() | float()):
            return
        case ast.BinOp(left, op, right) if type(op) in BINARY:
            _check(left, text)
            _check(right, text)
        case ast.UnaryOp(ast.USub(), operand):
            _check(operand, text)
        case ast.Compare(left, [op], [right]) if type(op) in COMPARE:
            _check(left, text)
            _check(right, text)
        case ast.Call(ast.Name(word), args, []) if ARITY.get(word) == len(args):
            for arg in args:
                _check(arg, text)
        case _:
            raise UsageError(f"{ast.unparse(node)!r} in {text!r} is not in the language of operators")


@functools.cache
def names_in(text: str) -> frozenset[str]:
    """The names an expression reads, a field as `a.total`."""
    tree = parse(text)
    records = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return frozenset(
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        or (isinstance(node, ast.Name) and node.id not in ARITY and id(node) not in records)
    )


def needs_sign(text: str) -> bool:
    """Whether the value depends on more than the bits of its numbers: on an order, a sign or a quotient."""
    return any(
        (isinstance(node, ast.Compare) and not isinstance(node.ops[0], (ast.Eq, ast.NotEq)))
        or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div))
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id != "pick")
        for node in ast.walk(parse(text))
    )


def addends(text: str) -> tuple[str, ...]:
    """The terms of a sum, in their order."""

    def split(node: ast.expr) -> tuple[str, ...]:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return split(node.left) + split(node.right)
        return (ast.unparse(node),)

    return split(parse(text))


def renamed(text: str, fields: Mapping[str, str]) -> str:
    """The expression with fields of `a` and `b` called by other names."""

    class Rename(ast.NodeTransformer):
        def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
            return ast.Attribute(node.value, fields.get(node.attr, node.attr), node.ctx)

    return ast.unparse(Rename().visit(copy.deepcopy(parse(text))))


def spell(text: str, words: Mapping[str, str], names: Mapping[str, str]) -> str:
    """The expression in a C-family dialect: `words` holds a format string each, and one for a number with a point under
    "literal"; `names` what to write for a name."""

    def write(node: ast.expr, inner: bool = True) -> str:
        match node:
            case ast.Name(name):
                return names.get(name, name)
            case ast.Attribute(ast.Name(record), field):
                return f"{record}.{field}"
            case ast.Constant(float(value)):
                return words["literal"].format(repr(value))
            case ast.Constant(int(value)):  # True and False too
                return str(int(value))
            case ast.UnaryOp(_, operand):
                body = f"-{write(operand)}"
            case ast.Call(ast.Name(word), args):
                # Arguments that are not plain stand in brackets, so that formats other than calls can repeat them.
                is_call = bool(re.fullmatch(r"\w+\([^()]*\)", words[word]))
                body = words[word].format(*(write(arg, inner=not is_call) for arg in args))
                return f"({body})" if inner and not is_call else body
            case ast.BinOp(left, op, right):
                body = f"{write(left)} {BINARY[type(op)]} {write(right)}"
            case ast.Compare(left, [op], [right]):
                body = f"{write(left)} {COMPARE[type(op)]} {write(right)}"
            case _:
                raise AssertionError(ast.dump(node))
        return f"({body})" if inner else body

    return write(parse(text), inner=False)


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """The expression's value over numpy arrays; `a` and `b` may be mappings from field to array."""
    words = _numpy_words()

    def value(node: ast.expr) -> Any:
        match node:
            case ast.Name(name):
                return names[name]
            case ast.Attribute(ast.Name(record), field):
                return names[record][field]
            case ast.Constant(constant):
                return constant
            case ast.UnaryOp(_, operand):
                return -value(operand)
            case ast.Call(ast.Name(word), args):
                return words[word](*(value(arg) for arg in args))
            case ast.BinOp(left, op, right) | ast.Compare(left, [op], [right]):
                return _OPERATIONS[type(op)](value(left), value(right))
        raise AssertionError(ast.dump(node))

    return value(parse(text))


_OPERATIONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.BitAnd: lambda a, b: a & b,
    ast.BitOr: lambda a, b: a | b,
    ast.BitXor: lambda a, b: a ^ b,
    ast.Lt: lambda a, b: a < b,
    ast.Gt: lambda a, b: a > b,
    ast.LtE: lambda a, b: a <= b,
    ast.GtE: lambda a, b: a >= b,
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
}


@functools.cache
def _numpy_words() -> dict[str, Callable[..., Any]]:
    import numpy as np

    return {
        "pick": np.where,
        "larger": np.maximum,
        "smaller": np.minimum,
        "above": lambda a, b: (a > b) | (a != a),
        "below": lambda a, b: (a < b) | (a != a),
        "absolute": np.absolute,
        "sqrt": np.sqrt,
        "exp": np.exp,
        "decay": np.exp,
        "log": np.log,
        "real": lambda a: a,
    }
