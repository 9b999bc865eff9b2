"""numpy's reductions, to be measured beside kernels that run on the same CPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redtune.backends import Rival
from redtune.errors import BackendMissing
from redtune.operators import operator_of
from redtune.spellings import in_types, numpy_call, running_type, shape_of
from redtune.types import Problem

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class HostReplay:
    """Calls on the host, timed by its clock."""

    work: Callable[[int], Any]
    turns: Sequence[int]

    def run(self) -> float:
        import numpy as np

        with np.errstate(all="ignore"):
            start = time.perf_counter()
            for k in self.turns:
                self.work(k)
            return time.perf_counter() - start


def numpy_rival(problem: Problem, host: Callable[[int], np.ndarray[Any, Any]]) -> Rival:
    """numpy on the inputs that `host` gives. Raises BackendMissing where it has no such reduction."""
    import numpy as np

    if problem.dtype == "bfloat16":
        raise BackendMissing("numpy has no bfloat16")
    library, shape = numpy_call(np, problem), (operator_of(problem).inputs, *shape_of(problem))

    def work(k: int) -> Any:
        return library(*host(k).view(problem.dtype).reshape(shape))

    def results(pieces: Sequence[tuple[int, int]]) -> tuple[str, np.ndarray[Any, Any]]:
        with np.errstate(all="ignore"):
            found = np.asarray(work(0)).reshape(-1)
        return found.dtype.name, np.concatenate([found[first : first + count] for first, count in pieces])

    with np.errstate(all="ignore"):
        kind = np.asarray(library(*np.ones((operator_of(problem).inputs, *(1,) * len(shape[1:])), problem.dtype))).dtype
    return Rival(
        name=f"numpy {np.__version__}",
        types=in_types(running_type("numpy", problem), kind.name),
        results=results,
        replay=lambda turns: HostReplay(work, turns),
    )
