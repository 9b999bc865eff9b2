"""Whether shipped configs still hold on the device at hand: a sample of rows timed beside the default, in turns."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from redtune.clock import is_time, paired_ratio, summary
from redtune.config import Config
from redtune.defaults import default_config
from redtune.dtypes import dtype_named
from redtune.errors import RedtuneError, UsageError
from redtune.keys import folder_name
from redtune.lab import Compiled, Lab
from redtune.operators import operator_named
from redtune.outcome import Progress
from redtune.problems import make_problem
from redtune.process import WorkerDied, WorkerTimedOut
from redtune.refusals import refusals
from redtune.render import render
from redtune.shipped import entries
from redtune.types import Best, Device, Problem

ROUNDS = 11
SAMPLE = 40  # rows, where no number is asked for
TOLERANCE = 0.1  # of the share of the read ceiling that was recorded


@dataclass(frozen=True, slots=True)
class Remeasured:
    """A row measured again. `wrong` says in a phrase why it no longer holds. Times are in microseconds; `ratio` is the
    time of the row's config over that of the default, with the interval that holds the true one 19 times in 20; shares
    are of the read ceiling, as it stood then and stands now."""

    best: Best
    wrong: str = ""
    median_us: float | None = None
    default_us: float | None = None
    ratio: tuple[float, float, float] | None = None
    share: float | None = None
    recorded_share: float | None = None


@dataclass(frozen=True, slots=True)
class Remeasurement:
    """The rows that were measured again, of how many, and why there are not more."""

    device: Device
    rows: tuple[Remeasured, ...]
    of: int
    seed: int
    stopped: str = ""

    def wrong(self) -> list[Remeasured]:
        """The rows that no longer hold."""
        return [row for row in self.rows if row.wrong]

    def check(self) -> None:
        """Raises RedtuneError where a row no longer holds, or none was measured."""
        if wrong := self.wrong():
            raise RedtuneError(
                f"{len(wrong)} of {len(self.rows)} shipped configs no longer hold; the first: "
                f"{wrong[0].best.problem.op} of {wrong[0].best.problem.dtype}: {wrong[0].wrong}"
            )
        if not self.rows:
            raise RedtuneError(f"no shipped config was measured: {self.stopped}")


def rows_for(
    root: Path, device: Device, ops: Sequence[str], dtypes: Sequence[str], layouts: Sequence[str]
) -> list[Best]:
    """What is shipped for the architecture of a device. Raises UsageError where there is nothing."""
    for op in ops:
        operator_named(op)
    for dtype in dtypes:
        dtype_named(dtype)
    if not root.is_dir():
        raise UsageError(f"there is no folder {root} with configs to check")
    found = [
        best
        for best in entries(root)
        if folder_name(best.device) == folder_name(device)
        and (not ops or best.problem.op in ops)
        and (not dtypes or best.problem.dtype in dtypes)
        and (not layouts or best.problem.layout in layouts)
    ]
    if not found:
        raise UsageError(f"{root} has no such configs for {device.backend} {device.arch}")
    return found


def check_rows(
    found: Sequence[Best],
    device: Device,
    *,
    count: int = SAMPLE,
    seed: int = 0,
    limit_s: float | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Remeasurement:
    """Measures `count` of the rows again, drawn with `seed`; none is begun after `limit_s` seconds."""
    began = time.monotonic()
    drawn = random.Random(seed).sample(list(found), min(count, len(found)))
    drawn.sort(key=lambda best: best.problem.dtype)  # whose data is made once
    rows: list[Remeasured] = []
    stopped = ""
    with Lab(device, make_problem("max"), seed=seed) as lab:
        for k, best in enumerate(drawn):
            if limit_s is not None and time.monotonic() - began > limit_s:
                stopped = f"the time limit of {limit_s:g} s was reached"
                break
            rows.append(_checked(lab, best, seed))
            progress(Progress("checking", k + 1, len(drawn)))
    return Remeasurement(device, tuple(rows), len(found), seed, stopped)


def _checked(lab: Lab, best: Best, seed: int) -> Remeasured:
    """One row beside the default."""
    problem, device = best.problem, lab.device
    reasons = refusals(best.config, problem, lab.dialect, device)
    if reasons:
        return Remeasured(best, f"refused: {reasons[0]}")
    default = default_config(problem, lab.dialect, device)
    compiled = _compiled(lab, problem, list(dict.fromkeys((best.config, default))))
    if compiled[0].binary is None:
        return Remeasured(best, f"not compiled: {compiled[0].note}")
    compiled = [one for one in compiled if one.binary is not None]
    try:
        found = lab.beside(problem, compiled, ROUNDS, with_libraries=False, seed=seed)
    except (WorkerDied, WorkerTimedOut, RedtuneError) as error:
        return Remeasured(best, f"failed: {error}")
    if not all(is_time(sample) for samples in found.samples for sample in samples):
        return Remeasured(best, "failed: the clock showed no time")
    own, *other = found.samples
    median_us, ceiling = summary(own).median_us, found.ceiling()
    row = Remeasured(
        best,
        median_us=median_us,
        default_us=summary(other[0] if other else own).median_us,
        ratio=paired_ratio(*_together(own, other[0])) if other else None,
        share=ceiling.median_us / median_us if ceiling else None,
        recorded_share=best.gbps / best.ceiling_gbps if best.ceiling_gbps else None,
    )
    answers = {answer.name: answer for answer in found.answers}
    if "kernel 0" in answers and answers["kernel 0"].differs_from:
        return replace(row, wrong=f"failed: {answers['kernel 0']}")
    if row.ratio and row.ratio[1] > 1.0:
        return replace(row, wrong=f"slower than the default: {row.ratio[0] - 1:.1%} more time, beyond noise")
    # Over tiny inputs the kernels that only read may take longer, and by how much says nothing.
    if row.share and row.recorded_share and row.share < (1 - TOLERANCE) * min(1.0, row.recorded_share):
        return replace(row, wrong=f"slower than recorded: {row.share:.1%} of the ceiling, not {row.recorded_share:.1%}")
    return row


def _together(mine: Sequence[float], other: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """Samples of the same rounds: who is far slower has those of the first ones only."""
    rounds = min(len(mine), len(other))
    return mine[:rounds], other[:rounds]


def _compiled(lab: Lab, problem: Problem, configs: Sequence[Config]) -> list[Compiled]:
    """Both at the same time."""
    kernels = [render(problem, config, lab.dialect, lab.device) for config in configs]
    return [future.result() for future in [lab.compile_ahead(kernel) for kernel in kernels]]
