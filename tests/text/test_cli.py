"""The command line on bad input, and on what needs no device. Errors are a line or two on stderr and an exit code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from redtune import cli, store
from redtune.arguments import parse_n, parse_seconds
from redtune.backends import BACKENDS
from redtune.config import KNOBS
from redtune.dtypes import DTYPES
from redtune.operators import OPERATORS
from redtune.proposals import SAMPLERS
from tests.fakes import FakeLab
from tests.text.kernels import ARCHS, config, problem, random_cases, rendered, target

# redtune silences Optuna's word on experimental features at import; pytest undoes that for every test.
pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")

ROOT = Path(__file__).parents[2]
USAGE, FAILED = 2, 1

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "cache"
    monkeypatch.setenv("REDTUNE_CACHE", str(folder))
    monkeypatch.setattr("redtune.cli.warnings.showwarning", None)  # which the command line replaces
    store.WARNED.clear()
    yield folder
    assert not folder.exists(), "what fails, and what only shows, writes nothing"


@pytest.fixture
def redtune(capsys: pytest.CaptureFixture[str]) -> Command:
    """`redtune(*arguments)` gives exit code, stdout and stderr."""

    def command(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(list(arguments))
        return (code, *capsys.readouterr())

    return command


@pytest.fixture
def refused(redtune: Command) -> Callable[..., str]:
    """`refused(code, *arguments)` gives the message, which is a line or two and nothing else."""

    def command(wanted: int, *arguments: str) -> str:
        code, out, err = redtune(*arguments)
        assert code == wanted, err
        assert out == ""
        assert 1 <= len(err.strip().splitlines()) <= 2, err
        assert "Traceback" not in err
        assert len(err) < 1000
        return err

    return command


@pytest.fixture
def faked_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that is not there is found."""
    device = target("cuda", memory_bytes=1 << 37).device
    monkeypatch.setattr("redtune.lab.list_devices", lambda backend: [device])
    monkeypatch.setattr("redtune.tuner.Lab", lambda device, p, **_: FakeLab(p, device, lambda c: 100.0))


def as_user(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m redtune` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "redtune", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


# --- help -------------------------------------------------------------------------------------------------------------


def test_help_lists_the_commands() -> None:
    done = as_user("--help")
    assert done.returncode == 0
    assert done.stderr == ""
    for name in ("devices", "search", "show", "run"):
        assert re.search(rf"^ +{name} +\S", done.stdout, re.MULTILINE), name
    assert not re.search(r"^ +worker", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("name", ["devices", "search", "show", "run"])
def test_every_command_has_help(name: str, redtune: Command) -> None:
    code, out, err = redtune(name, "--help")
    assert (code, err) == (0, "")
    assert "Usage: redtune " + name in out


def test_search_help_names_every_sampler(redtune: Command) -> None:
    assert set(SAMPLERS) <= set(re.findall(r"\w+", redtune("search", "--help")[1]))


# --- words that mean nothing ------------------------------------------------------------------------------------------

SEARCH = ("search", "--op", "max", "--n", "1000")
UNKNOWN = [
    (("search", "--op", "maxx"), "max", OPERATORS),
    (("search", "--op", "Sum"), "sum", OPERATORS),
    (("run", "x.npy", "--op", "argmx"), "argmax", OPERATORS),
    (("show", "--op", "pord"), "prod", OPERATORS),
    (("show", "--source", "--op", "mxa"), "max", OPERATORS),
    (("search", "--op", "max", "--dtype", "float23"), "float32", DTYPES),
    (("search", "--op", "max", "--dtype", "f32"), "float32", DTYPES),
    ((*SEARCH, "--fix", "blok=256"), "block", KNOBS),
    ((*SEARCH, "--sampler", "tpee"), "tpe", SAMPLERS),
    ((*SEARCH, "--determinism", "run2run"), "run-to-run", ("any", "run-to-run")),
    ((*SEARCH, "--backend", "opencll"), "opencl", BACKENDS),
    (("devices", "--backend", "cudda"), "cuda", BACKENDS),
    (("show", "--source", "--op", "max", "--backend", "hipp", "--arch", "gfx942"), "hip", BACKENDS),
]


@pytest.mark.parametrize(("arguments", "near", "known"), UNKNOWN, ids=lambda a: a[-1] if isinstance(a, tuple) else "")
def test_an_unknown_name_gives_the_nearest_and_the_list(
    arguments: tuple[str, ...], near: str, known: Any, tmp_path: Path, refused: Callable[..., str]
) -> None:
    np.save(tmp_path / "x.npy", np.ones(3, np.float32))
    said = refused(USAGE, *(str(tmp_path / a) if a == "x.npy" else a for a in arguments))
    assert f"did you mean {near!r}?" in said
    assert all(name in said for name in known)


def test_a_name_like_no_other_gives_the_list(refused: Callable[..., str]) -> None:
    said = refused(USAGE, "search", "--op", "fft")
    assert "did you mean" not in said
    assert all(op in said for op in OPERATORS)


@pytest.mark.parametrize("fix", ["block", "block=", "=3", "block=257", "block=abc", "block=-1", "walk=crawl", "hint"])
def test_a_fix_that_cannot_be_says_what_can(fix: str, refused: Callable[..., str]) -> None:
    said = refused(USAGE, *SEARCH, "--fix", fix)
    assert "KNOB=VALUE" in said or "choose from" in said


@pytest.mark.usefixtures("faked_device")
def test_a_fix_that_is_refused_says_why(refused: Callable[..., str]) -> None:
    assert "vector 16 of float32 is a load of 64 bytes" in refused(USAGE, *SEARCH, "--fix", "vector=16")


# --- numbers ----------------------------------------------------------------------------------------------------------


NO_SIZES = ["0", "-1", "-2**20", "abc", "nan", "inf", "-inf", "1.5", "1e-3", "1e400"]
NO_SIZES += ["2**", "**2", "2**-1", "2*3", "0**3", "2**41", "2**999", "1e40", "0x10", "1,000"]
NO_SIZES += ["", " ", "1 000", "9" * 30, "9999999999999999999**999"]  # the last has more digits than Python prints


@pytest.mark.parametrize("n", NO_SIZES, ids=lambda n: n[:24] or "nothing")
@pytest.mark.parametrize("command", [("search",), ("show", "--source", "--backend", "cuda", "--arch", "sm_90")])
def test_a_size_that_is_none_is_refused(command: tuple[str, ...], n: str, refused: Callable[..., str]) -> None:
    said = refused(USAGE, *command, "--op", "max", "--n", n)
    assert "n cannot be" in said or "n is" in said


@pytest.mark.parametrize(
    ("text", "n"),
    [("1", 1), ("2**26", 1 << 26), ("2^26", 1 << 26), ("1e6", 10**6), ("1_000", 1000), (" 7 ", 7), ("2.5e3", 2500)],
)
def test_a_size_can_be_written_in_several_ways(text: str, n: int) -> None:
    assert parse_n(text) == n


@pytest.mark.parametrize("limit", ["soon", "", "-5", "0", "0s", "1d", "5 minutes", "nan", "inf", "1e3", "s", "1.2.3"])
@pytest.mark.usefixtures("faked_device")
def test_a_time_limit_that_is_none_is_refused(limit: str, refused: Callable[..., str]) -> None:
    assert "time limit" in refused(USAGE, *SEARCH, "--time-limit", limit)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("2m", 120), ("1h", 3600), ("1.5 m", 90)])
def test_a_time_limit_can_be_written_in_several_ways(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("trials", ["0", "-3"])
@pytest.mark.usefixtures("faked_device")
def test_no_trials_are_refused(trials: str, refused: Callable[..., str]) -> None:
    assert f"{trials} trials" in refused(USAGE, *SEARCH, "--trials", trials)


@pytest.mark.parametrize("device", ["1", "99", "-1", "-7"])
@pytest.mark.usefixtures("faked_device")
def test_a_device_that_is_not_there_is_refused(device: str, refused: Callable[..., str]) -> None:
    assert f"no device {device}" in refused(USAGE, *SEARCH, "--device", device, "--trials", "1")


@pytest.mark.usefixtures("faked_device")
def test_an_input_larger_than_the_device_is_refused(refused: Callable[..., str]) -> None:
    assert "GiB" in refused(USAGE, "search", "--op", "max", "--n", "2**40")


@pytest.mark.parametrize(
    "arguments",
    [
        ("nosuchcommand",),
        ("search",),
        ("search", "--op", "max", "--nosuchoption"),
        ("search", "--op", "max", "--trials", "many"),
        ("search", "--op", "max", "--device", "first"),
        ("search", "--op"),
        ("run", "--op", "max"),
        ("run", "a.npy", "b.npy", "--op", "max"),
        ("show", "--source"),
        ("show", "--source", "--op", "max", "--arch", "sm_90"),
    ],
    ids=" ".join,
)
def test_a_command_line_that_makes_no_sense_is_refused(arguments: tuple[str, ...], refused: Callable[..., str]) -> None:
    refused(USAGE, *arguments)


# --- files ------------------------------------------------------------------------------------------------------------


def _objects(path: Path) -> None:
    np.save(path, np.array([1, "a", None], object), allow_pickle=True)


def _records(path: Path) -> None:
    np.save(path, np.zeros(3, [("a", np.float32), ("b", np.int8)]))


def _archive(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, a=np.ones(3), b=np.ones(3))


def _cut(path: Path) -> None:
    np.save(path, np.ones(1000, np.float32))
    path.write_bytes(path.read_bytes()[:-100])


def _cut_header(path: Path) -> None:
    np.save(path, np.ones(1000, np.float32))
    path.write_bytes(path.read_bytes()[:40])


BAD_FILES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "a folder": lambda path: path.mkdir(),
    "nothing": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("1.0\n2.0\n"),
    "binary": lambda path: path.write_bytes(bytes(range(256))),
    "objects": _objects,
    "records": _records,
    "strings": lambda path: np.save(path, np.array(["a", "b"])),
    "dates": lambda path: np.save(path, np.array(["2026-01-01"], "M8[D]")),
    "long double": lambda path: np.save(path, np.ones(3, np.longdouble)),
    "an archive": _archive,
    "an archive cut short": lambda path: path.write_bytes(b"PK\x03\x04 and no more"),
    "cut short": _cut,
    "cut in the header": _cut_header,
    "a header of nonsense": lambda path: path.write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'descr': 17}   \n"),
}


@pytest.mark.parametrize("command", [("run", "FILE"), ("search", "--like", "FILE")], ids=["run", "search"])
@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_file_that_cannot_be_reduced_says_why(
    kind: str, command: tuple[str, ...], tmp_path: Path, refused: Callable[..., str]
) -> None:
    path = tmp_path / "some data.npy"
    BAD_FILES[kind](path)
    said = refused(USAGE, *(str(path) if a == "FILE" else a for a in command), "--op", "max")
    assert str(path) in said


@pytest.mark.parametrize("name", ["x" * 300 + ".npy", ""], ids=["long", "nothing"])
def test_a_file_name_that_none_can_have(name: str, refused: Callable[..., str]) -> None:
    refused(USAGE, "run", name, "--op", "max")


@pytest.mark.parametrize(("op", "value"), [("sum", 0), ("prod", 1)])
def test_of_no_elements_sum_and_prod_are_numpys(op: str, value: int, tmp_path: Path, redtune: Command) -> None:
    np.save(tmp_path / "none.npy", np.zeros((0, 3), np.float32))
    code, out, _ = redtune("run", str(tmp_path / "none.npy"), "--op", op)
    assert (code, float(out)) == (0, value)


@pytest.mark.parametrize("op", ["max", "min", "argmax", "argmin"])
def test_of_no_elements_the_others_have_no_value(op: str, tmp_path: Path, refused: Callable[..., str]) -> None:
    np.save(tmp_path / "none.npy", np.zeros(0, np.float32))
    assert "empty" in refused(USAGE, "run", str(tmp_path / "none.npy"), "--op", op)


# --- what is not there ------------------------------------------------------------------------------------------------


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which no vendor package can be imported."""
    for package in ("pyopencl", "cupy"):
        (tmp_path / "bare").mkdir(exist_ok=True)
        (tmp_path / "bare" / f"{package}.py").write_text(f"raise ImportError('no {package} here', name='{package}')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "bare"))


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(("backend", "extra"), [("cuda", "cuda1"), ("hip", "rocm7"), ("opencl", "cpu")])
def test_a_backend_that_is_not_there_says_what_to_install(
    backend: str, extra: str, refused: Callable[..., str]
) -> None:
    assert f"redtune[{extra}" in refused(FAILED, *SEARCH, "--backend", backend)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("command", [SEARCH, ("devices",)], ids=["search", "devices"])
def test_no_device_at_all_says_what_to_install(command: tuple[str, ...], refused: Callable[..., str]) -> None:
    said = refused(FAILED, *command)
    for extra in ("cuda1", "rocm7", "cpu"):
        assert f"redtune[{extra}" in said


@pytest.mark.parametrize("url", ["nonsense", "sqlite:////no/such/folder/x.db", "nosuchdb://host/x", ""])
@pytest.mark.usefixtures("faked_device")
def test_a_storage_that_does_not_open_is_refused(url: str, refused: Callable[..., str]) -> None:
    said = refused(USAGE, *SEARCH, "--storage", url)
    assert "does not open" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("backend", "arch"), [("cuda", "banana"), ("cuda", "sm_"), ("cuda", ""), ("hip", "sm_90"), ("opencl", "")]
)
def test_an_architecture_that_is_none_is_refused(backend: str, arch: str, refused: Callable[..., str]) -> None:
    refused(USAGE, "show", "--source", "--op", "max", "--backend", backend, "--arch", arch)


@pytest.mark.parametrize("text", ["\x1b]0;mine\x07", "\u202egnp.exe", "\xad", "\x9b2J", "\u2028", "\udcff"], ids=ascii)
def test_what_a_message_quotes_cannot_steer_a_terminal(text: str, refused: Callable[..., str], tmp_path: Path) -> None:
    lines = [("search", "--op", text), ("search", "--ops", text), ("bench", "--op", "sum", text), (text,)]
    lines += [
        ("run", text, "--op", "max"),
        ("run", str(tmp_path / text), "--op", "sum"),
        ("search", "--manifest", text),
    ]
    lines += [("search", "--op", "sum", "--op-file", text), ("search", "--op", "sum", "--map", text)]
    lines += [
        ("search", "--op", "sum", f"--{option}", text) for option in ("dtype", "n", "shape", "fix", "sampler", "seed")
    ]
    for words in lines:
        assert all(line.isprintable() for line in refused(USAGE, *words).split("\n")), words


def test_debug_gives_the_traceback(redtune: Command) -> None:
    code, out, err = redtune("search", "--op", "maxx", "--debug")
    assert (code, out) == (USAGE, "")
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("redtune: there is no operator 'maxx'")


def test_bad_input_as_a_user_meets_it(fresh_cache: Path) -> None:
    done = as_user("search", "--op", "maxx", REDTUNE_CACHE=str(fresh_cache))
    assert done.returncode == USAGE
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


# --- show -------------------------------------------------------------------------------------------------------------


def test_show_with_nothing_tuned(redtune: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(store, "shipped_path", lambda: tmp_path / "none")
    code, out, err = redtune("show")
    assert (code, err) == (0, "")
    assert "nothing is tuned yet" in out
    assert redtune("show", "--json") == (0, '{\n  "tuned": []\n}\n', "")


def test_show_source_needs_no_device() -> None:
    """And no vendor package: the text is the golden file's."""
    done = as_user("show", "--source", "--op", "max", "--backend", "cuda", "--arch", "sm_90")
    assert (done.returncode, done.stderr) == (0, "")
    golden = (ROOT / "tests" / "golden" / "cuda" / "op_max.cu").read_text()
    assert done.stdout == golden


MADE_BY = re.compile(r"^// Made by: redtune (show .*)$", re.MULTILINE)


@pytest.mark.parametrize("backend", ARCHS)
def test_the_command_on_top_writes_the_same_text(backend: str, redtune: Command) -> None:
    on = target(backend)
    layouts = ("flat", "rows", "columns")
    cases = [*random_cases(on, 60, seed=3, layouts=layouts), (config(walk="tile"), problem("sum", "int8"))]
    written = 0
    for c, p in cases:
        source = rendered(on, c, p).source
        made_by = MADE_BY.search(source)
        if made_by is None:  # a mask, an initial value: only a call makes those
            assert f'Made by: redtune.reduce(x, "{p.op}", ...)' in source
            continue
        written += 1
        assert redtune(*made_by[1].split()) == (0, source, "")
    assert written > 20


@pytest.mark.parametrize("fix", ["tree=strided", "cluster=8", "second_block=64"])
def test_a_fix_that_would_have_no_effect_is_refused_and_not_dropped(fix: str, refused: Callable[..., str]) -> None:
    """The kernel printed would be another than the one asked for."""
    source = ("show", "--source", "--op", "max", "--backend", "cuda", "--arch", "sm_90")
    assert f"{fix.replace('=', ' ')} has no effect" in refused(USAGE, *source, "--fix", fix)
