"""Which limits does each choice of a knob meet on AMD GPUs that are not here? Read from compiled code: nothing runs.

The config is the default one of the target with the choice, and what limits it is in its code object: registers, shared
memory, how it loads and how it meets. That ranks limits. It says nothing about speed, which only a clock can.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from redtune.amdgpu import KernelResources, ToolMissing, describe, disassemble, find_compiler
from redtune.backends import backend_named
from redtune.comparing import check_free, combined
from redtune.config import Config, Value, choices, is_read, settled
from redtune.defaults import default_config
from redtune.dialect import Dialect
from redtune.dtypes import dtype_named, unknown
from redtune.errors import CompileError, RedtuneError, UsageError
from redtune.instructions import THROUGH_LDS, Reading, read
from redtune.operators import operator_of
from redtune.outcome import Progress
from redtune.plan import entry_names
from redtune.refusals import refusals
from redtune.render import render
from redtune.types import Device, Kernel, Problem

BACKEND = "hip"
RANKED_BY = "spills, bytes in flight, instructions of the LDS by which lanes meet, barriers, VGPRs"
UNSUPPORTED = "wave64 on RDNA: not supported by the vendor in HIP"


@dataclass(frozen=True, slots=True)
class Family:
    """What the waves of a block share on one architecture: `simds` SIMDs and `lds_bytes` of shared memory of `cus`
    compute units (RDNA pairs them), and on each SIMD `vgprs` registers a lane by the size of a wave, handed out in
    `granule`s, for at most `waves` waves. More than `sgprs` scalar registers leave room for one wave fewer than 8."""

    simds: int
    cus: int
    lds_bytes: int
    waves: int
    vgprs: Mapping[int, int]
    granule: Mapping[int, int]
    sgprs: int | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of waves there are."""
        return tuple(self.vgprs)


_KIB = 1024
_CDNA = Family(4, 1, 64 * _KIB, 8, {64: 512}, {64: 8}, sgprs=100)
_RDNA2 = Family(4, 2, 128 * _KIB, 16, {32: 1024, 64: 512}, {32: 16, 64: 8})
_RDNA3 = Family(4, 2, 128 * _KIB, 16, {32: 1536, 64: 768}, {32: 24, 64: 12})
# From LLVM's tables of the targets (AMDGPUBaseInfo.cpp, GCNSubtarget.cpp).
TARGETS: dict[str, Family] = {
    "gfx90a": _CDNA,
    "gfx942": _CDNA,
    "gfx950": replace(_CDNA, lds_bytes=160 * _KIB),
    "gfx1030": _RDNA2,
    "gfx1100": _RDNA3,
    "gfx1200": _RDNA3,
    "gfx1201": _RDNA3,
}


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How many waves a SIMD can hold of a kernel, in whole blocks, and what stands against more: "VGPRs", "SGPRs",
    "LDS", "whole blocks", or nothing. `resident` counts those that the grid gives it, and `threads` those of a CU."""

    waves: float
    limited_by: str
    resident: float
    threads: int


def occupancy(family: Family, taken: KernelResources, block: int, blocks_per_cu: int | None) -> Occupancy:
    """Of blocks of so many threads, in a grid of `blocks_per_cu` blocks for each CU (or as many as there is room for,
    where it is None)."""
    wave = taken.wavefront_size
    per_block = -(-block // wave)
    granule = family.granule[wave]
    by_vgprs = min(family.waves, family.vgprs[wave] // (-(-max(1, taken.vgprs) // granule) * granule))
    by_sgprs = family.waves - (family.sgprs is not None and taken.sgprs > family.sgprs)
    rooms = {
        "": family.waves * family.simds // per_block,
        "VGPRs": by_vgprs * family.simds // per_block,
        "SGPRs": by_sgprs * family.simds // per_block,
        "LDS": family.lds_bytes // max(1, taken.lds_bytes),
    }
    blocks = min(rooms.values())
    waves = blocks * per_block / family.simds
    limit = next(name for name, room in rooms.items() if room == blocks)
    if not limit and waves < family.waves:
        limit = "whole blocks"
    there = blocks if blocks_per_cu is None else min(blocks, blocks_per_cu * family.cus)
    return Occupancy(waves, limit, there * per_block / family.simds, there * block // family.cus)


@dataclass(frozen=True, slots=True)
class Limits:
    """A choice on a target: what its main launch takes and is limited by, or why it cannot be. `rank` is 1 for the
    choice that is limited least there."""

    target: str
    choice: Mapping[str, Value]
    config: Config | None = None
    taken: KernelResources | None = None
    held: Occupancy | None = None
    bytes_in_flight: int = 0
    reading: Reading | None = None
    rank: int = 0
    note: str = ""
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Limited:
    """All choices on all targets, target by target, ranked within each."""

    problem: Problem
    knobs: tuple[str, ...]
    targets: tuple[str, ...]
    compiler: str
    rows: tuple[Limits, ...]

    def check(self) -> None:
        """Raises RedtuneError where no choice could be compiled for any target."""
        if not any(row.taken for row in self.rows):
            raise RedtuneError("no choice compiled: " + "; ".join(dict.fromkeys(row.verdict for row in self.rows)))


@dataclass(frozen=True, slots=True)
class _Task:
    """A choice on its way to the compiler, or refused."""

    row: Limits
    device: Device
    kernel: Kernel | None


def family_of(target: str) -> Family:
    """The tables' entry for a target, features such as `:xnack-` aside. Raises UsageError with the nearest name."""
    name = target.partition(":")[0]
    if name not in TARGETS:
        raise UsageError(unknown("target", name, TARGETS))
    return TARGETS[name]


def find_limits(
    problem: Problem,
    knobs: Sequence[str],
    targets: Sequence[str],
    *,
    fixed: Mapping[str, Value],
    progress: Callable[[Progress], None] = lambda step: None,
) -> Limited:
    """Compiles every choice for every target and reads what came out. Raises UsageError for an unknown target or knob,
    ToolMissing where no compiler for AMD GPUs is installed."""
    asked = combined(knobs)
    check_free(knobs, fixed)
    targets = tuple(dict.fromkeys(targets))
    if not targets:
        raise UsageError(f"there is no target to compile for: choose from {', '.join(TARGETS)}")
    for target in targets:
        family_of(target)
    compiler = find_compiler()
    tasks = [task for target in targets for choice in asked for task in _tasks(problem, target, choice, fixed)]
    rows: list[Limits] = []
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:  # the compilers are processes of their own
        for row in pool.map(_measured, tasks):
            rows.append(row)
            progress(Progress(f"compiled for {row.target}", done=len(rows), budget=len(tasks)))
    ranked = [row for target in targets for row in _ranked([row for row in rows if row.target == target])]
    version = ".".join(map(str, compiler.version))
    return Limited(problem, tuple(knobs), targets, f"{compiler.kind} {version}", tuple(ranked))


def _tasks(problem: Problem, target: str, choice: Mapping[str, Value], fixed: Mapping[str, Value]) -> list[_Task]:
    """A choice on one target, once for each size of wave that it can be compiled for."""
    backend = backend_named(BACKEND)
    device = backend.describe(target)
    base = default_config(problem, backend.dialect, device)
    wanted = {**fixed, **choice}
    free = "wave" not in wanted and len(device.waves) > 1
    sizes: list[dict[str, Value]] = [{"wave": size} for size in device.waves] if free else [{}]
    tasks = []
    for k, size in enumerate(sizes):
        config = with_values(base, wanted | size)
        if k and not is_read("wave", config):
            continue  # the same kernel once more
        row = Limits(target, choice, config)
        reasons = refusals(config, problem, backend.dialect, device)
        if reasons:
            tasks.append(_Task(replace(row, config=None, verdict=f"refused: {reasons[0]}"), device, None))
            continue
        tasks.append(
            _Task(_noted(row, device, backend.dialect), device, render(problem, config, backend.dialect, device))
        )
    refused = [task for task in tasks if task.kernel is None]
    return tasks if len(refused) < len(tasks) else refused[:1]


def with_values(base: Config, values: Mapping[str, Value]) -> Config:
    """`base` with some knobs, and no more fold chains than elements where their number was not asked for. A value that
    has no effect there stays, so that it is refused in words."""
    config = settled(replace(base, **dict[str, Any](values)))
    if "accumulators" not in values:
        most = min(config.items * config.vector, config.accumulators)
        config = replace(config, accumulators=max(int(n) for n in choices("accumulators") if int(n) <= most))
    return replace(config, **dict[str, Any](values))


def _noted(row: Limits, device: Device, dialect: Dialect) -> Limits:
    assert row.config is not None
    wide = len(device.waves) > 1 and dialect.hardware_wave(row.config, device) == max(device.waves)
    return replace(row, note=UNSUPPORTED if wide else "")


def _measured(task: _Task) -> Limits:
    """Compiles a choice and reads it."""
    row, kernel = task.row, task.kernel
    if kernel is None or row.config is None:
        return row
    try:
        binary = backend_named(BACKEND).compile(kernel, task.device)
    except (CompileError, ToolMissing) as error:
        return replace(row, config=None, verdict=f"not compiled: {error}")
    entry = entry_names(kernel.problem, row.config).main
    taken = next(found for found in describe(binary) if found.name == entry)
    per_cu = row.config.blocks_per_cu if is_read("blocks_per_cu", row.config) else None
    held = occupancy(family_of(row.target), taken, row.config.block, per_cu)
    element = dtype_named(kernel.problem.dtype).bytes * operator_of(kernel.problem).inputs
    return replace(
        row,
        taken=taken,
        held=held,
        bytes_in_flight=row.config.items * row.config.vector * element * held.threads,
        reading=read(disassemble(binary), entry),
    )


def _ranked(rows: Sequence[Limits]) -> list[Limits]:
    """The rows of one target, the one that is limited least first; those that are refused last, in their order."""
    there = sorted((row for row in rows if row.taken), key=_limits)
    keys = [_limits(row) for row in there]
    return [replace(row, rank=1 + keys.index(key)) for row, key in zip(there, keys, strict=True)] + [
        row for row in rows if not row.taken
    ]


def _limits(row: Limits) -> tuple[int, ...]:
    """What the rank goes by, as `RANKED_BY` says it."""
    assert row.taken is not None
    assert row.reading is not None
    spills = row.taken.vgpr_spills + row.taken.sgpr_spills + row.taken.scratch_bytes
    through_lds = row.reading.lds_reads + row.reading.lds_writes + sum(row.reading.lanes[kind] for kind in THROUGH_LDS)
    return spills, -row.bytes_in_flight, through_lds, row.reading.barriers, row.taken.vgprs
