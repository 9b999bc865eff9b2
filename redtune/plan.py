"""Problem, config and device give a plan: every number and spelling the templates and the launches need.

Templates choose and repeat; the arithmetic is here.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from redtune.combine import COMBINES
from redtune.config import KNOBS, Config, help_of, is_read, settled
from redtune.dialect import Dialect, c_limits, c_words
from redtune.dtypes import UNSIGNED, dtype_named
from redtune.expressions import spell
from redtune.operators import NO_INDEX, Operator, field_type, operator_named, result_type
from redtune.types import Device, Launch, Problem

# Vector words of a load of so many bytes: 32-bit words, or less than one.
_RAW_WORDS = {1: 0, 2: 0, 4: 1, 8: 2, 16: 4}
_PTX = {"float32": ("f32", "f"), "float64": ("f64", "d"), "int32": ("s32", "r"), "uint32": ("u32", "r")}
_PTX |= {"int64": ("s64", "l"), "uint64": ("u64", "l")}


@dataclass(frozen=True, slots=True)
class Constant:
    """A named number at the head of the kernel."""

    name: str
    value: int
    help: str


@dataclass(frozen=True, slots=True)
class Choice:
    """A knob that chose code instead of a number."""

    name: str
    value: str
    help: str


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the state, spelled."""

    name: str
    dtype: str
    type: str
    offset: int
    identity: str
    lift: str
    merge: str
    ptx: str
    ptx_letter: str


@dataclass(frozen=True, slots=True)
class Meet:
    """How the threads of a block of `block` meet. Offsets and steps are those of the trees, widest first; `joins`
    counts the hardware waves of a tail, `slots` the states in shared memory."""

    name: str
    block: int
    tails: int
    joins: int
    slots: int
    lane_offsets: tuple[int, ...]
    tail_offsets: tuple[int, ...]
    block_steps: tuple[int, ...]
    tail_steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """What the templates may read as `plan`. It holds nothing that depends on the number of elements."""

    dialect: str
    arch: str
    main: str
    before: str
    after: str
    command: str
    constants: tuple[Constant, ...]
    choices: tuple[Choice, ...]
    index_type: str
    address_type: str
    raw_type: str
    raw_words: int
    raw_bits: int
    element_type: str
    value_type: str
    result_type: str
    result_dtype: str
    out_type: str
    store: str
    narrows: str
    register_dtypes: tuple[str, ...]
    state: tuple[Field, ...]
    state_bytes: int
    bits_type: str
    wins: str
    finish: str
    uses_index: bool
    meets: tuple[Meet, ...]
    joins: int
    asks_wave: bool
    lane_mask: str
    counts: bool
    cluster: int
    nan_intrinsics: tuple[str, ...]
    native_atomic: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The launches and derived numbers of a problem and a config on a device. Sizes are in bytes, `depth` is the most
    merges an element goes through on its way into the result."""

    tile: int
    blocks: int
    launches: tuple[Launch, ...]
    state_bytes: int
    partials_bytes: int
    counter_bytes: int
    lds_bytes: int
    depth: int


def state_layout(op: Operator, accumulate: str) -> tuple[tuple[tuple[str, str, int], ...], int]:
    """((field, dtype, offset), ...) and the size of the state in bytes, laid out as C does."""
    at, widest, rows = 0, 1, []
    for name, kind in op.state:
        dtype = field_type(kind, accumulate)
        size = dtype_named(dtype).bytes
        at = -(-at // size) * size
        rows.append((name, dtype, at))
        at += size
        widest = max(widest, size)
    return tuple(rows), -(-at // widest) * widest


def halvings(width: int) -> tuple[int, ...]:
    """The offsets of a tree over `width` partials, rounded up to a power of two: 12 gives 8, 4, 2, 1."""
    step = 1 << max(0, (width - 1).bit_length())
    return tuple(step >> i for i in range(1, step.bit_length()))


def lanes_of(config: Config, dialect: Dialect, device: Device) -> int:
    """How many lanes meet by shuffles: the tail, or as much of it as issues together."""
    return min(config.wave, dialect.hardware_wave(config, device))


def make_meet(name: str, block: int, config: Config, lanes: int) -> Meet:
    """How `block` threads meet under `config`."""
    wave = config.wave
    if config.exchange == "lds":
        tail_steps = halvings(min(wave, block)) if config.tree == "unrolled" else ()
        block_steps = tuple(s for s in halvings(block) if s >= wave) if config.tree == "unrolled" else ()
        return Meet(name, block, 1, 1, block, (), (), block_steps, tail_steps)
    tails, joins = block // wave, wave // lanes
    return Meet(name, block, tails, joins, max(1, tails * joins), halvings(lanes), halvings(tails), (), ())


def make_plan(problem: Problem, config: Config, dialect: Dialect, device: Device) -> Plan:
    """The launches and sizes for exactly this number of elements."""
    op, dtype, combine = operator_named(problem.op), dtype_named(problem.dtype), COMBINES[config.combine]
    tile = config.block * config.items * config.vector
    tiles = max(1, -(-problem.n // tile))
    blocks = tiles if config.walk == "tile" else min(tiles, config.blocks_per_cu * device.compute_units)
    per_cluster = config.cluster if is_read("cluster", config) else 1
    blocks = -(-blocks // per_cluster) * per_cluster
    _, state_bytes = state_layout(op, problem.accumulate)
    partials = max(1, blocks // per_cluster) if combine.partials else 0
    lanes = lanes_of(config, dialect, device)
    ranks = per_cluster if is_read("cluster", config) else 0
    lds_bytes = state_bytes * (make_meet("", config.block, config, lanes).slots + ranks) + (4 if combine.counter else 0)
    if combine.after:
        lds_bytes = max(lds_bytes, state_bytes * make_meet("", config.second_block, config, lanes).slots)
    names = entry_names(problem, config)
    scratch = ("partials",) * combine.partials + ("counter",) * combine.counter
    launches = [Launch(names.main, blocks, config.block, ("data", "first", "n", *scratch, "out"))]
    if combine.before and blocks > 1:
        launches.insert(0, Launch(names.before, 1, 1, ("out",)))
    if combine.after and blocks > 1:
        launches.append(Launch(names.after, 1, config.second_block, ("partials", "blocks", "out")))
    return Plan(
        tile=tile,
        blocks=blocks,
        launches=tuple(launches),
        state_bytes=state_bytes,
        partials_bytes=partials * state_bytes,
        counter_bytes=4 if combine.counter else 0,
        lds_bytes=lds_bytes,
        depth=_depth(problem.n, config, tile, blocks, dtype.bytes),
    )


def _depth(n: int, config: Config, tile: int, blocks: int, element_bytes: int) -> int:
    """Merges on the longest way from an element to the result, head and tail included."""
    tiles_each = -(-n // (tile * blocks)) + 1
    chain = -(-(config.items * config.vector) // config.accumulators) * tiles_each
    ragged = 2 + -(-tile // config.block) + 16 // element_bytes
    combine = COMBINES[config.combine]
    last = config.second_block if combine.after else config.block
    trees = config.accumulators + 2 * config.block.bit_length() + 8
    together = blocks if combine.in_turn else -(-blocks // last) + 2 * last.bit_length()
    return chain + ragged + trees + together


@dataclass(frozen=True, slots=True)
class EntryNames:
    """The entry points of a kernel; `before` and `after` are empty where the combine has no such launch."""

    main: str
    before: str
    after: str


def entry_names(problem: Problem, config: Config) -> EntryNames:
    """The names of the entry points."""
    main, combine = f"redtune_{problem.op}_{problem.dtype}", COMBINES[config.combine]
    before = f"{main}_{combine.before}" if combine.before else ""
    return EntryNames(main, before, f"{main}_{combine.after}" if combine.after else "")


def make_text(problem: Problem, config: Config, dialect: Dialect, device: Device, output: str = "value") -> Text:
    """Everything the templates read. `output` is "value", or "state" for a kernel that leaves its state unfinished."""
    op, dtype, combine = operator_named(problem.op), dtype_named(problem.dtype), COMBINES[config.combine]
    result = result_type(op, dtype)
    names = entry_names(problem, config)
    lanes = lanes_of(config, dialect, device)
    meets = [make_meet("meet_block", config.block, config, lanes)]
    if combine.after:
        meets.append(make_meet("meet_second", config.second_block, config, lanes))
    state, state_bytes = _spell_state(op, problem.accumulate, dialect, device.arch)
    words = _words(dialect, problem.accumulate, device.arch)
    # A float that no register holds is rounded on its way out.
    narrows = result if dtype_named(result).kind == "float" and dtype_named(result).register != result else ""
    finish = spell(op.finish, words, {})
    value_type = dialect.types[problem.accumulate]
    result_spelled = dialect.types[result]
    used = " ".join(field.merge for field in state)
    return Text(
        dialect=dialect.name,
        arch=device.arch,
        main=names.main,
        before=names.before,
        after=names.after,
        command=_command(problem, config, device) if output == "value" else f"redtune run --op {problem.op} FILE.npy",
        constants=_constants(config, lanes),
        choices=tuple(
            Choice(name, getattr(config, name), help_of(name))
            for name, field in KNOBS.items()
            if isinstance(field.default, str) and is_read(name, config)
        ),
        index_type=dialect.types["int64"],
        address_type=dialect.address_type,
        raw_type=dialect.raw[config.vector * dtype.bytes],
        raw_words=_RAW_WORDS[config.vector * dtype.bytes],
        raw_bits=config.vector * dtype.bytes * 8,
        element_type=dialect.types[problem.dtype],
        value_type=value_type,
        result_type=result_spelled,
        result_dtype=result,
        out_type="result_t" if output == "value" else "State",
        store="finish" if output == "value" else "",
        narrows=narrows,
        register_dtypes=tuple(sorted({problem.accumulate, *(f.dtype for f in state)})),
        state=state,
        state_bytes=state_bytes,
        bits_type=dialect.types["uint32" if state_bytes == 4 else "uint64"],
        wins=spell(op.wins, words, {}) if op.wins else "",
        finish=f"narrow({finish})"
        if narrows
        else (finish if result_spelled == value_type else f"(result_t)({finish})"),
        uses_index=any(text == "i" for text in op.lift),
        meets=tuple(meets),
        joins=config.wave // lanes,
        asks_wave=is_read("wave", config),
        lane_mask=dialect.lane_mask,
        counts=combine.counter,
        cluster=config.cluster if is_read("cluster", config) else 0,
        nan_intrinsics=tuple(d for d in ("max", "min") if f"{d}_nan(" in used),
        native_atomic=_native_atomic(op, problem.accumulate, state, dialect),
    )


def _words(dialect: Dialect, accumulate: str, arch: str) -> dict[str, str]:
    dtype = dtype_named(accumulate)
    return {**c_words(dtype), **dialect.words(dtype, arch)}


def _spell_state(op: Operator, accumulate: str, dialect: Dialect, arch: str) -> tuple[tuple[Field, ...], int]:
    words = _words(dialect, accumulate, arch)
    limits = c_limits(dialect, dtype_named(accumulate))
    names = {**limits, "no_index": f"{NO_INDEX}{dialect.suffix_64}"}
    rows, size = state_layout(op, accumulate)
    spelled = []
    for k, (name, dtype, offset) in enumerate(rows):
        lift = spell(op.lift[k], words, names)
        if dtype == UNSIGNED.get(accumulate):
            lift = f"({dialect.types[dtype]})({lift})"
        spelled.append(
            Field(
                name=name,
                dtype=dtype,
                type=dialect.types[dtype],
                offset=offset,
                identity=spell(op.identity[k], words, names),
                lift=lift,
                merge=spell(op.merge[k], words, names),
                ptx=_PTX[dtype][0],
                ptx_letter=_PTX[dtype][1],
            )
        )
    return tuple(spelled), size


def _native_atomic(op: Operator, accumulate: str, state: tuple[Field, ...], dialect: Dialect) -> str:
    """The language's own atomic for the operator, where it means the same: NaN and rounding included."""
    if len(state) != 1:
        return ""
    spelling = dialect.atomics.get((op.native, state[0].dtype), "")
    return spelling.format(type=state[0].type, value=f"s.{state[0].name}")


def _constants(config: Config, lanes: int) -> tuple[Constant, ...]:
    rows = [
        Constant(name.upper(), getattr(config, name), help_of(name))
        for name, field in KNOBS.items()
        if isinstance(field.default, int) and is_read(name, config) and name != "blocks_per_cu"
    ]
    if config.exchange != "lds":
        rows.append(Constant("LANES", lanes, "of them issue together and meet by shuffles"))
    rows.append(Constant("TILE", config.block * config.items * config.vector, "elements a block folds at once"))
    return tuple(rows)


def _command(problem: Problem, config: Config, device: Device) -> str:
    """The command line that writes this kernel again."""
    default = settled(Config())
    given = (f.name for f in fields(config) if is_read(f.name, config))
    fixes = [
        f"--fix {name}={getattr(config, name)}" for name in given if getattr(config, name) != getattr(default, name)
    ]
    words: list[Any] = ["redtune show --source", f"--op {problem.op}", f"--dtype {problem.dtype}"]
    words += [f"--backend {device.backend}", f"--arch {device.arch}", *fixes]
    return " ".join(words)
