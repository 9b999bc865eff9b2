"""What is asked for, checked: the problem, its size on a device, the knobs that are fixed."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redtune.config import KNOBS, Config, Value, choices, settled
from redtune.dtypes import unknown
from redtune.errors import UsageError
from redtune.plan import read_bytes
from redtune.problems import make_problem, shaped_problem
from redtune.types import Device, Problem

if TYPE_CHECKING:
    from redtune.dialect import Dialect

DEFAULT_N = {"gpu": 1 << 28, "cpu": 1 << 25}


def check_fixes(fix: Mapping[str, Value]) -> dict[str, Value]:
    """The fixed knobs. Raises UsageError for a knob that is not there or a value it cannot have."""
    for name, value in fix.items():
        if name not in KNOBS:
            raise UsageError(unknown("knob", name, KNOBS))
        if value not in choices(name):
            allowed = ", ".join(map(str, choices(name)))
            raise UsageError(f"knob {name} cannot be {value!r}: choose from {allowed}")
    return dict(fix)


def check_fits(problem: Problem, device: Device) -> None:
    """Raises UsageError when the input is larger than the device can hold."""
    wanted = read_bytes(problem)
    if device.memory_bytes and wanted > 0.8 * device.memory_bytes:
        raise UsageError(
            f"{problem.n * problem.results} elements of {problem.dtype} are {wanted / 2**30:.1f} GiB, "
            f"and {device.name} has {device.memory_bytes / 2**30:.1f} GiB"
        )


def check_seed(seed: int) -> None:
    """Raises UsageError for a seed that numpy does not take."""
    if not 0 <= seed < 2**32:
        raise UsageError(f"seed is {seed}; it must lie between 0 and 2**32 - 1")


def wanted_problem(
    op: str,
    dtype: str,
    n: int | None,
    shape: Sequence[int] | None,
    axis: Any,
    determinism: str = "any",
    accumulate: str | None = None,
    custom: str = "",
) -> Problem:
    """The problem of a flat size or of a shape; of one element where neither is given."""
    if shape is None:
        if axis is not None:
            raise UsageError(f"axis {axis} belongs to a shape: give the shape too")
        return make_problem(op, dtype, 1 if n is None else n, determinism, accumulate=accumulate, custom=custom)
    if n is not None:
        raise UsageError(f"n is {n} and the shape {tuple(shape)}: give one of them")
    return shaped_problem(op, dtype, tuple(shape), axis, determinism, accumulate=accumulate, custom=custom)


def sized(problem: Problem, n: int | None, device: Device) -> Problem:
    """The problem with the device's default size where none was asked for."""
    return problem if n is not None else replace(problem, n=DEFAULT_N[device.kind])


def with_fixes(base: Config, fix: Mapping[str, Value], problem: Problem, dialect: Dialect, device: Device) -> Config:
    """`base` with the fixed knobs. Raises UsageError for one that would have no effect, or a config that cannot run."""
    from redtune.refusals import refusals

    values: dict[str, Any] = check_fixes(fix)
    config = settled(replace(base, **values))
    for name, value in values.items():
        if getattr(config, name) != value:
            raise UsageError(
                f"{name} {value} has no effect beside the other knobs; fix those that it belongs to as well"
            )
    reasons = refusals(config, problem, dialect, device)
    if reasons:
        raise UsageError(reasons[0])
    return config


def default_with_fixes(fix: Mapping[str, Value], problem: Problem, dialect: Dialect, device: Device) -> Config:
    """The default config with the fixed knobs, or where they do not go with its others the first of the configs that a
    search would begin with which they go with. Raises UsageError as `with_fixes` does for the default."""
    from redtune.defaults import default_config, starting_points

    for base in starting_points(problem, dialect, device):
        with contextlib.suppress(UsageError):
            return with_fixes(base, fix, problem, dialect, device)
    return with_fixes(default_config(problem, dialect, device), fix, problem, dialect, device)
