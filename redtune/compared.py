"""What a person, a program and a plotter see of a comparison of choices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from redtune.backends import backend_named
from redtune.comparing import Compared, Row, words
from redtune.config import is_read
from redtune.errors import UsageError
from redtune.terminal import console, in_brief, in_words
from redtune.types import Resources, as_json
from redtune.written import figure_type, writing

if TYPE_CHECKING:
    import pandas

INK, QUIET, ACCENT = "#1b1f24", "#8a929c", "#2463c9"
DPI = 150


def cells(row: Row) -> dict[str, Any]:
    """A row as plain values by column: empty where there is none."""
    low, high = (row.ratio[1], row.ratio[2]) if row.ratio else (None, None)
    taken = row.resources or Resources(None, None, None, None, None, {})
    tail = row.config.wave if row.config is not None and is_read("wave", row.config) else None
    return {
        **row.choice,
        "median_us": row.timing.median_us if row.timing else None,
        "spread_us": row.timing.spread_us if row.timing else None,
        "ratio": row.ratio[0] if row.ratio else None,
        "ratio_low": low,
        "ratio_high": high,
        "gbps": row.gbps,
        "of_ceiling": row.of_ceiling,
        "hardware_wave": taken.wave,
        "tail": tail,
        "registers": taken.registers,
        "lds_bytes": taken.lds_bytes,
        "spill_bytes": taken.spill_bytes,
        "occupancy": taken.occupancy,
        **{name.replace(" ", "_"): count for name, count in taken.counts.items()},
        "trials": row.trials,
        "verdict": row.verdict,
    }


def compared_frame(found: Compared) -> pandas.DataFrame:
    """The rows as a pandas DataFrame, with the config of each in a column of its own."""
    import pandas

    return pandas.DataFrame([{**cells(row), "config": row.config} for row in found.rows])


def compared_json(found: Compared) -> dict[str, Any]:
    """The document of --json."""
    rows = [
        {
            **cells(row),
            "interval": list(row.ratio[1:]) if row.ratio else None,
            "config": as_json(row.config) if row.config else None,
        }
        for row in found.rows
    ]
    return {
        "knob": ",".join(found.knobs),
        "problem": as_json(found.problem),
        "device": as_json(found.device),
        "temperature": found.temperature,
        "seed": found.seed,
        "is_aa": found.is_aa,
        "ceiling_us": found.ceiling.median_us,
        "noise": list(found.noise),
        "rows": rows,
    }


def show_compared(found: Compared) -> None:
    """The table, and what it says."""
    out = console()
    what = "itself, as often as there are choices of" if found.is_aa else "the choices of"
    title = (
        f"{what} {' and '.join(found.knobs)}: {in_brief(found.problem)} on {found.device.name} "
        f"({found.device.backend}, {found.temperature})"
    )
    table = Table(title=title, padding=(0, 0))
    rows = [(row, cells(row)) for row in found.rows]
    shown = _columns(found, [values for _, values in rows])
    for name in found.knobs:
        table.add_column(name)
    for head, _ in shown:
        table.add_column(head, justify="right", no_wrap=True)
    for row, values in rows:
        table.add_row(*(str(row.choice[name]) for name in found.knobs), *(text(values) for _, text in shown))
    out.print(table)
    low, high = (100 * (end - 1) for end in found.noise[1:])
    out.print(f"noise: one config against itself, {low:+.2f} to {high:+.2f} % (19 times in 20)", highlight=False)
    for row in found.rows:
        own = words(row.choice)
        out.print(row.verdict if row.verdict.startswith(own) else f"{own}: {row.verdict}", highlight=False)
        if row.config is not None:
            out.print(f"    {in_words(row.config, found.problem)}", highlight=False)
    if {"wave", "exchange"} & set(found.knobs):
        out.print(backend_named(found.device.backend).dialect.about_waves, highlight=False)


def _columns(found: Compared, rows: Sequence[dict[str, Any]]) -> list[tuple[str, Any]]:
    """The columns that say something on this device, and how each is written."""

    def number(name: str, form: str) -> Any:
        return lambda row: "-" if row.get(name) is None else format(row[name], form)

    def ratio(row: dict[str, Any]) -> str:
        return "-" if row["ratio"] is None else f"{row['ratio']:.4f} ({row['ratio_low']:.4f} {row['ratio_high']:.4f})"

    always = [
        ("median us", number("median_us", ".2f")),
        ("+-", number("spread_us", ".2f")),
        ("ratio (interval)", ratio),
        ("GB/s", number("gbps", ".1f")),
        ("of ceiling", number("of_ceiling", ".1%")),
    ]
    maybe = [
        ("hw", "hardware_wave", "d"),
        ("tail", "tail", "d"),
        ("regs", "registers", "d"),
        ("LDS", "lds_bytes", "d"),
        ("spill", "spill_bytes", "d"),
        ("occup.", "occupancy", ".0%"),
        ("shfl", "shuffles", "d"),
        ("redux", "redux", "d"),
        ("bar.", "barriers", "d"),
    ]
    there = [
        (title, number(name, form)) for title, name, form in maybe if any(row.get(name) is not None for row in rows)
    ]
    return [*always, *there]


def write_csv(found: Compared, path: str) -> None:
    """The rows as a CSV file. Raises UsageError where it cannot be written."""
    with writing(path):
        compared_frame(found).drop(columns="config").to_csv(path, index=False)


def write_plot(found: Compared, path: str) -> None:
    """A picture: each choice's time beside the fastest, with its interval. Raises UsageError where it cannot be
    written, BackendMissing where matplotlib is not installed."""
    timed = [row for row in found.rows if row.ratio and row.timing]
    names = [", ".join(str(value) for value in row.choice.values()) for row in timed]
    figure = figure_type()(figsize=(8, 1.6 + 0.5 * max(1, len(timed))), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    low, high = (100 * (end - 1) for end in found.noise[1:])
    axes.axvspan(low, high, color=QUIET, alpha=0.25, lw=0, label="one config against itself")
    axes.axvline(0, color=INK, lw=0.8)
    for k, row in enumerate(timed):
        assert row.ratio is not None
        assert row.timing is not None
        middle, left, right = (100 * (part - 1) for part in row.ratio)
        axes.plot([left, right], [k, k], color=ACCENT, lw=2.5, solid_capstyle="butt")
        axes.plot([middle], [k], "o", color=ACCENT, ms=6)
        note = f"{row.timing.median_us:.2f} us, {row.gbps:.0f} GB/s, {row.of_ceiling:.1%} of the ceiling"
        box: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}
        axes.annotate(
            note, (middle, k), xytext=(0, 9), textcoords="offset points", ha="center", fontsize=8, color=INK, bbox=box
        )
    axes.set_yticks(range(len(timed)), names)
    axes.set_ylim(len(timed) - 0.4, -0.8)
    axes.margins(x=0.25)
    axes.set_xlabel("% more time than the fastest (median of paired rounds, 95 % interval)")
    axes.set_ylabel(" / ".join(found.knobs))
    axes.set_title(f"{in_brief(found.problem)} on {found.device.name}, {found.temperature}", fontsize=10, loc="left")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), fontsize=8, frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    try:
        figure.savefig(Path(path))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be written: {error}") from error
