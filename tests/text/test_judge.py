"""The judge: what counts as right, and the faults that it must see in stand-ins for kernels."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import redtune.data
import redtune.judge
import redtune.windows
from redtune.answers import Answers, Known, Wrong, largest_error
from redtune.config import Config, team_of
from redtune.data import full_size, make_dataset
from redtune.dtypes import dtype_named
from redtune.judge import GUARD, Bench, Judge
from redtune.operators import accumulates_in_floats, operator_of, result_of
from redtune.plan import make_plan, operands_of
from redtune.types import Launch, Problem
from redtune.windows import Window
from tests.text.folds import Array
from tests.text.kernels import config, problem, target

ON = target("cuda", compute_units=4)


@pytest.fixture(scope="module", autouse=True)
def small_arrays() -> Iterator[None]:
    """Small tiles need no more, and a judge of every kind stays at hand."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (redtune.data, redtune.windows, redtune.judge):
            patch.setattr(module, "WINDOW", 1 << 14)
        patch.setattr(redtune.judge, "RANDOM_N", 1 << 14)
        yield


def tile_of(c: Config) -> int:
    return team_of(c) * c.vector * c.items


def known(values: Sequence[float], dtype: str = "float32") -> Known:
    wide = np.array(values, np.longdouble)
    with np.errstate(over="ignore"):
        return Known(wide.astype(dtype), wide, None)


@pytest.mark.parametrize(
    ("got", "right", "bound", "wrong", "share"),
    [
        ([1, 2], [1, 2], None, None, 0),
        ([1, 3], [1, 2], None, 1, 0),
        ([0.0], [-0.0], None, None, 0),
        ([np.nan], [np.nan], None, None, 0),
        ([np.nan], [1], None, 0, 0),
        ([1], [np.nan], None, 0, 0),
        ([np.inf, -np.inf], [np.inf, -np.inf], None, None, 0),
        ([np.inf], [-np.inf], None, 0, 0),
        ([1.5, 2], [1, 2], 1.0, None, 0.5),
        ([1.5, 4], [1, 2], 1.0, 1, 2),
        ([3, 2, 9], [1, 2, 3], [1.0, 1.0, 1.0], 0, 6),
        # A bound lets nothing pass that is not a number.
        ([np.nan], [1], 1e30, 0, 0),
        ([np.inf], [1], 1e30, 0, np.inf),
        ([1], [np.inf], 1e30, 0, 0),
        ([1], [np.nan], 1e30, 0, 0),
        ([np.nan, 1], [np.nan, 1], 0.0, None, 0),
        ([np.inf], [1e39], 1e30, None, 0),  # the right answer has no float32 but infinity
        ([1], [1], 0.0, None, 0),
        ([1.1], [1], 0.0, 0, 0.1),
    ],
)
def test_the_largest_error(got: Any, right: Any, bound: Any, wrong: int | None, share: float) -> None:
    bounds = np.array(bound) if isinstance(bound, list) else bound
    found = largest_error(np.array(got, np.float32), known(right), bounds)
    assert found[0] == wrong
    np.testing.assert_allclose(found[1], share, rtol=1e-6)


def test_errors_of_complex_numbers_are_distances() -> None:
    right = Known(np.array([1 + 1j], np.complex64), np.array([1 + 1j], np.clongdouble), None)
    assert largest_error(np.array([4 + 5j], np.complex64), right, np.array([10.0])) == (None, 0.5)
    assert largest_error(np.array([4 + 5j], np.complex64), right, np.array([4.0]))[0] == 0
    assert largest_error(np.array([complex(1, np.nan)], np.complex64), right, np.array([10.0]))[0] == 0


@pytest.mark.parametrize(("op", "dtype", "result"), [("mean", "complex64", "complex128"), ("sum", "complex64", "")])
def test_an_infinite_part_leaves_the_other_its_bound(op: str, dtype: str, result: str) -> None:
    p = problem(op, dtype, n=1000, result=result)
    answers = Answers(p)
    values = np.random.default_rng(0).normal(size=(2, 1000)).astype(np.float32)
    values[0, 500] = np.inf
    dataset = make_dataset("infinity", values[0] + 1j * values[1], dtype_named(dtype), exact=False)
    window = Window(0, 1, 1000, 1)
    right = answers.known(dataset, window)
    plan = make_plan(p, config(), ON.dialect, ON.device)

    def expect(got: complex) -> None:
        answers.expect("infinity", window, answers.result.encode(np.array([got])), right, plan)

    real, imag = right.rounded[0].real, right.rounded[0].imag
    assert (real, np.isfinite(imag)) == (np.inf, True)
    expect(complex(real, imag))
    expect(complex(real, np.nextafter(imag, 9, dtype=imag.dtype)))
    for wrong in (complex(real, imag * 1.01), complex(-np.inf, imag), complex(1, imag), complex(real, np.nan)):
        with pytest.raises(Wrong):
            expect(wrong)


def test_truth_values_and_indices_are_exact() -> None:
    for values, dtype in (([True, False], bool), ([2**53 + 1, 0], np.int64)):
        right = Known(np.array(values, dtype), np.array(values, dtype), None)
        assert largest_error(np.array(values, dtype), right, None) == (None, 0)
        assert largest_error(np.array(values[::-1], dtype), right, None)[0] == 0


# --- faults -----------------------------------------------------------------------------------------------------------

Kernel = Callable[[dict[str, Any], "Job"], None]


@dataclasses.dataclass(frozen=True)
class Job:
    """What a stand-in for a kernel knows of its problem."""

    problem: Problem
    config: Config

    def gather(self, given: dict[str, Any], name: str, **changed: int) -> Array:
        """The elements of one operand, each result in a row of its own, as the arguments say."""
        given = {"outer": 1, "inner": 1, f"{name}_outer": 0, f"{name}_inner": 0} | self.known(given) | changed
        steps = [given[f"{name}_outer"], given[f"{name}_inner"], given.get(f"{name}_n", 1)]
        dtype = dtype_named(self.problem.dtype)
        values = dtype.decode(given[name].view(dtype.storage()))
        view = np.lib.stride_tricks.as_strided(
            values[given[f"{name}_first"] :],
            (given["outer"], given["inner"], given["n"]),
            [step * values.itemsize for step in steps],
        )
        return view.reshape(-1, given["n"])

    def known(self, given: dict[str, Any]) -> dict[str, Any]:
        """What a launch passes, and the buffers: a kernel knows nothing else."""
        plan = make_plan(self.problem, self.config, ON.dialect, ON.device)
        passed = {name for launch in plan.launches for name in launch.args}
        return {name: value for name, value in given.items() if name in passed}

    def answer(self, *inputs: Array) -> Array:
        """The results as they should be."""
        op, result = operator_of(self.problem), dtype_named(result_of(self.problem))
        with np.errstate(all="ignore"):
            return result.encode(op.reference(*inputs))

    def write(self, given: dict[str, Any], results: Array, **changed: int) -> None:
        given = {"inner": 1, "out_outer": 1, "out_inner": 1} | self.known(given) | changed
        out = given["out"].view(dtype_named(result_of(self.problem)).storage())
        places = np.arange(len(results))
        out[places // given["inner"] * given["out_outer"] + places % given["inner"] * given["out_inner"]] = results


class NumpySession:
    """As much of a session as the judge asks for; a program is a function."""

    is_busy = False

    def upload(self, host: Array) -> Array:
        return host.reshape(-1).view(np.uint8).copy()

    def write(self, buffer: Array, host: Array) -> None:
        buffer[: host.nbytes] = host.reshape(-1).view(np.uint8)

    def download(self, buffer: Array, like: Array) -> Array:
        return buffer[: like.nbytes].view(like.dtype).reshape(like.shape).copy()

    def bind(self, program: Any, launches: Sequence[Launch], values: dict[str, Any]) -> Any:
        assert all(name in values for launch in launches for name in launch.args)
        return lambda: program(values)

    def run(self, call: Any) -> None:
        call()

    @contextlib.contextmanager
    def under_load(self, calls: Sequence[Any]) -> Iterator[None]:
        for call in calls:
            call()
        self.is_busy = True
        yield
        self.is_busy = False


C = config(block=64, team=8, items=2, vector=1, accumulators=2, blocks_per_cu=1, combine="two_pass")
CONFIGS = {
    "flat": dataclasses.replace(C, team=0),
    "rows": C,
    "columns": dataclasses.replace(C, exchange="lds", wave=32),
}
PROBLEMS = {
    "flat": {"n": 5000},
    "rows": {"n": 300, "outer": 70},
    "columns": {"n": 30, "outer": 5, "inner": 40},
}


@functools.cache
def judge_of(op: str, dtype: str, layout: str) -> Judge:
    p: Problem = problem(op, dtype, **PROBLEMS[layout])
    full = full_size(operator_of(p), dtype_named(dtype), p.n * p.results, 2, 0, accumulates_in_floats(p), p.results)
    session: Any = NumpySession()
    return Judge(session, p, full, [session.upload(dataset.raw) for dataset in full], 0)


def judged(kernel: Kernel, op: str, dtype: str, layout: str) -> float:
    """The judge's word on a stand-in."""
    judge, c = judge_of(op, dtype, layout), CONFIGS[layout]
    job = Job(judge.problem, c)
    bench = Bench(judge.session, ON.dialect, ON.device, judge.problem, c, lambda given: kernel(given, job))
    bench.prepare(judge.shapes(), judge.answers.result.bytes)
    return judge.judge(bench)


def right_kernel(given: dict[str, Any], job: Job) -> None:
    names = [name for name in operands_of(job.problem) if name != "mask"]
    job.write(given, job.answer(*(job.gather(given, name) for name in names)))


EVERYWHERE = [("sum", "float32"), ("max", "float32"), ("argmax", "int32"), ("dot", "float32"), ("mean", "float64")]


@pytest.mark.parametrize(("op", "dtype"), EVERYWHERE)
@pytest.mark.parametrize("layout", PROBLEMS)
def test_a_right_kernel_is_right(op: str, dtype: str, layout: str) -> None:
    assert judged(right_kernel, op, dtype, layout) <= 1


def on_rows(change: Callable[[Array, Job], Array]) -> Kernel:
    """A kernel that reads something else than it should."""

    def kernel(given: dict[str, Any], job: Job) -> None:
        names = operands_of(job.problem)
        job.write(given, job.answer(*(change(job.gather(given, name), job) for name in names)))

    return kernel


def on_results(change: Callable[[Array, Job], Array]) -> Kernel:
    """A kernel whose results are not what they should be."""

    def kernel(given: dict[str, Any], job: Job) -> None:
        x = job.gather(given, "data")
        job.write(given, change(job.answer(x), job))

    return kernel


def without(x: Array, at: int) -> Array:
    return np.delete(x, at, axis=1) if 0 <= at < x.shape[1] > 1 else x


def teams(job: Job) -> int:
    return job.config.block // team_of(job.config)


LOST: dict[str, Kernel] = {
    "the first element": on_rows(lambda x, job: without(x, 0)),
    "the last element": on_rows(lambda x, job: without(x, x.shape[1] - 1)),
    "the last element of a tile": on_rows(lambda x, job: without(x, tile_of(job.config) - 1)),
    "the first element of the second tile": on_rows(lambda x, job: without(x, tile_of(job.config))),
    "what is beyond the whole tiles": on_rows(
        lambda x, job: x[:, : max(1, x.shape[1] // tile_of(job.config) * tile_of(job.config))]
    ),
    "the last thread": on_rows(lambda x, job: without(x, team_of(job.config) - 1)),
}


@pytest.mark.parametrize("fault", LOST)
@pytest.mark.parametrize("layout", PROBLEMS)
@pytest.mark.parametrize(
    ("op", "dtype"), [("sum", "float32"), ("max", "float32"), ("nansum", "float16"), ("any", "int8")]
)
def test_a_lost_element_is_seen(fault: str, layout: str, op: str, dtype: str) -> None:
    with pytest.raises(Wrong, match=f"^{op} of "):
        judged(LOST[fault], op, dtype, layout)


ROUNDED = [("mean", "float32"), ("var", "float32"), ("norm_l2", "float32"), ("logsumexp", "float64")]


@pytest.mark.parametrize(("op", "dtype"), [*ROUNDED, ("sumsq", "float32"), ("dot", "int8"), ("sum", "complex64")])
def test_a_lost_element_is_seen_where_results_round(op: str, dtype: str) -> None:
    for fault in ("the first element", "the last element", "what is beyond the whole tiles"):
        with pytest.raises(Wrong):
            judged(LOST[fault], op, dtype, "rows")


def late(given: dict[str, Any], job: Job) -> None:
    """The results beyond the first turn of the blocks are never written."""
    x = job.gather(given, "data")
    turn = teams(job) * make_plan(job.problem, job.config, ON.dialect, ON.device).blocks
    job.write(given, job.answer(x)[:turn])


def mixed_up(given: dict[str, Any], job: Job) -> None:
    job.write(given, np.roll(job.answer(job.gather(given, "data")), 1))


def last_result_missing(given: dict[str, Any], job: Job) -> None:
    results = job.answer(job.gather(given, "data"))
    job.write(given, results[:-1] if len(results) % teams(job) == 1 and len(results) > 1 else results)


def shifted(given: dict[str, Any], job: Job) -> None:
    """The rows of the second group of a block begin where those of the first do."""
    x = job.gather(given, "data").copy()
    x[teams(job) : 2 * teams(job)] = x[: len(x[teams(job) : 2 * teams(job)])]
    job.write(given, job.answer(x))


AMONG_MANY: dict[str, Kernel] = {
    "those of a second turn": late,
    "mixed up": mixed_up,
    "the last of a block that is not full": last_result_missing,
    "those of a second group": shifted,
}


@pytest.mark.parametrize("fault", AMONG_MANY)
@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize(("op", "dtype"), [("sum", "float32"), ("max", "int32")])
def test_a_wrong_result_among_many_is_seen(fault: str, layout: str, op: str, dtype: str) -> None:
    with pytest.raises(Wrong, match=" in result "):
        judged(AMONG_MANY[fault], op, dtype, layout)


@pytest.mark.parametrize("layout", PROBLEMS)
def test_a_wrong_beginning_is_seen(layout: str) -> None:
    """A maximum that begins at zero; one that NaN does not win; an index among the elements of a block."""
    with pytest.raises(Wrong):
        judged(on_results(lambda results, job: np.maximum(results, 0)), "max", "float32", layout)
    with pytest.raises(Wrong):
        judged(on_rows(lambda x, job: np.nan_to_num(x, nan=-np.inf)), "max", "float32", layout)
    with pytest.raises(Wrong):
        judged(on_results(lambda results, job: results % tile_of(job.config)), "argmax", "int32", layout)


@pytest.mark.parametrize("layout", PROBLEMS)
def test_a_tie_that_the_last_one_wins_is_seen(layout: str) -> None:
    def kernel(given: dict[str, Any], job: Job) -> None:
        job.write(given, given["n"] - 1 - job.answer(job.gather(given, "data")[:, ::-1]))

    with pytest.raises(Wrong):
        judged(kernel, "argmax", "int32", layout)


@pytest.mark.parametrize("layout", PROBLEMS)
def test_a_second_input_read_at_the_place_of_the_first_is_seen(layout: str) -> None:
    def kernel(given: dict[str, Any], job: Job) -> None:
        x = job.gather(given, "data")
        job.write(given, job.answer(x, x))

    with pytest.raises(Wrong):
        judged(kernel, "dot", "float32", layout)


@pytest.mark.parametrize("layout", PROBLEMS)
def test_a_first_element_that_is_ignored_is_seen(layout: str) -> None:
    def kernel(given: dict[str, Any], job: Job) -> None:
        job.write(given, job.answer(job.gather(given, "data", data_first=0)))

    with pytest.raises(Wrong):
        judged(kernel, "sum", "float32", layout)


STRIDES = {
    "rows": {"data_outer": "n", "out_outer": 1},
    "columns": {"data_inner": 1, "data_n": "inner", "data_outer": "n * inner", "out_inner": 1, "out_outer": "inner"},
}


@pytest.mark.parametrize(("layout", "stride"), [(layout, name) for layout, names in STRIDES.items() for name in names])
def test_a_stride_that_is_ignored_is_seen(layout: str, stride: str) -> None:
    """Neighbours everywhere, whatever the arguments say: right for no view with a pitch, or into one."""
    own = STRIDES[layout][stride]

    def kernel(given: dict[str, Any], job: Job) -> None:
        sizes = {"n": given["n"], "inner": given["inner"]}
        value = {"n * inner": sizes["n"] * sizes["inner"], "n": sizes["n"], "inner": sizes["inner"]}.get(str(own), 1)
        x = job.gather(given, "data", **({stride: value} if stride.startswith("data") else {}))
        job.write(given, job.answer(x), **({stride: value} if stride.startswith("out") else {}))

    with pytest.raises(Wrong):
        judged(kernel, "sum", "float32", layout)


def plainly(formula: Callable[[Array], Any]) -> Kernel:
    """A kernel that computes in the type of its elements, as in a textbook."""

    def kernel(given: dict[str, Any], job: Job) -> None:
        with np.errstate(all="ignore"):
            job.write(given, formula(job.gather(given, "data")))

    return kernel


TEXTBOOK: dict[str, Callable[[Array], Any]] = {
    "norm_l2": lambda x: np.sqrt((x * x).sum(-1)),
    "logsumexp": lambda x: np.log(np.exp(x).sum(-1)),
    "var": lambda x: np.square(x).mean(-1) - np.square(x.mean(-1)),
}


@pytest.mark.parametrize("op", TEXTBOOK)
def test_a_textbook_formula_is_seen(op: str) -> None:
    """Squares and exponentials that overflow, and a difference that cancels: what the entries take care of."""
    with pytest.raises(Wrong):
        judged(plainly(TEXTBOOK[op]), op, "float32", "rows")


def test_benches_share_the_widest_scratch() -> None:
    """In the final rounds, so that where it lies favours none of them."""
    p = problem("sum", "int64", n=5000)
    benches = []
    for changes in ({"walk": "tile"}, {"combine": "last_block"}, {"walk": "tile", "block": 128}):
        knobs = dataclasses.replace(CONFIGS["flat"], **changes)
        bench = Bench(NumpySession(), ON.dialect, ON.device, p, knobs, lambda values: None)  # type: ignore[arg-type]
        bench.prepare([Window(0, 1, 5000, 1)], 8)
        benches.append(bench)
    own = [(bench.partials, bench.counter, bench.out) for bench in benches]
    assert len({len(partials) for partials, _, _ in own}) == 3
    redtune.judge.share_scratch(benches)
    for bench in benches:
        assert bench.partials is max((partials for partials, _, _ in own), key=len)
        assert bench.counter is benches[0].counter
        assert bench.out is benches[0].out
        assert not bench.counter.any()


def test_what_is_written_elsewhere_is_seen() -> None:
    def beyond(given: dict[str, Any], job: Job) -> None:
        right_kernel(given, job)
        given["out"][given["outer"] * given["inner"] * 4 + GUARD - 1] = 0

    def scratch(given: dict[str, Any], job: Job) -> None:
        right_kernel(given, job)
        given["partials"][-1] = 0

    def counter(given: dict[str, Any], job: Job) -> None:
        right_kernel(given, job)
        given["counter"][0] = 1

    for layout in PROBLEMS:
        for kernel, words in ((beyond, "its result"), (scratch, "its scratch"), (counter, "its counter")):
            with pytest.raises(Wrong, match=words):
                judged(kernel, "sum", "float32", layout)


def test_a_result_that_is_not_written_is_seen() -> None:
    for layout in PROBLEMS:
        with pytest.raises(Wrong):
            judged(lambda given, job: None, "sum", "float32", layout)


def test_what_is_left_from_the_launch_before_is_seen() -> None:
    """A counter that does not reset itself shows at the second launch on one input."""

    def stale() -> Kernel:
        seen: dict[int, int] = {}

        def kernel(given: dict[str, Any], job: Job) -> None:
            count = seen[id(given["data"])] = seen.get(id(given["data"]), 0) + 1
            if given["n"] != job.problem.n or count < 2:
                right_kernel(given, job)

        return kernel

    for layout in PROBLEMS:
        with pytest.raises(Wrong):
            judged(stale(), "sum", "float32", layout)


@pytest.mark.parametrize("layout", PROBLEMS)
def test_a_kernel_that_varies_is_labelled(layout: str) -> None:
    judge, c, rng = judge_of("sum", "float32", layout), CONFIGS[layout], np.random.default_rng(0)
    session: Any = judge.session

    def off_by(given: dict[str, Any], steps: int) -> None:
        x = job.answer(job.gather(given, "data")).view(np.uint32) ^ np.uint32(steps)
        job.write(given, x.view(np.float32))

    job = Job(judge.problem, c)
    programs: list[tuple[Callable[[dict[str, Any]], None], tuple[bool, bool], int]] = [
        (lambda given: off_by(given, 0), (False, False), 0),
        (lambda given: off_by(given, int(rng.integers(0, 2))), (True, True), 1),
        (lambda given: off_by(given, int(session.is_busy and rng.integers(0, 2))), (False, True), 1),
        (lambda given: off_by(given, session.is_busy), (False, False), 1),
    ]
    for number, (program, halves, ulps) in enumerate(programs):
        bench = Bench(session, ON.dialect, ON.device, judge.problem, c, program)
        bench.prepare(judge.shapes(), judge.answers.result.bytes)
        seen = judge.repeats(bench, 24, [functools.partial(lambda: None)])
        assert (seen.runs, seen.idle > 1, seen.loaded > 1) == (24, *halves), number
        assert (seen.determinism, seen.ulps) == ("varies" if ulps else "run-to-run", ulps), number


def test_what_is_repeated_shows_the_order() -> None:
    """Sums round; of what chooses among floats, only the signs of zeros tell one order from another."""
    for layout in PROBLEMS:
        judge = judge_of("max", "float32", layout)
        values = judge.session.download(judge.contested, np.zeros(1 << 14, np.float32))
        assert not values.any()
        assert 0.4 < np.signbit(values).mean() < 0.6
        judge = judge_of("sum", "float32", layout)
        values = judge.session.download(judge.contested, np.zeros(1 << 14, np.float32))
        assert values.sum() != values[::-1].cumsum()[-1]
