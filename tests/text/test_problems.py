"""Problems from shapes, axes, manifests and the words of the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from redtune.arguments import parse_axis, parse_shape
from redtune.errors import DtypeError, UsageError
from redtune.manifest import KEYS, read_manifest
from redtune.problems import make_problem, normal_axes, running_type, shaped_problem
from tests.text.kernels import operator

SHAPES = [
    ((100,), None, ("flat", 1, 100, 1)),
    ((4, 5, 6), None, ("flat", 1, 120, 1)),
    ((4, 5, 6), (0, 1, 2), ("flat", 1, 120, 1)),
    ((4, 5), 1, ("rows", 4, 5, 1)),
    ((4, 5), -1, ("rows", 4, 5, 1)),
    ((4, 5), 0, ("columns", 1, 4, 5)),
    ((4, 5, 6), 1, ("columns", 4, 5, 6)),
    ((4, 5, 6), (1, 2), ("rows", 4, 30, 1)),
    ((4, 5, 6), (0, 1), ("columns", 1, 20, 6)),
    ((4, 5, 6), (0, 2), ("rows", 5, 24, 1)),  # no walk reaches those: what is reduced is a packed copy
    ((1, 7), 0, ("rows", 7, 1, 1)),
    ((7, 1), 1, ("rows", 7, 1, 1)),
    ((), None, ("flat", 1, 1, 1)),
]


@pytest.mark.parametrize(("shape", "axis", "found"), SHAPES, ids=map(str, SHAPES))
def test_a_shape_and_its_axes_give_a_problem(shape: Any, axis: Any, found: tuple[str, int, int, int]) -> None:
    problem = shaped_problem("sum", "float32", shape, axis)
    assert (problem.layout, problem.outer, problem.n, problem.inner) == found


def test_a_shape_that_has_no_elements_is_refused() -> None:
    with pytest.raises(UsageError, match=r"the shape \(3, 0\) has no elements"):
        shaped_problem("sum", "float32", (3, 0), 1)
    with pytest.raises(UsageError, match="axis 2 is out of bounds for array of dimension 2"):
        shaped_problem("sum", "float32", (3, 4), 2)
    with pytest.raises(UsageError, match="names an axis twice"):
        shaped_problem("sum", "float32", (3, 4), (1, -1))
    with pytest.raises(UsageError, match="argmax takes one axis or all"):
        shaped_problem("argmax", "float32", (3, 4), (0, 1))
    with pytest.raises(UsageError, match=r"at most 2\*\*40"):
        shaped_problem("sum", "float32", (2**30, 2**20), 1)


@given(st.integers(0, 4), st.one_of(st.none(), st.integers(-6, 6), st.lists(st.integers(-6, 6), max_size=3).map(tuple)))
def test_axes_are_numpys(ndim: int, axis: Any) -> None:
    array = np.ones((2,) * ndim)
    try:
        shape: Any = np.sum(array, axis=axis).shape
    except Exception as error:
        with pytest.raises(type(error)):
            normal_axes(axis, ndim)
        return
    axes = normal_axes(axis, ndim)
    assert tuple(2 for k in range(ndim) if k not in axes) == shape
    assert list(axes) == sorted(set(axes))


RUNNING = [
    ("sum", "int8", None, None, "int64"),
    ("sum", "int8", "int8", None, "int64"),
    ("sum", "int8", "float32", None, "float32"),
    ("sum", "float16", None, None, "float32"),
    ("sum", "float16", "float64", None, "float64"),
    ("sum", "float32", None, "float64", "float64"),
    ("sum", "float32", None, "compensated", "float32"),
    ("mean", "int32", None, None, "float64"),
    ("mean", "int32", "float32", None, "float32"),
    ("max", "uint8", None, None, "uint32"),
    ("sum", "complex64", None, None, "float32"),
    ("sum", "complex64", "complex128", None, "float64"),
    ("var", "bfloat16", None, "compensated", "float32"),
]


@pytest.mark.parametrize(("op", "dtype", "result", "accumulate", "found"), RUNNING, ids=map(str, RUNNING))
def test_the_running_type(op: str, dtype: str, result: Any, accumulate: Any, found: str) -> None:
    problem = make_problem(op, dtype, 10, result=result, accumulate=accumulate)
    assert problem.accumulate == found
    assert problem.is_compensated == (accumulate == "compensated")


MEANINGLESS = [
    ("max", "float32", "float64", None, TypeError, "max has the type of its elements"),
    ("sum", "float32", "complex64", None, TypeError, "complex stays complex, real stays real"),
    ("mean", "float32", "int32", None, TypeError, "mean is a float; dtype cannot be int32"),
    ("prod", "float32", "bool", None, TypeError, "prod as bool has no meaning"),
    ("sum", "float32", "float33", None, TypeError, "there is no dtype 'float33'"),
    ("sum", "float32", None, "double", ValueError, "there is no accumulate 'double'"),
    ("sum", "int32", None, "compensated", ValueError, "accumulates in int64; accumulate='compensated' is for floats"),
    ("max", "float32", None, "compensated", ValueError, "max adds nothing up"),
]


@pytest.mark.parametrize(
    ("op", "dtype", "result", "accumulate", "kind", "said"), MEANINGLESS, ids=map(str, MEANINGLESS)
)
def test_a_type_without_meaning_is_refused(
    op: str, dtype: str, result: Any, accumulate: Any, kind: type[Exception], said: str
) -> None:
    from redtune.dtypes import dtype_named

    with pytest.raises(kind, match=said) as caught:
        running_type(operator(op, dtype), dtype_named(dtype), result, accumulate)
    assert isinstance(caught.value, UsageError)
    assert isinstance(caught.value, DtypeError) == (kind is TypeError)


# --- words of the command line ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shape"),
    [("4096x4096", (4096, 4096)), ("2**20x16", (1 << 20, 16)), ("8,16", (8, 16)), ("7", (7,)), (" 3 x 4 ", (3, 4))],
)
def test_a_shape_is_read(text: str, shape: tuple[int, ...]) -> None:
    assert parse_shape(text) == shape
    assert parse_shape(None) is None


@pytest.mark.parametrize(("text", "axis"), [("1", 1), ("-1", -1), ("0,2", (0, 2)), (None, None)])
def test_an_axis_is_read(text: str | None, axis: Any) -> None:
    assert parse_axis(text) == axis


@pytest.mark.parametrize("text", ["", "x", "1x", "axb", "1.5", "0..2"])
def test_a_shape_or_an_axis_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cannot be"):
        parse_axis(text)
    if text != "1.5":
        with pytest.raises(UsageError, match="cannot be"):
            parse_shape(text)


# --- manifests --------------------------------------------------------------------------------------------------------


def write(path: Path, content: Any) -> str:
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return str(path)


def test_a_manifest_lists_problems(tmp_path: Path) -> None:
    entries = [
        {"op": "max"},
        {"op": ["sum", "mean"], "dtype": ["float32", "float16"], "n": "2**20"},
        {"op": "argmax", "shape": ["2**10", 16], "axis": 1, "dtype": "int8"},
        {"op": "sum", "shape": [4, 5, 6], "axis": [0, 2], "accumulate": "compensated", "determinism": "run-to-run"},
    ]
    found = read_manifest(write(tmp_path / "m.yaml", entries))
    assert [(p.op, p.dtype, p.layout, p.outer, p.n, has_size) for p, has_size in found] == [
        ("max", "float32", "flat", 1, 1, False),
        ("sum", "float32", "flat", 1, 1 << 20, True),
        ("sum", "float16", "flat", 1, 1 << 20, True),
        ("mean", "float32", "flat", 1, 1 << 20, True),
        ("mean", "float16", "flat", 1, 1 << 20, True),
        ("argmax", "int8", "rows", 1024, 16, True),
        ("sum", "float32", "rows", 5, 24, True),
    ]
    assert found[-1][0].is_compensated
    assert found[-1][0].determinism == "run-to-run"


BAD = [
    ("op: max", "must be a list of problems"),
    ("[]", "must be a list of problems"),
    ("- max", "entry 1: 'max' is no problem; it needs an op"),
    ("- {op: maxx}", "entry 1: there is no operator 'maxx': did you mean 'max'?"),
    ("- {op: max}\n- {op: sum, dtype: float23}", "entry 2: there is no dtype 'float23'"),
    ("- {op: max, size: 3}", f"entry 1 has the key 'size': choose from {', '.join(KEYS)}"),
    ("- {op: max, n: 3, shape: [4]}", "entry 1: n is 3 and the shape"),
    ("- {op: max, n: 0}", "entry 1: n is 0"),
    ("- {op: max, n: [1]}", "is no number of elements"),
    ("- {op: max, axis: 1}", "entry 1: axis 1 belongs to a shape"),
    ("- {op: max, shape: [4], axis: 1}", "entry 1: axis 1 is out of bounds"),
    ("- {op: bitwise_or}", "entry 1: bitwise_or of float32 has no meaning"),
    ("- {op: [max}", "is not YAML"),
]


@pytest.mark.parametrize(("text", "said"), BAD, ids=[said for _, said in BAD])
def test_a_manifest_that_is_none_says_why(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_manifest(write(tmp_path / "m.yaml", text))
    assert said in str(caught.value)
    assert str(tmp_path / "m.yaml") in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_manifest_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_manifest(str(tmp_path / "none.yaml"))


# --- many searches ----------------------------------------------------------------------------------------------------

Command = Callable[..., tuple[int, str, str]]


def test_search_wants_one_way_to_say_what() -> None:
    import sys

    from redtune.cli import main

    assert main(["search"]) == 2
    assert main(["search", "--op", "max", "--ops", "sum"]) == 2
    assert main(["search", "--op", "max", "--n", "5", "--shape", "3x4"]) == 2
    assert main(["search", "--op", "max", "--axis", "1"]) == 2
    assert main(["search", "--op", "sum", "--map", "x +"]) == 2
    sys.stdout.flush()


def test_one_failed_search_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    import json

    from redtune.cli import main
    from redtune.types import Verdict
    from tests.fakes import FakeLab
    from tests.text.kernels import target

    device = target("cuda", memory_bytes=1 << 37).device
    monkeypatch.setattr("redtune.lab.list_devices", lambda backend: [device])

    def lab(device: Any, p: Any, **_: Any) -> FakeLab:
        return FakeLab(p, device, lambda c: Verdict.WRONG if p.op == "min" else 100.0)

    monkeypatch.setattr("redtune.tuner.Lab", lab)
    code = main(["search", "--ops", "max, min,sum", "--shape", "64x64", "--axis", "1", "--trials", "5", "--json"])
    said = capsys.readouterr()
    rows = json.loads(said.out)["searches"]
    assert [row["problem"]["op"] for row in rows] == ["max", "min", "sum"]
    assert [("best" in row, "error" in row) for row in rows] == [(True, False), (False, True), (True, False)]
    assert code == 1
    assert "1 of 3 searches failed; the first: no config came through: WRONG" in said.err
    code = main(["search", "--ops", "max,sum", "--shape", "64x64", "--axis", "0", "--trials", "5"])
    said = capsys.readouterr()
    assert code == 0
    assert "2 of 2: sum of 1 x (64) x 64 float32" in said.err
    assert "max of 1 x (64) x 64 float32" in said.out
