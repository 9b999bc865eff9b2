"""Intel's OpenCL runtime for x86 CPUs, as PyPI has it: how the loader finds it, and what it compiles for."""

from __future__ import annotations

import importlib.metadata
import os
import tempfile
from pathlib import Path

SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
INTEL_RUNTIME = "intel-opencl-rt", "libintelocl.so"
CPU_INFO = Path("/proc/cpuinfo")
# The runtime's own setting. Where it finds AVX-512 on another maker's CPU, it makes vectors of hardly anything: kernels
# for AVX2 read three times as fast there (results/2026-12-01-cpu-avx2.md).
TARGET = "CL_CONFIG_CPU_TARGET_ARCH"
NARROWER = "core-avx2"


def vendor_folder() -> tempfile.TemporaryDirectory[str] | None:
    """A folder for the ICD loader: every system platform, and Intel's runtime from the environment redtune runs in.

    PyPI's runtime cannot register itself with the system, so nothing would find it otherwise. A loader that the user
    has pointed somewhere is left alone.
    """
    if "OCL_ICD_VENDORS" in os.environ:
        return None
    package, library = INTEL_RUNTIME
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = next((Path(str(file.locate())).resolve() for file in files if file.name == library), None)
    if found is None or not found.exists():
        return None
    folder = tempfile.TemporaryDirectory(prefix="redtune-icd-")
    for icd in sorted(SYSTEM_VENDORS.glob("*.icd")) if SYSTEM_VENDORS.is_dir() else []:
        (Path(folder.name) / icd.name).write_text(icd.read_text())
    (Path(folder.name) / "redtune-intel.icd").write_text(f"{found}\n")
    return folder


def choose_target() -> None:
    """Has the runtime compile for AVX2 on CPUs with AVX-512 that are not Intel's. What the user has set stands. To be
    called before the runtime is loaded."""
    if _is_others_with_avx512():
        os.environ.setdefault(TARGET, NARROWER)


def chosen_target() -> tuple[str, ...]:
    """What the runtime was told to compile for, if it was."""
    return tuple(filter(None, (os.environ.get(TARGET, ""),)))


def _is_others_with_avx512() -> bool:
    try:
        text = CPU_INFO.read_text()
    except OSError:
        return False
    (first, *_) = text.split("\n\n")
    said = {name.strip(): value for name, _, value in (line.partition(":") for line in first.splitlines())}
    flags = said.get("flags", "").split()
    return said.get("vendor_id", "").strip() != "GenuineIntel" and {"avx2", "avx512f"} <= set(flags)
