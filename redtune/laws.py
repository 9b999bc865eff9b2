"""The laws of a reduction, tested with numpy on values where a wrong operator shows; a broken one gives a sentence."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from typing import Any

from redtune.dtypes import DTYPES, UNSIGNED, Dtype
from redtune.evaluation import State, numpy_identity, numpy_lift, numpy_merge
from redtune.expressions import evaluate, names_in
from redtune.measured import finished
from redtune.operators import NO_INDEX, Operator, accumulate_type, is_order_free, result_type
from redtune.references import Depths
from redtune.sorts import facts_by_part

INDICES = (0, 1, 7, 2**31)
DEPTHS = Depths(8, 8)
MAX_TUPLES = 20_000
# The largest number and the smallest.
ENDS = {
    "float16": (65504.0, 2.0**-24),
    "bfloat16": (2.0**128 - 2.0**120, 2.0**-133),
    "float32": (2.0**128 - 2.0**104, 2.0**-149),
    "float64": (1.7976931348623157e308, 5e-324),
}
EASE = 4  # a law is broken when results differ by more than so many bounds


def broken_law(op: Operator, dtype: Dtype) -> str:
    """What is wrong with an operator on a dtype, or nothing. `op` is as it stands for that dtype."""
    import numpy as np

    sentence = _refusal(op, dtype)
    if sentence:
        return sentence
    try:
        with np.errstate(all="ignore"):
            return next(_Laws(op, dtype).broken(), "")
    except (TypeError, ArithmeticError) as error:
        return f"operator {op.name} cannot be evaluated in {dtype.name}: {error}"


def _refusal(op: Operator, dtype: Dtype) -> str:
    """What numpy and C would read differently in this dtype alone."""
    accumulate, parts = accumulate_type(op, dtype), facts_by_part(op)
    if accumulate in UNSIGNED:
        ordered = sorted(name for facts in parts.values() for name in facts.orders)
        if ordered:
            return (
                f"operator {op.name} orders or divides {ordered[0]}, and sums of {dtype.name} have no sign in a "
                "kernel: choose a dtype of floats, accumulates: float or the kind value"
            )
    if DTYPES[accumulate].kind == "uint":
        negative = [part for part, facts in parts.items() if facts.negates_literal and not part.startswith("identity")]
        if negative:
            return f"operator {op.name} has a negative number in its {negative[0]}, and {dtype.name} has no sign"
    adds_up = any(kind in ("sum", "wrapping") for _, kind in op.state)
    if accumulate == "uint64" or (accumulate == "int64" and adds_up):
        mixed = [part for part, facts in parts.items() if facts.mixes]
        if accumulate == "int64":
            mixed = [part for part in mixed if part.startswith(("merge", "let"))]
        if mixed:
            return (
                f"operator {op.name} joins counts or indices with values in its {mixed[0]}, which numpy cannot do in "
                f"64 bits without a sign: choose another dtype than {dtype.name}, or accumulates: float"
            )
    return ""


def _elements(dtype: Dtype, is_moderate: bool) -> Any:
    """Values to try, plain ones first, so that the first counterexample is a plain one. Moderate ones round little:
    none of them is far from the others."""
    import numpy as np

    if dtype.kind == "bool":
        return np.array([True, False])
    if dtype.kind in ("int", "uint"):
        low, high = dtype.limits
        ends = [] if is_moderate else [high, low, high - 1, low + 1, 100]
        return np.array([value for value in [1, 2, 3, 5, 0, -1, -2, -7, *ends] if value >= low], dtype.name)
    values = [1.0, 2.0, 3.0, 5.0, 0.0, -1.0, -2.0, -8.0, 0.75, -0.0, np.nan, np.inf, -np.inf]
    if not is_moderate:
        top, tiny = ENDS[dtype.name]
        values += [1e4, -1e4, 1 / 1024, top, -top, tiny, -tiny]
    return dtype.decode(dtype.encode(np.array(values)))


class _Laws:
    """One operator on one dtype, and its states of the values to try."""

    def __init__(self, op: Operator, dtype: Dtype) -> None:
        self.op, self.dtype = op, dtype
        self.accumulate = accumulate_type(op, dtype)
        self.is_exact = is_order_free(op, self.accumulate)
        self.elements = _elements(dtype, not self.is_exact)
        self.reads_index = any("i" in names_in(text) for text in op.lift)
        result = DTYPES[result_type(op, dtype)]
        # As it is accumulated where it is a float: float16 would hide a difference.
        self.result, self.is_float = result, result.kind == "float"

    def broken(self) -> Iterator[str]:
        """A sentence for each law that is broken."""
        if DTYPES[self.accumulate].kind != "float":
            yield from self._overflow()
        for count in (1, 2):
            yield from self._identity(count)
        yield from self._order(2, "commutative", ("{0} and {1}", "{1} and {0}"))
        yield from self._order(3, "associative", ("({0} and {1}) and {2}", "{0} and ({1} and {2})"))
        yield from self._order(4, "associative", ("(({0} and {1}) and {2}) and {3}", "({0} and {1}) and ({2} and {3})"))

    # -- tuples of elements: an array of each input with one tuple a row

    def _tuples(self, count: int) -> Iterator[tuple[list[Any], Any]]:
        """Arrays of tuples, one per input, and the indices of their members."""
        import numpy as np

        members = count * self.op.inputs
        if len(self.elements) ** members <= MAX_TUPLES:
            places = np.array(list(itertools.product(range(len(self.elements)), repeat=members)))
            places = places[np.argsort(places.max(axis=1), kind="stable")]
        else:
            places = np.random.default_rng(count).integers(0, len(self.elements), (MAX_TUPLES, members))
            places = places[np.argsort(places.sum(axis=1), kind="stable")]
        values = self.elements[places]
        inputs = [values[:, k * count : (k + 1) * count] for k in range(self.op.inputs)]
        orders = itertools.permutations(INDICES[:count]) if self.reads_index and count < 4 else [INDICES[:count]]
        yield from ((inputs, np.array(order)) for order in orders)

    def _states(self, inputs: list[Any], indices: Any) -> list[State]:
        import numpy as np

        count, rows = inputs[0].shape[1], len(inputs[0])
        lifted = []
        for k in range(count):
            index = np.full(rows, indices[k])
            state = numpy_lift(
                self.op, self.accumulate, inputs[0][:, k], index, *(values[:, k] for values in inputs[1:])
            )
            lifted.append({name: np.broadcast_to(values, rows) for name, values in state.items()})
        return lifted

    def _merged(self, how: Any, states: list[State]) -> State:
        """The states merged as a tree of places says."""
        if isinstance(how, int):
            return states[how]
        return self._both(*(self._merged(side, states) for side in how))

    def _both(self, a: State, b: State) -> State:
        import numpy as np

        rows = next(iter(a.values())).shape
        both = numpy_merge(self.op, self.accumulate, a, b)
        return {name: np.broadcast_to(values, rows) for name, values in both.items()}

    # -- the laws

    def _overflow(self) -> Iterator[str]:
        """Elements whose values leave the integers of the accumulator: numpy wraps around there, and C may do anything.
        Fields of kind sum and wrapping are unsigned in a kernel, and wrap around as well."""
        import numpy as np

        low, high = DTYPES[self.accumulate].limits
        limits = {"lowest": low, "highest": high, "nan_or_lowest": low, "nan_or_highest": high, "no_index": NO_INDEX}
        for inputs, indices in self._tuples(1):
            whole = [values[:, 0].astype(object) for values in inputs]
            names = {**dict(zip("xy", whole, strict=False)), "i": int(indices[0]), **limits}
            for (field, kind), lift in zip(self.op.state, self.op.lift, strict=True):
                values = np.broadcast_to(np.asarray(evaluate(lift, names), object), len(inputs[0]))
                outside = np.array([not low <= value <= high for value in values])
                if kind == "value" and outside.any():
                    at = int(np.argmax(outside))
                    yield (
                        f"operator {self.op.name} leaves the range of {self.accumulate} in {self.dtype.name}: {lift} "
                        f"of {self._names(inputs, indices, at)[0]} is {values[at]}; choose a dtype of floats, "
                        f"accumulates: float, or the kind wrapping for field {field}"
                    )
                    return

    def _identity(self, count: int) -> Iterator[str]:
        import numpy as np

        nothing = numpy_identity(self.op, self.accumulate)
        for inputs, indices in self._tuples(count):
            states = self._states(inputs, indices)
            alone = states[0] if count == 1 else self._merged((0, 1), states)
            empty = {name: np.broadcast_to(value, len(inputs[0])) for name, value in nothing.items()}
            shown = "{0}" if count == 1 else "({0} and {1})"
            for a, b, text in ((alone, empty, f"{shown} and nothing"), (empty, alone, f"nothing and {shown}")):
                both = self._both(a, b)
                at = self._first_wrong(both, alone, inputs)
                if at is not None:
                    names = self._names(inputs, indices, at)
                    got, right = self._results(both, alone, at, count)
                    sides = f"{text.format(*names)} gives {got}, {shown.strip('()').format(*names)} alone gives {right}"
                    yield f"the identity of operator {self.op.name} is not neutral in {self.dtype.name}: {sides}"
                    return

    def _order(self, count: int, law: str, ways: tuple[str, str]) -> Iterator[str]:
        for inputs, indices in self._tuples(count):
            states = self._states(inputs, indices)
            left, right = (self._merged(_tree_of(way), states) for way in ways)
            at = self._first_wrong(left, right, inputs)
            if at is not None:
                names = self._names(inputs, indices, at)
                one, other = self._results(left, right, at, count)
                of = f"of {', '.join(names[:-1])} and {names[-1]}, " if count > 2 else ""
                sides = f"{of}{ways[0].format(*names)} gives {one}, {ways[1].format(*names)} gives {other}"
                yield f"operator {self.op.name} is not {law} in {self.dtype.name}: {sides}"
                return

    def _finished(self, state: State, count: int) -> Any:
        found = finished(self.op, self.accumulate, state, count)
        return found.astype(self.accumulate) if self.is_float else self.result.decode(self.result.encode(found))

    def _first_wrong(self, left: State, right: State, inputs: list[Any]) -> int | None:
        """The first row in which two states differ: in any field where the operator is exact, else in the result by
        more than rounding allows."""
        import numpy as np

        rows, count = inputs[0].shape
        if self.is_exact:
            same = np.ones(rows, bool)
            for name in left:
                same &= (left[name] == right[name]) | ((left[name] != left[name]) & (right[name] != right[name]))
        else:
            one, other = self._finished(left, count), self._finished(right, count)
            same = (one == other) | ((one != one) & (other != other))
            tolerance = self.op.tolerance
            if tolerance is not None and self.is_float:
                bound = tolerance.bound(tolerance.measures(*inputs), DEPTHS, DTYPES[self.accumulate].u)
                error = np.abs(one.astype(np.float64) - other)
                same |= np.isfinite(one) & np.isfinite(other) & (error <= EASE * bound)
        return None if same.all() else int(np.argmin(same))

    # -- words

    def _names(self, inputs: list[Any], indices: Any, at: int) -> list[str]:
        """The elements of a row."""
        names = []
        for k in range(inputs[0].shape[1]):
            values = [_shown(values[at, k]) for values in inputs]
            name = values[0] if len(values) == 1 else f"({', '.join(values)})"
            names.append(f"{name} at {indices[k]}" if self.reads_index else name)
        return names

    def _results(self, left: State, right: State, at: int, count: int) -> tuple[str, str]:
        """Two results in words; the states where the results are the same."""
        shown = [_shown(self._finished(state, count)[at]) for state in (left, right)]
        if shown[0] == shown[1]:
            shown = [", ".join(f"{name} {_shown(state[name][at])}" for name in state) for state in (left, right)]
        return shown[0], shown[1]


def _tree_of(way: str) -> Any:
    """The places that a sentence merges: ((0, 1), 2) of "({0} and {1}) and {2}"."""
    return ast.literal_eval("(" + way.replace("{", "").replace("}", "").replace(" and ", ", ") + ")")


def _shown(value: Any) -> str:
    item = value.item() if hasattr(value, "item") else value
    return f"{item:.9g}" if isinstance(item, float) else str(item)
