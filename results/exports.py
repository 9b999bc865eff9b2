"""The speed that exports report themselves, beside the one that the search stored, in one run.

    python results/exports.py --out results/NAME [--commit REV] [--trials N]

For each problem: a search, the export of its winner for CUDA, built by the export's README, and its self-test, several
times over. Writes NAME.json and NAME.md.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import redtune
from tests.device.test_export_header import from_readme

RUNS = 3
PROBLEMS: list[tuple[str, str, dict[str, Any]]] = [
    ("max", "float32", {"n": 1 << 28}),
    ("sum", "float32", {"n": 1 << 24}),
    ("sum", "float16", {"n": 1 << 26}),
    ("argmax", "float32", {"n": 1 << 26}),
    ("logsumexp", "float32", {"shape": (4096, 16384), "axis": 1}),
    ("sum", "float32", {"shape": (16384, 4096), "axis": 0}),
]


def measure(trials: int | None) -> list[dict[str, Any]]:
    """One row for each problem."""
    rows = []
    for op, dtype, what in PROBLEMS:
        report = redtune.search(op, dtype, backend="cuda", trials=trials, **what)
        assert report.best is not None
        with tempfile.TemporaryDirectory(prefix="redtune-export-") as folder:
            redtune.export(op, dtype, format="cuda", out=folder, **what)
            done = from_readme(Path(folder))
            texts = [done.stdout]
            for _ in range(RUNS - 1):
                again = subprocess.run(["./build/selftest"], cwd=folder, capture_output=True, text=True, check=False)
                texts.append(again.stdout)
        figures = [float(found) for text in texts for found in re.findall(r"^v0: [\d.]+ us, ([\d.]+) GB/s", text, re.M)]
        checks = re.findall(r"^(\d+) of (\d+) checks passed$", texts[0], re.M)
        rows.append(
            {
                "problem": f"{op} of {dtype}, {what}",
                "stored_gbps": report.best.gbps,
                "selftest_gbps": figures,
                "ratio": statistics.median(figures) / report.best.gbps if figures else None,
                "checks": checks[0] if checks else None,
                "exit": done.returncode,
                "device": f"{report.device.name}, driver {report.device.driver}, {report.device.toolchain}",
                "error": done.stderr[-500:] if done.returncode else "",
            }
        )
        print(rows[-1], flush=True)
    return rows


def table(rows: list[dict[str, Any]], commit: str) -> str:
    lines = [
        "# Exports for CUDA: what their self-tests report, beside what the search stored",
        "",
        f"{rows[0]['device']}; commit {commit}; `python results/exports.py`. Each self-test ran {RUNS} times after its "
        "search, in the same run; the median counts.",
        "",
        "| problem | the search, GB/s | the self-test, GB/s | ratio | checks |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        figures = ", ".join(f"{figure:.1f}" for figure in row["selftest_gbps"])
        ratio = f"{row['ratio']:.4f}" if row["ratio"] else "-"
        checks = " of ".join(row["checks"]) if row["checks"] else "-"
        lines.append(f"| {row['problem']} | {row['stored_gbps']:.1f} | {figures} | {ratio} | {checks} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--trials", type=int)
    given = parser.parse_args()
    rows = measure(given.trials)
    Path(f"{given.out}.json").write_text(json.dumps({"commit": given.commit, "rows": rows}, indent=1) + "\n")
    Path(f"{given.out}.md").write_text(table(rows, given.commit))


if __name__ == "__main__":
    main()
