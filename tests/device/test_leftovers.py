"""What a search leaves behind: no memory of candidates that failed, and no code that does not load."""

from __future__ import annotations

import dataclasses
import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from redtune import store, worker
from redtune.api import make_problem
from redtune.defaults import default_config
from redtune.lab import Lab, list_devices
from redtune.process import WorkerDied
from redtune.readers import reading_kernels
from redtune.render import render
from redtune.types import Kernel, Verdict
from tests.device.test_injection import idle
from tests.need import need

ROOT = Path(__file__).parents[2]
FAILING = 20
LARGE = 1 << 20


class Station(worker.Station):
    """Redtune's worker, with a count of the bytes that its buffers hold and no cyclic collector to help."""

    held = 0

    def open(self, job: dict[str, Any]) -> dict[str, Any]:
        import pyopencl

        station, said = self, super().open(job)

        class Buffer(pyopencl.Buffer):  # type: ignore[misc]
            def __init__(self, *given: Any, **more: Any) -> None:
                super().__init__(*given, **more)
                station.held += self.size

            def __del__(self) -> None:
                station.held -= self.size

        names = {name: getattr(pyopencl, name) for name in dir(pyopencl)}
        self.opened.session.cl = SimpleNamespace(**names | {"Buffer": Buffer})  # type: ignore[attr-defined]
        gc.disable()
        return said

    def memory(self, job: dict[str, Any]) -> dict[str, Any]:
        return {"held": self.held}


class Starved(worker.Station):
    """A worker on a device whose memory is gone: for every trial, and for inputs that are large."""

    def inputs(self, job: dict[str, Any]) -> dict[str, Any]:
        if job["problem"]["n"] > LARGE:
            self._take_all()
        return super().inputs(job)

    def trial(self, job: dict[str, Any]) -> dict[str, Any]:
        self._take_all()
        return super().trial(job)

    def _take_all(self) -> None:
        session: Any = self.opened.session
        session.cl.Buffer(session.context, session.cl.mem_flags.READ_WRITE, 1 << 46)


def main(kind: str) -> int:
    worker.Station = {"Station": Station, "Starved": Starved}[kind]  # type: ignore[misc]
    return worker.main()


@pytest.fixture
def lab(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A lab whose workers are those of this file."""
    need("opencl")
    device = list_devices("opencl")[0]
    program = f"import os; from tests.device import test_leftovers as own; os._exit(own.main('{request.param}'))"
    command = [sys.executable, "-c", program], {"PYTHONPATH": str(ROOT)}
    monkeypatch.setattr("redtune.process.command", lambda: command)
    with Lab(device, make_problem("max", "float32", 300_001)) as lab:
        yield lab


def kernel(lab: Lab) -> Kernel:
    return render(lab.problem, default_config(lab.problem, lab.dialect, lab.device), lab.dialect, lab.device)


@pytest.mark.parametrize("lab", ["Station"], indirect=True)
def test_candidates_that_fail_leave_no_memory_on_the_device(lab: Lab) -> None:
    """An exception keeps its frames, and they keep buffers, until a cyclic collector comes by."""
    right = lab.compile(kernel(lab))
    wrong = lab.compile(idle(kernel(lab)))

    def held() -> int:
        return int(lab._opened().ask("memory", 60.0)["held"])

    assert lab.trial(right, None).verdict == Verdict.OK
    before, generation = held(), lab._worker.generation
    assert before >= 4 * 300_001
    for _ in range(FAILING):
        assert lab.trial(wrong, None).verdict == Verdict.WRONG
    assert lab.trial(right, None).verdict == Verdict.OK
    assert lab._worker.generation == generation, "in one process"
    assert held() == before


@pytest.mark.parametrize("lab", ["Starved"], indirect=True)
def test_a_device_without_memory_costs_the_candidate_or_ends_in_a_sentence(lab: Lab) -> None:
    compiled = lab.compile(kernel(lab))
    trial = lab.trial(compiled, None)
    assert trial.verdict == Verdict.CRASHED
    assert "BUFFER_SIZE" in trial.note.upper() or "MEM" in trial.note.upper()
    lab.problem = dataclasses.replace(lab.problem, n=LARGE + 1)
    with pytest.raises(WorkerDied) as caught:
        lab.trial(compiled, None)
    assert len(str(caught.value).splitlines()) == 1


def python(text: str, cache: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "REDTUNE_CACHE": str(cache), "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "-c", textwrap.dedent(text)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)


def test_code_that_does_not_load_is_compiled_anew(tmp_path: Path) -> None:
    """Whole and the user's own, but of another driver, whatever it says of itself; in a folder with spaces, too."""
    need("opencl")
    (tmp_path / "a b" / "c  d").mkdir(parents=True)
    text = """
        import numpy as np
        import redtune
        from redtune import store
        from redtune.arrays.opencl import OpenclEngine
        made, original = [], OpenclEngine._compile
        OpenclEngine._compile = lambda self, kernel: made.append(kernel) or original(self, kernel)
        keep = store.keep_binary
        if {is_foreign}:
            store.keep_binary = lambda kernel, device, binary: keep(kernel, device, b"foreign code")
        assert redtune.reduce(np.arange(12.0), "sum") == 66
        print(len(made))
    """
    cache, temporary = tmp_path / "a b" / "c  d", {"TMPDIR": str(tmp_path / "a b" / "c  d")}
    for is_foreign, compiled in ((True, "1"), (False, "1"), (False, "0")):
        done = python(text.format(is_foreign=is_foreign), cache, **temporary)
        assert (done.returncode, done.stdout.strip()) == (0, compiled), done.stderr[-2000:]
    assert list(cache.rglob("*.bin"))


def test_what_every_process_needs_is_compiled_anew_where_it_does_not_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe of sub-groups, and a kernel that only reads."""
    need("opencl")
    monkeypatch.setenv("REDTUNE_CACHE", str(tmp_path))
    monkeypatch.setattr("redtune.lab.reading_kernels", lambda *given: list(reading_kernels(*given))[:1])

    def kept() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in (tmp_path / "binaries").rglob("*.bin")}

    def measured() -> None:
        (device, *_) = list_devices("opencl")
        assert device.waves
        with Lab(device, make_problem("max", "int32", 1 << 14), is_cold=False) as lab:
            assert lab.ceiling(1 << 16).median_us > 0

    measured()
    mine = kept()
    assert len(mine) == 3, "two sizes of sub-groups, and the kernel"
    for path in mine:
        path.write_bytes(b"foreign code" + store._checksum(path, b"foreign code"))
    measured()
    assert not [path for path, binary in kept().items() if binary.startswith(b"foreign")]
