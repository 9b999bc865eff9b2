"""The emitted text itself. `pytest tests/text/test_golden.py --update-golden` rewrites all of it."""

from __future__ import annotations

import dataclasses
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from redtune.operators import OPERATORS
from redtune.types import Kernel, Problem
from tests.conftest import GOLDEN, golden_path
from tests.text.kernels import ARCHS, Target, config, problem, rendered, strategies, target

ROOT = Path(__file__).parents[2]


def cases() -> Iterator[tuple[str, str, Kernel]]:
    """(dialect, name, kernel) of every golden file."""
    for dialect in ARCHS:
        on = target(dialect)
        for op in OPERATORS:
            yield dialect, f"op_{op}", rendered(on, config(), problem(op))
        for name, c, p in strategies(on):
            yield dialect, name, rendered(on, c, p)
        yield dialect, "wave_64", rendered(on, config(wave=64), problem())
        yield dialect, "dtype_float16", rendered(on, config(vector=8, items=2), problem("sum", "float16"))
        yield dialect, "dtype_bfloat16", rendered(on, config(vector=8, items=2), problem("sum", "bfloat16"))
        yield dialect, "vector_16", rendered(on, config(vector=16, items=2), problem("sum", "int8"))
        yield dialect, "output_state", rendered(on, config(), problem("argmax"), "state")
    yield "hip", "gfx1100_wave_64", rendered(target("hip", "gfx1100"), config(wave=64), problem())


CASES = {(dialect, name): kernel for dialect, name, kernel in cases()}


@pytest.mark.parametrize(("dialect", "name"), CASES)
def test_the_text_is_as_it_was(dialect: str, name: str, golden: Callable[[str, str, str], None]) -> None:
    golden(dialect, name, CASES[dialect, name].source)


def test_no_golden_file_is_left_over(is_updating: bool) -> None:
    expected = {golden_path(dialect, name) for dialect, name in CASES}
    unused = {path for path in GOLDEN.rglob("*") if path.is_file()} - expected
    if is_updating:
        for path in unused:
            path.unlink()
        return
    assert not unused, "no test writes these: run pytest tests/text/test_golden.py --update-golden to remove them"


def test_every_choice_of_code_is_covered() -> None:
    """The list of cases finds its own way round the knobs; here is what it must not lose."""
    names = {dialect: {name for d, name in CASES if d == dialect} for dialect in ARCHS}
    common = {f"tree_{tree}" for tree in ("interleaved", "strided", "unrolled")}
    common |= {f"combine_{combine}" for combine in ("two_pass", "atomic")}
    common |= {f"walk_{walk}" for walk in ("tile", "chunk")}
    common |= {"exchange_lds", "hint_streaming"}
    for dialect in ARCHS:
        assert common <= names[dialect], dialect
    assert {"exchange_redux", "combine_cluster", "hint_no_allocate"} <= names["cuda"]


@pytest.mark.parametrize(("dialect", "name"), CASES)
def test_the_text_says_nothing_of_where_and_when(dialect: str, name: str) -> None:
    source = CASES[dialect, name].source
    assert not re.search(r"\b\d{4}-\d\d-\d\d\b|\b\d\d:\d\d\b", source), "a date or a time"
    assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", source), "the name of this host"
    assert not re.search(r"(?<![\w/*.])/\w+/\w+", source), "an absolute path"


# The whole text is in the digest, and another interpreter has another hash seed and another folder.
RENDER_ALL = """
from tests.text.test_golden import CASES
for (dialect, name), kernel in CASES.items():
    print(dialect, name, kernel.digest)
"""


def test_another_process_writes_the_same(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "12345", "TZ": "Asia/Tokyo"}
    done = subprocess.run(
        [sys.executable, "-c", RENDER_ALL], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [f"{d} {name} {kernel.digest}" for (d, name), kernel in CASES.items()]


@pytest.mark.parametrize("dialect", ARCHS)
def test_the_text_does_not_depend_on_the_size(dialect: str) -> None:
    on = target(dialect)
    for _, c, p in strategies(on):
        kernels = [rendered(on, c, dataclasses.replace(p, n=n)) for n in (1, 1000, 2**24, 2**31 + 1)]
        assert len({kernel.source for kernel in kernels}) == 1
        assert len({kernel.digest for kernel in kernels}) == 1


def test_the_text_depends_on_what_it_should() -> None:
    def digest(on: Target, p: Problem, **knobs: int | str) -> str:
        return rendered(on, config(**knobs), p).digest

    on = target("cuda")
    different = [
        digest(on, problem()),
        digest(on, problem(), items=8),
        digest(on, problem("max")),
        digest(on, problem(dtype="float64")),
        digest(target("cuda", "sm_80"), problem()),
        digest(target("hip"), problem()),
    ]
    assert len(set(different)) == len(different)
    # The number of compute units moves launches only.
    assert digest(target("cuda", compute_units=7), problem()) == different[0]
