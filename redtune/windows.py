"""Where the judge looks: pieces of small arrays at every edge that a config has, seen as the problem's layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from redtune.config import Config, is_read, team_of
from redtune.data import WINDOW, Array, Dataset
from redtune.types import Problem


@dataclass(frozen=True, slots=True)
class Window:
    """`outer` x `n` x `inner` neighbouring elements in C order, from element `first` on."""

    first: int
    outer: int
    n: int
    inner: int

    @property
    def size(self) -> int:
        """How many elements there are."""
        return self.outer * self.n * self.inner

    def of(self, values: Array, shift: int = 0) -> Array:
        """The elements of each result in a row of its own."""
        begin = self.first + shift
        block = values[begin : begin + self.size].reshape(self.outer, self.n, self.inner)
        return block.swapaxes(1, 2).reshape(-1, self.n)

    def arguments(self, operands: Sequence[str], shift: int = 0) -> dict[str, int]:
        """The sizes and strides as a kernel takes them. Every operand after the first begins `shift` elements later."""
        values = {"n": self.n, "outer": self.outer, "inner": self.inner}
        values |= {"out_outer": self.inner, "out_inner": 1}
        for k, name in enumerate(operands):
            values[f"{name}_first"] = self.first + shift * min(k, 1)
            values |= {f"{name}_outer": self.n * self.inner, f"{name}_n": self.inner, f"{name}_inner": 1}
        return values


def edge_sizes(config: Config, tile: int) -> list[int]:
    """The numbers of elements at which some part of the kernel begins, ends or is empty."""
    wave = config.wave if is_read("wave", config) else 1
    team = team_of(config)
    row = team * config.vector
    around = (config.vector, min(wave, team), team, row, tile, 2 * tile)
    sizes = {1, 2, 3, 7, 31, 33, tile + row + 1, 2 * tile + team + 1, 3 * tile - 1}
    sizes |= {n + d for n in around for d in (-1, 0, 1)}
    return sorted(n for n in sizes if 1 <= n <= WINDOW // 2)


def shapes(problem: Problem, config: Config, tile: int) -> list[tuple[int, int, int]]:
    """(outer, n, inner) at the edges: of a tile, and of the results that a block takes at once."""
    sizes = edge_sizes(config, tile)
    if problem.layout == "flat":
        return [(1, n, 1) for n in sizes]
    teams = config.block // team_of(config)
    counts = sorted({1, 2, teams - 1, teams, teams + 1, 2 * teams + 1} - {0})
    rows = []
    for k, n in enumerate(sizes):
        count = counts[k % len(counts)]
        shape = (count, n, 1)
        if problem.layout == "columns":
            shape = ((1, n, count), (count, n, 1), (2, n, count), (3, n, 7))[k % 4]
        if shape[0] * n * shape[2] <= WINDOW // 2:
            rows.append(shape)
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
            yield from ((index, Window(k % offsets, *shape)) for k, shape in enumerate(every))
            if dataset.name == "exact" and problem.layout != "columns":
                n = min(tile + 5, WINDOW // 2)
                yield from ((index, Window(first, 1, n, 1)) for first in range(offsets))
            continue
        for k, (outer, n, inner) in enumerate(edges):
            row = outer // 2 if k % 2 else outer - 1
            place = (0, n - 1, n // 2)[k % 3]
            at = (row * n + place) * inner + (inner - 1) * (k % 2)
            yield index, Window(dataset.plant - at, outer, n, inner)
        if problem.layout == "flat":
            yield from ((index, window) for window in _every_place(dataset.plant, config, tile, edges[-1][1]))


def _every_place(plant: int, config: Config, tile: int, longest: int) -> Iterator[Window]:
    """The planted element at every place that some thread, wave, vector or block begins or ends."""
    wave = config.wave if is_read("wave", config) else 1
    block, vector = config.block, config.vector
    places = {0, 1, vector, wave - 1, wave, block - 1, block, block * vector, tile - 1, tile}
    places |= {longest - 1 - back for back in (0, 1, block)}
    yield from (Window(plant - place, 1, longest, 1) for place in sorted(places) if 0 <= place < longest)
