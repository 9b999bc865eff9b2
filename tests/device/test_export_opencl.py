"""Exports for OpenCL are built from an empty folder by their own README, without a warning; their self-tests pass, and
notice what is wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import redtune
from redtune.custom import derived
from redtune.intel import vendor_folder
from tests.device.test_export_header import from_readme
from tests.need import need

OWN = derived("sum", "x * x", "sqrt(a)")
FLAT = {"n": 5000}
ROWS = {"shape": (4, 5000), "axis": 1}
COLUMNS = {"shape": (2, 5000, 3), "axis": 1}
# (operator, dtype, what is reduced, knobs)
EXPORTS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("max", "float32", {"n": [1000, 100_000]}, {"walk": "chunk", "combine": "last_block"}),
    ("sum", "float16", FLAT, {"walk": "tile", "combine": "two_pass", "exchange": "lds", "block": 128}),
    ("dot", "float64", FLAT, {"walk": "stride", "combine": "atomic", "vector": 2}),
    ("sum", "int32", {"n": [1000, 100_000]}, {"combine": "tally", "walk": "stride"}),
    ("all", "uint8", FLAT, {"combine": "tally", "walk": "chunk"}),
    ("sum", "int8", FLAT, {"combine": "atomic", "vector": 4, "wave": 32}),
    ("sum", "float32", FLAT | {"accumulate": "compensated"}, {"hint": "streaming"}),
    (json.loads(OWN)["name"], "float32", FLAT | {"custom": OWN}, {"combine": "two_pass"}),
    ("argmax", "bfloat16", ROWS, {"team": 0, "split": 4, "combine": "last_block"}),
    ("min", "int32", ROWS, {"split": 8, "combine": "atomic"}),
    ("any", "bool", ROWS, {"split": 1, "combine": "two_pass", "team": 1}),
    ("logsumexp", "float32", COLUMNS, {"team": 8, "split": 4, "combine": "two_pass", "exchange": "lds"}),
    ("sum", "complex64", COLUMNS, {"team": 8, "split": 2, "combine": "last_block"}),
    ("var", "float32", COLUMNS, {"split": 1, "combine": "two_pass"}),
]
TREE = {"exchange": "lds", "tree": "unrolled"}
WARNINGS = "-Wall -Wextra -Wpedantic -Werror"


@pytest.fixture(scope="module")
def around() -> Iterator[dict[str, str]]:
    """An environment in which programs find the device that redtune finds, and compilers let nothing pass."""
    need("opencl")
    need("cmake")
    folder = vendor_folder()
    vendors = {"OCL_ICD_VENDORS": folder.name} if folder else {}
    yield vendors | {"CFLAGS": WARNINGS}
    if folder:
        folder.cleanup()


def run(folder: Path, around: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=os.environ | around, capture_output=True, text=True, check=False, timeout=120
    )


def checks(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of a self-test that passed, each of which must be there."""
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith(("ok", "FAILED"))]
    assert [line for line in lines if not line.startswith("ok      ")] == []
    assert f"\n{len(lines)} of {len(lines)} checks passed\n" in done.stdout
    return lines


@pytest.mark.parametrize(
    ("op", "dtype", "what", "knobs"), EXPORTS, ids=[f"{k} {op} {dtype}" for k, (op, dtype, *_) in enumerate(EXPORTS)]
)
def test_opencl(
    op: str, dtype: str, what: dict[str, Any], knobs: dict[str, Any], around: dict[str, str], tmp_path: Path
) -> None:
    found = redtune.export(op, dtype, format="opencl", out=tmp_path / "out", fix=knobs, default=True, **what)
    done = from_readme(tmp_path / "out", **around)
    lines = checks(done)
    sizes = len(found.export.variants)
    # Through the pick and through each kernel as many; then what a run says of wrong arguments.
    names = [found.export.name, *(f"v{k}" for k in range(sizes))]
    counts = [sum(line.startswith(f"ok      {name}: ") for line in lines) for name in names]
    assert len(set(counts[1:])) == 1
    assert counts[1] > 25
    assert 3 <= counts[0] - counts[1] <= 5
    assert sum(counts) == len(lines)
    assert len(re.findall(r"^v\d: [\d.]+ us, [\d.]+ GB/s for ", done.stdout, re.MULTILINE)) == sizes


# (file, what stands there, what takes its place)
FAULTS = [
    (".cl", "s.value = -INFINITY;", "s.value = 0;"),
    (".cl", "i < n; i += blocks * BLOCK", "i < 0; i += blocks * BLOCK"),
    (".cl", "counter[0] = 0;", ";"),
    (".c", "is_fresh && plan", "!is_fresh && plan"),
    (".c", "&(cl_long){(cl_long)in_first}", "&(cl_long){0}"),
]


def test_a_fault_is_noticed(around: dict[str, str], tmp_path: Path) -> None:
    """And a kernel whose file changes is built again."""
    redtune.export("max", format="opencl", out=tmp_path, default=True, n=100_000, fix={"walk": "stride"})
    checks(from_readme(tmp_path, **around))
    for suffix, right, wrong in FAULTS:
        path = next(tmp_path.glob(f"redtune*{suffix}"))
        text = path.read_text()
        assert text.count(right) == 1, right
        path.write_text(text.replace(right, wrong))
        built = run(tmp_path, around, "cmake", "--build", "build")
        assert built.returncode == 0, built.stderr
        done = run(tmp_path, around, "build/selftest")
        path.write_text(text)
        assert (done.returncode, "\nFAILED  " in done.stdout) == (1, True), right
    kernel = next(tmp_path.glob("*.cl"))
    kernel.write_text(f"{kernel.read_text()}\nthis is no kernel\n")
    assert run(tmp_path, around, "cmake", "--build", "build").returncode == 0
    done = run(tmp_path, around, "build/selftest")
    assert (done.returncode, done.stdout) == (2, "")
    assert "does not take the kernels: OpenCL error -11" in done.stderr
    assert "this is no kernel" in done.stderr


TWO = """
#include "redtune_max_float32.h"
#include "sum_of_rows.h"

#include <stdio.h>

enum { N = 100003, OUTER = 3 };

static float numbers[1 + N];
static cl_int whole[OUTER][N];

static cl_mem take(cl_context context, size_t bytes)
{
    return clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, NULL);
}

int main(void)
{
    cl_platform_id platform;
    cl_device_id device;
    cl_int error = clGetPlatformIDs(1, &platform, NULL);
    error |= clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL);
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
    cl_command_queue queue = clCreateCommandQueue(context, device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &error);
    redtune_max_float32_t *first;
    sum_of_rows_t *second;
    error |= redtune_max_float32_create(&first, context, device);
    error |= sum_of_rows_create(&second, context, device);

    size_t first_bytes = 0, second_bytes = 0;
    error |= redtune_max_float32_workspace(first, N, &first_bytes);
    error |= sum_of_rows_workspace(second, OUTER, N, &second_bytes);
    cl_mem a = take(context, sizeof numbers), b = take(context, sizeof whole);
    cl_mem most = take(context, sizeof(float)), sums = take(context, OUTER * sizeof(cl_long));
    cl_mem first_space = take(context, first_bytes), second_space = take(context, second_bytes);

    for (int again = 1; again <= 20; again++) {
        float got = 0;
        cl_long totals[OUTER] = {0};
        cl_event copied[2], done[2];
        numbers[0] = 1e9f;  // before the first element
        for (int k = 0; k < N; k++)
            numbers[1 + k] = (float)(k % 1000 + again);
        for (int k = 0; k < OUTER * N; k++)
            whole[k / N][k % N] = k / N * 1000000 + again;
        error |= clEnqueueWriteBuffer(queue, a, CL_FALSE, 0, sizeof numbers, numbers, 0, NULL, &copied[0]);
        error |= clEnqueueWriteBuffer(queue, b, CL_FALSE, 0, sizeof whole, whole, 0, NULL, &copied[1]);
        error |= redtune_max_float32_run(
            first, queue, a, 1, N, most, first_space, again == 1, 1, &copied[0], &done[0]);
        error |= sum_of_rows_run(
            second, queue, b, 0, OUTER, N, sums, second_space, again == 1, 1, &copied[1], &done[1]);
        error |= clEnqueueReadBuffer(queue, most, CL_TRUE, 0, sizeof got, &got, 1, &done[0], NULL);
        error |= clEnqueueReadBuffer(queue, sums, CL_TRUE, 0, sizeof totals, totals, 1, &done[1], NULL);
        printf("%.0f %ld %ld %ld\\n", got, (long)totals[0], (long)totals[1], (long)totals[2]);
        for (int k = 0; k < 2; k++)
            error |= clReleaseEvent(copied[k]) | clReleaseEvent(done[k]);
    }
    redtune_max_float32_release(first);
    sum_of_rows_release(second);
    return error == CL_SUCCESS ? 0 : 1;
}
"""
PROJECT = """
cmake_minimum_required(VERSION 3.18)
project(two LANGUAGES C)
add_subdirectory(a)
add_subdirectory(b)
add_executable(two two.c)
target_link_libraries(two PRIVATE redtune_max_float32 sum_of_rows)
"""


def test_two_exports_in_one_program(around: dict[str, str], tmp_path: Path) -> None:
    """On a queue that is out of order, where nothing but events says what comes first."""
    asked: dict[str, Any] = {"format": "opencl", "default": True}
    redtune.export("max", out=tmp_path / "a", n=1 << 17, **asked)
    rows: dict[str, Any] = {"shape": (3, 100_003), "axis": 1, "fix": {"split": 4, "combine": "two_pass"}}
    redtune.export("sum", "int32", out=tmp_path / "b", name="sum_of_rows", **rows, **asked)
    (tmp_path / "two.c").write_text(TWO)
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    built = run(tmp_path, around, "bash", "-euc", "cmake -B build && cmake --build build")
    assert built.returncode == 0, built.stdout + built.stderr
    done = run(tmp_path, around, "build/two")
    n = 100_003
    right = [f"{999 + k} {n * k} {n * (1_000_000 + k)} {n * (2_000_000 + k)}" for k in range(1, 21)]
    assert (done.returncode, done.stdout.splitlines()) == (0, right)


def test_without_cmake(around: dict[str, str], tmp_path: Path) -> None:
    """By the README's other lines; and a self-test that has no device to run on says so."""
    redtune.export("all", "bool", format="opencl", out=tmp_path, default=True, n=1000, fix=TREE)
    block = (tmp_path / "README.md").read_text().split("Without CMake", 1)[1]
    commands = "\n".join(re.findall(r"^    (.*)$", block, re.MULTILINE))
    done = run(tmp_path, around, "bash", "-euc", commands.replace("cc ", f"cc {WARNINGS} "))
    assert (done.returncode, done.stderr) == (0, "")
    checks(run(tmp_path, around, "./selftest", "0", "0"))
    (tmp_path / "vendors").mkdir()
    nothing = {"OCL_ICD_VENDORS": str(tmp_path / "vendors")}
    for arguments, environment, message in (
        (("99",), around, "no device takes the kernels"),
        (("0", "99"), around, "no device takes the kernels"),
        (("none",), around, "use: selftest [PLATFORM [DEVICE]]"),
        ((), nothing, "looking for a platform: OpenCL error -1001"),
    ):
        done = run(tmp_path, environment, "./selftest", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr
