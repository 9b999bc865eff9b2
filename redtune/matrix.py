"""What a person sees of a verified sample: two tables of how many came through, by what they are made of, and what did
not come through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table

from redtune.config import is_read
from redtune.terminal import console, in_brief, in_words
from redtune.types import as_json
from redtune.verifying import Checked, Verified

SHOWN = 10  # of those that did not come through

Key = Callable[[Checked], str]


def strategy(row: Checked) -> str:
    """How the threads of a config meet."""
    config = row.config
    parts = [config.exchange] if is_read("exchange", config) else ["one thread alone"]
    parts += [config.tree] if is_read("tree", config) else []
    parts += [f"{config.wave} lanes"] if is_read("wave", config) else []
    return ", ".join(parts)


def joining(row: Checked) -> str:
    """How its blocks meet."""
    return row.config.combine if row.problem.layout == "flat" or row.config.split != 1 else "blocks apart"


def matrix(rows: Sequence[Checked], title: str, down: Key, across: Key) -> Table:
    """How many of the rows came through, of how many, for each pair of keys."""
    columns = sorted({across(row) for row in rows})
    table = Table("", *columns, title=title)
    for name in sorted({down(row) for row in rows}):
        cells = [[row for row in rows if (down(row), across(row)) == (name, column)] for column in columns]
        table.add_row(name, *(_share(cell) for cell in cells))
    return table


def _share(rows: Sequence[Checked]) -> str:
    good = sum(not row.is_bad for row in rows)
    return f"{good}/{len(rows)}" if rows else "-"


def show_verified(found: Verified) -> None:
    """The tables, what did not come through, and which checkers are absent."""
    out, device = console(), found.device
    for by in dict.fromkeys(row.by for row in found.rows):
        rows = [row for row in found.rows if row.by == by]
        out.print(matrix(rows, "operator and layout", lambda row: row.problem.op, lambda row: row.problem.layout))
        out.print(matrix(rows, "how threads meet, and blocks", strategy, joining))
        out.print(
            f"{_share(rows)} configs came through the {by} on {device.name} ({device.backend}, seed {found.seed})"
        )
        own = sum(row.is_compilers for row in rows)
        if own:
            out.print(f"the vendor's compiler died or did not end on {own} of them")
    for row in found.bad()[:SHOWN]:
        out.print(f"{row.verdict.value} {in_brief(row.problem)}: {row.note}\n    {in_words(row.config, row.problem)}")
    for name, reason in found.absent.items():
        out.print(f"{name}: absent: {reason}")


def verified_json(found: Verified) -> dict[str, Any]:
    """The same as one document."""
    return {
        "device": as_json(found.device),
        "seed": found.seed,
        "configs": len(found.rows),
        "bad": len(found.bad()),
        "absent": dict(found.absent),
        "rows": [as_json(row) for row in found.rows],
    }
