"""How soon a search finds the best: a part of the space measured in full, and searches replayed over that table.

    python results/search_quality.py measure --op sum --n 2**24 --n 2**28 --out DIR [--backend cuda]
    python results/search_quality.py replay DIR/*.json [--replays 100] [--trials 40] --out results/NAME

The first needs the device and writes a file of JSON for each size: every config of the part with its median, in
chunks taken in turns. The second needs none: `redtune.tuner.Search` itself proposes, and the table answers for the
device. It writes NAME.md. "Best" is the table's; noise of the table is noise of the replay, so no replay can be better
than that. A search on a device that redtune ships nothing for is what is asked: shipped configs are not looked up.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import sys
import tempfile
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from redtune import tuner
from redtune.arguments import parse_n
from redtune.backends import backend_named
from redtune.clock import is_time
from redtune.config import Config, default_of, settled
from redtune.lab import Compiled, Lab, find_device
from redtune.problems import make_problem
from redtune.refusals import is_legal
from redtune.render import render
from redtune.space import Space, make_space
from redtune.store import Found
from redtune.types import Device, Kernel, Problem, Timing, Trial, Verdict, as_json, from_json

# The part of the space: what matters most for flat reductions; everything else is at its default.
PART: dict[str, tuple[Any, ...]] = {
    "block": (128, 256, 512, 1024),
    "vector": (2, 4),
    "items": (2, 4, 8, 16),
    "accumulators": (4,),
    "walk": ("tile", "stride"),
    "blocks_per_cu": (1, 2, 4, 8),
    "combine": ("two_pass", "last_block", "collector", "atomic"),
    "hint": ("none", "streaming"),
}
CHUNK = 256  # configs that are timed in turns
ROUNDS = 5
SHOWN = (5, 10, 15, 20, 30, 40)  # numbers of trials in the table
MOST_OFF = (0.02, 0.05)  # of the best: the median of replays, and nine of ten


# --- measuring --------------------------------------------------------------------------------------------------------


def part_of(problem: Problem, device: Device) -> list[Config]:
    """Every legal config of the part, in an order of chance, so that a drift of the machine meets all alike."""
    dialect = backend_named(device.backend).dialect
    crossed = (dict(zip(PART, values, strict=True)) for values in itertools.product(*PART.values()))
    configs = dict.fromkeys(settled(Config(**values)) for values in crossed)
    found = [config for config in configs if is_legal(config, problem, dialect, device)]
    random.Random(0).shuffle(found)
    return found


def measure(options: argparse.Namespace) -> int:
    """Times every config of the part at every size and writes what they took."""
    device = find_device(options.backend, options.device)
    sizes = [parse_n(text) or 0 for text in options.n]
    problems = [make_problem(options.op, options.dtype, n) for n in sizes]
    Path(options.out).mkdir(parents=True, exist_ok=True)
    with Lab(device, problems[0]) as lab:
        # The text of a kernel serves every size, so it is compiled once.
        first = {config: render(problems[0], config, lab.dialect, device) for config in part_of(problems[0], device)}
        ahead = {config: lab.compile_ahead(kernel) for config, kernel in first.items()}
        for problem in problems:
            rows: list[tuple[Config, float]] = []
            configs = [config for config in part_of(problem, device) if config in ahead]
            for at in range(0, len(configs), CHUNK):
                chunk = configs[at : at + CHUNK]
                kernels = [render(problem, config, lab.dialect, device) for config in chunk]
                compiled = [
                    replace(ahead[config].result(), kernel=kernel)
                    for config, kernel in zip(chunk, kernels, strict=True)
                ]
                compiled = [one for one in compiled if one.binary is not None]
                found = lab.beside(problem, compiled, ROUNDS, with_libraries=False)
                for one, samples in zip(compiled, found.samples, strict=True):
                    if samples and all(map(is_time, samples)):
                        rows.append((one.kernel.config, statistics.median(samples) * 1e6))
            write(options, device, problem, rows)
            print(f"{problem.op} of {problem.n} {problem.dtype}: {len(rows)} of {len(configs)} configs", flush=True)
    return 0


def write(options: argparse.Namespace, device: Device, problem: Problem, rows: list[tuple[Config, float]]) -> None:
    """One table."""
    path = Path(options.out) / f"{problem.op}-{problem.dtype}-{problem.n}.json"
    changed = [({name: v for name, v in as_json(c).items() if v != default_of(name)}, round(us, 4)) for c, us in rows]
    head = {"device": as_json(device), "problem": as_json(problem), "commit": options.commit}
    path.write_text(json.dumps(head | {"rows": changed}))


# --- replaying --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """What every config of the part took, in microseconds."""

    device: Device
    problem: Problem
    commit: str
    times: dict[Config, float]

    @property
    def best(self) -> float:
        """The least of them."""
        return min(self.times.values())


def read(path: str) -> Table:
    """A table that `measure` wrote."""
    said = json.loads(Path(path).read_text())
    times = {replace(Config(), **changed): us for changed, us in said["rows"]}
    return Table(from_json(Device, said["device"]), from_json(Problem, said["problem"]), said["commit"], times)


@dataclass(frozen=True, slots=True)
class Part(Space):
    """A space of the configs of a table alone."""

    only: frozenset[Config] = frozenset()

    def allows(self, config: Config) -> bool:
        """Whether the table has it."""
        return config in self.only


class Answers:
    """In the place of a lab: the table answers, and nothing runs."""

    jobs = 1

    def __init__(self, table: Table) -> None:
        self.table = table
        self.dialect = backend_named(table.device.backend).dialect

    def ceiling(self, data_bytes: int) -> Timing:
        """Out of reach, so that no search stops early."""
        return Timing(1e-9, 0.0, 1)

    def compile_ahead(self, kernel: Kernel) -> Future[Compiled]:
        """Compiled already."""
        done: Future[Compiled] = Future()
        done.set_result(Compiled(kernel, ""))
        return done

    def trial(self, compiled: Compiled, best_us: float | None) -> Trial:
        """What the table has."""
        config = compiled.kernel.config
        return Trial(config, compiled.kernel.digest, Verdict.OK, self.table.times[config], 0.0, 0.0, "")

    def close(self) -> None:
        """Nothing is open."""


class Replay(tuner.Search):
    """A search up to its finals."""

    def _decide(self) -> None:
        pass


def replayed(table: Table, trials: int, seed: int) -> list[float]:
    """How far a search is from the best after each trial."""
    search = Replay(
        table.problem, table.device, trials=trials, time_limit_s=3600, seed=seed, study=f"{seed}", lab=Answers(table)
    )
    took = [trial.micros or 0.0 for trial in search.run().trials]
    return [least / table.best - 1 for least in itertools.accumulate(took, min)]


def drawn(table: Table, trials: int, seed: int) -> list[float]:
    """The same for configs drawn at random, none twice."""
    took = random.Random(seed).sample(list(table.times.values()), trials)
    return [least / table.best - 1 for least in itertools.accumulate(took, min)]


def off_after(rows: list[list[float]], k: int) -> tuple[float, float]:
    """The median and the ninth tenth of how far replays are from the best after k trials."""
    off = sorted(row[min(k, len(row)) - 1] for row in rows)
    return statistics.median(off), off[int(0.9 * (len(off) - 1))]


def told(table: Table, replays: int, trials: int) -> str:
    """A section of the page."""
    searches = [replayed(table, trials, seed) for seed in range(replays)]
    chance = [drawn(table, trials, seed) for seed in range(replays)]
    p = table.problem
    close = sum(us <= (1 + MOST_OFF[0]) * table.best for us in table.times.values())
    most, each_most = (f"{share:.0%}" for share in MOST_OFF)
    lines = [
        f"## {p.op} of {p.n} {p.dtype}",
        "",
        f"{len(table.times)} configs from {table.best:.2f} to {max(table.times.values()):.2f} us; "
        f"{close} of them are within {most} of the best.",
        "",
        "| trials | search, median | search, nine of ten | random, median | random, nine of ten |",
        "|---|---|---|---|---|",
    ]
    for k in [k for k in SHOWN if k <= trials]:
        cells = [f"{100 * off:.1f} %" for off in (*off_after(searches, k), *off_after(chance, k))]
        lines.append(f"| {k} | {' | '.join(cells)} |")
    median, tenth = off_after(searches, trials)
    behind = [k for k in range(1, trials + 1) if off_after(searches, k)[0] > off_after(chance, k)[0]]
    lines += [
        "",
        f"Within {most} in the median after {trials} trials: {'yes' if median <= MOST_OFF[0] else 'no'}; "
        f"within {each_most} in nine of ten: {'yes' if tenth <= MOST_OFF[1] else 'no'}; "
        f"behind random in the median after {', '.join(map(str, behind)) or 'no number of'} trials.",
    ]
    return "\n".join(lines)


def replay(options: argparse.Namespace) -> int:
    """Replays every table and writes the page."""
    tables = [read(path) for path in options.tables]
    tuner.store.lookup = lambda problem, dialect, device, temperature: Found(  # nothing is shipped or stored
        tuner.default_config(problem, dialect, device), "default"
    )
    tuner.store.candidates = lambda problem, device, temperature: iter(())
    tuner.store.append_row = lambda device, problem, trial, when: None
    sections = []
    with tempfile.TemporaryDirectory() as cache:
        os.environ["REDTUNE_CACHE"] = cache
        for table in tables:

            def part(*given: Any, only: frozenset[Config] = frozenset(table.times), **more: Any) -> Part:
                space = make_space(*given, **more)
                admitted = {name: PART.get(name, (default_of(name),)) for name in space.admitted}
                return Part(space.problem, space.dialect, space.device, space.fixed, admitted, (), only)

            tuner.make_space = part  # type: ignore[assignment]
            sections.append(told(table, options.replays, options.trials))
            print(sections[-1], flush=True)
    device = tables[0].device
    part_of_space = ", ".join(f"{name} {list(values)}" for name, values in PART.items())
    head = [
        f"# How soon a search finds the best, on {device.name}",
        "",
        f"Tables measured at commit {tables[0].commit} on {device.name} ({device.arch}), driver {device.driver}, "
        f"{device.toolchain}, cold, by `python results/search_quality.py measure`; {options.replays} replays of "
        f"{options.trials} trials each, seeds from 0, sampler tpe, nothing shipped or stored, by `python "
        f"results/search_quality.py replay`. The part of the space: {part_of_space}. Random draws none twice; a search "
        "begins with the default and what `redtune.defaults` names.",
        "",
    ]
    Path(f"{options.out}.md").write_text("\n".join([*head, "\n\n".join(sections), ""]))
    return 0


def main() -> int:
    """Measures or replays."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    measuring = verbs.add_parser("measure")
    measuring.add_argument("--op", default="sum")
    measuring.add_argument("--dtype", default="float32")
    measuring.add_argument("--n", action="append", required=True)
    measuring.add_argument("--backend")
    measuring.add_argument("--device", type=int, default=0)
    measuring.add_argument("--commit", default="unknown")
    measuring.add_argument("--out", required=True)
    replaying = verbs.add_parser("replay")
    replaying.add_argument("tables", nargs="+")
    replaying.add_argument("--replays", type=int, default=100)
    replaying.add_argument("--trials", type=int, default=40)
    replaying.add_argument("--out", required=True)
    options = parser.parse_args()
    return measure(options) if options.verb == "measure" else replay(options)


if __name__ == "__main__":
    raise SystemExit(main())
