"""Definitions of operators: every key, name and expression in them is checked before anything else is done.

Expressions are of `redtune.expressions`, every name in them is known by its place (`redtune.sorts`), and the names that
a kernel takes over (fields become members of a struct, lets become variables) are harmless in every language.
"""

from __future__ import annotations

import ast
import keyword
import math
import re
import reprlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, get_args

from redtune.errors import UsageError
from redtune.evaluation import numpy_identity
from redtune.expressions import ARITY
from redtune.measured import bites_of, finished, fold, roundings_of, with_reference
from redtune.operators import OPERATORS, REAL, WHOLE, FieldKind, Let, Operator, operator_named
from redtune.sorts import COUNTS, LIMITS, SCALES, Sort, check_sums, facts_by_part, facts_of, fields_of, lift_names, read

MAX_NAME = 40
MAX_FIELDS = 3
MAX_LETS = 8
MAX_MEANING = 200

NEEDED = ("state", "identity", "lift", "merge", "finish")
OPTIONAL = ("meaning", "exact", "empty", "accumulates", "result", "inputs", "lets")
DERIVED = ("from", "map", "finish", "meaning")
# The first of each is what stands when nothing is given.
CHOICES: dict[str, tuple[Any, ...]] = {
    "exact": (False, True),
    "accumulates": ("register", "sum", "float"),
    "result": ("same", "sum", "float", "index", "flag"),
    "inputs": (1, 2),
}

# What no field and no let may be called, beside Python's own words: those of C, C++, OpenCL, CUDA and HIP, macros in
# small letters that some compilers define, and what a finish reads or the kernel adds to a state.
_WORDS = """
alignas alignof and_eq asm atomic_cancel atomic_commit atomic_noexcept auto bitand bitor bool case catch char char16_t
char32_t char8_t co_await co_return co_yield compl concept const const_cast consteval constexpr constinit decltype
default delete do double dynamic_cast enum explicit export extern float friend goto inline int long mutable namespace
new noexcept not_eq nullptr operator or_eq private protected public reflexpr register reinterpret_cast requires restrict
short signed sizeof static static_assert static_cast struct switch synchronized template this thread_local throw true
false typedef typeid typename typeof union unsigned using virtual void volatile wchar_t xor xor_eq
access_qualifier complex constant event_t generic global half imaginary kernel local pipe ptrdiff_t quad queue_t
read_only read_write sampler_t size_t uchar uint ulong ulonglong longlong uniform ushort vector write_only image1d_t
image2d_t image3d_t bfloat16
dim3 host device shared managed noinline forceinline linux unix i386 arm near far interface main null
count ddof seen
"""
RESERVED = frozenset(_WORDS.split())
# Beside those, what a let would hide in the function that merges.
_SEEN_BY_MERGE = "a b s x y i n p add fold keep merge lift finish identity nothing state max_nan min_nan fabs"
HIDDEN = frozenset([*_SEEN_BY_MERGE.split(), *ARITY, *LIMITS, *SCALES])
# Vectors of OpenCL and CUDA: float4, uint2.
_VECTOR = re.compile(r"u?(char|short|int|long|longlong)\d+|(float|double|half|bool)\d+")


def make_operator(name: Any, spec: Any) -> Operator:
    """The operator of a definition, checked, with its reference."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or len(name) > MAX_NAME:
        raise UsageError(
            f"an operator cannot be called {reprlib.repr(name)}: letters, digits and _ are allowed, no digit first, "
            f"at most {MAX_NAME}"
        )
    if name in OPERATORS:
        raise UsageError(f"operator {name} is one of redtune's own: choose another name")
    where = f"operator {name}"
    if not isinstance(spec, Mapping):
        raise UsageError(
            f"{where} cannot be {reprlib.repr(spec)}: a mapping is wanted, with {', '.join(NEEDED)} or from"
        )
    known = DERIVED if "from" in spec else NEEDED + OPTIONAL
    for key in spec:
        if key not in known:
            raise UsageError(f"{where} has the key {reprlib.repr(key)}: choose from {', '.join(known)}")
    missing = [key for key in NEEDED if key not in spec and "from" not in spec]
    if missing:
        raise UsageError(f"{where} lacks {', '.join(missing)}")
    try:
        return _derived(name, spec) if "from" in spec else _full(name, spec)
    except (TypeError, ArithmeticError) as error:
        raise UsageError(f"{where} cannot be evaluated: {error}") from error


def _full(name: str, spec: Mapping[str, Any]) -> Operator:
    where = f"operator {name}"
    fields = _state(where, spec["state"])
    chosen = {key: _choice(where, key, spec.get(key, allowed[0]), allowed) for key, allowed in CHOICES.items()}
    is_float = chosen["accumulates"] == "float"
    if is_float and "result" not in spec:
        chosen["result"] = "float"
    op = Operator(
        name=name,
        meaning=_meaning(where, spec.get("meaning", "an operator of the user's own")),
        state=fields,
        identity=_texts(name, "identity", spec["identity"], fields),
        lift=_texts(name, "lift", spec["lift"], fields),
        merge=_texts(name, "merge", spec["merge"], fields),
        finish=(checked_text(name, "finish", spec["finish"]),),
        lets=_lets(name, spec.get("lets", {})),
        reference=_unset,
        empty=_empty(where, spec.get("empty")),
        bites="any",
        **chosen,
    )
    parts = facts_by_part(op)
    check_sums(op)
    makes_floats = next((part for part, facts in parts.items() if facts.makes_floats), None)
    bits = next((part for part, facts in parts.items() if facts.needs_whole), None)
    if makes_floats and not is_float:
        raise UsageError(
            f"{where}: {makes_floats} divides, takes roots or has a point in a number: add accumulates: float"
        )
    if is_float and bits:
        raise UsageError(f"{where}: {bits} takes bits, and accumulates: float leaves it none")
    if is_float and op.result in ("same", "sum"):
        raise UsageError(f"{where} accumulates in float, so its result is float, index or flag, not {op.result}")
    if op.result == "float" and not is_float:
        raise UsageError(f"{where} has a result of float: add accumulates: float")
    if op.result == "index" and parts["finish"].sort == "value":
        raise UsageError(f"{where} has a result of index, and its finish {op.finish[0]!r} is no whole number")
    op = replace(op, accepts=WHOLE if bits else REAL)
    multiplies = any(loss and loss.merging and loss.is_product for loss in roundings_of(op))
    chooses = op.exact and not any(parts[f"lift {field}"].roundings for field, _ in fields)
    return _settled(op, "any" if chooses else "units" if multiplies else "small")


def _derived(name: str, spec: Mapping[str, Any]) -> Operator:
    where = f"operator {name}"
    if not isinstance(spec["from"], str):
        raise UsageError(f"{where}: from cannot be {reprlib.repr(spec['from'])}: the name of an operator is wanted")
    base = operator_named(spec["from"])
    map_, finish = (None if spec.get(key) is None else checked_text(name, key, spec[key]) for key in ("map", "finish"))
    if map_ is None and finish is None:
        raise UsageError(f"{where} is {base.name} itself: give a map, a finish, or both")
    meaning = f"{base.name} of {map_ or 'x'}" + (f", then {finish}" if finish else "")
    if len(meaning) > MAX_MEANING:
        meaning = f"{base.name} of elements that are mapped, or finished further"
    limits = LIMITS | (SCALES if base.accumulates == "float" else {})
    op = replace(base, name=name, meaning=_meaning(where, spec.get("meaning", meaning)), seeds=False, on_complex=None)
    op = replace(op, in_range=None, gather=None, whole_gather=None)
    makes_floats, bits, bites = False, False, base.bites
    if map_ is not None:
        facts = facts_of(map_, lift_names(base.inputs) | limits, f"{where}: map")
        makes_floats, bits = facts.makes_floats, facts.needs_whole
        op = replace(op, lift=tuple(_with(name, "map", text, {"x": map_}) for text in base.lift))
        if bites == "any" and facts.roundings:
            bites = "small"  # of whole numbers: values that nearly tie would tie once rounded
    if finish is not None:
        own: dict[str, Sort] = {"a": "value"}
        facts = facts_of(finish, own | fields_of(base, "a") | COUNTS | limits, f"{where}: finish")
        result = base.finish[0]
        if facts.makes_floats and facts_by_part(base)["finish"].sort != "value":
            result = f"real({result})"
        seen = {"count": "a.seen"} if ("seen", "count") in base.state else {}
        op = replace(op, finish=(_with(name, "finish", finish, {"a": result} | seen),))
        bits |= facts.needs_whole
        if facts.makes_floats:
            op = replace(op, result="float")
        makes_floats |= facts.makes_floats
    if bits and (makes_floats or base.accumulates == "float"):
        raise UsageError(f"{where} takes bits, and it accumulates in float")
    if makes_floats and "float" not in base.accepts:
        raise UsageError(f"{where}: {base.name} takes whole numbers, and its map or finish divides or takes roots")
    if makes_floats:
        op = replace(op, accumulates="float", result="float" if op.result in ("same", "sum") else op.result)
    op = replace(op, accepts=tuple(kind for kind in base.accepts if kind in (WHOLE if bits else REAL)))
    facts_by_part(op)
    if finish is not None and base.empty is not None:
        wide = "float64" if "float" in op.accepts else "int64"
        op = replace(op, empty=finished(op, wide, numpy_identity(op, wide), 0).item())
    return _settled(op, bites, keeps=map_ is None)


def _settled(op: Operator, bites: Any, keeps: bool = False) -> Operator:
    """The operator with its reference and the data that the judge can use, once it has been evaluated."""
    import numpy as np

    wide = "float64" if "float" in op.accepts else "int64"
    finished(op, wide, fold(op, wide, [np.array([[1, 2, 3]], wide)] * op.inputs), 3)
    return with_reference(replace(op, bites=bites if keeps else bites_of(op, bites)))


def _unset(*inputs: Any) -> Any:
    raise AssertionError("the reference is set once the operator has been checked")


# --- parts of definitions ---------------------------------------------------------------------------------------------


def _choice(where: str, key: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    if not any(type(value) is type(choice) and value == choice for choice in allowed):
        shown = ", ".join(str(choice).lower() if isinstance(choice, bool) else str(choice) for choice in allowed)
        raise UsageError(f"{where}: {key} cannot be {reprlib.repr(value)}: choose from {shown}")
    return value


def _meaning(where: str, value: Any) -> str:
    """A phrase that can stand in a comment of any language."""
    is_harmless = isinstance(value, str) and value.isprintable() and not re.search(r"[\\\"]|\*/|\?\?/", value)
    if not is_harmless or not 0 < len(value) <= MAX_MEANING:
        raise UsageError(
            f"{where}: meaning cannot be {reprlib.repr(value)}: a phrase on one line is wanted, at most {MAX_MEANING} "
            "characters, without quotes, backslashes and ends of comments"
        )
    return str(value)


def checked_text(name: str, part: str, value: Any) -> str:
    """An expression in its canonical spelling; YAML may have read it as a number."""
    where = f"operator {name}: {part}"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        value = repr(value)
    if not isinstance(value, str):
        raise UsageError(f"{where} cannot be {reprlib.repr(value)}: an expression is wanted")
    return ast.unparse(read(value, where))


def _with(name: str, part: str, text: str, values: Mapping[str, str]) -> str:
    """An expression with others in place of its names."""

    class Replace(ast.NodeTransformer):
        def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
            return node

        def visit_Name(self, node: ast.Name) -> ast.expr:
            return ast.parse(values[node.id], mode="eval").body if node.id in values else node

    return checked_text(name, part, ast.unparse(Replace().visit(ast.parse(text, mode="eval").body)))


def _mapping(where: str, value: Any, most: int, least: int, what: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not least <= len(value) <= most:
        raise UsageError(f"{where} cannot be {reprlib.repr(value)}: a mapping of {least} to {most} {what} is wanted")
    return dict(value)


def _check_name(where: str, name: Any, taken: Collection[str]) -> None:
    fits = isinstance(name, str) and re.fullmatch(r"[a-z][a-z0-9_]*", name) and len(name) <= MAX_NAME
    if not fits:
        raise UsageError(
            f"{where} cannot be called {reprlib.repr(name)}: small letters, digits and _ are allowed, a letter first, "
            f"at most {MAX_NAME}"
        )
    is_taken = name in taken or keyword.iskeyword(name) or _VECTOR.fullmatch(name)
    if is_taken or name.endswith("_lost") or "__" in name or name.endswith("_t"):
        raise UsageError(
            f"{where} cannot be called {name}: C, OpenCL, CUDA or the kernel uses that name; choose another"
        )


def _state(where: str, value: Any) -> tuple[tuple[str, FieldKind], ...]:
    fields = _mapping(f"{where}: state", value, MAX_FIELDS, 1, "fields and their kinds")
    for name, kind in fields.items():
        _check_name(f"{where}: a field", name, RESERVED)
        _choice(where, f"the kind of field {name}", kind, get_args(FieldKind))
    return tuple(fields.items())


def _texts(name: str, part: str, value: Any, state: tuple[tuple[str, FieldKind], ...]) -> tuple[str, ...]:
    """One expression per field of the state."""
    names = [field for field, _ in state]
    if not isinstance(value, Mapping) or set(value) != set(names):
        raise UsageError(
            f"operator {name}: {part} cannot be {reprlib.repr(value)}: an expression for each field is wanted "
            f"({', '.join(names)})"
        )
    return tuple(checked_text(name, f"{part} {field}", value[field]) for field in names)


def _lets(name: str, value: Any) -> tuple[Let, ...]:
    where = f"operator {name}"
    lets = []
    for let, parts in _mapping(f"{where}: lets", value, MAX_LETS, 0, "names").items():
        _check_name(f"{where}: a let", let, RESERVED | HIDDEN)
        if not isinstance(parts, Mapping) or set(parts) != {"kind", "text"}:
            raise UsageError(f"{where}: let {let} cannot be {reprlib.repr(parts)}: a kind and a text are wanted")
        kind = _choice(where, f"the kind of let {let}", parts["kind"], ("flag", "value"))
        lets.append(Let(let, kind, checked_text(name, f"let {let}", parts["text"])))
    return tuple(lets)


def _empty(where: str, value: Any) -> float | None:
    if value in ("nan", "inf", "-inf"):
        return float(value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is None or (is_number and (isinstance(value, float) or abs(value) < 2**63)):
        return value  # type: ignore[no-any-return]
    raise UsageError(f"{where}: empty cannot be {reprlib.repr(value)}: a number is wanted")
