"""Kernels compile for real architectures, on a machine with no GPU: those that are pinned, and many at random."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from redtune.amdgpu import compile_code_object
from redtune.backends import backend_named
from redtune.render import render
from redtune.rungs import config_of, rungs
from redtune.types import Kernel
from tests.need import need
from tests.text.kernels import LAYOUTS, Target, config, problem, random_cases, rendered, target
from tests.text.test_golden import CASES


def all_compile(on: Target, kernels: Iterable[Kernel]) -> None:
    """Compiles them two at a time: the compilers work outside Python's lock."""
    compiler = backend_named(on.device.backend)
    with ThreadPoolExecutor(2) as pool:
        binaries = pool.map(lambda kernel: compiler.compile(kernel, on.device), kernels)
        assert all(binary.startswith(b"\x7fELF") for binary in binaries)


def at_random(on: Target, count: int, seed: int) -> list[Kernel]:
    return [rendered(on, c, p) for c, p in random_cases(on, count, seed, tuple(LAYOUTS))]


def pinned(dialect: str, arch: str) -> list[Kernel]:
    """The kernels of the golden files."""
    return [kernel for (d, _), kernel in CASES.items() if d == dialect and kernel.arch == arch]


def test_what_is_pinned_compiles_for_nvidia() -> None:
    """Every operator, strategy and layout, and a state that is left unfinished."""
    need("nvrtc")
    all_compile(target("cuda"), pinned("cuda", "sm_90"))


@pytest.mark.parametrize(("arch", "count"), [("sm_75", 8), ("sm_80", 8), ("sm_90", 14)])
def test_random_configs_compile_for_nvidia(arch: str, count: int) -> None:
    need("nvrtc")
    on = target("cuda", arch)
    all_compile(on, at_random(on, count, seed=int(arch[3:])))


def test_every_width_of_load_compiles_past_the_cache() -> None:
    """The hint is written in assembly, once for each width."""
    need("nvrtc")
    on = target("cuda", "sm_80")
    widths = [config(vector=vector, hint="no_allocate") for vector in (1, 2, 4, 8, 16)]
    all_compile(
        on, [rendered(on, c, problem("max", "uint8", is_masked=vector == 4)) for vector, c in enumerate(widths)]
    )


def test_what_is_pinned_compiles_for_amd() -> None:
    need("clang")
    all_compile(target("hip"), pinned("hip", "gfx942"))


def test_no_kernel_names_what_it_does_not_use() -> None:
    """A user who compiles an export with warnings on would see it. Tiles in two sweeps have the most names."""
    need("clang")
    on = target("hip", "gfx942")
    shapes = [LAYOUTS["rows"], LAYOUTS["columns"]]
    alone = config(vector=1, combine="two_pass", split=4)
    kernels = [rendered(on, alone, problem(op, "float32", **shape)) for op in ("argmin", "sum") for shape in shapes]
    kernels += at_random(on, 3, seed=3)

    def check(kernel: Kernel) -> bytes:
        return compile_code_object(kernel.source, "gfx942", flags=["-O0", "-Wunused", "-Werror=unused"])

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(check, kernels))


def ladder_of(on: Target) -> list[Kernel]:
    """The rungs, which no search has to take."""
    p = problem()
    found = [config_of(rung, 256, p, on.dialect) for rung in rungs()]
    return [render(p, c, on.dialect, on.device) for c in found]


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1100"])
def test_every_rung_of_the_ladder_compiles_for_amd(arch: str) -> None:
    need("clang")
    on = target("hip", arch)
    all_compile(on, ladder_of(on))


def test_every_rung_of_the_ladder_compiles_for_nvidia() -> None:
    need("nvrtc")
    all_compile(target("cuda"), ladder_of(target("cuda")))


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1100"])
def test_random_configs_compile_for_amd(arch: str) -> None:
    need("clang")
    on = target("hip", arch)
    all_compile(on, at_random(on, 4, seed=int(arch[3:], 16)))
