"""What a person, a program and a plotter see of a ladder."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from redtune import __version__
from redtune.climbing import FAILED, PASSED, Climbed, Ladder
from redtune.config import KNOBS, default_of
from redtune.errors import UsageError
from redtune.terminal import console, in_brief, of_ceiling
from redtune.types import Device, as_json
from redtune.written import figure_type, writing

if TYPE_CHECKING:
    import pandas

INK, QUIET, ACCENT, TREE = "#1b1f24", "#8a929c", "#2463c9", "#c2410c"
DPI = 150


def cells(row: Climbed) -> dict[str, Any]:
    """A row as plain values by column: empty where there is none."""

    def part(ratio: tuple[float, float, float] | None, k: int) -> float | None:
        return ratio[k] if ratio else None

    return {
        "rung": row.rung.number,
        "name": row.rung.name,
        "median_us": row.timing.median_us if row.timing else None,
        "spread_us": row.timing.spread_us if row.timing else None,
        "gbps": row.gbps,
        "of_ceiling": row.of_ceiling,
        "over_first": part(row.over_first, 0),
        "over_first_low": part(row.over_first, 1),
        "over_first_high": part(row.over_first, 2),
        "over_before": part(row.over_before, 0),
        "over_before_low": part(row.over_before, 1),
        "over_before_high": part(row.over_before, 2),
        "error": row.error,
        "bound_share": row.bound_share,
        "launches": row.launches or None,
        "blocks": row.blocks or None,
        "verdict": row.verdict,
        "passed": row.verdict == PASSED,
        "lacks": row.rung.lacks,
        "note": row.note,
    }


def ladder_frame(ladder: Ladder) -> pandas.DataFrame:
    """A row for each rung."""
    import pandas

    return pandas.DataFrame([cells(row) for row in ladder.rows])


def ladder_json(ladder: Ladder) -> dict[str, Any]:
    """The document of `ladder --json`."""
    rows = [cells(row) | {"config": as_json(row.config) if row.config else None} for row in ladder.rows]
    return {
        "problem": as_json(ladder.problem),
        "device": as_json(ladder.device),
        "block": ladder.block,
        "temperature": ladder.temperature,
        "seed": ladder.seed,
        "ceiling_us": ladder.ceiling.median_us if ladder.ceiling else None,
        "rows": rows,
    }


def rate_words(gbps: float | None) -> str:
    """GB/s with three digits or so."""
    return "-" if gbps is None else f"{gbps:.2f}" if gbps < 10 else f"{gbps:.1f}"


HEADS = ("#", "rung", "us", "+-", "GB/s", "ceiling", "over 1", "before", "rel. error", "launches", "result")


def in_words(ladder: Ladder) -> Iterator[tuple[str, ...]]:
    """The table: a line for each rung under HEADS."""
    for row in ladder.rows:
        number, name = str(row.rung.number), row.rung.name
        if row.timing is None:
            yield number, name, *("-",) * 8, row.verdict
            continue
        ratios = [f"{ratio[0]:.2f}x" if ratio else "-" for ratio in (row.over_first, row.over_before)]
        rate = rate_words(row.gbps)
        share = of_ceiling(row.timing.median_us, ladder.ceiling.median_us if ladder.ceiling else None)
        error = "-" if row.error is None else f"{row.error:.1e}"
        times = f"{row.timing.median_us:.2f}", f"{row.timing.spread_us:.2f}"
        yield number, name, *times, rate, share, *ratios, error, str(row.launches), row.verdict


def title_of(ladder: Ladder) -> str:
    """What was measured where."""
    device = ladder.device
    return (
        f"{in_brief(ladder.problem)} on {device.name} ({device.backend}, {ladder.temperature}), "
        f"blocks of {ladder.block} threads"
    )


def knobs_in_words(row: Climbed) -> str:
    """The knobs that are not at their defaults."""
    if row.config is None:
        return ""
    return " ".join(f"{k}={getattr(row.config, k)}" for k in KNOBS if getattr(row.config, k) != default_of(k))


def remarks(ladder: Ladder) -> Iterator[str]:
    """The problem of each rung, and what else is to be known of it."""
    for row in ladder.rows:
        said = [row.rung.lacks] if row.verdict == PASSED else []
        said += [row.note] if row.note else []
        yield f"{row.rung.number} {row.rung.name}: " + "; ".join(said)


def show_ladder(ladder: Ladder) -> None:
    """The table, and the problem of every rung."""
    out = console()
    table = Table(title=title_of(ladder), padding=(0, 0))
    for k, head in enumerate(HEADS):
        table.add_column(head, justify="left" if k in (1, len(HEADS) - 1) else "right", no_wrap=k != 1)
    for values in in_words(ladder):
        table.add_row(*values)
    out.print(table)
    if ladder.ceiling is not None:
        out.print(f"read ceiling, measured in the same rounds: {ladder.ceiling.median_us:.2f} us", highlight=False)
    out.print("over 1, before: times as fast as rung 1, and as the rung before", highlight=False)
    for line in remarks(ladder):
        out.print(line, highlight=False)


def show_all(ladders: Sequence[Ladder], absent: Mapping[str, str]) -> None:
    """The rungs of many operators: GB/s, a line for each operator."""
    out = console()
    numbers = [str(row.rung.number) for row in ladders[0].rows]
    first = ladders[0]
    title = (
        f"GB/s of {first.problem.n} {first.problem.dtype} on {first.device.name} ({first.device.backend}, "
        f"{first.temperature}), blocks of {first.block}"
    )
    table = Table("operator", title=title, padding=(0, 0))
    for number in numbers:
        table.add_column(f"rung {number}" if number == "1" else number, justify="right", no_wrap=True)
    table.add_column("ceiling", justify="right")
    table.add_column("result")
    for ladder in ladders:
        rates = [rate_words(row.gbps) for row in ladder.rows]
        timed = next((row for row in ladder.rows if row.timing and row.gbps and row.of_ceiling), None)
        ceiling = f"{timed.gbps / timed.of_ceiling:.1f}" if timed and timed.gbps and timed.of_ceiling else "-"
        table.add_row(ladder.problem.op, *rates, ceiling, outcome(ladder))
    out.print(table)
    for line in all_remarks(ladders, absent):
        out.print(line, highlight=False)


def outcome(ladder: Ladder) -> str:
    """How many rungs passed, and whether one failed."""
    passed = sum(row.verdict == PASSED for row in ladder.rows)
    failed = [str(row.rung.number) for row in ladder.rows if row.verdict == FAILED]
    return f"{passed} PASSED" + (f", {', '.join(failed)} FAILED" if failed else "")


def all_remarks(ladders: Sequence[Ladder], absent: Mapping[str, str]) -> Iterator[str]:
    """Why rungs are not there, each reason once, and why operators are not."""
    seen: dict[str, list[str]] = {}
    for ladder in ladders:
        for row in ladder.rows:
            if row.verdict != PASSED:
                note = row.note.replace(f" --op {ladder.problem.op}", " --op NAME")
                seen.setdefault(f"rung {row.rung.number} {row.verdict}: {note}", []).append(ladder.problem.op)
    for reason, ops in seen.items():
        yield f"{reason} ({', '.join(ops)})"
    for op, reason in absent.items():
        yield f"{op}: {reason}"


def write_csv(ladders: Sequence[Ladder], path: str) -> None:
    """The rows as a CSV file, with their operator. Raises UsageError where it cannot be written."""
    import pandas

    frames = [ladder_frame(ladder).assign(op=ladder.problem.op, dtype=ladder.problem.dtype) for ladder in ladders]
    with writing(path):
        pandas.concat(frames).to_csv(path, index=False)


def environment(device: Device, seed: int, temperature: str) -> str:
    """Where numbers are from, in a sentence."""
    return (
        f"Device {device.name} ({device.arch}, {device.compute_units} compute units), driver {device.driver}, "
        f"{device.toolchain}; redtune {__version__}, Python {platform.python_version()}; seed {seed}, "
        f"{temperature} inputs."
    )


def markdown_table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table of Markdown: two columns of words, then numbers."""
    yield f"| {' | '.join(heads)} |"
    yield "|" + "|".join("---" if head in ("rung", "result", "operator") else "---:" for head in heads) + "|"
    for line in lines:
        yield f"| {' | '.join(line)} |"


def markdown(ladder: Ladder, command: str) -> Iterator[str]:
    """The ladder as a page."""
    yield f"# The ladder: {title_of(ladder)}"
    yield from ("", f"`{command}`. {environment(ladder.device, ladder.seed, ladder.temperature)}", "")
    yield from markdown_table(HEADS, list(in_words(ladder)))
    if ladder.ceiling is not None:
        yield from ("", f"Read ceiling, measured in the same rounds: {ladder.ceiling.median_us:.2f} us.")
    yield from ("", "The problem that each rung still has:", "")
    yield from (f"- {line}" for line in remarks(ladder))
    yield from ("", "The knobs that are not at their defaults:", "")
    yield from (f"- {row.rung.number}: `{knobs_in_words(row)}`" for row in ladder.rows if row.config)


def markdown_all(ladders: Sequence[Ladder], absent: Mapping[str, str], command: str) -> Iterator[str]:
    """The ladders of many operators as a page."""
    first = ladders[0]
    yield f"# The ladder of every operator: {first.problem.n} {first.problem.dtype} on {first.device.name}"
    yield from ("", f"`{command}`. {environment(first.device, first.seed, first.temperature)} GB/s of each rung.", "")
    heads = ["operator", *(f"{row.rung.number}" for row in first.rows), "result"]
    lines = [[one.problem.op, *(rate_words(row.gbps) for row in one.rows), outcome(one)] for one in ladders]
    yield from markdown_table(heads, lines)
    yield ""
    yield from (f"- {line}" for line in all_remarks(ladders, absent))


def write_text(lines: Iterator[str], path: str) -> None:
    """Lines as a file. Raises UsageError where it cannot be written."""
    with writing(path):
        Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_plot(ladder: Ladder, path: str) -> None:
    """A picture: the rate of every rung beside the measured ceiling. Raises UsageError where it cannot be written,
    BackendMissing where matplotlib is not installed."""
    timed = [row for row in ladder.rows if row.timing and row.gbps]
    figure = figure_type()(figsize=(9, 1.5 + 0.42 * len(ladder.rows)), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    most = max((row.gbps or 0 for row in timed), default=1.0)
    for row in ladder.rows:
        if row.timing is None or row.gbps is None:
            axes.text(0, row.rung.number, f" {row.verdict}", va="center", fontsize=8, color=QUIET)
            continue
        shared = row.config is not None and row.config.exchange == "lds"
        axes.barh(row.rung.number, row.gbps, color=TREE if shared else ACCENT, height=0.62)
        over = f", {row.over_before[0]:.2f}x the rung before" if row.over_before else ""
        wrong = "" if row.verdict == PASSED else f", {row.verdict}"
        note = f" {rate_words(row.gbps)} GB/s, {row.timing.median_us:.1f} us{over}{wrong}"
        box: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0}
        axes.text(row.gbps, row.rung.number, note, va="center", fontsize=8, color=INK, bbox=box)
    if ladder.ceiling is not None and timed and timed[0].of_ceiling and timed[0].gbps:
        ceiling = timed[0].gbps / timed[0].of_ceiling
        most = max(most, ceiling)
        axes.axvline(ceiling, color=QUIET, lw=1.2, ls="--")
        axes.text(
            ceiling, 0.35, f"read ceiling {rate_words(ceiling)} GB/s ", ha="right", va="bottom", fontsize=8, color=QUIET
        )
    axes.set_yticks([row.rung.number for row in ladder.rows], [f"{r.rung.number} {r.rung.name}" for r in ladder.rows])
    axes.set_ylim(len(ladder.rows) + 0.6, 0)
    axes.set_xlim(0, most * 1.5)
    axes.set_xlabel("GB/s of the whole reduction (red: a block meets in shared memory, blue: by shuffles)")
    axes.set_title(title_of(ladder), fontsize=10, loc="left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    try:
        figure.savefig(Path(path))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be written: {error}") from error
