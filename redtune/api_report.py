"""What a search has left behind, as a page."""

from __future__ import annotations

import tempfile
from pathlib import Path

from redtune.errors import UsageError


def report(study: str, out: str | Path = "report.html", *, storage: str | None = None, force: bool = False) -> Path:
    """Writes the report of a search as one page of HTML that needs no server, and gives its path. No device is used.

    `study` is the key that `redtune report` lists, the name that the study was given, the name of the problem's tuned
    config, or the whole name of the study. `storage` is the database of studies where the search had one. A file that
    is there is replaced with `force` only. Raises UsageError where there is no such search, or the page cannot be
    written; then nothing is.
    """
    from redtune.reporting.page import written
    from redtune.reporting.searched import all_searched, find
    from redtune.studies import read_study

    searched = find(study, all_searched())
    path = Path(out)
    if path.exists() and not force:
        raise UsageError(f"{path} is there already: choose another file, or replace it with --force")
    text = written(searched, read_study(searched.study, storage))
    try:
        _write(path, text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def _write(path: Path, text: str) -> None:
    """The whole page or what was there before, with the rights of any new file."""
    with tempfile.TemporaryDirectory(dir=path.absolute().parent, prefix=".redtune-") as staging:
        made = Path(staging) / "page"
        made.write_text(text, encoding="utf-8")
        made.replace(path)
