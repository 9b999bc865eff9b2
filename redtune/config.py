"""The door for knobs: `Config` has one field per knob, and `refusals` says in sentences why a config cannot be.

A knob is written once. Its default, choices and help stand in its field; the search space, the command line, the
emitted comments and the result columns derive from it. A knob that the rest of the config leaves without effect
(`when`) keeps its default, so no two configs mean the same kernel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

Value = int | str
WHOLE_BLOCK = 0  # the team of all threads of a block
WITH_TAIL = ("last_wave", "unrolled")  # trees whose last steps are those of one tail, written out
When = Callable[["Config"], bool]


def knob(default: Value, choices: tuple[Value, ...], help: str, when: When | None = None) -> Any:
    """A field of Config that the search may vary."""
    if default not in choices:
        raise AssertionError(f"default {default!r} is not one of {choices}")
    return dataclasses.field(default=default, metadata={"choices": choices, "help": help, "when": when})


@dataclass(frozen=True, slots=True)
class Config:
    """One value for every knob."""

    block: int = knob(256, (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024), "threads per block")
    vector: int = knob(1, (1, 2, 4, 8, 16), "elements per load, at most 16 bytes")
    items: int = knob(4, (1, 2, 3, 4, 6, 8, 16, 32), "independent loads in flight per thread before the fold")
    accumulators: int = knob(4, (1, 2, 4, 8, 16), "independent fold chains per thread and tile")
    walk: str = knob(
        "stride",
        ("tile", "stride", "chunk"),
        "which tiles a block takes: one of its own, every grid-th, or one contiguous range",
    )
    blocks_per_cu: int = knob(
        2,
        (1, 2, 3, 4, 6, 8, 16, 32),
        "blocks in the grid per compute unit",
        when=lambda c: c.walk != "tile",
    )
    team: int = knob(
        WHOLE_BLOCK,
        (WHOLE_BLOCK, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
        "threads that share a row or column, 0 for all of a block",
    )
    split: int = knob(1, (1, 2, 4, 8, 16, 32, 64, 128, 256, 512), "blocks that share a row or column")
    exchange: str = knob(
        "shuffle",
        ("shuffle", "lds", "redux", "dpp"),
        "how the lanes of a block meet",
        when=lambda c: c.team != 1,
    )
    tree: str = knob(
        "sequential",
        ("interleaved", "strided", "sequential", "last_wave", "unrolled"),
        "addressing of the tree in shared memory",
        when=lambda c: c.team != 1 and c.exchange == "lds",
    )
    wave: int = knob(
        32,
        (32, 64),
        "lanes the last tree spans before the threads of a block meet through shared memory",
        when=lambda c: c.team != 1 and (c.exchange != "lds" or c.tree in WITH_TAIL),
    )
    combine: str = knob(
        "last_block", ("two_pass", "atomic", "last_block", "cluster", "collector", "tally"), "how the blocks meet"
    )
    second_block: int = knob(
        256,
        (64, 256, 1024),
        "threads of the second pass",
        when=lambda c: c.combine == "two_pass",
    )
    second_launch: str = knob(
        "after",
        ("after", "early"),
        "when the second pass is started: after the first has ended, or before that, to wait for it",
        when=lambda c: c.combine == "two_pass",
    )
    cluster: int = knob(
        4,
        (2, 4, 8),
        "blocks that meet through each other's shared memory first",
        when=lambda c: c.combine == "cluster",
    )
    hint: str = knob("none", ("none", "streaming", "no_allocate"), "cache hint of the loads")


KNOBS: dict[str, dataclasses.Field[Any]] = {f.name: f for f in dataclasses.fields(Config)}

# More elements than this in one thread's unrolled fold spill registers on every device and compile for seconds.
MAX_UNROLLED = 128


_CHOICES: dict[str, tuple[Value, ...]] = {name: tuple(field.metadata["choices"]) for name, field in KNOBS.items()}
_WHEN: dict[str, When] = {name: field.metadata["when"] for name, field in KNOBS.items() if field.metadata["when"]}


def choices(name: str) -> tuple[Value, ...]:
    """Every value the knob `name` may take."""
    return _CHOICES[name]


def default_of(name: str) -> Value:
    """The value of the knob `name` that stands when nothing else is asked for."""
    return cast(Value, KNOBS[name].default)


def help_of(name: str) -> str:
    """What the knob `name` means, in a phrase."""
    return str(KNOBS[name].metadata["help"])


def team_of(config: Config) -> int:
    """How many threads share one result."""
    return config.block if config.team == WHOLE_BLOCK else config.team


def is_read(name: str, config: Config) -> bool:
    """Whether the rest of `config` gives the knob `name` any effect."""
    when = _WHEN.get(name)
    return when is None or when(config)


def settled(config: Config) -> Config:
    """`config` with every knob that has no effect at its default."""
    idle: dict[str, Any] = {
        name: default_of(name)
        for name, when in _WHEN.items()
        if not when(config) and getattr(config, name) != default_of(name)
    }
    return dataclasses.replace(config, **idle) if idle else config


def parse_fix(text: str) -> tuple[str, Value]:
    """`block=256` as (`"block"`, 256). Raises UsageError for an unknown knob or a value it does not have."""
    from redtune.dtypes import unknown
    from redtune.errors import UsageError

    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--fix wants KNOB=VALUE, not {text!r}")
    if name not in KNOBS:
        raise UsageError(unknown("knob", name, KNOBS))
    by_text = {str(choice): choice for choice in choices(name)}
    if value not in by_text:
        raise UsageError(f"knob {name} cannot be {value!r}: choose from {', '.join(by_text)}")
    return name, by_text[value]


def _value_refusals(config: Config) -> Iterator[str]:
    for name in KNOBS:
        value = getattr(config, name)
        if value not in choices(name):
            yield f"knob {name} cannot be {value!r}: choose from {', '.join(map(str, choices(name)))}"
        elif not is_read(name, config) and value != default_of(name):
            yield f"{name} {value} has no effect beside the other knobs; leave it at {default_of(name)}"


def own_refusals(config: Config) -> Iterator[str]:
    """The reasons that lie in the config alone."""
    strange = list(_value_refusals(config))
    yield from strange or _shape_refusals(config)


def _shape_refusals(c: Config) -> Iterator[str]:
    if is_read("wave", c) and c.block % c.wave:
        yield f"block {c.block} is not a whole number of {c.wave}-lane tails"
    if c.team >= c.block:
        yield f"team {c.team} is not a part of a block of {c.block}; write 0 for the whole block"
    elif c.block % team_of(c):
        yield f"block {c.block} is not a whole number of teams of {c.team}"
    if c.exchange == "lds" and team_of(c) & (team_of(c) - 1):
        yield f"a tree in shared memory needs a power of two of threads, not {team_of(c)}"
    if is_read("tree", c) and c.tree == "last_wave" and c.block <= 2 * c.wave:
        yield f"tree last_wave has no loop before a tail of {c.wave} lanes in a block of {c.block}: take unrolled"
    if c.items * c.vector > MAX_UNROLLED:
        yield f"items {c.items} x vector {c.vector} unrolls {c.items * c.vector} elements; at most {MAX_UNROLLED}"
    if c.accumulators > c.items * c.vector:
        yield f"accumulators {c.accumulators} are more than the {c.items * c.vector} elements a thread folds at once"


def combinations(fixed: Mapping[str, Value], admitted: Mapping[str, tuple[Value, ...]]) -> Iterator[Config]:
    """Every config over `admitted` choices with the `fixed` values, each meaning once, in a fixed order."""
    names = list(KNOBS)

    def extend(values: dict[str, Value], depth: int) -> Iterator[Config]:
        if depth == len(names):
            yield Config(**values)  # type: ignore[arg-type]
            return
        name = names[depth]
        # Every `when` reads earlier fields only, so the defaults of the later ones cannot matter here.
        if name in fixed:
            options: tuple[Value, ...] = (fixed[name],)
        elif is_read(name, Config(**values)):  # type: ignore[arg-type]
            options = admitted[name]
        else:
            options = (default_of(name),)
        for value in options:
            yield from extend({**values, name: value}, depth + 1)

    return extend({}, 0)
