"""Exports for CUDA are built from an empty folder by their own README, and their self-tests pass on the device."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import redtune
from redtune.custom import derived
from tests.need import need

pytestmark = pytest.mark.gpu

OWN = derived("sum", "x * x + 1", None)
FLAT = {"n": 1 << 22}
ROWS = {"shape": (300, 4099), "axis": 1}
COLUMNS = {"shape": (8, 640, 40), "axis": 1}
# (operator, dtype, what is reduced, knobs)
EXPORTS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("max", "float32", FLAT, {"combine": "atomic", "walk": "tile"}),
    ("sum", "bfloat16", FLAT, {"combine": "two_pass", "walk": "chunk"}),
    ("logsumexp", "float16", FLAT, {"combine": "cluster", "cluster": 4}),
    ("argmax", "int8", FLAT, {"wave": 64, "vector": 16}),
    ("logsumexp", "float32", FLAT, {"combine": "two_pass", "second_launch": "early"}),
    ("sum", "int32", FLAT, {"combine": "tally", "walk": "stride"}),
    ("dot", "float32", FLAT, {"vector": 4}),
    ("sum", "complex64", FLAT | {"accumulate": "compensated"}, {}),
    ("bitwise_xor", "uint32", FLAT, {"exchange": "redux"}),
    ("max", "float32", {"n": [1 << 12, 1 << 24]}, {"exchange": "lds", "tree": "unrolled", "wave": 64, "block": 512}),
    (json.loads(OWN)["name"], "int32", FLAT | {"custom": OWN}, {}),
    ("var", "float64", ROWS, {"split": 4, "combine": "last_block"}),
    ("mean", "float16", ROWS, {"team": 32, "split": 1}),
    ("sum", "int32", ROWS, {"split": 8, "combine": "atomic"}),
    ("all", "bool", COLUMNS, {}),
    ("sum", "float32", COLUMNS, {"split": 8, "combine": "two_pass"}),
    ("argmin", "float64", COLUMNS, {"split": 4, "combine": "last_block"}),
]


def commands(folder: Path) -> str:
    """Those of an export's README that build and check it."""
    (block,) = re.findall(r"```sh\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    return str(block)


def from_readme(folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """What the commands of an export's README print, in its folder and with more in the environment."""
    generator = {} if shutil.which("make") else {"CMAKE_GENERATOR": "Ninja"}
    command = ["bash", "-euc", commands(folder)]
    environment = os.environ | generator | more
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("op", "dtype", "what", "knobs"), EXPORTS, ids=[f"{k} {op} {dtype}" for k, (op, dtype, *_) in enumerate(EXPORTS)]
)
def test_cuda(op: str, dtype: str, what: dict[str, Any], knobs: dict[str, Any], tmp_path: Path) -> None:
    need("cuda")
    redtune.export(op, dtype, format="cuda", out=tmp_path / "out", fix=knobs, default=True, **what)
    done = from_readme(tmp_path / "out")
    lines = [line for line in done.stdout.splitlines() if line.startswith(("ok", "FAILED"))]
    assert (done.returncode, [line for line in lines if line.startswith("FAILED")]) == (0, []), (
        done.stdout + done.stderr
    )
    (count,) = re.findall(r"^(\d+) of \1 checks passed$", done.stdout, re.MULTILINE)
    assert len(lines) == int(count) > 60
    assert re.search(r"^v0: [\d.]+ us, [\d.]+ GB/s for ", done.stdout, re.MULTILINE)
    assert "warning" not in done.stdout + done.stderr


def test_a_kernel_that_is_wrong_fails_its_self_test(tmp_path: Path) -> None:
    need("cuda")
    redtune.export("max", format="cuda", out=tmp_path, default=True, n=1 << 20)
    header = tmp_path / "redtune_max_float32.cuh"
    text = header.read_text()
    assert "s.value = -__int_as_float(0x7f800000);" in text
    header.write_text(text.replace("s.value = -__int_as_float(0x7f800000);", "s.value = 0;"))
    done = from_readme(tmp_path)
    assert (done.returncode, "FAILED" in done.stdout) == (1, True)
