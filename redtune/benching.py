"""The benchmark matrix: every cell side by side, one device process for all of them.

Kernels and libraries compile ahead, in processes beside the one that measures; a cell that has to wait for them lets
others go before it. On a CPU nothing compiles while something is measured.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from redtune.ahead import BUILD_LIMIT_S
from redtune.cells import Cell
from redtune.errors import RedtuneError
from redtune.fits import FROM_N, Fit, fits_of
from redtune.lab import Lab
from redtune.outcome import Progress
from redtune.plan import read_bytes
from redtune.sidebyside import Comparison, Row, compare, entries
from redtune.types import Device, Kernel

ROUNDS = 11
AHEAD = 48  # cells whose kernels are written and compiled ahead
LOOK_S = 0.1  # how often one who waits looks at the time
PATIENT = 0.5  # of a time limit; from then on no cell waits for a library any more

OURS = "redtune"
INTERRUPTION = "an interruption"


@dataclass(frozen=True, slots=True)
class Measured:
    """A cell and what was measured in it."""

    cell: Cell
    found: Comparison


@dataclass(frozen=True, slots=True)
class Benched:
    """The matrix as far as it was measured. `failed` are cells with the reason why there is nothing of them, `cut` are
    those that were not reached, and `stopped` says why."""

    device: Device
    temperature: str
    seed: int
    measured: tuple[Measured, ...]
    failed: tuple[tuple[Cell, str], ...] = ()
    cut: tuple[Cell, ...] = ()
    stopped: str = ""
    seconds: float = 0.0

    def compared(self) -> list[Measured]:
        """The cells with a library, the worst first."""
        rows = [one for one in self.measured if one.found.speedup is not None]
        return sorted(rows, key=lambda one: one.found.speedup or (0.0,))

    def losing(self) -> list[Measured]:
        """The cells in which a library is faster, the worst first."""
        return [one for one in self.compared() if one.found.is_losing]

    def doubtful(self) -> list[Measured]:
        """The cells in which it is not plain that redtune's results are right."""
        return [one for one in self.measured if one.found.is_doubtful]

    def to_look_at(self) -> list[Measured]:
        """The losing cells, the worst first, and then the other doubtful ones."""
        return self.losing() + [one for one in self.doubtful() if not one.found.is_losing]

    def within_noise(self) -> list[Measured]:
        """The losing cells whose interval reaches 1."""
        return [one for one in self.losing() if one.found.speedup and one.found.speedup[2] >= 1]

    def geometric_mean(self) -> float:
        """Of the speed-ups over the best library; NaN where there is none."""
        ratios = [one.found.speedup[0] for one in self.compared() if one.found.speedup]
        return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan

    def odd(self) -> list[tuple[Measured, Row]]:
        """Every row whose results differ from those of the others."""
        return [(one, row) for one in self.measured for row in one.found.rows if row.odd]

    def fits(self) -> list[Fit]:
        """The lines through the large flat sizes: of redtune's best kernel, of each library, of the read ceiling."""
        times: dict[tuple[str, str, str], dict[int, float]] = defaultdict(dict)
        for one in self.measured:
            problem = one.cell.problem
            if problem.layout != "flat" or problem.n < FROM_N:
                continue
            named = {OURS: one.found.ours.timing.median_us, "read ceiling": one.found.ceiling.median_us}
            named |= {row.name: row.timing.median_us for row in one.found.rows if row.config is None}
            for name, micros in named.items():
                times[problem.op, problem.dtype, name][read_bytes(problem)] = micros
        return fits_of(times)

    def check(self) -> None:
        """Raises RedtuneError where nothing could be measured."""
        if self.failed and not self.measured:
            raise RedtuneError(f"no cell could be measured; {self.failed[0][0]}: {self.failed[0][1]}")

    def absent(self) -> dict[tuple[str, str], list[Cell]]:
        """The cells by what is absent in them and why."""
        found: dict[tuple[str, str], list[Cell]] = defaultdict(list)
        for one in self.measured:
            for pair in one.found.absent:
                found[pair].append(one.cell)
        return dict(found)


@dataclass
class Queue:
    """The cells that wait, and what is being made for those at its head."""

    lab: Lab
    waiting: list[Cell]
    width: int
    writers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    written: dict[Cell, Future[dict[str, Kernel]]] = field(default_factory=dict)

    def look_ahead(self) -> None:
        """Starts to make what the cells at the head need."""
        for cell in self.waiting[: self.width]:
            if cell not in self.written:
                self.written[cell] = self.writers.submit(self._write, cell)

    def _write(self, cell: Cell) -> dict[str, Kernel]:
        kernels = entries(cell.problem, self.lab)
        for kernel in kernels.values():
            self.lab.ahead.kernel(kernel)
        return kernels

    def _needs(self, cell: Cell, waits_for_library: bool) -> Iterator[Future[Any]]:
        """What is not there yet for a cell."""
        needed: list[Future[Any]] = [self.written[cell]]
        if self.written[cell].done() and self.written[cell].exception() is None:
            needed += [self.lab.ahead.kernel(kernel) for kernel in self.written[cell].result().values()]
        if waits_for_library:
            needed += [self.lab.ahead.library(cell.problem), self.lab.ahead.warm(cell.problem)]
        yield from (future for future in needed if not future.done())

    def next(self, is_patient: Callable[[], bool], until: float) -> Cell | None:
        """The first cell that has all it needs, waiting for one if there is none; None at the end of the time."""
        while time.monotonic() < until:
            self.look_ahead()
            missing: set[Future[Any]] = set()
            for cell in self.waiting[: self.width]:
                needs = set(self._needs(cell, is_patient()))
                if not needs:
                    self.waiting.remove(cell)
                    return cell
                missing |= needs
            wait(missing, timeout=LOOK_S, return_when=FIRST_COMPLETED)
        return None


def measure_cells(
    cells: Sequence[Cell],
    device: Device,
    *,
    is_cold: bool = True,
    seed: int = 0,
    limit_s: float | None = None,
    rounds: int = ROUNDS,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Benched:
    """Measures one cell after the other until the time is over."""
    start = time.monotonic()
    until = start + limit_s if limit_s else math.inf
    give_up = start + PATIENT * limit_s if limit_s else math.inf
    measured: list[Measured] = []
    failed: list[tuple[Cell, str]] = []
    stopped = ""
    with Lab(device, cells[0].problem, seed=seed, is_cold=is_cold) as lab:
        queue = Queue(lab, list(dict.fromkeys(cells)), 1 if device.kind == "cpu" else AHEAD)
        for waiting in queue.waiting:
            lab.ahead.library(waiting.problem)
            lab.ahead.warm(waiting.problem)
        try:
            while queue.waiting:
                cell = queue.next(lambda: time.monotonic() < give_up, until)
                if cell is None:
                    stopped = f"the time limit of {limit_s:g} s"
                    break
                lab.patience_s = BUILD_LIMIT_S if time.monotonic() < give_up else 0.0
                progress(Progress(str(cell), len(measured) + len(failed), len(cells)))
                try:
                    kernels = queue.written.pop(cell).result()
                    measured.append(Measured(cell, compare(lab, cell.problem, kernels, rounds, seed)))
                except RedtuneError as error:
                    failed.append((cell, str(error)))
        except KeyboardInterrupt:
            stopped = INTERRUPTION
        finally:
            queue.writers.shutdown(wait=False, cancel_futures=True)
    progress(Progress("done", len(measured) + len(failed), len(cells)))
    done = {one.cell for one in measured} | {cell for cell, _ in failed}
    return Benched(
        device=device,
        temperature="cold" if is_cold else "warm",
        seed=seed,
        measured=tuple(measured),
        failed=tuple(failed),
        cut=tuple(cell for cell in dict.fromkeys(cells) if cell not in done),
        stopped=stopped,
        seconds=time.monotonic() - start,
    )
