"""What a test needs beyond Python: it skips with the reason where that is absent, or fails where it was required.

`REDTUNE_TEST_REQUIRE=opencl,clang,...` names what must be there.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest


def need(tool: str) -> None:
    """Skips the test when `tool` is absent, with its reason; fails it when REDTUNE_TEST_REQUIRE names the tool."""
    reason = absent(tool)
    if reason and tool in os.environ.get("REDTUNE_TEST_REQUIRE", "").split(","):
        pytest.fail(f"{tool} is required here: {reason}")
    if reason:
        pytest.skip(reason)


@functools.cache
def absent(tool: str) -> str:
    """Why `tool` is not there, or nothing."""
    from redtune.errors import RedtuneError

    try:
        if tool == "clang":
            from redtune.amdgpu import find_compiler

            find_compiler()
        elif tool == "oclgrind":
            from redtune.checkers import OCLGRIND_LIBRARY

            return "" if OCLGRIND_LIBRARY.exists() else f"oclgrind is not installed ({OCLGRIND_LIBRARY} is absent)"
        elif tool == "nvrtc":
            return _nvrtc()
        elif tool == "cmake":
            return _cmake()
        elif tool == "nvcc":
            return "" if nvcc() else "nvcc is neither on PATH nor installed from PyPI (nvidia-cuda-nvcc)"
        else:
            from redtune.lab import list_devices

            list_devices(tool)
    except RedtuneError as error:
        return str(error)
    return ""


def _nvrtc() -> str:
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except Exception as error:  # a missing library surfaces as whatever its loader raises
        return f"NVRTC cannot be loaded ({type(error).__name__}: {error})"
    return ""


def _cmake() -> str:
    """CMake, a C compiler, and the headers and loader of OpenCL."""
    for program in ("cmake", "cc"):
        if shutil.which(program) is None:
            return f"{program} is not on PATH"
    program = "#include <CL/cl.h>\nint main(void) { return clGetPlatformIDs(0, 0, 0); }\n"
    command = ["cc", "-x", "c", "-", "-lOpenCL", "-o", os.devnull]
    done = subprocess.run(command, input=program, capture_output=True, text=True, check=False)
    return f"no program for OpenCL can be built: {done.stderr.strip()[:200]}" if done.returncode else ""


@functools.cache
def nvcc() -> str:
    """CUDA's compiler: that of a toolkit, or of the packages from PyPI; empty where there is none."""
    packages = sorted(Path(sysconfig.get_path("purelib")).glob("nvidia/cu*/bin/nvcc"))
    return shutil.which("nvcc") or (str(packages[-1]) if packages else "")
