"""What each way for blocks to meet costs: for flat problems the best of a few shapes with each, in turns in one run,
beside the libraries. Random data, cold inputs; what the kernels give is compared, and nothing is judged.

    python results/finishes.py --ops sum,max --dtypes float32 --flat 2**16,2**20 [--backend cuda] [--time-limit 120]

It prints a table in Markdown: microseconds, the median of so many rounds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from redtune.arguments import parse_n, parse_names
from redtune.clock import summary
from redtune.config import Config, choices
from redtune.defaults import fitted
from redtune.dtypes import dtype_named
from redtune.errors import UsageError
from redtune.lab import Lab, find_device
from redtune.problems import make_problem
from redtune.refusals import MAX_CHAIN, is_legal
from redtune.render import render
from redtune.types import Device, Problem

ROUNDS = 9
FINISHES: dict[str, list[dict[str, Any]]] = {
    "last block": [{"combine": "last_block"}],
    "collector": [{"combine": "collector"}],
    "atomic": [{"combine": "atomic"}],
    "tally": [{"combine": "tally"}],
    "second pass": [{"combine": "two_pass"}],
    "early second pass": [
        {"combine": "two_pass", "second_launch": "early", "second_block": number} for number in (64, 256, 1024)
    ],
}
SHAPES = ((128, 2), (256, 1), (256, 2), (256, 4), (256, 8), (512, 1), (512, 2), (512, 4), (1024, 1))  # block, items
MOST_BLOCKS = 32  # per compute unit
LOAD_BYTES = 16


def configs_of(problem: Problem, finish: str, lab: Lab, device: Device) -> Iterator[Config]:
    """The legal shapes with a finish: a block for each tile, and blocks that stride."""
    vector = max(1, LOAD_BYTES // dtype_named(problem.dtype).bytes)
    for block, items in SHAPES:
        held = items * vector
        tiles = -(-problem.n // (block * held))
        each = next((int(b) for b in choices("blocks_per_cu") if int(b) * device.compute_units >= tiles), MOST_BLOCKS)
        if not 4 <= tiles <= MOST_BLOCKS * device.compute_units:
            continue
        chains = next(int(a) for a in choices("accumulators") if int(a) * MAX_CHAIN >= held and int(a) >= min(4, held))
        base = replace(Config(), block=block, vector=vector, items=items, accumulators=chains)
        for walk in ({"walk": "tile"}, {"walk": "stride", "blocks_per_cu": each}):
            for more in FINISHES[finish]:
                config = fitted(replace(base, **walk, **more), problem, lab.dialect)
                if is_legal(config, problem, lab.dialect, device):
                    yield config


def row_of(problem: Problem, lab: Lab, device: Device) -> dict[str, float]:
    """The best time in us with each finish, and that of each library."""
    by_config = {c: finish for finish in FINISHES for c in configs_of(problem, finish, lab, device)}
    futures = [lab.compile_ahead(render(problem, config, lab.dialect, device)) for config in by_config]
    made = [one for one in (future.result() for future in futures) if one.binary is not None]
    found = lab.beside(problem, made, ROUNDS, with_libraries=True)
    for answer in found.answers:
        if answer.is_odd:
            print(f"{problem.op} of {problem.n} {problem.dtype}: {answer}", file=sys.stderr)
    best: dict[str, float] = {}
    for one, samples in zip(made, found.samples, strict=True):
        finish, us = by_config[one.kernel.config], summary(samples).median_us
        best[finish] = min(us, best.get(finish, us))
    return best | {name: summary(samples).median_us for name, samples, _ in found.libraries}


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="sum,max,argmax,norm_l2,logsumexp,var")
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--flat", default="2**16,2**18,2**20,2**22")
    parser.add_argument("--backend")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=1e9, help="seconds")
    options = parser.parse_args()
    device, end = find_device(options.backend, options.device), time.monotonic() + options.time_limit
    rows: dict[str, dict[str, float]] = {}
    with Lab(device, make_problem("sum")) as lab:
        for n in (parse_n(text) or 1 for text in parse_names(options.flat)):
            for op in parse_names(options.ops):
                for dtype in parse_names(options.dtypes):
                    if time.monotonic() > end:
                        print(f"the time was up before {op} of {n} {dtype}", file=sys.stderr)
                        continue
                    try:
                        rows[f"{op} {dtype} {n}"] = row_of(make_problem(op, dtype, n), lab, device)
                    except UsageError as error:
                        print(error, file=sys.stderr)
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    print(f"| flat | {' | '.join(names)} |")
    print("|---" * (len(names) + 1) + "|")
    for title, row in rows.items():
        print(f"| {title} | {' | '.join(f'{row[name]:.2f}' if name in row else '-' for name in names)} |")
    return 0 if rows else 1


if __name__ == "__main__":
    raise SystemExit(main())
