"""CUB compiled by nvcc into one small library for each operator, dtype and layout, and kept in the user's cache folder.

A library is code, so it is taken from nobody but the user, as compiled kernels are: from folders that no one else may
write to. Its name is the digest of all that it was made from.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redtune.dtypes import DTYPES
from redtune.errors import BackendMissing
from redtune.operators import result_of
from redtune.types import Problem

if TYPE_CHECKING:
    import numpy as np

NVCC_LIMIT_S = 300
SOURCE = Path(__file__).with_name("cub_reference.cu")
TYPES = {
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
NAMED = {"max": "Max", "min": "Min"}
INDEX = {"argmax": "ArgMax", "argmin": "ArgMin"}


@dataclass(frozen=True, slots=True)
class Spelling:
    """A reduction in CUB's general form: how values meet, what becomes of an element `x`, where the running value
    begins, what becomes of the last one `a` of `n` elements. `running` names its dtype where it is not redtune's."""

    op: str
    lift: str = "x"
    init: str = "0"
    finish: str = ""
    running: str = ""


_PLUS, _IS, _MOST = "::cuda::std::plus<ACC>", "x != (ELEMENT)0", "::cuda::maximum<ACC>"
_SIZE = "(ACC)x < ACC(0) ? -(ACC)x : (ACC)x"
SPELLINGS = {
    "sum": Spelling(_PLUS),
    "prod": Spelling("::cuda::std::multiplies<ACC>", init="1"),
    "bitwise_and": Spelling("::cuda::std::bit_and<ACC>", init="-1", running="same"),
    "bitwise_or": Spelling("::cuda::std::bit_or<ACC>", running="same"),
    "bitwise_xor": Spelling("::cuda::std::bit_xor<ACC>", running="same"),
    "any": Spelling("::cuda::std::bit_or<ACC>", _IS, running="int32"),
    "all": Spelling("::cuda::std::bit_and<ACC>", _IS, "1", running="int32"),
    "count_nonzero": Spelling(_PLUS, _IS, running="int64"),
    "mean": Spelling(_PLUS, finish="a / (ACC)n"),
    "sumsq": Spelling(_PLUS, "(ACC)x * (ACC)x"),
    "norm_l1": Spelling(_PLUS, _SIZE),
    "norm_l2": Spelling(_PLUS, "(ACC)x * (ACC)x", finish="sqrt(a)"),
    "norm_inf": Spelling(_MOST, _SIZE),
}


def running_type(problem: Problem) -> str:
    """The dtype of the running value; empty where elements are only compared."""
    if problem.op not in SPELLINGS:
        return ""
    own = SPELLINGS[problem.op].running
    return problem.dtype if own == "same" else own or problem.accumulate


def result_layout(problem: Problem, storage: np.dtype[Any]) -> np.dtype[Any]:
    """How results lie in memory. Index reductions give an index with a value behind it, a wide one for one result."""
    import numpy as np

    if problem.op not in INDEX:
        return storage
    if problem.layout == "flat":
        return np.dtype({"names": ["index"], "formats": ["i8"], "offsets": [0], "itemsize": 16})
    itemsize = 2 * max(4, DTYPES[problem.dtype].bytes)
    return np.dtype({"names": ["index"], "formats": ["i4"], "offsets": [0], "itemsize": itemsize})


def defines(problem: Problem) -> list[str]:
    """What the source is compiled with. Raises BackendMissing with the reason where CUB has no such reduction."""
    op = problem.op
    if op not in NAMED | INDEX | SPELLINGS or problem.custom:
        raise BackendMissing(f"CUB has no {op}")
    if problem.layout not in ("flat", "rows"):
        raise BackendMissing(f"CUB reduces no {problem.layout}")
    if problem.dtype not in TYPES:
        raise BackendMissing(f"CUB's {op} of {problem.dtype} is not measured")
    if problem.n >= 2**31 and problem.layout == "rows":
        raise BackendMissing("CUB counts the elements of a row in 32 bits")
    found = {"ELEMENT": TYPES[problem.dtype], "RESULT": TYPES[result_of(problem)]}
    found |= {"ROWS": "0" if problem.layout == "flat" else "1"}
    if op in NAMED:
        return _as_options(found | {"NAMED": NAMED[op]})
    if op in INDEX:
        return _as_options(found | {"INDEX": INDEX[op]})
    spelling = SPELLINGS[op]
    found |= {"ACC": TYPES[running_type(problem)], "OP": spelling.op, "LIFT": spelling.lift, "INIT": spelling.init}
    found |= {"FINISH": spelling.finish} if spelling.finish else {}
    # Elements that nothing becomes of: CUB loads vectors of them.
    found |= {"PLAIN": "1"} if spelling.lift == "x" else {}
    return _as_options(found)


def _as_options(found: dict[str, str]) -> list[str]:
    return [f"-D{name}={value}" for name, value in found.items()]


def nvcc() -> str:
    """The compiler. Raises BackendMissing where there is none."""
    found = shutil.which("nvcc")
    if found is None:
        raise BackendMissing("CUB needs nvcc on PATH")
    return found


def library_path(problem: Problem, arch: str) -> Path:
    """Where the library of a problem lies once it is compiled. Raises BackendMissing where there can be none."""
    from redtune.store import cache_path

    options = defines(problem)
    made_of = "\n".join((SOURCE.read_text(), *options, arch, nvcc_version()))
    name = f"cub-{problem.op}-{problem.dtype}-{problem.layout}-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.so"
    return cache_path() / "libraries" / name


@functools.cache
def nvcc_version() -> str:
    """What nvcc says about itself; the headers of CUB come with it."""
    done = subprocess.run([nvcc(), "--version"], capture_output=True, text=True, check=False, timeout=60)
    return done.stdout


def build(problem: Problem, arch: str) -> Path:
    """The compiled library of a problem: the one that is kept, or a new one, which is kept where that can be. Takes
    some ten seconds. Raises BackendMissing with the reason where there is none."""
    from redtune.store import UNWRITABLE, make_folder, warn_unkept

    path = library_path(problem, arch)
    if is_kept(path):
        return path
    try:
        make_folder(path.parent)
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=".building-"))
        keeps = True
    except UNWRITABLE as error:
        warn_unkept("a compiled library", path.parent, error)
        folder, keeps = Path(tempfile.mkdtemp(prefix="redtune-cub-")), False
    made = folder / path.name
    try:
        _compile(defines(problem), arch, made)
        if not keeps:
            return made
        made.chmod(0o700)
        made.replace(path)
    finally:
        if keeps:
            shutil.rmtree(folder, ignore_errors=True)
    if not is_kept(path):
        raise BackendMissing(f"the compiled library in {path.parent} may be written to by others")
    return path


def is_kept(path: Path) -> bool:
    """Whether a library is there that nobody but the user can have written."""
    from redtune.store import _is_users_own

    try:
        return _is_users_own(path)
    except OSError:
        return False


_RUNNING: set[subprocess.Popen[str]] = set()


def _compile(options: list[str], arch: str, to: Path) -> None:
    target = f"-gencode=arch=compute_{arch.removeprefix('sm_')},code={arch}"
    command = [
        *gently(),
        nvcc(),
        "-std=c++17",
        "-O3",
        target,
        "-Xcompiler",
        "-fPIC",
        "-shared",
        *options,
        "-o",
        str(to),
    ]
    process = subprocess.Popen(
        [*command, str(SOURCE)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    _RUNNING.add(process)
    try:
        _, said = process.communicate(timeout=NVCC_LIMIT_S)
    except subprocess.TimeoutExpired:
        _end(process)
        raise BackendMissing(f"nvcc took longer than {NVCC_LIMIT_S} s over CUB") from None
    finally:
        _RUNNING.discard(process)
    if process.returncode:
        lines = [line for line in said.strip().splitlines() if "error" in line.lower()] or ["no reason given"]
        raise BackendMissing(f"CUB did not compile: {lines[0].strip()[:200]}")


def gently() -> list[str]:
    """What stands before a command that gives way to whoever measures."""
    return ["nice", "-n", "10"] if shutil.which("nice") else []


def stop() -> None:
    """Ends every compilation that still runs: nobody waits for it any more."""
    for process in list(_RUNNING):
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    # With the programs that nvcc has started: it leads a group of its own.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
