"""The legal configs of a problem on a device: counted, walked, sampled."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from redtune.config import KNOBS, Config, Value, combinations, default_of, is_read, settled
from redtune.defaults import default_config
from redtune.dialect import Dialect
from redtune.errors import UsageError
from redtune.refusals import admitted_choices, is_legal, problem_refusal, refusals
from redtune.types import Device, Problem

# A space with more combinations than this is not counted: walking them all would take longer than a search.
COUNTED = 200_000
# Draws before a space counts as empty of legal configs; an unconstrained space accepts about one in three.
DRAWS = 20_000
ALWAYS_READ = {name for name, field in KNOBS.items() if field.metadata["when"] is None}


@dataclass(frozen=True, slots=True)
class Space:
    """The configs that can run. `admitted` holds the choices left for each knob, `fixed` those the user has set;
    `compared` names those of them that must have an effect."""

    problem: Problem
    dialect: Dialect
    device: Device
    fixed: Mapping[str, Value]
    admitted: Mapping[str, tuple[Value, ...]]
    compared: tuple[str, ...] = ()

    def refusals(self, config: Config) -> list[str]:
        """Why the config cannot run, a fixed knob with another value included."""
        held = [
            f"{name} is fixed at {value}, not {getattr(config, name)}"
            for name, value in self.fixed.items()
            if getattr(config, name) != value
        ]
        held += [f"{name} has no effect in it" for name in self.compared if not is_read(name, config)]
        return held + refusals(config, self.problem, self.dialect, self.device)

    def allows(self, config: Config) -> bool:
        """Whether the config can run and has the fixed values."""
        held = all(getattr(config, name) == value for name, value in self.fixed.items())
        held = held and all(is_read(name, config) for name in self.compared)
        return held and is_legal(config, self.problem, self.dialect, self.device)

    def is_countable(self) -> bool:
        """Whether walking the space in full is worth a thought."""
        return math.prod(len(options) for options in self.admitted.values()) <= COUNTED

    def beside(self, config: Config) -> Iterator[Config]:
        """The legal configs that differ from one in one knob alone: a number by one step, a word by another."""
        for name, options in self.admitted.items():
            value = getattr(config, name)
            if value in options and is_read(name, config):
                at = options.index(value)
                others = options if isinstance(value, str) else options[max(0, at - 1) : at + 2]
                for other in others:
                    made = settled(replace(config, **dict[str, Any]({name: other})))
                    if made != config and self.allows(made):
                        yield made

    def walk(self) -> Iterator[Config]:
        """Every legal config once, in a fixed order."""
        return (c for c in combinations(self.fixed, self.admitted) if self.allows(c))

    def is_within(self, budget: int) -> bool:
        """Whether the legal configs are at most `budget`."""
        return self.is_countable() and len(list(itertools.islice(self.walk(), budget + 1))) <= budget

    def draw(self, rng: random.Random) -> Config | None:
        """One legal config at random, or None when none was found."""
        for _ in range(DRAWS):
            values: dict[str, Value] = {}
            for name in KNOBS:
                is_free = name in self.fixed or name in ALWAYS_READ
                is_free = is_free or is_read(name, Config(**values))  # type: ignore[arg-type]
                values[name] = rng.choice(self.admitted[name]) if is_free else default_of(name)
            config = Config(**values)  # type: ignore[arg-type]
            if self.allows(config):
                return config
        return None


def make_space(
    problem: Problem, dialect: Dialect, device: Device, fixed: Mapping[str, Value], compared: tuple[str, ...] = ()
) -> Space:
    """The space of a problem on a device. Raises UsageError when no config is left, with the first reason."""
    reason = problem_refusal(problem, device)
    if reason:
        raise UsageError(reason)
    start = default_config(problem, dialect, device)
    admitted = admitted_choices(problem, dialect, device, fixed, start)
    space = Space(problem, dialect, device, fixed, admitted, compared)
    empty = next((name for name, options in admitted.items() if not options), None)
    if empty is not None or (fixed and space.draw(random.Random(0)) is None):
        base = replace(start, **dict[str, Any](fixed))
        reasons = space.refusals(base) or [f"no value of {empty} goes with the rest"]
        raise UsageError(f"no config is left with {', '.join(f'{k}={v}' for k, v in fixed.items())}: {reasons[0]}")
    return space
