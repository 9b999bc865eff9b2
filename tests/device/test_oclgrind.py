"""Kernels on oclgrind, a simulator of a plain OpenCL 1.2 device (no sub-groups, no device-scope atomics) that reports
data races, accesses out of bounds and values that were never written.

The simulator has to be the only platform when pyopencl is imported, so the kernels run in a process of their own: this
file run as a script, with jobs as JSON on stdin and reports as JSON on stdout.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from redtune.api import make_problem
from redtune.backends import backend_named
from redtune.config import Config, choices, settled
from redtune.data import background
from redtune.dtypes import DTYPES, dtype_named
from redtune.operators import OPERATORS, operator_named, result_type
from redtune.plan import make_plan
from redtune.refusals import refusals
from redtune.render import render
from redtune.types import Device, Problem
from tests.need import OCLGRIND, need

TREES = ("interleaved", "strided", "sequential")
WALKS = ("tile", "stride", "chunk")
ROOT = Path(__file__).resolve().parents[2]
VECTORS, ACCUMULATORS = (1, 4), (1, 4)
BLOCK, ITEMS = 32, 2


@dataclass(frozen=True)
class Job:
    """A kernel to run on `sizes` elements from `first` on, with pieces of its text replaced."""

    op: str
    dtype: str
    knobs: dict[str, Any]
    sizes: tuple[int, ...]
    first: int = 1
    edits: tuple[tuple[str, str, int], ...] = ()  # (piece, what stands for it, which occurrence)


@dataclass(frozen=True)
class Report:
    """What came of a job: refusals, or the results beside the right ones, and all that the simulator said."""

    refused: list[str]
    got: list[float]
    right: list[float]
    said: str


def simulate(jobs: Sequence[Job], folder: Path) -> list[Report]:
    """The reports of `jobs`, from a process that sees the simulator alone."""
    (folder / "oclgrind.icd").write_text(f"{OCLGRIND}\n")
    simulator = {
        "OCL_ICD_VENDORS": str(folder),
        "OCLGRIND_DATA_RACES": "1",
        "OCLGRIND_UNINITIALIZED": "1",
        "OCLGRIND_MAX_ERRORS": "1000000",  # beyond it the simulator is silent, and what comes after would seem sound
        # The optimiser makes 128-bit integers of 16-byte loads, which the interpreter of oclgrind 21.10 does not know.
        "OCLGRIND_BUILD_OPTIONS": "-cl-opt-disable",
    }
    # The simulator speaks on stderr: a file named by OCLGRIND_LOG is emptied again by each of a process's contexts.
    said = folder / "said"
    with said.open("ab") as stderr:
        done = subprocess.run(
            [sys.executable, "-m", "tests.device.test_oclgrind", str(said)],
            input=json.dumps([asdict(job) for job in jobs]).encode(),
            env={**os.environ, **simulator},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=stderr,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, said.read_text()[-2000:]
    return [Report(**row) for row in json.loads(done.stdout)]


# --- inside that process ----------------------------------------------------------------------------------------------


class Simulator:
    """The open simulator."""

    def __init__(self, said: Path) -> None:
        self.backend = backend_named("opencl")
        self.device: Device = self.backend.devices()[0]
        assert self.device.vendor == "Oclgrind", self.device
        # Memory borrowed from the host counts as never written here; what looks like a GPU gets copies of its inputs.
        self.session: Any = self.backend.open(replace(self.device, kind="gpu"))
        self.said = said
        # Held for good: what the simulator knows of a freed buffer it believes of the next one at the same address.
        self.kept: list[Any] = []

    def run(self, job: Job) -> Report:
        before = self.said.stat().st_size
        problem = make_problem(job.op, job.dtype, max(job.sizes))
        config = settled(replace(Config(), **job.knobs))
        reasons = refusals(config, problem, self.backend.dialect, self.device)
        if reasons:
            return Report(reasons, [], [], "")
        kernel = render(problem, config, self.backend.dialect, self.device)
        for piece, instead, which in job.edits:
            kernel = replace(kernel, source=edited(kernel.source, piece, instead, which))
        program = self.session.load(kernel, self.backend.compile(kernel, self.device))
        got, right = zip(*(self.reduce(program, problem, config, job.first, n) for n in job.sizes), strict=True)
        return Report([], list(got), list(right), self.said.read_bytes()[before:].decode())

    def reduce(self, program: Any, problem: Problem, config: Config, first: int, n: int) -> tuple[float, float]:
        """The kernel's result over `n` elements from `first` on, and the right one.

        The input ends with its last element, and scratch and result are as large as they must be and hold nothing, so
        that a read beyond any of them, or of what no kernel wrote, is reported.
        """
        op, dtype = operator_named(problem.op), dtype_named(problem.dtype)
        values = background(op, dtype, n, np.random.default_rng(n))
        # Elements before the first win over every other.
        extremes = [np.nan] if dtype.kind == "float" else [np.iinfo(dtype.name).max, np.iinfo(dtype.name).min]
        raw = np.concatenate([np.resize(np.asarray(extremes, values.dtype), first), values])
        data = self.session.upload(dtype.encode(raw))
        self.kept.append(data)
        plan = make_plan(replace(problem, n=n), config, self.backend.dialect, self.device)
        result = dtype_named(result_type(op, dtype))
        out = self._empty(result.bytes)
        given = {"data": data, "first": first, "n": n, "blocks": plan.blocks, "out": out}
        given |= {"partials": self._empty(max(1, plan.partials_bytes))}
        self.session.run(self.session.bind(program, plan.launches, given))
        bits = self.session.download(out, np.empty(1, result.storage()))
        reference = result.decode(result.encode(np.asarray([op.reference(dtype.decode(dtype.encode(values)))])))
        return result.decode(bits)[0].item(), reference[0].item()

    def _empty(self, size: int) -> Any:
        buffer = self.session.cl.Buffer(self.session.context, self.session.cl.mem_flags.READ_WRITE, size)
        self.kept.append(buffer)
        return buffer


def edited(text: str, piece: str, instead: str, which: int) -> str:
    """`text` with one occurrence of `piece` replaced."""
    places = [found.start() for found in re.finditer(re.escape(piece), text)]
    at = places[which]
    return text[:at] + instead + text[at + len(piece) :]


def main() -> None:
    simulator = Simulator(Path(sys.argv[1]))
    rows = json.load(sys.stdin)
    print(json.dumps([asdict(simulator.run(Job(**row))) for row in rows]))


# --- every strategy is right and clean --------------------------------------------------------------------------------


def small(**given: Any) -> dict[str, Any]:
    """Knobs of a small config, as the simulator is slow."""
    least = {
        "exchange": "lds",
        "block": BLOCK,
        "items": ITEMS,
        "second_block": 64,
        "blocks_per_cu": 3,
        "accumulators": 2,
    }
    return least | {"combine": "two_pass", "tree": "sequential", "walk": "stride"} | given


def sizes_for(vector: int) -> tuple[int, ...]:
    """Elements for no tile, for almost one, for more tiles than blocks with a ragged end, and for whole tiles."""
    tile = BLOCK * ITEMS * vector
    return 1, tile - 1, 4 * tile + BLOCK + 5, 3 * tile


def strategies() -> Iterator[Job]:
    """Every structure with each combine, and every operator and dtype that a combine has."""
    pairs = list(itertools.product(OPERATORS, DTYPES))
    fits = {"two_pass": pairs, "atomic": [(op, dtype) for op, dtype in pairs if is_atomic(op, dtype)]}
    structures = list(itertools.product(TREES, WALKS, VECTORS, ACCUMULATORS))
    for combine, fitting in fits.items():
        for k in range(max(len(fitting), len(structures))):
            op, dtype = fitting[k % len(fitting)]
            tree, walk, vector, chains = structures[k % len(structures)]
            vector = min(vector, 16 // DTYPES[dtype].bytes)
            chosen = small(
                combine=combine, tree=tree, walk=walk, vector=vector, accumulators=min(chains, ITEMS * vector)
            )
            # Every alignment that a wide load can meet comes by.
            yield Job(op, dtype, chosen, sizes_for(vector), first=k % 5)


def is_atomic(op: str, dtype: str) -> bool:
    """Whether an atomic can hold the state and be the result."""
    entry, problem = operator_named(op), make_problem(op, dtype)
    return len(entry.state) == 1 and result_type(entry, dtype_named(dtype)) == problem.accumulate


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Job, Report]]:
    need("oclgrind")
    jobs = list(strategies())
    return list(zip(jobs, simulate(jobs, tmp_path_factory.mktemp("sound")), strict=True))


def test_every_strategy_is_right(sound: list[tuple[Job, Report]]) -> None:
    wrong = [(job, report) for job, report in sound if report.refused or report.got != report.right]
    assert not wrong, "\n".join(map(str, wrong))


def test_no_strategy_races_or_strays(sound: list[tuple[Job, Report]]) -> None:
    unsound = [f"{job}\n{report.said[:1500]}" for job, report in sound if report.said]
    assert not unsound, f"{len(unsound)} of {len(sound)}:\n" + "\n".join(unsound[:5])


LACKING = (
    ("tree", "unrolled", "sub-groups"),
    ("exchange", "shuffle", "sub-groups"),
    ("exchange", "redux", "NVIDIA"),
    ("combine", "last_block", "acquire-release"),
    ("combine", "cluster", "clusters"),
)


def test_a_plain_device_refuses_what_it_lacks(tmp_path: Path) -> None:
    need("oclgrind")
    jobs = [Job("max", "float32", small(**{name: choice}), (100,)) for name, choice, _ in LACKING]
    for (_, _, why), report in zip(LACKING, simulate(jobs, tmp_path), strict=True):
        assert any(why in reason for reason in report.refused), report


@pytest.mark.parametrize("name", ["tree", "walk", "combine", "exchange"])
def test_every_choice_is_run_or_lacking(name: str) -> None:
    """A new choice of a structural knob belongs into one of the lists above."""
    run = {job.knobs[name] for job in strategies()}
    assert run | {choice for knob, choice, _ in LACKING if knob == name} == set(choices(name))


# --- and a kernel that is broken is found out -------------------------------------------------------------------------

BARRIER = "barrier(CLK_LOCAL_MEM_FENCE);"
UNALIGNED = "not aligned"
RACE, STRAY_READ, STRAY_WRITE, UNWRITTEN = "data race", "Invalid read", "Invalid write", "ninitialized value"
MANY = (5 * BLOCK * ITEMS + 7,)  # more than one block and a ragged end


def text_of(job: Job) -> str:
    """The kernel as it is emitted, for a device that can do everything."""
    backend = backend_named("opencl")
    config, problem = settled(replace(Config(), **job.knobs)), make_problem(job.op, job.dtype)
    return render(problem, config, backend.dialect, backend.describe("plain")).source


@pytest.mark.parametrize("tree", TREES)
def test_a_tree_without_one_of_its_barriers_races(tree: str, tmp_path: Path) -> None:
    """Of the main kernel and of the second pass, each barrier in turn."""
    need("oclgrind")
    job = Job("max", "float32", small(tree=tree), MANY)
    count = text_of(job).count(BARRIER)
    assert count >= 4
    reports = simulate([replace(job, edits=((BARRIER, "", which),)) for which in range(count)], tmp_path)
    for which, report in enumerate(reports):
        assert RACE in report.said, f"barrier {which}: {report}"


TWO_PASS, WIDE, ATOMIC = small(walk="tile"), small(walk="tile", vector=4), small(walk="tile", combine="atomic")
FAULTS = {  # (what the simulator calls it, operator, knobs, the edit)
    "an atomic that is none": (RACE, "max", ATOMIC, ("merge_into(out, state);", "out[0] = finish(state);")),
    "a read past the input": (STRAY_READ, "sum", TWO_PASS, ("i < n;", "i <= n;")),
    "a read past the partials": (STRAY_READ, "sum", TWO_PASS, ("i < count;", "i <= count;")),
    "a wide load off its alignment": (UNALIGNED, "max", WIDE, ("% sizeof(raw_t)", "% 1")),
    "a write past the partials": (STRAY_WRITE, "argmax", TWO_PASS, ("partials[block]", "partials[block + 1]")),
    "a slot never written": (UNWRITTEN, "max", TWO_PASS, ("slots[thread] = state;", "")),
    "partials never written": (UNWRITTEN, "max", TWO_PASS, ("partials[block] = state;", "partials[0] = state;")),
    "a result never reset": (UNWRITTEN, "max", ATOMIC, ("out[0] = finish(identity());", "")),
}


@pytest.fixture(scope="module")
def found_out(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    need("oclgrind")
    jobs = [Job(op, "float32", knobs, MANY, edits=((*edit, 0),)) for _, op, knobs, edit in FAULTS.values()]
    return dict(zip(FAULTS, simulate(jobs, tmp_path_factory.mktemp("broken")), strict=True))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_kernel_is_reported(fault: str, found_out: dict[str, Report]) -> None:
    assert FAULTS[fault][0] in found_out[fault].said, found_out[fault]


if __name__ == "__main__":
    main()
