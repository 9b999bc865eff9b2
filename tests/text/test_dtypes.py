"""Bits and values: bfloat16 is ours, the rest is numpy's."""

from __future__ import annotations

import numpy as np
import pytest

from redtune.dtypes import DTYPES, Dtype

BF16 = DTYPES["bfloat16"]
ALL_16 = np.arange(1 << 16, dtype=np.uint16)


def test_every_bfloat16_survives() -> None:
    values = BF16.decode(ALL_16)
    back = BF16.encode(values)
    is_nan = np.isnan(values)
    np.testing.assert_array_equal(back[~is_nan], ALL_16[~is_nan])
    assert np.isnan(BF16.decode(back[is_nan])).all()
    np.testing.assert_array_equal(back[is_nan] & 0x8000, ALL_16[is_nan] & 0x8000)
    assert is_nan.sum() == 2 * 127


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        (0x3F808000, 0x3F80),  # half way: to even, down
        (0x3F818000, 0x3F82),  # half way: to even, up
        (0x3F808001, 0x3F81),
        (0x3F807FFF, 0x3F80),
        (0x3FFF8000, 0x4000),  # the carry reaches the exponent
        (0x7F7F8000, 0x7F80),  # and infinity
        (0x7F7F7FFF, 0x7F7F),
        (0xFF7FFFFF, 0xFF80),
        (0x00000001, 0x0000),
        (0x80000001, 0x8000),
        (0x00008001, 0x0001),  # subnormals round as the others do
        (0x7F800001, 0x7FC0),  # a NaN whose payload lies in the bits that go
        (0xFFFFFFFF, 0xFFFF),  # a NaN that a carry would make a zero
    ],
)
def test_bfloat16_rounds_to_nearest_even(bits: int, expected: int) -> None:
    assert BF16.encode(np.array([bits], np.uint32).view(np.float32)) == expected


def test_bfloat16_is_that_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    rng = np.random.default_rng(0)
    bits = np.concatenate([rng.integers(0, 2**32, 200_000, np.uint32), ALL_16.astype(np.uint32) << 16 | 0x8000])
    values = bits.view(np.float32)
    with np.errstate(all="ignore"):
        theirs = values.astype(ml_dtypes.bfloat16)
    ours = BF16.encode(values)
    is_nan = np.isnan(values)
    np.testing.assert_array_equal(ours[~is_nan], theirs.view(np.uint16)[~is_nan])
    assert np.isnan(BF16.decode(ours[is_nan])).all()
    np.testing.assert_array_equal(BF16.decode(ALL_16), ALL_16.view(ml_dtypes.bfloat16).astype(np.float32))


def test_bfloat16_keeps_the_shape() -> None:
    assert BF16.encode(3.0).shape == ()
    assert BF16.encode(np.ones((2, 3))).shape == (2, 3)
    assert BF16.decode(BF16.encode(np.ones((2, 3)))).shape == (2, 3)


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d != BF16], ids=lambda d: d.name)
def test_the_others_are_numpys(dtype: Dtype) -> None:
    raw = np.random.default_rng(0).integers(0, 256, 64 * dtype.bytes, np.uint8)
    raw = raw & 1 if dtype.kind == "bool" else raw
    values = dtype.decode(raw)
    assert values.dtype == np.dtype(dtype.name)
    np.testing.assert_array_equal(dtype.encode(values).view(np.uint8), raw)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_entries_are_consistent(dtype: Dtype) -> None:
    assert dtype.storage().itemsize == dtype.bytes
    register = DTYPES[dtype.register]
    assert register.bytes >= 4
    assert register.register == register.name
    # A truth value is a small number in a register; of a complex number each part has one.
    assert register.kind == {"bool": "uint", "complex": "float"}.get(dtype.kind, dtype.kind)
    assert register.bytes * dtype.parts >= dtype.bytes
    assert dtype.parts == (2 if dtype.kind == "complex" else 1)
    for wider in (DTYPES[dtype.sum_type], DTYPES[dtype.float_type]):
        assert (wider.sum_type, wider.float_type if wider.u else wider.name) == (wider.name, wider.name)
        assert wider.bytes >= dtype.bytes
    assert DTYPES[dtype.sum_type].kind == {"bool": "int"}.get(dtype.kind, dtype.kind)
    assert DTYPES[dtype.float_type].kind in ("float", "complex")


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_the_roundoff_is_half_the_distance_from_one_to_the_next_value(dtype: Dtype) -> None:
    if dtype.kind == "complex":
        assert dtype.u == DTYPES[dtype.register].u
    elif dtype.kind == "float":
        one = dtype.encode(1.0)
        following = dtype.decode((one.reshape(1).view(f"uint{dtype.bytes * 8}") + 1).view(dtype.storage()))
        assert following - 1.0 == 2 * dtype.u
    else:
        assert dtype.u == 0.0


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.kind in ("int", "uint")], ids=lambda d: d.name)
def test_limits_are_numpys(dtype: Dtype) -> None:
    info = np.iinfo(dtype.name)
    assert dtype.limits == (info.min, info.max)


def test_the_limits_of_truth() -> None:
    assert DTYPES["bool"].limits == (0, 1)


def test_float16_rounds_and_overflows() -> None:
    half = DTYPES["float16"]
    with np.errstate(over="ignore"):
        got = half.encode([1 + 2.0**-11, 1 + 3 * 2.0**-11, 65519.0, 65520.0, 2.0**-25])
    np.testing.assert_array_equal(got, np.array([1.0, 1 + 2.0**-9, 65504.0, np.inf, 0.0], np.float16))
