"""The verb: the stored winner of a problem as a small project of its own."""

from __future__ import annotations

import json
import keyword
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from redtune.backends import backend_named
from redtune.config import Value
from redtune.dtypes import unknown
from redtune.errors import BackendMissing, UsageError
from redtune.exporting.binaries import BINARIES, binaries_of
from redtune.exporting.folder import check_folder, write_folder
from redtune.exporting.formats import FORMATS, texts_of
from redtune.exporting.variants import ANY_SIZE, Export, choose, default_name
from redtune.types import Device, Problem
from redtune.wanted import check_fixes, wanted_problem

Shapes = Sequence[int] | Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: the export, its format, and the paths of its files."""

    export: Export
    format: str
    files: tuple[Path, ...]


def export(
    op: str,
    dtype: str = "float32",
    n: int | Sequence[int] | None = None,
    *,
    shape: Shapes | None = None,
    axis: Any = None,
    accumulate: str | None = None,
    determinism: str = "any",
    custom: str = "",
    format: str,
    out: str | Path,
    arch: str | Sequence[str] | None = None,
    device: int = 0,
    cold: bool = True,
    fix: Mapping[str, Value] | None = None,
    default: bool = False,
    name: str | None = None,
    binaries: Sequence[str] = (),
    force: bool = False,
) -> Exported:
    """Writes the stored winner of a problem into the folder `out`, as files that need no redtune.

    `format` is one of `redtune.exporting.formats.FORMATS`. The winner is that of this machine's `device` or of the
    architectures `arch` (no device is needed then). Several sizes `n` or shapes give one export that picks the nearest
    at run time; with neither, every size that was tuned goes in. `default` exports the default config where nothing is
    tuned. `fix` sets knobs. `name` is the function's name. `binaries` asks for compiled kernels beside the source:
    "ptx", "cubin" or "hsaco".

    Raises UsageError for what cannot be exported or a folder that cannot take it, BackendMissing where no device and no
    architecture is there, RedtuneError where a compiler or the disk fails; then nothing is written.
    """
    if format not in FORMATS:
        raise UsageError(unknown("format", format, tuple(FORMATS)))
    backend = FORMATS[format].backend
    for binary in binaries:
        if binary not in BINARIES:
            raise UsageError(unknown("binary", binary, tuple(BINARIES)))
        if BINARIES[binary].backend != backend:
            raise UsageError(
                f"{binary} is of {BINARIES[binary].backend}, and the format {format} holds {backend} kernels"
            )
    check_folder(Path(out), force)
    devices = _devices(backend, arch, device)
    fixes = check_fixes(fix or {})
    problems = _problems(op, dtype, n, shape, axis, accumulate, determinism, custom)
    variants = choose(problems, devices, fix=fixes, temperature="cold" if cold else "warm", or_default=default)
    words = _command(problems, devices, format, fixes, cold, default, name, binaries, (shape, axis, accumulate))
    whole = Export(_checked_name(name, variants[0].problem), variants, words)
    for variant in variants:
        FORMATS[format].check(variant)
    files = {file: text.encode() for file, text in texts_of(whole, format, binaries).items()}
    files |= binaries_of(whole, binaries)
    return Exported(whole, format, tuple(write_folder(Path(out), files)))


def _devices(backend: str, arch: str | Sequence[str] | None, index: int) -> list[Device]:
    """The devices to export for: this machine's, or stand-ins of the named architectures."""
    if arch is None:
        from redtune.lab import find_device

        try:
            return [find_device(backend, index)]
        except BackendMissing as error:
            raise BackendMissing(f"{error}; --arch names an architecture to export for with no device") from error
    names = [arch] if isinstance(arch, str) else list(dict.fromkeys(arch))
    if not names:
        raise UsageError("arch names no architecture")
    return [backend_named(backend).describe(name) for name in names]


def _problems(
    op: str,
    dtype: str,
    n: int | Sequence[int] | None,
    shape: Shapes | None,
    axis: Any,
    accumulate: str | None,
    determinism: str,
    custom: str,
) -> list[Problem]:
    """The problem in every size asked for; of `ANY_SIZE` where none was."""
    rest = (determinism, accumulate, custom)
    if shape is None:
        sizes = [n] if n is None or isinstance(n, int) else list(n)
        if not sizes:
            raise UsageError("n names no size")
        found = [wanted_problem(op, dtype, size, None, axis, *rest) for size in sizes]
        return [replace(found[0], n=ANY_SIZE)] if n is None else found
    if n is not None:
        raise UsageError(f"n is {n} and the shape {shape}: give one of them")
    found = [wanted_problem(op, dtype, None, one, axis, *rest) for one in _shapes(shape)]
    if len({problem.layout for problem in found}) > 1:
        raise UsageError("the shapes lie differently in memory: export each of them on its own")
    return found


def _shapes(shape: Shapes) -> list[Sequence[int]]:
    """One shape or several."""
    given: Any = shape
    return [given] if not given or isinstance(given[0], int) else list(given)


def _checked_name(name: str | None, problem: Problem) -> str:
    if name is None:
        return default_name(problem)
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,99}", name):
        raise UsageError(f"a function cannot be called {name!r}: letters, digits and _ are allowed, a letter first")
    from redtune.definitions import RESERVED

    if name in RESERVED or keyword.iskeyword(name):
        raise UsageError(f"a function cannot be called {name!r}: it is a word of the language")
    return name


def _command(
    problems: Sequence[Problem],
    devices: Sequence[Device],
    format: str,
    fixes: Mapping[str, Value],
    cold: bool,
    default: bool,
    name: str | None,
    binaries: Sequence[str],
    given: tuple[Shapes | None, Any, str | None],
) -> str:
    """The command that writes the same files again, wherever the same winners are stored."""
    shape, axis, accumulate = given
    problem = problems[0]
    words = ["redtune export", f"--op {problem.op}", f"--dtype {problem.dtype}"]
    if shape is not None:
        words += [f"--shape {'x'.join(map(str, one))}" for one in _shapes(shape)]
    elif problem.n != ANY_SIZE:
        words.append(f"--n {','.join(str(one.n) for one in problems)}")
    if axis is not None:
        words.append(f"--axis {','.join(map(str, axis)) if isinstance(axis, (tuple, list)) else axis}")
    words += [f"--accumulate {accumulate}"] if accumulate is not None else []
    words += [f"--determinism {problem.determinism}"] if problem.determinism != "any" else []
    words += _custom_words(problem)
    words += [f"--arch {','.join(device.arch for device in devices)}", f"--format {format}"]
    words += [f"--fix {knob}={value}" for knob, value in fixes.items()]
    words += ["--warm"] if not cold else []
    words += ["--default"] if default else []
    words += [f"--name {name}"] if name is not None else []
    words += [f"--with {','.join(binaries)}"] if binaries else []
    return " ".join([*words, "--out DIR"])


def _custom_words(problem: Problem) -> list[str]:
    """How the user's own operator was given, as far as options can say it."""
    if not problem.custom:
        return []
    spec = json.loads(problem.custom)
    if "from" not in spec:
        return ["--op-file FILE"]
    return [f"--{key} {shlex.quote(str(spec[key]))}" for key in ("map", "finish") if spec.get(key)]
