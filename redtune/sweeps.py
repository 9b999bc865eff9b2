"""The two sweeps over a tile of `redtune.gathering`, spelled in a language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from redtune.config import Config
from redtune.dialect import c_words
from redtune.dtypes import dtype_named
from redtune.expressions import names_in, spell
from redtune.narrow import folds_in_ints
from redtune.operators import operator_of
from redtune.plan import is_wide
from redtune.types import Problem


@dataclass(frozen=True, slots=True)
class Sweeps:
    """A tile that becomes a state at once: the expressions of `redtune.gathering.Gather`, spelled; `fields` are pairs
    of a name and its expression."""

    lift: str
    merge: str
    common: str
    guard: str
    added: str
    found: str
    fields: tuple[tuple[str, str], ...]
    reads_first: bool


def sweeps_of(problem: Problem, config: Config, words: Mapping[str, str], names: Mapping[str, str]) -> Sweeps | None:
    """How a tile becomes a state at once, if it does: a mask leaves holes in it, and where every addition keeps what it
    loses there are no others."""
    op = operator_of(problem)
    gather = op.gather
    if folds_in_ints(problem):
        gather, words = op.whole_gather, c_words(dtype_named("int32"))
    if gather is None or problem.is_masked or problem.is_compensated:
        return None
    names = {**names, "x0": "first", "count": "ITEMS" if is_wide(problem, config) else "(ITEMS * VECTOR)"}

    def spelled(text: str) -> str:
        return spell(text, words, names) if text else ""

    return Sweeps(
        lift=spelled(gather.lift),
        merge=spelled(gather.merge),
        common=spelled(gather.common),
        guard=spelled(gather.guard),
        added=spelled(gather.added),
        found=spelled(gather.found_in(problem.accumulate)),
        fields=tuple((name, spelled(text)) for (name, _), text in zip(op.state, gather.state, strict=True)),
        reads_first="x0" in names_in(gather.lift) | names_in(gather.common),
    )
