"""Plan to words: every spelling the templates choose from. It holds nothing that depends on the number of elements."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from redtune.combine import COMBINES, COUNT_AT
from redtune.config import KNOBS, Config, help_of, is_read, settled, team_of
from redtune.dialect import Dialect, c_limits, c_words
from redtune.dtypes import UNSIGNED, dtype_named
from redtune.expressions import addends, names_in, needs_sign, renamed, spell
from redtune.lanes import Fetch, fetches_of
from redtune.narrow import folds_in_ints
from redtune.operators import NO_INDEX, Operator, accumulate_type, keeps_losses, operator_of, result_of
from redtune.packing import Packing, idle_accumulators, packing_of
from redtune.plan import (
    LOST,
    WORD_BYTES,
    Meet,
    after_arguments,
    before_arguments,
    cells_of,
    counts_elements,
    entry_names,
    finish_arguments,
    held_at_once,
    is_second_early,
    is_split,
    is_wide,
    lanes_of,
    main_arguments,
    meets_of,
    operands_of,
    results_at_once,
    second_team,
    second_teams,
    state_layout,
    tallies_of,
)
from redtune.sweeps import Sweeps, sweeps_of
from redtune.types import Device, Problem

OF_SPLIT = ("combine", "second_launch")  # knobs that choose code where blocks share a result

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
    """One field of the state, spelled. `keeps` is set for a sum that keeps what it loses, in the field it names: of the
    state itself, or of what a thread has folded so far."""

    name: str
    dtype: str
    type: str
    offset: int
    identity: str
    lift: str
    part_type: str  # in a part of a tile
    part_lift: str
    seed: str
    merge: str
    keeps: str
    addends: tuple[str, str]
    lost_before: str
    is_lost: bool
    words: int  # of 32 bits
    ptx: str
    ptx_letter: str


@dataclass(frozen=True, slots=True)
class Named:
    """A part of `merge` that has a name."""

    type: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Operand:
    """One array that is read in step with the others: its C types and how an element becomes a value."""

    name: str
    element_type: str
    raw_type: str
    raw_words: int
    raw_bits: int
    suffix: str  # what its types and functions are called by, after the name they have for the first operand
    is_mask: bool


@dataclass(frozen=True, slots=True)
class Text:
    """What the templates may read as `plan`."""

    dialect: str
    layout: str
    main: str
    before: str
    after: str
    main_args: tuple[str, ...]
    before_args: tuple[str, ...]
    after_args: tuple[str, ...]
    meaning: str
    shape: str
    command: str
    constants: tuple[Constant, ...]
    choices: tuple[Choice, ...]
    index_type: str
    address_type: str
    operands: tuple[Operand, ...]
    real_type: str
    value_type: str
    parts: int
    result_part_type: str
    result_dtype: str
    out_type: str
    store: str
    narrows: str
    register_dtypes: tuple[str, ...]
    state: tuple[Field, ...]
    atomic_type: str
    atomic_bytes: int
    bits_type: str
    lets: tuple[Named, ...]
    sweeps: Sweeps | None
    packing: Packing | None
    finish: tuple[str, ...]
    finish_args: tuple[str, ...]
    has_running: bool
    has_begun: bool
    has_parts: bool
    is_compensated: bool
    is_masked: bool
    is_seeded: bool
    is_split: bool
    is_wide: bool
    uses_index: bool
    meets: tuple[Meet, ...]
    fetches: tuple[Fetch, ...]
    team: int
    joins: int
    asks_wave: bool
    lane_mask: str
    counts: bool
    state_words: int
    cells: int
    payload: int
    tallies: int
    tally_type: str
    extra_blocks: int
    is_second_early: bool
    cluster: int
    nan_intrinsics: tuple[str, ...]
    has_decay: bool
    native_atomic: str


def make_text(problem: Problem, config: Config, dialect: Dialect, device: Device, output: str = "value") -> Text:
    """Everything the templates read. `output` is "value", or "state" for a kernel that leaves its state unfinished."""
    op, combine, split = operator_of(problem), COMBINES[config.combine], is_split(problem, config)
    has_running = keeps_losses(op, problem.accumulate) and not problem.is_compensated
    result = dtype_named(result_of(problem))
    names, lanes = entry_names(problem, config), lanes_of(config, dialect, device)
    cells = cells_of(problem, config)
    sweeps = sweeps_of(problem, config, _words(dialect, problem.accumulate, device.arch), _names(problem, dialect))
    meets = meets_of(problem, config, dialect, device)
    asks_wave = dialect.asks_wave and is_read("wave", config)
    idle = {"accumulators"} if idle_accumulators(problem, config, dialect) is not None else set()
    if not asks_wave and not any(meet.tails > 1 or meet.joins > 1 or meet.tail_steps for meet in meets):
        idle.add("wave")  # no team is as wide as a tail
    words = _words(dialect, problem.accumulate, device.arch)
    state = _spell_state(problem, op, dialect, words)
    part = _part_type(result.name)
    # A float that no register holds is rounded on its way out.
    narrows = part if dtype_named(part).kind == "float" and dtype_named(part).register != part else ""
    atomic = state[0].dtype if len(state) == 1 else "uint64"
    finish_names = _names(problem, dialect) | {"count": "a.seen" if counts_elements(problem, op) else "n"}
    return Text(
        dialect=dialect.name,
        layout=problem.layout,
        main=names.main,
        before=names.before,
        after=names.after,
        main_args=main_arguments(problem, config),
        before_args=before_arguments(problem),
        after_args=after_arguments(problem),
        meaning=op.meaning,
        shape=_shape(problem),
        command=_command(problem, config, device) if output == "value" else f"redtune run --op {problem.op} FILE.npy",
        constants=_constants(problem, config, lanes, idle),
        choices=tuple(
            Choice(name, getattr(config, name), help_of(name))
            for name, field in KNOBS.items()
            if isinstance(field.default, str) and is_read(name, config) and (split or name not in OF_SPLIT)
        ),
        index_type=dialect.types["int64"],
        address_type=dialect.address_type,
        operands=tuple(_operand(name, problem, config, dialect) for name in operands_of(problem)),
        real_type=dialect.types[problem.accumulate],
        value_type=dialect.types["int32"] if folds_in_ints(problem) else "real_t",
        parts=dtype_named(problem.dtype).parts,
        result_part_type=dialect.types[part],
        result_dtype=result.name,
        out_type="result_t" if output == "value" else "State",
        store="finish" if output == "value" else "",
        narrows=narrows,
        register_dtypes=tuple(sorted({problem.accumulate, *(f.dtype for f in state)})),
        state=state,
        atomic_type=dialect.types[atomic],
        atomic_bytes=dtype_named(atomic).bytes,
        bits_type=dialect.types["uint32" if dtype_named(atomic).bytes == 4 else "uint64"],
        lets=_spell_lets(op, words, _names(problem, dialect)),
        packing=packing_of(problem, config, dialect),
        sweeps=sweeps,
        finish=tuple(_narrowed(spell(text, words, finish_names), narrows, part, dialect) for text in op.finish),
        finish_args=finish_arguments(problem),
        has_running=has_running,
        has_begun=has_running and (config.walk == "tile" or (split and not combine.in_turn)),
        has_parts=folds_in_ints(problem),
        is_compensated=problem.is_compensated,
        is_masked=problem.is_masked,
        is_seeded=problem.is_seeded,
        is_split=split,
        is_wide=is_wide(problem, config),
        uses_index=any("i" in names_in(text) for text in op.lift),
        meets=meets,
        fetches=fetches_of(move for meet in meets for move in (*meet.lane_moves, *meet.tail_moves)),
        team=team_of(config),
        joins=max(meet.joins for meet in meets),
        asks_wave=asks_wave,
        lane_mask=dialect.lane_mask,
        counts=combine.counter == "number" and split,
        state_words=cells[0],
        cells=cells[1],
        payload=cells[2],
        tallies=tallies_of(problem, config),
        tally_type=dialect.types["uint64"],
        extra_blocks=combine.extra if split else 0,
        is_second_early=is_second_early(problem, config),
        cluster=config.cluster if split and is_read("cluster", config) else 0,
        nan_intrinsics=tuple(
            d for d in ("max", "min") if any(f"{d}_nan(" in text for text in _texts(state, op, words))
        ),
        has_decay=sweeps is not None and "decay_of(" in sweeps.added,
        native_atomic=_native_atomic(op, state, dialect),
    )


def spelled_for(text: str, problem: Problem, dialect: Dialect, device: Device) -> str:
    """An expression as the kernels of a problem have it."""
    return spell(text, _words(dialect, problem.accumulate, device.arch), _names(problem, dialect))


def _texts(state: tuple[Field, ...], op: Operator, words: dict[str, str]) -> list[str]:
    gathered = [spell(op.gather.merge, words, {})] if op.gather else []
    return gathered + [field.merge for field in state] + [spell(let.text, words, {}) for let in op.lets]


def _words(dialect: Dialect, accumulate: str, arch: str) -> dict[str, str]:
    dtype = dtype_named(accumulate)
    return {**c_words(dtype), **dialect.words(dtype, arch)}


def _part_type(result: str) -> str:
    """The dtype of a part of a result: of a complex number, that of its two numbers."""
    dtype = dtype_named(result)
    return dtype.register if dtype.kind == "complex" else result


def _narrowed(finish: str, narrows: str, part: str, dialect: Dialect) -> str:
    """A part of the result in its own type."""
    if narrows:
        return f"narrow({finish})"
    plain = finish if re.fullmatch(r"[\w.]+", finish) else f"({finish})"
    if dtype_named(part).kind == "bool":
        return f"(result_part_t)({plain} != 0)"
    return f"(result_part_t){plain}"


def _names(problem: Problem, dialect: Dialect) -> dict[str, str]:
    """What the names of limits are in the language."""
    return {**c_limits(dialect, dtype_named(problem.accumulate)), "no_index": f"{NO_INDEX}{dialect.suffix_64}"}


def _spell_state(problem: Problem, op: Operator, dialect: Dialect, words: dict[str, str]) -> tuple[Field, ...]:
    names = _names(problem, dialect)
    part_type = dialect.types["int32"] if folds_in_ints(problem) else ""
    slots, _ = state_layout(problem)
    written = {name: (op.identity[k], op.lift[k], op.merge[k]) for k, (name, _) in enumerate(op.state)}
    if counts_elements(problem, op):
        written.setdefault("seen", ("0", "1", "a.seen + b.seen"))
    seeds = dict(zip((name for name, _ in op.state), op.seed, strict=False))
    kept = {name for name, kind in op.state if kind == "sum"} if keeps_losses(op, problem.accumulate) else set()
    sides = "ab" if problem.is_compensated else "a"  # those that have lost anything
    spelled = []
    for slot in slots:
        identity, lift, merge = written.get(slot.name, ("0", "0", "0"))
        part_lift = spell(lift, c_words(dtype_named("int32")), names) if part_type else ""
        type_ = dialect.types[slot.dtype]
        wraps = slot.kind in ("sum", "wrapping") and slot.dtype == UNSIGNED.get(problem.accumulate)
        # Unsigned arithmetic wraps around where signed arithmetic would be undefined; an order needs the sign.
        unsigned = {n: f"({type_}){n}" for n in ("x", "y")} if wraps and not needs_sign(lift) else {}
        lift = spell(lift, words, names | unsigned)
        is_cast = slot.dtype != problem.accumulate or wraps
        spelled.append(
            Field(
                name=slot.name,
                dtype=slot.dtype,
                type=type_,
                offset=slot.offset,
                identity=spell(identity, words, names),
                lift=f"({type_})({lift})" if is_cast and not lift.isdigit() else lift,
                part_type=part_type or type_,
                part_lift=part_lift if part_type else lift,
                seed=spell(seeds[slot.name], words, names | {"x": "initial"}) if slot.name in seeds else "",
                merge=spell(merge, words, names),
                keeps=slot.name + LOST if slot.name in kept else "",
                addends=_two_sides(merge, words, names) if slot.name in kept else ("", ""),
                lost_before=_lost_before(slot.name, sides, merge, words, names) if slot.name in kept else "",
                is_lost=bool(slot.lost_of),
                words=dtype_named(slot.dtype).bytes // WORD_BYTES,
                ptx=_PTX[slot.dtype][0],
                ptx_letter=_PTX[slot.dtype][1],
            )
        )
    return tuple(spelled)


def _two_sides(merge: str, words: dict[str, str], names: dict[str, str]) -> tuple[str, str]:
    """What is added to what: the first term of the sum, and all the others."""
    first, *others = addends(merge)
    return spell(first, words, names), spell(" + ".join(others), words, names)


def _lost_before(field: str, sides: str, merge: str, words: dict[str, str], names: dict[str, str]) -> str:
    """What those sides that keep it had lost, carried through the same terms: those that are linear in the field."""
    terms = [term for term in addends(merge) if names_in(term) & {f"{side}.{field}" for side in sides}]
    lost = " + ".join(renamed(term, {field: field + LOST}) for term in terms)
    return spell(lost if "b" in sides else lost.replace(f"b.{field}{LOST}", "0"), words, names)


def _spell_lets(op: Operator, words: dict[str, str], names: dict[str, str]) -> tuple[Named, ...]:
    return tuple(
        Named("bool" if let.kind == "flag" else "real_t", let.name, spell(let.text, words, names)) for let in op.lets
    )


def _native_atomic(op: Operator, state: tuple[Field, ...], dialect: Dialect) -> str:
    """The language's own atomic for the operator, where it means the same: NaN and rounding included."""
    if len(op.state) != 1:
        return ""
    spelling = dialect.atomics.get((op.native, state[0].dtype), "")
    return spelling.format(type=state[0].type, value=f"s.{state[0].name}")


def _operand(name: str, problem: Problem, config: Config, dialect: Dialect) -> Operand:
    is_mask = name == "mask"
    dtype = dtype_named("bool" if is_mask else problem.dtype)
    load = config.vector * dtype.bytes
    return Operand(
        name=name,
        element_type=dialect.types[dtype.register if dtype.parts > 1 else dtype.name],
        raw_type=dialect.raw[load],
        raw_words=_RAW_WORDS[load],
        raw_bits=load * 8,
        suffix="" if name == "data" else f"_{name}",
        is_mask=is_mask,
    )


def _shape(problem: Problem) -> str:
    """What goes in, in a phrase."""
    two = "Two arrays" if len([o for o in operands_of(problem) if o != "mask"]) > 1 else "An array"
    masked = ", where a mask says so" if problem.is_masked else ""
    return {
        "flat": f"{two} of any length and alignment in{masked}",
        "rows": f"{two} of rows in, each of n neighbouring elements{masked}",
        "columns": f"{two} of outer x n x inner elements with any strides in{masked}",
        "ragged": f"{two} of rows of any lengths in, each from one offset to the next{masked}",
    }[problem.layout]


def _constants(problem: Problem, config: Config, lanes: int, idle: set[str]) -> tuple[Constant, ...]:
    """Those of the knobs that are numbers in the kernel, but the idle ones, and what follows from them."""
    idle = idle | {"blocks_per_cu", "split"} | ({"team"} if problem.layout == "flat" else set())
    idle |= set() if is_split(problem, config) else {"second_block", "cluster"}
    team = team_of(config)
    values = {name: team if name == "team" else getattr(config, name) for name in KNOBS}
    rows = [
        Constant(name.upper(), values[name], "threads that share a result" if name == "team" else help_of(name))
        for name, field in KNOBS.items()
        if isinstance(field.default, int) and is_read(name, config) and name not in idle
    ]
    if problem.layout != "flat":
        own = "VECTOR results" if is_wide(problem, config) else "a result"
        rows.append(Constant("TEAMS", config.block // team, f"teams of a block, each with {own} of its own"))
    if problem.layout != "flat" and is_split(problem, config) and COMBINES[config.combine].after:
        shared = second_team(problem, config)
        rows.append(Constant("SECOND_TEAM", shared, "threads of the second pass that share a result"))
        rows.append(Constant("SECOND_TEAMS", second_teams(problem, config), "teams of a block of the second pass"))
    if tallies := tallies_of(problem, config):
        rows.append(Constant("COUNT_AT", COUNT_AT, "the bit from which on a tally counts blocks"))
        if tallies > 1:
            rows.append(Constant("WORD_BITS", 8 * WORD_BYTES, "bits of a state that a tally adds up"))
    if is_wide(problem, config):
        rows.append(Constant("AT_ONCE", results_at_once(problem, config), "results that a block takes at once"))
    if team > 1 and config.exchange != "lds":
        rows.append(Constant("LANES", lanes, "of them issue together and meet by shuffles"))
    shared_by = "a block" if team == config.block else "a team"
    rows.append(Constant("TILE", team * held_at_once(problem, config), f"elements {shared_by} folds at once"))
    return tuple(rows)


# A shape and an axis whose kernel is the one for all of that layout.
_SHOWN = {"flat": "", "rows": "--shape 2x2 --axis 1", "columns": "--shape 2x16 --axis 0"}


def _command(problem: Problem, config: Config, device: Device) -> str:
    """The command line that writes this kernel again, or the call that does where none can."""
    only_called = problem.is_masked or problem.is_seeded or problem.is_ragged or problem.custom or problem.result
    if only_called or (problem.is_strided and problem.inner == 1):
        return f'redtune.reduce(x, "{problem.op}", ...) of {problem.dtype} on {device.arch}'
    default = settled(Config())
    given = (f.name for f in fields(config) if is_read(f.name, config))
    fixes = [
        f"--fix {name}={getattr(config, name)}" for name in given if getattr(config, name) != getattr(default, name)
    ]
    accumulate = "compensated" if problem.is_compensated else "float64"
    own = accumulate_type(operator_of(problem), dtype_named(problem.dtype))
    is_own = problem.accumulate == own and not problem.is_compensated
    words = ["redtune show --source", f"--op {problem.op}", f"--dtype {problem.dtype}", _SHOWN[problem.layout]]
    words += [] if is_own else [f"--accumulate {accumulate}"]
    words += [f"--backend {device.backend}", f"--arch {device.arch}", *fixes]
    return " ".join(filter(None, words))
