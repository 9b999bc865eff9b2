"""The house holds up: entries and files pair, doors stay shut, importing does nothing, all threads meet at barriers."""

from __future__ import annotations

import ast
import dataclasses
import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from redtune.arithmetic import Chains
from redtune.backends import BACKENDS
from redtune.combine import COMBINES
from redtune.config import KNOBS, Config, choices
from redtune.operators import OPERATORS
from redtune.render import CEILING, EXPORT, REPORT
from redtune.text import Choice, Constant, Field, Named, Operand, Text
from tests.text.kernels import ARCHS, config, many_cases, problem, rendered, strategies, target
from tests.text.reading import BARRIER, WHOLE_BLOCK, complaints, conditions_at_barriers, functions

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "templates"
MODULES = sorted((ROOT / "redtune").rglob("*.py"))


def stems(folder: Path, pattern: str) -> set[str]:
    return {path.stem for path in folder.glob(pattern)} - {"__init__"}


def test_entries_and_files_pair() -> None:
    assert stems(TEMPLATES / "combine", "*") == set(COMBINES) == set(choices("combine"))
    assert stems(TEMPLATES / "exchange", "*") == set(choices("exchange"))
    assert stems(TEMPLATES / "tree", "*") == set(choices("tree"))
    assert stems(TEMPLATES / "dialect", "*") == set(BACKENDS)
    assert stems(ROOT / "redtune" / "backends", "*.py") == set(BACKENDS)


def test_tables_are_keyed_by_name() -> None:
    assert all(name == entry.name for table in (OPERATORS, COMBINES) for name, entry in table.items())


# What is no kernel, and the package that writes it.
AROUND = {EXPORT: "exporting", REPORT: "reporting"}
ARITHMETIC = (ROOT / "redtune" / "arithmetic.py").read_text(encoding="utf-8")


def test_no_template_is_an_orphan() -> None:
    """Every file is the skeleton, is named in a template, or is named after a choice or a backend; what is written
    around kernels is named in a template or in the module that writes it."""
    texts = "\n".join(path.read_text() for path in TEMPLATES.rglob("*.jinja"))
    named = set(re.findall(r'"([\w/]+\.jinja)"', texts)) | {"kernel.jinja"}
    named |= {f"{knob}/{choice}.jinja" for knob in ("combine", "exchange", "tree") for choice in choices(knob)}
    named |= {f"dialect/{name}.jinja" for name in BACKENDS}
    named |= {f"{CEILING}/{name}.jinja" for name in stems(TEMPLATES / CEILING, "*") if f'"{name}"' in ARITHMETIC}
    named |= {f"walk/{name}.jinja" for name in re.findall(r'"(\w+)"', *re.findall(r'"walk/" ~ \((.*?)\)', texts))}
    there = {path.relative_to(TEMPLATES).as_posix() for path in TEMPLATES.rglob("*.jinja")}
    written = {
        f"{folder}/{name}.jinja"
        for folder, package in AROUND.items()
        for name in stems(TEMPLATES / folder, "*")
        if is_written(name, package)
    }
    assert there <= named | written


def is_written(name: str, package: str) -> bool:
    """Whether a module of the package has the name as a string, or makes it from one."""
    for path in (ROOT / "redtune" / package).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            texts = [str(part.value) if isinstance(part, ast.Constant) else None for part in parts]
            spelled = "".join(r"\w+" if text is None else re.escape(text) for text in texts)
            if re.search(r"[a-z]", "".join(text or "" for text in texts)) and re.fullmatch(spelled, name):
                return True
    return False


@pytest.mark.parametrize("name", KNOBS)
def test_every_knob_is_read(name: str) -> None:
    readers = [*TEMPLATES.rglob("*.jinja"), ROOT / "redtune" / "plan.py", ROOT / "redtune" / "text.py"]
    spelled = re.compile(rf"\bconfig\.{name}\b|\b{name.upper()}\b")
    assert any(spelled.search(path.read_text()) for path in readers)


@functools.cache
def imported_by(path: Path) -> set[str]:
    """The top-level packages that a module imports, anywhere in it."""
    tree = ast.parse(path.read_text())
    plain = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    from_ = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in plain | from_}


@pytest.mark.parametrize(
    ("package", "doors"),
    [
        ("jinja2", ("render.py",)),
        ("optuna", ("proposals.py", "journal.py", "studies.py")),
        # The devices are one door, arrays that live on them are another.
        ("cupy", ("backends/", "arrays/")),
        ("pyopencl", ("backends/", "arrays/")),
    ],
)
def test_a_package_has_few_doors(package: str, doors: tuple[str, ...]) -> None:
    users = {path.relative_to(ROOT / "redtune").as_posix() for path in MODULES if package in imported_by(path)}
    assert {user for user in users if not user.startswith(doors)} == set()


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
# Words that are more than an operator: of a field of a state, of data, of a determinism.
AMBIGUOUS = {"any", "sum"}


def last_name(node: ast.expr) -> str:
    """What is asked: `op` of `problem.op`, `kind` of `kind`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def named_comparisons(path: Path, names: set[str]) -> Iterator[str]:
    """The comparisons and cases of a module that ask for one of `names`."""
    tree = ast.parse(path.read_text())
    allowed = set()
    if path.name == "config.py":  # a knob's `when` may name a choice of another knob
        whens = (k.value for k in ast.walk(tree) if isinstance(k, ast.keyword) and k.arg == "when")
        allowed = {node for when in whens for node in ast.walk(when)}
    for node in ast.walk(tree):
        asked = {c.value for c in ast.walk(node) if isinstance(c, ast.Constant) and isinstance(c.value, str)} & names
        if isinstance(node, ast.Compare) and node not in allowed:
            sides = {last_name(side) for side in (node.left, *node.comparators)}
            if sides & OTHER_FIELDS or (asked <= AMBIGUOUS and "op" not in sides):
                continue
        elif not isinstance(node, ast.MatchValue):
            continue
        if node not in allowed and asked:
            yield f"{path.name}:{node.lineno}: {ast.unparse(node) if isinstance(node, ast.Compare) else asked}"


def test_nobody_asks_for_a_name_outside_its_door() -> None:
    found = []
    for path in MODULES:
        names = set(OPERATORS) | set(COMBINES) | set(BACKENDS)
        names -= set(OPERATORS) if path.name == "operators.py" else set()
        names -= set(COMBINES) if path.name == "combine.py" else set()
        if path.parent.name not in ("backends", "arrays"):
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
        "g = field[1] in ('sum', 'wrapping')\n"
        "h = p.op == 'sum'\n"
    )
    names = {"max", "atomic", "cuda", "sum"}
    assert sorted(line.split(":")[1] for line in named_comparisons(path, names)) == ["1", "2", "4", "8"]


# --- what templates may read ------------------------------------------------------------------------------------------

MANUAL = (TEMPLATES / "README.md").read_text(encoding="utf-8")
TEXTS = {
    path.relative_to(TEMPLATES).as_posix(): path.read_text(encoding="utf-8")
    for path in TEMPLATES.rglob("*.jinja")
    if path.parent.name not in AROUND
}


def test_the_manual_names_every_template() -> None:
    listed = set(re.findall(r"^\| `([\w/<>]+\.jinja)`", MANUAL, re.M))
    folders = {"dialect/<name>.jinja", *(f"{knob}/<choice>.jinja" for knob in ("exchange", "tree", "combine"))}
    assert folders <= listed
    stand_alone = {name for name in TEXTS if not name.startswith(("dialect/", "exchange/", "tree/", "combine/"))}
    assert listed - folders == stand_alone


@pytest.mark.parametrize("record", ["plan", "config", "problem", "op", "d", "chains"])
def test_the_manual_names_everything_a_template_reads(record: str) -> None:
    read = {name for text in TEXTS.values() for name in re.findall(rf"(?<![\w.]){record}\.(\w+)", text)}
    if record == "d":
        read -= {name for text in TEXTS.values() for name in re.findall(rf"(?<![\w.]){record}\.(\w+)\(", text)}
    listed = set(re.findall(rf"`{record}\.(\w+)`", MANUAL))
    assert read - listed == set()
    assert listed - read == set(), "the manual names what no template reads"


def test_a_template_of_no_kernel_begins_with_what_it_writes() -> None:
    """The manual is of kernels; what is written around them says itself what it is."""
    for folder in AROUND:
        for path in (TEMPLATES / folder).glob("*.jinja"):
            assert re.match(r"\{# [A-Z].*?\. #\}\n", path.read_text(encoding="utf-8"), re.DOTALL), path.name
        assert f"`{folder}/`" in MANUAL


def test_the_manual_names_every_macro() -> None:
    for folder, name in (("dialect", "cuda"), ("exchange", "lds"), ("combine", "atomic")):
        row = next(line for line in MANUAL.splitlines() if line.startswith(f"| `{folder}/<"))
        for path, text in TEXTS.items():
            if path.startswith(folder):
                assert set(re.findall(r"\{% macro (\w+)\(", text)) == set(re.findall(r"\w+", row.split("`")[3])), path
        assert f"{folder}/{name}.jinja" in TEXTS


def test_every_field_of_a_plan_is_read() -> None:
    """By a template, or by the module that makes it."""
    texts = "\n".join([*TEXTS.values(), (ROOT / "redtune" / "text.py").read_text()])
    called = {Text: "plan", Named: "let", Choice: "choice", Constant: "constant|c"}
    called |= {Chains: "chains"}
    called |= {Field: r"field|f|state\[0\]", Operand: r"operand|operands\[-?\d\]"}
    unread = {
        f"{record.__name__}.{field.name}"
        for record, names in called.items()
        for field in dataclasses.fields(record)
        if not re.search(rf"\b(?:{names})\.{field.name}\b", texts)
    }
    assert unread == set()


# --- barriers: a thread that does not come to one hangs the block, or worse, does not ---------------------------------


def sample_kernels(dialect: str) -> Iterator[tuple[Config, str]]:
    on = target(dialect)
    for _, c, p in strategies(on):
        yield c, rendered(on, c, p).source
    for tree, wave in (("unrolled", 32), ("unrolled", 64), ("last_wave", 64), ("sequential", 32)):
        c = config(exchange="lds", tree=tree, wave=wave, combine="two_pass")
        yield c, rendered(on, c, problem("argmax")).source
    c = config(wave=64, combine="two_pass")
    yield c, rendered(on, c, problem()).source
    yield from ((case.config, case.kernel.source) for case in many_cases(dialect))


def without_collector(body: str) -> str:
    """The body without what a block does that has no share: it leaves as a whole."""
    return re.sub(r"    if \(block == blocks\) \{\n.*?\n    \}\n", "", body, flags=re.S)


@pytest.mark.parametrize("dialect", ARCHS)
def test_every_thread_comes_to_every_barrier(dialect: str) -> None:
    for c, source in sample_kernels(dialect):
        bodies = [body for body in functions(source) if BARRIER.search(body)]
        assert bodies or c.team == 1
        for body in map(without_collector, bodies):
            last = [match.start() for match in BARRIER.finditer(body)][-1]
            assert not re.search(r"\breturn\b", body[:last])
        assert complaints(source) == [], c


@pytest.mark.parametrize("dialect", ARCHS)
def test_nothing_is_written_to_shared_memory_before_all_have_read_it(dialect: str) -> None:
    """Groups of results follow each other: between two of them every thread comes to a barrier."""
    for c, source in sample_kernels(dialect):
        main = next((body for body in functions(source) if "group < groups" in body), "")
        if not main or not re.search(r"(?:__shared__|__local) (?:State slots\[(?!1\])|int|State ranks)", main):
            continue
        loop = main[main.index("group < groups") :].rstrip().removesuffix("}")
        lines = [line for line in loop.rstrip().splitlines()[-2:] if line.strip() != "}"]  # of several columns each
        assert WHOLE_BLOCK.search(lines[-1]), c


def test_the_guard_of_barriers_sees_faults() -> None:
    (body,) = functions(
        "void f(int n) {\n    if (thread < 4) {\n        if (n) x();\n        __syncthreads();\n    }\n}\n"
    )
    assert any("thread" in condition for condition in conditions_at_barriers(body))
    (body,) = functions("void f(int n) {\n    for (int t = 0; t < n; t++) {\n        __syncthreads();\n    }\n}\n")
    assert not any("thread" in condition for condition in conditions_at_barriers(body))
    (body,) = functions("void f(int n) {\n    if (thread == 0)\n        __syncthreads();\n}\n")
    assert any("thread" in condition for condition in conditions_at_barriers(body))
