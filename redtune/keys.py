"""The names under which tuned configs are kept: of the format, the architecture, the problem and its size class."""

from __future__ import annotations

import json
import warnings
import zlib

from redtune.config import KNOBS, choices
from redtune.errors import printable
from redtune.types import Device, Problem

SIZE_MARK = "2p"  # before the size classes in a file name


def format_number() -> int:
    """Changes with the knobs and their choices: an entry of another format may name a kernel that no longer is."""
    text = json.dumps({name: choices(name) for name in KNOBS}, sort_keys=True)
    return zlib.crc32(text.encode())


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


def buckets(problem: Problem) -> tuple[int, int, int]:
    """The size classes of a problem: of its reduced elements, and of its results outside and inside of them."""
    if problem.layout == "flat":
        return bucket_of(problem.n), 0, 0
    return bucket_of(problem.n), bucket_of(problem.outer), bucket_of(problem.inner)


def apart(one: Problem, other: Problem) -> int:
    """How far apart the sizes of two problems are, in powers of two."""
    return sum(abs(a - b) for a, b in zip(buckets(one), buckets(other), strict=True))


def in_words(problem: Problem) -> str:
    """The size class of a problem."""
    n, outer, inner = buckets(problem)
    results = f" and 2^{outer + inner} results" if problem.layout != "flat" else ""
    return f"about 2^{n} elements{results}"


WARNED: set[str] = set()


def warn_once(text: str, about: str = "") -> None:
    """A warning that is not repeated, however often its cause is met. `about` names the cause; the text if empty."""
    cause = about or text
    if cause not in WARNED:
        WARNED.add(cause)
        warnings.warn(printable(text), stacklevel=3)
