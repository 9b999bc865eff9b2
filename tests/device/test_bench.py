"""The benchmark matrix on the OpenCL device: small cells, measured in one process."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from redtune import cli, store
from redtune.benching import measure_cells
from redtune.cells import flat_cell, shaped_cell
from redtune.clock import is_time
from redtune.defaults import starting_points
from redtune.lab import Lab, find_device
from redtune.problems import make_problem
from redtune.readers import reading_kernels
from redtune.render import render
from redtune.types import Device, Kernel
from tests.need import need

KINDS = ("float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8", "bool")


@pytest.fixture(scope="module")
def device() -> Device:
    """The OpenCL device with a cache so small that inputs past it are few."""
    need("opencl")
    return dataclasses.replace(find_device("opencl", 0), cache_bytes=1 << 20)


@pytest.fixture(autouse=True)
def few_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kernels that only read are enough where nobody minds the ceiling: the others compile for seconds."""
    monkeypatch.setattr("redtune.lab.reading_kernels", lambda *given: itertools.islice(reading_kernels(*given), 2))


def test_every_layout_is_measured_beside_numpy(device: Device) -> None:
    wanted = [
        flat_cell("sum", "float32", 1 << 12),  # so small that the cache is filled before every round
        flat_cell("argmax", "int8", 1 << 20),
        shaped_cell("mean", "float16", (64, 256), -1, "cpu"),
        shaped_cell("any", "bool", (256, 64), 0, "cpu"),
    ]
    found = measure_cells(wanted, device, rounds=3)
    assert [one.cell for one in found.measured] == wanted, found.failed
    for one in found.measured:
        ours, library = one.found.rows
        assert ours.config is not None
        assert library.name.startswith("numpy")
        assert library.types
        assert one.found.speedup is not None
        assert one.found.speedup[1] <= one.found.speedup[0] <= one.found.speedup[2]
        assert all(is_time(row.timing.median_us) for row in one.found.rows)
        assert [answer.is_odd for answer in one.found.answers] == [False, False], one.found.answers
        assert one.found.ceiling.median_us > 0


def passed_off(lab: Lab, op: str, name: str) -> Kernel:
    """A kernel of one operator under the name of another."""
    wrong = make_problem(op, "float32", 1 << 16)
    config = starting_points(wrong, lab.dialect, lab.device)[0]
    kernel = render(wrong, config, lab.dialect, lab.device)
    source = kernel.source.replace(f"redtune_{op}_float32", f"redtune_{name}_float32")
    right = render(make_problem(name, "float32", 1 << 16), config, lab.dialect, lab.device)
    return dataclasses.replace(right, source=source, digest="0" * 16)


def test_an_entrant_that_computes_something_else_is_found_out(device: Device) -> None:
    problem = make_problem("sum", "float32", 1 << 16)
    with Lab(device, problem) as lab:
        right = render(problem, starting_points(problem, lab.dialect, device)[0], lab.dialect, device)
        compiled = [lab.compile(kernel) for kernel in (right, passed_off(lab, "sumsq", "sum"))]
        assert all(one.binary for one in compiled)
        found = lab.beside(problem, compiled, 3, with_libraries=True)
        alone = lab.beside(problem, compiled[:1], 3, with_libraries=False)
    assert [answer.is_odd for answer in found.answers] == [False, True, False]
    assert found.answers[1].differs_from[0] == "kernel 0"
    assert [len(samples) for samples in found.samples] == [3, 3]
    assert (alone.libraries, alone.answers[0].is_odd) == ((), False)
    assert 1 <= len(alone.readers) <= 2


@pytest.mark.parametrize("dtype", KINDS)
def test_every_dtype_has_random_data_on_which_all_agree(dtype: str, device: Device) -> None:
    from redtune.dtypes import dtype_named
    from redtune.pool import pattern

    made = pattern(dtype_named(dtype), 1 << 16, 3)
    assert made.nbytes == 1 << 16
    values = dtype_named(dtype).decode(made)
    if values.dtype.kind == "f":
        assert (values.min() >= 0.5, values.max() <= 1.5) == (True, True)
        assert values.astype(np.float64).mean() == pytest.approx(1.0, abs=0.02)
    else:
        assert len(np.unique(values)) > (1 if dtype == "bool" else 200)


def test_a_time_limit_and_a_json_document(
    monkeypatch: pytest.MonkeyPatch, device: Device, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("redtune.lab.find_device", lambda backend, index: device)
    monkeypatch.setattr("redtune.cells.quick", lambda kind: [flat_cell("max", "float32", 1 << k) for k in (12, 14)])
    store.WARNED.clear()
    assert cli.main(["bench", "--quick", "--warm", "--json", "--csv", str(tmp_path / "b.csv")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [cell["cell"] for cell in document["cells"]] == ["max float32 flat 2^12", "max float32 flat 2^14"]
    assert document["temperature"] == "warm"
    assert len((tmp_path / "b.csv").read_text().splitlines()) == 5


def test_libraries_are_called_ahead_in_a_process_of_their_own(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem("sum", "float32", 1 << 16)
    with Lab(device, problem) as lab:
        assert lab.ahead.warm(problem).done()  # numpy compiles nothing
        monkeypatch.setattr(lab.ahead._backend, "is_slow_at_first", lambda problem: True, raising=False)
        other = make_problem("max", "float32", 1 << 16)
        assert lab.ahead.warm(other).result(60) is None
        assert lab.ahead.warm(other) is lab.ahead.warm(other)
        (process,) = lab.ahead._all_warm
        assert process.generation == 1
        assert process.is_alive()
    assert not process.is_alive()
