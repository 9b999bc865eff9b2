"""What a person, a program and a plotter see of the counts of the ladder, and of what they explain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from redtune.climbed import DPI, INK, QUIET, markdown_table
from redtune.counting import NEAR, WAVES, Model, Weighed, compared
from redtune.errors import UsageError
from redtune.terminal import console, in_brief
from redtune.trees import BANKS
from redtune.types import as_json
from redtune.written import figure_type, writing

if TYPE_CHECKING:
    import pandas

YES, NO = "#2463c9", "#c2410c"
COUNTED = ("#", "rung", "warp runs", "serialised", "additions", "barriers", "LDS words")
HEADS = (*COUNTED, "blocks", "us", "fewer", "faster")


def cells(row: Weighed, model: Model) -> dict[str, Any]:
    """A row as plain values by column: counts of one block for 32 lanes, and with `_64` for 64; empty where there is
    none."""
    beside = {id(above): (fewer, agrees) for _, above, fewer, _, agrees in compared(model)}
    fewer, agrees = beside.get(id(row), (None, None))
    narrow, wide = (row.on(lanes) for lanes in WAVES)
    timing = row.climbed.timing if row.climbed else None
    return {
        "rung": row.rung.number,
        "name": row.rung.name,
        "warp_runs": narrow.warp_runs,
        "warp_runs_64": wide.warp_runs,
        "serialised": narrow.serialised,
        "serialised_64": wide.serialised,
        "serialised_words": narrow.serialised_words,
        "serialised_words_64": wide.serialised_words,
        "additions": narrow.additions,
        "additions_64": wide.additions,
        "barriers": narrow.barriers,
        "tail_waits": narrow.tail_waits,
        "lds_words": narrow.lds_words,
        "lds_words_64": wide.lds_words,
        "active": list(narrow.active),
        "active_64": list(wide.active),
        "blocks": row.blocks,
        "serialised_in_all": row.in_all(model.lanes),
        "median_us": timing.median_us if timing else None,
        "fewer": fewer,
        "faster": row.climbed.over_before[0] if row.climbed and row.climbed.over_before else None,
        "agrees": agrees,
        "bank_conflicts": row.profiled.bank_conflicts if row.profiled else None,
        "active_lanes": row.profiled.active_lanes if row.profiled else None,
    }


def model_frame(model: Model) -> pandas.DataFrame:
    """A row for each rung."""
    import pandas

    return pandas.DataFrame([cells(row, model) for row in model.rows])


def model_json(model: Model) -> dict[str, Any]:
    """The document of `model --json`."""
    return {
        "problem": as_json(model.problem),
        "device": as_json(model.device) if model.device else None,
        "block": model.block,
        "banks": BANKS,
        "state_words": model.state_words,
        "work": model.work,
        "depth": model.depth,
        "lanes_at_once": model.lanes_at_once,
        "brent_steps": model.brent,
        "lanes": model.lanes,
        "absent": model.absent,
        "rows": [cells(row, model) for row in model.rows],
    }


def both(narrow: int, wide: int) -> str:
    """A count for waves of 32 lanes and of 64, once where they are the same."""
    return str(narrow) if narrow == wide else f"{narrow} / {wide}"


def in_words(model: Model) -> Iterator[tuple[str, ...]]:
    """The table: a line for each rung under HEADS."""
    for row in model.rows:
        plain = cells(row, model)
        pairs = (both(plain[name], plain[f"{name}_64"]) for name in ("warp_runs", "serialised", "additions"))
        barriers = str(plain["barriers"]) + (f" + {plain['tail_waits']}" if plain["tail_waits"] else "")
        times = "-" if plain["median_us"] is None else f"{plain['median_us']:.2f}"
        ratios = ("-" if plain[name] is None else f"{plain[name]:.2f}x" for name in ("fewer", "faster"))
        words = both(plain["lds_words"], plain["lds_words_64"])
        blocks = "-" if row.blocks is None else str(row.blocks)
        yield str(plain["rung"]), plain["name"], *pairs, barriers, words, blocks, times, *ratios


def title_of(model: Model) -> str:
    """What was counted."""
    return f"one block of {model.block} threads, counted; waves of 32 / 64 lanes, {BANKS} banks"


def sentences(model: Model) -> Iterator[str]:
    """What the counts mean, and what they explain."""
    yield f"{in_brief(model.problem)}: work {model.work} additions, depth {model.depth}: any tree has as many"
    if model.brent is not None and model.device is not None:
        yield (
            f"Brent's bound on {model.device.name}: {model.work} / {model.lanes_at_once} lanes + {model.depth} = "
            f"{model.brent:.0f} steps"
        )
    yield "barriers: of the block, + those that only the lanes of the last tail wait at"
    if model.state_words > 1:
        turns = (both(*(row.on(lanes).serialised_words for lanes in WAVES)) for row in model.rows)
        yield f"serialised with states of {model.state_words} words: {', '.join(turns)}"
    if model.device is not None and model.device.kind == "cpu":
        yield "a CPU has neither waves nor banks: the counts are those of a GPU, and may explain little here"
    if compared(model):
        yield f"a count explains the clock where the two ratios are within {NEAR}x of each other"
    for below, row, fewer, faster, agrees in compared(model):
        before, after = below.on(model.lanes).serialised, row.on(model.lanes).serialised
        yield (
            f"{below.rung.number} to {row.rung.number}: serialised {before} to {after} a block, "
            f"{fewer:.2f}x fewer in all; {faster:.2f}x as fast: "
            f"the count {'explains' if agrees else 'does not explain'} the clock"
        )
    for row in model.rows:
        if row.profiled is not None:
            yield (
                f"{row.rung.number}: ncu counts {row.profiled.bank_conflicts:.0f} bank conflicts, and "
                f"{row.profiled.active_lanes:.1f} of 32 lanes in an instruction"
            )
    if model.absent:
        yield f"nothing was measured: {model.absent}"


def active_lines(model: Model) -> Iterator[str]:
    """Who merges in each step; of rungs that are alike once."""
    alike: dict[str, list[int]] = {}
    for row in model.rows:
        narrow, wide = (" ".join(map(str, row.on(lanes).active)) for lanes in WAVES)
        text = narrow if narrow == wide else f"{narrow}, on waves of 64 {wide}"
        alike.setdefault(text, []).append(row.rung.number)
    for text, numbers in alike.items():
        span = f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}"
        yield f"threads that merge in each step of {span}: {text}"


def show_model(model: Model) -> None:
    """The table, and what it says."""
    out = console()
    table = Table(title=title_of(model), padding=(0, 0))
    for k, head in enumerate(HEADS):
        table.add_column(head, justify="left" if k == 1 else "right", no_wrap=k != 1)
    for values in in_words(model):
        table.add_row(*values)
    out.print(table)
    for line in (*active_lines(model), *sentences(model)):
        out.print(line, highlight=False)


def write_csv(model: Model, path: str) -> None:
    """The rows as a CSV file. Raises UsageError where it cannot be written."""
    with writing(path):
        model_frame(model).to_csv(path, index=False)


def markdown(model: Model, command: str, environment: str) -> Iterator[str]:
    """The model as a page."""
    yield f"# What the rungs cost: {title_of(model)}"
    yield from ("", " ".join(filter(None, (f"`{command}`.", environment))), "")
    yield from markdown_table(HEADS, list(in_words(model)))
    yield ""
    yield from (f"- {line}" for line in (*active_lines(model), *sentences(model)))


def write_plot(model: Model, path: str) -> None:
    """A picture: how many times fewer serialised runs each rung has than the one before, beside how many times faster
    it is. Raises UsageError where it cannot be written or nothing was measured, BackendMissing without matplotlib."""
    pairs = compared(model)
    if not pairs or model.device is None:
        raise UsageError(f"a plot shows counts beside times: {model.absent or 'no two rungs were timed'}")
    figure = figure_type()(figsize=(9, 1.6 + 0.46 * len(pairs)), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    for k, (_, _, fewer, faster, agrees) in enumerate(pairs):
        axes.plot([fewer, faster], [k, k], color=QUIET, lw=1.2, zorder=1)
        axes.plot([fewer], [k], "D", color=INK, ms=6, mfc="white", label="" if k else "fewer serialised runs, counted")
        axes.plot([faster], [k], "o", color=YES if agrees else NO, ms=7)
        axes.annotate(
            f"{fewer:.2f}x fewer, {faster:.2f}x faster",
            (max(fewer, faster), k),
            xytext=(9, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=INK,
        )
    axes.plot([], [], "o", color=YES, label="faster, measured: the count explains it")
    axes.plot([], [], "o", color=NO, label="faster, measured: it does not")
    axes.axvline(1, color=QUIET, lw=0.8, ls="--")
    axes.set_xscale("log")
    axes.margins(x=0.35)
    names = [f"{below.rung.number} to {row.rung.number} {row.rung.name}" for below, row, *_ in pairs]
    axes.set_yticks(range(len(pairs)), names)
    axes.set_ylim(len(pairs) - 0.4, -0.8)
    axes.set_xlabel("times the rung before (log)")
    title = f"{in_brief(model.problem)} on {model.device.name}, blocks of {model.block}"
    axes.set_title(title, fontsize=10, loc="left")
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    try:
        figure.savefig(Path(path))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be written: {error}") from error
