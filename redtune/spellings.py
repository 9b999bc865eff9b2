"""How array libraries spell the reductions that redtune has: what is timed beside it.

An array of a problem has the shape (outer, n, inner), and is reduced along its second axis; a flat one has one axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redtune.dtypes import DTYPES
from redtune.errors import BackendMissing
from redtune.operators import operator_of
from redtune.types import Problem

Call = Callable[..., Any]  # of one array, or two

_SAME: tuple[str, ...] = ("sum", "prod", "max", "min", "argmax", "argmin", "nanmax", "nanmin", "nansum", "any", "all")
_SAME += ("mean", "var", "std", "count_nonzero")
_CORRECTED = ("var", "std")  # PyTorch divides by count - 1 unless told otherwise
_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")
_ORDERS = {"norm_l1": 1, "norm_l2": 2, "norm_inf": float("inf")}
_TORCH = {"max": "amax", "min": "amin", "nansum": "nansum", "count_nonzero": "count_nonzero", "logsumexp": "logsumexp"}
_TORCH |= {name: name for name in ("sum", "prod", "argmax", "argmin", "any", "all", "mean")}


def shape_of(problem: Problem) -> tuple[int, ...]:
    """The shape of a problem's array."""
    return (problem.n,) if problem.layout == "flat" else (problem.outer, problem.n, problem.inner)


def axis_of(problem: Problem) -> int:
    """The axis that is reduced in it."""
    return 0 if problem.layout == "flat" else 1


def numpy_call(module: Any, problem: Problem) -> Call:
    """The reduction in NumPy's or CuPy's words. Raises BackendMissing where it has none."""
    op, axis = problem.op, axis_of(problem)
    composite: dict[str, Call] = {
        "sumsq": lambda x: _squares(module, x, problem).sum(axis=axis),
        "dot": module.dot if problem.layout == "flat" else lambda x, y: (x * y).sum(axis=axis),
        "logsumexp": lambda x: _logsumexp(module, x.astype(problem.accumulate, copy=False), axis),
    }
    if problem.custom:
        raise BackendMissing(f"no library has {op}")
    if op in _SAME:
        return lambda x: getattr(module, op)(x, axis=axis)
    if op in _BITS:
        return lambda x: getattr(module, op).reduce(x, axis=axis)
    if op in _ORDERS:
        return lambda x: module.linalg.norm(x, _ORDERS[op], axis=axis)
    if op in composite:
        return composite[op]
    raise BackendMissing(f"{module.__name__} has no {op}")


def _squares(module: Any, x: Any, problem: Problem) -> Any:
    # In the type of their sum: squares of a narrow integer would wrap around before they are added.
    return module.square(x, dtype=problem.accumulate)


def running_type(library: str, problem: Problem) -> str:
    """What a library adds up or multiplies in, as it documents it; empty where it does neither, or does not say."""
    if operator_of(problem).accumulates == "register":
        return ""
    dtype = DTYPES[problem.dtype]
    if dtype.kind == "float" and dtype.bytes < 4:
        return dtype.register if library == "torch" else ""
    if dtype.kind == "float":
        return dtype.name
    return "int64" if library == "torch" and operator_of(problem).accumulates == "sum" else problem.accumulate


def in_types(running: str, result: str) -> str:
    """What is accumulated in, where that is known, and what results are."""
    return f"in {running}, to {result}" if running else f"to {result}"


def _logsumexp(module: Any, x: Any, axis: int) -> Any:
    top = x.max(axis=axis, keepdims=True)
    return module.log(module.exp(x - top).sum(axis=axis)) + top.squeeze(axis)


def torch_call(torch: Any, problem: Problem) -> Call:
    """The reduction in PyTorch's words. Raises BackendMissing where it has none."""
    op, axis = problem.op, axis_of(problem)
    if problem.custom:
        raise BackendMissing(f"no library has {op}")
    if op in _TORCH:
        return lambda x: getattr(torch, _TORCH[op])(x, dim=axis)
    if op in _CORRECTED:
        return lambda x: getattr(torch, op)(x, dim=axis, correction=0)
    if op in _ORDERS:
        return lambda x: torch.linalg.vector_norm(x, _ORDERS[op], dim=axis)
    composite: dict[str, Call] = {
        "dot": torch.dot if problem.layout == "flat" else lambda x, y: torch.linalg.vecdot(x, y, dim=axis)
    }
    if op in composite:
        return composite[op]
    raise BackendMissing(f"torch has no {op}")
