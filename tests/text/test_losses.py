"""Sums that keep what they lose: the emitted functions themselves, in C, over long chains of merges."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from redtune.dtypes import DTYPES
from redtune.operators import OPERATORS, keeps_losses
from redtune.plan import finish_arguments
from redtune.references import Depths
from redtune.types import Problem
from tests.text.ccode import library
from tests.text.folds import Array
from tests.text.kernels import config, operator, problem, rendered, target

# OpenCL C down to where threads meet is C, but for these words.
OPENCL = """
#include <tgmath.h>
#include <stdint.h>
#define __global
#define __local
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef struct { uint x, y; } uint2;
"""
KEEPING = [name for name, op in OPERATORS.items() if keeps_losses(op, "float32")]


def emitted(p: Problem) -> str:
    """The text of a kernel before its first barrier: the state, and how states merge."""
    text = rendered(target("opencl"), config(exchange="lds", combine="two_pass"), p).source
    return text.partition("// The threads of a block")[0]


def in_turn(p: Problem, flags: tuple[str, ...] = ()) -> Any:
    """A function of the inputs that takes their elements one after the other, as a thread takes tiles."""
    names = finish_arguments(p)
    values = "".join(f", {({'n': 'n', 'ddof': '0'})[name]}" for name in names)
    lifted = "lift(widen(X[i]), widen(Y[i]))" if operator(p.op, p.dtype).inputs > 1 else "lift(widen(X[i]))"
    kept = p.is_compensated
    built = library(
        OPENCL
        + emitted(p)
        + f"""
void in_turn(long n, const element_t *X, const element_t *Y, result_t *out) {{
    {"State s = identity()" if kept else "Running s = fresh()"};
    for (long i = 0; i < n; i++)
        s = {"merge" if kept else "gather"}(s, {lifted});
    *out = finish({"s" if kept else "settled(s)"}{values});
}}
""",
        flags,
    )

    def run(x: Array, y: Array) -> float:
        out = np.empty(1, p.dtype)
        built.in_turn(ctypes.c_long(len(x)), *(ctypes.c_void_p(a.ctypes.data) for a in (x, y, out)))
        return float(out[0])

    return run


CASES = {
    "plain": ("float32", {}, ()),
    "compensated": ("float32", {"is_compensated": True}, ()),
    "contracted": ("float32", {}, ("-O2", "-mfma", "-ffp-contract=fast")),
    "float64": ("float64", {}, ()),
}


@pytest.mark.parametrize(("dtype", "extra", "flags"), CASES.values(), ids=CASES)
def test_a_long_chain_loses_no_more_than_one_addition(dtype: str, extra: Any, flags: tuple[str, ...]) -> None:
    """The bound of a fold whose tiles have one element: tens of thousands of plain additions are far beyond it."""
    rng = np.random.default_rng(0)
    n = 30_000
    for name in KEEPING:
        run, op = in_turn(problem(name, dtype, **extra), flags), OPERATORS[name]
        assert op.tolerance is not None
        for centre, spread in ((1000.0, 1.0), (1.0, 3.0)):
            x, y = ((centre + spread * rng.standard_normal(n)).astype(dtype) for _ in range(2))
            inputs = [a.reshape(1, -1) for a in (x, y)][: op.inputs]
            exact = op.reference(*inputs)[0]
            # What rounds in the exponentials of logsumexp is not kept.
            depths = Depths(1, n if name == "logsumexp" else 1)
            u = DTYPES[dtype].u
            allowed = op.tolerance.bound(op.tolerance.measures(*inputs), depths, u)[0] + u * abs(exact)
            assert abs(np.longdouble(run(x, y)) - exact) <= allowed, (name, centre)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_cancels_is_not_lost(dtype: str) -> None:
    run = in_turn(problem("sum", dtype, is_compensated=True))
    big = 1 / np.finfo(dtype).eps * 64
    x = np.array([big, 3.0, -big, 1.0, big, 0.5, -big, 2.0], dtype)
    assert run(x, x) == 6.5


@pytest.mark.parametrize("extra", [{}, {"is_compensated": True}], ids=["plain", "compensated"])
def test_special_values_leave_no_losses(extra: dict[str, Any]) -> None:
    """An infinite sum has lost nothing; a loss that is NaN would turn it into NaN."""
    rows = [[np.inf, 1.0, 2.0], [1.0, -np.inf, 2.0], [np.nan, 1.0], [np.inf, -np.inf], [-np.inf, -np.inf]]
    for name in ("sum", "nansum", "norm_l1", "norm_l2", "logsumexp", "var", "mean"):
        run = in_turn(problem(name, "float64", **extra))
        for row in map(np.array, rows):
            with np.errstate(all="ignore"):
                wanted = float(OPERATORS[name].reference(row[None])[0])
            np.testing.assert_equal(run(row, row), wanted, err_msg=f"{name} of {row}")
        if name == "sum":
            overflows = np.full(3, 1e308)
            assert run(overflows, overflows) == np.inf
