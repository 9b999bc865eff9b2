"""The door for checkers: programs that watch what a kernel does while it runs. `CHECKERS` names them by backend."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from redtune.errors import BackendMissing
from redtune.process import Under

OCLGRIND_LIBRARY = Path("/usr/lib/oclgrind/liboclgrind-rt-icd.so")
SILENT_AFTER = "1000000"  # complaints; beyond it what comes after would seem sound
# What a checker says of a kernel names it; a number in the name says which of them it was.
NUMBERED = re.compile(r"redtune_\w+?_no(\d+)(?:_|\b)")


@dataclass(frozen=True, slots=True)
class Checker:
    """A checker. `under(folder)` says how a worker runs under it, which leaves its log in the folder as `log`;
    `elements` is how many elements it gets through in a moment, and `threads` how many (any number if 0). Raises
    BackendMissing where it is not installed."""

    name: str
    finds: str
    elements: int
    under: Callable[[Path], Under]
    threads: int = 0


@dataclass(frozen=True, slots=True)
class Complaint:
    """One paragraph of a log: its first line, and the number of the kernel it names if any."""

    text: str
    number: int | None


def log_of(folder: Path) -> Path:
    """Where a checker writes."""
    return folder / "log"


def complaints(log: str) -> list[Complaint]:
    """What a log complains about. Banners, summaries and what clang counts are no complaints."""
    found = []
    for paragraph in re.split(
        r"\n(?:=========)?[ \t]*\n|\n(?========= (?:Error|Warning|Invalid|Uninit|Barrier|Program hit))", log
    ):
        lines = [re.sub(r"^=+ ?", "", line).rstrip() for line in paragraph.splitlines()]
        lines = [line for line in lines if line.strip() and not _is_talk(line)]
        if lines:
            number = NUMBERED.search(paragraph)
            found.append(Complaint(lines[0].strip()[:200], int(number[1]) if number else None))
    return found


def _is_talk(line: str) -> bool:
    return bool(re.match(r"COMPUTE-SANITIZER|(?:ERROR|RACECHECK|LEAK) SUMMARY|\d+ warnings? generated", line))


def _sanitizer(tool: str) -> Callable[[Path], Under]:
    def under(folder: Path) -> Under:
        places = [shutil.which("compute-sanitizer"), *(f"{root}/bin/compute-sanitizer" for root in _toolkits())]
        program = next((place for place in places if place and os.access(place, os.X_OK)), None)
        if program is None:
            raise BackendMissing("compute-sanitizer is not installed: it comes with NVIDIA's CUDA toolkit")
        log = str(log_of(folder))
        options = ("--log-file", log, "--print-limit", SILENT_AFTER, "--destroy-on-device-error", "kernel")
        return Under((program, "--tool", tool, *options))

    return under


def _toolkits() -> list[str]:
    named = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    return [*named, "/usr/local/cuda"]


def _oclgrind(folder: Path) -> Under:
    """The simulator has to be the only platform there is when pyopencl is imported."""
    if not OCLGRIND_LIBRARY.exists():
        raise BackendMissing(
            f"oclgrind is not installed: {OCLGRIND_LIBRARY} is absent (Debian's package oclgrind has it)"
        )
    vendors = folder / "vendors"
    vendors.mkdir(exist_ok=True)
    (vendors / "oclgrind.icd").write_text(f"{OCLGRIND_LIBRARY}\n")
    environment = {
        "OCL_ICD_VENDORS": str(vendors),
        "OCLGRIND_DATA_RACES": "1",
        "OCLGRIND_UNINITIALIZED": "1",
        "OCLGRIND_MAX_ERRORS": SILENT_AFTER,
        # The optimiser makes 128-bit integers of 16-byte loads, which the interpreter of oclgrind 21.10 does not know.
        "OCLGRIND_BUILD_OPTIONS": "-cl-opt-disable",
    }
    # Each process that opens a context empties the file, so only one may know of it.
    return Under((), environment, {"OCLGRIND_LOG": str(log_of(folder))})


CHECKERS: Mapping[str, Sequence[Checker]] = {
    "cuda": (
        Checker("memcheck", "accesses out of bounds or misaligned", 1 << 17, _sanitizer("memcheck")),
        Checker("racecheck", "races in shared memory", 1 << 17, _sanitizer("racecheck")),
        Checker("initcheck", "reads of memory that was never written", 1 << 17, _sanitizer("initcheck")),
        Checker("synccheck", "barriers that not every thread reaches", 1 << 17, _sanitizer("synccheck")),
    ),
    "opencl": (
        Checker("oclgrind", "races, accesses out of bounds, reads of what was never written", 1000, _oclgrind, 1024),
    ),
}
