"""A measured matrix as one picture: how many times faster than the best library in every cell, and where it is not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from redtune.benched import times
from redtune.benching import Benched, Measured
from redtune.errors import UsageError
from redtune.operators import OPERATORS
from redtune.written import figure_type

INK, QUIET, PAPER, LOSS, WIN = "#1b1f24", "#8a929c", "#f3f4f6", "#c2410c", "#2463c9"
DPI = 150
WORST, BEST = 1 / 4, 8.0  # where the colours end
NAMED = 24  # losing cells that the picture names
SHORT = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
}
Column = tuple[str, str]  # (size, dtype)


def write_plot(bench: Benched, path: str) -> None:
    """Writes the picture. Raises UsageError where it cannot be written, BackendMissing where matplotlib is missing."""
    panels = [(title, rows) for title, rows in _panels(bench) if rows]
    if not panels:
        raise UsageError("no cell has a library to compare with, so there is nothing to plot")
    names = [_named(rows) for _, rows in panels]
    widest = max(len(columns) for _, columns in names)
    lost = bench.to_look_at()
    heights = [0.24 * len(ops) + 1.1 for ops, _ in names]
    listed = 0.14 * (1 + -(-min(len(lost), NAMED + 1) // 2)) + 0.15
    figure = figure_type()(
        figsize=(max(9.0, 2.2 + 0.24 * widest), sum(heights) + listed + 0.9), dpi=DPI, layout="constrained"
    )
    grid = figure.add_gridspec(len(panels) + 1, 1, height_ratios=[*heights, listed])
    shown: list[Any] = []
    image: Any = None
    for k, ((title, rows), (ops, columns)) in enumerate(zip(panels, names, strict=True)):
        axes = figure.add_subplot(grid[k])
        image = _draw(axes, rows, ops, columns, title)
        shown.append(axes)
    bar = figure.colorbar(image, ax=shown, shrink=0.9, pad=0.01, extend="both")
    ticks = [0.25, 0.5, 1, 2, 4, 8]
    bar.set_ticks([math.log2(tick) for tick in ticks], labels=[f"{tick:g}x" for tick in ticks])
    bar.set_label("speed-up over the best library", fontsize=8)
    _list(figure.add_subplot(grid[len(panels)]), lost)
    mean = (
        f"{bench.geometric_mean():.2f}x geometric mean of {len(bench.compared())} cells, {len(bench.losing())} losing"
    )
    figure.suptitle(f"redtune on {bench.device.name}, {bench.temperature}: {mean}", fontsize=11, x=0.01, ha="left")
    try:
        figure.savefig(Path(path))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be written: {error}") from error


def _panels(bench: Benched) -> list[tuple[str, list[Measured]]]:
    layouts = {"flat": "flat: all elements into one", "rows": "rows", "columns": "columns"}
    rows = bench.compared()
    return [(title, [one for one in rows if one.cell.problem.layout == layout]) for layout, title in layouts.items()]


def _named(rows: Sequence[Measured]) -> tuple[list[str], list[Column]]:
    """The operators from top to bottom and the columns from left to right."""
    order, kinds = list(OPERATORS), list(SHORT)
    ops = sorted({one.cell.problem.op for one in rows}, key=order.index)
    sizes: dict[str, tuple[int, int]] = {}
    for one in rows:
        problem = one.cell.problem
        key = (problem.n, problem.results)
        sizes[one.cell.size] = max(sizes.get(one.cell.size, key), key)
    columns = {(one.cell.size, one.cell.problem.dtype) for one in rows}

    def place(column: Column) -> tuple[Any, ...]:
        return sizes[column[0]], column[0], kinds.index(column[1]) if column[1] in kinds else len(kinds)

    return ops, sorted(columns, key=place)


def _draw(axes: Any, rows: Sequence[Measured], ops: list[str], columns: list[Column], title: str) -> Any:
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm

    values = np.full((len(ops), len(columns)), np.nan)
    for one in rows:
        at = ops.index(one.cell.problem.op), columns.index((one.cell.size, one.cell.problem.dtype))
        assert one.found.speedup is not None
        values[at] = math.log2(one.found.speedup[0])
        if one.found.is_losing or one.found.is_doubtful:
            axes.add_patch(_frame(at[1] - 0.5, at[0] - 0.5))
        wrong = one.found.ours.odd
        axes.text(
            at[1],
            at[0],
            "!" if wrong else _short(one.found.speedup[0]),
            ha="center",
            va="center",
            fontsize=5,
            color=INK,
        )
    colours = LinearSegmentedColormap.from_list("speed-up", [LOSS, "#fbd9c6", "#ffffff", "#c9dbf8", WIN]).with_extremes(
        bad=PAPER
    )
    norm = TwoSlopeNorm(0.0, math.log2(WORST), math.log2(BEST))
    image = axes.imshow(values, cmap=colours, norm=norm, aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(ops)), ops, fontsize=7)
    axes.set_xticks(range(len(columns)), [SHORT.get(dtype, dtype) for _, dtype in columns], fontsize=6, rotation=90)
    axes.tick_params(length=0)
    axes.set_title(title, fontsize=8, loc="left", pad=20)
    _group(axes, columns)
    for side in axes.spines.values():
        side.set_visible(False)
    return image


def _short(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"


def _frame(x: float, y: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x + 0.04, y + 0.04), 0.92, 0.92, fill=False, edgecolor=INK, lw=0.8, zorder=3)


def _group(axes: Any, columns: Sequence[Column]) -> None:
    """The sizes above their columns, with a line between two of them."""
    sizes = list(dict.fromkeys(size for size, _ in columns))
    for size in sizes:
        own = [k for k, column in enumerate(columns) if column[0] == size]
        middle = (own[0] + own[-1]) / 2
        axes.text(middle, -0.62, size, ha="center", va="bottom", fontsize=7, color=INK)
        if own[0]:
            axes.axvline(own[0] - 0.5, color=QUIET, lw=0.8)


def _list(axes: Any, lost: Sequence[Measured]) -> None:
    """The losing cells by name, the worst first."""
    axes.set_axis_off()
    if not lost:
        axes.text(0, 1, "no library is faster in any cell", va="top", fontsize=8, color=INK)
        return
    lines = [_words(one) for one in lost[:NAMED]]
    lines += [f"and {len(lost) - NAMED} more: --markdown FILE names them all"] if len(lost) > NAMED else []
    head, half = (
        "losing (framed above), the worst first: speed-up with its interval, who is faster",
        -(-len(lines) // 2),
    )
    for k, part in enumerate(([head, *lines[:half]], ["", *lines[half:]])):
        axes.text(k / 2, 1, "\n".join(part), va="top", fontsize=6.3, color=INK, transform=axes.transAxes)


def _words(one: Measured) -> str:
    if one.found.is_doubtful:
        return f"! {one.cell}: {times(one)}; others give something else"
    return f"{one.cell}: {times(one)}, {one.found.rival.name if one.found.rival else 'none'}"
