"""Which walks a strided array allows: named cases, and whatever views numpy makes against numpy itself."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redtune.layouts import Layout, Strides, collapse

Array = np.ndarray[Any, np.dtype[np.int64]]


def steps(array: Array) -> tuple[int, ...]:
    """The strides in elements."""
    return tuple(stride // array.itemsize for stride in array.strides)


def kept_axes(shape: tuple[int, ...], axes: tuple[int, ...]) -> list[int]:
    return [at for at in range(len(shape)) if at not in axes]


def layout(
    views: Array | tuple[Array, ...], *axes: int, keeps_order: bool = False, out: Array | None = None
) -> Layout | None:
    """The walk over views of one shape into `out`, or into a C-ordered result."""
    views = views if isinstance(views, tuple) else (views,)
    shape = views[0].shape
    out = np.empty([shape[at] for at in kept_axes(shape, axes)], int) if out is None else out
    return collapse(shape, tuple(map(steps, views)), axes, steps(out), keeps_order)


def array(*shape: int) -> Array:
    return np.arange(math.prod(shape)).reshape(shape)


def fortran(*shape: int) -> Array:
    return np.asfortranarray(array(*shape))


def flat(n: int, stride: int = 1, start: int = 0) -> Layout:
    return Layout("flat" if stride == 1 else "columns", 1, n, 1, (Strides(start, 0, stride, 0),), 0, 0)


def rows(outer: int, n: int, pitch: int, out: int = 1) -> Layout:
    return Layout("rows", outer, n, 1, (Strides(0, pitch, 1, 0),), out, 0)


def columns(sizes: tuple[int, int, int], strides: tuple[int, int, int], out: tuple[int, int], start: int = 0) -> Layout:
    return Layout("columns", *sizes, (Strides(start, *strides),), *out)


# --- one operand ------------------------------------------------------------------------------------------------------

CASES: dict[str, tuple[Layout | None, Layout | None]] = {
    "C, axis -1": (layout(array(5, 7), 1), rows(5, 7, 7)),
    "C, axis 0": (layout(array(5, 7), 0), columns((1, 5, 7), (0, 7, 1), (0, 1))),
    "C, both axes": (layout(array(5, 7), 0, 1), flat(35)),
    "C, no axis": (layout(array(5, 7)), rows(35, 1, 1)),
    "C, both axes, named in reverse": (layout(array(5, 7), 1, 0), flat(35)),
    "3-D C, axis 0": (layout(array(2, 3, 4), 0), columns((1, 2, 12), (0, 12, 1), (0, 1))),
    "3-D C, axis 1": (layout(array(2, 3, 4), 1), columns((2, 3, 4), (12, 4, 1), (4, 1))),
    "3-D C, axis 2": (layout(array(2, 3, 4), 2), rows(6, 4, 4)),
    "3-D C, axes 0 and 1": (layout(array(2, 3, 4), 0, 1), columns((1, 6, 4), (0, 4, 1), (0, 1))),
    "3-D C, axes 1 and 2": (layout(array(2, 3, 4), 1, 2), rows(2, 12, 12)),
    "3-D C, axes 0 and 2": (layout(array(2, 3, 4), 0, 2), None),
    "4-D C, axes 1 and 2": (layout(array(2, 3, 4, 5), 1, 2), columns((2, 12, 5), (60, 5, 1), (5, 1))),
    "4-D C, axes 1 and 3": (layout(array(2, 3, 4, 5), 1, 3), None),
    "5-D C, axis 2": (layout(array(2, 3, 2, 3, 2), 2), columns((6, 2, 6), (12, 6, 1), (6, 1))),
    # The result is C-ordered, so that the kept axes of an F-ordered array do not merge.
    "3-D F, axis 2": (layout(fortran(2, 3, 4), 2), columns((3, 4, 2), (2, 6, 1), (1, 3))),
    "3-D F, axis 0": (layout(fortran(2, 3, 4), 0), columns((4, 2, 3), (6, 1, 2), (1, 4))),
    "3-D F, axes 1 and 2": (layout(fortran(2, 3, 4), 1, 2), columns((1, 12, 2), (0, 2, 1), (0, 1))),
    "3-D F, axes 0 and 1": (layout(fortran(2, 3, 4), 0, 1), rows(4, 6, 6)),
    "3-D F, axes 0 and 2": (layout(fortran(2, 3, 4), 0, 2), None),
    "3-D F, all axes": (layout(fortran(2, 3, 4), 0, 1, 2), flat(24)),
    "3-D F, axis 2, into F": (
        layout(fortran(2, 3, 4), 2, out=fortran(2, 3)),
        columns((1, 4, 6), (0, 6, 1), (0, 1)),
    ),
    "3-D F, axis 0, into F": (layout(fortran(2, 3, 4), 0, out=fortran(3, 4)), rows(12, 2, 2)),
    "4-D F, axis 3": (layout(fortran(2, 3, 4, 5), 3), None),
    "4-D F, axis 3, into F": (
        layout(fortran(2, 3, 4, 5), 3, out=fortran(2, 3, 4)),
        columns((1, 5, 24), (0, 24, 1), (0, 1)),
    ),
    "transposed, axis 0": (layout(array(7, 5).T, 0), rows(7, 5, 5)),
    "transposed, axis 1": (layout(array(7, 5).T, 1), columns((1, 7, 5), (0, 5, 1), (0, 1))),
    "rotated axes, all of them": (layout(array(2, 3, 4).transpose(1, 2, 0), 0, 1, 2), flat(24)),
    "rotated axes, two kept ones merge": (
        layout(array(2, 3, 4).transpose(2, 0, 1), 1, 2),
        columns((1, 6, 4), (0, 4, 1), (0, 1)),
    ),
    "into a strided result": (layout(array(5, 7), 1, out=array(5, 3)[:, 0]), rows(5, 7, 7, out=3)),
    "into a reversed result": (layout(array(5, 7), 1, out=array(5)[::-1]), rows(5, 7, 7, out=-1)),
    # Views.
    "pitched rows": (layout(array(5, 20)[:, 7:], 1), rows(5, 13, 20)),
    "pitched rows, both axes": (layout(array(5, 20)[:, 7:], 0, 1), None),
    "pitched columns": (layout(array(5, 20)[:, 7:], 0), columns((1, 5, 13), (0, 20, 1), (0, 1))),
    "every other row": (layout(array(6, 4)[::2], 1), rows(3, 4, 8)),
    "strided": (layout(array(10)[::2], 0), flat(5, stride=2)),
    "strided, two axes": (layout(array(3, 8)[:, ::2], 0, 1), flat(12, stride=2)),
    "strided rows": (layout(array(3, 8)[:, ::2], 1), columns((1, 4, 3), (0, 2, 8), (0, 1))),
    "padded slice, axes 1 and 2": (layout(array(2, 5, 6)[:, 1:4, 1:5], 1, 2), None),
    "padded slice, axes 0 and 2": (layout(array(2, 5, 6)[:, 1:4, 1:5], 0, 2), None),
    "padded slice, all axes": (layout(array(2, 5, 6)[:, 1:4, 1:5], 0, 1, 2), None),
    "padded slice, axis 1": (layout(array(2, 5, 6)[:, 1:4, 1:5], 1), columns((2, 3, 4), (30, 6, 1), (4, 1))),
    "padded slice, axis 2": (layout(array(2, 5, 6)[:, 1:4, 1:5], 2), columns((2, 4, 3), (30, 1, 6), (3, 1))),
    "three kept axes": (layout(array(2, 4, 4, 5)[:, :3, :3], 3), None),
    # Reversed axes.
    "reversed kept axis": (layout(array(5, 7)[::-1], 1), rows(5, 7, -7)),
    "reversed inner axis": (layout(array(5, 7)[:, ::-1], 0), columns((1, 5, 7), (0, 7, -1), (0, 1))),
    "reversed outer of two": (layout(array(2, 3, 4)[::-1], 2), columns((2, 4, 3), (-12, 1, 4), (3, 1))),
    "all kept axes reversed": (layout(array(2, 3, 4)[::-1, ::-1], 2), rows(6, 4, -4)),
    "reversed": (layout(array(7)[::-1], 0), flat(7, start=-6)),
    "reversed, in order": (layout(array(7)[::-1], 0, keeps_order=True), flat(7, stride=-1)),
    "reversed, every other": (layout(array(7)[::-2], 0), flat(4, stride=2, start=-6)),
    "reversed rows": (
        layout(array(5, 7)[:, ::-1], 1),
        replace(rows(5, 7, 7), inputs=(Strides(-6, 7, 1, 0),)),
    ),
    "reversed rows, in order": (
        layout(array(5, 7)[:, ::-1], 1, keeps_order=True),
        columns((1, 7, 5), (0, -1, 7), (0, 1)),
    ),
    "both axes reversed": (layout(array(5, 7)[::-1, ::-1], 0, 1), flat(35, start=-34)),
    "both axes reversed, in order": (
        layout(array(5, 7)[::-1, ::-1], 0, 1, keeps_order=True),
        flat(35, stride=-1),
    ),
    "one of two axes reversed": (layout(array(5, 7)[::-1], 0, 1), flat(35, start=-28)),
    "one of two axes reversed, in order": (layout(array(5, 7)[::-1], 0, 1, keeps_order=True), None),
    "reversed reduced and kept axis": (
        layout(array(5, 7)[::-1, ::-1], 0),
        columns((1, 5, 7), (0, 7, -1), (0, 1), start=-28),
    ),
    # Order.
    "C in order": (layout(array(2, 3, 4), 1, 2, keeps_order=True), rows(2, 12, 12)),
    "C in order, axes named in reverse": (layout(array(2, 3, 4), 2, 1, keeps_order=True), rows(2, 12, 12)),
    "F in order": (layout(fortran(2, 3, 4), 1, 2, keeps_order=True), None),
    "F in order, one axis": (layout(fortran(2, 3, 4), 1, keeps_order=True), columns((4, 3, 2), (6, 2, 1), (1, 4))),
    "F in order, kept axes permuted": (
        layout(fortran(2, 3, 4), 2, keeps_order=True, out=fortran(2, 3)),
        columns((1, 4, 6), (0, 6, 1), (0, 1)),
    ),
    "in order over axes with a kept one between": (
        layout(array(2, 4, 3).transpose(0, 2, 1), 0, 2, keeps_order=True),
        columns((1, 8, 3), (0, 3, 1), (0, 1)),
    ),
    # Broadcasts.
    "all broadcast": (layout(np.broadcast_to(array(1), (2, 3)), 0, 1), flat(6, stride=0)),
    "all broadcast, in order": (
        layout(np.broadcast_to(array(1), (2, 3)), 0, 1, keeps_order=True),
        flat(6, stride=0),
    ),
    "all broadcast, axis 1": (
        layout(np.broadcast_to(array(1), (2, 3)), 1),
        columns((1, 3, 2), (0, 0, 0), (0, 1)),
    ),
    "broadcast kept axes merge": (layout(np.broadcast_to(array(4), (2, 3, 4)), 2), rows(6, 4, 0)),
    "broadcast kept axes that the result keeps apart": (
        layout(np.broadcast_to(array(4), (2, 3, 4)), 2, out=array(2, 5)[:, :3]),
        columns((2, 4, 3), (0, 1, 0), (5, 1)),
    ),
    "broadcast kept axes, result transposed": (
        layout(np.broadcast_to(array(4), (2, 3, 4)), 2, out=fortran(2, 3)),
        rows(6, 4, 0),
    ),
    "a broadcast axis is not inner": (
        layout(np.broadcast_to(array(3, 4, 1), (3, 4, 5)), 0),
        columns((5, 3, 4), (0, 4, 1), (1, 5)),
    ),
    "broadcast and moving reduced axes": (layout(np.broadcast_to(array(4), (2, 4)), 0, 1), None),
    "overlapping windows": (
        layout(np.lib.stride_tricks.sliding_window_view(array(9), 4), 1),
        rows(6, 4, 1),
    ),
    # Equal strides in the first operand: the result decides.
    "a tie for inner": (
        layout(np.lib.stride_tricks.as_strided(array(9), (3, 3, 2), (8, 8, 16)), 2),
        columns((3, 2, 3), (1, 2, 1), (3, 1)),
    ),
    "a tie for inner, result transposed": (
        layout(np.lib.stride_tricks.as_strided(array(9), (3, 3, 2), (8, 8, 16)), 2, out=fortran(3, 3)),
        columns((3, 2, 3), (1, 2, 1), (3, 1)),
    ),
    "a tie for inner, result reversed": (
        layout(np.lib.stride_tricks.as_strided(array(9), (3, 3, 2), (8, 8, 16)), 2, out=array(3, 3)[::-1]),
        columns((3, 2, 3), (1, 2, 1), (-3, 1)),
    ),
    # Length 1.
    "(1, n), axis 0": (layout(array(1, 9), 0), rows(9, 1, 1)),
    "(n, 1), axis 1": (layout(array(9, 1), 1), rows(9, 1, 1)),
    "(1, n), axis 1": (layout(array(1, 9), 1), flat(9)),
    "(n, 1), axis 0": (layout(array(9, 1), 0), flat(9)),
    "n is 1 between two kept axes": (
        layout(array(5, 1, 20)[:, :, 7:], 1),
        columns((5, 1, 13), (20, 1, 1), (13, 1)),
    ),
    "only ones": (layout(array(1, 1, 1), 1), flat(1)),
    "only ones, all axes": (layout(array(1, 1, 1), 0, 1, 2), flat(1)),
    "no axes at all": (layout(array()), flat(1)),
    "ones between": (layout(array(2, 1, 3, 1, 4), 1, 2, 4), rows(2, 12, 12)),
    "a one with a stride of its own": (layout(array(5, 7)[:, 3:4], 0, 1), flat(5, stride=7)),
    "an order broken by ones only": (layout(fortran(1, 5, 1), 0, 1, 2, keeps_order=True), flat(5)),
}


@pytest.mark.parametrize(("found", "wanted"), CASES.values(), ids=CASES.keys())
def test_one_operand(found: Layout | None, wanted: Layout | None) -> None:
    assert found == wanted


# --- two operands -----------------------------------------------------------------------------------------------------

PAIRS: dict[str, tuple[Layout | None, Layout | None]] = {
    "dot": (
        layout((array(9), array(9)), 0),
        Layout("flat", 1, 9, 1, (Strides(0, 0, 1, 0), Strides(0, 0, 1, 0)), 0, 0),
    ),
    "dot with a strided one": (
        layout((array(9), array(18)[::2]), 0),
        Layout("columns", 1, 9, 1, (Strides(0, 0, 1, 0), Strides(0, 0, 2, 0)), 0, 0),
    ),
    "dot with a constant": (
        layout((array(9), np.broadcast_to(array(1), 9)), 0),
        Layout("columns", 1, 9, 1, (Strides(0, 0, 1, 0), Strides(0, 0, 0, 0)), 0, 0),
    ),
    "both reversed": (
        layout((array(9)[::-1], array(18)[::-2]), 0),
        Layout("columns", 1, 9, 1, (Strides(-8, 0, 1, 0), Strides(-16, 0, 2, 0)), 0, 0),
    ),
    "a reversed one and a constant": (
        layout((np.broadcast_to(array(1), 9), array(9)[::-1]), 0),
        Layout("columns", 1, 9, 1, (Strides(0, 0, 0, 0), Strides(-8, 0, 1, 0)), 0, 0),
    ),
    "one reversed": (
        layout((array(9)[::-1], array(9)), 0),
        Layout("columns", 1, 9, 1, (Strides(0, 0, -1, 0), Strides(0, 0, 1, 0)), 0, 0),
    ),
    "C and C, both axes": (
        layout((array(5, 7), array(5, 7)), 0, 1),
        Layout("flat", 1, 35, 1, (Strides(0, 0, 1, 0), Strides(0, 0, 1, 0)), 0, 0),
    ),
    "F and F, both axes": (
        layout((fortran(5, 7), fortran(5, 7)), 0, 1),
        Layout("flat", 1, 35, 1, (Strides(0, 0, 1, 0), Strides(0, 0, 1, 0)), 0, 0),
    ),
    "C and F, both axes": (layout((array(5, 7), fortran(5, 7)), 0, 1), None),
    "C and F, axis 1": (
        layout((array(5, 7), fortran(5, 7)), 1),
        Layout("columns", 1, 7, 5, (Strides(0, 0, 1, 7), Strides(0, 0, 5, 1)), 0, 1),
    ),
    "C and pitched rows": (
        layout((array(5, 13), array(5, 20)[:, 7:]), 1),
        Layout("rows", 5, 13, 1, (Strides(0, 13, 1, 0), Strides(0, 20, 1, 0)), 1, 0),
    ),
    "C and pitched rows, both axes": (layout((array(5, 13), array(5, 20)[:, 7:]), 0, 1), None),
    "matrix and vector": (
        layout((array(5, 7), np.broadcast_to(array(7), (5, 7))), 1),
        Layout("rows", 5, 7, 1, (Strides(0, 7, 1, 0), Strides(0, 0, 1, 0)), 1, 0),
    ),
    "matrix and matrix": (
        layout((np.broadcast_to(array(5, 1, 7), (5, 3, 7)), np.broadcast_to(array(7, 3).T, (5, 3, 7))), 2),
        Layout("columns", 3, 7, 5, (Strides(0, 0, 1, 7), Strides(0, 1, 3, 0)), 1, 3),
    ),
    "the first is a constant, the second F-ordered": (
        layout((np.broadcast_to(array(1), (2, 3, 4)), fortran(2, 3, 4)), 0, 1, 2),
        Layout("columns", 1, 24, 1, (Strides(0, 0, 0, 0), Strides(0, 0, 1, 0)), 0, 0),
    ),
}


@pytest.mark.parametrize(("found", "wanted"), PAIRS.values(), ids=PAIRS.keys())
def test_two_operands(found: Layout | None, wanted: Layout | None) -> None:
    assert found == wanted


# --- any view ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """A view into a buffer, and where in the buffer its first element lies."""

    buffer: Array
    first: int
    array: Array


@st.composite
def views(draw: st.DrawFn, shape: tuple[int, ...], broadcasts: bool = True) -> View:
    """Permuted, sliced, stepped, reversed and broadcast, each of them often not at all so that axes merge."""
    order: Sequence[int] = range(len(shape))
    if draw(st.booleans()):
        order = draw(st.sampled_from([order[::-1], draw(st.permutations(order))]))
    backwards = draw(st.sampled_from([[1], [1], [-1], [1, -1]]))
    whole, spreads = draw(st.booleans()), broadcasts and draw(st.booleans())
    sizes, slices = [], []
    for at in order:
        if spreads and draw(st.booleans()):
            sizes.append(1)
            slices.append(slice(None))
            continue
        before, after, step = (0, 0, 1) if whole else draw(st.sampled_from([(0, 0, 1), (1, 0, 1), (0, 1, 2)]))
        sizes.append(before + shape[at] * step + after)
        slices.append(slice(before, before + shape[at] * step, step))
        if draw(st.sampled_from(backwards)) < 0:
            slices[-1] = slice(before + (shape[at] - 1) * step, before - 1 if before else None, -step)
    base = np.arange(math.prod(sizes)).reshape(sizes)
    view = np.broadcast_to(base[tuple(slices)].transpose(np.argsort(np.array(order, int))), shape)
    return View(base.reshape(-1), int(view.ravel()[0]), view)


@dataclass(frozen=True)
class Case:
    operands: tuple[View, ...]
    axes: tuple[int, ...]
    out: View
    keeps_order: bool

    def layout(self) -> Layout | None:
        return layout(
            tuple(v.array for v in self.operands), *self.axes, keeps_order=self.keeps_order, out=self.out.array
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    shape = draw(st.integers(0, 5).flatmap(lambda rank: st.tuples(*[st.integers(1, 4)] * rank)))
    operands: tuple[View, ...] = (draw(views(shape)),)
    if draw(st.booleans()):
        operands += operands if draw(st.booleans()) else (draw(views(shape)),)
    axes = tuple(at for at in draw(st.permutations(range(len(shape)))) if draw(st.booleans()))
    kept = tuple(shape[at] for at in kept_axes(shape, axes))
    out = View(array(*kept).reshape(-1), 0, array(*kept))
    if draw(st.booleans()):
        out = draw(views(kept, broadcasts=False))
    return Case(operands, axes, out, draw(st.booleans()))


def folded(case: Case, walk: Layout) -> Iterator[tuple[int, list[tuple[int, ...]]]]:
    """For every result its place in the buffer, and of each element folded into it the place in each operand's buffer;
    both as the kernel finds them."""
    for o, i in itertools.product(range(walk.outer), range(walk.inner)):
        yield (
            case.out.first + o * walk.out_outer + i * walk.out_inner,
            [
                tuple(
                    operand.first + s.start + o * s.outer + k * s.n + i * s.inner
                    for operand, s in zip(case.operands, walk.inputs, strict=True)
                )
                for k in range(walk.n)
            ],
        )


def wanted(case: Case) -> dict[int, list[tuple[int, ...]]]:
    """The same by numpy's own indexing, the elements in C order. Buffers hold their own indices."""
    shape, axes = case.operands[0].array.shape, sorted(case.axes)
    kept = kept_axes(shape, case.axes)
    every = [view.array.transpose(*kept, *axes).reshape(case.out.array.size, -1) for view in case.operands]
    elements = np.stack(every, axis=-1).tolist()
    return {
        place: [tuple(element) for element in row]
        for place, row in zip(case.out.array.ravel().tolist(), elements, strict=True)
    }


MANY = settings(max_examples=400, deadline=None)


@MANY
@given(cases())
def test_every_element_is_folded_into_its_result(case: Case) -> None:
    if (walk := case.layout()) is None:
        return
    found = list(folded(case, walk))
    places, right = [place for place, _ in found], wanted(case)
    assert len(places) == len(set(places))
    if case.keeps_order:
        assert dict(found) == right
    else:
        assert {place: sorted(row) for place, row in found} == {place: sorted(row) for place, row in right.items()}


@MANY
@given(cases())
def test_sums_are_those_of_numpy(case: Case) -> None:
    if (walk := case.layout()) is None:
        return
    out = np.zeros_like(case.out.buffer)
    for place, elements in folded(case, walk):
        for element in elements:
            assert all(0 <= at < len(view.buffer) for view, at in zip(case.operands, element, strict=True))
            out[place] += math.prod(int(view.buffer[at]) for view, at in zip(case.operands, element, strict=True))
    product = math.prod(view.array for view in case.operands)
    assert out[case.out.array].tolist() == np.sum(product, axis=case.axes).tolist()


@MANY
@given(cases())
def test_what_a_layout_promises(case: Case) -> None:
    if (walk := case.layout()) is None:
        return
    shape = case.operands[0].array.shape
    assert walk.n == math.prod(shape[at] for at in case.axes)
    assert walk.outer * walk.n * walk.inner == math.prod(shape)
    lone = {"outer": walk.outer, "n": walk.n, "inner": walk.inner}
    for name in (name for name, length in lone.items() if length == 1):
        assert {getattr(s, name) for s in walk.inputs} == {int(name == "n")}
    assert walk.out_outer == 0 or walk.outer > 1
    assert walk.out_inner == 0 or walk.inner > 1
    contiguous = all(s.n == 1 for s in walk.inputs)
    assert (walk.kind == "flat") == (contiguous and walk.outer == walk.inner == 1)
    assert (walk.kind == "rows") == (contiguous and walk.outer > 1 and walk.inner == 1)
    if walk.kind == "columns":
        assert walk.outer == 1 or walk.inner > 1
    if case.keeps_order:
        assert all(s.start == 0 for s in walk.inputs)
    elif any(s.n for s in walk.inputs):
        assert any(s.n > 0 for s in walk.inputs)
    if any(s.start for s in walk.inputs):
        assert all(s.n >= 0 for s in walk.inputs)
    if walk.outer > 1 and walk.inner > 1:
        near, far = abs(walk.inputs[0].inner), abs(walk.inputs[0].outer)
        assert (near or math.inf, abs(walk.out_inner)) < (far or math.inf, abs(walk.out_outer))


def fewest(axes: list[tuple[int, tuple[int, ...]]], orders: Iterator[tuple[int, ...]]) -> int:
    """How few axes the (length, strides) come down to in the best of `orders`, slowest first."""
    best = len(axes)
    for order in orders:
        chain = [axes[at] for at in order]
        breaks = sum(
            slower != tuple(stride * length for stride in faster)
            for (_, slower), (length, faster) in itertools.pairwise(chain)
        )
        best = min(best, bool(chain) + breaks)
    return best


@MANY
@given(cases())
def test_none_means_that_no_order_of_the_axes_would_do(case: Case) -> None:
    shape = case.operands[0].array.shape
    each = list(zip(*(steps(view.array) for view in case.operands), strict=True))
    outs = dict(zip(kept_axes(shape, case.axes), steps(case.out.array), strict=True))
    kept = [(shape[at], (*each[at], outs[at])) for at in outs if shape[at] > 1]
    reduced = [(shape[at], each[at]) for at in sorted(case.axes) if shape[at] > 1]
    if case.keeps_order:
        reduced_to = fewest(reduced, iter([tuple(range(len(reduced)))]))
    else:
        forwards = [(n, tuple(map(abs, row)) if max(row) <= 0 else row) for n, row in reduced]
        reduced_to = fewest(forwards, itertools.permutations(range(len(reduced))))
    kept_to = fewest(kept, itertools.permutations(range(len(kept))))
    walk = case.layout()
    assert (walk is not None) == (reduced_to <= 1 and kept_to <= 2)
    if walk is not None:
        assert (walk.outer > 1) + (walk.inner > 1) == kept_to


@MANY
@given(cases())
def test_a_copy_with_the_reduced_axes_last_always_has_a_layout(case: Case) -> None:
    """What the caller does about None."""
    shape = case.operands[0].array.shape
    kept = kept_axes(shape, case.axes)
    order = [*kept, *sorted(case.axes)]
    copies = tuple(np.ascontiguousarray(view.array.transpose(order)) for view in case.operands)
    walk = layout(copies, *range(len(kept), len(order)), keeps_order=case.keeps_order)
    assert walk is not None
    assert walk.kind in ("flat", "rows")
