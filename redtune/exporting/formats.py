"""The door for export formats: `FORMATS` has one entry each, which says what is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from redtune.exporting.about import About
from redtune.exporting.binaries import file_name
from redtune.exporting.gpu import CUDA, HIP, gpu_files
from redtune.exporting.opencl import opencl_files
from redtune.exporting.python import cupy_files, torch_files
from redtune.exporting.variants import Export, Variant
from redtune.exporting.writing import Texts
from redtune.types import as_json


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of export: the backend whose kernels it holds, what it is in a phrase, and its files by name."""

    backend: str
    meaning: str
    files: Callable[[Export], Texts]
    check: Callable[[Variant], None] = lambda variant: None  # raises UsageError for what it cannot hold


def texts_of(export: Export, name: str, binaries: Sequence[str] = ()) -> Texts:
    """Every file of text of an export in a format, the manifest included. A pure function of the export."""
    files = FORMATS[name].files(export)
    others = [file_name(export, variant, kind) for kind in binaries for variant in export.variants]
    return files | {"manifest.json": _manifest(export, name, [*files, *others, "manifest.json"])}


def _manifest(export: Export, name: str, files: list[str]) -> str:
    about = About(export)
    variants = [
        {
            "name": v.space,
            "device": as_json(v.device),
            "problem": as_json(v.problem),
            "config": as_json(v.config),
            "size_classes": list(v.sizes),
            "best": as_json(v.best) if v.best is not None else None,
            "digest": v.kernel.digest,
        }
        for v in export.variants
    ]
    document = {
        "name": export.name,
        "format": name,
        "command": export.command,
        "op": export.problem.op,
        "dtype": export.problem.dtype,
        "result": export.result.name,
        "accumulate": export.problem.accumulate,
        "layout": export.problem.layout,
        "determinism": about.determinism,
        "licence": "MIT",
        "variants": variants,
        "files": sorted(files),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


FORMATS: dict[str, Format] = {
    "cuda": Format("cuda", "a CUDA header with its launcher", gpu_files(CUDA, "cuda", "selftest.cu")),
    "hip": Format("hip", "a HIP header with its launcher", gpu_files(HIP, "hip", "selftest.hip")),
    "opencl": Format("opencl", "OpenCL kernels with a launcher in C", opencl_files),
    "cupy": Format("cuda", "a Python module over CuPy", cupy_files),
    "torch": Format("cuda", "a Python module with a PyTorch operator", torch_files),
}
