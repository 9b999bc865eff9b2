"""The probe of how blocks meet: which configs it tries, what it says, when it fails. No device runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from redtune import cli, probing
from redtune.combine import COMBINES
from redtune.config import Config
from redtune.dtypes import dtype_named
from redtune.plan import parts_of
from redtune.refusals import hindrances
from redtune.repeating import repeated
from redtune.types import Device, Problem, Repeated, as_json, from_json
from tests.fakes import DIFFERENT, SAME, FakeLab
from tests.text.kernels import Target, problem, reasons, target

H, CPU = target("cuda"), target("opencl")
WIDE = {"outer": 40, "n": 5000}
PROBLEMS = [
    problem("sum", "float32"),
    problem("sum", "float64"),
    problem("max", "bfloat16"),
    problem("sum", "int32"),
    problem("prod", "complex64"),
    problem("dot", "float32", **WIDE),
    problem("sum", "float64", inner=7, **WIDE),
]


# --- which configs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", [H, target("cuda", "sm_80"), target("hip"), CPU], ids=lambda on: on.device.arch)
@pytest.mark.parametrize("p", PROBLEMS, ids=lambda p: f"{p.op}-{p.dtype}-{p.layout}")
def test_every_strategy_is_tried_where_it_can_be(on: Target, p: Problem) -> None:
    for combine in COMBINES:
        found = probing.strategy_of(combine, p, on.dialect, on.device)
        if found.config is None:
            assert found.refusal
            continue
        assert found.config.combine == combine
        assert found.blocks == parts_of(p, found.config, on.device) >= 3
        assert not hindrances(found.config, p, on.dialect, on.device)


def refusals_of(on: Target, p: Problem) -> dict[str, str]:
    found = [probing.strategy_of(combine, p, on.dialect, on.device) for combine in COMBINES]
    return {s.combine: s.refusal for s in found if s.config is None}


def test_what_cannot_run_says_why() -> None:
    for dtype in ("float32", "float64"):
        assert refusals_of(H, problem("sum", dtype)).keys() == {"tally"}
        assert "integers that add up" in refusals_of(H, problem("sum", dtype))["tally"]
    assert refusals_of(H, problem("sum", "int32")) == {}
    assert refusals_of(CPU, problem("sum", "float64")).keys() == {"cluster", "collector", "tally"}
    for layout in ({}, WIDE):
        assert "needs thread block clusters" in refusals_of(CPU, problem("sum", "float64", **layout))["cluster"]
    assert "fewer than 3 blocks share a result of 100 elements" in refusals_of(H, problem(n=100))["two_pass"]
    none = refusals_of(target("opencl", features=("device_atomics",)), problem("sum", "float64"))
    assert none.keys() == set(COMBINES)
    assert all("no float64" in sentence for sentence in none.values())


@pytest.mark.parametrize(
    ("op", "dtype", "can_vary"), [("sum", "float64", True), ("max", "float32", True), ("sum", "int32", False)]
)
def test_the_promise_is_what_run_to_run_admits(op: str, dtype: str, can_vary: bool) -> None:
    for combine in COMBINES:
        found = probing.strategy_of(combine, problem(op, dtype), H.dialect, H.device)
        assert found.is_promised == (found.config is not None and (not can_vary or combine != "atomic"))


# --- what is said -----------------------------------------------------------------------------------------------------


class RepeatingLab(FakeLab):
    """A lab in which every config gives what `gives` says."""

    def __init__(self, p: Problem, device: Device, gives: Callable[[Config], Repeated]) -> None:
        super().__init__(p, device, lambda config: 100.0)
        self.gives = gives

    def __enter__(self) -> RepeatingLab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def compile(self, kernel: Any) -> Any:
        return self.compile_ahead(kernel).result()

    def repeat(self, compiled: Any, repeats: int) -> Repeated:
        return self.gives(compiled.kernel.config)


def one_varies(combine: str) -> Callable[[Config], Repeated]:
    return lambda config: DIFFERENT if config.combine == combine else SAME


Probed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Probed:
    """`probed(gives, *arguments)`: exit code, stdout and stderr of `redtune probe` on a GPU that is not there."""
    monkeypatch.setattr("redtune.lab.find_device", lambda backend, index: H.device)
    monkeypatch.setattr("redtune.cli.warnings.showwarning", None)

    def run(gives: Callable[[Config], Repeated], *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("redtune.probing.Lab", lambda device, p, **_: RepeatingLab(p, device, gives))
        code = cli.main(["probe", *arguments])
        return (code, *capsys.readouterr())

    return run


def rows(out: str) -> dict[str, list[str]]:
    """The rows of the table."""
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]
    return {row[0]: row[1:] for row in cells}


def test_what_may_vary_and_does_is_no_fault(probed: Probed) -> None:
    code, out, _ = probed(one_varies("atomic"), "--dtype", "float64")
    assert code == 0
    found = rows(out)
    assert found["atomic"] == ["264", "may vary", "1", "3", "0.25", "2", "varies"]
    for combine in ("two_pass", "last_block", "cluster"):
        assert found[combine] == ["264", "the same bits", "1", "1", "0", "0", "bitwise identical"]
    assert "2.5x as long under load" in out


def test_what_may_vary_and_did_not_is_never_claimed(probed: Probed) -> None:
    code, out, _ = probed(lambda config: SAME, "--dtype", "float64")
    assert code == 0
    assert rows(out)["atomic"][-1] == "may vary; 400 of 400 the same here"


@pytest.mark.parametrize("combine", ["two_pass", "last_block", "cluster"])
def test_a_broken_promise_fails_and_says_so(combine: str, probed: Probed) -> None:
    code, out, err = probed(one_varies(combine))
    assert code == 1
    assert rows(out)[combine][-1] == "VARIES against the promise"
    assert f"combine {combine} promises the same bits in every run, and gave 3 different results in 400 runs" in err
    code, out, _ = probed(one_varies(combine), "--json")
    assert code == 1
    assert json.loads(out)["fits"] is False


def test_atomics_on_integers_promise_too(probed: Probed) -> None:
    assert probed(one_varies("atomic"), "--dtype", "int32")[0] == 1


def test_one_document(probed: Probed) -> None:
    code, out, err = probed(one_varies("atomic"), "--json", "--repeats", "7", "--n", "2**20")
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert (said["repeats"], said["problem"]["n"], said["fits"]) == (7, 1 << 20, True)
    found = {row["combine"]: row for row in said["strategies"]}
    assert found.keys() == set(COMBINES)
    assert found["two_pass"]["repeated"] == as_json(SAME)
    assert (found["atomic"]["refusal"], found["atomic"]["verdict"]) == ("", "varies")


def test_atomics_on_float32_are_shown_though_no_search_takes_them() -> None:
    """They lose digits by rounding once for each block, in the order in which blocks finish: that is what is probed."""
    found = probing.strategy_of("atomic", problem("sum", "float32"), H.dialect, H.device)
    assert found.config is not None
    assert (found.blocks > 4, found.is_promised) == (True, False)
    assert "in turn; at most 4" in reasons(H, found.config, problem("sum", "float32"))[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--repeats", "1"), ("repeats is 1", "at least 2")),
        (("--repeats", "-3"), ("repeats is -3",)),
        (("--seed", "-1"), ("seed is -1",)),
        (("--op", "summ"), ("'summ'", "'sum'")),
        (("--n", "0.5"), ("'0.5'",)),
    ],
)
def test_bad_input_gets_a_sentence(arguments: Sequence[str], words: Sequence[str], probed: Probed) -> None:
    code, out, err = probed(lambda config: SAME, *arguments)
    assert (code, out) == (2, "")
    assert all(word in err for word in words)
    assert len(err.strip().splitlines()) == 1


# --- what is counted --------------------------------------------------------------------------------------------------


class NoSession:
    """A session with nothing but a load."""

    is_busy = False

    @contextmanager
    def under_load(self, calls: Sequence[Any]) -> Iterator[None]:
        self.is_busy = True
        yield
        self.is_busy = False


def counted(dtype: str, idle: Sequence[Any], loaded: Sequence[Any]) -> Repeated:
    """What runs that give those results amount to."""
    session: Any = NoSession()
    given, kind = {False: iter(idle), True: iter(loaded)}, dtype_named(dtype)

    def once() -> Any:
        return kind.encode(np.atleast_1d(next(given[session.is_busy])))

    seen = repeated(session, once, kind, len(idle), [])
    assert seen.slowed > 0
    assert from_json(Repeated, json.loads(json.dumps(as_json(seen)))) == seen or seen.spread != seen.spread
    return seen


ULP = float(np.spacing(np.float32(1)))
COUNTED: list[tuple[str, list[Any], list[Any], tuple[int, int, int], float, int | None]] = [
    ("float32", [1.0, 1.0], [1.0, 1.0], (1, 1, 1), 0, 0),
    ("float32", [1.0, 1.0], [1 + ULP, 1 + ULP], (1, 1, 2), ULP, 1),
    ("float32", [1.0, 1 + 3 * ULP], [1.0, 1 + ULP], (2, 2, 3), 3 * ULP, 3),
    ("float32", [0.0, -0.0], [0.0, 0.0], (2, 1, 2), 0, 0),
    ("float32", [2.0**-149, 0.0], [-(2.0**-149), 0.0], (2, 2, 3), 2.0**-148, 2),
    ("float32", [-1.0, -1.0], [-1 - ULP, -1.0], (1, 2, 2), ULP, 1),
    ("float64", [-1.0, 1.0], [1.0, 1.0], (2, 1, 2), 2, 2 * 0x3FF0000000000000),
    ("float16", [1.0, 1.0009765625], [1.0, 1.0], (2, 1, 2), 2.0**-10, 1),
    ("bfloat16", [1.0, 1.0078125], [1.0, 1.0], (2, 1, 2), 2.0**-7, 1),
    ("float32", [np.inf, 1.0], [1.0, 1.0], (2, 1, 2), np.inf, 0x7F800000 - 0x3F800000),
    ("complex64", [1 + 1j, 1 + (1 + 2 * ULP) * 1j], [1 + 1j, 1 + 1j], (2, 1, 2), 2 * ULP, 2),
    ("int32", [5, 9], [5, 5], (2, 1, 2), 4, None),
    ("uint64", [0, 2**64 - 1], [0, 0], (2, 1, 2), 2.0**64, None),
    ("bool", [True, False], [True, True], (2, 1, 2), 1, None),
    # Of several results, the one that is farthest apart.
    ("float32", [[1.0, 4.0], [1 + ULP, 4.0]], [[1.0, 4.0], [1.0, 4 + 8 * ULP]], (2, 2, 3), 8 * ULP, 2),
]


@pytest.mark.parametrize(("dtype", "idle", "loaded", "counts", "spread", "ulps"), COUNTED)
def test_different_results_are_counted(
    dtype: str, idle: list[Any], loaded: list[Any], counts: tuple[int, int, int], spread: float, ulps: int | None
) -> None:
    seen = counted(dtype, idle, loaded)
    assert (seen.runs, seen.idle, seen.loaded, seen.distinct) == (2, *counts)
    assert seen.determinism == ("run-to-run" if counts[2] == 1 else "varies")
    assert (seen.spread, seen.ulps) == (spread, ulps)


def test_nans_with_other_bits_are_other_results() -> None:
    quiet, payload = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)
    assert counted("float32", [quiet, payload], [quiet, quiet]).distinct == 2
