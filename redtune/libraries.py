"""Libraries to be measured beside redtune's kernels on a CUDA device, each there or absent with its reason."""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redtune import cub
from redtune.backends import Call, Inputs, Rival
from redtune.dtypes import dtype_named
from redtune.errors import BackendMissing, in_a_line
from redtune.operators import operator_of, result_of
from redtune.plan import read_bytes
from redtune.spellings import in_types, numpy_call, running_type, shape_of, torch_call
from redtune.types import Problem

if TYPE_CHECKING:
    import numpy as np

Pieces = Sequence[tuple[int, int]]  # (first, count) of results


def as_call(work: Callable[[Any], None], *keeps: Any) -> Call:
    """Any work on a stream in the shape of a bound program's step, so that the same clock replays it."""

    def launch(grid: Any, block: Any, args: Any, stream: Any) -> None:
        work(stream)

    return Call(((launch, (), (), ()),), keeps)


def cuda_rivals(
    session: Any, problem: Problem, data: Inputs, compiled: Path | str
) -> Iterator[Rival | tuple[str, str]]:
    """CUB, torch and cupy; or the name of one with the reason why it is absent. What cupy frees others may get, so it
    comes last."""
    makers: dict[str, Callable[[], Rival]] = {
        "CUB": lambda: cub_rival(session, problem, data, compiled),
        "torch": lambda: torch_rival(session, problem, data),
        "cupy": lambda: cupy_rival(session, problem, data),
    }
    for name, make in makers.items():
        try:
            yield make()
        except Exception as error:  # the border: whatever a library raises says why it is absent
            yield name, in_a_line(error)


def cub_rival(session: Any, problem: Problem, data: Inputs, compiled: Path | str) -> Rival:
    """CUB from its compiled library."""
    import numpy as np

    if isinstance(compiled, str):
        raise BackendMissing(compiled)
    library = ctypes.CDLL(str(compiled))
    result = dtype_named(result_of(problem))
    scratch_bytes = ctypes.c_size_t(0)
    out = session.empty(max(16, problem.results * 16))  # of an index reduction: pairs

    def reduce(scratch: int, array: Any, stream: Any) -> None:
        code = library.cub_reduce(
            ctypes.c_void_p(scratch),
            ctypes.byref(scratch_bytes),
            ctypes.c_void_p(int(array.ptr)),
            ctypes.c_void_p(int(out.ptr)),
            ctypes.c_longlong(problem.results),
            ctypes.c_longlong(problem.n),
            ctypes.c_void_p(stream.ptr),
        )
        if code:
            raise BackendMissing(f"CUB returned the CUDA error {code}")

    reduce(0, data[0], session.stream)
    scratch = session.empty(max(1, scratch_bytes.value))

    def call(k: int) -> Call:
        return as_call(functools.partial(reduce, int(scratch.ptr), data[k]), scratch, out)

    def results(pieces: Pieces) -> tuple[str, np.ndarray[Any, Any]]:
        session.run(call(0))
        layout = cub.result_layout(problem, result.storage())
        rows = [session.download(out + first * layout.itemsize, np.empty(count, layout)) for first, count in pieces]
        found = np.concatenate(rows)
        return result.name, found["index"].astype(np.int64) if layout.names else result.decode(found)

    version = library.cub_version()
    return Rival(
        name=f"CUB {version // 1_000_000}.{version // 1000 % 1000}.{version % 1000}",
        types=in_types(cub.running_type(problem), result.name),
        results=results,
        replay=lambda turns: session.replay([call(k) for k in turns]),
    )


def torch_rival(session: Any, problem: Problem, data: Inputs) -> Rival:
    """PyTorch on the session's stream."""

    torch = importlib.import_module("torch")
    dtype = getattr(torch, problem.dtype, None)
    if dtype is None:
        raise BackendMissing(f"torch has no {problem.dtype}")
    reduce, inputs = torch_call(torch, problem), operator_of(problem).inputs
    stream = torch.cuda.ExternalStream(session.stream.ptr)

    def tensor(k: int) -> Any:
        raw = session.cupy.ndarray((read_bytes(problem),), "uint8", memptr=data[k])
        return torch.as_tensor(raw, device="cuda").view(dtype).view(inputs, *shape_of(problem))

    def work(array: Any, _: Any = None) -> Any:
        with torch.cuda.stream(stream):
            return reduce(*array)

    def call(k: int) -> Call:
        array = tensor(k)
        return as_call(functools.partial(work, array), array)

    try:
        first = work(tensor(0))
    except (RuntimeError, TypeError, ValueError) as error:
        raise BackendMissing(f"torch's {problem.op} of {problem.dtype} fails: {str(error).splitlines()[0]}") from error
    kind = str(first.dtype).removeprefix("torch.")

    def results(pieces: Pieces) -> tuple[str, np.ndarray[Any, Any]]:
        with torch.cuda.stream(stream):
            found = torch.cat([first.reshape(-1)[at : at + count] for at, count in pieces])
            host = (found.to(torch.float32) if kind == "bfloat16" else found).cpu().numpy()
        return kind, host

    session.stream.synchronize()
    return Rival(
        name=f"torch {torch.__version__}",
        types=in_types(running_type("torch", problem), kind),
        results=results,
        replay=lambda turns: session.replay([call(k) for k in turns]),
    )


LITTLE = 1 << 12  # elements of an axis, of which CuPy compiles what it does for more
WIDE = 1 << 16


def warm_cupy(session: Any, problem: Problem) -> None:
    """Has CuPy compile what it needs for a problem, and keep it on the disk: it takes seconds where it does."""
    import numpy as np

    n = min(problem.n, LITTLE) if problem.layout != "rows" else problem.n
    small = replace(problem, n=n, outer=min(problem.outer, 2), inner=min(problem.inner, WIDE))
    size = read_bytes(small)
    buffer = session.empty(size)
    session.write(buffer, np.ones(size // dtype_named(problem.dtype).bytes, problem.dtype))
    cupy_rival(session, small, [buffer])
    session.stream.synchronize()


def cupy_rival(session: Any, problem: Problem, data: Inputs | Sequence[Any]) -> Rival:
    """CuPy on the session's stream."""
    import numpy as np

    cupy = session.cupy
    if problem.dtype == "bfloat16":
        raise BackendMissing("cupy has no bfloat16")
    library, shape = numpy_call(cupy, problem), (operator_of(problem).inputs, *shape_of(problem))

    def arrays(k: int) -> tuple[Any, ...]:
        return tuple(cupy.ndarray(shape, problem.dtype, memptr=data[k]))

    def work(given: tuple[Any, ...], _: Any = None) -> Any:
        return library(*given)

    def call(k: int) -> Call:
        given = arrays(k)
        return as_call(functools.partial(work, given), given)

    with session.stream:
        try:
            found = cupy.asarray(work(arrays(0))).reshape(-1)
        except (TypeError, ValueError, AttributeError, NotImplementedError) as error:
            raise BackendMissing(f"cupy's {problem.op} of {problem.dtype} fails: {error}") from error

    def results(pieces: Pieces) -> tuple[str, np.ndarray[Any, Any]]:
        with session.stream:
            host = [found[first : first + count].get(stream=session.stream) for first, count in pieces]
        session.stream.synchronize()
        return found.dtype.name, np.concatenate(host)

    def replay(turns: Sequence[int]) -> Any:
        try:
            return session.replay([call(k) for k in turns])
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise BackendMissing(f"cupy's {problem.op} cannot be replayed in a graph: {error}") from error

    return Rival(
        name=f"cupy {cupy.__version__}",
        types=in_types(running_type("cupy", problem), found.dtype.name),
        results=results,
        replay=replay,
    )
