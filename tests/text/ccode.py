"""Spelled text as a C library, to be run beside numpy."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

HEAD = "#include <math.h>\n#include <stdbool.h>\n"
# Rounding as written, and integers that wrap around.
FLAGS = ["-O0", "-fwrapv", "-ffp-contract=off", "-w", "-shared", "-fPIC"]


def library(source: str, flags: Sequence[str] = ()) -> ctypes.CDLL:
    """The source compiled. Skips the test where there is no compiler."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is not on PATH, and the spelled text wants a C compiler")
    with tempfile.TemporaryDirectory() as folder:
        text, binary = Path(folder, "f.c"), Path(folder, "f.so")
        text.write_text(HEAD + source)
        command = [gcc, *FLAGS, *flags, "-o", str(binary), str(text), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return ctypes.CDLL(str(binary))
