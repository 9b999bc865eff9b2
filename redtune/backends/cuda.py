"""NVIDIA GPUs through CuPy and NVRTC. NVRTC compiles for any architecture with no GPU present."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redtune import cub
from redtune.backends import Call, Inputs, Replay, Rival
from redtune.clock import turning
from redtune.config import Config, is_read, team_of
from redtune.cuda_packings import PACKINGS
from redtune.dialect import Dialect
from redtune.dtypes import Dtype
from redtune.early import MIN_CUDA, EarlyFunction
from redtune.errors import BackendMissing, CompileError, UsageError
from redtune.libraries import cuda_rivals, cupy_rival, warm_cupy
from redtune.load import TOGETHER, kept_busy
from redtune.operators import Operator, field_type
from redtune.plan import is_split
from redtune.types import Device, Kernel, Launch, Problem, Resources
from redtune.without_cupy import driver_fault

if TYPE_CHECKING:
    import numpy as np

LANES = 32
DOUBLE_ATOMICS = 60  # the first architecture that has an atomicAdd of doubles
# The driver's numbers for bytes of shared memory, bytes of local memory, registers.
_FUNCTION_ATTRIBUTES = 1, 3, 4
# How lanes, waves and blocks meet, in NVIDIA's virtual instructions.
_MEETINGS = {
    "shuffles": r"\bshfl\.sync",
    "redux": r"\bredux\.sync",
    "barriers": r"\b(?:bar|barrier)\.(?:cta\.)?sync|\bbar\.warp\.sync",
    "shared loads": r"\bld\.shared",
    "shared stores": r"\bst\.shared",
}
NAMED_BARRIERS = 15  # sixteen in hardware, and barrier 0 is the whole block's


def _arch_number(arch: str) -> int:
    found = re.fullmatch(r"sm_(\d{2,3})[af]?", arch)
    if found is None:
        raise UsageError(f"{arch!r} is not a CUDA architecture: write sm_90, say")
    return int(found[1])


def _refusals(config: Config, problem: Problem, op: Operator, device: Device) -> Iterator[str]:
    if config.hint == "no_allocate" and "no_allocate" not in device.features:
        yield f"hint no_allocate needs sm_80 or newer, not {device.arch}"
    adds_doubles = op.native == "add" and problem.accumulate == "float64"
    if config.combine == "atomic" and adds_doubles and _arch_number(device.arch) < DOUBLE_ATOMICS:
        yield f"combine atomic of float64 sums needs sm_{DOUBLE_ATOMICS} or newer, not {device.arch}"
    if is_read("exchange", config) and config.exchange == "redux":
        fields = [field_type(kind, problem.accumulate) for _, kind in op.state]
        if "redux" not in device.features:
            yield f"exchange redux needs sm_80 or newer, not {device.arch}"
        elif len(fields) != 1 or fields[0] not in ("int32", "uint32") or not op.native:
            yield f"exchange redux needs a state of one 32-bit integer, and {op.name} of {problem.dtype} has {fields}"
        if config.wave > LANES:
            yield f"exchange redux reduces {LANES} lanes, not {config.wave}"
        if team_of(config) < LANES:
            yield f"exchange redux reduces {LANES} lanes, not a team of {team_of(config)}"
    if is_read("exchange", config) and config.exchange == "dpp":
        yield "exchange dpp is made of AMD instructions"
    if config.exchange == "shuffle" and config.wave > LANES:
        # Those threads whose tail is more than one hardware wave: of a block, and of a second pass.
        widest = max(
            config.block if team_of(config) > LANES else 0,
            config.second_block if is_read("second_block", config) and is_split(problem, config) else 0,
        )
        if widest // config.wave > NAMED_BARRIERS:
            tails = widest // config.wave
            yield f"{tails} tails of {config.wave} lanes need a named barrier each, and there are {NAMED_BARRIERS}"


def _words(dtype: Dtype, arch: str) -> Mapping[str, str]:
    if dtype.name == "float32" and _arch_number(arch) >= 80:
        return {"larger": "max_nan({0}, {1})", "smaller": "min_nan({0}, {1})", "decay": "decay_of({0})"}
    return {}


_ATOMIC_TYPES = {"int32": "int", "uint32": "unsigned int", "int64": "long long", "uint64": "unsigned long long"}

DIALECT = Dialect(
    name="cuda",
    profiler="ncu",
    about_waves="hw: lanes that issue together, always 32 on NVIDIA; a tail of 64 is a pair of such waves, which meet "
    "through shared memory and a named barrier of 64 threads.",
    types={
        "float16": "unsigned short",
        "bfloat16": "unsigned short",
        "float32": "float",
        "float64": "double",
        "bool": "unsigned char",
        "int8": "signed char",
        "uint8": "unsigned char",
        "int16": "short",
        "uint16": "unsigned short",
        **_ATOMIC_TYPES,
    },
    suffix_64="LL",
    raw={1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "uint2", 16: "uint4"},
    infinity={"float32": "__int_as_float(0x7f800000)", "float64": "__longlong_as_double(0x7ff0000000000000LL)"},
    nan={"float32": "__int_as_float(0x7fc00000)", "float64": "__longlong_as_double(0x7ff8000000000000LL)"},
    hardware_wave=lambda config, device: LANES,
    refusals=_refusals,
    lane_mask="0xffffffffu",
    flags=lambda config, arch: ("--std=c++17", "--fmad=true"),
    words=_words,
    packings=PACKINGS,
    atomics={
        ("add", "float32"): "atomicAdd((float *)out, {value})",
        ("add", "float64"): "atomicAdd((double *)out, {value})",
        **{("add", d): "atomicAdd(({type} *)out, {value})" for d in ("uint32", "uint64")},
        # Adding is the same for both signs, and only that of the unsigned has an instruction.
        ("add", "int64"): "atomicAdd((unsigned long long *)out, (unsigned long long){value})",
        **{("max", d): "atomicMax(({type} *)out, {value})" for d in _ATOMIC_TYPES},
        **{("min", d): "atomicMin(({type} *)out, {value})" for d in _ATOMIC_TYPES},
        **{
            (bits, d): f"atomic{bits.capitalize()}(({{type}} *)out, {{value}})"
            for bits in ("and", "or", "xor")
            for d in ("int32", "uint32", "uint64")
        },
    },
)


def import_cupy() -> Any:
    """CuPy, or BackendMissing saying how to get it."""
    try:
        import cupy
    except ImportError as error:
        raise BackendMissing(
            f"the cuda backend needs CuPy: pip install 'redtune[cuda13]' (or cuda12) ({error})"
        ) from error
    return cupy


def _features(number: int, cuda: int = MIN_CUDA) -> tuple[str, ...]:
    """Those of a compute capability, with a driver for a version of CUDA."""
    since = {"atomics_64": 50, "fp64": 50, "device_atomics": 70, "waiting_blocks": 70}
    since |= {"no_allocate": 80, "redux": 80, "clusters": 90} | ({"early_launches": 90} if cuda >= MIN_CUDA else {})
    return tuple(name for name, first in since.items() if number >= first)


def _driver() -> str:
    path = Path("/proc/driver/nvidia/version")
    found = re.search(r"\d{3,}\.\d+(?:\.\d+)?", path.read_text()) if path.exists() else None
    return found[0] if found else "unknown"


def compile_ptx(kernel: Kernel, device: Device) -> bytes:
    """The kernel in NVIDIA's virtual instructions, as text."""
    return _compile(kernel, f"--gpu-architecture={device.arch.replace('sm_', 'compute_')}", "getPTX").rstrip(b"\0")


def _compile(kernel: Kernel, option: str, get: str) -> bytes:
    nvrtc = import_cupy().cuda.nvrtc
    program = nvrtc.createProgram(kernel.source, "redtune.cu", (), ())
    try:
        nvrtc.compileProgram(program, (*kernel.flags, option))
        return bytes(getattr(nvrtc, get)(program))
    except nvrtc.NVRTCError as error:
        raise CompileError(nvrtc.getProgramLog(program) or str(error), kernel.source) from error
    finally:
        nvrtc.destroyProgram(program)


class Backend:
    """CUDA through CuPy."""

    dialect = DIALECT

    def devices(self) -> list[Device]:
        if fault := driver_fault():
            raise BackendMissing(f"the cuda backend found no NVIDIA GPU or driver ({fault})")
        cupy = import_cupy()
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise BackendMissing(f"the cuda backend found no NVIDIA GPU or driver ({error})") from error
        return [self._device(cupy, index) for index in range(count)]

    def _device(self, cupy: Any, index: int) -> Device:
        properties = cupy.cuda.runtime.getDeviceProperties(index)
        number = properties["major"] * 10 + properties["minor"]
        major, minor = cupy.cuda.nvrtc.getVersion()
        runtime = cupy.cuda.runtime.driverGetVersion()
        return Device(
            backend="cuda",
            index=index,
            name=properties["name"].decode(),
            vendor="NVIDIA",
            arch=f"sm_{number}",
            kind="gpu",
            waves=(LANES,),
            max_block=properties["maxThreadsPerBlock"],
            lds_bytes=properties["sharedMemPerBlock"],
            compute_units=properties["multiProcessorCount"],
            cache_bytes=properties["l2CacheSize"],
            memory_bytes=properties["totalGlobalMem"],
            features=_features(number, runtime),
            toolchain=f"nvrtc {major}.{minor}, cupy {cupy.__version__}",
            driver=f"{_driver()} (CUDA {runtime // 1000}.{runtime % 1000 // 10})",
        )

    def describe(self, arch: str) -> Device:
        number = _arch_number(arch)
        return Device(
            backend="cuda",
            index=0,
            name=arch,
            vendor="NVIDIA",
            arch=arch,
            kind="gpu",
            waves=(LANES,),
            max_block=1024,
            lds_bytes=48 * 1024,
            compute_units=132,
            cache_bytes=0,
            memory_bytes=0,
            features=_features(number),
            toolchain="",
            driver="",
        )

    def compile(self, kernel: Kernel, device: Device) -> bytes:
        return _compile(kernel, f"--gpu-architecture={device.arch}", "getCUBIN")

    def counts(self, kernel: Kernel, device: Device) -> dict[str, int]:
        text = compile_ptx(kernel, device).decode()
        return {name: len(re.findall(pattern, text)) for name, pattern in _MEETINGS.items()}

    def build_library(self, problem: Problem, arch: str) -> Path:
        return cub.build(problem, arch)

    def is_slow_at_first(self, problem: Problem) -> bool:
        return problem.dtype != "bfloat16"  # which CuPy has not

    def open(self, device: Device) -> CudaSession:
        return CudaSession(import_cupy(), device)


class CudaReplay:
    """Calls captured into a graph: one launch from the host replays them all."""

    def __init__(self, cupy: Any, stream: Any, calls: Sequence[Call]) -> None:
        self.cupy, self.stream, self.calls = cupy, stream, calls
        with stream:
            stream.begin_capture()
            try:
                for call in calls:
                    for function, grid, block, args in call.steps:
                        function(grid, block, args, stream=stream)
            finally:
                self.graph = stream.end_capture()
        self.graph.upload(stream)
        self.events = cupy.cuda.Event(), cupy.cuda.Event()

    def run(self) -> float:
        start, end = self.events
        start.record(self.stream)
        self.graph.launch(self.stream)
        end.record(self.stream)
        end.synchronize()
        return float(self.cupy.cuda.get_elapsed_time(start, end)) * 1e-3


class CudaSession:
    """One GPU and one stream of its own."""

    def __init__(self, cupy: Any, device: Device) -> None:
        self.cupy, self.arch = cupy, device.arch
        self.device = cupy.cuda.Device(device.index)
        self.device.use()
        self.stream = cupy.cuda.Stream(non_blocking=True)

    def load(self, kernel: Kernel, binary: bytes) -> Any:
        module = self.cupy.cuda.function.Module()
        module.load(binary)
        return module

    def upload(self, host: np.ndarray[Any, Any]) -> Any:
        buffer = self.cupy.cuda.alloc(max(1, host.nbytes))
        self.write(buffer, host)
        return buffer

    def empty(self, size: int) -> Any:
        # Not from the pool, which rounds sizes up and hands out what it had before.
        return self.cupy.cuda.MemoryPointer(self.cupy.cuda.Memory(max(1, size)), 0)

    def array(self, host: np.ndarray[Any, Any]) -> Any:
        import numpy as np

        return self.cupy.asarray(np.ascontiguousarray(host, host.dtype.newbyteorder("=")))

    def write(self, buffer: Any, host: np.ndarray[Any, Any]) -> None:
        import numpy as np

        host = np.ascontiguousarray(host)
        # On the stream of the kernels, which waits for no other: a plain copy returns once the bytes are staged, and
        # may arrive after the kernel that is launched next.
        buffer.copy_from_host_async(host.ctypes.data, host.nbytes, self.stream)
        self.stream.synchronize()

    def download(self, buffer: Any, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        import numpy as np

        host = np.empty_like(like)
        buffer.copy_to_host_async(host.ctypes.data, host.nbytes, self.stream)
        self.stream.synchronize()
        return host

    def bind(self, program: Any, launches: Sequence[Launch], values: dict[str, Any]) -> Call:
        import numpy as np

        steps = []
        for launch in launches:
            found = [values[name] for name in launch.args]
            args = tuple(np.int64(v) if isinstance(v, int) else v for v in found)
            function = program.get_function(launch.entry)
            called = EarlyFunction(function) if launch.is_early else function
            steps.append((called, (launch.grid,), (launch.block,), args))
        return Call(tuple(steps), (program,))

    def resources(self, program: Any, launch: Launch) -> Resources:
        driver, function = self.cupy.cuda.driver, program.get_function(launch.entry)
        lds, spilled, registers = (driver.funcGetAttribute(code, function.ptr) for code in _FUNCTION_ATTRIBUTES)
        blocks = driver.occupancyMaxActiveBlocksPerMultiprocessor(function.ptr, launch.block, 0)
        threads = self.device.attributes["MaxThreadsPerMultiProcessor"]
        return Resources(registers, lds, spilled, blocks * launch.block / threads, LANES, {})

    def run(self, call: Call) -> None:
        for function, grid, block, args in call.steps:
            function(grid, block, args, stream=self.stream)
        self.stream.synchronize()

    def under_load(self, calls: Sequence[Call]) -> AbstractContextManager[None]:
        stream = self.cupy.cuda.Stream(non_blocking=True)

        def turn() -> None:
            self.device.use()  # every thread has a device of its own
            for call in (*calls,) * TOGETHER:
                for function, grid, block, args in call.steps:
                    function(grid, block, args, stream=stream)
            stream.synchronize()

        return kept_busy(turn)

    def replay(self, calls: Sequence[Call]) -> Replay:
        return CudaReplay(self.cupy, self.stream, calls)

    def copy(self, to: Any, source: Any, size: int) -> float:
        start, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        start.record(self.stream)
        to.copy_from_device_async(source, size, self.stream)
        end.record(self.stream)
        end.synchronize()
        return float(self.cupy.cuda.get_elapsed_time(start, end)) * 1e-3

    def part(self, buffer: Any, first: int, size: int) -> Any:
        return buffer + first

    def baseline(
        self, problem: Problem, data: Sequence[Any], hosts: Sequence[np.ndarray[Any, Any]]
    ) -> tuple[str, Callable[[], float]]:
        rival = cupy_rival(self, problem, data)
        return rival.name, turning(rival.replay, len(data))

    def warm(self, problem: Problem) -> None:
        warm_cupy(self, problem)

    def rivals(self, problem: Problem, data: Inputs, compiled: Path | str) -> Iterator[Rival | tuple[str, str]]:
        return cuda_rivals(self, problem, data, compiled)
