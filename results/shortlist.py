"""The problems that configs are shipped for, and the configs that are tried on each: data, to be refined by what
`python results/ship.py --log` shows.

A shape gives some knobs; `load` is a load's width in bytes, whatever the dtype. Those that are not legal for a problem
are left out, so that one list serves every operator and dtype. The default config and the first of those that a search
begins with (redtune.defaults) are tried in any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from redtune.config import WHOLE_BLOCK, Config, choices
from redtune.defaults import fitted, starting_points
from redtune.dialect import Dialect
from redtune.dtypes import DTYPES, dtype_named
from redtune.operators import OPERATORS
from redtune.problems import make_problem
from redtune.refusals import MAX_CHAIN, MAX_LOAD_BYTES, is_legal
from redtune.types import Device, Problem

Shape = dict[str, Any]
STARTS = 2  # of what a search begins with; what follows there is below in the sizes that it suits, or fast nowhere

# --- the grid ---------------------------------------------------------------------------------------------------------

# The most wanted first; what is left when the time is up is served by what is like it.
FIRST_OPS = ("sum", "max", "argmax", "mean", "logsumexp", "var", "norm_l2")
OPS = (*FIRST_OPS, *(op for op in OPERATORS if op not in FIRST_OPS))
FIRST_DTYPES = ("float32", "float16", "int8", "int32", "float64", "bfloat16")
DTYPE_ORDER = (*FIRST_DTYPES, *(name for name in DTYPES if name not in FIRST_DTYPES))

FLAT = tuple(1 << power for power in (10, 12, 14, 16, 18, 20, 22, 24, 26))  # elements
FLAT_BYTES = 1 << 30  # and the elements that are so many bytes
EACH = (16, 256, 4096, 65536, 1 << 21)  # elements of a result, in
MANY_BYTES = 1 << 28  # so many bytes
SMALL = ((10_000, 512), (512, 512))  # results, elements of each


def grid(op: str, dtype: str) -> Iterator[Problem]:
    """The problems of an operator and a dtype."""
    width = dtype_named(dtype).bytes * OPERATORS[op].inputs
    for n in dict.fromkeys((*FLAT, FLAT_BYTES // width)):
        yield make_problem(op, dtype, n)
    pairs = [(max(2, MANY_BYTES // width // n), n) for n in EACH]
    for results, n in (*pairs, *SMALL):
        yield make_problem(op, dtype, n, outer=results)
        yield make_problem(op, dtype, n, inner=results)


def importance(problem: Problem) -> tuple[int, ...]:
    """What is measured first: the first operators, float32, sizes that are worth a launch."""
    size = problem.n * problem.results
    op, dtype = OPS.index(problem.op), DTYPE_ORDER.index(problem.dtype)
    tier = (op >= len(FIRST_OPS)) + (dtype > 0) + (dtype >= len(FIRST_DTYPES))
    small = size < 1 << 20 or problem.results in [results for results, _ in SMALL]
    return tier, small, dtype, op, problem.layout != "flat", -size


# --- shapes -----------------------------------------------------------------------------------------------------------


def crossed(**values: Iterable[Any]) -> list[Shape]:
    """Every combination of some values."""
    rows: list[Shape] = [{}]
    for name, several in values.items():
        rows = [row | {name: value} for row in rows for value in several]
    return rows


# (bytes at most, shapes) of flat problems: one block, as many as there are tiles, then grids that stride.
_STREAMED = {"load": 16, "hint": "streaming"}
_EARLY = {"combine": ("two_pass",), "second_launch": ("early",)}
_FLAT: list[tuple[int, list[Shape]]] = [
    (
        1 << 14,
        [
            *crossed(block=(256, 512, 1024), load=(16,), items=(1, 2, 4), walk=("tile",)),
            {"block": 1024, "load": 4, "items": 4, "walk": "tile"},
            *crossed(block=(512,), load=(8,), items=(2, 4), walk=("tile",)),
            *crossed(block=(256,), load=(4,), items=(4, 8, 16), walk=("tile",)),
            *crossed(block=(256, 512), load=(16,), items=(1, 2), walk=("tile",), exchange=("redux",)),
            *crossed(block=(128, 256), load=(16,), items=(4, 8), walk=("tile",)),
            {"block": 512, "load": 16, "items": 2, "combine": "two_pass"},
        ],
    ),
    (
        1 << 18,
        [
            *crossed(load=(16,), block=(128, 256), items=(2,), walk=("tile",), second_block=(64,), **_EARLY),
            *crossed(load=(16,), block=(256,), items=(4,), walk=("tile",), second_block=(64,), **_EARLY),
            *crossed(load=(16,), block=(256,), items=(2,), walk=("tile",), exchange=("redux",), **_EARLY),
            {"load": 16, "block": 128, "items": 2, "blocks_per_cu": 2, "combine": "tally"},
            {"load": 16, "block": 256, "items": 1, "blocks_per_cu": 2, "combine": "tally"},
            *crossed(load=(16,), block=(256,), items=(1, 2), walk=("tile",), combine=("collector",)),
            *crossed(
                load=(16,), block=(256,), items=(1, 2), walk=("tile",), combine=("collector",), exchange=("redux",)
            ),
            *crossed(load=(16,), block=(256,), items=(1,), walk=("tile",), combine=("cluster",), cluster=(4, 8)),
            {"load": 16, "block": 256, "items": 1, "walk": "tile", "combine": "atomic"},
        ],
    ),
    (
        1 << 23,
        [
            *crossed(load=(16,), block=(256,), items=(4,), walk=("tile",), second_block=(64, 256), **_EARLY),
            *crossed(load=(16,), block=(256,), items=(2,), walk=("tile",), second_block=(64,), **_EARLY),
            *crossed(load=(16,), block=(256,), items=(8,), walk=("tile",), **_EARLY),
            *crossed(load=(16,), block=(512,), items=(4,), walk=("tile",), **_EARLY),
            *crossed(load=(16,), block=(256,), items=(4,), walk=("tile",), exchange=("redux",), **_EARLY),
            *crossed(load=(16,), block=(128,), items=(2,), blocks_per_cu=(8,), combine=("tally",)),
            *crossed(load=(16,), block=(256,), items=(4,), blocks_per_cu=(8,), combine=("tally",)),
            *crossed(load=(16,), block=(512,), items=(4,), blocks_per_cu=(4,), combine=("tally",)),
            *crossed(load=(16,), block=(256,), items=(4,), walk=("tile",), combine=("collector", "atomic")),
            *crossed(load=(16,), block=(256,), items=(4,), walk=("tile",), combine=("collector",), exchange=("redux",)),
        ],
    ),
    (
        1 << 27,
        [
            *crossed(load=(16,), block=(512,), items=(4,), walk=("tile",), second_block=(256, 1024), **_EARLY),
            *crossed(load=(16,), block=(256,), items=(8,), walk=("tile",), second_block=(256, 1024), **_EARLY),
            *crossed(load=(16,), block=(512,), items=(4,), blocks_per_cu=(2,), **_EARLY),
            *crossed(load=(16,), block=(512,), items=(4,), blocks_per_cu=(16,), combine=("tally",)),
            *crossed(load=(16,), block=(256,), items=(8,), blocks_per_cu=(8,), combine=("tally",)),
            *crossed(load=(16,), block=(512,), items=(4,), walk=("tile",), combine=("collector", "atomic")),
            {"block": 256, "items": 8, "walk": "tile", "combine": "atomic"} | _STREAMED,
            {"block": 256, "items": 4, "blocks_per_cu": 8, "combine": "collector"} | _STREAMED,
        ],
    ),
    (
        1 << 62,
        [
            *crossed(block=(512,), load=(16,), items=(2, 4), blocks_per_cu=(2, 3, 4), hint=("none",)),
            *crossed(block=(256,), load=(16,), items=(4,), blocks_per_cu=(8, 32), hint=("streaming",)),
            {"block": 256, "items": 2, "blocks_per_cu": 6, "load": 16},
            {"block": 512, "items": 2, "blocks_per_cu": 3, "combine": "collector"} | _STREAMED,
            {"block": 768, "items": 6, "walk": "chunk", "blocks_per_cu": 16, "combine": "two_pass"} | _STREAMED,
            *crossed(load=(16,), block=(512,), items=(4,), blocks_per_cu=(2, 32), hint=("streaming",), **_EARLY),
            {"block": 256, "items": 3, "blocks_per_cu": 32, "combine": "two_pass"} | _STREAMED,
            {"block": 512, "items": 4, "blocks_per_cu": 32, "combine": "two_pass"} | _STREAMED,
            {"block": 256, "items": 8, "walk": "tile", "combine": "atomic"} | _STREAMED,
        ],
    ),
]

# (elements of a row at most, shapes): teams of a few threads for short rows, whole blocks and several of them for long.
_ROWS: list[tuple[int, list[Shape]]] = [
    (
        32,
        [
            *crossed(block=(128, 256), load=(16,), items=(1, 2, 4), team=(1, 2), blocks_per_cu=(16,)),
            *crossed(block=(256,), load=(16,), items=(1,), team=(4,), blocks_per_cu=(16, 32)),
            {"block": 256, "load": 4, "items": 4, "team": 4, "blocks_per_cu": 16},
        ],
    ),
    (
        768,
        [
            *crossed(block=(128, 256), load=(16,), items=(2, 4), team=(8, 16), blocks_per_cu=(16,)),
            *crossed(block=(256,), load=(16,), items=(2, 4), team=(32,), blocks_per_cu=(8,)),
        ],
    ),
    (
        1 << 13,
        [
            *crossed(block=(256,), load=(16,), items=(4, 8), team=(32, 64), blocks_per_cu=(8,)),
            *crossed(block=(256,), load=(16,), items=(2, 8), team=(8, 16), blocks_per_cu=(16,)),
            *crossed(block=(128, 256), load=(16,), items=(4, 8), team=(WHOLE_BLOCK,), blocks_per_cu=(16, 32)),
            *crossed(block=(256, 512), load=(16,), items=(4,), team=(128, WHOLE_BLOCK), blocks_per_cu=(4, 32)),
            *crossed(
                block=(256,),
                items=(4, 8),
                team=(64, WHOLE_BLOCK),
                blocks_per_cu=(8, 32),
                load=(16,),
                hint=("streaming",),
            ),
        ],
    ),
    (
        1 << 18,
        [
            *crossed(block=(256, 512), load=(16,), items=(4, 8), team=(WHOLE_BLOCK,), blocks_per_cu=(4,)),
            {"block": 1024, "load": 16, "items": 4, "blocks_per_cu": 4},
            {"block": 256, "load": 16, "items": 8, "team": 64, "blocks_per_cu": 8},
            *crossed(block=(256, 512), items=(4,), blocks_per_cu=(8, 32), load=(16,), hint=("streaming",)),
            *crossed(block=(256, 512), load=(16,), items=(4,), blocks_per_cu=(32,)),
        ],
    ),
    (
        1 << 62,
        [
            *crossed(block=(512,), load=(16,), items=(4, 8), split=(16, 32), blocks_per_cu=(4,)),
            *crossed(block=(256,), load=(16,), items=(8,), split=(16, 64), blocks_per_cu=(8,)),
            {"block": 512, "load": 16, "items": 4, "split": 16, "combine": "atomic", "blocks_per_cu": 4},
            {"block": 512, "load": 16, "items": 4, "split": 8, "combine": "cluster", "cluster": 8, "blocks_per_cu": 4},
        ],
    ),
]

# (elements of a column at most, shapes): threads next to each other take columns next to each other.
_COLUMNS: list[tuple[int, list[Shape]]] = [
    (
        64,
        [
            *crossed(block=(128, 256), load=(16,), items=(4, 8, 16), team=(1,), blocks_per_cu=(16,)),
            *crossed(block=(256,), load=(4, 8), items=(8,), team=(1, 2), blocks_per_cu=(16,)),
        ],
    ),
    (
        1024,
        [
            *crossed(block=(128, 256), load=(16,), items=(4, 8), team=(1,), blocks_per_cu=(8, 16)),
            *crossed(block=(256,), load=(4, 8, 16), items=(8,), team=(1, 4, 8), blocks_per_cu=(8,)),
        ],
    ),
    (
        1 << 13,
        [
            *crossed(block=(256,), load=(4, 8, 16), items=(4, 8), team=(4, 8), blocks_per_cu=(8,)),
            *crossed(block=(256, 512), load=(16,), items=(4, 8), team=(16,), blocks_per_cu=(4,)),
            *crossed(block=(256,), load=(8, 16), items=(8,), team=(8, 16), split=(2, 4, 8), combine=("two_pass",)),
            {"block": 256, "load": 16, "items": 8, "team": 8, "split": 4, "combine": "two_pass", "blocks_per_cu": 8},
        ],
    ),
    (
        1 << 18,
        [
            *crossed(block=(256,), load=(8, 16), items=(4, 8), team=(8, 16), split=(8, 16, 32), combine=("two_pass",)),
            *crossed(
                block=(256,),
                load=(16,),
                items=(8,),
                team=(8,),
                split=(8, 16),
                blocks_per_cu=(4, 8),
                combine=("two_pass",),
            ),
            *crossed(block=(256, 512), items=(8,), team=(8, 16), split=(8, 16), blocks_per_cu=(8,)),
            {"block": 256, "load": 16, "items": 8, "team": 16, "split": 64, "combine": "two_pass", "blocks_per_cu": 8},
        ],
    ),
    (
        1 << 62,
        [
            *crossed(block=(256, 512), load=(16,), items=(4, 8), team=(16, 64), split=(512,), combine=("two_pass",)),
            *crossed(block=(256,), load=(8, 16), items=(8,), team=(8, 32), split=(64, 128, 256), combine=("two_pass",)),
            *crossed(block=(256, 512), items=(8,), team=(8, 16), split=(64, 256), blocks_per_cu=(8,)),
        ],
    ),
]


def shapes_for(problem: Problem) -> list[Shape]:
    """The shapes of the layout and size class of a problem."""
    width = dtype_named(problem.dtype).bytes * OPERATORS[problem.op].inputs
    table = {"flat": _FLAT, "rows": _ROWS, "columns": _COLUMNS}[problem.layout]
    size = problem.n * width if problem.layout == "flat" else problem.n
    return next(shapes for most, shapes in table if size <= most)


def config_of(shape: Shape, problem: Problem, dialect: Dialect) -> Config:
    """A shape as a config for elements of the problem's dtype; as many chains as its sums need, four if there is work
    for so many, unless it says how many."""
    values = dict(shape)
    width = dtype_named(problem.dtype).bytes
    load = min(int(values.pop("load", width)), MAX_LOAD_BYTES)
    values["vector"] = max(1, load // width)
    held = int(values.get("items", Config().items)) * (1 if problem.layout == "columns" else values["vector"])
    needed = -(-held // MAX_CHAIN)
    several = [number for number in choices("accumulators") if int(number) >= max(needed, min(4, held))]
    values.setdefault("accumulators", several[0] if several else choices("accumulators")[-1])
    if values.get("team", WHOLE_BLOCK) not in (1, WHOLE_BLOCK) and problem.layout == "columns":
        values.setdefault("exchange", "lds")
    if problem.layout != "flat" and values.get("split", 1) == 1:
        values["combine"] = "two_pass"
    return fitted(replace(Config(), **values), problem, dialect)


def shortlist(problem: Problem, dialect: Dialect, device: Device) -> list[Config]:
    """The legal configs to try, each once: the default first."""
    own = [config_of(shape, problem, dialect) for shape in shapes_for(problem)] if device.kind == "gpu" else []
    tried = [c for c in own if is_legal(c, problem, dialect, device)]
    return list(dict.fromkeys([*starting_points(problem, dialect, device)[:STARTS], *tried]))


def carried_over(config: Config, there: Problem, here: Problem, dialect: Dialect) -> Config:
    """A config for another dtype: loads as wide in bytes, as far as there are such."""
    widths = dtype_named(there.dtype).bytes, dtype_named(here.dtype).bytes
    if widths[0] == widths[1]:
        return fitted(config, here, dialect)
    known = {field: getattr(config, field) for field in ("block", "items", "walk", "blocks_per_cu", "team", "split")}
    known |= {field: getattr(config, field) for field in ("exchange", "tree", "wave", "combine", "second_block")}
    known |= {
        "cluster": config.cluster,
        "second_launch": config.second_launch,
        "hint": config.hint,
        "load": config.vector * widths[0],
    }
    return config_of(known, here, dialect)
