"""Tuned configs, trial rows and compiled kernels on disk: read with suspicion, written so that a kill harms nothing.

A tuned config is one YAML file, so that searches for different problems never meet. Its name is its key and holds all
that changes the winner or its meaning; what the file says about itself must agree with the name. Anything unreadable is
a miss with one warning, and the next search writes it anew. A file may come from anybody, so it is data only: no code,
no path and no class is taken from it, what it may cost to read is bounded, and every value is checked
(`redtune.plainyaml`, `redtune.entries`). It is written under a lock and put in place in one step.

Trial rows are lines of JSON that are only ever appended, and never read here.

A compiled kernel is code, which no check can make harmless. So it is taken from nobody but the user: its folders are
made for the user alone, and what lies in a folder that others may write to, or that is another user's, is not used. Its
checksum covers its name too: a file that was moved to the place of another is none.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import re
import stat
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redtune import shipped
from redtune.config import Config
from redtune.defaults import default_config
from redtune.dialect import Dialect
from redtune.entries import check_best
from redtune.errors import UsageError
from redtune.keys import SIZE_MARK, apart, in_words
from redtune.keys import WARNED as WARNED
from redtune.keys import bucket_of as bucket_of
from redtune.keys import buckets as buckets
from redtune.keys import file_name as file_name
from redtune.keys import folder_name as folder_name
from redtune.keys import format_number as format_number
from redtune.keys import warn_once as warn_once
from redtune.plainyaml import NotPlain, read_plain
from redtune.refusals import is_legal
from redtune.render import templates_digest, templates_path
from redtune.types import Best, Device, Kernel, Problem, Trial, as_json, from_json

CACHE_VARIABLE = "REDTUNE_CACHE"
LOCK_TIMEOUT_S = 30.0
MAX_ENTRY_BYTES = 1 << 15  # an operator of one's own takes most of it, in 500 letters an expression
CHECK_BYTES = 4  # of the checksum behind a compiled kernel
MAX_BINARY_BYTES = 1 << 28
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# What it means that a file cannot be written or locked; the last where a file system knows no locks.
UNWRITABLE = (OSError, NotImplementedError)


def cache_path() -> Path:
    """The user's cache folder: REDTUNE_CACHE, or the platform's own place; for a user without a home, a place where
    nothing can be written."""
    import platformdirs

    moved = os.environ.get(CACHE_VARIABLE)
    if moved:
        return Path(moved)
    try:
        found = platformdirs.user_cache_path("redtune")
    except RuntimeError:
        found = Path()
    return found if found.is_absolute() else Path(os.devnull) / "redtune"


def shipped_path() -> Path:
    """The configs that come with redtune."""
    return templates_path().parent / "configs"


def warn_unkept(what: str, where: Path, error: Exception) -> None:
    """One warning for a cache that cannot be written, whatever would have gone there first."""
    about = f"unkept in {cache_path()}"
    warn_once(f"{what} could not be kept in {where} ({error}); {CACHE_VARIABLE} moves the cache", about)


def read_entry(path: Path) -> Best | None:
    """The entry in a file, or None where there is none that can be used; a damaged one gives a warning."""
    try:
        best = _entry_in(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, OverflowError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        warn_once(f"the tuned config {path} cannot be used and counts as absent: {reason}", about=str(path))
        return None
    if best is None:
        text = f"the tuned config {path} is of another version of redtune and counts as absent; so does every other one"
        warn_once(text, about="another format")
        return None
    expected = (folder_name(best.device), file_name(best.problem, best.temperature))
    if (path.parent.name, path.name) != expected:
        warn_once(f"the tuned config {path} was written for {'/'.join(expected)} and counts as absent here")
        return None
    return best


def _entry_in(path: Path) -> Best | None:
    """What a file holds, or None for an entry of another format. Raises OSError, or ValueError for what is no entry."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise NotPlain("it is no file")  # a pipe would be waited for
    data = read_plain(path, MAX_ENTRY_BYTES)
    written = data.get("format") if isinstance(data, dict) else None
    if type(written) is int and written != format_number():
        return None
    best = from_json(Best, data)
    check_best(best)
    return best


def entries(root: Path) -> Iterator[Best]:
    """Every usable entry under a folder."""
    for path in sorted(root.glob("*/*.yaml")):
        best = read_entry(path)
        if best is not None:
            yield best


def user_path(best_problem: Problem, device: Device, temperature: str) -> Path:
    """Where the user's entry of a problem lies."""
    return cache_path() / "configs" / folder_name(device) / file_name(best_problem, temperature)


def save(best: Best) -> bool:
    """Writes the user's entry in one step. False, with one warning, where nothing can be written, or where it could not
    be read again."""
    import yaml

    path = user_path(best.problem, best.device, best.temperature)
    text = yaml.safe_dump(as_json(best), sort_keys=False, allow_unicode=True)
    try:
        check_best(best)
        with locked(path):
            write_atomically(path, text)
    except UsageError as error:
        warn_once(f"the tuned config could not be kept: {error}")
        return False
    except UNWRITABLE as error:
        warn_unkept("the tuned config", path.parent, error)
        return False
    return True


def make_folder(folder: Path) -> None:
    """A folder and those above it, for the user alone where they were not there."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def locked(path: Path) -> Any:
    """A lock on a file's name, across processes. Making it makes the folder."""
    import filelock

    make_folder(path.parent)
    return filelock.FileLock(f"{path}.lock", timeout=LOCK_TIMEOUT_S)


def write_atomically(path: Path, content: str | bytes) -> None:
    """The whole content or what was there before, whenever the machine stops."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def append_row(device: Device, problem: Problem, trial: Trial, when: str) -> None:
    """Adds a measured trial to the rows of its architecture, one line of JSON."""
    path = cache_path() / "results" / f"{folder_name(device)}.jsonl"
    versions = {"toolchain": device.toolchain, "driver": device.driver, "templates": templates_digest()}
    row = {"format": format_number(), "when": when, "device": device.name, **versions}
    row |= {"problem": as_json(problem), **as_json(trial)}
    try:
        make_folder(path.parent)
        append_line(path, json.dumps(row).encode())
    except OSError as error:
        warn_unkept("trial rows", path.parent, error)


def append_line(path: Path, line: bytes, is_lasting: bool = False) -> None:
    """Adds a line in one write, on the disk before it returns if it is lasting. What a kill or a full disk has left of
    the last line stays one of its own."""
    with path.open("ab+", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        whole = (b"" if file.read(1) in (b"", b"\n") else b"\n") + line + b"\n"
        if file.write(whole) != len(whole):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if is_lasting:
            os.fsync(file.fileno())


@dataclass(frozen=True, slots=True)
class Found:
    """A config for a problem, where it comes from in a phrase, and the entry it was measured in if any."""

    config: Config
    origin: str
    best: Best | None = None


def lookup(
    problem: Problem, dialect: Dialect, device: Device, temperature: str = "cold", alike: Problem | None = None
) -> Found:
    """The config to run a problem with: the user's, a shipped one, one of a near size, one shipped for what is like it,
    one of a near architecture, the default.

    Whatever is found is checked against the problem at hand, so that it can always be launched. `alike` is the problem
    to look for, where that is another one.
    """
    for found in candidates(alike or problem, device, temperature):
        if is_legal(found.config, problem, dialect, device):
            return found
    return Found(default_config(problem, dialect, device), "the default, nothing is tuned for this yet")


def candidates(problem: Problem, device: Device, temperature: str) -> Iterator[Found]:
    """Entries that may suit, the nearest first: those of this architecture, then those of the nearest ones."""
    own, roots = folder_name(device), (cache_path() / "configs", shipped_path())
    names = {folder.name for root in roots if root.is_dir() for folder in root.iterdir() if folder.is_dir()}
    others = sorted(names - {own}, key=lambda name: (_arch_distance(name, own), name))
    for name in (own, *(name for name in others if name.startswith(f"{device.backend}-"))):
        yield from _of_architecture(name, problem, device, temperature)


def _of_architecture(name: str, problem: Problem, device: Device, temperature: str) -> Iterator[Found]:
    """The user's entries and those shipped, by size; the user's of another device; what is shipped for problems that
    are like this one, and for sizes that are not."""
    is_own, elsewhere = name == folder_name(device), list[Found]()
    tuned = _near_sizes(cache_path() / "configs" / name, problem, temperature)
    ranked: list[tuple[int, int, Path | Best]] = [(distance, 0, path) for distance, path in tuned]
    ranked += [(apart(best.problem, problem), 1, best) for best in shipped.near(shipped_path() / name, problem)]
    for distance, _, entry in sorted(ranked, key=lambda row: row[:2]):
        best = read_entry(entry) if isinstance(entry, Path) else entry
        if best is None or (best.device.vendor != device.vendor and not is_own):
            continue
        if isinstance(entry, Best):
            yield _shipped(best, problem, device, temperature)
        elif not is_own:
            yield Found(best.config, f"tuned on {best.device.arch}, the nearest architecture", best)
        elif best.device.name != device.name:
            elsewhere.append(Found(best.config, f"tuned on {best.device.name}, of the same architecture", best))
        else:
            size = f" for {in_words(best.problem)}" if distance else ""
            yield Found(best.config, f"tuned here{size}{_age(best, device)}", best)
    yield from elsewhere
    for best in shipped.otherwise(shipped_path() / name, problem):
        if is_own or best.device.vendor == device.vendor:
            yield _shipped(best, problem, device, temperature)


def _shipped(best: Best, problem: Problem, device: Device, temperature: str) -> Found:
    return Found(best.config, f"{shipped.origin(best, problem, device, temperature)}{_age(best, device)}", best)


def _near_sizes(folder: Path, problem: Problem, temperature: str) -> list[tuple[int, Path]]:
    """(distance in powers of two, file) of the same problem in other sizes, the nearest first."""
    front, back = file_name(problem, temperature).split(SIZE_MARK)
    here = buckets(problem)
    rows = []
    for path in folder.glob(f"{glob.escape(front)}{SIZE_MARK}*{glob.escape(back[back.index('-') :])}"):
        sizes = re.fullmatch(r"(\d+)(?:x(\d+)x(\d+))?", path.name.removeprefix(front + SIZE_MARK).split("-")[0])
        if sizes:
            there = tuple(int(size or 0) for size in sizes.groups())
            rows.append((sum(abs(a - b) for a, b in zip(here, there, strict=True)), path))
    return sorted(rows)


def _age(best: Best, device: Device) -> str:
    """What has changed on the machine or in redtune since an entry was measured."""
    if best.templates != templates_digest():
        return ", with older templates"
    if (best.device.toolchain, best.device.driver) != (device.toolchain, device.driver):
        return ", with another driver or compiler"
    return ""


def _arch_distance(name: str, own: str) -> int:
    """How far apart two architectures of one backend are: by their number where they have one."""
    digits = [int("".join(c for c in text.partition("-")[2] if c.isdecimal()) or 0) for text in (name, own)]
    return abs(digits[0] - digits[1])


# --- compiled kernels -------------------------------------------------------------------------------------------------


def binary_path(kernel: Kernel, device: Device) -> Path:
    """Where a compiled kernel lies: its name holds all that decides whether it still runs."""
    made_with = zlib.crc32("\n".join((device.name, device.toolchain, device.driver)).encode())
    return cache_path() / "binaries" / folder_name(device) / f"{kernel.code}-{made_with:08x}.bin"


def read_binary(kernel: Kernel, device: Device) -> bytes | None:
    """The compiled kernel, or None where there is none that is whole and the user's own."""
    path = binary_path(kernel, device)
    try:
        if not _is_users_own(path):
            return None
        with path.open("rb") as file:
            text = file.read(MAX_BINARY_BYTES)
    except OSError:
        return None
    body, check = text[:-CHECK_BYTES], text[-CHECK_BYTES:]
    return body if body and check == _checksum(path, body) else None


def keep_binary(kernel: Kernel, device: Device, binary: bytes) -> None:
    """Keeps a compiled kernel for later processes; where nothing can be written, one warning and nothing else."""
    path = binary_path(kernel, device)
    try:
        make_folder(path.parent)
        write_atomically(path, binary + _checksum(path, binary))
    except OSError as error:
        warn_unkept("a compiled kernel", path.parent, error)


def _checksum(path: Path, binary: bytes) -> bytes:
    """Of a compiled kernel in the file of that name."""
    return zlib.crc32(binary, zlib.crc32(path.name.encode())).to_bytes(CHECK_BYTES, "little")


def _is_users_own(path: Path) -> bool:
    """Whether nobody but the user can have written a compiled kernel: the file, its folder and that of all compiled
    kernels. One warning where somebody else can. Raises OSError where there is no file."""
    if not hasattr(os, "geteuid"):
        return path.is_file()  # Windows: the folder of a user's data is the user's
    for each in (path, *path.parents[:2]):
        found = each.stat()
        if found.st_uid != os.geteuid() or found.st_mode & OTHERS_WRITE:
            warn_once(
                f"compiled kernels in {path.parents[1]} are not used, as another user may write to {each.name}; remove "
                "that folder to have one of your own",
                about=f"foreign binaries in {path.parents[1]}",
            )
            return False
    return stat.S_ISREG(path.stat().st_mode)
