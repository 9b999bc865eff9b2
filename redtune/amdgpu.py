"""Compile HIP C++ to an AMD GPU code object with a plain clang: no AMD GPU, no HIP runtime, no ROCm install."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from redtune.errors import CompileError, RedtuneError, UsageError

Kind = Literal["hipcc", "amdclang++", "clang"]

ROCM_GLOB = "rocm*"  # under /opt
PACKAGES = "ROCm, or on Debian and Ubuntu: apt install clang-19 lld-19 rocm-device-libs libamdhip64-dev"

_KINDS: tuple[Kind, ...] = ("hipcc", "amdclang++", "clang")
_COMPILER_NAME = re.compile(r"(hipcc|amdclang\+\+|clang)(?:\+\+)?(?:-\d+)?")
_READELF_NAME = re.compile(r"llvm-(?:readelf|readobj)(?:-(\d+))?")
_OBJDUMP_NAME = re.compile(r"llvm-objdump(?:-(\d+))?")
_LIB_FOLDERS = ("", "lib", "lib/*", "lib/clang/*", "lib/clang/*/lib")  # that may hold amdgcn/bitcode
_BIN_FOLDERS = ("bin", "llvm/bin", "lib/llvm/bin")


class ToolMissing(RedtuneError):
    """A program, a library or a header that this module needs is not installed."""


@dataclass(frozen=True, slots=True)
class Compiler:
    path: Path
    version: tuple[int, int, int]
    kind: Kind


@dataclass(frozen=True, slots=True)
class KernelResources:
    """What one kernel occupies. On gfx90a and later CDNA `vgprs` is the unified count: it includes `agprs`."""

    name: str
    vgprs: int
    sgprs: int
    agprs: int | None
    lds_bytes: int
    scratch_bytes: int
    vgpr_spills: int
    sgpr_spills: int
    wavefront_size: int


@dataclass(frozen=True, slots=True)
class _Target:
    arch: str  # as asked, perhaps with features: gfx90a:xnack-
    isa: str  # what the device libraries call it: 90a
    number: int  # what the device libraries test: 9010
    rdna: bool
    wave: int


def find_compiler() -> Compiler:
    """The newest clang that can make and link AMD GPU code."""
    return _find_compiler(os.environ.get("PATH", ""))


@functools.lru_cache(maxsize=4)  # asking every clang takes tens of milliseconds; a changed PATH is asked anew
def _find_compiler(path: str) -> Compiler:
    found = [compiler for file, kind in _candidates(path) if (compiler := _probe(file, kind)) is not None]
    if not found:
        raise ToolMissing(f"No clang with the amdgcn target and lld is on PATH or in /opt/rocm*. Install {PACKAGES}.")
    return max(found, key=lambda compiler: (compiler.version, -_KINDS.index(compiler.kind)))


def _candidates(path: str) -> Iterator[tuple[Path, Kind]]:
    rocm = [folder / sub for folder in _rocm() for sub in _BIN_FOLDERS]
    folders = [Path(entry) for entry in path.split(os.pathsep) if entry] + rocm
    for folder in dict.fromkeys(folder.resolve() for folder in folders):  # /bin is often /usr/bin
        for file, match in _matching(folder, _COMPILER_NAME):
            yield file, next(kind for kind in _KINDS if kind == match[1])


def _probe(file: Path, kind: Kind) -> Compiler | None:
    about = _output(file, "--version")
    version = re.search(r"clang version (\d+)\.(\d+)\.(\d+)", about)
    if version is None:
        return None
    if kind == "hipcc":
        # hipcc is asked only where its clang is: it adds host flags and passes the command through a shell.
        folder = re.search(r"^InstalledDir: (.+)$", about, re.MULTILINE)
        if folder is None:
            return None
        file = Path(folder[1]) / "clang++"
    linker = _output(file, "-print-prog-name=lld").strip()  # a bare name when there is none
    if "amdgcn" not in _output(file, "--print-targets") or not Path(linker).is_absolute():
        return None
    return Compiler(file, (int(version[1]), int(version[2]), int(version[3])), kind)


def _output(file: Path, *arguments: str) -> str:
    try:
        done = subprocess.run([file, *arguments], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _matching(folder: Path, name: re.Pattern[str]) -> list[tuple[Path, re.Match[str]]]:
    try:
        files = sorted(folder.iterdir())
    except OSError:  # PATH may name folders that do not exist or may not be read
        return []
    return [(file, match) for file in files if (match := name.fullmatch(file.name)) and os.access(file, os.X_OK)]


def _rocm() -> list[Path]:
    return sorted(Path("/opt").glob(ROCM_GLOB), reverse=True)


def _roots(compiler: Compiler | None) -> list[Path]:
    """Where libraries, headers and tools may be, those that came with the compiler first."""
    own = list(compiler.path.resolve().parents) if compiler else []
    return [*own, *_rocm(), *sorted(Path("/usr/lib").glob("llvm-*"), reverse=True), Path("/usr")]


def compile_code_object(
    source: str, arch: str, wave: int | None = None, flags: Sequence[str] = (), timeout_s: float = 120
) -> bytes:
    """The linked ELF code object of a hiprtc-style source, one that does not include the HIP header itself."""
    target = _target(arch, wave)
    compiler = find_compiler()
    with tempfile.TemporaryDirectory(prefix="redtune-amdgpu-") as name:
        work = Path(name)
        kernel, result = work / "kernel.hip", work / "kernel.hsaco"
        kernel.write_text(source, encoding="utf-8")
        command = _command(compiler, target, _libraries(compiler, target, work))
        headers = [argument for header in _headers(target) for argument in ("-include", header)]
        rest = [*flags, "-o", str(result), str(kernel)]
        try:
            parsed = None if flags else _parsed(compiler, target).ready([*command, *headers], work, timeout_s)
            code, log = _run([*command, *parsed, *rest], work, timeout_s) if parsed else (1, "")
            if code != 0:  # whatever is wrong is told as it would be without
                code, log = _run([*command, *headers, *rest], work, timeout_s)
        except subprocess.TimeoutExpired:
            raise CompileError(f"{compiler.path} took longer than {timeout_s:g} s for {arch}", source) from None
        if "invalid target ID" in log:
            raise ToolMissing(
                f"{compiler.path} has no target {arch}. Install a newer clang and its lld, or a newer ROCm."
            )
        if code != 0:
            raise CompileError(log.replace(f"{work}{os.sep}", ""), source)
        return result.read_bytes()


def _target(arch: str, wave: int | None) -> _Target:
    match = re.fullmatch(r"gfx((\d+)(\d)([0-9a-f]))(:.+)?", arch)
    if match is None:
        raise UsageError(f"{arch!r} is not an AMD GPU architecture such as gfx90a or gfx1100")
    rdna = int(match[2]) >= 10
    sizes = (32, 64) if rdna else (64,)
    if wave is not None and wave not in sizes:
        raise UsageError(f"{arch} has wavefronts of {' or '.join(map(str, sizes))} lanes, not {wave}")
    number = int(match[2]) * 1000 + int(match[3]) * 100 + int(match[4], 16)
    return _Target(arch, match[1], number, rdna, wave or sizes[0])


def _command(compiler: Compiler, target: _Target, libraries: Path) -> list[str]:
    command = [str(compiler.path), "-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output"]
    command += [f"--offload-arch={target.arch}", "-std=c++17", "-O3", f"--hip-path={hip_path(compiler)}"]
    command += [f"--rocm-device-lib-path={libraries}"]
    # clang's own default may need a newer device library than the one installed, so say which one there is.
    abi = next((abi for abi in (5, 4, 6) if (libraries / f"oclc_abi_version_{abi}00.bc").exists()), None)
    command += [f"-mcode-object-version={abi}"] if abi else []
    # Old HIP headers call functions of hip.bc, which newer clangs no longer link; twice does no harm.
    hip = libraries / "hip.bc"
    command += ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(hip)] if hip.exists() else []
    # Old HIP headers read these macros, which newer clangs no longer define.
    command += [f"-D__AMDGCN_WAVEFRONT_SIZE{end}={target.wave}" for end in ("", "__")]
    return command + (["-mwavefrontsize64"] if target.rdna and target.wave == 64 else [])


def _headers(target: _Target) -> list[str]:
    """What is included before a kernel."""
    if target.rdna and target.wave == 64:
        # hip_runtime.h refuses 64 lanes on RDNA, on account of the runtime. The device part of it does not.
        return ["stdint.h", "stdlib.h", "assert.h", "hip/hip_common.h", "hip/amd_detail/amd_hip_runtime.h"]
    return ["hip/hip_runtime.h"]


class _Parsed:
    """The headers for one target as clang keeps what it has parsed. To parse them takes it three quarters of the time
    of a kernel; from the second kernel on that is saved. They are held in memory: no other process can change them, and
    nothing is left behind."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses = 0
        self._kept = b""

    def ready(self, command: Sequence[str], work: Path, timeout_s: float) -> list[str]:
        """Arguments that include the headers; none for the first kernel, which may be the only one, and where clang
        cannot keep them. `command` is that for a kernel up to its headers."""
        file = work / "headers.pch"
        with self._lock:
            self._uses += 1
            if self._uses == 2:
                keep = ["-S", "-Xclang", "-emit-pch", "-o", str(file), "-x", "hip", os.devnull]
                code, _ = _run([*command, *keep], work, timeout_s)
                self._kept = file.read_bytes() if code == 0 else b""
        if not self._kept:
            return []
        file.write_bytes(self._kept)
        return ["-Xclang", "-include-pch", "-Xclang", str(file)]


@functools.lru_cache(maxsize=4)  # 10 MB each
def _parsed(compiler: Compiler, target: _Target) -> _Parsed:
    return _Parsed()


def hip_path(compiler: Compiler) -> Path:
    """Where the headers of HIP are."""
    for root in _roots(compiler):
        if (root / "include/hip/hip_runtime.h").exists():
            return root
    raise ToolMissing(f"The header hip/hip_runtime.h was not found. Install {PACKAGES}.")


def _libraries(compiler: Compiler, target: _Target, work: Path) -> Path:
    """The folder of device libraries; a copy by links, with one file added, where they are older than the target."""
    patterns = [Path(folder, "amdgcn/bitcode/ockl.bc") for folder in _LIB_FOLDERS]
    found = (file.parent for root in _roots(compiler) for pattern in patterns for file in root.glob(str(pattern)))
    installed = next(found, None)
    if installed is None:
        raise ToolMissing(f"The AMD device libraries (amdgcn/bitcode/ockl.bc) were not found. Install {PACKAGES}.")
    wanted = f"oclc_isa_version_{target.isa}.bc"
    if (installed / wanted).exists():
        return installed
    linked = work / "bitcode"
    linked.mkdir()
    for file in installed.glob("*.bc"):
        (linked / file.name).symlink_to(file)
    # The missing file holds nothing but this constant, which some math, image and wave functions of the other files
    # compare with older architectures; a newer number takes the branch of the newest one they know. The instructions
    # are chosen from --offload-arch, not from it.
    text = work / "isa.ll"
    text.write_text(
        'target triple = "amdgcn-amd-amdhsa"\n@__oclc_ISA_version = linkonce_odr protected local_unnamed_addr '
        f"addrspace(4) constant i32 {target.number}, align 4\n"
    )
    command = [str(compiler.path), "--target=amdgcn-amd-amdhsa", "-nogpulib", "-x", "ir", "-emit-llvm", "-c"]
    code, log = _run([*command, str(text), "-o", str(linked / wanted)], work, 30)
    if code != 0:
        raise ToolMissing(f"The device libraries lack {wanted} and clang could not make it: {log}")
    return linked


def _run(command: Sequence[str], work: Path, timeout_s: float) -> tuple[int, str]:
    environment = {**os.environ, "TMPDIR": str(work), "LC_ALL": "C"}  # clang's own temporary files go with the folder
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment,
        encoding="utf-8", errors="replace", start_new_session=True,
    ) as process:  # fmt: skip
        try:
            log, _ = process.communicate(timeout=timeout_s)
        except BaseException:
            # The driver runs the compiler and lld as children, which would outlive it and hold the pipe.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, log


def describe(code_object: bytes) -> list[KernelResources]:
    """What each kernel of a code object occupies, from its metadata note."""
    readelf = _find_tool(_READELF_NAME, "llvm-readelf")
    with tempfile.TemporaryDirectory(prefix="redtune-amdgpu-") as name:
        file = Path(name) / "kernel.hsaco"
        file.write_bytes(code_object)
        code, notes = _run([str(readelf), "--elf-output-style=GNU", "--notes", str(file)], Path(name), 30)
    if code != 0 or "amdhsa.kernels:" not in notes:
        raise RedtuneError("not an AMD GPU code object: it has no amdhsa.kernels note")
    kernels: list[dict[str, str]] = []
    # The note is YAML. A kernel's own keys stand in column 4 (the first one after "- "), its arguments' further right.
    for start, key, value in re.findall(r"^(  - |    )\.(\w+): *(.*?) *$", notes, re.MULTILINE):
        if start == "  - ":
            kernels.append({})
        kernels[-1][key] = value.strip("'\"")
    return [_resources(kernel) for kernel in kernels]


def _resources(kernel: dict[str, str]) -> KernelResources:
    return KernelResources(
        name=kernel["name"],
        vgprs=int(kernel["vgpr_count"]),
        sgprs=int(kernel["sgpr_count"]),
        agprs=int(kernel["agpr_count"]) if "agpr_count" in kernel else None,
        lds_bytes=int(kernel["group_segment_fixed_size"]),
        scratch_bytes=int(kernel["private_segment_fixed_size"]),
        vgpr_spills=int(kernel.get("vgpr_spill_count", 0)),
        sgpr_spills=int(kernel.get("sgpr_spill_count", 0)),
        wavefront_size=int(kernel["wavefront_size"]),
    )


def disassemble(code_object: bytes) -> str:
    """The instructions of a code object as llvm-objdump writes them, with addresses and the names of entry points."""
    objdump = _find_tool(_OBJDUMP_NAME, "llvm-objdump")
    with tempfile.TemporaryDirectory(prefix="redtune-amdgpu-") as name:
        file = Path(name) / "kernel.hsaco"
        file.write_bytes(code_object)
        code, text = _run([str(objdump), "--disassemble", str(file)], Path(name), 30)
    if code != 0 or "Disassembly of section" not in text:
        raise RedtuneError(f"{objdump} could not read the code object: {text.strip()[:200]}")
    return text


def _find_tool(pattern: re.Pattern[str], name: str) -> Path:
    """A tool of LLVM next to the compiler if it is there, else any other: what they write has been stable."""
    try:
        compiler = find_compiler()
    except ToolMissing:
        compiler = None  # a stored code object can be read without one
    folders = [root / sub for root in _roots(compiler) for sub in _BIN_FOLDERS]
    folders += [Path(entry) for entry in os.environ.get("PATH", "").split(os.pathsep) if entry]
    for folder in folders:
        if found := _matching(folder, pattern):
            return max(found, key=lambda item: int(item[1][1] or 0))[0]
    raise ToolMissing(f"{name} was not found. Install ROCm, or on Debian and Ubuntu: apt install llvm-19.")
