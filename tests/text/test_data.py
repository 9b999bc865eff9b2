"""The judge's data: results that no order of merging changes, and that say something."""

from __future__ import annotations

import numpy as np
import pytest

from redtune import data
from redtune.data import FACTORS, PATTERN, background, full_size, judged_datasets, random_dataset
from redtune.dtypes import DTYPES, Dtype
from redtune.operators import OPERATORS, WHOLE, Operator, accumulate_type, is_order_free, result_type
from redtune.references import Depths
from redtune.windows import SHIFT
from tests.text.folds import Array, adds_up_floats, assert_within, bound, entries, fold, right
from tests.text.kernels import PAIRS, operator

ENTRIES = entries()


def adds_in_floats(op: Operator, dtype: Dtype) -> bool:
    """Whether integers are added up as floats."""
    return dtype.kind in WHOLE and DTYPES[accumulate_type(op, dtype)].kind == "float"


def in_step(op: Operator, x: Array) -> list[Array]:
    """The inputs as the judge takes them from one array: the second begins a little later."""
    return [x[:, SHIFT * k : x.shape[1] - SHIFT * (op.inputs - 1 - k)] for k in range(op.inputs)]


def assert_right(op: Operator, dtype: Dtype, inputs: list[Array], message: str, rounds: bool = False) -> None:
    """Folded in two orders, the result is exactly the right one, or within its bound where even whole numbers round or
    the data do."""
    n = inputs[0].shape[-1]
    wanted = np.repeat(right(op, dtype, *inputs), 2)
    mixed = np.arange(n) if "i" in op.lift else np.random.default_rng(n).permutation(n)
    inputs = [np.concatenate([x, x[:, mixed]]) for x in inputs]
    got = fold(op, dtype, *inputs)
    if adds_up_floats(op, dtype) and op.tolerance and (rounds or op.tolerance.rounds or dtype.kind in WHOLE):
        assert_within(got, op.reference(*inputs), bound(op, dtype, n.bit_length() + 1, *inputs))
    else:
        np.testing.assert_array_equal(got, wanted, err_msg=message)


@ENTRIES
def test_no_order_changes_the_background(op: Operator, dtype: Dtype) -> None:
    rng = np.random.default_rng(3)
    in_floats = adds_in_floats(op, dtype)
    for n in (0, 1):
        assert len(background(op, dtype, n, rng, in_floats)) == len(random_dataset(op, dtype, n, 0, in_floats).raw) == n
    for n in (1, 24, 515):
        inputs = [dtype.decode(dtype.encode(background(op, dtype, n, rng, in_floats))) for _ in range(op.inputs)]
        assert_right(op, dtype, [x.reshape(1, -1) for x in inputs], f"{n} elements")


@ENTRIES
def test_no_order_changes_what_is_planted(op: Operator, dtype: Dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "WINDOW", 1 << 8)
    in_floats = adds_in_floats(op, dtype)
    for dataset in judged_datasets(op, dtype, 1, in_floats):
        assert dataset.plant in (None, 1 << 7)
        assert len(dataset.raw) == len(dataset.values) == 1 << 8
        x = dataset.values.reshape(1, -1)
        with np.errstate(all="ignore"):
            assert_right(op, dtype, in_step(op, x), dataset.name, rounds=not dataset.exact)


@ENTRIES
def test_the_result_of_the_background_says_something(op: Operator, dtype: Dtype) -> None:
    """A result of zero, infinity or NaN would be right for a kernel that loses most of its input."""
    rng = np.random.default_rng(5)
    in_floats = adds_in_floats(op, dtype)
    for n in (9, 20_001):
        x = dtype.decode(dtype.encode(background(op, dtype, n, rng, in_floats))).reshape(1, -1)
        result = right(op, dtype, *in_step(op, x))
        assert np.isfinite(result), n
        if op.bites in ("small", "units") and op.name != "dot":
            assert result != 0


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.kind in ("int", "float")], ids=lambda d: d.name)
def test_the_background_of_a_choice_is_below_zero(dtype: Dtype) -> None:
    """So that a maximum that starts at 0 instead of the lowest value shows."""
    values = dtype.decode(dtype.encode(background(OPERATORS["max"], dtype, 10_000, np.random.default_rng(6))))
    assert (values < 0).all()


@ENTRIES
def test_data_depend_on_the_seed_alone(op: Operator, dtype: Dtype) -> None:
    with np.errstate(all="ignore"):
        one, again, other = (full_size(op, dtype, 500, 2, seed) for seed in (7, 7, 8))
    assert [d.raw.tobytes() for d in one] == [d.raw.tobytes() for d in again]
    assert [len(d.raw) for d in one] == [500 * op.inputs] * 2
    assert one[0].raw.dtype == dtype.storage()
    if op.bites not in ("zeros", "ones") and (op.name, dtype.name) != ("prod", "bool"):  # there is but one choice
        assert one[0].raw.tobytes() != other[0].raw.tobytes()
        assert one[0].raw.tobytes() != one[1].raw.tobytes()


@ENTRIES
def test_random_data_have_a_random_result(op: Operator, dtype: Dtype) -> None:
    """No overflow in the result, no product that a single zero decides, and more than a few different values."""
    in_floats = adds_in_floats(op, dtype)
    found = random_dataset(op, dtype, 5_000, 9, in_floats)
    assert len(found.values) == 5_000
    assert np.isfinite(found.values).all()
    x = found.values.reshape(1, -1)
    result = right(op, dtype, *in_step(op, x))
    assert np.isfinite(result)
    if op.bites == "units":
        assert result != 0
    if op.bites != "units" or dtype.kind != "bool":  # a product of truth values is zero, but for all ones
        assert len(np.unique(found.values)) > (1 if dtype.kind == "bool" else 15)


ROUNDING = [p for p in PAIRS if (t := operator(*p).tolerance) and t.rounds and DTYPES[p[1]].kind == "float"]


@pytest.mark.parametrize(("op", "dtype"), [p for p in ROUNDING if p[0] != "logsumexp"])
def test_a_stretch_that_is_lost_at_full_size_is_beyond_the_bound(op: str, dtype: str) -> None:
    """However long the array is: what a block or a tile lost would change the result by more than it may be off."""
    entry, element = operator(op, dtype), DTYPES[dtype]
    assert entry.tolerance is not None
    n = 1 << 22
    (found,) = full_size(entry, element, n, 1, 0)
    x = found.values
    exact = entry.reference(x.reshape(1, -1))
    u = DTYPES[accumulate_type(entry, element)].u
    bound = entry.tolerance.bound(entry.tolerance.measures(x.reshape(1, -1)), Depths(16, 60), u)
    off = bound + DTYPES[result_type(entry, element)].u * abs(exact)
    values = np.count_nonzero(x)
    stretch = 8 * n // values
    for first in range(0, n - stretch, n // 7):
        rest = x.copy()
        rest[first : first + stretch] = 0
        assert abs(entry.reference(rest.reshape(1, -1)) - exact) > off, f"{stretch} of {n} from {first} on"


@pytest.mark.parametrize("seed", range(2))
def test_sums_of_full_size_stay_exact(seed: int) -> None:
    """Full-size data repeat one pattern, so its sum grows with every copy: whole numbers are exact below 2^24 only."""
    pattern = background(OPERATORS["sum"], DTYPES["float32"], PATTERN, np.random.default_rng(seed + 2))
    copies = 2**33 / PATTERN  # 32 GiB of float32
    assert abs(pattern.sum(dtype=np.float64)) * copies < 2**24


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_products_of_full_size_stay_in_range(dtype: str) -> None:
    """Whatever factors a thread gathers, its product is representable: all factors of two together stay in range."""
    for dataset in full_size(operator("prod", dtype), DTYPES[dtype], 2_000_000, copies=2, seed=2):
        sizes = np.abs(dataset.values)
        factors = sizes[sizes != 1].astype(np.float64)
        assert 2 <= len(factors) <= FACTORS
        assert np.abs(np.log2(factors)).sum() <= 100


@ENTRIES
def test_exactness_is_claimed_where_it_holds(op: Operator, dtype: Dtype) -> None:
    accumulate = accumulate_type(op, dtype)
    found = random_dataset(op, dtype, 100, 0, adds_in_floats(op, dtype))
    assert found.exact <= is_order_free(op, accumulate) or dtype.kind not in ("float", "complex")


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.kind == "float"], ids=lambda d: d.name)
@pytest.mark.parametrize(
    "op", [op for op in OPERATORS.values() if not op.exact and op.inputs == 1], ids=lambda op: op.name
)
def test_the_result_of_random_data_is_within_the_range_of_its_type(op: Operator, dtype: Dtype) -> None:
    """A product of a million values that rounding has pulled to one side leaves the range of float32; what is beyond
    the range of the result would be right for a kernel that loses most of its input."""
    for n in (1, 1000, 2**19):
        exact = abs(float(op.reference(random_dataset(op, dtype, n, 1).values)))
        assert exact > 1e-7 or (n == 1 and op.name in ("var", "std"))
        assert exact < (65504 if dtype.name == "float16" else 1e38)


@pytest.mark.parametrize(("op", "dtype"), [p for p in PAIRS if not operator(*p).exact], ids=lambda text: text)
def test_no_window_has_an_infinite_result(op: str, dtype: str) -> None:
    """Of the data whose result is known exactly: where all windows of some size give infinity, nothing is judged."""
    entry, element = operator(op, dtype), DTYPES[dtype]
    in_floats = adds_in_floats(entry, element)
    x = element.decode(element.encode(background(entry, element, 1 << 18, np.random.default_rng(0), in_floats)))
    assert np.isfinite(right(entry, element, *in_step(entry, x.reshape(1, -1)))).all()


@pytest.mark.parametrize("op", ["sum", "nansum", "mean", "norm_l1", "norm_l2", "sumsq", "var"])
@pytest.mark.parametrize("narrow", ["float16", "float32"])
def test_nothing_leaves_the_range_of_a_narrow_accumulator(
    op: str, narrow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values of float64 may be infinite in what a kernel was asked to add in: their sum is NaN there, and not the exact
    one."""
    monkeypatch.setattr(data, "WINDOW", 1 << 8)
    own = {found.name for found in judged_datasets(OPERATORS[op], DTYPES["float64"], 1)}
    assert "huge" in own or op in ("sumsq", "var")
    sets = judged_datasets(OPERATORS[op], DTYPES["float64"], 1, accumulate="float32", result=narrow)
    assert "huge" not in {found.name for found in sets}
    for found in sets:
        assert found.exact or np.isfinite(found.values.astype(np.float32)).all(), found.name
