"""Shipped configs measured again: which of them no longer hold, with a lab whose clock is scripted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from redtune import checking, store
from redtune.beside import Answer, Beside
from redtune.checked import show_checked
from redtune.checking import check_rows, rows_for
from redtune.cli import main
from redtune.defaults import default_config
from redtune.errors import RedtuneError, UsageError
from redtune.lab import Compiled
from redtune.process import WorkerDied
from redtune.types import Kernel, Problem, Verdict
from tests.text.kernels import config, problem, target
from tests.text.shipping import GPU, put, row, sheet, ship

SUM = problem("sum")
TUNED = config(block=128, items=8)
# Rows are recorded at 4.25 us, 95.5 % of the ceiling.
CEILING_US = 4.25 * 0.955


class ScriptedLab:
    """Compiles everything and times it as a script says, in microseconds; with the default at 4.5."""

    us, default_us = 4.25, 4.5
    note = ""
    dies = False
    odd = False

    def __init__(self, device: Any, problem: Problem, **_: Any) -> None:
        self.device, self.dialect = device, GPU.dialect

    def __enter__(self) -> ScriptedLab:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def compile_ahead(self, kernel: Kernel) -> Future[Compiled]:
        future: Future[Compiled] = Future()
        is_tuned = kernel.config == TUNED
        future.set_result(
            Compiled(kernel, None, Verdict.NOT_COMPILED, self.note)
            if self.note and is_tuned
            else Compiled(kernel, "AAAA")
        )
        return future

    def beside(self, p: Problem, compiled: Sequence[Compiled], rounds: int, **_: Any) -> Beside:
        if self.dies:
            raise WorkerDied("the process ended with signal SIGSEGV")
        times = [self.us if one.kernel.config == TUNED else self.default_us for one in compiled]
        differs = ("kernel 1",) if self.odd else ()
        return Beside(
            samples=tuple(tuple(us * 1e-6 * (1 + 0.001 * (k % 3)) for k in range(rounds)) for us in times),
            libraries=(),
            absent=(),
            readers=((CEILING_US * 1e-6,) * rounds,),
            answers=(Answer("kernel 0", "float32", "3.0", 1, differs, 0.5 * self.odd, self.odd),),
        )


@pytest.fixture(autouse=True)
def lab(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The scripted lab, as a class to change."""

    class Lab(ScriptedLab):
        pass

    store.WARNED.clear()
    monkeypatch.setattr(checking, "Lab", Lab)
    return Lab


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path, sheet((SUM, TUNED)))
    return tmp_path


def checked(root: Path, **options: Any) -> checking.Remeasurement:
    return check_rows(rows_for(root, GPU.device, (), (), ()), GPU.device, **options)


def test_a_row_that_holds(root: Path) -> None:
    found = checked(root)
    found.check()
    (one,) = found.rows
    assert (one.wrong, one.recorded_share) == ("", pytest.approx(0.955, abs=1e-3))
    assert one.share == pytest.approx(0.955, abs=2e-3)
    assert one.ratio is not None
    assert one.ratio[0] == pytest.approx(4.25 / 4.5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"us": 5.0}, "slower than the default: 11.1% more time, beyond noise"),
        ({"note": "ptxas died"}, "not compiled: ptxas died"),
        ({"dies": True}, "failed: the process ended with signal SIGSEGV"),
        ({"odd": True}, "failed: kernel 0 gave 3.0 and differs from kernel 1"),
        ({"us": float("nan")}, "failed: the clock showed no time"),
    ],
)
def test_a_row_that_no_longer_holds(changes: dict[str, Any], said: str, root: Path, lab: Any) -> None:
    for name, value in changes.items():
        setattr(lab, name, value)
    found = checked(root)
    assert found.rows[0].wrong.startswith(said)
    with pytest.raises(RedtuneError, match="1 of 1 shipped configs no longer hold; the first: sum of float32: "):
        found.check()


def test_less_of_the_ceiling_than_was_recorded(tmp_path: Path, lab: Any) -> None:
    """Though the default is slower still."""
    put(tmp_path, sheet((SUM, TUNED), rows=(row(SUM, TUNED, ceiling_gbps=987.0),)))
    lab.us = 4.45
    assert checked(tmp_path).rows[0].wrong == ""
    lab.us = 4.53
    lab.default_us = 5.0
    assert checked(tmp_path).rows[0].wrong == "slower than recorded: 89.5% of the ceiling, not 100.0%"


def test_more_than_the_ceiling_is_not_asked_for_again(tmp_path: Path) -> None:
    """Over tiny inputs the kernels that only read are no ceiling."""
    put(tmp_path, sheet((SUM, TUNED), rows=(row(SUM, TUNED, ceiling_gbps=300.0),)))
    (one,) = checked(tmp_path).rows
    assert one.recorded_share is not None
    assert one.recorded_share > 3
    assert one.wrong == ""


def test_a_row_that_is_refused_here(tmp_path: Path) -> None:
    """The device of the file may be another one of the architecture."""
    ship(tmp_path, SUM, config(block=1024))
    small = target("cuda", max_block=512)
    found = check_rows(rows_for(tmp_path, small.device, (), (), ()), small.device)
    assert found.rows[0].wrong.startswith("refused: block 1024 is more than the 512 threads")


def test_the_default_is_compared_with_the_ceiling_alone(tmp_path: Path) -> None:
    ship(tmp_path, SUM, default_config(SUM, GPU.dialect, GPU.device))
    (one,) = checked(tmp_path).rows
    assert (one.ratio, one.median_us) == (None, one.default_us)


def test_a_sample_is_drawn_by_its_seed_within_the_time(tmp_path: Path) -> None:
    put(tmp_path, sheet(*((problem("sum", n=1 << power), TUNED) for power in range(18, 28))))
    first, same, other = (checked(tmp_path, count=4, seed=seed) for seed in (1, 1, 2))
    assert (len(first.rows), first.of) == (4, 10)
    assert first == same != other
    late = checked(tmp_path, limit_s=0)
    assert (late.rows, late.stopped) == ((), "the time limit of 0 s was reached")
    with pytest.raises(RedtuneError, match="no shipped config was measured: the time limit"):
        late.check()


def test_what_is_checked_can_be_named(tmp_path: Path) -> None:
    ship(tmp_path, SUM, TUNED)
    ship(tmp_path, problem("max", "int8"), TUNED)
    ship(tmp_path, SUM, TUNED, on=target("cuda", "sm_80"))
    assert len(rows_for(tmp_path, GPU.device, (), (), ())) == 2
    assert [best.problem.op for best in rows_for(tmp_path, GPU.device, ("max",), (), ())] == ["max"]
    assert [best.problem.op for best in rows_for(tmp_path, GPU.device, (), ("float32",), ("flat",))] == ["sum"]
    for given, said in (
        (("maxx",), "no operator 'maxx'"),
        (("min",), "has no such configs for cuda sm_90"),
    ):
        with pytest.raises(UsageError, match=said):
            rows_for(tmp_path, GPU.device, given, (), ())
    with pytest.raises(UsageError, match="there is no folder"):
        rows_for(tmp_path / "none", GPU.device, (), (), ())


def test_the_command(root: Path, lab: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("redtune.lab.find_device", lambda backend, index: GPU.device)
    assert main(["bench", "--check", str(root)]) == 0
    assert "1 of 1 hold" in capsys.readouterr().out
    lab.us = 5.0
    assert main(["bench", "--check", str(root), "--sample", "3", "--json"]) == 1
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert (document["no_longer_hold"], len(document["rows"]), document["of"]) == (1, 1, 1)
    assert document["rows"][0]["best"]["config"]["block"] == 128
    assert "1 of 1 shipped configs no longer hold" in said.err
    assert main(["bench", "--check", str(root), "--op", "sum"]) == 2
    assert "--op has no meaning beside --check" in capsys.readouterr().err
    assert main(["bench", "--sample", "3"]) == 2
    assert main(["bench", "--check", str(root), "--sample", "0"]) == 2


def test_what_no_longer_holds_is_shown_with_its_config(
    root: Path, lab: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.us = 5.0
    show_checked(checked(root))
    out = capsys.readouterr().out
    assert "sum of 16777216 float32: slower than the default: 11.1% more time, beyond noise" in out
    assert "block=128" in out
    assert "0 of 1 hold" in out
