"""The ladder without a device: its rungs spell on every architecture, and what is said where one cannot be."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import redtune
from redtune import api_learn, climbed, climbing, lab, rungs
from redtune.backends import backend_named
from redtune.beside import Beside
from redtune.cli import main
from redtune.climbing import ABSENT, FAILED, PASSED, REFUSED, climb
from redtune.config import KNOBS, default_of
from redtune.errors import RedtuneError, UsageError
from redtune.operators import OPERATORS
from redtune.refusals import hindrances, refusals
from redtune.render import render
from redtune.types import Verdict
from tests.fakes import FakeLab
from tests.text.kernels import PAIRS, problem, target
from tests.text.reading import complaints

ROOT = Path(__file__).parents[2]
NINE = 9
ARCHS = [
    ("cuda", "sm_90"),
    ("cuda", "sm_80"),
    ("opencl", "cpu"),
    ("hip", "gfx90a"),
    ("hip", "gfx942"),
    ("hip", "gfx1100"),
]


def ladder_lab(on: Any, script: Any, samples: dict[int, float] | None = None) -> Any:
    """A lab in which rung k takes 1 / k of a second, or as `samples` says."""

    class Lab(FakeLab):
        is_cold, seed = True, 0

        def turn_to(self, p: Any) -> None:
            self.problem = p

        def errors(self, compiled: Sequence[Any]) -> list[float]:
            return [1e-7] * len(compiled)

        def beside(self, p: Any, compiled: Sequence[Any], rounds: int, **_: Any) -> Beside:
            times = [(samples or {}).get(k, 1.0 / k) for k in range(1, len(compiled) + 1)]
            return Beside(tuple((t,) * 5 for t in times), (), (), ((0.05,) * 5,), ())

    return lambda device, p, **_: Lab(p, device, script)


@pytest.fixture
def climbs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("REDTUNE_CACHE", str(tmp_path / "cache"))

    def run(p: Any, on: Any, script: Any = lambda config: 5.0, block: int = 256, **more: Any) -> climbing.Ladder:
        monkeypatch.setattr(climbing, "Lab", ladder_lab(on, script, **more))
        return climb([p], on.device, block)[0]

    return run


# --- the rungs --------------------------------------------------------------------------------------------------------


def test_there_are_the_nine_classic_rungs_and_one_that_is_vectorised() -> None:
    found = rungs.rungs()
    assert [rung.number for rung in found] == list(range(1, NINE + 2))
    assert all(re.fullmatch(r"[a-z].*[^.]", rung.lacks) for rung in found), "one sentence each, as part of a line"
    on = target("cuda")
    spelled = [rungs.config_of(rung, 256, problem(), on.dialect) for rung in found]
    assert [c.tree for c in spelled[:7]] == [
        "interleaved", "strided", "sequential", "sequential", "last_wave", "unrolled", "unrolled",
    ]  # fmt: skip
    assert [c.items for c in spelled[:4]] == [1, 1, 1, 2]
    assert {c.walk for c in spelled[:6]} == {"tile"}
    assert {c.walk for c in spelled[6:]} == {"stride"}
    assert [(c.exchange, c.combine) for c in spelled[7:9]] == [("shuffle", "two_pass"), ("shuffle", "atomic")]
    assert spelled[9].vector == 4


def test_each_rung_is_the_one_before_with_one_thing_changed() -> None:
    """Beside what has no effect any more: what goes with the vector, and with a combine."""
    together = {"vector": {"items", "accumulators", "combine", "second_block"}, "exchange": {"tree"}, "walk": set()}
    together |= {"combine": {"second_block"}, "tree": set(), "items": set()}
    on = target("cuda")
    spelled = [rungs.config_of(rung, 256, problem(), on.dialect) for rung in rungs.rungs()]
    for before, after in itertools.pairwise(spelled):
        changed = {name for name in KNOBS if getattr(before, name) != getattr(after, name)}
        changed -= {"blocks_per_cu"} if after.walk != before.walk else set()
        assert any(changed - more == {name} for name, more in together.items()), changed


@pytest.mark.parametrize(("backend", "arch"), ARCHS)
@pytest.mark.parametrize("block", [128, 256, 1024])
def test_every_rung_of_a_sum_can_run_everywhere(backend: str, arch: str, block: int) -> None:
    on = target(backend, arch)
    for rung in rungs.rungs():
        config = rungs.config_of(rung, block, problem(), on.dialect)
        assert hindrances(config, problem(), on.dialect, on.device) == [], rung.name
        kernel = render(problem(), config, on.dialect, on.device)
        assert complaints(kernel.source) == []


@pytest.mark.parametrize(("op", "dtype"), [pair for pair in PAIRS if pair[1] in ("float32", "int8", "float64", "bool")])
def test_every_operator_climbs_as_far_as_its_state_lets_it(op: str, dtype: str) -> None:
    on = target("cuda")
    for rung in rungs.rungs():
        p = problem(op, dtype)
        config = rungs.config_of(rung, 256, p, on.dialect)
        against = hindrances(config, p, on.dialect, on.device)
        assert not against or (rung.number == NINE and "atomic" in against[0]), (rung.number, against)


def test_what_only_keeps_digits_hinders_no_rung_and_is_said(climbs: Any) -> None:
    on = target("cuda")
    config = rungs.config_of(rungs.rung_numbered(NINE), 256, problem(), on.dialect)
    assert hindrances(config, problem(), on.dialect, on.device) == []
    (lossy,) = refusals(config, problem(), on.dialect, on.device)
    assert "would round float32 sums" in lossy
    row = climbs(problem(), on).rows[NINE - 1]
    assert (row.verdict, row.note) == (PASSED, f"no search takes it: {lossy}")


# --- climbing ---------------------------------------------------------------------------------------------------------


def test_times_are_compared_with_the_first_rung_and_the_one_before(climbs: Any) -> None:
    found = climbs(problem(n=10**9), target("opencl"))
    for row in found.rows[:-1]:
        k = row.rung.number
        assert row.over_first == pytest.approx((k, k, k))
        assert row.over_before is None if k == 1 else row.over_before == pytest.approx((k / (k - 1),) * 3)
        assert row.gbps == pytest.approx(4 * k)
        assert row.of_ceiling == pytest.approx(0.05 * k)
        assert (row.verdict, row.error, row.launches) == (PASSED, 1e-7, 2)
    assert found.rows[0].blocks == 10**9 // 256
    assert found.rows[3].blocks == 10**9 // 512
    found.check()


def test_nothing_tuned_is_absent_with_the_command_that_tunes(climbs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    last = climbs(problem("max", "int32", n=1000), target("opencl")).rows[-1]
    assert (last.verdict, last.timing) == (ABSENT, None)
    assert "redtune search --op max --dtype int32 --n 1000" in last.note
    monkeypatch.setattr("redtune.store.shipped_path", lambda: ROOT / "configs")
    shipped = climbs(problem(), replace_name(target("cuda"), "NVIDIA H200")).rows[-1]
    assert shipped.verdict == PASSED
    assert shipped.note.startswith("shipped")


def replace_name(on: Any, name: str) -> Any:
    return replace(on, device=replace(on.device, name=name))


def test_a_rung_that_is_wrong_fails_and_the_others_are_timed(climbs: Any) -> None:
    found = climbs(problem(), target("opencl"), lambda c: Verdict.WRONG if c.tree == "strided" else 5.0)
    assert [row.verdict for row in found.rows] == [PASSED, FAILED, *[PASSED] * 8, ABSENT]
    assert found.rows[1].timing is None
    assert found.rows[2].over_before is not None, "over the nearest rung that was timed"
    with pytest.raises(RedtuneError, match="rung 2 of sum FAILED: WRONG: max of 33 elements gave 0"):
        found.check()


def test_a_rung_that_cannot_be_here_says_why(climbs: Any) -> None:
    found = climbs(problem("argmax"), target("opencl"), block=64)
    reasons = {row.rung.number: row.note for row in found.rows if row.verdict == REFUSED}
    assert reasons == {
        5: "tree last_wave has no loop before a tail of 32 lanes in a block of 64: take unrolled",
        NINE: "combine atomic needs a state of one field, and argmax has 2",
    }


def test_no_rung_at_all_is_an_error(climbs: Any) -> None:
    found = climbs(problem(), target("opencl"), lambda config: Verdict.CRASHED)
    with pytest.raises(RedtuneError, match="rung 1 of sum FAILED: CRASHED"):
        found.check()
    assert found.ceiling is None


# --- what is shown ----------------------------------------------------------------------------------------------------


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, climbs: Any) -> climbing.Ladder:
    found = climbs(problem(), target("opencl"))
    monkeypatch.setattr(api_learn, "climbed", lambda *a, **o: found)
    monkeypatch.setattr(api_learn, "climbed_all", lambda *a, **o: ([found], {"bitwise_or": "it takes no float32"}))
    return found


def test_the_table_fits_a_terminal_and_names_every_problem(
    said: climbing.Ladder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ladder"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 110
    flowing = " ".join(out.split())
    for rung in rungs.rungs():
        assert f"{rung.number} {rung.name}: {rung.lacks}" in flowing
    assert out.count("PASSED") == 10
    assert "1.50x" in out


def test_files_hold_every_rung(said: climbing.Ladder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {kind: tmp_path / f"ladder.{kind}" for kind in ("csv", "md", "png")}
    options = ["--csv", str(names["csv"]), "--markdown", str(names["md"]), "--plot", str(names["png"])]
    assert main(["ladder", "--json", *options]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["rung"] for row in rows] == list(range(1, 12))
    assert [row["passed"] for row in rows] == [True] * 10 + [False]
    assert names["csv"].read_text().count("\n") == 12
    page = names["md"].read_text()
    assert page.count("PASSED |") == 10
    assert "`tree=interleaved`" not in page
    assert "walk=tile exchange=lds tree=interleaved" in page
    assert names["png"].read_bytes().startswith(b"\x89PNG")


def test_a_page_is_written_where_redtune_was_never_installed(
    said: climbing.Ladder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a tree of sources: no package of that name has a version."""

    def missing(name: str) -> Any:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    page = tmp_path / "ladder.md"
    assert main(["ladder", "--json", "--markdown", str(page)]) == 0
    assert f"redtune {redtune.__version__}, " in page.read_text()
    assert main(["model", "--no-run", "--json", "--markdown", str(page)]) == 0


def test_all_operators_have_a_line_each(
    said: climbing.Ladder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ladder", "--all-ops", "--markdown", str(tmp_path / "all.md")]) == 0
    out = capsys.readouterr().out
    assert re.search(r"sum .*10 PASSED", out)
    assert "bitwise_or: it takes no float32" in out
    assert "| sum |" in (tmp_path / "all.md").read_text()
    assert main(["ladder", "--all-ops", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["ladders"]) == 1


def test_a_frame_has_a_row_for_each_rung(said: climbing.Ladder) -> None:
    frame = redtune.ladder()
    assert list(frame["rung"]) == list(range(1, 12))
    assert {"name", "median_us", "gbps", "of_ceiling", "over_first", "over_before", "error", "verdict"} <= set(frame)
    assert list(climbed.ladder_frame(said)["verdict"]) == list(frame["verdict"])


@pytest.mark.parametrize("number", range(1, 11))
def test_a_rung_is_explained_with_no_device(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--backend", "cuda", "--arch", "sm_90"]
    assert main(["ladder", "--explain", str(number), *options]) == 0
    text = capsys.readouterr().out
    rung = rungs.rung_numbered(number)
    assert text.startswith(f"// rung {number}, {rung.name}\n// its problem: {rung.lacks}\n// launch 1: redtune_")
    steps = 8 if rung.knobs["exchange"] == "lds" else 5 + 7  # lanes by shuffles, then one thread what 8 tails left
    assert f"the threads of a block meet in {steps} steps" in text
    assert ("thread 0: in registers" in text) == (steps == 12)
    assert "__global__" in text
    shown = [f"--fix {name}" for name, value in rung.knobs.items() if value != default_of(name)]
    assert all(fix in text for fix in shown if "accumulators" not in fix), "the command that writes the kernel again"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--block", "100"], "block is 100: the ladder halves it, so choose from 32, 64, 128, 256, 512, 1024"),
        (["--op", "maxx"], "there is no operator 'maxx': did you mean 'max'?"),
        (["--explain", "12"], "there is no rung 12: they are numbered from 1 to 11"),
        (["--explain", "0"], "there is no rung 0: they are numbered from 1 to 11"),
        (["--arch", "sm_90"], "--arch is for --explain"),
        (["--explain", "1", "--arch", "sm_90"], "name the backend too"),
        (["--explain", "1", "--csv", "x"], "--csv is for rungs that run"),
        (["--all-ops", "--op", "max"], "--op is for one operator"),
        (["--all-ops", "--map", "x"], "--map is for one operator"),
        (["--seed", "-1"], "seed is -1"),
        (["--n", "0"], "n is 0"),
        (["--n", "many"], "n cannot be 'many'"),
        (["--explain", "11", "--backend", "hip", "--arch", "gfx942"], "nothing is tuned for sum on gfx942"),
        (
            ["--explain", "5", "--block", "64", "--backend", "cuda", "--arch", "sm_90"],
            "rung 5 cannot be here: tree last_wave has no loop",
        ),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("REDTUNE_CACHE", str(tmp_path))
    assert main(["ladder", *arguments]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_a_block_that_the_device_does_not_run_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    small = target("cuda", max_block=512).device
    monkeypatch.setattr(lab, "find_device", lambda backend, index: small)
    with pytest.raises(UsageError, match="block is 1024, and sm_90 runs at most 512 threads in one"):
        redtune.ladder(block=1024)


def test_every_operator_is_climbed_or_says_why(monkeypatch: pytest.MonkeyPatch, climbs: Any) -> None:
    on = target("opencl")
    monkeypatch.setattr(lab, "find_device", lambda backend, index: on.device)
    monkeypatch.setattr(climbing, "Lab", ladder_lab(on, lambda config: 5.0))
    every, absent = api_learn.climbed_all(n=1000)
    assert {one.problem.op for one in every} | set(absent) == set(OPERATORS)
    assert "bitwise_and" in absent
    assert backend_named("opencl").dialect.name == "opencl"
