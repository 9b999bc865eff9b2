"""What one call costs the host: `redtune.reduce` on a cached kernel beside CuPy's and PyTorch's own, in turns.

    python results/host_cost.py --out results/NAME [--commit REV]

writes NAME.md. Each figure is the median over rounds of the time per call in a burst on 1024 float32; the device is
idle when a burst begins, and far faster than the host, so that no call waits.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BURST, ROUNDS, WARM = 300, 41, 300
SIZE = 1024


def measure(calls: dict[str, Callable[[], Any]], wait: Callable[[], Any]) -> dict[str, tuple[float, float]]:
    """Median and half the distance of the quartiles of each call, in microseconds."""
    rows: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(WARM):
            call()
    for turn in range(ROUNDS):
        for name in list(calls) if turn % 2 else reversed(list(calls)):
            call = calls[name]
            wait()
            start = time.perf_counter()
            for _ in range(BURST):
                call()
            rows[name].append((time.perf_counter() - start) / BURST * 1e6)
    found = {}
    for name, row in rows.items():
        low, middle, high = statistics.quantiles(row, n=4)
        found[name] = middle, (high - low) / 2
    return found


def calls() -> tuple[dict[str, Callable[[], Any]], Callable[[], Any], str]:
    """The calls, what waits for the device, and the environment in a line."""
    import cupy
    import numpy
    import torch

    import redtune

    x, t = cupy.ones(SIZE, "float32"), torch.ones(SIZE, device="cuda")
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    versions = f"cupy {cupy.__version__}, torch {torch.__version__}, numpy {numpy.__version__}"
    kernel = cupy.RawKernel('extern "C" __global__ void nothing(float *x) {}', "nothing")
    kernel((1,), (32,), (x,))
    table: dict[str, Callable[[], Any]] = {
        'redtune.reduce(x, "sum"), cupy': lambda: redtune.reduce(x, "sum"),
        "redtune.sum(x), cupy": lambda: redtune.sum(x),
        "x.sum(), cupy": lambda: x.sum(),
        'redtune.reduce(t, "sum"), torch': lambda: redtune.reduce(t, "sum"),
        "torch.sum(t), torch": lambda: torch.sum(t),
        'redtune.reduce(x, "max"), cupy': lambda: redtune.reduce(x, "max"),
        "x.max(), cupy": lambda: x.max(),
        "torch.amax(t), torch": lambda: torch.amax(t),
        'redtune.reduce(x, "argmax"), cupy': lambda: redtune.reduce(x, "argmax"),
        "x.argmax(), cupy": lambda: x.argmax(),
        "a bare cupy.RawKernel launch": lambda: kernel((1,), (32,), (x,)),
        "cupy.empty(())": lambda: cupy.empty((), "float32"),
        "torch.empty(())": lambda: torch.empty((), device="cuda"),
    }
    return table, cupy.cuda.Device().synchronize, f"{name}; {versions}"


def main() -> None:
    """Measures and writes the table."""
    import platform

    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--commit", default="unknown")
    given = parser.parse_args()
    table, wait, environment = calls()
    found = measure(table, wait)
    lines = [
        "# Host cost of one call on 1024 float32",
        "",
        f"{environment}; Python {platform.python_version()}; commit {given.commit}.",
        "",
        f"Median over {ROUNDS} rounds of the time per call in bursts of {BURST}, all rows in turns in one process;",
        "spread is half the distance between the quartiles.",
        "",
        "| call | us | spread |",
        "|---|---|---|",
        *(f"| `{name}` | {middle:.2f} | {spread:.2f} |" for name, (middle, spread) in found.items()),
        "",
        f"Command: `python results/host_cost.py --out {given.out}`",
        "",
    ]
    given.out.with_suffix(".md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
