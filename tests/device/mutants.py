"""Kernels broken on purpose: one mutation each, made on the text of a right kernel.

A mutation is a pattern, what stands for it, and the kernels it is made on; where it may hit several places, each of
them is a mutant of its own. tests/device/mutations.py is the table of them. A mutant that no judge and no checker
finds out is a fault of the judge.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from redtune.backends import backend_named
from redtune.checkers import Checker
from redtune.config import Config, settled
from redtune.lab import Lab
from redtune.problems import make_problem
from redtune.refusals import refusals
from redtune.render import render
from redtune.sampling import Flavour, problem_of
from redtune.types import Device, Kernel, Problem, Verdict
from redtune.verifying import Watched
from tests.text.reading import complaints

Shape = tuple[int, int, int]
SHAPES: dict[str, Shape] = {"flat": (1, 60_001, 1), "rows": (50, 777, 1), "columns": (3, 300, 40)}
BASE: dict[str, Any] = {
    "block": 128,
    "vector": 1,
    "items": 2,
    "accumulators": 2,
    "walk": "stride",
    "blocks_per_cu": 3,
    "exchange": "shuffle",
    "wave": 32,
    "combine": "two_pass",
    "second_block": 256,
}
BARRIER = r"(?:__syncthreads\(\)|(?<!_)barrier\(CLK_LOCAL_MEM_FENCE(?: \| CLK_GLOBAL_MEM_FENCE)?\))"
# Words of the languages, as the patterns name them.
WORDS = {
    # Not those between groups: after a tree its last barrier holds the next group back as well (tests/device/
    # test_oclgrind.py takes both away).
    "BARRIER": rf"{BARRIER};(?!  //)",
    "LANES_MEET": r"(?:__syncwarp\(\)|sub_group_barrier\(CLK_LOCAL_MEM_FENCE\)|tail_barrier\(\w+\));",
    "INDEX": r"typedef (?:long long|long) index_t;",
}


@dataclass(frozen=True)
class Host:
    """A right kernel to break: a problem, and the knobs in which the config is not the base."""

    op: str = "sum"
    dtype: str = "int32"
    layout: str = "flat"
    knobs: dict[str, Any] = field(default_factory=dict)
    accumulate: str | None = None
    result: str | None = None
    shape: Shape | None = None

    def problem(self) -> Problem:
        """What the kernel reduces."""
        shape = self.shape or SHAPES[self.layout]
        return problem_of(self.op, self.dtype, self.layout, shape, Flavour(self.accumulate, self.result))

    def config(self) -> Config:
        """How."""
        return settled(replace(Config(), **(BASE | self.knobs)))


def on(op: str, dtype: str, **more: Any) -> Host:
    """The plain flat kernel of an operator."""
    return Host(op, dtype, **more)


@dataclass(frozen=True)
class Mutation:
    """One way to break a kernel. `put` stands for what `pattern` finds: in the body of the function `inside` where one
    is named, in all places at once unless each is to be a mutant of its own."""

    name: str
    pattern: str
    put: str
    hosts: tuple[Host, ...]
    inside: str = ""
    is_each: bool = False
    only: tuple[str, ...] = ()  # backends; all if empty
    is_race: bool = False  # may be right by luck, so that a race checker has to tell


@dataclass(frozen=True)
class Mutant:
    """A broken kernel."""

    name: str
    mutation: Mutation
    kernel: Kernel


def mutants(table: Sequence[Mutation], device: Device, is_first_only: bool = False) -> Iterator[Mutant]:
    """Every mutant that the device can run, or the first of each mutation."""
    for mutation in table:
        found = _of_mutation(mutation, device)
        yield from [next(found)] if is_first_only and _is_possible(mutation, device) else found


def _is_possible(mutation: Mutation, device: Device) -> bool:
    return next(_of_mutation(mutation, device), None) is not None


def _of_mutation(mutation: Mutation, device: Device) -> Iterator[Mutant]:
    if mutation.only and device.backend not in mutation.only:
        return
    for host in mutation.hosts:
        problem, config = host.problem(), host.config()
        dialect = backend_named(device.backend).dialect
        if refusals(config, problem, dialect, device):
            continue
        kernel = render(problem, config, dialect, device)
        texts = broken(kernel.source, mutation)
        for k, text in enumerate(texts):
            place = f" #{k + 1}" if len(texts) > 1 else ""
            yield Mutant(f"{mutation.name}, {_told(host, config)}{place}", mutation, replace(kernel, source=text))


def _told(host: Host, config: Config) -> str:
    """A host in a few words."""
    meet = f"{config.exchange} {config.tree}" if config.exchange == "lds" else f"{config.exchange} {config.wave}"
    return f"{host.op} {host.dtype} {host.layout} {meet} {config.combine}"


def broken(text: str, mutation: Mutation) -> list[str]:
    """The texts that a mutation makes of a kernel. It is a mistake of ours if it finds no place."""
    start, end = _body(text, mutation.inside) if mutation.inside else (0, len(text))
    pattern = re.compile(mutation.pattern.format(**WORDS) if "{" in mutation.pattern else mutation.pattern)
    found = list(pattern.finditer(text, start, end))
    assert found, f"{mutation.name}: {mutation.pattern} is not in\n{text[start:end]}"
    groups = [[match] for match in found] if mutation.is_each else [found]
    made = []
    for places in groups:
        changed = text
        for match in reversed(places):
            changed = changed[: match.start()] + match.expand(mutation.put) + changed[match.end() :]
        assert changed != text, f"{mutation.name} changes nothing"
        made.append(changed)
    return made


def _body(text: str, function: str) -> tuple[int, int]:
    """Where the body of a function lies."""
    match = re.search(rf"^[^\n]*\b{function}\([^;{{]*\{{\n", text, re.MULTILINE)
    assert match, f"no function {function}"
    return match.end(), text.index("\n}", match.end())


# --- who finds them out -----------------------------------------------------------------------------------------------

Outcome = tuple[Verdict, str]


def judged(device: Device, found: Sequence[Mutant]) -> list[Outcome]:
    """What the judge says of each mutant."""
    rows = []
    with Lab(device, make_problem("max"), is_cold=False) as lab:
        for mutant, future in [(mutant, lab.compile_ahead(mutant.kernel)) for mutant in found]:
            if lab.problem != mutant.kernel.problem:
                lab.turn_to(mutant.kernel.problem)
            trial = lab.trial(future.result(), None)
            rows.append((trial.verdict, trial.note))
    return rows


def read(found: Sequence[Mutant]) -> list[Outcome]:
    """What reading each mutant shows."""
    rows = [complaints(mutant.kernel.source) for mutant in found]
    return [(Verdict.WRONG, row[0]) if row else (Verdict.OK, "") for row in rows]


def watched(
    device: Device, checker: Checker, table: Sequence[Mutation], folder: Path, names: Collection[str] = ()
) -> dict[str, Outcome]:
    """What a checker says of each mutant that can run where it watches, or of those of some names."""
    watch = Watched(checker, folder)
    there = watch.device(device)
    found = [mutant for mutant in mutants(table, there) if not names or mutant.name in names]
    rows = watch.run(there, [mutant.kernel for mutant in found])
    return {mutant.name: row for mutant, row in zip(found, rows, strict=True)}


def is_caught(outcome: Outcome) -> bool:
    """Whether a mutant was found out: one that does not compile never was a kernel."""
    return outcome[0] in (Verdict.WRONG, Verdict.CRASHED, Verdict.TIMED_OUT)
