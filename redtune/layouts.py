"""How a kernel walks the array: the axes of a strided array become one outer, one reduced and one inner axis.

Strides and offsets are in elements, not bytes. Axes of length 0 are the caller's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations


@dataclass(frozen=True, slots=True)
class Strides:
    """How one input operand is walked, in elements: (o, k, i) lies at `start + o * outer + k * n + i * inner`. Strides
    may be negative or 0; `start` counts from the array's first element and is 0 unless a reversed axis was flipped."""

    start: int
    outer: int
    n: int
    inner: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A walk over `outer` x `n` x `inner` elements, `n` of them into one. Result (o, i) lies at `o * out_outer +
    i * out_inner`, in elements from the result's first. An axis that is not there has length 1 and strides 0, except
    that an `n` of 1 has stride 1."""

    kind: str  # "flat" and "rows" read neighbours along n; "columns" is anything else
    outer: int
    n: int
    inner: int
    inputs: tuple[Strides, ...]  # one per operand
    out_outer: int
    out_inner: int


@dataclass(frozen=True, slots=True)
class _Axis:
    """`strides` has one entry per operand and, for a kept axis, the result's last: what merges and moves together."""

    length: int
    strides: tuple[int, ...]

    def is_reversed(self) -> bool:
        """Whether every operand that moves along the axis moves backwards. Where none moves, a flip changes nothing."""
        return all(stride <= 0 for stride in self.strides)

    def flipped(self) -> _Axis:
        return _Axis(self.length, tuple(-stride for stride in self.strides))

    def goes_on(self, faster: _Axis) -> bool:
        """Whether a step along this axis leads to where `faster` ends."""
        return all(mine == its * faster.length for mine, its in zip(self.strides, faster.strides, strict=True))

    def joined(self, faster: _Axis) -> _Axis:
        return _Axis(self.length * faster.length, faster.strides)


def collapse(
    shape: tuple[int, ...],
    strides: tuple[tuple[int, ...], ...],
    axes: tuple[int, ...],
    out_strides: tuple[int, ...],
    keeps_order: bool,
) -> Layout | None:
    """The walk that reduces `axes` of operands of one `shape`, or None where there is none: then the caller copies.

    `strides` has one row per operand, with a stride per axis; `axes` are unique and not negative; `out_strides` has the
    result's stride along each kept axis, by ascending axis. Under `keeps_order` k counts the reduced elements in C
    order, as an index among them must; otherwise the reduced axes may be permuted and flipped.
    """
    kept_at = [at for at in range(len(shape)) if at not in axes]
    kept = [
        _Axis(shape[at], (*(row[at] for row in strides), out_stride))
        for at, out_stride in zip(kept_at, out_strides, strict=True)
        if shape[at] > 1
    ]
    reduced = [_Axis(shape[at], tuple(row[at] for row in strides)) for at in sorted(axes) if shape[at] > 1]
    starts = [0] * len(strides)
    if keeps_order:
        reduced = _merged_in_order(reduced)
    else:
        back = [axis for axis in reduced if axis.is_reversed()]
        starts = [sum((axis.length - 1) * axis.strides[j] for axis in back) for j in range(len(strides))]
        reduced = _merged([axis.flipped() if axis.is_reversed() else axis for axis in reduced])
    # Kept axes are never flipped: the result has no start that could move with them.
    kept = sorted(_merged(kept), key=_distance, reverse=True)
    if len(reduced) > 1 or len(kept) > 2:
        return None
    n = reduced[0] if reduced else _Axis(1, (1,) * len(strides))
    absent = _Axis(1, (0,) * (len(strides) + 1))
    if len(kept) < 2 and all(stride == 1 for stride in n.strides):
        kind = "rows" if kept else "flat"
        outer, inner = kept[0] if kept else absent, absent
    else:
        kind = "columns"
        outer, inner = (absent, absent, *kept)[-2:]
    *outers, out_outer = outer.strides
    *inners, out_inner = inner.strides
    inputs = tuple(Strides(*row) for row in zip(starts, outers, n.strides, inners, strict=True))
    return Layout(kind, outer.length, n.length, inner.length, inputs, out_outer, out_inner)


def _merged(axes: list[_Axis]) -> list[_Axis]:
    """The axes with all merges made that some order allows.

    Any pair will do at each step: axes that could go on the same one have the same strides, so whichever is taken, as
    many remain, with the same strides. No sorting finds more, whatever the strides of 0.
    """
    axes = list(axes)
    while pair := next((pair for pair in permutations(axes, 2) if pair[0].goes_on(pair[1])), None):
        for axis in pair:
            axes.remove(axis)
        axes.append(pair[0].joined(pair[1]))
    return axes


def _merged_in_order(axes: list[_Axis]) -> list[_Axis]:
    """The axes, slowest first, with the merges made that leave the order of their elements alone."""
    merged: list[_Axis] = []
    for axis in axes:
        if merged and merged[-1].goes_on(axis):
            axis = merged.pop().joined(axis)
        merged.append(axis)
    return merged


def _distance(kept: _Axis) -> tuple[bool, int, int]:
    """Sorts the nearest neighbours in the first operand first, as the threads of a wave want them; those in the result
    decide a tie. A broadcast axis has no neighbours and comes last."""
    stride = abs(kept.strides[0])
    return stride == 0, stride, abs(kept.strides[-1])


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a C-contiguous array, in elements."""
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


@dataclass(frozen=True, slots=True)
class Fit:
    """A layout, and what must be done to come by it: `packs` is the order of axes in which operands are copied first
    (None where they are read as they lie), `is_fresh` says that the result is made in C order and copied."""

    layout: Layout
    packs: tuple[int, ...] | None
    is_fresh: bool


def fit(
    shape: tuple[int, ...],
    strides: tuple[tuple[int, ...], ...],
    axes: tuple[int, ...],
    out_strides: tuple[int, ...],
    keeps_order: bool,
    must_copy: bool = False,
) -> Fit:
    """How arrays are walked: as they lie where a kernel can, else after one contiguous copy of each."""
    found = None if must_copy else collapse(shape, strides, axes, out_strides, keeps_order)
    if found is not None:
        return Fit(found, None, False)
    # With the reduced axes last, every result's elements are neighbours.
    order = tuple(k for k in range(len(shape)) if k not in axes) + axes
    packed = tuple(shape[k] for k in order)
    last = tuple(range(len(shape) - len(axes), len(shape)))
    same = (contiguous_strides(packed),) * len(strides)
    found = collapse(packed, same, last, out_strides, keeps_order)
    if found is not None:
        return Fit(found, order, False)
    kept = packed[: len(shape) - len(axes)]
    found = collapse(packed, same, last, contiguous_strides(kept), keeps_order)
    assert found is not None, "a packed array and a C-contiguous result always fit"
    return Fit(found, order, True)
