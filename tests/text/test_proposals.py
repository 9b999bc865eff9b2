"""Where configs come from: samplers, studies that outlive a process, and many processes in one study."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from redtune import store
from redtune.config import KNOBS, Config, default_of, is_read, settled
from redtune.errors import BackendMissing, UsageError
from redtune.proposals import SAMPLERS, Proposals, make_sampler, open_storage
from redtune.space import Space, make_space
from redtune.types import Trial, Verdict
from tests.text.kernels import problem, target

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")

ROOT = Path(__file__).parents[2]
ON = target("cuda")
SPACE = make_space(problem("max"), ON.dialect, ON.device, {"items": 4})
EXTRAS = {"gp": ("torch", "scipy"), "cmaes": ("cmaes",)}
DEAD = 2**22 + 1  # above Linux's largest process id


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REDTUNE_CACHE", str(tmp_path))
    store.WARNED.clear()
    return tmp_path


def proposals(sampler: str = "tpe", space: Space = SPACE, storage: str | None = None) -> Proposals:
    return Proposals(space, "a study", sampler, 0, storage)


def right(config: Config, micros: float = 100.0) -> Trial:
    return Trial(config, "", Verdict.OK, micros, 1.0, 0.0)


def measured(source: Proposals, count: int) -> list[Config]:
    configs = []
    for _ in range(count):
        config, _ = source.next()
        assert config is not None
        source.tell(right(config))
        configs.append(config)
    return configs


def ours(caught: pytest.WarningsRecorder) -> list[str]:
    """The warnings that are not Optuna's."""
    return [str(w.message) for w in caught if not issubclass(w.category, optuna.exceptions.ExperimentalWarning)]


# --- samplers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_gives_legal_configs_once(sampler: str) -> None:
    for package in EXTRAS.get(sampler, ()):
        pytest.importorskip(package, reason=f"the sampler {sampler} needs {package}")
    configs = measured(proposals(sampler), 20)
    assert len(set(configs)) == 20
    assert not [c for c in configs if SPACE.refusals(c)]


@pytest.mark.parametrize("sampler", EXTRAS)
def test_a_sampler_without_its_package_names_the_extra(sampler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in EXTRAS[sampler]:
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BackendMissing) as caught:
        make_sampler(sampler, 0)
    assert f"pip install 'redtune[{sampler}]'" in str(caught.value)
    assert any(package in str(caught.value) for package in EXTRAS[sampler])


def differing(one: Config, other: Config) -> set[str]:
    """The knobs in which two configs differ, but for those that have no effect in either."""
    return {name for name in KNOBS if getattr(one, name) != getattr(other, name) and is_read(name, other)}


def test_every_other_proposal_of_tpe_is_one_step_from_one_of_the_best() -> None:
    source = proposals()
    best = Config(block=256, vector=4, items=4, walk="tile")
    assert source.adopt(best)
    source.tell(right(best, 1.0))
    given = measured(source, 8)
    assert all(len(differing(best, config) - {"blocks_per_cu"}) == 1 for config in given[1::2])
    near = {name: SPACE.admitted[name].index(getattr(best, name)) for name in ("block", "vector")}
    for config in given[1::2]:
        for name, at in near.items():
            assert abs(SPACE.admitted[name].index(getattr(config, name)) - at) <= 1
    # Where nothing beside the best is left, the sampler goes on alone.
    assert len(set(measured(source, 60))) == 60


def test_an_unknown_sampler_gives_the_nearest_and_the_list() -> None:
    with pytest.raises(UsageError, match="did you mean 'random'") as caught:
        make_sampler("randon", 0)
    assert all(name in str(caught.value) for name in SAMPLERS)


def test_the_exhaustive_sampler_walks_in_order() -> None:
    walk = SPACE.walk()
    assert measured(proposals("exhaustive"), 10) == [next(walk) for _ in range(10)]


@pytest.mark.parametrize("sampler", ["tpe", "random", "exhaustive"])
def test_nothing_is_proposed_when_all_is_known(sampler: str) -> None:
    fixed: dict[str, Any] = {name: getattr(Config(), name) for name in ("block", "vector", "walk", "wave", "hint")}
    fixed |= {"items": 1, "accumulators": 1, "exchange": "shuffle", "combine": "last_block", "blocks_per_cu": 2}
    space = make_space(problem("max"), ON.dialect, ON.device, fixed)
    assert len(list(space.walk())) == 1
    source = proposals(sampler, space)
    assert len(measured(source, 1)) == 1
    assert source.next()[0] is None


# --- values there and back --------------------------------------------------------------------------------------------


def test_a_config_becomes_values_and_comes_back() -> None:
    source = proposals()
    rng = random.Random(7)
    for config in filter(None, (SPACE.draw(rng) for _ in range(25))):
        values = source.parameters(config)
        assert values is not None
        assert source.suggest(optuna.trial.FixedTrial(values)) == config
        assert set(values) == {n for n, options in SPACE.admitted.items() if is_read(n, config) and len(options) > 1}


def test_a_knob_without_effect_stays_at_its_default() -> None:
    for config in measured(proposals("random"), 20):
        assert config == settled(config)
        assert config.tree == default_of("tree") or config.exchange == "lds"


def test_the_queue_drops_what_is_known_illegal_or_twice() -> None:
    source = proposals()
    first, second = measured(proposals("exhaustive"), 2)
    source.known[first] = right(first)
    illegal = Config(block=96, exchange="lds")
    assert SPACE.refusals(illegal)
    outside = Config(vector=16)  # a load of 64 bytes
    assert source.queue([first, second, second, illegal, outside]) == [second]


def test_a_config_on_its_way_is_not_adopted_again() -> None:
    source = proposals()
    assert source.adopt(Config())
    assert not source.adopt(Config())
    source.tell(right(Config()))
    assert not source.adopt(Config())


# --- what the study holds ---------------------------------------------------------------------------------------------


def states(source: Proposals) -> list[TrialState]:
    return [t.state for t in source.study.get_trials(deepcopy=False)]


@pytest.mark.parametrize("verdict", [v for v in Verdict if v not in (Verdict.OK, Verdict.REFUSED)])
def test_a_failure_is_a_failed_state_with_its_reason(verdict: Verdict) -> None:
    source = proposals()
    config, _ = source.next()
    assert config is not None
    failed = Trial(config, "", verdict, note="why it failed")
    source.tell(failed)
    trial = source.study.get_trials(deepcopy=False)[-1]
    assert trial.state == TrialState.FAIL
    assert trial.value is None
    assert "why it failed" in trial.user_attrs["trial"]
    if verdict != Verdict.CRASHED:  # which gets another chance: see below
        assert proposals().known == {config: failed}


def test_what_was_asked_and_not_measured_is_ended() -> None:
    source = proposals()
    assert source.next()[0] is not None
    assert states(source) == [TrialState.RUNNING]
    source.close()
    assert states(source) == [TrialState.FAIL]
    assert proposals().known == {}


def test_a_running_trial_of_a_dead_process_is_ended_and_one_of_a_living_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = proposals()
    finished = measured(source, 2)
    done = len(states(source))
    owners = (f"{socket.gethostname()}:{DEAD}", f"{socket.gethostname()}:{os.getppid()}", "elsewhere.example:77", "")
    for owner in owners:
        source.study.ask().set_user_attr("owner", owner)
    source.study.ask()  # asked just now: whoever did may be about to say who
    again = proposals()
    assert set(again.known) == set(finished)
    ended, left = TrialState.FAIL, TrialState.RUNNING
    assert states(again)[done:] == [ended, left, left, ended, left]
    monkeypatch.setattr("redtune.proposals.ASKING_S", 0.0)  # much later: it was killed before it could
    assert states(proposals())[done:] == [ended, left, left, ended, ended]


@pytest.mark.parametrize("sampler", ["tpe", "exhaustive"])
def test_a_config_left_waiting_by_a_killed_process_blocks_nothing(sampler: str) -> None:
    """A process that dies between queueing a config and asking for it leaves it to whoever asks next."""
    source = proposals(sampler)
    walk = SPACE.walk()
    lost, wanted = next(walk), next(walk)
    values = source.parameters(lost)
    assert values is not None
    source.study.enqueue_trial(values)
    again = proposals(sampler)
    assert again.adopt(wanted)
    assert len(set(measured(again, 3))) == 3


def test_a_record_that_cannot_be_read_counts_for_nothing() -> None:
    source = proposals()
    kept = measured(source, 1)
    for text in ("not json", "{}", "[]", '{"config": 3}'):
        trial = source.study.ask()
        trial.set_user_attr("trial", text)
        source.study.tell(trial, 1.0)
    assert list(proposals().known) == kept


# --- storage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["nonsense", "", "sqlite:////no/such/folder/x.db", "nosuchdb://host/x", "postgresql://localhost:1/none"]
)
def test_a_storage_that_does_not_open_is_named_in_one_line(url: str) -> None:
    with pytest.raises(UsageError, match="does not open") as caught:
        proposals(storage=url)
    assert repr(url) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_database_that_is_none_is_named_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("a text, not a database\n" * 100)
    with pytest.raises(UsageError, match="does not open") as caught:
        proposals(storage=f"sqlite:///{path}")
    assert "\n" not in str(caught.value)
    assert path.read_text().startswith("a text")


def test_a_database_keeps_a_study(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'with space.db'}"
    configs = measured(proposals(storage=url), 3)
    assert set(proposals(storage=url).known) == set(configs)
    assert proposals().known == {}


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(b"\x00\xff\xfe garbage\n" * 3, id="binary"),
        pytest.param(b"[1, 2]\n", id="a list"),
        pytest.param(b"17\n", id="a number"),
        pytest.param(b'{"worker_id": "x"}\n', id="no code"),
        pytest.param(b"null\nnull\n", id="null"),
    ],
)
def test_a_damaged_study_file_is_read_around_with_one_warning(damage: bytes, fresh_cache: Path) -> None:
    measured(proposals(), 1)
    path = fresh_cache / "studies.journal"
    damaged = damage + path.read_bytes() + damage[:-1]
    path.write_bytes(damaged)
    with pytest.warns(UserWarning, match="was damaged") as caught:
        source = proposals()
    assert len(source.known) == 1, "whole records are kept"
    assert measured(source, 1)
    assert len(ours(caught)) == 1
    assert path.read_bytes().startswith(damaged), "nothing that was there is written over"
    assert len(proposals().known) == 2


def test_a_study_file_that_makes_no_sense_is_set_aside_with_one_warning(fresh_cache: Path) -> None:
    """Whole records, but of a kind that no version wrote."""
    path = fresh_cache / "studies.journal"
    path.write_bytes(b'{"op_code": 99}\n')
    with pytest.warns(UserWarning, match="made no sense") as caught:
        source = proposals()
    assert len(ours(caught)) == 1
    assert measured(source, 1)
    assert path.with_name("studies.journal.damaged").read_bytes() == b'{"op_code": 99}\n'
    assert len(proposals().known) == 1


@pytest.mark.parametrize("keep", [0, 1, -1, -20])
def test_a_study_file_cut_short_loses_no_more_than_its_end(keep: int, fresh_cache: Path) -> None:
    """What a full disk or a power cut leaves. A line cut in two may cost the study, never the search."""
    measured(proposals(), 3)
    path = fresh_cache / "studies.journal"
    path.write_bytes(path.read_bytes()[:keep])
    store.WARNED.clear()
    source = proposals()
    before = set(source.known)
    new = measured(source, 2)
    assert not before & set(new)
    assert set(proposals().known) == before | set(new)


def test_a_folder_that_cannot_be_made_means_no_memory_and_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REDTUNE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.warns(UserWarning, match="could not be kept") as caught:
        measured(proposals(), 2)
    assert proposals().known == {}
    assert len(ours(caught)) == 1


# --- many at once -----------------------------------------------------------------------------------------------------


def left_by_a_dead_process(count: int) -> None:
    """Trials that everyone who opens the study will want to end."""
    source = proposals()
    for _ in range(count):
        source.study.ask().set_user_attr("owner", f"{socket.gethostname()}:{DEAD}")


def test_threads_that_open_one_study_at_once() -> None:
    left_by_a_dead_process(5)
    errors: list[BaseException] = []
    start = threading.Barrier(16)

    def opened() -> None:
        start.wait()
        try:
            proposals("random")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=opened) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert states(proposals()) == [TrialState.FAIL] * 5


# Each process opens the study when all are there, adopts a queue that all have, and measures three more.
SHARED = """
import sys, time
from pathlib import Path
from tests.text.test_proposals import *

mine = Path(sys.argv[1]) / sys.argv[2]
mine.touch()
while len(list(mine.parent.iterdir())) < 4:
    time.sleep(0.01)
source = proposals("random")
walk = SPACE.walk()
for config in [next(walk) for _ in range(4)]:
    if source.adopt(config):
        source.tell(right(config))
measured(source, 3)
source.close()
"""


def test_processes_that_share_one_study(tmp_path: Path) -> None:
    left_by_a_dead_process(5)
    ready = tmp_path / "ready"
    ready.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = [
        subprocess.Popen([sys.executable, "-c", SHARED, str(ready), str(k)], env=environment, stderr=subprocess.PIPE)
        for k in range(4)
    ]
    for process in running:
        assert process.communicate()[1] == b""
        assert process.returncode == 0
    after = proposals()
    walk = SPACE.walk()
    assert {next(walk) for _ in range(4)} <= set(after.known)
    assert TrialState.RUNNING not in states(after)
    assert TrialState.WAITING not in states(after)


def test_two_searches_in_one_process_do_not_end_each_others_trials() -> None:
    first = proposals("random")
    config, _ = first.next()
    assert config is not None
    proposals("random")
    first.tell(right(config))
    assert set(proposals().known) == {config}


def test_the_storage_of_no_url_is_a_file_in_the_cache(fresh_cache: Path) -> None:
    open_storage(None)
    proposals()
    assert (fresh_cache / "studies.journal").is_file()
