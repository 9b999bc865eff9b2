"""Configs that come with redtune: what a file holds, what it may stand in for, and that damage is a miss."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

import redtune
from redtune import shipped, store
from redtune.backends import backend_named
from redtune.cli import main
from redtune.config import Config
from redtune.defaults import default_config
from redtune.errors import UsageError
from redtune.likeness import like_dtypes, like_operators
from redtune.plan import read_bytes
from redtune.problems import make_problem
from redtune.refusals import is_legal, refusals
from redtune.render import templates_path
from redtune.shipped import MAX_FILE_BYTES, Sheet, entries, read_sheet, sheet_text
from redtune.types import Best, Problem, from_json
from tests.text.kernels import PAIRS, config, problem, target
from tests.text.shipping import GPU, put, row, sheet, ship
from tests.text.test_export_python import OWN
from tests.text.test_store import DAMAGED, best, saved

SHIPPED = templates_path().parent / "configs"
MAX, SUM = problem("max"), problem("sum")
ROWS = problem("sum", n=512, outer=10_000)
OLD = target("cuda", "sm_70")
HINTS = ((10, "none"), (20, "streaming"), (30, "no_allocate"))
FLOATS_IN_TURN = config(walk="stride", blocks_per_cu=1, combine="atomic", block=1024)


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDTUNE_CACHE", str(tmp_path / "cache"))
    store.WARNED.clear()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shipped"
    monkeypatch.setattr(store, "shipped_path", lambda: folder)
    return folder


def look(p: Problem, on: Any = GPU, temperature: str = "cold") -> store.Found:
    return store.lookup(p, on.dialect, on.device, temperature)


# --- there and back ---------------------------------------------------------------------------------------------------


def test_what_was_shipped_comes_back(root: Path) -> None:
    pairs = [
        (SUM, config(block=512, vector=4)),
        (ROWS, config(team=32, combine="two_pass")),
        (problem("sum", n=512, inner=10_000), config(block=64, team=1, combine="two_pass")),
        (problem("sum", n=1 << 20, is_strided=True), config(block=64, team=1, combine="two_pass")),
    ]
    put(root, sheet(*pairs))
    for p, c in pairs:
        found = look(p)
        assert (found.config, found.origin) == (c, "shipped")
        assert found.best is not None
        assert (found.best.problem, found.best.device, found.best.median_us) == (p, GPU.device, 4.25)
    assert len(list(entries(root))) == 4


def test_a_row_is_one_line_with_what_differs_from_the_default() -> None:
    text = sheet_text(sheet((SUM, config(block=512)), (ROWS, config(team=32, combine="two_pass"))))
    head, _, rows = text.partition("rows:\n")
    assert rows.splitlines() == [
        "- {layout: flat, n: 16777216, config: {block: 512}, median_us: 4.25, spread_us: 0.05, gbps: 986.9, "
        "ceiling_gbps: 1033.5, default_us: 4.5, candidates: 12}",
        "- {layout: rows, outer: 10000, n: 512, config: {team: 32, combine: two_pass}, median_us: 4.25, "
        "spread_us: 0.05, gbps: 986.9, ceiling_gbps: 1033.5, default_us: 4.5, candidates: 12}",
    ]
    assert "name: NVIDIA H200" in head
    assert sheet_text(from_json(Sheet, yaml.safe_load(text))) == text


def test_a_file_is_read_once_and_anew_when_it_changes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    real = shipped.read_plain
    monkeypatch.setattr(shipped, "read_plain", lambda *given: (reads.append(given), real(*given))[1])
    path = ship(root, MAX, config(block=64))
    assert [look(MAX).config.block for _ in range(3)] == [64] * 3
    assert len(reads) == 1
    ship(root, MAX, config(block=512))
    os.utime(path, ns=(time.time_ns(), time.time_ns() + 10**9))
    assert look(MAX).config.block == 512


def test_nothing_is_imported_where_nothing_is_shipped() -> None:
    """And nothing is read: a machine of another kind pays nothing for the configs."""
    code = (
        "import sys; from redtune import store; from redtune.backends import backend_named;"
        "from redtune.problems import make_problem; b = backend_named('opencl');"
        "store.lookup(make_problem('max', n=4096), b.dialect, b.describe('cpu')); print('yaml' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=SHIPPED.parent)
    assert done.stdout == "False\n"


# --- what it serves ---------------------------------------------------------------------------------------------------


def test_what_is_far_stands_in_for_flat_problems_only(root: Path) -> None:
    """A config of 128 columns leaves most of a block idle where there are 16."""
    put(root, sheet((problem("sum", n=1 << 21, inner=128), config(block=64, team=1, combine="two_pass"))))
    assert look(problem("sum", n=1 << 20, inner=64)).origin == "shipped for about 2^21 elements and 2^7 results"
    assert look(problem("sum", n=1 << 24, inner=16)).best is None
    assert look(problem("any", n=1 << 24, inner=16)).best is None


def test_the_nearest_size_wins_and_the_users_own_at_the_same_distance(root: Path) -> None:
    sizes = [(problem("max", n=1 << power), config(block=block)) for power, block in ((10, 64), (20, 128), (28, 512))]
    put(root, sheet(*sizes))
    for power, block in ((5, 64), (14, 64), (17, 128), (23, 128), (30, 512)):
        assert look(problem("max", n=1 << power)).config.block == block
    saved(best(GPU, config(block=256), problem("max", n=1 << 22)))
    for power, block in ((21, 256), (20, 128), (24, 256), (26, 512)):
        assert look(problem("max", n=1 << power)).config.block == block
    assert look(problem("max", n=1 << 21)).origin == "tuned here for about 2^22 elements"
    assert look(problem("max", n=1 << 19)).origin == "shipped for about 2^20 elements"


def test_another_layout_is_not_taken(root: Path) -> None:
    ship(root, SUM)
    assert look(ROWS).best is None


@pytest.mark.parametrize(
    ("there", "here", "origin"),
    [
        (("max", "int8"), ("max", "uint8"), "shipped for int8"),
        (("max", "uint8"), ("max", "bool"), "shipped for uint8"),
        (("sum", "float16"), ("sum", "bfloat16"), "shipped for float16"),
        (("argmax", "int32"), ("argmax", "uint32"), "shipped for int32"),
        (("max", "float32"), ("min", "float32"), "shipped for max"),
        (("var", "float32"), ("std", "float32"), "shipped for var"),
        (("argmax", "float32"), ("argmin", "float32"), "shipped for argmax"),
        (("max", "float32"), ("sum", "float32"), "shipped for max"),
        (("max", "int8"), ("min", "uint8"), "shipped for max of int8"),
        (("max", "float32"), ("max", "int32"), None),
        (("max", "float32"), ("max", "float64"), None),
        (("max", "float32"), ("argmax", "float32"), None),
        (("sum", "int8"), ("max", "int8"), None),  # sums of integers carry 64 bits
    ],
)
def test_what_stands_in_for_what(there: tuple[str, str], here: tuple[str, str], origin: str | None, root: Path) -> None:
    ship(root, problem(*there), config(block=128, items=8))
    found = look(problem(*here))
    assert found.origin == (origin or "the default, nothing is tuned for this yet")
    assert (found.best is None) == (origin is None)


def test_the_same_operator_comes_before_another_and_both_before_another_architecture(root: Path) -> None:
    p = problem("min", "uint8")
    sources = [
        ("shipped", ship(root, p)),
        ("shipped for int8", ship(root, problem("min", "int8"))),
        ("shipped for max", ship(root, problem("max", "uint8"))),
        ("shipped for max of int8", ship(root, problem("max", "int8"))),
        ("shipped for sm_80, the nearest architecture", ship(root, p, on=target("cuda", "sm_80"))),
        (
            "shipped for int8, sm_70, the nearest architecture",
            ship(root, problem("min", "int8"), on=target("cuda", "sm_70")),
        ),
    ]
    for origin, path in sources:
        assert look(p).origin == origin
        path.unlink()
    assert look(p).best is None


def test_what_is_alike_in_its_own_size_comes_before_another_size(root: Path) -> None:
    p = problem("sum", n=1 << 10)
    ship(root, problem("sum", n=1 << 28))
    assert look(p).origin == "shipped for about 2^28 elements"
    ship(root, problem("max", n=1 << 12))
    assert look(p).origin == "shipped for max, about 2^12 elements"
    ship(root, problem("sum", n=1 << 14))
    assert look(p).origin == "shipped for about 2^14 elements"


def test_likeness_is_of_width_and_kind() -> None:
    assert like_dtypes("bool") == ["uint8", "int8"]
    assert like_dtypes("uint8") == ["bool", "int8"]
    assert like_dtypes("bfloat16") == ["float16"]
    assert like_dtypes("float32") == like_dtypes("complex64") == []
    assert like_operators(problem("min"))[0] == "max"
    assert like_operators(problem("std"))[0] == "var"
    assert like_operators(problem("argmin"))[0] == "argmax"
    for op, dtype in PAIRS:
        p = problem(op, dtype)
        assert op not in like_operators(p)
        assert dtype not in like_dtypes(dtype)


@pytest.mark.parametrize(
    ("changes", "origin"),
    [
        ({"is_masked": True}, "shipped"),
        ({"is_seeded": True}, "shipped"),
        ({"is_compensated": True}, "shipped for running values in plain float32"),
        ({"accumulate": "float64"}, "shipped for running values in plain float32"),
    ],
)
def test_flags_take_the_plain_row(changes: dict[str, Any], origin: str, root: Path) -> None:
    ship(root, SUM, config(block=128, items=8))
    found = look(dataclasses.replace(SUM, **changes))
    assert (found.origin, found.config.block) == (origin, 128)


def test_an_operator_of_ones_own_takes_what_is_like_it(root: Path) -> None:
    p = make_problem(json.loads(OWN)["name"], "int32", 1 << 24, custom=OWN)
    for op, dtype in PAIRS:
        if dtype == "int32":
            ship(root, problem(op, dtype), config(block=128, items=8))
    assert look(p).origin.startswith("shipped for ")


def test_a_row_that_is_not_legal_is_passed_over(root: Path) -> None:
    """Atomics of floats serve "any", and the next size serves "run-to-run"."""
    near = problem("sum", n=1 << 10)
    assert is_legal(FLOATS_IN_TURN, near, GPU.dialect, GPU.device)
    put(root, sheet((near, FLOATS_IN_TURN), (problem("sum", n=1 << 20), config(block=64))))
    assert look(near).config == FLOATS_IN_TURN
    strict = dataclasses.replace(near, determinism="run-to-run")
    found = look(strict)
    assert (found.config.block, found.origin) == (64, "shipped for about 2^20 elements")
    assert not refusals(found.config, strict, GPU.dialect, GPU.device)


def test_what_differs_on_the_device_is_told(root: Path) -> None:
    path = ship(root, MAX, on=target("cuda", name="NVIDIA H100"))
    assert look(MAX).origin == "shipped for NVIDIA H100, of the same architecture"
    path.unlink()
    path = ship(root, MAX, templates="old")
    assert look(MAX).origin == "shipped, with older templates"
    path.unlink()
    ship(root, MAX, on=target("cuda", name="NVIDIA H200", driver="1.0"))
    assert look(MAX).origin == "shipped, with another driver or compiler"
    assert look(MAX, temperature="warm").origin == "shipped for cold inputs, with another driver or compiler"


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_100", "sm_120"])
def test_the_nearest_architecture_serves_where_it_is_legal(arch: str, root: Path) -> None:
    put(root, sheet((MAX, config(combine="cluster", cluster=8)), (problem("max", n=1 << 20), config(block=64))))
    on = target("cuda", arch)
    found = look(MAX, on)
    assert found.origin.endswith("sm_90, the nearest architecture")
    assert not refusals(found.config, MAX, on.dialect, on.device)
    assert (found.config.combine == "cluster") == ("clusters" in on.device.features)


def test_another_vendor_is_not_near(root: Path) -> None:
    ship(root, MAX, on=target("opencl", "cpu-1", vendor="A"))
    assert look(MAX, target("opencl", "cpu-2", vendor="B")).best is None


def test_a_search_begins_with_what_is_shipped(root: Path) -> None:
    pairs = [(problem("max", n=1 << power), config(block=64, items=8, hint=hint)) for power, hint in HINTS]
    put(root, sheet(*pairs))
    near = [found.config for found in store.candidates(problem("max", n=1 << 28), GPU.device, "cold")]
    assert near == [c for _, c in reversed(pairs)]


# --- damage -----------------------------------------------------------------------------------------------------------

GOOD = sheet_text(sheet((MAX, config(block=128, items=8)))).encode()


def changed(old: str, new: str) -> bytes:
    assert old in GOOD.decode()
    return GOOD.decode().replace(old, new).encode()


BROKEN = {
    **{name: data for name, data in DAMAGED.items() if b"median_us" not in data},
    "cut": GOOD[: len(GOOD) // 2],
    "no rows": GOOD[: GOOD.index(b"rows:")] + b"rows: []\n",
    "rows that are none": GOOD[: GOOD.index(b"rows:")] + b"rows: 3\n",
    "too long": GOOD + b"#" * MAX_FILE_BYTES,
    "too many rows": GOOD + GOOD[GOOD.index(b"- {") :] * 501,
    "the same size twice": GOOD + GOOD[GOOD.index(b"- {") :],
    "an unknown knob": changed("block: 128", "blocks: 128"),
    "a value that no knob has": changed("block: 128", "block: 129"),
    "a knob without effect": changed("items: 8", "items: 8, second_block: 64"),
    "too much for one thread": changed("items: 8", "items: 32, vector: 16"),
    "no time": changed("median_us: 4.25", "median_us: -1.0"),
    "NaN": changed("median_us: 4.25", "median_us: .nan"),
    "another layout": changed("layout: flat", "layout: rows"),
    "no layout": changed("layout: flat", "layout: round"),
    "no size": changed("n: 16777216", "n: 0"),
    "more elements than there are": changed("n: 16777216", "n: 16777216000000"),
    "another operator": changed("op: max", "op: min"),
    "no operator": changed("op: max", "op: maxx"),
    "another dtype": changed("dtype: float32", "dtype: int32"),
    "another architecture": changed("arch: sm_90", "arch: sm_80"),
    "no date": changed("found: '2026-01-01'", "found: yesterday"),
    "a promise that is none": changed("determinism: any", "determinism: run-to-run"),
    "letters that steer a terminal": changed("commit: abcdef0", 'commit: "\\e[2J"'),
    "a word too long": changed("commit: abcdef0", f"commit: {'a' * 400}"),
    "a field of the future": changed("seed: 0", "seed: 0\nhorizon: 3"),
    "a label that is none": changed("candidates: 12", "candidates: 12, determinism: perhaps"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_damage_is_a_miss_with_one_warning(kind: str, root: Path) -> None:
    path = ship(root, MAX)
    path.write_bytes(BROKEN[kind])
    with pytest.warns(UserWarning, match="cannot be used and count as absent") as caught:
        assert look(MAX).best is None
    assert len(caught) == 1
    message = str(caught[0].message)
    assert str(path) in message
    assert len(message) < 2000
    assert "\n" not in message
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert look(MAX).best is None
        assert list(entries(root)) == []


def test_another_format_is_a_miss_with_one_warning(root: Path) -> None:
    ship(root, MAX, format=1)
    ship(root, SUM, format=1)
    with pytest.warns(UserWarning, match="another version of redtune"):
        assert look(MAX).best is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert look(SUM).best is None


def test_a_folder_in_the_place_of_a_file_is_a_miss(root: Path) -> None:
    (root / "cuda-sm_90" / "max-float32.yaml").mkdir(parents=True)
    with pytest.warns(UserWarning, match="it is no file"):
        assert look(MAX).best is None


def test_what_could_not_be_read_is_not_written() -> None:
    with pytest.raises(UsageError, match=r"Best.config: knob block cannot be 129"):
        sheet_text(sheet((MAX, dataclasses.replace(Config(), block=129))))


# --- what really comes along ------------------------------------------------------------------------------------------

SHEETS = sorted(SHIPPED.glob("*/*"))


@pytest.mark.parametrize("path", SHEETS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_is_shipped_is_what_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file reads in the current format, and reduce would take each row on the device it was measured on.

    Where the format has changed, rows hold as long as their knobs mean the same: give the files the new number.
    """
    monkeypatch.setattr(store, "shipped_path", lambda: SHIPPED)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read_sheet(path)
    assert found
    assert path.read_text() == sheet_text(from_json(Sheet, yaml.safe_load(path.read_text())))
    for one in found:
        check_row(one)


def check_row(one: Best) -> None:
    dialect, p = backend_named(one.device.backend).dialect, one.problem
    assert not refusals(one.config, p, dialect, one.device)
    strict = dataclasses.replace(p, determinism="run-to-run")
    assert (one.determinism == "run-to-run") == is_legal(one.config, strict, dialect, one.device)
    taken = store.lookup(p, dialect, one.device)
    assert (taken.config, taken.origin.split(",")[0]) == (one.config, "shipped")
    assert one.gbps == pytest.approx(read_bytes(p) / one.median_us * 1e-3, rel=0.01, abs=0.1)
    assert one.default_us is not None
    assert " /" not in one.versions["command"], "a path of the machine it was measured on"
    assert one.median_us <= one.default_us or one.config == default_config(p, dialect, one.device)


def test_older_rows_stay_with_their_own_evidence(root: Path) -> None:
    """Those of other sizes, also where they have been kept before; of one size the new one stands."""
    sizes = [problem("max", n=1 << power) for power in (10, 16, 20)]
    path = put(root, sheet(*((p, config(block=64)) for p in sizes), commit="0000001", found="2026-01-02"))
    for commit, p in (("0000002", sizes[0]), ("0000003", sizes[1])):
        put(root, shipped.with_older(sheet((p, config(block=512)), commit=commit), path))
    found = {one.problem.n: (one.config.block, one.versions["commit"], one.found) for one in read_sheet(path)}
    kept = {1 << 10: (512, "0000002", "2026-01-01"), 1 << 16: (512, "0000003", "2026-01-01")}
    assert found == kept | {1 << 20: (64, "0000001", "2026-01-02")}
    other = sheet((sizes[0], config(block=512)), on=target("cuda", name="NVIDIA H100"))
    with pytest.raises(UsageError, match="measured on another device"):
        shipped.with_older(other, path)


def test_show_lists_what_is_shipped(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(root, sheet((SUM, config(block=512)), (ROWS, config(team=32, combine="two_pass"))))
    ship(root, MAX)
    assert main(["show", "--op", "sum"]) == 0
    out = capsys.readouterr().out
    assert "sum of 16777216 float32 on NVIDIA H200: block=512" in out
    assert "sum of 10000 x (512) float32" in out
    assert "the default 4.50 us; commit abcdef0" in out
    assert "max" not in out
    assert main(["show"]) == 0
    out = capsys.readouterr().out
    assert "shipped for cuda sm_90, measured on NVIDIA H200: 3 configs, 2 operators, 1 types" in out
    assert "block=512" not in out


def test_an_export_takes_what_is_shipped(root: Path, tmp_path: Path) -> None:
    varies = row(problem("sum", n=1 << 10), FLOATS_IN_TURN, determinism="varies")
    put(root, sheet((SUM, config()), rows=(varies, row(SUM, config(block=512)))))
    for determinism, sizes in (("any", [1 << 10, 1 << 24]), ("run-to-run", [1 << 24])):
        found = redtune.export("sum", format="cuda", arch="sm_90", out=tmp_path / determinism, determinism=determinism)
        assert [v.problem.n for v in found.export.variants] == sizes
