"""The measurement of kernels that only compute, and of a reduction that has next to nothing to read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redtune.backends import Call, Session
from redtune.clock import is_time, measure
from redtune.types import Device, Kernel, Timing

if TYPE_CHECKING:
    from redtune.dialect import Dialect

FIRST_ROUNDS = 16
MORE = 8  # times as many rounds, until a launch shows
SHOWS_S = 2e-4
SAMPLE_S = 1e-3  # of a launch: what it costs to launch is nothing beside it
SERIES = 8  # of which the fastest counts: what else runs on a machine can only slow it down
MAX_ROUNDS = 1 << 30


@dataclass(frozen=True, slots=True)
class Computed:
    """Launches of `rounds` rounds."""

    rounds: int
    timing: Timing


def timed(session: Session, kernel: Kernel, program: Any) -> Computed:
    """Times a kernel of `redtune.arithmetic`."""
    session.run(_call(session, kernel, program, FIRST_ROUNDS))
    rounds = FIRST_ROUNDS
    while rounds < MAX_ROUNDS:
        once = session.replay([_call(session, kernel, program, rounds)]).run()
        if once >= SHOWS_S:
            rounds = max(FIRST_ROUNDS, int(rounds * SAMPLE_S / once)) if is_time(once) else rounds
            break
        rounds *= MORE
    return Computed(rounds, _fastest(session, _call(session, kernel, program, rounds)))


def empty(session: Session, kernel: Kernel, program: Any) -> Timing:
    """Times launches of one block of such a kernel that does nothing."""
    return _fastest(session, _call(session, kernel, program, 0, grid=1))


def _call(session: Session, kernel: Kernel, program: Any, rounds: int, grid: int = 0) -> Call:
    import numpy as np

    (launch,) = kernel.launches
    out = session.upload(np.zeros(launch.grid * launch.block, np.uint64))
    return session.bind(program, [replace(launch, grid=grid or launch.grid)], {"out": out, "rounds": rounds})


def smallest(session: Session, dialect: Dialect, device: Device, kernel: Kernel, program: Any) -> Timing:
    """Times the whole reduction of a small problem over and over, on one input that stays in the cache."""
    import numpy as np

    from redtune.dtypes import dtype_named
    from redtune.judge import Bench
    from redtune.operators import result_of
    from redtune.plan import read_bytes
    from redtune.windows import Window

    problem = kernel.problem
    whole = Window(0, problem.outer, problem.n, problem.inner)
    bench = Bench(session, dialect, device, problem, kernel.config, program)
    bench.prepare([whole], dtype_named(result_of(problem)).bytes)
    data = session.upload(np.zeros(read_bytes(problem), np.uint8))
    return _fastest(session, bench.bind(data, whole, whole.size))


def _fastest(session: Session, call: Call) -> Timing:
    """The fastest of several series."""
    return min((measure(session, [call]) for _ in range(SERIES)), key=lambda timing: timing.median_us)
