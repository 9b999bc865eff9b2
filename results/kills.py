"""A search killed at random moments, its parent and its workers in turns: what was lost, and what was left behind.

    python results/kills.py --kills 50 --out results/NAME [--seed 1] [--longest 14]

writes NAME.md. Runs from a checkout, on the OpenCL device.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.device.killing import PROBLEM, Killed, kill_often  # noqa: E402

NOTE = """\
Every kill is `kill -9` of the search itself or of one of its workers, in turns: half of them at any moment, half
within a second after a trial was finished. A search that was killed is started again with the same command; with
one that lost a worker nothing is done. Some of the searches have two trials to go and some a thousand, so that
kills meet the start, the ceiling, the trials, the final rounds and the writing of the winner. A trial counts as
finished once its row is written, and as lost if the study does not know it. The last search is not killed: it
resumes what is known, tries once more what a killed worker took along, measures one config more, and keeps its
winner."""


def commit() -> str:
    """The commit of the checkout this file lies in."""
    done = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def markdown(found: Killed, command: str, seed: int, seconds: float) -> str:
    """The table."""
    best = found.last["best"]
    device = best["device"]
    ends = ", ".join(f"{count} {how}" for how, count in found.ends.items()) or "none"
    rows = [
        ("kills of the search", found.kills["parent"]),
        ("kills of a worker", found.kills["worker"]),
        ("searches that ended by themselves in between", ends),
        ("trials known before the last search", found.before),
        ("of them known to the last search", found.last["resumed"]),
        ("trials known after it", found.last["trials"]),
        ("finished trials lost", found.lost),
        ("processes left behind", found.orphans),
        ("how the last search ended", f"{found.last['stopped']}; winner kept: {found.last['is_saved']}"),
    ]
    lines = [
        f"# A search killed {sum(found.kills.values())} times on {device['name']}",
        "",
        f"Command `{command}`, commit {commit()}, seed {seed}, {best['found'][:10]}, {seconds:.0f} s.",
        f"Problem `redtune search {' '.join(PROBLEM)}`. Device {device['name']} ({device['arch']}),",
        f"driver {device['driver']}, toolchain {device['toolchain']};",
        ", ".join(f"{name} {version}" for name, version in best["versions"].items()) + ".",
        "",
        NOTE,
        "",
        "| what | |",
        "|---|---|",
        *(f"| {what} | {figure} |" for what, figure in rows),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Kills and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=float, default=14.0, help="seconds between two kills at most")
    given = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as cache:
        found = kill_often(Path(cache) / "cache", given.kills, given.seed, given.longest)
    command = f"python results/kills.py --kills {given.kills} --seed {given.seed} --longest {given.longest:g}"
    text = markdown(found, command, given.seed, time.monotonic() - start)
    Path(f"{given.out}.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
