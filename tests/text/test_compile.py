"""Kernels at random compile for real architectures, on a machine with no GPU."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from redtune.backends import backend_named
from redtune.config import Config
from redtune.types import Problem
from tests.need import need
from tests.text.kernels import config, problem, random_cases, rendered, strategies, target


def all_compile(backend: str, arch: str, cases: Iterable[tuple[Config, Problem]], output: str = "value") -> None:
    """Compiles the cases, two at a time: the compilers work outside Python's lock."""
    on, compiler = target(backend, arch), backend_named(backend)

    def compiled(case: tuple[Config, Problem]) -> bytes:
        return compiler.compile(rendered(on, *case, output), on.device)

    with ThreadPoolExecutor(2) as pool:
        assert all(binary.startswith(b"\x7fELF") for binary in pool.map(compiled, cases))


@pytest.mark.parametrize(("arch", "count"), [("sm_75", 12), ("sm_80", 14), ("sm_90", 14)])
def test_random_configs_compile_for_nvidia(arch: str, count: int) -> None:
    need("nvrtc")
    all_compile("cuda", arch, random_cases(target("cuda", arch), count, seed=int(arch[3:])))


def test_every_strategy_compiles_for_nvidia() -> None:
    need("nvrtc")
    all_compile("cuda", "sm_90", [(c, p) for _, c, p in strategies(target("cuda"))])


def test_an_unfinished_state_compiles_for_nvidia() -> None:
    need("nvrtc")
    atomic = (config(combine="atomic"), problem())
    all_compile("cuda", "sm_90", [(config(), problem("argmax")), atomic], "state")


def test_every_width_of_load_compiles_past_the_cache() -> None:
    """The hint is written in assembly, once for each width."""
    need("nvrtc")
    widths = [config(vector=vector, hint="no_allocate") for vector in (1, 2, 4, 8, 16)]
    all_compile("cuda", "sm_80", [(c, problem(dtype="uint8")) for c in widths])


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1100"])
def test_random_configs_compile_for_amd(arch: str) -> None:
    need("clang")
    all_compile("hip", arch, random_cases(target("hip", arch), 6, seed=int(arch[3:], 16)))
