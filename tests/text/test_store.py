"""Tuned configs on disk: what is written comes back, and nothing that lies there can do harm."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from redtune import store
from redtune.config import Config
from redtune.defaults import default_config
from redtune.errors import UsageError
from redtune.refusals import refusals
from redtune.types import Best, Trial, Verdict, as_json, from_json
from tests.text.kernels import Target, config, problem, target
from tests.text.shipping import ship

GPU = target("cuda")
CPU = target("opencl")
MAX = problem("max")
TUNED = config(block=128, items=8)


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "a cache"
    monkeypatch.setenv("REDTUNE_CACHE", str(folder))
    store.WARNED.clear()
    return folder


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shipped"
    monkeypatch.setattr(store, "shipped_path", lambda: folder)
    return folder


def best(on: Target = GPU, c: Config = TUNED, p: Any = MAX, **changes: Any) -> Best:
    entry = Best(
        problem=p,
        device=on.device,
        config=c,
        median_us=10.5,
        spread_us=0.25,
        runner_up_us=None,
        default_us=20.0,
        worst_us=1e6,
        baseline_us=None,
        baseline="",
        gbps=1e3,
        ceiling_gbps=None,
        temperature="cold",
        determinism="run-to-run",
        trials=3,
        seed=0,
        found="2026-01-01T00:00:00+00:00",
        versions={"python": "3.11", "label": "\u00fcn\u00efc\u00f6de: yes"},
        templates=store.templates_digest(),
        format=store.format_number(),
    )
    return dataclasses.replace(entry, **changes)


def saved(entry: Best | None = None) -> Path:
    entry = entry or best()
    assert store.save(entry)
    return store.user_path(entry.problem, entry.device, entry.temperature)


# --- there and back ---------------------------------------------------------------------------------------------------


def test_what_was_saved_comes_back() -> None:
    saved()
    found = store.lookup(MAX, GPU.dialect, GPU.device)
    assert found.best == best()
    assert found.config == TUNED
    assert found.origin == "tuned here"


def test_nothing_but_the_entry_and_its_lock_is_left() -> None:
    path = saved()
    assert {p.name for p in path.parent.iterdir()} <= {path.name, f"{path.name}.lock"}


def test_the_last_one_stands() -> None:
    saved()
    saved(best(c=config(block=512)))
    assert store.lookup(MAX, GPU.dialect, GPU.device).config == config(block=512)


@pytest.mark.parametrize("n", [1, 2, 3, 33, 48, 1000, 2**24, 2**31 - 1, 2**40])
def test_an_entry_of_any_size_is_found_again(n: int) -> None:
    p = problem("max", n=n)
    entry = best(p=p, c=config(block=32, walk="stride"))
    saved(entry)
    assert store.lookup(p, GPU.dialect, GPU.device).best == entry


@pytest.mark.parametrize(
    "changes",
    [
        {"p": problem("min")},
        {"p": problem("max", "float64")},
        {"p": problem("max", determinism="run-to-run")},
        {"temperature": "warm"},
        {"on": target("hip")},
    ],
)
def test_an_entry_for_something_else_is_not_taken(changes: dict[str, Any]) -> None:
    saved(best(**changes))
    assert store.lookup(MAX, GPU.dialect, GPU.device).best is None


def test_the_variable_moves_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved()
    monkeypatch.setenv("REDTUNE_CACHE", str(tmp_path / "another place"))
    assert store.lookup(MAX, GPU.dialect, GPU.device).best is None
    path = saved()
    assert tmp_path / "another place" in path.parents
    assert path.is_file()
    monkeypatch.delenv("REDTUNE_CACHE")
    assert tmp_path not in store.cache_path().parents


@pytest.mark.parametrize("arch", ["gfx90a:sramecc+:xnack-", "a b/../../c", "..", "\u00e4rch", "C:\\x|y?*"])
def test_an_architecture_of_any_name_stays_in_the_cache(arch: str, fresh_cache: Path) -> None:
    on = target("opencl", arch)
    path = saved(best(on))
    assert path.resolve().parent.parent == (fresh_cache / "configs").resolve()
    assert store.lookup(MAX, on.dialect, on.device).best == best(on)


# --- where a config comes from ----------------------------------------------------------------------------------------


def test_the_order_of_lookup(shipped: Path, fresh_cache: Path) -> None:
    """Each source answers when the ones before it are gone."""
    near, other = problem("max", n=1 << 22), target("cuda", "sm_80")
    sources = [
        ("tuned here", saved(best(c=config(block=64)))),
        ("shipped", here := ship(shipped, MAX, config(block=96), GPU)),
        ("tuned here for about 2^22 elements", saved(best(c=config(block=128), p=near))),
        ("shipped for about 2^22 elements", here),
        ("tuned on sm_80, the nearest architecture", saved(best(other, config(block=384)))),
        ("shipped for sm_80, the nearest architecture", ship(shipped, MAX, config(block=512), other)),
    ]
    for k, (origin, path) in enumerate(sources):
        found = store.lookup(MAX, GPU.dialect, GPU.device)
        assert found.origin == origin
        assert found.config.block == (64, 96, 128, 192, 384, 512)[k]
        path.unlink()
        if origin == "shipped":
            ship(shipped, near, config(block=192), GPU)
    last = store.lookup(MAX, GPU.dialect, GPU.device)
    assert (last.config, last.best) == (default_config(MAX, GPU.dialect, GPU.device), None)
    assert "default" in last.origin


def test_the_nearest_size_wins() -> None:
    for bucket, block in ((20, 64), (26, 128), (10, 512)):
        saved(best(p=problem("max", n=1 << bucket), c=config(block=block)))
    for n, block in ((1 << 21, 64), (1 << 28, 128), (33, 512)):
        assert store.lookup(problem("max", n=n), GPU.dialect, GPU.device).config.block == block


def test_the_nearest_architecture_wins() -> None:
    for arch, block in (("sm_70", 64), ("sm_86", 128), ("sm_120", 512)):
        saved(best(target("cuda", arch), config(block=block)))
    assert store.lookup(MAX, GPU.dialect, GPU.device).config.block == 128


def test_another_vendor_is_not_near() -> None:
    saved(best(target("opencl", "cpu-1", vendor="A")))
    on = target("opencl", "cpu-2", vendor="B")
    assert store.lookup(MAX, on.dialect, on.device).best is None


def test_older_templates_or_another_driver_are_told() -> None:
    saved(best(templates="old"))
    assert store.lookup(MAX, GPU.dialect, GPU.device).origin == "tuned here, with older templates"
    saved(best(target("cuda", driver="1.0")))
    assert store.lookup(MAX, GPU.dialect, GPU.device).origin == "tuned here, with another driver or compiler"


@pytest.mark.parametrize("n", [1, 33, 48, 2**31 - 1])
@pytest.mark.parametrize("on", [GPU, CPU], ids=["cuda", "opencl"])
@pytest.mark.parametrize(
    "stored", [config(walk="tile", block=32, items=1, accumulators=1), config(block=1024, combine="two_pass")]
)
def test_whatever_is_found_can_be_launched(on: Target, n: int, stored: Config) -> None:
    for bucket in (1, 10, 24):
        saved(best(on, stored, problem("max", n=1 << bucket)))
    p = problem("max", n=n)
    assert not refusals(store.lookup(p, on.dialect, on.device).config, p, on.dialect, on.device)


def test_an_entry_that_cannot_run_here_is_passed_over() -> None:
    small = target("cuda", max_block=128)
    saved(best(small, config(block=1024)))
    found = store.lookup(MAX, small.dialect, small.device)
    assert not refusals(found.config, MAX, small.dialect, small.device)


# --- damage -----------------------------------------------------------------------------------------------------------


def text(**changes: Any) -> bytes:
    return yaml.safe_dump(as_json(best()) | changes).encode()


# Each level names the one before nine times: printing the last would take 9^6 words.
BOMB = "[&l0 [x], " + ", ".join(f"&l{k} [{', '.join([f'*l{k - 1}'] * 9)}]" for k in range(1, 7)) + "]"
DAMAGED = {
    "nothing": b"",
    "truncated": text()[: len(text()) // 2],
    "cut in a word": text()[:10],
    "not UTF-8": b"\xff\xfe\x00" + text(),
    "binary": bytes(range(256)),
    "a list": b"- 1\n- 2\n",
    "a number": b"17\n",
    "not YAML": b"{[}]: :\n",
    "wrong type": text(median_us="fast"),
    "a number as text": text(trials="3"),
    "a boolean for a number": text(seed=True),
    "a missing field": yaml.safe_dump({k: v for k, v in as_json(best()).items() if k != "config"}).encode(),
    "a field of the future": text(horizon=3),
    "a date that is none": text().replace(b"'2026-01-01T00:00:00+00:00'", b"2026-99-99"),
    "a number of 5000 digits": text().replace(b"trials: 3", b"trials: " + b"9" * 5000),
    "a python object": b"!!python/object/apply:os.system ['touch %s']\n",
    "a python name": b"!!python/name:os.system\n",
    "nested deeply": b"[" * 1_200,
    "a bomb": text().replace(b"runner_up_us: null", b"runner_up_us: " + BOMB.encode()),
    "endless aliases": b"a: &a [*a]\nproblem: *a\n",
    "keys that are lists": b"{[1]: 2}\n",
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damage_is_a_miss_with_one_warning_and_heals(kind: str, tmp_path: Path) -> None:
    path = saved()
    trap = tmp_path / "trap"
    damage = DAMAGED[kind]
    path.write_bytes(damage % str(trap).encode() if b"%s" in damage else damage)
    with pytest.warns(UserWarning, match="counts as absent") as caught:
        found = store.lookup(MAX, GPU.dialect, GPU.device)
    assert found.best is None
    message = str(caught[0].message)
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < 2000
    assert not trap.exists()
    # The second look says nothing more, and what reads the whole cache is not stopped either.
    with warnings.catch_warnings(record=True) as again:
        warnings.simplefilter("always")
        store.lookup(MAX, GPU.dialect, GPU.device)
        assert list(store.entries(store.cache_path() / "configs")) == []
    assert (len(caught), len(again)) == (1, 0)
    saved()
    assert store.lookup(MAX, GPU.dialect, GPU.device).best == best()


def test_a_folder_in_the_place_of_an_entry_is_a_miss() -> None:
    path = saved()
    path.unlink()
    path.mkdir()
    with pytest.warns(UserWarning, match="counts as absent"):
        assert store.lookup(MAX, GPU.dialect, GPU.device).best is None


def test_an_entry_of_another_format_is_a_miss() -> None:
    path = saved(best(format=store.format_number() + 1))
    with pytest.warns(UserWarning, match="of another version of redtune"):
        assert store.lookup(MAX, GPU.dialect, GPU.device).best is None
    assert path.exists()
    saved()
    assert store.lookup(MAX, GPU.dialect, GPU.device).best == best()


@pytest.mark.parametrize("place", ["another architecture", "another problem"])
def test_an_entry_that_was_moved_is_a_miss(place: str) -> None:
    path = saved()
    if place == "another problem":
        p, on = problem("min"), GPU
    else:
        p, on = MAX, target("cuda", "sm_80")
    there = store.user_path(p, on.device, "cold")
    there.parent.mkdir(parents=True, exist_ok=True)
    path.rename(there)
    with pytest.warns(UserWarning, match="counts as absent here"):
        assert store.lookup(p, on.dialect, on.device).best is None


# --- writing ----------------------------------------------------------------------------------------------------------


def test_a_cache_that_cannot_be_written_is_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REDTUNE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.warns(UserWarning, match="could not be kept.*REDTUNE_CACHE moves the cache") as caught:
        assert not store.save(best())
    assert len(caught) == 1
    with warnings.catch_warnings(record=True) as again:
        warnings.simplefilter("always")
        assert not store.save(best())
        assert store.lookup(MAX, GPU.dialect, GPU.device).best is None
    assert not again


def test_a_full_disk_leaves_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("redtune.store.os.fsync", full)
    with pytest.warns(UserWarning, match="No space left"):
        assert not store.save(best(c=config(block=512)))
    assert store.read_entry(path) == best()
    assert [p.name for p in path.parent.iterdir() if p.suffix not in (".yaml", ".lock")] == []


def _write_for_ever(items: tuple[int, ...]) -> None:
    for k in range(10**9):
        store.save(best(c=config(block=64, items=items[k % len(items)])))


def test_a_writer_killed_at_any_moment_leaves_a_whole_file() -> None:
    path = saved()
    spawn = multiprocessing.get_context("fork")
    for delay in range(12):
        writer = spawn.Process(target=_write_for_ever, args=((1, 2, 4, 8),))
        writer.start()
        end = time.monotonic() + 0.01 + 0.003 * delay
        while time.monotonic() < end:
            assert store.read_entry(path) is not None
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        assert store.read_entry(path) is not None
    # A killed writer holds no lock either.
    assert store.save(best())


def _write_often(k: int) -> None:
    for round_ in range(10):
        store.save(best(p=problem(("max", "min", "sum", "prod")[k]), trials=round_))


def test_writers_of_different_keys_lose_nothing() -> None:
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=_write_often, args=(k,)) for k in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    for op in ("max", "min", "sum", "prod"):
        found = store.lookup(problem(op), GPU.dialect, GPU.device).best
        assert found is not None
        assert found.trials == 9


# --- trial rows -------------------------------------------------------------------------------------------------------


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    for path in (folder / "results").glob("*.jsonl"):
        yield from (json.loads(line) for line in path.read_text().splitlines())


def test_a_row_says_what_was_measured_on_what(fresh_cache: Path) -> None:
    trials = [Trial(TUNED, "d", Verdict.OK, 3.0, 0.1, 0.0), Trial(Config(), "e", Verdict.WRONG, note="off by one")]
    for trial in trials:
        store.append_row(GPU.device, MAX, trial, "2026-01-01")
    found = list(rows(fresh_cache))
    assert [row["verdict"] for row in found] == ["OK", "WRONG"]
    for row, trial in zip(found, trials, strict=True):
        fields = {f.name for f in dataclasses.fields(Trial)}
        assert from_json(Trial, {k: v for k, v in row.items() if k in fields}) == trial
        assert row["problem"] == as_json(MAX)
        assert row["templates"] == store.templates_digest()


def test_rows_that_cannot_be_kept_are_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REDTUNE_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="trial rows could not be kept") as caught:
        store.append_row(GPU.device, MAX, Trial(TUNED, "d", Verdict.OK, 3.0), "2026-01-01")
    assert len(caught) == 1


def test_a_record_of_nonsense_names_the_field() -> None:
    with pytest.raises(UsageError, match=r"Best\.config\.block cannot be 'wide'"):
        from_json(Best, as_json(best()) | {"config": as_json(TUNED) | {"block": "wide"}})
