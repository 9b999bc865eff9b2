"""HIP sources compile to AMD GPU code objects on a machine that has neither the GPU nor ROCm."""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from redtune import amdgpu
from redtune.errors import CompileError, RedtuneError, UsageError
from tests.need import need

EM_AMDGPU = 224

REDUCE = """
extern "C" __global__ void __launch_bounds__(256) reduce(const float* x, float* y, unsigned* done, int n) {
    __shared__ float part[256 / 32];
    float sum = 0;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) sum += __builtin_nontemporal_load(x + i);
    for (int d = warpSize / 2; d > 0; d >>= 1) sum += __shfl_down(sum, d, warpSize);
    if (threadIdx.x % warpSize == 0) part[threadIdx.x / warpSize] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int w = 1; w < 256 / warpSize; ++w) sum += part[w];
    atomicAdd(y, sum);
    __threadfence();
    __hip_atomic_fetch_add(done, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
}
"""


@pytest.fixture
def clang() -> amdgpu.Compiler:
    need("clang")
    return amdgpu.find_compiler()


@pytest.fixture
def no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(amdgpu, "ROCM_GLOB", "no-such-folder")


@pytest.mark.parametrize(
    ("arch", "wave", "expected"),
    [
        ("gfx90a", None, 64),
        ("gfx90a", 64, 64),
        ("gfx90a:sramecc+:xnack-", None, 64),
        ("gfx942", None, 64),
        ("gfx1030", 64, 64),
        ("gfx1100", None, 32),
        ("gfx1100", 32, 32),
        ("gfx1100", 64, 64),
    ],
)
def test_a_reduction_compiles(clang: amdgpu.Compiler, arch: str, wave: int | None, expected: int) -> None:
    code = amdgpu.compile_code_object(REDUCE, arch, wave)

    assert code[:4] == b"\x7fELF"
    assert struct.unpack_from("<H", code, 18) == (EM_AMDGPU,)
    (kernel,) = amdgpu.describe(code)
    assert (kernel.name, kernel.wavefront_size, kernel.lds_bytes) == ("reduce", expected, 256 // 32 * 4)
    assert kernel.vgprs > 0
    assert kernel.sgprs > 0
    assert (kernel.agprs is None) == (not arch.startswith("gfx9"))
    assert (kernel.scratch_bytes, kernel.vgpr_spills, kernel.sgpr_spills) == (0, 0, 0)


def test_each_kernel_is_described(clang: amdgpu.Compiler) -> None:
    source = "".join(f'extern "C" __global__ void k{i}(int* p) {{ p[threadIdx.x] = {i}; }}\n' for i in range(3))

    kernels = amdgpu.describe(amdgpu.compile_code_object(source, "gfx90a"))

    assert sorted(kernel.name for kernel in kernels) == ["k0", "k1", "k2"]


def test_spills_are_reported(clang: amdgpu.Compiler) -> None:
    source = """
    extern "C" __global__ void __launch_bounds__(1024) spill(float* p) {
        float a[160];
        #pragma unroll
        for (int i = 0; i < 160; ++i) a[i] = p[i * 1024 + threadIdx.x];
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 160; ++i) p[i * 1024 + threadIdx.x] = a[159 - i];
    }
    """

    (kernel,) = amdgpu.describe(amdgpu.compile_code_object(source, "gfx1030"))

    assert kernel.scratch_bytes > 0
    assert kernel.vgpr_spills > 0


def test_flags_reach_the_compiler(clang: amdgpu.Compiler) -> None:
    source = 'extern "C" __global__ void k(int* p) { *p = VALUE; }'

    assert amdgpu.compile_code_object(source, "gfx90a", flags=["-DVALUE=3"])
    with pytest.raises(CompileError, match="VALUE"):
        amdgpu.compile_code_object(source, "gfx90a")


def test_the_error_is_in_the_log(clang: amdgpu.Compiler) -> None:
    with pytest.raises(CompileError) as caught:
        amdgpu.compile_code_object('extern "C" __global__ void k(int* p) { *p = nonsense; }', "gfx1100")

    assert "kernel.hip:1:" in caught.value.log
    assert "undeclared identifier 'nonsense'" in caught.value.log


def test_headers_that_are_kept_change_nothing(clang: amdgpu.Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second kernel for a target on."""
    commands: list[str] = []

    def run(command: Sequence[str], *given: Any) -> tuple[int, str]:
        commands.append(" ".join(command))
        return real(command, *given)

    real = amdgpu._run
    monkeypatch.setattr(amdgpu, "_run", run)
    amdgpu._parsed.cache_clear()
    codes = [amdgpu.compile_code_object(REDUCE, "gfx1030") for _ in range(3)]
    assert ["-include-pch" in command for command in commands if command.endswith("kernel.hip")] == [False, True, True]
    texts = [amdgpu.disassemble(code).partition("Disassembly of section")[2] for code in codes]
    assert texts[0] == texts[1] == texts[2]
    assert amdgpu.describe(codes[0]) == amdgpu.describe(codes[2])
    with pytest.raises(CompileError) as caught:
        amdgpu.compile_code_object("nonsense", "gfx1030")
    assert caught.value.log.startswith("kernel.hip:1:1: error: ")
    assert "-include-pch" not in commands[-1]


@pytest.mark.parametrize(("arch", "wave"), [("gfx90a", 32), ("gfx942", 32), ("gfx1100", 16), ("sm_90", None)])
def test_a_wrong_target_is_refused(arch: str, wave: int | None) -> None:
    with pytest.raises(UsageError, match=arch):
        amdgpu.compile_code_object(REDUCE, arch, wave)


def test_an_unknown_target_asks_for_a_newer_compiler(clang: amdgpu.Compiler) -> None:
    with pytest.raises(amdgpu.ToolMissing, match=r"gfx9999.*newer clang"):
        amdgpu.compile_code_object(REDUCE, "gfx9999")


def test_a_slow_compiler_is_stopped(clang: amdgpu.Compiler) -> None:
    with pytest.raises(CompileError, match="took longer"):
        amdgpu.compile_code_object(REDUCE, "gfx90a", timeout_s=0.05)


def test_no_compiler_names_the_packages(no_tools: None) -> None:
    with pytest.raises(amdgpu.ToolMissing, match="clang-19 lld-19 rocm-device-libs libamdhip64-dev"):
        amdgpu.compile_code_object(REDUCE, "gfx90a")


def test_no_readelf_names_the_package(no_tools: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amdgpu, "_roots", lambda compiler: [])
    with pytest.raises(amdgpu.ToolMissing, match="llvm-19"):
        amdgpu.describe(b"")


def test_hipcc_only_says_where_its_clang_is(
    clang: amdgpu.Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = clang.path.resolve().parent
    hipcc = tmp_path / "hipcc"
    hipcc.write_text(f"#!/bin/sh\necho HIP version: 6.2\n{folder}/clang++ --version\n")
    hipcc.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{clang.path.parent}")

    found = amdgpu.find_compiler()

    assert found == amdgpu.Compiler(folder / "clang++", clang.version, "hipcc")


@pytest.mark.parametrize("arch", ["gfx90a", "gfx1100"])
def test_a_temporary_folder_with_spaces(
    clang: amdgpu.Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arch: str
) -> None:
    folder = tmp_path / "a folder with 'spaces'"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    assert amdgpu.describe(amdgpu.compile_code_object(REDUCE, arch))
    with pytest.raises(CompileError):
        amdgpu.compile_code_object("nonsense", arch)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("data", [b"", b"not an ELF file"])
def test_what_is_no_code_object_is_refused(clang: amdgpu.Compiler, data: bytes) -> None:
    with pytest.raises(RedtuneError, match="not an AMD GPU code object"):
        amdgpu.describe(data)
