"""The door for array libraries: how an array of each kind is seen by a kernel, and how its kind is made.

A `Library` describes arrays, gives their memory to an engine and makes results of the same kind. An `Engine` is one
device as this process uses it: it keeps loaded programs and scratch, and launches on the caller's stream.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from redtune.backends import Backend
    from redtune.types import Device, Kernel, Launch


@dataclass(frozen=True, slots=True)
class Form:
    """What is known of an array without its memory: `strides` in elements, `place` names device and engine. `is_apart`
    says that its elements do not lie at multiples of their size, so that only a copy can be read."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    place: Any
    is_apart: bool = False


# Launches on a stream. The first argument holds by name the memory, where in it an operand begins, and `initial`, a
# scalar of the accumulator's type.
Launcher = Callable[[dict[str, Any], Any], None]

VARYING: tuple[str, ...] = ("data", "data_first", "other", "other_first", "mask", "mask_first", "offsets")
VARYING += ("partials", "counter", "out", "initial")


@dataclass(frozen=True, slots=True)
class Again:
    """A reduction that was done before and can be done again on another array of the same form."""

    launch: Any
    engine: Any
    start: int
    shape: tuple[int, ...]
    dtype: str
    storage: Any
    is_small: bool  # one result


class Engine(Protocol):
    """One device, ready to reduce arrays that live on it."""

    backend: Backend
    device: Device

    def load(self, kernel: Kernel) -> Any:
        """A program to launch, compiled once. Raises CompileError."""
        ...

    def prepare(self, program: Any, launches: Sequence[Launch], values: dict[str, Any]) -> Launcher:
        """Launches with every number in place. `values` holds the numbers by name, and under `partials` and `counter`
        how many bytes of scratch are wanted; a counter's bytes are zero before and after."""
        ...


class Library(Protocol):
    """One kind of arrays."""

    def accept(self, x: Any) -> Any:
        """The array, or a native copy of one that no device can read as it is."""
        ...

    def form(self, x: Any) -> Form:
        """Shape, strides, dtype and place. Raises TypeError for a dtype that redtune does not reduce."""
        ...

    def memory(self, x: Any) -> tuple[Any, int]:
        """What a launch takes for the array, and how many elements its first element lies behind that."""
        ...

    def extent(self, x: Any) -> tuple[Any, int, int]:
        """Where the array's bytes lie: in which memory, from where to before where."""
        ...

    def engine(self, place: Any) -> Engine:
        """The engine of a place."""
        ...

    def stream(self, x: Any) -> Any:
        """The stream or queue that the caller works on."""
        ...

    def storage(self, like: Any, dtype: str) -> Any:
        """The library's own dtype for elements beside those of `like`."""
        ...

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str) -> Any:
        """A new C-contiguous array beside `like`."""
        ...

    def token(self, x: Any) -> Any:
        """What an array has in common with all that can be reduced with the same launches; None where only a closer
        look can say."""
        ...

    def repeat(self, again: Again, x: Any) -> Any:
        """A known reduction of another array with the same token."""
        ...

    def packed(self, x: Any, shape: tuple[int, ...], order: tuple[int, ...], stream: Any) -> Any:
        """A C-contiguous copy, broadcast to a shape, with the axes in an order."""
        ...

    def fill(self, x: Any, value: Any, stream: Any) -> None:
        """Sets every element."""
        ...

    def assign(self, to: Any, source: Any, stream: Any) -> None:
        """Copies the elements of an array of the same shape and dtype."""
        ...

    def upload(self, like: Any, host: Any, stream: Any) -> Any:
        """A host array beside `like`."""
        ...

    def to_host(self, x: Any, stream: Any) -> Any:
        """The elements as a numpy array, bfloat16 as the 16-bit integers of its bits."""
        ...

    def finished(self, like: Any, out: Any, memory: Any, stream: Any) -> Any:
        """The result as the caller's kind of array, with what the device wrote to its `memory`, if it did."""
        ...


def span(first: int, shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> tuple[int, int]:
    """The lowest byte of an array whose first element lies at `first`, and the one behind its highest."""
    reaches = [(length - 1) * stride for length, stride in zip(shape, strides, strict=True)]
    low = first + sum(reach for reach in reaches if reach < 0)
    return low, first + sum(reach for reach in reaches if reach > 0) + size


KNOWN: dict[type, Library] = {}  # by the type of the array, where that alone decides
HOST_DLPACK = (1, 3)  # DLPack's numbers for memory of the host, plain and pinned


def library_of(x: Any) -> Library | None:
    """The library of an array, or None for what is no array at all."""
    kind = type(x)
    found = KNOWN.get(kind)
    if found is None:
        found, decides = _find(x)
        if found is not None and decides:
            KNOWN[kind] = found
    return found


def _find(x: Any) -> tuple[Library | None, bool]:
    """The library of an array, and whether all of its type have the same."""
    home = _home(x)
    if home == "numpy":
        return (_library("opencl", "NumpyArrays") if hasattr(x, "__array_interface__") else None), True
    if home == "pyopencl":
        return (_library("opencl", "PyopenclArrays") if hasattr(x, "base_data") else None), True
    if home == "torch":
        return (_library("torch", "TorchArrays") if hasattr(x, "data_ptr") else None), True
    if home == "cupy":
        return (_library("cuda", "CupyArrays") if hasattr(x, "__cuda_array_interface__") else None), True
    if hasattr(type(x), "__dlpack__") and home not in ("numba",):
        # One type for all devices: each array says where it lies.
        is_host = x.__dlpack_device__()[0] in HOST_DLPACK
        return _library(*(("opencl", "DlpackHostArrays") if is_host else ("cuda", "DlpackArrays"))), False
    if hasattr(x, "__cuda_array_interface__"):
        return _library("cuda", "InterfaceArrays"), True
    if hasattr(x, "__array_interface__"):
        return _library("opencl", "NumpyArrays"), True
    return None, True


# The array types whose subclasses go with them, wherever those are defined.
_TYPES = (("numpy", "ndarray"), ("cupy", "ndarray"), ("torch", "Tensor"))


def _home(x: Any) -> str:
    """The package that an array is of; of a subclass, that of its base."""
    for package, name in _TYPES:
        if package in sys.modules and isinstance(x, getattr(sys.modules[package], name, ())):
            return package
    return type(x).__module__.partition(".")[0]


Made = TypeVar("Made")


def once(make: Callable[..., Made]) -> Callable[..., Made]:
    """A function that makes one thing for each set of arguments, whichever thread asks first."""
    made: dict[tuple[Any, ...], Made] = {}
    lock = threading.RLock()

    @functools.wraps(make)
    def found(*arguments: Any) -> Made:
        if arguments not in made:
            with lock:
                if arguments not in made:
                    made[arguments] = make(*arguments)
        return made[arguments]

    return found


@once
def _library(module: str, name: str) -> Library:
    """The one instance of a library."""
    return cast(Library, getattr(importlib.import_module(f"redtune.arrays.{module}"), name)())
