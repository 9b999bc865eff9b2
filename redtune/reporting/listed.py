"""The searches that can be reported, for a person and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from redtune.errors import printable
from redtune.reporting.searched import Searched
from redtune.terminal import console, in_brief
from redtune.types import as_json


def show_searched(there: Sequence[Searched]) -> None:
    """One line each, the last one first."""
    out = console()
    if not there:
        out.print("no search has left anything to report yet: redtune search --op max")
        return
    table = Table("key", "problem", "device", "winner GB/s", "fixed, name", "last changed", title="Searches")
    table.columns[3].justify = "right"
    for searched in there:
        own = [f"{knob}={value}" for knob, value in searched.fixed.items()] + [printable(searched.name)]
        rate = f"{searched.best.gbps:.1f}" if searched.best else "-"
        problem = f"{in_brief(searched.problem)}, {searched.temperature}"
        table.add_row(
            searched.key, problem, searched.device.name, rate, " ".join(filter(None, own)) or "-", searched.when[:16]
        )
    out.print(table)
    out.print(f"a page of one: redtune report {there[0].key} -o report.html")


def listed_json(there: Sequence[Searched]) -> dict[str, Any]:
    """The document of --json."""
    return {"searches": [{"key": searched.key, **as_json(searched)} for searched in there]}
