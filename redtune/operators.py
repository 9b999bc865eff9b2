"""The door for operators: `OPERATORS` has one entry each, written once for every language.

An operator folds elements into a *state* of one to three fields. `lift` makes the state of one element `x` at index
`i`, `merge` joins the states `a` and `b`, `finish` turns the last state into the result. All are expressions of
`redtune.expressions`; numpy evaluates the same text, so the laws (identity, commutativity, associativity) are tested
with no device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from redtune.dtypes import DTYPES, Dtype, dtype_named, unknown
from redtune.errors import UsageError
from redtune.expressions import evaluate

# What a field of a state holds: the accumulator, the accumulator with two's complement wrap-around (signed overflow is
# undefined in C, so such fields are unsigned in the kernel), or an index.
FieldKind = Literal["value", "wrapping", "index"]

NO_INDEX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Operator:
    """One reduction. `exact` says whether the result is the same for every order of merging (else: for integers only).

    `widens`: integers accumulate in 64 bits, as numpy's sum and prod do. `result` is "value" (numpy's type for it) or
    "index" (int64). `reference(values)` gives the right answer for decoded numpy values; `empty` what a reduction of
    nothing gives, None where numpy raises.
    """

    name: str
    meaning: str
    state: tuple[tuple[str, FieldKind], ...]
    identity: tuple[str, ...]
    lift: tuple[str, ...]
    merge: tuple[str, ...]
    finish: str
    reference: Callable[[Any], Any]
    exact: bool
    bites: Literal["any", "small", "units"]  # data whose result is exact in any order: see redtune.data
    bound: Callable[[Any, int, float], float] | None = None  # largest error over values, given depth and roundoff
    widens: bool = False
    result: Literal["value", "index"] = "value"
    native: Literal["", "add", "max", "min"] = ""  # what instruction sets call it, where they have it
    wins: str = ""  # a condition that `merge` may call by the name `wins`
    empty: int | None = None


def _max(values: Any) -> Any:
    return values.max()


def _min(values: Any) -> Any:
    return values.min()


def _argmax(values: Any) -> Any:
    return values.argmax()


def _argmin(values: Any) -> Any:
    return values.argmin()


def _sum(values: Any) -> Any:
    """Exact up to one rounding for floats, wrapping at 64 bits for integers."""
    import numpy as np

    if values.dtype.kind == "f":
        return values.astype(np.float64).sum(dtype=np.longdouble)
    return values.sum()


def _prod(values: Any) -> Any:
    import numpy as np

    if values.dtype.kind == "f":
        return values.astype(np.longdouble).prod()
    return values.prod()


def _sum_bound(values: Any, depth: int, u: float) -> float:
    """Each element is rounded once a merge on its way: Higham, Accuracy and Stability, section 4.2."""
    import numpy as np

    return float(depth * u * np.abs(values.astype(np.float64)).sum())


def _prod_bound(values: Any, depth: int, u: float) -> float:
    """Every one of the n - 1 products rounds the result once, and `depth` more meet the identity."""
    import numpy as np

    return float((len(values) + depth) * u * abs(values.astype(np.longdouble).prod()))


# Of two candidates the one that comes first in NaN-first order; of equals (two NaNs included) the lower index.
_FIRST = "pick({0}(a.value, b.value) == {0}(b.value, a.value), a.index < b.index, {0}(a.value, b.value))"
_PICK_BOTH = ("pick(wins, a.value, b.value)", "pick(wins, a.index, b.index)")
_VALUE_AND_INDEX: tuple[tuple[str, FieldKind], ...] = (("value", "value"), ("index", "index"))

OPERATORS = {
    op.name: op
    for op in (
        Operator(
            name="sum",
            meaning="the sum",
            state=(("total", "wrapping"),),
            identity=("0",),
            lift=("x",),
            merge=("a.total + b.total",),
            finish="a.total",
            reference=_sum,
            exact=False,
            bites="small",
            bound=_sum_bound,
            widens=True,
            native="add",
            empty=0,
        ),
        Operator(
            name="prod",
            meaning="the product",
            state=(("total", "wrapping"),),
            identity=("1",),
            lift=("x",),
            merge=("a.total * b.total",),
            finish="a.total",
            reference=_prod,
            exact=False,
            bites="units",
            bound=_prod_bound,
            widens=True,
            empty=1,
        ),
        Operator(
            name="max",
            meaning="the largest value; NaN wins",
            state=(("value", "value"),),
            identity=("lowest",),
            lift=("x",),
            merge=("larger(a.value, b.value)",),
            finish="a.value",
            reference=_max,
            exact=True,
            bites="any",
            native="max",
        ),
        Operator(
            name="min",
            meaning="the smallest value; NaN wins",
            state=(("value", "value"),),
            identity=("highest",),
            lift=("x",),
            merge=("smaller(a.value, b.value)",),
            finish="a.value",
            reference=_min,
            exact=True,
            bites="any",
            native="min",
        ),
        Operator(
            name="argmax",
            meaning="the index of the largest value; the first NaN wins, of equals the lowest index",
            state=_VALUE_AND_INDEX,
            identity=("lowest", "no_index"),
            lift=("x", "i"),
            wins=_FIRST.format("above"),
            merge=_PICK_BOTH,
            finish="a.index",
            reference=_argmax,
            exact=True,
            bites="any",
            result="index",
        ),
        Operator(
            name="argmin",
            meaning="the index of the smallest value; the first NaN wins, of equals the lowest index",
            state=_VALUE_AND_INDEX,
            identity=("highest", "no_index"),
            lift=("x", "i"),
            wins=_FIRST.format("below"),
            merge=_PICK_BOTH,
            finish="a.index",
            reference=_argmin,
            exact=True,
            bites="any",
            result="index",
        ),
    )
}


def operator_named(name: str) -> Operator:
    """The entry called `name`. Raises UsageError with the nearest name and the list."""
    if name not in OPERATORS:
        raise UsageError(unknown("operator", name, OPERATORS))
    return OPERATORS[name]


def accumulate_type(op: Operator, dtype: Dtype) -> str:
    """The dtype of the running value: float32 for 16-bit floats, 64 bits for integers whose sum could overflow."""
    if op.widens and dtype.kind != "float":
        return dtype.sum_type
    return dtype.register


def result_type(op: Operator, dtype: Dtype) -> str:
    """The dtype of the result, as numpy has it."""
    if op.result == "index":
        return "int64"
    return dtype.sum_type if op.widens else dtype.name


def is_order_free(op: Operator, accumulate: str) -> bool:
    """Whether every order of merging gives the same bits."""
    return op.exact or DTYPES[accumulate].kind != "float"


# --- the same entries, evaluated by numpy -----------------------------------------------------------------------------

State = dict[str, Any]


def limits(dtype: Dtype) -> tuple[Any, Any]:
    """The lowest and the highest value of a register dtype, infinities for floats."""
    import numpy as np

    kind = np.dtype(dtype.name).type
    if dtype.kind == "float":
        return kind(-np.inf), kind(np.inf)
    info = np.iinfo(kind)
    return kind(info.min), kind(info.max)


def field_type(kind: FieldKind, accumulate: str) -> str:
    """The dtype a field of a state has in the kernel."""
    from redtune.dtypes import UNSIGNED

    if kind == "index":
        return "int64"
    return UNSIGNED.get(accumulate, accumulate) if kind == "wrapping" else accumulate


def _fields(op: Operator, expressions: tuple[str, ...], accumulate: str, names: dict[str, Any]) -> State:
    import numpy as np

    lowest, highest = limits(dtype_named(accumulate))
    names = {**names, "lowest": lowest, "highest": highest, "no_index": np.int64(NO_INDEX)}
    with np.errstate(all="ignore"):
        if op.wins and "a" in names:
            names["wins"] = evaluate(op.wins, names)
        return {
            field: np.asarray(evaluate(text, names)).astype(field_type(kind, accumulate))
            for (field, kind), text in zip(op.state, expressions, strict=True)
        }


def numpy_identity(op: Operator, accumulate: str) -> State:
    """The state that changes nothing when merged."""
    return _fields(op, op.identity, accumulate, {})


def numpy_lift(op: Operator, accumulate: str, x: Any, i: Any) -> State:
    """The state of the element `x` at index `i` (arrays of either)."""
    return _fields(op, op.lift, accumulate, {"x": x, "i": i})


def numpy_merge(op: Operator, accumulate: str, a: State, b: State) -> State:
    """The state of `a` and `b` together."""
    return _fields(op, op.merge, accumulate, {"a": a, "b": b})


def numpy_finish(op: Operator, dtype: Dtype, a: State) -> Any:
    """The result of a state, in the result dtype (bfloat16 decoded to float32)."""
    import numpy as np

    result = dtype_named(result_type(op, dtype))
    with np.errstate(all="ignore"):
        return result.decode(result.encode(evaluate(op.finish, {"a": a})))
