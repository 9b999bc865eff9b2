"""What a person and a program see of shipped configs that were measured again."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from redtune.checking import Remeasurement
from redtune.terminal import console, in_brief, in_words
from redtune.types import as_json


def checked_json(found: Remeasurement) -> dict[str, Any]:
    """The document of --json."""
    data: dict[str, Any] = as_json(found)
    return {**data, "no_longer_hold": len(found.wrong())}


def show_checked(found: Remeasurement) -> None:
    """Every row that was measured, then what no longer holds."""
    out = console()
    headings = ("problem", "us then", "us now", "default us", "ratio", "of ceiling then", "now", "verdict")
    table = Table(*headings, title=f"Shipped configs on {found.device.name}, {len(found.rows)} of {found.of}")
    for row in found.rows:
        table.add_row(
            in_brief(row.best.problem),
            f"{row.best.median_us:.2f}",
            _number(row.median_us, ".2f"),
            _number(row.default_us, ".2f"),
            _number(row.ratio[0] if row.ratio else None, ".3f"),
            _number(row.recorded_share, ".1%"),
            _number(row.share, ".1%"),
            row.wrong.partition(":")[0] or "holds",
        )
    out.print(table)
    for row in found.wrong():
        out.print(f"{in_brief(row.best.problem)}: {row.wrong}")
        out.print(f"    {in_words(row.best.config, row.best.problem)}")
    out.print(f"{len(found.rows) - len(found.wrong())} of {len(found.rows)} hold{_why(found)}")


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _why(found: Remeasurement) -> str:
    return f"; {found.stopped}" if found.stopped else ""
