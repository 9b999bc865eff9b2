"""cupy's side of a contest, with numpy in its place: what is called on which input, and what is absent and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from redtune.backends import Rival
from redtune.libraries import cuda_rivals, cupy_rival, warm_cupy
from redtune.problems import make_problem


class Kept(np.ndarray[Any, Any]):
    """An array with cupy's way to the host."""

    def get(self, stream: Any = None) -> np.ndarray[Any, Any]:
        return np.asarray(self)


class Cupy:
    """numpy under cupy's name; memory is an array of bytes."""

    cuda = SimpleNamespace(runtime=SimpleNamespace(CUDARuntimeError=RuntimeError))
    __version__ = "14"

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def ndarray(self, shape: Any, dtype: str, memptr: Any) -> Any:
        return memptr.view(dtype).reshape(shape).view(Kept)

    def asarray(self, array: Any) -> Any:
        return np.asarray(array).view(Kept)


class Stream:
    """A stream that does everything at once."""

    ptr = 0

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None: ...

    def synchronize(self) -> None: ...


class Session:
    """What a library needs of one."""

    def __init__(self) -> None:
        self.cupy, self.stream, self.arch = Cupy(), Stream(), "sm_90"

    def empty(self, size: int) -> Any:
        return np.zeros(size, np.uint8)

    def write(self, buffer: Any, host: Any) -> None:
        buffer[:] = host.view(np.uint8)

    def replay(self, calls: Sequence[Any]) -> Any:
        def run() -> float:
            for call in calls:
                for function, grid, block, args in call.steps:
                    function(grid, block, args, stream=self.stream)
            return 1e-6 * len(calls)

        return SimpleNamespace(run=run)


def inputs(problem: Any, count: int = 3) -> list[Any]:
    return [np.full(problem.n * problem.results, k + 1, problem.dtype).view(np.uint8) for k in range(count)]


def test_results_are_those_of_the_first_input_and_calls_take_every_one() -> None:
    problem = make_problem("sum", "int8", 4, outer=10)
    rival = cupy_rival(Session(), problem, inputs(problem))
    dtype, found = rival.results([(0, 2), (8, 2)])
    assert (dtype, found.tolist()) == ("int64", [4, 4, 4, 4])
    assert (rival.name, rival.types) == ("cupy 14", "in int64, to int64")
    assert rival.replay([0, 1, 2, 0]).run() == pytest.approx(4e-6)


@pytest.mark.parametrize(
    ("problem", "shape"),
    [
        (make_problem("sum", "float32", 1 << 28), (1, 4096)),
        (make_problem("max", "int8", 65536, outer=1 << 12), (1, 2, 65536, 1)),
        (make_problem("var", "float16", 1 << 20, inner=256), (1, 1, 4096, 256)),
        (make_problem("dot", "float32", 1 << 20), (2, 4096)),
    ],
)
def test_it_is_made_warm_on_little_of_the_same_kind(problem: Any, shape: tuple[int, ...]) -> None:
    session, asked = Session(), []
    own = session.cupy.ndarray
    session.cupy.ndarray = lambda given, dtype, memptr: (asked.append(given), own(given, dtype, memptr))[1]  # type: ignore[method-assign, func-returns-value]
    warm_cupy(session, problem)
    assert asked == [shape]


def test_each_library_is_there_or_absent_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    problem = make_problem("max", "float32", 16)
    found = list(cuda_rivals(Session(), problem, inputs(problem), "CUB needs nvcc on PATH"))  # type: ignore[arg-type]
    assert found[0] == ("CUB", "CUB needs nvcc on PATH")
    assert found[1][0] == "torch"  # type: ignore[index]
    assert isinstance(found[2], Rival)


def test_whatever_a_library_raises_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def breaks() -> Iterator[None]:
        raise OSError("the library\nis broken")
        yield

    session = Session()
    session.stream = breaks()  # type: ignore[assignment]
    problem = make_problem("max", "float32", 16)
    found = list(cuda_rivals(session, problem, inputs(problem), "none"))  # type: ignore[arg-type]
    assert found[2] == ("cupy", "the library")
    absent = make_problem("max", "bfloat16", 16)
    assert list(cuda_rivals(Session(), absent, [], "none"))[2] == ("cupy", "cupy has no bfloat16")  # type: ignore[arg-type]


@pytest.mark.parametrize("op", ["sumsq", "logsumexp"])
def test_composites_of_narrow_integers_do_not_wrap_around(op: str) -> None:
    problem = make_problem(op, "int8", 2)
    data = [np.array([100, -100], np.int8).view(np.uint8)]
    _, found = cupy_rival(Session(), problem, data).results([(0, 1)])
    assert found[0] == pytest.approx({"sumsq": 20000, "logsumexp": 100.0}[op])
