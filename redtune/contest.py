"""Kernels, libraries and kernels that only read, timed side by side on slices of one pool: the worker's half.

Nothing is judged here. What everybody gave on the same input is compared, so that no time is shown of something else.

Cold means: what a call reads is not in the last-level cache. Large inputs rotate through more than the cache holds. Of
small ones that would take too many; so before every round the cache is filled with other data, outside the timed
region, and in that round everybody reads inputs of their own, each of them once.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from redtune.agreement import agreement, compared_places
from redtune.backends import Call, Replay, Rival, Session
from redtune.clock import FEW, LONG_S, ROTATION, SHORTEST_S, interleave, paced
from redtune.dialect import Dialect
from redtune.dtypes import dtype_named
from redtune.errors import in_a_line
from redtune.judge import Bench, share_scratch
from redtune.operators import result_of
from redtune.plan import read_bytes
from redtune.pool import Pool, Slices, make_pool, padded
from redtune.types import Device, Kernel, Problem, as_json, from_json
from redtune.windows import Window

MOST = 256  # calls in a sample
ROTATING = 64  # inputs at most that rotate past the cache
AREA = {"gpu": 1 << 30, "cpu": 1 << 27}  # bytes of random data at least
SLOW = 20.0  # who is so many times slower than the fastest has few samples
PATIENCE_S = 0.02  # what took so long is not run again to see what it takes when it is warm
ENOUGH_S = 5.0  # of rounds that take so long together there are fewer
READERS = 2
POOLS = 0.25  # of the device's memory at most

Loaded = tuple[Kernel, Any]


@dataclass(frozen=True, slots=True)
class Entrant:
    """One who takes part."""

    group: str  # "kernel", "library" or "reader"
    name: str
    types: str
    replay: Callable[[Sequence[int]], Replay]
    once_s: float = 0.0


@dataclass
class Grounds:
    """What stays from one contest to the next: pools of random data by dtype and seed, and what fills the cache."""

    pools: dict[tuple[str, int], Pool] = field(default_factory=dict)
    flush: Replay | None = None

    def pool(self, session: Session, device: Device, dtype: str, size: int, seed: int) -> Pool:
        """A pool of at least so many bytes. Others make room for it."""
        found = self.pools.pop((dtype, seed), None)
        if found is None or found.size < size:
            found = None  # its memory is free before more is asked for
            while device.memory_bytes and self.pools and self.held() + size > POOLS * device.memory_bytes:
                self.pools.pop(next(iter(self.pools)))
            found = make_pool(session, dtype, size, seed, is_shared=device.kind == "cpu")
        self.pools[dtype, seed] = found  # the last used is the last to go
        return found

    def held(self) -> int:
        """Bytes in pools."""
        return sum(pool.size for pool in self.pools.values())


@dataclass
class Contest:
    """One problem on one device."""

    session: Session
    device: Device
    dialect: Dialect
    problem: Problem
    data: Slices
    is_cold: bool

    @property
    def rotating(self) -> int:
        """How many inputs are more than the cache holds."""
        return (
            max(1, -(-ROTATION[self.device.kind] * self.device.cache_bytes // padded(self.data.size)))
            if self.is_cold
            else 1
        )

    @property
    def is_flushed(self) -> bool:
        """Whether the cache is filled before every round."""
        return self.rotating > ROTATING

    def kernels(self, loaded: Sequence[Loaded]) -> list[tuple[Entrant, Callable[[], np.ndarray[Any, Any]]]]:
        """The kernels, and what gives their results."""
        whole = Window(0, self.problem.outer, self.problem.n, self.problem.inner)
        result = dtype_named(result_of(self.problem))
        pieces = compared_places(self.problem.results)
        benches = []
        for kernel, program in loaded:
            bench = Bench(self.session, self.dialect, self.device, self.problem, kernel.config, program)
            bench.prepare([whole], result.bytes)
            benches.append(bench)
        share_scratch(benches)
        rows: list[tuple[Entrant, Callable[[], np.ndarray[Any, Any]]]] = []
        for k, bench in enumerate(benches):

            def call(turn: int, bench: Bench = bench) -> Any:
                return bench.bind(self.data[turn], whole, whole.size)

            def results(bench: Bench = bench, call: Any = call) -> np.ndarray[Any, Any]:
                self.session.write(bench.out, bench._poison[: whole.results * result.bytes])
                self.session.run(call(0))
                return result.decode(self._read(bench.out, result.storage(), pieces))

            def replay(turns: Sequence[int], call: Any = call) -> Replay:
                return self.session.replay([call(turn) for turn in turns])

            types = f"in {self.problem.accumulate}, to {result.name}"
            rows.append((Entrant("kernel", f"kernel {k}", types, replay), results))
        return rows

    def _read(self, out: Any, storage: np.dtype[Any], pieces: Sequence[tuple[int, int]]) -> np.ndarray[Any, Any]:
        """Pieces of the results one after the other."""
        rows = []
        for first, count in pieces:
            # A part of a buffer may not begin anywhere.
            skipped = first * storage.itemsize % 512 // storage.itemsize
            begin, size = first - skipped, (count + skipped) * storage.itemsize
            part = self.session.part(out, begin * storage.itemsize, size)
            rows.append(self.session.download(part, np.empty(count + skipped, storage))[skipped:])
        return np.concatenate(rows)

    def readers(self, loaded: Sequence[Loaded]) -> list[Entrant]:
        """Kernels that only read: all of a few, or the fastest of many."""
        entrants = []
        for kernel, program in loaded:
            scratch = self.session.upload(np.zeros(kernel.partials_bytes + 64, np.uint8))

            def replay(
                turns: Sequence[int], kernel: Kernel = kernel, program: Any = program, scratch: Any = scratch
            ) -> Replay:
                data = [self.data[turn] for turn in turns]
                return self.session.replay([reading_call(self.session, kernel, program, scratch, one) for one in data])

            entrants.append(Entrant("reader", kernel.digest, "", replay))
        if len(entrants) <= READERS:
            return entrants
        turns = range(min(self.rotating, len(self.data), ROTATING))
        timed = [(statistics.median(paced(e.replay, turns, _once(e), MOST)() for _ in range(FEW)), e) for e in entrants]
        timed.sort(key=lambda pair: pair[0])
        return [entrant for _, entrant in timed[:READERS]]

    def turns(self, entrants: Sequence[Entrant]) -> list[Sequence[int]]:
        """The inputs that each of the entrants reads in a sample."""
        if not self.is_flushed:
            return [range(min(self.rotating, len(self.data)))] * len(entrants)
        own = max(1, min(MOST, len(self.data) // len(entrants)))
        rows: list[Sequence[int]] = []
        for k, entrant in enumerate(entrants):
            wanted = int(SHORTEST_S / max(entrant.once_s, 1e-7)) + 1 if entrant.once_s < LONG_S else own
            rows.append(range(k * own, k * own + min(own, wanted)))
        return rows


def reading_call(session: Session, kernel: Kernel, program: Any, scratch: Any, data: Any) -> Call:
    """The main launch alone: the kernel reads, and its blocks never meet."""
    values = {"data_first": 0, "n": kernel.problem.n, "partials": scratch, "out": scratch, "data": data}
    return session.bind(program, [launch for launch in kernel.launches if "data" in launch.args], values)


def _once(entrant: Entrant) -> float:
    """What one call takes, after another one."""
    replay = entrant.replay([0])
    first = replay.run()
    return first if first > PATIENCE_S else replay.run()


def pool_bytes(problem: Problem, device: Device, is_cold: bool) -> int:
    """How much random data a contest takes."""
    stride = padded(read_bytes(problem))
    rotating = -(-ROTATION[device.kind] * device.cache_bytes // stride) if is_cold else 1
    return max(AREA[device.kind], stride * (rotating if rotating <= ROTATING else 1))


def contend(
    session: Session,
    device: Device,
    dialect: Dialect,
    grounds: Grounds,
    job: dict[str, Any],
    load: Callable[[dict[str, Any]], Loaded],
) -> dict[str, Any]:
    """One contest as the parent asks for it."""
    problem, is_cold = from_json(Problem, job["problem"]), job["is_cold"]
    pool = grounds.pool(session, device, problem.dtype, pool_bytes(problem, device, is_cold), job["seed"])
    data = Slices(pool, read_bytes(problem))
    contest = Contest(session, device, dialect, problem, data, is_cold)
    if contest.is_flushed and grounds.flush is None:
        grounds.flush = session.replay([_reads_other_data(session, *load(item)) for item in job["flush"]])
    kernels, readers = ([load(item) for item in job[name]] for name in ("kernels", "readers"))
    library = job["library"] if job["library_absent"] else Path(job["library"])
    rivals = session.rivals(problem, data, library) if job["with_libraries"] else ()
    return hold(contest, kernels, readers, rivals, job["rounds"], grounds.flush.run if grounds.flush else lambda: 0.0)


def _reads_other_data(session: Session, kernel: Kernel, program: Any) -> Call:
    """A kernel that only reads, on a buffer of its own."""
    scratch = session.upload(np.zeros(kernel.partials_bytes + 64, np.uint8))
    return reading_call(session, kernel, program, scratch, session.upload(np.zeros(kernel.problem.n, np.int32)))


def hold(
    contest: Contest,
    kernels: Sequence[Loaded],
    readers: Sequence[Loaded],
    rivals: Iterable[Rival | tuple[str, str]],
    rounds: int,
    flush: Callable[[], Any],
) -> dict[str, Any]:
    """Compares what everybody gives, and times them in turns."""
    own = contest.kernels(kernels)
    reading = contest.readers(readers)  # before the libraries: what one of them frees is nobody's
    given = [(entrant.name, result_of(contest.problem), results()) for entrant, results in own]
    entrants = [_timed(entrant) for entrant, _ in own]
    absent: list[tuple[str, str]] = []
    pieces = compared_places(contest.problem.results)
    for rival in rivals:
        if isinstance(rival, tuple):
            absent.append(rival)
            continue
        try:
            entrant = _timed(Entrant("library", rival.name, rival.types, rival.replay))
            given.append((rival.name, *rival.results(pieces)))
            entrants.append(entrant)
        except Exception as error:  # the border: whatever a library raises says why it is absent
            absent.append((rival.name, in_a_line(error)))
    fastest = min(entrant.once_s for entrant in entrants)
    entrants += [_timed(entrant) for entrant in reading]
    samplers: dict[int, Callable[[], float]] = {}
    for k, (entrant, turns) in enumerate(zip(entrants, contest.turns(entrants), strict=True)):
        try:
            samplers[k] = paced(entrant.replay, turns, entrant.once_s, len(turns) if contest.is_flushed else MOST)
        except Exception as error:  # the border, as above
            if entrant.group != "library":
                raise
            absent.append((entrant.name, in_a_line(error)))
    taking = [entrants[k] for k in samplers]
    few = [entrant.once_s > SLOW * fastest for entrant in taking]
    all_s = sum(max(SHORTEST_S, entrant.once_s) for entrant in taking)
    rounds = max(FEW, min(rounds, int(ENOUGH_S / all_s)))
    rows = _in_rounds(list(samplers.values()), few, rounds, flush if contest.is_flushed else lambda: None)
    timed = [
        {"group": e.group, "name": e.name, "types": e.types, "samples": row}
        for e, row in zip(taking, rows, strict=True)
    ]
    there = {entrant.name for entrant in taking}
    answers = agreement(contest.problem, [one for one in given if one[0] in there])
    return {"timed": timed, "absent": absent, "answers": [as_json(answer) for answer in answers]}


def _in_rounds(
    samplers: Sequence[Callable[[], float]], few: Sequence[bool], rounds: int, flush: Callable[[], Any]
) -> list[list[float]]:
    """Samples in turns; of those marked only in the first rounds."""
    rows: list[list[float]] = [[] for _ in samplers]
    for turn in range(rounds):
        there = [k for k in range(len(samplers)) if turn < FEW or not few[k]]
        flush()
        for k, (sample,) in zip(there, interleave([samplers[k] for k in there], 1, turn), strict=True):
            rows[k].append(sample)
    return rows


def _timed(entrant: Entrant) -> Entrant:
    """The entrant with what one of its calls takes."""
    return Entrant(entrant.group, entrant.name, entrant.types, entrant.replay, _once(entrant))
