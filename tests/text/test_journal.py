"""The file of studies: damage by a crash at any moment, a full disk, and many processes at once."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from redtune import journal, store
from redtune.config import Config
from redtune.errors import RedtuneError
from redtune.journal import MAX_LINE, Journal
from redtune.proposals import Proposals
from redtune.types import Trial, Verdict
from tests.text.test_proposals import ON, SPACE, measured, ours, proposals, right

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REDTUNE_CACHE", str(tmp_path))
    store.WARNED.clear()
    return tmp_path


@pytest.fixture
def path(fresh_cache: Path) -> Path:
    return fresh_cache / "studies.journal"


def record(k: int) -> dict[str, Any]:
    return {"op_code": 8, "worker_id": "w", "k": k}


def text(k: int) -> bytes:
    return json.dumps(record(k), separators=(",", ":")).encode()


def read(journal: Journal, after: int = 0) -> list[int]:
    return [record["k"] for record in journal.read_logs(after)]


# --- records and lines ------------------------------------------------------------------------------------------------


def test_records_come_in_order_and_each_once(path: Path) -> None:
    one, other = Journal(path), Journal(path)
    one.append_logs([record(0), record(1)])
    assert (read(one), read(other)) == ([0, 1], [0, 1])
    other.append_logs([record(2)])
    assert (read(one, 2), read(other, 2), read(one, 3)) == ([2], [2], [])
    assert read(Journal(path)) == [0, 1, 2]


def test_a_reader_that_is_stopped_by_a_record_goes_on_behind_it(path: Path) -> None:
    """Optuna raises in the middle where a record of its own makes no sense."""
    one = Journal(path)
    one.append_logs([record(k) for k in range(3)])
    rows = one.read_logs(0)
    assert next(rows)["k"] == 0
    rows.close()  # type: ignore[attr-defined]
    assert read(one, 1) == [1, 2]


LEFT = {
    "blank lines": b"\n\n",
    "half a record": text(7)[:-5],
    "the beginning of one": b'{"op',
    "half a record with its end": text(7)[:-5] + b"\n",
    "two records on one line": text(7) + text(8) + b"\n",
    "half a record, then one on the same line": text(6)[:-9] + text(7) + b"\n",
    "zeros": bytes(5000),
    "not UTF-8": b"\xff\xfe\n",
    "another record of JSON": b'{"op": 3}\n[1]\n',
    "a code that is none": b'{"op_code":"8"}\n{"op_code":true}\n',
    "a line without end": b"x" * (3 * MAX_LINE),
    "nested deeply": b'{"op_code":' + b"[" * 100_000,
}


@pytest.mark.parametrize("kind", LEFT)
def test_whole_records_are_used_and_the_study_goes_on(kind: str, path: Path) -> None:
    """While others have the file open, and for those who open it later."""
    before = Journal(path)
    before.append_logs([record(0)])
    assert read(before) == [0]
    with path.open("ab") as file:
        file.write(LEFT[kind])
    inside = [k for k in (7, 8) if text(k) in LEFT[kind]]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        after = Journal(path)
        after.append_logs([record(1)])
        assert read(after) == [0, *inside, 1]
        assert read(before, 1) == [*inside, 1]
        before.append_logs([record(2)])
        assert read(after, 2 + len(inside)) == [2]
        assert read(Journal(path)) == [0, *inside, 1, 2]
    assert ["was damaged" in str(w.message) for w in caught] == [True]


def test_what_is_being_written_is_waited_for(path: Path) -> None:
    one = Journal(path)
    with path.open("ab") as file:
        file.write(text(0)[:9])
        file.flush()
        assert read(one) == []
        file.write(text(0)[9:] + b"\n")
    assert read(one) == [0]


def test_a_search_goes_on_when_the_file_is_damaged_beside_it(path: Path) -> None:
    source = proposals()
    first = measured(source, 2)
    for damage in (b"\n", text(1)[:-3], bytes(99)):
        with path.open("ab") as file:
            file.write(damage)
        store.WARNED.clear()
        with pytest.warns(UserWarning, match="was damaged"):
            first += measured(source, 2)
    assert set(proposals().known) == set(first)


# --- the disk ---------------------------------------------------------------------------------------------------------


def half_a_line(path: Path, line: bytes, is_lasting: bool = False) -> None:
    with path.open("ab") as file:
        file.write(line[: len(line) // 2])
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("done", [0, 3])
def test_a_disk_that_fills_up_costs_no_finished_trial_and_not_the_search(
    done: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = proposals()
    kept = measured(source, done)
    whole = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(journal, "append_line", half_a_line)
        with pytest.warns(UserWarning, match="No space left") as caught:
            assert len(measured(source, 4)) == 4
        source.close()
    assert len(ours(caught)) == 1
    assert len(source.known) == done + 4
    assert path.read_bytes() == whole, "no half record is left"
    assert set(proposals().known) == set(kept)
    assert set(measured(proposals(), 2)) <= set(proposals().known)


def test_what_was_finished_is_on_the_disk_before_the_search_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what was only asked, a power cut may take the last records."""
    synced: list[int] = []
    monkeypatch.setattr(store.os, "fsync", synced.append)
    source = proposals()
    refused = 0  # what is refused is finished at once
    for done in range(3):
        config, more = source.next()
        refused += len(more)
        assert config is not None
        assert len(synced) == done + refused
        source.tell(right(config))
        assert len(synced) == done + refused + 1


@pytest.mark.parametrize("how", ["unlink", "replace"])
def test_a_file_that_is_taken_away_costs_the_memory_of_the_search_alone(how: str, path: Path) -> None:
    source = proposals()
    measured(source, 2)
    path.unlink()
    if how == "replace":
        measured(proposals("exhaustive"), 1)
    before = path.read_bytes() if path.exists() else b""
    with pytest.warns(UserWarning, match="could not be kept"):
        assert len(measured(source, 3)) == 3
    assert (path.read_bytes() if path.exists() else b"") == before


def test_the_lock_of_a_process_that_was_killed_keeps_nobody_waiting(path: Path) -> None:
    Journal(path)
    holder = multiprocessing.get_context("fork").Process(target=_hold, args=(path,))
    holder.start()
    while not path.with_suffix(".held").exists():
        time.sleep(0.01)
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    start = time.monotonic()
    Journal(path).append_logs([record(0)])
    assert time.monotonic() - start < 5


def _hold(path: Path) -> None:
    with Journal(path)._locked():
        path.with_suffix(".held").touch()
        time.sleep(600)


def test_a_lock_that_is_never_given_costs_the_memory_of_the_search_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = proposals()
    kept = measured(source, 2)
    monkeypatch.setattr(store, "LOCK_TIMEOUT_S", 0.1)
    with Journal(path)._locked(), pytest.warns(UserWarning, match="could not be kept"):
        assert len(measured(source, 2)) == 2
    assert set(proposals().known) == set(kept)


# --- kills, and many at once ------------------------------------------------------------------------------------------


def _measure(folder: Path, name: str, count: int) -> None:
    """One process of a study: says in a file of its own what was finished, right after it was."""
    while not (folder / "go").exists():
        time.sleep(0.001)
    source = Proposals(SPACE, "a study", "random", int(name), None)
    with (folder / name).open("a") as finished:
        for _ in range(count):
            config, _ = source.next()
            if config is None:
                break
            source.tell(right(config))
            finished.write(repr(config) + "\n")
            finished.flush()
    source.close()


def started(folder: Path, count: int, each: int) -> list[Any]:
    folder.mkdir()
    fork = multiprocessing.get_context("fork")
    running = [fork.Process(target=_measure, args=(folder, str(k), each)) for k in range(count)]
    for process in running:
        process.start()
    (folder / "go").touch()
    return running


def finished(folder: Path) -> set[str]:
    lines = (path.read_text().splitlines(keepends=True) for path in folder.iterdir() if path.name != "go")
    return {line.rstrip() for rows in lines for line in rows if line.endswith("\n")}


def test_sixteen_processes_that_begin_one_study_at_once(fresh_cache: Path) -> None:
    folder = fresh_cache / "finished"
    running = started(folder, 16, each=2)
    for process in running:
        process.join()
    assert [process.exitcode for process in running] == [0] * 16
    after = proposals()
    assert {repr(config) for config in after.known} == finished(folder)
    trials = after.study.get_trials(deepcopy=False)
    assert not [trial for trial in trials if not trial.state.is_finished()]
    assert len([trial for trial in trials if trial.value is not None and "trial" in trial.user_attrs]) == 32


def test_processes_killed_at_random_lose_nothing_that_was_finished(
    fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(4)
    folder = fresh_cache / "finished"
    running = started(folder, 8, each=40)
    for process in rng.sample(running, 6):
        time.sleep(rng.uniform(0.0, 0.3))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
    for process in running:
        process.join()
    monkeypatch.setattr("redtune.proposals.ASKING_S", 0.0)  # later: who was killed before it could say who it is
    after = proposals()
    states = [trial.state for trial in after.study.get_trials(deepcopy=False)]
    assert finished(folder) <= {repr(config) for config in after.known}
    assert [process.exitcode for process in running].count(0) >= 2
    assert all(state.is_finished() for state in states)
    assert len(set(measured(after, 3))) == 3


def test_a_trial_that_another_process_took_for_dead_is_told_all_the_same() -> None:
    """Processes on two machines of one name, or in two containers, do not see each other."""
    source = proposals()
    config, _ = source.next()
    assert config is not None
    (trial,) = source.study.get_trials(deepcopy=False)
    proposals().study.tell(trial.number, state=TrialState.FAIL)
    source.tell(right(config))
    assert proposals().known == {config: right(config)}


@pytest.mark.parametrize("what", [b"a text, not a database\n" * 1000, b""], ids=["overwritten", "emptied"])
def test_a_database_that_fails_in_the_middle_is_one_sentence(what: bytes, tmp_path: Path) -> None:
    path = tmp_path / "studies.db"
    source = proposals(storage=f"sqlite:///{path}")
    measured(source, 1)
    path.write_bytes(what)
    with pytest.raises(RedtuneError, match="the storage of the study failed") as caught:
        measured(source, 2)
    assert len(str(caught.value).splitlines()) == 1


# --- configs that crashed ---------------------------------------------------------------------------------------------


def crashed(config: Config) -> Trial:
    return Trial(config, "", Verdict.CRASHED, note="the process ended with signal SIGSEGV")


def test_a_config_that_crashed_once_is_tried_again_and_one_that_crashed_twice_is_not() -> None:
    config = next(SPACE.walk())
    for times in (1, 2):
        source = proposals()
        assert source.adopt(config), "in the same call it would not be"
        source.tell(crashed(config))
        assert not source.adopt(config)
        again = proposals()
        assert again.once_crashed == ([config] if times == 1 else [])
        assert again.queue([config]) == ([config] if times == 1 else [])
    assert proposals().known == {config: crashed(config)}


def test_a_config_that_was_right_the_second_time_is_known_for_that() -> None:
    config = next(SPACE.walk())
    for trial in (crashed(config), right(config)):
        source = proposals()
        source.adopt(config)
        source.tell(trial)
    assert proposals().known == {config: right(config)}
    assert proposals().once_crashed == []


def test_a_sampler_that_asks_for_it_again_makes_no_second_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    source = proposals("random")
    (config,) = measured(source, 1)
    source.revise(crashed(config))
    monkeypatch.setattr(source, "suggest", lambda trial: config)
    for _ in range(5):
        source._ask()
    assert proposals().once_crashed == [config]


def test_the_last_word_on_a_config_counts() -> None:
    source = proposals()
    (config,) = measured(source, 1)
    wrong = Trial(config, "", Verdict.WRONG, note="in the finals: off by one")
    source.revise(wrong)
    assert source.known == proposals().known == {config: wrong}


# --- what is believed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"micros": 0.0},
        {"micros": -3.0},
        {"micros": float("nan")},
        {"micros": float("inf")},
        {"micros": None},
        {"spread_us": -1.0},
        {"verdict": "WRONG"},
        {"verdict": "BEST"},
        {"config": {**store.as_json(Config()), "block": 7}},
        {"config": {**store.as_json(Config()), "vector": 16}},
        {"config": {**store.as_json(Config()), "block": "256; rm"}},
    ],
    ids=str,
)
def test_a_record_that_no_search_can_have_written_is_not_believed(changes: dict[str, Any]) -> None:
    source = proposals()
    asked = source.study.ask()
    asked.set_user_attr("trial", json.dumps(store.as_json(right(Config())) | changes))
    source.study.tell(asked, 1.0)
    source.close()
    assert proposals().known == {}


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        (r"\"no_allocate\"", r"\"another\""),  # choices of a knob that has others
        (r"\"name\": \"CategoricalDistribution\"", r"\"name\": \"IntDistribution\""),
        (r"\"high\": 9", r"\"high\": 3"),
        ('"values":[100.0]', '"values":[NaN]'),
        ('"values":[100.0]', '"values":[-Infinity]'),
        ('"values":[100.0]', '"values":["fast"]'),
        ('"values":[100.0]', '"values":[1, 2]'),
    ],
)
def test_records_that_a_sampler_makes_nothing_of_end_no_search(was: str, becomes: str, path: Path) -> None:
    measured(proposals(), 14)
    whole = path.read_text()
    assert was in whole
    path.write_text(whole.replace(was, becomes))
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        new = measured(proposals(), 8)
        after = proposals()
    assert len(set(new)) == 8
    assert set(new) <= set(after.known)
    assert all(trial.state.is_finished() for trial in after.study.get_trials(deepcopy=False) if trial.number > 13)


def test_a_note_from_a_file_cannot_steer_a_terminal() -> None:
    source = proposals()
    config = next(SPACE.walk())
    source.adopt(config)
    source.tell(Trial(config, "", Verdict.WRONG, note="\x1b]0;mine\x07 and \u202eno"))
    assert proposals().known[config].note.isprintable()


def test_the_journal_is_what_a_search_without_a_storage_uses(path: Path) -> None:
    measured(proposals(), 1)
    assert isinstance(proposals().study._storage._backend, journal.Journal)  # type: ignore[attr-defined]
    assert all(type(json.loads(line)["op_code"]) is int for line in path.read_bytes().splitlines())
    assert ON.device.backend == "cuda"
