"""Arrays on NVIDIA and AMD GPUs: CuPy's own, and any that speak the CUDA array interface or DLPack."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from redtune import store
from redtune.arrays import VARYING, Again, Form, once, span
from redtune.backends import backend_named
from redtune.backends.cuda import import_cupy
from redtune.dtypes import DTYPES, dtype_named
from redtune.early import EarlyLaunch
from redtune.types import Device, Kernel, Launch

POINTER_BYTES = 8
SCRATCH_ROUND = 1 << 12
SLOT_BYTES = 64  # more than any single result, and a multiple of what any load wants
SLOTS = 256


class Scratch:
    """Scratch of one stream: what runs there runs in order, so that one after the other may use it. Outgrown memory
    stays, since a captured graph may still name it."""

    def __init__(self, cupy: Any) -> None:
        self.cupy, self.lock = cupy, threading.Lock()
        self.partials: Any = None
        self.counter: Any = None
        self._outgrown: list[Any] = []

    def reserve(self, partials: int, counter: int) -> None:
        """At least so many bytes of each."""
        if partials and (self.partials is None or self.partials.size < partials):
            self._outgrown.append(self.partials)
            self.partials = self.cupy.empty(_rounded(partials), "uint8")
        if counter and (self.counter is None or self.counter.size < counter):
            self._outgrown.append(self.counter)
            self.counter = self.cupy.zeros(_rounded(counter), "uint8")


def _rounded(size: int) -> int:
    return -(-size // SCRATCH_ROUND) * SCRATCH_ROUND


class Step:
    """One launch: its function, its grid, and its arguments in memory that the driver reads."""

    __slots__ = ("at", "fills", "initial_at", "launch", "params", "values")

    def __init__(self, driver: Any, function: Any, launch: Launch, values: dict[str, Any]) -> None:
        self.values = (ctypes.c_int64 * len(launch.args))()
        # Scratch that nobody wants stays a null pointer.
        idle = {name for name in ("partials", "counter") if not values[name]}
        varying = [(k, name) for k, name in enumerate(launch.args) if name in VARYING and name not in idle]
        self.fills = [(k, name) for k, name in varying if name != "initial"]
        self.initial_at = next((k for k, name in varying if name == "initial"), None)
        for k, name in enumerate(launch.args):
            if name not in VARYING:
                self.values[k] = values[name]
        base = ctypes.addressof(self.values)
        self.params = (ctypes.c_void_p * len(launch.args))(*(base + POINTER_BYTES * k for k in range(len(launch.args))))
        self.at = ctypes.addressof(self.params)
        grid, block = (launch.grid, 1, 1), (launch.block, 1, 1)
        self.launch: Callable[[int, int, int], None] = (
            EarlyLaunch(function.ptr, launch.grid, launch.block)
            if launch.is_early
            else functools.partial(driver.launchKernel, function.ptr, *grid, *block, 0)
        )


class CudaEngine:
    """One GPU through CuPy's driver calls."""

    def __init__(self, cupy: Any, index: int) -> None:
        from cupy.cuda import driver

        self.cupy, self.index, self.driver = cupy, index, driver
        self.backend = backend_named("hip" if cupy.cuda.runtime.is_hip else "cuda")
        self.device: Device = self.backend.devices()[index]
        self._programs: dict[str, Any] = {}
        self._scratch: dict[int, Scratch] = {}
        self._lock = threading.RLock()
        self.slots: dict[int, list[Any]] = {}
        self._threads = threading.local()
        self._current_device = cupy.cuda.runtime.getDevice

    def load(self, kernel: Kernel) -> Any:
        """The loaded module, compiled once for every thread of this process and kept on disk for the next one."""
        with self._lock:
            code = kernel.code
            if code not in self._programs:
                module = self.cupy.cuda.function.Module()
                with self.cupy.cuda.Device(self.index):
                    binary = store.read_binary(kernel, self.device)
                    if binary is None or not _loads(module, binary, self.driver):
                        binary = self.backend.compile(kernel, self.device)
                        store.keep_binary(kernel, self.device, binary)
                        module = self.cupy.cuda.function.Module()
                        module.load(binary)
                self._programs[code] = module
            return self._programs[code]

    def scratch(self, stream: int) -> Scratch:
        """The scratch of a stream. The legacy and the per-thread default stream are streams like any other, except
        that every thread has its own of the latter."""
        per_thread = self.cupy.cuda.runtime.streamPerThread
        key = stream if stream != per_thread else -threading.get_ident()
        found = self._scratch.get(key)
        if found is None:
            with self._lock:
                found = self._scratch.setdefault(key, Scratch(self.cupy))
        return found

    def new_slot(self, stream: int) -> Any:
        """Memory for one small result, never used before, when `slots` has none left for the current stream. Many of
        them share one allocation, which lives as long as the last: allocating each would cost as much as the rest of a
        call."""
        whole = self.cupy.cuda.alloc(SLOTS * SLOT_BYTES)
        free = [whole + k * SLOT_BYTES for k in range(SLOTS)]
        place = free.pop()
        self.slots[stream] = free
        return place

    def is_current(self) -> bool:
        """Whether the calling thread can launch here as it stands."""
        try:
            return bool(self._threads.ready and self._current_device() == self.index)
        except AttributeError:
            return False

    def prepare(self, program: Any, launches: Sequence[Launch], values: dict[str, Any]) -> PreparedLaunches:
        """Launches whose memory is filled in call by call."""
        return PreparedLaunches(self, program, launches, values)


class PreparedLaunches:
    """Launches with everything but memory in place."""

    def __init__(self, engine: CudaEngine, program: Any, launches: Sequence[Launch], values: dict[str, Any]) -> None:
        self.engine, self.program = engine, program
        self.partials, self.counter = values["partials"], values["counter"]
        self.steps = [Step(engine.driver, program.get_function(launch.entry), launch, values) for launch in launches]
        self.lock = threading.Lock()

        # The common case by itself, with nothing to look up: one launch that needs neither scratch nor a second input.
        first = self.steps[0]
        names = {name for _, name in first.fills}
        self.is_simple = len(self.steps) == 1 and names <= {"data", "data_first", "out"} and first.initial_at is None
        if self.is_simple:
            at = {name: k for k, name in first.fills}
            self.data_at, self.start_at, self.out_at = at["data"], at["data_first"], at["out"]
            self.held, self.params, self.launch = first.values, first.at, first.launch

    def again(self, data: int, start: int, out: int, stream: int) -> None:
        """Launches on the current device, for one input and without an initial value."""
        if not self.is_simple:
            self({"data": data, "data_first": start, "out": out}, stream)
            return
        held = self.held
        with self.lock:
            held[self.data_at] = data
            held[self.start_at] = start
            held[self.out_at] = out
            self.launch(stream, self.params, 0)

    def __call__(self, values: dict[str, Any], stream: int) -> None:
        """Launches with the memory in `values` on a stream's handle."""
        if not self.engine.is_current():
            self._elsewhere(values, stream)
            return
        if not (self.partials or self.counter):
            with self.lock:
                self._launch(values, stream)
            return
        scratch = self.engine.scratch(stream)
        # Between two launches of one reduction no other may use the scratch of this stream.
        with scratch.lock, self.lock:
            if (self.partials and (scratch.partials is None or scratch.partials.size < self.partials)) or (
                self.counter and (scratch.counter is None or scratch.counter.size < self.counter)
            ):
                with external_stream(self.engine.cupy, stream):
                    scratch.reserve(self.partials, self.counter)
            values = {
                **values,
                "partials": scratch.partials.data.ptr if self.partials else 0,
                "counter": scratch.counter.data.ptr if self.counter else 0,
            }
            self._launch(values, stream)

    def _elsewhere(self, values: dict[str, Any], stream: int) -> None:
        """From a thread whose current device is another, or which has never used one."""
        cupy, engine = self.engine.cupy, self.engine
        before = cupy.cuda.runtime.getDevice()
        try:
            cupy.cuda.runtime.setDevice(engine.index)
            cupy.cuda.runtime.free(0)  # makes the context of this thread
            engine._threads.ready = True
            self(values, stream)
        finally:
            cupy.cuda.runtime.setDevice(before)

    def _launch(self, values: dict[str, Any], stream: int) -> None:
        for step in self.steps:
            held = step.values
            for k, name in step.fills:
                held[k] = values[name]
            if step.initial_at is not None:
                bits = values["initial"].tobytes()
                ctypes.memmove(ctypes.addressof(held) + POINTER_BYTES * step.initial_at, bits, len(bits))
            step.launch(stream, step.at, 0)


class _Handle:
    """A stream's handle in the shape of CUDA's stream protocol."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def external_stream(cupy: Any, handle: int) -> Any:
    """CuPy's view of a stream: by the protocol where CuPy has it, the older way elsewhere."""
    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(_Handle(handle))
    return cupy.cuda.ExternalStream(handle)


def _loads(module: Any, binary: bytes, driver: Any) -> bool:
    """Whether a kept binary still loads: a driver or a GPU that is another refuses it."""
    try:
        module.load(binary)
    except driver.CUDADriverError:
        return False
    return True


@once
def cuda_engine(index: int) -> CudaEngine:
    """The engine of a GPU."""
    return CudaEngine(import_cupy(), index)


class CudaArrays:
    """What every kind of CUDA array has in common: beside their own memory they are handled as CuPy's."""

    def __init__(self) -> None:
        self.cupy = import_cupy()
        self.ndarray = self.cupy.ndarray
        self.get_current_stream = self.cupy.cuda.get_current_stream

    def accept(self, x: Any) -> Any:
        """As it is."""
        return x

    def engine(self, place: Any) -> CudaEngine:
        """The engine of a GPU."""
        return cuda_engine(place[1])

    def as_cupy(self, x: Any) -> Any:
        """The array as CuPy sees it, without a copy; bfloat16 as the 16-bit integers of its bits."""
        return x

    def form(self, x: Any) -> Form:
        """From CuPy's view."""
        view = self.as_cupy(x)
        return _form(view, self.dtype_name(x, view), view.data.device_id)

    def dtype_name(self, x: Any, view: Any) -> str:
        """The name of the element type."""
        return reduced_dtype(view.dtype)

    def memory(self, x: Any) -> tuple[int, int]:
        """The address of the first element."""
        return self.as_cupy(x).data.ptr, 0

    def extent(self, x: Any) -> tuple[Any, int, int]:
        """Addresses; those of all GPUs are one space."""
        view = self.as_cupy(x)
        return "cuda", *span(view.data.ptr, view.shape, view.strides, view.itemsize)

    def stream(self, x: Any) -> int:
        """The handle of the caller's stream."""
        return int(self.get_current_stream().ptr)

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str) -> Any:
        """A CuPy array on the same GPU."""
        device = self.as_cupy(like).data.device_id
        with self.cupy.cuda.Device(device):
            return self.cupy.empty(shape, self.storage(like, dtype))

    def storage(self, like: Any, dtype: str) -> Any:
        """CuPy's dtype; for bfloat16 that of an extension, where the array has it."""
        own = self.as_cupy(like).dtype
        return own if own.name == dtype else DTYPES[dtype].storage()

    @contextlib.contextmanager
    def _on(self, view: Any, stream: int) -> Iterator[None]:
        """With the array's GPU and a stream as the current ones."""
        with self.cupy.cuda.Device(view.data.device_id), external_stream(self.cupy, stream):
            yield

    def token(self, x: Any) -> Any:
        """None: only a closer look can say."""
        return None

    def repeat(self, again: Again, x: Any) -> Any:
        """A known reduction, with the result in a new CuPy array."""
        engine = again.engine
        if engine.is_current():
            stream = self.get_current_stream().ptr
            if again.is_small:
                try:
                    place = engine.slots[stream].pop()
                except LookupError:
                    place = engine.new_slot(stream)
                out = self.ndarray(again.shape, again.storage, place)
            else:
                out = self.ndarray(again.shape, again.storage)
                place = out.data
            again.launch.again(x.data.ptr, again.start, place.ptr, stream)
            return out
        with self.cupy.cuda.Device(again.engine.index):
            out = self.ndarray(again.shape, again.storage)
        again.launch(
            {"data": x.data.ptr, "data_first": again.start, "out": out.data.ptr}, int(self.get_current_stream().ptr)
        )
        return out

    def packed(self, x: Any, shape: tuple[int, ...], order: tuple[int, ...], stream: int) -> Any:
        """A CuPy copy, in the order of the stream."""
        view = self.as_cupy(x)
        with self._on(view, stream):
            return self.cupy.broadcast_to(self._aligned(view), shape).transpose(order).copy(order="C")

    def _aligned(self, view: Any) -> Any:
        """The view, or where its elements lie apart from multiples of their size a copy of its bytes."""
        if view.data.ptr % view.itemsize == 0:
            return view
        if not view.flags.c_contiguous:
            raise ValueError(
                f"elements of {view.dtype} at the address {view.data.ptr:#x} are misaligned and not contiguous: "
                "copy the array to memory of its own"
            )
        bytes_ = self.cupy.ndarray((view.nbytes,), "uint8", memptr=view.data)
        return bytes_.copy().view(view.dtype).reshape(view.shape)

    def fill(self, x: Any, value: Any, stream: int) -> None:
        """In the order of the stream."""
        view = self.as_cupy(x)
        if self.dtype_name(x, view) == "bfloat16" and view.dtype.kind == "u":
            value = DTYPES["bfloat16"].encode([value])[0]
        with self._on(view, stream):
            view[...] = value

    def assign(self, to: Any, source: Any, stream: int) -> None:
        """In the order of the stream."""
        view = self.as_cupy(to)
        with self._on(view, stream):
            view[...] = self.as_cupy(source)

    def upload(self, like: Any, host: Any, stream: int) -> Any:
        """A CuPy array on the same GPU."""
        with self._on(self.as_cupy(like), stream):
            return self.cupy.asarray(host)

    def to_host(self, x: Any, stream: int) -> Any:
        """Waits for the stream."""
        view = self.as_cupy(x)
        with self._on(view, stream):
            return self.cupy.asnumpy(view)

    def finished(self, like: Any, out: Any, memory: Any, stream: Any) -> Any:
        """A CuPy array is the result as it is."""
        return out


def reduced_dtype(dtype: Any) -> str:
    """The name of a dtype that redtune reduces. Raises TypeError for any other."""
    return dtype_named(str(getattr(dtype, "name", dtype))).name


def _form(view: Any, dtype: str, device: int) -> Form:
    size = view.itemsize
    strides, apart = view.strides, view.data.ptr % min(size, POINTER_BYTES)
    is_apart = bool(apart) or any(stride % size for stride in strides)
    return Form(view.shape, tuple(stride // size for stride in strides), dtype, ("cuda", device), is_apart)


class CupyArrays(CudaArrays):
    """CuPy's arrays."""

    def token(self, x: Any) -> Any:
        memory = x.data
        pointer = memory.ptr
        # Nearly every pointer is a multiple of 16, so that the size of an element need not be asked for.
        if (pointer & 15 and pointer & (min(x.itemsize, POINTER_BYTES) - 1)) or not x.size:
            return None
        return x.shape, x.strides, x.dtype.num, memory.device_id


class InterfaceArrays(CudaArrays):
    """Any array with `__cuda_array_interface__`, Numba's among them. The result comes back through the same interface,
    as Numba's kind where the array was Numba's and as CuPy's elsewhere."""

    def accept(self, x: Any) -> Any:
        return self.cupy.asarray(x)

    def stream(self, x: Any) -> int:
        """The stream that the interface names, or the caller's CuPy stream."""
        named = x.__cuda_array_interface__.get("stream")
        return int(named) if named else super().stream(x)

    def finished(self, like: Any, out: Any, memory: Any, stream: Any) -> Any:
        if type(like).__module__.partition(".")[0] == "numba":
            from numba import cuda

            return cuda.as_cuda_array(out)
        return out


class DlpackArrays(CudaArrays):
    """Arrays that speak DLPack alone, JAX's among them: exchanged on the caller's CuPy stream."""

    def accept(self, x: Any) -> Any:
        return self.cupy.from_dlpack(x)

    def finished(self, like: Any, out: Any, memory: Any, stream: Any) -> Any:
        if type(like).__module__.partition(".")[0] in ("jax", "jaxlib"):
            from jax import dlpack

            return dlpack.from_dlpack(out)
        return out
