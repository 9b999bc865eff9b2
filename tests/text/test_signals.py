"""A command that is asked to end: workers are ended, finished trials kept, one line says so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.text.scripted import __file__ as scripted
from tests.text.test_process import is_running, until

ROOT = Path(__file__).parents[2]
# `redtune search` on a device that is not there. The third trial hangs, and so does what the pool compiles meanwhile.
PROGRAM = """
import sys
import redtune.lab, redtune.process
from redtune import __main__ as command
from tests.text.kernels import target

script, plan = sys.argv[1:3]
redtune.process.command = lambda: ([sys.executable, "-S", "-E", script, plan], {"PYTHONPATH": ""})
redtune.lab.find_device = lambda backend, index: target("cuda").device
redtune.lab.TRIAL_LIMIT_S = 600
sys.argv[1:] = ["search", "--op", "max", "--n", "2**20", "--trials", "6", *sys.argv[3:]]
sys.exit(command.main())
"""


def started(folder: Path, *more: str, trial: list[str]) -> subprocess.Popen[str]:
    (folder / "plan.json").write_text(json.dumps({"trial": trial}))
    for calls in folder.glob("plan.trial"):
        calls.unlink()
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, scripted, str(folder / "plan.json"), *more],
        env={**os.environ, "PYTHONPATH": str(ROOT), "REDTUNE_CACHE": str(folder / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def children_of(pid: int) -> set[int]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = path.read_text().rpartition(")")[2].split()[1]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(parent) == pid:
            found.add(int(path.parent.name))
    return found


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.skipif(not Path("/proc").exists(), reason="processes are looked up in /proc")
def test_a_search_that_is_asked_to_end_ends_in_order(number: signal.Signals, code: int, tmp_path: Path) -> None:
    running = started(tmp_path, trial=["right", "right", "hang"])
    trials = tmp_path / "plan.trial"
    assert until(lambda: trials.exists() and trials.stat().st_size == 3, 60)
    workers = children_of(running.pid)
    assert len(workers) >= 2
    running.send_signal(number)
    out, err = running.communicate(timeout=60)
    assert running.returncode == code
    assert out == ""
    assert [line for line in err.splitlines() if line.startswith("redtune:")] == [
        "redtune: interrupted; every finished trial is kept, and the same command continues"
    ]
    assert "Traceback" not in err
    assert until(lambda: not any(map(is_running, workers)))
    again = started(tmp_path, "--json", trial=[])
    document = json.loads(again.communicate()[0])
    assert (document["resumed"], document["trials"]) == (2, 6)


def test_a_command_that_ignores_hangups_goes_on(tmp_path: Path) -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        running = started(tmp_path, "--json", trial=["right", "right", "right"])
    finally:
        signal.signal(signal.SIGHUP, before)
    trials = tmp_path / "plan.trial"
    assert until(trials.exists, 60)
    running.send_signal(signal.SIGHUP)
    out, _ = running.communicate()
    assert running.returncode == 0
    assert json.loads(out)["trials"] == 6
