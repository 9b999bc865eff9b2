"""The right answers of an operator that brings none, and how far a kernel may be from them: found by folding it.

The reference folds in float64 (integers: in their own accumulator). The tolerance is first-order error analysis done
by numpy: the terms of every element are moved by a small share of their size, the fold says how far the state moves,
and a kernel that rounds `k` times on the way moves it `k * u` of that. For a sum this is the textbook bound,
depth * u * sum(|terms|), whatever the order. Comparing two orders of float32 would be simpler and is no bound: two
orders of three numbers are often both exact where a third is not.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from redtune.dtypes import DTYPES, UNSIGNED, Dtype
from redtune.evaluation import State, limits, numpy_identity, numpy_lift, numpy_merge
from redtune.expressions import evaluate, names_in, parse
from redtune.operators import NO_INDEX, Operator, accumulate_type, result_type
from redtune.references import Depths, Tolerance
from redtune.sorts import SORTS, Facts, facts_by_part

BLOCK = 1 << 16  # elements folded at once: what numpy copies stays in a core's cache
STEP = 2.0**-30  # how far terms are moved, of their size: far above float64's roundings, far below any curvature
NEAR_THE_END = 1e37  # of float32, which ends at 3.4e38
HEADROOM = 4  # roundings more than counted, as the built-in operators allow


@dataclass(frozen=True, slots=True)
class Rounding:
    """What a field of the state loses: `own` roundings of each element, `merging` of each merge, and whether merges
    only multiply, so that each factor is rounded once and not again on every level. `keeps` says that it is a plain sum
    that keeps its losses from tile to tile."""

    own: int
    merging: int
    is_product: bool
    keeps: bool


def roundings_of(op: Operator) -> tuple[Rounding | None, ...]:
    """One entry per field; None where nothing rounds."""
    parts = facts_by_part(op)
    lets = {let.name: let.text for let in op.lets}

    def merging(text: str, facts: Facts) -> int:
        inner = [name for name in lets if name in names_in(text)]
        return facts.roundings + sum(merging(lets[name], parts[f"let {name}"]) for name in inner)

    found: list[Rounding | None] = []
    for (name, kind), merge in zip(op.state, op.merge, strict=True):
        own, each = parts[f"lift {name}"].roundings, merging(merge, parts[f"merge {name}"])
        adds = any(isinstance(node, (ast.Add, ast.Sub)) for node in ast.walk(parse(merge)))
        plain = kind == "sum" and ast.unparse(parse(merge)) in (f"a.{name} + b.{name}", f"b.{name} + a.{name}")
        is_rounded = SORTS[kind] == "value" and own + each > 0
        found.append(Rounding(own, each, not adds, plain) if is_rounded else None)
    return tuple(found)


def with_reference(op: Operator) -> Operator:
    """The operator with the reference that its own text gives and, where floats round, a tolerance."""
    losses = roundings_of(op)
    is_rounded = any(losses) or facts_by_part(op)["finish"].roundings > 0
    tolerance = Tolerance(
        functools.partial(_measures, op), lambda measures, depths, u: _bound(op, losses, measures[0], depths, u), True
    )
    return replace(
        op, reference=functools.partial(_reference, op), tolerance=tolerance if is_rounded or not op.exact else None
    )


# --- folding -------------------------------------------------------------------------------------------------------


def fold(op: Operator, accumulate: str, inputs: Sequence[Any], moved: str = "") -> State:
    """The state of all elements along the last axis: of blocks of rows and of elements, whose states are
    then merged in their order. `moved` names a field whose terms are moved by STEP of their size."""
    import numpy as np

    *lead, n = inputs[0].shape
    rows = math.prod(lead)
    if n == 0 or rows == 0:
        return {name: np.broadcast_to(value, lead) for name, value in numpy_identity(op, accumulate).items()}
    flat = [values.reshape(rows, n) for values in inputs]
    several = max(1, BLOCK // n)
    starts = range(0, n, BLOCK)

    def block(at: tuple[int, int]) -> State:
        row, start = at
        parts = [values[row : row + several, start : start + BLOCK] for values in flat]
        return _merged(op, accumulate, _lifted(op, accumulate, parts, start, moved))

    places = [(row, start) for row in range(0, rows, several) for start in starts]
    states = [block(place) for place in places]
    if len(starts) > 1:
        each = [states[k : k + len(starts)] for k in range(0, len(states), len(starts))]
        states = [_merged(op, accumulate, _joined(parts, -1)) for parts in each]
    return {name: values.reshape(lead) for name, values in _joined(states, 0).items()}


def _joined(states: list[State], axis: int) -> State:
    import numpy as np

    return {name: np.concatenate([state[name] for state in states], axis=axis) for name in states[0]}


def _lifted(op: Operator, accumulate: str, block: Sequence[Any], start: int, moved: str) -> State:
    import numpy as np

    shape = block[0].shape
    index = start + np.arange(shape[1])
    state = numpy_lift(op, accumulate, block[0], index, *block[1:])
    state = {name: np.broadcast_to(values, shape) for name, values in state.items()}
    if moved:
        names = dict(zip("xy", (values.astype(accumulate) for values in block), strict=False))
        text = op.lift[[name for name, _ in op.state].index(moved)]
        with np.errstate(all="ignore"):
            _, size = _sized(text, {**names, "i": index, **_constants(accumulate)})
            state[moved] = state[moved] + STEP * np.where(np.isfinite(size), size, 0)
    return state


# Merges that numpy folds at once, and faster: what it calls them.
_AT_ONCE = {"a.{0} + b.{0}": "add", "a.{0} * b.{0}": "multiply"}
_AT_ONCE |= {"larger(a.{0}, b.{0})": "maximum", "smaller(a.{0}, b.{0})": "minimum"}
_AT_ONCE |= {"a.{0} & b.{0}": "bitwise_and", "a.{0} | b.{0}": "bitwise_or", "a.{0} ^ b.{0}": "bitwise_xor"}


def _merged(op: Operator, accumulate: str, state: State) -> State:
    """The states along the last axis, merged with their neighbours level by level; the axis stays, of length 1."""
    import numpy as np

    calls = {text.format(name): call for name, _ in op.state for text, call in _AT_ONCE.items()}
    if all(merge in calls for merge in op.merge):
        rows = zip(state.items(), op.merge, strict=True)
        with np.errstate(all="ignore"):
            return {
                # Neighbours in memory: only those are added up in pairs, and not one after the other.
                name: getattr(np, calls[merge]).reduce(
                    np.ascontiguousarray(values), axis=-1, dtype=values.dtype, keepdims=True
                )
                for (name, values), merge in rows
            }
    n = next(iter(state.values())).shape[-1]
    while n > 1:
        even = n // 2 * 2
        front = {name: values[..., :even:2] for name, values in state.items()}
        back = {name: values[..., 1:even:2] for name, values in state.items()}
        merged = numpy_merge(op, accumulate, front, back)
        merged = {name: np.broadcast_to(values, front[name].shape) for name, values in merged.items()}
        if even < n:
            merged = {name: np.concatenate([merged[name], state[name][..., even:]], axis=-1) for name in merged}
        state, n = merged, n - even // 2
    return state


# --- the reference ----------------------------------------------------------------------------------------------------


def _wide(op: Operator, dtype: Dtype) -> str:
    accumulate = accumulate_type(op, dtype)
    return "float64" if DTYPES[accumulate].kind == "float" else accumulate


def _constants(accumulate: str) -> dict[str, Any]:
    import numpy as np

    return {**limits(DTYPES[accumulate]), "no_index": np.int64(NO_INDEX)}


def finished(op: Operator, accumulate: str, state: State, count: int) -> Any:
    """The result of a state, unrounded: in whatever type its expression gives. Sums of signed integers have their sign,
    though a kernel adds them up without one."""
    import numpy as np

    signed = {UNSIGNED[accumulate]: accumulate} if accumulate in UNSIGNED else {}
    fields = {name for name, kind in op.state if kind in ("sum", "wrapping")}
    state = {
        name: values.astype(signed.get(values.dtype.name, values.dtype)) if name in fields else values
        for name, values in state.items()
    }
    names = {"a": state, "count": np.int64(count), "ddof": np.int64(0), **_constants(accumulate)}
    with np.errstate(all="ignore"):
        shape = np.broadcast_shapes(*(values.shape for values in state.values()))
        return np.broadcast_to(evaluate(op.finish[0], names), shape)


def _reference(op: Operator, *inputs: Any) -> Any:
    import numpy as np

    dtype, n = DTYPES[inputs[0].dtype.name], inputs[0].shape[-1]
    wide = _wide(op, dtype)
    state = fold(op, wide, inputs)
    right = finished(op, wide, state, n)
    result = DTYPES[result_type(op, dtype)]
    if result.kind != "float":
        return result.decode(result.encode(right))
    right = right.astype(np.float64)
    if _leaves_float32(op, dtype, state):
        # Where float32 leaves its range on the way, its infinity is what a kernel gives.
        seen = finished(op, "float32", fold(op, "float32", inputs), n)
        right = np.where(np.isfinite(right) & ~np.isfinite(seen), seen, right)
    return right


def _leaves_float32(op: Operator, dtype: Dtype, state: State) -> bool:
    """Whether a kernel, which has float32, may leave its range where the reference, which has float64, does not."""
    import numpy as np

    if accumulate_type(op, dtype) != "float32":
        return False
    texts = (*op.lift, *op.merge, *op.finish, *(let.text for let in op.lets))
    with np.errstate(all="ignore"):
        largest = max(float(np.nanmax(np.where(np.isfinite(v), np.abs(v), 0), initial=0)) for v in state.values())
    return any("exp(" in text for text in texts) or largest > NEAR_THE_END


# --- the tolerance ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Measure:
    """Of every result: the state, how far each field moves when the terms of one move by a unit of their size, and how
    far the fold in a kernel's accumulator is from the reference."""

    count: int
    state: State
    moves: dict[str, State]
    spread: Any


def _measures(op: Operator, *inputs: Any) -> tuple[Any, ...]:
    import numpy as np

    dtype, n = DTYPES[inputs[0].dtype.name], inputs[0].shape[-1]
    wide = _wide(op, dtype)
    state = fold(op, wide, inputs)
    moves: dict[str, State] = {}
    with np.errstate(all="ignore"):
        for (moved, _), loss in zip(op.state, roundings_of(op), strict=True):
            if loss:
                after = fold(op, wide, inputs, moved)
                fields = [name for name, kind in op.state if SORTS[kind] == "value"]
                moves[moved] = {name: np.abs(after[name] - state[name]) / STEP for name in fields}
        spread = np.zeros(inputs[0].shape[:-1])
        if _leaves_float32(op, dtype, state):
            # What a model of relative errors misses: terms that shrink into float32's subnormals.
            seen = finished(op, "float32", fold(op, "float32", inputs), n)
            spread = np.nan_to_num(np.abs(seen - finished(op, wide, state, n)), nan=0.0, posinf=0.0)
    return (_Measure(n, state, moves, spread),)


def _bound(op: Operator, losses: tuple[Rounding | None, ...], measure: _Measure, depths: Depths, u: float) -> Any:
    """The largest error: of the state, carried through `finish`, and of `finish` itself."""
    import numpy as np

    off = {name: np.zeros_like(measure.spread) for name in next(iter(measure.moves.values()), {})}
    # In float64 the reference rounds as well: in runs of sixteen additions, then pair by pair.
    own = 16 + math.ceil(math.log2(max(2, measure.count))) if u <= DTYPES["float64"].u else 0
    for (name, _), loss in zip(op.state, losses, strict=True):
        if loss is None:
            continue
        depth = (depths.chain if loss.keeps else depths.full) + own
        each = loss.own + HEADROOM + loss.merging * (1 if loss.is_product else depth)
        for field, moved in measure.moves[name].items():
            off[field] = off[field] + u * each * moved
        if loss.merging and loss.is_product:
            off[name] = off[name] + u * depth * np.abs(measure.state[name])
    constants = {"count": np.int64(measure.count), "ddof": np.int64(0), **_constants("float64")}
    with np.errstate(all="ignore"):
        right, size = _sized(op.finish[0], {"a": measure.state, **constants})
        error = u * (facts_by_part(op)["finish"].roundings + 2) * size + 2 * measure.spread * (u / DTYPES["float32"].u)
        for field, amount in off.items():
            sides = [{**measure.state, field: measure.state[field] + sign * amount} for sign in (1, -1)]
            ends = [np.abs(evaluate(op.finish[0], {"a": side, **constants}) - right) for side in sides]
            error = error + np.fmax(*ends)
    return np.broadcast_to(error, measure.spread.shape)


def _sized(text: str, names: dict[str, Any]) -> tuple[Any, Any]:
    """An expression's value, and the size that its rounding error is proportional to: where numbers nearly cancel, it
    is that of the numbers and not of their difference."""
    import numpy as np

    def size(node: ast.expr) -> tuple[Any, Any]:
        match node:
            case ast.UnaryOp(_, operand):
                value, by = size(operand)
                return -value, by
            case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult() | ast.Div() as op, right):
                (a, by_a), (b, by_b) = size(left), size(right)
                if isinstance(op, ast.Mult):
                    return a * b, by_a * by_b
                if isinstance(op, ast.Div):
                    return np.divide(a, b), by_a * by_b / np.square(b, dtype=np.float64)
                return (a + b if isinstance(op, ast.Add) else a - b), by_a + by_b
            case ast.Call(ast.Name("pick"), [condition, left, right]):
                is_first = size(condition)[0]
                (a, by_a), (b, by_b) = size(left), size(right)
                return np.where(is_first, a, b), np.where(is_first, by_a, by_b)
            case ast.Call(ast.Name("larger" | "smaller" as word), [left, right]):
                (a, by_a), (b, by_b) = size(left), size(right)
                value = np.maximum(a, b) if word == "larger" else np.minimum(a, b)
                return value, np.where(value == a, by_a, by_b)
            case ast.Call(ast.Name("real" | "absolute" as word), [operand]):
                value, by = size(operand)
                return (np.abs(value) if word == "absolute" else value), by
            case ast.Call(ast.Name("sqrt" | "exp" | "log" as word), [operand]):
                of, by_of = size(operand)
                value = getattr(np, word)(of)
                if word == "exp":
                    by = value * np.maximum(1, by_of)
                elif word == "log":
                    by = np.abs(value) + by_of / np.abs(of)
                else:
                    by = value + np.where(of > 0, by_of / (2 * value), 0)
            case _:
                value = evaluate(ast.unparse(node), names)
                by = np.abs(value * 1.0)
        return value, np.where(np.isfinite(by), by, np.abs(value))

    return size(parse(text))


# --- what to judge with ----------------------------------------------------------------------------------------------

# What the data sets of redtune.data mostly consist of, in the order in which they are tried.
TYPICAL: dict[Any, tuple[float, ...]] = {
    "any": (-0.5, -1.25, -2.0, -0.75),
    "small": (-8, 8, 3, -3, 0, 5, -5, 13, -13, 1, -1),
    "units": (1, -1, -1, 1),
    "ones": (1,),
    "zeros": (0,),
}
DOUBLINGS = 19  # to the length of a window: a product that grows has left the range by then


def bites_of(op: Operator, wanted: Any) -> Any:
    """The data that the judge can use: what is wanted if results of it stay finite, else the first of TYPICAL of which
    they do; of a product, results that are not zero. Where an element of it is to change nothing, none does. An
    infinite result would hide every fault."""
    if "float" not in op.accepts:
        return wanted
    still = {"ones", "zeros"}
    others = (still if wanted in still else TYPICAL.keys() - {"any"}) - {wanted}
    order = [wanted, *(name for name in TYPICAL if name in others)]
    return next((name for name in order if _is_fit(op, name, wanted)), wanted)


def _is_fit(op: Operator, bites: Any, wanted: Any) -> bool:
    """Whether data that bites so shows faults of an operator for which other data is wanted."""
    import numpy as np

    values = np.array(TYPICAL[bites], np.float32)
    state = fold(op, "float32", [values] * op.inputs)
    if wanted in ("ones", "zeros"):
        identity = numpy_identity(op, "float32")
        return all(state[name] == identity[name] for name in state)
    with np.errstate(all="ignore"):
        for _ in range(DOUBLINGS):
            state = numpy_merge(op, "float32", state, state)
        result = finished(op, "float32", state, len(values) << DOUBLINGS)
    return bool(np.isfinite(result)) and not (wanted == "units" and result == 0)
