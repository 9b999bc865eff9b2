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
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from redtune.backends import backend_named
from redtune.checkers import CHECKERS
from redtune.config import Config, choices, settled
from redtune.data import background
from redtune.dtypes import DTYPES, dtype_named
from redtune.operators import OPERATORS, operator_of, result_of
from redtune.plan import operands_of
from redtune.refusals import refusals
from redtune.render import render
from redtune.sampling import Flavour, is_problem, problem_of
from redtune.types import Device, Kernel, Problem
from tests.device.cases import Case, Operand, compare, make_case, plan_of
from tests.need import need

TREES = ("interleaved", "strided", "sequential")
WALKS = ("tile", "stride", "chunk")
ROOT = Path(__file__).resolve().parents[2]
VECTORS, ACCUMULATORS = (1, 4), (1, 4)
BLOCK, SECOND, TEAM, ITEMS, SPLIT = 32, 64, 8, 2, 4
ROOM = 400  # elements of an input with gaps and strides


Shape = tuple[int, int, int]
SOME: dict[str, Shape] = {"flat": (1, 99, 1), "rows": (9, 99, 1), "columns": (9, 99, 9), "ragged": (9, 99, 1)}


@dataclass(frozen=True)
class Job:
    """A kernel to run on neighbouring elements of these shapes from `first` on, and on `cases` inputs with gaps and
    strides; with pieces of its text replaced."""

    op: str
    dtype: str
    knobs: dict[str, Any]
    shapes: tuple[Shape, ...] = ()
    first: int = 1
    edits: tuple[tuple[str, str, int], ...] = ()  # (piece, what stands for it, which occurrence or -1 for all)
    layout: str = "flat"
    asked: dict[str, bool] = field(default_factory=dict)
    cases: int = 0

    def problem(self) -> Problem:
        """The problem, of the largest of its shapes."""
        shape = max(self.shapes, default=SOME[self.layout])
        problem = problem_of(self.op, self.dtype, self.layout, shape)
        return replace(problem, is_ragged=self.layout == "ragged", **self.asked)


@dataclass(frozen=True)
class Report:
    """What came of a job: refusals, or what is wrong with the results, and all that the simulator said."""

    refused: list[str]
    wrong: list[str]
    said: str


def simulate(jobs: Sequence[Job], folder: Path) -> list[Report]:
    """The reports of `jobs`, from a process that sees the simulator alone."""
    jobs = list(jobs)
    half = len(jobs) // 2 if len(jobs) > 20 else 0
    if half:
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(lambda part: simulate_here(part, folder), (jobs[:half], jobs[half:]))
        return first + second
    return simulate_here(jobs, folder)


def simulate_here(jobs: Sequence[Job], folder: Path) -> list[Report]:
    """The reports of `jobs` from one process."""
    folder = Path(tempfile.mkdtemp(dir=folder))
    (checker,) = CHECKERS["opencl"]
    simulator = checker.under(folder).environment
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
            timeout=900,
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
        problem, dialect = job.problem(), self.backend.dialect
        config = settled(replace(Config(), **job.knobs))
        reasons = refusals(config, problem, dialect, self.device)
        if reasons:
            return Report(reasons, [], "")
        kernel = render(problem, config, dialect, self.device)
        for piece, instead, which in job.edits:
            kernel = replace(kernel, source=edited(kernel.source, piece, instead, which))
        program = self.session.load(kernel, self.backend.compile(kernel, self.device))
        rng, tile = np.random.default_rng(job.first), BLOCK * config.items * config.vector
        cases = [in_a_row(problem, shape, job.first) for shape in job.shapes]
        cases += [make_case(problem, tile, rng, ROOM, 20) for _ in range(job.cases)]
        wrong = [text for case in cases for text in self.launch(program, kernel, case)]
        said = self.said.read_bytes()[before:].decode()
        # Clang counts its warnings there: an integer that is compared with itself, as operators do to find NaN.
        return Report([], wrong, re.sub(r"^\d+ warnings? generated\.\n", "", said, flags=re.MULTILINE))

    def launch(self, program: Any, kernel: Kernel, case: Case) -> list[str]:
        """What is wrong with the kernel's results.

        The input ends with its last element, and scratch and results are as large as they must be and hold nothing, so
        that a read beyond any of them, or of what no kernel wrote, is reported.
        """
        plan = plan_of(kernel.problem, kernel.config, case.sizes, self.backend.dialect, self.device)
        result = dtype_named(result_of(kernel.problem))
        size = int(case.out_at.max()) + 1
        given: dict[str, Any] = {name: self._filled(operand.memory) for name, operand in case.operands.items()}
        given |= {"offsets": self._filled(case.offsets)} if case.offsets is not None else {}
        given |= {"out": self._empty(size * result.bytes), "partials": self._empty(max(1, plan.partials_bytes))}
        counter = np.zeros(max(1, plan.counter_bytes), np.uint8)
        given["counter"] = self._filled(counter)
        given |= {**case.sizes, "parts": plan.parts, "ddof": case.ddof, "initial": case.initial}
        self.session.run(self.session.bind(program, plan.launches, given))
        bits = self.session.download(given["out"], np.empty(size, result.storage()))
        left = ["left its counter"] * bool(self.session.download(given["counter"], counter).any())
        return left + compare(result.decode(bits[case.out_at]), kernel.problem, plan, case)[0]

    def _filled(self, host: Any) -> Any:
        self.kept.append(self.session.upload(host))
        return self.kept[-1]

    def _empty(self, size: int) -> Any:
        buffer = self.session.cl.Buffer(self.session.context, self.session.cl.mem_flags.READ_WRITE, size)
        self.kept.append(buffer)
        return buffer


def in_a_row(problem: Problem, shape: Shape, first: int) -> Case:
    """Neighbouring elements in C order whose result is exact, behind `first` that win over every other."""
    (outer, n, inner), dtype = shape, dtype_named(problem.dtype)
    sizes = {"outer": outer, "n": n, "inner": inner, "out_outer": inner, "out_inner": 1}
    places = np.arange(outer * n * inner).reshape(shape).swapaxes(1, 2).reshape(-1, n)
    operands = {}
    for k, name in enumerate(operands_of(problem)):
        values = background(operator_of(problem), dtype, places.size, np.random.default_rng(n + k))
        extremes = [np.nan] if dtype.kind in ("float", "complex") else [*reversed(dtype.limits)]
        raw = np.concatenate([np.resize(np.array(extremes, object).astype(values.dtype), first + k), values])
        operands[name] = Operand(dtype.encode(raw), tuple(places + first + k))
        sizes |= {f"{name}_first": first + k, f"{name}_outer": n * inner, f"{name}_n": inner, f"{name}_inner": 1}
    return Case(sizes, operands, None, np.arange(outer * inner), 0, None, f"{sizes}")


def edited(text: str, piece: str, instead: str, which: int) -> str:
    """`text` with one occurrence of `piece` replaced, or with all of them for `which` -1."""
    places = [found.start() for found in re.finditer(re.escape(piece), text)]
    assert places, f"{piece!r} is not in the kernel"
    if which < 0:
        return text.replace(piece, instead)
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
        "second_block": SECOND,
        "blocks_per_cu": 3,
        "accumulators": 2,
    }
    return least | {"combine": "two_pass", "tree": "sequential", "walk": "stride"} | given


def shapes_for(layout: str, vector: int, teams: int = 1) -> tuple[Shape, ...]:
    """Elements for no tile, for almost one, for more tiles than blocks with a ragged end, and for whole tiles; fewer
    results than a block takes at once, and more than the grid does."""
    tile, many = BLOCK // teams * ITEMS * vector, 2 * teams + 1
    if layout == "flat":
        return tuple((1, n, 1) for n in (1, tile - 1, 4 * tile + BLOCK + 5, 3 * tile))
    if layout == "rows":
        return (1, 4 * tile + 5, 1), (2, tile, 1), (many, tile // 2 + 1, 1)
    return (1, 4 * tile + 5, 1), (2, tile, 1), (1, tile // 2 + 1, many)


def pairs(atomic: bool) -> list[tuple[str, str]]:
    """Every operator with every dtype that it has; or those that may leave their result to atomics."""
    everything = [(op, dtype) for op, dtype in itertools.product(OPERATORS, DTYPES) if is_problem(op, dtype, Flavour())]
    return [pair for pair in everything if is_atomic(*pair)] if atomic else everything


def is_atomic(op: str, dtype: str) -> bool:
    """Whether an atomic can hold the state and be the result."""
    backend, problem = backend_named("opencl"), problem_of(op, dtype, "flat", (1, 1, 1))
    config = settled(replace(Config(), combine="atomic", accumulators=1))
    return not refusals(config, problem, backend.dialect, backend.describe("plain"))


def every_fifth(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Every fifth dtype of each operator, in turns from the first to the fifth."""
    by_op = [list(rows) for _, rows in itertools.groupby(found, key=lambda pair: pair[0])]
    return [pair for k, rows in enumerate(by_op) for pair in rows[min(k % 5, len(rows) - 1) :: 5]]


def strategies() -> Iterator[Job]:
    """Every structure with each combine, and every operator that a combine has with every fifth of its dtypes."""
    structures = list(itertools.product(TREES, WALKS, VECTORS, ACCUMULATORS))
    for combine in ("two_pass", "atomic"):
        fitting = every_fifth(pairs(combine == "atomic"))
        for k in range(max(len(fitting), len(structures)) if combine == "two_pass" else len(structures)):
            op, dtype = fitting[k % len(fitting)]
            tree, walk, vector, chains = structures[k % len(structures)]
            vector = min(vector, 16 // DTYPES[dtype].bytes)
            is_float_sum = DTYPES[dtype].kind == "float" and OPERATORS[op].native == "add"
            if combine == "atomic" and walk == "tile" and is_float_sum:
                walk = "stride"  # so many blocks would round in turn
            chosen = small(
                combine=combine, tree=tree, walk=walk, vector=vector, accumulators=min(chains, ITEMS * vector)
            )
            # Every alignment that a wide load can meet comes by.
            yield Job(op, dtype, chosen, shapes_for("flat", vector), first=k % 5)


TALLIED = (("sum", "int32"), ("any", "float32"), ("count_nonzero", "int8"), ("all", "uint16"), ("sumsq", "int8"))


def tallied() -> Iterator[Job]:
    """Blocks that add up what they have, one word or two of it."""
    for k, (op, dtype) in enumerate(TALLIED):
        for walk, vector in itertools.product(("stride", "chunk"), VECTORS):
            chosen = small(combine="tally", tree=TREES[k % len(TREES)], walk=walk, vector=min(vector, 4))
            yield Job(op, dtype, chosen, shapes_for("flat", min(vector, 4)), first=k)


TEAMS = (0, 8, 2, 1)
APART: dict[str, Any] = {"split": 1, "second_block": 256}
JOINS = (APART, {"split": 2, "combine": "two_pass"}, {"split": 4, "combine": "atomic"})


def laid_out() -> Iterator[Job]:
    """Rows and columns in turns: trees over teams of every kind, blocks apart and together, over all operators."""
    for layout in ("rows", "columns"):
        fits = {False: itertools.cycle(pairs(False)[::7]), True: itertools.cycle(pairs(True)[::3])}
        structures = itertools.product(TEAMS, JOINS, TREES, WALKS[1:])
        for k, (team, join, tree, walk) in enumerate(structures):
            if k % 2 == (layout == "rows") or (team == 1 and (join["split"] != 1 or tree != TREES[0])):
                continue
            op, dtype = next(fits[join.get("combine") == "atomic"])
            vector = min(VECTORS[k // 2 % 2], 16 // DTYPES[dtype].bytes) if layout == "rows" else 1
            meet = {"exchange": "lds", "tree": tree} if team != 1 else {"exchange": "shuffle"}
            chosen = small(**{"walk": walk, "vector": vector, "blocks_per_cu": 1, **meet, **join, "team": team})
            shapes = shapes_for(layout, vector, BLOCK // team if team else 1)
            yield Job(op, dtype, chosen, shapes, first=k % 5, layout=layout, cases=1)


FLAGS = ({"is_masked": True}, {"is_seeded": True}, {"is_masked": True, "is_seeded": True}, {})
SEEDED = ("max", "sum", "bitwise_xor", "nanmin", "prod")


def flagged() -> Iterator[Job]:
    """Masks, initial values and rows of any length, with gaps and strides."""
    layouts = ("ragged", "rows", "columns", "flat")
    for k, (layout, asked, join) in enumerate(itertools.product(layouts, FLAGS, JOINS[:2])):
        op, dtype = SEEDED[k % len(SEEDED)], ("int32", "uint16", "int8")[k % 3]
        knobs = {"vector": (1, 4)[k // 2 % 2] if layout != "columns" else 1, "team": (0, 8)[k % 2], **join}
        chosen = small(tree=TREES[k % 3], blocks_per_cu=1, **knobs)
        if layout == "flat":
            chosen |= {"team": 0, "split": 1, "second_block": 64}
        yield Job(op, dtype, chosen, first=k, layout=layout, asked=dict(asked), cases=3)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Job, Report]]:
    need("oclgrind")
    jobs = [*strategies(), *tallied(), *laid_out(), *flagged()]
    return list(zip(jobs, simulate(jobs, tmp_path_factory.mktemp("sound")), strict=True))


def test_every_strategy_is_right(sound: list[tuple[Job, Report]]) -> None:
    wrong = [(job, report) for job, report in sound if report.refused or report.wrong]
    assert not wrong, f"{len(wrong)} of {len(sound)}:\n" + "\n".join(map(str, wrong[:20]))


def test_no_strategy_races_or_strays(sound: list[tuple[Job, Report]]) -> None:
    unsound = [f"{job}\n{report.said[:1500]}" for job, report in sound if report.said]
    assert not unsound, f"{len(unsound)} of {len(sound)}:\n" + "\n".join(unsound[:5])


LACKING = (
    ("tree", "unrolled", "sub-groups"),
    ("tree", "last_wave", "sub-groups"),
    ("exchange", "shuffle", "sub-groups"),
    ("exchange", "redux", "NVIDIA"),
    ("exchange", "dpp", "AMD"),
    ("combine", "last_block", "acquire-release"),
    ("combine", "cluster", "clusters"),
    ("combine", "collector", "wait for others"),
)


def test_a_plain_device_refuses_what_it_lacks(tmp_path: Path) -> None:
    need("oclgrind")
    many = 4 * BLOCK  # a tree has more than its tail
    jobs = [Job("max", "float32", small(block=many, **{name: choice}), ((1, 100, 1),)) for name, choice, _ in LACKING]
    for (_, _, why), report in zip(LACKING, simulate(jobs, tmp_path), strict=True):
        assert any(why in reason for reason in report.refused), report


@pytest.mark.parametrize("name", ["tree", "walk", "combine", "exchange"])
def test_every_choice_is_run_or_lacking(name: str) -> None:
    """A new choice of a structural knob belongs into one of the lists above."""
    run = {job.knobs[name] for job in (*strategies(), *tallied(), *laid_out())}
    assert run | {choice for knob, choice, _ in LACKING if knob == name} == set(choices(name))


# --- and a kernel that is broken is found out -------------------------------------------------------------------------

BARRIER = "barrier(CLK_LOCAL_MEM_FENCE);"
AT_THE_END = f"{BARRIER}  // shared memory is free for the next "
UNALIGNED = "not aligned"
RACE, STRAY_READ, STRAY_WRITE, UNWRITTEN = "data race", "Invalid read", "Invalid write", "ninitialized value"
MANY = ((1, 5 * BLOCK * ITEMS + 7, 1),)  # more than one block and a ragged end


def text_of(job: Job) -> str:
    """The kernel as it is emitted, for a device that can do everything."""
    backend = backend_named("opencl")
    config = settled(replace(Config(), **job.knobs))
    return render(job.problem(), config, backend.dialect, backend.describe("plain")).source


def meeting(layout: str, tree: str) -> Job:
    """A kernel with that tree in its main launch and its second pass: of teams, several groups of them, and parts."""
    if layout == "flat":
        return Job("max", "float32", small(tree=tree), MANY)
    knobs = small(tree=tree, split=SPLIT, team=TEAM, blocks_per_cu=1)
    many = (SPLIT + 1) * SECOND // SPLIT + 1  # results: more than the blocks of the second pass take at once
    shape = (many, TEAM * ITEMS + 1, 1) if layout == "rows" else (1, TEAM * ITEMS + 1, many)
    return Job("max", "float32", knobs, (*shapes_for(layout, 1, BLOCK // TEAM), shape), layout=layout)


MEETINGS = [(tree, layout) for tree in TREES for layout in ("flat", "rows", "columns")]
Edits = tuple[tuple[str, str, int], ...]


def barriers_gone(job: Job) -> list[Edits]:
    """Of the main kernel and of the second pass, each barrier of the tree in turn."""
    text = text_of(job)
    count = text.count(BARRIER) - text.count(AT_THE_END)
    assert count == 4
    assert text.count(AT_THE_END) == (0 if job.layout == "flat" else 2)
    return [((BARRIER, "", which),) for which in range(count)]


def ends_gone(job: Job) -> list[Edits]:
    """The last barrier of a tree, which holds the next group back as one at the end does; then each of those too."""
    steps = [1, 1] if job.knobs["tree"] == "sequential" else [TEAM // 2, SPLIT // 2]
    inside = f"        {BARRIER}\n    }}"
    fewer = tuple((inside, f"        if (s != {step}) {BARRIER}\n    }}", 0) for step in steps)
    return [fewer, *((*fewer, (AT_THE_END, "// ", which)) for which in (0, 1))]


@pytest.fixture(scope="module")
def unheld(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, str], list[Report]]:
    """Trees without some of their barriers, by what is gone, tree and layout; from one run of the simulator."""
    need("oclgrind")
    rows = []
    for tree, layout in MEETINGS:
        job = meeting(layout, tree)
        rows += [("inside", tree, layout, replace(job, edits=edits)) for edits in barriers_gone(job)]
        if layout != "flat":
            rows += [("end", tree, layout, replace(job, edits=edits)) for edits in ends_gone(job)]
    found: dict[tuple[str, str, str], list[Report]] = {}
    reports = simulate([row[-1] for row in rows], tmp_path_factory.mktemp("unheld"))
    for (what, tree, layout, _), report in zip(rows, reports, strict=True):
        found.setdefault((what, tree, layout), []).append(report)
    return found


@pytest.mark.parametrize("layout", ["flat", "rows", "columns"])
@pytest.mark.parametrize("tree", TREES)
def test_a_tree_without_one_of_its_barriers_races(
    tree: str, layout: str, unheld: dict[tuple[str, str, str], list[Report]]
) -> None:
    """Of the main kernel and of the second pass, each barrier in turn."""
    reports = unheld["inside", tree, layout]
    assert len(reports) == 4
    for which, report in enumerate(reports):
        assert RACE in report.said, f"barrier {which}: {report}"


@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("tree", TREES)
def test_the_barrier_at_the_end_of_a_group_holds_the_next_one_back(
    tree: str, layout: str, unheld: dict[tuple[str, str, str], list[Report]]
) -> None:
    """The last barrier of these trees does that too. Without it the kernel is still sound, and without both it races:
    in the main kernel, and in the second pass."""
    sound, *racing = unheld["end", tree, layout]
    assert not sound.wrong
    assert not sound.said
    assert len(racing) == 2
    for report in racing:
        assert RACE in report.said, report


TWO_PASS, WIDE, ATOMIC = small(walk="tile"), small(walk="tile", vector=4), small(walk="tile", combine="atomic")
ROWS = (2 * BLOCK // TEAM + 1, 2 * TEAM * ITEMS + 1, 1)
COLUMNS = (1, 2 * TEAM * ITEMS + 1, 2 * BLOCK // TEAM + 1)
PARTS = small(team=TEAM, split=2, blocks_per_cu=1)


def flat(op: str, knobs: dict[str, Any], piece: str, instead: str) -> Job:
    return Job(op, "float32", knobs, MANY, edits=((piece, instead, 0),))


def laid(layout: str, knobs: dict[str, Any], piece: str, instead: str, which: int = 0) -> Job:
    """A broken kernel of rows or columns, or of rows of any length."""
    at_once: dict[str, Any] = {"shapes": (COLUMNS if layout == "columns" else ROWS,)}
    given = at_once if layout != "ragged" else {"cases": 4}
    return Job("max", "float32", knobs, edits=((piece, instead, which),), layout=layout, **given)


COLUMN = "result / inner * out_outer + result % inner * out_inner"
FAULTS = {  # what the simulator calls it, and the broken kernel
    "an atomic that is none": (RACE, flat("max", ATOMIC, "merge_into(out + 0, state);", "out[0] = finish(state);")),
    "a read past the input": (STRAY_READ, flat("sum", TWO_PASS, "i < n;", "i <= n;")),
    "a read past the partials": (STRAY_READ, flat("sum", TWO_PASS, "i < parts ?", "i <= parts ?")),
    "a wide load off its alignment": (UNALIGNED, flat("max", WIDE, "% sizeof(raw_t)", "% 1")),
    "a write past the partials": (STRAY_WRITE, flat("argmax", TWO_PASS, "partials[block]", "partials[block + 1]")),
    "a slot never written": (UNWRITTEN, flat("max", TWO_PASS, "slots[thread] = state;", "")),
    "partials never written": (UNWRITTEN, flat("max", TWO_PASS, "partials[block] = state;", "partials[0] = state;")),
    "a result never reset": (UNWRITTEN, flat("max", ATOMIC, "out[0] = finish(identity());", "")),
    "a row read past its end": (STRAY_READ, laid("rows", PARTS, "i < n_here;", "i <= n_here;")),
    "a column read past its end": (STRAY_READ, laid("columns", PARTS, "i < n_here;", "i <= n_here;")),
    "offsets read past their end": (
        STRAY_READ,
        laid("ragged", PARTS, "is_there ? offsets[result] :", "result >= 0 ? offsets[result + 1] :"),
    ),
    "a result that is not there": (
        STRAY_WRITE,
        laid("rows", small(team=TEAM, **APART), "member == 0 && is_there", "member == 0"),
    ),
    "partials of a result that is not there": (
        STRAY_WRITE,
        laid("columns", PARTS, "member == 0 && is_there", "member == 0"),
    ),
    "partials of parts in one place": (
        UNWRITTEN,
        laid("rows", PARTS, "partials[result * parts + part] = state;", "partials[result * parts] = state;"),
    ),
    "an atomic on columns that is none": (
        RACE,
        laid(
            "columns",
            PARTS | {"combine": "atomic"},
            f"merge_into(out + {COLUMN}, state);",
            f"out[{COLUMN}] = finish(state);",
        ),
    ),
}


@pytest.fixture(scope="module")
def found_out(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    need("oclgrind")
    jobs = [job for _, job in FAULTS.values()]
    return dict(zip(FAULTS, simulate(jobs, tmp_path_factory.mktemp("broken")), strict=True))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_kernel_is_reported(fault: str, found_out: dict[str, Report]) -> None:
    assert FAULTS[fault][0] in found_out[fault].said, found_out[fault]


if __name__ == "__main__":
    main()
