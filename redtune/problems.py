"""Problems from names and sizes: every check that a caller, the command line or an array goes through."""

from __future__ import annotations

import math
import operator
from dataclasses import replace
from typing import Any

from redtune.dtypes import DTYPES, Dtype, dtype_named, unknown
from redtune.errors import DtypeError, UsageError
from redtune.layouts import contiguous_strides, fit
from redtune.operators import (
    Operator,
    accumulate_type,
    counts_in_order,
    entry_of,
    keeps_losses,
    operator_for,
)
from redtune.types import DETERMINISMS, Problem

MAX_N = 1 << 40


def normal_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """The reduced axes, ascending and counted from 0. Raises AxisError, ValueError or TypeError as numpy does."""
    import numpy as np

    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = []
    for one in given:
        try:
            at = operator.index(one)
        except TypeError:
            raise TypeError(f"axis is a whole number or a tuple of them, not {one!r}") from None
        # numpy takes the axes 0 and -1 of an array that has none, as long as they are no tuple.
        room = ndim if given is axis else max(ndim, 1)
        if not -room <= at < room:
            raise np.exceptions.AxisError(at, ndim)
        if ndim:
            axes.append(at % ndim)
    if len(set(axes)) != len(axes):
        raise ValueError(f"axis {tuple(given)} names an axis twice")
    return tuple(sorted(axes))


def asked_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """The reduced axes as a person names them: any fault is a UsageError."""
    try:
        return normal_axes(axis, ndim)
    except (ValueError, TypeError, IndexError) as error:
        raise UsageError(str(error)) from error


def make_problem(
    op: str,
    dtype: str = "float32",
    n: int = 1,
    determinism: str = "any",
    *,
    outer: int = 1,
    inner: int = 1,
    accumulate: str | None = None,
    result: str | None = None,
    custom: str = "",
) -> Problem:
    """A reduction of `outer` x `n` x `inner` elements of `dtype` by `op`, `n` of them into one each, accumulated as
    numpy does (16-bit floats in float32).

    `result` asks for another dtype of the results, `accumulate` for "float64" or "compensated". Raises UsageError for
    an unknown name, with the nearest one, or for an `n` that is no number of elements.
    """
    element = dtype_named(dtype)
    entry = operator_for(entry_of(op, custom), element)
    if isinstance(n, bool) or not isinstance(n, int):
        raise UsageError(f"n is a whole number of elements, not {n!r}")
    if not 1 <= n <= MAX_N:
        raise UsageError(f"n is {n}; a search needs between 1 and 2**40 elements")
    if determinism not in DETERMINISMS:
        raise UsageError(unknown("determinism", determinism, DETERMINISMS))
    return Problem(
        op=entry.name,
        dtype=dtype,
        accumulate=running_type(entry, element, result, accumulate),
        n=n,
        outer=outer,
        inner=inner,
        determinism=determinism,
        result=result or "",
        is_compensated=accumulate == "compensated",
        custom=custom,
    )


ACCUMULATES = ("float64", "compensated")


def running_type(op: Operator, dtype: Dtype, result: str | None, accumulate: str | None) -> str:
    """The dtype of the running value. Raises UsageError where what is asked for has no meaning."""
    if result is not None:
        wanted = dtype_named(result)
        if op.accumulates == "register":
            raise DtypeError(f"{op.name} has the type of its elements; dtype cannot be {result}")
        if (wanted.kind == "complex") != (dtype.kind == "complex"):
            raise DtypeError(f"{op.name} of {dtype.name} cannot be {result}: complex stays complex, real stays real")
        if op.accumulates == "float" and wanted.kind not in ("float", "complex"):
            raise DtypeError(f"{op.name} is a float; dtype cannot be {result}")
        if op.native != "add" and wanted.kind == "bool":
            raise DtypeError(f"{op.name} as bool has no meaning")
    own = accumulate_type(op, dtype_named(result) if result else dtype)
    if accumulate is None:
        return own
    if accumulate not in ACCUMULATES:
        raise UsageError(unknown("accumulate", accumulate, ACCUMULATES))
    if DTYPES[own].kind != "float":
        raise UsageError(f"{op.name} of {dtype.name} accumulates in {own}; accumulate={accumulate!r} is for floats")
    if accumulate == "compensated" and not keeps_losses(op, own):
        raise UsageError(f"{op.name} adds nothing up; accumulate='compensated' is for sums")
    return "float64" if accumulate == "float64" else own


def shaped_problem(
    op: str,
    dtype: str,
    shape: tuple[int, ...],
    axis: Any = None,
    determinism: str = "any",
    *,
    accumulate: str | None = None,
    custom: str = "",
) -> Problem:
    """The reduction of some axes of a C-contiguous array, as `redtune.reduce` would do it: axes that a kernel cannot
    walk count as rows, which is what they are after their copy."""
    entry = operator_for(entry_of(op, custom), dtype_named(dtype))
    if not all(isinstance(length, int) and length >= 1 for length in shape):
        raise UsageError(f"the shape {shape} has no elements; every length must be at least 1")
    if counts_in_order(entry) and isinstance(axis, (tuple, list)):
        raise UsageError(f"{entry.name} takes one axis or all, not {axis!r}")
    axes = asked_axes(axis, len(shape))
    kept = tuple(length for k, length in enumerate(shape) if k not in axes)
    strides = (contiguous_strides(shape),) * entry.inputs
    layout = fit(shape, strides, axes, contiguous_strides(kept), counts_in_order(entry)).layout
    if math.prod(shape) > MAX_N:
        raise UsageError(f"the shape {shape} has {math.prod(shape)} elements; at most 2**40")
    problem = make_problem(
        op, dtype, layout.n, determinism, outer=layout.outer, inner=layout.inner, accumulate=accumulate, custom=custom
    )
    return replace(problem, is_strided=layout.kind == "columns" and layout.inner == 1)
