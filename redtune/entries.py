"""What a stored entry may say. Its types are checked where it is read (`redtune.types`), its values here: all that no
search can have written is refused, so that nothing of it reaches a kernel's text, a file name or a terminal.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from redtune.backends import BACKENDS
from redtune.clock import is_time
from redtune.config import own_refusals
from redtune.errors import UsageError
from redtune.problems import ACCUMULATES, MAX_N, make_problem
from redtune.types import Best, Device, Problem, as_json

MAX_WORD = 300  # of a name, a version, a date
MAX_DEFINITION = 20_000  # of an operator of the user's own
MAX_SIZE = 1 << 62  # of memory, in bytes
TEMPERATURES = ("cold", "warm")
LABELS = ("run-to-run", "varies")


def check_best(best: Best) -> None:
    """Raises UsageError naming the first value that no search can have written."""
    for where, text in texts_in(as_json(best), "Best"):
        most = MAX_DEFINITION if where == "Best.problem.custom" else MAX_WORD
        _check(text.isprintable() and len(text) <= most, where, text)
    check_problem(best.problem)
    check_device(best.device)
    for reason in own_refusals(best.config):
        raise UsageError(f"Best.config: {reason}")
    for name in ("median_us", "gbps"):
        _check(is_time(getattr(best, name)), f"Best.{name}", getattr(best, name))
    for name in ("runner_up_us", "default_us", "worst_us", "baseline_us", "ceiling_gbps"):
        value = getattr(best, name)
        _check(value is None or is_time(value), f"Best.{name}", value)
    _check(0 <= best.spread_us < math.inf, "Best.spread_us", best.spread_us)
    _check(best.temperature in TEMPERATURES, "Best.temperature", best.temperature)
    _check(best.determinism in LABELS, "Best.determinism", best.determinism)
    _check(1 <= best.trials < 1 << 40, "Best.trials", best.trials)
    _check(0 <= best.seed < 1 << 32, "Best.seed", best.seed)
    _check(_is_date(best.found), "Best.found", best.found)
    for name, figure in as_json(best.repeated).items() if best.repeated else ():
        _check(figure is None or figure >= 0, f"Best.repeated.{name}", figure)


def check_problem(problem: Problem) -> None:
    """Raises UsageError for a problem that no names and sizes make: an unknown operator, a running value of another
    type, an operator of the user's own whose definition is none."""
    for name in ("outer", "inner"):
        _check(getattr(problem, name) >= 1, f"Problem.{name}", getattr(problem, name))
    size = problem.outer * problem.n * problem.inner
    _check(size <= MAX_N, "Problem.n", problem.n)
    plain = replace(problem, is_strided=False, is_ragged=False, is_masked=False, is_seeded=False)
    for accumulate in ("compensated",) if problem.is_compensated else (None, *ACCUMULATES[:1]):
        made = make_problem(
            problem.op,
            problem.dtype,
            problem.n,
            problem.determinism,
            outer=problem.outer,
            inner=problem.inner,
            accumulate=accumulate,
            result=problem.result or None,
            custom=problem.custom,
        )
        if made == plain:
            return
        _check(made.op == problem.op, "Problem.op", problem.op)
    raise UsageError(f"Problem.accumulate cannot be {problem.accumulate!r}")


def check_device(device: Device) -> None:
    """Raises UsageError for a device that none can be."""
    _check(device.backend in BACKENDS, "Device.backend", device.backend)
    _check(device.kind in ("gpu", "cpu"), "Device.kind", device.kind)
    _check(bool(device.arch), "Device.arch", device.arch)
    for name in ("index", "lds_bytes", "cache_bytes", "memory_bytes"):
        _check(0 <= getattr(device, name) <= MAX_SIZE, f"Device.{name}", getattr(device, name))
    for name in ("max_block", "compute_units"):
        _check(1 <= getattr(device, name) <= MAX_SIZE, f"Device.{name}", getattr(device, name))
    _check(all(1 <= wave <= 1 << 16 for wave in device.waves), "Device.waves", device.waves)


def _check(is_right: bool, where: str, value: Any) -> None:
    if not is_right:
        raise UsageError(f"{where} cannot be {value!r:.80}")


def _is_date(text: str) -> bool:
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def texts_in(data: Any, where: str) -> Iterator[tuple[str, str]]:
    """Every text in plain data with its place, the names of mappings included."""
    if isinstance(data, str):
        yield where, data
    elif isinstance(data, list):
        for item in data:
            yield from texts_in(item, where)
    elif isinstance(data, dict):
        for name, value in data.items():
            yield f"a name in {where}", name
            yield from texts_in(value, f"{where}.{name}")
