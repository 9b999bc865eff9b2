"""Operators of one's own on the OpenCL device, against numpy: what a type does to a map must not depend on the base."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import redtune
from redtune.custom import check_laws, derived
from redtune.errors import UsageError
from tests.need import need

# Each map once as redtune reads it and once as numpy does: orders, signs, and what has neither. That every type is
# spelled alike is a matter of text (tests/text/test_text.py); here a few run.
MAPS: dict[str, Callable[[Any], Any]] = {
    "absolute(x)": np.absolute,
    "smaller(x, 0)": lambda x: np.minimum(x, 0),
    "pick(x < 3, 1, 2)": lambda x: np.where(x < 3, 1, 2).astype(x.dtype),
    "pick(above(x, 1), x, 1)": lambda x: np.where(x > 1, x, 1).astype(x.dtype),
    "x * x - 4": lambda x: x * x - 4,
    "-x": lambda x: -x,
}


@pytest.mark.parametrize(("base", "dtype"), [("sum", "int8"), ("sum", "int64"), ("prod", "int32"), ("prod", "uint16")])
def test_a_map_of_whole_numbers_means_what_it_means_to_numpy(base: str, dtype: str) -> None:
    need("opencl")
    # Small enough for a product of all to stay in 64 bits.
    x = np.array([3, -4, 5, -1, 2, 0, -2, 3, 1, -5] if dtype[0] == "i" else [5, 4, 9, 7, 6, 8, 3, 4], dtype)
    tried = 0
    for text, meaning in MAPS.items():
        try:
            custom = derived(base, text, None)
            check_laws(custom, dtype)
        except UsageError:
            continue  # the laws say why; what they let through must be right
        tried += 1
        got = redtune.reduce(x, f"{base}_custom", custom=custom)
        assert got == getattr(np, base)(meaning(x.astype(got.dtype))), text
    assert tried >= len(MAPS) // 2


@pytest.mark.parametrize("finish", ["a * 0.1", "a + 1e-05", "sqrt(a) * 0.3"])
def test_a_number_with_a_point_is_of_the_type_that_is_accumulated(finish: str) -> None:
    """In double the product would be rounded once, and not as numpy rounds it in float32."""
    need("opencl")
    x = np.linspace(0.1, 3.3, 1001, dtype=np.float32)
    top = x.max()
    names = {"a": top, "sqrt": np.sqrt}
    got = redtune.reduce(x, "max_custom", custom=derived("max", None, finish))
    assert got == np.float32(eval(finish, names))


@pytest.mark.parametrize("op", ["sum", "nansum", "prod", "max", "min", "nanmax", "nanmin"])
@pytest.mark.parametrize("layout", [None, 0, 1])
@pytest.mark.parametrize("initial", [np.nan, np.inf, -np.inf, 2.5])
def test_an_initial_value_means_what_it_means_to_numpy(op: str, layout: int | None, initial: float) -> None:
    """A NaN too: nansum passes over those of the elements alone, nanmax over every one."""
    need("opencl")
    x = np.array([[1.5, 2.0, np.nan], [0.5, -3.0, 4.0]], np.float32)
    got = redtune.reduce(x, op, layout, initial=initial)
    np.testing.assert_array_equal(got, getattr(np, op)(x, layout, initial=initial))
