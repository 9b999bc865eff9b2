"""Grids, launches, scratch, shared memory, and the depth that the error bound rests on."""

from __future__ import annotations

import dataclasses
import random
import re
from typing import Any

import numpy as np
import pytest

from redtune.config import Config
from redtune.operators import OPERATORS
from redtune.plan import Plan, entry_names, halvings, lanes_of, make_meet, make_plan, state_layout
from redtune.types import Problem
from tests.text.kernels import ARCHS, Target, config, problem, random_cases, rendered, target


def plan(n: int, on: Target | None = None, op: str = "sum", dtype: str = "float32", **knobs: Any) -> Plan:
    on = on or target("cuda", compute_units=10)
    return make_plan(problem(op, dtype, n), config(**knobs), on.dialect, on.device)


SMALL = {"block": 64, "items": 2, "vector": 2, "accumulators": 1}  # tiles of 256
FULL = 20  # blocks of a stride or chunk walk: 2 on each of 10 compute units


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
    assert plan(n, **SMALL, walk="tile", combine="two_pass").partials_bytes == 8 * (2**32 + 1) // 2


@pytest.mark.parametrize("walk", ["tile", "stride", "chunk"])
def test_one_block_needs_no_other(walk: str) -> None:
    for combine in ("two_pass", "atomic", "last_block"):
        one = plan(256, **SMALL, walk=walk, combine=combine)
        assert [(launch.grid, launch.block) for launch in one.launches] == [(1, 64)]


def test_launches_of_two_passes() -> None:
    found = plan(10_000, **SMALL, combine="two_pass", second_block=64)
    main, second = found.launches
    assert (main.entry, main.grid, main.block) == ("redtune_sum_float32", 20, 64)
    assert main.args == ("data", "first", "n", "partials", "out")
    assert (second.entry, second.grid, second.block) == ("redtune_sum_float32_second", 1, 64)
    assert second.args == ("partials", "blocks", "out")
    assert (found.partials_bytes, found.counter_bytes) == (20 * 4, 0)


def test_launches_of_atomics() -> None:
    found = plan(10_000, **SMALL, combine="atomic")
    before, main = found.launches
    assert (before.entry, before.grid, before.block, before.args) == ("redtune_sum_float32_reset", 1, 1, ("out",))
    assert main.args == ("data", "first", "n", "out")
    assert (found.partials_bytes, found.counter_bytes) == (0, 0)


def test_launches_of_the_last_block() -> None:
    found = plan(10_000, op="argmax", **SMALL, combine="last_block")
    (main,) = found.launches
    assert main.args == ("data", "first", "n", "partials", "counter", "out")
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


@pytest.mark.parametrize("dialect", ARCHS)
def test_launches_match_the_text(dialect: str) -> None:
    """Entry points exist, with as many parameters as the launch has arguments, and the plan's block size."""
    on = target(dialect)
    for c, p in random_cases(on, 40, seed=3):
        kernel = rendered(on, c, p)
        heads = dict(re.findall(r"\b(redtune_\w+)\(([^{]*)\)\s*\{", kernel.source))
        for launch in kernel.launches:
            assert heads[launch.entry].count(",") + 1 == len(launch.args)
        names = entry_names(p, c)
        assert set(heads) == {name for name in (names.main, names.before, names.after) if name}


def declared_lds_bytes(c: Config, p: Problem, on: Target) -> dict[str, int]:
    """The shared memory that each entry point declares, its padding aside."""
    state_bytes = make_plan(p, c, on.dialect, on.device).state_bytes
    _, *bodies = re.split(r"\b(?=redtune_\w+\()", rendered(on, c, p).source)
    found = {}
    for body in bodies:
        states = re.findall(r"(?:__shared__|__local) State \w+\[(\w+)\];", body)
        flags = re.findall(r"(?:__shared__|__local) int \w+;", body)
        count = sum(int(size) if size.isdigit() else getattr(c, size.lower()) for size in states)
        found[body.partition("(")[0]] = count * state_bytes + 4 * len(flags)
    return found


@pytest.mark.parametrize("dialect", ARCHS)
def test_shared_memory_of_the_main_launch_is_counted(dialect: str) -> None:
    on = target(dialect)
    for c, p in random_cases(on, 60, seed=4):
        counted = make_plan(p, c, on.dialect, on.device).lds_bytes
        assert counted >= declared_lds_bytes(c, p, on)[entry_names(p, c).main] > 0, c


@pytest.mark.parametrize("dialect", ARCHS)
def test_shared_memory_of_the_second_launch_is_counted(dialect: str) -> None:
    """A device with less than the second pass needs must refuse the config too."""
    on, p = target(dialect), problem("argmax")
    c = config(combine="two_pass", exchange="lds", block=64, second_block=1024)
    counted = make_plan(p, c, on.dialect, on.device).lds_bytes
    assert counted >= declared_lds_bytes(c, p, on)[entry_names(p, c).after] == 16 * 1024


def test_state_layout_is_that_of_c() -> None:
    assert state_layout(OPERATORS["sum"], "float32") == ((("total", "float32", 0),), 4)
    assert state_layout(OPERATORS["sum"], "int64") == ((("total", "uint64", 0),), 8)
    assert state_layout(OPERATORS["argmax"], "float32") == ((("value", "float32", 0), ("index", "int64", 8)), 16)
    three = dataclasses.replace(OPERATORS["sum"], state=(("n", "index"), ("m", "value"), ("s", "value")))
    assert state_layout(three, "float32") == ((("n", "int64", 0), ("m", "float32", 8), ("s", "float32", 12)), 16)
    mixed = dataclasses.replace(OPERATORS["sum"], state=(("m", "value"), ("n", "index"), ("s", "value")))
    assert state_layout(mixed, "float32")[1] == 24


@pytest.mark.parametrize(
    ("width", "offsets"),
    [(1, ()), (2, (1,)), (3, (2, 1)), (4, (2, 1)), (6, (4, 2, 1)), (12, (8, 4, 2, 1)), (32, (16, 8, 4, 2, 1))],
)
def test_halvings(width: int, offsets: tuple[int, ...]) -> None:
    assert halvings(width) == offsets


def test_how_threads_meet() -> None:
    wide = make_meet("m", 192, config(block=192), 32)
    assert (wide.tails, wide.joins, wide.slots) == (6, 1, 6)
    assert (wide.lane_offsets, wide.tail_offsets) == ((16, 8, 4, 2, 1), (4, 2, 1))
    pairs = make_meet("m", 192, config(block=192, wave=64), 32)
    assert (pairs.tails, pairs.joins, pairs.slots) == (3, 2, 6)
    assert (pairs.lane_offsets, pairs.tail_offsets) == ((16, 8, 4, 2, 1), (2, 1))
    alone = make_meet("m", 32, config(block=32), 32)
    assert (alone.tails, alone.slots, alone.tail_offsets) == (1, 1, ())
    tree = make_meet("m", 256, config(exchange="lds", tree="unrolled", wave=64), 32)
    assert (tree.slots, tree.block_steps, tree.tail_steps) == (256, (128, 64), (32, 16, 8, 4, 2, 1))
    short = make_meet("m", 64, config(exchange="lds", tree="unrolled", wave=64), 32)
    assert (short.block_steps, short.tail_steps) == ((), (32, 16, 8, 4, 2, 1))


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


# --- depth ------------------------------------------------------------------------------------------------------------


def simulated_depth(p: Problem, c: Config, on: Target, head: int) -> int:
    """Merges on the longest way from an element to the result: every element is followed as the templates move it."""
    found = make_plan(p, c, on.dialect, on.device)
    blocks, tile = found.blocks, found.tile
    head = min(head, p.n) if c.vector > 1 else 0
    tiles = (p.n - head) // tile
    merges = np.zeros((blocks, c.block, c.accumulators), int)
    if c.walk == "chunk":
        share, extra = divmod(tiles, blocks)
        taken = [share + (block < extra) for block in range(blocks)]
    else:
        taken = [len(range(block, tiles, blocks)) for block in range(blocks)]
    for k in range(c.items * c.vector):
        merges[:, :, k % c.accumulators] += np.array(taken)[:, None]
    ragged = p.n - head - tiles * tile
    first = merges[:, :, 0].reshape(-1)  # a view: ragged elements go to the first chain
    for elements in (head, ragged):
        first += elements // len(first) + (np.arange(len(first)) < elements % len(first))
    depth = int(merges.max()) + c.accumulators - 1 + tree_depth(c.block)
    if c.combine == "cluster":
        depth += c.cluster - 1
        blocks //= c.cluster
    last = c.second_block if c.combine == "two_pass" else c.block
    return depth + -(-blocks // last) + tree_depth(last)


def tree_depth(block: int) -> int:
    """Shuffles within the tails and then among them never come to more than this, pairs of waves included."""
    return (block - 1).bit_length() + 1


@pytest.mark.parametrize("seed", range(4))
def test_depth_is_an_upper_bound_and_no_loose_one(seed: int) -> None:
    on = target("cuda", compute_units=3)
    rng = random.Random(seed)
    for c, p in random_cases(on, 60, seed=seed):
        if c.combine == "atomic":
            continue
        for n in (1, 1000, rng.randrange(1, 300_000), 1 << 20):
            small = dataclasses.replace(p, n=n)
            depth = make_plan(small, c, on.dialect, on.device).depth
            deepest = max(simulated_depth(small, c, on, head) for head in (0, 15))
            assert depth >= deepest, (c, n)
        # A bound that is many times the truth would let faults through.
        assert depth <= 4 * deepest + c.items * c.vector + 40, c


def test_depth_covers_atomics_in_any_order() -> None:
    """Blocks add to the result one after the other: the first one's state goes through all the others' additions."""
    found = plan(1 << 20, block=256, items=1, accumulators=1, walk="tile", combine="atomic")
    assert found.depth >= found.blocks
