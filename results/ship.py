"""The configs that come with redtune: a shortlist timed on this device, problem by problem, the most wanted first.

    python results/ship.py --compile-only DIR --backend cuda --arch sm_90
    python results/ship.py --out configs --binaries DIR --commit REV --time-limit 400 [--ops sum,max] [--dtypes float32]

The first needs no device: it compiles every config that may be tried into DIR. The second writes
configs/<backend>-<arch>/<operator>-<dtype>.yaml on whichever device is there, every minute and at the end; rows of
other sizes that a file has are kept. Candidates
of a problem are timed in turns, the best of them once more beside the default; one is shipped when it beats the default
beyond noise, else the default is. The judge proves each kernel right on a problem of moderate size first, as its text
serves every size; one that fails is dropped and named.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from shipping import Binaries, Shipper, compile_all
from shortlist import DTYPE_ORDER, OPS, grid, importance

from redtune.arguments import parse_n, parse_names, parse_shape
from redtune.backends import backend_named
from redtune.entries import MAX_WORD
from redtune.errors import UsageError
from redtune.keys import buckets
from redtune.lab import find_device
from redtune.operators import OPERATORS
from redtune.problems import make_problem
from redtune.render import templates_digest
from redtune.shipped import Row, Sheet, sheet_text, with_older
from redtune.store import folder_name, format_number
from redtune.tuner import versions
from redtune.types import Device, Problem

WRITE_EVERY_S = 60.0
NO_LIMIT_S = 1e9


def commit() -> str:
    """The commit of the checkout this file lies in."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def wanted(options: argparse.Namespace) -> list[Problem]:
    """The problems asked for, the most wanted first."""
    if options.table:
        return behind(Path(options.table), options.below)
    found = []
    for op in parse_names(options.ops) or OPS:
        for dtype in parse_names(options.dtypes) or DTYPE_ORDER:
            try:
                found += own_sizes(options, op, dtype) or grid(op, dtype)
            except UsageError:
                if op not in OPERATORS or dtype not in DTYPE_ORDER:
                    raise
                continue  # the operator has no meaning for the dtype
    layouts = parse_names(options.layouts) or ("flat", "rows", "columns")
    # Of a size class one: a file has no room for more.
    each = {(p.op, p.dtype, p.layout, buckets(p)): p for p in found if p.layout in layouts}
    return sorted(each.values(), key=importance)


def behind(path: Path, below: float) -> list[Problem]:
    """The problems of a table of `redtune bench --csv` in which a library is ahead, or no further behind than `below`
    says: the worst first."""
    with path.open(newline="") as file:
        cells = {(row["op"], row["dtype"], row["layout"], row["size"]): row for row in csv.DictReader(file)}
    rows = sorted((row for row in cells.values() if row["speedup"]), key=lambda row: float(row["speedup"]))
    return [
        make_problem(row["op"], row["dtype"], int(row["n"]), outer=int(row["outer"]), inner=int(row["inner"]))
        for row in rows
        if float(row["speedup"]) < below
    ]


def own_sizes(options: argparse.Namespace, op: str, dtype: str) -> list[Problem]:
    """The sizes that are named instead of the grid's."""
    rows = [parse_shape(text) or () for text in parse_names(options.rows)]
    columns = [parse_shape(text) or () for text in parse_names(options.columns)]
    return [
        *(make_problem(op, dtype, parse_n(text) or 0) for text in parse_names(options.flat)),
        *(make_problem(op, dtype, shape[1], outer=shape[0]) for shape in rows),
        *(make_problem(op, dtype, shape[0], inner=shape[1]) for shape in columns),
    ]


def command(options: argparse.Namespace) -> str:
    """What to type for the same rows again."""
    said = ("ops", "dtypes", "layouts", "flat", "rows", "columns")
    words = [f"--{name} {getattr(options, name)}" for name in said if getattr(options, name)]
    if options.table:  # by its name: where it lies is the machine's own
        words += [f"--table {Path(options.table).name}", f"--below {options.below:g}"]
    words += [f"--binaries {Path(options.binaries).name}"] if options.binaries else []
    words += ["--steps"] if options.steps else []
    words += [f"--time-limit {options.time_limit:g}"] if options.time_limit < NO_LIMIT_S else []
    return " ".join(["python results/ship.py", *words])


def sheet_of(device: Device, op: str, dtype: str, rows: Sequence[Row], options: argparse.Namespace) -> Sheet:
    """Rows of an operator and a dtype as a file."""
    return Sheet(
        format=format_number(),
        op=op,
        dtype=dtype,
        device=device,
        templates=templates_digest(),
        commit=options.commit or commit(),
        command=command(options)[:MAX_WORD],
        found=datetime.datetime.now(datetime.UTC).date().isoformat(),
        seed=options.seed,
        temperature="cold",
        determinism="any",
        versions=versions(),
        rows=tuple(rows),
    )


def path_of(sheet: Sheet, options: argparse.Namespace) -> Path:
    """Where a file goes."""
    return Path(options.out) / folder_name(sheet.device) / sheet.file_name


def check_kept(device: Device, problems: Sequence[Problem], options: argparse.Namespace) -> None:
    """Raises UsageError where a file has rows that cannot be kept: now, and not once all is measured."""
    for op, dtype in dict.fromkeys((problem.op, problem.dtype) for problem in problems):
        empty = sheet_of(device, op, dtype, (), options)
        with_older(empty, path_of(empty, options))


def write(shipper: Shipper, options: argparse.Namespace) -> int:
    """Writes every file with what is proven so far; how many rows that is."""
    proven = shipper.proven_rows()
    for (op, dtype), rows in proven.items():
        sheet = sheet_of(shipper.device, op, dtype, rows, options)
        path = path_of(sheet, options)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(sheet_text(with_older(sheet, path)))
    return sum(map(len, proven.values()))


def measure(device: Device, problems: list[Problem], options: argparse.Namespace) -> int:
    """Times, proves and writes until all is done or the time is up. The exit code."""
    check_kept(device, problems, options)
    began = last = time.monotonic()
    end = began + options.time_limit
    binaries = Binaries(Path(options.binaries)) if options.binaries else None
    done = 0
    with Shipper(device, binaries, options.seed, options.steps) as shipper:
        for problem, result in shipper.timed(problems, end):
            done += 1
            print(result, flush=True)
            if options.log:
                with Path(options.log).open("a") as file:
                    file.write(json.dumps(shipper.log_of(problem)) + "\n")
            if time.monotonic() - last > WRITE_EVERY_S:
                shipper.prove()
                print(f"{done} of {len(problems)} problems, {write(shipper, options)} rows written", flush=True)
                last = time.monotonic()
        shipper.prove()
        rows = write(shipper, options)
        print(f"{done} of {len(problems)} problems, {rows} rows written, {time.monotonic() - began:.0f} s")
        for text in shipper.failures:
            print(text)
    return 0 if rows else 1


def main() -> int:
    """Compiles, or measures and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="configs")
    parser.add_argument("--compile-only", metavar="DIR", help="compile the candidates of --arch, measure nothing")
    parser.add_argument("--binaries", metavar="DIR", help="what --compile-only left; nothing else is compiled")
    parser.add_argument("--backend")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--commit", default="", help="where the checkout has no history")
    parser.add_argument("--time-limit", type=float, default=NO_LIMIT_S, help="seconds, the proofs included")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", action="store_true", help="try what is one step from what is shipped, too")
    parser.add_argument("--log", metavar="FILE", help="lines of JSON: every candidate with its time")
    for name, example in (("ops", "sum,max"), ("dtypes", "float32,int8"), ("layouts", "flat,rows")):
        parser.add_argument(f"--{name}", help=f"only these: {example}")
    for name, example in (("flat", "2**10,2**20"), ("rows", "10000x512"), ("columns", "512x10000")):
        parser.add_argument(f"--{name}", help=f"these sizes instead of the grid: {example}")
    parser.add_argument("--table", metavar="CSV", help="the problems of a table of redtune bench, those behind first")
    parser.add_argument("--below", type=float, default=1.1, help="of a table: speed-ups over the best library")
    options = parser.parse_args()
    problems = wanted(options)
    if options.compile_only:
        device = backend_named(options.backend or "cuda").describe(options.arch)
        compile_all(device, problems, Binaries(Path(options.compile_only)), time.monotonic() + options.time_limit)
        return 0
    return measure(find_device(options.backend, options.device), problems, options)


if __name__ == "__main__":
    raise SystemExit(main())
