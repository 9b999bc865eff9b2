"""How the files of an export come into a folder: all of them, or none."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from redtune.errors import RedtuneError, UsageError


def check_folder(out: Path, force: bool) -> None:
    """Raises UsageError for a folder that files cannot or must not be written to, before any work is done for them."""
    if out.is_dir():
        if any(out.iterdir()) and not force:
            raise UsageError(f"{out} is not empty: choose another folder, or replace files there with --force")
        if not os.access(out, os.W_OK | os.X_OK):
            raise UsageError(f"{out} cannot be written to")
        return
    if out.exists() or out.is_symlink():
        raise UsageError(f"{out} is a file: an export is a folder")
    above = next(folder for folder in out.absolute().parents if folder.exists())
    if not above.is_dir():
        raise UsageError(f"{out} cannot be made: {above} is a file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise UsageError(f"{out} cannot be made: {above} cannot be written to")


def write_folder(out: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Writes the files and gives their paths. What fails leaves nothing behind; files of other names stay."""
    made = [folder for folder in (out.absolute(), *out.absolute().parents) if not folder.exists()]
    placed: list[Path] = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out, prefix=".redtune-") as staging:
            for name, content in files.items():
                (Path(staging) / name).write_bytes(content)
            for name in files:
                is_new = not (out / name).exists()
                (Path(staging) / name).replace(out / name)
                placed += [out / name] if is_new else []
    except BaseException as error:
        for path in placed:
            path.unlink(missing_ok=True)
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError):
            reason = "no space is left" if error.errno == errno.ENOSPC else error.strerror or str(error)
            raise RedtuneError(f"the export could not be written to {out}: {reason}") from error
        raise
    return [out / name for name in files]
