"""Problems, configs and kernels for the tests that need no device."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from redtune.backends import backend_named
from redtune.config import KNOBS, Config, choices, settled
from redtune.defaults import starting_points
from redtune.dialect import Dialect
from redtune.dtypes import DTYPES, dtype_named
from redtune.errors import UsageError
from redtune.operators import OPERATORS, Operator, accumulate_type, keeps_losses, operator_for, operator_named
from redtune.refusals import refusals
from redtune.render import render
from redtune.types import Device, Kernel, Problem

# One architecture of each dialect; the OpenCL name is free.
ARCHS = {"cuda": "sm_90", "hip": "gfx942", "opencl": "cpu"}

# The fields of a problem that say how its elements lie.
LAYOUTS: dict[str, dict[str, Any]] = {
    "flat": {"n": 1 << 24},
    "rows": {"n": 3000, "outer": 50},
    "columns": {"n": 500, "outer": 3, "inner": 40},
    "strided": {"n": 50_001, "is_strided": True},
    "ragged": {"n": 100, "outer": 60, "is_ragged": True},
}
EXTRAS: dict[str, dict[str, Any]] = {
    "plain": {},
    "masked": {"is_masked": True},
    "seeded": {"is_seeded": True},
    "compensated": {"is_compensated": True},
    "wider": {"result": "float64"},
}


@dataclass(frozen=True)
class Target:
    """A dialect and a stand-in for a device."""

    dialect: Dialect
    device: Device


def target(backend: str, arch: str | None = None, **changes: Any) -> Target:
    """The stand-in for `arch`, with some of its fields changed."""
    found = backend_named(backend)
    return Target(found.dialect, dataclasses.replace(found.describe(arch or ARCHS[backend]), **changes))


def has_meaning(op: str, dtype: str) -> bool:
    """Whether the operator takes elements of the dtype."""
    try:
        operator_for(OPERATORS[op], DTYPES[dtype])
    except UsageError:
        return False
    return True


PAIRS = [(op, dtype) for op in OPERATORS for dtype in DTYPES if has_meaning(op, dtype)]


def operator(op: str, dtype: str) -> Operator:
    """The entry as it stands for elements of the dtype."""
    return operator_for(operator_named(op), dtype_named(dtype))


def problem(
    op: str = "sum", dtype: str = "float32", n: int = 1 << 24, determinism: str = "any", **more: Any
) -> Problem:
    """A problem, flat and plain where `more` says nothing else."""
    accumulate = accumulate_type(operator(op, dtype), dtype_named(more.get("result") or dtype))
    return Problem(op, dtype, **{"accumulate": accumulate, "n": n, "determinism": determinism} | more)


def config(**knobs: Any) -> Config:
    """The default config with some knobs set, and those without effect at their defaults."""
    return settled(dataclasses.replace(Config(), **knobs))


def reasons(on: Target, c: Config, p: Problem) -> list[str]:
    return refusals(c, p, on.dialect, on.device)


def rendered(on: Target, c: Config, p: Problem, output: str = "value") -> Kernel:
    """The kernel of a config that is legal."""
    assert not reasons(on, c, p)
    return render(p, c, on.dialect, on.device, output)


def strategies(on: Target) -> Iterator[tuple[str, Config, Problem]]:
    """(knob_choice, config, problem) for every choice that the dialect can spell of the knobs that choose code.

    The default config stands for its own choices. Some choices are read only beside others, or suit only some
    operators, so the nearest legal neighbour is taken.
    """
    for name, field in KNOBS.items():
        if not isinstance(field.default, str):
            continue
        for choice in choices(name):
            tried = (
                (config(**{name: choice, **beside}), p)
                for p in (problem("sum"), problem("max", "int32"), problem("sum", "int32"))
                for beside in ({}, {"exchange": "lds"}, {"combine": "two_pass"})
                if name not in beside
            )
            legal = ((c, p) for c, p in tried if getattr(c, name) == choice and not reasons(on, c, p))
            found = next(legal, None)
            if found is not None and found[0] != config():
                yield f"{name}_{choice}", *found


def extras(op: str, dtype: str) -> Iterator[dict[str, Any]]:
    """The extras of a problem that have a meaning for the operator."""
    entry, element = operator(op, dtype), dtype_named(dtype)
    for name, extra in EXTRAS.items():
        if name == "masked" and "i" in entry.lift:
            continue  # an index of nothing has no meaning
        if name == "seeded" and not entry.seeds:
            continue
        if name == "compensated" and not keeps_losses(entry, accumulate_type(entry, element)):
            continue
        if name == "wider" and (entry.accumulates == "register" or element.kind == "complex"):
            continue
        yield extra


def random_problems(seed: int, layouts: tuple[str, ...] = tuple(LAYOUTS)) -> Iterator[Problem]:
    """Problems without end, going round the operators, dtypes and layouts."""
    rng = random.Random(seed)
    pairs, lain = list(PAIRS), list(layouts)
    rng.shuffle(pairs)
    rng.shuffle(lain)
    for (op, dtype), layout in zip(itertools.cycle(pairs), itertools.cycle(lain), strict=False):
        yield problem(op, dtype, **LAYOUTS[layout] | rng.choice(list(extras(op, dtype))))


def random_config(on: Target, p: Problem, rng: random.Random, steps: int = 40) -> Config:
    """A legal config at random: from where a search begins, many tries to change a few knobs. Cheaper than a space."""
    at = rng.choice(starting_points(p, on.dialect, on.device))
    for _ in range(steps):
        changed = {name: rng.choice(choices(name)) for name in rng.sample(list(KNOBS), rng.randint(1, 3))}
        there = settled(dataclasses.replace(at, **changed))
        if not reasons(on, there, p):
            at = there
    return at


def random_cases(
    on: Target, count: int, seed: int, layouts: tuple[str, ...] = ("flat",)
) -> Iterator[tuple[Config, Problem]]:
    """Legal configs at random of problems at random."""
    rng = random.Random(seed)
    for p in itertools.islice(random_problems(seed, layouts), count):
        yield random_config(on, p, rng), p


@dataclass(frozen=True)
class Case:
    """A legal config of a problem, and its kernel."""

    config: Config
    problem: Problem
    kernel: Kernel


@functools.cache
def many_cases(dialect: str) -> tuple[Case, ...]:
    """Kernels at random over all layouts, made once for all tests that only look at them."""
    on = target(dialect)
    found = random_cases(on, 150, seed=10, layouts=tuple(LAYOUTS))
    return tuple(Case(c, p, rendered(on, c, p)) for c, p in found)
