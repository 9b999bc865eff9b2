"""Tuning exactly what is reduced, and reducing with what was tuned: through the API and the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import redtune
from redtune import cli
from redtune.preparing import PREPARED, forget
from tests.caches import new_cache
from tests.need import need

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("opencl")
    monkeypatch.setenv("REDTUNE_CACHE", str(new_cache(tmp_path / "cache")))
    forget()


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m redtune` with this test's cache."""
    return subprocess.run(
        [sys.executable, "-m", "redtune", *arguments],
        cwd=ROOT,
        env=os.environ.copy(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def origins() -> set[str]:
    """Where the configs of what was prepared come from."""
    return {prepared.origin for prepared in PREPARED.values()}


def test_what_is_tuned_is_what_runs() -> None:
    op, axis = "max", 0
    x = np.random.default_rng(0).standard_normal((300, 517)).astype(np.float32)
    right = getattr(np, op)(x, axis=axis)
    np.testing.assert_allclose(redtune.reduce(x, op, axis=axis), right, rtol=1e-5, atol=1e-5)
    assert origins() == {"the default, nothing is tuned for this yet"}
    report = redtune.tune(x, op, axis=axis, trials=2, time_limit_s=60)
    assert report.best is not None
    assert (report.problem.n, report.problem.outer * report.problem.inner) == (x.shape[axis], x.shape[1 - axis])
    np.testing.assert_allclose(redtune.reduce(x, op, axis=axis), right, rtol=1e-5, atol=1e-5)
    assert origins() == {"tuned here"}
    (prepared,) = PREPARED.values()
    assert prepared.config == report.best.config
    # A near size takes it too, and says so; another layout does not.
    redtune.reduce(x[:150], op, axis=axis)
    redtune.reduce(x, op)
    assert any(origin.startswith("tuned here for about 2^") for origin in origins())
    assert "the default, nothing is tuned for this yet" in origins()


def test_tune_refuses_what_cannot_be_measured() -> None:
    with pytest.raises(redtune.UsageError, match="has no elements to tune for"):
        redtune.tune(np.zeros((0, 3), np.float32), "sum")
    with pytest.raises(redtune.UsageError, match="ask for at least 1"):
        redtune.tune(np.ones(3), "sum", trials=0)


def test_some_axes_of_a_file(tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((7, 5, 9))
    np.save(tmp_path / "x.npy", x)
    done = command("run", "--op", "argmax", "--axis", "-1", "--json", str(tmp_path / "x.npy"))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["value"] == x.argmax(-1).tolist()
    assert (said["shape"], said["n"], said["dtype"]) == ([7, 5], 9, "float64")
    out = str(tmp_path / "out.npy")
    done = command("run", "--op", "var", "--axis", "0,2", "--keepdims", "--out", out, str(tmp_path / "x.npy"))
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(out), x.var((0, 2), keepdims=True), rtol=1e-12)
    done = command("run", "--op", "sum", "--map", "x*x", "--finish", "sqrt(a)", str(tmp_path / "x.npy"))
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(np.linalg.norm(x), rel=1e-12)


BAD: list[tuple[tuple[str, ...], str]] = [
    (("--op", "sum", "--axis", "3"), "axis 3 is out of bounds for array of dimension 2"),
    (("--op", "sum", "--axis", "0,0"), "names an axis twice"),
    (("--op", "argmax", "--axis", "0,1"), "argmax takes one axis or all"),
    (("--op", "dot"), "dot takes 2 arrays, and a file holds one"),
    (("--op", "bitwise_or"), "bitwise_or of float64 has no meaning"),
]


@pytest.mark.parametrize(("arguments", "said"), BAD, ids=[said for _, said in BAD])
def test_a_file_that_cannot_be_reduced_so_says_why(
    arguments: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 3)))
    assert cli.main(["run", *arguments, str(tmp_path / "x.npy")]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_an_operator_of_ones_own_is_tuned_and_run(tmp_path: Path) -> None:
    file = str(ROOT / "configs" / "operators.yaml")
    done = command("search", "--op-file", file, "--op", "range", "--n", "50000", "--trials", "2", "--json")
    assert done.returncode == 0, done.stderr
    report: Any = json.loads(done.stdout)
    assert report["verdicts"] == {"OK": 2}
    x = np.random.default_rng(2).standard_normal(50_000).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    done = command("run", "--op-file", file, "--op", "range", str(tmp_path / "x.npy"))
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(float(x.max() - x.min()), rel=1e-6)
    assert "config: tuned here" in done.stderr
    (tmp_path / "bad.yaml").write_text(
        "middle:\n  state: {m: value}\n  identity: {m: 0}\n  lift: {m: x}\n  merge: {m: a.m / 2 + b.m / 2}\n"
        "  finish: a.m\n  accumulates: float\n  result: float\n"
    )
    done = command("search", "--op-file", str(tmp_path / "bad.yaml"), "--op", "middle", "--n", "1000")
    assert done.returncode == 2
    assert "middle" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_several_problems_in_one_go(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("- {op: [sum], shape: [64, 300], axis: 1}\n- {op: max, n: 5000}\n")
    done = command("search", "--manifest", str(tmp_path / "m.yaml"), "--trials", "1")
    assert done.returncode == 0, done.stderr
    for line in ("sum of 64 x (300) float32", "max of 5000 float32"):
        assert line in done.stdout
    done = command("show", "--json")
    assert {row["problem"]["op"] for row in json.loads(done.stdout)["tuned"] if row["from"] == "here"} == {
        "sum",
        "max",
    }
