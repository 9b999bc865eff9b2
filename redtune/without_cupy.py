"""What is known of CuPy and of NVIDIA's driver without loading CuPy, which takes a second: whoever looks for any device
at all hears at once that there is none of theirs."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import re
import sys
from pathlib import Path


def _folder() -> Path | None:
    """The package CuPy, if it is there and not loaded yet."""
    found = importlib.util.find_spec("cupy") if "cupy" not in sys.modules else None
    origin = Path(found.origin) if found is not None and found.origin else Path()
    return origin.parent if origin.name == "__init__.py" else None


def driver_fault() -> str:
    """Why NVIDIA's driver cannot be there, or nothing. CuPy is the one to ask where it is loaded, or absent."""
    if sys.platform != "linux" or _folder() is None:
        return ""
    try:
        ctypes.CDLL("libcuda.so.1")  # as the runtime in CuPy does
    except OSError as error:
        return str(error)
    return ""


def is_built_for_cuda() -> bool:
    """Whether the CuPy here is certain to be none for ROCm: its wheel notes a version of CUDA."""
    folder = _folder()
    if folder is None:
        return False
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
        noted = json.loads((folder / ".data" / "_wheel.json").read_text())["cuda"]
        return re.fullmatch(r"\d+\.(\d+|x)", noted) is not None
    return False
