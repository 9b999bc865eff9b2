"""Ceilings, what stands where below them, and what a person sees of it: no device is needed."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from redtune import store
from redtune.arithmetic import CHAINS, STEPS, TURNS, Arithmetic, arithmetic_kernels, steps_in
from redtune.backends import backend_named
from redtune.ceilings import (
    Roof,
    Roofline,
    asked_problems,
    measure_roofline,
    rate_of,
    stand_of,
    winners_on,
)
from redtune.computing import Computed
from redtune.errors import BackendMissing, UsageError
from redtune.operations import element_bytes, work_of
from redtune.operators import OPERATORS
from redtune.render import templates_digest, templates_path
from redtune.roofed import roofline_frame, roofline_json, show_roofline, write_csv
from redtune.roofplot import write_plot
from redtune.types import Timing
from tests.need import need
from tests.text.kernels import ARCHS, PAIRS, problem, target
from tests.text.shipping import ship
from tests.text.test_lab import plan as plan
from tests.text.test_search import searched

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")

GPU = target("cuda")
# 10^9 operations a second of a device that reads 1000 GB/s.
RATES = {"add": 2000.0, "max": 1000.0, "fma": 4000.0, "exp": 500.0}
ROOFS = tuple(
    Roof(name, dtype, rate, rate / 1000.0)
    for dtype in ("float32", "float64", "int32", "int64")
    for name, rate in RATES.items()
)


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDTUNE_CACHE", str(tmp_path / "cache"))
    store.WARNED.clear()


# --- operations -------------------------------------------------------------------------------------------------------

COUNTED: dict[tuple[str, str], dict[tuple[str, str], int]] = {
    ("sum", "float32"): {("add", "float32"): 1},
    ("sum", "bfloat16"): {("add", "float32"): 1},
    ("sum", "int8"): {("add", "int32"): 1},  # narrow ones are folded in 32 bits within a tile
    ("sum", "uint32"): {("add", "int64"): 1},
    ("max", "float64"): {("max", "float64"): 1},
    ("any", "float32"): {("max", "float32"): 1, ("add", "int32"): 1},
    ("count_nonzero", "float32"): {("max", "float32"): 1, ("add", "int64"): 1},
    ("argmax", "float32"): {("max", "float32"): 1},  # few tiles win, so few are searched
    ("dot", "float32"): {("add", "float32"): 2},
    ("var", "float32"): {("add", "float32"): 7},
    ("logsumexp", "float32"): {("max", "float32"): 1, ("add", "float32"): 2, ("exp", "float32"): 1},
    ("sum", "complex64"): {("add", "float32"): 2},
    ("prod", "complex64"): {("add", "float32"): 6},
}


@pytest.mark.parametrize(("pair", "expected"), COUNTED.items(), ids=["-".join(pair) for pair in COUNTED])
def test_operations_are_counted_from_the_entry(pair: tuple[str, str], expected: dict[tuple[str, str], int]) -> None:
    assert dict(work_of(problem(*pair))) == expected


def test_every_operation_of_every_operator_has_a_ceiling() -> None:
    """What an operator does to an element is of a kind and a dtype that is measured."""
    measured = {(one.step.name, one.dtype) for one in arithmetic_kernels(GPU.device, GPU.dialect)}
    for op, dtype in PAIRS:
        work = work_of(problem(op, dtype))
        assert sum(work.values()) > 0
        assert set(work) <= measured, (op, dtype)


def test_all_arrays_that_are_read_count() -> None:
    assert element_bytes(problem("sum", "float16")) == 2
    assert element_bytes(problem("dot", "float64")) == 16
    assert element_bytes(problem("mean", "float32", is_masked=True)) == 5


# --- kernels ----------------------------------------------------------------------------------------------------------


def test_the_steps_are_what_operators_do() -> None:
    def plain(text: str) -> str:
        return re.sub(r"\b([ab])\.\w+", r"\1", text)

    assert STEPS["add"].text == plain(OPERATORS["sum"].merge[0])
    assert STEPS["max"].text == plain(OPERATORS["max"].merge[0])
    dot = OPERATORS["dot"]
    assert STEPS["fma"].text == plain(dot.merge[0]).replace("b", dot.lift[0]).replace("x", "b").replace("y", "b")
    gather = OPERATORS["logsumexp"].gather
    assert gather is not None
    assert gather.added.startswith("decay(")
    assert STEPS["exp"].text.startswith("decay(")


def made(backend: str) -> list[Arithmetic]:
    on = target(backend)
    return list(arithmetic_kernels(on.device, on.dialect))


# How often an instruction stands in the code of a kernel: once for each step that follows the last jump.
INSTRUCTIONS = {
    ("add", "float32"): r"add\.f32|add_f32|pk_add_f32",
    ("fma", "float32"): r"fma\.rn\.f32|fmac?_f32",
    ("add", "float64"): r"add\.f64|add_f64",
    ("max", "int32"): r"max\.s32|max_i32",
    ("add", "int32"): r"add\.s32|add_u32",
    ("max", "float32"): r"max\.NaN\.f32|cmp_u_f32",
    ("exp", "float32"): r"ex2\.approx\.ftz\.f32|exp_f32",
}


def check_steps(text: str, one: Arithmetic) -> None:
    pattern = INSTRUCTIONS.get((one.step.name, one.dtype))
    if pattern is not None:
        found = Counter("pk" in name for name in re.findall(rf"\b(?:v_)?(?:{pattern})", text))
        assert found[False] + 2 * found[True] >= CHAINS * TURNS, f"{one.step.name} of {one.dtype}: {found}"


def test_nvrtc_leaves_every_step_in_the_code() -> None:
    need("nvrtc")
    from redtune.backends.cuda import compile_ptx

    for one in made("cuda"):
        assert one.kernel is not None
        check_steps(compile_ptx(one.kernel, GPU.device).decode(), one)


def test_clang_leaves_every_step_in_the_code() -> None:
    need("clang")
    from redtune.amdgpu import disassemble

    backend, device = backend_named("hip"), target("hip").device
    for one in made("hip"):
        if (one.step.name, one.dtype) in (("add", "float32"), ("max", "int32")):  # each compiles for seconds
            assert one.kernel is not None
            check_steps(str(disassemble(backend.compile(one.kernel, device))), one)


@pytest.mark.parametrize("backend", ARCHS)
def test_a_launch_takes_all_compute_units(backend: str) -> None:
    for one in made(backend):
        assert one.kernel is not None
        (launch,) = one.kernel.launches
        assert launch.grid % target(backend).device.compute_units == 0
        assert launch.entry in one.kernel.source
        assert steps_in(one.kernel) == CHAINS * TURNS * launch.grid * launch.block


def test_a_device_without_doubles_says_so() -> None:
    on = target("opencl", features=("atomics_64",), waves=())
    absent = {one.dtype for one in arithmetic_kernels(on.device, on.dialect) if one.kernel is None}
    assert absent == {"float64"}
    assert all("float64" in one.absent for one in arithmetic_kernels(on.device, on.dialect) if one.absent)


def test_kernels_that_reduce_are_told_apart_from_those_that_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of what only computes makes no stored winner old."""
    import shutil

    before = templates_digest()
    shutil.copytree(templates_path(), tmp_path / "templates")
    monkeypatch.setattr("redtune.render.templates_path", lambda: tmp_path / "templates")
    (tmp_path / "templates" / "ceiling" / "arithmetic.jinja").write_text("changed")
    templates_digest.cache_clear()
    try:
        assert templates_digest() == before
        (tmp_path / "templates" / "kernel.jinja").write_text("changed")
        templates_digest.cache_clear()
        assert templates_digest() != before
    finally:
        templates_digest.cache_clear()


def test_the_rate_counts_all_threads() -> None:
    found = Computed(rounds=10, timing=Timing(2.0, 0.0, 11))
    assert rate_of(STEPS["fma"], 1000, found) == pytest.approx(2 * 1000 * 10 / 2e-6 * 1e-9)


# --- where operators stand --------------------------------------------------------------------------------------------


def test_memory_bounds_what_computes_little() -> None:
    stand = stand_of(problem("sum"), 1000.0, ROOFS)
    assert (stand.operations, stand.bytes, stand.intensity) == (1, 4, 0.25)
    assert (stand.bound, stand.attainable_gbps, stand.ceiling_gops) == ("memory", 1000.0, 2000.0)


def test_arithmetic_bounds_what_computes_much() -> None:
    """One larger, two additions and one exponential an element of two bytes: 1/1000 + 2/2000 + 1/500 ns."""
    stand = stand_of(problem("logsumexp", "float16"), 1000.0, ROOFS)
    assert stand.bound == "arithmetic"
    assert stand.ceiling_gops == pytest.approx(4 / 0.004)
    assert stand.attainable_gbps == pytest.approx(2 / 0.004)


def test_without_a_ceiling_nothing_is_claimed() -> None:
    roofs = [roof if roof.dtype != "float64" else Roof(roof.name, "float64", absent="no doubles") for roof in ROOFS]
    stand = stand_of(problem("sum", "float64"), 1000.0, roofs)
    assert (stand.bound, stand.attainable_gbps, stand.fraction) == ("no add of float64", None, None)


def tuned(on: Any = GPU, **more: Any) -> None:
    searched(lambda config: 100.0, on, problem(**more), trials=1)


def test_the_winner_of_the_largest_size_counts() -> None:
    for n in (1 << 20, 1 << 24, 1 << 22):
        tuned(op="max", n=n)
    tuned(op="sum", n=1 << 20, is_compensated=True)
    tuned(target("cuda", name="another GPU"), op="min", n=1 << 24)
    found = winners_on(GPU.device)
    assert set(found) == {("max", "float32")}
    whose, best = found["max", "float32"]
    assert (whose, best.problem.n) == ("here", 1 << 24)


def test_what_is_shipped_for_the_device_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "shipped_path", lambda: tmp_path / "shipped")
    from redtune.defaults import default_config

    ship(tmp_path / "shipped", problem("max"), default_config(problem("max"), GPU.dialect, GPU.device), GPU)
    assert winners_on(GPU.device)["max", "float32"][0] == "shipped"
    assert winners_on(target("cuda", name="another GPU").device) == {}


def test_a_winner_is_held_to_the_ceiling_of_its_own_rounds() -> None:
    tuned(op="max", n=1 << 24)
    _, best = winners_on(GPU.device)["max", "float32"]
    for own, least in ((500.0, 500.0), (None, 1000.0), (9000.0, 4000.0)):  # computing allows 4000 GB/s
        found = dataclasses.replace(best, gbps=250.0, ceiling_gbps=own)
        stand = dataclasses.replace(stand_of(problem("max"), 1000.0, ROOFS), best=found)
        assert stand.fraction == pytest.approx(250.0 / least)


def test_one_dtype_for_each_operator_unless_more_are_named() -> None:
    listed = asked_problems((), ())
    assert [one.op for one in listed] == list(OPERATORS)
    assert {one.dtype for one in listed} == {"float32", "int32"}
    assert {one.dtype for one in asked_problems(("sum",), ("int8", "float16"))} == {"int8", "float16"}
    assert [one.op for one in asked_problems(("sum", "bitwise_or"), ("float32",))] == ["sum"]


@pytest.mark.parametrize(
    ("ops", "dtypes", "words"),
    [
        (("summ",), (), "did you mean 'sum'"),
        ((), ("float31",), "did you mean 'float32'"),
        (("bitwise_or",), ("float32",), "bitwise_or of float32 has no meaning"),
    ],
)
def test_names_that_are_none_are_refused(ops: tuple[str, ...], dtypes: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        asked_problems(ops, dtypes)


# --- the whole of it, with a worker that says what it is told to ------------------------------------------------------


@pytest.fixture
def found(plan: Any) -> Roofline:
    """What is measured where every launch takes 50 us, and the smallest reduction 4."""
    plan()
    tuned(op="max", n=1 << 24)
    return measure_roofline(GPU.device, ("max", "sum", "logsumexp"))


def test_a_roofline_is_measured(found: Roofline) -> None:
    assert found.read_gbps == pytest.approx(found.bytes / 50e-6 * 1e-9)
    assert found.copy_gbps == pytest.approx(2 * found.read_gbps)
    add, fma = found.roof("add", "float32"), found.roof("fma", "float32")
    assert add is not None
    assert fma is not None
    assert fma.gops == 2 * (add.gops or 0)
    assert add.ridge == pytest.approx((add.gops or 0) / found.read_gbps)
    assert found.launching.n_equal["float32"] == round(4e-6 * found.read_gbps * 1e9 / 4)
    assert [stand.problem.op for stand in found.stands] == ["sum", "max", "logsumexp"]
    assert [stand.whose for stand in found.stands] == ["", "here", ""]


def test_a_roofline_for_programs(found: Roofline, tmp_path: Path) -> None:
    document = json.loads(json.dumps(roofline_json(found)))
    assert document["launch"]["smallest_us"] == 4.0
    assert {row["name"] for row in document["ceilings"]["arithmetic"]} == set(STEPS)
    assert [row["op"] for row in document["rows"]] == ["sum", "max", "logsumexp"]
    frame = roofline_frame(found)
    assert frame.attrs["ceilings"]["read_gbps"] == found.read_gbps
    assert frame.loc[1, "fraction"] == pytest.approx(found.stands[1].fraction)
    write_csv(found, str(tmp_path / "rows.csv"))
    assert (tmp_path / "rows.csv").read_text().splitlines()[0].startswith("op,dtype,operations,bytes,intensity")
    with pytest.raises(UsageError, match="cannot be written"):
        write_csv(found, str(tmp_path / "no" / "rows.csv"))


def test_a_roofline_for_people(found: Roofline, capsys: pytest.CaptureFixture[str]) -> None:
    show_roofline(found)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 110
    assert re.search(r"max +│float32│ +1│0.25│.*│memory *│here *│ 2\^26│", shown)
    assert "launch: 2.00 us for a kernel that does nothing, 4.00 us" in shown
    assert "no winner" not in shown


def test_what_is_absent_is_named(found: Roofline, capsys: pytest.CaptureFixture[str]) -> None:
    roofs = tuple(Roof(roof.name, roof.dtype, absent="no doubles") for roof in found.roofs if roof.dtype == "float64")
    rest = tuple(roof for roof in found.roofs if roof.dtype != "float64")
    stands = tuple(dataclasses.replace(stand, best=None, whose="") for stand in found.stands)
    show_roofline(dataclasses.replace(found, roofs=rest + roofs, stands=stands))
    shown = capsys.readouterr().out
    assert "add of float64, max of float64, fma of float64, exp of float64: absent: no doubles" in shown
    assert "no winner: nothing of this is tuned on this device yet" in shown


def test_a_roofline_is_drawn(found: Roofline, tmp_path: Path) -> None:
    write_plot(found, str(tmp_path / "roof.png"))
    assert (tmp_path / "roof.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match="cannot be written"):
        write_plot(found, str(tmp_path / "no" / "roof.png"))


def test_a_plot_without_matplotlib_says_what_to_install(
    found: Roofline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(BackendMissing, match=r"pip install 'redtune\[plot\]'"):
        write_plot(found, str(tmp_path / "roof.png"))
