"""The value rows of 106 reports about other projects, with their inputs and right answers.

A row is a function that makes its calls on a `Kit` (see tests.device.trying). Each call runs with a sample of the valid
configs: 24 per kind of kernel on a GPU. On a CPU, where a kernel compiles for a second, a row gets 20 in all, shared
out over its kinds (operator x dtype x layout) with 2 at least for each; sizes and values of one kind share configs, and
after the first few every other config has the code of another on another grid.
Where a row names a choice (a block size, a way to combine), every valid one of those gets its part. Inputs above
`Kit.room` shrink. Softmax is exp(x - logsumexp(x)), and exp(x - max(x)) over its sum.

Rows that are no values of a call are elsewhere:
  codegen     B101 and B104 (the sources), B103: tests/text/test_hip.py, test_amdgpu.py, test_compile.py
  checkers    B81, B106, B111, B112 under memcheck or racecheck: tests/device/test_oclgrind.py; compute-sanitizer
  barriers    B108, B109, B120 (the sources): tests/text/test_templates.py, test_golden.py
  no fp64     B114: tests/text/test_config.py, tests/device/test_oclgrind.py
  PoCL        B118 on PoCL itself: tests/device/test_pocl.py
  two GPUs    B124, B126: need a machine of their own
  injection   B127, B132, B135, B143: tests/device/contract.py, test_injection.py, tests/text/test_judge.py
  tuner       B132, B137, B139, B140, B145, B147, B149: tests/text/test_judge.py, test_clock.py, test_search.py,
              test_proposals.py; B150: tests/device/test_leftovers.py; B152, B154: tests/text/test_cli.py, test_store.py
  cache       B155, B157, B163, B166, B168, B169: tests/text/test_store.py, test_hostile.py; B158: test_lab.py;
              B160, B161, B171: test_hostile.py, tests/device/test_leftovers.py, test_end_to_end.py
  studies     B173, B174, B176: tests/text/test_journal.py, test_proposals.py; B178: tests/device/test_kills.py
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import redtune
from redtune import preparing, store
from redtune.config import Config
from redtune.errors import UsageError
from redtune.reducing import described
from redtune.space import make_space
from redtune.types import Best, Problem
from tests.device.trying import Call, Fixed, Kit

Row = Callable[[Kit], list[Call]]
ROWS: dict[str, Row] = {}

nan, inf = np.nan, np.inf
f2, f4, f8, i1, i2, i4, i8 = np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64
u1, u8 = np.uint8, np.uint64
EXTREMES = ("max", "min")
INDICES = ("argmax", "argmin")
GIB = 2**30


def row(name: str) -> Callable[[Row], Row]:
    def keep(make: Row) -> Row:
        assert name not in ROWS, name
        ROWS[name] = make
        return make

    return keep


def each(name: str, *values: Any) -> tuple[Fixed, ...]:
    """A knob at one value after the other."""
    return tuple({name: value} for value in values)


def softmax(x: Any) -> Any:
    x = np.asarray(x, np.float64)
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def log_of_sum(x: Any) -> Any:
    x = np.asarray(x, np.float64)
    top = x.max(-1, keepdims=True)
    return (np.log(np.exp(x - top).sum(-1, keepdims=True)) + top)[..., 0]


def by_logsumexp(x: Any, host: Any, fixed: tuple[Fixed, ...] = ({},)) -> list[Call]:
    """Softmax along the last axis as exp(x - logsumexp(x)): the rounding of the logarithm counts in full."""
    right = log_of_sum(host)
    allowed = 1e-5 * max(1.0, float(np.abs(right).max()))
    same: dict[str, Any] = {"axis": 1, "fixed": fixed}
    return [
        Call("logsumexp", x, right.astype(f4), **same),
        Call(
            "logsumexp",
            x,
            softmax(host),
            dtype="float32",
            rel=allowed,
            then=lambda total: np.exp(np.asarray(host, f8) - total[:, None]),
            **same,
        ),
    ]


def by_parts(k: Kit, x: Any, host: Any, fixed: tuple[Fixed, ...] = ({},)) -> list[Call]:
    """Softmax along the last axis from the largest and the sum."""
    top = np.asarray(host).max(-1, keepdims=True)
    e = np.exp(host - top)
    same: dict[str, Any] = {"axis": 1, "fixed": fixed}
    return [
        Call("max", x, top, options={"keepdims": True}, **same),
        Call("sum", k.xp.asarray(e), softmax(host), dtype="float32", then=lambda s: e / s[:, None], **same),
    ]


# --- seeds and identities ---------------------------------------------------------------------------------------------


@row("B01")
def max_of_negatives(k: Kit) -> list[Call]:
    sizes = (31, 33, 1000, 1025)
    flat = [Call("max", -1.0 - k.xp.arange(n), f8(-1)) for n in sizes]
    return [Call("max", -k.xp.ones((2, 3, 4), f4), np.full((2, 3), -1, f4), axis=-1), *flat]


@row("B03")
def index_of_an_infinity(k: Kit) -> list[Call]:
    rows = [("argmax", [-inf]), ("argmin", [inf]), ("argmax", np.full(1000, -inf))]
    return [Call(op, k.xp.asarray(values), i8(0)) for op, values in rows]


@row("B04")
def extremes_of_infinities(k: Kit) -> list[Call]:
    xs = [(t, np.array([inf, inf], t)) for t in (f2, f4, f8)]
    return [Call(op, k.xp.asarray(s * x), t(s * inf)) for t, x in xs for op, s in (("min", 1), ("max", -1))]


@row("B04-bfloat16")
def extremes_of_infinities_in_bfloat16(k: Kit) -> list[Call]:
    return [
        Call(op, k.bfloat16(np.full(2, value)), f4(value), dtype="bfloat16")
        for op, value in zip(EXTREMES, (-inf, inf), strict=True)
    ]


@row("B07")
def extremes_away_from_zero(k: Kit) -> list[Call]:
    rows = [("min", 8, i4), ("min", 200, u1), ("max", -8, i4)]
    return [Call(op, k.xp.full(1000, value, t), t(value)) for op, value, t in rows]


@row("B08")
def half_products(k: Kit) -> list[Call]:
    xs = [(k.xp.full(5, 2, f2), 32), (k.xp.array([3], f2), 3), (k.xp.ones(10000, f2), 1)]
    return [Call("prod", x, f2(right)) for x, right in xs]


@row("B15")
def half_min_of_ones(k: Kit) -> list[Call]:
    return [Call("min", k.xp.ones((2, n, 1), f2), np.ones(2, f2), axis=(1, 2)) for n in (16383, 16384, 16385)]


# --- special values ---------------------------------------------------------------------------------------------------


@row("B16")
def nan_wins(k: Kit) -> list[Call]:
    def with_nan(at: int) -> Any:
        x = k.xp.arange(1025.0)
        x[at] = nan
        return x

    xs = [k.xp.array([nan, -1, 0, 1]), *(with_nan(at) for at in (0, 512, 1023, 1024))]
    return [Call(op, x, f8(nan)) for op in EXTREMES for x in xs]


@row("B17")
def index_of_nan(k: Kit) -> list[Call]:
    no, zero = np.full(50, nan), np.zeros(50)
    xs = [(np.full(100, nan), 0), (np.concatenate([no, zero]), 0), (np.concatenate([zero, no]), 50)]
    return [Call(op, k.xp.asarray(x), i8(right)) for op in INDICES for x, right in xs]


@row("B19")
def index_and_value_agree(k: Kit) -> list[Call]:
    xs = [([3, nan, 1, 5], 1), ([1, 2, nan], 2), ([inf, nan, -inf], 1), ([-1, -2, nan], 2)]
    indices = [Call(op, k.xp.array(x), i8(right)) for op in INDICES for x, right in xs]
    return [*indices, *(Call(op, k.xp.array(x), f8(nan)) for op in EXTREMES for x, _ in xs)]


@row("B21")
def max_of_negative_zeros(k: Kit) -> list[Call]:
    return [Call("max", -k.xp.zeros(n, f4), f4(0)) for n in (8192, 8193, 454000)]


@row("B22")
def max_of_rows_with_negative_zero(k: Kit) -> list[Call]:
    x = k.xp.array([[-0.0, np.finfo(f4).min], [-1, -4]], f4)
    return [Call("max", x, np.array([0, -1], f4), axis=1, fixed=({"combine": "atomic"}, {}))]


@row("B24")
def subnormals_count(k: Kit) -> list[Call]:
    low, high = [0, 1.1754944e-38, -1.4e-45, 0, 459367], [0, 1.4e-45, -1.4e-45, 0]
    return [Call("argmin", k.xp.array(low, f4), i8(2)), Call("argmax", k.xp.array(high, f4), i8(1))]


@row("B26")
def index_with_and_without_out(k: Kit) -> list[Call]:
    rights = zip(INDICES, (1, 0), strict=True)
    return [Call(op, k.xp.array([0, 1]), i8(at), has_out=out) for op, at in rights for out in (False, True)]


@row("B27")
def nan_is_true(k: Kit) -> list[Call]:
    xs = [("any", [nan]), ("all", [nan]), ("any", [0.25]), ("all", [0.25, nan])]
    return [Call(op, k.xp.array(x), np.True_) for op, x in xs]


@row("B29")
def logsumexp_of_minus_infinity(k: Kit) -> list[Call]:
    rows = k.xp.array([[-inf, -inf], [0, -inf]])
    return [
        Call("logsumexp", k.xp.array([-inf] * 5), f8(-inf)),
        Call("logsumexp", rows, np.array([-inf, 0.0]), axis=1),
    ]


@row("B31")
def softmax_of_very_negative_scores(k: Kit) -> list[Call]:
    hosts = [np.full((4, n), -100, f4) for n in (5, 33, 1000, 1025)]
    pairs = [(k.xp.asarray(host), host) for host in hosts]
    return [call for x, host in pairs for call in (*by_logsumexp(x, host), *by_parts(k, x, host))]


# --- whole numbers and truth values -----------------------------------------------------------------------------------


@row("B33")
def bytes_add_up(k: Kit) -> list[Call]:
    return [Call("sum", k.xp.full((40, 500), 255, u1), np.full(40, 127500, u8), axis=1)]


@row("B34")
def truths_are_counted(k: Kit) -> list[Call]:
    x = k.xp.ones((128, 2), bool)
    return [Call("any", x, np.True_), Call("sum", x, i8(256)), Call("sum", k.xp.ones(1024, bool), i8(1024))]


@row("B36")
def even_numbers_are_true(k: Kit) -> list[Call]:
    xs = [("all", [2, 2, 2], u1), ("all", [2, 4], i4), ("any", [256], i4)]
    return [Call(op, k.xp.array(x, t), np.True_) for op, x, t in xs]


@row("B38")
def accumulators_of_64_bits(k: Kit) -> list[Call]:
    total, product = k.xp.array([2**31 - 1] * 2, i4), k.xp.array([2**20] * 2, i4)
    return [Call("sum", total, i8(4294967294)), Call("prod", product, i8(1099511627776))]


@row("B39")
def all_64_bits_are_compared(k: Kit) -> list[Call]:
    wide = k.xp.array([0, 3, 2**64 - 6, 2**64 - 1], u8)
    return [
        Call("max", k.xp.array([0, 9223372036854775], u8), u8(9223372036854775)),
        Call("min", wide, u8(0)),
        Call("max", wide, u8(18446744073709551615)),
        Call("argmax", k.xp.array([1, 2**63, 5], u8), i8(1)),
    ]


@row("B41")
def integers_of_64_bits(k: Kit) -> list[Call]:
    return [
        Call("sum", k.xp.ones(70, i8), i8(70)),
        Call("mean", k.xp.ones((2, 2, 2), i8), f8(1)),
        Call("prod", k.xp.ones(8, u8), u8(1)),
    ]


@row("B42")
def the_dtype_asked_for(k: Kit) -> list[Call]:
    xs = [(k.xp.arange(3, dtype=i2), i2(3)), (k.xp.full(300, 1, i1), i1(44))]
    return [Call("sum", x, right, options={"dtype": right.dtype}) for x, right in xs]


# --- floats -----------------------------------------------------------------------------------------------------------


@row("B44")
def half_means(k: Kit) -> list[Call]:
    return [Call("mean", k.xp.full(100_000, value, f2), f2(value)) for value in (1, 2)]


@row("B45")
def half_sums(k: Kit) -> list[Call]:
    x = k.xp.ones(4096, f2)
    return [Call("sum", x, f2(4096)), Call("mean", x, f2(1))]


@row("B47")
def bfloat16_sums(k: Kit) -> list[Call]:
    """The logarithm of 512 is no bfloat16, so softmax asks for float32 or divides by a sum."""
    ones, zeros, even = k.bfloat16(np.ones(512)), k.bfloat16(np.zeros((1, 512))), np.full((1, 512), 0.001953125)
    asked: dict[str, Any] = {"options": {"dtype": "float32"}, "dtype": "float32", "axis": 1}
    return [
        Call("sum", ones, f4(512), dtype="bfloat16"),
        Call("logsumexp", zeros, even, then=lambda t: np.exp(0.0 - np.broadcast_to(t[:, None], (1, 512))), **asked),
        Call("max", zeros, np.zeros(1, f4), axis=1, dtype="bfloat16"),
        Call("sum", k.bfloat16(np.ones((1, 512))), even, axis=1, dtype="bfloat16", then=lambda t: even * 512 / t),
    ]


@row("B48")
def column_means_of_ones(k: Kit) -> list[Call]:
    n = k.size(20_000_000, 2_000_000, 8)
    return [Call("mean", k.xp.ones((n, 2), f4), np.ones(2, f4), axis=0, rel=1e-6)]


@row("B50")
def variance_of_neighbours(k: Kit) -> list[Call]:
    x = k.xp.array([2281.5, 2281.25], f4)
    return [Call("var", x, f4(0.015625)), Call("var", x, f4(0.03125), options={"ddof": 1})]


@row("B53")
def norms_of_huge_values(k: Kit) -> list[Call]:
    return [
        Call("norm_l2", k.xp.array([1e20, 1, 1], f4), f4(1e20)),
        Call("norm_l2", k.xp.array([1e200, 1e200]), f8(1.4142135623730951e200)),
    ]


@row("B54")
def half_norms(k: Kit) -> list[Call]:
    return [Call("norm_l2", k.xp.array(values, f2), f2(1000)) for values in ([1000], [600, 800])]


@row("B56")
def norm_of_ones(k: Kit) -> list[Call]:
    side = k.size(10**4, 10**3, 4 * 10**4)
    return [Call("norm_l2", k.xp.ones(side * side, f4), f4(side), rel=1e-5)]


@row("B58")
def half_product_in_float32(k: Kit) -> list[Call]:
    return [Call("prod", k.xp.full(8, 0.5, f2), f4(0.00390625), options={"dtype": f4}, rel=0)]


@row("B59")
def sum_of_hundreds(k: Kit) -> list[Call]:
    ways = each("combine", "two_pass", "atomic", "last_block")
    return [Call("sum", k.xp.full((100, 100, 100), 100, f4), f4(1e8), rel=1e-6, fixed=ways)]


# --- ties -------------------------------------------------------------------------------------------------------------


@row("B61")
def first_of_equals_in_rows(k: Kit) -> list[Call]:
    t = k.xp.ones((3, 4))
    t[1, 0] = 0
    return [Call("argmax", t, np.array([0, 1, 0]), axis=1)]


@row("B63")
def first_of_a_constant(k: Kit) -> list[Call]:
    sizes, values = (16, 31, 33, 64, 1000, 100003), (-10, 0, 10)
    return [Call("argmax", k.xp.full(n, value), i8(0)) for n in sizes for value in values]


@row("B65")
def index_along_one_element(k: Kit) -> list[Call]:
    return [Call("argmax", k.xp.zeros((40, 900, 1), f4), np.zeros((40, 900), i8), axis=2)]


# --- sizes ------------------------------------------------------------------------------------------------------------


@row("B66")
def an_element_beyond_32_bits(k: Kit) -> list[Call]:
    n = k.size(2**32, 2**22 + 1)
    x = k.xp.zeros(n, i1)
    x[-1] = 1
    return [Call("max", x, i1(1)), Call("argmax", x, i8(n - 1))]


@row("B68")
def rows_beyond_32_bits(k: Kit) -> list[Call]:
    n = k.size(2**31 + 2**10, 2**21 + 2**10, 2)
    x = k.xp.ones((2, n), i1)
    return [Call("sum", x, np.full(2, n), axis=1), Call("sum", x, i8(2 * n))]


@row("B69")
def mean_beyond_31_bits(k: Kit) -> list[Call]:
    return [Call("mean", k.xp.ones(k.size(2**31 + 2**20, 2**22 + 2**10), u1), f8(1))]


@row("B70")
def rows_of_a_sliced_view(k: Kit) -> list[Call]:
    rows, columns = k.size(32775, 331, 65536), k.size(65536, 4096, 32775)
    a = k.xp.empty((rows, columns), u1)
    a[...] = (k.xp.arange(rows) % 251).astype(u1)[:, None]
    return [Call("max", a[:, 7:], (np.arange(rows) % 251).astype(u1), axis=-1)]


@row("B72")
def one_more_than_a_grid(k: Kit) -> list[Call]:
    n = k.size(2**31, 2**22)
    x = k.xp.ones(n, i1)
    return [Call("sum", x, i8(n)), Call("prod", x, i8(1)), Call("max", x, i1(1)), Call("all", x, np.True_)]


@row("B73")
def xor_beyond_32_bits(k: Kit) -> list[Call]:
    n = k.size(2**32 + 5, 2**22 + 5)
    x = k.xp.zeros(n, u1)
    x[0], x[n // 2 - 2], x[-1] = 0x5A, 0x33, 0x0F  # n // 2 - 2 is 2**31
    return [Call("bitwise_xor", x, u1(102))]


@row("B75")
def max_of_31_bits(k: Kit) -> list[Call]:
    return [Call("max", k.xp.full(k.size(2**31, 2**22), -5, i1), i1(-5))]


@row("B77")
def offsets_beyond_31_bits(k: Kit) -> list[Call]:
    sizes = [(i4, i8, k.size(2**29 + 1, 2**21 + 1, 4)), (f8, f8, k.size(2**29 + 1, 2**21 + 1, 8))]
    return [Call("sum", k.xp.ones(n, t), result(n)) for t, result, n in sizes]


@row("B78")
def very_many_columns_of_one(k: Kit) -> list[Call]:
    x = np.random.default_rng(0).random((1, 524281))
    return [Call("sum", k.xp.asarray(x), x[0], axis=0, rel=0)]


@row("B80")
def very_many_columns(k: Kit) -> list[Call]:
    return [Call("sum", k.xp.ones((3, 2_097_153), f4), np.full(2_097_153, 3, f4), axis=0)]


@row("B81")
def sizes_around_powers_of_two(k: Kit) -> list[Call]:
    sizes = (1, 2, 31, 32, 33, 63, 64, 65, 1023, 1025)
    return [Call("sum", k.xp.arange(n), i8(n * (n - 1) // 2)) for n in sizes]


@row("B83")
def blocks_that_are_no_power_of_two(k: Kit) -> list[Call]:
    return [Call("sum", k.xp.arange(1, 49), i8(1176), fixed=each("block", 96, 192))]


# --- strides ----------------------------------------------------------------------------------------------------------


@row("B84")
def columns_of_a_reversed_view(k: Kit) -> list[Call]:
    host = np.arange(1, 32769).reshape(2, 1024, 16)[::-1]
    x = k.xp.arange(1, 32769).reshape(2, 1024, 16)[::-1]
    rights = {op: getattr(host, op)(axis=1) for op in ("sum", "prod", "max", "any")}
    assert rights["sum"][1, :4].tolist() == [8381440, 8382464, 8383488, 8384512]
    return [Call(op, x, right, axis=1) for op, right in rights.items()]


@row("B85")
def rows_of_a_transpose(k: Kit) -> list[Call]:
    x, rights = k.xp.arange(6).reshape(2, 3).T, {"sum": [3, 5, 7], "mean": [1.5, 2.5, 3.5], "prod": [0, 4, 10]}
    return [Call(op, x, np.array(right), axis=-1) for op, right in rights.items()]


@row("B87")
def an_expanded_matrix(k: Kit) -> list[Call]:
    return [Call("sum", k.xp.broadcast_to(k.xp.asarray(f4(1)), (2, 3)), np.full(3, 2, f4), axis=0)]


@row("B88")
def fortran_order(k: Kit) -> list[Call]:
    host, x = (xp.arange(6000).reshape((10, 20, 30), order="F") for xp in (np, k.xp))
    last, two = host.max(2), host.max((1, 2))
    assert last[0, :3].tolist() == [5800, 5810, 5820]
    assert two[:3].tolist() == [5990, 5991, 5992]
    return [Call("max", x, last, axis=2), Call("max", x, two, axis=(1, 2)), Call("argmax", x, i8(5999))]


@row("B90")
def slices_of_small_arrays(k: Kit) -> list[Call]:
    x = k.xp.repeat(k.xp.arange(32.0)[:, None], 2, 1)[:20]
    return [Call("max", x, f8(19)), Call("sum", k.xp.full(4, -1)[2:3], i8(-1))]


@row("B94")
def views_off_alignment(k: Kit) -> list[Call]:
    """The sums of the narrow types are small enough to be exact."""
    b = k.xp.arange(4097, dtype=f4)
    calls = [Call("sum", b[at:], f4(8390656 - at * (at - 1) // 2), fixed=each("vector", 2, 4)) for at in (1, 2, 3)]
    for t, result, widths in ((f2, f2, each("vector", 2, 4, 8)), (i1, i8, each("vector", 4, 16))):
        host = (np.arange(4097) % 3 == 0).astype(t)
        x = k.xp.asarray(host)
        calls += [Call("sum", x[at:], result(host[at:].sum(dtype=f8)), fixed=widths) for at in (1, 2, 3)]
    return calls


@row("B96")
def all_along_the_first_axis(k: Kit) -> list[Call]:
    b = k.xp.zeros((1, 3))
    b[0, 1] = 1
    return [Call("all", x, np.array([False, True, False]), axis=0) for x in (b, b.astype(bool))]


@row("B97")
def a_negative_axis(k: Kit) -> list[Call]:
    x = k.xp.array([[1, 2, 3], [4, 5, 6.0]])
    return [Call("sum", x, np.array([6.0, 15.0]), axis=axis) for axis in (-1, 1)]


@row("B99")
def two_axes_at_once(k: Kit) -> list[Call]:
    x = k.xp.ones((124, 9, 59))
    return [Call("sum", x, np.full(59, 1116.0), axis=(0, 1)), Call("sum", x, np.full(9, 7316.0), axis=(0, 2))]


# --- hardware ---------------------------------------------------------------------------------------------------------


@row("B101")
def tails_of_64_lanes(k: Kit) -> list[Call]:
    ways: tuple[Fixed, ...] = (
        {"block": 256, "wave": 64, "exchange": "shuffle"},
        {"block": 256, "wave": 64, "exchange": "lds", "tree": "unrolled"},
    )
    return [Call(op, k.xp.ones(4096), f8(right), fixed=ways) for op, right in (("sum", 4096), ("max", 1))]


@row("B106")
def trees_in_shared_memory(k: Kit) -> list[Call]:
    ways = tuple({"exchange": "lds", "tree": t} for t in ("unrolled", "sequential", "strided", "interleaved"))
    runs = 1000 if k.is_gpu else 100
    return [Call("sum", k.xp.arange(1 << 20), i8(549755289600), fixed=ways, runs=runs)]


@row("B108")
def rows_that_fill_no_block(k: Kit) -> list[Call]:
    rows = Call("sum", k.xp.ones((1001, 32)), np.full(1001, 32.0), axis=1, fixed=each("team", 0, 1, 8, 32))
    return [rows, *(Call("sum", k.xp.ones(3 * block + 1), f8(3 * block + 1)) for block in (32, 256, 1024))]


@row("B109")
def last_block_sees_the_others(k: Kit) -> list[Call]:
    n = k.size(1 << 26, 1 << 22, 4)
    ways, runs = k.last_blocks, 10_000 if k.is_gpu else 60
    return [Call("sum", k.xp.ones(n, f4), f4(n), fixed=ways, runs=runs, rel=0)]


@row("B111")
def half_extremes_of_a_block_of_256(k: Kit) -> list[Call]:
    hosts = [np.random.default_rng(n).standard_normal(n).astype(f2) for n in (257, 100_003)]
    return [
        Call(op, k.xp.asarray(h), getattr(h, op)(), fixed=each("block", 256)) for op in ("max", "min") for h in hosts
    ]


@row("B112")
def logsumexp_of_a_block_of_256(k: Kit) -> list[Call]:
    block = each("block", 256)
    hosts = [np.random.default_rng(n).standard_normal((3, n)).astype(f4) for n in (7, 300, 1000)]
    rows = [call for h in hosts for call in by_logsumexp(k.xp.asarray(h), h, block)]
    return [*rows, *(Call("logsumexp", k.xp.asarray(h[0]), log_of_sum(h[0]).astype(f4), fixed=block) for h in hosts)]


@row("B118")
def trees_of_a_block_of_256(k: Kit) -> list[Call]:
    h = np.random.default_rng(0).standard_normal(100_000)
    way: tuple[Fixed, ...] = ({"block": 256, "exchange": "lds"},)
    return [Call(op, k.xp.asarray(h), getattr(h, op)(), fixed=way) for op in EXTREMES]


@row("B120")
def softmax_by_blocks(k: Kit) -> list[Call]:
    h, blocks = np.random.default_rng(0).standard_normal((9, 192)).astype(f4), each("block", 64, 128, 192, 256)
    calls = [*by_logsumexp(k.xp.asarray(h), h, blocks), by_parts(k, k.xp.asarray(h), h, blocks)[1]]
    once: dict[str, Any] = {"axis": 1, "rel": 5e-5, "dtype": "float32", "fixed": blocks}
    total = Call(
        "logsumexp", k.xp.asarray(h), np.ones(9), then=lambda t: np.exp(h.astype(f8) - t[:, None]).sum(1), **once
    )
    return [*calls, total]


@row("B121")
def last_block_in_uniform_flow(k: Kit) -> list[Call]:
    ways = tuple({"block": b, "combine": "last_block"} for b in (64, 128, 256))
    return [Call("sum", k.xp.arange(1000), i8(499500), fixed=ways)]


# --- again and again --------------------------------------------------------------------------------------------------


@row("B129")
def row_sums_again_and_again(k: Kit) -> list[Call]:
    h = np.random.default_rng(0).random((16, 2, 50000), f4)
    x, right = k.xp.asarray(h), h.sum(2, dtype=f8).astype(f4)
    runs = 10_000 if k.is_gpu else 60
    same = {"determinism": "run-to-run"}
    return [
        Call("sum", x, right, axis=2, rel=1e-6),
        Call("sum", x, right, axis=2, rel=1e-6, options=same, runs=runs, is_bitwise=True),
    ]


@row("B131")
def the_same_bits_in_every_run(k: Kit) -> list[Call]:
    h = np.random.default_rng(0).standard_normal(10**7)
    exact = f8(h.sum(dtype=np.longdouble))
    ways = (*each("combine", "two_pass"), *k.last_blocks)
    runs, asked = 2400 if k.is_gpu else 60, {"determinism": "run-to-run"}
    return [Call("sum", k.xp.asarray(h), exact, options=asked, fixed=ways, runs=runs, is_bitwise=True, rel=1e-10)]


@row("B133")
def the_first_call_and_the_second(k: Kit) -> list[Call]:
    ways, n = each("combine", "atomic"), 1 << 20
    return [Call("sum", x, t(n), fixed=ways) for x, t in ((k.xp.ones(n), f8), (k.xp.ones(n, i8), i8))]


# --- the tests --------------------------------------------------------------------------------------------------------


class Rows:
    """Set the fixture `kit`."""

    @pytest.mark.parametrize("name", ROWS)
    def test_row(self, kit: Kit, name: str) -> None:
        calls = ROWS[name](kit)
        if any(call.x is None for call in calls):
            pytest.skip("no library with bfloat16 is at hand: ml_dtypes for numpy, torch for a GPU")
        faults = kit.faults(calls)
        assert not faults, f"{len(faults)} faults\n" + "\n".join(faults[:20])

    @pytest.mark.parametrize("config", [None, Config()], ids=["no config", "a config"])
    def test_no_elements_launch_nothing(self, kit: Kit, config: Config | None, monkeypatch: pytest.MonkeyPatch) -> None:
        """B09, B11, B12, and B81 for n = 0. No kernel runs, so no other config can matter."""
        monkeypatch.setattr("redtune.reducing.prepare", None)
        monkeypatch.setattr("redtune.preparing.render", None)
        xp, none = kit.xp, kit.xp.zeros(0, f4)
        calls = [
            Call("sum", none, f4(0)),
            Call("prod", none, f4(1)),
            Call("any", none, np.False_),
            Call("all", none, np.True_),
            Call("max", xp.zeros((0, 2)), np.zeros(0), axis=-1),
            Call("min", xp.zeros((3, 0, 2)), np.zeros((3, 0)), axis=-1),
            Call("sum", xp.zeros((3, 0), f4), np.zeros(3, f4), axis=1),
            Call("prod", xp.zeros((3, 0), f4), np.ones(3, f4), axis=1),
            Call("sum", xp.arange(0), i8(0)),
        ]
        faults = [f"{call.op} of {call.x.shape}: {fault}" for call in calls if (fault := kit.fault(call, config))]
        assert not faults, "\n".join(faults)
        for op in ("max", "argmax"):
            with pytest.raises(ValueError, match="no elements"):
                redtune.reduce(none, op, config=config)

    @pytest.mark.parametrize(
        ("axis", "error"), [(2, np.exceptions.AxisError), (-3, np.exceptions.AxisError), ((0, 0), ValueError)]
    )
    def test_an_axis_that_is_none(self, kit: Kit, axis: Any, error: type[Exception]) -> None:
        """B97."""
        with pytest.raises(error) as caught:
            redtune.sum(kit.xp.ones((2, 3)), axis=axis)
        assert type(caught.value) is error

    @pytest.mark.parametrize("block", [48, 80, 160])
    def test_a_block_of_another_size_is_refused(self, kit: Kit, block: int) -> None:
        """B83."""
        with pytest.raises(UsageError, match=f"block cannot be {block}"):
            redtune.sum(kit.xp.arange(1, 49), config=Config(block=block))

    def test_big_endian(self, kit: Kit) -> None:
        """B92: right, or a TypeError that names the byte order."""
        xs = [(np.array([1, 2, 3], ">i4"), i8(6)), (np.arange(1000, dtype=">f4"), f4(499500))]
        try:
            faults = kit.faults([Call("sum", kit.foreign(x), right) for x, right in xs])
        except TypeError as error:
            faults = [] if "byte" in str(error) or "endian" in str(error) else [str(error)]
        assert not faults, "\n".join(faults)

    def test_run_to_run_excludes_atomic_floats(self, kit: Kit) -> None:
        """B131."""
        call = Call("sum", kit.xp.ones(10**7), f8(10**7), options={"determinism": "run-to-run"})
        with pytest.raises(UsageError, match="run-to-run"):
            make_space(kit.problem(call), kit.dialect, kit.device, {"combine": "atomic"})

    def test_a_stored_config_runs_other_sizes(self, kit: Kit) -> None:
        """B154: the right value whatever was tuned for 2^20, by that config or one that can be launched."""
        sizes = (48, 1, 33, kit.size(2**31 - 1, 2**22 - 1), 1 << 20)
        calls = [Call("sum", kit.xp.ones(n, i1), i8(n)) for n in sizes]
        problem, faults = kit.problem(calls[-1]), []
        configs = list(itertools.islice(kit.configs([problem], {}), kit.per_row))
        compiled = [kit.compilers.compile(kit.kernel(problem, config)) for config in configs]
        for config, future in zip(configs, compiled, strict=True):
            if future.result():
                continue
            with stored(kit, problem, config):
                faults += [f"n = {c.x.size}: {fault} with {config}" for c in calls if (fault := kit.fault(c, None))]
        assert len(configs) >= 20
        assert not faults, "\n".join(faults)

    def test_each_kind_has_a_stored_config_of_its_own(self, kit: Kit) -> None:
        """B163, over 24 configs: 4 for each of the 6 kinds."""
        xp, n, rounds = kit.xp, 1024, 4
        calls = [
            Call("sum", xp.ones(n, f4), f4(n)),
            Call("sum", xp.ones(n), f8(n)),
            Call("max", xp.full(n, -5, i1), i1(-5)),
            Call("argmax", xp.full(n, -5, f4), i8(0)),
            Call("sum", xp.ones((n, 5), f4), np.full(5, n, f4), axis=0),
            Call("sum", xp.ones((5, n), f4), np.full(5, n, f4), axis=1),
        ]
        problems = [kit.problem(call) for call in calls]
        drawn = [list(itertools.islice(kit.configs([problem], {}), 1, rounds + 1)) for problem in problems]
        ahead = [[kit.compilers.compile(kit.kernel(p, c)) for c in cs] for p, cs in zip(problems, drawn, strict=True)]
        faults = []
        for turn in range(rounds):
            sets = [
                s
                for s, fs in zip(zip(calls, problems, drawn, strict=True), ahead, strict=True)
                if not fs[turn].result()
            ]
            with ExitStack() as stack:
                for _, problem, configs in sets:
                    stack.enter_context(stored(kit, problem, configs[turn]))
                for call, _, configs in sets:
                    if described(call.x, call.op, call.axis, "")[0] != configs[turn]:
                        faults.append(f"{call.op} of {call.x.dtype} along {call.axis} runs with another's config")
                    faults += [fault for fault in [kit.fault(call, None)] if fault]
        assert not faults, "\n".join(faults)

    def test_few_kernels_crash_the_compiler(self, kit: Kit) -> None:
        """A vendor's compiler may fail on a kernel; more than a few are our fault. The last test of all."""
        print(f"\n{kit.tried} configs tried, {len(kit.compilers.known)} kernels compiled, {len(kit.crashed)} crashed")
        assert len(kit.crashed) <= max(1, 0.03 * kit.tried), "\n".join(kit.crashed)


@contextmanager
def stored(kit: Kit, problem: Problem, config: Config) -> Iterator[None]:
    """With a config as what was tuned for a problem."""
    entry = Best(
        problem=problem,
        device=kit.device,
        config=config,
        median_us=1.0,
        spread_us=0.1,
        runner_up_us=None,
        default_us=None,
        worst_us=None,
        baseline_us=None,
        baseline="",
        gbps=1.0,
        ceiling_gbps=None,
        temperature="cold",
        determinism="run-to-run",
        trials=1,
        seed=0,
        found="2026-01-01T00:00:00+00:00",
        versions={},
        templates=store.templates_digest(),
        format=store.format_number(),
    )
    assert store.save(entry)
    preparing.forget()
    try:
        yield
    finally:
        Path(store.user_path(problem, kit.device, "cold")).unlink()
        preparing.forget()
