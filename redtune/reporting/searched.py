"""What a search leaves behind for its report: one JSON file for each study, replaced in one step.

It holds what neither the study nor the tuned config knows: the problem and the device, the ceiling, the finalists with
their intervals, and why the search ended as it did. It is written when a search begins and again when it ends, so that
one that was killed has a report too. Like every file of the cache it may come from anybody: it is data, its size is
bounded, and what cannot be read counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import math
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redtune.clock import is_time
from redtune.dtypes import unknown
from redtune.entries import check_best, check_device, check_problem, texts_in
from redtune.errors import UsageError, in_a_line
from redtune.keys import file_name, folder_name, format_number, warn_once
from redtune.outcome import Finalist
from redtune.store import UNWRITABLE, cache_path, locked, warn_unkept, write_atomically
from redtune.types import Best, Device, Problem, as_json, from_json

FOLDER = "searches"
MAX_FILE_BYTES = 1 << 17  # twenty times what one takes
KEY_LETTERS = 8


@dataclass(frozen=True, slots=True)
class Searched:
    """One search as it stands. `study` is the whole name of its study, `name` what its user called it. Times are in
    microseconds; `ceiling_us` was measured before the trials. `finalists` and `best` are there once the search has come
    to its end."""

    format: int
    study: str
    name: str
    problem: Problem
    device: Device
    temperature: str
    sampler: str
    seed: int
    budget: int
    data_bytes: int
    ceiling_us: float | None
    when: str  # ISO date of the last change
    fixed: dict[str, str] = field(default_factory=dict)
    finalists: tuple[Finalist, ...] = ()
    best: Best | None = None
    verdict: str = ""
    stopped: str = ""
    started_from: str = ""
    seconds: float = 0.0

    @property
    def key(self) -> str:
        """A short name for the study: what a report is asked for by."""
        return hashlib.sha256(self.study.encode()).hexdigest()[:KEY_LETTERS]

    @property
    def final_ceiling_us(self) -> float | None:
        """The read ceiling as it stood in the final rounds, or before the trials where it was not taken there."""
        if self.best is not None and self.best.ceiling_gbps:
            return self.data_bytes / self.best.ceiling_gbps * 1e-3
        return self.ceiling_us

    @property
    def problem_key(self) -> str:
        """The name of the problem, as the tuned config's file has it."""
        return file_name(self.problem, self.temperature).removesuffix(".yaml")

    def names(self) -> tuple[str, ...]:
        """Everything that it may be called by."""
        return tuple(filter(None, (self.key, self.name, self.problem_key, self.study)))


def path_of(searched: Searched) -> Path:
    """Where a search is kept."""
    return cache_path() / FOLDER / folder_name(searched.device) / f"{searched.key}.json"


def keep(searched: Searched) -> None:
    """Writes a search; where nothing can be written, one warning and nothing else."""
    path = path_of(searched)
    try:
        with locked(path):
            write_atomically(path, json.dumps(as_json(searched)))
    except UNWRITABLE as error:
        warn_unkept("what a report needs", path.parent, error)


def read_searched(path: Path) -> Searched | None:
    """The search in a file, or None where there is none that can be used; a damaged one gives a warning."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_FILE_BYTES:
            raise ValueError("it is too large, or no file")
        data = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(data, dict) and data.get("format") != format_number():
            warn_once("searches of another version of redtune have no report here", about="another format of searches")
            return None
        searched = from_json(Searched, data)
        _check(searched, data)
        if path != path_of(searched):
            raise ValueError("it was written for another study")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, OverflowError, RecursionError) as error:
        warn_once(f"the search {path} cannot be used and counts as absent: {in_a_line(error)}", about=str(path))
        return None
    return searched


def _check(searched: Searched, data: dict[str, Any]) -> None:
    """Raises UsageError for what no search can have written."""
    check_problem(searched.problem)
    check_device(searched.device)
    if searched.best is not None:
        check_best(searched.best)
    _check_numbers(data)
    times = [finalist.timing.median_us for finalist in searched.finalists]
    if searched.ceiling_us is not None:
        times.append(searched.ceiling_us)
    if not all(map(is_time, times)) or searched.data_bytes < 0:
        raise UsageError("its times are none")
    free = {"study", "name"}  # what the user calls a search is written as text wherever it is shown
    for where, text in texts_in({name: value for name, value in data.items() if name not in free}, "Searched"):
        if not text.isprintable():
            raise UsageError(f"{where} cannot be {text!r:.80}")


def _check_numbers(data: Any) -> None:
    if isinstance(data, float) and not math.isfinite(data):
        raise UsageError("it holds what is no number")
    for part in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        _check_numbers(part)


def all_searched() -> list[Searched]:
    """Every search that is kept, the last one first."""

    def read() -> Iterator[Searched]:
        for path in (cache_path() / FOLDER).glob("*/*.json"):
            searched = read_searched(path)
            if searched is not None:
                yield searched

    return sorted(read(), key=lambda searched: searched.when, reverse=True)


def find(asked: str, there: Sequence[Searched]) -> Searched:
    """The search called `asked`: by its key, the name its user gave it, its problem's, or the whole of its study's.
    Raises UsageError with the nearest names where there is none, and with the keys where there are several."""
    if not there:
        raise UsageError("no search has left anything to report: redtune search --op max")
    found = [searched for searched in there if asked in searched.names()]
    if len(found) > 1:
        keys = ", ".join(searched.key for searched in found)
        raise UsageError(f"{asked!r} names {len(found)} searches: ask for one of {keys}")
    if not found:
        short = [name for searched in there for name in searched.names() if name != searched.study]
        raise UsageError(unknown("search", asked, dict.fromkeys(short)))
    return found[0]
