"""An OpenCL export: kernels as programs of their own, a launcher in C99, its self-test and a CMake project."""

from __future__ import annotations

from dataclasses import replace

from redtune.backends.opencl import build_options
from redtune.clock import MAX_BUFFERS, ROTATION, SAMPLES
from redtune.errors import UsageError
from redtune.exporting.about import About
from redtune.exporting.variants import Export, Variant, is_cold
from redtune.exporting.writing import Texts, names_of
from redtune.render import render_file

# What the text of a kernel shows that it needs beyond OpenCL 1.2.
NEEDS = {
    "cl_khr_fp64": "cl_khr_fp64",
    "cl_khr_int64": "64-bit atomics",
    "intel_reqd_sub_group_size": "cl_intel_required_subgroup_size",
    "sub_group_shuffle_down": "cl_khr_subgroup_shuffle_relative",
    "memory_scope_device": "OpenCL C 3.0 with acquire-release atomics across blocks",
    "__builtin_nontemporal_load": "a compiler built on clang",
}
WITHOUT_CMAKE = r"""
Without CMake, each kernel becomes an array of bytes first, in a header beside it:

    for kernel in *.cl; do
        echo "static const unsigned char ${kernel%.cl}_cl[] = {" > "$kernel.h"
        od -An -v -tx1 "$kernel" | sed 's/ \(..\)/0x\1,/g' >> "$kernel.h"
        echo "};" >> "$kernel.h"
    done
"""


def parameters(export: Export) -> list[str]:
    """The parameters of all kernels by name, each once."""
    numbers = [variant.numbers for variant in export.variants]
    steps = [m[f"{step}_args"] for m in numbers for step in ("main", "before", "after") if m[step]]
    return list(dict.fromkeys(name for step in steps for name in step))


def needed(export: Export) -> list[str]:
    """What a device must offer."""
    texts = "".join(variant.kernel.source for variant in export.variants)
    return [meaning for word, meaning in NEEDS.items() if word in texts]


def kernel_file(export: Export, variant: Variant) -> str:
    """A kernel's text, with nobody else's evidence on top."""
    alone = replace(export, variants=(variant,))
    what = f"The kernel that {export.name}.c launches."
    return render_file("opencl_kernel", export=alone, about=About(alone), variant=variant, what=what)


def opencl_files(export: Export) -> Texts:
    """The files of an OpenCL export. Raises UsageError for kernels of several devices."""
    if len(export.archs) > 1:
        raise UsageError(
            f"an opencl export is for one device, not for {' and '.join(export.archs)}: export each of them on its own"
        )
    name = export.name
    names = names_of(
        export,
        int64="int64_t",
        parameters=parameters(export),
        options=lambda variant: build_options(variant.kernel, variant.device),
        is_cold=is_cold,
        rotation=ROTATION["gpu"],
        max_copies=MAX_BUFFERS,
        samples=SAMPLES,
    )
    kernels = {f"{name}_{variant.space}.cl": kernel_file(export, variant) for variant in export.variants}
    meanings = {
        f"{name}.h": "the functions, and how to call them",
        f"{name}.c": "the launcher",
        **dict.fromkeys(kernels, "a kernel; it becomes a part of the program, which looks for no file when it runs"),
        "selftest.c": "the self-test",
        "CMakeLists.txt": f"builds all of it; `add_subdirectory` gives a program the target `{name}`",
    }
    asked = needed(export)
    device = f"a device that offers {', '.join(asked)}" if asked else "any OpenCL device"
    return kernels | {
        f"{name}.h": render_file("opencl_header", **names, what=f"How to call what {name}.c has."),
        f"{name}.c": render_file("opencl_launcher", **names, what="The launcher of the kernels."),
        "selftest.c": render_file("opencl_selftest", **names, what=f"The self-test of {name}.c."),
        "CMakeLists.txt": render_file(
            "opencl_cmake", **names, what="Builds the launcher and its self-test with CMake."
        ),
        "README.md": render_file(
            "readme",
            **names,
            what="kernels for OpenCL with a launcher in C99 and a self-test.",
            needs="It takes CMake, a C compiler, OpenCL's headers and loader (on Debian opencl-c-headers and "
            f"ocl-icd-opencl-dev), and {device}.",
            build="cmake -B build\ncmake --build build\n./build/selftest",
            use=f"Link the target `{name}`, or compile `{name}.c` with your own files, and include `{name}.h`: "
            f"`{name}_create` builds the kernels once, `{name}_workspace` says how large the workspace of a size is, "
            f"`{name}_run` puts one reduction on a queue. The header says the rest.\n\n"
            + WITHOUT_CMAKE.strip()
            + f"\n    cc -std=c99 -O2 -I. selftest.c {name}.c -lOpenCL -lm -o selftest",
            files=list(meanings.items()),
        ),
    }
