"""Exports for CuPy and PyTorch pass their own self-tests on the device, by the command of their README, in a folder
that has nothing else."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import redtune
from redtune.custom import derived
from tests.device.test_export_header import commands
from tests.need import need

pytestmark = pytest.mark.gpu

OWN = derived("sum", "x * x + 1", None)
FLAT = {"n": 1 << 22}
ROWS = {"shape": (300, 4099), "axis": 1}
COLUMNS = {"shape": (8, 640, 40), "axis": 1}
FORMATS = ("cupy", "torch")
AT_ONCE = 6
# (operator, dtype, what is reduced, knobs)
EXPORTS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("max", "float32", FLAT, {"combine": "atomic", "walk": "tile"}),
    ("sum", "float16", FLAT, {"combine": "two_pass"}),
    ("logsumexp", "bfloat16", FLAT, {"combine": "cluster", "cluster": 4}),
    ("argmax", "int8", FLAT, {"wave": 64, "vector": 16}),
    ("logsumexp", "float32", FLAT, {"combine": "two_pass", "second_launch": "early"}),
    ("sum", "int32", FLAT, {"combine": "tally", "walk": "stride"}),
    ("dot", "float32", FLAT, {"vector": 4}),
    ("sum", "complex64", FLAT | {"accumulate": "compensated"}, {}),
    ("any", "bool", FLAT, {}),
    # Of two architectures before this one, for two sizes.
    ("max", "float32", {"n": [1 << 12, 1 << 24], "arch": ["sm_75", "sm_80"]}, {}),
    (json.loads(OWN)["name"], "int32", FLAT | {"custom": OWN}, {}),
    ("var", "float64", ROWS, {"split": 4, "combine": "last_block"}),
    ("sum", "uint8", ROWS, {"team": 32, "split": 1}),
    ("sum", "int32", ROWS, {"split": 8, "combine": "atomic"}),
    ("std", "bfloat16", COLUMNS, {"split": 8, "combine": "two_pass"}),
    ("argmin", "float16", COLUMNS, {"split": 4, "combine": "last_block"}),
    ("dot", "complex128", COLUMNS, {}),
]
IDS = [f"{k} {op} {dtype}" for k, (op, dtype, *_) in enumerate(EXPORTS)]
Done = subprocess.CompletedProcess[str]


def written(format: str, index: int, folder: Path) -> Path:
    """An export in a folder of its own."""
    op, dtype, what, knobs = EXPORTS[index]
    redtune.export(op, dtype, format=format, out=folder, fix=knobs, default=True, **what)
    return folder


def ran(command: str, folder: Path) -> Done:
    """What a command says whose python is this one, where only the folder's files can be imported beside packages."""
    words = re.sub(r"^python ", f"{shlex.quote(sys.executable)} ", command, flags=re.MULTILINE)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        ["bash", "-euc", words], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


def from_readme(folder: Path) -> Done:
    """What the commands of an export's README say."""
    return ran(commands(folder), folder)


def need_format(format: str) -> None:
    need("cuda")
    if importlib.util.find_spec(format) is None:
        pytest.skip(f"{format} is not installed")


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, int], Future[Done]]]:
    """The self-tests that are asked for, several at a time: they wait for imports and compilers most of their time.
    None where another process may have been given some of them."""
    need("cuda")
    items = [item for item in request.session.items if item.path == request.path and "runs" in item.fixturenames]
    asked = [] if "PYTEST_XDIST_WORKER" in os.environ else [item.callspec.params for item in items]
    there = [(one["format"], one["index"]) for one in asked if importlib.util.find_spec(one["format"]) is not None]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {key: pool.submit(from_readme, written(*key, tmp_path_factory.mktemp("export") / "out")) for key in there}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("index", range(len(EXPORTS)), ids=IDS)
def test_the_self_test_passes(
    format: str, index: int, runs: dict[tuple[str, int], Future[Done]], tmp_path: Path
) -> None:
    need_format(format)
    run = runs.get((format, index))
    done = run.result() if run is not None else from_readme(written(format, index, tmp_path / "out"))
    lines = [line for line in done.stdout.splitlines() if line.startswith(("ok", "FAILED"))]
    failed = [line for line in lines if line.startswith("FAILED")]
    assert (done.returncode, failed) == (0, []), done.stdout[-3000:] + done.stderr[-3000:]
    (count,) = re.findall(r"^(\d+) of \1 checks passed$", done.stdout, re.MULTILINE)
    assert len(lines) == int(count) > 60
    assert re.search(r"^v\d: [\d.]+ us, [\d.]+ GB/s for ", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("format", FORMATS)
def test_a_kernel_that_is_wrong_fails_its_self_test(format: str, tmp_path: Path) -> None:
    need_format(format)
    folder = written(format, 0, tmp_path / "out")
    module = folder / "redtune_max_float32.py"
    text = module.read_text()
    assert "s.value = -__int_as_float(0x7f800000);" in text
    module.write_text(text.replace("s.value = -__int_as_float(0x7f800000);", "s.value = 0;"))
    done = from_readme(folder)
    assert (done.returncode, "FAILED" in done.stdout) == (1, True), done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.parametrize("format", FORMATS)
def test_pytest_runs_the_checks(format: str, tmp_path: Path) -> None:
    need_format(format)
    folder = written(format, 10, tmp_path / "out")
    done = ran("python -m pytest -q -p no:cacheprovider .", folder)
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(r"^(8|9) passed", done.stdout, re.MULTILINE), done.stdout[-3000:]


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_pytorch_compiles_around_the_operator(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its own kernels before and after, and in the CUDA graphs that it makes itself."""
    need_format("torch")
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("Triton needs a C compiler")
    import torch

    monkeypatch.syspath_prepend(written("torch", 1, tmp_path / "out"))
    module = importlib.import_module("redtune_sum_float16")
    compiled = torch.compile(lambda x: module.reduce(x * 2) + 1, fullgraph=True, mode=mode)
    for n in (1 << 20, 1000, 77):
        for k in range(4):
            x = torch.full((n,), 2.0**-12, dtype=torch.float16, device="cuda") * (k + 1)
            assert compiled(x).item() == (x.double().sum() * 2 + 1).half().item()
