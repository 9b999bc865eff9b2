"""A worker with no device behind it: it answers every job as a worker would, but for those that a plan names.

    python scripted.py PLAN.json

The plan has for a job a list of what to do at its first, second, ... call, whichever process it comes to, and after
the last of them as a worker would: "die", "hang", "right", or a line to say.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

TIMING = {"median_us": 50.0, "spread_us": 0.5, "samples": 11}
SAME = {"runs": 30, "idle": 1, "loaded": 1, "distinct": 1, "spread": 0.0, "ulps": 0, "slowed": 2.0}


def right(job: dict[str, Any]) -> dict[str, Any]:
    """What a worker would say."""
    match job["job"]:
        case "devices":
            return {"devices": []}
        case "compile":
            return {"done": True, "binary": "AAAA"}
        case "open":
            return {"opened": job["device"]["name"]}
        case "inputs":
            return {"copies": 1}
        case "ceiling":
            return {"timings": [TIMING] * len(job["kernels"])}
        case "copy":
            return {"timing": TIMING}
        case "arithmetic":
            return {
                "timed": [{"rounds": 1000, "timing": TIMING}] * len(job["kernels"]),
                "empty": {**TIMING, "median_us": 2.0},
            }
        case "smallest":
            return {"timing": {**TIMING, "median_us": 4.0}}
        case "reduce":
            return {"value": 7.0}
        case "trial":
            kernel = {name: job["kernel"][name] for name in ("config", "digest")}
            return {"trial": {**kernel, "verdict": "OK", "micros": 100.0, "spread_us": 1.0, "error": 0.0, "note": ""}}
        case "finals":
            samples = [1e-4 + 1e-7 * (k % 3) for k in range(job["rounds"])]
            timed = [{"group": "finalist", "name": "", "samples": samples} for _ in job["kernels"]]
            return {"timed": timed, "repeats": [SAME] * len(timed), "absent": [["baseline", "none"]], "wrong": ""}
        case "beside":
            return beside(job, [1e-4 + 1e-7 * (k % 3) for k in range(job["rounds"])])
    raise AssertionError(job["job"])


def beside(job: dict[str, Any], samples: list[float]) -> dict[str, Any]:
    """What a worker says that has timed everything asked for, with these samples of each kernel."""
    timed = [
        {"group": "kernel", "name": f"kernel {k}", "types": "", "samples": samples} for k in range(len(job["kernels"]))
    ]
    readers = [
        {"group": "reader", "name": one["kernel"]["digest"], "types": "", "samples": samples} for one in job["readers"]
    ]
    return {"timed": timed + readers[:2], "absent": [["torch", "none"]], "answers": []}


def main(plan: Path) -> None:
    """Answers jobs until there are no more."""
    wanted = json.loads(plan.read_text())
    for line in sys.stdin:
        job = json.loads(line)
        with plan.with_suffix(f".{job['job']}").open("ab") as calls:
            calls.write(b".")
            count = calls.tell()
        steps = wanted.get(job["job"], [])
        do = steps[count - 1] if count <= len(steps) else "right"
        if do == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if do == "hang":
            time.sleep(600)
        print(json.dumps(right(job)) if do == "right" else do, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
