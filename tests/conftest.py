"""What every test shares: golden files, a cache folder of its own, and what was compiled."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.caches import SHARED, new_cache

GOLDEN = Path(__file__).parent / "golden"
collect_ignore = ["exported"]  # pinned exports have tests of their own, for a GPU
EXTENSIONS = {"cuda": "cu", "hip": "hip", "opencl": "cl"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden from what is emitted now")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """No test reads or writes what the user has tuned."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "binaries"
    shared.mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SHARED, str(shared))
        folder = new_cache(tmp_path_factory.mktemp("caches") / "cache")
        patch.setenv("REDTUNE_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def nothing_shipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What comes with redtune changes with every measurement: a test that is about it says so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("redtune.store.shipped_path", lambda: tmp_path_factory.getbasetemp() / "nothing shipped")
        yield


@pytest.fixture(scope="session")
def is_updating(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are rewritten instead of compared."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="session")
def golden(is_updating: bool) -> Callable[[str, str, str], None]:
    """`golden(dialect, name, text)` compares the text with its file, or rewrites the file under --update-golden."""

    def compare(dialect: str, name: str, text: str) -> None:
        path = golden_path(dialect, name)
        if is_updating:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
            return
        shown = path.relative_to(GOLDEN.parent.parent)
        if not path.exists():
            pytest.fail(f"{shown} is missing: run pytest tests/text/test_golden.py --update-golden to write it")
        assert text == path.read_bytes().decode(), (
            f"the text differs from {shown}; if it should, run pytest tests/text/test_golden.py --update-golden"
        )

    return compare


def golden_path(dialect: str, name: str) -> Path:
    """The file that holds the text called `name`."""
    return GOLDEN / dialect / f"{name}.{EXTENSIONS[dialect]}"
