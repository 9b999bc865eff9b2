"""The contract on an NVIDIA GPU."""

import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from redtune.backends import backend_named
from redtune.lab import list_devices
from redtune.plan import make_plan
from redtune.render import render
from redtune.sampling import problem_of
from redtune.space import make_space
from redtune.types import Device, Launch
from tests.device.contract import Contract
from tests.device.flags import EXTREMES, SPLIT, Broken, Flags, Many, Sums
from tests.need import need


@pytest.mark.gpu
class TestCuda(Contract):
    backend = "cuda"
    count = 420


@pytest.mark.gpu
class TestFlags(Flags):
    backend = "cuda"
    flags = 160


@pytest.mark.gpu
class TestBroken(Broken):
    backend = "cuda"


@pytest.mark.gpu
class TestSums(Sums):
    backend = "cuda"
    many = (
        Many("flat", (1, 2**28, 1), EXTREMES, 8),
        Many("flat", (1, 2**25 + 5, 1), EXTREMES, 16),
        Many("rows", (64, 2**20 + 3, 1), SPLIT, 8),
        Many("columns", (2, 2**20 + 3, 33), SPLIT, 8),
    )


BEYOND = 2**32 + 5
# (layout, (outer, n, inner), strides) of as many bytes: the last element is the last one of each.
FAR: dict[str, tuple[tuple[int, int, int], tuple[int, int, int]]] = {
    "flat": ((1, BEYOND, 1), (0, 1, 0)),
    "rows": ((2, 1003, 1), (BEYOND - 1003, 1, 0)),
    "columns": ((2, 3, 5), (5, (BEYOND - 10) // 2, 1)),
}


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("layout", "walk"), [("flat", "tile"), *((at, walk) for at in FAR for walk in ("stride", "chunk"))]
)
@pytest.mark.parametrize("op", ["max", "argmax", "sum"])
def test_elements_beyond_two_to_the_32(op: str, layout: str, walk: str) -> None:
    """One planted byte at the end of more than 4 GiB: 32-bit indices or offsets would miss it."""
    need("cuda")
    import cupy

    device: Device = list_devices("cuda")[0]
    backend = backend_named("cuda")
    (outer, n, inner), steps = FAR[layout]
    problem = problem_of(op, "int8", layout, (outer, n, inner))
    wide = {"vector": 16, "items": 8} if layout == "flat" else {"items": 1, "split": 1, "team": 0}
    config = next(make_space(problem, backend.dialect, device, {"walk": walk, "block": 512, **wide}).walk())
    kernel = render(problem, config, backend.dialect, device)
    session = backend.open(device)
    program = session.load(kernel, backend.compile(kernel, device))
    data = cupy.zeros(BEYOND, cupy.int8)
    last = sum((size - 1) * step for size, step in zip((outer, n, inner), steps, strict=True))
    data[last] = 1
    cupy.cuda.Device().synchronize()
    plan = make_plan(problem, config, backend.dialect, device)
    out = session.upload(np.zeros(problem.results, np.int64))
    values: dict[str, Any] = {"data": data.data, "data_first": 0, "out": out, "parts": plan.parts}
    values |= {"outer": outer, "n": n, "inner": inner, "out_outer": inner, "out_inner": 1}
    values |= {f"data_{name}": step for name, step in zip(("outer", "n", "inner"), steps, strict=True)}
    values |= {"partials": session.upload(np.zeros(plan.partials_bytes + 16, np.uint8))}
    values |= {"counter": session.upload(np.zeros(plan.counter_bytes // 4 + 1, np.uint32))}
    session.run(session.bind(program, plan.launches, values))
    got = session.download(out, np.zeros(problem.results, "int8" if op == "max" else "int64"))
    assert got[-1] == {"max": 1, "argmax": n - 1, "sum": 1}[op]
    assert not got[:-1].any()


MARK = """extern "C" __global__ void mark(unsigned char *out, long long n) {
    for (long long i = threadIdx.x; i < n; i += blockDim.x) out[i] = 1;
}"""


# Another process that keeps the GPU busy with kernels and copies until its parent ends it.
BUSY = """
import cupy, numpy
host = numpy.ones(1 << 14, numpy.float32)
while True:
    x = cupy.asarray(host)
    for _ in range(8):
        x = cupy.sqrt(x)
    cupy.asnumpy(x)
"""


@pytest.mark.gpu
def test_what_is_written_has_arrived_before_the_next_kernel_runs() -> None:
    """While other processes keep the GPU busy: a poison that is late would lie over a right result."""
    need("cuda")
    import cupy

    session = backend_named("cuda").open(list_devices("cuda")[0])
    module = cupy.RawModule(code=MARK)
    poison = np.full(24 << 10, 0xA5, np.uint8)
    out = session.upload(poison)
    launch = Launch("mark", 1, 1024, ("out", "n"))
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(3)]
    try:
        time.sleep(5.0)  # until they are
        late = 0
        for k in range(6000):
            size = 1 + (k * 37) % len(poison)
            session.write(out, poison[:size])
            session.run(session.bind(module, [launch], {"out": out, "n": size}))
            late += bool((session.download(out, poison[:size]) != 1).any())
        assert all(other.poll() is None for other in others)
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert late == 0
