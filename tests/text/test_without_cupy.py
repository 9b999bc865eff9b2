"""What is said of CuPy and of NVIDIA's driver with neither of them loaded."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from redtune import without_cupy
from redtune.backends import backend_named
from redtune.errors import BackendMissing


@pytest.fixture
def cupy_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which CuPy would be found."""
    spec = ModuleSpec("cupy", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    return tmp_path


def note(folder: Path, text: str) -> None:
    (folder / ".data").mkdir()
    (folder / ".data" / "_wheel.json").write_text(text)


@pytest.mark.parametrize(
    ("noted", "is_certain"),
    [
        (json.dumps({"cuda": "13.x", "packaging": "pip"}), True),
        (json.dumps({"cuda": "12.8"}), True),
        (json.dumps({"cuda": "rocm-7.0"}), False),
        (json.dumps({"cuda": 13}), False),
        (json.dumps(["cuda"]), False),
        ("{}", False),
        ("nonsense", False),
    ],
)
def test_a_wheel_says_what_it_was_built_for(noted: str, is_certain: bool, cupy_at: Path) -> None:
    note(cupy_at, noted)
    assert without_cupy.is_built_for_cuda() is is_certain


def test_cupy_is_asked_where_its_files_do_not_say(cupy_at: Path) -> None:
    assert not without_cupy.is_built_for_cuda()


def test_cupy_is_asked_where_it_is_loaded_or_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", object())
    assert not without_cupy.is_built_for_cuda()
    assert without_cupy.driver_fault() == ""
    monkeypatch.delitem(sys.modules, "cupy")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not without_cupy.is_built_for_cuda()
    assert without_cupy.driver_fault() == ""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the driver has another name")
def test_a_driver_that_does_not_load_is_no_gpu(cupy_at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load(name: str) -> None:
        asked.append(name)
        raise OSError("libcuda.so.1: no such file")

    monkeypatch.setattr(without_cupy.ctypes, "CDLL", load)
    with pytest.raises(BackendMissing, match=r"found no NVIDIA GPU or driver \(libcuda.so.1: no such file\)"):
        backend_named("cuda").devices()
    assert asked == ["libcuda.so.1"]


def test_a_cupy_for_cuda_is_no_hip_before_it_is_loaded() -> None:
    """In a process of its own: CuPy is never imported to say so."""
    code = (
        "import sys, pathlib, tempfile\n"
        "folder = pathlib.Path(tempfile.mkdtemp()) / 'cupy'\n"
        "(folder / '.data').mkdir(parents=True)\n"
        "(folder / '__init__.py').write_text('raise SystemExit(9)')\n"
        '(folder / ".data" / "_wheel.json").write_text(\'{"cuda": "13.x"}\')\n'
        "sys.path.insert(0, str(folder.parent))\n"
        "from redtune.backends import backend_named\n"
        "try:\n"
        "    backend_named('hip').devices()\n"
        "except Exception as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("the CuPy installed here is built for CUDA")
