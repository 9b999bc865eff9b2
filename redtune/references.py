"""What the right answers are, and how far a correct kernel may be from them: numpy, in more precision than any kernel.

A reference takes the values of one input (or two) with the reduced axis last. An operator that rounds brings
`measures` (what its error is proportional to, per result) and `bound` (the largest error those allow a kernel whose
fold has the given depths). `u` is the unit roundoff of the accumulator.
"""

from __future__ import annotations

import contextvars
import functools
import operator
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

Reference = Callable[..., Any]
PART = 1 << 18  # elements that are taken to extended precision at once


@dataclass(frozen=True, slots=True)
class Depths:
    """Roundings on the longest way from an element to the result: within one tile and where threads meet, and in all.
    Sums keep what they lose from tile to tile, so for them `chain` is what counts."""

    chain: int
    full: int


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a result may be from the reference. `measures(*inputs)` gives arrays, one entry per result each;
    `bound(measures, depths, u)` the largest error. `rounds` says that even whole numbers do not come out exact."""

    measures: Callable[..., tuple[Any, ...]]
    bound: Callable[[tuple[Any, ...], Depths, float], Any]
    rounds: bool = False


def wide(values: Any) -> Any:
    """The values in the widest float or complex type there is; integers as they are."""
    import numpy as np

    kinds = {"f": np.longdouble, "c": np.clongdouble}
    return values.astype(kinds[values.dtype.kind]) if values.dtype.kind in kinds else values


def real(values: Any) -> Any:
    """The values as extended floats, integers too."""
    import numpy as np

    return values.astype(np.clongdouble if values.dtype.kind == "c" else np.longdouble)


def added_up(terms: Callable[..., Any], *inputs: Any) -> Any:
    """The sum of terms over the last axis. Of a long one part after part, on all cores: in extended precision the whole
    would take many times the memory, and exponentials of it minutes."""
    import numpy as np

    n = inputs[0].shape[-1]
    if n <= PART:
        return terms(*inputs).sum(axis=-1)
    here = contextvars.copy_context()  # numpy's handling of overflow belongs to it

    def part(at: int) -> Any:
        return here.copy().run(lambda: terms(*(values[..., at : at + PART] for values in inputs)).sum(axis=-1))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return np.sum(list(pool.map(part, range(0, n, PART))), axis=0)


def total(values: Any) -> Any:
    """The sum: floats in extended precision, integers wrapping at 64 bits."""
    import numpy as np

    if values.dtype.kind == "f":
        return values.astype(np.float64).sum(axis=-1, dtype=np.longdouble)
    return wide(values).sum(axis=-1)


def product(values: Any) -> Any:
    """The product: floats in extended precision, integers wrapping at 64 bits."""
    return wide(values).prod(axis=-1)


def dot(x: Any, y: Any) -> Any:
    """The sum of products, integers wrapping at 64 bits."""
    import numpy as np

    if x.dtype.kind in "biu":
        as_64 = np.uint64 if x.dtype.kind == "u" else np.int64
        return (x.astype(as_64) * y.astype(as_64)).sum(axis=-1)
    return (wide(x) * wide(y)).sum(axis=-1)


def squares(values: Any) -> Any:
    """The sum of squares, integers wrapping at 64 bits."""
    return dot(values, values)


def norm(values: Any) -> Any:
    """The Euclidean norm, in a range that no square leaves."""
    import numpy as np

    return np.sqrt(added_up(lambda part: real(part) ** 2, values))


def log_of_sum(values: Any) -> Any:
    """log(sum(exp(x))) with the largest value taken out."""
    import numpy as np

    top = real(values.max(axis=-1))
    # Where the largest is infinite it is the answer; shifting by it would give NaN.
    shift = np.where(np.isinf(top), 0, top)
    return np.log(added_up(lambda part: np.exp(real(part) - shift[..., None]), values)) + shift


def nan_extreme(name: str, fill: float) -> Reference:
    """max or min over what is not NaN; NaN where nothing else is."""

    def reference(values: Any) -> Any:
        import numpy as np

        if values.dtype.kind != "f":
            return getattr(np, name)(values, axis=-1)
        is_nan = np.isnan(values)
        found = getattr(np, name)(np.where(is_nan, values.dtype.type(fill), values), axis=-1)
        return np.where(is_nan.all(axis=-1), np.nan, found)

    return reference


def mean(values: Any) -> Any:
    """The sum over the number of elements; of complex numbers part by part, as dividing by a complex number would make
    NaN of infinities."""
    import numpy as np

    found = np.array(total(real(values)))
    if found.dtype.kind == "c":
        found.real, found.imag = found.real / values.shape[-1], found.imag / values.shape[-1]
        return found
    return found / values.shape[-1]


def without_nan(values: Any) -> Any:
    """The values with zero in place of NaN."""
    import numpy as np

    return np.where(np.isnan(values), values.dtype.type(0), values) if values.dtype.kind == "f" else values


# --- what errors are proportional to, and their bounds ----------------------------------------------------------------


def magnitude(*inputs: Any) -> tuple[Any, ...]:
    """The sum of the absolute values of the terms."""
    import numpy as np

    def terms(*parts: Any) -> Any:
        return functools.reduce(operator.mul, (np.abs(real(part)) for part in parts))

    return (added_up(terms, *inputs),)


def _sum_measures(values: Any) -> tuple[Any, ...]:
    return *magnitude(values), abs(total(real(values)))


def _sum_bound(measures: tuple[Any, ...], depths: Depths, u: float) -> Any:
    """Within a tile every addition rounds. Beyond it only what was lost does, in each of its four steps, and the result
    once: of terms that cancel, next to nothing."""
    terms, result = measures
    return _kept(terms, depths, u) + 2 * u * result


def _kept(terms: Any, depths: Depths, u: float) -> Any:
    """What sums lose that keep what they lose from tile to tile; a little more, for what is of higher order."""
    return 1.02 * (depths.chain * u + 4 * depths.full * u * u) * terms


SUM = Tolerance(_sum_measures, _sum_bound)
SUM_OF_SIZES = Tolerance(lambda x: magnitude(x) * 2, _sum_bound)
DOT = Tolerance(magnitude, lambda m, d, u: (2 * d.chain + 4) * u * m[0])
SQUARES = Tolerance(lambda x: magnitude(x, x), lambda m, d, u: (d.chain + 4) * u * m[0])
NAN_SUM = Tolerance(lambda x: _sum_measures(without_nan(x)), _sum_bound)
MEAN = Tolerance(
    lambda x: tuple(measure / x.shape[-1] for measure in _sum_measures(x)),
    lambda m, d, u: _kept(m[0], d, u) + 6 * u * m[1],
    rounds=True,
)
NORM = Tolerance(lambda x: (norm(x),), lambda m, d, u: (d.chain + 8) * u * m[0], rounds=True)


def _product_size(values: Any) -> tuple[Any, ...]:
    return abs(product(real(values))), values.shape[-1]


PRODUCT = Tolerance(
    _product_size,
    # Every one of the n - 1 products rounds once, `full` more meet the identity; a complex one takes four roundings.
    lambda m, d, u: 4 * (m[1] + d.full) * u * m[0],
)


def _log_measures(values: Any) -> tuple[Any, ...]:
    import numpy as np

    right = log_of_sum(values)
    return (np.abs(np.where(np.isfinite(right), right, 0)) + np.abs(np.where(np.isfinite(values), values, 0)).max(-1),)


# Each merge may take one exponential (two units in the last place at most) of a rounded difference and one product.
LOG = Tolerance(_log_measures, lambda m, d, u: u * (8 * (d.full + 2) + 4 * m[0]), rounds=True)


def _spread_measures(values: Any) -> tuple[Any, ...]:
    import numpy as np

    x = real(values)
    return x.var(axis=-1), np.abs(x.mean(axis=-1)), np.abs(x).max(axis=-1)


def _variance_bound(measures: tuple[Any, ...], depths: Depths, u: float) -> Any:
    """The squares round, and every difference of means carries the rounding of the means themselves."""
    import numpy as np

    variance, mean, top = measures
    f = (depths.chain + 8) * u
    return 4 * f * (variance + mean * np.sqrt(variance)) + (2 * u * (depths.chain + 2) * (mean + u * top)) ** 2


def _deviation_bound(measures: tuple[Any, ...], depths: Depths, u: float) -> Any:
    import numpy as np

    variance = measures[0]
    off = _variance_bound(measures, depths, u)
    up, down = np.sqrt(variance + off), np.sqrt(np.maximum(variance - off, 0))
    return up - down + 4 * u * up


VARIANCE = Tolerance(_spread_measures, _variance_bound, rounds=True)
DEVIATION = Tolerance(_spread_measures, _deviation_bound, rounds=True)
