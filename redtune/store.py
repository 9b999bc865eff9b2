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
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redtune.config import KNOBS, Config, choices
from redtune.defaults import default_config
from redtune.dialect import Dialect
from redtune.entries import check_best
from redtune.errors import UsageError, printable
from redtune.plainyaml import NotPlain, read_plain
from redtune.refusals import is_legal
from redtune.render import templates_digest, templates_path
from redtune.types import Best, Device, Kernel, Problem, Trial, as_json, from_json

CACHE_VARIABLE = "REDTUNE_CACHE"
LOCK_TIMEOUT_S = 30.0
SIZE_MARK = "2p"  # before the size classes in a file name
MAX_ENTRY_BYTES = 1 << 15  # an operator of one's own takes most of it, in 500 letters an expression
CHECK_BYTES = 4  # of the checksum behind a compiled kernel
MAX_BINARY_BYTES = 1 << 28
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# What it means that a file cannot be written or locked; the last where a file system knows no locks.
UNWRITABLE = (OSError, NotImplementedError)


def format_number() -> int:
    """Changes with the knobs and their choices: an entry of another format may name a kernel that no longer is."""
    text = json.dumps({name: choices(name) for name in KNOBS}, sort_keys=True)
    return zlib.crc32(text.encode())


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


WARNED: set[str] = set()


def warn_once(text: str, about: str = "") -> None:
    """A warning that is not repeated, however often its cause is met. `about` names the cause; the text if empty."""
    cause = about or text
    if cause not in WARNED:
        WARNED.add(cause)
        warnings.warn(printable(text), stacklevel=3)


def warn_unkept(what: str, where: Path, error: Exception) -> None:
    """One warning for a cache that cannot be written, whatever would have gone there first."""
    about = f"unkept in {cache_path()}"
    warn_once(f"{what} could not be kept in {where} ({error}); {CACHE_VARIABLE} moves the cache", about)


def plain(text: str) -> str:
    """A name that any file system can hold."""
    return "".join(c if c.isalnum() or c in "_+." else "-" for c in text)


def folder_name(device: Device) -> str:
    """The folder of an architecture, features included."""
    return f"{device.backend}-{plain(device.arch)}"


def bucket_of(n: int) -> int:
    """The size class of n elements: the power of two at or above it."""
    return (n - 1).bit_length()


def file_name(problem: Problem, temperature: str) -> str:
    """The file of a problem in the folder of an architecture."""
    name = problem.op + (f"+{zlib.crc32(problem.custom.encode()):08x}" if problem.custom else "")
    running = problem.accumulate + "+compensated" * problem.is_compensated
    flags = "".join(f"+{flag}" for flag in ("masked", "seeded") if getattr(problem, f"is_{flag}"))
    running += f"+{problem.result}" if problem.result else ""
    parts = [name, problem.dtype, running, problem.layout + flags]
    n, outer, inner = buckets(problem)
    size = f"{n}" if problem.layout == "flat" else f"{n}x{outer}x{inner}"
    parts += [f"{SIZE_MARK}{size}", problem.determinism, temperature]
    return "-".join(map(plain, parts)) + ".yaml"


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
    """The config to run a problem with: the user's, a shipped one, one of a near size or architecture, the default.

    Whatever is found is checked against the problem at hand, so that it can always be launched. `alike` is the problem
    to look for, where that is another one.
    """
    for found in candidates(alike or problem, device, temperature):
        if is_legal(found.config, problem, dialect, device):
            return found
    return Found(default_config(problem, dialect, device), "the default, nothing is tuned for this yet")


def candidates(problem: Problem, device: Device, temperature: str) -> Iterator[Found]:
    """Entries that may suit, the nearest first."""
    user, shipped = cache_path() / "configs", shipped_path()
    own = folder_name(device)
    others = sorted(
        (folder.name for root in (user, shipped) if root.is_dir() for folder in root.iterdir() if folder.is_dir()),
        key=lambda name: (_arch_distance(name, own), name),
    )
    others = [name for name in dict.fromkeys(others) if name != own and name.startswith(f"{device.backend}-")]
    roots = ((user, "tuned here"), (shipped, "shipped"))
    alike = []
    for distance, path, whose in _near_sizes([(root / own, whose) for root, whose in roots], problem, temperature):
        best = read_entry(path)
        if best is not None and best.device.name != device.name:
            alike.append(Found(best.config, f"tuned on {best.device.name}, of the same architecture", best))
        elif best is not None:
            yield Found(best.config, f"{whose}{_size(best.problem) if distance else ''}{_age(best, device)}", best)
    yield from alike
    for folder in others:
        for _, path, _ in _near_sizes([(root / folder, whose) for root, whose in roots], problem, temperature):
            best = read_entry(path)
            if best is not None and best.device.vendor == device.vendor:
                yield Found(best.config, f"tuned on {best.device.arch}, the nearest architecture", best)


def _near_sizes(folders: list[tuple[Path, str]], problem: Problem, temperature: str) -> list[tuple[int, Path, str]]:
    """(distance in powers of two, file, whose) of the same problem in other sizes, the nearest first."""
    front, back = file_name(problem, temperature).split(SIZE_MARK)
    here = buckets(problem)
    rows = []
    for order, (folder, whose) in enumerate(folders):
        for path in folder.glob(f"{glob.escape(front)}{SIZE_MARK}*{glob.escape(back[back.index('-') :])}"):
            sizes = re.fullmatch(r"(\d+)(?:x(\d+)x(\d+))?", path.name.removeprefix(front + SIZE_MARK).split("-")[0])
            if sizes:
                there = tuple(int(size or 0) for size in sizes.groups())
                distance = sum(abs(a - b) for a, b in zip(here, there, strict=True))
                rows.append((distance, order, path, whose))
    return [(distance, path, whose) for distance, _, path, whose in sorted(rows)]


def buckets(problem: Problem) -> tuple[int, int, int]:
    """The size classes of a problem: of its reduced elements, and of its results outside and inside of them."""
    if problem.layout == "flat":
        return bucket_of(problem.n), 0, 0
    return bucket_of(problem.n), bucket_of(problem.outer), bucket_of(problem.inner)


def _size(problem: Problem) -> str:
    n, outer, inner = buckets(problem)
    results = f" and 2^{outer + inner} results" if problem.layout != "flat" else ""
    return f" for about 2^{n} elements{results}"


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
    return cache_path() / "binaries" / folder_name(device) / f"{kernel.digest}-{made_with:08x}.bin"


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
