"""Candidates that hang, crash, do not compile or are wrong, injected into a real search: each costs itself alone."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from redtune.api import make_problem
from redtune.config import Config
from redtune.lab import Lab, list_devices
from redtune.render import render
from redtune.tuner import Search
from redtune.types import Device, Kernel, Problem, Verdict
from tests.caches import new_cache
from tests.device.contract import endless, illegal
from tests.need import need

# redtune silences Optuna's word on experimental features at import; pytest undoes that for every test.
pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")

N = 60_001


def uncompilable(kernel: Kernel) -> Kernel:
    return dataclasses.replace(kernel, source=kernel.source + "\nthis is no kernel;\n")


def idle(kernel: Kernel) -> Kernel:
    """A kernel that reads nothing: no right one is as fast."""
    source = kernel.source
    for loop, never in (
        ("const index_t tiles = (n - head) / TILE;", "const index_t tiles = 0;"),
        ("for (index_t i = head + tiles * TILE", "for (index_t i = n + head + tiles * TILE"),
    ):
        assert loop in source
        source = source.replace(loop, never)
    return dataclasses.replace(kernel, source=source)


# In the order in which the search meets them, after the default config, which stays as it is.
FAULTS: dict[Verdict, Callable[[Kernel], Kernel]] = {
    Verdict.TIMED_OUT: endless,
    Verdict.CRASHED: illegal,
    Verdict.NOT_COMPILED: uncompilable,
    Verdict.WRONG: idle,
}


def test_the_search_names_them_and_ends_with_a_right_winner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("opencl")
    monkeypatch.setenv("REDTUNE_CACHE", str(new_cache(tmp_path / "cache")))
    monkeypatch.setattr("redtune.lab.TRIAL_LIMIT_S", 5.0)
    # Another test of this process may have imported it; the search must not import it again.
    monkeypatch.delitem(sys.modules, "pyopencl", raising=False)
    met: list[Config] = []

    def sabotaged(problem: Problem, config: Config, dialect: Any, device: Device) -> Kernel:
        if config not in met:
            met.append(config)
        kernel = render(problem, config, dialect, device)
        turn = met.index(config) - 1
        return list(FAULTS.values())[turn](kernel) if 0 <= turn < len(FAULTS) else kernel

    monkeypatch.setattr("redtune.tuner.render", sabotaged)
    problem, device = make_problem("max", "float32", N), list_devices("opencl")[0]
    # Every fault but one can stand in any kernel; the endless wait needs the counter.
    report = Search(problem, device, trials=8, time_limit_s=600, fixed={"combine": "last_block"}).run()

    injected = dict(zip(FAULTS, met[1:], strict=False))
    assert len(met) == len(report.trials) == 8
    first = report.first_failures()
    assert {verdict: trial.config for verdict, trial in first.items()} == injected
    assert all(trial.note for trial in first.values())
    assert "no result within 5 s" in first[Verdict.TIMED_OUT].note
    assert "signal SIG" in first[Verdict.CRASHED].note
    assert "max of" in first[Verdict.WRONG].note
    assert report.verdicts()["OK"] == 4
    assert report.best is not None
    assert report.best.config not in injected.values()
    assert "pyopencl" not in sys.modules
    assert winner_is_right(report.best.config, problem, device, tmp_path)


def winner_is_right(config: Config, problem: Problem, device: Device, folder: Path) -> bool:
    """The winner's kernel, as it would be rendered again, against numpy."""
    values = -np.random.default_rng(0).random(N, np.float32) - 1
    np.save(folder / "values.npy", values)
    with Lab(device, problem) as lab:
        compiled = lab.compile(render(problem, config, lab.dialect, device, output="state"))
        return bool(lab.reduce_file(compiled, str(folder / "values.npy")) == values.max())
