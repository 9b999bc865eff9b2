"""Configs that come with redtune, so that a reduction is fast before anything was tuned.

`configs/<backend>-<arch>/<operator>-<dtype>.yaml` holds what was measured for one operator and dtype on one device: a
head that says on what and how, and a row for each layout and size, with the knobs in which its config differs from the
default `Config` and the evidence. `results/ship.py` writes these files, people review them. They are read with the same
suspicion as any other: a bounded size, plain data, every value checked; what cannot be read is a miss with one warning.

A row is measured with determinism "any"; it serves "run-to-run" too where it is legal for that.
"""

from __future__ import annotations

import functools
import stat
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from redtune.config import Config, default_of
from redtune.entries import check_best
from redtune.errors import RedtuneError, UsageError
from redtune.keys import apart, buckets, folder_name, format_number, in_words, warn_once
from redtune.likeness import like_dtypes, like_operators
from redtune.plainyaml import NotPlain, read_plain
from redtune.problems import make_problem
from redtune.types import Best, Device, Problem, as_json, from_json

MAX_FILE_BYTES = 1 << 17  # five times what every layout and size takes
MAX_ROWS = 500
NEAR = 4  # powers of two between sizes: further away, what is like a problem in its own size is the better start
WIDE = 1 << 20  # of a line of YAML that is not to be broken


@dataclass(frozen=True, slots=True)
class Row:
    """One layout and size: the config that is shipped, and what was measured. `config` is written as the knobs that
    differ from the default `Config`; `candidates` says how many configs were timed, `default_us` what the config took
    that would run without this row. Where the row is older than its file, `templates`, `commit`, `command` and `found`
    are its own."""

    layout: str
    n: int
    config: Config
    median_us: float
    spread_us: float
    gbps: float
    ceiling_gbps: float | None
    default_us: float | None
    candidates: int
    outer: int = 1
    inner: int = 1
    determinism: str = "run-to-run"  # what the config promises: "run-to-run" or "varies"
    templates: str = ""
    commit: str = ""
    command: str = ""
    found: str = ""


@dataclass(frozen=True, slots=True)
class Sheet:
    """The file of one operator and dtype on one device."""

    format: int
    op: str
    dtype: str
    device: Device
    templates: str
    commit: str
    command: str
    found: str  # ISO date
    seed: int
    temperature: str
    determinism: str
    versions: dict[str, str]
    rows: tuple[Row, ...]

    @property
    def file_name(self) -> str:
        """What the file is called in the folder of its architecture."""
        return sheet_name(self.op, self.dtype)

    def bests(self) -> tuple[Best, ...]:
        """Every row as an entry of the store. Raises UsageError naming the first value that cannot be."""
        if self.determinism != "any":
            raise UsageError(f"Sheet.determinism cannot be {self.determinism!r:.80}")
        if not 0 < len(self.rows) <= MAX_ROWS:
            raise UsageError(f"Sheet.rows are {len(self.rows)}; between 1 and {MAX_ROWS} are wanted")
        made = tuple(self._best(row) for row in self.rows)
        for best in made:
            check_best(best)
        sizes = [(best.problem.layout, buckets(best.problem)) for best in made]
        if len(set(sizes)) < len(sizes):
            raise UsageError("Sheet.rows have two for the same layout and size class")
        return made

    def _best(self, row: Row) -> Best:
        problem = make_problem(self.op, self.dtype, row.n, outer=row.outer, inner=row.inner)
        problem = replace(problem, is_strided=row.layout == "columns" and row.inner == 1)
        if problem.layout != row.layout:
            raise UsageError(f"Row.layout cannot be {row.layout!r:.80} of {row.outer} x {row.n} x {row.inner}")
        return Best(
            problem=problem,
            device=self.device,
            config=row.config,
            median_us=row.median_us,
            spread_us=row.spread_us,
            runner_up_us=None,
            default_us=row.default_us,
            worst_us=None,
            baseline_us=None,
            baseline="",
            gbps=row.gbps,
            ceiling_gbps=row.ceiling_gbps,
            temperature=self.temperature,
            determinism=row.determinism,
            trials=row.candidates,
            seed=self.seed,
            found=row.found or self.found,
            versions=self.versions | {"commit": row.commit or self.commit, "command": row.command or self.command},
            templates=row.templates or self.templates,
            format=self.format,
        )


def sheet_name(op: str, dtype: str) -> str:
    """The file of an operator and a dtype."""
    return f"{op}-{dtype}.yaml"


# --- reading ----------------------------------------------------------------------------------------------------------


def read_sheet(path: Path) -> tuple[Best, ...]:
    """The rows of a file, none where it cannot be used; a damaged one gives one warning. Read once per process."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except (OSError, ValueError) as error:
        return _unusable(path, error)
    return _read_once(path, found.st_mtime_ns, found.st_size, stat.S_ISREG(found.st_mode))


@functools.lru_cache(maxsize=4096)
def _read_once(path: Path, modified_ns: int, size: int, is_file: bool) -> tuple[Best, ...]:
    try:
        if not is_file:
            raise NotPlain("it is no file")  # a pipe would be waited for
        data = read_plain(path, MAX_FILE_BYTES)
        written = data.get("format") if isinstance(data, dict) else None
        if type(written) is int and written != format_number():
            text = f"the shipped configs {path} are of another version of redtune and count as absent; so do the others"
            warn_once(text, about="another format of shipped configs")
            return ()
        return _sheet_of(data, path).bests()
    except (OSError, ValueError, OverflowError, RedtuneError) as error:
        return _unusable(path, error)


def _sheet_of(data: Any, path: Path) -> Sheet:
    """A file's data, of what the file is called for."""
    sheet = from_json(Sheet, data)
    expected = f"{folder_name(sheet.device)}/{sheet.file_name}"
    if f"{path.parent.name}/{path.name}" != expected:
        raise NotPlain(f"they were written for {expected}")
    return sheet


def _unusable(path: Path, error: Exception) -> tuple[Best, ...]:
    reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
    warn_once(f"the shipped configs {path} cannot be used and count as absent: {reason}", about=str(path))
    return ()


def entries(root: Path, op: str | None = None, dtype: str | None = None, determinism: str = "any") -> Iterator[Best]:
    """Every usable row under a folder of architectures, or those of an operator or a dtype: as entries for
    "run-to-run", those that promise it."""
    for path in sorted(root.glob("*/*.yaml")):
        own_op, _, own_dtype = path.stem.rpartition("-")
        if op in (None, own_op) and dtype in (None, own_dtype):
            for best in read_sheet(path):
                if determinism in ("any", best.determinism):
                    yield replace(best, problem=replace(best.problem, determinism=determinism))


# --- finding ----------------------------------------------------------------------------------------------------------


def near(folder: Path, problem: Problem) -> list[Best]:
    """The rows of the very operator, dtype and layout for sizes near the problem's, the nearest first. Masks, initial
    values and other running types have no rows of their own."""
    return [best for best in _same(folder, problem) if apart(best.problem, problem) <= NEAR]


def otherwise(folder: Path, problem: Problem) -> Iterator[Best]:
    """The rows for what is like the problem, of sizes near its own; then those for other sizes, the nearest first. Of
    several results, how many share a block follows from the sizes, so that far ones stand for nothing."""
    if not folder.is_dir():
        return
    yield from (best for best in _alike(folder, problem) if apart(best.problem, problem) <= NEAR)
    if problem.layout == "flat":
        yield from (best for best in _same(folder, problem) if apart(best.problem, problem) > NEAR)
        yield from (best for best in _alike(folder, problem) if apart(best.problem, problem) > NEAR)


def _same(folder: Path, problem: Problem) -> list[Best]:
    return [] if problem.custom else _rows(folder, problem.op, problem.dtype, problem)


def _alike(folder: Path, problem: Problem) -> Iterator[Best]:
    """The same operator on another dtype, then another operator."""
    dtypes = like_dtypes(problem.dtype)
    pairs = [] if problem.custom else [(problem.op, dtype) for dtype in dtypes]
    pairs += [(op, dtype) for dtype in (problem.dtype, *dtypes) for op in like_operators(problem)]
    for op, dtype in pairs:
        yield from _rows(folder, op, dtype, problem)


def _rows(folder: Path, op: str, dtype: str, problem: Problem) -> list[Best]:
    rows = [best for best in read_sheet(folder / sheet_name(op, dtype)) if best.problem.layout == problem.layout]
    return sorted(rows, key=lambda best: apart(best.problem, problem))


def origin(best: Best, problem: Problem, device: Device, temperature: str) -> str:
    """Where a row comes from, and in what its problem differs from the one at hand."""
    there = best.problem
    parts = []
    if problem.custom or there.op != problem.op:
        parts.append(there.op if there.dtype == problem.dtype else f"{there.op} of {there.dtype}")
    elif there.dtype != problem.dtype:
        parts.append(there.dtype)
    elif there.accumulate != problem.accumulate or problem.is_compensated:
        parts.append(f"running values in plain {there.accumulate}")
    parts += [in_words(there)] if apart(there, problem) else []
    parts += [f"{best.temperature} inputs"] if best.temperature != temperature else []
    if best.device.arch != device.arch:
        parts.append(f"{best.device.arch}, the nearest architecture")
    elif best.device.name != device.name:
        parts.append(f"{best.device.name}, of the same architecture")
    return "shipped" + (f" for {', '.join(parts)}" if parts else "")


# --- writing ----------------------------------------------------------------------------------------------------------


def with_older(sheet: Sheet, path: Path) -> Sheet:
    """A sheet and those rows of the file at `path` that it has none for, each with its own evidence. Raises UsageError
    where they were measured on another device or by another version."""
    if not path.exists():
        return sheet
    older = _sheet_of(read_plain(path, MAX_FILE_BYTES), path)
    if (older.device, older.format) != (sheet.device, sheet.format):
        raise UsageError(f"{path} was measured on another device or by another version: its rows cannot be kept")
    fresh = {_size_of(row) for row in sheet.rows}
    kept = (row for row in older.rows if _size_of(row) not in fresh)
    names = ("templates", "commit", "command", "found")
    rows = [replace(row, **{name: getattr(row, name) or getattr(older, name) for name in names}) for row in kept]
    return replace(sheet, rows=(*sheet.rows, *rows))


def _size_of(row: Row) -> tuple[str, tuple[int, ...]]:
    """The layout and size class: of each a file has one row."""
    problem = make_problem("sum", "float32", row.n, outer=row.outer, inner=row.inner)
    return row.layout, buckets(problem)


def sheet_text(sheet: Sheet) -> str:
    """A file as it is written: the head, then one line a row. Raises UsageError for what could not be read again."""
    import yaml

    sheet.bests()
    head = as_json(sheet)
    del head["rows"]
    lines = [yaml.safe_dump(head, default_flow_style=None, width=WIDE, sort_keys=False, allow_unicode=True), "rows:\n"]
    for row in sorted(sheet.rows, key=lambda row: (row.layout != "flat", row.layout, row.n, row.outer * row.inner)):
        text = yaml.safe_dump(_row_data(row), default_flow_style=True, width=WIDE, sort_keys=False)
        lines.append(f"- {text}")
    return "".join(lines)


def _row_data(row: Row) -> dict[str, Any]:
    """A row without what goes without saying, its size first."""
    data = as_json(row)
    data["config"] = {knob: value for knob, value in data["config"].items() if value != default_of(knob)}
    plain = {f.name: f.default for f in fields(row)}
    first = ("layout", "outer", "n", "inner", "config")
    names = (*first, *(name for name in data if name not in first))
    return {name: data[name] for name in names if data[name] != plain[name]}
