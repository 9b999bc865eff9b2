"""The plots of a report as numbers: where everything lies in a plane of a few hundred points, for a template to write.

A plot is as wide as a phone at its own size and is drawn larger where there is room, so its letters stay readable.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from redtune.outcome import Finalist
from redtune.types import Trial, Verdict

WIDTH, HEIGHT = 420, 240
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 26, 34
TICKS = 5  # about so many on an axis
BAR = 26  # the height of a row
NAMES = 118  # room for names beside rows
SLICE_WIDTH, SLICE_HEIGHT = 300, 170
LETTERS = 40  # below an axis
MOST_NAMED = 8  # values of a knob with a name each


@dataclass(frozen=True, slots=True)
class Text:
    """Words at a place. `anchor` is start, middle or end."""

    x: str
    y: str
    words: str
    anchor: str = "middle"
    kind: str = "tick"


@dataclass(frozen=True, slots=True)
class Shape:
    """A path, or a rectangle as one; `kind` is its class in the style sheet, `title` what a pointer on it shows."""

    path: str
    kind: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture: `label` says what it shows to who cannot see it."""

    label: str
    width: int
    height: int
    shapes: tuple[Shape, ...]
    texts: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from `low` to `high` over places from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The place of a value."""
        return self.start + (value - self.low) / ((self.high - self.low) or 1.0) * (self.end - self.start)


def number(value: float) -> str:
    """A place as a path has it."""
    assert math.isfinite(value), value
    return f"{value:.1f}".removesuffix(".0")


def ticks(low: float, high: float) -> list[float]:
    """Round values between two, both included where they are round."""
    span = (high - low) or abs(high) or 1.0
    raw = span / TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Shape:
    return Shape(f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}", kind)


def _dots(places: Iterable[tuple[float, float]], kind: str) -> Shape:
    """Dots of one kind as one path: lines of no length with round ends."""
    return Shape("".join(f"M{number(x)} {number(y)}h0" for x, y in places), f"dots {kind}")


def _box(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> Shape:
    path = f"M{number(x)} {number(y)}h{number(max(width, 0.5))}v{number(height)}h{number(-max(width, 0.5))}z"
    return Shape(path, kind, title)


def _rates(scale: Scale, left: float, right: float) -> tuple[list[Shape], list[Text]]:
    """The lines and numbers of an axis of GB/s."""
    marks = ticks(scale.low, scale.high)
    shapes = [_line(left, scale.at(mark), right, scale.at(mark), "grid") for mark in marks]
    texts = [Text(number(left - 6), number(scale.at(mark) + 4), f"{mark:g}", "end") for mark in marks]
    return shapes, texts


def rate_of(trial: Trial, data_bytes: int) -> float:
    """GB/s of a right trial."""
    assert trial.micros
    return data_bytes / trial.micros * 1e-3


def history(trials: Sequence[Trial], data_bytes: int, ceiling_gbps: float | None) -> Plot:
    """Every trial in its order, the best so far, the read ceiling; below the axis those that were not right."""
    rates = [rate_of(trial, data_bytes) if trial.verdict == Verdict.OK else None for trial in trials]
    top = max([rate for rate in rates if rate] + [ceiling_gbps or 0.0]) * 1.15 or 1.0
    left, right, bottom = LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM - 14
    x = Scale(1, max(2, len(trials)), left + 6, right - 6)
    y = Scale(0, top, bottom, TOP)
    shapes, texts = _rates(y, left, right)
    done = [(x.at(k), y.at(rate)) for k, rate in enumerate(rates, 1) if rate]
    failed = [(x.at(k), bottom + 10.0) for k, rate in enumerate(rates, 1) if rate is None]
    if ceiling_gbps:
        shapes.append(_line(left, y.at(ceiling_gbps), right, y.at(ceiling_gbps), "ceiling"))
        texts.append(
            Text(number(right), number(y.at(ceiling_gbps) - 5), f"read ceiling {ceiling_gbps:.4g}", "end", "note")
        )
    shapes += [Shape(_steps(rates, x, y), "best")] if done else []
    shapes += [_dots(done, "right")] if done else []
    shapes += [_dots(failed, "failed")] if failed else []
    for mark in ticks(1, max(2, len(trials))):
        if mark == int(mark) >= 1:
            texts.append(Text(number(x.at(mark)), number(HEIGHT - BOTTOM + 12), f"{mark:g}"))
    texts.append(Text(number((left + right) / 2), number(HEIGHT - 4), "trial"))
    texts.append(Text(number(4), "12", "GB/s", "start"))
    label = f"{len(done)} right trials and {len(failed)} others in their order, with the best so far"
    return Plot(label, WIDTH, HEIGHT, tuple(shapes), tuple(texts))


def _steps(rates: Sequence[float | None], x: Scale, y: Scale) -> str:
    """The best so far as steps."""
    best, path = 0.0, ""
    for k, rate in enumerate(rates, 1):
        if rate and rate > best:
            path += f"H{number(x.at(k))}V{number(y.at(rate))}" if best else f"M{number(x.at(k))} {number(y.at(rate))}"
            best = rate
    return path + f"H{number(x.at(len(rates)))}"


def bars(shares: Mapping[str, float], label: str) -> Plot:
    """Named shares of a whole, the largest first."""
    rows = sorted(shares.items(), key=lambda row: -row[1])
    height = BAR * len(rows) + 8
    x = Scale(0, max(shares.values()) or 1.0, NAMES, WIDTH - 48)
    shapes: list[Shape] = []
    texts: list[Text] = []
    for k, (name, share) in enumerate(rows):
        y = 4 + BAR * k
        shapes.append(_box(NAMES, y + 4, x.at(share) - NAMES, BAR - 9, "bar", f"{name}: {share:.1%}"))
        texts.append(Text(number(NAMES - 8), number(y + 17), name, "end", "name"))
        texts.append(Text(number(x.at(share) + 6), number(y + 17), f"{share:.0%}", "start"))
    return Plot(label, WIDTH, height, tuple(shapes), tuple(texts))


def slices(knob: str, trials: Sequence[tuple[int | str, float]], best: int | str | None) -> Plot:
    """The rates of right trials by the value of a knob. `best` is the value of the winner."""
    values = list(dict.fromkeys(value for value, _ in trials))
    values.sort(key=lambda value: (isinstance(value, str), value))
    top = max(rate for _, rate in trials) * 1.05
    # Long names side by side would lie on each other, so every other one is lower.
    is_staggered = sum(len(str(value)) + 2 for value in values[:MOST_NAMED]) > LETTERS
    left, right, bottom = 40, SLICE_WIDTH - 8, SLICE_HEIGHT - (38 if is_staggered else 24)
    y = Scale(0, top, bottom, 10)
    step = (right - left) / len(values)
    shapes, texts = _rates(y, left, right)
    by_value: dict[int | str, list[float]] = {value: [] for value in values}
    for value, rate in trials:
        by_value[value].append(rate)
    every = -(-len(values) // MOST_NAMED)
    for k, value in enumerate(values):
        middle, rates = left + step * (k + 0.5), by_value[value]
        width = min(step * 0.6, 26.0)
        kind = "winner" if value == best else "right"
        # Side by side in the order of the trials, so that none hides another.
        places = [(middle + width * ((i + 0.5) / len(rates) - 0.5), y.at(rate)) for i, rate in enumerate(rates)]
        shapes.append(_dots(places, kind))
        shapes.append(_line(middle - width / 2, y.at(max(rates)), middle + width / 2, y.at(max(rates)), "top"))
        if k % every == 0 or value == best:
            lower = 14 * (is_staggered and k // every % 2 == 0)
            texts.append(Text(number(middle), number(SLICE_HEIGHT - 6 - lower), str(value)))
    label = f"GB/s of right trials by {knob}: {len(values)} values"
    return Plot(label, SLICE_WIDTH, SLICE_HEIGHT, tuple(shapes), tuple(texts))


def intervals(finalists: Sequence[Finalist], names: Sequence[str]) -> Plot:
    """The ratios of finalists to the incumbent, with their intervals; 1 is as long as it takes."""
    low = min(1.0, *(finalist.low for finalist in finalists))
    high = max(1.0, *(finalist.high for finalist in finalists))
    room = (high - low) * 0.06 or 0.01
    left, right = 64, WIDTH - 16
    x = Scale(low - room, high + room, left, right)
    height = BAR * len(finalists) + 44
    bottom = height - 34.0
    shapes: list[Shape] = []
    texts: list[Text] = []
    for mark in ticks(x.low, x.high):
        shapes.append(_line(x.at(mark), 4, x.at(mark), bottom, "grid"))
        texts.append(Text(number(x.at(mark)), number(bottom + 14), f"{mark:.6g}"))
    shapes.append(_line(x.at(1.0), 4, x.at(1.0), bottom, "ceiling"))
    for k, (finalist, name) in enumerate(zip(finalists, names, strict=True)):
        y = 4 + BAR * (k + 0.5)
        shapes.append(_line(x.at(finalist.low), y, x.at(finalist.high), y, "interval"))
        shapes.append(_dots([(x.at(finalist.ratio), y)], "right"))
        texts.append(Text(number(left - 8), number(y + 4), name, "end", "name"))
    texts.append(Text(number((left + right) / 2), number(height - 4), "time over the incumbent's"))
    return Plot("the ratio of each finalist to the incumbent", WIDTH, height, tuple(shapes), tuple(texts))
