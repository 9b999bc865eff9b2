"""Where a search begins, and what runs when nothing was measured: shapes that suit a device, best guess first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from redtune.config import WHOLE_BLOCK, Config, settled
from redtune.dialect import Dialect
from redtune.dtypes import dtype_named
from redtune.errors import UsageError
from redtune.packing import idle_accumulators
from redtune.plan import WORD_BYTES, state_layout
from redtune.refusals import MAX_CHAIN, is_legal, refusals
from redtune.types import Device, Problem

ONE_BLOCK_BYTES = 1 << 16  # which one block takes in less time than several need to meet
SMALL_BYTES = 1 << 24  # below, what finishing costs shows
KEPT_BYTES = 1 << 28  # which a cache may keep for whoever reads next


def default_config(problem: Problem, dialect: Dialect, device: Device) -> Config:
    """The config to use when nothing is tuned. Raises UsageError with the reason when none is legal."""
    legal = starting_points(problem, dialect, device)
    if legal:
        return legal[0]
    last = fitted(replace(Config(), **_shapes(problem, device)[-1]), problem, dialect)
    raise UsageError(refusals(last, problem, dialect, device)[0])


def starting_points(problem: Problem, dialect: Dialect, device: Device) -> list[Config]:
    """The legal ones among the shapes, in their order."""
    configs = [fitted(replace(Config(), **values), problem, dialect) for values in _shapes(problem, device)]
    return [config for config in configs if is_legal(config, problem, dialect, device)]


def fitted(config: Config, problem: Problem, dialect: Dialect) -> Config:
    """`config` with every knob that has no effect for the problem at the value that it must have then."""
    idle = idle_accumulators(problem, config, dialect)
    return settled(config if idle is None else replace(config, accumulators=idle))


def _shapes(problem: Problem, device: Device) -> list[dict[str, Any]]:
    """From what suits the device best down to what runs anywhere."""
    if problem.layout != "flat":
        return _layout_shapes(problem, device)
    return _flat_shapes(problem, device)


def power_below(n: int) -> int:
    """The largest power of two that is at most `n`, and at least 1."""
    return 1 << max(0, n.bit_length() - 1)


def _layout_shapes(problem: Problem, device: Device) -> list[dict[str, Any]]:
    """Teams as wide as a row or a few columns give work to, and blocks that share a result where results are few."""
    is_cpu = device.kind == "cpu"
    wave = max(device.waves, default=32) if is_cpu else min(device.waves, default=32)
    block = wave if is_cpu else 256
    vector = 1 if problem.layout == "columns" or is_cpu else max(1, 16 // dtype_named(problem.dtype).bytes)
    items = 8 if is_cpu or problem.layout == "columns" else 4
    # A CPU's compiler makes vectors of a block's threads either way, and meeting costs it more than walking.
    team = min(block, power_below(max(1, problem.n // (64 if is_cpu else 2 * vector))))
    if problem.layout == "columns":
        columns = min(wave, 2 * power_below(max(1, problem.inner - 1))) if problem.inner > 1 else 1
        team = max(1, min(team, block // columns))
    if problem.layout == "columns" and not is_cpu:
        if problem.results >= 4 * block * device.compute_units:
            team = 1  # so many that every thread has columns of its own
        vector = _columns_each(problem, block // team, wave, device)
        if problem.inner <= wave:  # a few lanes have them all
            team = block // power_below(max(1, 2 * -(-problem.inner // vector) - 1))
    along = 1 if problem.layout == "columns" else vector  # elements of a result in a load
    if not is_cpu:  # a tile that does not fit a result's elements leaves them all to single loads
        items = min(items, power_below(max(1, problem.n // (team * along))))
    base: dict[str, Any] = {"block": block, "wave": wave, "items": items, "vector": vector, "walk": "stride"}
    held = items * along
    chains = max(min(4, held), power_below(max(1, 2 * -(-held // MAX_CHAIN) - 1)))  # enough for sums of floats
    base |= {"blocks_per_cu": 4 if is_cpu else 8, "accumulators": chains}
    per_block = block // team * (vector // along)
    blocks = -(-problem.results // per_block)
    wanted = device.compute_units * (2 if is_cpu else 4)
    room = max(1, problem.n // (team * items * along))
    split = min(512, power_below(max(1, min(wanted // blocks, room))))
    shapes = []
    for t, s in ((team, split), (team, 1), (max(1, team // 4), 1), (min(block, team * 4), split), (block, 1)):
        meet = {"combine": "two_pass"} if vector > along else {}  # a counter is for one result of a thread
        shapes.append(base | _team(t, block, problem.layout == "columns" or is_cpu) | _split(s, device) | meet)
    if vector > along:  # masks, two inputs and the like
        shapes += [shape | {"vector": 1} | _split(int(shape["split"]), device) for shape in shapes]
    safe = {"block": 64 if not is_cpu else block, "vector": 1, "items": 4, "accumulators": 4}
    shapes.append(base | safe | {"team": 1} | _split(1, device))
    return shapes


def _columns_each(problem: Problem, teams: int, wave: int, device: Device) -> int:
    """How many neighbouring columns a thread takes: loads as wide as they go where there are few, else of 4 to 8 bytes,
    as long as blocks enough are left."""
    size = dtype_named(problem.dtype).bytes
    if problem.inner <= wave:
        return next((v for v in (16, 8, 4, 2) if v * size <= 16 and problem.inner % v == 0), 1)
    enough = 2 * device.compute_units * teams
    fits = (v for v in (4, 2) if v * size <= 8 and problem.inner % v == 0 and problem.results // v >= enough)
    return next(fits, 1)


def _team(team: int, block: int, through_memory: bool) -> dict[str, Any]:
    """A team and how its threads meet: neighbours by shuffles, those of columns and of CPUs through shared memory."""
    exchange = {"exchange": "lds"} if through_memory and team > 1 else {}
    return {"team": WHOLE_BLOCK if team == block else team, **exchange}


def _split(split: int, device: Device) -> dict[str, Any]:
    """Blocks that share a result and how they meet."""
    can_count = split > 1 and "device_atomics" in device.features
    return {"split": split, "combine": "last_block" if can_count else "two_pass"}


def _flat_shapes(problem: Problem, device: Device) -> list[dict[str, Any]]:
    """Shapes for one result."""
    anywhere = {"exchange": "lds", "tree": "sequential", "combine": "two_pass"}
    firsts: list[dict[str, Any]] = [{}]
    if device.kind == "cpu":
        # One sub-group per block, so that a core walks its memory in order; the compiler turns lanes into vectors.
        wave = max(device.waves, default=32)
        first: dict[str, Any] = {"block": wave, "wave": wave, "items": 8, "walk": "chunk", "blocks_per_cu": 1}
        others: list[dict[str, Any]] = [
            {"items": 2, "vector": 2},
            {"accumulators": 8, "hint": "streaming", "blocks_per_cu": 2},
            {"block": 32, "wave": 32, "items": 16},
            {"block": 32, "wave": 32, "items": 16, "vector": 2},
            {"accumulators": 2},
            {"items": 16, "blocks_per_cu": 4},
        ]
    else:
        vector = 16 // dtype_named(problem.dtype).bytes
        starts_early = "early_launches" in device.features
        second = {"combine": "two_pass"} | ({"second_launch": "early"} if starts_early else {})
        first = {"block": 512, "vector": vector, "items": 4, "walk": "stride", "blocks_per_cu": 2}
        size = problem.n * dtype_named(problem.dtype).bytes
        # The less there is between the last load and the result, the better: results/2026-11-30-h200-small.md. An early
        # second pass costs the host another launch. It pays for that where a state is more than a word, with a sixth
        # less time (results/2026-12-01-h200-finish.md); what it gains on words is for a search to find.
        if size <= ONE_BLOCK_BYTES:
            block = 256 if problem.n <= 1024 * vector else 512
            items = min(8, power_below(max(1, 2 * -(-problem.n // (block * vector)) - 1)))
            first |= {"block": block, "items": items, "walk": "tile"}
        elif size < SMALL_BYTES:
            waits = "waiting_blocks" in device.features
            first |= {"block": 256, "walk": "tile"} | ({"combine": "collector"} if waits else {})
            first |= second if starts_early and state_layout(problem)[1] > WORD_BYTES else {}
            firsts.insert(0, {"walk": "stride", "blocks_per_cu": 8, "combine": "tally"})  # where integers add up
        elif size > KEPT_BYTES and vector > 1:
            first |= {"hint": "streaming"}  # no cache keeps it: on an H200 one part in a hundred less time
        first |= {"accumulators": min(8, int(first["items"]) * vector)}
        others = [
            {"block": 256, "items": 8, "walk": "tile", "combine": "atomic", "hint": "streaming"},
            {"items": 6, "walk": "tile"} | second,
            {"block": 256, "items": 8, "blocks_per_cu": 4, "hint": "no_allocate"},
            {"walk": "tile"},
            {"block": 1024, "blocks_per_cu": 1},
        ]
    fallbacks = [
        first | {"combine": "two_pass"},
        first | anywhere,
        {"block": 64, "vector": 1, "second_block": 64} | anywhere,
    ]
    return [*(first | one for one in firsts), *(first | other for other in others), *fallbacks]
