"""Several narrow elements folded by one instruction, as they lie in a 32-bit word.

A dialect's table says how: for what is folded and the dtype, the words a tile begins with, how each takes one more word
of elements, and the elements (or the sum) that are left in them at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from redtune.config import default_of
from redtune.dtypes import dtype_named
from redtune.narrow import folds_in_ints
from redtune.operators import Operator, operator_of
from redtune.plan import WORD_BYTES

if TYPE_CHECKING:
    from redtune.config import Config
    from redtune.dialect import Dialect
    from redtune.types import Problem


@dataclass(frozen=True, slots=True)
class Packing:
    """`start` gives the words that a tile begins with, `steps` how each of them takes the `word` with more elements
    (`{0}` is the word itself), `left` what is in them at the end (`{0}`, `{1}` are all of them): elements, or a sum.
    `has_second` says that the last of these is what a second sweep would add up."""

    start: tuple[str, ...]
    steps: tuple[str, ...]
    left: tuple[str, ...]
    has_second: bool = False


def spelled(packing: Packing) -> Packing:
    """The same with the words called `packed[0]` and so on."""
    names = [f"packed[{k}]" for k in range(len(packing.start))]
    steps = tuple(text.format(name) for text, name in zip(packing.steps, names, strict=True))
    return replace(packing, steps=steps, left=tuple(text.format(*names) for text in packing.left))


def idle_accumulators(problem: Problem, config: Config, dialect: Dialect) -> int | None:
    """What the knob `accumulators` must be where words are folded, and it has no effect; None where it has."""
    found, gather = packing_of(problem, config, dialect), operator_of(problem).gather
    if found is None or (gather is not None and gather.added and not found.has_second):
        return None  # a second sweep adds up element by element
    return min(int(default_of("accumulators")), config.items * config.vector)


def folded_as(problem: Problem, op: Operator) -> str:
    """What a tile is folded by, as a table calls it: "sum of x", "max", or nothing that a table could have."""
    if folds_in_ints(problem):
        if op.whole_gather is not None:
            return "moments" if op.whole_gather.added == "x * x" else ""
        if op.state[0][1] == "value":
            return ""
        return f"sum of {op.lift[0]}" if len(op.lift) == 1 else ""
    if op.gather is not None:
        return {"larger(a, b)": "max", "smaller(a, b)": "min"}.get(op.gather.merge, "") if op.gather.lift == "x" else ""
    if op.result == "flag":
        return {"or": "or", "and": "least"}.get(op.native, "")  # all elements count where the least one does
    return op.native if op.lift == ("x",) and op.native in ("max", "min", "and", "or", "xor") else ""


def packing_of(problem: Problem, config: Config, dialect: Dialect) -> Packing | None:
    """How the words of a load are folded, where the dialect knows how and a load has any."""
    whole = config.vector * dtype_named(problem.dtype).bytes % WORD_BYTES == 0
    if problem.layout == "columns":
        return None  # the elements of a word are of different results
    if not whole or problem.is_masked or problem.is_compensated or operator_of(problem).inputs > 1:
        return None
    found = dialect.packings.get((folded_as(problem, operator_of(problem)), problem.dtype))
    return spelled(found) if found is not None else None
