"""The policy of a comparison of choices, on labs whose every answer is scripted, and what is shown of it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import redtune
from redtune import api_compare, compared
from redtune.comparing import Compared, combined, compare_choices, verdict_of
from redtune.config import Config, choices, is_read
from redtune.errors import RedtuneError, UsageError
from redtune.types import Verdict
from tests.fakes import FakeLab, Outcome
from tests.text.kernels import Target, problem, target

GPU, CPU = target("cuda"), target("opencl")
MAX = problem("max")
Script = Callable[[Config], Outcome]


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REDTUNE_CACHE", str(tmp_path / "cache"))
    return tmp_path


class Labs:
    """Makes a scripted lab wherever a real one would be made, and keeps them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, script: Script, jitter: float) -> None:
        self.made: list[FakeLab] = []

        def make(device: Any, p: Any, *, seed: int = 0, is_cold: bool = True) -> FakeLab:
            self.made.append(FakeLab(p, device, script, jitter=jitter))
            return self.made[-1]

        monkeypatch.setattr("redtune.tuner.Lab", make)
        monkeypatch.setattr("redtune.comparing.Lab", make)


def found(
    monkeypatch: pytest.MonkeyPatch, script: Script, *knobs: str, on: Target = GPU, jitter: float = 0.002, **more: Any
) -> tuple[Compared, Labs]:
    labs = Labs(monkeypatch, script, jitter)
    options = {"fixed": {}, "trials": 6, "limit_s": 3600.0, **more}
    return compare_choices(MAX, on.device, knobs, **options), labs


def slower_wide(config: Config) -> Outcome:
    """A tail of 64 takes 5 % more time, whatever else; a longer load less."""
    return (105.0 if config.wave == 64 else 100.0) + 8.0 / config.vector


def test_every_choice_is_searched_and_the_winners_are_timed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, labs = found(monkeypatch, slower_wide, "wave")
    assert [dict(row.choice) for row in seen.rows] == [{"wave": wave} for wave in choices("wave")]
    timed = [row for row in seen.rows if row.timing]
    assert [row.choice["wave"] for row in timed] == [32, 64]
    assert all(row.config is not None and row.config.wave == row.choice["wave"] for row in timed)
    assert all(row.config is not None and is_read("wave", row.config) for row in timed)
    best, other = timed
    assert (best.verdict, best.ratio) == ("the fastest here", (1.0, 1.0, 1.0))
    assert other.ratio is not None
    assert other.ratio[0] == pytest.approx(1.05, abs=0.01)
    assert other.verdict.startswith("wave 64 is ")
    assert other.verdict.endswith(" % slower here, beyond noise")
    # One config is there twice: the noise.
    last = labs.made[-1].finalists
    assert last == [best.config, other.config, best.config]
    assert all(lab.is_closed for lab in labs.made)
    assert {row.trials for row in timed} == {6}


def test_a_choice_that_cannot_run_is_a_row_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, _ = found(monkeypatch, slower_wide, "combine", on=CPU)
    refused = {row.choice["combine"]: row for row in seen.rows if row.timing is None}
    assert list(refused) == ["cluster", "collector", "tally"]
    assert refused["cluster"].verdict.startswith("refused: no config is left with combine=cluster: ")
    assert "clusters" in refused["cluster"].verdict
    seen.check()


def test_a_choice_under_which_nothing_is_right_is_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, _ = found(monkeypatch, lambda c: Verdict.WRONG if c.combine == "atomic" else 100.0, "combine")
    row = next(row for row in seen.rows if row.choice["combine"] == "atomic")
    assert (row.timing, row.config) == (None, None)
    assert "max of 33 elements gave 0, not -1" in row.verdict


def test_where_nothing_runs_the_command_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, _ = found(monkeypatch, lambda c: Verdict.CRASHED, "wave")
    with pytest.raises(RedtuneError, match=r"no choice came through: .*SIGSEGV"):
        seen.check()


def test_each_search_begins_with_the_others_winners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the choice in question: what is good for one is tried for all."""
    seen, labs = found(monkeypatch, slower_wide, "exchange", trials=3)
    first = next(row.config for row in seen.rows if row.config is not None)
    second = next(lab for lab in labs.made[1:] if lab.measured and lab.measured[0].exchange != first.exchange)
    begun = second.measured[0]
    assert (begun.block, begun.vector, begun.items, begun.combine) == (
        first.block, first.vector, first.items, first.combine,
    )  # fmt: skip


def test_a_run_against_itself_shows_noise_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, labs = found(monkeypatch, slower_wide, "wave", is_aa=True)
    timed = [row for row in seen.rows if row.timing]
    assert len({row.config for row in timed}) == 1 == len(set(labs.made[-1].finalists))
    for row in timed[1:]:
        assert row.ratio is not None
        assert all(abs(part - 1) < 0.002 for part in row.ratio)
        assert row.verdict.startswith("no difference above noise of ")


@pytest.mark.parametrize(
    ("ratio", "is_best", "noise", "says"),
    [
        ((1.0, 1.0, 1.0), True, 0.01, "the fastest here"),
        ((1.018, 1.015, 1.021), False, 0.004, "wave 64 is 1.8 % slower here, beyond noise"),
        ((1.018, 0.999, 1.03), False, 0.004, "no difference above noise of 1.8 %"),
        ((1.002, 1.001, 1.003), False, 0.004, "no difference above noise of 0.4 %"),
        ((0.999, 0.99, 1.01), False, 0.004, "no difference above noise of 0.4 %"),
    ],
)
def test_the_words(ratio: tuple[float, float, float], is_best: bool, noise: float, says: str) -> None:
    assert verdict_of({"wave": 64}, ratio, is_best, noise) == says


def test_two_knobs_are_crossed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, _ = found(monkeypatch, slower_wide, "wave", "exchange", trials=2)
    assert len(seen.rows) == len(choices("wave")) * len(choices("exchange"))
    assert {row.choice["exchange"] for row in seen.rows if row.timing} >= {"shuffle", "lds"}


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        (("wav",), "there is no knob 'wav': did you mean 'wave'?"),
        (("wave", "wave"), "the knob wave is compared with itself"),
        (("block", "items", "vector"), "combinations; at most"),
    ],
)
def test_knobs_that_cannot_be_compared(knobs: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        combined(knobs)


def test_a_knob_that_is_compared_cannot_be_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="wave is compared, so that it cannot be fixed at 32"):
        found(monkeypatch, slower_wide, "wave", fixed={"wave": 32})


# --- what is shown ----------------------------------------------------------------------------------------------------


@pytest.fixture
def some(monkeypatch: pytest.MonkeyPatch) -> Compared:
    return found(monkeypatch, slower_wide, "wave")[0]


def test_the_table(some: Compared, capsys: pytest.CaptureFixture[str]) -> None:
    compared.show_compared(some)
    out = capsys.readouterr().out
    for words in ("the choices of wave: max of", "ratio (interval)", "of ceiling", "hw", "tail", "regs", "occup.",
                  "shfl", "bar.", "noise: one config against itself", "wave 32: the fastest here",
                  "a pair of such waves"):  # fmt: skip
        assert words in out, words
    assert all(len(line) <= 110 for line in out.splitlines() if line.startswith(("┏", "│")))


def test_the_document(some: Compared) -> None:
    document = json.loads(json.dumps(compared.compared_json(some)))
    assert document["knob"] == "wave"
    row = document["rows"][0]
    assert {"wave", "config", "median_us", "ratio", "interval", "verdict", "hardware_wave", "registers"} <= set(row)
    assert row["interval"] == [1.0, 1.0]


def test_the_file_of_values(some: Compared, tmp_path: Path) -> None:
    compared.write_csv(some, str(tmp_path / "x.csv"))
    rows = list(csv.DictReader((tmp_path / "x.csv").open()))
    assert [row["wave"] for row in rows] == [str(wave) for wave in choices("wave")]
    with pytest.raises(UsageError, match="cannot be written"):
        compared.write_csv(some, str(tmp_path / "none" / "x.csv"))


def test_the_frame(some: Compared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_compare, "compared", lambda *arguments, **options: some)
    frame = redtune.compare("wave", "max")
    assert list(frame["wave"]) == list(choices("wave"))
    assert frame.loc[frame["wave"] == 32, "verdict"].item() == "the fastest here"
    assert {"config", "median_us", "ratio_low", "ratio_high"} <= set(frame.columns)


def test_the_picture(some: Compared, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    compared.write_plot(some, str(tmp_path / "x.png"))
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    for path in (tmp_path / "none" / "x.png", tmp_path / "x.what"):
        with pytest.raises(UsageError, match="cannot be written"):
            compared.write_plot(some, str(path))
