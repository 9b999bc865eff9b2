"""Files that list problems to tune: YAML, one mapping each, checked before anything is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from redtune.errors import UsageError
from redtune.plainyaml import read_plain
from redtune.types import Problem

MAX_FILE_BYTES = 1 << 20
KEYS = ("op", "dtype", "n", "shape", "axis", "accumulate", "determinism")


def read_manifest(path: str) -> list[tuple[Problem, bool]]:
    """The problems of a file, each with whether its size is given. Raises UsageError naming file, entry and key.

    The file is a list of mappings with `op`, and where wanted `dtype`, `n` or `shape` with `axis`, `accumulate` and
    `determinism`; a value that is a list of operators or dtypes stands for one problem each.
    """
    try:
        found = read_plain(Path(path), MAX_FILE_BYTES)
    except OSError as error:
        raise UsageError(f"the manifest {path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"the manifest {path} is not YAML that can be used: {error}") from error
    if not isinstance(found, list) or not found:
        raise UsageError(f"the manifest {path} must be a list of problems, each with an op")
    return [problem for k, entry in enumerate(found, 1) for problem in _problems(entry, f"{path}, entry {k}")]


def _problems(entry: Any, where: str) -> list[tuple[Problem, bool]]:
    from redtune.wanted import wanted_problem

    if not isinstance(entry, dict) or "op" not in entry:
        raise UsageError(f"{where}: {str(entry)[:80]!r} is no problem; it needs an op")
    unknown = [key for key in entry if key not in KEYS]
    if unknown:
        raise UsageError(f"{where} has the key {str(unknown[0])[:40]!r}: choose from {', '.join(KEYS)}")
    n, shape = _size(entry.get("n"), where), entry.get("shape")
    lengths = None if shape is None else [_size(length, where) for length in _listed(shape)]
    axis = entry.get("axis")
    rows = []
    for op in _listed(entry["op"]):
        for dtype in _listed(entry.get("dtype", "float32")):
            try:
                problem = wanted_problem(
                    str(op),
                    str(dtype),
                    n,
                    None if lengths is None else [length or 0 for length in lengths],
                    tuple(axis) if isinstance(axis, list) else axis,
                    str(entry.get("determinism", "any")),
                    entry.get("accumulate"),
                )
            except (ValueError, TypeError) as error:
                raise UsageError(f"{where}: {error}") from error
            rows.append((problem, n is not None or lengths is not None))
    return rows


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


def _size(value: Any, where: str) -> int | None:
    """A number of elements, also as text such as 2**26."""
    from redtune.arguments import parse_n

    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, str):
        return parse_n(value)
    raise UsageError(f"{where}: {value!r} is no number of elements; write a whole number or 2**26")
