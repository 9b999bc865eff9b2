"""CUB's libraries: how each reduction is spelled, why others are absent, and what is kept of them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from redtune import cub, store
from redtune.errors import BackendMissing
from redtune.problems import make_problem

SUM = make_problem("sum", "int8", 1000)


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A stand-in for nvcc that writes its last but one argument's file and counts its calls."""
    monkeypatch.setenv("REDTUNE_CACHE", str(tmp_path / "cache"))
    script = tmp_path / "nvcc"
    calls = tmp_path / "calls"
    script.write_text(
        f"#!{sys.executable}\nimport sys\n"
        f"if '--version' in sys.argv: print('nvcc 13'); sys.exit()\n"
        f"open({str(calls)!r}, 'a').write('x')\n"
        f"if '-DRESULT=bool' in sys.argv: print('a.cu(1): error: no such thing', file=sys.stderr); sys.exit(2)\n"
        f"open(sys.argv[sys.argv.index('-o') + 1], 'w').write('library')\n"
    )
    script.chmod(0o700)
    monkeypatch.setattr("redtune.cub.nvcc", lambda: str(script))
    cub.nvcc_version.cache_clear()
    store.WARNED.clear()
    yield calls
    cub.nvcc_version.cache_clear()


@pytest.mark.parametrize(
    ("op", "dtype", "holds"),
    [
        ("sum", "int8", {"-DELEMENT=signed char", "-DACC=long long", "-DRESULT=long long", "-DPLAIN=1", "-DROWS=0"}),
        ("sum", "float16", {"-DELEMENT=__half", "-DACC=float", "-DRESULT=__half"}),
        ("max", "float32", {"-DNAMED=Max", "-DRESULT=float"}),
        ("argmin", "float64", {"-DINDEX=ArgMin"}),
        ("mean", "int32", {"-DACC=double", "-DRESULT=double", "-DFINISH=a / (ACC)n"}),
        ("any", "float32", {"-DACC=int", "-DRESULT=bool", "-DLIFT=x != (ELEMENT)0"}),
        ("bitwise_and", "uint8", {"-DACC=unsigned char", "-DINIT=-1"}),
    ],
)
def test_types_are_those_of_redtune(op: str, dtype: str, holds: set[str]) -> None:
    assert holds <= set(cub.defines(make_problem(op, dtype, 1000)))


def test_what_is_accumulated_in_is_told() -> None:
    assert [cub.running_type(make_problem(op, "int8", 9)) for op in ("sum", "max", "any", "bitwise_or", "mean")] == [
        "int64",
        "",
        "int32",
        "int8",
        "float64",
    ]


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (make_problem("logsumexp", "float32", 9), "CUB has no logsumexp"),
        (make_problem("sum", "float32", 9, inner=4), "CUB reduces no columns"),
        (make_problem("sum", "complex64", 9), "CUB's sum of complex64 is not measured"),
    ],
)
def test_what_it_has_not_is_absent_with_a_reason(problem: cub.Problem, reason: str) -> None:
    with pytest.raises(BackendMissing, match=reason):
        cub.defines(problem)


def test_without_nvcc_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(BackendMissing, match="CUB needs nvcc on PATH"):
        cub.nvcc()


def test_a_library_is_compiled_once_and_kept(compiler: Path) -> None:
    path = cub.build(SUM, "sm_90")
    assert path.parent == store.cache_path() / "libraries"
    assert path.read_text() == "library"
    assert path.stat().st_mode & 0o077 == 0
    assert cub.build(SUM, "sm_90") == path
    assert compiler.read_text() == "x"
    assert cub.build(SUM, "sm_80") != path
    assert not list(path.parent.glob(".building*"))


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX modes")
def test_a_library_that_others_may_write_is_not_loaded(compiler: Path) -> None:
    path = cub.build(SUM, "sm_90")
    path.chmod(0o777)
    with pytest.warns(UserWarning, match="another user may write"):
        assert not cub.is_kept(path)
    cub.build(SUM, "sm_90")
    assert path.stat().st_mode & 0o077 == 0
    assert compiler.read_text() == "xx"


def test_what_does_not_compile_says_why(compiler: Path) -> None:
    with pytest.raises(BackendMissing, match=r"CUB did not compile: a.cu\(1\): error: no such thing"):
        cub.build(make_problem("any", "int8", 9), "sm_90")
    assert not list((store.cache_path() / "libraries").glob("*"))


def test_where_nothing_can_be_kept_it_is_compiled_all_the_same(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDTUNE_CACHE", "/dev/null/cache")
    with pytest.warns(UserWarning, match="could not be kept"):
        path = cub.build(SUM, "sm_90")
    assert path.read_text() == "library"
    shutil.rmtree(path.parent)


def test_results_of_an_index_reduction_lie_beside_values() -> None:
    import numpy as np

    layouts = [
        cub.result_layout(make_problem("argmax", d, 9, outer=o), np.dtype("i8"))
        for d, o in (("float32", 1), ("int8", 5), ("float64", 5))
    ]
    assert [layout.itemsize for layout in layouts] == [16, 8, 16]
    assert cub.result_layout(SUM, np.dtype("i8")) == np.dtype("i8")
