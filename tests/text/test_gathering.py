"""A tile that becomes a state at once is what its elements give one by one; narrow elements that are folded a word at a
time are the same elements."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import numpy as np
import pytest

from redtune.config import MAX_UNROLLED
from redtune.cuda_packings import PACKINGS
from redtune.dtypes import DTYPES, Dtype, dtype_named
from redtune.evaluation import numpy_finish, numpy_fold, numpy_gather, numpy_lift
from redtune.narrow import folds_in_ints
from redtune.operators import OPERATORS, WHOLE, Operator, accumulate_type, result_type
from redtune.packing import Packing, folded_as, spelled
from redtune.problems import make_problem
from tests.text.ccode import library
from tests.text.folds import Array, entries, exact_values, special_values
from tests.text.kernels import PAIRS, config, has_meaning, operator, problem, rendered, target

SWEPT = entries(lambda op, dtype: op.gather is not None)


def tiles(values: Array, width: int, count: int, seed: int) -> Array:
    """Tiles of values picked at random, and the first few of every single value."""
    rng = np.random.default_rng(seed)
    picked = rng.choice(values, (count, width))
    alone = np.repeat(values[: max(1, count // 2), None], width, axis=1)
    return np.concatenate([picked, alone])


@SWEPT
@pytest.mark.parametrize("width", [1, 3, 8, 24])
def test_two_sweeps_give_what_merging_gives(op: Operator, dtype: Dtype, width: int) -> None:
    accumulate = accumulate_type(op, dtype)
    result = dtype_named(result_type(op, dtype))
    for values in (exact_values(op, dtype), special_values(dtype)):
        x = tiles(values, width, 400, width)
        i = np.broadcast_to(7 + np.arange(width), x.shape)
        with np.errstate(all="ignore"):
            swept = numpy_gather(op, accumulate, x, i)
            merged = numpy_fold(op, accumulate, [x])
        got, wanted = (numpy_finish(op, accumulate, result, state, width) for state in (swept, merged))
        if op.result == "index":
            np.testing.assert_array_equal(got - 7, wanted)  # a tile counts from where it begins
            continue
        # Where squares of large numbers leave the range, the two may leave it on different ways.
        fits = np.isfinite(wanted.astype(np.float64))
        u = max(dtype_named(accumulate).u, result.u)
        np.testing.assert_allclose(got[fits], wanted[fits], rtol=256 * u, atol=256 * u)
        assert not np.isfinite(got[~fits].astype(np.float64)).any()


@entries(lambda op, dtype: op.gather is not None and op.gather.guard != "")
def test_a_tile_that_cannot_win_is_known_before_it_is_searched(op: Operator, dtype: Dtype) -> None:
    accumulate = accumulate_type(op, dtype)
    x = tiles(special_values(dtype), 4, 300, 1)
    i = np.broadcast_to(np.arange(4), x.shape)
    swept, merged = numpy_gather(op, accumulate, x, i), numpy_fold(op, accumulate, [x])
    # Also one that consists of nothing but the identity's value has its first index.
    np.testing.assert_array_equal(swept["index"], merged["index"])


def test_a_variance_of_equal_numbers_is_zero_however_many_there_are() -> None:
    for width in (3, 6, 7, 24, 96):
        x = np.full((1, width), 0.1, np.float32)
        state = numpy_gather(OPERATORS["var"], "float32", x, np.zeros_like(x, int))
        assert state["mean"] == np.float32(0.1)
        assert state["squares"] == 0


# --- 32 bits within a tile -------------------------------------------------------------------------------------------

NARROW = [(op, dtype) for op, dtype in PAIRS if DTYPES[dtype].kind in WHOLE]


@pytest.mark.parametrize(("op", "dtype"), NARROW)
def test_what_a_tile_adds_up_in_32_bits_fits(op: str, dtype: str) -> None:
    if not folds_in_ints(make_problem(op, dtype, 100)):
        return
    low, high = DTYPES[dtype].limits
    entry, accumulate = operator(op, dtype), accumulate_type(operator(op, dtype), DTYPES[dtype])
    x = np.array([low, high, 0], DTYPES[dtype].storage())
    for a, b in itertools.product(range(3), range(3)):
        state = numpy_lift(entry, "int64", x[[a]], np.zeros(1, int), x[[b]] if entry.inputs > 1 else None)
        assert all(abs(int(v.astype(np.int64)[0])) * MAX_UNROLLED < 2**31 for v in state.values()), accumulate


def test_what_is_added_up_in_32_bits() -> None:
    found = {
        dtype: {op for op, d in NARROW if d == dtype and folds_in_ints(make_problem(op, dtype, 9))} for dtype in DTYPES
    }
    sixteen = {"sum", "nansum", "count_nonzero", "mean", "norm_l1", "norm_inf"}
    eight = sixteen | {"norm_l2", "sumsq", "dot", "var", "std"}
    assert found["int8"] == found["uint8"] == found["bool"] == eight
    assert found["int16"] == found["uint16"] == sixteen
    assert not found["int32"]
    assert not found["uint64"]


def test_an_initial_value_may_be_wider_than_a_tile() -> None:
    assert not folds_in_ints(problem("sum", "int8", is_seeded=True))
    assert not folds_in_ints(problem("mean", "int8", is_compensated=True))


# --- words ---------------------------------------------------------------------------------------------------------

# What the words of CUDA mean, in C.
INTRINSICS = """
static int __dp4a(int a, int b, int c) { signed char x[4], y[4]; __builtin_memcpy(x, &a, 4); __builtin_memcpy(y, &b, 4);
    for (int k = 0; k < 4; k++) c += x[k] * y[k]; return c; }
static unsigned int __dp4a_u(unsigned int a, unsigned int b, unsigned int c) {
    for (int k = 0; k < 4; k++) c += (a >> 8 * k & 255u) * (b >> 8 * k & 255u); return c; }
static int __dp2a_lo(int a, int b, int c) {
    return c + (short)a * (signed char)b + (short)(a >> 16) * (signed char)(b >> 8); }
static unsigned int __dp2a_lo_u(unsigned int a, unsigned int b, unsigned int c) {
    return c + (a & 65535u) * (b & 255u) + (a >> 16) * (b >> 8 & 255u); }
#define TWO(name, type, op) static unsigned int name(unsigned int a, unsigned int b) { \\
    const type x = (type)a, y = (type)b, u = (type)(a >> 16), v = (type)(b >> 16); \\
    return (unsigned int)(unsigned short)(x op y ? x : y) | (unsigned int)(unsigned short)(u op v ? u : v) << 16; }
TWO(__vmaxs2, short, >) TWO(__vmins2, short, <) TWO(__vmaxu2, unsigned short, >) TWO(__vminu2, unsigned short, <)
"""


def as_c(packing: Packing, name: str, dtype: str) -> str:
    """A function over words that leaves what is in them at the end, as 64-bit integers."""
    found = spelled(packing)
    steps = "".join(f"packed[{k}] = {step};" for k, step in enumerate(found.steps))
    left = "".join(f"out[{k}] = {text};" for k, text in enumerate(found.left))
    loop = f"for (int k = 0; k < n; k++) {{ const unsigned int word = words[k]; {steps} }}"
    body = f"unsigned int packed[] = {{{', '.join(found.start)}}}; {loop} {left}"
    if not dtype.startswith("int"):
        body = body.replace("__dp4a(", "__dp4a_u(").replace("__dp2a_lo(", "__dp2a_lo_u(")
    elif "7f7f7f7f" in body:
        body = body.replace("__dp4a(", "__dp4a_u(")
    return f"void {name}(int n, const unsigned int *words, long *out) {{ {body} }}"


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool", "int16", "uint16"])
def test_words_of_elements_are_their_elements(dtype: str) -> None:
    rows = {what: packing for (what, of), packing in PACKINGS.items() if of == dtype}
    names = {what: "".join(c if c.isalnum() else "_" for c in what) for what in rows}
    code = library(INTRINSICS + "\n".join(as_c(packing, names[what], dtype) for what, packing in rows.items()))
    storage, rng = DTYPES[dtype].storage(), np.random.default_rng(5)
    low, high = DTYPES[dtype].limits
    per_word = 4 // storage.itemsize
    wanted: dict[str, Any] = {
        "max": np.max, "min": np.min, "least": lambda v: v.view(f"u{storage.itemsize}").min(),
        "and": np.bitwise_and.reduce, "or": np.bitwise_or.reduce, "xor": np.bitwise_xor.reduce,
        "sum of x": lambda v: v.astype(int).sum(), "sum of x * x": lambda v: (v.astype(int) ** 2).sum(),
        "sum of x != 0": np.count_nonzero,
        "moments": lambda v: v.astype(int).sum() * 2**32 + (v.astype(int) ** 2).sum(),
    }  # fmt: skip
    for words in (1, 2, 31):
        for edges in (False, True):
            values = rng.integers(low, high, (words * per_word,), endpoint=True)
            values = rng.choice([low, high, 0, 1, max(low, -1)], values.shape) if edges else values
            data = values.astype(storage)
            for what, packing in rows.items():
                out = np.zeros(len(packing.left), np.int64)
                getattr(code, names[what])(
                    words, data.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p)
                )
                left = out.astype(storage) if not what.startswith("sum") else out
                found = left[0] if what.startswith("sum") else wanted[what](left)
                if what == "moments":
                    found = out[0] * 2**32 + out[1]
                assert int(found) == int(wanted[what](data)), (what, dtype, data)


def test_every_row_of_words_is_read_by_some_operator() -> None:
    read = {(folded_as(make_problem(op, dtype, 9), operator(op, dtype)), dtype) for op, dtype in PAIRS}
    assert set(PACKINGS) <= read


def test_words_are_folded_where_a_load_has_any_and_nothing_masks_an_element() -> None:
    on = target("cuda", "sm_90")

    def folds_words(vector: int, **more: Any) -> bool:
        return "word[" in rendered(on, config(vector=vector), problem("max", "int8", **more)).source

    assert folds_words(16)
    assert folds_words(4)
    assert not folds_words(2)
    assert not folds_words(16, is_masked=True)
    assert has_meaning("max", "int8")
