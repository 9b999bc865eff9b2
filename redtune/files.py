"""Reductions of .npy files, in chunks where the file is larger than the device can hold."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from redtune.backends import Session
from redtune.dialect import Dialect
from redtune.dtypes import DTYPES, dtype_named
from redtune.errors import UsageError
from redtune.evaluation import State, numpy_finish, numpy_identity, numpy_merge
from redtune.operators import operator_of, result_of
from redtune.plan import make_plan, state_layout
from redtune.types import Device, Kernel, as_json

# A chunk takes at most this share of the device's memory, and no more than this many bytes: longer chunks gain nothing.
MEMORY_SHARE = 0.25
CHUNK_BYTES = 1 << 30


def open_npy(path: str) -> Any:
    """The array in a .npy file, mapped and not read. Raises UsageError naming what is wrong with the file."""
    import numpy as np

    try:
        if not Path(path).is_file():
            raise UsageError(f"there is no file {path!r}")
        array = _load(path)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path} is not an .npy file of numbers that can be read: {error}") from error
    except OSError as error:
        raise UsageError(f"{path[:80]} cannot be read: {error.strerror or error}") from error
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{path} is an archive of arrays; redtune reduces a single .npy")
    name = array.dtype.newbyteorder("=").name
    if name not in DTYPES:
        raise UsageError(f"{path} holds {array.dtype}, which redtune does not reduce: choose from {', '.join(DTYPES)}")
    return array


def _load(path: str) -> Any:
    import numpy as np

    try:
        # Copy on write: the pages are the file's, and a device may still borrow them as if they were its own.
        return np.load(path, mmap_mode="c", allow_pickle=False)
    except ValueError as error:
        if "mmap" not in str(error):
            raise
        return np.load(path, allow_pickle=False)  # an empty array cannot be mapped


def chunk_elements(device: Device, element_bytes: int) -> int:
    """How many elements are reduced at a time."""
    fits = int(device.memory_bytes * MEMORY_SHARE) if device.memory_bytes else CHUNK_BYTES
    return max(1, min(fits, CHUNK_BYTES) // element_bytes)


def reduce_file(session: Session, dialect: Dialect, device: Device, kernel: Kernel, program: Any, path: str) -> Any:
    """The value of the reduction, as plain data. `kernel` was rendered to leave its state."""
    import numpy as np

    problem, config = kernel.problem, kernel.config
    op, dtype = operator_of(problem), dtype_named(problem.dtype)
    array = open_npy(path).reshape(-1)
    fields, state_bytes = state_layout(problem)
    record = np.dtype(
        {
            "names": [slot.name for slot in fields],
            "formats": [slot.dtype for slot in fields],
            "offsets": [slot.offset for slot in fields],
            "itemsize": state_bytes,
        }
    )
    total: State = numpy_identity(op, problem.accumulate)
    step = chunk_elements(device, dtype.bytes)
    for start in range(0, len(array), step):
        chunk = np.ascontiguousarray(array[start : start + step], dtype=dtype.storage())
        part = replace(problem, n=len(chunk))
        plan = make_plan(part, config, dialect, device)
        out = session.upload(np.zeros(state_bytes, np.uint8))
        values = {
            "data": session.upload(chunk),
            "data_first": 0,
            "n": len(chunk),
            "parts": plan.parts,
            "ddof": 0,  # an argument of every kernel of the operator, and read where a state is finished
            "partials": session.upload(np.zeros(plan.partials_bytes + 1, np.uint8)),
            "counter": session.upload(np.zeros(plan.counter_bytes + 1, np.uint8)),
            "out": out,
        }
        session.run(session.bind(program, plan.launches, values))
        state = session.download(out, np.empty(1, record))[0]
        found = {name: np.asarray(state[name]) for name, _ in op.state}
        for name, kind in op.state:
            if kind == "index":
                found[name] = found[name] + start
        total = numpy_merge(op, problem.accumulate, total, found)
    result = dtype_named(result_of(problem))
    return plain(np.asarray(numpy_finish(op, problem.accumulate, result, total, count=len(array))))


def reduce_axes(
    session: Session, device: Device, path: str, op: str, axis: Any, keepdims: bool, custom: str
) -> dict[str, Any]:
    """The reduction of some axes of a .npy file that fits the device, as plain data."""
    import numpy as np

    from redtune.reducing import described, reduce

    array = open_npy(path)
    if device.memory_bytes and array.nbytes > device.memory_bytes * 0.8:
        raise UsageError(
            f"{path} holds {array.nbytes / 2**30:.1f} GiB and {device.name} has {device.memory_bytes / 2**30:.1f}: "
            "axes are reduced of what fits"
        )
    x = session.array(array)
    config, origin, n = described(x, op, axis, custom)
    result = reduce(x, op, axis, keepdims=keepdims, custom=custom)
    host = result if isinstance(result, np.ndarray) else result.get()
    return {
        "value": plain(host),
        "dtype": array.dtype.newbyteorder("=").name,
        "n": n,
        "shape": list(host.shape),
        "config": None if config is None else as_json(config),
        "origin": origin,
    }


def plain(values: Any) -> Any:
    """Numbers and nested lists of them; a complex number as [re, im]."""
    import numpy as np

    if values.dtype.kind == "c":
        values = np.stack([values.real, values.imag], axis=-1)
    return values.tolist()


def write_result(path: str, found: dict[str, Any], dtype: str) -> None:
    """The value of a reduction as a .npy file. Raises UsageError where it cannot be written."""
    import numpy as np

    values = np.asarray(found["value"])
    if dtype.startswith("complex"):
        values = values[..., 0] + 1j * values[..., 1]
    try:
        with Path(path).open("wb") as file:
            np.save(file, values.astype(dtype_named(dtype).storage()).reshape(found["shape"]), allow_pickle=False)
    except OSError as error:
        raise UsageError(f"{path[:80]} cannot be written: {error.strerror or error}") from error
