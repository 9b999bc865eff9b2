"""Arbitrary files, definitions and command lines, and what must hold of each: one sentence or the right thing.

`FUZZED` names what is fuzzed: a strategy of examples, and a check of one example, which raises where redtune does
anything but its work or refuse it. A short run is tests/text/test_fuzz.py, a long one `python results/fuzz.py`.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import json
import os
import pkgutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
import yaml
from hypothesis import strategies as st

import redtune
from redtune import cli, keys, store
from redtune.arguments import parse_operator
from redtune.config import KNOBS, Config, choices
from redtune.custom import check_laws, load_operators
from redtune.dtypes import DTYPES
from redtune.errors import RedtuneError, UsageError
from redtune.lab import Lab
from redtune.operators import OPERATORS
from redtune.problems import make_problem
from redtune.proposals import SAMPLERS, Proposals
from redtune.render import render
from redtune.space import make_space
from redtune.types import Trial, Verdict, as_json
from tests.fakes import FakeLab
from tests.text.kernels import problem, rendered, target
from tests.text.test_custom import SOUP, TERMS
from tests.text.test_store import best

ROOT = Path(__file__).parents[2]
GPU = target("cuda", memory_bytes=1 << 37)
MAX = problem("max")
SPACE = make_space(MAX, GPU.dialect, GPU.device, {})
KERNEL = rendered(GPU, Config(), MAX)
EXAMPLES = (ROOT / "configs" / "operators.yaml").read_bytes()

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.dates()
ANYTHING = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3), max_leaves=6
)


def sentence_of(error: Exception) -> str:
    """What an error says, which must be what a person can read on a terminal."""
    said = str(error)
    assert said.strip(), type(error)
    assert len(said.splitlines()) <= 2, said
    assert len(said) < 5000, said[:200]
    return said


@st.composite
def mutated(draw: st.DrawFn, original: bytes) -> bytes:
    """A text that was cut, doubled, shuffled or written over in a few places."""
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        at, to = sorted(draw(st.integers(0, len(data))) for _ in range(2))
        match draw(st.integers(0, 4)):
            case 0:
                del data[at:to]
            case 1:
                data[at:at] = data[at : min(to, at + 200)]
            case 2:
                data[at : at + 4] = draw(st.binary(max_size=8))
            case 3:
                data[at:at] = draw(WORDS).encode()
            case 4:
                del data[at:]
    return bytes(data)


@st.composite
def altered(draw: st.DrawFn, original: Any) -> Any:
    """Plain data with some of its values replaced, dropped or added."""
    data = json.loads(json.dumps(original))
    for _ in range(draw(st.integers(1, 3))):
        at = data
        while True:
            name = draw(st.sampled_from(sorted(at))) if at else ""
            if not (isinstance(at.get(name), dict) and draw(st.booleans())):
                break
            at = at[name]
        if draw(st.integers(0, 5)) == 0:
            at.pop(name, None)
        else:
            at[name if draw(st.integers(0, 5)) else draw(WORDS)] = draw(_like(at.get(name)))
    return data


def _like(value: Any) -> st.SearchStrategy[Any]:
    """Values of the same type, near and far, and any others."""
    if isinstance(value, bool):
        return st.booleans() | ANYTHING
    if isinstance(value, (int, float)):
        return st.integers(-3, 2**40) | st.floats() | ANYTHING
    if isinstance(value, str):
        names = st.sampled_from([*OPERATORS, *DTYPES, "cuda", "hip", "cpu", "warm", "varies", "shuffle", "tile"])
        return names | st.just(value) | WORDS | ANYTHING
    return ANYTHING


@contextmanager
def quiet(cache: Path) -> Iterator[list[str]]:
    """A fresh cache, and the warnings given within."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        patch.setenv("REDTUNE_CACHE", str(cache))
        patch.setattr(keys, "WARNED", set())
        said: list[str] = []
        yield said
        said += [str(w.message) for w in caught if issubclass(w.category, UserWarning)]


# --- the store --------------------------------------------------------------------------------------------------------

TEXT = yaml.safe_dump(as_json(best()), sort_keys=False).encode()
ENTRIES = (
    st.binary(max_size=200)
    | ANYTHING.map(lambda data: yaml.safe_dump(data).encode())
    | mutated(TEXT)
    | altered(as_json(best())).map(lambda data: yaml.safe_dump(data).encode())
)


def check_entry(raw: bytes) -> None:
    """An entry is one that a kernel can be written from and a person be shown, or a miss with one warning."""
    with tempfile.TemporaryDirectory() as folder, quiet(Path(folder)) as said:
        path = store.user_path(MAX, best().device, "cold")
        store.make_folder(path.parent)
        path.write_bytes(raw)
        found = store.read_entry(path)
        again = store.lookup(MAX, GPU.dialect, best().device)
        render(MAX, again.config, GPU.dialect, GPU.device)
        code, out, _ = command(["show"])
        assert code == 0
        assert (found is None) == ("nothing is tuned yet" in out or "shipped" in out)
        if found is not None:
            assert (found.problem.op, found.problem.dtype) == ("max", "float32")
            assert all(line.isprintable() for line in out.splitlines())
        store.save(best())
        assert store.read_entry(path) == best(), "healed"
    assert len([text for text in said if "counts as absent" in text]) == (found is None), said
    assert all(text.isprintable() for text in said)


ROW = json.dumps({"config": as_json(Config()), "verdict": "OK", "micros": 3.0}).encode() + b"\n"


def check_rows(raw: bytes) -> None:
    """A row is added whole, and nothing that was there is touched."""
    with tempfile.TemporaryDirectory() as folder, quiet(Path(folder)):
        path = Path(folder) / "results" / f"{store.folder_name(GPU.device)}.jsonl"
        path.parent.mkdir()
        path.write_bytes(raw)
        store.append_row(GPU.device, MAX, Trial(Config(), "d", Verdict.OK, 3.0), "2026-01-01")
        after = path.read_bytes()
        assert after.startswith(raw)
        assert json.loads(after.splitlines()[-1])["micros"] == 3.0


CODE = bytes(range(256)) * 4


def check_binary(change: bytes) -> None:
    """A compiled kernel is the one that was kept, or none."""
    with tempfile.TemporaryDirectory() as folder, quiet(Path(folder)):
        store.keep_binary(KERNEL, GPU.device, CODE)
        path = store.binary_path(KERNEL, GPU.device)
        path.write_bytes(change)
        assert store.read_binary(KERNEL, GPU.device) in (None, CODE)


def _journal() -> bytes:
    """A study of a few trials, as it lies in a file."""
    with tempfile.TemporaryDirectory() as folder, quiet(Path(folder)):
        source = Proposals(SPACE, "a study", "random", 0, None)
        for verdict in (Verdict.OK, Verdict.CRASHED, Verdict.OK):
            config, _ = source.next()
            assert config is not None
            source.tell(Trial(config, "", verdict, 1.0 if verdict == Verdict.OK else None))
        source.close()
        return (Path(folder) / "studies.journal").read_bytes()


JOURNAL = _journal()


@st.composite
def journals(draw: st.DrawFn) -> bytes:
    """A journal with one of its records altered."""
    lines = JOURNAL.splitlines()
    at = draw(st.integers(0, len(lines) - 1))
    lines[at] = json.dumps(draw(altered(json.loads(lines[at]))), default=str).encode()
    return b"\n".join(lines) + b"\n"


def check_journal(raw: bytes) -> None:
    """A study goes on whatever its file holds: what it knows is what was measured, or nothing."""
    with tempfile.TemporaryDirectory() as folder, quiet(Path(folder)) as said:
        (Path(folder) / "studies.journal").write_bytes(raw)
        source = Proposals(SPACE, "a study", "random", 1, None)
        assert all(SPACE.allows(config) for config in source.known)
        config, _ = source.next()
        assert config is not None
        source.tell(Trial(config, "", Verdict.OK, 2.0))
        source.close()
        assert config in Proposals(SPACE, "a study", "random", 1, None).known
    assert all(text.isprintable() for text in said)


# --- operators --------------------------------------------------------------------------------------------------------

EXPRESSIONS = SOUP | TERMS | WORDS | st.text(max_size=40)
FILES = (
    mutated(EXAMPLES)
    | st.binary(max_size=100)
    | altered(yaml.safe_load(EXAMPLES)).map(lambda data: yaml.safe_dump(data).encode())
)


def check_expressions(given: tuple[str, str | None, str | None]) -> None:
    """An operator with expressions around it is refused in a sentence, or becomes a kernel."""
    op, map_, finish = given
    try:
        name, custom = parse_operator(op, None, map_, finish)
        if custom:
            _written(name, custom)
    except UsageError as error:
        sentence_of(error)


def _written(name: str, custom: str) -> None:
    for dtype in ("float32", "int32"):
        try:
            check_laws(custom, dtype)
            made = make_problem(name, dtype, n=1 << 20, custom=custom)
        except UsageError as error:
            sentence_of(error)
            continue
        source = render(made, Config(), GPU.dialect, GPU.device).source
        assert "import" not in source


def check_operator_file(raw: bytes) -> None:
    """A file of operators is refused in a sentence, or each of its operators becomes a kernel."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.yaml"
        path.write_bytes(raw)
        try:
            found = load_operators(str(path))
        except UsageError as error:
            sentence_of(error)
            return
        for name, custom in found.items():
            try:
                _written(name, custom)
            except UsageError as error:
                sentence_of(error)


# --- command lines ----------------------------------------------------------------------------------------------------

COMMANDS = {name: each for name, each in typer.main.get_command(cli.app).commands.items() if name != "worker"}  # type: ignore[attr-defined]
# Arguments come as bytes, and what is no UTF-8 in them comes as lone surrogates.
ARGUMENT = st.text(st.characters(exclude_characters="\0/"), max_size=12).filter(lambda text: not text.startswith("-"))
SIZES = ["1", "0", "-1", "1000", "2**20", "2^10", "1e6", "2**64", "nan", "4x4", "2**20x3", "0x4", "x", "1,2", "1e999"]
VALUES = [*OPERATORS, *DTYPES, *SAMPLERS, *SIZES, "run-to-run", "any", "cuda", "hip", "opencl", "sm_90", "gfx942"]
VALUES += ["compensated", "x*x", "sqrt(a)", "sum,max", "45s", "2m", "0", "3", "sqlite:///mine.db", "nosuchdb://x"]
VALUES += [f"{name}={choice}" for name in KNOBS for choice in choices(name)[:2]]
VALUES += ["x.npy", "empty.npy", "bad.npy", "mine.yaml", "manifest.yaml", "bad.yaml", "folder", "absent", "wide.npy"]
VALUE = st.sampled_from(VALUES) | ARGUMENT


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A command with arguments that it may have, and sometimes with some that it may not."""
    name = draw(st.sampled_from(sorted(COMMANDS)))
    words = [name, *(NEEDED.get(name, []) if draw(st.integers(0, 3)) else [])]
    for option in draw(st.lists(st.sampled_from(COMMANDS[name].params), max_size=draw(st.sampled_from([2, 6])))):
        opts = [*option.opts, *option.secondary_opts]
        if option.param_type_name == "argument":
            words.append(draw(VALUE))
            continue
        words.append(draw(st.sampled_from(opts)))
        if not option.is_flag:  # type: ignore[attr-defined]
            words.append(draw(_value_of(option.opts[0])))
    if draw(st.integers(0, 9)) == 0:
        words.insert(draw(st.integers(0, len(words))), draw(VALUE | st.just("--nonsense")))
    return words


# What each option is for.
OWN: dict[str, list[str]] = {
    **{"--op": [*OPERATORS], "--ops": ["sum,max", "min"], "--dtype": [*DTYPES], "--sampler": [*SAMPLERS]},
    **{"--n": SIZES, "--shape": ["4x4", "2**10x3", "5"], "--axis": ["0", "1", "-1", "0,1"], "--device": ["0", "1"]},
    **{"--like": ["x.npy", "wide.npy"], "--op-file": ["mine.yaml"], "--manifest": ["manifest.yaml"]},
    **{"--map": ["x*x", "x"], "--finish": ["a", "-a"], "--backend": ["cuda"], "--arch": ["sm_90", "sm_52"]},
    **{"--trials": ["1", "2", "0"], "--time-limit": ["45s", "2m", "0"], "--seed": ["0", "3"], "--repeats": ["5", "0"]},
    **{"--determinism": ["any", "run-to-run"], "--accumulate": ["float64", "compensated"], "--study": ["mine"]},
    **{"--storage": ["sqlite:///mine.db"], "--out": ["out.npy"], "--layout": ["flat", "rows,columns"]},
    "--fix": [f"{name}={choice}" for name in KNOBS for choice in choices(name)[:3]],
}
# Without which a command does nothing.
NEEDED = {"search": ["--op", "max"], "run": ["x.npy", "--op", "sum"], "bench": ["--op", "sum"]}


def _value_of(option: str) -> st.SearchStrategy[str]:
    """Mostly what the option is for, so that many commands get far."""
    if option not in OWN:
        return VALUE
    return st.integers(0, 4).flatmap(lambda k: st.sampled_from(OWN[option]) if k else VALUE)


class NoDevice(Lab):
    """Stands in for the lab of commands that measure: whatever comes to it is as far as they get."""

    def __init__(self, *_: object, **__: object) -> None:
        raise RedtuneError("there is no device behind this")


def _files(folder: Path) -> None:
    np.save(folder / "x.npy", np.arange(12, dtype=np.float32).reshape(3, 4))
    np.save(folder / "wide.npy", np.ones((2, 0, 3), np.int8))
    np.save(folder / "empty.npy", np.zeros(0, np.float64))
    (folder / "bad.npy").write_bytes(b"\x93NUMPY\x01\x00 and no more")
    (folder / "mine.yaml").write_bytes(EXAMPLES)
    (folder / "bad.yaml").write_bytes(b"{[}]: :\n")
    (folder / "manifest.yaml").write_text("- {op: [sum, max], n: 1000}\n- {op: min, shape: [4, 5], axis: 1}\n")
    (folder / "folder").mkdir()


def command(words: list[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command in this process, on streams as strict as a terminal's."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", "strict", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        code = cli.main(words)
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    return code, texts[0], texts[1]


# All of redtune, so that no module is imported, and takes a stand-in for the real thing, while one is in place.
for module in pkgutil.iter_modules(redtune.__path__, "redtune."):
    importlib.import_module(module.name)


def _verify_nothing(*_: object) -> Any:
    raise RedtuneError("there is no device behind this")


@contextmanager
def no_device() -> Iterator[None]:
    """Commands find a GPU that is not there, and searches of two trials in which every config is right."""
    from redtune.api import Options

    original = Options.run

    def short(self: Options, *given: Any) -> Any:
        return original(dataclasses.replace(self, trials=min(self.trials or 2, 2)), *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("redtune.lab.list_devices", lambda backend: [GPU.device])
        for module in [found for name, found in sys.modules.items() if name.startswith("redtune.")]:
            if getattr(module, "Lab", None) is Lab:
                patch.setattr(module, "Lab", NoDevice)
        patch.setattr("redtune.tuner.Lab", lambda device, p, **_: FakeLab(p, device, lambda c: 100.0))
        patch.setattr("redtune.verifying.verify_sample", _verify_nothing)
        patch.setattr(Options, "run", short)
        yield


def check_command(words: list[str]) -> None:
    """A command does its work, or says in a line or two why not, and gives the exit code that goes with it."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, quiet(Path(folder) / "cache"), no_device():
        os.chdir(folder)
        try:
            _files(Path(folder))
            code, out, err = command(words)
        finally:
            os.chdir(before)
    said = [line for line in err.splitlines() if not line.startswith("redtune: warning: ")]
    assert code in (0, 1, 2), (code, err)
    assert "Traceback" not in err
    assert all(line.isprintable() for line in said), said
    if code:
        assert said, "a failure says why"
        if "--ops" not in words and "--manifest" not in words:
            assert len([line for line in said if line.startswith("redtune: ")]) == 1, said
    if code == 2:
        assert out == "", "wrong usage does no work"
    if code == 0 and "--json" in words and "--help" not in words:
        json.loads(out)


Check = Callable[[Any], None]
FUZZED: dict[str, list[tuple[st.SearchStrategy[Any], Check]]] = {
    "the store": [
        (ENTRIES, check_entry),
        (st.binary(max_size=100) | mutated(ROW * 3), check_rows),
        (st.binary(max_size=100) | mutated(CODE), check_binary),
        (journals() | mutated(JOURNAL) | st.binary(max_size=100), check_journal),
    ],
    "operators": [
        (
            st.tuples(st.sampled_from([*OPERATORS]), st.none() | EXPRESSIONS, st.none() | EXPRESSIONS),
            check_expressions,
        ),
        (FILES, check_operator_file),
    ],
    "command lines": [(command_lines(), check_command)],
}
