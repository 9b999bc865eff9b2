"""How a whole tile becomes a state at once, where merging its elements one by one would cost more than reading them.

A thread holds the elements of a tile in registers, so it may go over them twice. The first sweep finds what they have
in common: the largest value, the mean. With that known, the second one is cheap: one exponential or one square for each
element, or a search for where the largest value lies, and no search at all where the tile cannot win.

All texts are expressions of `redtune.expressions`; numpy evaluates the same ones (`redtune.evaluation`), and a test
holds every entry to what merging element by element gives.
"""

from __future__ import annotations

from dataclasses import dataclass

from redtune.dtypes import DTYPES


@dataclass(frozen=True, slots=True)
class Gather:
    """Two sweeps over the elements `x` of a tile.

    The first: `lift` of each element (`x0` is the first one, `count` how many there are), then `merge` of two such
    numbers, `a` and `b`; `common` of the last one, `a`, is `t`. Where there is a `guard`, of the state so far (`a`) and
    `t`, the tile counts only if it holds, and takes that state's place then. The second: `s`, the sum of `added` over
    the elements, or `i`, the index of the first element for which `found` holds (`found_whole`, where elements are
    integers). `state` gives the fields of the tile's state, and may read `a` too.
    """

    lift: str
    merge: str
    common: str
    state: tuple[str, ...]
    added: str = ""
    found: str = ""
    found_whole: str = ""
    guard: str = ""

    def found_in(self, accumulate: str) -> str:
        """How an element is found among those of a register dtype."""
        return self.found if DTYPES[accumulate].kind == "float" else self.found_whole or self.found


def first_of(order: str, chosen: str) -> Gather:
    """The value that comes first in a NaN-first order, and its index. A tile whose value does not come before that of
    the tiles before it has nothing to add: of equals the lowest index wins, and it has been seen."""
    return Gather(
        lift="x",
        merge=f"{chosen}(a, b)",
        common="a",
        guard=f"({order}(t, a.value) > {order}(a.value, t)) | (a.index == no_index)",
        found="(x == t) | (x != x)",  # no element is NaN unless `t` is
        found_whole="x == t",
        state=("t", "i"),
    )


# The mean as the first element and the mean distance from it, which no sum of large values can overflow and which is
# exact where all elements are the same.
MOMENTS = Gather(
    lift="(x - x0) * (1 / real(count))",
    merge="a + b",
    common="x0 + a",
    added="(x - t) * (x - t)",
    state=("count", "t", "s"),
)

# Sums of narrow integers and of their squares are exact, and so is what is made of them.
EXACT_MOMENTS = Gather(
    lift="x",
    merge="a + b",
    common="a",
    added="x * x",
    state=("count", "real(t) / real(count)", "(real(s) * real(count) - real(t) * real(t)) / real(count)"),
)

# One exponential an element, of its distance from the largest one. From an infinite one nothing has a distance: then
# the exponentials themselves are infinite, or zero, as the largest value has it.
EXPONENTIALS = Gather(
    lift="x",
    merge="larger(a, b)",
    common="pick(absolute(a) < highest, a, 0)",
    added="decay(x - t)",
    state=("a", "s"),
)


# Squares scaled for the largest element of a tile: what underflows beside it is less than its rounding.
_IS_HUGE, _IS_TINY = "(t > huge_from)", "(t < tiny_below)"
_SCALED = f"(x * pick({_IS_HUGE}, huge_scale, pick({_IS_TINY}, tiny_scale, 1)))"
SQUARES = Gather(
    lift="absolute(x)",
    merge="larger(a, b)",
    common="a",
    added=f"{_SCALED} * {_SCALED}",
    state=(f"pick({_IS_TINY}, s, 0)", f"pick({_IS_HUGE} | {_IS_TINY}, 0, s)", f"pick({_IS_HUGE}, s, 0)"),
)
