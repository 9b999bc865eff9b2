"""Launches on NVIDIA GPUs that may start before the one in front of them has ended: programmatic dependent launches,
for which CuPy has no call. The kernels themselves say when the next may start and when they wait for the last."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from redtune.errors import RedtuneError

MIN_CUDA = 12030  # of a driver that captures such launches into a graph
PROGRAMMATIC_STREAM_SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_ of that name


class Attribute(ctypes.Structure):
    """CUlaunchAttribute, as far as it is a number."""

    _fields_ = (("id", ctypes.c_uint), ("pad", ctypes.c_uint), ("value", ctypes.c_int), ("rest", ctypes.c_char * 60))


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint),
    )


@functools.cache
def _launch_kernel() -> Any:
    """The driver's cuLaunchKernelEx."""
    launch = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    launch.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    return launch


class EarlyLaunch:
    """An early launch of a function, given by the driver's pointer, on `grid` blocks of `block` threads. One thread at
    a time may call it."""

    def __init__(self, function: int, grid: int, block: int) -> None:
        self.function = function
        self.attribute = Attribute(PROGRAMMATIC_STREAM_SERIALIZATION, 0, 1)
        attributes = ctypes.pointer(self.attribute)
        self.config = LaunchConfig((grid, 1, 1), (block, 1, 1), 0, None, attributes, 1)
        self.at = ctypes.addressof(self.config)

    def __call__(self, stream: int, params: int, extra: int) -> None:
        """Launches on a stream's handle, with the address of pointers to the arguments, as CuPy's `launchKernel` does
        once it has a grid. Raises RedtuneError."""
        self.config.stream = stream
        status = _launch_kernel()(self.at, self.function, params, extra)
        if status:
            raise RedtuneError(f"the driver refused an early launch: CUDA error {status}")


class EarlyFunction:
    """A function of CuPy's that is launched early, called as CuPy's own are."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, grid: tuple[int], block: tuple[int], args: Sequence[Any], stream: Any) -> None:
        held = [ctypes.create_string_buffer(_bytes_of(value)) for value in args]
        params = (ctypes.c_void_p * len(held))(*map(ctypes.addressof, held))
        EarlyLaunch(self.function.ptr, *grid, *block)(stream.ptr, ctypes.addressof(params), 0)


def _bytes_of(value: Any) -> bytes:
    """An argument as the driver reads it: a pointer to memory, or a number of numpy's."""
    return bytes(ctypes.c_void_p(value.ptr)) if hasattr(value, "ptr") else bytes(value.tobytes())
