"""A real search killed at random moments, its parent and its workers in turns: what was lost, and what was left behind.

The rows of finished trials are written after the study knows them, so every row must be in the study for good. All
processes of the search carry the cache's path in their environment, so that an orphan is found whatever it is.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redtune.journal import records_in
from tests.text.test_process import until

ROOT = Path(__file__).parents[2]
PROBLEM = (
    "--op",
    "logsumexp",
    "--n",
    "2**14",
    "--backend",
    "opencl",
)  # far from the ceiling, so it does not stop there
PATIENCE_S = 120.0
PATIENCE_S = 120.0
GONE_S = 5.0  # until a worker has noticed that its parent is gone
KINDS = ("parent", "worker")


@dataclass
class Killed:
    """What became of a search that was killed over and over."""

    kills: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)  # how the processes that were not killed themselves ended
    before: int = 0  # finished trials before the last run
    lost: int = 0  # of them unknown to a later run
    orphans: int = 0
    crashed: int = 0  # configs that a killed worker took along, and that are not settled yet
    last: dict[str, Any] = field(default_factory=dict)  # what the last search said, which nobody killed


def search(cache: Path, trials: int, seed: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "redtune", "search", *PROBLEM, "--trials", str(trials), "--time-limit", "1h"]
    return subprocess.Popen(
        [*command, "--seed", str(seed), "--json"],
        cwd=ROOT,
        env={**os.environ, "REDTUNE_CACHE": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_of(cache: Path) -> set[int]:
    """The living processes that work on a cache."""
    mark = f"REDTUNE_CACHE={cache}".encode()
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.add(int(folder.name))
        except OSError:  # it ended meanwhile, or is another user's
            continue
    return found


def rows(cache: Path) -> list[dict[str, Any]]:
    """The rows of finished trials; one that a kill cut short is none."""
    found = []
    for path in (cache / "results").glob("*.jsonl"):
        for line in path.read_text().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


def told(cache: Path) -> Iterator[dict[str, Any]]:
    """What the study was told of finished trials, in its order."""
    path = cache / "studies.journal"
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
        for record in records_in(line)[0]:
            for attrs in (record.get("user_attr", {}), record.get("user_attrs", {})):
                if "trial" in attrs:
                    yield json.loads(attrs["trial"])


def key(trial: dict[str, Any]) -> str:
    return json.dumps(trial["config"], sort_keys=True)


def settled(cache: Path) -> set[str]:
    """The configs that are not to be tried again: all that were measured, but for those that crashed once."""
    crashes = Counter(key(trial) for trial in told(cache) if trial["verdict"] == "CRASHED")
    last = {key(trial): trial["verdict"] for trial in told(cache) if trial["verdict"] != "REFUSED"}
    return {config for config, verdict in last.items() if verdict != "CRASHED" or crashes[config] > 1}


def kill_often(cache: Path, kills: int, seed: int, longest_s: float) -> Killed:
    """Kills `kills` times, each up to `longest_s` after the last, then lets the search end."""
    rng = random.Random(seed)
    found = Killed()
    running: subprocess.Popen[str] | None = None
    while sum(found.kills.values()) < kills:
        if running is None:
            # Few trials to go, so that the kill may meet the final rounds and the writing of the winner, or many.
            running = search(cache, len(settled(cache)) + rng.choice((2, 1000)), seed)
        count = sum(found.kills.values())
        kind = KINDS[count % 2]
        if count % 4 < 2:  # at any moment after a trial was finished, else at any moment at all
            before = len(rows(cache))
            until(lambda: len(rows(cache)) > before or running.poll() is not None, PATIENCE_S)  # noqa: B023
            time.sleep(rng.uniform(0.0, 1.0))
        else:
            time.sleep(rng.uniform(0.0, longest_s))
        if _has_ended(running, found):
            running = None
            continue
        victims = [running.pid] if kind == "parent" else sorted(processes_of(cache) - {running.pid})
        if not victims:
            continue  # a worker is to be killed, and there is none just now
        os.kill(rng.choice(victims), signal.SIGKILL)
        found.kills[kind] += 1
        if kind == "parent":
            running.communicate()
            running = None
            _count(cache, found)
    if running is not None:
        running.kill()
        running.communicate()
        _count(cache, found)
    known = settled(cache)
    found.before = len(known)
    found.crashed = len({key(trial) for trial in told(cache) if trial["verdict"] != "REFUSED"} - known)
    last = search(cache, len(known) + found.crashed + 1, seed)
    out, err = last.communicate()
    if last.returncode:
        raise AssertionError(f"the last search ended with {last.returncode}: {err}")
    found.last = json.loads(out)
    _count(cache, found)
    return found


def _has_ended(running: subprocess.Popen[str], found: Killed) -> bool:
    """Whether the search has ended by itself, which it may, with one sentence where it failed."""
    if running.poll() is None:
        return False
    _, err = running.communicate()
    said = [line for line in err.splitlines() if not line.startswith("redtune: warning:")]
    if running.returncode not in (0, 1) or len(said) != running.returncode:
        raise AssertionError(f"a search ended with {running.returncode}: {err}")
    found.ends["found a winner" if running.returncode == 0 else said[0][:100]] += 1
    return True


def _count(cache: Path, found: Killed) -> None:
    """Looks for what was left behind, and for rows that the study does not know."""
    until(lambda: not processes_of(cache), GONE_S)
    left = processes_of(cache)
    found.orphans += len(left)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    known = {(key(trial), trial["verdict"]) for trial in told(cache)}
    found.lost += len({(key(row), row["verdict"]) for row in rows(cache)} - known)
