"""The HIP verbs against a CuPy that is none: no AMD GPU is at hand, so what is asked of CuPy is what can be checked."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from redtune.api import make_problem
from redtune.backends import Call, backend_named
from redtune.backends.hip import HipSession, StreamReplay
from redtune.config import Config
from redtune.errors import BackendMissing
from redtune.text import make_text


class Stream:
    def __init__(self, **_: Any) -> None:
        self.log: list[Any] = []

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Event:
    def record(self, stream: Stream) -> None:
        stream.log.append("event")

    def synchronize(self) -> None:
        pass


def fake_cupy(properties: dict[str, Any] | None = None, is_hip: bool = True, count: int = 1) -> Any:
    """As much of CuPy as the backend touches."""
    runtime = types.SimpleNamespace(
        is_hip=is_hip,
        getDeviceCount=lambda: count,
        getDeviceProperties=lambda index: properties,
        driverGetVersion=lambda: 70000000,
        CUDARuntimeError=RuntimeError,
    )
    cuda = types.SimpleNamespace(
        runtime=runtime,
        Event=Event,
        Stream=Stream,
        Device=lambda index: types.SimpleNamespace(use=lambda: None),
        get_elapsed_time=lambda start, end: 2.5,
    )
    return types.SimpleNamespace(cuda=cuda, __version__="14.0")


def properties(arch: str, wave: int) -> dict[str, Any]:
    return {
        "name": b"AMD Instinct",
        "gcnArchName": arch.encode(),
        "warpSize": wave,
        "maxThreadsPerBlock": 1024,
        "sharedMemPerBlock": 65536,
        "multiProcessorCount": 104,
        "l2CacheSize": 8 << 20,
        "totalGlobalMem": 64 << 30,
    }


@pytest.mark.parametrize(
    ("arch", "wave", "waves", "lanes"),
    [("gfx90a:sramecc+:xnack-", 64, (64,), 32), ("gfx942", 64, (64,), 32), ("gfx1030", 32, (32, 64), 32)],
)
def test_the_wave_comes_from_the_device_and_the_features_stay_in_the_name(
    arch: str, wave: int, waves: tuple[int, ...], lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(properties(arch, wave)))
    backend = backend_named("hip")
    (device,) = backend.devices()
    assert device.arch == arch
    assert device.waves == waves
    text = make_text(make_problem("sum"), Config(wave=32), backend.dialect, device)
    assert {c.name: c.value for c in text.constants}["LANES"] == lanes


def test_a_cupy_built_for_cuda_is_no_hip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(is_hip=False))
    with pytest.raises(BackendMissing, match="built for CUDA"):
        backend_named("hip").devices()


def test_a_replay_launches_every_step_between_its_events() -> None:
    cupy, stream = fake_cupy(), Stream()

    def step(name: str) -> tuple[Any, ...]:
        return (lambda grid, block, args, stream: stream.log.append((name, grid, block)), (3,), (64,), ())

    calls = [Call((step("reset"), step("main")), ()), Call((step("main"),), ())]
    assert StreamReplay(cupy, stream, calls).run() == pytest.approx(2.5e-3)
    launched = [("reset", (3,), (64,)), ("main", (3,), (64,)), ("main", (3,), (64,))]
    assert stream.log == ["event", *launched, "event"]


def test_a_session_replays_on_its_stream() -> None:
    device = backend_named("hip").describe("gfx942")
    session = HipSession(fake_cupy(), device)
    replay = session.replay([])
    assert isinstance(replay, StreamReplay)
    assert replay.stream is session.stream
