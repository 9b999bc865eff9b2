"""AMD GPUs through CuPy for ROCm and hiprtc.

The verbs are the CUDA backend's: CuPy speaks both. With no AMD GPU, `redtune.amdgpu` compiles the same text with clang.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from redtune.backends import Call, Inputs, Replay, Rival, cuda
from redtune.config import Config, is_read
from redtune.dialect import Dialect
from redtune.errors import BackendMissing, UsageError
from redtune.lanes import Move, moves_of
from redtune.libraries import cupy_rival
from redtune.operators import Operator
from redtune.types import Device, Kernel, Problem
from redtune.without_cupy import is_built_for_cuda

CDNA_WAVE = 64
RDNA_WAVES = (32, 64)
NOT_FOR_ROCM = "the hip backend needs CuPy for ROCm, and the CuPy installed here is built for CUDA"


def _is_cdna(arch: str) -> bool:
    return arch.startswith("gfx9")


def _hardware_wave(config: Config, device: Device) -> int:
    """CDNA has one wave size. RDNA is compiled for the one the config asks for."""
    if _is_cdna(device.arch):
        return CDNA_WAVE
    return config.wave if is_read("wave", config) else RDNA_WAVES[0]


def _moves(config: Config, device: Device, width: int) -> tuple[Move, ...]:
    """The steps in which lanes meet in registers, for the exchange that is made of them."""
    return moves_of(width, _is_cdna(device.arch)) if config.exchange == "dpp" else ()


def _refusals(config: Config, problem: Problem, op: Operator, device: Device) -> Iterator[str]:
    if config.hint == "no_allocate":
        yield "hint no_allocate has no spelling in HIP; streaming has"
    if is_read("exchange", config) and config.exchange == "redux":
        yield "exchange redux is an NVIDIA instruction"


DIALECT = Dialect(
    name="hip",
    about_waves="On RDNA the vendor does not support waves of 64 lanes in HIP.",
    types=cuda.DIALECT.types,
    suffix_64="LL",
    raw={
        1: "unsigned char",
        2: "unsigned short",
        4: "unsigned int",
        8: "unsigned int __attribute__((ext_vector_type(2)))",
        16: "unsigned int __attribute__((ext_vector_type(4)))",
    },
    infinity={"float32": "__builtin_inff()", "float64": "__builtin_inf()"},
    nan={"float32": '__builtin_nanf("")', "float64": '__builtin_nan("")'},
    hardware_wave=_hardware_wave,
    refusals=_refusals,
    moves=_moves,
    # HIP has none but an addition on signed 64-bit integers; a loop over compare-and-swap stands in.
    atomics={key: text for key, text in cuda.DIALECT.atomics.items() if key[1] != "int64" or key[0] == "add"},
)


class StreamReplay:
    """Calls put on the stream one after the other between two events: capture is not everywhere in ROCm's CuPy."""

    def __init__(self, cupy: Any, stream: Any, calls: Sequence[Call]) -> None:
        self.cupy, self.stream, self.calls = cupy, stream, calls
        self.events = cupy.cuda.Event(), cupy.cuda.Event()

    def run(self) -> float:
        start, end = self.events
        with self.stream:
            start.record(self.stream)
            for call in self.calls:
                for function, grid, block, args in call.steps:
                    function(grid, block, args, stream=self.stream)
            end.record(self.stream)
        end.synchronize()
        return float(self.cupy.cuda.get_elapsed_time(start, end)) * 1e-3


class HipSession(cuda.CudaSession):
    """One AMD GPU and one stream of its own."""

    def replay(self, calls: Sequence[Call]) -> Replay:
        return StreamReplay(self.cupy, self.stream, calls)

    def rivals(self, problem: Problem, data: Inputs, compiled: Path | str) -> Iterator[Rival | tuple[str, str]]:
        yield "rocPRIM", "it is not measured yet"
        try:
            yield cupy_rival(self, problem, data)
        except BackendMissing as error:
            yield "cupy", str(error)


class Backend(cuda.Backend):
    """HIP through CuPy for ROCm."""

    dialect = DIALECT

    def devices(self) -> list[Device]:
        if is_built_for_cuda():
            raise BackendMissing(NOT_FOR_ROCM)
        try:
            import cupy
        except ImportError as error:
            raise BackendMissing(
                f"the hip backend needs CuPy for ROCm: pip install 'redtune[rocm7]' ({error})"
            ) from error
        if not cupy.cuda.runtime.is_hip:
            raise BackendMissing(NOT_FOR_ROCM)
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise BackendMissing(f"the hip backend found no AMD GPU or driver ({error})") from error
        return [self._hip_device(cupy, index) for index in range(count)]

    def _hip_device(self, cupy: Any, index: int) -> Device:
        properties = cupy.cuda.runtime.getDeviceProperties(index)
        # The whole name, features included: gfx90a:sramecc+:xnack- runs other code than gfx90a:xnack+.
        arch = properties["gcnArchName"].decode()
        stand_in = self.describe(arch.partition(":")[0])
        return Device(
            backend="hip",
            index=index,
            name=properties["name"].decode(),
            vendor="AMD",
            arch=arch,
            kind="gpu",
            # Asked of the device: the compile-time constant can disagree under run-time compilation.
            waves=(properties["warpSize"],) if _is_cdna(arch) else RDNA_WAVES,
            max_block=properties["maxThreadsPerBlock"],
            lds_bytes=properties["sharedMemPerBlock"],
            compute_units=properties["multiProcessorCount"],
            cache_bytes=properties["l2CacheSize"],
            memory_bytes=properties["totalGlobalMem"],
            features=stand_in.features,
            toolchain=f"hiprtc, cupy {cupy.__version__}",
            driver=f"ROCm {cupy.cuda.runtime.driverGetVersion()}",
        )

    def describe(self, arch: str) -> Device:
        if not re.fullmatch(r"gfx\d[0-9a-f]{2,3}(:[a-z0-9:+-]+)?", arch):
            raise UsageError(f"{arch!r} is not an AMD architecture: write gfx942, say")
        return Device(
            backend="hip",
            index=0,
            name=arch,
            vendor="AMD",
            arch=arch,
            kind="gpu",
            waves=(CDNA_WAVE,) if _is_cdna(arch) else RDNA_WAVES,
            max_block=1024,
            lds_bytes=64 * 1024,
            compute_units=304,
            cache_bytes=0,
            memory_bytes=0,
            features=("atomics_64", "fp64", "device_atomics"),
            toolchain="",
            driver="",
        )

    def counts(self, kernel: Kernel, device: Device) -> dict[str, int]:
        return {}

    def build_library(self, problem: Problem, arch: str) -> Path:
        raise BackendMissing("rocPRIM is not measured yet")

    def open(self, device: Device) -> HipSession:
        return HipSession(cuda.import_cupy(), device)

    def compile(self, kernel: Kernel, device: Device) -> bytes:
        """A code object from clang, which needs no GPU; CuPy's module loads it as it loads hiprtc's."""
        from redtune.amdgpu import compile_code_object

        wave = None if _is_cdna(device.arch) else _hardware_wave(kernel.config, device)
        return compile_code_object(kernel.source, device.arch, wave)
