"""Grids, launches, scratch, shared memory, and the depths that the error bounds rest on."""

from __future__ import annotations

import dataclasses
import itertools
import random
import re
from typing import Any

import numpy as np
import pytest

from redtune.combine import COMBINES
from redtune.config import WHOLE_BLOCK, Config, team_of
from redtune.dtypes import dtype_named, rounds_into
from redtune.narrow import folds_in_ints
from redtune.operators import OPERATORS, keeps_losses
from redtune.plan import (
    LOST,
    Plan,
    after_arguments,
    before_arguments,
    counts_elements,
    entry_names,
    halvings,
    held_at_once,
    is_light,
    is_split,
    is_wide,
    lanes_of,
    main_arguments,
    make_meet,
    make_plan,
    read_bytes,
    second_team,
    state_layout,
)
from redtune.refusals import MAX_BLOCKS, MAX_CHAIN, MAX_SCRATCH_BYTES
from redtune.render import render
from redtune.types import Kernel, Problem
from tests.text.kernels import (
    ARCHS,
    LAYOUTS,
    Target,
    config,
    many_cases,
    operator,
    problem,
    random_cases,
    random_problems,
    reasons,
    rendered,
    target,
)


def plan(n: int, on: Target | None = None, op: str = "sum", dtype: str = "float32", **knobs: Any) -> Plan:
    on = on or target("cuda", compute_units=10)
    return make_plan(problem(op, dtype, n), config(**knobs), on.dialect, on.device)


def planned(p: Problem, on: Target | None = None, **knobs: Any) -> Plan:
    on = on or target("cuda", compute_units=10)
    return make_plan(p, config(**knobs), on.dialect, on.device)


SMALL = {"block": 64, "items": 2, "vector": 2, "accumulators": 1}  # tiles of 256
FULL = 20  # blocks of a stride or chunk walk: 2 on each of 10 compute units


# --- flat -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "tiles"), [(1, 1), (255, 1), (256, 1), (257, 2), (511, 2), (512, 2), (513, 3), (256 * 20 + 1, 21)]
)
def test_the_grid_follows_the_tiles(n: int, tiles: int) -> None:
    assert plan(n, **SMALL).tile == 256
    assert plan(n, **SMALL, walk="tile").blocks == tiles
    assert plan(n, **SMALL, walk="stride").blocks == min(tiles, FULL)
    assert plan(n, **SMALL, walk="chunk", blocks_per_cu=1).blocks == min(tiles, FULL // 2)


def test_more_elements_than_32_bits_count() -> None:
    n = 2**40 + 1
    assert plan(n, **SMALL, walk="tile").blocks == 2**32 + 1
    assert plan(n, **SMALL, walk="stride").blocks == FULL
    assert plan(n, **SMALL, walk="tile", combine="two_pass").partials_bytes == 4 * (2**32 + 1)


@pytest.mark.parametrize("walk", ["tile", "stride", "chunk"])
def test_one_block_needs_no_other(walk: str) -> None:
    for combine in ("two_pass", "atomic", "last_block"):
        one = plan(256, **SMALL, walk=walk, combine=combine)
        assert [(launch.grid, launch.block) for launch in one.launches] == [(1, 64)]


def test_launches_of_two_passes() -> None:
    found = plan(10_000, **SMALL, combine="two_pass", second_block=64)
    main, second = found.launches
    assert (main.entry, main.grid, main.block) == ("redtune_sum_float32", 20, 64)
    assert main.args == ("data", "data_first", "n", "partials", "out")
    assert (second.entry, second.grid, second.block) == ("redtune_sum_float32_second", 1, 64)
    assert second.args == ("partials", "parts", "out")
    assert (found.state_bytes, found.partials_bytes, found.counter_bytes) == (4, 20 * 4, 0)


def test_launches_of_atomics() -> None:
    found = plan(10_000, **SMALL, combine="atomic")
    before, main = found.launches
    assert (before.entry, before.grid, before.block, before.args) == ("redtune_sum_float32_reset", 1, 1, ("out",))
    assert main.args == ("data", "data_first", "n", "out")
    assert (found.partials_bytes, found.counter_bytes) == (0, 0)


def test_launches_of_the_last_block() -> None:
    found = plan(10_000, op="argmax", **SMALL, combine="last_block")
    (main,) = found.launches
    assert main.args == ("data", "data_first", "n", "partials", "counter", "out")
    assert (found.partials_bytes, found.counter_bytes) == (20 * 16, 4)


@pytest.mark.parametrize("cluster", [2, 4, 8])
@pytest.mark.parametrize("n", [1, 256, 257, 256 * 9, 256 * 20, 10**6])
@pytest.mark.parametrize("walk", ["tile", "stride"])
def test_clusters_are_whole(cluster: int, n: int, walk: str) -> None:
    found = plan(n, **SMALL, walk=walk, combine="cluster", cluster=cluster)
    assert found.blocks % cluster == 0
    assert found.blocks >= min(-(-n // 256), FULL)
    assert found.partials_bytes == 4 * found.blocks // cluster
    assert len(found.launches) == 1


# --- rows and columns -------------------------------------------------------------------------------------------------

ROWS = problem(**LAYOUTS["rows"])
COLUMNS = problem(**LAYOUTS["columns"])
RAGGED = problem(**LAYOUTS["ragged"])
STRIDED = problem(**LAYOUTS["strided"])


@pytest.mark.parametrize(
    ("rows", "team", "groups"), [(1, 64, 1), (2, 64, 2), (50, 64, 50), (50, 8, 7), (56, 8, 7), (57, 8, 8), (1, 1, 1)]
)
def test_blocks_take_groups_of_results(rows: int, team: int, groups: int) -> None:
    p = dataclasses.replace(STRIDED, outer=rows)
    for layout in (p, dataclasses.replace(p, is_strided=False, is_ragged=True)):
        found = planned(layout, block=64, team=team % 64, vector=1, exchange="lds", blocks_per_cu=32)
        assert (found.blocks, found.parts) == (groups, 1)
        assert found.tile == team * 4


def test_a_grid_grows_no_further_than_the_device() -> None:
    assert planned(dataclasses.replace(ROWS, outer=2**40), block=64).blocks == FULL
    assert planned(dataclasses.replace(ROWS, outer=2**40), block=64, split=8).blocks == 16
    assert planned(dataclasses.replace(ROWS, outer=2**40), block=64, split=512).blocks == 512
    assert planned(dataclasses.replace(ROWS, outer=3), block=64, split=8).blocks == 3 * 8 - 8


def test_nothing_is_kept_between_blocks_where_no_two_share_a_result() -> None:
    for p in (ROWS, COLUMNS, RAGGED, STRIDED):
        found = planned(p, combine="two_pass")
        assert (found.partials_bytes, found.counter_bytes, len(found.launches)) == (0, 0, 1)
        assert {"partials", "counter", "parts"}.isdisjoint(found.launches[0].args)


def test_scratch_of_rows_that_blocks_share() -> None:
    two = planned(ROWS, block=64, team=8, split=4, combine="two_pass", second_block=64)
    assert (two.partials_bytes, two.counter_bytes, two.state_bytes) == (50 * 4 * 4, 0, 4)
    counted = planned(ROWS, block=64, team=8, split=4, combine="last_block")
    assert (counted.partials_bytes, counted.counter_bytes) == (50 * 4 * 4, 4 * 7)
    clusters = planned(COLUMNS, block=64, split=8, combine="cluster", cluster=4)
    assert (clusters.partials_bytes, clusters.counter_bytes) == (120 * 2 * 4, 4 * 120)
    atomic = planned(ROWS, block=64, split=4, combine="atomic")
    assert (atomic.partials_bytes, atomic.counter_bytes) == (0, 0)


def test_launches_around_rows_that_blocks_share() -> None:
    before, main = planned(ROWS, block=64, split=4, combine="atomic").launches
    assert (before.entry, before.grid, before.block) == ("redtune_sum_float32_rows_reset", 1, 64)
    assert before.args == ("outer", "out", "out_outer")
    assert (main.entry, main.grid, main.block) == ("redtune_sum_float32_rows", 20, 64)
    assert main.args == ("data", "data_first", "data_outer", "n", "outer", "parts", "out", "out_outer")
    main, second = planned(COLUMNS, block=64, split=4, combine="two_pass", second_block=64).launches  # 120 results
    steps = tuple(f"data_{name}" for name in ("first", "outer", "n", "inner"))
    sizes = ("n", "outer", "inner")
    assert main.args == ("data", *steps, *sizes, "parts", "partials", "out", "out_outer", "out_inner")
    assert (second.entry, second.grid, second.block) == ("redtune_sum_float32_columns_second", 20, 64)  # of 60 pairs
    assert second.args == ("partials", "parts", "outer", "inner", "out", "out_outer", "out_inner")


@pytest.mark.parametrize(
    ("p", "last"),
    [
        (problem("mean", "float32"), ()),  # the walk has `n`
        (problem("mean", **LAYOUTS["ragged"]), ()),  # every row counts its own elements
        (problem("mean", is_masked=True), ()),
        (problem("var"), ("ddof",)),
        (problem("std", **LAYOUTS["columns"]), ("ddof",)),
        (problem("max", is_seeded=True), ("initial",)),
    ],
)
def test_what_the_last_step_reads(p: Problem, last: tuple[str, ...]) -> None:
    out = ("out_outer", "out_inner")[: {"flat": 0, "rows": 1, "ragged": 1, "columns": 2}[p.layout]]
    for split in (1, 4):
        if p.layout == "flat" and split > 1:
            continue
        main = main_arguments(p, config(split=split, combine="two_pass"))
        assert main[-len(("out", *out, *last)) :] == ("out", *out, *last)
    assert after_arguments(p)[:2] == ("partials", "parts")
    own = ("n",) * (p.op == "mean" and not counts_elements(p, OPERATORS["mean"]))
    assert before_arguments(p)[-len(("out", *out, *own, *last)) :] == ("out", *out, *own, *last)


def test_operands_that_are_read_in_step() -> None:
    p = problem("dot", **LAYOUTS["rows"], is_masked=True)
    walk = (
        "data",
        "data_first",
        "data_outer",
        "other",
        "other_first",
        "other_outer",
        "mask",
        "mask_first",
        "mask_outer",
    )
    assert main_arguments(p, config())[: len(walk)] == walk
    ragged = problem("sum", **LAYOUTS["ragged"], is_masked=True)
    assert main_arguments(ragged, config()) == (
        *("data", "data_first", "mask", "mask_first", "offsets", "outer", "out", "out_outer"),
    )


def test_bytes_that_are_read_at_least_once() -> None:
    assert read_bytes(problem(n=1000)) == 4000
    assert read_bytes(problem(n=1000, outer=3, inner=2)) == 24_000
    assert read_bytes(problem("dot", "complex128", 1000)) == 32_000
    assert read_bytes(problem("sum", "int8", 1000, is_masked=True)) == 2000


# --- launches and text ------------------------------------------------------------------------------------------------


def parameters(source: str) -> dict[str, list[tuple[str, bool]]]:
    """(name, whether it is a pointer) of each parameter of each entry point."""
    heads = re.findall(r"\b(redtune_\w+)\(([^{;]*?)\)\s*\{", source)
    return {
        entry: [(re.findall(r"\w+", parameter)[-1], "*" in parameter) for parameter in listed.split(",")]
        for entry, listed in heads
    }


BUFFERS = {"data", "other", "mask", "offsets", "partials", "counter", "out"}


@pytest.mark.parametrize("dialect", ARCHS)
def test_launches_match_the_text(dialect: str) -> None:
    """Every entry point has the parameters that its launch passes, in their order, and no other entry is there."""
    seen = set()
    for case in many_cases(dialect):
        c, p, kernel = case.config, case.problem, case.kernel
        found = parameters(kernel.source)
        split, combine, names = is_split(p, c), COMBINES[c.combine], entry_names(p, c)
        wanted = {names.main: main_arguments(p, c)}
        if split and combine.before:
            wanted[names.before] = before_arguments(p)
        if split and combine.after:
            wanted[names.after] = after_arguments(p)
        assert {entry: tuple(name for name, _ in each) for entry, each in found.items()} == wanted
        for each in found.values():
            assert all(is_pointer == (name in BUFFERS) for name, is_pointer in each)
        for launch in kernel.launches:
            assert launch.args == wanted[launch.entry]
            assert launch.grid >= 1
        seen.add((p.layout, c.combine if split else ""))
    combines = {"", "two_pass", "atomic", "last_block"}
    assert seen >= set(itertools.product(("rows", "columns", "ragged"), combines))
    assert dialect != "cuda" or seen >= {("flat", "cluster"), ("rows", "cluster")}


@pytest.mark.parametrize("dialect", ARCHS)
def test_every_parameter_is_read(dialect: str) -> None:
    for case in many_cases(dialect):
        source = case.kernel.source
        for entry, each in parameters(source).items():
            _, _, rest = source.partition(f"{entry}(")
            body = rest.partition(")\n{")[2].partition("\n}\n")[0]
            assert body
            for name, _ in each:
                assert re.search(rf"\b{name}\b", body), f"{entry} of {case.config} does not read {name}"


@pytest.mark.parametrize("dialect", ARCHS)
def test_no_grid_is_beyond_a_device(dialect: str) -> None:
    """However many elements and results there are: blocks take one group of results after the other."""
    on = target(dialect)
    for k, case in enumerate(many_cases(dialect)):
        c, p = case.config, case.problem
        for outer, n, inner in ((2**40, 1, 1), (2**20, 2**10, 2**10), (1, 2**40, 1), (3, 1, 2**38)):
            huge = dataclasses.replace(p, n=n)
            if p.layout != "flat":
                huge = dataclasses.replace(huge, outer=outer, inner=inner if p.layout == "columns" else 1)
            if huge.layout != p.layout:
                continue
            found = make_plan(huge, c, on.dialect, on.device)
            for launch in found.launches:
                assert launch.grid >= 1
                if c.walk != "tile":
                    most = max(found.parts, c.blocks_per_cu * on.device.compute_units)
                    assert launch.grid <= most + COMBINES[c.combine].extra
                    assert launch.grid * launch.block < 2**32
            if k < 30 and not reasons(on, c, huge):
                assert found.blocks <= MAX_BLOCKS
                assert found.partials_bytes + found.counter_bytes <= MAX_SCRATCH_BYTES


def test_the_text_does_not_depend_on_the_sizes() -> None:
    """A kernel serves every number of elements and results: of the launches alone may they change anything."""
    on, rng = target("cuda"), random.Random(8)
    for case in many_cases("cuda")[:50]:
        c, p, digests = case.config, case.problem, {case.kernel.digest}
        for _ in range(2):
            sizes = {"n": rng.choice([1, 1000, 2**31 + 1])}
            if p.layout != "flat":
                sizes |= {"outer": rng.choice([2, 1000, 2**33])}
            if p.inner > 1:
                sizes |= {"inner": rng.choice([2, 77, 2**20])}
            digests.add(render(dataclasses.replace(p, **sizes), c, on.dialect, on.device).digest)
        assert len(digests) == 1, c


# --- shared memory and states -----------------------------------------------------------------------------------------


def declared_lds_bytes(kernel: Kernel) -> dict[str, int]:
    """The shared memory that each entry point declares, its padding aside."""
    c, (_, state_bytes) = kernel.config, state_layout(kernel.problem)
    _, *bodies = re.split(r"\b(?=redtune_\w+\()", kernel.source)
    found = {}
    for body in bodies:
        states = re.findall(r"(?:__shared__|__local) State \w+\[(\w+)\];", body)
        flags = re.findall(r"(?:__shared__|__local) int \w+;", body)
        count = sum(int(size) if size.isdigit() else getattr(c, size.lower()) for size in states)
        found[body.partition("(")[0]] = count * state_bytes + 4 * len(flags)
    return found


@pytest.mark.parametrize("dialect", ARCHS)
def test_shared_memory_is_counted(dialect: str) -> None:
    on = target(dialect)
    for case in many_cases(dialect):
        c, declared = case.config, max(declared_lds_bytes(case.kernel).values())
        found = make_plan(case.problem, c, on.dialect, on.device)
        assert declared > 0 or c.team == 1
        # One thread has nobody to meet, and is counted as if it had.
        assert declared <= found.lds_bytes <= declared + found.state_bytes * (c.team == 1), c


@pytest.mark.parametrize("dialect", ARCHS)
def test_shared_memory_of_the_second_launch_is_counted(dialect: str) -> None:
    """A device with less than the second pass needs must refuse the config too."""
    on, p = target(dialect), problem("argmax")
    c = config(combine="two_pass", exchange="lds", block=64, second_block=1024)
    counted = make_plan(p, c, on.dialect, on.device).lds_bytes
    assert counted >= declared_lds_bytes(rendered(on, c, p))[entry_names(p, c).after] == 16 * 1024


def fields(p: Problem) -> tuple[list[tuple[str, str, int]], int]:
    slots, size = state_layout(p)
    return [(slot.name, slot.dtype, slot.offset) for slot in slots], size


def test_state_layout_is_that_of_c() -> None:
    assert fields(problem("max")) == ([("value", "float32", 0)], 4)
    assert fields(problem("sum", "int64")) == ([("total", "uint64", 0)], 8)
    assert fields(problem("argmax")) == ([("value", "float32", 0), ("index", "int64", 8)], 16)
    assert fields(problem("any", "int8")) == ([("found", "uint32", 0)], 4)
    assert fields(problem("count_nonzero")) == ([("total", "int64", 0)], 8)
    assert fields(problem("prod", "complex64")) == ([("re", "float32", 0), ("im", "float32", 4)], 8)


def test_a_compensated_sum_has_a_field_for_what_it_loses() -> None:
    assert fields(problem("sum")) == ([("total", "float32", 0)], 4)
    kept = {"is_compensated": True}
    assert fields(problem("sum", **kept)) == ([("total", "float32", 0), ("total_lost", "float32", 4)], 8)
    assert fields(problem("sum", "complex128", **kept))[0] == [
        ("re", "float64", 0),
        ("im", "float64", 8),
        ("re_lost", "float64", 16),
        ("im_lost", "float64", 24),
    ]
    assert fields(problem("logsumexp", **kept))[0] == [
        ("top", "float32", 0),
        ("total", "float32", 4),
        ("total_lost", "float32", 8),
    ]
    assert fields(problem("var", **kept)) == (
        [
            ("seen", "int64", 0),
            ("mean", "float32", 8),
            ("squares", "float32", 12),
            ("mean_lost", "float32", 16),
            ("squares_lost", "float32", 20),
        ],
        24,
    )
    assert fields(problem("sum", "int32", result="float64", **kept))[0][1][0] == "total_lost"


def test_elements_are_counted_where_their_number_is_not_known_beforehand() -> None:
    masked = fields(problem("mean", is_masked=True))
    assert masked == ([("total", "float32", 0), ("seen", "int64", 8)], 16)
    assert fields(problem("mean", **LAYOUTS["ragged"])) == masked
    assert fields(problem("mean", **LAYOUTS["rows"]))[1] == 4
    # What counts them anyway, or does not need them, counts no further.
    assert fields(problem("var", is_masked=True)) == fields(problem("var"))
    assert fields(problem("sum", is_masked=True)) == fields(problem("sum"))


@pytest.mark.parametrize("seed", range(2))
def test_states_are_laid_out_as_numpy_aligns_them(seed: int) -> None:
    for p in itertools.islice(random_problems(seed), 150):
        slots, size = state_layout(p)
        aligned = np.dtype([(slot.name, slot.dtype) for slot in slots], align=True)
        assert aligned.itemsize == size
        assert aligned.fields is not None
        assert {slot.name: slot.offset for slot in slots} == {name: at for name, (_, at, *_) in aligned.fields.items()}
        op = operator(p.op, p.dtype)
        lost = {slot.lost_of for slot in slots if slot.lost_of}
        sums = {name for name, kind in op.state if kind == "sum"}
        assert lost == (sums if p.is_compensated else set())
        assert {slot.name for slot in slots if slot.lost_of} == {name + LOST for name in lost}


# --- how threads meet -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "offsets"),
    [(1, ()), (2, (1,)), (3, (2, 1)), (4, (2, 1)), (6, (4, 2, 1)), (12, (8, 4, 2, 1)), (32, (16, 8, 4, 2, 1))],
)
def test_halvings(width: int, offsets: tuple[int, ...]) -> None:
    assert halvings(width) == offsets


def test_how_threads_meet() -> None:
    wide = make_meet("m", 192, 192, config(block=192), 32)
    assert (wide.tails, wide.joins, wide.slots) == (6, 1, 6)
    assert (wide.lane_offsets, wide.tail_offsets) == ((16, 8, 4, 2, 1), (4, 2, 1))
    pairs = make_meet("m", 192, 192, config(block=192, wave=64), 32)
    assert (pairs.tails, pairs.joins, pairs.slots) == (3, 2, 6)
    assert (pairs.lane_offsets, pairs.tail_offsets) == ((16, 8, 4, 2, 1), (2, 1))
    alone = make_meet("m", 32, 32, config(block=32), 32)
    assert (alone.tails, alone.slots, alone.tail_offsets) == (1, 1, ())
    tree = make_meet("m", 256, 256, config(exchange="lds", tree="unrolled", wave=64), 32)
    assert (tree.slots, tree.block_steps, tree.tail_steps) == (256, (128, 64), (32, 16, 8, 4, 2, 1))
    assert (tree.joins, tree.is_wide) == (1, True)
    for narrow in (
        make_meet("m", 256, 256, config(exchange="lds", tree="unrolled", wave=64), 64),
        make_meet("m", 256, 256, config(exchange="lds", tree="unrolled", wave=32), 32),
        make_meet("m", 32, 32, config(exchange="lds", tree="unrolled", wave=64, block=32), 32),
    ):
        assert (narrow.joins, narrow.is_wide) == (1, False)
    short = make_meet("m", 64, 64, config(exchange="lds", tree="unrolled", wave=64), 32)
    assert (short.block_steps, short.tail_steps) == ((), (32, 16, 8, 4, 2, 1))


def test_one_thread_folds_what_tails_left_of_light_states() -> None:
    """A word or a double, where lanes meet by shuffles and leave something."""
    light = {"float32": True, "float64": True, "int32": False, "int8": False}  # integers add up in 64 bits
    assert {dtype: is_light(problem("sum", dtype)) for dtype in light} == light
    assert is_light(problem("max", "int32"))
    assert not any(is_light(problem(op, "float32")) for op in ("argmax", "var", "logsumexp", "norm_l2"))
    assert not is_light(problem(is_compensated=True))  # what is lost goes along
    for expected, block, more in (
        (True, 256, {}),
        (True, 1024, {"wave": 64}),
        (False, 32, {}),
        (False, 256, {"exchange": "lds"}),
        (False, 256, {"exchange": "redux"}),
    ):
        assert make_meet("m", block, block, config(block=block, **more), 32, is_light=True).by_one is expected
        assert not make_meet("m", block, block, config(block=block, **more), 32).by_one


def test_teams_of_a_second_pass() -> None:
    """As many threads as a result has states, in whole tails where they meet by shuffles."""
    two = {"combine": "two_pass", "second_block": 256}
    assert second_team(problem(), config(**two)) == 256
    for split, by_shuffles, through_memory in ((2, 32, 2), (16, 32, 16), (64, 64, 64), (512, 256, 256)):
        assert second_team(ROWS, config(split=split, **two)) == by_shuffles
        assert second_team(ROWS, config(split=split, exchange="lds", **two)) == through_memory
    assert second_team(ROWS, config(split=2, wave=64, **two)) == 64
    # A tree with a tail is one of a whole block.
    assert second_team(ROWS, config(split=2, exchange="lds", tree="unrolled", **two)) == 256
    many = dataclasses.replace(ROWS, outer=10_000)
    main, second = planned(many, block=64, split=4, **two).launches
    assert second.grid == min(-(-10_000 // 8), main.grid)


def test_how_a_team_meets() -> None:
    few = make_meet("m", 256, 8, config(team=8), 32)
    assert (few.tails, few.joins, few.slots, few.lane_offsets, few.tail_offsets) == (1, 1, 1, (4, 2, 1), ())
    some = make_meet("m", 256, 128, config(team=128), 32)
    assert (some.tails, some.joins, some.slots) == (4, 1, 8)
    assert (some.lane_offsets, some.tail_offsets) == ((16, 8, 4, 2, 1), (2, 1))
    tree = make_meet("m", 256, 16, config(team=16, exchange="lds"), 32)
    assert (tree.slots, tree.block_steps, tree.tail_steps) == (256, (), ())


@pytest.mark.parametrize("dialect", ARCHS)
def test_every_thread_of_a_team_comes_into_its_meeting(dialect: str) -> None:
    """The steps of a meeting, followed by hand, cover the whole team."""
    on = target(dialect)
    for case in many_cases(dialect):
        c = case.config
        if c.exchange == "lds" or c.team == 1:
            continue
        lanes = lanes_of(c, on.dialect, on.device)
        meet = make_meet("m", c.block, team_of(c), c, lanes)
        # Lanes, then the hardware waves of a tail, then the tails: nobody is left out, nobody is counted twice.
        assert sum(meet.lane_offsets) + 1 == min(lanes, meet.team)
        assert min(lanes, meet.team) * meet.joins * meet.tails == meet.team
        assert meet.tails <= sum(meet.tail_offsets) + 1 < 2 * meet.tails or meet.tails == 1
        assert meet.tails <= lanes, "one wave must hold what all tails left"


@pytest.mark.parametrize(
    ("dialect", "arch", "wave", "lanes"),
    [
        ("cuda", "sm_90", 32, 32),
        ("cuda", "sm_90", 64, 32),
        ("hip", "gfx942", 32, 32),
        ("hip", "gfx942", 64, 64),
        ("hip", "gfx1100", 32, 32),
        ("hip", "gfx1100", 64, 64),
        ("opencl", "cpu", 64, 64),
    ],
)
def test_lanes_that_meet_by_shuffles(dialect: str, arch: str, wave: int, lanes: int) -> None:
    on = target(dialect, arch)
    assert lanes_of(config(wave=wave), on.dialect, on.device) == lanes


# --- depths -----------------------------------------------------------------------------------------------------------


def chain_of(p: Problem, c: Config) -> int:
    """Merges within a tile: the chains one after the other, then all of them in a tree."""
    return -(-held_at_once(p, c) // c.accumulators) - 1 + (c.accumulators - 1).bit_length()


def simulated_depth(p: Problem, c: Config, on: Target, head: int) -> int:
    """Merges on the longest way from an element to the result: every element is followed as the templates move it."""
    found = make_plan(p, c, on.dialect, on.device)
    parts, team = found.parts, team_of(c)
    head = min(head, p.n) if c.vector > 1 and not is_wide(p, c) else 0
    tiles = (p.n - head) // found.tile
    if c.walk == "chunk":
        share, extra = divmod(tiles, parts)
        taken = [share + (part < extra) for part in range(parts)]
    else:
        taken = [len(range(part, tiles, parts)) for part in range(parts)]
    merges = np.zeros((parts, team), int) + np.array(taken)[:, None]
    each = merges.reshape(-1)  # a view: ragged elements are merged one by one
    for elements in (head, p.n - head - tiles * found.tile):
        each += elements // len(each) + (np.arange(len(each)) < elements % len(each))
    depth = int(merges.max()) + (chain_of(p, c) if tiles else 0) + tree_depth(team)
    if not is_split(p, c) or parts == 1:
        return depth
    if c.combine == "cluster":
        depth += c.cluster - 1
        parts //= c.cluster
    last = second_team(p, c) if c.combine == "two_pass" else team
    return depth + (parts if c.combine == "atomic" else -(-parts // last) + tree_depth(last))


def tree_depth(team: int) -> int:
    """Shuffles within the tails and then among them never come to more than this, pairs of waves included."""
    return (team - 1).bit_length() + 1


@pytest.mark.parametrize("seed", range(3))
def test_depths_are_upper_bounds_and_no_loose_ones(seed: int) -> None:
    on = target("cuda", compute_units=3)
    rng = random.Random(seed)
    for c, p in random_cases(on, 60, seed, ("flat", "rows", "columns", "strided")):
        for n in (1, 1000, rng.randrange(1, 300_000), 1 << 20):
            small = dataclasses.replace(p, n=n)
            depths = make_plan(small, c, on.dialect, on.device).depths
            deepest = max(simulated_depth(small, c, on, head) for head in (0, 15))
            assert depths.full >= deepest, (c, n)
            # A bound that is many times the truth would let faults through.
            assert depths.full <= 2 * deepest + 2 * c.items * c.vector + 80, (c, n)


@pytest.mark.parametrize("dialect", ARCHS)
def test_what_rounds_within_a_tile_and_where_threads_meet(dialect: str) -> None:
    """From tile to tile, and from one partial result to the next, a thread keeps what it loses."""
    on = target(dialect)
    for case in many_cases(dialect):
        c, p = case.config, case.problem
        depths = make_plan(p, c, on.dialect, on.device).depths
        rounded = rounds_into(dtype_named(p.dtype), dtype_named(p.accumulate))  # an element, before it is taken in
        if p.is_compensated:
            assert depths.chain == rounded
        elif keeps_losses(operator(p.op, p.dtype), p.accumulate):
            if c.combine != "atomic":
                parts = make_plan(p, c, on.dialect, on.device).parts
                within = chain_of(p, c) + rounded
                met = 1 + tree_depth(team_of(c))
                if parts > 1:
                    met += 1 + tree_depth(second_team(p, c) if c.combine == "two_pass" else team_of(c))
                    met += c.combine == "cluster"
                assert depths.chain == within + met
            assert -(-held_at_once(p, c) // c.accumulators) <= MAX_CHAIN or folds_in_ints(p)
        else:
            assert depths.chain == depths.full


def test_depths_cover_atomics_in_any_order() -> None:
    """Blocks add to the result one after the other: the first one's state goes through all the others' additions, and
    nothing keeps what they lose."""
    found = plan(1 << 20, block=256, items=1, accumulators=1, walk="tile", combine="atomic")
    assert found.depths.full >= found.blocks
    assert found.depths.chain >= found.blocks
    shared = planned(ROWS, split=64, combine="atomic")
    assert shared.depths.chain >= 64
    alone = planned(ROWS, split=1, combine="two_pass").depths.chain
    assert alone == chain_of(ROWS, config()) + 1 + tree_depth(team_of(config()))
    assert team_of(config(team=WHOLE_BLOCK)) == config().block
