"""Configs are measured, proven, written and found again: `results/ship.py` on the CPU, from nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import redtune
from redtune import store
from redtune.cli import main
from redtune.lab import list_devices
from redtune.preparing import PREPARED, forget
from redtune.problems import make_problem
from redtune.shipped import Sheet, entries
from redtune.types import from_json
from tests.need import need

ROOT = Path(__file__).parents[2]
SIZE = ("--ops", "max", "--dtypes", "int32", "--flat", "2**12", "--rows", "16x100")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("opencl")
    monkeypatch.setenv("REDTUNE_CACHE", str(tmp_path / "cache"))
    forget()


def ship(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python results/ship.py` on the CPU."""
    command = [sys.executable, "results/ship.py", "--backend", "opencl", *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ.copy(), capture_output=True, text=True, timeout=300)


def test_what_is_measured_is_written_and_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, log = tmp_path / "shipped", tmp_path / "log"
    done = ship(*SIZE, "--out", str(out), "--commit", "abcdef0", "--log", str(log))
    assert done.returncode == 0, done.stderr
    assert "2 of 2 problems, 2 rows written" in done.stdout
    (path,) = out.glob("*/*")
    device = list_devices("opencl")[0]
    assert (path.parent.name, path.name) == (store.folder_name(device), "max-int32.yaml")
    sheet = from_json(Sheet, yaml.safe_load(path.read_text()))
    assert (sheet.device, sheet.commit) == (device, "abcdef0")
    assert sheet.command == "python results/ship.py --ops max --dtypes int32 --flat 2**12 --rows 16x100"
    assert [json.loads(line)["problem"]["n"] for line in log.read_text().splitlines()] == [4096, 100]
    monkeypatch.setattr(store, "shipped_path", lambda: out)
    kept = {best.problem: best for best in entries(out)}
    assert {make_problem("max", "int32", 4096), make_problem("max", "int32", 100, outer=16)} == set(kept)
    x = np.random.default_rng(0).integers(-1000, 1000, (16, 100), np.int32)
    np.testing.assert_array_equal(redtune.max(x, axis=1), x.max(axis=1))
    (prepared,) = PREPARED.values()
    assert (prepared.config, prepared.origin) == (kept[prepared.problem].config, "shipped")
    # Measured again: on a busy machine a row may not hold, and then it says so.
    code = main(["bench", "--check", str(out), "--backend", "opencl", "--layouts", "rows", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert (len(document["rows"]), document["of"], document["no_longer_hold"]) == (1, 1, code)
    assert document["rows"][0]["share"] > 0
    # Rows that cannot be kept are told before anything is measured.
    path.write_text(other := path.read_text().replace("  name: ", "  name: another "))
    again = ship(*SIZE, "--out", str(out))
    assert again.returncode != 0
    assert "was measured on another device or by another version" in again.stderr
    assert (again.stdout, path.read_text()) == ("", other)


def test_where_only_what_was_compiled_before_is_wanted_nothing_else_is_tried(tmp_path: Path) -> None:
    done = ship(*SIZE, "--binaries", str(tmp_path / "none"), "--out", str(tmp_path / "out"))
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("no candidate has a binary") == 2
    assert not (tmp_path / "out").exists()
