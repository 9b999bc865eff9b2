"""A measured matrix as people and programs see it, and the run over its cells with scripted workers."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import redtune
from redtune import api_bench, benched, benching, cells, cli, heat
from redtune.benching import Benched, Measured
from redtune.beside import Answer, Beside
from redtune.cells import Cell, flat_cell, shaped_cell
from redtune.config import Config
from redtune.errors import RedtuneError, UsageError
from redtune.process import WorkerDied
from redtune.sidebyside import Comparison, Row, compare, entries
from redtune.types import Timing
from tests.fakes import FakeLab
from tests.text.kernels import target

GPU = target("cuda")
COLUMNS = [
    "op",
    "dtype",
    "layout",
    "size",
    "n",
    "outer",
    "inner",
    "bytes",
    "temperature",
    "contestant",
    "is_redtune",
    "types",
    "median_us",
    "spread_us",
    "samples",
    "gbps",
    "of_ceiling",
    "odd",
    "absent",
    "ceiling_us",
    "best",
    "best_library",
    "speedup",
    "speedup_low",
    "speedup_high",
    "is_losing",
    "is_doubtful",
]


def measured(cell: Cell, speedup: float, odd: str = "") -> Measured:
    """A cell in which redtune takes 10 us."""

    def row(name: str, micros: float, config: Config | None, odd: str = "") -> Row:
        return Row(name, Timing(micros, 0.1, 11), 1000 / micros, 9 / micros, config, "in float32, to float32", odd)

    rows = row("redtune, shipped", 10.0, Config(), odd), row("CUB 3.0.1", 10.0 * speedup, None)
    interval = speedup, speedup * 0.98, speedup * 1.02
    absent = (("torch", "torch has no such thing"),)
    return Measured(cell, Comparison(cell.problem, GPU.device, Timing(9.0, 0.1, 11), rows, absent, "cold", interval))


CELLS = (
    flat_cell("sum", "float32", 1 << 24),
    flat_cell("sum", "float32", 1 << 26),
    flat_cell("max", "int8", 1 << 12),
    shaped_cell("mean", "float32", (64, 256), 0, "gpu"),
)
CUT = flat_cell("dot", "bool", 1 << 12)


def bench(*speedups: float) -> Benched:
    rows = tuple(measured(cell, speedup) for cell, speedup in zip(CELLS, speedups, strict=False))
    return Benched(GPU.device, "cold", 0, rows, ((CUT, "it died"),), (CUT,), "the time limit of 5 s", 4.0)


def test_the_summary_counts_what_is_lost() -> None:
    found = bench(4.0, 1.0, 0.5, 0.99)
    assert found.geometric_mean() == pytest.approx((4 * 0.5 * 0.99) ** 0.25)
    assert [str(one.cell) for one in found.losing()] == ["max int8 flat 2^12", "mean float32 columns 64 x 256"]
    assert [str(one.cell) for one in found.within_noise()] == ["mean float32 columns 64 x 256"]
    assert math.isnan(Benched(GPU.device, "cold", 0, ()).geometric_mean())


def test_a_result_in_doubt_is_shown_as_such() -> None:
    one = measured(CELLS[0], 3.0, "redtune, shipped gave 1 and differs from CUB 3.0.1 by up to 2")
    found = Benched(GPU.device, "cold", 0, (one,))
    assert (found.losing(), found.doubtful(), found.to_look_at()) == ([], [one], [one])
    assert "## Losing cells: 0, and cells in doubt: 1" in "\n".join(benched.markdown(found)).split("## All cells")[0]
    assert [row.name for _, row in found.odd()] == ["redtune, shipped"]
    assert any("results differ in sum float32 flat 2^24" in sentence for sentence in benched.conclusion(found))


def test_lines_go_through_the_large_flat_sizes() -> None:
    fits = {(fit.op, fit.contestant): fit for fit in bench(2.0, 3.0, 1.0, 1.0).fits()}
    assert set(fits) == {("sum", "redtune"), ("sum", "CUB 3.0.1"), ("sum", "read ceiling")}
    fit = fits["sum", "CUB 3.0.1"]  # 20 us for 2^26 bytes and 30 us for 2^28
    assert fit.c_us == pytest.approx(20 - 10 / 3)
    assert fit.gbps == pytest.approx(3 * 2**26 / 10 * 1e-3)


def test_the_csv_has_a_row_for_each_contestant_the_absent_too(tmp_path: Path) -> None:
    benched.write_csv(bench(2.0, 0.5, 1.5, 1.0), str(tmp_path / "b.csv"))
    rows = list(csv.DictReader((tmp_path / "b.csv").open()))
    assert list(rows[0]) == COLUMNS
    assert [row["contestant"] for row in rows[:3]] == ["redtune, shipped", "CUB 3.0.1", "torch"]
    assert rows[2]["absent"] == "torch has no such thing"
    assert [row["speedup"] for row in rows[::3]] == ["2.0", "0.5", "1.5", "1.0"]
    with pytest.raises(UsageError, match="cannot be written"):
        benched.write_csv(bench(1.0), str(tmp_path / "no" / "b.csv"))


def test_the_markdown_begins_with_every_losing_cell(tmp_path: Path) -> None:
    benched.write_markdown(bench(2.0, 0.5, 0.25, 1.0), str(tmp_path / "b.md"))
    text = (tmp_path / "b.md").read_text()
    losing, _, rest = text.partition("## All cells")
    assert losing.index("max int8 flat 2^12 |") < losing.index("sum float32 flat 2^26 |")
    assert "## Losing cells: 2, and cells in doubt: 0" in losing
    assert "mean float32" not in losing
    assert "0.25 (0.24 to 0.26)" in losing
    assert "not reached because of the time limit of 5 s: 1 cells: dot bool flat 2^12" in losing
    assert "nothing of dot bool flat 2^12: it died" in losing
    assert all(str(cell) in rest for cell in CELLS)
    assert "- torch: torch has no such thing (4: " in rest
    with pytest.raises(UsageError, match="cannot be written"):
        benched.write_markdown(bench(1.0), str(tmp_path / "no" / "b.md"))


def test_the_document_is_plain_json() -> None:
    document = json.loads(json.dumps(benched.benched_json(bench(2.0, 0.5, 1.5)), allow_nan=False))
    assert set(document) == {"device", "temperature", "seed", "summary", "cells", "fits", "failed", "cut"}
    assert document["summary"]["losing"] == 1
    assert document["cells"][1]["is_losing"] is True
    assert document["cells"][0]["rows"][1]["timing"]["median_us"] == 20.0
    assert document["cells"][0]["speedup"] == pytest.approx([2.0, 1.96, 2.04])
    assert document["failed"][0]["reason"] == "it died"
    assert document["cut"][0]["cell"] == "dot bool flat 2^12"
    assert set(document["fits"][0]) == {"op", "dtype", "contestant", "c_us", "gbps", "points"}
    nothing = json.dumps(benched.benched_json(Benched(GPU.device, "cold", 0, ())), allow_nan=False)
    assert json.loads(nothing)["summary"]["geometric_mean"] is None


@pytest.mark.parametrize("speedups", [(2.0, 0.5, 1.5, 1.0), (3.0, 3.0, 3.0, 3.0)])
def test_the_picture_is_drawn(speedups: tuple[float, ...], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    heat.write_plot(bench(*speedups), str(tmp_path / "b.png"))
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match="cannot be written"):
        heat.write_plot(bench(*speedups), str(tmp_path / "no" / "b.png"))
    with pytest.raises(UsageError, match="nothing to plot"):
        heat.write_plot(Benched(GPU.device, "cold", 0, ()), str(tmp_path / "b.png"))


def test_what_is_shown_names_everybody(capsys: pytest.CaptureFixture[str]) -> None:
    benched.show_benched(bench(2.0, 0.5, 1.5))
    said = capsys.readouterr().out
    for text in ("sum float32 flat 2^26", "CUB 3.0.1", "in float32, to float32", "torch: absent in 3 cells: torch has"):
        assert text in said
    assert "losing: sum float32 flat 2^26" in said
    assert "speed-up over the best library: 1.14 (geometric mean of 3 cells); losing: 1 of them, 0 within noise" in said


def test_of_a_large_matrix_the_losing_cells_are_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benched, "SHOWN_WHOLE", 2)
    benched.show_benched(bench(2.0, 0.5, 1.5))
    said = capsys.readouterr().out
    assert "the losing cells (every cell: --markdown FILE, --csv FILE)" in said
    assert "flat 2^24" not in said


# --- the run ----------------------------------------------------------------------------------------------------------


class Ahead:
    """Compiles at once; a library never comes while `is_late`."""

    def __init__(self, lab: FakeLab, is_late: bool) -> None:
        self.lab, self.is_late = lab, is_late

    def kernel(self, kernel: Any) -> Any:
        return self.lab.compile_ahead(kernel)

    def compiled(self, kernel: Any) -> Any:
        return self.kernel(kernel).result()

    def library(self, problem: Any) -> Any:
        from concurrent.futures import Future

        future: Future[Path] = Future()
        if not self.is_late:
            future.set_result(Path("cub.so"))
        return future

    warm = library


class Lab(FakeLab):
    """A lab whose contests are scripted: what `beside` gives for a problem, or raises."""

    def __init__(self, device: Any, problem: Any, is_late: bool, gives: Callable[[Any], Beside]) -> None:
        super().__init__(problem, device, lambda config: 100.0)
        self.ahead, self.gives, self.is_cold, self.patience_s = Ahead(self, is_late), gives, True, 1.0
        self.patience: list[float] = []

    def beside(self, problem: Any, compiled: Any, rounds: int, *, with_libraries: bool, seed: int = 0) -> Beside:
        self.patience.append(self.patience_s)
        return self.gives(problem)


def beside(ours: float = 1e-4, theirs: float = 2e-4, few: int = 11) -> Beside:
    answers = tuple(Answer(name, "float32", "1", 1, (), 0.0, False) for name in ("kernel 0", "torch 2"))
    return Beside(((ours,) * 11,), (("torch 2", (theirs,) * few, "to x"),), (), ((9e-5,) * 11,), answers)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Benched, Lab]]:
    def start(gives: Callable[[Any], Beside], is_late: bool = False, **more: Any) -> tuple[Benched, Lab]:
        labs: list[Lab] = []

        def make(device: Any, problem: Any, **_: Any) -> Lab:
            labs.append(Lab(device, problem, is_late, gives))
            return labs[-1]

        monkeypatch.setattr("redtune.benching.Lab", make)
        return benching.measure_cells(CELLS, GPU.device, **more), labs[0]

    return start


def test_every_cell_is_measured_once(run: Callable[..., tuple[Benched, Lab]]) -> None:
    said = []
    found, _ = run(lambda problem: beside(), progress=said.append)
    assert {one.cell for one in found.measured} == set(CELLS)
    assert found.geometric_mean() == pytest.approx(2.0)
    assert (found.cut, found.failed, found.stopped) == ((), (), "")
    assert [step.done for step in said] == [0, 1, 2, 3, 4]
    row = found.measured[0].found.rows[0]
    assert (row.name, row.of_ceiling) == ("redtune, default (untuned)", pytest.approx(0.9))


def test_a_contestant_of_few_samples_is_paired_over_its_rounds(run: Callable[..., tuple[Benched, Lab]]) -> None:
    found, _ = run(lambda problem: beside(few=3))
    assert found.measured[0].found.speedup == pytest.approx((2.0, 2.0, 2.0))
    assert benched.remark(found.measured[0].found.rows[1], 11) == "3 samples"


def test_a_cell_that_fails_costs_no_other(run: Callable[..., tuple[Benched, Lab]]) -> None:
    def gives(problem: Any) -> Beside:
        if problem.op == "max":
            raise WorkerDied("the process ended with signal SIGSEGV")
        return beside()

    found, _ = run(gives)
    assert len(found.measured) == 3
    assert found.failed == ((CELLS[2], "the process ended with signal SIGSEGV"),)
    found.check()
    found, _ = run(lambda problem: beside(ours=math.nan))
    with pytest.raises(RedtuneError, match=r"no cell could be measured; .*: the clock showed no time"):
        found.check()


def test_a_late_library_is_not_waited_for_beyond_half_of_the_time(run: Callable[..., tuple[Benched, Lab]]) -> None:
    found, lab = run(lambda problem: beside(), is_late=True, limit_s=0.6)
    assert len(found.measured) == 4
    assert set(lab.patience) == {0.0}


def test_what_the_time_does_not_reach_is_cut_and_said(run: Callable[..., tuple[Benched, Lab]]) -> None:
    found, _ = run(lambda problem: beside(), limit_s=1e-9)
    assert found.cut == CELLS
    assert found.stopped == "the time limit of 1e-09 s"


def test_an_interruption_keeps_what_is_there(run: Callable[..., tuple[Benched, Lab]]) -> None:
    def gives(problem: Any) -> Beside:
        if problem.op == "mean":
            raise KeyboardInterrupt
        return beside()

    found, _ = run(gives)
    assert (len(found.measured), found.cut, found.stopped) == (3, CELLS[3:], benching.INTERRUPTION)


def test_kernels_are_named_in_answers() -> None:
    lab: Any = Lab(GPU.device, CELLS[0].problem, False, lambda problem: dataclasses.replace(beside(), answers=ODD))
    found = compare(lab, CELLS[0].problem, entries(CELLS[0].problem, lab), 11)
    assert found.rows[0].odd.startswith("redtune, default (untuned) gave 1 and differs from torch 2")
    assert found.answers[1].differs_from == ("redtune, default (untuned)",)
    assert found.is_doubtful


ODD = (
    Answer("kernel 0", "float32", "1", 1, ("torch 2",), 0.5, True),
    Answer("torch 2", "float32", "2", 1, ("kernel 0",), 0.5, True),
)


# --- the surface ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--quick", "--full"], "--quick and --full are two sizes of one matrix"),
        (["--ops", "summ"], "did you mean 'sum'"),
        (["--dtypes", "float23"], "did you mean 'float32'"),
        (["--layouts", "row"], "did you mean 'rows'"),
        (["--op", "sum", "--quick"], "--quick is for the matrix: leave out --op"),
        (["--op", "sum", "--plot", "x.png"], "--plot is for the matrix"),
        (["--n", "3"], "--n is for one problem: name its operator with --op"),
        (["--quick", "--ops", "bitwise_or"], "no cell of this matrix is of bitwise_or; --full has more"),
        (["--time-limit", "0"], "a time limit of 0 s leaves no time"),
        (["--time-limit", "soon"], "a time limit cannot be 'soon'"),
        (["--seed", "-1"], "seed is -1"),
    ],
)
def test_wrong_usage_is_told(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_json_is_one_document_and_files_are_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked: list[Any] = []

    def measure(wanted: list[Cell], device: Any, **options: Any) -> Benched:
        asked.append((wanted, options))
        return bench(2.0, 0.5)

    monkeypatch.setattr("redtune.lab.find_device", lambda backend, index: GPU.device)
    monkeypatch.setattr("redtune.benching.measure_cells", measure)
    options = ["--ops", "sum,max", "--dtypes", "int8", "--warm", "--time-limit", "2m", "--csv", str(tmp_path / "b.csv")]
    assert cli.main(["bench", *options, "--markdown", str(tmp_path / "b.md"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["summary"]["cells"] == 2
    assert (tmp_path / "b.csv").exists()
    assert (tmp_path / "b.md").exists()
    wanted, given = asked[0]
    assert {(cell.problem.op, cell.problem.dtype) for cell in wanted} == {("sum", "int8"), ("max", "int8")}
    assert (given["is_cold"], given["limit_s"]) == (False, 120.0)
    cli.main(["bench"])
    assert asked[1][0] == cells.quick("gpu")
    frame = redtune.bench(quick=True)
    assert list(frame.columns) == COLUMNS
    with pytest.raises(UsageError, match="name its operator"):
        api_bench.bench(n=5)
