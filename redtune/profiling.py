"""Bank conflicts and divergence of kernels as NVIDIA's Nsight Compute counts them: `ncu` runs this module as a program.

The program launches the main kernel of each config once, in their order, and nothing else; so the k-th launch that ncu
reports is that of the k-th config.
"""

from __future__ import annotations

import base64
import csv
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redtune.backends import backend_named
from redtune.config import Config
from redtune.errors import BackendMissing, RedtuneError, UsageError
from redtune.types import Device, Kernel, Problem, as_json, from_json

TOOL = "ncu"
LIMIT_S = 300.0
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
# A compiler predicates short branches away: lanes that are not predicated off are those that work.
LANES = "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio"


@dataclass(frozen=True, slots=True)
class Profiled:
    """What one launch of a main kernel showed: conflicts of shared memory's banks in all, and how many lanes of a wave
    took part in an instruction, on average."""

    bank_conflicts: float
    active_lanes: float


def check_tool(device: Device) -> str:
    """Where ncu is. Raises UsageError for a device it does not watch, BackendMissing where it is not installed."""
    if backend_named(device.backend).dialect.profiler != TOOL:
        raise UsageError(f"--profile reads counters of NVIDIA GPUs, and {device.name} is a device of {device.backend}")
    found = shutil.which(TOOL)
    if found is None:
        raise BackendMissing(f"--profile needs {TOOL}, NVIDIA's Nsight Compute: it was not found in PATH")
    return found


def profile(problem: Problem, configs: Mapping[int, Config], device: Device) -> dict[int, Profiled]:
    """The counters of the main kernel of each config. Raises RedtuneError where ncu gives none."""
    from redtune.lab import Lab
    from redtune.render import render

    tool = check_tool(device)
    with Lab(device, problem) as lab:
        compiled = {k: lab.compile(render(problem, config, lab.dialect, device)) for k, config in configs.items()}
    there = {k: one for k, one in compiled.items() if one.binary is not None}
    with tempfile.TemporaryDirectory() as folder:
        job, log = Path(folder) / "job.json", Path(folder) / "log.csv"
        job.write_text(json.dumps({"device": as_json(device), "kernels": [one.as_job() for one in there.values()]}))
        # Counts do not depend on the clock, so ncu leaves it alone.
        options = [
            "--clock-control",
            "none",
            "--csv",
            "--page",
            "raw",
            "--metrics",
            f"{CONFLICTS},{LANES}",
            "--log-file",
            str(log),
        ]
        command = [tool, *options, "--target-processes", "all", sys.executable, "-m", "redtune.profiling", str(job)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            raise RedtuneError(f"{TOOL} took longer than {LIMIT_S:g} s") from None
        written = log.read_text() if log.exists() else ""
    rows = read_log(written)
    if done.returncode or len(rows) != len(there):
        said = [line for line in (written + done.stderr).splitlines() if line.startswith(("==ERROR==", "Error"))]
        reason = said[0] if said else f"it reported {len(rows)} launches of {len(there)}"
        raise RedtuneError(f"{TOOL} gave no counters (exit code {done.returncode}): {reason}")
    return dict(zip(there, rows, strict=True))


def read_log(text: str) -> list[Profiled]:
    """The launches in ncu's raw CSV: a line of names, one of units, then one for each launch."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = [row for row in csv.DictReader(lines) if row.get("ID")]
    try:
        return [Profiled(_number(row[CONFLICTS]), _number(row[LANES])) for row in rows]
    except (KeyError, ValueError) as error:
        raise RedtuneError(f"{TOOL} wrote a table without {error}") from error


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def launch_each(device: Device, items: Sequence[dict[str, Any]]) -> None:
    """Runs the main launch of each compiled kernel once, over zeros."""
    import numpy as np

    from redtune.contest import reading_call
    from redtune.plan import read_bytes

    session = backend_named(device.backend).open(device)
    data: Any = None
    for item in items:
        kernel = from_json(Kernel, item["kernel"])
        data = data if data is not None else session.upload(np.zeros(read_bytes(kernel.problem), np.uint8))
        scratch = session.upload(np.zeros(kernel.partials_bytes + 64, np.uint8))
        program = session.load(kernel, base64.b64decode(item["binary"]))
        session.run(reading_call(session, kernel, program, scratch, data))


def main(path: str) -> None:
    """The program that ncu watches."""
    job = json.loads(Path(path).read_text())
    launch_each(from_json(Device, job["device"]), job["kernels"])


if __name__ == "__main__":
    main(sys.argv[1])
