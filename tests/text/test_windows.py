"""Where the judge looks: windows at every edge that a config has, in every layout."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from redtune.config import Config, is_read, team_of
from redtune.data import WINDOW, Dataset, judged_datasets
from redtune.dtypes import DTYPES, Dtype
from redtune.operators import OPERATORS
from redtune.plan import results_at_once
from redtune.windows import GAPS, SHIFT, Window, apart, edge_sizes, shapes, windows
from tests.text.kernels import LAYOUTS, config, problem, random_cases, target

ALONE = {"combine": "two_pass"}
FLAT = [
    config(),
    config(wave=64, vector=4),
    config(block=32, vector=1, items=1, accumulators=1),
    config(block=96, vector=2, items=3),
    config(block=1024, vector=16, items=8),
    config(exchange="lds", block=512, vector=8),
    *(c for c, _ in random_cases(target("cuda"), 12, seed=5)),
]
SHARED = [
    config(**ALONE),
    config(**ALONE, team=1, block=32),
    config(**ALONE, team=8, block=64, items=1, accumulators=1, exchange="lds"),
    config(team=32, split=4),
    *(c for c, _ in random_cases(target("cuda"), 12, seed=6, layouts=("rows", "columns"))),
]
CASES = [("flat", c) for c in FLAT] + [(layout, c) for layout in ("rows", "columns") for c in SHARED]
EACH = pytest.mark.parametrize(
    ("layout", "c"), CASES, ids=[f"{layout}-{c.block}x{c.vector}x{c.items}x{c.team}" for layout, c in CASES]
)


def tile_of(c: Config) -> int:
    return team_of(c) * c.vector * c.items


@functools.cache
def some_sets() -> list[Dataset]:
    """The datasets' names and plants, which is what windows go by."""
    return judged_datasets(OPERATORS["max"], DTYPES["float32"], seed=0)


def windows_of(layout: str, c: Config, element_bytes: int = 4) -> list[tuple[int, Window]]:
    return list(windows(some_sets(), problem(**LAYOUTS[layout]), c, tile_of(c), element_bytes))


def planted() -> set[int]:
    return {index for index, dataset in enumerate(some_sets()) if dataset.plant is not None}


def exact() -> int:
    return next(index for index, dataset in enumerate(some_sets()) if dataset.name == "exact")


def place_of(index: int, window: Window) -> tuple[int, int, int]:
    """(o, k, i) of the planted element in a window."""
    plant = some_sets()[index].plant
    assert plant is not None
    outer, n, inner = window.steps
    o, rest = divmod(plant - window.first, outer)
    k, rest = divmod(rest, n)
    assert rest % inner == 0
    return o, k, rest // inner


@EACH
def test_windows_lie_inside_and_hold_the_plant(layout: str, c: Config) -> None:
    for index, window in windows_of(layout, c):
        assert min(window.outer, window.n, window.inner) >= 1
        assert window.first >= 0
        assert window.first + window.reach + SHIFT <= WINDOW, f"a second input begins {SHIFT} later than {window}"
        if index in planted():
            o, k, i = place_of(index, window)
            assert 0 <= o < window.outer
            assert 0 <= k < window.n
            assert 0 <= i < window.inner
        assert layout != "flat" or (window.outer, window.inner) == (1, 1)
        assert layout != "rows" or window.inner == 1


def edges(c: Config) -> set[int]:
    wave = {min(c.wave, team_of(c))} if is_read("wave", c) else set()
    return {c.vector, *wave, team_of(c), team_of(c) * c.vector, tile_of(c)}


@EACH
def test_every_edge_is_a_size(layout: str, c: Config) -> None:
    wanted = {n + d for n in edges(c) for d in (-1, 0, 1)} - {0}
    assert wanted | {1, 2} <= set(edge_sizes(c, tile_of(c)))
    assert max(edge_sizes(c, tile_of(c))) > tile_of(c) + team_of(c), "a whole tile and a ragged end, at least once"
    # Of results beside each other only as many as the array has room for.
    found = {window.n for index, window in windows_of(layout, c) if index == exact()}
    assert {n for n in wanted if layout == "flat" or n * (2 * c.block // team_of(c) + 1) * 3 <= WINDOW // 2} <= found


@pytest.mark.parametrize("c", FLAT, ids=lambda c: f"{c.block}x{c.vector}x{c.items}")
def test_the_plant_comes_to_every_edge(c: Config) -> None:
    """First and last of a thread, a wave, a block and a tile, and of the window itself."""
    for index in planted():
        found = {(place_of(index, window)[1], window.n) for i, window in windows_of("flat", c) if i == index}
        places = {place for place, _ in found}
        assert {0, 1, *edges(c), *(edge - 1 for edge in edges(c) - {c.vector, c.block * c.vector})} <= places
        assert any(place == n - 1 for place, n in found if n > tile_of(c))


@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("c", SHARED, ids=lambda c: f"{c.block}x{c.vector}x{c.items}x{c.team}")
def test_the_plant_comes_to_both_ends_of_a_result(c: Config, layout: str) -> None:
    for index in planted():
        mine = [window for i, window in windows_of(layout, c) if i == index]
        long = [window for window in mine if window.n > 2]
        ends = {(k == 0, k == window.n - 1) for window in long for _, k, _ in [place_of(index, window)]}
        assert ends >= {(True, False), (False, True), (False, False)}
        many = [window for window in mine if window.outer * window.inner > 1]
        last = [(window.outer - 1, window.inner - 1) == place_of(index, window)[::2] for window in many]
        assert any(last)
        assert not all(last)


@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("c", SHARED, ids=lambda c: f"{c.block}x{c.vector}x{c.items}x{c.team}")
def test_results_fill_a_block_and_do_not(c: Config, layout: str) -> None:
    teams = results_at_once(problem(**LAYOUTS[layout]), c)
    counts = {o * i for o, _, i in shapes(problem(**LAYOUTS[layout]), c, tile_of(c))}
    assert {n for n in (1, teams - 1, teams, teams + 1, 2 * teams + 1) if n} <= counts
    assert max(counts) > 2 * teams * c.blocks_per_cu, "more than a small grid takes in one turn"
    if layout == "columns":
        assert {(o > 1, i > 1) for o, _, i in shapes(problem(**LAYOUTS[layout]), c, tile_of(c))} >= {
            (True, True),
            (True, False),
            (False, True),
        }


@pytest.mark.parametrize("layout", ["flat", "rows"])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_every_alignment_is_tried(dtype: Dtype, layout: str) -> None:
    c = config(**ALONE, vector=16 // dtype.bytes, block=64)
    mine = [window for index, window in windows_of(layout, c, dtype.bytes) if index == exact()]
    assert {window.first % c.vector for window in mine if window.n > tile_of(c)} == set(range(c.vector))


@pytest.mark.parametrize(
    "window",
    [
        *(Window(5, 1, 7, 1), Window(0, 3, 4, 1), Window(2, 1, 4, 3), Window(1, 2, 3, 4)),
        *(apart(Window(2, 3, 4, 1), layout) for layout in GAPS),
        *(apart(Window(2, *shape), "columns") for shape in ((1, 5, 4), (2, 5, 3), (4, 2, 1))),
    ],
    ids=str,
)
def test_a_window_is_what_its_arguments_say(window: Window) -> None:
    values = np.arange(100)
    given = window.arguments(("data", "other"), 3)
    for name, shift in (("data", 0), ("other", 3)):
        first, outer, n, inner = (given[f"{name}_{step}"] for step in ("first", "outer", "n", "inner"))
        walked = [
            [values[first + o * outer + k * n + i * inner] for k in range(window.n)]
            for o in range(window.outer)
            for i in range(window.inner)
        ]
        np.testing.assert_array_equal(window.of(values, shift), walked)
    places = [o * given["out_outer"] + i * given["out_inner"] for o in range(window.outer) for i in range(window.inner)]
    assert places == window.places().tolist()
    assert len(set(places)) == window.results
    assert window.gaps.results or places == list(range(window.results))
    assert max(map(max, walked)) == values[window.first + window.reach - 1 + 3]
    assert (given["n"], given["outer"], given["inner"]) == (window.n, window.outer, window.inner)
