"""A roofline of an NVIDIA GPU: every ceiling is there, and the ones that hardware relates stand in that relation."""

from __future__ import annotations

import pytest

import redtune
from tests.need import need


@pytest.mark.gpu
def test_a_roofline_of_an_nvidia_gpu() -> None:
    need("cuda")
    frame = redtune.roofline(["sum", "max", "logsumexp"], ["float32", "float16", "int8"], backend="cuda")
    ceilings, launch = frame.attrs["ceilings"], frame.attrs["launch"]
    rates = {(row["name"], row["dtype"]): row["gops"] for row in ceilings["arithmetic"]}
    assert all(rates.values())
    # One instruction adds a product, so it counts twice of what an addition does.
    assert 1.5 < rates["fma", "float32"] / rates["add", "float32"] < 2.5
    assert rates["exp", "float32"] < rates["add", "float32"]
    assert ceilings["read_gbps"] > 100
    assert 0.2 < launch["empty_us"] <= 1.1 * launch["smallest_us"] < 100
    assert set(frame["bound"]) <= {"memory", "arithmetic"}
    assert (frame[frame["op"] == "sum"]["bound"] == "memory").all()
