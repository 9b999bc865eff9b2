"""The door for backends: `BACKENDS` names one module each. A module is imported when its backend is asked for, and its
vendor package when a device is."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from redtune.dtypes import unknown
from redtune.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

    from redtune.dialect import Dialect
    from redtune.types import Device, Kernel, Launch, Problem, Resources

# In the order of preference when none is named: GPUs before the CPU.
BACKENDS = ("cuda", "hip", "opencl")


@dataclass(frozen=True, slots=True)
class Call:
    """Launches with everything they need, ready to run any number of times."""

    steps: tuple[Any, ...]
    keeps: tuple[Any, ...]


class Replay(Protocol):
    """A sequence of calls that runs as one."""

    def run(self) -> float:
        """Runs it and gives the device seconds from the start of the first launch to the end of the last."""
        ...


class Inputs(Protocol):
    """The inputs of a problem: the k-th as a buffer, and as bytes on the host where the device shares its memory."""

    def __getitem__(self, k: int) -> Any: ...

    def host(self, k: int) -> np.ndarray[Any, Any]: ...


@dataclass(frozen=True, slots=True)
class Rival:
    """A library's way to do a reduction. `types` says what it accumulates in and gives. `results` reduces the first
    input and gives the dtype and the (first, count) pieces of its results one after the other; `replay` prepares the
    reductions of some of the inputs to be timed together."""

    name: str
    types: str
    results: Callable[[Sequence[tuple[int, int]]], tuple[str, np.ndarray[Any, Any]]]
    replay: Callable[[Sequence[int]], Replay]


class Session(Protocol):
    """One open device."""

    def load(self, kernel: Kernel, binary: bytes) -> Any:
        """A program from what `compile` gave."""
        ...

    def upload(self, host: np.ndarray[Any, Any]) -> Any:
        """A buffer on the device with the bytes of `host`; a device that shares memory with the host may borrow it."""
        ...

    def array(self, host: np.ndarray[Any, Any]) -> Any:
        """The elements as an array that `redtune.reduce` takes on this device."""
        ...

    def empty(self, size: int) -> Any:
        """A buffer of exactly so many bytes, which nobody has written yet."""
        ...

    def part(self, buffer: Any, first: int, size: int) -> Any:
        """`size` bytes of a buffer from byte `first` on, a multiple of 512, as a buffer."""
        ...

    def write(self, buffer: Any, host: np.ndarray[Any, Any]) -> None:
        """Overwrites the first bytes of a buffer."""
        ...

    def download(self, buffer: Any, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The first bytes of a buffer as an array of the shape and dtype of `like`."""
        ...

    def bind(self, program: Any, launches: Sequence[Launch], values: dict[str, Any]) -> Call:
        """Launches with their arguments: buffers or integers by name."""
        ...

    def resources(self, program: Any, launch: Launch) -> Resources:
        """What a launch takes on this device."""
        ...

    def run(self, call: Call) -> None:
        """Runs a call and waits for it."""
        ...

    def under_load(self, calls: Sequence[Call]) -> AbstractContextManager[None]:
        """While it lasts, the calls run over and over beside whatever else runs: they compete with it for everything
        the device has. Their buffers must be none of those that others write."""
        ...

    def replay(self, calls: Sequence[Call]) -> Replay:
        """Calls prepared to be timed together."""
        ...

    def copy(self, to: Any, source: Any, size: int) -> float:
        """Device seconds of a copy of `size` bytes between two buffers."""
        ...

    def baseline(
        self, problem: Problem, data: Sequence[Any], hosts: Sequence[np.ndarray[Any, Any]]
    ) -> tuple[str, Callable[[], float]]:
        """The library at hand for a problem: its name, and a function that times one sample over the rotating inputs.
        Raises BackendMissing with the reason when there is none."""
        ...

    def warm(self, problem: Problem) -> None:
        """Calls libraries that compile when they are first called on a little of such data."""
        ...

    def rivals(self, problem: Problem, data: Inputs, compiled: Path | str) -> Iterator[Rival | tuple[str, str]]:
        """The libraries at hand for a problem, or the name of one with the reason why it is absent. `compiled` is what
        `Backend.build_library` made, or why it did not."""
        ...


class Backend(Protocol):
    """One way to reach devices."""

    dialect: Dialect

    def devices(self) -> list[Device]:
        """The devices there are; raises BackendMissing with the reason when there are none."""
        ...

    def describe(self, arch: str) -> Device:
        """A stand-in for a device of that architecture, to write kernels for it without one."""
        ...

    def compile(self, kernel: Kernel, device: Device) -> bytes:
        """What `Session.load` reads. Raises CompileError with the log and the source."""
        ...

    def counts(self, kernel: Kernel, device: Device) -> dict[str, int]:
        """Instructions by which lanes and waves meet, in the compiled text; empty where it cannot be read."""
        ...

    def build_library(self, problem: Problem, arch: str) -> Path:
        """The library that has to be compiled before it can be measured beside a problem's kernels, compiled and kept.
        It takes seconds. Raises BackendMissing with the reason where there is none."""
        ...

    def is_slow_at_first(self, problem: Problem) -> bool:
        """Whether a library compiles for seconds when it is first called on such a problem, and keeps that."""
        ...

    def open(self, device: Device) -> Session:
        """The device, ready for work."""
        ...


def backend_named(name: str) -> Backend:
    """The backend called `name`, without touching its vendor package."""
    if name not in BACKENDS:
        raise UsageError(unknown("backend", name, BACKENDS))
    return cast(Backend, importlib.import_module(f"redtune.backends.{name}").Backend())
