"""What the judge does not look at: masks, initial values, rows of any length, strides of any kind, and how close the
sums of many positive values are. A backend's test file inherits both suites."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from redtune.api import make_problem
from redtune.backends import backend_named
from redtune.config import Config
from redtune.defaults import default_config
from redtune.errors import RedtuneError
from redtune.lab import Compiled, Lab
from redtune.operators import OPERATORS, operator_of
from redtune.render import render
from redtune.sampling import Demands, drawn, drawn_lightly, flavours, pairs, problem_of, strata
from redtune.types import Device, Kernel, Problem
from tests.device.contract import PATIENCE_S, first_device
from tests.device.station import hired
from tests.need import need

SEED = 7
# More in all than one tile of any default: the pieces below are those of whole tiles as well.
SHAPES = {"flat": (1, 20_001, 1), "rows": (50, 777, 1), "columns": (3, 300, 40), "ragged": (50, 777, 1)}
ASKED = ({}, {"is_masked": True}, {"is_seeded": True}, {"is_masked": True, "is_seeded": True})


@dataclass(frozen=True)
class Told:
    """What a worker said about one kernel: its answer, or why there is none."""

    problem: Problem
    config: Config
    said: dict[str, Any]
    fault: str = ""
    is_compilers: bool = False

    def __str__(self) -> str:
        return f"{self.fault or self.said}: {self.problem} {self.config}"


class Asking(Lab):
    """A lab whose worker is the tests' own."""

    def ask(self, compiled: Compiled, job: str, **more: Any) -> Told:
        """The worker's answer to a job with a kernel."""
        kernel = compiled.kernel
        if compiled.binary is None:
            return Told(kernel.problem, kernel.config, {}, compiled.note, compiled.note.startswith("the compiler"))
        try:
            said = self._opened().ask(job, PATIENCE_S, **compiled.as_job(), **more)
        except RedtuneError as error:
            return Told(kernel.problem, kernel.config, {}, f"{type(error).__name__}: {error}")
        return Told(kernel.problem, kernel.config, said)


def ask_all(device: Device, jobs: Sequence[tuple[Problem, Config, str, dict[str, Any]]]) -> list[Told]:
    """The answers to jobs, (problem, config, job, arguments) each; a kernel that several share is compiled once."""
    with pytest.MonkeyPatch.context() as patch, hired(), Asking(device, make_problem("max")) as lab:
        patch.setattr("redtune.lab.COMPILE_LIMIT_S", PATIENCE_S)
        kernels = {(p, c): render(p, c, lab.dialect, device) for p, c, _, _ in jobs}
        ahead = {key: lab.compile_ahead(kernel) for key, kernel in kernels.items()}
        return [lab.ask(ahead[p, c].result(), job, **more) for p, c, job, more in jobs]


def complaint(rows: Sequence[Told]) -> str:
    return f"{len(rows)}:\n" + "\n".join(map(str, rows))


# --- masks, initial values, ragged rows, strides ----------------------------------------------------------------------


def flagged(device: Device, count: int) -> Iterator[tuple[Problem, Config]]:
    """Problems of every layout with every flag, over operators, dtypes and strategies."""
    rng = random.Random(SEED)
    rows = {layout: strata("rows" if layout == "ragged" else layout) for layout in SHAPES}
    rows = {layout: rng.sample(list_, len(list_)) for layout, list_ in rows.items()}
    wanted = itertools.cycle(itertools.product(ASKED, SHAPES))
    given = {asked: itertools.cycle(list(pairs(rng))) for asked in range(len(ASKED))}
    found = 0
    while found < count:
        asked, layout = next(wanted)
        problem = next(filter(None, (_with(asked, layout, pair, rng) for pair in given[ASKED.index(asked)])))
        config = _of_next_stratum(problem, device, rows[layout], rng)
        if config is not None:
            found += 1
            yield problem, config


def _with(asked: dict[str, Any], layout: str, pair: tuple[str, str], rng: random.Random) -> Problem | None:
    """The problem with its flags, where they have a meaning."""
    kinds = flavours(*pair)
    # An integer product as a float leaves the range of floats.
    kind = rng.choice([name for name in kinds if name != "result" or pair[0] != "prod"])
    problem = problem_of(*pair, layout, SHAPES[layout], rng.choice(kinds[kind]))
    problem = replace(problem, is_ragged=layout == "ragged", **asked)
    op = operator_of(problem)
    no_index = not (problem.is_masked and op.result == "index" and "i" in op.lift)
    return problem if no_index and (op.seeds or not problem.is_seeded) else None


def _of_next_stratum(problem: Problem, device: Device, rows: list[Demands], rng: random.Random) -> Config | None:
    for row in list(rows):
        rows.remove(row)
        rows.append(row)
        config = drawn_lightly(problem, device, row, rng, 40)
        if config is not None:
            return config
    return None


@functools.cache
def ask_flagged(device: Device, count: int) -> list[Told]:
    jobs = [(p, c, "flagged", {"seed": k}) for k, (p, c) in enumerate(flagged(device, count))]
    return ask_all(device, jobs)


class Flags:
    """Set `backend`, and `flags`: how many kernels are put onto inputs that the judge does not make."""

    backend: str
    flags: int

    @pytest.fixture
    def told(self) -> list[Told]:
        need(self.backend)
        return ask_flagged(first_device(self.backend), self.flags)

    def test_masks_seeds_rows_of_any_length_and_strides_are_right(self, told: list[Told]) -> None:
        wrong = [row for row in told if not row.is_compilers and (row.fault or row.said["wrong"])]
        assert not wrong, complaint(wrong)

    def test_the_kernels_are_as_many_and_as_different_as_promised(self, told: list[Told]) -> None:
        assert len(told) == self.flags
        assert sum(row.is_compilers for row in told) <= 0.03 * self.flags
        ran = [row for row in told if row.said]
        assert all(row.said["compared"] > 0 or operator_of(row.problem).empty is None for row in ran)
        seen = {(p.layout, p.is_masked, p.is_seeded) for p in (row.problem for row in ran)}
        assert seen == set(itertools.product(SHAPES, (False, True), (False, True)))
        assert {row.problem.op for row in ran} == set(OPERATORS)


# --- and a kernel that is broken is found out -------------------------------------------------------------------------

BROKEN = {  # (layout, flags, a piece of the kernel, what stands for it)
    "an initial value dropped": ("rows", {"is_seeded": True}, "a = merge(a, lift(initial));", ""),
    "a mask not read in tiles": ("flat", {"is_masked": True}, "mask_pack[k].item[j] ? ", "1 ? "),
    "a mask not read at the end": ("flat", {"is_masked": True}, "mask_in[i] ? ", "1 ? "),
    "a mask that begins elsewhere": ("rows", {"is_masked": True}, "mask + mask_first", "mask"),
    "a mask without gaps": ("columns", {"is_masked": True}, "c * mask_inner", "c"),
    "rows that end early": ("ragged", {}, "offsets[result + 1] - start", "(offsets[result + 1] - start) / 2"),
    "rows that begin elsewhere": ("ragged", {}, "data + data_first", "data"),
    "rows without gaps": ("rows", {}, "row * data_outer", "row * n"),
    "columns without gaps": ("columns", {}, "c * data_inner", "c"),
    "results without gaps": ("columns", {}, "result / inner * out_outer + result % inner * out_inner", "result"),
    "threads with no result that store": ("rows", {}, "member == 0 && is_there", "member == 0"),
}


def broken_kernel(device: Device, which: str) -> Kernel:
    """The default kernel of a layout with one piece replaced."""
    layout, asked, piece, instead = BROKEN[which]
    dialect = backend_named(device.backend).dialect
    problem = replace(problem_of("max", "int32", layout, SHAPES[layout]), is_ragged=layout == "ragged", **asked)
    kernel = render(problem, default_config(problem, dialect, device), dialect, device)
    assert piece in kernel.source, which
    return replace(kernel, source=kernel.source.replace(piece, instead))


@functools.cache
def ask_broken(device: Device) -> dict[str, list[Told]]:
    with hired(), Asking(device, make_problem("max")) as lab:
        ahead = {which: lab.compile_ahead(broken_kernel(device, which)) for which in BROKEN}
        return {which: [lab.ask(f.result(), "flagged", seed=k) for k in range(3)] for which, f in ahead.items()}


class Broken:
    """Set `backend`. The suites above would be worth nothing if these passed."""

    backend: str

    @pytest.mark.parametrize("which", BROKEN)
    def test_a_broken_kernel_is_found_out(self, which: str) -> None:
        need(self.backend)
        rows = ask_broken(first_device(self.backend))[which]
        assert not any(row.is_compilers for row in rows)
        assert any(row.fault or row.said["wrong"] for row in rows)


# --- sums of positive values ------------------------------------------------------------------------------------------

KINDS = ("constant", "random", "ascending")
SUMS = ("sum", "mean", "norm_l1", "sumsq")
WITHIN = 1e-6
# Where the error is largest: few threads and blocks with long walks, one chain per thread, results that blocks round in
# turn, and many blocks.
EXTREMES: tuple[Demands, ...] = (
    {"block": (32,), "accumulators": (1,), "items": (8,), "walk": ("chunk",), "blocks_per_cu": (1,)},
    {"block": (32,), "accumulators": (1,), "items": (8,), "walk": ("stride",), "blocks_per_cu": (1,)},
    {"accumulators": (1,), "vector": (4,), "items": (2,), "combine": ("two_pass",)},
    {"accumulators": (2,), "vector": (4,), "items": (4,), "walk": ("chunk",)},
    {"accumulators": (4,), "items": (8,), "vector": (4,)},
    {"accumulators": (16,), "vector": (4,), "items": (4,)},
    {"combine": ("atomic",), "walk": ("chunk",)},
    {"combine": ("atomic",), "walk": ("stride",)},
    {"combine": ("two_pass",), "blocks_per_cu": (32,)},
    {"walk": ("tile",), "combine": ("two_pass",), "block": (32, 64, 96, 128)},
    {"exchange": ("lds",), "tree": ("interleaved",)},
    {"exchange": ("lds",), "tree": ("unrolled",)},
    {"block": (1024,), "exchange": ("shuffle",)},
)


@dataclass(frozen=True)
class Many:
    """A shape, how many configs it is reduced with, and which positive values."""

    layout: str
    shape: tuple[int, int, int]
    extremes: tuple[Demands, ...]
    more: int
    kinds: tuple[str, ...] = KINDS


def sums_of(device: Device, many: Sequence[Many]) -> Iterator[tuple[Problem, Config, str, dict[str, Any]]]:
    """Jobs for every demand that some of the operators can meet on the device."""
    rng = random.Random(SEED)
    ops = itertools.cycle(SUMS)
    for which in many:
        for demands in (*which.extremes, *itertools.repeat({}, which.more)):
            problems = [problem_of(next(ops), "float32", which.layout, which.shape) for _ in SUMS]
            next(ops)
            made = ((problem, drawn(problem, device, demands, rng, 1000)) for problem in problems)
            for problem, config in itertools.islice((row for row in made if row[1] is not None), 1):
                yield from ((problem, config, "accuracy", {"kind": kind}) for kind in which.kinds)


@functools.cache
def ask_sums(suite: type[Sums]) -> list[Told]:
    device = first_device(suite.backend)
    return ask_all(device, list(sums_of(device, suite.many)))


# Of rows and columns: results of one thread, of a block, and of several blocks.
SPLIT: tuple[Demands, ...] = (
    {"split": (1,), "team": (1,)},
    {"split": (1,), "team": (0,), "accumulators": (1,)},
    {"split": (2, 4), "combine": ("atomic",)},
    {"split": (8, 16), "combine": ("two_pass",)},
)


class Sums:
    """Set `backend`, and `many`: which sums."""

    backend: str
    many: Sequence[Many]

    @pytest.fixture
    def sums(self) -> list[Told]:
        need(self.backend)
        return ask_sums(type(self))

    def test_float32_sums_of_positive_values_are_within_a_millionth(self, sums: list[Told]) -> None:
        far = [row for row in sums if row.fault or row.said["off"] > WITHIN]
        assert not far, complaint(far)

    def test_configs_of_every_extreme_are_among_them(self, sums: list[Told]) -> None:
        configs = {row.config for row in sums if row.problem.layout == "flat"}
        assert len(configs) >= 24
        assert {c.walk for c in configs} == {"tile", "stride", "chunk"}
        # On a device of many compute units no flat sum is left to atomics.
        assert {row.config.combine for row in sums} >= {"atomic", "two_pass"}
        assert {1, 16} <= {c.accumulators for c in configs}
        assert {32, 1024} <= {c.block for c in configs}
        assert {row.problem.op for row in sums} == set(SUMS)
        print(f"\n{self.backend}: at most {max(row.said['off'] for row in sums):.2e}, {len(sums)} sums")
