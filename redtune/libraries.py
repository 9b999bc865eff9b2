"""Libraries to be measured beside redtune's kernels on a CUDA device, each there or absent with its reason."""

from __future__ import annotations

import ctypes
import functools
import importlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from redtune.backends import Call
from redtune.clock import sampler
from redtune.errors import BackendMissing
from redtune.operators import operator_of, result_of
from redtune.plan import read_bytes
from redtune.spellings import shape_of, torch_call
from redtune.types import Problem

NVCC_LIMIT_S = 300
# What CUB calls the reductions it has. Its index reductions return a pair that is not measured here.
CUB_CALLS = {"sum": "Sum", "max": "Max", "min": "Min"}
CUB_TYPES = {
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "float32": "float",
    "float64": "double",
    "bool": "bool",
    "int8": "signed char",
    "int16": "short",
    "uint16": "unsigned short",
    "uint8": "unsigned char",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long long",
    "uint64": "unsigned long long",
}


def as_call(work: Callable[[Any], None], *keeps: Any) -> Call:
    """Any work on a stream in the shape of a bound program's step, so that the same clock replays it."""

    def launch(grid: Any, block: Any, args: Any, stream: Any) -> None:
        work(stream)

    return Call(((launch, (), (), ()),), keeps)


def cuda_libraries(
    session: Any, problem: Problem, data: Sequence[Any], arch: str
) -> Iterator[tuple[str, Callable[[], float] | str]]:
    """(name, sampler) of each library, or (name, reason) where it is absent."""
    for name, make in (("CUB", functools.partial(_cub, arch=arch)), ("torch", _torch)):
        try:
            version, calls = make(session, problem, data)
        except (BackendMissing, ImportError) as error:
            yield name, str(error)
            continue
        yield f"{name} {version}", sampler(session, calls)


def _cub(session: Any, problem: Problem, data: Sequence[Any], arch: str) -> tuple[str, list[Call]]:
    if problem.op not in CUB_CALLS or problem.layout != "flat" or problem.dtype not in CUB_TYPES:
        raise BackendMissing(f"CUB's {problem.op} of {problem.layout} {problem.dtype} is not measured")
    library = ctypes.CDLL(str(_compiled_cub(problem, arch)))
    size = ctypes.c_size_t(0)
    out = session.cupy.zeros(2, "uint64")

    def reduce(scratch: int, array: Any, stream: Any) -> None:
        code = library.cub_reduce(
            ctypes.c_void_p(scratch),
            ctypes.byref(size),
            ctypes.c_void_p(int(array.ptr)),
            ctypes.c_void_p(int(out.data.ptr)),
            ctypes.c_longlong(problem.n),
            ctypes.c_void_p(stream.ptr),
        )
        if code:
            raise BackendMissing(f"CUB returned the CUDA error {code}")

    reduce(0, data[0], session.stream)
    scratch = session.cupy.cuda.alloc(max(1, size.value))
    calls = [as_call(functools.partial(reduce, int(scratch.ptr), array), scratch, out) for array in data]
    return f"to {_result(problem)}", calls


def _result(problem: Problem) -> str:
    return result_of(problem)


def _compiled_cub(problem: Problem, arch: str) -> Path:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise BackendMissing("CUB needs nvcc on PATH")
    library = Path(tempfile.mkdtemp(prefix="redtune-cub-")) / "libcub_reference.so"
    source = Path(__file__).with_name("cub_reference.cu")
    defines = [f"-DELEMENT={CUB_TYPES[problem.dtype]}", f"-DRESULT={CUB_TYPES[_result(problem)]}"]
    target = f"-gencode=arch=compute_{arch.removeprefix('sm_')},code={arch}"
    command = [nvcc, "-std=c++17", "-O3", target, "-Xcompiler", "-fPIC", "-shared", *defines]
    command += [f"-DCALL={CUB_CALLS[problem.op]}", "-o", str(library), str(source)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=NVCC_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise BackendMissing(f"nvcc took longer than {NVCC_LIMIT_S} s over CUB") from None
    if done.returncode:
        raise BackendMissing(f"CUB did not compile: {done.stderr.strip().splitlines()[-1][:200]}")
    return library


def _torch(session: Any, problem: Problem, data: Sequence[Any]) -> tuple[str, list[Call]]:
    torch = importlib.import_module("torch")
    dtype = getattr(torch, problem.dtype, None)
    if dtype is None:
        raise BackendMissing(f"torch has no {problem.dtype}")
    reduce, inputs = torch_call(torch, problem), operator_of(problem).inputs
    stream = torch.cuda.ExternalStream(session.stream.ptr)

    def tensor(buffer: Any) -> Any:
        raw = session.cupy.ndarray((read_bytes(problem),), "uint8", memptr=buffer)
        return torch.as_tensor(raw, device="cuda").view(dtype).view(inputs, *shape_of(problem))

    def work(array: Any, _: Any) -> None:
        with torch.cuda.stream(stream):
            reduce(*array)

    tensors = [tensor(buffer) for buffer in data]
    try:
        work(tensors[0], None)
    except (RuntimeError, TypeError, ValueError) as error:
        raise BackendMissing(f"torch's {problem.op} of {problem.dtype} fails: {str(error).splitlines()[0]}") from error
    session.stream.synchronize()
    return str(torch.__version__), [as_call(functools.partial(work, array), array) for array in tensors]
