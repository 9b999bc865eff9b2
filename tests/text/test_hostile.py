"""A cache from another person: entries, rows and compiled kernels are data, cost little to look at, and do no harm."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import json
import math
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from redtune import store
from redtune.custom import derived
from redtune.entries import check_best
from redtune.errors import UsageError
from redtune.plainyaml import NotPlain, plain_data
from redtune.problems import make_problem
from redtune.terminal import from_home
from redtune.types import Best, Trial, Verdict, as_json, from_json
from tests.text.kernels import config, problem, random_problems, rendered, target
from tests.text.test_store import CPU, GPU, MAX, TUNED, best, saved

ROOT = Path(__file__).parents[2]
ESCAPE = "\x1b]0;mine\x07"
OWN = derived("sum", "x * x", None)
CUSTOM = dataclasses.replace(MAX, op="sum_custom", custom=OWN)


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "a cache"
    monkeypatch.setenv("REDTUNE_CACHE", str(folder))
    store.WARNED.clear()
    return folder


def changed(where: str, value: Any) -> dict[str, Any]:
    """The plain data of an entry with one value changed, and of an operator of one's own where that is what changes."""
    data = as_json(best(p=CUSTOM if where == "problem.custom" else MAX))
    *path, last = where.split(".")
    at = data
    for name in path:
        at = at[name]
    at[last] = value
    return dict(data)


# --- values -----------------------------------------------------------------------------------------------------------

# Of the right type each, and such that no search can have written it.
BAD: list[tuple[str, Any]] = [
    *((name, value) for name in ("median_us", "gbps") for value in (0.0, -1.0, math.nan, math.inf)),
    *(
        (name, value)
        for name in ("runner_up_us", "default_us", "worst_us")
        for value in (0.0, -1.0, math.nan, math.inf)
    ),
    *((name, value) for name in ("baseline_us", "ceiling_gbps") for value in (0.0, -1.0, math.nan, math.inf)),
    *(("spread_us", value) for value in (-1.0, math.nan, math.inf)),
    *(("trials", value) for value in (0, -1, 10**30)),
    *(("seed", value) for value in (-1, 2**32)),
    *(("temperature", value) for value in ("", "hot", "../../cold")),
    *(("determinism", value) for value in ("", "any")),
    *(("found", value) for value in ("", "yesterday", "2026-99-99", f"2026-01-01{ESCAPE}")),
    *((name, ESCAPE) for name in ("baseline", "templates", "device.name", "device.toolchain", "device.driver")),
    *((name, "\u202egnp.exe") for name in ("device.name", "device.vendor", "device.arch")),
    *((name, "x" * 10_000) for name in ("baseline", "device.name", "device.arch", "device.vendor")),
    ("versions", {"python": ESCAPE}),
    ("versions", {ESCAPE: "3"}),
    ("device.features", ["fp64", "a\nb"]),
    ("device.backend", "metal"),
    ("device.kind", "fpga"),
    ("device.arch", ""),
    ("device.waves", [0]),
    ("device.waves", [-32]),
    *((f"device.{name}", -1) for name in ("index", "max_block", "lds_bytes", "compute_units", "memory_bytes")),
    *((f"device.{name}", 10**40) for name in ("max_block", "cache_bytes", "memory_bytes", "compute_units")),
    *((f"config.{name}", value) for name, value in (("block", 7), ("block", -256), ("items", 0), ("vector", 3))),
    *((f"config.{name}", value) for name, value in (("walk", "crawl"), ("combine", "none; }"), ("hint", ESCAPE))),
    ("config.accumulators", 16),
    ("config.cluster", 8),
    *((f"problem.{name}", value) for name in ("n", "outer", "inner") for value in (0, -1, 2**41)),
    *(("problem.op", value) for value in ("", "maxx", "max\n", "../../max", "__import__('os')")),
    *(("problem.dtype", value) for value in ("", "float31", "complex64", ESCAPE)),
    *(("problem.accumulate", value) for value in ("", "int8", "int64", "float31")),
    ("problem.is_compensated", True),
    ("problem.determinism", "sometimes"),
    ("problem.result", "float64"),
    ("problem.result", "int3"),
    *(("problem.custom", value) for value in ("{}", "x", "[1]", OWN.replace("sum_custom", "mean_custom"))),
    ("problem.custom", OWN.replace("x * x", "x; }")),
    ("problem.custom", OWN.replace("x * x", "__import__('os').abort()")),
    ("problem.custom", OWN.replace('"sum of x * x"', '"*/ int main() {} /*"')),
    ("problem.custom", OWN + " " * 30_000),
]


@pytest.mark.parametrize(("where", "value"), BAD, ids=[f"{where}={value!r:.30}" for where, value in BAD])
def test_a_value_that_no_search_can_have_written_is_refused_in_one_line(where: str, value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        check_best(from_json(Best, changed(where, value)))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(("where", "value"), BAD[:: len(BAD) // 8])
def test_an_entry_with_such_a_value_is_a_miss_with_one_warning(where: str, value: Any) -> None:
    path = saved(best(p=CUSTOM if where == "problem.custom" else MAX))
    path.write_text(yaml.safe_dump(changed(where, value)))
    with pytest.warns(UserWarning, match="counts as absent") as caught:
        assert store.read_entry(path) is None
    assert len(caught) == 1
    assert str(caught[0].message).isprintable()


def test_what_a_search_writes_is_refused_for_nothing() -> None:
    for p in itertools.islice(random_problems(seed=1), 300):
        check_best(best(p=p))
    check_best(best(CPU, p=CUSTOM))


def test_operators_of_ones_own_come_back() -> None:
    path = saved(best(p=CUSTOM))
    found = store.read_entry(path)
    assert found is not None
    assert found.problem.custom == OWN


@pytest.mark.parametrize(("where", "value"), [("median_us", math.nan), ("device.name", ESCAPE), ("trials", 0)])
def test_what_could_not_be_read_again_is_not_written(where: str, value: Any) -> None:
    path = saved()
    name, _, inner = where.partition(".")
    broken = value if not inner else dataclasses.replace(GPU.device, **{inner: value})
    with pytest.warns(UserWarning, match="could not be kept"):
        assert not store.save(best(**{name: broken}))
    assert store.read_entry(path) == best()


def test_another_device_of_the_same_architecture_is_told_and_comes_last() -> None:
    other = target("cuda", name="Another GPU")
    saved(best(other, config(block=512)))
    found = store.lookup(MAX, GPU.dialect, GPU.device)
    assert (found.config.block, found.origin) == (512, "tuned on Another GPU, of the same architecture")
    near = problem("max", n=1 << 10)
    saved(best(p=near))
    found = store.lookup(MAX, GPU.dialect, GPU.device)
    assert (found.config, found.origin) == (TUNED, "tuned here for about 2^10 elements")
    saved()
    found = store.lookup(MAX, GPU.dialect, GPU.device)
    assert found.best is not None
    assert (found.origin, found.best.device) == ("tuned here", GPU.device), "one file, one device"


@pytest.mark.parametrize("changes", [{"format": 1}, {"format": 1, "horizon": 3}, {"format": 2**40, "problem": "new"}])
def test_entries_of_another_format_are_one_warning_in_all(changes: dict[str, Any]) -> None:
    paths = [saved(best(p=problem(op))) for op in ("max", "min")]
    for path in paths:
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes))
    with pytest.warns(UserWarning, match="of another version of redtune") as caught:
        assert list(store.entries(store.cache_path() / "configs")) == []
    assert len(caught) == 1
    saved()
    assert store.read_entry(paths[0]) == best()


# --- what it costs to look --------------------------------------------------------------------------------------------


def _merged_nine_times() -> str:
    levels = ["l0: &l0 {x: 1}"]
    levels += [f"l{k}: &l{k} {{<<: [{', '.join([f'*l{k - 1}'] * 9)}]}}" for k in range(1, 9)]
    return "\n".join(levels)


COSTLY: dict[str, bytes] = {
    "aliases of aliases": (
        "a: &l0 [x]\n" + "\n".join(f"b{k}: &l{k} [*l{k - 1}, *l{k - 1}]" for k in range(1, 99))
    ).encode(),
    "merges of merges": _merged_nine_times().encode(),
    "an alias of itself": b"&a [*a]",
    "brackets": b"[" * 30_000,
    "braces": b"{a: " * 8_000,
    "dashes": b"- " * 15_000,
    "questions": b"? " * 15_000,
    "names": b"".join(b"a%d: 1\n" % k for k in range(3_000)),
    "one name": b"a: 1\n" * 6_500,
    "anchors": b"".join(b"- &a%d 1\n" % k for k in range(3_000)),
    "a long word": b"x" * 32_000,
    "a long number": b"n: " + b"9" * 32_000,
    "a number of minutes": b"n: 1" + b":59" * 10_000,
    "a long hexadecimal": b"n: 0x" + b"f" * 32_000,
    "quotes": b"'" * 32_000,
    "lines": b"\n" * 32_000,
    "a block": b"a: |\n" + b"  x\n" * 8_000,
}


@pytest.mark.parametrize("kind", COSTLY)
def test_a_file_made_to_be_costly_is_cheap(kind: str) -> None:
    path = saved()
    path.write_bytes(COSTLY[kind])
    assert len(COSTLY[kind]) <= store.MAX_ENTRY_BYTES
    start = time.process_time()
    with pytest.warns(UserWarning, match="counts as absent"):
        assert store.read_entry(path) is None
    assert time.process_time() - start < 5


def test_a_huge_file_is_not_read() -> None:
    path = saved()
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # takes no room on the disk
    with pytest.warns(UserWarning, match="too long"):
        assert store.read_entry(path) is None


@pytest.mark.parametrize("kind", ["a pipe", "a device", "a link to itself"])
def test_what_is_no_file_is_not_waited_for(kind: str) -> None:
    path = saved()
    path.unlink()
    if kind == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "a device" else path)
    with pytest.warns(UserWarning, match="counts as absent"):
        assert store.read_entry(path) is None


# What PyYAML's own safe loader answers with exceptions of every kind.
STRANGE = ["!!bool perhaps", "!!int ''", "!!float ''", "!!timestamp x", "!!binary '*'", "!!null {a: b}", "!!set [a]"]
STRANGE += ["!!omap [a]", "!!pairs [[a]]", "!!str {a: b}", "!!int 0b", "!!int [1]", "<<: 3", "{<<: [3]}", "2001-99-99"]
STRANGE += [
    "? !!bool x\n: 1",
    "!!python/name:os.system",
    "!!python/object/apply:os.abort []",
    "!foo 1",
    "%YAML 9.9\n---\n1",
]


@pytest.mark.parametrize(
    ("text", "said"),
    [("a: &x 1\nb: *x", "an alias"), ("a: 1\na: 2", "'a' is given twice"), ("[" * 200 + "]" * 200, "too deeply")],
)
def test_yaml_that_says_more_than_is_written_is_refused(text: str, said: str) -> None:
    with pytest.raises(NotPlain, match=said):
        plain_data(text.encode())


@pytest.mark.parametrize("text", STRANGE)
def test_yaml_that_is_strange_is_refused_in_one_line(text: str) -> None:
    said = ""
    try:
        plain_data(text.encode())
    except NotPlain as refusal:
        said = str(refusal)
    assert said.isprintable()
    path = saved()
    path.write_text(text)
    with pytest.warns(UserWarning, match="counts as absent"):
        assert store.read_entry(path) is None


@pytest.mark.parametrize("name", ["cuda-sm_\u00b2", "cuda-\u0664", "cuda-", "cuda-sm_" + "9" * 200, "cuda-\x1b[2J"])
def test_a_folder_of_any_name_is_looked_past(name: str) -> None:
    saved()
    folder = store.cache_path() / "configs" / name
    folder.mkdir()
    (folder / store.file_name(MAX, "cold")).write_text("nonsense")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # A size that has no entry, so that every folder is looked into.
        assert store.lookup(problem("max", "float64"), GPU.dialect, GPU.device).best is None
        assert store.lookup(MAX, target("cuda", "sm_91").dialect, target("cuda", "sm_91").device).best is not None
        list(store.entries(folder.parent))
    assert all(str(w.message).isprintable() for w in caught)


# --- rows -------------------------------------------------------------------------------------------------------------


def lines_of(path: Path) -> Iterator[Any]:
    """Every whole row in a file."""
    for line in path.read_bytes().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


@pytest.mark.parametrize("left", [b"", b"\n", b'{"half": ', b"\xff\x00", b'{"whole": 1}\n', b'{"no end": 1}'])
def test_a_row_is_a_line_of_its_own_whatever_was_there(left: bytes, fresh_cache: Path) -> None:
    path = fresh_cache / "results" / "cuda-sm_90.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(left)
    for _ in range(2):
        store.append_row(GPU.device, MAX, Trial(TUNED, "d", Verdict.OK, 3.0), "2026-01-01")
    assert path.read_bytes().startswith(left)
    assert [row["micros"] for row in lines_of(path) if "micros" in row] == [3.0, 3.0]


def test_a_disk_that_takes_half_a_row_is_one_warning(tmp_path: Path) -> None:
    """A write that ends early is no error to the system, only a smaller number."""
    program = """
        import resource, signal, sys
        from redtune import store
        from tests.text.test_store import GPU, MAX, TUNED
        from redtune.types import Trial, Verdict
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        for most in (300, 5000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
            store.append_row(GPU.device, MAX, Trial(TUNED, "d", Verdict.OK, 3.0), "2026-01-01")
            print(len(store.WARNED))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "REDTUNE_CACHE": str(tmp_path / "full")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["1", "1"]), done.stderr
    assert "No space left" in done.stderr
    (path,) = (tmp_path / "full").rglob("*.jsonl")
    assert len(list(lines_of(path))) == 1, "the second, on a line of its own"


# --- compiled kernels -------------------------------------------------------------------------------------------------

KERNEL = rendered(GPU, TUNED, MAX)
CODE = b"\x7fELF and more"


def kept() -> Path:
    store.keep_binary(KERNEL, GPU.device, CODE)
    assert store.read_binary(KERNEL, GPU.device) == CODE
    return store.binary_path(KERNEL, GPU.device)


def test_a_folder_of_the_cache_is_made_for_the_user_alone(fresh_cache: Path) -> None:
    old = os.umask(0)
    try:
        path = kept()
        saved()
        store.append_row(GPU.device, MAX, Trial(TUNED, "d", Verdict.OK, 3.0), "2026-01-01")
    finally:
        os.umask(old)
    folders = [fresh_cache, *(each for each in fresh_cache.rglob("*") if each.is_dir())]
    assert len(folders) >= 6
    assert {each.stat().st_mode & 0o777 for each in folders} == {0o700}
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
@pytest.mark.parametrize("level", [0, 1, 2], ids=["the file", "its folder", "the folder above"])
def test_code_that_others_may_write_is_not_used(level: int, mode: int) -> None:
    path = kept()
    open_to_all = (path, *path.parents)[level]
    open_to_all.chmod(mode)
    with pytest.warns(UserWarning, match="another user may write"):
        assert store.read_binary(KERNEL, GPU.device) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.read_binary(KERNEL, GPU.device) is None
    open_to_all.chmod(0o700)
    assert store.read_binary(KERNEL, GPU.device) == CODE


def test_code_of_another_user_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    kept()
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with pytest.warns(UserWarning, match="another user may write"):
        assert store.read_binary(KERNEL, GPU.device) is None


def test_code_in_the_place_of_other_code_is_not_used() -> None:
    path = kept()
    other = rendered(GPU, TUNED, problem("min"))
    path.rename(store.binary_path(other, GPU.device))
    assert store.read_binary(other, GPU.device) is None
    assert store.read_binary(KERNEL, GPU.device) is None


@pytest.mark.parametrize(
    "change", [{"driver": "2.0"}, {"toolchain": "another"}, {"name": "another"}, {"arch": "sm_80"}]
)
def test_code_for_another_device_driver_or_compiler_is_not_found(change: dict[str, str]) -> None:
    kept()
    there = dataclasses.replace(GPU.device, **change)
    assert store.read_binary(KERNEL, there) is None
    store.keep_binary(KERNEL, there, b"other code")
    assert (store.read_binary(KERNEL, there), store.read_binary(KERNEL, GPU.device)) == (b"other code", CODE)


@pytest.mark.parametrize("left", [b"", b"abc", CODE, CODE + b"\0\0\0\0", b"\0" * 4])
def test_code_that_is_not_whole_is_none(left: bytes) -> None:
    path = kept()
    path.write_bytes(left)
    assert store.read_binary(KERNEL, GPU.device) is None
    kept()


def test_code_cut_anywhere_is_none() -> None:
    path = kept()
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert store.read_binary(KERNEL, GPU.device) is None


# --- file systems that cannot -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError(errno.EROFS, "Read-only file system"), NotImplementedError("no locks here")])
def test_a_file_system_that_cannot_lock_is_one_warning(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.text.test_proposals import measured, ours, proposals

    def refuse(path: Path) -> Any:
        raise error

    monkeypatch.setattr(store, "locked", refuse)
    monkeypatch.setattr("redtune.journal.locked", refuse)
    with pytest.warns(UserWarning, match="could not be kept") as caught:
        kept = store.save(best()), measured(proposals(), 2)
    assert (kept[0], len(kept[1]), len(ours(caught))) == (False, 2, 1)


def test_a_user_without_a_home_works_without_a_cache_and_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(uid: int) -> Any:
        raise KeyError(uid)

    for name in ("REDTUNE_CACHE", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.warns(UserWarning, match="REDTUNE_CACHE moves the cache") as caught:
        assert not store.save(best())
    store.append_row(GPU.device, MAX, Trial(TUNED, "d", Verdict.OK, 3.0), "2026-01-01")
    assert store.lookup(MAX, GPU.dialect, GPU.device).best is None
    assert len(caught) == 1
    assert not Path("~").exists()
    assert from_home(Path("/somewhere/else")) == "/somewhere/else"


# --- many at once, and kills ------------------------------------------------------------------------------------------

TUNERS = [
    problem(op, dtype) for op in ("max", "min", "sum", "prod") for dtype in ("float32", "float64", "int32", "int8")
]


def _tune(folder: Path, k: int) -> None:
    """What a search leaves behind, over and over: rows, then the entry. Says in a file what was finished."""
    while not (folder / "go").exists():
        time.sleep(0.001)
    with (folder / str(k)).open("a") as finished:
        for turn in range(1, 30):
            store.append_row(GPU.device, TUNERS[k], Trial(TUNED, f"{k}.{turn}", Verdict.OK, 3.0), "2026-01-01")
            assert store.save(best(p=TUNERS[k], trials=turn))
            finished.write(f"{turn}\n")
            finished.flush()


def test_sixteen_processes_with_kills_lose_no_finished_entry_and_every_file_is_readable_always(tmp_path: Path) -> None:
    rng = random.Random(5)
    fork = multiprocessing.get_context("fork")
    tuners = [fork.Process(target=_tune, args=(tmp_path, k)) for k in range(16)]
    for tuner in tuners:
        tuner.start()
    (tmp_path / "go").touch()
    paths = [store.user_path(p, GPU.device, "cold") for p in TUNERS]
    doomed = rng.sample(tuners, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        while any(tuner.is_alive() for tuner in tuners):
            for path in rng.sample(paths, 4):
                store.read_entry(path)  # raises the warning that it would give
            if doomed and rng.random() < 0.5:
                os.kill(doomed.pop().pid or 0, signal.SIGKILL)
        for tuner in tuners:
            tuner.join()
        assert [tuner.exitcode for tuner in tuners].count(0) >= 8
        for k, path in enumerate(paths):
            turns = (tmp_path / str(k)).read_text().split() if (tmp_path / str(k)).exists() else []
            found = store.read_entry(path)
            # One that was killed between the entry and its word on it has written one more.
            assert (found.trials if found else 0) - int(turns[-1] if turns else 0) in (0, 1)
            digests = {row["digest"] for row in lines_of(store.cache_path() / "results" / "cuda-sm_90.jsonl")}
            assert {f"{k}.{turn}" for turn in turns} <= digests


# --- keys -------------------------------------------------------------------------------------------------------------

ALIKE = [
    *(
        problem(op, dtype)
        for op, dtype in (("sum", "float32"), ("sum", "float64"), ("max", "int8"), ("argmax", "int8"))
    ),
    *(problem(op) for op in ("nansum", "nanmax", "max", "mean", "var", "std")),
    problem("sum", n=1 << 12, outer=1 << 12),
    problem("sum", n=1 << 12, inner=1 << 12),
    problem("sum", n=1 << 12, outer=1 << 6, inner=1 << 6),
    problem("sum", is_strided=True),
    problem("sum", determinism="run-to-run"),
    problem("sum", is_compensated=True),
    problem("sum", result="float64"),
    problem("sum", is_masked=True),
    problem("sum", is_seeded=True),
    problem("sum", n=1 << 12, outer=1 << 12, is_ragged=True),
    make_problem("sum", n=1 << 24, accumulate="float64"),
    CUSTOM,
    dataclasses.replace(MAX, op="sum_custom", custom=derived("sum", "x * x * x", None)),
]


def test_problems_that_differ_in_one_thing_have_entries_of_their_own() -> None:
    entries = [best(p=p, trials=k) for k, p in enumerate(ALIKE, 1)]
    paths = [saved(entry) for entry in entries]
    assert len(set(paths)) == len(ALIKE)
    assert [store.read_entry(path) for path in paths] == entries
    for temperature, on in (("warm", GPU), ("cold", target("cuda", "sm_80")), ("cold", target("hip"))):
        assert saved(best(on, p=ALIKE[0], temperature=temperature)) not in paths
