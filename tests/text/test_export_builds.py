"""Exports for CUDA and HIP go through the vendors' compilers, for the host and for the device, without a warning."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import redtune
from redtune import amdgpu
from redtune.custom import derived
from redtune.exporting.formats import texts_of
from redtune.problems import make_problem, shaped_problem
from redtune.types import Problem
from tests.need import need, nvcc
from tests.text.exports import exported
from tests.text.kernels import problem

OWN = derived("sum", "x * x + 1", None)
ROWS, COLUMNS = ((64, 4096), 1), ((8, 640, 40), 1)

# (architectures, problems, knobs): every way for threads and blocks to meet, every layout and kind of type.
CUDA: list[tuple[str, list[Problem], dict[str, Any]]] = [
    ("sm_75", [shaped_problem("max", "float32", (64, 4096), 0)], {"split": 8, "combine": "atomic"}),
    ("sm_75", [problem("dot", is_compensated=True)], {}),
    ("sm_80", [problem("sum", "bfloat16")], {"combine": "two_pass"}),
    ("sm_90", [problem("logsumexp", "float16")], {"combine": "cluster", "cluster": 4}),
    ("sm_90", [problem("argmax")], {"combine": "two_pass", "second_launch": "early"}),
    ("sm_90", [problem("sum", "int32"), problem("sum", "int32", n=1 << 24)], {"combine": "tally", "walk": "stride"}),
    ("sm_90", [shaped_problem("var", "float64", *ROWS)], {"split": 4, "combine": "last_block"}),
    ("sm_90", [shaped_problem("all", "bool", *COLUMNS)], {"exchange": "lds", "tree": "unrolled", "team": 0}),
    ("sm_100", [problem("argmax", "int8")], {"walk": "chunk", "wave": 64}),
    ("sm_100", [shaped_problem("sum", "complex64", *COLUMNS)], {"split": 8, "combine": "two_pass"}),
    ("sm_80,sm_90", [problem("norm_l2", n=1 << 16), problem("norm_l2", n=1 << 28)], {}),
    ("sm_80", [make_problem(json.loads(OWN)["name"], "int32", 1 << 20, custom=OWN)], {"walk": "tile"}),
]
HIP: list[tuple[str, list[Problem], dict[str, Any]]] = [
    ("gfx90a", [problem("max")], {"combine": "atomic", "walk": "tile"}),
    ("gfx942", [problem("sum", "bfloat16")], {"combine": "two_pass"}),
    ("gfx942", [problem("count_nonzero", "float16")], {"combine": "tally", "walk": "stride"}),
    ("gfx1100", [problem("logsumexp", "float16")], {"wave": 32}),
    ("gfx1201", [problem("argmax", "int8")], {"exchange": "lds", "tree": "unrolled", "wave": 32}),
    ("gfx942,gfx1100", [problem("argmax", "float16")], {"exchange": "dpp", "wave": 32}),
    ("gfx942,gfx1100", [shaped_problem("sum", "complex64", *COLUMNS)], {"split": 8, "combine": "two_pass", "wave": 32}),
]


def written(folder: Path, format: str, problems: list[Problem], archs: str, knobs: dict[str, Any]) -> None:
    for name, text in texts_of(exported(format, problems, archs.split(","), **knobs), format).items():
        (folder / name).write_text(text)


def quietly(folder: Path, *command: str) -> None:
    """Runs a compiler that has nothing to say."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("archs", "problems", "knobs"), CUDA, ids=[f"{a} {p[0].op} {p[0].dtype}" for a, p, _ in CUDA])
def test_cuda(archs: str, problems: list[Problem], knobs: dict[str, Any], tmp_path: Path) -> None:
    need("nvcc")
    written(tmp_path, "cuda", problems, archs, knobs)
    targets = [f"-gencode=arch=compute_{arch[3:]},code={arch}" for arch in archs.split(",")]
    flags = ["-std=c++17", "-O3", *targets, "-Xcompiler", "-Wall,-Wextra"]
    quietly(tmp_path, nvcc(), *flags, "-c", "-o", "selftest.o", "selftest.cu")


@pytest.mark.parametrize(("archs", "problems", "knobs"), HIP, ids=[f"{a} {p[0].op} {p[0].dtype}" for a, p, _ in HIP])
def test_hip(archs: str, problems: list[Problem], knobs: dict[str, Any], tmp_path: Path) -> None:
    """The device's part for each architecture, and the host's part once."""
    need("clang")
    written(tmp_path, "hip", problems, archs, knobs)
    flags = ("-Wall", "-Wextra", "-Werror", "-I", str(tmp_path))
    for arch in archs.split(","):
        amdgpu.compile_code_object((tmp_path / "selftest.hip").read_text(), arch, None, flags)
    compiler = amdgpu.find_compiler()
    host = ["-x", "hip", "--cuda-host-only", "-std=c++17", f"--hip-path={amdgpu.hip_path(compiler)}"]
    quietly(tmp_path, str(compiler.path), *host, *flags, "-c", "-o", "selftest.o", "selftest.hip")


def test_two_exports_share_a_program(tmp_path: Path) -> None:
    """Of one problem under two names, included by two files that are linked."""
    need("nvcc")
    for name, op in (("first", "max"), ("second", "max"), ("third", "sum")):
        whole = exported("cuda", [problem(op)], ["sm_90"])
        text = texts_of(replace(whole, name=name), "cuda")[f"{name}.cuh"]
        (tmp_path / f"{name}.cuh").write_text(text)
    body = """
void use_{k}(const float *in, float *out)
{{
    std::size_t bytes = 0;
    first(nullptr, bytes, in, 5, out);
    second(nullptr, bytes, in, 5, out);
    third(nullptr, bytes, in, 5, out);
}}
"""
    includes = "".join(f'#include "{name}.cuh"\n' for name in ("first", "second", "third", "first"))
    (tmp_path / "a.cu").write_text(includes + body.format(k="a"))
    (tmp_path / "b.cu").write_text(includes + body.format(k="b") + "int main() { return 0; }\n")
    quietly(tmp_path, nvcc(), "-std=c++17", "-arch=sm_90", "-Xcompiler", "-Wall,-Wextra", "-c", "a.cu", "b.cu")
    quietly(tmp_path, "ld", "-r", "-o", "both.o", "a.o", "b.o")


STUB = """
#include <cstdio>
#include <cstdlib>
typedef int cudaError_t;
enum { cudaSuccess, cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor };
static int there;
static cudaError_t cudaDeviceGetAttribute(int *value, int asked, int)
{
    *value = asked == cudaDevAttrComputeCapabilityMajor ? there / 10 : there % 10;
    return cudaSuccess;
}
FIND
int main(int, char **given)
{
    int arch = 0;
    there = std::atoi(given[1]);
    find_arch(0, &arch);
    std::printf("%d", arch);
}
"""


def test_the_newest_architecture_not_above_the_devices_is_picked(tmp_path: Path) -> None:
    """In whatever order they were asked for."""
    need("cmake")  # and a compiler
    archs = ["sm_90", "sm_75", "sm_80"]
    text = texts_of(exported("cuda", [problem("max")], archs), "cuda")["redtune_max_float32.cuh"]
    begin = text.index("static inline cudaError_t find_arch")
    (tmp_path / "pick.cpp").write_text(STUB.replace("FIND", text[begin : text.index("\n}\n", begin) + 3]))
    quietly(tmp_path, "c++", "-std=c++17", "-Wall", "-Wextra", "-o", "pick", "pick.cpp")
    picked = {}
    for there in (60, 75, 79, 80, 86, 89, 90, 100, 120):
        done = subprocess.run(["./pick", str(there)], cwd=tmp_path, capture_output=True, text=True, check=True)
        picked[there] = archs[int(done.stdout)] if done.stdout != "-1" else ""
    assert picked == {
        60: "", 75: "sm_75", 79: "sm_75", 80: "sm_80", 86: "sm_80", 89: "sm_80",
        90: "sm_90", 100: "sm_90", 120: "sm_90",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("format", "arch", "kind", "tool", "begins"),
    [
        ("cuda", "sm_90", "ptx", "nvrtc", b"//"),
        ("cuda", "sm_90", "cubin", "nvrtc", b"\x7fELF"),
        ("cupy", "sm_80", "cubin", "nvrtc", b"\x7fELF"),
        ("hip", "gfx90a", "hsaco", "clang", b"\x7fELF"),
    ],
)
def test_compiled_kernels_beside_the_source(
    format: str, arch: str, kind: str, tool: str, begins: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(tool)
    monkeypatch.setenv("REDTUNE_CACHE", str(tmp_path / "cache"))
    found = redtune.export("max", format=format, arch=arch, out=tmp_path / "out", default=True, binaries=(kind,))
    name = f"redtune_max_float32_v0_{arch}.{kind}"
    assert name in {path.name for path in found.files}
    binary = (tmp_path / "out" / name).read_bytes()
    assert binary.startswith(begins)
    assert b"redtune_max_float32" in binary
    assert name in json.loads((tmp_path / "out" / "manifest.json").read_text())["files"]
