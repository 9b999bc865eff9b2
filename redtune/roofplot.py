"""A roofline as one picture: the ceilings with what stands below them, and what the winners reach of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from redtune.arithmetic import DTYPES, STEPS
from redtune.ceilings import LISTED, Roofline, Stand
from redtune.errors import UsageError
from redtune.heat import DPI, INK, QUIET, SHORT
from redtune.written import figure_type

COLOURS = dict(zip(DTYPES, ("#2463c9", "#c2410c", "#15803d", "#7e22ce"), strict=True))
LINES = dict(zip(STEPS, ("-", "--", "-.", ":"), strict=True))
WIDTH = 11.0
APART = 0.032  # of two labels at the right edge, in parts of the axis
NAMED = 50  # letters of the names at one intensity; the bars name all
INSIDE = 0.6  # a bar as long as this has room for its words
ROOM = 60  # how far below the read ceiling the names begin


def write_plot(found: Roofline, path: str) -> None:
    """Writes the picture. Raises UsageError where it cannot be written, BackendMissing where matplotlib is missing."""
    rows = [stand for stand in found.stands if stand.attainable_gbps]
    height = max(6.0, 1.6 + 0.19 * len(rows))
    figure = figure_type()(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    _roofs(left, found, rows)
    _reached(right, rows)
    figure.suptitle(
        f"redtune: the roofline of {found.device.name} ({found.device.backend}): reads {found.read_gbps:.4g} GB/s",
        fontsize=11,
        x=0.01,
        ha="left",
    )
    try:
        figure.savefig(Path(path))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be written: {error}") from error


def computes_in(stand: Stand) -> str:
    """The dtype of most operations of an element: its colour."""
    from redtune.operations import work_of

    counts: dict[str, int] = {}
    for (_, dtype), count in work_of(stand.problem).items():
        counts[dtype] = counts.get(dtype, 0) + count
    return max(counts, key=lambda dtype: counts[dtype], default="int32")


def _roofs(axes: Any, found: Roofline, rows: Sequence[Stand]) -> None:
    """Operations a second over operations a byte, both in powers of ten."""
    roofs = [(roof.gops, roof.ridge, roof.dtype, roof.name) for roof in found.roofs if roof.gops and roof.ridge]
    read, top = found.read_gbps, max(gops for gops, *_ in roofs)
    at = [stand.intensity for stand in rows if stand.intensity] or [1.0]
    low, high = min(at) / 2, max(top / read, *at) * 2
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(low * read / ROOM, top * 2)
    axes.plot([low, top / read], [low * read, top], color=INK, lw=1.6)
    axes.text(
        top / read / 8,
        top / 8 * 1.15,
        f"read {read:.4g} GB/s",
        rotation=math.degrees(math.atan(read)),
        rotation_mode="anchor",
        transform_rotates_text=True,
        fontsize=8,
        color=INK,
    )
    for gops, ridge, dtype, name in roofs:
        axes.plot([ridge, high], [gops] * 2, color=COLOURS[dtype], ls=LINES[name], lw=1.1)
    _label_roofs(axes, [(gops, f"{SHORT[dtype]} {name}", COLOURS[dtype]) for gops, _, dtype, name in roofs])
    _name_intensities(axes, rows)
    for stand in rows:
        if stand.best and stand.intensity:
            y = stand.best.gbps * stand.intensity
            axes.plot(stand.intensity, y, "o", ms=5, color=COLOURS[computes_in(stand)], mec="white", mew=0.6, zorder=3)
    axes.set_xlabel("operations a byte", fontsize=8)
    axes.set_ylabel("10^9 operations a second", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.set_title("ceilings, and winners as they were measured", fontsize=9, loc="left")


def _label_roofs(axes: Any, labels: Sequence[tuple[float, str, str]]) -> None:
    """Names at the right edge, moved apart where they would lie on each other."""
    bottom, top = (math.log10(y) for y in axes.get_ylim())
    place = -1.0
    for rate, text, colour in sorted(labels):
        at = (math.log10(rate) - bottom) / (top - bottom)
        place = max(at, place + APART)
        axes.annotate(
            f"{text} {rate:.0f}" if rate >= 100 else f"{text} {rate:.2g}",
            (1.0, at),
            xytext=(1.03, place),
            xycoords="axes fraction",
            textcoords="axes fraction",
            fontsize=7,
            color=colour,
            va="center",
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.5, "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)},
        )


def _name_intensities(axes: Any, rows: Sequence[Stand]) -> None:
    """The operators that stand at one intensity, along a line that goes up to what they can attain."""
    bottom, _ = axes.get_ylim()
    for intensity in sorted({stand.intensity for stand in rows if stand.intensity}):
        there = [stand for stand in rows if stand.intensity == intensity]
        most = max((stand.attainable_gbps or 0.0) * intensity for stand in there)
        axes.plot([intensity] * 2, [bottom, most], color=QUIET, lw=0.5, ls=":", zorder=1)
        axes.text(intensity, bottom * 1.15, _names(there), rotation=90, ha="right", va="bottom", fontsize=6, color=INK)


def _names(there: Sequence[Stand]) -> str:
    """By dtype, as many as there is room for."""
    by_dtype: dict[str, list[str]] = {}
    for stand in sorted(there, key=lambda stand: stand.problem.dtype not in LISTED):
        by_dtype.setdefault(SHORT.get(stand.problem.dtype, stand.problem.dtype), []).append(stand.problem.op)
    text = "; ".join(f"{dtype}: {' '.join(ops)}" for dtype, ops in by_dtype.items())
    return text if len(text) <= NAMED else f"{text[: text.rindex(' ', 0, NAMED)]} ..."


def _reached(axes: Any, rows: Sequence[Stand]) -> None:
    """What every winner reaches of the attainable."""
    names = [f"{stand.problem.op} {SHORT.get(stand.problem.dtype, stand.problem.dtype)}" for stand in rows]
    for k, stand in enumerate(rows):
        words = f"{stand.attainable_gbps:.4g} GB/s attainable, {stand.bound}"
        if stand.fraction is None:
            axes.text(0.01, k, f"no winner; {words}", va="center", fontsize=6.5, color=QUIET)
            continue
        axes.barh(k, stand.fraction, height=0.72, color=COLOURS[computes_in(stand)], alpha=0.85)
        is_inside = stand.fraction > INSIDE
        at, colour = (0.01, "white") if is_inside else (stand.fraction + 0.01, INK)
        axes.text(at, k, f"{stand.fraction:.1%}; {words}", va="center", fontsize=6.5, color=colour)
    axes.axvline(1.0, color=INK, lw=0.8)
    axes.set_yticks(range(len(rows)), names, fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, max([1.05, *(1.05 * stand.fraction for stand in rows if stand.fraction)]))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=7)
    axes.set_title("what the winner reaches of the attainable", fontsize=9, loc="left")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
