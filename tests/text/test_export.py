"""What is exported: which winners, under which names, and what happens to a folder."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import redtune
from redtune import keys, store
from redtune.custom import derived
from redtune.errors import BackendMissing, RedtuneError, UsageError
from redtune.exporting import folder
from redtune.exporting.formats import FORMATS, texts_of
from redtune.exporting.variants import Export, choose, default_name
from redtune.problems import make_problem, shaped_problem
from tests.text.exports import BACKENDS, TUNED, exported, winner
from tests.text.kernels import ARCHS, config, problem, target

ARCH = {name: ARCHS[backend] for name, backend in BACKENDS.items()}
ROWS = config(combine="two_pass")
GOLDEN = Path(__file__).parents[1] / "exported"


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REDTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(keys, "WARNED", set())
    return tmp_path / "cache"


def export(out: Path, op: str = "max", arch: Any = "sm_90", **options: Any) -> redtune.Exported:
    return redtune.export(op, format=options.pop("format", "cuda"), arch=arch, out=out, **options)


# --- which winner -----------------------------------------------------------------------------------------------------


def test_the_winner_is_exported_with_its_evidence(tmp_path: Path) -> None:
    store.save(winner())
    found = export(tmp_path / "out")
    (variant,) = found.export.variants
    assert (variant.config, variant.problem.n, variant.best) == (TUNED, 1 << 28, winner())
    text = (tmp_path / "out" / "redtune_max_float32.cuh").read_text()
    for words in (
        "// Made by: redtune export --op max --dtype float32 --arch sm_90 --format cuda --out DIR\n",
        "236.74 us, spread 0.25 us, 4535.6 GB/s cold, 99.7 % of the read ceiling, the best of 95 trials with seed 0.",
        "Measured 2026-11-30 on A sm_90 (sm_90), driver 1.2.3, a compiler 1.0:",
        "Beside it: the default config 239.69 us, cupy 14.2.0 249.81 us.",
        "repeated runs showed run-to-run",
        "block = 384: threads per block",
        "SPDX-License-Identifier: MIT",
    ):
        assert words in text
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["variants"][0]["best"]["median_us"] == 236.736
    assert sorted(manifest["files"]) == sorted(path.name for path in found.files)
    assert set(found.files) == set((tmp_path / "out").iterdir())


def test_a_winner_of_older_templates_says_so(tmp_path: Path) -> None:
    store.save(winner(templates="0" * 12))
    export(tmp_path / "out")
    assert "The kernel's text has changed since then." in (tmp_path / "out" / "README.md").read_text()


def test_every_size_that_was_tuned_goes_in_unless_some_are_named(tmp_path: Path) -> None:
    for power in (12, 20, 28):
        store.save(winner(problem("max", n=1 << power)))
    store.save(winner(problem("sum", n=1 << 28), config()))
    assert [v.problem.n for v in export(tmp_path / "all").export.variants] == [1 << 12, 1 << 20, 1 << 28]
    some = export(tmp_path / "some", n=[1 << 28, 1 << 12])
    assert [v.problem.n for v in some.export.variants] == [1 << 28, 1 << 12]
    assert "--n 268435456,4096" in some.export.command
    with pytest.raises(
        UsageError, match="winner for about 2\\^12, 2\\^20, 2\\^28 elements, and none for the size asked"
    ):
        export(tmp_path / "none", n=1 << 24)
    assert not (tmp_path / "none").exists()


def test_with_no_winner_the_default_is_offered(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing is tuned; run redtune search for it first, or export the default"):
        export(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (variant,) = export(tmp_path / "out", default=True).export.variants
    assert variant.best is None
    assert "This config was not measured" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize(
    "other",
    [
        {"problem": problem("min", n=1 << 28)},
        {"problem": problem("max", "float64", n=1 << 28)},
        {"problem": problem("max", n=1 << 28, determinism="run-to-run")},
        {"problem": problem("max", n=1000, outer=1000), "config": ROWS},
        {"temperature": "warm"},
        {"device": winner(arch="sm_80").device},
        {"device": winner(arch="gfx942").device},
    ],
)
def test_a_winner_of_something_else_is_none(other: dict[str, Any], tmp_path: Path) -> None:
    store.save(winner(**other))
    with pytest.raises(UsageError, match="nothing is tuned"):
        export(tmp_path / "out")


def test_other_winners_are_found_where_they_are_asked_for(tmp_path: Path) -> None:
    store.save(winner(temperature="warm"))
    store.save(winner(problem("max", n=1 << 28, determinism="run-to-run"), config()))
    store.save(winner(problem("max", n=1000, outer=1000), ROWS, arch="sm_80"))
    assert export(tmp_path / "a", cold=False).export.variants[0].best is not None
    assert export(tmp_path / "b", determinism="run-to-run").export.name == "redtune_max_float32_run_to_run"
    rows = export(tmp_path / "c", arch="sm_80", shape=(1000, 1000), axis=1)
    assert (rows.export.name, rows.export.variants[0].best is None) == ("redtune_max_float32_rows", False)


def test_a_fixed_knob_leaves_the_evidence_behind(tmp_path: Path) -> None:
    store.save(winner())
    (variant,) = export(tmp_path / "out", fix={"block": 512}).export.variants
    assert (variant.config.block, variant.config.items, variant.best) == (512, 8, None)


def test_an_amd_winner_is_that_of_its_architecture_without_features(tmp_path: Path) -> None:
    device = replace(winner(arch="gfx90a").device, arch="gfx90a:sramecc+:xnack-")
    store.save(winner(problem("sum", n=1 << 28), config(), device=device))
    found = export(tmp_path / "out", "sum", "gfx90a", format="hip")
    assert found.export.archs == ("gfx90a",)


def test_architectures_and_sizes_are_picked_at_run_time(tmp_path: Path) -> None:
    for arch in ("sm_80", "sm_90"):
        for power in (16, 28):
            store.save(winner(problem("max", n=1 << power), arch=arch))
    found = export(tmp_path / "out", arch=["sm_80", "sm_90"])
    assert [v.space for v in found.export.variants] == ["v0", "v1", "v2", "v3"]
    text = (tmp_path / "out" / "redtune_max_float32.cuh").read_text()
    table = re.search(r"tuned_for\[\] = \{\n(.*?)\n    \};", text, re.DOTALL)
    assert table is not None
    assert [line.strip() for line in table[1].splitlines()] == ["{0, 16},", "{0, 28},", "{1, 16},", "{1, 28},"]
    assert "static const int numbers[] = {80, 90};" in text
    # Code for a newer architecture is none of an older one's business.
    assert text.count("#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900\n") == text.count("__CUDA_ARCH__ >= 800\n")


# --- names ------------------------------------------------------------------------------------------------------------

OWN = derived("sum", "x * x + 1", None)


@pytest.mark.parametrize(
    ("p", "name"),
    [
        (make_problem("max"), "redtune_max_float32"),
        (make_problem("sum", "float16", accumulate="float64"), "redtune_sum_float16_in_float64"),
        (make_problem("sum", accumulate="compensated"), "redtune_sum_float32_compensated"),
        (shaped_problem("argmax", "int8", (3, 4), 1), "redtune_argmax_int8_rows"),
        (shaped_problem("argmax", "int8", (3, 4), 0), "redtune_argmax_int8_columns"),
        (make_problem(json.loads(OWN)["name"], custom=OWN), f"redtune_{json.loads(OWN)['name']}_float32"),
    ],
)
def test_the_name_says_what_is_reduced(p: Any, name: str) -> None:
    assert default_name(p) == name
    assert name.isidentifier()


def test_a_name_of_ones_own(tmp_path: Path) -> None:
    found = export(tmp_path / "out", default=True, name="my_max")
    assert "my_max.cuh" in {path.name for path in found.files}
    text = (tmp_path / "out" / "my_max.cuh").read_text()
    assert "static inline cudaError_t my_max(" in text
    assert "redtune_max_float32_detail" not in text
    assert "--name my_max" in text


@pytest.mark.parametrize("name", ["", "2max", "a b", "max-float", "größe", "int", "lambda", "_x", "a" * 101])
def test_a_name_that_is_none(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a function cannot be called"):
        export(tmp_path / "out", default=True, name=name)
    assert not (tmp_path / "out").exists()


def test_the_command_says_everything(tmp_path: Path) -> None:
    found = export(
        tmp_path / "out",
        json.loads(OWN)["name"],
        custom=OWN,
        shape=[(64, 100), (4096, 100)],
        axis=1,
        accumulate="float64",
        default=True,
        fix={"block": 128},
        cold=False,
    )
    assert found.export.command == (
        f"redtune export --op {json.loads(OWN)['name']} --dtype float32 --shape 64x100 --shape 4096x100 --axis 1 "
        "--accumulate float64 --map 'x * x + 1' --arch sm_90 --format cuda --fix block=128 --warm --default --out DIR"
    )


# --- bad input, and folders -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"format": "cudda"}, "there is no format 'cudda': did you mean 'cuda'?"),
        ({"arch": "gfx942"}, "'gfx942' is not a CUDA architecture: write sm_90, say"),
        ({"arch": "sm_90", "format": "hip"}, "'sm_90' is not an AMD architecture: write gfx942, say"),
        ({"arch": ()}, "arch names no architecture"),
        ({"n": ()}, "n names no size"),
        ({"n": 0}, "0"),
        ({"n": 5, "shape": (2, 3)}, "give one of them"),
        ({"shape": [(4, 5), (5,)], "axis": 1}, "axis 1"),
        ({"shape": [(4, 5), (5, 4)], "axis": 0, "arch": "sm_80,sm_90"}, "not a CUDA architecture"),
        ({"shape": [(40, 50), (50,)], "axis": 0}, "the shapes lie differently in memory"),
        ({"binaries": ("obj",)}, "there is no binary 'obj'"),
        ({"binaries": ("hsaco",)}, "hsaco is of hip, and the format cuda holds cuda kernels"),
        ({"fix": {"block": 5}}, "block"),
        ({"fix": {"combine": "cluster"}, "arch": "sm_80"}, "cluster"),
    ],
)
def test_bad_input_gets_one_sentence_and_leaves_nothing(options: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises((UsageError, BackendMissing)) as caught:
        export(tmp_path / "out", default=True, **options)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_without_a_device_it_says_how_to_do_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(backend: str | None, index: int) -> None:
        raise BackendMissing("the cuda backend found no NVIDIA GPU")

    monkeypatch.setattr("redtune.lab.find_device", none)
    with pytest.raises(
        BackendMissing, match="no NVIDIA GPU; --arch names an architecture to export for with no device"
    ):
        export(tmp_path / "out", arch=None)


def test_a_folder_that_cannot_take_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.txt").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    for out, sentence in (
        (tmp_path / "file", "is a file: an export is a folder"),
        (tmp_path / "file" / "out", "is a file"),
        (tmp_path / "full", "is not empty: choose another folder, or replace files there with --force"),
    ):
        with pytest.raises(UsageError, match=sentence):
            export(out, default=True)
    assert sorted(tmp_path.rglob("*")) == before
    export(tmp_path / "full", default=True, force=True)
    export(tmp_path / "full", default=True, force=True, name="other")
    assert (tmp_path / "full" / "note.txt").read_text() == "mine"
    assert (tmp_path / "full" / "redtune_max_float32.cuh").exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as for a user who is not root
    for name, sentence in (("there", "cannot be written to"), ("new", "cannot be made")):
        with pytest.raises(UsageError, match=sentence):
            export(tmp_path / name, default=True)


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_fails_half_way_leaves_nothing(
    error: BaseException, is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_there:
        (tmp_path / "out").mkdir()
    whole, moved = Path.replace, []

    def replace_some(self: Path, to: Path) -> Path:
        if len(moved) == 2:
            raise error
        moved.append(to)
        return whole(self, to)

    monkeypatch.setattr(folder.Path, "replace", replace_some)
    with pytest.raises((RedtuneError, KeyboardInterrupt)) as caught:
        folder.write_folder(tmp_path / "out", dict.fromkeys("abcd", b"text"))
    assert len(moved) == 2
    assert isinstance(caught.value, KeyboardInterrupt) or "no space is left" in str(caught.value)
    assert (tmp_path / "out").exists() == is_there
    assert not is_there or list((tmp_path / "out").iterdir()) == []


def test_a_missing_compiler_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*arguments: Any) -> bytes:
        raise BackendMissing("the cuda backend needs CuPy")

    monkeypatch.setattr("redtune.backends.cuda.compile_ptx", missing)
    with pytest.raises(RedtuneError, match="ptx cannot be written without its compiler: the cuda backend needs CuPy"):
        export(tmp_path / "out", default=True, binaries=("ptx",))
    assert not (tmp_path / "out").exists()


# --- texts ------------------------------------------------------------------------------------------------------------


def some(format: str) -> Export:
    """One export of a format, as a search would leave it."""
    p = problem("max", n=1 << 28)
    store.save(winner(p, arch=ARCH[format], config=TUNED if BACKENDS[format] != "opencl" else config()))
    device = target(BACKENDS[format], ARCH[format]).device
    variants = choose([p], [device], fix={}, temperature="cold", or_default=False)
    return Export(default_name(p), variants, f"redtune export --op max --format {format} --out DIR")


@pytest.mark.parametrize("format", FORMATS)
def test_exporting_twice_gives_the_same_bytes(format: str, tmp_path: Path) -> None:
    assert texts_of(some(format), format) == texts_of(some(format), format)


@pytest.mark.parametrize("format", FORMATS)
def test_every_file_says_what_it_is(format: str) -> None:
    whole = some(format)
    knobs = [(name, value) for v in whole.variants for name, value, _ in v.knobs]
    for file, text in texts_of(whole, format).items():
        if file == "manifest.json":
            continue
        flat = re.sub(r"\s*\n[/#*\s]*", " ", text)
        assert "the largest value; NaN wins" in flat, file
        assert f"redtune export --op max --format {format}" in flat, file
        assert "MIT" in flat, file
        assert "4535.6 GB/s" in flat, file
        assert "2026-11-30" in flat, file
        assert all(f"{name} = {value}" in flat for name, value in knobs), file


@pytest.mark.parametrize("format", FORMATS)
def test_the_text_is_as_it_was(format: str, is_updating: bool) -> None:
    texts = {name: text for name, text in texts_of(some(format), format).items() if name != "manifest.json"}
    there = {path.name: path for path in (GOLDEN / format).glob("*")}
    if is_updating:
        for path in there.values():
            path.unlink()
        for name, text in texts.items():
            (GOLDEN / format).mkdir(parents=True, exist_ok=True)
            (GOLDEN / format / name).write_text(text)
        return
    again = "if it should differ, run pytest tests/text/test_export.py --update-golden"
    assert set(there) == set(texts), again
    for name, path in there.items():
        assert path.read_text() == texts[name], f"{path.relative_to(GOLDEN.parents[1])}: {again}"


KERNELS: dict[str, Callable[[], list[Any]]] = {
    "flat": lambda: [problem("sum", "float16")],
    "rows": lambda: [shaped_problem("argmax", "float32", (64, 1000), 1)],
    "columns": lambda: [shaped_problem("var", "float64", (8, 640, 40), 1)],
    "two": lambda: [problem("dot", "bfloat16")],
    "sizes": lambda: [problem("any", "bool", n=1 << 12), problem("any", "bool", n=1 << 24)],
    "own": lambda: [make_problem(json.loads(OWN)["name"], "int32", 1 << 20, custom=OWN)],
    "compensated": lambda: [make_problem("sum", "complex64", 1 << 20, accumulate="compensated")],
}


@pytest.mark.parametrize("which", KERNELS)
@pytest.mark.parametrize("format", FORMATS)
def test_lines_are_short_and_say_nothing_of_this_machine(format: str, which: str) -> None:
    whole = exported(format, KERNELS[which](), [ARCH[format]])
    emitted = {line for v in whole.variants for line in v.kernel.source.splitlines()}
    for name, text in texts_of(whole, format).items():
        assert text.endswith("\n"), name
        assert "\t" not in text or name == "Makefile"
        assert str(Path.home()) not in text
        assert str(Path(redtune.__file__).parents[1]) not in text
        for line in text.splitlines():
            assert line == line.rstrip(), (name, line)
            is_prose = name.endswith((".md", ".json")) or line.lstrip().startswith(("//", "#", "*"))
            assert len(line) <= 130 or is_prose or '"' in line or line in emitted, (name, line)
