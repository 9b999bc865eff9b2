"""Where the judge looks: pieces of small arrays at every edge that a config has, seen as the problem's layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from redtune.config import Config, is_read, team_of
from redtune.data import WINDOW, Array, Dataset
from redtune.plan import results_at_once
from redtune.types import Problem

SHIFT = 3  # a second input begins so many elements after the first, so that the two are aligned differently


@dataclass(frozen=True, slots=True)
class Gaps:
    """Elements between neighbours that belong to none: behind a row, behind a column, behind a result."""

    rows: int = 0
    columns: int = 0
    results: int = 0


NO_GAPS = Gaps()
# What the kernels of a layout take as strides. Odd ones, so that every row begins at another alignment.
GAPS = {"flat": NO_GAPS, "rows": Gaps(rows=3, results=1), "columns": Gaps(rows=5, columns=1, results=2)}


@dataclass(frozen=True, slots=True)
class Window:
    """`outer` x `n` x `inner` elements, from element `first` on: neighbours in C order, or with gaps between them."""

    first: int
    outer: int
    n: int
    inner: int
    gaps: Gaps = NO_GAPS

    @property
    def size(self) -> int:
        """How many elements there are."""
        return self.outer * self.n * self.inner

    @property
    def results(self) -> int:
        """How many results there are."""
        return self.outer * self.inner

    @property
    def steps(self) -> tuple[int, int, int]:
        """How far apart neighbours are along outer, n and inner."""
        inner = 1 + self.gaps.columns
        n = self.inner * inner if self.inner > 1 or self.gaps.columns else 1
        return self.n * n + self.gaps.rows, n, inner

    @property
    def out_steps(self) -> tuple[int, int]:
        """How far apart results are along outer and inner."""
        inner = 1 + self.gaps.results
        return self.inner * inner + self.gaps.results, inner

    @property
    def reach(self) -> int:
        """How many elements lie from the first to the last one of it, both included."""
        lengths = (self.outer, self.n, self.inner)
        return 1 + sum((length - 1) * step for length, step in zip(lengths, self.steps, strict=True))

    def places(self) -> Array:
        """Where the results go."""
        outer, inner = self.out_steps
        return (np.arange(self.outer)[:, None] * outer + np.arange(self.inner) * inner).ravel()

    def place_of(self, o: int, k: int, i: int) -> int:
        """Where an element lies, from the first one on."""
        outer, n, inner = self.steps
        return o * outer + k * n + i * inner

    def of(self, values: Array, shift: int = 0) -> Array:
        """The elements of each result in a row of its own."""
        block = values[self.first + shift :][: self.reach]
        outer, n, inner = (step * values.itemsize for step in self.steps)
        shape = (self.outer, self.inner, self.n)
        return np.lib.stride_tricks.as_strided(block, shape, (outer, inner, n)).reshape(-1, self.n)

    def arguments(self, operands: Sequence[str], shift: int = 0) -> dict[str, int]:
        """The sizes and strides as a kernel takes them. Every operand after the first begins `shift` elements later."""
        values = {"n": self.n, "outer": self.outer, "inner": self.inner}
        values |= dict(zip(("out_outer", "out_inner"), self.out_steps, strict=True))
        for k, name in enumerate(operands):
            values[f"{name}_first"] = self.first + shift * min(k, 1)
            ends = ("outer", "n", "inner")
            values |= {f"{name}_{end}": step for end, step in zip(ends, self.steps, strict=True)}
        return values


def resized(problem: Problem, window: Window) -> Problem:
    """The problem of a kernel's layout with the sizes of a window."""
    found = replace(problem, n=window.n, outer=window.outer, inner=window.inner)
    if found.layout == problem.layout:
        return found
    # One result, in a kernel for many.
    return replace(found, is_strided=True) if problem.layout == "columns" else replace(found, outer=2)


def room() -> int:
    """How far a window may reach, so that the plant can be at either end of it, and of a second input's."""
    return WINDOW // 2 - SHIFT


def apart(window: Window, layout: str) -> Window:
    """The window with gaps wherever the layout's kernels take a stride, or as it is where they do not fit in."""
    wide = replace(window, gaps=GAPS[layout])
    outer, _ = wide.out_steps
    return wide if max(wide.reach, wide.outer * outer) <= room() else window


def edge_sizes(config: Config, tile: int) -> list[int]:
    """The numbers of elements at which some part of the kernel begins, ends or is empty."""
    wave = config.wave if is_read("wave", config) else 1
    team = team_of(config)
    row = tile // config.items  # what a team's loads have of a result
    around = (config.vector, min(wave, team), team, row, tile, 2 * tile)
    sizes = {1, 2, 3, 7, 31, 33, tile + row + 1, 2 * tile + team + 1, 3 * tile - 1}
    sizes |= {n + d for n in around for d in (-1, 0, 1)}
    if is_read("cluster", config):  # blocks that meet in one cluster, and in two
        sizes |= {k * config.cluster * tile + d for k in (1, 2) for d in (-1, 1)}
    return sorted(n for n in sizes if 1 <= n <= room())


def shapes(problem: Problem, config: Config, tile: int) -> list[tuple[int, int, int]]:
    """(outer, n, inner) at the edges: of a tile, and of the results that a block takes at once."""
    sizes = edge_sizes(config, tile)
    if problem.layout == "flat":
        return [(1, n, 1) for n in sizes]
    teams = results_at_once(problem, config)
    counts = sorted({1, 2, teams - 1, teams, teams + 1, 2 * teams + 1} - {0})
    rows = []
    for k, n in enumerate(sizes):
        count = counts[k % len(counts)]
        wanted = [(count, n, 1)]
        if problem.layout == "columns":
            ways = [(1, n, count), (count, n, 1), (2, n, count), (3, n, 7)]
            wanted = [*ways[k % 4 :], *ways[: k % 4]]
        rows += [shape for shape in wanted if shape[0] * n * shape[2] <= room()][:1]
    rows += [(count, 5, 1) if problem.layout == "rows" else (1, 5, count) for count in counts]
    # More results than the blocks of a small grid take in one turn.
    many = min(WINDOW // 8, 8 * teams * config.blocks_per_cu + 3)
    rows.append((many, 3, 1) if problem.layout == "rows" else (1, 3, many))
    return rows


def windows(
    sets: Sequence[Dataset], problem: Problem, config: Config, tile: int, element_bytes: int
) -> Iterator[tuple[int, Window]]:
    """(dataset, window) of every check on the small arrays."""
    edges = shapes(problem, config, tile)
    offsets = max(2, 16 // element_bytes) + 1
    for index, dataset in enumerate(sets):
        if dataset.plant is None:
            every = edges if dataset.name == "exact" else edges[:: max(1, len(edges) // 5)]
            for k, shape in enumerate(every):
                window = Window(k % offsets, *shape)
                yield index, apart(window, problem.layout) if k % 2 else window
            if dataset.name == "exact" and problem.layout != "columns":
                n = min(tile + 5, room() - offsets)
                yield from ((index, Window(first, 1, n, 1)) for first in range(offsets))
            continue
        for k, shape in enumerate(edges):
            window = Window(0, *shape)
            if k % 4 > 1:
                window = apart(window, problem.layout)
            row = window.outer // 2 if k % 2 else window.outer - 1
            place = (0, window.n - 1, window.n // 2)[k % 3]
            at = window.place_of(row, place, (window.inner - 1) * (k % 2))
            yield index, replace(window, first=dataset.plant - at)
        if problem.layout == "flat":
            yield from ((index, window) for window in _every_place(dataset.plant, config, tile, edges[-1][1]))


def _every_place(plant: int, config: Config, tile: int, longest: int) -> Iterator[Window]:
    """The planted element at every place that some thread, wave, vector or block begins or ends."""
    wave = config.wave if is_read("wave", config) else 1
    block, vector = config.block, config.vector
    places = {0, 1, vector, wave - 1, wave, block - 1, block, block * vector, tile - 1, tile}
    places |= {longest - 1 - back for back in (0, 1, block)}
    yield from (Window(plant - place, 1, longest, 1) for place in sorted(places) if 0 <= place < longest)
