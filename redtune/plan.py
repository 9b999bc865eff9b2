"""Problem, config and device give a plan: the launches and every number behind them. The words of the kernel are
`redtune.text`'s.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from redtune.combine import COMBINES, Combine
from redtune.config import WITH_TAIL, Config, is_read, team_of
from redtune.dialect import Dialect
from redtune.dtypes import dtype_named, rounds_into
from redtune.expressions import names_in
from redtune.lanes import Move
from redtune.operators import Operator, field_type, keeps_losses, operator_of
from redtune.references import Depths
from redtune.types import Device, Launch, Problem

Moves = Callable[[int], tuple[Move, ...]]  # those of so many lanes

WORD_BYTES = 4
TALLY_BYTES = 8
LOST = "_lost"  # a float sum's companion field is called so


@dataclass(frozen=True, slots=True)
class Slot:
    """One field of a state. `lost_of` names the sum whose roundings it keeps, if it is such a one."""

    name: str
    kind: str
    dtype: str
    offset: int
    lost_of: str = ""


@dataclass(frozen=True, slots=True)
class Meet:
    """How the `team` threads of a result meet. Offsets and steps are those of the trees, widest first; `tails` and
    `joins` count the tails of a team and the hardware waves of a tail, `slots` the states in shared memory. `is_wide`
    says that the `tail_steps` of a tree begin with several hardware waves, which read what others wrote. `lane_moves`
    and `tail_moves` are the steps in which lanes, and what the tails left, meet in registers; `by_one` says that one
    thread folds what the tails left."""

    name: str
    block: int
    team: int
    tails: int
    joins: int
    slots: int
    lane_offsets: tuple[int, ...]
    tail_offsets: tuple[int, ...]
    block_steps: tuple[int, ...]
    tail_steps: tuple[int, ...]
    is_wide: bool
    lane_moves: tuple[Move, ...] = ()
    tail_moves: tuple[Move, ...] = ()
    by_one: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The launches and derived numbers of a problem and a config on a device. Sizes are in bytes. `blocks` are those
    of the main launch, `parts` those that share a result; `depths` bound the roundings of a result."""

    tile: int
    blocks: int
    parts: int
    launches: tuple[Launch, ...]
    state_bytes: int
    partials_bytes: int
    counter_bytes: int
    lds_bytes: int
    depths: Depths


def counts_elements(problem: Problem, op: Operator) -> bool:
    """Whether the state must count its elements: a result needs their number, and it is not the same for every one."""
    reads = any("count" in names_in(text) for text in op.finish)
    return reads and (problem.is_masked or problem.is_ragged)


@functools.lru_cache(maxsize=1024)
def state_layout(problem: Problem) -> tuple[tuple[Slot, ...], int]:
    """The fields of a state that threads hand on, and its size in bytes, laid out as C does. What a sum has lost to
    rounding goes with it under compensation only: elsewhere it stays with the thread that folds."""
    op = operator_of(problem)
    rows: list[tuple[str, str, str, str]] = [
        (name, kind, field_type(kind, problem.accumulate), "") for name, kind in op.state
    ]
    if counts_elements(problem, op):
        rows.append(("seen", "count", "int64", ""))
    if problem.is_compensated:
        rows += [(name + LOST, "value", problem.accumulate, name) for name, kind in op.state if kind == "sum"]
    at, widest, slots = 0, 1, []
    for name, kind, dtype, lost_of in rows:
        size = dtype_named(dtype).bytes
        at = -(-at // size) * size
        slots.append(Slot(name, kind, dtype, at, lost_of))
        at += size
        widest = max(widest, size)
    return tuple(slots), -(-at // widest) * widest


def read_bytes(problem: Problem) -> int:
    """Bytes that a reduction reads at least once."""
    elements = problem.results * problem.n
    per_element = dtype_named(problem.dtype).bytes * operator_of(problem).inputs + problem.is_masked
    return elements * per_element


def halvings(width: int) -> tuple[int, ...]:
    """The offsets of a tree over `width` partials, rounded up to a power of two: 12 gives 8, 4, 2, 1."""
    step = 1 << max(0, (width - 1).bit_length())
    return tuple(step >> i for i in range(1, step.bit_length()))


def lanes_of(config: Config, dialect: Dialect, device: Device) -> int:
    """How many lanes meet by shuffles: the tail, or as much of it as issues together."""
    return min(config.wave, dialect.hardware_wave(config, device))


def is_light(problem: Problem) -> bool:
    """Whether a state is so little that one thread folds those of all tails sooner than lanes hand them on: a word, or
    a double. Measured: results/2026-11-30-h200-small-2.md."""
    (first, *others), _ = state_layout(problem)
    return not others and (dtype_named(first.dtype).bytes <= WORD_BYTES or first.dtype == "float64")


def make_meet(
    name: str,
    block: int,
    team: int,
    config: Config,
    lanes: int,
    moves: Moves = lambda width: (),
    is_light: bool = False,
) -> Meet:
    """How each `team` of the `block` threads meets under `config`, the states light or not."""
    wave = config.wave
    if config.exchange == "lds":
        has_tail = config.tree in WITH_TAIL
        tail_steps = halvings(min(wave, team)) if has_tail else ()
        block_steps = tuple(s for s in halvings(team) if s >= wave) if has_tail else ()
        is_wide = has_tail and min(wave, team) > lanes
        return Meet(name, block, team, 1, 1, block, (), (), block_steps, tail_steps, is_wide)
    if team <= lanes:
        return Meet(name, block, team, 1, 1, 1, halvings(team), (), (), (), False, moves(team))
    tails, joins = team // wave, wave // lanes
    offsets = halvings(lanes), halvings(tails)
    by_one = is_light and config.exchange == "shuffle" and tails > 1
    in_registers = moves(lanes), moves(tails)
    return Meet(name, block, team, tails, joins, block // lanes, *offsets, (), (), False, *in_registers, by_one)


def meets_of(problem: Problem, config: Config, dialect: Dialect, device: Device) -> tuple[Meet, ...]:
    """The meetings of a kernel: of the threads that share a result, and of the blocks' states in a second pass."""
    lanes = lanes_of(config, dialect, device)
    moves = functools.partial(dialect.moves, config, device)
    teams = [("meet_block", config.block, team_of(config))]
    if COMBINES[config.combine].after and is_split(problem, config):
        teams.append(("meet_second", config.second_block, second_team(problem, config)))
    return tuple(make_meet(*team, config, lanes, moves, is_light(problem)) for team in teams)


def second_team(problem: Problem, config: Config) -> int:
    """How many threads of a second pass share a result: as many as it has states, and whole tails."""
    through_memory = config.exchange == "lds"
    if problem.layout == "flat" or (through_memory and config.tree in WITH_TAIL):
        return config.second_block
    return min(config.second_block, config.split if through_memory else max(config.split, config.wave))


def second_teams(problem: Problem, config: Config) -> int:
    """How many results a block of a second pass takes at once."""
    return config.second_block // second_team(problem, config)


def is_second_early(problem: Problem, config: Config) -> bool:
    """Whether a second pass starts before the first has ended."""
    return is_split(problem, config) and is_read("second_launch", config) and config.second_launch == "early"


def is_split(problem: Problem, config: Config) -> bool:
    """Whether several blocks share a result, as far as the kernel is concerned."""
    return problem.layout == "flat" or config.split > 1


def operands_of(problem: Problem) -> tuple[str, ...]:
    """The arrays that are read in step: the data, a second input, a mask."""
    return ("data",) + ("other",) * (operator_of(problem).inputs - 1) + ("mask",) * problem.is_masked


def walk_arguments(problem: Problem) -> tuple[str, ...]:
    """The arguments that say where elements and results lie, in the order of the kernel's parameters."""
    layout = problem.layout
    steps = {"flat": (), "rows": ("outer",), "columns": ("outer", "n", "inner"), "ragged": ()}[layout]
    given = [f"{name}{end}" for name in operands_of(problem) for end in ("", "_first", *(f"_{s}" for s in steps))]
    sizes = {"flat": ("n",), "rows": ("n", "outer"), "columns": ("n", "outer", "inner"), "ragged": ("outer",)}[layout]
    return (*given, *("offsets",) * problem.is_ragged, *sizes)


def place_arguments(problem: Problem) -> tuple[str, ...]:
    """The arguments that say how many results there are and where they go, after `out`."""
    return {"flat": (), "rows": ("out_outer",), "columns": ("out_outer", "out_inner"), "ragged": ("out_outer",)}[
        problem.layout
    ]


def finish_arguments(problem: Problem) -> tuple[str, ...]:
    """What the last step reads beside the state: the number of elements, `ddof`, an initial value."""
    op = operator_of(problem)
    read = set[str]().union(*(names_in(text) for text in op.finish))
    reads_count = "count" in read and not counts_elements(problem, op)
    return ("n",) * reads_count + ("ddof",) * ("ddof" in read) + ("initial",) * problem.is_seeded


def result_sizes(problem: Problem) -> tuple[str, ...]:
    """The sizes that an entry point needs to know the results, where it does not walk over elements."""
    return {"flat": (), "rows": ("outer",), "columns": ("outer", "inner"), "ragged": ("outer",)}[problem.layout]


def is_wide(problem: Problem, config: Config) -> bool:
    """Whether a load brings elements of several results: of neighbouring columns."""
    return problem.layout == "columns" and config.vector > 1


def held_at_once(problem: Problem, config: Config) -> int:
    """How many elements of a result a thread has in registers."""
    return config.items * (1 if is_wide(problem, config) else config.vector)


def results_at_once(problem: Problem, config: Config) -> int:
    """How many results a block takes at once."""
    return config.block // team_of(config) * (config.vector if is_wide(problem, config) else 1)


def make_plan(problem: Problem, config: Config, dialect: Dialect, device: Device) -> Plan:
    """The launches and sizes for exactly these numbers of elements and results."""
    combine, team = COMBINES[config.combine], team_of(config)
    tile = team * held_at_once(problem, config)
    parts = parts_of(problem, config, device)
    blocks = _blocks(problem, config, device, parts)
    split = is_split(problem, config)
    per_cluster = config.cluster if split and is_read("cluster", config) else 1
    _, state_bytes = state_layout(problem)
    partials = problem.results * max(1, parts // per_cluster) if combine.partials and split else 0
    first, *others = meets_of(problem, config, dialect, device)
    lds_bytes = state_bytes * first.slots
    if split:
        ranks = per_cluster if is_read("cluster", config) else 0
        lds_bytes += state_bytes * ranks + (WORD_BYTES if combine.counter == "number" else 0)
    lds_bytes = max(lds_bytes, *(state_bytes * meet.slots for meet in others), 0)
    return Plan(
        tile=tile,
        blocks=blocks,
        parts=parts,
        launches=_launches(problem, config, combine, parts, blocks),
        state_bytes=state_bytes,
        partials_bytes=partials * state_bytes,
        counter_bytes=_counter_bytes(problem, config, parts),
        lds_bytes=lds_bytes,
        depths=_depths(problem, config, tile, parts),
    )


def parts_of(problem: Problem, config: Config, device: Device) -> int:
    """How many blocks share a result."""
    if problem.layout != "flat":
        return config.split
    tiles = max(1, -(-problem.n // (config.block * config.items * config.vector)))
    parts = tiles if config.walk == "tile" else min(tiles, config.blocks_per_cu * device.compute_units)
    per_cluster = config.cluster if is_read("cluster", config) else 1
    return -(-parts // per_cluster) * per_cluster


def cells_of(problem: Problem, config: Config) -> tuple[int, int, int]:
    """The words of a state, the marked cells that hold it, and the words of each; no cells where blocks leave none. A
    cell is what is stored at once: a word and its mark, or three."""
    words = -(-state_layout(problem)[1] // WORD_BYTES)
    payload = 1 if words == 1 else 3
    is_used = COMBINES[config.combine].counter == "cells" and is_split(problem, config)
    return words, -(-words // payload) * is_used, payload


def tallies_of(problem: Problem, config: Config) -> int:
    """The tallies that blocks add their states to, one for each word of a state; 0 where they do not."""
    words, _, _ = cells_of(problem, config)
    return words * (COMBINES[config.combine].counter == "tallies" and is_split(problem, config))


def counter_words(problem: Problem, config: Config) -> int:
    """Words that are zero between launches: for each group of results, or of marked cells for each block."""
    if not (COMBINES[config.combine].counter and is_split(problem, config)):
        return 0
    _, cells, payload = cells_of(problem, config)
    return cells * (payload + 1) or TALLY_BYTES // WORD_BYTES * tallies_of(problem, config) or 1


def _counter_bytes(problem: Problem, config: Config, parts: int) -> int:
    is_for_blocks = COMBINES[config.combine].counter == "cells"
    return WORD_BYTES * counter_words(problem, config) * (parts if is_for_blocks else _groups(problem, config))


def _groups(problem: Problem, config: Config) -> int:
    """How many groups of results blocks take one after the other."""
    return -(-problem.results // results_at_once(problem, config))


def _blocks(problem: Problem, config: Config, device: Device, parts: int) -> int:
    """Blocks in the main launch: few enough for any device, since they take one group of results after the other."""
    if problem.layout == "flat":
        return parts
    most = config.blocks_per_cu * device.compute_units
    return parts * min(_groups(problem, config), max(1, most // parts))


def main_arguments(problem: Problem, config: Config) -> tuple[str, ...]:
    """The arguments of the main launch."""
    combine, walk, split = COMBINES[config.combine], walk_arguments(problem), is_split(problem, config)
    scratch = ("partials",) * combine.partials + ("counter",) * bool(combine.counter) if split else ()
    runtime = ("parts",) * (split and problem.layout != "flat")
    finish = tuple(name for name in finish_arguments(problem) if name not in walk)
    return (*walk, *runtime, *scratch, "out", *place_arguments(problem), *finish)


def before_arguments(problem: Problem) -> tuple[str, ...]:
    """The arguments of a launch that starts the results."""
    return (*result_sizes(problem), "out", *place_arguments(problem), *finish_arguments(problem))


def after_arguments(problem: Problem) -> tuple[str, ...]:
    """The arguments of a launch that ends the results."""
    return ("partials", "parts", *before_arguments(problem))


def _launches(problem: Problem, config: Config, combine: Combine, parts: int, blocks: int) -> tuple[Launch, ...]:
    names, several = entry_names(problem, config), is_split(problem, config) and parts > 1
    extra = combine.extra if several else 0
    launches = [Launch(names.main, blocks + extra, config.block, main_arguments(problem, config))]
    if several and combine.before:
        block = 1 if problem.layout == "flat" else config.block
        grid = min(-(-problem.results // block), blocks)
        launches.insert(0, Launch(names.before, grid, block, before_arguments(problem)))
    if several and combine.after:
        grid = min(-(-problem.results // second_teams(problem, config)), blocks)
        is_early = is_second_early(problem, config)
        launches.append(Launch(names.after, grid, config.second_block, after_arguments(problem), is_early))
    return tuple(launches)


def _depths(problem: Problem, config: Config, tile: int, parts: int) -> Depths:
    """Roundings on the longest way from an element to the result, head and tail included."""
    chain = -(-held_at_once(problem, config) // config.accumulators) - 1 + (config.accumulators - 1).bit_length()
    tiles_each = -(-problem.n // (tile * parts)) + 1
    ragged = 2 + -(-tile // team_of(config)) + 16 // dtype_named(problem.dtype).bytes
    combine = COMBINES[config.combine]
    last = second_team(problem, config) if combine.after else team_of(config)
    trees = config.accumulators + 2 * config.block.bit_length() + 8
    in_cluster = config.cluster if is_read("cluster", config) else 1
    together = parts if combine.in_turn else in_cluster + -(-parts // in_cluster // last) + 2 * last.bit_length()
    full = chain + tiles_each + ragged + trees + together
    own = int(rounds_into(dtype_named(problem.dtype), dtype_named(problem.accumulate)))
    if problem.is_compensated or not keeps_losses(operator_of(problem), problem.accumulate):
        return Depths(own + (0 if problem.is_compensated else full), own + full)
    # However many states a thread takes one after the other, it loses no more than one addition would; trees round at
    # every step. Atomics add finished values, so every block may round once more.
    kept = 1 + _levels(team_of(config))
    if parts > 1 and is_split(problem, config):
        kept += parts if combine.in_turn else is_read("cluster", config) + 1 + _levels(last)
    return Depths(own + chain + kept, own + full)


def _levels(width: int) -> int:
    """Merges on the longest way through a tree of so many threads, pairs of waves included."""
    return (width - 1).bit_length() + 1


@dataclass(frozen=True, slots=True)
class EntryNames:
    """The entry points of a kernel; `before` and `after` are empty where the combine has no such launch."""

    main: str
    before: str
    after: str


def entry_names(problem: Problem, config: Config) -> EntryNames:
    """The names of the entry points."""
    main = f"redtune_{problem.op}_{problem.dtype}"
    if problem.layout != "flat":
        main += f"_{problem.layout}"
    combine = COMBINES[config.combine]
    before = f"{main}_{combine.before}" if combine.before else ""
    return EntryNames(main, before, f"{main}_{combine.after}" if combine.after else "")
