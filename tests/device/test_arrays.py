"""What redtune.reduce takes and gives, on numpy and pyopencl arrays: kinds, shapes, memory, threads, every refusal."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import redtune
from redtune.arrays.opencl import OpenclEngine, host_engine
from redtune.config import Config
from redtune.dtypes import DTYPES
from redtune.errors import UsageError
from tests.device.array_contract import ArrayContract, assert_one_line, is_same, numbers
from tests.device.calls import ml_dtypes, numpy_dtype
from tests.device.oracle import Asked, answer
from tests.need import need

ROOT = Path(__file__).parents[2]
THREADS = 8
STATUS = Path("/proc/self/statm")


@pytest.fixture(autouse=True)
def _opencl() -> None:
    need("opencl")


# --- arrays of pyopencl -----------------------------------------------------------------------------------------------


CONTEXTS: list[Any] = []


@functools.cache
def own_queue(which: int = 0) -> Any:
    """A queue in a context of its own, as a caller would have one."""
    host_engine()  # finds the runtimes that pip has installed
    import pyopencl as cl

    context = cl.Context([host_engine().found])
    CONTEXTS.append(context)  # Intel's queues do not keep theirs alive
    return cl.CommandQueue(context)


def on_device(x: Any, queue: Any = None) -> Any:
    """A pyopencl array, C-contiguous."""
    import pyopencl.array

    return pyopencl.array.to_device(queue or own_queue(), np.array(x, order="C"))


# What makes an array of a numpy array, and what reads it.
KINDS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "numpy": (np.array, lambda x: x),
    "pyopencl": (on_device, lambda x: x.get()),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]


class Held(np.ndarray[Any, Any]):
    """A subclass that numpy does not know."""


class TestKinds(ArrayContract):
    """On numpy's and pyopencl's."""


# --- what comes out ---------------------------------------------------------------------------------------------------


class TestResults:
    def test_every_operator_has_a_function_of_its_name(self) -> None:
        x = numbers(4, 6)
        assert is_same(redtune.sum(x, axis=0), x.sum(0))
        assert is_same(redtune.max(x, 1, keepdims=True), x.max(1, keepdims=True))
        assert is_same(redtune.dot(x, x, axis=1), (x * x).sum(1))
        assert is_same(redtune.var(x.astype(float), ddof=1, axis=0).round(9), x.astype(float).var(0, ddof=1).round(9))

    @pytest.mark.parametrize("dtype", list(DTYPES))
    def test_the_dtype_is_that_of_numpy(self, dtype: str) -> None:
        if dtype == "bfloat16" and ml_dtypes is None:
            pytest.skip("ml_dtypes is not installed")
        x = np.ones((2, 3), numpy_dtype(dtype))
        for op in ("sum", "mean"):
            assert answer(Asked(op, (x,), 0)).fault(redtune.reduce(x, op, 0)) == ""

    @pytest.mark.parametrize("given", [np.float64, float, "float64", np.dtype("float64"), "f8", "d", "double", ">f8"])
    def test_a_dtype_is_whatever_numpy_takes_for_one(self, given: Any) -> None:
        assert redtune.reduce(numbers(5), "sum", dtype=given).dtype == np.float64

    def test_elements_are_taken_in_the_dtype_asked_for(self) -> None:
        for x in (np.array([1, -1]), np.array([0.5, 0.0]), np.array([2, 0, -2], np.int8), np.zeros(3)):
            assert is_same(redtune.reduce(x, "sum", dtype=bool), np.sum(x, dtype=bool)), x
        x = np.array([300, 300, 1])
        assert is_same(redtune.reduce(x, "prod", dtype="uint8"), np.prod(x, dtype="uint8"))

    def test_bfloat16_results_of_numpy_arrays_have_that_dtype(self) -> None:
        if ml_dtypes is None:
            pytest.skip("ml_dtypes is not installed")
        got = redtune.reduce(numbers(8), "sum", dtype=ml_dtypes.bfloat16)
        assert got.dtype == ml_dtypes.bfloat16
        assert float(got) == numbers(8).sum()

    @pytest.mark.parametrize("op", ["dot", "sum", "mean", "prod"])
    @pytest.mark.parametrize("over", [{"accumulate": "float64"}, {"dtype": "complex128"}], ids=str)
    def test_complex_numbers_accumulate_in_float64_where_asked_to(self, op: str, over: dict[str, str]) -> None:
        rng = np.random.default_rng(1)
        x, y = (np.exp(1j * rng.standard_normal((40, 50))).astype("complex64") for _ in range(2))
        inputs = (x, y) if op == "dot" else (x,)
        got = redtune.reduce(inputs if op == "dot" else x, op, 1, **over)
        assert answer(Asked(op, inputs, 1, **over)).fault(got) == ""


class TestEmpty:
    def test_every_operator_of_nothing(self) -> None:
        for op in ("nansum", "count_nonzero", "norm_l1", "norm_l2", "norm_inf", "sumsq", "logsumexp", "std"):
            asked = Asked(op, (np.zeros((0, 2)),), 0)
            assert answer(asked).fault(redtune.reduce(*asked.inputs, op, 0)) == "", op
        for op, right in (("bitwise_and", 255), ("bitwise_or", 0), ("bitwise_xor", 0)):
            assert is_same(redtune.reduce(np.zeros(0, np.uint8), op), np.array(right, np.uint8))
        assert is_same(redtune.reduce((np.zeros((2, 0)), np.zeros((2, 0))), "dot", 1), np.zeros(2))

    def test_an_empty_list_is_summed(self) -> None:
        assert is_same(redtune.reduce([], "sum"), np.array(0.0))


# --- out --------------------------------------------------------------------------------------------------------------


class TestOut:
    @pytest.mark.parametrize(
        "view",
        [
            lambda m: m[1:41:4, ::2],
            lambda m: m[9::-1, 5:0:-1],
            lambda m: m[:10, :5].T[::-1].T,
            lambda m: m.T[:10, 3:8],
            lambda m: m.T[40:30:-1, 5:10],
        ],
        ids=["stepped", "reversed", "half reversed", "transposed", "transposed and reversed"],
    )
    @pytest.mark.parametrize("op", ["sum", "max"])
    def test_out_may_lie_anyhow_and_nothing_around_it_changes(self, op: str, view: Callable[[Any], Any]) -> None:
        memory = np.full((64, 64), 77.0, np.float32)
        x = numbers(10, view(memory).shape[1], 33)
        out, right = view(memory), memory.copy()
        view(right)[...] = getattr(np, op)(x, 2)
        assert redtune.reduce(x, op, 2, out=out) is out
        assert (memory == right).all()

    @pytest.mark.parametrize(("axis", "place"), [(0, np.s_[5]), (1, np.s_[:, 0]), (1, np.s_[0]), (0, np.s_[:, 299])])
    def test_out_may_be_a_part_of_the_input(self, axis: int, place: Any) -> None:
        """numpy sees the overlap and copies."""
        for op in ("sum", "max"):
            x = numbers(300, 300)
            right = getattr(np, op)(x, axis)
            redtune.reduce(x, op, axis, out=x[place])
            assert (x[place] == right).all()

    def test_out_may_be_a_mask_or_a_second_input(self) -> None:
        x, mask = numbers(300, 300), numbers(300, 300, seed=1) > 0
        right = np.any(x, 1, where=mask)
        assert (redtune.reduce(x, "any", 1, where=mask, out=mask[0]) == right).all()

    def test_out_with_its_bytes_the_other_way_round_is_refused(self) -> None:
        out = np.zeros(5, ">f4")
        with pytest.raises(TypeError) as caught:
            redtune.reduce(numbers(4, 5), "sum", 0, out=out)
        assert_one_line(caught.value, (">f4",))
        assert not out.any()

    def test_out_that_cannot_be_written_stays_as_it_is(self) -> None:
        x, out = numbers(4, 5), np.zeros(5, np.float32)
        out.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            redtune.reduce(x, "sum", 0, out=out)
        assert not out.any()

    def test_out_of_one_place_for_all_results_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"out|read-only"):
            redtune.reduce(numbers(4, 5), "sum", 0, out=np.broadcast_to(np.zeros(1, np.float32), 5))

    def test_out_of_a_subclass_of_numpy_or_of_a_file(self, tmp_path: Path) -> None:
        x = numbers(4, 5)
        out = np.memmap(tmp_path / "out", np.float32, "w+", shape=(5,))
        assert redtune.reduce(x, "sum", 0, out=out) is out
        assert (out == x.sum(0)).all()


# --- where, initial, offsets ------------------------------------------------------------------------------------------


class TestWhere:
    @pytest.mark.parametrize("mask", [True, False, np.True_, [True, False, True]], ids=str)
    def test_a_mask_may_be_a_truth_value_or_a_list(self, mask: Any) -> None:
        x = numbers(2, 3)
        assert is_same(redtune.reduce(x, "sum", 0, where=mask), np.sum(x, 0, where=mask))

    @pytest.mark.parametrize("op", ["mean", "var", "std"])
    def test_means_count_what_the_mask_leaves(self, op: str) -> None:
        x, mask = numbers(30, 8), np.random.default_rng(3).random((30, 8)) < 0.3
        mask[:, 3] = False
        asked = Asked(op, (x,), 0, where=mask)
        assert answer(asked).fault(redtune.reduce(x, op, 0, where=mask)) == ""

    def test_a_mask_may_lie_anyhow(self) -> None:
        x, mask = numbers(20, 30), np.random.default_rng(4).random((30, 40)) < 0.5
        view = mask.T[::2, ::-1]
        assert is_same(redtune.reduce(x, "sum", 1, where=view), np.sum(x, 1, where=view))


class TestInitial:
    @pytest.mark.parametrize(
        ("op", "dtype", "value"),
        [
            ("sum", "float32", 0.5),
            ("sum", "int8", 300),
            ("sum", "int8", 1.5),
            ("sum", "bool", 3),
            ("prod", "int32", -3),
            ("prod", "float64", 0),
            ("max", "float32", 4),
            ("max", "int8", 127),
            ("max", "int32", 1.7),
            ("min", "uint8", 0),
            ("max", "float32", np.nan),
            ("min", "float64", -np.inf),
            ("nanmax", "float32", 2),
            ("nansum", "float32", np.float32(3)),
            ("bitwise_and", "uint16", 6),
            ("bitwise_or", "int8", -128),
            ("bitwise_xor", "bool", True),
        ],
    )
    def test_an_initial_value_takes_part_as_in_numpy(self, op: str, dtype: str, value: Any) -> None:
        x = numbers(40, 5, dtype=dtype)
        asked = Asked(op, (x,), 0, initial=value)
        assert answer(asked).fault(redtune.reduce(x, op, 0, initial=value)) == ""
        whole = Asked(op, (x,), initial=value)
        assert answer(whole).fault(redtune.reduce(x, op, initial=value)) == ""

    def test_an_initial_value_counts_once_however_many_blocks_there_are(self) -> None:
        for n in (1, 63, 5000, 300_000):
            assert redtune.reduce(np.ones(n, np.float32), "sum", initial=1000) == n + 1000

    @pytest.mark.parametrize(
        ("op", "dtype", "value"),
        [("max", "int8", 300), ("min", "uint8", 300), ("max", "uint8", -1), ("sum", "int64", 2**70)],
    )
    def test_one_that_the_dtype_does_not_hold_is_refused(self, op: str, dtype: str, value: int) -> None:
        x = np.ones(3, dtype)
        with pytest.raises(OverflowError):
            getattr(np, op)(x, initial=value)
        with pytest.raises(OverflowError):
            redtune.reduce(x, op, initial=value)


class TestOffsets:
    @pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "uint64"])
    def test_offsets_may_be_integers_of_any_kind(self, dtype: str) -> None:
        x, cuts = numbers(40), np.array([0, 7, 40], dtype)
        assert is_same(redtune.reduce(x, "sum", offsets=cuts), np.array([x[:7].sum(), x[7:].sum()]))
        assert is_same(redtune.reduce(x, "sum", offsets=tuple(map(int, cuts))), redtune.reduce(x, "sum", offsets=cuts))

    def test_offsets_may_lie_on_the_device(self) -> None:
        x, cuts = numbers(40), np.array([0, 7, 40])
        got = redtune.reduce(on_device(x), "sum", offsets=on_device(cuts))
        assert is_same(got.get(), np.array([x[:7].sum(), x[7:].sum()]))

    def test_an_empty_row_is_its_initial_value(self) -> None:
        x = numbers(9)
        got = redtune.reduce(x, "max", offsets=[0, 4, 4, 9], initial=3)
        assert is_same(got, np.array([x[:4].max(initial=3), 3, x[4:].max(initial=3)], np.float32))

    def test_rows_with_a_mask_a_second_input_and_out(self) -> None:
        x, y, mask = numbers(90), numbers(90, seed=1), np.random.default_rng(5).random(90) < 0.5
        out = np.zeros(6, np.float32)[::2]
        got = redtune.reduce((x, y), "dot", offsets=[0, 20, 21, 90], where=mask, out=out)
        assert got is out
        right = [np.sum(x[a:b] * y[a:b], where=mask[a:b]) for a, b in ((0, 20), (20, 21), (21, 90))]
        assert (out == right).all()

    def test_the_elements_may_lie_anyhow(self) -> None:
        x = numbers(100)[::-2]
        assert is_same(redtune.reduce(x, "sum", offsets=[0, 10, 50]), np.array([x[:10].sum(), x[10:].sum()]))

    def test_rows_of_an_array_of_nothing(self) -> None:
        assert is_same(redtune.reduce(np.zeros(0), "sum", offsets=[0, 0, 0]), np.zeros(2))

    def test_many_rows_of_very_different_lengths(self) -> None:
        rng = np.random.default_rng(6)
        cuts = np.sort(rng.integers(0, 100_000, 2000))
        x = numbers(100_000)
        right = [x[a:b].sum() for a, b in itertools.pairwise(cuts)]
        assert is_same(redtune.reduce(x, "sum", offsets=cuts), np.array(right, np.float32))


# --- what comes in ----------------------------------------------------------------------------------------------------


class TestInputs:
    @pytest.mark.parametrize("op", ["sum", "argmax", "min"])
    @pytest.mark.parametrize("axis", [None, 0, 1, 2])
    def test_views_of_numpy_arrays(self, op: str, axis: int | None) -> None:
        x = numbers(7, 8, 9)
        raw = np.zeros(x.nbytes + 1, np.uint8)
        raw[1:] = x.view(np.uint8).ravel()
        apart = np.frombuffer(raw.tobytes(), np.float32, offset=1, count=x.size).reshape(x.shape)
        record = np.zeros(x.shape, [("tag", "u1"), ("value", "f4")])
        record["value"] = x
        fixed = x.copy()
        fixed.flags.writeable = False
        views = {
            "Fortran": np.asfortranarray(x),
            "transposed": x.T,
            "moved": x.transpose(1, 2, 0),
            "stepped": x[::2, 1::3, ::-1],
            "reversed": x[::-1, ::-1, ::-1],
            "broadcast": np.broadcast_to(x[:, :1], (7, 8, 9)),
            "of one element": np.broadcast_to(x[0, 0, 0], (7, 8, 9)),
            "misaligned": apart,
            "of a record": record["value"],
            "read-only": fixed,
            "big-endian": x.astype(">f4"),
            "diagonal": np.lib.stride_tricks.as_strided(x, (3, 3, 3), (4, 40, 36)),
            "windows": np.lib.stride_tricks.sliding_window_view(x[0], (3, 4))[2],
        }
        for name, view in views.items():
            right = np.asarray(getattr(np, op)(view, axis))
            assert is_same(redtune.reduce(view, op, axis), right.astype(right.dtype.newbyteorder("="))), name

    def test_no_input_is_changed(self) -> None:
        x = numbers(30, 40)
        before = x.copy()
        for axis in (None, 0, 1):
            redtune.reduce(x, "var", axis)
            redtune.reduce(x.T, "max", axis, where=x.T > 0, initial=0)
        assert (x == before).all()

    @pytest.mark.parametrize(
        "x", [[1, 2, 3], (1, 2, 3), [[1.5, 2], [3, 4]], 5, 2.5, True, range(4), np.float32(3), np.int8(-3)], ids=repr
    )
    def test_what_numpy_makes_an_array_of(self, x: Any) -> None:
        assert is_same(redtune.reduce(x, "sum"), np.asarray(np.sum(x)))
        assert is_same(redtune.reduce(x, "max"), np.asarray(np.max(x)))

    def test_a_numpy_scalar_goes_with_numpy_arrays(self) -> None:
        out = np.zeros((), np.float32)
        assert redtune.reduce(np.float32(3), "sum", out=out) is out
        assert out == 3
        assert redtune.reduce((np.float32(3), numbers(4)), "dot") == 3 * numbers(4).sum()
        assert redtune.reduce(np.float32(3), "sum", where=np.array(True)) == 3

    def test_an_array_in_a_file_goes_with_arrays_in_memory(self, tmp_path: Path) -> None:
        x = numbers(5, 6)
        np.save(tmp_path / "x.npy", x)
        held = np.load(tmp_path / "x.npy", mmap_mode="r")
        assert is_same(redtune.reduce(held, "sum", 0), x.sum(0))
        assert is_same(redtune.reduce((held, x), "dot", 0), (x * x).sum(0))
        assert is_same(redtune.reduce(x, "sum", 0, where=held > 0), np.sum(x, 0, where=x > 0))

    def test_a_subclass_of_numpy_goes_with_its_arrays(self) -> None:
        x = numbers(5, 6)
        fixed = x.copy()
        fixed.flags.writeable = False
        for held in (x.view(Held), fixed.view(Held), x.astype(">f4").view(Held), x[:, ::-1].view(Held)[:, ::-1]):
            assert is_same(np.asarray(redtune.reduce(held, "sum", 0)), x.sum(0))
            assert is_same(np.asarray(redtune.reduce((held, x), "dot", 0)), (x * x).sum(0))
            assert is_same(
                np.asarray(redtune.reduce(x, "sum", 0, where=(held > 0).view(Held))), np.sum(x, 0, where=x > 0)
            )
        out = np.zeros(6, np.float32).view(Held)
        assert redtune.reduce(x, "sum", 0, out=out) is out
        assert (out == x.sum(0)).all()

    def test_an_object_with_an_array_interface_is_an_array(self) -> None:
        class Holder:
            def __init__(self, x: Any) -> None:
                self.held = x

            @property
            def __array_interface__(self) -> Any:
                return self.held.__array_interface__

        assert is_same(redtune.reduce(Holder(numbers(3, 4)), "sum", 0), numbers(3, 4).sum(0))

    def test_a_masked_array_is_not_taken_for_its_data(self) -> None:
        with pytest.raises(TypeError, match="mask"):
            redtune.reduce(np.ma.array([1, 2, 3], mask=[False, True, False]), "sum")

    def test_an_axis_may_be_a_numpy_integer_or_in_a_list(self) -> None:
        x = numbers(3, 4)
        for axis in (np.int64(1), np.array(1), [1], (np.int8(-1),)):
            assert is_same(redtune.reduce(x, "sum", axis), x.sum(1)), axis


@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_arrays_of_jax_in_the_memory_of_the_host(axis: int | None, dtype: str) -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    x = jax.numpy.asarray(numbers(20, 30)).astype(dtype)
    got = redtune.reduce(x, "sum", axis)
    assert isinstance(got, jax.Array)
    exact = np.asarray(x).astype(np.float64).sum(axis)
    np.testing.assert_array_equal(got, np.asarray(exact).astype(np.asarray(got).dtype))


class TestPyopencl:
    @pytest.mark.parametrize("axis", [None, 0, 1])
    @pytest.mark.parametrize("op", ["sum", "argmax", "var"])
    @pytest.mark.parametrize(
        "view",
        [
            lambda d: d,
            lambda d: d[3:9],
            lambda d: d[2:, 4:],
            lambda d: d[::2],
            lambda d: d[:, ::3],
            lambda d: d.T,
            lambda d: d.T[1:],
            lambda d: d[4],
        ],
        ids=["whole", "rows", "offset", "stepped", "stepped columns", "transposed", "transposed and cut", "one row"],
    )
    def test_views_lie_in_the_memory_of_their_array(
        self, op: str, axis: int | None, view: Callable[[Any], Any]
    ) -> None:
        x = numbers(12, 10)
        d, h = view(on_device(x)), view(x)
        if axis is not None and axis >= h.ndim:
            axis = 0
        got = redtune.reduce(d, op, axis)
        assert answer(Asked(op, (h,), axis)).fault(got.get()) == ""

    def test_the_result_lies_in_the_context_and_on_the_queue_of_the_array(self) -> None:
        queues = [own_queue(which) for which in range(2)]
        assert queues[0].context != queues[1].context
        for queue in queues:
            for _ in range(2):
                got = redtune.reduce(on_device(numbers(6, 7), queue), "sum", 1)
                assert got.queue == queue
                assert got.context == queue.context
                assert (got.get() == numbers(6, 7).sum(1)).all()

    def test_an_array_without_a_queue_is_reduced(self) -> None:
        d = on_device(numbers(6, 7)).with_queue(None)
        got = redtune.reduce(d, "sum", 1)
        assert (got.get(own_queue()) == numbers(6, 7).sum(1)).all()

    def test_arrays_of_two_contexts_do_not_meet(self) -> None:
        x = numbers(6)
        with pytest.raises(ValueError, match="device") as caught:
            redtune.reduce((on_device(x, own_queue(0)), on_device(x, own_queue(1))), "dot")
        assert "\n" not in str(caught.value)

    def test_work_queued_before_is_seen(self) -> None:
        d = on_device(np.zeros(1 << 20, np.float32))
        for k in range(5):
            d += 1
            assert redtune.reduce(d, "sum").get() == (k + 1) * (1 << 20)

    def test_a_queue_that_keeps_no_order(self) -> None:
        """The launches of one reduction, and what was queued before it, follow on each other all the same."""
        import pyopencl as cl

        properties = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
        queue = cl.CommandQueue(own_queue().context, properties=properties)
        x = numbers(1 << 16)
        for config in (None, Config(block=64, walk="chunk", combine="two_pass", exchange="lds", wave=32)):
            for k in range(20):
                d = on_device(x, queue)
                d += k
                assert redtune.reduce(d, "sum", config=config).get() == x.sum() + k * x.size

    def test_out_and_a_mask_on_the_device(self) -> None:
        x, mask = numbers(6, 8), numbers(6, 8, seed=3) > 0
        out = on_device(np.zeros((8, 2), np.float32))
        redtune.reduce(on_device(x), "sum", 0, where=on_device(mask), out=out[:, 1])
        assert (out.get()[:, 1] == np.sum(x, 0, where=mask)).all()
        assert (out.get()[:, 0] == 0).all()

    @pytest.mark.parametrize("dtype", [name for name in DTYPES if name != "bfloat16"])
    def test_every_dtype(self, dtype: str) -> None:
        x = numbers(20, 30, dtype=dtype)
        assert answer(Asked("sum", (x,), 0)).fault(redtune.reduce(on_device(x), "sum", 0).get()) == ""

    def test_device_arrays_that_no_longer_have_their_host(self) -> None:
        got = [redtune.reduce(on_device(numbers(1000, seed=k)), "sum") for k in range(20)]
        assert [int(one.get()) for one in got] == [int(numbers(1000, seed=k).sum()) for k in range(20)]


# --- threads, caches, and nothing ever tuned --------------------------------------------------------------------------


def run_in_new_process(text: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """A script in a process that has used redtune for nothing yet."""
    env = os.environ | {"REDTUNE_CACHE": str(cache), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", textwrap.dedent(text)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=env, cwd=ROOT)


class TestThreads:
    def test_threads_that_start_on_different_problems(self) -> None:
        jobs = [
            (op, numbers(*shape, dtype=dtype, seed=k), axis)
            for k, (op, (dtype, shape, axis)) in enumerate(
                itertools.product(
                    ("sum", "max", "argmin"),
                    (("float64", (900,), None), ("int16", (40, 31), 0), ("uint32", (17, 65), 1)),
                )
            )
        ]
        barrier = threading.Barrier(THREADS)

        def work(which: int) -> list[str]:
            barrier.wait()
            mine = jobs[which % len(jobs) :] + jobs[: which % len(jobs)]
            return [answer(Asked(op, (x,), axis)).fault(redtune.reduce(x, op, axis)) for op, x, axis in mine * 5]

        with ThreadPoolExecutor(THREADS) as threads:
            faults = [fault for found in threads.map(work, range(THREADS)) for fault in found if fault]
        assert not faults

    def test_threads_that_start_on_the_same_problem(self) -> None:
        x = [numbers(23, 45, dtype="int8", seed=k) for k in range(THREADS)]
        barrier = threading.Barrier(THREADS)

        def work(which: int) -> bool:
            barrier.wait()
            return all(
                is_same(redtune.reduce(x[which], "bitwise_xor", 0), np.bitwise_xor.reduce(x[which])) for _ in range(50)
            )

        with ThreadPoolExecutor(THREADS) as threads:
            assert all(threads.map(work, range(THREADS)))

    def test_threads_that_write_beside_each_other(self) -> None:
        memory = np.zeros((16, THREADS), np.float32)
        x = numbers(16, 100)

        def work(which: int) -> None:
            for _ in range(20):
                redtune.reduce(x + which, "sum", 1, out=memory[:, which])

        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(work, range(THREADS)))
        assert (memory == x.sum(1)[:, None] + 100 * np.arange(THREADS)).all()

    def test_the_first_calls_of_a_process_may_come_all_at_once(self, tmp_path: Path) -> None:
        text = """
            import sys, threading
            import numpy as np
            import redtune
            sys.setswitchinterval(1e-5)
            barrier, faults = threading.Barrier(8), []
            def work(k):
                x = np.arange(60, dtype=np.float32).reshape(6, 10)
                barrier.wait()
                try:
                    got = redtune.reduce((x, x + k), "dot", k % 2, out=np.zeros((10, 6)[k % 2], np.float32))
                    assert (got == (x * (x + k)).sum(k % 2)).all(), got
                except Exception as error:
                    faults.append(f"{type(error).__name__}: {error}")
            threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
            [t.start() for t in threads]; [t.join() for t in threads]
            assert not faults, faults
        """
        done = run_in_new_process(text, tmp_path)
        assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is compiled from now on, by problem."""
    made: list[str] = []
    original = OpenclEngine._compile

    def compile(self: Any, kernel: Any) -> bytes:
        made.append(f"{kernel.problem.op} {kernel.problem.dtype} {kernel.problem.layout}")
        return original(self, kernel)

    monkeypatch.setattr(OpenclEngine, "_compile", compile)
    return made


class TestCaches:
    def test_a_second_call_compiles_nothing(self, compiled: list[str]) -> None:
        x = numbers(777, dtype="uint16")
        redtune.reduce(x, "norm_l1")
        assert compiled == ["norm_l1 uint16 flat"]
        redtune.reduce(x, "norm_l1")
        redtune.reduce(x.copy(), "norm_l1", out=np.zeros(()))
        assert compiled == ["norm_l1 uint16 flat"]

    def test_other_sizes_and_alignments_share_a_kernel(self, compiled: list[str]) -> None:
        x = numbers(5000, dtype="int16")
        for start in range(5):
            for n in (1, 2, 63, 1000, 4900):
                assert redtune.reduce(x[start : start + n], "bitwise_xor") == np.bitwise_xor.reduce(
                    x[start : start + n]
                )
        assert compiled == ["bitwise_xor int16 flat"]

    def test_what_one_process_has_compiled_the_next_one_loads(self, tmp_path: Path) -> None:
        text = """
            import sys
            import numpy as np
            import redtune
            from redtune.arrays.opencl import OpenclEngine
            made, original = [], OpenclEngine._compile
            OpenclEngine._compile = lambda self, kernel: made.append(kernel) or original(self, kernel)
            x = np.arange(12.0).reshape(3, 4)
            assert redtune.reduce(x, "sum") == 66
            assert (redtune.reduce(x, "max", 0) == x.max(0)).all()
            print(len(made))
        """
        first, second = (run_in_new_process(text, tmp_path) for _ in range(2))
        assert first.stdout.strip() == "2", first.stderr[-2000:]
        assert second.stdout.strip() == "0", second.stderr[-2000:]

    def test_a_binary_that_is_damaged_is_compiled_again(self, tmp_path: Path) -> None:
        text = """
            import numpy as np
            import redtune
            assert redtune.reduce(np.arange(12.0), "sum") == 66
        """
        assert run_in_new_process(text, tmp_path).returncode == 0
        kept = list(tmp_path.rglob("*.bin"))
        assert kept
        for path in kept:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        done = run_in_new_process(text, tmp_path)
        assert done.returncode == 0, done.stderr[-2000:]

    def test_a_call_leaves_its_arrays_to_the_garbage_collector(self) -> None:
        x = numbers(30, 4).view(Held)
        seen = weakref.ref(x)
        redtune.reduce(x, "sum", 0, out=np.zeros(4, np.float32).view(Held))
        redtune.reduce(x, "sum", 0)
        del x
        gc.collect()
        assert seen() is None


@pytest.mark.skipif(not STATUS.exists(), reason="memory is read from /proc")
def test_calls_take_no_memory() -> None:
    x = numbers(300, 400)

    def some(count: int) -> int:
        for _ in range(count):
            redtune.reduce(x, "sum")
            redtune.reduce(x, "var", 0)
            redtune.reduce(x[:, ::-1], "argmax")
            redtune.reduce(x, "sum", 1, where=x > 0, initial=2)
            redtune.reduce(x.ravel(), "sum", offsets=[0, 5, 100_000])
        gc.collect()
        return int(STATUS.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = some(40)
    assert some(200) < before + (2 << 20)


def test_nothing_is_ever_tuned_or_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> Any:
        raise AssertionError("a call must not tune")

    monkeypatch.setattr("redtune.tuner.Search", refuse)
    monkeypatch.setattr("redtune.lab.Lab", refuse)
    monkeypatch.setattr("redtune.api.search", refuse)
    x = numbers(31, 32, dtype="int32")
    for axis in (None, 0, 1, ()):
        assert is_same(redtune.reduce(x, "bitwise_or", axis), np.asarray(np.bitwise_or.reduce(x, axis)))
        assert is_same(redtune.reduce(x[::2], "bitwise_or", axis), np.asarray(np.bitwise_or.reduce(x[::2], axis)))
    assert is_same(redtune.reduce(x[0], "sum", offsets=[0, 3, 32]), np.array([x[0, :3].sum(), x[0, 3:].sum()]))


# --- refusals ---------------------------------------------------------------------------------------------------------

UNREDUCED = {
    "objects": (np.array([1, None], object), "object"),
    "words": (np.array(["a"]), "str32"),
    "bytes": (np.array([b"a"]), "bytes8"),
    "dates": (np.array(["2020-01-01"], "M8[D]"), "datetime64"),
    "durations": (np.zeros(3, "m8[s]"), "timedelta64"),
    "records": (np.zeros(3, [("a", "i4")]), "void32"),
    "nothing": (None, "object"),
    "a set": ({1}, "object"),
    "a word": ("abc", "str"),
}
if np.dtype(np.longdouble).itemsize > 8:
    UNREDUCED["long doubles"] = (np.zeros(3, np.longdouble), np.dtype(np.longdouble).name)


class TestRefusals:
    @pytest.mark.parametrize("name", UNREDUCED)
    def test_a_dtype_that_is_not_reduced_is_named(self, name: str) -> None:
        x, word = UNREDUCED[name]
        for op in ("sum", "max", "argmax"):
            with pytest.raises(TypeError) as caught:
                redtune.reduce(x, op)
            assert_one_line(caught.value, (word,))

    @pytest.mark.parametrize(
        "call",
        [
            lambda x, d: redtune.reduce((x, d), "dot"),
            lambda x, d: redtune.reduce((d, x), "dot"),
            lambda x, d: redtune.reduce(x, "sum", 0, out=d[0]),
            lambda x, d: redtune.reduce(d, "sum", 0, out=x[0]),
            lambda x, d: redtune.reduce(x, "sum", where=on_device(x > 0)),
            lambda x, d: redtune.reduce(d, "sum", where=x > 0),
        ],
        ids=["dot", "dot the other way", "out", "out the other way", "where", "where the other way"],
    )
    def test_arrays_of_two_libraries_do_not_meet(self, call: Any) -> None:
        with pytest.raises(TypeError) as caught:
            call(numbers(3, 4), on_device(numbers(3, 4)))
        assert_one_line(caught.value, ("numpy", "pyopencl"))

    def test_a_call_that_was_right_before_makes_no_wrong_one_right(self) -> None:
        """What is remembered of a call must not take 1.0, True and 1 for the same."""
        x = numbers(3, 4)
        for options in ({"axis": 1}, {"ddof": 1}):
            redtune.reduce(x, "var", **options)
            for wrong in (1.0, np.float64(1)):
                with pytest.raises(TypeError, match=r"1\.0"):
                    redtune.reduce(x, "var", **dict.fromkeys(options, wrong))
        with pytest.raises(TypeError, match="True"):
            redtune.reduce(x, "var", ddof=True)

    def test_a_refusal_leaves_nothing_behind(self) -> None:
        x = numbers(3, 4)
        for _ in range(3):
            with pytest.raises(UsageError):
                redtune.reduce(x, "sum", 1, config=Config(block=7))
            assert is_same(redtune.reduce(x, "sum", 1), x.sum(1))
