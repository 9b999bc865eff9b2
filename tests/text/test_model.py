"""The counts of the ladder: the figures that courses give, and what is said of them beside the clock."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import redtune
from redtune import api_learn, climbing, lab, profiling
from redtune.cli import main
from redtune.config import Config
from redtune.counting import beside_clock, compared, count, steps_on, weigh
from redtune.errors import BackendMissing, UsageError
from redtune.trees import ways
from tests.text.kernels import config, problem, target
from tests.text.test_ladder import climbs, ladder_lab  # noqa: F401


def counts(block: int, name: str, lanes: int = 32) -> list[int]:
    """One count of every rung."""
    return [getattr(row.on(lanes), name) for row in weigh(problem("max"), block).rows]


# --- the counts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "runs", "serialised"),
    [
        (64, [11, 6, 6, 6], [11, 11, 6, 6]),
        (256, [47, 12, 12, 12], [47, 47, 12, 12]),
        (1024, [191, 36, 36, 36], [191, 191, 36, 36]),
    ],
)
def test_runs_of_waves_are_those_of_the_courses(block: int, runs: list[int], serialised: list[int]) -> None:
    assert counts(block, "warp_runs")[:4] == runs
    assert counts(block, "serialised")[:4] == serialised


@pytest.mark.parametrize("block", [64, 128, 256, 512, 1024])
def test_what_a_strided_index_saves_conflicts_take_again(block: int) -> None:
    """At every size: the serialised runs of rungs 1 and 2 are the same."""
    interleaved, strided = counts(block, "serialised")[:2]
    assert interleaved == strided == counts(block, "warp_runs")[0]


def test_a_tree_has_one_addition_less_than_threads_and_shuffles_have_more() -> None:
    assert counts(256, "additions") == [255] * 7 + [8 * 32 * 5 + 7] * 3


def test_barriers_go_where_a_wave_is_left() -> None:
    assert counts(256, "barriers") == [9] * 4 + [3] * 3 + [1] * 3
    assert counts(256, "tail_waits") == [0] * 4 + [5] * 3 + [0] * 3


def test_shuffles_touch_a_word_for_each_wave() -> None:
    words = counts(256, "lds_words")
    assert words[:4] == [256 + 3 * 255 + 256] * 4
    assert words[7:] == [2 * 8] * 3


def test_half_of_the_threads_are_idle_from_step_to_step() -> None:
    sequential, shuffle = (weigh(problem(), 256).rows[k].on(32).active for k in (2, 7))
    assert sequential == (128, 64, 32, 16, 8, 4, 2, 1)
    assert shuffle == (256,) * 5 + (1,) * 7


def test_waves_of_64_lanes_run_less_often_and_take_turns_at_32_banks() -> None:
    assert counts(256, "warp_runs", 64)[:4] == [27, 9, 9, 9]
    assert counts(256, "serialised", 64)[:4] == [47, 47, 12, 12]
    assert counts(256, "warp_runs", 64)[7] == 4 * 5 + 7


def test_a_tail_of_two_waves_has_a_barrier_more() -> None:
    """What 64 lanes do on hardware of 32: its second wave waits for the first."""
    wide = config(exchange="lds", tree="unrolled", wave=64)
    assert count(steps_on(problem(), wide, 32), 32).barriers == count(steps_on(problem(), wide, 64), 64).barriers + 1
    pairs = config(wave=64)
    assert [step.after for step in steps_on(problem(), pairs, 32)].count("tail") == 1
    assert "tail" not in [step.after for step in steps_on(problem(), pairs, 64)]


@pytest.mark.parametrize(
    ("slots", "words", "turns"),
    [
        (range(32), 1, 1),
        (range(0, 64, 2), 1, 2),
        (range(0, 512, 16), 1, 16),
        (range(0, 1024, 32), 1, 32),
        ([5] * 32, 1, 1),
        (range(32), 2, 2),
        (range(0, 64, 2), 2, 4),
    ],
)
def test_turns_are_words_that_one_bank_is_asked_for(slots: Any, words: int, turns: int) -> None:
    assert ways(list(slots), words) == turns


def test_longer_states_are_counted_too() -> None:
    model = weigh(problem("logsumexp"), 256)
    assert model.state_words == 2
    assert [row.on(32).serialised for row in model.rows[:3]] == [47, 47, 12]
    longer = [row.on(32).serialised_words for row in model.rows[:3]]
    assert all(much > plain for much, plain in zip(longer, [47, 47, 12], strict=True))
    assert model.rows[0].on(32).lds_words == 2 * weigh(problem("max"), 256).rows[0].on(32).lds_words


def test_work_depth_and_the_bound_of_brent() -> None:
    on = target("cuda", compute_units=132)
    model = weigh(problem(n=1 << 24), 256, on.device)
    assert (model.work, model.depth) == ((1 << 24) - 1, 24)
    assert weigh(problem(n=1000), 256).depth == 10
    assert weigh(problem(n=1), 256).depth == 0
    assert model.lanes_at_once == 132 * on.device.max_block
    assert model.brent == pytest.approx(((1 << 24) - 1) / model.lanes_at_once + 24)
    assert weigh(problem(), 256).brent is None
    assert weigh(problem(), 256).rows[0].blocks is None


def test_an_exchange_of_one_device_is_not_counted() -> None:
    with pytest.raises(UsageError, match="exchange redux meets by instructions of its device"):
        steps_on(problem("max", "int32"), Config(exchange="redux"), 32)


# --- beside the clock -------------------------------------------------------------------------------------------------


def test_the_count_explains_the_clock_where_both_change_alike(climbs: Any) -> None:  # noqa: F811
    on = target("cuda")
    times = {1: 1.0, 2: 1.0, 3: 0.9, 4: 0.45}
    ladder = climbs(problem(), on, samples=times)
    rows = compared(beside_clock(weigh(problem(), 256, on.device), ladder))
    first = {(below.rung.number, row.rung.number): (fewer, agrees) for below, row, fewer, _, agrees in rows}
    assert first[1, 2] == (1.0, True)
    assert first[2, 3] == (pytest.approx(47 / 12), False)
    assert first[3, 4] == (2.0, True)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device on which every rung is k times as fast as the first."""
    on = target("opencl")
    monkeypatch.setattr(lab, "find_device", lambda backend, index: on.device)
    monkeypatch.setattr(climbing, "Lab", ladder_lab(on, lambda config: 5.0))


def test_the_table_says_what_is_explained(said: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 110
    flowing = " ".join(out.split())
    assert "47 / 27" in flowing
    assert "work 16777215 additions, depth 24" in flowing
    assert (
        "2 to 3: serialised 47 to 12 a block, 3.92x fewer in all; 1.50x as fast: the count does not explain" in flowing
    )
    assert "5 to 6: serialised 12 to 12 a block, 1.00x fewer in all; 1.20x as fast: the count explains" in flowing
    assert "a CPU has neither waves nor banks" in flowing


def test_files_hold_every_count(said: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {kind: str(tmp_path / f"model.{kind}") for kind in ("csv", "md", "png")}
    assert main(["model", "--json", "--csv", names["csv"], "--markdown", names["md"], "--plot", names["png"]]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["serialised"] for row in found["rows"]][:4] == [47, 47, 12, 12]
    assert {"rung", "warp_runs", "serialised", "additions", "barriers"} <= set(found["rows"][0])
    assert (found["block"], found["depth"]) == (256, 24)
    assert re.search(r"\| 1 \| interleaved, modulo \| 47 / 27 \| 47 \|", Path(names["md"]).read_text())
    assert Path(names["csv"]).read_text().count("\n") == 11
    assert Path(names["png"]).read_bytes().startswith(b"\x89PNG")


def test_counts_need_no_device(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def none(backend: str | None, index: int) -> Any:
        raise BackendMissing("no device was found: install one")

    monkeypatch.setattr(lab, "find_device", none)
    assert main(["model", "--block", "64"]) == 0
    out = capsys.readouterr().out
    assert "nothing was measured: no device was found: install one" in " ".join(out.split())
    assert list(redtune.model(block=64)["warp_runs"])[:2] == [11, 6]
    assert main(["model", "--plot", "x.png"]) == 2
    assert main(["model", "--backend", "hip"]) == 1


def test_what_is_not_to_run_does_not(said: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(climbing, "climb", None)
    frame = redtune.model(run=False)
    assert frame["median_us"].isna().all()
    assert list(frame["blocks"])[:4] == [65536, 65536, 65536, 32768]
    assert api_learn.counted(run=False).absent == "it was asked for counts alone"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--block", "96"], "block is 96: the ladder halves it"),
        (["--op", "nope"], "there is no operator 'nope'"),
        (["--n", "0"], "n is 0"),
        (["--seed", "-1"], "seed is -1"),
        (["--no-run", "--plot", "x.png"], "a plot shows counts beside times: it was asked for counts alone"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], sentence: str, said: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model", *arguments]) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1


def test_a_block_too_large_for_the_device_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(target("opencl").device, max_block=128)
    monkeypatch.setattr(lab, "find_device", lambda backend, index: small)
    with pytest.raises(UsageError, match=r"block is 256, and .* runs at most 128 threads in one"):
        redtune.model()


# --- counters of a profiler -------------------------------------------------------------------------------------------

NCU = """#!{python}
import json, sys
assert sys.argv[sys.argv.index("--clock-control") + 1] == "none", "the clock is not ours to set"
log = sys.argv[sys.argv.index("--log-file") + 1]
kernels = json.load(open(sys.argv[-1]))["kernels"]
names = ["ID", "Kernel Name", "{conflicts}", "{lanes}"]
rows = [names, ["", "", "", ""], *([str(k), "main", f"1,{{k:03}}", "16.5"] for k in range(len(kernels) - {missing}))]
open(log, "w").write("==PROF== Connected\\n" + "\\n".join(",".join(f'"{{cell}}"' for cell in row) for row in rows))
"""


@pytest.fixture
def ncu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A profiler that counts nothing, and says so in ncu's way; of some launches less than there are."""

    def install(missing: int = 0) -> None:
        on = target("cuda")
        monkeypatch.setattr(lab, "find_device", lambda backend, index: on.device)
        monkeypatch.setattr(lab, "Lab", ladder_lab(on, lambda config: 5.0))
        names = {"conflicts": profiling.CONFLICTS, "lanes": profiling.LANES}
        tool = tmp_path / "ncu"
        tool.write_text(NCU.format(python=sys.executable, missing=missing, **names))
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))

    return install


def test_counters_stand_beside_the_counts(ncu: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ncu()
    assert main(["model", "--no-run", "--profile"]) == 0
    assert "2: ncu counts 1001 bank conflicts, and 16.5 of 32 lanes" in capsys.readouterr().out
    frame = redtune.model(run=False, profile=True)
    assert list(frame["bank_conflicts"]) == [1000.0 + k for k in range(10)]


def test_a_profiler_that_gives_nothing_is_an_error(ncu: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ncu(missing=3)
    assert main(["model", "--no-run", "--profile"]) == 1
    assert "ncu gave no counters (exit code 0): it reported 7 launches of 10" in capsys.readouterr().err


def test_a_profiler_that_is_not_there_is_named(
    ncu: Any, said: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model", "--profile"]) == 2
    assert "--profile reads counters of NVIDIA GPUs" in capsys.readouterr().err
    ncu()
    monkeypatch.setenv("PATH", "")
    assert main(["model", "--profile"]) == 1
    assert "--profile needs ncu, NVIDIA's Nsight Compute: it was not found in PATH" in capsys.readouterr().err
