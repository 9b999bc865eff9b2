"""What a search leaves for its report, and the page that is made of it: searches with a scripted lab, no device."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re
import shlex
import warnings
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import redtune
from redtune import cli, store
from redtune.config import KNOBS, Config
from redtune.errors import UsageError
from redtune.keys import format_number
from redtune.process import WorkerProcess
from redtune.proposals import journal_path
from redtune.render import render
from redtune.reporting.figures import WIDTH, Plot, bars, history, intervals, slices, ticks
from redtune.reporting.page import command
from redtune.reporting.searched import Searched, all_searched, find, keep, path_of, read_searched
from redtune.studies import EVALUATOR, FEWEST, read_study
from redtune.terminal import in_words
from redtune.tuner import NothingVerified
from redtune.types import Problem, Trial, Verdict
from redtune.wanted import wanted_problem
from tests.fakes import NOTES, FakeLab, Outcome
from tests.text.kernels import LAYOUTS, Target, config, problem, target
from tests.text.test_search import searched

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")

GPU = target("cuda", cache_bytes=50 << 20)
MAX = problem("max")
SECTIONS = ("summary", "history", "importance", "finalists", "slices", "failures", "winner", "environment")
NASTY = "a<script>alert('x')</script>&\"b"


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REDTUNE_CACHE", str(tmp_path / "cache"))
    store.WARNED.clear()
    return tmp_path / "cache"


def of_all_kinds(c: Config) -> Outcome:
    """A landscape with a slope, and now and then a failure of each kind."""
    drawn = random.Random(repr(c)).random()
    if drawn < 0.2:
        failures = (Verdict.NOT_COMPILED, Verdict.WRONG, Verdict.TIMED_OUT, Verdict.CRASHED)
        return failures[int(drawn * 1000) % 4]
    return 20.0 + 200.0 / (c.items * c.vector) + 2 * drawn


def search(trials: int = 40, p: Problem = MAX, on: Target = GPU, **options: Any) -> Searched:
    """What the search that was the last has left."""
    before = {one.key: one for one in all_searched()}
    lab = options.pop("lab", None) or FakeLab(p, on.device, of_all_kinds, ceiling_us=19.0)
    searched(of_all_kinds, on, p, trials=trials, lab=lab, **options)
    return next(one for one in all_searched() if before.get(one.key) != one)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The cache and the page of a search of all kinds of trials, made once."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REDTUNE_CACHE", str(folder / "cache"))
        path = redtune.report(search(trials=60).key, folder / "report.html")
    return folder / "cache", path.read_text(encoding="utf-8")


@pytest.fixture
def page(made: tuple[Path, str], fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The page, with the cache that it was made from."""
    monkeypatch.setenv("REDTUNE_CACHE", str(made[0]))
    return made[1]


# --- the page ---------------------------------------------------------------------------------------------------------

VOID = {"meta", "link"}


class Reader(HTMLParser):
    """A page's tags, checked to be closed in their order, with the texts of each."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and data.strip():
            self.texts.setdefault(self.open[-1], []).append(data.strip())


def test_a_page_is_whole(page: str) -> None:
    read = Reader(page)
    assert tuple(attrs["id"] for tag, attrs in read.tags if tag == "section") == SECTIONS
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in read.tags
    assert len([tag for tag, _ in read.tags if tag == "svg"]) >= 3 + 8


def test_a_page_asks_nobody_for_anything(page: str) -> None:
    read = Reader(page)
    fetched = {attrs[name] for _, attrs in read.tags for name in ("src", "href", "srcset", "data") if name in attrs}
    assert fetched == {"data:,"}
    assert not {"script", "img", "iframe", "object", "embed", "form", "base"} & {tag for tag, _ in read.tags}
    assert not re.search(r"url\(|@import|https?:|\son\w+=", page)
    (policy,) = (attrs["content"] for _, attrs in read.tags if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'")


def test_a_plot_has_numbers_only(page: str) -> None:
    read = Reader(page)
    paths = [attrs["d"] for tag, attrs in read.tags if tag == "path"]
    assert paths
    assert all(re.fullmatch(r"(?:[MLHVhvz]|-?\d+(?:\.\d)?| )+", path) for path in paths)
    places = [float(attrs[name]) for tag, attrs in read.tags if tag == "text" for name in ("x", "y")]
    assert all(-20 <= place <= 600 for place in places)


def test_a_phone_scrolls_no_page_sideways(page: str) -> None:
    """Whatever may be wide lies in a box that scrolls by itself, and pictures take the width that there is."""
    for tag in ("table", "pre"):
        for match in re.finditer(rf"<{tag}\b", page):
            before = page[: match.end() + 20]
            assert 'class="scroll"' in before[before.rindex("<div" if tag == "table" else "<pre") :]
    assert re.search(r"svg \{[^}]*width: 100%", page)
    assert re.search(r"\.scroll \{ overflow-x: auto", page)
    assert "prefers-color-scheme: dark" in page


def test_a_page_says_what_the_search_found(page: str) -> None:
    (one,) = all_searched()
    assert one.best is not None
    said = " ".join(part for parts in Reader(page).texts.values() for part in parts)
    assert f"{one.best.gbps:.4g} GB/s" in said
    assert one.verdict in said
    assert in_words(one.best.config, MAX) in said
    for finalist in one.finalists:
        assert f"{finalist.low:.4f} to {finalist.high:.4f}" in said
    met = {told.trial.verdict for told in read_study(one.study).told}
    assert len(met) >= 4
    for verdict in met - {Verdict.OK, Verdict.REFUSED}:
        assert f"{verdict} " in said
        assert NOTES[verdict] in said
    assert EVALUATOR in said
    assert command(one) in said


def test_the_source_is_that_of_the_winner(page: str) -> None:
    (one,) = all_searched()
    assert one.best is not None
    (code,) = (text for text in Reader(page).texts["code"] if "__global__" in text)
    assert code == render(MAX, one.best.config, GPU.dialect, GPU.device).source.strip()
    assert "The very text that was measured." in page


def test_a_source_of_other_templates_says_so(tmp_path: Path) -> None:
    one = search()
    assert one.best is not None
    keep(dataclasses.replace(one, best=dataclasses.replace(one.best, templates="0" * 12)))
    assert "The templates have changed" in redtune.report(one.key, tmp_path / "report.html").read_text()


def test_what_a_user_has_written_is_text_on_the_page(tmp_path: Path) -> None:
    def crashes(c: Config) -> Outcome:
        failed = Trial(c, "d", Verdict.CRASHED, note=f"driver: {NASTY}")
        return failed if c.vector == 1 else 100.0 + c.items

    lab = FakeLab(MAX, GPU.device, crashes)
    one = search(lab=lab, study=NASTY)
    text = redtune.report(NASTY, tmp_path / "report.html").read_text()
    read = Reader(text)
    assert "script" not in {tag for tag, _ in read.tags}
    assert f"driver: {NASTY}" in " ".join(read.texts["td"])
    assert any(part.startswith(NASTY) for part in read.texts["dd"])
    assert one.name == NASTY


def test_every_knob_that_was_varied_has_a_slice(page: str) -> None:
    (whole,) = all_searched()
    right = [told.trial for told in read_study(whole.study).told if told.trial.verdict == Verdict.OK]
    varied = {
        name for name in ("block", "vector", "items", "combine") if len({getattr(t.config, name) for t in right}) > 1
    }
    shown = re.findall(r"<figcaption><b>(\w+)</b>", page)
    assert varied <= set(shown) <= set(KNOBS) - {"team", "split"}


# --- searches that are short, cut off or hopeless ---------------------------------------------------------------------


def test_few_trials_have_no_importance_and_the_page_says_why(tmp_path: Path) -> None:
    one = search(trials=5)
    text = redtune.report(one.key, tmp_path / "report.html").read_text()
    assert re.search(rf"No importance: \d right trials are too few to tell: it takes {FEWEST}\.", text)
    Reader(text)


def test_knobs_of_which_little_was_seen_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Optuna's warning stays off the terminal, and is not lost."""

    def importances(*_: Any, **__: Any) -> dict[str, float]:
        warnings.warn("Some regimes for parameter `items` have less than 2 trials.", stacklevel=1)
        return {"block": 0.6, "items": 0.4}

    monkeypatch.setattr("redtune.studies.get_param_importances", importances)
    one = search(trials=2 * FEWEST)  # some of them fail
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = redtune.report(one.key, tmp_path / "report.html").read_text()
    assert "Few trials tell of items." in text


def test_a_search_that_was_cut_off_has_a_page(tmp_path: Path) -> None:
    lab = FakeLab(MAX, GPU.device, of_all_kinds)
    trial = lab.trial

    def interrupted(compiled: Any, best_us: float | None) -> Trial:
        if len(lab.measured) == 6:
            raise KeyboardInterrupt
        return trial(compiled, best_us)

    lab.trial = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        search(lab=lab)
    (one,) = all_searched()
    assert (one.finalists, one.best) == ((), None)
    text = redtune.report(one.key, tmp_path / "report.html").read_text()
    Reader(text)
    assert "the search did not come to its end, so nothing was decided" in text
    assert "There were no final rounds" in text
    assert "There is no winner, so there is no source." in text


def test_a_search_without_a_right_config_has_a_page(tmp_path: Path) -> None:
    lab = FakeLab(MAX, GPU.device, lambda c: Verdict.WRONG)
    with pytest.raises(NothingVerified):
        search(trials=5, lab=lab)
    (one,) = all_searched()
    text = redtune.report(one.key, tmp_path / "report.html").read_text()
    Reader(text)
    assert "5 WRONG" in text
    assert "No knob had more than one value in the right trials." in text


@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_other_layouts_have_pages(layout: str, tmp_path: Path) -> None:
    one = search(trials=8, p=problem("sum", **LAYOUTS[layout]))
    Reader(redtune.report(one.key, tmp_path / "report.html").read_text())


def test_no_device_is_needed_and_no_study_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = search(trials=5)
    before = journal_path().read_bytes()

    def none(*_: Any) -> None:
        raise AssertionError("a report starts no process")

    monkeypatch.setattr(WorkerProcess, "__init__", none)
    redtune.report(one.key, tmp_path / "report.html")
    assert journal_path().read_bytes() == before


def test_a_study_in_a_database(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/studies.db"
    one = search(trials=5, storage=url)
    with pytest.raises(UsageError, match="is not there any more"):
        redtune.report(one.key, tmp_path / "report.html")
    search(trials=3, study="here")  # so that there is a file of studies
    with pytest.raises(UsageError, match="name that with --storage"):
        redtune.report(one.key, tmp_path / "report.html")
    text = redtune.report(one.key, tmp_path / "report.html", storage=url).read_text()
    assert "of 5 asked for" in text


# --- which search -----------------------------------------------------------------------------------------------------


def test_a_search_goes_by_several_names() -> None:
    mine, other = search(trials=3, study="mine"), search(trials=3, p=problem("sum"))
    there = all_searched()
    assert {one.key for one in there} == {mine.key, other.key}
    for name in (mine.key, "mine", mine.study, "max-float32-float32-flat-2p24-any-cold"):
        assert find(name, there) == mine


def test_a_name_that_is_none_gives_the_nearest() -> None:
    search(trials=3, study="evening")
    with pytest.raises(UsageError, match="there is no search 'evning': did you mean 'evening'"):
        redtune.report("evning")


def test_a_name_of_several_gives_their_keys() -> None:
    one, two = search(trials=3), search(trials=3, fixed={"block": 256})
    with pytest.raises(UsageError, match="names 2 searches: ask for one of") as raised:
        redtune.report("max-float32-float32-flat-2p24-any-cold")
    assert one.key in str(raised.value)
    assert two.key in str(raised.value)
    assert two.fixed == {"block": "256"}


def test_nothing_to_report() -> None:
    with pytest.raises(UsageError, match="no search has left anything to report"):
        redtune.report("mine")


def test_the_file_of_studies_is_gone() -> None:
    one = search(trials=3)
    journal_path().unlink()
    with pytest.raises(UsageError, match="is not there any more"):
        redtune.report(one.key)


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    one, path = search(trials=3), tmp_path / "report.html"
    path.write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        redtune.report(one.key, path)
    assert path.read_text() == "mine"
    redtune.report(one.key, path, force=True)
    assert path.read_text().startswith("<!DOCTYPE html>")
    with pytest.raises(UsageError, match="cannot be written"):
        redtune.report(one.key, tmp_path / "no" / "report.html")
    assert {each.name for each in tmp_path.iterdir()} == {"cache", "report.html"}


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report"]) == 0
    assert "no search has left anything to report yet" in capsys.readouterr().out
    one = search(trials=3, study="mine")
    assert cli.main(["report"]) == 0
    assert re.search(rf"{one.key} │ max of 16777216 .*mine", capsys.readouterr().out)
    assert cli.main(["report", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["searches"]
    assert listed["key"] == one.key
    assert len(listed["finalists"]) == len(one.finalists)
    assert cli.main(["report", "mine", "-o", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out == f"written to {tmp_path / 'page.html'}\n"
    assert cli.main(["report", "mine", "-o", str(tmp_path / "page.html")]) == 2
    assert "--force" in capsys.readouterr().err


@pytest.mark.parametrize(
    "p",
    [
        MAX,
        problem("sum", "int8", 1000, determinism="run-to-run"),
        problem("sum", outer=7, n=300),
        problem("sum", outer=7, n=300, inner=5),
        problem("sum", is_compensated=True),
        dataclasses.replace(problem("sum"), accumulate="float64"),
    ],
    ids=str,
)
def test_the_command_on_the_page_is_that_of_the_problem(p: Problem) -> None:
    words = shlex.split(command(search(trials=2, p=p, fixed={"block": 256})))
    given = dict(zip(words[2::2], words[3::2], strict=True))
    shape = tuple(map(int, given["--shape"].split("x"))) if "--shape" in given else None
    n = int(given["--n"]) if "--n" in given else None
    axis = int(given["--axis"]) if "--axis" in given else None
    determinism, accumulate = given.get("--determinism", "any"), given.get("--accumulate")
    made = wanted_problem(given["--op"], given["--dtype"], n, shape, axis, determinism, accumulate)
    assert made == p
    assert given["--fix"] == "block=256"


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_what_is_kept_is_read_again() -> None:
    one = search()
    assert read_searched(path_of(one)) == one
    assert len(one.finalists) >= 2
    assert one.ceiling_us == one.final_ceiling_us == 19.0
    assert one.best is not None
    later = dataclasses.replace(one, best=dataclasses.replace(one.best, ceiling_gbps=one.data_bytes / 25.0 * 1e-3))
    assert later.final_ceiling_us == pytest.approx(25.0)


DAMAGED = {
    "nothing": lambda data: "",
    "half": lambda data: json.dumps(data)[:500],
    "a list": lambda data: "[]",
    "no number": lambda data: json.dumps(data | {"ceiling_us": math.nan}),
    "no time": lambda data: json.dumps(data | {"ceiling_us": -1.0}),
    "an unknown operator": lambda data: json.dumps(data | {"problem": data["problem"] | {"op": "evil"}}),
    "an escape sequence": lambda data: json.dumps(data | {"verdict": "\x1b[2J"}),
    "another study": lambda data: json.dumps(data | {"study": "another"}),
    "too large": lambda data: json.dumps(data | {"verdict": "x" * (1 << 18)}),
    "too deep": lambda data: "[" * 100_000,
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_one_counts_as_absent(kind: str) -> None:
    one = search(trials=3)
    path = path_of(one)
    path.write_text(DAMAGED[kind](json.loads(path.read_text())))
    with pytest.warns(UserWarning, match="counts as absent"):
        assert all_searched() == []


def test_one_of_another_version_counts_as_absent() -> None:
    path = path_of(search(trials=3))
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": format_number() + 1}))
    with pytest.warns(UserWarning, match="another version"):
        assert all_searched() == []


# --- plots ------------------------------------------------------------------------------------------------------------


def numbers(plot: Plot) -> list[float]:
    return [float(n) for shape in plot.shapes for n in re.findall(r"-?\d+(?:\.\d+)?", shape.path)]


def trial(micros: float | None) -> Trial:
    return Trial(config(), "", Verdict.OK if micros else Verdict.WRONG, micros)


@pytest.mark.parametrize("times", [[5.0], [None], [5.0, 5.0], [None, 5.0, 3.0, None], [1e-3, 1e9]], ids=str)
@pytest.mark.parametrize("ceiling", [None, 1.0, 1e4])
def test_any_history_can_be_drawn(times: list[float | None], ceiling: float | None) -> None:
    plot = history([trial(micros) for micros in times], 1 << 20, ceiling)
    assert all(-WIDTH <= value <= WIDTH for value in numbers(plot))


def test_the_best_so_far_only_rises() -> None:
    plot = history([trial(micros) for micros in (9.0, 5.0, 7.0, None, 3.0, 8.0)], 1 << 20, None)
    (best,) = (shape.path for shape in plot.shapes if shape.kind == "best")
    heights = [float(y) for y in re.findall(r"(?:V|M[\d.]+ )([\d.]+)", best)]
    assert len(heights) == 3
    assert heights == sorted(heights, reverse=True)  # up is less in a picture


def test_a_slice_has_a_place_for_each_value() -> None:
    plot = slices("walk", [("tile", 3.0), ("chunk", 5.0), ("tile", 4.0)], "chunk")
    assert [shape.kind for shape in plot.shapes if "dots" in shape.kind] == ["dots winner", "dots right"]
    assert [text.words for text in plot.texts if text.words.isalpha()] == ["chunk", "tile"]


def test_bars_are_as_long_as_their_shares() -> None:
    plot = bars({"a": 0.25, "b": 0.75}, "")
    widths = [float(n) for shape in plot.shapes for n in re.findall(r"h([\d.]+)v", shape.path)]
    assert widths[0] == pytest.approx(3 * widths[1], rel=0.01)
    assert [text.words for text in plot.texts] == ["b", "75%", "a", "25%"]


def test_an_interval_of_no_width_can_be_drawn() -> None:
    finalist = search(trials=3).finalists[0]
    still = dataclasses.replace(finalist, ratio=1.0, low=1.0, high=1.0)
    assert all(0 <= value <= WIDTH for value in numbers(intervals([still], ["1"])))


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 7.3), (0.98, 1.02), (0, 4634), (3, 3), (0, 1e-6)])
def test_ticks_are_round_and_within(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 1 <= len(found) <= 11
    assert all(low - 1e-9 <= tick <= high + 1e-9 * abs(high) for tick in found)
    assert all(len(f"{tick:.6g}") <= 6 for tick in found)
