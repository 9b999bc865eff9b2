"""Arbitrary files, definitions and command lines for some minutes each: how many, and what was found.

    python results/fuzz.py --minutes 10 --out results/NAME [--seed 1] [--only "the store"]

writes NAME.md. What is fuzzed and what must hold is in tests/text/fuzzing.py. Runs from a checkout, with no device.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.text.fuzzing import FUZZED, Check  # noqa: E402

BATCH = 100  # examples of one seed
NOTE = """\
An example is a file, a definition or a command line at random: redtune must do its work or refuse in a line or two,
with exit code 0, 1 or 2 and without a traceback, and a damaged file must work again after the next search."""


def commit() -> str:
    """The commit of the checkout this file lies in."""
    done = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def batch(strategy: Any, check: Check, seed: int) -> tuple[int, str]:
    """How many examples were run, and the fault they showed, made small, or nothing."""
    count = 0

    @hypothesis.seed(seed)
    @settings(
        max_examples=BATCH,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def checked(example: Any) -> None:
        nonlocal count
        count += 1
        check(example)

    try:
        checked()
    except Exception:
        return count, traceback.format_exc()
    return count, ""


def fuzz(what: str, seconds: float, seed: int) -> tuple[list[int], list[str], float]:
    """Examples of each strategy in turns until the time is over, and the faults found."""
    counts, faults = [0] * len(FUZZED[what]), []
    start = time.monotonic()
    for turn in itertools.count():
        for k, (strategy, check) in enumerate(FUZZED[what]):
            count, fault = batch(strategy, check, seed * 1_000_003 + turn)
            counts[k] += count
            if fault:
                faults.append(fault)
                print(fault, file=sys.stderr, flush=True)
            if time.monotonic() - start > seconds:
                return counts, faults, time.monotonic() - start
    raise AssertionError


def main() -> None:
    """Fuzzes and writes the table."""
    import platform

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=FUZZED)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for what in [given.only] if given.only else FUZZED:
        counts, faults, seconds = fuzz(what, given.minutes * 60, given.seed)
        names = (check.__name__.removeprefix("check_") for _, check in FUZZED[what])
        each = ", ".join(f"{name} {count}" for name, count in zip(names, counts, strict=True))
        rows.append(f"| {what} | {sum(counts)} | {each} | {len(faults)} | {seconds:.0f} |")
    lines = [
        "# Fuzzing the store, the operators and the command line",
        "",
        f"Command `python results/fuzz.py --minutes {given.minutes:g} --seed {given.seed}`, commit {commit()}.",
        f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"hypothesis {hypothesis.__version__}; no device takes part.",
        "",
        NOTE,
        "",
        "| what | examples | of them | faults in this run | seconds |",
        "|---|---|---|---|---|",
        *rows,
        "",
    ]
    text = "\n".join(lines)
    Path(f"{given.out}.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
