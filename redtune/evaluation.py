"""Operators evaluated by numpy: the same text that a kernel runs, over arrays of elements and of states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redtune.dtypes import Dtype, dtype_named
from redtune.expressions import evaluate
from redtune.operators import NO_INDEX, Operator, field_type

State = dict[str, Any]

# Where the sums of squares of norm_l2 part, and by what each is scaled, as powers of two: for 2^40 elements of the
# largest value, and for the smallest subnormal, the scaled squares stay within the range of normal numbers.
NORM_POWERS = {
    "float32": {"huge_from": 43, "huge_scale": -85, "tiny_below": -50, "tiny_scale": 90},
    "float64": {"huge_from": 480, "huge_scale": -560, "tiny_below": -480, "tiny_scale": 590},
}


def limits(dtype: Dtype) -> dict[str, Any]:
    """What the names of limits stand for in a register dtype: the lowest and highest value, infinities for floats."""
    import numpy as np

    kind = np.dtype(dtype.name).type
    if dtype.kind != "float":
        low, high = (kind(limit) for limit in dtype.limits)
        return {"lowest": low, "highest": high, "nan_or_lowest": low, "nan_or_highest": high}
    powers = {name: np.ldexp(kind(1), power) for name, power in NORM_POWERS[dtype.name].items()}
    nan = {"nan_or_lowest": kind(np.nan), "nan_or_highest": kind(np.nan)}
    return {"lowest": kind(-np.inf), "highest": kind(np.inf), **nan, **powers}


def _names(accumulate: str, names: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    return {**names, **limits(dtype_named(accumulate)), "no_index": np.int64(NO_INDEX)}


def _fields(op: Operator, expressions: tuple[str, ...], accumulate: str, names: dict[str, Any]) -> State:
    import numpy as np

    names = _names(accumulate, names)
    with np.errstate(all="ignore"):
        for let in op.lets if "a" in names else ():
            value = np.asarray(evaluate(let.text, names))
            names[let.name] = value if let.kind == "flag" else value.astype(accumulate)
        return {
            field: np.asarray(evaluate(text, names)).astype(field_type(kind, accumulate))
            for (field, kind), text in zip(op.state, expressions, strict=True)
        }


def numpy_identity(op: Operator, accumulate: str) -> State:
    """The state that changes nothing when merged."""
    return _fields(op, op.identity, accumulate, {})


def numpy_lift(op: Operator, accumulate: str, x: Any, i: Any, y: Any = None) -> State:
    """The state of the element `x` (and `y` of a second input) at index `i`: arrays."""

    def loaded(values: Any) -> Any:
        if values is None:
            return None
        if values.dtype.kind == "c":
            return {"re": values.real.astype(accumulate), "im": values.imag.astype(accumulate)}
        return values.astype(accumulate)

    import numpy as np

    state = _fields(op, op.lift, accumulate, {"x": loaded(x), "y": loaded(y), "i": i})
    return {field: np.broadcast_to(values, np.shape(x)) for field, values in state.items()}


def numpy_merge(op: Operator, accumulate: str, a: State, b: State) -> State:
    """The state of `a` and `b` together."""
    return _fields(op, op.merge, accumulate, {"a": a, "b": b})


def numpy_finish(op: Operator, accumulate: str, result: Dtype, a: State, count: int = 1, ddof: int = 0) -> Any:
    """The result of a state, in the result dtype (bfloat16 decoded to float32)."""
    import numpy as np

    with np.errstate(all="ignore"):
        names = _names(accumulate, {"a": a, "count": np.int64(count), "ddof": np.int64(ddof)})
        parts = [np.asarray(evaluate(text, names)) for text in op.finish]
        value = parts[0] if len(parts) == 1 else parts[0] + 1j * parts[1]
        return result.decode(result.encode(value))


def numpy_fold(op: Operator, accumulate: str, inputs: Sequence[Any]) -> State:
    """The state of all elements along the last axis, merged as a balanced tree."""
    import numpy as np

    n = inputs[0].shape[-1]
    index = np.broadcast_to(np.arange(n), inputs[0].shape)
    state = numpy_lift(op, accumulate, inputs[0], index, *inputs[1:])
    while n > 1:
        half = n // 2
        front = {field: values[..., : 2 * half : 2] for field, values in state.items()}
        back = {field: values[..., 1 : 2 * half : 2] for field, values in state.items()}
        merged = numpy_merge(op, accumulate, front, back)
        rest = {field: values[..., 2 * half :] for field, values in state.items()}
        state = {field: np.concatenate([merged[field], rest[field]], axis=-1) for field in merged}
        n = n - half
    return {field: values[..., 0] for field, values in state.items()}


def numpy_gather(op: Operator, accumulate: str, x: Any, i: Any) -> State:
    """The state of the elements along the last axis as a tile: in the two sweeps of `op.gather`, where its guard lets
    them count beside the state of none."""
    import numpy as np

    gather = op.gather
    assert gather is not None, f"{op.name} has no sweeps"
    values = np.asarray(x).astype(accumulate)
    own = {"count": np.int64(values.shape[-1]), "x0": values[..., :1], "x": values}

    def said(text: str, **names: Any) -> Any:
        return np.asarray(evaluate(text, _names(accumulate, own | names)))

    with np.errstate(all="ignore"):
        each = np.broadcast_to(said(gather.lift), values.shape).astype(accumulate)
        while each.shape[-1] > 1:
            half = each.shape[-1] // 2
            met = said(gather.merge, a=each[..., :half], b=each[..., half : 2 * half])
            each = np.concatenate([met, each[..., 2 * half :]], axis=-1).astype(accumulate)
        t = np.broadcast_to(said(gather.common, a=each), (*values.shape[:-1], 1)).astype(accumulate)
        second: dict[str, Any] = {"t": t[..., 0], "a": each[..., 0], "x0": values[..., 0]}
        if gather.found:
            at = said(gather.found_in(accumulate), t=t).argmax(axis=-1)
            second["i"] = np.take_along_axis(np.broadcast_to(i, values.shape), at[..., None], -1)[..., 0]
        else:
            second["s"] = np.broadcast_to(said(gather.added, t=t), values.shape).sum(axis=-1, dtype=accumulate)
        fields = {
            name: np.broadcast_to(said(text, **second), values.shape[:-1]).astype(field_type(kind, accumulate))
            for (name, kind), text in zip(op.state, gather.state, strict=True)
        }
        if gather.guard:
            before = numpy_identity(op, accumulate)
            counts = said(gather.guard, a=before, t=second["t"]).astype(bool)
            fields = {name: np.where(counts, fields[name], before[name]) for name in fields}
    return fields
