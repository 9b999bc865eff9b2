"""The file of studies: one record a line, only ever appended to, by processes that may die at any moment.

Optuna's own file backend stops for good at a line that a crash left in two, and waits half a minute for the lock of a
process that was killed. This one passes over what is no record and goes on behind it, takes a lock that the system
frees with its holder, and keeps in memory what a full disk does not take.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from optuna.storages.journal import BaseJournalBackend

from redtune.store import UNWRITABLE, append_line, locked, warn_once, warn_unkept

# How every record begins, so that one is found behind what is left of another.
MARK = b'{"op_code":'
MAX_LINE = 1 << 20  # a record is a few hundred bytes


class Journal(BaseJournalBackend):
    """The records of one file as one process reads and writes them. Raises OSError where there can be no file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._locked():
            # Held open, so that no other file can ever be taken for this one.
            held = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        weakref.finalize(self, os.close, held)
        self._file = _identity(os.fstat(held))
        self._line = 0  # where the line of the next record begins
        self._within = 0  # how many records of that line were read
        # What the disk did not take: from then on nothing is written, and nothing of what others write is read, as
        # records name trials by the order in which all of them were begun.
        self._unkept: list[dict[str, Any]] | None = None
        self._unkept_read = 0

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """The records that this process has not read yet: it reads them in order, so it never asks for others."""
        if self._unkept is None:
            try:
                yield from self._of_file()
                return
            except OSError as error:
                self._leave(error)
        yield from self._of_memory()

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Adds records, all of them or none."""
        if self._unkept is None:
            try:
                with self._locked():
                    self._append(logs)
                return
            except UNWRITABLE as error:
                self._leave(error)
        assert self._unkept is not None
        self._unkept += logs

    def _locked(self) -> Any:
        return locked(self.path.with_suffix(""))

    def _leave(self, error: Exception) -> None:
        """Goes on without the file."""
        warn_unkept("what the search finds from here on", self.path, error)
        self._unkept = []

    def _check_file(self) -> None:
        if _identity(self.path.stat()) != self._file:
            raise OSError("another file has taken its place")

    def _of_file(self) -> Iterator[dict[str, Any]]:
        self._check_file()
        with self.path.open("rb") as file:
            file.seek(self._line)
            while (line := _line_of(file)) is not None:
                records, is_clean = records_in(line)
                if not is_clean:
                    warn_once(f"the study file {self.path} was damaged; its whole records are used")
                while self._within < len(records):
                    self._within += 1
                    yield records[self._within - 1]
                self._line, self._within = file.tell(), 0

    def _of_memory(self) -> Iterator[dict[str, Any]]:
        assert self._unkept is not None
        while self._unkept_read < len(self._unkept):
            self._unkept_read += 1
            yield self._unkept[self._unkept_read - 1]

    def _append(self, logs: list[dict[str, Any]]) -> None:
        self._check_file()
        size = self.path.stat().st_size
        lines = b"\n".join(json.dumps(log, separators=(",", ":")).encode() for log in logs)
        try:
            # A power cut may take what was asked, but nothing that was finished.
            append_line(self.path, lines, is_lasting=any("state" in log for log in logs))
        except OSError:
            os.truncate(self.path, size)  # half a record is no use to anyone
            raise


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _line_of(file: Any) -> bytes | None:
    """The next line that has an end; of one that is too long for any record, nothing but its end."""
    line: bytes = file.readline(MAX_LINE)
    while len(line) == MAX_LINE and not line.endswith(b"\n"):
        line = file.readline(MAX_LINE)
        if line.endswith(b"\n"):
            return b"\0\n"
    return line if line.endswith(b"\n") else None


def records_in(line: bytes) -> tuple[list[dict[str, Any]], bool]:
    """The records in a line, and whether it holds one and nothing else."""
    decoder, text, mark = json.JSONDecoder(), line.decode(errors="replace"), MARK.decode()
    records: list[dict[str, Any]] = []
    at, is_passed_over = 0, False
    while (start := text.find(mark, at)) >= 0:
        is_passed_over |= start > at
        try:
            record, at = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            at, is_passed_over = start + 1, True
            continue
        if type(record["op_code"]) is int:
            records.append(record)
    return records, len(records) == 1 and not is_passed_over and text[at:] == "\n"
