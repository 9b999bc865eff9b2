"""The command line as a user meets it, on a real device: search, search again, show and run."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from redtune import cli
from redtune.lab import list_devices
from redtune.operators import OPERATORS
from tests.caches import new_cache
from tests.need import need

ROOT = Path(__file__).parents[2]
N = 1 << 16
SEARCH = ("search", "--op", "max", "--n", "2**16", "--trials", "6", "--time-limit", "20", "--backend", "opencl")
# The command line, and a look at what it has imported by the end.
WITHOUT_DEVICE = """
import sys
from redtune import cli
code = cli.main(sys.argv[1:])
opened = {"pyopencl", "cupy"} & set(sys.modules)
sys.exit(f"the parent imported {opened}" if opened else code)
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("opencl")
    return new_cache(tmp_path_factory.mktemp("some") / "a cache")


def redtune(cache: Path, *arguments: str, program: tuple[str, ...] = ("-m", "redtune")) -> tuple[str, str]:
    """stdout and stderr of a command that ends well."""
    done = subprocess.run(
        [sys.executable, *program, *arguments],
        cwd=ROOT,
        env={**os.environ, "REDTUNE_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.fixture
def run(cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """What a run prints as JSON. In this process, and the devices are listed once: what a process of its own does is
    seen below, and as many starts would tell no more."""
    monkeypatch.setenv("REDTUNE_CACHE", str(cache))
    monkeypatch.setattr("redtune.lab.list_devices", listed)

    def said(*arguments: str) -> Any:
        code = cli.main(["run", *arguments, "--backend", "opencl", "--json"])
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        return json.loads(out)

    return said


listed = functools.cache(list_devices)


@pytest.fixture(scope="module")
def found(cache: Path) -> tuple[str, str]:
    """What the first search said."""
    return redtune(cache, *SEARCH, "--json", program=("-c", WITHOUT_DEVICE))


def test_search_prints_one_document_and_nothing_else(found: tuple[str, str]) -> None:
    out, err = found
    document = json.loads(out)
    assert err == ""
    assert {"problem", "device", "best", "trials", "verdicts"} <= set(document)
    assert document["problem"]["op"] == "max"
    assert document["problem"]["n"] == N
    assert document["device"]["backend"] == "opencl"
    assert 1 <= document["trials"] <= 6
    assert sum(count for verdict, count in document["verdicts"].items() if verdict != "REFUSED") == document["trials"]
    best = document["best"]
    for name in ("median_us", "spread_us", "gbps", "ceiling_gbps", "baseline_us", "default_us", "worst_us"):
        assert isinstance(best[name], float), name
        assert best[name] > 0 or name == "spread_us"
    assert best["gbps"] == pytest.approx(4 * N / best["median_us"] * 1e-3)
    assert best["determinism"] in ("run-to-run", "varies")
    assert {"block", "vector", "items", "combine"} <= set(best["config"])
    assert document["is_saved"]


def test_a_second_search_starts_from_what_is_stored_and_says_so(cache: Path, found: tuple[str, str]) -> None:
    trials = json.loads(found[0])["trials"]
    out, err = redtune(cache, *SEARCH[:6], str(trials), *SEARCH[7:])
    assert "\x1b" not in out + err
    assert f"trials: {trials} ({trials} of them from earlier calls)" in " ".join(out.split())
    assert "started from: tuned here" in out
    assert "kept in: " in out


def test_show_lists_the_entry_with_its_evidence(cache: Path, found: tuple[str, str]) -> None:
    document = json.loads(found[0])
    best = document["best"]
    out, _ = redtune(cache, "show", "--op", "max")
    assert "65536" in out
    assert f"{document['trials']} trials, cold" in " ".join(out.split())
    everything = json.loads(redtune(cache, "show", "--json")[0])["tuned"]
    (shown,) = [one for one in everything if one["device"] == best["device"]]  # others come with redtune
    assert shown["from"] == "here"
    assert (shown["problem"], shown["device"]) == (best["problem"], best["device"])
    assert shown["median_us"] > 0


def test_show_source_prints_the_tuned_kernel(cache: Path, found: tuple[str, str]) -> None:
    out, err = redtune(cache, "show", "--source", "--op", "max", "--n", "2**16", "--backend", "opencl")
    assert err == ""
    assert f"#define BLOCK {json.loads(redtune(cache, 'show', '--json')[0])['tuned'][0]['config']['block']} " in out


def test_devices_prints_one_document(cache: Path) -> None:
    out, err = redtune(cache, "devices", "--json")
    document = json.loads(out)
    assert err == ""
    assert "opencl" in {device["backend"] for device in document["devices"]}
    assert all(device["name"] and device["arch"] and device["max_block"] > 0 for device in document["devices"])
    assert not {device["backend"] for device in document["devices"]} & set(document["absent"])


# --- run --------------------------------------------------------------------------------------------------------------


def negative(n: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return (-np.random.default_rng(0).random(n, np.float32) - 1).astype(dtype)


def ties_and_nans() -> np.ndarray[Any, Any]:
    values = negative(1_000_003)
    values[[700_001, 5, 999_999]] = np.inf
    values[[800_000, 700_000]] = np.nan
    return values


def ties() -> np.ndarray[Any, Any]:
    values = negative(1_000_003)
    values[[700_001, 600_000, 999_999]] = 7.0
    return values


FILES: dict[str, tuple[str, Callable[[], np.ndarray[Any, Any]]]] = {
    "all negative": ("max", lambda: negative(10**6)),
    "one element": ("max", lambda: negative(1)),
    "ties": ("argmax", ties),
    "ties and NaNs": ("argmax", ties_and_nans),
    "bytes": ("sum", lambda: np.random.default_rng(1).integers(-128, 128, 1_000_003).astype(np.int8)),
    "half precision": ("max", lambda: negative(100_003, "float16")),
    "big-endian": ("min", lambda: negative(100_003).astype(">f4")),
    "columns first": ("argmin", lambda: np.asfortranarray(negative(90_000).reshape(300, 300))),
}


@pytest.mark.parametrize("kind", FILES)
def test_run_equals_numpy(kind: str, run: Callable[..., Any], tmp_path: Path) -> None:
    op, make = FILES[kind]
    values = make()
    np.save(tmp_path / "some data.npy", values)
    document = run(str(tmp_path / "some data.npy"), "--op", op)
    assert document["value"] == getattr(np, op)(values).item()
    assert document["n"] == values.size


def normal(n: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.random.default_rng(2).normal(3.0, 2.0, n).astype(dtype)


def holes() -> np.ndarray[Any, Any]:
    values = normal(300_001)
    values[::7] = np.nan
    return values


def whole(dtype: str) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).integers(0, 100, 500_003).astype(dtype)


def parts(dtype: str) -> np.ndarray[Any, Any]:
    return (whole("int8") - 1j * whole("int8")[::-1]).astype(dtype)


def pair(value: complex) -> list[float]:
    return [value.real, value.imag]


REST: dict[str, tuple[Callable[[], np.ndarray[Any, Any]], Callable[[Any], Any]]] = {
    "mean": (lambda: whole("int16"), lambda x: x.mean()),
    "var": (lambda: normal(1_000_003), lambda x: x.astype(np.float64).var()),
    "std": (lambda: normal(100_003, "float64"), lambda x: x.std()),
    "norm_l1": (lambda: normal(100_003), lambda x: abs(x.astype(np.float64)).sum()),
    "norm_l2": (lambda: normal(100_003) * np.float32(1e30), lambda x: np.sqrt((x.astype(np.float64) ** 2).sum())),
    "norm_inf": (lambda: normal(100_003), lambda x: abs(x).max()),
    "sumsq": (lambda: whole("int32"), lambda x: (x.astype(np.int64) ** 2).sum()),
    "logsumexp": (lambda: normal(100_003), lambda x: np.log(np.exp(x.astype(np.float64)).sum())),
    "count_nonzero": (lambda: whole("uint8"), np.count_nonzero),
    "any": (lambda: whole("int8") > 98, np.any),
    "all": (lambda: whole("int8") < 99, np.all),
    "bitwise_and": (lambda: whole("uint32") | np.uint32(0x81), np.bitwise_and.reduce),
    "bitwise_or": (lambda: whole("uint16"), np.bitwise_or.reduce),
    "bitwise_xor": (lambda: whole("uint64"), np.bitwise_xor.reduce),
    "nansum": (holes, lambda x: np.nansum(x.astype(np.float64))),
    "nanmax": (holes, np.nanmax),
    "nanmin": (holes, np.nanmin),
    "prod": (lambda: whole("int64") | 1, lambda x: x.prod()),
    "sum": (lambda: parts("complex64"), lambda x: pair(x.astype(np.complex128).sum())),
}


def test_run_has_every_operator_of_one_array() -> None:
    assert set(REST) | {op for op, _ in FILES.values()} == {name for name, op in OPERATORS.items() if op.inputs == 1}


# Each starts processes and compiles for seconds; tests/text/test_files.py has every operator with numpy in place of a
# device.
@pytest.mark.parametrize("op", list(REST)[::3])
def test_run_of_every_third_operator_is_within_a_millionth_of_numpy(
    op: str, run: Callable[..., Any], tmp_path: Path
) -> None:
    make, right = REST[op]
    values = make()
    np.save(tmp_path / "x.npy", values)
    value = run(str(tmp_path / "x.npy"), "--op", op)["value"]
    with np.errstate(over="ignore"):
        wanted = right(values)
    wanted = wanted if isinstance(wanted, list) else wanted.item() if hasattr(wanted, "item") else wanted
    assert value == (wanted if isinstance(wanted, (int, bool)) else pytest.approx(wanted, rel=1e-6))


AXES = {
    "rows": ((300, 700), "1"),
    "columns": ((300, 700), "0"),
    "the middle": ((7, 90, 41), "1"),
    "two": ((5, 60, 70), "0,1"),
}


@pytest.mark.parametrize("which", AXES)
def test_run_of_some_axes_equals_numpy(which: str, run: Callable[..., Any], tmp_path: Path) -> None:
    shape, axis = AXES[which]
    values = np.random.default_rng(4).integers(-128, 128, shape).astype(np.int8)
    np.save(tmp_path / "x.npy", values)
    document = run(str(tmp_path / "x.npy"), "--op", "sum", "--axis", axis, "--out", str(tmp_path / "out.npy"))
    right = values.sum(axis=tuple(map(int, axis.split(","))))
    assert document["value"] == right.tolist()
    assert document["shape"] == list(right.shape)
    found = np.load(tmp_path / "out.npy")
    assert found.dtype == right.dtype
    assert (found == right).all()


@pytest.mark.parametrize(("axis", "kind"), [("0", "columns")])
def test_what_a_search_of_a_shape_finds_is_what_runs(axis: str, kind: str, cache: Path, tmp_path: Path) -> None:
    given = ("--op", "max", "--dtype", "int16", "--shape", "300x700", "--axis", axis, "--backend", "opencl")
    out, err = redtune(cache, "search", *given, "--trials", "3", "--json")
    document = json.loads(out)
    assert err == ""
    assert document["is_saved"]
    problem = document["problem"]
    sizes = {"rows": (300, 700, 1), "columns": (1, 300, 700)}[kind]
    assert (problem["outer"], problem["n"], problem["inner"]) == sizes
    assert document["best"]["baseline"].startswith("numpy")
    values = np.random.default_rng(5).integers(-9999, 9999, (300, 700)).astype(np.int16)
    np.save(tmp_path / "x.npy", values)
    out, _ = redtune(
        cache, "run", str(tmp_path / "x.npy"), "--op", "max", "--axis", axis, "--backend", "opencl", "--json"
    )
    document = json.loads(out)
    assert document["value"] == values.max(axis=int(axis)).tolist()
    assert document["origin"] == "tuned here"


def test_searches_of_operators_that_numpy_calls_otherwise_end_well(cache: Path) -> None:
    ops = ["dot"]
    given = (
        "--ops",
        ",".join(ops),
        "--dtype",
        "int32",
        "--n",
        "2**14",
        "--trials",
        "1",
        "--backend",
        "opencl",
        "--json",
    )
    document = json.loads(redtune(cache, "search", *given, "--json")[0])
    found = document["searches"]
    assert [row["problem"]["op"] for row in found] == ops
    assert all(row["is_saved"] and row["best"]["baseline"].startswith("numpy") for row in found)


def test_run_prints_the_value_alone(cache: Path, tmp_path: Path, found: tuple[str, str]) -> None:
    values = negative(N)
    np.save(tmp_path / "x.npy", values)
    out, err = redtune(cache, "run", str(tmp_path / "x.npy"), "--op", "max", "--backend", "opencl")
    assert float(out) == values.max()
    assert "config: tuned here" in err


def test_run_equals_numpy_on_a_hundred_million_elements(cache: Path, tmp_path: Path) -> None:
    pattern = negative((1 << 20) - 3)
    values = np.lib.format.open_memmap(tmp_path / "large.npy", mode="w+", dtype=np.float32, shape=(10**8,))
    values[:] = np.resize(pattern, 10**8)
    values[-2] = np.nextafter(np.float32(-1), np.float32(0))  # above all others, and below zero
    values.flush()
    out, _ = redtune(cache, "run", str(tmp_path / "large.npy"), "--op", "max", "--backend", "opencl")
    assert float(out) == values.max() < 0
    (tmp_path / "large.npy").unlink()
