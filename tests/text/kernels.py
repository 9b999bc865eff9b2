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
from redtune.dialect import Dialect
from redtune.dtypes import DTYPES, dtype_named
from redtune.operators import OPERATORS, accumulate_type, operator_named
from redtune.refusals import refusals
from redtune.render import render
from redtune.space import Space, make_space
from redtune.types import Device, Kernel, Problem

# One architecture of each dialect; the OpenCL name is free.
ARCHS = {"cuda": "sm_90", "hip": "gfx942", "opencl": "cpu"}


@dataclass(frozen=True)
class Target:
    """A dialect and a stand-in for a device."""

    dialect: Dialect
    device: Device


def target(backend: str, arch: str | None = None, **changes: Any) -> Target:
    """The stand-in for `arch`, with some of its fields changed."""
    found = backend_named(backend)
    return Target(found.dialect, dataclasses.replace(found.describe(arch or ARCHS[backend]), **changes))


def problem(op: str = "sum", dtype: str = "float32", n: int = 1 << 24, determinism: str = "any") -> Problem:
    accumulate = accumulate_type(operator_named(op), dtype_named(dtype))
    return Problem(op, dtype, accumulate, n, determinism=determinism)


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
                for p in (problem("sum"), problem("max", "int32"))
                for beside in ({}, {"exchange": "lds"})
                if name not in beside
            )
            legal = ((c, p) for c, p in tried if getattr(c, name) == choice and not reasons(on, c, p))
            found = next(legal, None)
            if found is not None and found[0] != config():
                yield f"{name}_{choice}", *found


def random_cases(on: Target, count: int, seed: int) -> Iterator[tuple[Config, Problem]]:
    """Legal configs at random, going round the operators and dtypes."""
    rng = random.Random(seed)
    pairs = [(op, dtype) for op in OPERATORS for dtype in DTYPES]
    rng.shuffle(pairs)
    for op, dtype in itertools.islice(itertools.cycle(pairs), count):
        space = _space(on.device, op, dtype)
        drawn = space.draw(rng)
        assert drawn is not None
        yield drawn, space.problem


@functools.cache
def _space(device: Device, op: str, dtype: str) -> Space:
    """Finding out what is admitted takes longer than a hundred draws."""
    return make_space(problem(op, dtype), backend_named(device.backend).dialect, device, {})
