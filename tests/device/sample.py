"""A sample of the valid space that leaves out no strategy: structural choices in turn, the other knobs at random."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from redtune.api import make_problem
from redtune.config import Config, choices, is_read
from redtune.dialect import Dialect
from redtune.dtypes import DTYPES
from redtune.errors import UsageError
from redtune.operators import OPERATORS
from redtune.space import make_space
from redtune.types import Device, Problem

STRUCTURE = ("exchange", "tree", "wave", "combine", "walk")
N = 150_001  # odd, and more than a tile of most configs
SIZES = (97, N, 1_000_003)


def strata() -> list[dict[str, object]]:
    """Every combination of structural choices in which each of them has an effect."""
    rows = []
    for values in itertools.product(*(choices(name) for name in STRUCTURE)):
        chosen = dict(zip(STRUCTURE, values, strict=True))
        config = Config(**chosen)
        rows.append({name: value for name, value in chosen.items() if is_read(name, config)})
    return [row for k, row in enumerate(rows) if row not in rows[:k]]


def sampled(dialect: Dialect, device: Device, count: int, seed: int) -> Iterator[tuple[Problem, Config]]:
    """`count` problems with a valid config each, over operators x dtypes x strata."""
    rng = random.Random(seed)
    pairs = list(itertools.product(OPERATORS, DTYPES))
    rows = strata()
    rng.shuffle(pairs)
    rng.shuffle(rows)
    found, k = 0, 0
    # The two cycles have no common length, so every pair meets every stratum in the end.
    while found < count and k < 40 * count:
        op, dtype = pairs[k % len(pairs)]
        fixed = rows[(k + k // len(pairs)) % len(rows)]
        problem = make_problem(op, dtype, SIZES[k % len(pairs) % len(SIZES)])
        k += 1
        try:
            config = make_space(problem, dialect, device, fixed).draw(rng)
        except UsageError:
            continue
        if config is not None:
            found += 1
            yield problem, config
