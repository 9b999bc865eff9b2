"""The main job as a table: searches a few problems from nothing, then times each winner beside the libraries.

    python results/main_job.py --out results/NAME --op max --op sum --n 2**28

writes NAME.json (every document as the commands printed it) and NAME.md (the table).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NOTE = """\
Searches start from an empty cache at their defaults; wall time includes the start of the interpreter, the ceiling
and the finals. Trials a second count compiling and judging. The comparison is a second run: all rows of one
problem are timed in turns in one process, cold, the ceiling among them. Spread is half the distance between the
quartiles."""


def redtune(*arguments: str, cache: str) -> tuple[dict[str, Any], float]:
    """The JSON document of a command, and its wall time in seconds, interpreter start included."""
    command = [sys.executable, "-m", "redtune", *arguments, "--json"]
    start = time.perf_counter()
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "REDTUNE_CACHE": cache}, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout), time.perf_counter() - start


def commit() -> str:
    """The commit of the checkout this file lies in."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def measure(op: str, dtype: str, n: str, cache: str) -> dict[str, Any]:
    """One search from nothing and one comparison."""
    problem = ["--op", op, "--dtype", dtype, "--n", n]
    search, wall_s = redtune("search", *problem, cache=cache)
    bench, _ = redtune("bench", *problem, cache=cache)
    return {"op": op, "dtype": dtype, "n": n, "wall_s": wall_s, "search": search, "bench": bench}


def markdown(rows: list[dict[str, Any]], command: str, revision: str) -> str:
    """The table."""
    device, best = rows[0]["search"]["device"], rows[0]["search"]["best"]
    versions = ", ".join(f"{name} {version}" for name, version in best["versions"].items())
    lines = [
        f"# The main job on {device['name']}",
        "",
        f"Command `{command}`, commit {revision}, seed {best['seed']}, {best['found']}.",
        f"Device {device['name']} ({device['arch']}), driver {device['driver']}, toolchain {device['toolchain']};",
        f"{versions}.",
        "",
        NOTE,
        "",
        "| problem | wall s | trials | trials/s | verdicts | stopped |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        found = row["search"]
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in found["verdicts"].items())
        rate = f"{found['trials'] / found['measuring_seconds']:.1f}"
        cells = [title(row), f"{row['wall_s']:.1f}", str(found["trials"]), rate, verdicts, found["stopped"]]
        lines.append(table_row(cells))
    lines += [
        "",
        "| problem | what | median us | spread us | GB/s | of the read ceiling |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines += comparison(row)
    lines += ["", "Winners:", ""]
    for row in rows:
        best = row["search"]["best"]
        config = " ".join(f"{name}={value}" for name, value in best["config"].items())
        lines.append(f"- {title(row)}: {config}; results {best['determinism']}; {row['search']['verdict']}")
    return "\n".join(lines) + "\n"


def title(row: dict[str, Any]) -> str:
    """What was reduced."""
    return f"{row['op']} {row['dtype']} {row['n']}"


def table_row(cells: list[str]) -> str:
    """One row of Markdown."""
    return f"| {' | '.join(cells)} |"


def comparison(row: dict[str, Any]) -> list[str]:
    """The rows of one problem, the ceiling and what was absent."""
    lines = []
    for item in row["bench"]["rows"]:
        timing = item["timing"]
        figures = [f"{timing['median_us']:.2f}", f"{timing['spread_us']:.2f}", f"{item['gbps']:.1f}"]
        lines.append(table_row([title(row), item["name"], *figures, f"{item['of_ceiling']:.1%}"]))
    ceiling = row["bench"]["ceiling"]
    figures = [f"{ceiling['median_us']:.2f}", f"{ceiling['spread_us']:.2f}"]
    lines.append(table_row([title(row), "read ceiling", *figures, "", "100.0%"]))
    reasons = row["bench"]["absent"]
    absent = [table_row([title(row), what, f"absent: {reason}", "", "", ""]) for what, reason in reasons]
    return lines + absent


def main() -> None:
    """Measures every operator asked for and writes both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--op", action="append", required=True)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--n", default="2**28")
    parser.add_argument("--commit", default="", help="where the checkout has no history")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        rows = [measure(op, options.dtype, options.n, cache) for op in options.op]
    command = f"python results/main_job.py --dtype {options.dtype} --n {options.n} " + " ".join(
        f"--op {op}" for op in options.op
    )
    Path(f"{options.out}.json").write_text(json.dumps(rows, indent=1) + "\n")
    Path(f"{options.out}.md").write_text(markdown(rows, command, options.commit or commit()))


if __name__ == "__main__":
    main()
