"""A roofline of the OpenCL device: what is measured is of the size that a processor can have."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from redtune import cli
from redtune.arithmetic import STEPS
from redtune.readers import reading_kernels
from tests.need import need


def test_a_roofline_of_this_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need("opencl")
    monkeypatch.setattr("redtune.ceilings.DEFAULT_N", {"cpu": 1 << 20, "gpu": 1 << 20})
    monkeypatch.setattr("redtune.lab.reading_kernels", lambda *given: itertools.islice(reading_kernels(*given), 2))
    files = ["--csv", str(tmp_path / "rows.csv"), "--plot", str(tmp_path / "roof.png")]
    assert cli.main(["roofline", "--backend", "opencl", "--ops", "sum,logsumexp", "--json", *files]) == 0
    found = json.loads(capsys.readouterr().out)
    rates = {(row["name"], row["dtype"]): row["gops"] for row in found["ceilings"]["arithmetic"]}
    assert {dtype for _, dtype in rates} == {"float32", "float64", "int32", "int64"}
    assert {name for name, _ in rates} == set(STEPS)
    units = found["device"]["compute_units"]
    for (name, _), rate in rates.items():
        # A unit does at least one operation in a hundred cycles, and at most 64 lanes of two in each of them.
        assert 0.01 * units < rate < 5 * 128 * units, name
    assert rates["exp", "float32"] < rates["add", "float32"]
    assert 0 < found["launch"]["empty_us"] < 1e5
    assert 0 < found["launch"]["smallest_us"] < 1e5
    assert [row["bound"] in ("memory", "arithmetic") for row in found["rows"]] == [True, True]
    assert (tmp_path / "rows.csv").read_text().count("\n") == 3
    assert (tmp_path / "roof.png").stat().st_size > 10_000
