"""The emitted text itself. `pytest tests/text/test_golden.py --update-golden` rewrites all of it."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from redtune.arithmetic import arithmetic_kernels
from redtune.combine import COMBINES
from redtune.config import KNOBS
from redtune.operators import OPERATORS
from redtune.types import Kernel, Problem
from tests.conftest import GOLDEN, golden_path
from tests.text.kernels import ARCHS, LAYOUTS, Target, config, has_meaning, problem, rendered, strategies, target

ROOT = Path(__file__).parents[2]


def cases() -> Iterator[tuple[str, str, Kernel]]:
    """(dialect, name, kernel) of every golden file: all in CUDA, and in the others what they spell differently."""
    for dialect, wanted in WANTED.items():
        on = target(dialect)
        for name, (knobs, p) in named_cases(on).items():
            if wanted is None or name in wanted:
                output = "state" if name == "output_state" else "value"
                yield dialect, name, rendered(on, config(**knobs), p, output)
    yield (
        "hip",
        "gfx1100_dpp_wave_64",
        rendered(target("hip", "gfx1100"), config(wave=64, exchange="dpp"), problem("argmax")),
    )
    for dialect in WANTED:
        on = target(dialect)
        (computing,) = (
            one.kernel
            for one in arithmetic_kernels(on.device, on.dialect)
            if (one.step.name, one.dtype) == ("max", "float32")
        )
        assert computing is not None
        yield dialect, "arithmetic_max", computing


def named_cases(on: Target) -> dict[str, tuple[dict[str, Any], Problem]]:
    """What a golden file may be of: the knobs that are not at their defaults, and the problem."""
    found: dict[str, tuple[dict[str, Any], Problem]] = {
        f"op_{op}": ({}, problem(op)) for op in OPERATORS if has_float(op)
    }
    found |= {f"op_{op}": ({}, problem(op, "int32")) for op in OPERATORS if not has_float(op)}
    for name, c, p in strategies(on):
        found[name] = ({knob: getattr(c, knob) for knob in KNOBS}, p)
    wide = {"vector": 8, "items": 2}
    alone = {"combine": "two_pass"}
    shared = {"split": 4, "team": 8, "block": 128}
    rows, columns, strided = (problem(**LAYOUTS[name]) for name in ("rows", "columns", "strided"))
    wide_columns = problem(outer=3, n=300, inner=40)
    return found | {
        "wave_64": ({"wave": 64}, problem()),
        "vector_16": ({"vector": 16, "items": 2}, problem("sum", "int8")),
        "words_max": ({"vector": 16, "items": 2}, problem("max", "int8")),
        "words_var": ({"vector": 8, "items": 2}, problem("var", "uint8")),
        "words_argmax": ({"vector": 8, "items": 2}, problem("argmax", "int16")),
        "dtype_float16": (wide, problem("sum", "float16")),
        "dtype_bfloat16": (wide, problem("sum", "bfloat16")),
        "dtype_complex64": ({"vector": 2}, problem("prod", "complex64")),
        "output_state": ({}, problem("argmax")),
        "layout_rows": (alone | {"team": 32, "vector": 4}, rows),
        "layout_rows_team_128": (alone | {"team": 128}, rows),
        "layout_columns": (alone | {"team": 8, "exchange": "lds"}, columns),
        "layout_columns_wide": (alone | {"team": 8, "exchange": "lds", "vector": 4}, wide_columns),
        "columns_wide_two_pass": (shared | {"combine": "two_pass", "exchange": "lds", "vector": 4}, wide_columns),
        "layout_strided": ({"split": 16}, strided),
        "layout_ragged": (alone | {"team": 32}, problem("mean", **LAYOUTS["ragged"])),
        "rows_last_block": (shared | {"combine": "last_block"}, rows),
        "rows_two_pass": (shared | {"combine": "two_pass"}, rows),
        "rows_atomic": (shared | {"combine": "atomic"}, rows),
        "rows_cluster": ({"split": 8, "combine": "cluster"}, rows),
        "columns_two_pass": (shared | {"combine": "two_pass", "exchange": "lds"}, columns),
        "masked": ({"vector": 4, "items": 2}, problem("mean", is_masked=True)),
        "masked_dot": ({"vector": 2}, problem("dot", is_masked=True)),
        "seeded": ({}, problem("sum", is_seeded=True)),
        "compensated": ({}, problem("sum", is_compensated=True)),
        "compensated_var": ({}, problem("var", is_compensated=True)),
        "complex_dot": (alone, problem("dot", "complex128", **LAYOUTS["rows"])),
    }


def has_float(op: str) -> bool:
    return has_meaning(op, "float32")


# What HIP and OpenCL are pinned on; None for all that the dialect can do.
COMMON = {"op_argmax", "op_logsumexp", "op_norm_l2", "op_sum", "exchange_lds", "tree_unrolled", "wave_64"}
COMMON |= {"combine_atomic", "hint_streaming", "dtype_float16"}
COMMON |= {"layout_rows_team_128", "rows_atomic", "columns_two_pass", "masked"}
OF_HIP = COMMON - {"exchange_lds"} | {"exchange_dpp"}  # what a tree unrolled shows of shared memory is enough
WANTED: dict[str, set[str] | None] = {"cuda": None, "hip": OF_HIP, "opencl": COMMON | {"dtype_complex64"}}


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
    """The list of cases finds its own way round the knobs and operators; here is what it must not lose."""
    names = {dialect: {name for d, name in CASES if d == dialect} for dialect in ARCHS}
    assert names["opencl"] >= (WANTED["opencl"] or set())
    assert names["hip"] >= (WANTED["hip"] or set())
    wanted = {f"tree_{tree}" for tree in ("interleaved", "strided", "last_wave", "unrolled")}
    wanted |= {f"combine_{combine}" for combine in set(COMBINES) - {"last_block"}}
    wanted |= {
        "second_launch_early",
        "walk_tile",
        "walk_chunk",
        "exchange_lds",
        "exchange_redux",
        "hint_streaming",
        "hint_no_allocate",
    }
    wanted |= {f"op_{op}" for op in OPERATORS} | {
        f"rows_{combine}" for combine in set(COMBINES) - {"collector", "tally"}
    }
    assert wanted <= names["cuda"]
    assert {kernel.problem.layout for kernel in CASES.values()} == {"flat", "rows", "columns", "ragged"}
    assert len(CASES) <= 100, "a golden file more is one more to read at every change"


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


def test_the_text_depends_on_what_it_should() -> None:
    def digest(on: Target, p: Problem, **knobs: int | str) -> str:
        return rendered(on, config(**knobs), p).digest

    on = target("cuda")
    different = [
        digest(on, problem()),
        digest(on, problem(), items=8),
        digest(on, problem("max")),
        digest(on, problem(dtype="float64")),
        digest(on, problem(is_masked=True)),
        digest(on, problem(is_seeded=True)),
        digest(on, problem(is_compensated=True)),
        digest(on, problem(result="float64")),
        digest(on, problem(outer=2), combine="two_pass"),
        digest(on, problem(inner=2), combine="two_pass"),
        digest(on, problem(is_ragged=True), combine="two_pass"),
        digest(target("cuda", "sm_80"), problem()),
        digest(target("hip"), problem()),
    ]
    assert len(set(different)) == len(different)
    # The number of compute units moves launches only.
    assert digest(target("cuda", compute_units=7), problem()) == different[0]
