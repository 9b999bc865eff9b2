"""What an export holds: the winners of one problem, for the architectures and sizes that were asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from redtune import shipped, store
from redtune.backends import backend_named
from redtune.combine import COMBINES
from redtune.config import KNOBS, Config, Value, help_of, is_read
from redtune.dialect import Dialect
from redtune.dtypes import Dtype, dtype_named
from redtune.errors import UsageError
from redtune.operators import Operator, accumulate_type, operator_of, result_of
from redtune.plan import (
    WORD_BYTES,
    after_arguments,
    before_arguments,
    counter_words,
    entry_names,
    is_second_early,
    is_split,
    main_arguments,
    make_plan,
    read_bytes,
    results_at_once,
    second_teams,
    tallies_of,
)
from redtune.render import render
from redtune.text import make_text
from redtune.types import Best, Device, Kernel, Problem

ANY_SIZE = -1  # of a problem whose size nobody named


@dataclass(frozen=True, slots=True)
class Variant:
    """One kernel of an export: for an architecture and arrays of about a size. `space` is its name in the files."""

    space: str
    kernel: Kernel
    device: Device
    best: Best | None
    sizes: tuple[int, int, int]  # the size classes of n, outer and inner that it was tuned for
    out_type: str  # what the kernel takes the results for

    @property
    def problem(self) -> Problem:
        """With the sizes that it was tuned for."""
        return self.kernel.problem

    @property
    def config(self) -> Config:
        """Its knobs."""
        return self.kernel.config

    @property
    def dialect(self) -> Dialect:
        """Its language."""
        return backend_named(self.device.backend).dialect

    @property
    def numbers(self) -> dict[str, Any]:
        """What a launcher computes with, of the kernel's plan: see redtune.plan for what each means."""
        problem, config = self.problem, self.config
        combine, split, names = COMBINES[config.combine], is_split(problem, config), entry_names(problem, config)
        plan = make_plan(problem, config, self.dialect, self.device)
        return {
            "main": names.main,
            "before": names.before if split else "",
            "after": names.after if split else "",
            "main_args": main_arguments(problem, config),
            "before_args": before_arguments(problem),
            "after_args": after_arguments(problem),
            "tile": plan.tile,
            "block": config.block,
            "second_block": config.second_block,
            "second_teams": second_teams(problem, config),
            "teams": results_at_once(problem, config),
            "split": config.split,
            "is_tiled": problem.layout == "flat" and config.walk == "tile",
            "per_unit": config.blocks_per_cu,
            "cluster": config.cluster if split and is_read("cluster", config) else 1,
            "state_bytes": plan.state_bytes,
            "has_partials": split and combine.partials,
            "counter": combine.counter if split else "",
            "counter_words": counter_words(problem, config),
            "counter_bytes": WORD_BYTES * counter_words(problem, config),
            "tallies": tallies_of(problem, config),
            "extra": combine.extra if split else 0,
            "is_second_early": is_second_early(problem, config),
        }

    @property
    def knobs(self) -> list[tuple[str, Value, str]]:
        """The knobs that matter, with what each one means."""
        return [(name, getattr(self.config, name), help_of(name)) for name in KNOBS if is_read(name, self.config)]

    @property
    def bytes(self) -> int:
        """What a reduction of the size that it was tuned for reads."""
        return read_bytes(self.problem)


@dataclass(frozen=True, slots=True)
class Export:
    """Everything the files of an export are written from. `name` is an identifier in every language."""

    name: str
    variants: tuple[Variant, ...]
    command: str

    @property
    def problem(self) -> Problem:
        """What is reduced, in some size."""
        return self.variants[0].problem

    @property
    def op(self) -> Operator:
        """The operator's entry."""
        return operator_of(self.problem)

    @property
    def dtype(self) -> Dtype:
        """The type of the elements."""
        return dtype_named(self.problem.dtype)

    @property
    def result(self) -> Dtype:
        """The type of the results."""
        return dtype_named(result_of(self.problem))

    @property
    def archs(self) -> tuple[str, ...]:
        """The architectures, without their features, in the order asked for."""
        return tuple(dict.fromkeys(plain_arch(variant.device) for variant in self.variants))

    @property
    def reads_ddof(self) -> bool:
        """Whether the result depends on how many degrees of freedom are taken away."""
        return "ddof" in self.variants[0].numbers["main_args"] + self.variants[0].numbers["after_args"]


def plain_arch(device: Device) -> str:
    """An architecture as compilers take it for all of its features."""
    return device.arch.partition(":")[0]


def is_cold(variant: Variant) -> bool:
    """Whether the inputs rotated past the cache where a kernel was measured."""
    return variant.best is None or variant.best.temperature == "cold"


def default_name(problem: Problem) -> str:
    """A name that says what is reduced, the same for every architecture and size."""
    own = accumulate_type(operator_of(problem), dtype_named(problem.dtype))
    words = ["redtune", problem.op, problem.dtype]
    words += [problem.layout] if problem.layout != "flat" else []
    words += ["compensated"] if problem.is_compensated else []
    words += [f"in_{problem.accumulate}"] if problem.accumulate != own else []
    words += ["run_to_run"] if problem.determinism == "run-to-run" else []
    return "_".join(words)


def choose(
    problems: Sequence[Problem],
    devices: Sequence[Device],
    *,
    fix: Mapping[str, Value],
    temperature: str,
    or_default: bool,
) -> tuple[Variant, ...]:
    """The winner of each problem on each device; of a problem of `ANY_SIZE`, one for each size that was tuned.

    Raises UsageError where there is no winner and the default was not asked for.
    """
    found: list[tuple[Device, Problem, Config, Best | None]] = []
    for device in devices:
        for problem in problems:
            found += _chosen(problem, device, fix, temperature, or_default)
    rows: dict[tuple[str, Any], Variant] = {}
    for device, problem, config, best in found:
        dialect = backend_named(device.backend).dialect
        key = device.arch, store.buckets(problem)
        rows.setdefault(
            key,
            Variant(
                f"v{len(rows)}",
                render(problem, config, dialect, device),
                device,
                best,
                store.buckets(problem),
                make_text(problem, config, dialect, device).out_type,
            ),
        )
    return tuple(rows.values())


def _chosen(
    problem: Problem, device: Device, fix: Mapping[str, Value], temperature: str, or_default: bool
) -> Iterator[tuple[Device, Problem, Config, Best | None]]:
    from redtune.wanted import DEFAULT_N, default_with_fixes, with_fixes

    dialect = backend_named(device.backend).dialect
    is_open = problem.n == ANY_SIZE
    problem = replace(problem, n=DEFAULT_N[device.kind]) if is_open else problem
    there = _winners(problem, device, temperature)
    own = {buckets: best for buckets, best in there.items() if is_open or buckets == store.buckets(problem)}
    for _, best in sorted(own.items()):
        sized = best.problem if is_open else problem
        config = with_fixes(best.config, fix, sized, dialect, device)
        # Another config than the one that was measured has no measurement.
        yield best.device, sized, config, best if config == best.config else None
    if own:
        return
    if not or_default:
        raise UsageError(_missing(problem, device, there))
    yield device, problem, default_with_fixes(fix, problem, dialect, device), None


def _winners(problem: Problem, device: Device, temperature: str) -> dict[tuple[int, int, int], Best]:
    """The stored winners of a problem on an architecture by their size class: the user's before those shipped, and
    those of the very device before those of another one of its architecture."""
    rows: dict[tuple[int, int, int], Best] = {}
    own = store.entries(store.cache_path() / "configs")
    shipped_too = shipped.entries(store.shipped_path(), problem.op, problem.dtype, problem.determinism)
    for there in (own, shipped_too):
        alike = [best for best in there if _is_for(best, problem, device, temperature)]
        for best in sorted(alike, key=lambda best: best.device.name != device.name):
            rows.setdefault(store.buckets(best.problem), best)
    return rows


def _is_for(best: Best, problem: Problem, device: Device, temperature: str) -> bool:
    if best.device.backend != device.backend or best.temperature != temperature:
        return False
    if device.arch not in (best.device.arch, plain_arch(best.device)):
        return False
    if best.problem.layout != problem.layout:
        return False
    return replace(best.problem, n=problem.n, outer=problem.outer, inner=problem.inner) == problem


def _missing(problem: Problem, device: Device, there: Mapping[tuple[int, int, int], Best]) -> str:
    """What to do where nothing was tuned."""
    what = f"{problem.op} of {problem.dtype}" + (f", {problem.layout}" if problem.layout != "flat" else "")
    if there:
        sizes = ", ".join(f"2^{n}" if problem.layout == "flat" else f"2^{n}x2^{o}x2^{i}" for n, o, i in sorted(there))
        have = f"there is a winner for about {sizes} elements, and none for the size asked for"
    else:
        have = "nothing is tuned"
    return (
        f"no winner to export for {what} on {device.arch}: {have}; run redtune search for it first, or export the "
        "default config with --default"
    )
