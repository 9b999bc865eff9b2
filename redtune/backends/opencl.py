"""OpenCL through pyopencl: Intel's CPU runtime from PyPI, PoCL, and GPUs of any vendor with a driver."""

from __future__ import annotations

import contextlib
import hashlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redtune.backends import Call, Inputs, Rival
from redtune.clock import turning
from redtune.config import Config, is_read
from redtune.dialect import Dialect
from redtune.dtypes import dtype_named
from redtune.errors import BackendMissing, CompileError, UsageError
from redtune.intel import choose_target, chosen_target, vendor_folder
from redtune.load import TOGETHER, kept_busy
from redtune.numpies import numpy_rival
from redtune.operators import Operator
from redtune.types import Device, Kernel, Launch, Problem, Resources

if TYPE_CHECKING:
    import numpy as np

WAVES = (32, 64)
# A CPU's compiler turns every lane of a sub-group into vector code: longer folds compile for minutes and run no faster.
CPU_UNROLLED = 32
CPU_STREAMED = 4  # Intel's compiler crashes on narrower streaming loads
ORDER_ACQ_REL, SCOPE_DEVICE = 1 << 1, 1 << 5


def _refusals(config: Config, problem: Problem, op: Operator, device: Device) -> Iterator[str]:
    if is_read("exchange", config) and config.exchange == "redux":
        yield "exchange redux is an NVIDIA instruction"
    elif is_read("exchange", config) and config.exchange == "dpp":
        yield "exchange dpp is made of AMD instructions, and OpenCL cannot spell them"
    elif is_read("wave", config):
        if config.wave not in device.waves:
            yield f"{device.name} has no sub-groups of {config.wave} lanes that a kernel can ask for"
        elif config.exchange == "shuffle" and "subgroup_shuffle" not in device.features:
            yield f"exchange shuffle needs cl_khr_subgroup_shuffle_relative, which {device.name} lacks"
    if config.hint == "no_allocate":
        yield "hint no_allocate has no spelling in OpenCL; streaming has"
    unrolled = config.items * config.vector
    if device.kind == "cpu" and unrolled > CPU_UNROLLED:
        product = f"items {config.items} x vector {config.vector}"
        yield f"{product} unrolls {unrolled} elements; at most {CPU_UNROLLED} on a CPU"
    if config.hint == "streaming" and "nontemporal" not in device.features:
        yield f"hint streaming needs a compiler built on clang, which {device.name} does not show"
    load = config.vector * dtype_named(problem.dtype).bytes
    if config.hint == "streaming" and device.kind == "cpu" and (load < CPU_STREAMED or problem.is_masked):
        yield f"hint streaming needs loads of at least {CPU_STREAMED} bytes on a CPU, not {load}"


_ATOMICS_32 = {"int32": "int", "uint32": "uint"}
_ATOMICS_64 = {"int64": "long", "uint64": "ulong"}

DIALECT = Dialect(
    name="opencl",
    asks_wave=True,
    about_waves="tail: the size of sub-group that was asked for; hw: the one that the device granted.",
    types={
        "float16": "ushort",
        "bfloat16": "ushort",
        "float32": "float",
        "float64": "double",
        "bool": "uchar",
        "int8": "char",
        "uint8": "uchar",
        "int16": "short",
        "uint16": "ushort",
        **_ATOMICS_32,
        **_ATOMICS_64,
    },
    suffix_64="L",
    raw={1: "uchar", 2: "ushort", 4: "uint", 8: "uint2", 16: "uint4"},
    infinity={"float32": "INFINITY", "float64": "(double)INFINITY"},
    nan={"float32": "NAN", "float64": "(double)NAN"},
    hardware_wave=lambda config, device: config.wave,
    refusals=_refusals,
    atomics={
        ("add", "uint32"): "atomic_add((volatile __global uint *)out, {value})",
        ("add", "uint64"): "atom_add((volatile __global ulong *)out, {value})",
        ("add", "int64"): "atom_add((volatile __global long *)out, {value})",
        **{
            (m, d): f"atomic_{m}((volatile __global {t} *)out, {{value}})"
            for m in ("max", "min")
            for d, t in _ATOMICS_32.items()
        },
        **{
            (m, d): f"atom_{m}((volatile __global {t} *)out, {{value}})"
            for m in ("max", "min")
            for d, t in _ATOMICS_64.items()
        },
    },
    address_type="uintptr_t",
)


def _pyopencl() -> Any:
    folder = vendor_folder()
    if folder is not None:
        os.environ["OCL_ICD_VENDORS"] = folder.name
    choose_target()
    try:
        import pyopencl
    except ImportError as error:
        raise BackendMissing(f"the opencl backend needs pyopencl: pip install 'redtune[cpu]' ({error})") from error
    try:
        pyopencl.get_platforms()  # the loader reads its folder once, here
    except pyopencl.LogicError as error:
        raise BackendMissing(
            "the opencl backend found no OpenCL platform: pip install 'redtune[cpu]' brings one for x86 CPUs"
        ) from error
    finally:
        if folder is not None:
            del os.environ["OCL_ICD_VENDORS"]
            folder.cleanup()
    warnings.filterwarnings("ignore", category=pyopencl.CompilerWarning)
    return pyopencl


_PROBE = """
__attribute__((intel_reqd_sub_group_size(%d))) __kernel void probe(__global uint *out) {
    out[get_global_id(0)] = get_sub_group_size();
}
"""


def _granted_waves(cl: Any, device: Any, about: Device) -> tuple[int, ...]:
    """The sub-group sizes a kernel gets when it asks: tried and read back, as the query is not in every binding."""
    import numpy as np

    if "cl_intel_required_subgroup_size" not in device.extensions:
        return ()
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    granted = []
    for wave in WAVES:
        try:
            program = _probe(cl, context, device, about, wave)
            out = np.zeros(wave, np.uint32)
            buffer = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, out.nbytes)
            cl.Kernel(program, "probe")(queue, (wave,), (wave,), buffer)
            cl.enqueue_copy(queue, out, buffer)
        except cl.Error:
            continue
        if (out == wave).all():
            granted.append(wave)
    return tuple(granted)


def _probe(cl: Any, context: Any, device: Any, about: Device, wave: int) -> Any:
    """The probe of a size, which is compiled once and kept: the compiler's start is half of what listing devices takes.
    It runs every time, so that it is the device who says what it grants."""
    from redtune import store

    source, flags = _PROBE % wave, ("-cl-std=CL2.0",)
    digest = hashlib.sha256("\n".join((source, *flags)).encode()).hexdigest()[:16]
    problem = Problem("max", "uint32", "uint32", wave)
    kernel = Kernel(problem, Config(), "opencl", about.arch, source, flags, (), 0, 0, digest)
    binary = store.read_binary(kernel, about)
    if binary is not None:
        with contextlib.suppress(cl.Error):  # of another driver, whatever it says of itself
            return cl.Program(context, [device], [binary]).build(cache_dir=False)
    program = cl.Program(context, source).build(options=list(flags), cache_dir=False)
    store.keep_binary(kernel, about, bytes(program.get_info(cl.program_info.BINARIES)[0]))
    return program


def _device_atomics(cl: Any, device: Any) -> bool:
    try:
        found = int(device.get_info(cl.device_info.ATOMIC_MEMORY_CAPABILITIES))
    except (cl.Error, AttributeError):
        return False
    return bool(found & ORDER_ACQ_REL) and bool(found & SCOPE_DEVICE)


def _features(cl: Any, device: Any) -> tuple[str, ...]:
    extensions = device.extensions.split()
    has = {
        "fp64": "cl_khr_fp64" in extensions,
        "atomics_64": "cl_khr_int64_base_atomics" in extensions and "cl_khr_int64_extended_atomics" in extensions,
        "device_atomics": _device_atomics(cl, device),
        "subgroup_shuffle": "cl_khr_subgroup_shuffle_relative" in extensions,
        "nontemporal": device.platform.name.startswith(("Intel", "Portable Computing Language")),
    }
    return tuple(name for name, there in has.items() if there)


def _toolchain(device: Any, is_cpu: bool) -> str:
    platform = device.platform.name.strip()
    told = chosen_target() if is_cpu and platform.startswith("Intel") else ()
    return ", ".join((platform, device.version.strip(), *told))


def build_options(kernel: Kernel, device: Device) -> list[str]:
    """What a kernel is compiled with: sub-groups and atomics across blocks are of OpenCL C 3.0."""
    standard = "-cl-std=CL3.0" if "device_atomics" in device.features or device.waves else "-cl-std=CL1.2"
    return [standard, *kernel.flags]


class Backend:
    """OpenCL devices of every platform: CPUs after GPUs, and those without sub-groups last."""

    dialect = DIALECT

    def found(self) -> tuple[Any, list[Any]]:
        cl = _pyopencl()
        found = [device for platform in cl.get_platforms() for device in platform.get_devices()]
        if not found:
            raise BackendMissing("the opencl backend found a platform but no device")

        def least_able_last(device: Any) -> tuple[bool, bool]:
            is_cpu = bool(device.type & cl.device_type.CPU)
            return is_cpu, "cl_intel_required_subgroup_size" not in device.extensions

        return cl, sorted(found, key=least_able_last)

    def devices(self) -> list[Device]:
        cl, found = self.found()
        return [self._device(cl, index, device) for index, device in enumerate(found)]

    def _device(self, cl: Any, index: int, device: Any) -> Device:
        is_cpu = bool(device.type & cl.device_type.CPU)
        found = Device(
            backend="opencl",
            index=index,
            name=device.name.strip(),
            vendor=device.vendor.strip(),
            arch=_architecture(device),
            kind="cpu" if is_cpu else "gpu",
            waves=(),
            max_block=int(device.max_work_group_size),
            lds_bytes=int(device.local_mem_size),
            compute_units=int(device.max_compute_units),
            cache_bytes=max(int(device.global_mem_cache_size), _host_cache_bytes() if is_cpu else 0),
            memory_bytes=int(device.global_mem_size),
            features=_features(cl, device),
            toolchain=_toolchain(device, is_cpu),
            driver=device.driver_version.strip(),
        )
        return replace(found, waves=_granted_waves(cl, device, found))

    def describe(self, arch: str) -> Device:
        if not arch:
            raise UsageError("an OpenCL architecture needs a name")
        return Device(
            backend="opencl",
            index=0,
            name=arch,
            vendor="",
            arch=arch,
            kind="cpu",
            waves=WAVES,
            max_block=1024,
            lds_bytes=32 * 1024,
            compute_units=2,
            cache_bytes=0,
            memory_bytes=0,
            features=("fp64", "atomics_64", "device_atomics", "subgroup_shuffle", "nontemporal"),
            toolchain="",
            driver="",
        )

    def compile(self, kernel: Kernel, device: Device) -> bytes:
        cl, found = self.found()
        context = cl.Context([found[device.index]])
        program = cl.Program(context, kernel.source)
        try:
            built = program.build(options=build_options(kernel, device), cache_dir=False)
        except cl.RuntimeError as error:
            raise CompileError(str(error), kernel.source) from error
        return bytes(built.get_info(cl.program_info.BINARIES)[0])

    def counts(self, kernel: Kernel, device: Device) -> dict[str, int]:
        return {}

    def build_library(self, problem: Problem, arch: str) -> Path:
        raise BackendMissing("no library for OpenCL has to be compiled")

    def is_slow_at_first(self, problem: Problem) -> bool:
        return False

    def open(self, device: Device) -> OpenclSession:
        cl, found = self.found()
        return OpenclSession(cl, found[device.index], device.kind == "cpu")


def _architecture(device: Any) -> str:
    """A name for what changes the code: the vendor's model name, in letters that a file name can hold."""
    return "-".join("".join(c if c.isalnum() else " " for c in device.name).split()).lower()


def _host_cache_bytes() -> int:
    """The last-level cache of the host's CPU, which OpenCL reports as its second level."""
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        unit = {"K": 1024, "M": 1024**2}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KM")) * unit)
    return max(sizes)


class OpenclReplay:
    """Calls put on an in-order queue together, timed from the first kernel's start to the last one's end."""

    def __init__(self, cl: Any, queue: Any, calls: Sequence[Call]) -> None:
        self.cl, self.queue = cl, queue
        self.calls = calls
        self.steps = [step for call in calls for step in call.steps]

    def run(self) -> float:
        events = [
            self.cl.enqueue_nd_range_kernel(self.queue, kernel, (grid * block,), (block,))
            for kernel, grid, block in self.steps
        ]
        events[-1].wait()
        return float(events[-1].profile.end - events[0].profile.start) * 1e-9


class OpenclSession:
    """One device, one context, one in-order queue."""

    def __init__(self, cl: Any, device: Any, shares_memory: bool) -> None:
        self.cl, self.device, self.shares_memory = cl, device, shares_memory
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context, properties=cl.command_queue_properties.PROFILING_ENABLE)

    def load(self, kernel: Kernel, binary: bytes) -> Any:
        return self.cl.Program(self.context, [self.device], [binary]).build(cache_dir=False)

    def upload(self, host: np.ndarray[Any, Any]) -> Any:
        import numpy as np

        flags = self.cl.mem_flags
        how = flags.USE_HOST_PTR if self.shares_memory else flags.COPY_HOST_PTR
        return self.cl.Buffer(self.context, flags.READ_WRITE | how, hostbuf=np.require(host, requirements=["C", "W"]))

    def empty(self, size: int) -> Any:
        return self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, max(1, size))

    def array(self, host: np.ndarray[Any, Any]) -> Any:
        return host

    def part(self, buffer: Any, first: int, size: int) -> Any:
        return buffer.get_sub_region(first, max(1, size))

    def write(self, buffer: Any, host: np.ndarray[Any, Any]) -> None:
        self.cl.enqueue_copy(self.queue, buffer, host, is_blocking=True)

    def download(self, buffer: Any, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        import numpy as np

        host = np.empty_like(like)
        self.cl.enqueue_copy(self.queue, host, buffer, is_blocking=True)
        return host

    def bind(self, program: Any, launches: Sequence[Launch], values: dict[str, Any]) -> Call:
        import numpy as np

        steps = []
        # Of its own: arguments belong to a kernel. All at once, as one by its name takes twice as long.
        kernels = {kernel.function_name: kernel for kernel in program.all_kernels()}
        for launch in launches:
            kernel = kernels[launch.entry]
            found = [values[name] for name in launch.args]
            kernel.set_args(*(np.int64(v) if isinstance(v, int) else v for v in found))
            steps.append((kernel, launch.grid, launch.block))
        return Call(tuple(steps), tuple(values.values()))

    def resources(self, program: Any, launch: Launch) -> Resources:
        kernel, facts = self.cl.Kernel(program, launch.entry), self.cl.kernel_work_group_info
        lds = kernel.get_work_group_info(facts.LOCAL_MEM_SIZE, self.device)
        try:
            asked = self.cl.kernel_sub_group_info.MAX_SUB_GROUP_SIZE_FOR_NDRANGE
            wave = int(kernel.get_sub_group_info(self.device, asked, (launch.block,)))
        except self.cl.Error:
            wave = None  # a device without sub-groups
        return Resources(None, int(lds), None, None, wave, {})

    def run(self, call: Call) -> None:
        for kernel, grid, block in call.steps:
            self.cl.enqueue_nd_range_kernel(self.queue, kernel, (grid * block,), (block,))
        self.queue.finish()

    def under_load(self, calls: Sequence[Call]) -> AbstractContextManager[None]:
        queue = self.cl.CommandQueue(self.context)

        def turn() -> None:
            for call in (*calls,) * TOGETHER:
                for kernel, grid, block in call.steps:
                    self.cl.enqueue_nd_range_kernel(queue, kernel, (grid * block,), (block,))
            queue.finish()

        return kept_busy(turn)

    def replay(self, calls: Sequence[Call]) -> OpenclReplay:
        return OpenclReplay(self.cl, self.queue, calls)

    def copy(self, to: Any, source: Any, size: int) -> float:
        event = self.cl.enqueue_copy(self.queue, to, source, byte_count=size)
        event.wait()
        return float(event.profile.end - event.profile.start) * 1e-9

    def baseline(
        self, problem: Problem, data: Sequence[Any], hosts: Sequence[np.ndarray[Any, Any]]
    ) -> tuple[str, Callable[[], float]]:
        rival = self._numpy(problem, lambda k: hosts[k])
        return rival.name, turning(rival.replay, len(hosts))

    def warm(self, problem: Problem) -> None:
        """Nothing: numpy compiles nothing."""

    def rivals(self, problem: Problem, data: Inputs, compiled: Path | str) -> Iterator[Rival | tuple[str, str]]:
        try:
            yield self._numpy(problem, data.host)
        except BackendMissing as error:
            yield "numpy", str(error)

    def _numpy(self, problem: Problem, host: Callable[[int], np.ndarray[Any, Any]]) -> Rival:
        if not self.shares_memory:
            raise BackendMissing("no library for OpenCL devices other than CPUs is at hand")
        return numpy_rival(problem, host)
