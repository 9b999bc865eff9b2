"""Files reduced in chunks, on a session that reduces with numpy in place of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from redtune.backends import Call, Session
from redtune.dtypes import dtype_named
from redtune.errors import UsageError
from redtune.evaluation import numpy_identity, numpy_lift, numpy_merge
from redtune.files import CHUNK_BYTES, chunk_elements, open_npy, reduce_file, write_result
from redtune.operators import operator_of, result_of
from redtune.plan import state_layout
from redtune.types import Launch, Problem
from tests.text.kernels import PAIRS, config, operator, problem, rendered, target

CHUNK = 1000
ON = target("opencl", memory_bytes=4 * CHUNK)  # of bytes: a float32 chunk is a quarter of them


class NumpySession:
    """Leaves the state that a kernel would; `lengths` lists the chunks it met."""

    def __init__(self, p: Problem) -> None:
        self.problem = p
        self.lengths: list[int] = []

    def upload(self, host: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        assert host.dtype.isnative
        assert host.flags.c_contiguous
        return host.copy()

    def bind(self, program: Any, launches: Sequence[Launch], values: dict[str, Any]) -> Call:
        assert launches
        return Call((values,), ())

    def run(self, call: Call) -> None:
        values = call.steps[0]
        op, accumulate = operator_of(self.problem), self.problem.accumulate
        assert values["data_first"] == 0
        assert len(values["data"]) == values["n"]
        self.lengths.append(values["n"])
        with np.errstate(all="ignore"):
            elements = dtype_named(self.problem.dtype).decode(values["data"])
        total = numpy_identity(op, accumulate)
        for i, x in enumerate(elements):
            total = numpy_merge(op, accumulate, total, numpy_lift(op, accumulate, x, np.int64(i)))
        slots, _ = state_layout(self.problem)
        for slot in slots:
            piece = np.asarray(total.get(slot.name, 0)).astype(slot.dtype).tobytes()
            values["out"][slot.offset : slot.offset + len(piece)] = np.frombuffer(piece, np.uint8)

    def download(self, buffer: np.ndarray[Any, Any], like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return buffer[: like.nbytes].view(like.dtype).reshape(like.shape)


def reduced(path: Path, op: str) -> tuple[Any, list[int]]:
    """The value, and the lengths of the chunks."""
    array = open_npy(str(path))
    p = problem(op, array.dtype.newbyteorder("=").name, n=array.size)
    session = NumpySession(p)
    kernel = rendered(ON, config(), p, "state")
    return reduce_file(cast(Session, session), ON.dialect, ON.device, kernel, None, str(path)), session.lengths


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some data.npy"


def values_of(dtype: str, n: int, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "fc":
        return (-rng.integers(1, 9, n)).astype(dtype)
    if dtype == "bool":
        return rng.integers(0, 1, n, endpoint=True).astype(bool)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, n, dtype=dtype, endpoint=True)


def same(got: Any, right: Any) -> bool:
    return bool(got == right) or bool(got != got and right != right)


ONE_INPUT = [(op, dtype) for op, dtype in PAIRS if dtype != "bfloat16" and operator(op, dtype).inputs == 1]


@pytest.mark.parametrize(("op", "dtype"), ONE_INPUT, ids=map("-".join, ONE_INPUT))
def test_chunks_give_numpys_answer(op: str, dtype: str, path: Path) -> None:
    values = values_of(dtype, 37)
    if op == "prod" and np.dtype(dtype).kind in "fc":
        values = np.sign(values)
    np.save(path, values)
    got, _ = reduced(path, op)
    entry, result = operator(op, dtype), dtype_named(result_of(problem(op, dtype)))
    right = result.decode(result.encode(entry.reference(values[None])))[0]
    if result.kind == "complex":
        got = complex(*got)
    if entry.tolerance is None or result.kind not in ("float", "complex"):
        assert got == right.item()
    else:
        np.testing.assert_allclose(got, right, rtol=32 * result.u)
    assert type(got) in (int, float, bool, complex)


@pytest.mark.parametrize("n", [1, CHUNK // 4 - 1, CHUNK // 4, CHUNK // 4 + 1, 3 * (CHUNK // 4)])
def test_a_file_is_cut_into_chunks_that_fit(n: int, path: Path) -> None:
    values = -np.arange(n, dtype=np.float32) - 1
    np.save(path, values)
    got, lengths = reduced(path, "max")
    assert got == -1.0
    assert sum(lengths) == n
    assert max(lengths) <= CHUNK // 4
    assert len(lengths) == -(-n // (CHUNK // 4))


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("place", [0, 249, 250, 251, 499, 500, 749])
def test_an_index_counts_from_the_start_of_the_file(op: str, place: int, path: Path) -> None:
    values = np.zeros(750, np.float32)
    values[place] = 1 if op == "argmax" else -1
    np.save(path, values)
    assert reduced(path, op) == (place, [250, 250, 250])


@pytest.mark.parametrize("op", ["argmax", "argmin", "max", "min"])
@pytest.mark.parametrize(
    "planted",
    [
        {},  # all equal: the lowest index
        {300: np.nan},
        {300: np.nan, 700: np.nan},
        {700: np.nan, 3: np.inf, 4: -np.inf},
        {249: 5.0, 250: 5.0, 251: -5.0, 740: -5.0},
        {0: -0.0, 500: 0.0},
    ],
    ids=str,
)
def test_ties_and_nans_over_chunks_are_numpys(op: str, planted: dict[int, float], path: Path) -> None:
    values = np.zeros(750, np.float32)
    for place, value in planted.items():
        values[place] = value
    np.save(path, values)
    assert same(reduced(path, op)[0], getattr(np, op)(values).item())


@pytest.mark.parametrize("op", ["sum", "prod", "max", "argmin"])
@pytest.mark.parametrize("dtype", [">f4", ">i2", "<f4", ">f8", ">i8", "=u4"])
def test_any_byte_order_gives_the_same_answer(op: str, dtype: str, path: Path) -> None:
    values = np.array([3, 1, 2, 7, 1, 7], dtype)
    np.save(path, values)
    assert reduced(path, op)[0] == getattr(np, op)(values).item()


@pytest.mark.parametrize("shape", [(30, 10), (300,), (3, 10, 10), (300, 1)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_of_any_shape_is_reduced_in_c_order(shape: tuple[int, ...], order: Any, path: Path) -> None:
    values = np.asarray(np.random.default_rng(1).permutation(300).reshape(shape).astype(np.float32), order=order)
    np.save(path, values)
    assert reduced(path, "argmax")[0] == int(values.argmax())


def test_a_number_alone_is_an_array_of_one(path: Path) -> None:
    np.save(path, np.float32(-3))
    assert reduced(path, "max")[0] == -3.0


def test_integers_do_not_overflow_over_chunks(path: Path) -> None:
    np.save(path, np.full(3000, 127, np.int8))
    assert reduced(path, "sum")[0] == 3000 * 127


def test_wide_integers_wrap_as_numpys_do(path: Path) -> None:
    values = np.full(300, 2**62, np.int64)
    np.save(path, values)
    assert reduced(path, "sum")[0] == values.sum().item()


def test_half_precision_adds_in_single(path: Path) -> None:
    """4096 ones: half precision counts no further than 2048."""
    np.save(path, np.ones(4096, np.float16))
    assert reduced(path, "sum")[0] == 4096.0


@pytest.mark.parametrize(
    ("memory", "width", "elements"),
    [(0, 4, CHUNK_BYTES // 4), (1 << 40, 8, CHUNK_BYTES // 8), (1 << 20, 4, 1 << 16), (1, 8, 1)],
)
def test_a_chunk_fits_the_device(memory: int, width: int, elements: int) -> None:
    assert chunk_elements(target("cuda", memory_bytes=memory).device, width) == elements


def test_a_file_is_mapped_and_not_read(path: Path) -> None:
    np.save(path, np.ones(10, np.float32))
    assert isinstance(open_npy(str(path)), np.memmap)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_an_empty_array_opens(shape: tuple[int, ...], path: Path) -> None:
    np.save(path, np.zeros(shape, np.float32))
    assert open_npy(str(path)).shape == shape


def test_a_file_of_another_kind_says_what_it_is(path: Path) -> None:
    np.save(path, np.array(["a", "b"]))
    with pytest.raises(UsageError, match="holds <U1, which redtune does not reduce: choose from bool"):
        open_npy(str(path))
    with path.open("wb") as file:
        np.savez(file, a=np.ones(3))
    with pytest.raises(UsageError, match=r"is an archive of arrays; redtune reduces a single \.npy"):
        open_npy(str(path))
    path.unlink()
    with pytest.raises(UsageError, match="there is no file"):
        open_npy(str(path))


@pytest.mark.parametrize(
    ("value", "shape", "dtype"),
    [(3.5, (), "float32"), ([[1, 2], [3, 4]], (2, 2), "int64"), ([[1.0, 2.0]], (1,), "complex64"), (True, (), "bool")],
)
def test_a_result_is_written_as_an_array_of_its_dtype(value: Any, shape: Any, dtype: str, tmp_path: Path) -> None:
    write_result(str(tmp_path / "out.npy"), {"value": value, "shape": list(shape)}, dtype)
    array = np.load(tmp_path / "out.npy")
    assert array.shape == shape
    assert array.dtype == dtype
    assert array.ravel()[0] == (1 + 2j if dtype == "complex64" else np.ravel(value)[0])


def test_a_result_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written: No such file"):
        write_result(str(tmp_path / "no" / "out.npy"), {"value": 1, "shape": []}, "int64")
