"""What a person, a program and a spreadsheet see of a measured matrix."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from redtune.benching import Benched, Measured
from redtune.cells import Cell
from redtune.plan import read_bytes
from redtune.sidebyside import Comparison, Row
from redtune.terminal import console, ratio_words
from redtune.types import as_json
from redtune.written import writing

if TYPE_CHECKING:
    import pandas

    from redtune.fits import Fit

SHOWN_WHOLE = 60  # cells that are shown with every contestant; of more, the losing ones
NAMED = 6  # cells that a list of them names
NAMED_LOSING = 40
SENTENCES = 10  # about results that differ and cells that failed, on a terminal


def lines(found: Comparison, cell: Cell | None = None) -> Iterator[dict[str, Any]]:
    """The rows of one cell as plain values by column: empty where there is none. What is absent has a row too."""
    problem, (speedup, low, high) = found.problem, found.speedup or (None, None, None)
    common = {
        "op": problem.op,
        "dtype": problem.dtype,
        "layout": problem.layout,
        "size": cell.size if cell else "",
        "n": problem.n,
        "outer": problem.outer,
        "inner": problem.inner,
        "bytes": read_bytes(problem),
        "temperature": found.temperature,
    }
    of_cell = {
        "ceiling_us": found.ceiling.median_us,
        "best": found.ours.name,
        "best_library": found.rival.name if found.rival else None,
        "speedup": speedup,
        "speedup_low": low,
        "speedup_high": high,
        "is_losing": found.is_losing,
        "is_doubtful": found.is_doubtful,
    }
    for row in found.rows:
        yield {
            **common,
            "contestant": row.name,
            "is_redtune": row.config is not None,
            "types": row.types,
            "median_us": row.timing.median_us,
            "spread_us": row.timing.spread_us,
            "samples": row.timing.samples,
            "gbps": row.gbps,
            "of_ceiling": row.of_ceiling,
            "odd": row.odd,
            "absent": "",
            **of_cell,
        }
    for name, reason in found.absent:
        nothing = dict.fromkeys(("median_us", "spread_us", "samples", "gbps", "of_ceiling"))
        which = {"contestant": name, "is_redtune": name.startswith("redtune"), "types": ""}
        yield {**common, **which, **nothing, "odd": "", "absent": reason, **of_cell}


def comparison_frame(found: Comparison) -> pandas.DataFrame:
    """The rows of one problem as a pandas DataFrame."""
    import pandas

    return pandas.DataFrame(list(lines(found)))


def benched_frame(bench: Benched) -> pandas.DataFrame:
    """Every row of every cell as a pandas DataFrame, one for each contestant, absent ones with their reason."""
    import pandas

    return pandas.DataFrame([row for one in bench.measured for row in lines(one.found, one.cell)])


def summary_of(bench: Benched) -> dict[str, Any]:
    """The matrix in a few numbers."""
    return {
        "cells": len(bench.measured),
        "compared": len(bench.compared()),
        "geometric_mean": bench.geometric_mean(),
        "losing": len(bench.losing()),
        "losing_within_noise": len(bench.within_noise()),
        "doubtful": len(bench.doubtful()),
        "odd_rows": len(bench.odd()),
        "failed": len(bench.failed),
        "cut": len(bench.cut),
        "stopped": bench.stopped,
        "seconds": bench.seconds,
    }


def benched_json(bench: Benched) -> dict[str, Any]:
    """The document of --json. What numbers are not there is null."""
    mean = bench.geometric_mean()
    return {
        "device": as_json(bench.device),
        "temperature": bench.temperature,
        "seed": bench.seed,
        "summary": summary_of(bench) | {"geometric_mean": None if math.isnan(mean) else mean},
        "cells": [_cell_json(one) for one in bench.measured],
        "fits": [as_json(fit) | {"gbps": fit.gbps if math.isfinite(fit.gbps) else None} for fit in bench.fits()],
        "failed": [{"cell": str(cell), "problem": as_json(cell.problem), "reason": why} for cell, why in bench.failed],
        "cut": [{"cell": str(cell), "problem": as_json(cell.problem)} for cell in bench.cut],
    }


def _cell_json(one: Measured) -> dict[str, Any]:
    found = as_json(one.found)
    del found["device"]
    losing = {"is_losing": one.found.is_losing, "is_doubtful": one.found.is_doubtful, "best": one.found.ours.name}
    return {"cell": str(one.cell), "size": one.cell.size, **losing, **found}


def write_csv(bench: Benched, path: str) -> None:
    """The rows as a CSV file. Raises UsageError where it cannot be written."""
    with writing(path):
        benched_frame(bench).to_csv(path, index=False)


def write_markdown(bench: Benched, path: str) -> None:
    """Everything as one Markdown file, the losing cells first. Raises UsageError where it cannot be written."""
    with writing(path):
        Path(path).write_text("\n".join(markdown(bench)) + "\n", encoding="utf-8")


# --- the words --------------------------------------------------------------------------------------------------------


def times(one: Measured) -> str:
    """How many times faster than the best library, with the interval."""
    if one.found.speedup is None:
        return "-"
    return ratio_words(one.found.speedup)


def measured_as(row: Row) -> list[str]:
    """Median, spread, rate and share of the ceiling in words."""
    timing = row.timing
    return [f"{timing.median_us:.2f}", f"{timing.spread_us:.2f}", f"{row.gbps:.1f}", f"{row.of_ceiling:.1%}"]


def remark(row: Row, usual: int) -> str:
    """What must be known of a row beside its numbers."""
    said = [row.odd] if row.odd else []
    said += [f"{row.timing.samples} samples"] if row.timing.samples < usual else []
    return "; ".join(said)


def usual_samples(bench: Benched) -> int:
    """How many samples a contestant has that is not much slower than others."""
    return max((row.timing.samples for one in bench.measured for row in one.found.rows), default=0)


def conclusion(bench: Benched, most: int | None = None) -> list[str]:
    """The matrix in sentences; so many at most of one kind."""
    compared, losing = len(bench.compared()), bench.losing()
    said = [f"{len(bench.measured)} cells in {bench.seconds:.0f} s on {bench.device.name}, {bench.temperature} inputs"]
    if compared:
        noise = len(bench.within_noise())
        said.append(
            f"speed-up over the best library: {bench.geometric_mean():.2f} (geometric mean of {compared} cells); "
            f"losing: {len(losing)} of them, {noise} within noise"
        )
    if doubtful := bench.doubtful():
        said.append(f"not plainly right, as others give something else: redtune in {len(doubtful)} cells")
    odd = [f"results differ in {one.cell}: {row.odd}" for one, row in bench.odd()]
    failed = [f"nothing of {cell}: {reason}" for cell, reason in bench.failed]
    for sentences, what in ((odd, "rows whose results differ"), (failed, "cells of which there is nothing")):
        said += sentences[:most]
        if most is not None and len(sentences) > most:
            said.append(f"and {len(sentences) - most} more {what}: --markdown FILE names them")
    if bench.cut:
        said.append(f"not reached because of {bench.stopped}: {len(bench.cut)} cells: {named(bench.cut)}")
    return said


def named(cells: Sequence[Cell], most: int = NAMED) -> str:
    """The first of some cells by name, and how many more there are."""
    more = f" and {len(cells) - most} more" if len(cells) > most else ""
    return ", ".join(map(str, cells[:most])) + more


def fit_words(fit: Fit) -> list[str]:
    """A line in words."""
    rate = f"{fit.gbps:.{0 if fit.gbps > 100 else 1}f}" if math.isfinite(fit.gbps) else "-"
    return [f"{fit.op} {fit.dtype}", fit.contestant, f"{fit.c_us:.2f}", rate, str(fit.points)]


FIT_HEADS = ["", "contestant", "c us", "B GB/s", "sizes"]
CELL_HEADS = ["cell", "", "median us", "+-", "GB/s", "of ceiling", "types", "speed-up (interval)", "remark"]


def cell_rows(one: Measured, usual: int) -> Iterator[list[str]]:
    """A row of words for each contestant; what concerns the whole cell stands in the first."""
    for k, row in enumerate(one.found.rows):
        whole = (str(one.cell), times(one)) if k == 0 else ("", "")
        yield [whole[0], row.name, *measured_as(row), row.types, whole[1], remark(row, usual)]


def markdown(bench: Benched) -> Iterator[str]:
    """The lines of the Markdown file."""
    device, usual, losing = bench.device, usual_samples(bench), bench.to_look_at()
    yield f"# redtune beside the libraries on {device.name}\n"
    yield f"{device.backend}, {device.arch}; {device.toolchain}; driver {device.driver}; seed {bench.seed}.\n"
    yield from (f"- {sentence}" for sentence in conclusion(bench))
    yield "\nTimes are medians in microseconds, +- half the distance between the quartiles, cells timed in turns in one"
    yield "process. The speed-up is the time of the fastest library over that of redtune's fastest kernel, with the"
    yield "interval that holds the true median 19 times in 20. The ceiling is what kernels that only read reach.\n"
    yield f"## Losing cells: {len(bench.losing())}, and cells in doubt: {len(bench.doubtful())}\n"
    yield from _markdown_cells(losing, usual) if losing else ["None."]
    if bench.cut:
        yield f"\n## Not reached because of {bench.stopped}: {len(bench.cut)}\n"
        yield named(bench.cut, len(bench.cut)) + "."
    if fits := bench.fits():
        yield "\n## t = c + bytes / B\n"
        yield from _markdown_table(FIT_HEADS, [fit_words(fit) for fit in fits])
    yield "\n## All cells\n"
    yield from _markdown_cells(bench.measured, usual)
    if absent := bench.absent():
        yield "\n## Absent\n"
        yield from (f"- {name}: {why} ({len(cells)}: {named(cells)})" for (name, why), cells in absent.items())


def _markdown_cells(rows: Sequence[Measured], usual: int) -> Iterator[str]:
    yield from _markdown_table(CELL_HEADS, [row for one in rows for row in cell_rows(one, usual)])


def _markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    yield from (f"| {' | '.join(text.replace('|', '/') for text in row)} |" for row in rows)


# --- the terminal -----------------------------------------------------------------------------------------------------


def show_benched(bench: Benched) -> None:
    """The cells, the lines through the large ones, and what it comes to."""
    out, usual = console(), usual_samples(bench)
    is_whole = len(bench.measured) <= SHOWN_WHOLE
    rows = list(bench.measured) if is_whole else bench.to_look_at()
    title = "side by side" if is_whole else "the losing cells (every cell: --markdown FILE, --csv FILE)"
    if rows:
        out.print(_cell_table(rows, f"{title}, {bench.device.name} ({bench.device.backend}, {bench.temperature})"))
    for one in rows:
        few = [f"{row.name} {row.timing.samples}" for row in one.found.rows if row.timing.samples < usual]
        if few:
            out.print(f"{one.cell}: much slower than the fastest, so few samples: {', '.join(few)}")
    if (fits := bench.fits()) and is_whole:
        table = Table(*FIT_HEADS, title="t = c + bytes / B, flat, from 2^24 elements")
        for column in table.columns[2:]:
            column.justify = "right"
        for fit in fits:
            table.add_row(*fit_words(fit))
        out.print(table)
    for (name, reason), cells in bench.absent().items():
        where = f"{len(cells)} cells" if len(cells) > 1 else str(cells[0])
        out.print(f"{name}: absent in {where}: {reason}")
    if losing := bench.losing():
        out.print(f"losing: {named([one.cell for one in losing], NAMED_LOSING)}")
    for sentence in conclusion(bench, SENTENCES):
        out.print(sentence)


def _cell_table(rows: Sequence[Measured], title: str) -> Table:
    table = Table(title=title, padding=(0, 1))
    table.add_column("")
    table.add_column("types")
    for head in ("median us", "+-", "GB/s", "of ceiling"):
        table.add_column(head, justify="right", no_wrap=True)
    for one in rows:
        table.add_row(str(one.cell), f"speed-up {times(one)}" if one.found.speedup else "", style="bold")
        for row in one.found.rows:
            table.add_row(f"  {row.name}{' !' if row.odd else ''}", row.types, *measured_as(row))
        table.add_section()
    return table
