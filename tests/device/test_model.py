"""What the model counts is what an emitted kernel does, on real work-groups with every access written down."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from redtune.backends import backend_named
from redtune.config import Config
from redtune.counting import WAVES, count, steps_on
from redtune.problems import make_problem
from redtune.profiling import launch_each
from redtune.render import render
from redtune.rungs import config_of, rungs
from redtune.trees import BANKS
from redtune.types import Device, as_json
from tests.device.contract import first_device
from tests.device.tracing import run_one_block, seen
from tests.need import need
from tests.text.kernels import target

CLASSIC = [(rung.number, 256) for rung in rungs()]
CASES = [*CLASSIC, (5, 128), (8, 128), (1, 64), (2, 64), (3, 64), (1, 1024), (2, 1024), (3, 1024)]


@pytest.fixture(scope="module")
def device() -> Device:
    need("opencl")
    found = first_device("opencl")
    if found.kind != "cpu":
        pytest.skip("the notes want a device that is compiled for as the text says")
    return found


def agrees(config: Config, device: Device) -> None:
    problem = make_problem("max", "int32", config.block * config.items * config.vector)
    threads, result = run_one_block(problem, config, device)
    assert result == problem.n, "the notes have changed nothing"
    for lanes in WAVES:
        if lanes >= config.wave:  # a narrower wave would have another text, with joins of its own
            counted, noted = count(steps_on(problem, config, lanes), lanes), seen(threads, lanes, BANKS)
            assert {name: getattr(counted, name) for name in noted.__dict__} == noted.__dict__, lanes


@pytest.mark.parametrize(("number", "block"), CASES)
def test_the_counts_of_a_rung_are_those_of_a_run(number: int, block: int, device: Device) -> None:
    agrees(config_of(rungs()[number - 1], block, make_problem("max", "int32", 1), target("opencl").dialect), device)


@pytest.mark.parametrize("number", [5, 6, 8])
def test_so_are_those_of_a_tail_of_64_lanes(number: int, device: Device) -> None:
    if 64 not in device.waves:
        pytest.skip(f"{device.name} has no sub-groups of 64 lanes")
    narrow = config_of(rungs()[number - 1], 256, make_problem("max", "int32", 1), target("opencl").dialect)
    agrees(replace(narrow, wave=64), device)


def test_what_a_profiler_watches_launches_each_kernel_once(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem("sum", "float32", 5000)
    backend = backend_named("opencl")
    configs = [config_of(rung, 128, problem, backend.dialect) for rung in rungs()[2:9:3]]
    kernels = [render(problem, config, backend.dialect, device) for config in configs]
    items = [{"kernel": as_json(k), "binary": base64.b64encode(backend.compile(k, device))} for k in kernels]
    ran: list[int] = []
    session_type = type(backend.open(device))
    run = session_type.run
    monkeypatch.setattr(session_type, "run", lambda self, call: (ran.append(len(call.steps)), run(self, call))[1])
    launch_each(device, items)
    assert ran == [1, 1, 1], "the main launch alone"
