"""NumPy's arrays, wrapped without a copy for an OpenCL device that shares memory with the host, and pyopencl's own."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from redtune import store
from redtune.arrays import Again, Form, Launcher, once, span
from redtune.backends import backend_named
from redtune.backends.opencl import Backend
from redtune.dtypes import DTYPES, dtype_named
from redtune.errors import BackendMissing, CompileError
from redtune.process import WorkerDied, WorkerProcess, WorkerTimedOut
from redtune.types import Device, Kernel, Launch, as_json

COMPILE_LIMIT_S = 60.0


def wait_in_line(cl: Any, queue: Any) -> None:
    """What is queued next begins when all before it has ended, also on a queue that keeps no order of its own."""
    if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
        cl.enqueue_barrier(queue)


class OpenclEngine:
    """One device in one context. Kernels compile in a process of their own: a vendor's compiler that crashes takes only
    that one along."""

    def __init__(self, cl: Any, context: Any, found: Any, device: Device) -> None:
        self.cl, self.context, self.found, self.device = cl, context, found, device
        self.backend = backend_named("opencl")
        self.shares_memory = device.kind == "cpu"
        self.queue = cl.CommandQueue(context, found)
        self._compiler = WorkerProcess()
        self._programs: dict[str, Any] = {}
        self._lock = threading.RLock()

    def load(self, kernel: Kernel) -> Any:
        """The kernels of a program by entry point, compiled once and kept on disk for the next process."""
        with self._lock:
            code = kernel.code
            if code not in self._programs:
                binary = store.read_binary(kernel, self.device)
                program = None if binary is None else self._built(binary)
                if program is None:
                    binary = self._compile(kernel)
                    store.keep_binary(kernel, self.device, binary)
                    program = self.cl.Program(self.context, [self.found], [binary]).build(cache_dir=False)
                self._programs[code] = {k.function_name: k for k in program.all_kernels()}
            return self._programs[code]

    def _built(self, binary: bytes) -> Any:
        try:
            return self.cl.Program(self.context, [self.found], [binary]).build(cache_dir=False)
        except self.cl.Error:
            return None  # written by another driver, whatever it says of itself

    def _compile(self, kernel: Kernel) -> bytes:
        import base64

        jobs = {"device": as_json(self.device), "kernel": as_json(kernel)}
        try:
            said = self._compiler.ask("compile", COMPILE_LIMIT_S, "done", **jobs)
        except WorkerTimedOut as error:
            raise CompileError(f"the compiler took longer than {COMPILE_LIMIT_S:g} s", kernel.source) from error
        except WorkerDied as error:
            raise CompileError(f"the compiler crashed: {error}", kernel.source) from error
        if "binary" not in said:
            raise CompileError(said["log"], kernel.source)
        return base64.b64decode(said["binary"])

    def prepare(self, program: Any, launches: Sequence[Launch], values: dict[str, Any]) -> Launcher:
        """Launches on a queue, waited for."""
        return functools.partial(self._launch, program, launches, values)

    def _launch(
        self, program: Any, launches: Sequence[Launch], values: dict[str, Any], memory: dict[str, Any], queue: Any
    ) -> None:
        cl, flags = self.cl, self.cl.mem_flags.READ_WRITE
        given = {**values, **memory}
        for name in ("partials", "counter"):
            given[name] = cl.Buffer(self.context, flags, max(8, values[name]))
        with self._lock:  # arguments belong to a kernel object, so one thread at a time sets them
            if values["counter"]:
                cl.enqueue_fill_buffer(queue, given["counter"], np.uint32(0), 0, values["counter"])
            for launch in launches:
                wait_in_line(cl, queue)
                kernel = program[launch.entry]
                arguments = [given[name] for name in launch.args]
                kernel.set_args(*(np.int64(value) if isinstance(value, int) else value for value in arguments))
                cl.enqueue_nd_range_kernel(queue, kernel, (launch.grid * launch.block,), (launch.block,))
            event = cl.enqueue_marker(queue)
        event.wait()


@once
def host_engine() -> OpenclEngine:
    """The engine for arrays in the host's memory: the ablest CPU there is, else the first device."""
    backend = Backend()
    devices = backend.devices()
    chosen = next((d for d in devices if d.kind == "cpu"), devices[0])
    cl, found = backend.found()
    return OpenclEngine(cl, cl.Context([found[chosen.index]]), found[chosen.index], chosen)


@once
def context_engine(context: Any, device: Any) -> OpenclEngine:
    """The engine of a device in the caller's context."""
    backend = Backend()
    cl, found = backend.found()
    for index, known in enumerate(found):
        if known == device:
            return OpenclEngine(cl, context, device, backend.devices()[index])
    raise BackendMissing(f"the OpenCL device {device.name.strip()} of the array's context is not among those found")


def _host_form(x: Any, place: Any) -> Form:
    size = x.itemsize
    is_apart = not x.flags.aligned or any(stride % size for stride in x.strides)
    return Form(x.shape, tuple(stride // size for stride in x.strides), dtype_named(x.dtype.name).name, place, is_apart)


class NumpyArrays:
    """Arrays in the host's memory."""

    def accept(self, x: Any) -> Any:
        """The array in native byte order. Raises TypeError for a masked one, whose mask would be lost."""
        if isinstance(x, np.ma.MaskedArray):
            raise TypeError("a masked array is not reduced as it is: pass x.data with where=~np.ma.getmaskarray(x)")
        x = np.asarray(x)
        return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))

    def form(self, x: Any) -> Form:
        return _host_form(x, ("opencl", "host"))

    def extent(self, x: Any) -> tuple[Any, int, int]:
        return "host", *span(x.ctypes.data, x.shape, x.strides, x.itemsize)

    def engine(self, place: Any) -> OpenclEngine:
        return host_engine()

    def stream(self, x: Any) -> Any:
        return host_engine().queue

    def memory(self, x: Any) -> tuple[Any, int]:
        """A buffer over the bytes from the array's first to its last in memory, borrowed where the device can."""
        engine = host_engine()
        flags = engine.cl.mem_flags
        low, size = _extent(x)
        view = (ctypes.c_char * size).from_address(low)
        how = flags.USE_HOST_PTR if engine.shares_memory else flags.COPY_HOST_PTR
        buffer = engine.cl.Buffer(engine.context, flags.READ_WRITE | how, hostbuf=view)
        return buffer, (x.ctypes.data - low) // x.itemsize

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str) -> Any:
        return np.empty(shape, self.storage(like, dtype))

    def storage(self, like: Any, dtype: str) -> Any:
        # NumPy itself has no bfloat16, so it is the array's own.
        return like.dtype if like.dtype.name == dtype else np.dtype(dtype)

    def token(self, x: Any) -> Any:
        is_plain = type(x) is np.ndarray and x.size and x.flags.aligned and x.dtype.isnative
        return (x.shape, x.strides, x.dtype) if is_plain else None

    def repeat(self, again: Again, x: Any) -> Any:
        out = self.empty(x, again.shape, again.dtype)
        source, first = self.memory(x)
        to, _ = self.memory(out)
        again.launch({"data": source, "data_first": first + again.start, "out": to}, again.engine.queue)
        return self.finished(x, out, to, again.engine.queue)

    def packed(self, x: Any, shape: tuple[int, ...], order: tuple[int, ...], stream: Any) -> Any:
        return np.array(np.broadcast_to(x, shape).transpose(order), order="C", copy=True)

    def fill(self, x: Any, value: Any, stream: Any) -> None:
        x[...] = value

    def assign(self, to: Any, source: Any, stream: Any) -> None:
        to[...] = source

    def upload(self, like: Any, host: Any, stream: Any) -> Any:
        return host

    def to_host(self, x: Any, stream: Any) -> Any:
        return x

    def finished(self, like: Any, out: Any, memory: Any, stream: Any) -> Any:
        """The array, once what the device wrote is in the host's memory."""
        if memory is None:  # no device wrote
            return out
        cl = host_engine().cl
        low, size = _extent(out)
        written = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(low))
        if host_engine().shares_memory:
            whole, _ = cl.enqueue_map_buffer(stream, memory, cl.map_flags.READ, 0, (size,), np.uint8)
            whole.base.release(stream)
            stream.finish()
        else:
            cl.enqueue_copy(stream, written, memory)
        return out


def _extent(x: Any) -> tuple[int, int]:
    """The lowest address of an array's bytes, and how many there are up to the highest."""
    low, high = span(x.ctypes.data, x.shape, x.strides, x.itemsize)
    return low, high - low


class DlpackHostArrays(NumpyArrays):
    """Arrays in the host's memory that speak DLPack, JAX's on a CPU among them."""

    def accept(self, x: Any) -> Any:
        # NumPy's DLPack knows no bfloat16; an array of it hands over its memory by NumPy's own protocol.
        return np.asarray(x) if str(getattr(x, "dtype", "")) == "bfloat16" else np.from_dlpack(x)

    def token(self, x: Any) -> Any:
        return None

    def finished(self, like: Any, out: Any, memory: Any, stream: Any) -> Any:
        done = super().finished(like, out, memory, stream)
        if type(like).__module__.partition(".")[0] in ("jax", "jaxlib"):
            import jax

            return jax.numpy.asarray(done)
        return done


class PyopenclArrays:
    """pyopencl's arrays, on their own queue."""

    def accept(self, x: Any) -> Any:
        return x

    def form(self, x: Any) -> Form:
        size = x.dtype.itemsize
        place = ("opencl", x.context, self.stream(x).device)
        strides = tuple(stride // size for stride in x.strides)
        is_apart = any(stride % size for stride in x.strides) or x.offset % size != 0
        return Form(tuple(x.shape), strides, dtype_named(x.dtype.name).name, place, is_apart)

    def extent(self, x: Any) -> tuple[Any, int, int]:
        return x.base_data, *span(x.offset, tuple(x.shape), tuple(x.strides), x.dtype.itemsize)

    def engine(self, place: Any) -> OpenclEngine:
        return context_engine(place[1], place[2])

    def stream(self, x: Any) -> Any:
        """The array's queue, or one of its context's only device."""
        return x.queue if x.queue is not None else context_engine(x.context, x.context.devices[0]).queue

    def memory(self, x: Any) -> tuple[Any, int]:
        return x.base_data, x.offset // x.dtype.itemsize

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str) -> Any:
        import pyopencl.array

        return pyopencl.array.empty(self.stream(like), shape, self.storage(like, dtype))

    def storage(self, like: Any, dtype: str) -> Any:
        return like.dtype if like.dtype.name == dtype else DTYPES[dtype].storage()

    def token(self, x: Any) -> Any:
        return None

    def repeat(self, again: Again, x: Any) -> Any:
        raise AssertionError("no token, no repetition")

    def packed(self, x: Any, shape: tuple[int, ...], order: tuple[int, ...], stream: Any) -> Any:
        import pyopencl.array

        host = np.array(np.broadcast_to(self.to_host(x, stream), shape).transpose(order), order="C")
        return pyopencl.array.to_device(stream, host)

    def fill(self, x: Any, value: Any, stream: Any) -> None:
        self.assign(x, np.full(x.shape, value, x.dtype), stream)

    def assign(self, to: Any, source: Any, stream: Any) -> None:
        values = source if isinstance(source, np.ndarray) else self.to_host(source, stream)
        with self._mapped(to, stream) as view:
            view[...] = values

    def upload(self, like: Any, host: Any, stream: Any) -> Any:
        import pyopencl.array

        return pyopencl.array.to_device(stream, np.ascontiguousarray(host))

    def to_host(self, x: Any, stream: Any) -> Any:
        with self._mapped(x, stream) as view:
            return view.copy()

    @contextlib.contextmanager
    def _mapped(self, x: Any, stream: Any) -> Iterator[Any]:
        """The array as the host sees it, strides and all."""
        cl = self.engine(self.form(x).place).cl
        flags = cl.map_flags.READ | cl.map_flags.WRITE
        wait_in_line(cl, stream)
        whole, _ = cl.enqueue_map_buffer(stream, x.base_data, flags, 0, (x.base_data.size,), np.uint8)
        try:
            yield np.ndarray(x.shape, x.dtype, buffer=whole, offset=x.offset, strides=x.strides)
        finally:
            whole.base.release(stream)
            stream.finish()

    def finished(self, like: Any, out: Any, memory: Any, stream: Any) -> Any:
        return out
