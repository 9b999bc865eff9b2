"""A sample of the valid space that leaves out no strategy: problems over operators, dtypes, layouts and accumulators;
configs over structural choices in turn, with every value of every knob somewhere."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from redtune.backends import backend_named
from redtune.config import KNOBS, WITH_TAIL, Config, Value, choices, is_read, settled, team_of
from redtune.dtypes import DTYPES
from redtune.errors import UsageError
from redtune.operators import OPERATORS
from redtune.plan import parts_of, state_layout
from redtune.problems import make_problem
from redtune.refusals import IDLE_COMBINE, is_legal, problem_refusal
from redtune.space import make_space
from redtune.types import Device, Problem

LAYOUTS = ("flat", "rows", "columns")
# Odd sizes, from less than a tile of any config to more than one of most: (outer, n, inner).
SHAPES = {
    "flat": ((1, 97, 1), (1, 150_001, 1), (1, 1_000_003, 1)),
    "rows": ((2, 70_001, 1), (50, 777, 1), (1001, 33, 1), (5, 4099, 1)),
    "columns": ((1, 30_001, 2), (3, 300, 48), (1, 50_001, 1), (2, 65, 131), (33, 1031, 1), (7, 77, 32)),
}
# Draws before a demand counts as one that no legal config meets.
DRAWS = 300
# A CPU takes the threads of a block one after the other: so many bytes of states through meetings take long enough.
CPU_MEETINGS = 2_200_000
# Its compiler unrolls every element over all lanes of a sub-group: so many fields of states compile for seconds. Of
# configs with more than a quarter of that the lightest of a few stands for its like.
CPU_UNROLLED = 512
CPU_DRAWN = 8
WISHES = 6  # values still wanted that a config is asked for together, as far as they go

Demands = Mapping[str, tuple[Value, ...]]


@dataclass(frozen=True, slots=True)
class Scope:
    """What a sample is drawn from: some operators, dtypes and layouts (all if empty), and configs in which so many
    threads at most share a result (any number if 0), as a simulator takes them one after the other."""

    ops: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    layouts: tuple[str, ...] = LAYOUTS
    threads: int = 0

    def holds(self, op: str, dtype: str) -> bool:
        """Whether an operator of a dtype belongs to it."""
        return (not self.ops or op in self.ops) and (not self.dtypes or dtype in self.dtypes)

    def fits(self, problem: Problem, config: Config, device: Device) -> bool:
        """Whether few enough threads share a result."""
        parts = parts_of(problem, config, device) if problem.layout == "flat" else config.split
        return not self.threads or parts * config.block <= self.threads


EVERYTHING = Scope()


def several_blocks() -> tuple[Value, ...]:
    return tuple(split for split in choices("split") if split != 1)


def strata(layout: str) -> list[Demands]:
    """Every combination of structural choices in which each of them has an effect: how threads meet, how blocks meet,
    which tiles a block takes."""
    meets = []
    for exchange, tree, wave in itertools.product(choices("exchange"), choices("tree"), choices("wave")):
        config = Config(exchange=str(exchange), tree=str(tree), wave=int(wave))
        row = {"exchange": exchange, "tree": tree, "wave": wave}
        meets.append({name: (value,) for name, value in row.items() if is_read(name, config)})
    meets = [row for k, row in enumerate(meets) if row not in meets[:k]]
    apart: list[Demands] = [{"split": (1,)}] if layout != "flat" else []
    split: Demands = {"split": several_blocks()} if layout != "flat" else {}
    joins = apart + [{"combine": (combine,), **split} for combine in choices("combine")]
    walks = [walk for walk in choices("walk") if layout == "flat" or walk != "tile"]
    rows = [{**meet, **join, "walk": (walk,)} for meet, join, walk in itertools.product(meets, joins, walks)]
    alone: list[Demands] = [{"team": (1,), "walk": (walk,)} for walk in walks] if layout != "flat" else []
    return rows + alone


def drawn(
    problem: Problem,
    device: Device,
    demands: Demands,
    rng: random.Random,
    draws: int = DRAWS,
    scope: Scope = EVERYTHING,
) -> Config | None:
    """One legal config at random in which every knob demanded has an effect, or None when none was found.

    It draws from every choice of a knob and not from `Space.admitted`, so that it is no narrower than the refusals.
    """
    dialect = backend_named(device.backend).dialect
    rows = [(name, tuple(demands.get(name, choices(name)))) for name in ORDER]
    for _ in range(draws):
        values: dict[str, Any] = {}
        for name, options in rows:
            values[name] = rng.choice(likely(problem, device, values, name, options) or options)
        if problem.layout != "flat" and values["split"] == 1:
            values |= {name: value for name, value in IDLE_COMBINE.items() if name not in demands}
        config = settled(Config(**values))
        if any(getattr(config, name) not in options or not is_read(name, config) for name, options in demands.items()):
            continue
        if (
            is_legal(config, problem, dialect, device)
            and is_quick(problem, config, device)
            and scope.fits(problem, config, device)
        ):
            return config
    return None


# Knobs after those that bound them.
FIRST = ("split", "exchange", "tree", "wave", "vector")
ORDER = (*FIRST, *(name for name in KNOBS if name not in FIRST))


def likely(
    problem: Problem, device: Device, drawn: Mapping[str, Any], name: str, options: tuple[Value, ...]
) -> Sequence[Value]:
    """The values that may be legal beside those drawn before. This saves draws; the refusals decide."""
    is_allowed = _bound(problem, device, drawn, name)
    return options if is_allowed is None else [value for value in options if is_allowed(value)]


def _bound(problem: Problem, device: Device, drawn: Mapping[str, Any], name: str) -> Callable[[Any], bool] | None:
    """What a value of a knob must be to be likely, or None where any is."""
    is_flat, is_columns, is_cpu = problem.layout == "flat", problem.layout == "columns", device.kind == "cpu"
    match name:
        case "vector":
            inner, widest = problem.inner, 16 // DTYPES[problem.dtype].bytes
            return lambda value: value <= widest and not (is_columns and inner % value)
        case "block":
            wave, most = drawn["wave"], _most_threads(problem, device, drawn)
            is_tree = drawn["exchange"] == "lds"
            return lambda value: value % wave == 0 and value <= most and not (is_tree and value & (value - 1))
        case "items":
            most = (32 if is_cpu else 128) // drawn["vector"]
            return lambda value: value <= most
        case "accumulators":
            at_once = drawn["items"] * (1 if is_columns else drawn["vector"])
            return lambda value: at_once <= 8 * value and value <= at_once
        case "walk":
            return None if is_flat else lambda value: value != "tile"
        case "blocks_per_cu":
            block, most = drawn["block"], _most_threads(problem, device, drawn)
            return lambda value: block * value <= most
        case "team":
            block, is_whole = drawn["block"], is_flat or drawn["tree"] in WITH_TAIL
            return lambda value: value == 0 or not (is_whole or value >= block or block % value)
        case "split":
            return (lambda value: value == 1) if is_flat else None
    return None


def _most_threads(problem: Problem, device: Device, drawn: Mapping[str, Any]) -> float:
    """How many threads may share a result in one part of it."""
    is_bound = device.kind == "cpu" and problem.layout != "flat"
    return CPU_MEETINGS / 64 / drawn["split"] if is_bound else math.inf


def lanes_of(config: Config) -> int:
    """How many lanes a CPU's compiler takes together."""
    return config.wave if is_read("wave", config) else 8


def unrolled(problem: Problem, config: Config) -> int:
    """How many fields of states a CPU's compiler unrolls, on which hangs how long it takes."""
    return lanes_of(config) * config.items * config.vector * len(state_layout(problem)[0])


def drawn_lightly(
    problem: Problem, device: Device, demands: Demands, rng: random.Random, draws: int, scope: Scope = EVERYTHING
) -> Config | None:
    """As `drawn`; on a CPU the one of a few that compiles soonest, where the first one takes long."""
    config = drawn(problem, device, demands, rng, draws, scope)
    for _ in range(CPU_DRAWN - 1):
        if config is None or device.kind != "cpu" or unrolled(problem, config) <= CPU_UNROLLED / 4:
            break
        other = drawn(problem, device, demands, rng, draws, scope) or config
        config = min(config, other, key=lambda found: unrolled(problem, found))
    return config


def is_quick(problem: Problem, config: Config, device: Device) -> bool:
    """Whether a CPU compiles the config and judges it in seconds: the judge asks for more results than a grid takes at
    once."""
    if device.kind != "cpu":
        return True
    fields, state_bytes = state_layout(problem)
    lanes = lanes_of(config)
    if unrolled(problem, config) > max(CPU_UNROLLED, lanes * len(fields)):
        return False
    second = config.second_block if is_read("second_block", config) else 0
    if problem.layout == "flat":
        parts = parts_of(problem, config, device)
        return (parts * config.block + second) * state_bytes <= 4 * CPU_MEETINGS
    teams = config.block // team_of(config)
    groups = max(8 * config.blocks_per_cu, -(-problem.results // teams))
    passes = config.split * config.block + (teams * second if config.split > 1 else 0)
    return passes * groups * state_bytes <= CPU_MEETINGS


def wide(layout: str) -> list[Problem]:
    """Problems that allow whatever a layout allows: bytes the widest vectors, small states every way to meet."""
    return [problem_of("max", dtype, layout, SHAPES[layout][1]) for dtype in ("int32", "int8")]


def is_met(layout: str, device: Device, demands: Demands) -> bool:
    """Whether some legal config of a layout meets the demands."""
    return any(drawn(problem, device, demands, random.Random(0)) for problem in wide(layout))


@functools.cache
def legal_strata(layout: str, device: Device) -> list[Demands]:
    """The strata that have a legal config."""
    met = set(wishes(layout, device))
    rows = [row for row in strata(layout) if all(any((name, v) in met for v in row[name]) for name in row)]
    return [row for row in rows if is_met(layout, device, row)]


@functools.cache
def wishes(layout: str, device: Device) -> tuple[tuple[str, Value], ...]:
    """Every (knob, value) that has an effect in some legal config."""
    dialect = backend_named(device.backend).dialect
    spaces = [make_space(problem, dialect, device, {}) for problem in wide(layout)]
    # What no space admits would be drawn for in vain, hundreds of times.
    pairs = [
        (name, value) for name in KNOBS for value in choices(name) if any(value in s.admitted[name] for s in spaces)
    ]
    return tuple(pair for pair in pairs if is_met(layout, device, {pair[0]: (pair[1],)}))


# --- problems ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Flavour:
    """What may be asked for beside operator and dtype."""

    accumulate: str | None = None
    result: str | None = None


def flavours(op: str, dtype: str) -> dict[str, list[Flavour]]:
    """The legal ones by what they ask for: nothing, exactness, a wider accumulator, another dtype of the result."""
    asked = {
        "default": [Flavour()],
        "compensated": [Flavour("compensated")],
        "float64": [Flavour("float64")],
        "result": [Flavour(result=name) for name in DTYPES if name != dtype and is_kept(dtype, name)],
    }
    legal = {kind: [f for f in rows if is_problem(op, dtype, f)] for kind, rows in asked.items()}
    return {kind: rows for kind, rows in legal.items() if rows}


def is_kept(dtype: str, result: str) -> bool:
    """Whether the judge's reference means the same by a dtype of the result as numpy, which converts each element
    first: no float may be cut to a whole number and no number to a truth value."""
    kinds = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}
    return result != "bool" and kinds[DTYPES[result].kind] >= kinds[DTYPES[dtype].kind]


def is_problem(op: str, dtype: str, flavour: Flavour) -> bool:
    try:
        make_problem(op, dtype, accumulate=flavour.accumulate, result=flavour.result)
    except UsageError:
        return False
    return True


def problem_of(
    op: str, dtype: str, layout: str, shape: tuple[int, int, int], flavour: Flavour | None = None, **more: Any
) -> Problem:
    """A problem of a layout; columns of one result are elements at a distance."""
    outer, n, inner = shape
    asked = flavour or Flavour()
    problem = make_problem(
        op, dtype, n, outer=outer, inner=inner, accumulate=asked.accumulate, result=asked.result, **more
    )
    return replace(problem, is_strided=layout == "columns" and inner == 1)


def pairs(rng: random.Random) -> Iterator[tuple[str, str]]:
    """Every operator with every dtype that it has, in an order in which each comes up soon and often."""
    left = {op: [dtype for dtype in DTYPES if is_problem(op, dtype, Flavour())] for op in OPERATORS}
    used: Counter[str] = Counter()
    while any(left.values()):
        for op in rng.sample(list(left), len(left)):
            if left[op]:
                dtype = min(left[op], key=lambda name: (used[name], rng.random()))
                left[op].remove(dtype)
                used[dtype] += 1
                yield op, dtype


def problems(layout: str, device: Device, rng: random.Random, scope: Scope = EVERYTHING) -> Iterator[Problem]:
    """Problems of a layout without end, over operators, dtypes, sizes and what else may be asked for."""
    held = [pair for pair in pairs(rng) if scope.holds(*pair)]
    if not any(problem_refusal(problem_of(*pair, layout, SHAPES[layout][0]), device) == "" for pair in held):
        asked = f"{' or '.join(scope.ops) or 'operator'} of {' or '.join(scope.dtypes) or 'any dtype'}"
        raise UsageError(f"there is no problem to sample: {device.name} has no {asked}")
    used: Counter[str] = Counter()
    shapes = itertools.cycle(SHAPES[layout])
    for op, dtype in itertools.cycle(held):
        legal = flavours(op, dtype)
        kind = min(legal, key=lambda name: used[name])
        used[kind] += 1 if len(legal) > 1 else 0
        problem = problem_of(op, dtype, layout, next(shapes), rng.choice(legal[kind]))
        if not problem_refusal(problem, device):
            yield problem


# --- both -------------------------------------------------------------------------------------------------------------


def sampled(device: Device, count: int, seed: int, scope: Scope = EVERYTHING) -> Iterator[tuple[Problem, Config]]:
    """`count` problems with a legal config each, over operators x dtypes x layouts x strategies."""
    rng = random.Random(seed)
    given = {layout: problems(layout, device, rng, scope) for layout in scope.layouts}
    rows = {layout: rng.sample(legal_strata(layout, device), len(legal_strata(layout, device))) for layout in LAYOUTS}
    wanted = {layout: set(wishes(layout, device)) for layout in LAYOUTS}
    for k in range(count):
        layout = scope.layouts[k % len(scope.layouts)]
        problem = next(given[layout])
        yield problem, _next_config(problem, device, rows[layout], wanted[layout], rng, scope)


def _next_config(
    problem: Problem,
    device: Device,
    rows: list[Demands],
    wanted: set[tuple[str, Value]],
    rng: random.Random,
    scope: Scope,
) -> Config:
    """A config of the stratum that has waited longest among those that the problem allows, with as many of the values
    still wanted as go with it, of a few."""
    for row in list(rows):
        config = drawn_lightly(problem, device, row, rng, DRAWS // 5, scope)
        if config is None:
            continue
        rows.remove(row)
        rows.append(row)
        asked = row
        still = rng.sample(sorted(wanted, key=str), len(wanted))
        wide = [(name, v) for name, v in still if name == "vector" and likely(problem, device, {}, name, (v,))]
        # Wide vectors first: the fewest problems allow them.
        for name, value in [*wide, *(one for one in still if one[0] != "vector")][:WISHES]:
            if value in row.get(name, (value,)):
                more = {**asked, name: (value,)}
                found = drawn_lightly(problem, device, more, rng, DRAWS // 5, scope)
                config, asked = (config, asked) if found is None else (found, more)
        wanted -= {(name, getattr(config, name)) for name in KNOBS if is_read(name, config)}
        return config
    raise AssertionError(f"no stratum has a config for {problem}")
