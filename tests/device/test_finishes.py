"""The tables of how blocks meet can be made again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.need import need, nvcc

ROOT = Path(__file__).parents[2]


def test_finishes_side_by_side(tmp_path: Path) -> None:
    need("opencl")
    command = [
        sys.executable,
        "results/finishes.py",
        "--backend",
        "opencl",
        "--ops",
        "any,bitwise_or",
        "--dtypes",
        "float32",
    ]
    env = {"REDTUNE_CACHE": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([*command, "--flat", "2**12"], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    head, _, *rows = done.stdout.splitlines()
    assert "| tally | second pass | numpy" in head
    assert [row.split(" | ")[0] for row in rows] == ["| any float32 4096"]
    assert "bitwise_or" in done.stderr  # of float32 there is none


def test_bulk_copies_compile(tmp_path: Path) -> None:
    need("nvcc")
    command = [nvcc(), "-std=c++17", "-arch=sm_90", "-c", "-o", str(tmp_path / "finishes.o"), "results/finishes.cu"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
