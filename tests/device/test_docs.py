"""What the README shows is run: its Python, and its session's commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.caches import new_cache
from tests.need import need

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language, in their order."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    need("opencl")
    found = blocks("python")
    assert found
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "REDTUNE_CACHE": str(new_cache(tmp_path / "cache"))}
    for block in found:
        command = [sys.executable, "-c", block]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        if "redtune.search" in block:
            assert "Config(" in done.stdout
            assert "__global__" in done.stdout


def test_the_arrays_of_the_readme_give_what_numpy_gives(tmp_path: Path) -> None:
    need("opencl")
    block = next(block for block in blocks("python") if "offsets" in block)
    assert len(block.strip().splitlines()) <= 10
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "REDTUNE_CACHE": str(new_cache(tmp_path / "cache"))}
    command = [sys.executable, "-c", block]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    x = np.random.default_rng(0).standard_normal((512, 300), dtype=np.float32)
    numbers = [float(number) for number in re.findall(r"-?\d+\.?\d*(?:e[-+]?\d+)?", done.stdout.replace("float32", ""))]
    flat = x.ravel()
    expected = [x.sum(), *x.argmax(1)[:3], 300, x.mean(where=x > 0), 9.0, *(x * x).sum(1)[:2]]
    expected += [flat[:10].sum(), 0.0, flat[10:5000].sum(), x.sum()]
    np.testing.assert_allclose(numbers, expected, rtol=1e-4, atol=1e-4)


def test_ci_installs_as_the_readme_says() -> None:
    line = next(block for block in blocks("sh") if "pytest" in block)
    install = re.search(r"pip install -q -e '(.*?)'", line)
    assert install is not None
    assert f"pip\" install -q -e '{install[1]}'" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_every_command_in_the_readme_is_there_and_every_command_is_in_the_readme() -> None:
    from redtune.cli import app

    commands = {(c.name or c.callback.__name__) for c in app.registered_commands if c.callback and not c.hidden}
    assert set(re.findall(r"^\| `redtune (\w+)", README, re.MULTILINE)) == commands


def test_every_export_format_is_in_the_readme() -> None:
    from redtune.exporting.formats import FORMATS

    assert set(re.findall(r"^\| `(\w+)` \|", README, re.MULTILINE)) == set(FORMATS)


def test_every_operator_and_dtype_is_in_the_readme() -> None:
    from redtune.dtypes import DTYPES
    from redtune.operators import OPERATORS

    words = set(re.findall(r"\w+", README))
    assert set(OPERATORS) <= words
    assert set(DTYPES) <= words


def test_a_link_in_a_document_leads_somewhere() -> None:
    for document in (ROOT / "README.md", ROOT / "templates" / "README.md", ROOT / "results" / "README.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
