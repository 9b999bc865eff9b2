"""The judge's inputs: windows at every edge, and data whose result no order of merging changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from redtune.config import Config, is_read
from redtune.data import FACTORS, PATTERN, WINDOW, Dataset, background, full_size, judged_datasets, random_dataset
from redtune.dtypes import DTYPES, Dtype, dtype_named
from redtune.judge import edge_sizes, same, windows
from redtune.operators import (
    OPERATORS,
    Operator,
    State,
    accumulate_type,
    is_order_free,
    numpy_finish,
    numpy_identity,
    numpy_lift,
    numpy_merge,
    result_type,
)
from tests.text.kernels import config, random_cases, target

PAIRS = [(op, dtype) for op in OPERATORS for dtype in DTYPES]
ENTRIES = pytest.mark.parametrize(
    ("op", "dtype"), [(OPERATORS[o], DTYPES[d]) for o, d in PAIRS], ids=map("-".join, PAIRS)
)

CONFIGS = [
    config(),
    config(wave=64, vector=4),
    config(block=32, vector=1, items=1, accumulators=1),
    config(block=96, vector=2, items=3),
    config(block=1024, vector=16, items=8),
    config(exchange="lds", block=512, vector=8),
    *(c for c, _ in random_cases(target("cuda"), 20, seed=5)),
]
EACH_CONFIG = pytest.mark.parametrize("c", CONFIGS, ids=lambda c: f"{c.block}x{c.vector}x{c.items}")


def tile_of(c: Config) -> int:
    return c.block * c.vector * c.items


def some_sets() -> list[Dataset]:
    """The datasets' names and plants, which is what windows go by."""
    return judged_datasets(OPERATORS["max"], DTYPES["float32"], seed=0)


SETS = some_sets()
PLANTED = {index for index, dataset in enumerate(SETS) if dataset.plant is not None}
EXACT = next(index for index, dataset in enumerate(SETS) if dataset.name == "exact")


def windows_of(c: Config, element_bytes: int = 4) -> list[tuple[int, int, int]]:
    return list(windows(SETS, c, tile_of(c), element_bytes))


@EACH_CONFIG
def test_windows_lie_inside_and_hold_the_plant(c: Config) -> None:
    for index, first, n in windows_of(c):
        assert n >= 1
        assert first >= 0
        assert first + n <= WINDOW
        plant = SETS[index].plant
        assert plant is None or first <= plant < first + n


def edges(c: Config) -> set[int]:
    wave = {c.wave} if is_read("wave", c) else set()
    return {c.vector, *wave, c.block, c.block * c.vector, tile_of(c)}


@EACH_CONFIG
def test_every_edge_is_a_size(c: Config) -> None:
    wanted = {n + d for n in edges(c) for d in (-1, 0, 1)} - {0}
    for index in {EXACT, *PLANTED}:
        assert wanted <= {n for i, _, n in windows_of(c) if i == index}
    assert wanted | {1, 2} <= set(edge_sizes(c, tile_of(c)))
    assert max(edge_sizes(c, tile_of(c))) > tile_of(c) + c.block, "some window must have a whole tile and a ragged end"


@EACH_CONFIG
def test_the_plant_comes_to_every_edge(c: Config) -> None:
    """First and last of a thread, a wave, a block and a tile, and of the window itself."""
    for index in PLANTED:
        found = {(SETS[i].plant - first, n) for i, first, n in windows_of(c) if i == index}  # type: ignore[operator]
        places = {place for place, _ in found}
        assert {0, 1, *edges(c), *(edge - 1 for edge in edges(c) - {c.vector, c.block * c.vector})} <= places
        assert any(place == n - 1 for place, n in found if n > tile_of(c))


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_every_alignment_is_tried(dtype: Dtype) -> None:
    c = config(vector=16 // dtype.bytes)
    starts = {first % c.vector for index, first, n in windows_of(c, dtype.bytes) if index == EXACT and n > tile_of(c)}
    assert starts == set(range(c.vector))


@pytest.mark.parametrize(("a", "b", "equal"), [(1, 1, True), (1, 2, False), (0.0, -0.0, True)])
def test_same(a: Any, b: Any, equal: bool) -> None:
    assert same(a, b) is equal


def test_same_takes_nan_for_nan() -> None:
    nan = np.float32("nan")
    assert same(nan, np.float32(np.nan))
    assert not same(nan, np.float32(0))
    assert not same(np.float32(0), nan)


# --- data -------------------------------------------------------------------------------------------------------------


def folded(op: Operator, dtype: Dtype, values: Any, order: Any, by_halves: bool) -> Any:
    """The result when the elements meet in `order`: neighbours first, or those half the array apart."""
    accumulate = accumulate_type(op, dtype)
    state = numpy_lift(op, accumulate, values[order], order)
    while (n := len(next(iter(state.values())))) > 1:
        if n % 2:
            state = joined(state, {f: v.reshape(1) for f, v in numpy_identity(op, accumulate).items()})
        half = (n + 1) // 2
        split = (slice(half), slice(half, None)) if by_halves else (slice(0, None, 2), slice(1, None, 2))
        state = numpy_merge(op, accumulate, *({f: v[part] for f, v in state.items()} for part in split))
    return numpy_finish(op, dtype, {f: v[0] for f, v in state.items()})


def joined(a: State, b: State) -> State:
    return {field: np.concatenate([a[field], b[field]]) for field in a}


def right(op: Operator, dtype: Dtype, values: Any) -> Any:
    result = dtype_named(result_type(op, dtype))
    with np.errstate(all="ignore"):
        return result.decode(result.encode(np.asarray([op.reference(values)])))[0]


@ENTRIES
def test_no_order_changes_the_background(op: Operator, dtype: Dtype) -> None:
    rng = np.random.default_rng(3)
    for n in (1, 2, 23, 24, 4097, 50_001):
        values = dtype.decode(dtype.encode(background(op, dtype, n, rng)))
        expected = right(op, dtype, values)
        in_turn = np.arange(n)
        for order in (in_turn, in_turn[::-1], rng.permutation(n), rng.permutation(n)):
            for by_halves in (False, True):
                assert same(folded(op, dtype, values, order, by_halves), expected), n


@ENTRIES
def test_no_order_changes_what_is_planted(op: Operator, dtype: Dtype) -> None:
    rng = np.random.default_rng(4)
    part = slice(WINDOW // 2 - 2000, WINDOW // 2 + 2001)
    for dataset in judged_datasets(op, dtype, seed=1):
        assert dataset.plant in (None, WINDOW // 2)
        assert len(dataset.raw) == len(dataset.values) == WINDOW
        values = dataset.values[part]
        expected = right(op, dtype, values)
        for order in (np.arange(len(values)), rng.permutation(len(values))):
            assert same(folded(op, dtype, values, order, by_halves=True), expected), dataset.name


@ENTRIES
def test_the_result_of_the_background_says_something(op: Operator, dtype: Dtype) -> None:
    """A result of zero, infinity or NaN would be right for a kernel that loses most of its input."""
    rng = np.random.default_rng(5)
    values = dtype.decode(dtype.encode(background(op, dtype, 10_001, rng)))
    result = right(op, dtype, values)
    assert np.isfinite(result)
    if op.result == "value" and op.bites != "any":
        assert result != 0


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.kind != "uint"], ids=lambda d: d.name)
def test_the_background_of_a_choice_is_below_zero(dtype: Dtype) -> None:
    """So that a maximum that starts at 0 instead of the lowest value shows."""
    values = dtype.decode(dtype.encode(background(OPERATORS["max"], dtype, 10_000, np.random.default_rng(6))))
    assert (values < 0).all()


@ENTRIES
def test_data_depend_on_the_seed_alone(op: Operator, dtype: Dtype) -> None:
    with np.errstate(all="ignore"):
        one, again, other = (full_size(op, dtype, 5000, 2, seed) for seed in (7, 7, 8))
    assert [d.raw.tobytes() for d in one] == [d.raw.tobytes() for d in again]
    assert one[0].raw.tobytes() != other[0].raw.tobytes()
    assert one[0].raw.tobytes() != one[1].raw.tobytes()
    assert [len(d.raw) for d in one] == [5000, 5000]
    assert one[0].raw.dtype == dtype.storage()


@ENTRIES
def test_random_data_have_a_random_result(op: Operator, dtype: Dtype) -> None:
    """No overflow in the result, no product that a single zero decides, and more than a few different values."""
    data = random_dataset(op, dtype, 20_000, seed=9)
    assert len(data.values) == 20_000
    assert np.isfinite(data.values).all()
    assert np.isfinite(right(op, dtype, data.values))
    if op.bites == "units":
        assert right(op, dtype, data.values) != 0
    assert len(np.unique(data.values)) > 15


@pytest.mark.parametrize("seed", range(4))
def test_sums_of_full_size_stay_exact(seed: int) -> None:
    """Full-size data repeat one pattern, so its sum grows with every copy: whole numbers are exact below 2^24 only."""
    pattern = background(OPERATORS["sum"], DTYPES["float32"], PATTERN, np.random.default_rng(seed + 2))
    copies = 2**33 / PATTERN  # 32 GiB of float32
    assert abs(pattern.sum(dtype=np.float64)) * copies < 2**24


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_products_of_full_size_stay_in_range(dtype: str) -> None:
    """Whatever factors a thread gathers, its product is representable: all factors of two together stay in range."""
    for dataset in full_size(OPERATORS["prod"], DTYPES[dtype], 5_000_000, copies=2, seed=2):
        factors = np.abs(dataset.values[np.abs(dataset.values) != 1].astype(np.float64))
        assert 2 <= len(factors) <= FACTORS
        assert np.abs(np.log2(factors)).sum() <= 100


@ENTRIES
def test_exactness_is_claimed_where_it_holds(op: Operator, dtype: Dtype) -> None:
    assert random_dataset(op, dtype, 100, seed=0).exact <= is_order_free(op, accumulate_type(op, dtype))


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.kind == "float"], ids=lambda d: d.name)
@pytest.mark.parametrize("op", [op for op in OPERATORS.values() if op.result == "value"], ids=lambda op: op.name)
@pytest.mark.parametrize("n", [1, 1000, 150_001, 2**20])
def test_the_result_of_random_data_is_within_the_range_of_its_type(op: Operator, dtype: Dtype, n: int) -> None:
    """A product of a million values that rounding has pulled to one side leaves the range of float32."""
    for seed in range(3):
        exact = abs(float(op.reference(random_dataset(op, dtype, n, seed).values)))
        assert 1e-6 < exact < 6e4
