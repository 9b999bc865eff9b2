"""How fast a device could reduce: its read and arithmetic ceilings, and where operators and dtypes stand below them.

All ceilings are measured in the same minute by kernels that redtune writes. An operator stands at so many operations
(`redtune.operations`) for each byte it reads; the slower of reading and computing is what it can attain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from redtune import shipped, store
from redtune.arithmetic import Arithmetic, Step, arithmetic_kernels, steps_in
from redtune.clock import is_time
from redtune.dtypes import DTYPES, dtype_named
from redtune.errors import DtypeError, RedtuneError, UsageError
from redtune.lab import Compiled, Lab
from redtune.operations import Work, element_bytes, work_of
from redtune.operators import OPERATORS, operator_named
from redtune.outcome import Progress, gigabytes_per_second
from redtune.plan import read_bytes
from redtune.problems import make_problem
from redtune.types import Best, Device, Problem
from redtune.wanted import DEFAULT_N

if TYPE_CHECKING:
    from redtune.computing import Computed

SMALLEST = ("sum", "float32")  # what is reduced where there is next to nothing to read
LISTED = ("float32", "int32")  # where no dtype is asked for: the first that an operator takes


@dataclass(frozen=True, slots=True)
class Roof:
    """An arithmetic ceiling: an operation in a dtype, in 10^9 operations a second, and from how many operations a byte
    it lies below the read ceiling; or why it is absent."""

    name: str
    dtype: str
    gops: float | None = None
    ridge: float | None = None
    absent: str = ""


@dataclass(frozen=True, slots=True)
class Stand:
    """Where an operator and dtype stands. `operations` and `bytes` are of an element, `intensity` their quotient,
    `ceiling_gops` the rate of its own mix of operations, `attainable_gbps` the most that can be read while computing.
    `best` is the stored winner for the largest size, and `whose` says where it comes from."""

    problem: Problem
    operations: int
    bytes: int
    intensity: float
    ceiling_gops: float | None
    attainable_gbps: float | None
    bound: str  # "memory" or "arithmetic", or why it is not known
    best: Best | None = None
    whose: str = ""

    @property
    def fraction(self) -> float | None:
        """What the winner reaches of what it could attain when it was measured: a read ceiling of its own rounds takes
        the place of today's, so that what else the machine had to do meets both."""
        if self.best is None or self.attainable_gbps is None or self.ceiling_gops is None:
            return None
        own = self.best.ceiling_gbps
        if own is None:
            return self.best.gbps / self.attainable_gbps
        computing = self.ceiling_gops / self.intensity if self.intensity else float("inf")
        return self.best.gbps / min(own, computing)


@dataclass(frozen=True, slots=True)
class Launching:
    """What it costs to launch, in microseconds: a kernel that does nothing, and the whole of the smallest reduction;
    `n_equal` says for each dtype how many elements are read in the time of the latter."""

    empty_us: float
    smallest_us: float
    smallest: Problem
    n_equal: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Roofline:
    """What was measured on a device, and what follows. The read and copy ceilings are of `bytes`."""

    device: Device
    bytes: int
    read_gbps: float
    copy_gbps: float
    roofs: tuple[Roof, ...]
    stands: tuple[Stand, ...]
    launching: Launching

    def roof(self, name: str, dtype: str) -> Roof | None:
        """The ceiling of an operation in a dtype, where it was measured."""
        return next((roof for roof in self.roofs if (roof.name, roof.dtype) == (name, dtype) and roof.gops), None)


def measure_roofline(
    device: Device,
    ops: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Roofline:
    """Measures the ceilings and what a launch costs. Raises UsageError for a name that is unknown, or where no operator
    asked for takes one of the dtypes."""
    wanted = asked_problems(ops, dtypes)
    size = 4 * DEFAULT_N[device.kind]
    with Lab(device, make_problem("max", "int32", size // 4)) as lab:
        steps = 4
        progress(Progress("measuring the read ceiling", 0, steps))
        read = gigabytes_per_second(size, lab.ceiling(size).median_us)
        progress(Progress("measuring the copy ceiling", 1, steps))
        copy = gigabytes_per_second(2 * size, lab.copy(size).median_us)
        progress(Progress("measuring the arithmetic ceilings", 2, steps))
        roofs, empty_us = _roofs(lab, read)
        progress(Progress("measuring what a launch costs", 3, steps))
        launching = _launching(lab, empty_us, read)
        progress(Progress("done", steps, steps))
    stands = _stands(device, wanted, read, roofs, is_open=not dtypes, ops=ops)
    return Roofline(device, size, read, copy, roofs, tuple(stands), launching)


def asked_problems(ops: Sequence[str], dtypes: Sequence[str]) -> list[Problem]:
    """One problem for each operator and dtype that belong together; where no dtype is named, the first of LISTED that
    the operator takes."""
    kinds = [dtype_named(name).name for name in dtypes]
    found: list[Problem] = []
    refusal: DtypeError | None = None
    for op in [operator_named(name).name for name in ops] or list(OPERATORS):
        taken = []
        for dtype in kinds or LISTED:
            try:
                taken.append(make_problem(op, dtype, 1))
            except DtypeError as error:
                refusal = error
        found += taken if kinds else taken[:1]
    if not found and refusal:
        raise refusal
    return found


# --- measuring --------------------------------------------------------------------------------------------------------


def _roofs(lab: Lab, read_gbps: float) -> tuple[tuple[Roof, ...], float]:
    """Every arithmetic ceiling, and what an empty launch costs in microseconds."""
    made = list(arithmetic_kernels(lab.device, lab.dialect))
    futures = [lab.compile_ahead(one.kernel) if one.kernel else None for one in made]
    compiled = [future.result() if future else None for future in futures]
    ready = [one for one in compiled if one is not None and one.binary is not None]
    if not ready:
        raise RedtuneError(f"no kernel that only computes could be compiled: {_reason(made[0], compiled[0])}")
    found, empty = lab.arithmetic(ready)
    computed = dict(zip((one.kernel.digest for one in ready), found, strict=True))
    roofs = tuple(
        _roof(one, text, computed.get(text.kernel.digest) if text else None, read_gbps)
        for one, text in zip(made, compiled, strict=True)
    )
    return roofs, empty.median_us


def _roof(one: Arithmetic, compiled: Compiled | None, found: Computed | None, read_gbps: float) -> Roof:
    if found is None or one.kernel is None:
        return Roof(one.step.name, one.dtype, absent=_reason(one, compiled))
    gops = rate_of(one.step, steps_in(one.kernel), found)
    return Roof(one.step.name, one.dtype, gops, gops / read_gbps)


def rate_of(step: Step, steps: int, found: Computed) -> float:
    """10^9 operations a second of launches in which one round is so many steps."""
    return step.operations * steps * found.rounds / found.timing.median_us * 1e-3


def _reason(one: Arithmetic, compiled: Compiled | None) -> str:
    return one.absent or (compiled.note if compiled else "it was not compiled")


def _launching(lab: Lab, empty_us: float, read_gbps: float) -> Launching:
    """The whole of the smallest reduction, with the config that would run it."""
    from redtune.render import render

    problem = make_problem(*SMALLEST, 1)
    config = store.lookup(problem, lab.dialect, lab.device).config
    compiled = lab.compile(render(problem, config, lab.dialect, lab.device))
    if compiled.binary is None:
        raise RedtuneError(f"the smallest reduction does not compile: {compiled.note}")
    micros = lab.smallest(compiled).median_us
    if not is_time(micros):
        raise RedtuneError(f"the clock of {lab.device.name} shows no time for the smallest reduction")
    equal = {name: round(micros * 1e3 * read_gbps / dtype.bytes) for name, dtype in DTYPES.items()}
    return Launching(empty_us, micros, problem, equal)


# --- what follows -----------------------------------------------------------------------------------------------------


def _stands(
    device: Device,
    wanted: Sequence[Problem],
    read_gbps: float,
    roofs: Sequence[Roof],
    *,
    is_open: bool,
    ops: Sequence[str],
) -> Iterator[Stand]:
    """The problems asked for; where no dtype was, those with a winner too."""
    winners = winners_on(device)
    rows = {(problem.op, problem.dtype): problem for problem in wanted}
    if is_open:
        rows |= {
            key: best.problem for key, (_, best) in winners.items() if key not in rows and (not ops or key[0] in ops)
        }
    order = {name: k for k, name in enumerate((*OPERATORS, *DTYPES))}
    for key in sorted(rows, key=lambda key: (order.get(key[0], len(order)), order[key[1]])):
        whose, best = winners.get(key, ("", None))
        yield replace(stand_of(rows[key], read_gbps, roofs), best=best, whose=whose)


def stand_of(problem: Problem, read_gbps: float, roofs: Sequence[Roof]) -> Stand:
    """Where a problem stands below measured ceilings."""
    work, read = work_of(problem), element_bytes(problem)
    operations = sum(work.values())
    rates = {(roof.name, roof.dtype): roof.gops for roof in roofs}
    ceiling = _mixed(work, rates)
    stand = Stand(problem, operations, read, operations / read, ceiling, None, "")
    if ceiling is None:
        missing = next(f"{kind} of {dtype}" for kind, dtype in work if not rates.get((kind, dtype)))
        return replace(stand, bound=f"no {missing}")
    computing = ceiling / stand.intensity if operations else float("inf")
    return replace(
        stand,
        attainable_gbps=min(read_gbps, computing),
        bound="memory" if read_gbps <= computing else "arithmetic",
    )


def _mixed(work: Work, rates: Mapping[tuple[str, str], float | None]) -> float | None:
    """Operations over the time that they take one after the other, each at the rate of its kind; None where one has
    none."""
    seconds = 0.0
    for kind, count in work.items():
        rate = rates.get(kind)
        if not rate:
            return None
        seconds += count / rate
    return sum(work.values()) / seconds if seconds else float("inf")


def winners_on(device: Device) -> dict[tuple[str, str], tuple[str, Best]]:
    """The winner for the largest size of each operator and dtype that was tuned on such a device with cold inputs: the
    user's before a shipped one of the same size."""
    own = store.entries(store.cache_path() / "configs")
    rows = [("here", best) for best in own]
    rows += [("shipped", best) for best in shipped.entries(store.shipped_path())]
    found: dict[tuple[str, str], tuple[str, Best]] = {}
    for whose, best in rows:
        there = best.device
        is_here = (there.backend, there.arch, there.name) == (device.backend, device.arch, device.name)
        if not is_here or best.temperature != "cold" or not is_plain(best.problem):
            continue
        key = (best.problem.op, best.problem.dtype)
        if key not in found or _size(best) > _size(found[key][1]):
            found[key] = (whose, best)
    return found


def is_plain(problem: Problem) -> bool:
    """Whether an operator is reduced with as it comes: the running type its own, no mask, no initial value."""
    if problem.custom or problem.op not in OPERATORS:
        return False
    try:
        own = make_problem(problem.op, problem.dtype, problem.n).accumulate
    except UsageError:
        return False
    marks = (problem.is_compensated, problem.is_masked, problem.is_seeded, problem.is_ragged, problem.result)
    return problem.accumulate == own and not any(marks)


def _size(best: Best) -> tuple[int, bool]:
    return read_bytes(best.problem), best.problem.layout == "flat"
