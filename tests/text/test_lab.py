"""Workers that die, hang or talk nonsense at every job of a search: what it costs, and that no trial is lost."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from redtune import api, store
from redtune.config import Config
from redtune.defaults import default_config, starting_points
from redtune.errors import BackendMissing, CompileError, RedtuneError
from redtune.lab import Lab, list_devices
from redtune.outcome import Report
from redtune.preparing import Request, _first_that_compiles
from redtune.process import WorkerDied
from redtune.readers import reading_kernels
from redtune.render import render
from redtune.sidebyside import compare_libraries
from redtune.tuner import NothingVerified, Search
from redtune.types import Best, Kernel, Verdict
from tests.text.kernels import problem, target
from tests.text.scripted import TIMING

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")

GPU = target("cuda")
MAX = problem("max")
SCRIPT = Path(__file__).with_name("scripted.py")
Plan = Callable[..., None]


def no_nvcc() -> str:
    raise BackendMissing("CUB needs nvcc on PATH")


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """`plan(trial=["die"])` says what workers do from now on."""
    monkeypatch.setenv("REDTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("redtune.lab.MAX_COMPILERS", 1)
    monkeypatch.setattr("redtune.cub.nvcc", no_nvcc)
    for limit in ("COMPILE_LIMIT_S", "TRIAL_LIMIT_S", "INPUTS_LIMIT_S", "FINALS_LIMIT_S", "DEVICES_LIMIT_S"):
        monkeypatch.setattr(f"redtune.lab.{limit}", 30.0)
    store.WARNED.clear()
    path = tmp_path / "plan.json"
    command = [sys.executable, "-S", "-E", str(SCRIPT), str(path)], {"PYTHONPATH": ""}
    monkeypatch.setattr("redtune.process.command", lambda: command)

    def write(**steps: list[str]) -> None:
        for calls in tmp_path.glob("plan.*"):
            calls.unlink()
        path.write_text(json.dumps(steps))

    write()
    return write


def search(trials: int = 4) -> Search:
    return Search(MAX, GPU.device, trials=trials, time_limit_s=3600)


def verdicts(report: Report) -> dict[str, int]:
    return {name: count for name, count in report.verdicts().items() if name != "REFUSED"}


def kernel() -> Kernel:
    return render(MAX, default_config(MAX, GPU.dialect, GPU.device), GPU.dialect, GPU.device)


def said(**changes: Any) -> str:
    """A trial of another kernel, or one that is none."""
    trial = {"config": {}, "digest": "", "verdict": "OK", "micros": 1.0}
    return json.dumps({"trial": trial | changes})


NONSENSE = ["nonsense", "[]", "{}", '{"error": 3}', '{"error": "it failed", "kind": ["x"]}', '{"crashed": {"a": 1}}']


# --- one job ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("do", "verdict", "note"),
    [
        ("die", Verdict.CRASHED, "the compiler crashed: the process ended with signal SIGKILL"),
        ("hang", Verdict.TIMED_OUT, "the compiler took longer than 0.4 s"),
        ('{"done": false, "refused": "no such word"}', Verdict.NOT_COMPILED, "no such word"),
        *((text, Verdict.CRASHED, "the worker answered") for text in ("nonsense", "{}", '{"done": true}')),
        *(('{"done": true, "binary": %s}' % b, Verdict.CRASHED, "makes no sense") for b in ("3", '"*"', "null")),  # noqa: UP031
    ],
)
def test_a_compiler_that_dies_hangs_or_talks_nonsense_costs_one_kernel(
    do: str, verdict: Verdict, note: str, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(compile=[do])
    monkeypatch.setattr("redtune.lab.COMPILE_LIMIT_S", 0.4 if do == "hang" else 30.0)
    with Lab(GPU.device, MAX) as lab:
        failed = lab.compile(kernel())
        assert (failed.binary, failed.verdict) == (None, verdict)
        assert note in failed.note
        trial = lab.trial(failed, None)
        assert (trial.verdict, trial.note) == (verdict, failed.note)
        monkeypatch.setattr("redtune.lab.COMPILE_LIMIT_S", 30.0)
        assert lab.compile(kernel()).binary == "AAAA"


@pytest.mark.parametrize(
    "do", [said(), said(micros="1"), said(verdict="BEST"), '{"trial": 3}', '{"trial": null}', "{}"]
)
def test_a_trial_that_is_none_of_this_kernel_is_a_crash(do: str, plan: Plan) -> None:
    plan(trial=[do])
    with Lab(GPU.device, MAX) as lab:
        compiled = lab.compile(kernel())
        trial = lab.trial(compiled, None)
        assert trial.verdict == Verdict.CRASHED
        assert "the worker answered" in trial.note
        assert lab.trial(compiled, None).verdict == Verdict.OK


@pytest.mark.parametrize("do", ["die", "hang", *NONSENSE, '{"devices": 3}', '{"devices": [{"name": "x"}]}'])
def test_a_worker_that_cannot_list_devices_is_a_backend_that_is_missing(
    do: str, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(devices=[do] * 2)
    monkeypatch.setattr("redtune.lab.DEVICES_LIMIT_S", 0.4 if do == "hang" else 30.0)
    with pytest.raises(RedtuneError) as caught:
        list_devices("opencl")
    assert len(str(caught.value).splitlines()) == 1
    plan(devices=["die"])
    monkeypatch.setattr("redtune.lab.DEVICES_LIMIT_S", 30.0)
    assert list_devices("opencl") == [], "of one death nothing is said"


@pytest.mark.parametrize("lie", [0.0, -1.0, float("nan"), float("inf")])
def test_a_clock_that_shows_no_time_is_no_ceiling(lie: float, plan: Plan) -> None:
    wrong = TIMING | {"median_us": lie}
    count = len(list(reading_kernels(GPU.device, GPU.dialect, 1 << 20)))
    plan(ceiling=[json.dumps({"timings": [wrong] * count})], copy=[json.dumps({"timing": wrong})])
    with Lab(GPU.device, MAX) as lab:
        with pytest.raises(RedtuneError, match="shows no time"):
            lab.copy(1 << 20)
        with pytest.raises(RedtuneError, match="shows no time"):
            lab.ceiling(1 << 20)
        assert lab.ceiling(1 << 20).median_us == TIMING["median_us"]


# --- a search ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "do"), [*((job, "die") for job in ("open", "inputs", "ceiling", "finals")), ("ceiling", "nonsense")]
)
def test_a_worker_killed_once_beside_the_candidates_costs_the_search_nothing(job: str, do: str, plan: Plan) -> None:
    plan(**{job: [do]})
    report = search().run()
    assert verdicts(report) == {"OK": 4}
    assert report.is_saved


@pytest.mark.parametrize("do", ["die", "nonsense"])
def test_a_worker_killed_in_a_trial_costs_that_trial_until_the_next_call(do: str, plan: Plan) -> None:
    plan(trial=["right", do])
    assert verdicts(search().run()) == {"OK": 3, "CRASHED": 1}
    again = search()
    assert again.report.resumed == 3
    assert verdicts(again.run()) == {"OK": 4}


def test_a_config_that_crashes_twice_is_not_tried_a_third_time(plan: Plan) -> None:
    for resumed in (0, 3):
        plan(trial=["right", "die"] if not resumed else ["die"])
        once = search()
        assert once.report.resumed == resumed
        assert verdicts(once.run()) == {"OK": 3, "CRASHED": 1}
    plan(trial=["die"])
    last = search()
    assert last.report.resumed == 4
    assert verdicts(last.run()) == {"OK": 3, "CRASHED": 1}


def test_a_finalist_that_kills_twice_is_the_suspect(plan: Plan) -> None:
    plan(finals=["die", "die"])
    report = search().run()
    assert verdicts(report) == {"OK": 3, "CRASHED": 1}
    assert "in the finals" in report.first_failures()["CRASHED"].note
    assert report.is_saved


@pytest.mark.parametrize(
    ("job", "do", "raised"),
    [
        ("open", '{"error": "the device is gone", "kind": "BackendMissing"}', BackendMissing),
        ("inputs", "die", WorkerDied),
    ],
)
def test_a_device_that_disappears_ends_the_search_and_loses_no_trial(
    job: str, do: str, raised: type[RedtuneError], plan: Plan
) -> None:
    # Both are asked once, then again after the candidate that took the device along, and again.
    plan(trial=["right", "right", "die"], **{job: ["right", do, do, do]})
    with pytest.raises(raised) as caught:
        search(6).run()
    assert len(str(caught.value).splitlines()) == 1
    assert not isinstance(caught.value, NothingVerified)
    plan()
    again = search(6)
    assert again.report.resumed == 2
    assert len(again.proposals.once_crashed) == 1
    assert verdicts(again.run()) == {"OK": 6}


@pytest.mark.parametrize(
    ("job", "text"),
    [
        *(("finals", text) for text in NONSENSE),
        ("open", "[]"),
        ("inputs", "{}"),
        ("ceiling", "nonsense"),
        ("trial", "{}"),
    ],
)
def test_nonsense_at_every_call_ends_in_one_sentence(job: str, text: str, plan: Plan) -> None:
    plan(**{job: [text] * 30})
    with pytest.raises(RedtuneError) as caught:
        search(2).run()
    assert len(str(caught.value).splitlines()) == 1


# --- a stored config that the compiler of today fails on --------------------------------------------------------------

REFUSED = '{"done": false, "refused": "no such word"}'


@pytest.fixture
def stored(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Best:
    """The winner of a search, made with another compiler."""
    plan()
    best = search().run().best
    assert best is not None
    older = dataclasses.replace(best, device=dataclasses.replace(GPU.device, toolchain="an older one"))
    assert store.save(older)
    monkeypatch.setattr("redtune.lab.find_device", lambda backend, index: GPU.device)
    return older


@pytest.mark.parametrize("do", [REFUSED, "die"])
@pytest.mark.usefixtures("stored")
def test_a_file_is_reduced_with_another_config_then(do: str, plan: Plan, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(1 << 20, np.float32))
    plan(compile=[do])
    with pytest.warns(UserWarning, match="did not compile, another one runs"):
        found = api.reduce_file(str(tmp_path / "x.npy"), "max")
    assert (found["value"], found["origin"]) == (7.0, "a default that compiles")
    plan(compile=[do] * 30)
    with pytest.raises(RedtuneError, match="no config of max compiles"):
        api.reduce_file(str(tmp_path / "x.npy"), "max")


def test_an_array_is_reduced_with_another_config_then(stored: Best) -> None:
    tried: list[Config] = []

    def load(kernel: Kernel) -> str:
        tried.append(kernel.config)
        if len(tried) == 1:
            raise CompileError("no such word", kernel.source)
        return "a program"

    engine: Any = SimpleNamespace(device=GPU.device, backend=SimpleNamespace(dialect=GPU.dialect), load=load)
    request = Request("max", "", None, None, False, 0, "any", None, None)
    with pytest.warns(UserWarning, match="another config runs"):
        config, origin, program = _first_that_compiles(request, MAX, engine)
    assert tried == [stored.config, config]
    assert (origin, program) == ("a default that compiles", "a program")


@pytest.mark.usefixtures("stored")
def test_a_search_goes_on_from_what_compiles(plan: Plan) -> None:
    plan(compile=["right"] * len(list(reading_kernels(GPU.device, GPU.dialect, MAX.n * 4))) + [REFUSED])
    report = search(6).run()
    assert report.best is not None
    assert report.is_saved


def test_a_comparison_leaves_it_out_and_says_so(stored: Best, plan: Plan) -> None:
    other = next(c for c in starting_points(MAX, GPU.dialect, GPU.device) if c != stored.config)
    assert store.save(dataclasses.replace(stored, config=other))
    plan(compile=[REFUSED])
    found = compare_libraries(MAX, GPU.device)
    assert [row.name for row in found.rows] == ["redtune, default"]
    assert ("redtune, tuned here, with another driver or compiler", "did not compile: no such word") in found.absent
    plan(compile=[REFUSED] * 2)
    with pytest.raises(RedtuneError, match="no config to compare with compiles"):
        compare_libraries(MAX, GPU.device)


@pytest.mark.parametrize("lie", [0.0, -1.0, float("nan")])
def test_a_comparison_by_a_clock_that_shows_no_time_is_none(lie: float, plan: Plan) -> None:
    said = {"timed": [{"group": "kernel", "name": "kernel 0", "types": "", "samples": [1e-4] * 14 + [lie]}]}
    plan(beside=[json.dumps(said | {"absent": [], "answers": []})])
    with pytest.raises(RedtuneError, match="the clock showed no time"):
        compare_libraries(MAX, GPU.device)
