"""`redtune verify` without a device: what a checker's log says, whose it is, what is drawn, what is printed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redtune import cli, verifying
from redtune.checkers import CHECKERS, Complaint, complaints
from redtune.config import KNOBS, Config, is_read
from redtune.errors import BackendMissing
from redtune.process import Under, WorkerProcess
from redtune.sampling import LAYOUTS, Scope, drawn, problem_of, sampled, wishes
from redtune.types import Verdict
from redtune.verifying import Checked, Verified, numbered, verify_sample
from tests.text.kernels import config, problem, rendered, target
from tests.text.test_process import is_running, until

RACES = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at redtune_sum_int32_no7_second+0xa80
=========     and Read access at redtune_sum_int32_no7_second+0x9c0 [32 hazards]
=========
========= Warning: Race reported between Read access at redtune_max_float32_rows_no12+0x9d0
=========     and Write access at redtune_max_float32_rows_no12+0xab0 [8 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""
READS = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at redtune_sum_int32_no3+0x2a0
=========     by thread (1,0,0) in block (0,0,0)
=========     Address 0x7f0 is out of bounds
=========
========= ERROR SUMMARY: 1 error
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
SIMULATED = """\

Read-write data race at local memory address 0x1000000000010
\tKernel: redtune_sum_int32_no0
\tFirst entity: Global(2,0,0) Local(2,0,0) Group(0,0,0)

2 warnings generated.
Uninitialized value read from global memory address 0x2
\tKernel: redtune_argmax_int8_columns_no21_second
"""


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (CLEAN, []),
        ("", []),
        (RACES, [("Error: Race reported", 7), ("Warning: Race reported", 12)]),
        (READS, [("Invalid __global__ read of size 4 bytes", 3)]),
        (SIMULATED, [("Read-write data race", 0), ("Uninitialized value read", 21)]),
        ("something nobody foresaw\n", [("something nobody foresaw", None)]),
    ],
)
def test_what_a_log_complains_about(log: str, found: list[tuple[str, int | None]]) -> None:
    said = complaints(log)
    assert [complaint.number for complaint in said] == [number for _, number in found]
    for complaint, (text, _) in zip(said, found, strict=True):
        assert complaint.text.startswith(text)


@pytest.mark.parametrize("dialect", ["cuda", "opencl"])
def test_a_kernel_with_a_number_is_told_from_others_by_every_entry(dialect: str) -> None:
    on = target(dialect)
    kernel = rendered(on, config(combine="two_pass", exchange="lds", wave=32), problem("argmax"))
    named = numbered(kernel, 41)
    assert len(named.launches) == 2
    for launch in named.launches:
        assert f"void {launch.entry}" in named.source.replace("__launch_bounds__(BLOCK) ", "void ").replace(
            "__launch_bounds__(SECOND_BLOCK) ", "void "
        )
        assert complaints(f"Race reported at {launch.entry}+0x1") == [
            Complaint(f"Race reported at {launch.entry}+0x1", 41)
        ]
    assert named.source.replace("_no41", "") == kernel.source


def test_a_checker_that_is_not_installed_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redtune.checkers.shutil.which", lambda name: None)
    monkeypatch.setattr("redtune.checkers._toolkits", lambda: [])
    monkeypatch.setattr("redtune.checkers.OCLGRIND_LIBRARY", tmp_path / "absent.so")
    for backend, tool in (("cuda", "compute-sanitizer"), ("opencl", "oclgrind")):
        for checker in CHECKERS[backend]:
            with pytest.raises(BackendMissing, match=f"{tool} is not installed"):
                checker.under(tmp_path)


@pytest.fixture
def wrapped() -> Iterator[WorkerProcess]:
    """A worker under a command that stays, as a checker does."""
    worker = WorkerProcess(Under(("sh", "-c", '"$@"; true', "sh"), {"REDTUNE_TEST_UNDER": "yes"}))
    yield worker
    worker.kill()


def test_a_worker_under_a_command_answers_and_ends_with_it(wrapped: WorkerProcess) -> None:
    with pytest.raises(BackendMissing):
        wrapped.ask("devices", 60.0, backend="hip")
    shell = wrapped._process
    assert shell is not None
    (child,) = (int(pid) for pid in Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split())
    assert b"REDTUNE_TEST_UNDER=yes" in Path(f"/proc/{child}/environ").read_bytes()
    assert is_running(child)
    wrapped.kill()
    assert until(lambda: not is_running(child))


def test_a_sample_holds_what_was_asked_for() -> None:
    on = target("opencl")
    scope = Scope(("sum", "max"), ("int32", "float32"), ("rows",), threads=512)
    rows = list(sampled(on.device, 12, 0, scope))
    assert {(p.op, p.dtype) for p, _ in rows} == {(op, dtype) for op in scope.ops for dtype in scope.dtypes}
    assert {p.layout for p, _ in rows} == {"rows"}
    assert all(c.split * c.block <= 512 for _, c in rows)
    wide = problem_of("max", "int32", "rows", (50, 777, 1))
    assert drawn(wide, on.device, {"split": (512,)}, random.Random(0), scope=scope) is None


CONFIG = Config()
GOOD = Checked("judge", problem("max"), CONFIG, Verdict.OK)
WRONG = Checked("judge", problem("sum"), CONFIG, Verdict.WRONG, "sum of 3 elements gave 4, not 5")
THEIRS = Checked("judge", problem("sum"), CONFIG, Verdict.CRASHED, "the compiler crashed: signal SIGSEGV")


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> list[Checked]:
    """What the judge will say."""
    rows: list[Checked] = []
    device = target("opencl").device
    monkeypatch.setattr("redtune.lab.find_device", lambda backend, index: device)
    monkeypatch.setattr(verifying, "judge_configs", lambda *given: rows)
    return rows


@pytest.mark.parametrize("seed", [0, 20])
def test_a_sample_leaves_out_no_choice(seed: int) -> None:
    """However the problems fall: the widest loads suit few of them."""
    on = target("cuda")
    rows = list(sampled(on.device, 420, seed))
    for layout in LAYOUTS:
        configs = [c for p, c in rows if p.layout == layout]
        seen = {(name, getattr(c, name)) for c in configs for name in KNOBS if is_read(name, c)}
        assert not set(wishes(layout, on.device)) - seen


def test_a_sample_that_comes_through(scripted: list[Checked], capsys: pytest.CaptureFixture[str]) -> None:
    scripted += [GOOD, GOOD, THEIRS]
    assert cli.main(["verify", "--configs", "3"]) == 0
    out = capsys.readouterr().out
    assert "3/3 configs came through the judge" in out
    assert "the vendor's compiler died or did not end on 1 of them" in out


def test_a_wrong_config_fails_the_command_and_is_named(
    scripted: list[Checked], capsys: pytest.CaptureFixture[str]
) -> None:
    scripted += [GOOD, WRONG]
    assert cli.main(["verify"]) == 1
    out, err = capsys.readouterr()
    assert "1/2 configs came through" in out
    assert "WRONG sum of" in out
    assert "block=" in out
    assert "1 of 2 configs did not come through; the first: sum of 3 elements gave 4, not 5" in err


def test_one_document(scripted: list[Checked], capsys: pytest.CaptureFixture[str]) -> None:
    scripted += [GOOD, WRONG]
    assert cli.main(["verify", "--json"]) == 1
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (found["configs"], found["bad"], found["absent"]) == (2, 1, {})
    assert [row["verdict"] for row in found["rows"]] == ["OK", "WRONG"]
    assert found["rows"][1]["problem"]["op"] == "sum"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--op", "summ"], "did you mean 'sum'"),
        (["--op", "sum,"], "operator"),
        (["--dtype", "float3"], "float32"),
        (["--layout", "diagonal"], "choose from columns, flat, rows"),
        (["--configs", "0"], "configs is 0: ask for 1 to"),
        (["--seed", "-1"], "seed"),
        (["--op", "bitwise_and", "--dtype", "float32"], "no problem to sample"),
    ],
)
def test_what_cannot_be_verified_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redtune.lab.find_device", lambda backend, index: target("opencl").device)
    assert cli.main(["verify", *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_nothing_to_watch_with_is_a_failure_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*given: object) -> list[Checked]:
        raise BackendMissing("oclgrind is not installed")

    monkeypatch.setattr(verifying, "examine_configs", absent)
    found = verify_sample(target("opencl").device, Scope(), 1, 0, True, lambda progress: None)
    assert found.absent == {"oclgrind": "oclgrind is not installed"}
    with pytest.raises(Exception, match="oclgrind is not installed"):
        found.check()
    none = verify_sample(target("hip").device, Scope(), 1, 0, True, lambda progress: None)
    assert none.absent == {"hip": "no checker is known for the hip backend"}


def test_a_row_is_a_fault_unless_the_vendors_compiler_failed() -> None:
    assert [row.is_bad for row in (GOOD, WRONG, THEIRS)] == [False, True, False]
    Verified(target("opencl").device, 0, (GOOD, THEIRS), {}).check()
