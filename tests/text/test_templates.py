"""The house holds up: entries and files pair, doors stay shut, importing does nothing, all threads meet at barriers."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from redtune.backends import BACKENDS
from redtune.combine import COMBINES
from redtune.config import KNOBS, choices
from redtune.operators import OPERATORS
from tests.text.kernels import ARCHS, config, problem, random_cases, rendered, strategies, target

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "templates"
MODULES = sorted((ROOT / "redtune").rglob("*.py"))


def stems(folder: Path, pattern: str) -> set[str]:
    return {path.stem for path in folder.glob(pattern)} - {"__init__"}


def test_entries_and_files_pair() -> None:
    assert stems(TEMPLATES / "combine", "*") == set(COMBINES) == set(choices("combine"))
    assert stems(TEMPLATES / "exchange", "*") == set(choices("exchange"))
    assert stems(TEMPLATES / "dialect", "*") == set(BACKENDS)
    assert stems(ROOT / "redtune" / "backends", "*.py") == set(BACKENDS)


def test_tables_are_keyed_by_name() -> None:
    assert all(name == entry.name for table in (OPERATORS, COMBINES) for name, entry in table.items())


@pytest.mark.parametrize("name", KNOBS)
def test_every_knob_is_read(name: str) -> None:
    readers = [*TEMPLATES.rglob("*.jinja"), ROOT / "redtune" / "plan.py"]
    spelled = re.compile(rf"\bconfig\.{name}\b|\b{name.upper()}\b")
    assert any(spelled.search(path.read_text()) for path in readers)


def imported_by(path: Path) -> set[str]:
    """The top-level packages that a module imports, anywhere in it."""
    tree = ast.parse(path.read_text())
    plain = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    from_ = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in plain | from_}


@pytest.mark.parametrize(
    ("package", "door"),
    [("jinja2", "render.py"), ("optuna", "proposals.py"), ("cupy", "backends/"), ("pyopencl", "backends/")],
)
def test_a_package_has_one_door(package: str, door: str) -> None:
    users = {path.relative_to(ROOT / "redtune").as_posix() for path in MODULES if package in imported_by(path)}
    assert {user for user in users if not user.startswith(door)} == set()


IMPORT = """
import json, os, sys
from collections.abc import MutableMapping

reads = []

class Recording(MutableMapping):
    def __init__(self, values): self.values = values
    def __getitem__(self, key): reads.append(key); return self.values[key]
    def __setitem__(self, key, value): self.values[key] = value
    def __delitem__(self, key): del self.values[key]
    def __iter__(self): reads.append("*"); return iter(self.values)
    def __len__(self): return len(self.values)

os.environ = Recording(os.environ)
import redtune
print(json.dumps([reads, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def test_importing_does_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT], cwd=ROOT, capture_output=True, text=True, check=True)
    reads, loaded = json.loads(done.stdout)
    heavy = {"cupy", "pyopencl", "optuna", "pandas", "jinja2", "numpy", "torch", "triton"}
    assert heavy & set(loaded) == set()
    assert reads == []


@pytest.mark.parametrize("path", sorted(TEMPLATES.rglob("*.jinja")), ids=lambda p: p.relative_to(TEMPLATES).as_posix())
def test_no_template_knows_a_wave_size(path: Path) -> None:
    text = re.sub(r"\{#.*?#\}", "", path.read_text(), flags=re.DOTALL)
    # As a number of its own: u32, float64 and sm_64 are words.
    assert re.findall(r".*(?<![\w.])(?:32|64)(?!\w).*", text) == []


# Words that some other field of a record also has as a value: `determinism == "any"` asks no operator's name.
OTHER_FIELDS = {"determinism", "bites", "native", "kind", "result"}


def named_comparisons(path: Path, names: set[str]) -> Iterator[str]:
    """The comparisons and cases of a module that ask for one of `names`."""
    tree = ast.parse(path.read_text())
    allowed = set()
    if path.name == "config.py":  # a knob's `when` may name a choice of another knob
        whens = (k.value for k in ast.walk(tree) if isinstance(k, ast.keyword) and k.arg == "when")
        allowed = {node for when in whens for node in ast.walk(when)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and node not in allowed:
            sides = [node.left, *node.comparators]
            if any(isinstance(side, ast.Attribute) and side.attr in OTHER_FIELDS for side in sides):
                continue
        elif not isinstance(node, ast.MatchValue):
            continue
        asked = {c.value for c in ast.walk(node) if isinstance(c, ast.Constant) and isinstance(c.value, str)}
        if node not in allowed and asked & names:
            yield f"{path.name}:{node.lineno}: {ast.unparse(node) if isinstance(node, ast.Compare) else asked}"


def test_nobody_asks_for_a_name_outside_its_door() -> None:
    found = []
    for path in MODULES:
        if path.parent.name == "backends":
            continue
        names = set(OPERATORS) | set(COMBINES) | set(BACKENDS)
        names -= set(OPERATORS) if path.name == "operators.py" else set()
        names -= set(COMBINES) if path.name == "combine.py" else set()
        found += named_comparisons(path, names)
    assert found == []


def test_the_guard_against_names_sees_them(tmp_path: Path) -> None:
    path = tmp_path / "config.py"
    path.write_text(
        "a = p.op == 'max'\n"
        "b = c.combine in ('atomic', 'x')\n"
        "match d:\n    case 'cuda': pass\n"
        "e = knob(when=lambda c: c.combine == 'atomic')\n"
        "f = p.determinism == 'max'\n"
    )
    assert [line.split(":")[1] for line in named_comparisons(path, {"max", "atomic", "cuda"})] == ["1", "2", "4"]


# --- barriers: a thread that does not come to one hangs the block, or worse, does not ---------------------------------

BARRIER = re.compile(r"__syncthreads\(\)|\bbarrier\(CLK|\bmeet_\w+\(|\bcluster_barrier\(\)|\btail_barrier\(|_sync\(")
WHOLE_BLOCK = re.compile(r"__syncthreads\(\)|\bbarrier\(CLK|\bmeet_\w+\(|\bcluster_barrier\(\)")


def functions(source: str) -> Iterator[str]:
    """The bodies of a kernel text's functions, without comments."""
    text = re.sub(r"//.*", "", source)
    for start in re.finditer(r"\)\s*\{", text):
        if text.count("{", 0, start.start()) == text.count("}", 0, start.start()):
            at, depth = start.end(), 1
            while depth:
                depth += {"{": 1, "}": -1}.get(text[at], 0)
                at += 1
            yield text[start.end() : at - 1]


def conditions_at_barriers(body: str) -> Iterator[str]:
    """The conditions around each barrier of the whole block, braces or not."""
    around: list[str] = []
    header = ""
    for piece in re.split(r"(?<=[{};])", body):
        if WHOLE_BLOCK.search(piece):
            yield " && ".join([*around, *re.findall(r"(?:if|for|while) \(.*", piece)])
        if piece.endswith("{"):
            header += piece.strip()
            around.append(header)
        elif piece.endswith("}"):
            around.pop()
        header = piece if piece.count("(") > piece.count(")") else ""  # the parts of a for's head


def sample_sources() -> Iterator[tuple[str, str]]:
    for dialect in ARCHS:
        on = target(dialect)
        for name, c, p in strategies(on):
            yield f"{dialect} {name}", rendered(on, c, p).source
        for tree in ("unrolled", "sequential"):
            for wave in (32, 64) if tree == "unrolled" else (32,):
                c = config(exchange="lds", tree=tree, wave=wave, combine="two_pass")
                yield f"{dialect} {tree} {wave}", rendered(on, c, problem("argmax")).source
        yield f"{dialect} wave 64", rendered(on, config(wave=64, combine="two_pass"), problem()).source
        for k, (c, p) in enumerate(random_cases(on, 30, seed=1)):
            yield f"{dialect} random {k}", rendered(on, c, p).source


SOURCES = dict(sample_sources())


@pytest.mark.parametrize("name", SOURCES)
def test_every_thread_comes_to_every_barrier(name: str) -> None:
    bodies = [body for body in functions(SOURCES[name]) if BARRIER.search(body)]
    assert bodies
    for body in bodies:
        last = [match.start() for match in BARRIER.finditer(body)][-1]
        assert not re.search(r"\breturn\b", body[:last])
        for condition in conditions_at_barriers(body):
            assert not re.search(r"\b(thread|lane|tail|get_sub_group_id)\b", condition)


def test_the_guard_of_barriers_sees_faults() -> None:
    (body,) = functions(
        "void f(int n) {\n    if (thread < 4) {\n        if (n) x();\n        __syncthreads();\n    }\n}\n"
    )
    assert any("thread" in condition for condition in conditions_at_barriers(body))
    (body,) = functions("void f(int n) {\n    for (int t = 0; t < n; t++) {\n        __syncthreads();\n    }\n}\n")
    assert not any("thread" in condition for condition in conditions_at_barriers(body))
    (body,) = functions("void f(int n) {\n    if (thread == 0)\n        __syncthreads();\n}\n")
    assert any("thread" in condition for condition in conditions_at_barriers(body))
