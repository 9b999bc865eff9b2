# max of float32: the largest value; NaN wins.
# The self-test of redtune_max_float32.py.
#
# Made by: redtune export --op max --format cupy --out DIR
# SPDX-License-Identifier: MIT
#
# Takes an array of n elements; gives float32, accumulated in float32.
# Determinism: any order of the additions was allowed; repeated runs showed run-to-run.
#
# v0: sm_90, 268435456 elements
#   Measured 2026-11-30 on A sm_90 (sm_90), driver 1.2.3, a compiler 1.0:
#   236.74 us, spread 0.25 us, 4535.6 GB/s cold, 99.7 % of the read ceiling, the best of 95 trials with seed 0.
#   Beside it: the default config 239.69 us, cupy 14.2.0 249.81 us.
#   block = 384: threads per block
#   vector = 4: elements per load, at most 16 bytes
#   items = 8: independent loads in flight per thread before the fold
#   accumulators = 4: independent fold chains per thread and tile
#   walk = tile: which tiles a block takes: one of its own, every grid-th, or one contiguous range
#   team = 0: threads that share a row or column, 0 for all of a block
#   split = 1: blocks that share a row or column
#   exchange = shuffle: how the lanes of a block meet
#   wave = 32: lanes the last tree spans before the threads of a block meet through shared memory
#   combine = atomic: how the blocks meet
#   hint = none: cache hint of the loads

"""Checks `reduce` and says how fast it is: run it, or run pytest for the checks alone."""

from __future__ import annotations

import math
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import NamedTuple

import cupy
import numpy as np
import redtune_max_float32 as exported

# An element of the input is the entry hash(index) of a table: these few numbers are the inputs of all checks. Elements
# and results are given by their bits.
# fmt: off
TABLES = {
    "exact": [
    0xbfcf0e3d, 0xbff18d4f, 0xbf6d33cc, 0xbfa6dbf2, 0xbf8cfb96, 0xbf1332c2, 0xbf0f480e, 0xbf08318d,
    0xbf2f7bec, 0xbfda3606, 0xbfa38395, 0xbfeddc27, 0xbfa289b8, 0xbfaf6399, 0xbfccc50d, 0xbfbaaf48,
    0xbfe330f8, 0xbfeec366, 0xbffcb6c4, 0xbf6efbef, 0xbf53ffb6, 0xbfbc48ae, 0xbfe1fbfc, 0xbf00f6a7,
    0xbfc8846c, 0xc00ea647, 0xbf738dca, 0xbf0c72e5, 0xbfd1b1de, 0xbf569a64, 0xc001e742, 0xbf343dbc,
    0xbf0dbd5c, 0xbfb413ba, 0xbf056543, 0xbfdf3f94, 0xbf154db4, 0xbf3f42ff, 0xbfe84476, 0xbfb5d2c8,
    0xbf3a90d7, 0xbf07c877, 0xbf01e21b, 0xbf2a0492, 0xbf03dd72, 0xbfdd1ca8, 0xbfc53927, 0xbf970818,
    0xbf407829, 0xc00a927e, 0xbfc471a2, 0xbf61beea, 0xbf59bb96, 0xbfdd4484, 0xbf5bd1ea, 0xc01a7366,
    0xbfc37a36, 0xbfed7618, 0xc00af956, 0xbfc74bd3, 0xbfe93f30,
    ],
    "random": [
    0x3ee86e8c, 0x3e9d8956, 0x3ddf9c5b, 0xbfcba680, 0x3f11543e, 0x3f109ddb, 0xbf92e4a6, 0x3de4d777,
    0x3ef0bb4a, 0x3f801e3a, 0x3cacea60, 0x3e78d80c, 0xbfc8027a, 0xbe56f0bc, 0xbf972961, 0x3ed9199f,
    0x3c13e10b, 0xbe86238b, 0xbf002aac, 0xbf0ef5f1, 0x3c21e71e, 0xbd5cfdbd, 0x3ec886ec, 0x401becc1,
    0xc0ab3537, 0xbf7eee0f, 0xbe32c76e, 0xbf28c176, 0x3eaebc96, 0x3f05a03c, 0x402f2be0, 0xbf81760e,
    0xbe953dfc, 0x40bbe073, 0x3d8b7a00, 0x3f13c461, 0xbf08001b, 0xbecadfac, 0x3e6f3362, 0x3d68ce6d,
    0xc03a14f8, 0xbf1a433e, 0xbe100c22, 0xc04c910b, 0xbe139443, 0x3d22eaa5, 0x3c003ed2, 0xc03b18b8,
    0x3f07fd92, 0x3ee52fc0, 0x3ebdc440, 0xbf2cf9ef, 0x3fdb94d1, 0xbf04cc77, 0x3f642e59, 0xbf06479f,
    0x3fbb338b, 0xbbe9cdfa, 0xc01b8ab5, 0xbfb86ecd, 0x3c40f662,
    ],
}

# The right results, and how far a float may be from them under any order of the additions.
EXPECTED = [
    0xbfcf0e3d, 0xbf6efbef, 0xbf6efbef, 0xbf07c877, 0xbf07c877, 0xbf07c877, 0xbf01e21b, 0xbf01e21b,
    0xbf01e21b, 0xbf00f6a7, 0xbf00f6a7, 0xbf00f6a7, 0xbf00f6a7, 0xbf00f6a7, 0xbf00f6a7, 0xbf00f6a7,
    0xbf00f6a7, 0xbf00f6a7, 0xbf00f6a7, 0xbf00f6a7, 0x42700000, 0xbf6efbef, 0xbf6efbef, 0x42700000,
    0x42700000, 0xbf6efbef, 0xbf00f6a7, 0xbf00f6a7, 0x42700000, 0x42700000, 0xbf00f6a7, 0xbfdd4484,
    0xbfdd4484, 0x42700000, 0x42700000, 0xbfdd4484, 0xbf00f6a7, 0xbf00f6a7, 0x42700000, 0x42700000,
    0xbf00f6a7, 0xbfdf3f94, 0xbfdf3f94, 0x42700000, 0x42700000, 0xbfdf3f94, 0xbf00f6a7, 0xbf00f6a7,
    0x42700000, 0x42700000, 0xbf00f6a7, 0x00000000, 0x00000000, 0x00000000, 0x00000000, 0x42700000,
    0x42700000, 0x42700000, 0x42700000, 0xbf00f6a7, 0xbf00f6a7, 0xbf00f6a7, 0xc2c80000, 0x7fc00000,
    0x7fc00000, 0x7fc00000, 0x7fc00000, 0x7f800000, 0x7f800000, 0x7f800000, 0x7f800000, 0xbf00f6a7,
    0xbf00f6a7, 0xbf00f6a7, 0xff800000, 0x40bbe073,
]
WITHIN = [
    0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
    0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
    0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
    0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
]
# fmt: on


class Case(NamedTuple):
    """One check: outer x n x inner elements from element `first` on, the one at `plant` replaced by `value` if that is
    not negative. Its results begin at number `start` of those above."""

    about: str
    table: str
    first: int
    outer: int
    n: int
    inner: int
    plant: int
    value: list[int]
    start: int


# fmt: off
CASES = [
    Case("1 element", "exact", 0, 1, 1, 1, -1, [], 0),
    Case("2 elements", "exact", 0, 1, 2, 1, -1, [], 1),
    Case("3 elements", "exact", 0, 1, 3, 1, -1, [], 2),
    Case("31 elements", "exact", 0, 1, 31, 1, -1, [], 3),
    Case("32 elements", "exact", 0, 1, 32, 1, -1, [], 4),
    Case("33 elements", "exact", 0, 1, 33, 1, -1, [], 5),
    Case("63 elements", "exact", 0, 1, 63, 1, -1, [], 6),
    Case("64 elements", "exact", 0, 1, 64, 1, -1, [], 7),
    Case("65 elements", "exact", 0, 1, 65, 1, -1, [], 8),
    Case("383 elements", "exact", 0, 1, 383, 1, -1, [], 9),
    Case("384 elements", "exact", 0, 1, 384, 1, -1, [], 10),
    Case("385 elements", "exact", 0, 1, 385, 1, -1, [], 11),
    Case("1000 elements", "exact", 0, 1, 1000, 1, -1, [], 12),
    Case("12287 elements", "exact", 0, 1, 12287, 1, -1, [], 13),
    Case("12288 elements", "exact", 0, 1, 12288, 1, -1, [], 14),
    Case("12289 elements", "exact", 0, 1, 12289, 1, -1, [], 15),
    Case("24575 elements", "exact", 0, 1, 24575, 1, -1, [], 16),
    Case("24576 elements", "exact", 0, 1, 24576, 1, -1, [], 17),
    Case("24577 elements", "exact", 0, 1, 24577, 1, -1, [], 18),
    Case("262143 elements", "exact", 0, 1, 262143, 1, -1, [], 19),
    Case("high at the very last, 262143 elements", "exact", 0, 1, 262143, 1, 262142, [0x42700000], 20),
    Case("from element 1 on, 2 elements", "exact", 1, 1, 2, 1, -1, [], 21),
    Case("from element 1 on, high before, 2 elements", "exact", 1, 1, 2, 1, 0, [0x42700000], 22),
    Case("from element 1 on, high first, 2 elements", "exact", 1, 1, 2, 1, 1, [0x42700000], 23),
    Case("from element 1 on, high last, 2 elements", "exact", 1, 1, 2, 1, 2, [0x42700000], 24),
    Case("from element 1 on, high behind, 2 elements", "exact", 1, 1, 2, 1, 3, [0x42700000], 25),
    Case("from element 1 on, 36869 elements", "exact", 1, 1, 36869, 1, -1, [], 26),
    Case("from element 1 on, high before, 36869 elements", "exact", 1, 1, 36869, 1, 0, [0x42700000], 27),
    Case("from element 1 on, high first, 36869 elements", "exact", 1, 1, 36869, 1, 1, [0x42700000], 28),
    Case("from element 1 on, high last, 36869 elements", "exact", 1, 1, 36869, 1, 36869, [0x42700000], 29),
    Case("from element 1 on, high behind, 36869 elements", "exact", 1, 1, 36869, 1, 36870, [0x42700000], 30),
    Case("from element 2 on, 2 elements", "exact", 2, 1, 2, 1, -1, [], 31),
    Case("from element 2 on, high before, 2 elements", "exact", 2, 1, 2, 1, 1, [0x42700000], 32),
    Case("from element 2 on, high first, 2 elements", "exact", 2, 1, 2, 1, 2, [0x42700000], 33),
    Case("from element 2 on, high last, 2 elements", "exact", 2, 1, 2, 1, 3, [0x42700000], 34),
    Case("from element 2 on, high behind, 2 elements", "exact", 2, 1, 2, 1, 4, [0x42700000], 35),
    Case("from element 2 on, 36869 elements", "exact", 2, 1, 36869, 1, -1, [], 36),
    Case("from element 2 on, high before, 36869 elements", "exact", 2, 1, 36869, 1, 1, [0x42700000], 37),
    Case("from element 2 on, high first, 36869 elements", "exact", 2, 1, 36869, 1, 2, [0x42700000], 38),
    Case("from element 2 on, high last, 36869 elements", "exact", 2, 1, 36869, 1, 36870, [0x42700000], 39),
    Case("from element 2 on, high behind, 36869 elements", "exact", 2, 1, 36869, 1, 36871, [0x42700000], 40),
    Case("from element 3 on, 2 elements", "exact", 3, 1, 2, 1, -1, [], 41),
    Case("from element 3 on, high before, 2 elements", "exact", 3, 1, 2, 1, 2, [0x42700000], 42),
    Case("from element 3 on, high first, 2 elements", "exact", 3, 1, 2, 1, 3, [0x42700000], 43),
    Case("from element 3 on, high last, 2 elements", "exact", 3, 1, 2, 1, 4, [0x42700000], 44),
    Case("from element 3 on, high behind, 2 elements", "exact", 3, 1, 2, 1, 5, [0x42700000], 45),
    Case("from element 3 on, 36869 elements", "exact", 3, 1, 36869, 1, -1, [], 46),
    Case("from element 3 on, high before, 36869 elements", "exact", 3, 1, 36869, 1, 2, [0x42700000], 47),
    Case("from element 3 on, high first, 36869 elements", "exact", 3, 1, 36869, 1, 3, [0x42700000], 48),
    Case("from element 3 on, high last, 36869 elements", "exact", 3, 1, 36869, 1, 36871, [0x42700000], 49),
    Case("from element 3 on, high behind, 36869 elements", "exact", 3, 1, 36869, 1, 36872, [0x42700000], 50),
    Case("zero, the first element, 36869 elements", "exact", 0, 1, 36869, 1, 0, [0x00000000], 51),
    Case("zero, the middle element, 36869 elements", "exact", 0, 1, 36869, 1, 18434, [0x00000000], 52),
    Case("zero, the last element, 36869 elements", "exact", 0, 1, 36869, 1, 36868, [0x00000000], 53),
    Case("zero, 1 element", "exact", 0, 1, 1, 1, 0, [0x00000000], 54),
    Case("high, the first element, 36869 elements", "exact", 0, 1, 36869, 1, 0, [0x42700000], 55),
    Case("high, the middle element, 36869 elements", "exact", 0, 1, 36869, 1, 18434, [0x42700000], 56),
    Case("high, the last element, 36869 elements", "exact", 0, 1, 36869, 1, 36868, [0x42700000], 57),
    Case("high, 1 element", "exact", 0, 1, 1, 1, 0, [0x42700000], 58),
    Case("low, the first element, 36869 elements", "exact", 0, 1, 36869, 1, 0, [0xc2c80000], 59),
    Case("low, the middle element, 36869 elements", "exact", 0, 1, 36869, 1, 18434, [0xc2c80000], 60),
    Case("low, the last element, 36869 elements", "exact", 0, 1, 36869, 1, 36868, [0xc2c80000], 61),
    Case("low, 1 element", "exact", 0, 1, 1, 1, 0, [0xc2c80000], 62),
    Case("nan, the first element, 36869 elements", "exact", 0, 1, 36869, 1, 0, [0x7fc00000], 63),
    Case("nan, the middle element, 36869 elements", "exact", 0, 1, 36869, 1, 18434, [0x7fc00000], 64),
    Case("nan, the last element, 36869 elements", "exact", 0, 1, 36869, 1, 36868, [0x7fc00000], 65),
    Case("nan, 1 element", "exact", 0, 1, 1, 1, 0, [0x7fc00000], 66),
    Case("infinity, the first element, 36869 elements", "exact", 0, 1, 36869, 1, 0, [0x7f800000], 67),
    Case("infinity, the middle element, 36869 elements", "exact", 0, 1, 36869, 1, 18434, [0x7f800000], 68),
    Case("infinity, the last element, 36869 elements", "exact", 0, 1, 36869, 1, 36868, [0x7f800000], 69),
    Case("infinity, 1 element", "exact", 0, 1, 1, 1, 0, [0x7f800000], 70),
    Case("minus infinity, the first element, 36869 elements", "exact", 0, 1, 36869, 1, 0, [0xff800000], 71),
    Case("minus infinity, the middle element, 36869 elements", "exact", 0, 1, 36869, 1, 18434, [0xff800000], 72),
    Case("minus infinity, the last element, 36869 elements", "exact", 0, 1, 36869, 1, 36868, [0xff800000], 73),
    Case("minus infinity, 1 element", "exact", 0, 1, 1, 1, 0, [0xff800000], 74),
    Case("random, 3001 elements", "random", 0, 1, 3001, 1, -1, [], 75),
]
# fmt: on
SHIFT = 3  # a second input begins so many elements after the first
FIRST = CASES[26]  # more than one tile, and not aligned
SECOND = CASES[51]  # as large, with other elements

DTYPE = np.dtype("float32")
PARTS = 1  # words of an element
OUT_PARTS = 1


def picks(count: int) -> np.ndarray:
    """Which entry of a table each of the first elements is."""
    i = np.arange(count, dtype=np.int64) * 0x9E3779B1 & 0xFFFFFFFF
    i ^= i >> 15
    i = i * 0x85EBCA6B & 0xFFFFFFFF
    i ^= i >> 13
    return i % 61


PICKS = picks(max(one.first + one.outer * one.n * one.inner for one in CASES) + SHIFT + 1)


# --- inputs and results -----------------------------------------------------------------------------------------------


def shape_of(outer: int, n: int, inner: int) -> tuple[int, ...]:
    """The shape of an input."""
    return (outer * n * inner,)


def elements(case: Case) -> np.ndarray:
    """The memory of a check."""
    count = case.first + max(1, case.outer * case.n * case.inner) + SHIFT
    words = np.array(TABLES[case.table], "<u4").reshape(-1, PARTS)[PICKS[:count]]
    if case.plant >= 0:
        words[case.plant] = case.value
    return np.ascontiguousarray(words).view(DTYPE).ravel()


def cut(memory: cupy.ndarray, case: Case) -> list[cupy.ndarray]:
    """The inputs in it."""
    size = case.outer * case.n * case.inner
    starts = [case.first, case.first + SHIFT][:1]
    return [memory[start : start + size].reshape(shape_of(case.outer, case.n, case.inner)) for start in starts]


def inputs_of(case: Case) -> list[cupy.ndarray]:
    """The inputs of a check."""
    return cut(cupy.asarray(elements(case)), case)


def call(inputs: list[cupy.ndarray], **more: object) -> cupy.ndarray:
    """`reduce` of the inputs of a check."""
    return exported.reduce(*inputs, **more)


def run(kernel: exported.Kernel | None, inputs: list[cupy.ndarray], **more: object) -> cupy.ndarray:
    """The same with a certain kernel."""
    return exported.run(kernel, *inputs, **more)


def values_of(words: np.ndarray) -> np.ndarray:
    """Floats by their bits."""
    return words.view("<f4").astype(np.float64)


def is_right(case: Case, out: cupy.ndarray) -> bool:
    """Whether the results are what they must be; says which one is not."""
    words = np.ascontiguousarray(cupy.asnumpy(out).ravel()).view("<u4").reshape(-1, OUT_PARTS)
    span = slice(case.start, case.start + case.outer * case.inner)
    right = np.array(EXPECTED, "<u4").reshape(-1, OUT_PARTS)[span]
    if words.shape != right.shape:
        print(f"        {len(words)} results, not {len(right)}")
        return False
    got, exact = values_of(words), values_of(right)
    with np.errstate(invalid="ignore"):
        apart = np.where((got == exact) | ((got != got) & (exact != exact)), 0, np.abs(got - exact))
        good = np.hypot.reduce(apart, axis=1) <= np.array(WITHIN)[span]
    if not good.all():
        k = int(np.argmin(good))
        print(f"        result {k} is {got[k].tolist()}, not {exact[k].tolist()} within {WITHIN[span][k]:.3g}")
    return bool(good.all())


def is_case(case: Case, out: cupy.ndarray, what: str) -> bool:
    """Reports whether the results of a check are right."""
    return said(is_right(case, out), what)


# --- checks -----------------------------------------------------------------------------------------------------------


OUTCOMES: list[bool] = []


def said(ok: bool, what: str) -> bool:
    """Prints and counts the outcome of a check."""
    print(f"{'ok    ' if ok else 'FAILED'}  {what}", flush=True)
    OUTCOMES.append(ok)
    return ok


def raises(error: type[Exception], words: str, function: Callable[[], object]) -> bool:
    """Whether a call fails as it should, with a sentence that has these words."""
    try:
        function()
    except error as found:
        return words in str(found)
    return False


def all_right(outcomes: Iterable[bool]) -> None:
    """Raises AssertionError unless all checks passed, after all of them have run."""
    assert all(list(outcomes))


def here(kernel: exported.Kernel) -> bool:
    """Whether a kernel is for this GPU."""
    capability, _ = exported.gpu(cupy.cuda.Device().id)
    return kernel.capability == exported.choose(capability, kernel.powers).capability


def test_cases() -> None:
    """Every case, with `reduce` and with each kernel."""
    ways = [None, *filter(here, exported.KERNELS)]

    def outcomes() -> Iterable[bool]:
        for case in CASES:
            inputs = inputs_of(case)
            for kernel in ways:
                name = kernel.name if kernel else "reduce"
                ok = is_right(case, run(kernel, inputs)) and is_right(case, run(kernel, inputs))
                yield said(ok, f"{name}: {case.about}")

    all_right(outcomes())


def test_out() -> None:
    """Results go where they are wanted."""
    inputs = inputs_of(FIRST)
    out = cupy.ones_like(call(inputs))
    all_right([is_case(FIRST, call(inputs, out=out), "out"), said(call(inputs, out=out) is out, "out is returned")])


def test_shapes() -> None:
    """Inputs of other shapes, and of other strides."""
    inputs = inputs_of(FIRST)
    cubes = [x.reshape(1, -1, 1) for x in inputs]
    one = next(case for case in CASES if case.n == 1)
    scalars = [x.reshape(()) for x in inputs_of(one)]
    outcomes = [is_case(FIRST, call(cubes), "three dimensions"), is_case(one, call(scalars), "no dimensions")]
    wide = [cupy.stack([x, x], axis=-1)[..., 0] for x in inputs]
    all_right([*outcomes, is_case(FIRST, call(wide), "a copy of what is not contiguous")])


def test_errors() -> None:
    """What cannot be reduced is refused with a sentence."""
    inputs = inputs_of(FIRST)
    out = call(inputs)
    hosts = [cupy.asnumpy(x) for x in inputs]
    strange = [cupy.zeros(x.shape, "int8") for x in inputs]
    outs = {
        "shape": cupy.empty((*out.shape, 2), out.dtype),
        "dtype": cupy.empty(out.shape, "int8"),
        "kind": np.empty(out.shape, out.dtype),
    }
    old = (1,) * len(exported.KERNELS[0].powers)
    outcomes = [
        said(raises(TypeError, "must be a cupy.ndarray", lambda: call(hosts)), "an array of NumPy"),
        said(raises(TypeError, "must hold", lambda: call(strange)), "another dtype"),
        said(raises(ValueError, "out has the shape", lambda: call(inputs, out=outs["shape"])), "out of another shape"),
        said(raises(TypeError, "out holds", lambda: call(inputs, out=outs["dtype"])), "out of another dtype"),
        said(raises(TypeError, "out is a", lambda: call(inputs, out=outs["kind"])), "out of NumPy"),
        said(raises(RuntimeError, "not for sm_10", lambda: exported.choose(10, old)), "an older GPU"),
    ]
    apart = [cupy.ndarray(x.shape, x.dtype, memptr=x.data + 1) for x in inputs]
    outcomes.append(said(raises(ValueError, "at multiples", lambda: call(apart)), "elements at odd addresses"))
    nothing = [cupy.empty(shape_of(2, 0, 3), DTYPE)] * 1
    outcomes.append(said(raises(ValueError, "no elements", lambda: call(nothing)), "no elements"))
    all_right(outcomes)


def test_stream() -> None:
    """On the current stream: what was put there before comes before."""
    first = cupy.asarray(elements(FIRST))
    memory, busy = cupy.zeros_like(first), cupy.empty(1 << 28, np.uint8)
    call(cut(first, FIRST))
    cupy.cuda.Device().synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for k in range(20):
            busy.fill(k)
        memory[...] = first
        out = call(cut(memory, FIRST))
        stream.synchronize()
        all_right([is_case(FIRST, out, "another stream")])


def test_threads() -> None:
    """From several threads at once, each on a stream of its own."""
    found: list[bool] = []

    def work(case: Case) -> None:
        with cupy.cuda.Stream(non_blocking=True) as stream:
            inputs = inputs_of(case)
            outs = [call(inputs) for _ in range(50)]
            stream.synchronize()
            found.append(all(is_right(case, out) for out in outs))

    threads = [threading.Thread(target=work, args=(case,)) for case in (FIRST, SECOND, FIRST, SECOND)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    all_right([said(found == [True] * len(threads), "several threads")])


def test_graph() -> None:
    """A captured call reduces what its input holds when it runs, and leaves all other memory alone."""
    memory, second = cupy.asarray(elements(FIRST)), cupy.asarray(elements(SECOND))
    inputs = cut(memory, FIRST)
    call(inputs)
    cupy.cuda.Device().synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        out = call(inputs)
        graph = stream.end_capture()
        others = [cupy.full(1 << k, 0xA5, np.uint8) for k in range(4, 22)]
        graph.launch(stream)
        outcomes = [is_case(FIRST, out, "a captured call")]
        memory[FIRST.first :] = second
        graph.launch(stream)
        outcomes.append(is_case(SECOND, out, "the same with another input"))
        intact = all(bool((other == 0xA5).all()) for other in others)
    all_right([*outcomes, said(intact, "memory that a captured call leaves alone")])


def test_other_gpu() -> None:
    """An array on another GPU than the current one is reduced there."""
    if cupy.cuda.runtime.getDeviceCount() > 1:
        with cupy.cuda.Device(1):
            inputs = inputs_of(FIRST)
        out = call(inputs)
        all_right([said(out.device.id == 1 and is_right(FIRST, out), "another GPU")])


TESTS = [
    test_cases,
    test_out,
    test_shapes,
    test_errors,
    test_stream,
    test_threads,
    test_graph,
    test_other_gpu,
]


# --- speed ------------------------------------------------------------------------------------------------------------


def speed(kernel: exported.Kernel, shape: tuple[int, ...], is_cold: bool, told: str) -> None:
    """Prints the time of one reduction, of inputs that no cache holds any more, or of one that stays there."""
    if not here(kernel):
        print(f"{kernel.name}: not timed, it is for another architecture")
        return
    size = math.prod(shape)
    stride = -(-size // 256) * 256
    device = cupy.cuda.Device()
    cache = cupy.cuda.runtime.getDeviceProperties(device.id)["l2CacheSize"]
    each = 1 * stride * DTYPE.itemsize
    wanted = 4 * cache // each + 2 if is_cold else 1
    copies = min(wanted, 1000, device.mem_info[0] * 8 // 10 // each)
    calls = max(copies, 20)
    if copies < 1:
        print(f"{kernel.name}: not timed, there is too little memory")
        return
    memory = cupy.empty(1 * copies * stride, DTYPE)
    pattern = cupy.asarray(elements(FIRST))
    for at in range(0, memory.size, pattern.size):
        memory[at : at + pattern.size] = pattern[: memory.size - at]
    places = [memory[at : at + size].reshape(shape) for at in range(0, memory.size, stride)]
    out = run(kernel, places[:1])
    device.synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        for k in range(calls):
            run(kernel, places[1 * (k % copies) :][:1], out=out)
        graph = stream.end_capture()
        start, end = cupy.cuda.Event(), cupy.cuda.Event()

        def sample(times: int) -> float:
            start.record(stream)
            for _ in range(times):
                graph.launch(stream)
            end.record(stream)
            end.synchronize()
            return 1e-3 * cupy.cuda.get_elapsed_time(start, end) / (times * calls)

        sample(2)
        times = max(1, min(1000, math.ceil(0.02 / (sample(1) * calls))))
        seconds = sorted(sample(times) for _ in range(15))[7]
    exported.KEPT.clear()  # the graph is not run again
    rate = 1e-9 * 1 * size * DTYPE.itemsize / seconds
    where = "" if copies == wanted else ", in part from the cache"
    print(f"{kernel.name}: {1e6 * seconds:.2f} us, {rate:.1f} GB/s for {told}{where}", flush=True)


def main() -> int:
    """Runs the checks, prints how fast each kernel is, and returns the exit code: 1 if a check failed, 2 if none can
    run."""
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        print(f"there is no GPU: {error}", file=sys.stderr)
        return 2
    for test in TESTS:
        try:
            test()
        except AssertionError:
            continue  # it has said so
        except Exception:
            traceback.print_exc()
            said(False, test.__name__)
    print(f"{OUTCOMES.count(True)} of {len(OUTCOMES)} checks passed", flush=True)
    speed(
        exported.KERNELS[0],
        (268435456,),
        is_cold=True,
        told="268435456 elements (the search: 4535.6 GB/s)",
    )
    return 0 if all(OUTCOMES) else 1


if __name__ == "__main__":
    sys.exit(main())
