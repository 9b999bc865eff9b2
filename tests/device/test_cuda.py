"""The contract on an NVIDIA GPU."""

import numpy as np
import pytest

from redtune.api import make_problem
from redtune.backends import backend_named
from redtune.lab import list_devices
from redtune.plan import make_plan
from redtune.render import render
from redtune.space import make_space
from redtune.types import Device
from tests.device.contract import Contract
from tests.need import need


@pytest.mark.gpu
class TestCuda(Contract):
    backend = "cuda"
    count = 330


BEYOND = 2**32 + 5


@pytest.mark.gpu
@pytest.mark.parametrize("walk", ["tile", "stride", "chunk"])
@pytest.mark.parametrize("op", ["max", "argmax", "sum"])
def test_elements_beyond_two_to_the_32(op: str, walk: str) -> None:
    """One planted byte at the end of more than 4 GiB: 32-bit indices or offsets would miss it."""
    need("cuda")
    import cupy

    device: Device = list_devices("cuda")[0]
    backend = backend_named("cuda")
    problem = make_problem(op, "int8", BEYOND)
    space = make_space(problem, backend.dialect, device, {"walk": walk, "vector": 16, "block": 512, "items": 8})
    config = next(space.walk())
    kernel = render(problem, config, backend.dialect, device)
    session = backend.open(device)
    program = session.load(kernel, backend.compile(kernel, device))
    data = cupy.zeros(BEYOND, cupy.int8)
    data[-1] = 1
    plan = make_plan(problem, config, backend.dialect, device)
    out = session.upload(np.zeros(1, np.int64))
    values = {"data": data.data, "first": 0, "n": BEYOND, "blocks": plan.blocks, "out": out}
    values |= {"partials": session.upload(np.zeros(plan.partials_bytes + 16, np.uint8))}
    values |= {"counter": session.upload(np.zeros(4, np.uint32))}
    session.run(session.bind(program, plan.launches, values))
    result = "int8" if op == "max" else "int64"
    right = {"max": 1, "argmax": BEYOND - 1, "sum": 1}[op]
    assert session.download(out, np.zeros(1, result))[0] == right
