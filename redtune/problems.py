"""Problems from names and sizes: every check that a caller, the command line or an array goes through."""

from __future__ import annotations

from redtune.dtypes import DTYPES, Dtype, dtype_named, unknown
from redtune.errors import DtypeError, UsageError
from redtune.operators import Operator, accumulate_type, entry_of, keeps_losses, operator_for
from redtune.types import DETERMINISMS, Problem

MAX_N = 1 << 40


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
    operator = operator_for(entry_of(op, custom), element)
    if isinstance(n, bool) or not isinstance(n, int):
        raise UsageError(f"n is a whole number of elements, not {n!r}")
    if not 1 <= n <= MAX_N:
        raise UsageError(f"n is {n}; a search needs between 1 and 2**40 elements")
    if determinism not in DETERMINISMS:
        raise UsageError(unknown("determinism", determinism, DETERMINISMS))
    return Problem(
        op=operator.name,
        dtype=dtype,
        accumulate=running_type(operator, element, result, accumulate),
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
