"""What CUDA and HIP call things on the host: one set of templates serves both."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from redtune.clock import MAX_BUFFERS, ROTATION
from redtune.exporting.variants import Export, Variant, is_cold, plain_arch
from redtune.exporting.writing import Texts, names_of
from redtune.render import render_file

_INTEGERS = {f"{sign}int{bits}": f"std::{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_PLAIN = {"bool": "bool", "float32": "float", "float64": "double", **_INTEGERS}


@dataclass(frozen=True, slots=True)
class Gpu:
    """One host API. `build` are the commands that build and run a self-test. `extra` names the headers that some types
    need; `guard` gives the condition under which the device compiler sees the body of a kernel for an architecture;
    `rank` the code that finds a device's architecture."""

    prefix: str
    runtime: str
    types: Mapping[str, str]
    extra: Mapping[str, str]
    units: str
    cache: str
    no_kernel: str
    compiler: str
    build: str
    otherwise: str
    instantiate: str
    suffix: str
    guard: Callable[[str], str]
    rank: Callable[[Export], str]

    def headers(self, export: Export) -> list[str]:
        """What a program includes for the function and its types."""
        used = (self.extra.get(dtype.name) for dtype in (export.dtype, export.result))
        return [self.runtime, *sorted({header for header in used if header is not None})]

    def header_name(self, export: Export) -> str:
        """The file of the kernels and their launcher."""
        return export.name + self.suffix

    def kernel(self, export: Export, variant: Variant) -> str:
        """The kernel's text for a namespace: its entries have no name that a linker sees."""
        text = variant.kernel.source.replace('extern "C" __global__', "static __global__")
        if len(export.archs) == 1:
            return text
        # Another architecture may not have the instructions; it never runs this kernel.
        guard = self.guard(plain_arch(variant.device))
        return re.sub(_ENTRY, lambda found: _guarded(found, guard), text)

    def arch_rank(self, export: Export) -> str:
        """The function `find_arch`."""
        return self.rank(export)


# An entry of a kernel's text: its head with the parameters, and its body.
_ENTRY = re.compile(r"^(static __global__ [^{]*?\(\n)([^{]*)\)\n\{\n(.*?)^\}\n", re.DOTALL | re.MULTILINE)


def _guarded(entry: re.Match[str], condition: str) -> str:
    """An entry that does nothing where a condition of the preprocessor does not hold."""
    head, parameters, body = entry.groups()
    unused = "".join(f"    (void){name};\n" for name in re.findall(r"(\w+)(?=,|$)", parameters))
    return f"{head}{parameters})\n{{\n#if {condition}\n{body}#else\n{unused}#endif\n}}\n"


def _number(arch: str) -> int:
    return int("".join(c for c in arch if c.isdigit()))


def _cuda_rank(export: Export) -> str:
    numbers = ", ".join(str(_number(arch)) for arch in export.archs)
    return f"""// Which architecture of the export is the device's, or the newest before it; -1 for an older one.
static inline cudaError_t find_arch(int device, int *arch)
{{
    static const int numbers[] = {{{numbers}}};
    int major = 0, minor = 0;
    cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    *arch = -1;
    for (int k = 0; k < {len(export.archs)}; k++)
        if (numbers[k] <= 10 * major + minor && (*arch < 0 || numbers[k] > numbers[*arch]))
            *arch = k;
    return error;
}}"""


def _hip_rank(export: Export) -> str:
    names = ", ".join(f'"{arch}"' for arch in export.archs)
    return f"""// Which of the architectures is the device's; -1 for another one.
static inline hipError_t find_arch(int device, int *arch)
{{
    static const char *const names[] = {{{names}}};
    static int known[64];  // by device, one more than the answer: asking takes long
    if (device < 64 && known[device] != 0) {{
        *arch = known[device] - 2;
        return hipSuccess;
    }}
    hipDeviceProp_t properties;
    const hipError_t error = hipGetDeviceProperties(&properties, device);
    *arch = -1;
    for (int k = 0; error == hipSuccess && k < {len(export.archs)}; k++) {{
        const char *a = names[k], *b = properties.gcnArchName;
        while (*a != 0 && *a == *b)
            a++, b++;
        if (*a == 0 && (*b == 0 || *b == ':'))
            *arch = k;
    }}
    if (error == hipSuccess && device < 64)
        known[device] = *arch + 2;
    return error;
}}"""


CUDA = Gpu(
    prefix="cuda",
    runtime="cuda_runtime.h",
    types={
        **_PLAIN,
        "float16": "__half",
        "bfloat16": "__nv_bfloat16",
        "complex64": "cuFloatComplex",
        "complex128": "cuDoubleComplex",
    },
    extra={
        "float16": "cuda_fp16.h",
        "bfloat16": "cuda_bf16.h",
        "complex64": "cuComplex.h",
        "complex128": "cuComplex.h",
    },
    units="cudaDevAttrMultiProcessorCount",
    cache="cudaDevAttrL2CacheSize",
    no_kernel="cudaErrorNoKernelImageForDevice",
    compiler="CMake, nvcc",
    build="cmake -B build\ncmake --build build\n./build/selftest",
    otherwise="`make test` does the same as the lines above without CMake.",
    instantiate="cudaGraphInstantiateWithFlags(&ready, graph, 0)",
    suffix=".cuh",
    guard=lambda arch: f"!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= {10 * _number(arch)}",
    rank=_cuda_rank,
)

HIP = Gpu(
    prefix="hip",
    runtime="hip/hip_runtime.h",
    types={
        **_PLAIN,
        "float16": "__half",
        "bfloat16": "hip_bfloat16",
        "complex64": "hipFloatComplex",
        "complex128": "hipDoubleComplex",
    },
    extra={
        "float16": "hip/hip_fp16.h",
        "bfloat16": "hip/hip_bfloat16.h",
        "complex64": "hip/hip_complex.h",
        "complex128": "hip/hip_complex.h",
    },
    units="hipDeviceAttributeMultiprocessorCount",
    cache="hipDeviceAttributeL2CacheSize",
    no_kernel="hipErrorNoBinaryForGpu",
    compiler="make, hipcc",
    build="make\n./selftest",
    otherwise="CMake from 3.21 builds it as well, with ROCm's clang as its HIP compiler.",
    instantiate="hipGraphInstantiate(&ready, graph, nullptr, nullptr, 0)",
    suffix=".hip.hpp",
    guard=lambda arch: f"!defined(__HIP_DEVICE_COMPILE__) || defined(__{arch}__)",
    rank=_hip_rank,
)


def gpu_files(api: Gpu, name: str, source: str) -> Callable[[Export], Texts]:
    """The files of a header with a launcher, a self-test and two ways to build it."""

    def files(export: Export) -> Texts:
        header = api.header_name(export)
        names = names_of(
            export,
            api=api,
            format=name,
            header=header,
            int64="std::int64_t",
            rotation=ROTATION["gpu"],
            max_copies=MAX_BUFFERS,
            is_cold=is_cold,
            numbers=["".join(c for c in arch if c.isdigit()) for arch in export.archs],
        )
        vendor = name.upper()
        meanings = {
            header: "the kernels and the function that launches them, all that a program needs",
            source: "the self-test",
            "CMakeLists.txt": f"builds the self-test; `add_subdirectory` gives a program the target `{export.name}`",
            "Makefile": "builds the self-test without CMake",
        }
        return {
            header: render_file("gpu", **names, what=f"The kernel and its launcher for {vendor}."),
            source: render_file("gpu_selftest", **names, what=f"The self-test of {header}."),
            "CMakeLists.txt": render_file("cmake", **names, what="Builds the self-test with CMake."),
            "Makefile": render_file("makefile", **names, what="Builds the self-test with make."),
            "README.md": render_file(
                "readme",
                **names,
                what=f"a header for {vendor} with its launcher and a self-test.",
                needs=f"It takes {api.compiler} and a GPU of {' or '.join(export.archs)}.",
                build=api.build,
                use=f"Include `{header}` and call `{export.name}` twice: once for the size of the workspace, once with "
                f"it. The header says the rest. {api.otherwise}",
                files=list(meanings.items()),
            ),
        }

    return files
