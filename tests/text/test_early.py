"""What the driver is told of an early launch, by the worker and by arrays: a stand-in for it takes notes."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from redtune import early
from redtune.arrays.cuda import Step
from redtune.errors import RedtuneError
from redtune.types import Launch

LAUNCH = Launch("second", 3, 64, ("partials", "parts", "out", "n", "initial"), is_early=True)


class Function:
    """As far as a launch knows one of CuPy's."""

    ptr = 0x1234


class Memory:
    ptr = 0x5000


class Stream:
    ptr = 0x77


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    notes: list[dict[str, Any]] = []

    def launch(at: int, function: int, params: int, extra: int) -> int:
        config = early.LaunchConfig.from_address(at)
        places = (ctypes.c_void_p * 5).from_address(params)
        notes.append(
            {
                "grid": tuple(config.grid),
                "block": tuple(config.block),
                "stream": config.stream,
                "attributes": [(config.attributes[k].id, config.attributes[k].value) for k in range(config.count)],
                "function": function,
                "words": [ctypes.c_int64.from_address(place).value for place in places[:4]],
                "float": ctypes.c_float.from_address(places[4]).value,
                "extra": extra,
            }
        )
        return 0

    monkeypatch.setattr(early, "_launch_kernel", lambda: launch)
    return notes


TOLD = {
    "grid": (3, 1, 1),
    "block": (64, 1, 1),
    "stream": 0x77,
    "attributes": [(early.PROGRAMMATIC_STREAM_SERIALIZATION, 1)],
    "function": 0x1234,
    "words": [0x5000, 7, 0x5000, 100],
    "float": 2.5,
    "extra": 0,
}


def test_what_the_worker_tells(told: list[dict[str, Any]]) -> None:
    arguments = (Memory(), np.int64(7), Memory(), np.int64(100), np.float32(2.5))
    early.EarlyFunction(Function())((3,), (64,), arguments, stream=Stream())
    assert told == [TOLD]


def test_what_arrays_tell(told: list[dict[str, Any]]) -> None:
    """The same, from memory that is filled in call by call."""
    step = Step(None, Function(), LAUNCH, {"partials": 16, "counter": 0, "parts": 7, "n": 100})
    assert [name for _, name in step.fills] == ["partials", "out"]
    for k, _ in step.fills:
        step.values[k] = 0x5000
    assert step.initial_at == 4
    ctypes.memmove(step.params[step.initial_at], np.float32(2.5).tobytes(), 4)
    step.launch(0x77, step.at, 0)
    step.launch(0x77, step.at, 0)
    assert told == [TOLD, TOLD]


def test_what_the_driver_refuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "_launch_kernel", lambda: lambda *_: 801)
    with pytest.raises(RedtuneError, match="the driver refused an early launch: CUDA error 801"):
        early.EarlyLaunch(1, 1, 1)(0, 0, 0)
