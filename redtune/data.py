"""Inputs that bite: arrays whose right result is known exactly, with one planted element where a fault would hide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from redtune.dtypes import DTYPES, Dtype, dtype_named
from redtune.evaluation import numpy_finish, numpy_fold
from redtune.operators import Operator, accumulate_type, result_type

Array = np.ndarray[Any, Any]

# Every window of a dataset holds the plant, so a window can be half as long. It spans the widest tile twice.
WINDOW = 1 << 19
# The repeated pattern of full-size data is odd in length, so that no tile size divides it.
PATTERN = (1 << 21) - 9
FACTORS = 24
RANDOM_FACTORS = 256
EXACT_BELOW = 1 << 24  # sums of whole numbers that a float32 has exactly
VALUES = 1 << 16  # in an array of full size whose result rounds; all other elements are zero
FEW = 1000


@dataclass(frozen=True, slots=True)
class Dataset:
    """An array in memory (`raw`) and as values, the place of its planted element if it has one, and whether its result
    is the same in any order."""

    name: str
    raw: Array
    values: Array
    plant: int | None
    exact: bool


def make_dataset(name: str, values: Array, dtype: Dtype, plant: int | None = None, exact: bool = True) -> Dataset:
    """A dataset of `values` rounded to `dtype`."""
    raw = dtype.encode(values)
    return Dataset(name, raw, dtype.decode(raw), plant, exact)


def background(op: Operator, dtype: Dtype, n: int, rng: np.random.Generator, in_floats: bool = False) -> Array:
    """`n` values whose result is exact in any order of merging.

    "any": the operator only chooses, so any values do; all below zero, so that a seed of 0 would show. "small": whole
    numbers that add up to almost nothing, so that no part of them adds up to much. "units": plus and minus one (and
    their like among complex numbers); for integers, odd numbers, whose product never collapses to zero. "zeros" and
    "ones": the values that leave a result as it was, so that every planted one shows. `in_floats` says that integers
    are accumulated in a float, where a product of many would leave the range.
    """
    if dtype.kind == "bool" and op.bites == "units":
        return np.ones(n, bool)  # anything else makes every product zero
    if op.bites in ("zeros", "ones"):
        one = -1 if dtype.kind == "int" else dtype.limits[1] if dtype.kind == "uint" else 1
        return np.full(n, one * (op.bites == "ones"), _values_type(dtype))
    if dtype.kind == "complex":
        if op.bites == "units":
            return np.asarray(rng.choice([1, -1, 1j, -1j], n).astype(dtype.name))
        return (_small(n, rng) + 1j * _small(n, rng)).astype(dtype.name)
    if dtype.kind == "float":
        if op.bites == "units":
            return np.asarray(rng.choice([-1.0, 1.0], n).astype(np.float32))
        if op.bites == "small":
            return _within_range(op, dtype, _small(n, rng))
        kind = np.float64 if dtype.name == "float64" else np.float32
        return np.asarray(-np.abs(rng.standard_normal(n, dtype=kind)) - kind(0.5))
    low, high = dtype.limits
    if dtype.kind == "bool":
        return rng.integers(0, 1, n, endpoint=True).astype(bool)
    if op.bites == "units" and in_floats:
        return rng.choice([1, -1 if low else 1], n).astype(dtype.name)
    if op.bites == "units":
        return (2 * rng.integers(0, 50, n) + 1).astype(dtype.name)
    if op.bites == "small":
        return rng.integers(max(low, -100), min(high, 100), n, endpoint=True).astype(dtype.name)
    return rng.integers(low // 2, -1 if low else high // 2, n, endpoint=True).astype(dtype.name)


def _values_type(dtype: Dtype) -> str:
    """The numpy dtype of decoded values."""
    return "float32" if dtype.name == "bfloat16" else dtype.name


def _has_finite_result(op: Operator, dtype: Dtype, values: Array, times: float = 1) -> bool:
    """Whether the result of some values, or of so many times as many, is within the range of its type."""
    result = DTYPES[result_type(op, dtype)]
    with np.errstate(all="ignore"):
        found = abs(op.reference(*[values.reshape(1, -1)] * op.inputs)) * max(1, times)
        return bool(np.isfinite(result.decode(result.encode(found))).all())


def _within_range(op: Operator, dtype: Dtype, values: Array, times: float = 1) -> Array:
    """The values, halved until the result of so many times as many is within the range of its type: beyond it, whatever
    a kernel makes of them would be right. Powers of two change no rounding."""
    while values.any() and not _has_finite_result(op, dtype, values, times):
        values = values * values.dtype.type(0.5)
    return values


def _small(n: int, rng: np.random.Generator) -> Array:
    half = rng.integers(-8, 8, n // 2, endpoint=True).astype(np.float32)
    values = rng.permutation(np.concatenate([half, -half, np.zeros(n % 2, np.float32)]))
    values[:1] += np.float32(5)  # a result of zero would say little
    return np.asarray(values)


def add_factors(op: Operator, dtype: Dtype, raw: Array, rng: np.random.Generator) -> Array:
    """For a product of floats, a few factors of two and of a half: enough to show one that is lost or taken twice, too
    few for any part of the product to leave the range."""
    if op.bites == "units" and dtype.kind in ("float", "complex"):
        few = rng.choice(len(raw), min(len(raw), FACTORS), replace=False)
        raw[few] = dtype.encode(np.where(np.arange(len(few)) % 2, 2.0, -0.5))
    return raw


def judged_datasets(
    op: Operator,
    dtype: Dtype,
    seed: int,
    in_floats: bool = False,
    is_compensated: bool = False,
    accumulate: str = "",
    result: str = "",
) -> list[Dataset]:
    """The windowed datasets every candidate is judged on; of those types if they are not the operator's own."""
    rng = np.random.default_rng(seed)
    base = dtype.decode(add_factors(op, dtype, dtype.encode(background(op, dtype, WINDOW, rng, in_floats)), rng))
    plant = WINDOW // 2
    sets = [make_dataset("exact", base, dtype)]

    def planted(name: str, value: Any, under: Array = base) -> None:
        changed = under.copy()
        changed[plant] = value
        sets.append(make_dataset(name, changed, dtype, plant))

    def filled(name: str, value: Any) -> None:
        sets.append(make_dataset(name, np.full(WINDOW, value, base.dtype), dtype))

    planted("zero", 0)
    if dtype.kind in ("float", "complex"):
        planted("high", 3.0 if op.bites == "units" else 60.0)
        planted("low", -100.0, np.abs(base).astype(base.dtype) if op.bites == "any" else base)
        planted("nan", np.nan)
        planted("infinity", np.inf)
        planted("minus infinity", -np.inf)
        filled("minus infinities", -np.inf)
        filled("negative zeros", -0.0)
        if dtype.kind == "float":
            filled("nans", np.nan)
    else:
        low, high = dtype.limits
        planted("high", high)
        planted("low", low)
        filled("lowest", low)
        filled("highest", high)
    if dtype.kind == "float" and op.bites == "small":
        for name, values in _remote(base, dtype).items():
            types = accumulate or accumulate_type(op, dtype), DTYPES[result or result_type(op, dtype)]
            if _is_for(op, dtype, values[:64], *types):
                sets.append(make_dataset(name, values, dtype, exact=False))
    if is_compensated:
        sets.append(make_dataset("cancelling", _cancelling(WINDOW, rng), dtype, exact=False))
    if op.bites == "any" and dtype.kind != "bool":
        for name, (value, under) in _neighbours(dtype).items():
            planted(name, value, np.full(WINDOW, under, base.dtype))
    if dtype.kind != "bool":
        filled("equal", {"units": -1}.get(op.bites, -3) if dtype.kind != "uint" else 3)
    return sets


def _cancelling(n: int, rng: np.random.Generator) -> Array:
    """Each number beside its negative: what plain additions lose is many times what is left in the end."""
    half = rng.standard_normal(n // 2) * np.exp(rng.normal(0.0, 1.0, n // 2))
    return np.stack([half, -half], axis=1).ravel()


def _neighbours(dtype: Dtype) -> dict[str, tuple[Any, Any]]:
    """A value and one beside it that nothing lies between: equal in any narrower type."""
    if dtype.kind == "float":
        return {"next above": (-1 + dtype.u, -1.0), "next below": (-1 - 2 * dtype.u, -1.0)}
    low, high = dtype.limits
    return {"next above": (high, high - 1), "next below": (low, low + 1)}


# How far from zero deviations are small beside their mean, and by what factor squares leave the range of the dtype.
_FAR = {"float16": 2048.0, "bfloat16": 128.0, "float32": 1e5, "float64": 1e12}
_HUGE = {"bfloat16": 1e30, "float32": 1e30, "float64": 1e200}


def _remote(small: Array, dtype: Dtype) -> dict[str, Array]:
    """Values with which formulas from a textbook go wrong."""
    wide = small.astype(np.float64)
    found = {"far from zero": wide + _FAR[dtype.name]}
    if dtype.name in _HUGE:
        found |= {"huge": wide * _HUGE[dtype.name], "tiny": wide / _HUGE[dtype.name]}
    return found


def _is_for(op: Operator, dtype: Dtype, values: Array, accumulate: str, result: Dtype) -> bool:
    """Whether the operator as it is written has an answer for such values: not zero, within its range, and right."""
    inputs = [dtype.decode(dtype.encode(values)).reshape(1, -1)] * op.inputs
    with np.errstate(all="ignore"):
        right = result.decode(result.encode(op.reference(*inputs)))
        got = numpy_finish(op, accumulate, result, numpy_fold(op, accumulate, inputs), count=len(values))
        return bool(right.all() and np.isfinite(right).all() and np.isclose(got, right, rtol=0.01, atol=0).all())


def random_dataset(op: Operator, dtype: Dtype, n: int, seed: int, in_floats: bool = False) -> Dataset:
    """Random values for the reference: floats of many magnitudes, within the range that the result can hold; integers
    of the whole range, odd for a product."""
    rng = np.random.default_rng(seed + 1)
    if dtype.kind == "bool":
        is_factor = op.bites == "units"
        return make_dataset("random", rng.integers(is_factor, 1, n, endpoint=True).astype(bool), dtype)
    if dtype.kind in ("int", "uint"):
        if op.bites == "units" and in_floats:
            return make_dataset("random", background(op, dtype, n, rng, in_floats), dtype)
        low, high = dtype.limits
        if in_floats:  # within what squares and their sums leave finite
            low, high = max(low, -FEW), min(high, FEW)
        whole = rng.integers(low, high, n, dtype=dtype.name, endpoint=True)
        return make_dataset("random", whole | np.array(op.bites == "units", dtype.name), dtype)
    if dtype.kind == "complex":
        both = [random_dataset(op, dtype_named(dtype.register), n, seed + k).values for k in (0, 1)]
        is_factor = op.bites == "units"
        values = both[0] * np.exp(1j * both[1]) if is_factor else both[0] + 1j * both[1]
        return make_dataset("random", values.astype(dtype.name), dtype, exact=False)
    kind = np.float64 if dtype.name == "float64" else np.float32
    if op.bites == "units":
        # Most are one: rounding to few bits pulls every other value a little to one side, and a million of them far.
        values = np.ones(n, kind)
        few = rng.choice(n, min(n, RANDOM_FACTORS), replace=False)
        values[few] = np.exp(rng.normal(0.0, 1.0 / np.sqrt(RANDOM_FACTORS), len(few)))
    else:
        values = (rng.standard_normal(n) * np.exp(rng.normal(0.0, 1.0, n))).astype(kind)
        values = _within_range(op, dtype, values) if op.bites == "small" else values
    return make_dataset("random", values, dtype, exact=op.exact)


def contested_dataset(op: Operator, dtype: Dtype, n: int, seed: int, in_floats: bool = False) -> Dataset:
    """Values whose result depends on the order of merging wherever it can: such as round where an operator rounds, and
    zeros of either sign where it chooses among floats, which are equal without being the same."""
    if not (op.exact and dtype.kind == "float"):
        return random_dataset(op, dtype, n, seed, in_floats)
    signs = np.random.default_rng(seed + 1).random(n, np.float32) - np.float32(0.5)
    return make_dataset("zeros of either sign", np.copysign(np.zeros(n, np.float32), signs), dtype)


def _most(op: Operator, dtype: Dtype) -> float:
    """How many values a result may have whose loss of one it still shows: of more, rounding alone takes as much."""
    return min(VALUES, 1 / (4 * DTYPES[result_type(op, dtype)].u))


def full_size(
    op: Operator, dtype: Dtype, n: int, copies: int, seed: int, in_floats: bool = False, results: int = 1
) -> list[Dataset]:
    """`copies` different arrays of `n` elements for so many results, to time and to judge at the size asked for,
    exact in any order where no sum is too large for that. The second of two inputs follows the first."""
    rng, length = np.random.default_rng(seed + 2), n // results
    small = background(op, dtype, min(n, PATTERN), rng, in_floats)
    exact = True
    if op.bites == "small" and dtype.kind == "float":
        if op.tolerance is not None and op.tolerance.rounds:
            # Of one sign, so that none makes up for another.
            few = rng.random(len(small)) < _most(op, dtype) / length
            small = np.where(few, np.abs(small), 0).astype(small.dtype)
        times, units = length / min(length, len(small)), small[:length] / np.abs(small[small != 0]).min(initial=1)
        inputs = [np.roll(units, k).reshape(1, -1) for k in range(op.inputs)]
        exact = bool(np.abs(op.reference(*inputs))[0] * times < EXACT_BELOW)
        small = _within_range(op, dtype, small, times)
    pattern = dtype.encode(small)
    rows = []
    for copy in range(copies):
        raw = add_factors(op, dtype, np.resize(np.roll(pattern, -copy * 17), op.inputs * n), rng)
        rows.append(Dataset(f"full size {copy}", raw, dtype.decode(raw), None, exact))
    return rows
