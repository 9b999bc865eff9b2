"""Who finds out kernels that are broken on purpose: the judge on a device, who reads them, and the checkers of the
device's backend.

    python results/mutants.py --backend cuda --out results/NAME [--commit REV]
    python results/mutants.py --merge results/A.json results/B.json --out results/NAME

The first writes NAME.json; the second NAME.md, of one file for each device. Checkers see what the judge let pass and
whatever is a race, which may be right by luck.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import redtune.lab
from redtune.checkers import CHECKERS, Checker
from redtune.errors import BackendMissing
from redtune.lab import list_devices
from redtune.types import Device
from tests.device.mutants import Mutation, Outcome, is_caught, judged, mutants, read, watched
from tests.device.mutations import TABLE

TRIAL_LIMIT_S, EXAMINE_LIMIT_S = 10.0, 60.0


def measure(backend: str, commit: str) -> dict[str, Any]:
    """Every mutant with what became of it."""
    redtune.lab.TRIAL_LIMIT_S, redtune.lab.EXAMINE_LIMIT_S = TRIAL_LIMIT_S, EXAMINE_LIMIT_S
    device = list_devices(backend)[0]
    found = list(mutants(TABLE, device))
    outcomes = judged(device, found)
    passed = {mutant.mutation.name for mutant, row in zip(found, outcomes, strict=True) if not is_caught(row)}
    table = [mutation for mutation in TABLE if mutation.name in passed or mutation.is_race]
    by: dict[str, dict[str, Outcome]] = {}
    absent: dict[str, str] = {}
    with ThreadPoolExecutor(len(CHECKERS[backend])) as pool:
        tasks = {checker.name: pool.submit(_watched, device, checker, table) for checker in CHECKERS[backend]}
        for name, task in tasks.items():
            try:
                by[name] = task.result()
            except BackendMissing as error:
                absent[name] = str(error)
    names = [mutant.name for mutant in found]
    everything = {
        "judge": dict(zip(names, outcomes, strict=True)),
        "reading": dict(zip(names, read(found), strict=True)),
        **by,
    }
    rows = [
        {"mutation": name.split(", ")[0], "mutant": name, "by": whom, "verdict": row[0].value, "note": row[1]}
        for whom, said in everything.items()
        for name, row in said.items()
    ]
    about = f"{device.name} ({device.backend} {device.arch}), driver {device.driver}, toolchain {device.toolchain}"
    return {"device": about, "backend": backend, "commit": commit, "absent": absent, "rows": rows}


def _watched(device: Device, checker: Checker, table: list[Mutation]) -> dict[str, Outcome]:
    with tempfile.TemporaryDirectory(prefix="redtune-mutants-") as folder:
        return watched(device, checker, table, Path(folder))


def is_bad(row: dict[str, Any]) -> bool:
    """Whether a row says that the mutant was found out."""
    return row["verdict"] in ("WRONG", "CRASHED", "TIMED_OUT")


def report(files: list[dict[str, Any]]) -> str:
    """The table of mutations by who finds them out."""
    columns = [(file["backend"], by) for file in files for by in dict.fromkeys(row["by"] for row in file["rows"])]
    seen: dict[str, set[str]] = {}
    caught: dict[str, set[str]] = {}
    cells: dict[tuple[str, str, str], list[bool]] = {}
    for file in files:
        for row in file["rows"]:
            seen.setdefault(row["mutation"], set()).add(row["mutant"])
            if is_bad(row):
                caught.setdefault(row["mutation"], set()).add(row["mutant"])
            cells.setdefault((row["mutation"], file["backend"], row["by"]), []).append(is_bad(row))
    lines = ["# Broken kernels, and who finds them out", ""]
    lines += [f"- {file['backend']}: {file['device']}; commit {file['commit']}" for file in files]
    lines += [f"- absent: {name}: {why}" for file in files for name, why in file["absent"].items()]
    total, found = sum(map(len, seen.values())), sum(map(len, caught.values()))
    lines += ["", f"{len(seen)} mutations make {total} mutants; {found} of them are found out by someone.", ""]
    lines += [
        "Each cell says how many mutants were found out, of how many that ran there. Checkers saw the mutations of"
    ]
    lines += [
        "which the judge let a mutant pass and all races; reading is that of tests/text/reading.py.",
        "",
    ]
    lines += ["| mutation | " + " | ".join(f"{by} ({backend})" for backend, by in columns) + " |"]
    lines += ["|---" * (len(columns) + 1) + "|"]
    for name in seen:
        row = []
        for backend, by in columns:
            cell = cells.get((name, backend, by), [])
            row.append(f"{sum(cell)}/{len(cell)}" if cell else "")
        lines.append(f"| {name} | " + " | ".join(row) + " |")
    missed = [mutant for name in seen for mutant in sorted(seen[name] - caught.get(name, set()))]
    lines += ["", "## Found out by nobody", ""] + ([f"- {mutant}" for mutant in missed] or ["None."])
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend")
    parser.add_argument("--merge", nargs="+", type=Path)
    parser.add_argument("--commit", default="")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.merge:
        files = [json.loads(path.read_text()) for path in options.merge]
        text = report(files)
        command = f"python results/mutants.py --backend {{{','.join(file['backend'] for file in files)}}} --out NAME"
        options.out.with_suffix(".md").write_text(f"{text}\nCommand: `{command}`, then `--merge`\n")
    else:
        made = measure(options.backend, options.commit)
        options.out.with_suffix(".json").write_text(json.dumps(made, indent=1) + "\n")
        print(report([made]))


if __name__ == "__main__":
    main()
