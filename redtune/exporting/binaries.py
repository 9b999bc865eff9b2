"""The door for compiled kernels beside the source: `BINARIES` has one entry each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from redtune.backends import backend_named, cuda
from redtune.errors import BackendMissing, RedtuneError
from redtune.exporting.variants import Export, Variant, plain_arch


@dataclass(frozen=True, slots=True)
class Binary:
    """One kind of compiled kernel: the backend it is of, and how a variant is compiled."""

    backend: str
    compile: Callable[[Variant], bytes]


def file_name(export: Export, variant: Variant, kind: str) -> str:
    """The file of a compiled kernel."""
    return f"{export.name}_{variant.space}_{plain_arch(variant.device)}.{kind}"


def binaries_of(export: Export, kinds: Sequence[str]) -> dict[str, bytes]:
    """The compiled kernels by file name. Raises RedtuneError where a compiler is missing or fails."""
    found = {}
    for kind in kinds:
        for variant in export.variants:
            try:
                found[file_name(export, variant, kind)] = BINARIES[kind].compile(variant)
            except BackendMissing as error:
                raise RedtuneError(f"{kind} cannot be written without its compiler: {error}") from error
    return found


def _compiled(variant: Variant) -> bytes:
    return backend_named(variant.device.backend).compile(variant.kernel, variant.device)


BINARIES = {
    "ptx": Binary("cuda", lambda variant: cuda.compile_ptx(variant.kernel, variant.device)),
    "cubin": Binary("cuda", _compiled),
    "hsaco": Binary("hip", _compiled),
}
