"""Exported Python modules without a GPU: a stand-in for CuPy whose arrays lie in host memory, and launches that do what
the kernel should do, found from nothing but the arguments that it would get."""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from redtune.dtypes import Dtype, dtype_named
from redtune.evaluation import numpy_finish, numpy_identity
from redtune.operators import operator_of, result_of
from redtune.types import Problem

UNITS = 132
CAPABILITY = 90

# An entry point, the launch's blocks and threads, and the values of its arguments.
Launched = Callable[[str, int, int, list[int]], None]


def memory(address: int, count: int, dtype: Dtype) -> np.ndarray[Any, Any]:
    """So many elements of host memory."""
    held = (ctypes.c_char * (count * dtype.bytes)).from_address(address) if count else b""
    return np.ndarray(count, dtype.storage(), held)


def reduce_on_host(problem: Problem, values: Mapping[str, int]) -> None:
    """What a kernel does, by the names of its arguments: reads its inputs where they are and writes the results."""
    op, dtype, result = operator_of(problem), dtype_named(problem.dtype), dtype_named(result_of(problem))
    n, outer, inner = values["n"], values.get("outer", 1), values.get("inner", 1)

    def read(name: str) -> np.ndarray[Any, Any]:
        outer_step, n_step, inner_step = (
            values.get(f"{name}_{end}", step) for end, step in (("outer", n), ("n", 1), ("inner", 1))
        )
        o, i, k = np.ix_(range(outer), range(inner), range(n))
        places = (values[f"{name}_first"] + o * outer_step + i * inner_step + k * n_step).reshape(outer * inner, n)
        found = dtype.decode(memory(values[name], int(places.max(initial=-1)) + 1, dtype)[places])
        return found.astype(np.float64) if dtype.kind not in ("float", "complex") and result.kind == "float" else found

    inputs = [read(name) for name in ("data", "other")[: op.inputs]]
    with np.errstate(all="ignore"):
        if n:
            bits = result.encode(np.asarray(op.reference(*inputs)))
        else:
            running = problem.accumulate
            bits = result.encode(numpy_finish(op, running, result, numpy_identity(op, running), 0, 0))
    o, i = np.ix_(range(outer), range(inner))
    places = (o * values.get("out_outer", 1) + i * values.get("out_inner", 1)).ravel()
    memory(values["out"], int(places.max()) + 1, result)[places] = bits


class Pointer:
    """An address, as CuPy has it."""

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr

    def __add__(self, distance: int) -> Pointer:
        return Pointer(self.ptr + distance)


class Array(np.ndarray):  # type: ignore[type-arg]
    """A CuPy array in host memory."""

    def __new__(cls, shape: Any, dtype: Any = float, memptr: Pointer | None = None) -> Array:
        if memptr is None:
            return np.ndarray.__new__(cls, shape, dtype)
        size = max(1, int(np.prod(shape))) * np.dtype(dtype).itemsize
        return np.ndarray.__new__(cls, shape, dtype, (ctypes.c_char * size).from_address(memptr.ptr))

    @property
    def data(self) -> Any:
        return Pointer(self.ctypes.data)

    @property
    def device(self) -> Any:
        return types.SimpleNamespace(id=0)


class Device:
    """A GPU that is none."""

    def __init__(self, id: int = 0) -> None:
        self.id = id

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def stand_in(launched: Launched) -> types.ModuleType:
    """CuPy, as far as exports need it; what is launched goes to a function."""

    def made(function: Callable[..., Any]) -> Callable[..., Array]:
        return lambda *given, **more: function(*given, **more).view(Array)

    class RawModule:
        def __init__(self, code: str, options: tuple[str, ...]) -> None:
            self.code = code

        def get_function(self, entry: str) -> Callable[..., None]:
            assert f" {entry}(" in self.code
            return lambda grid, block, arguments: launched(entry, *grid, *block, [int(one) for one in arguments])

    cupy: Any = types.ModuleType("cupy")
    cupy.ndarray, cupy.RawModule, cupy.RawKernel = Array, RawModule, object
    for name in ("empty", "zeros", "ones", "full", "empty_like", "zeros_like", "ones_like", "stack"):
        setattr(cupy, name, made(getattr(np, name)))
    cupy.ascontiguousarray, cupy.asarray = made(np.ascontiguousarray), made(np.array)
    cupy.asnumpy = lambda x: np.array(x)
    properties = {"major": CAPABILITY // 10, "minor": CAPABILITY % 10, "multiProcessorCount": UNITS}
    cupy.cuda = types.SimpleNamespace(
        Device=Device,
        get_current_stream=lambda: types.SimpleNamespace(ptr=0),
        runtime=types.SimpleNamespace(getDeviceProperties=lambda device: properties, getDeviceCount=lambda: 1),
    )
    return cupy


def bare_torch() -> types.ModuleType:
    """PyTorch, as far as a module that registers an operator needs it to be imported."""
    torch: Any = types.ModuleType("torch")
    torch.Tensor = object

    def custom_op(name: str, mutates_args: tuple[str, ...]) -> Callable[[Any], Any]:
        def registered(function: Any) -> Any:
            function.register_fake = lambda fake: fake
            return function

        return registered

    torch.library = types.SimpleNamespace(custom_op=custom_op)
    return torch


@contextmanager
def imported(**modules: types.ModuleType) -> Iterator[None]:
    """With these modules in the place of any others of their names."""
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


def executed(name: str, text: str, **modules: types.ModuleType) -> Any:
    """A module of a text, with others as it is to find them."""
    module: Any = types.ModuleType(name)
    module.__file__ = f"{name}.py"
    with imported(**modules, **{name: module}):
        exec(compile(text, f"{name}.py", "exec"), module.__dict__)
    return module
