"""Inputs that bite: arrays whose right result is known exactly, with one planted element where a fault would hide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from redtune.dtypes import Dtype
from redtune.operators import Operator

Array = np.ndarray[Any, Any]

# Every window of a dataset holds the plant, so a window can be half as long. It spans the widest tile twice.
WINDOW = 1 << 19
# The repeated pattern of full-size data is odd in length, so that no tile size divides it.
PATTERN = (1 << 21) - 9
FACTORS = 24
RANDOM_FACTORS = 256


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


def background(op: Operator, dtype: Dtype, n: int, rng: np.random.Generator) -> Array:
    """`n` values whose result is exact in any order of merging.

    "any": the operator only chooses, so any values do; all below zero, so that a seed of 0 would show. "small": whole
    numbers that add up to almost nothing, so that no part of them adds up to much. "units": plus and minus one; for
    integers, odd numbers, whose product never collapses to zero.
    """
    if dtype.kind != "float":
        info = np.iinfo(dtype.name)
        if op.bites == "units":
            return (2 * rng.integers(0, 50, n) + 1).astype(dtype.name)
        if op.bites == "small":
            return rng.integers(max(info.min, -100), min(info.max, 100), n, endpoint=True).astype(dtype.name)
        return rng.integers(info.min // 2, -1 if info.min else info.max // 2, n, endpoint=True).astype(dtype.name)
    if op.bites == "units":
        return np.asarray(rng.choice([-1.0, 1.0], n).astype(np.float32))
    if op.bites == "small":
        half = rng.integers(-8, 8, n // 2, endpoint=True).astype(np.float32)
        values = rng.permutation(np.concatenate([half, -half, np.zeros(n % 2, np.float32)]))
        values[:1] += np.float32(5)  # a result of zero would say little
        return np.asarray(values)
    kind = np.float64 if dtype.name == "float64" else np.float32
    return np.asarray(-np.abs(rng.standard_normal(n, dtype=kind)) - kind(0.5))


def add_factors(op: Operator, dtype: Dtype, raw: Array, rng: np.random.Generator) -> Array:
    """For a float product, a few factors of two and of a half: enough to show one that is lost or taken twice, too few
    for any part of the product to leave the range."""
    if op.bites == "units" and dtype.kind == "float":
        few = rng.choice(len(raw), min(len(raw), FACTORS), replace=False)
        raw[few] = dtype.encode(np.where(np.arange(len(few)) % 2, 2.0, -0.5))
    return raw


def judged_datasets(op: Operator, dtype: Dtype, seed: int) -> list[Dataset]:
    """The windowed datasets every candidate is judged on."""
    rng = np.random.default_rng(seed)
    base = dtype.decode(add_factors(op, dtype, dtype.encode(background(op, dtype, WINDOW, rng)), rng))
    plant = WINDOW // 2
    sets = [make_dataset("exact", base, dtype)]

    def planted(name: str, value: Any, under: Array = base) -> None:
        changed = under.copy()
        changed[plant] = value
        sets.append(make_dataset(name, changed, dtype, plant))

    if dtype.kind == "float":
        planted("high", 3.0)
        planted("low", -100.0, np.abs(base) if op.bites == "any" else base)
        planted("nan", np.nan)
        planted("infinity", np.inf)
        planted("minus infinity", -np.inf)
        sets.append(make_dataset("minus infinities", np.full(WINDOW, -np.inf, base.dtype), dtype))
        sets.append(make_dataset("negative zeros", np.full(WINDOW, -0.0, base.dtype), dtype))
    else:
        info = np.iinfo(dtype.name)
        planted("high", info.max)
        planted("low", info.min)
        sets.append(make_dataset("lowest", np.full(WINDOW, info.min, dtype.name), dtype))
        sets.append(make_dataset("highest", np.full(WINDOW, info.max, dtype.name), dtype))
    equal = {"units": -1, "small": -3, "any": -3}[op.bites]
    sets.append(make_dataset("equal", np.full(WINDOW, equal if dtype.kind != "uint" else 3, base.dtype), dtype))
    return sets


def random_dataset(op: Operator, dtype: Dtype, n: int, seed: int) -> Dataset:
    """Random values for the float64 reference: floats of many magnitudes, within the range that the result can hold;
    integers of the whole range, odd for a product."""
    rng = np.random.default_rng(seed + 1)
    if dtype.kind != "float":
        info = np.iinfo(dtype.name)
        whole = rng.integers(info.min, info.max, n, dtype=dtype.name, endpoint=True)
        return make_dataset("random", whole | np.array(op.bites == "units", dtype.name), dtype)
    kind = np.float64 if dtype.name == "float64" else np.float32
    if op.bites == "units":
        # Most are one: rounding to few bits pulls every other value a little to one side, and a million of them far.
        values = np.ones(n, kind)
        few = rng.choice(n, min(n, RANDOM_FACTORS), replace=False)
        values[few] = np.exp(rng.normal(0.0, 1.0 / np.sqrt(RANDOM_FACTORS), len(few)))
    else:
        values = (rng.standard_normal(n) * np.exp(rng.normal(0.0, 1.0, n))).astype(kind)
    return make_dataset("random", values, dtype, exact=op.exact)


def full_size(op: Operator, dtype: Dtype, n: int, copies: int, seed: int) -> list[Dataset]:
    """`copies` different arrays of `n` elements with exact results, to time and to judge at the size asked for."""
    rng = np.random.default_rng(seed + 2)
    pattern = dtype.encode(background(op, dtype, min(n, PATTERN), rng))
    rows = []
    for copy in range(copies):
        raw = add_factors(op, dtype, np.resize(np.roll(pattern, -copy * 17), n), rng)
        rows.append(Dataset(f"full size {copy}", raw, dtype.decode(raw), None, True))
    return rows
