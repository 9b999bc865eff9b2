"""What numpy answers for every operator, and how far redtune may be from it.

Integers, truth values, indices and chosen elements must be numpy's own. What rounds is computed here in extended
precision, since numpy is off itself (float16 sums overflow, norms overflow, float32 means of columns lose digits); a
result is right if it lies between the rounded ends of an interval around that. Where the order of merging decides
whether something overflows, every value is right, and so is an infinity where numpy overflows too.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from redtune.dtypes import DTYPES
from redtune.references import Depths

Array = np.ndarray[Any, Any]

# No bound is looser than this, relative to what is added up (1e-5 and 1e-12; a narrow result rounds once more).
LIMITS = {"float32": 1e-5, "float64": 1e-12}
CHOSEN = ("max", "min", "nanmax", "nanmin", "argmax", "argmin", "any", "all", "count_nonzero")
CHOSEN += ("bitwise_and", "bitwise_or", "bitwise_xor")
INDICES = ("argmax", "argmin")
DEPTHS = Depths(8, 40)


@dataclass(frozen=True)
class Asked:
    """One reduction of numpy arrays, as redtune.reduce takes it. `element` names the dtype where the arrays hold
    another one that has all its values, as they do for bfloat16."""

    op: str
    inputs: tuple[Array, ...]
    axis: Any = None
    dtype: str | None = None
    keepdims: bool = False
    initial: Any = None
    where: Array | None = None
    ddof: int = 0
    accumulate: str | None = None
    element: str = ""

    @property
    def name(self) -> str:
        """The name of the dtype of the elements."""
        return self.element or self.inputs[0].dtype.name


@dataclass(frozen=True)
class Part:
    """A part of the results (complex numbers have two): right is what lies from `low` to `high`, an infinity of the
    sign of `exact` where it `may_overflow`, and anything where it is `free`."""

    exact: Array
    low: Array
    high: Array
    may_overflow: Any = False
    free: Any = False


@dataclass(frozen=True)
class Right:
    """The right results: their shape, the name of their dtype, and what they may be."""

    shape: tuple[int, ...]
    dtype: str
    parts: tuple[Part, ...] = field(repr=False)

    def fault(self, got: Array, dtype: str = "") -> str:
        """What is wrong with results, in a line, or nothing. `dtype` names theirs, if `got` holds another one."""
        if (dtype or got.dtype.name) != self.dtype:
            return f"the dtype is {dtype or got.dtype.name}, not {self.dtype}"
        if got.shape != self.shape:
            return f"the shape is {got.shape}, not {self.shape}"
        values = as_values(got)
        halves = (values.real, values.imag) if values.dtype.kind == "c" else (values,)
        for half, part in zip(halves, self.parts, strict=True):
            flat = half.reshape(-1)
            with np.errstate(all="ignore"):
                ok = (part.low <= flat) & (flat <= part.high)
                if flat.dtype.kind == "f":
                    ok |= np.isnan(part.exact) & np.isnan(flat)
                    ok |= part.may_overflow & (flat == np.where(np.signbit(part.exact), -np.inf, np.inf))
                ok |= part.free
            if not ok.all():
                k = int(np.argmin(ok))
                return f"result {k} of {len(flat)} is {flat[k]!r}, not {part.exact[k]!r}" + (
                    f" within {part.low[k]!r} to {part.high[k]!r}" if part.low[k] != part.high[k] else ""
                )
        return ""


def as_values(x: Array) -> Array:
    """The array in a dtype that numpy calculates with."""
    return x.astype(np.float32) if x.dtype.name == "bfloat16" else x


def by_numpy(a: Asked) -> Array:
    """What numpy itself says. Raises what it raises."""
    x = as_values(a.inputs[0])
    # Some of numpy's functions take axis 0 of an array that has no axes, as the ufuncs do, and some do not.
    over: dict[str, Any] = {"axis": a.axis if x.ndim or len(a.inputs) > 1 else None, "keepdims": a.keepdims}
    if a.op in INDICES:
        return np.asarray(getattr(np, a.op)(x, **over))
    over |= {} if a.where is None else {"where": a.where}
    over |= {} if a.initial is None else {"initial": a.initial}
    typed = {} if a.dtype is None else {"dtype": a.dtype}
    if a.op.startswith("bitwise"):
        return np.asarray(getattr(np, a.op).reduce(x, **over))
    if a.op in ("max", "min", "nanmax", "nanmin", "any", "all"):
        return np.asarray(getattr(np, a.op)(x, **over))
    if a.op == "count_nonzero":
        return np.asarray(np.sum(x != 0, **over))
    if a.op in ("sum", "prod", "nansum", "mean"):
        return np.asarray(getattr(np, a.op)(x, **over, **typed))
    if a.op in ("var", "std"):
        return np.asarray(getattr(np, a.op)(x, **over, **typed, ddof=a.ddof))
    # What numpy has no function of its own for: the dtypes are those of the nearest ones.
    if a.op == "dot":
        y = as_values(a.inputs[1])
        taken = x.dtype if a.dtype is None else np.dtype(a.dtype)
        return np.asarray(np.sum(x.astype(taken) * y.astype(taken), dtype=taken, **over))
    like = np.sum if a.op == "sumsq" else np.mean
    taken = like(np.ones(1, x.dtype), **typed).dtype
    x = x.astype(taken)
    if a.op == "sumsq":
        return np.asarray(np.sum(x * x, dtype=taken, **over))
    if a.op == "norm_inf":
        return np.asarray(np.max(np.abs(x), **over, initial=0))
    if a.op == "norm_l1":
        return np.asarray(np.sum(np.abs(x), **over))
    if a.op == "norm_l2":
        return np.asarray(np.sqrt(np.sum(x * x, **over)))
    if a.op == "logsumexp":
        return np.asarray(np.log(np.sum(np.exp(x), **over)))
    raise AssertionError(f"the oracle does not know {a.op}")


def answer(a: Asked, depths: Depths = DEPTHS) -> Right:
    """The right results. Raises what numpy raises. `depths` are those of the plan that ran."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        theirs = by_numpy(a)
        dtype = theirs.dtype.name
        if a.name == "bfloat16" and a.dtype is None and theirs.dtype.kind == "f":
            dtype = "bfloat16"
        result = DTYPES[dtype]
        if a.op in CHOSEN or result.kind in ("bool", "int", "uint"):
            flat = theirs.reshape(-1)
            return Right(theirs.shape, dtype, (Part(flat, flat, flat),))
        running = "float64" if a.accumulate == "float64" else result.register
        sums = _Rounding(a, running, depths)
        errors = sums.parts()
        parts = tuple(_between(*error, dtype) for error in errors)
    return Right(theirs.shape, dtype, parts)


@dataclass(frozen=True)
class _Error:
    """A result that rounds: `exact` within `off`."""

    exact: Array
    off: Array
    may_overflow: Any = False
    free: Any = False

    def __iter__(self) -> Any:
        return iter((self.exact, self.off, self.may_overflow, self.free))


def rounded(values: Array, dtype: str) -> Array:
    """The nearest values of a real dtype, or of a part of a complex one."""
    known = DTYPES[dtype]
    if known.kind == "complex":
        known = DTYPES[known.register]
    return np.asarray(known.decode(known.encode(values)))


def _between(exact: Array, off: Array, may_overflow: Any, free: Any, dtype: str) -> Part:
    """The interval of what rounds to the dtype from somewhere within `off`: rounding keeps the order."""
    off = np.where(np.isfinite(exact), off, 0)
    return Part(exact, rounded(exact - off, dtype), rounded(exact + off, dtype), may_overflow, free)


class _Rounding:
    """One reduction in extended precision: rows of elements, a mask, and what its errors are proportional to."""

    def __init__(self, a: Asked, running: str, depths: Depths) -> None:
        self.a, self.depths = a, depths
        limits = np.finfo(running)
        self.u = float(limits.eps) / 2
        self.tiny = np.longdouble(limits.smallest_subnormal)
        self.big = np.longdouble(limits.max)
        self.powers = (limits.minexp, limits.maxexp)
        self.most = LIMITS[running] / self.u
        shape = np.broadcast_shapes(*(x.shape for x in a.inputs))
        axes = _axes(a.axis, len(shape))
        self.x = rows(as_values(a.inputs[0]), shape, axes)
        self.y = rows(as_values(a.inputs[1]), shape, axes) if len(a.inputs) > 1 else None
        self.counts = np.ones(self.x.shape, bool) if a.where is None else rows(a.where, shape, axes)

    def times(self, factor: float) -> Any:
        """So many roundings, but never more than the limit allows."""
        return min(factor, self.most) * self.u

    def wide(self, values: Array) -> Array:
        """In extended precision."""
        return values.astype(np.clongdouble if values.dtype.kind == "c" else np.longdouble)

    def parts(self) -> tuple[_Error, ...]:
        """The results with their errors."""
        op, x = self.a.op, self.wide(self.x)
        if op == "prod":
            return self.product(x)
        if op in ("sum", "nansum", "mean"):
            if op == "nansum":
                x = np.where(np.isnan(x), np.longdouble(0), x)
            halves = (x.real, x.imag) if x.dtype.kind == "c" else (x,)
            return tuple(self.sum([half]) for half in halves)
        if op == "dot" and x.dtype.kind == "c":
            y = self.wide(self.y)
            return self.sum([x.real * y.real, -x.imag * y.imag]), self.sum([x.real * y.imag, x.imag * y.real])
        if op == "dot":
            return (self.sum([x * self.wide(self.y)]),)
        if op == "sumsq":
            return (self.sum([x * x]),)
        if op == "norm_l1":
            return (self.sum([abs(x)]),)
        return (getattr(self, op)(x),)

    def sum(self, terms: list[Array]) -> _Error:
        """Sums over all terms, or means of them."""
        t = np.concatenate([np.where(self.counts, term, 0) for term in terms], axis=-1)
        if self.a.initial is not None:
            t = np.concatenate([t, np.full((len(t), 1), self.a.initial, t.dtype)], axis=-1)
        exact, finite = t.sum(-1), np.where(np.isfinite(t), t, 0)
        magnitude = abs(finite).sum(-1)
        off = self.times(self.depths.chain + 8) * magnitude + self.tiny * t.shape[-1]
        is_one_sided = (t >= 0).all(-1) | (t <= 0).all(-1)
        overflows = magnitude * (1 + self.times(self.depths.chain + 8)) > self.big
        if self.a.op == "mean":
            counts = self.counts.sum(-1)
            exact, off = exact / counts, off / counts + 2 * self.u * abs(exact / counts)
        return _Error(exact, off, overflows & is_one_sided, overflows & ~is_one_sided)

    def product(self, x: Array) -> tuple[_Error, ...]:
        """Products; those of complex numbers by part."""
        x = np.where(self.counts, x, 1)
        if self.a.initial is not None:
            x = np.concatenate([x, np.full((len(x), 1), self.a.initial, x.dtype)], axis=-1)
        exact, size = np.asarray(x.prod(-1)), abs(x)
        logs = np.where(np.isfinite(size) & (size > 0), np.log2(np.where(size > 0, size, 1)), 0)
        ups, downs = np.where(logs > 0, logs, 0).sum(-1), np.where(logs < 0, logs, 0).sum(-1)
        is_high, is_low = ups > self.powers[1] - 2, downs < self.powers[0] + 2
        has_zero, is_odd = (size == 0).any(-1), ~np.isfinite(size).all(-1)
        # An overflow meets a small factor or a zero, an underflow a large factor or an infinity.
        free = (is_high & (has_zero | (downs < 0))) | (is_low & (is_odd | (ups > 0)))
        roundings = 1 + (np.frexp(size)[0] != 0.5).sum(-1)
        if x.dtype.kind == "c":
            free |= is_odd | is_high | is_low
            off = 4 * (roundings + 2) * self.u * abs(exact) + self.tiny * x.shape[-1]
            return _Error(exact.real, off, False, free), _Error(exact.imag, off, False, free)
        off = 2 * roundings * self.u * abs(exact) + self.tiny * x.shape[-1]
        return (_Error(exact, off, is_high, free & ~np.isnan(exact)),)

    def norm_l2(self, x: Array) -> _Error:
        exact = np.sqrt(np.where(self.counts, x * x, 0).sum(-1))
        return _Error(exact, self.times(self.depths.chain + 8) * np.where(np.isfinite(exact), exact, 0) + self.tiny)

    def norm_inf(self, x: Array) -> _Error:
        exact = np.where(self.counts, abs(x), 0).max(-1, initial=0)
        return _Error(exact, self.u * np.where(np.isfinite(exact), exact, 0))

    def logsumexp(self, x: Array) -> _Error:
        x = np.where(self.counts, x, -np.inf)
        top = x.max(-1, initial=-np.inf)
        shift = np.where(np.isfinite(top), top, 0)
        exact = np.log(np.exp(x - shift[:, None]).sum(-1)) + shift
        # A merge may take one exponential of a rounded difference; the logarithm turns relative errors absolute.
        absolute = min(8 * (self.depths.full + 2), self.most) * self.u
        return _Error(exact, absolute + 4 * self.u * (abs(exact) + abs(shift)))

    def var(self, x: Array) -> _Error:
        return self.spread(x)

    def std(self, x: Array) -> _Error:
        exact, off, may_overflow, free = self.spread(x)
        up, down = np.sqrt(exact + off), np.sqrt(np.maximum(exact - off, 0))
        return _Error(np.sqrt(exact), up - down + 4 * self.u * up, may_overflow, free)

    def spread(self, x: Array) -> _Error:
        """Variances. The squares round, and every difference of means carries the rounding of the means."""
        count = self.counts.sum(-1)
        values = np.where(self.counts, x, 0)
        mean = values.sum(-1) / count
        squares = (np.where(self.counts, x - mean[:, None], 0) ** 2).sum(-1)
        variance = squares / count
        k = self.times(4 * (self.depths.chain + 8))
        off = k * (variance + abs(mean) * np.sqrt(variance)) + (k * abs(mean)) ** 2 + 4 * self.tiny
        off = np.where(count > 0, off, 0)
        left = count - self.a.ddof
        exact, off = squares / np.maximum(left, 0), off * count / np.where(left > 0, left, 1)
        magnitude = abs(values).sum(-1)
        # Nothing is left to divide by: NaN or infinity, as the rounding of the squares has it.
        is_loose = (left <= 0) & (squares <= off) & (count > 1)
        return _Error(exact, off, (4 * squares > self.big) | is_loose, (magnitude > self.big) | is_loose)


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    if axis is None or ndim == 0:
        return tuple(range(ndim))
    given = axis if isinstance(axis, tuple) else (axis,)
    return tuple(sorted(one % ndim for one in given))


def rows(x: Array, shape: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    """The elements that make one result in a row, in C order."""
    kept = [k for k in range(len(shape)) if k not in axes]
    n = int(np.prod([shape[k] for k in axes], dtype=np.int64))
    count = int(np.prod([shape[k] for k in kept], dtype=np.int64))
    return np.broadcast_to(x, shape).transpose(*kept, *axes).reshape(count, n)
