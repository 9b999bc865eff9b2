"""Exports for CuPy and PyTorch without a GPU: what is written is clean Python, launches what the plan says, and its
self-test knows right results from wrong ones."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import json
import re
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import redtune
from redtune import keys, store
from redtune.config import Config
from redtune.custom import derived
from redtune.dtypes import DTYPES
from redtune.errors import UsageError
from redtune.exporting import python
from redtune.exporting.checks import picks
from redtune.exporting.formats import texts_of
from redtune.exporting.variants import Export, Variant, default_name
from redtune.exporting.writing import Texts
from redtune.plan import make_plan
from redtune.problems import make_problem, shaped_problem
from redtune.text import make_text
from redtune.types import Problem
from tests.text.exports import exported
from tests.text.kernels import config, problem, rendered, target
from tests.text.on_host import CAPABILITY, UNITS, Launched, bare_torch, executed, imported, reduce_on_host, stand_in

ROOT = Path(__file__).parents[2]
FORMATS = ("cupy", "torch")
OWN = derived("sum", "x * x + 1", None)
ROWS, COLUMNS = ((300, 4099), 1), ((8, 640, 40), 1)

# What is exported, the architectures, and the knobs.
SAMPLES: dict[str, tuple[list[Problem], list[str], dict[str, Any]]] = {
    "flat": ([problem("sum", "float16", n=1 << 20)], ["sm_90"], {}),
    "atomic": ([problem("max", n=1 << 20)], ["sm_90"], {"combine": "atomic", "walk": "tile"}),
    "two_pass": ([problem("prod", "uint16", n=1 << 20)], ["sm_80"], {"combine": "two_pass"}),
    "cluster": ([problem("mean", "float64", n=1 << 20)], ["sm_90"], {"combine": "cluster"}),
    "early": ([problem("sum", n=1 << 20)], ["sm_90"], {"combine": "two_pass", "second_launch": "early"}),
    "tally": ([problem("sum", "int32", n=1 << 20)], ["sm_90"], {"combine": "tally", "walk": "stride"}),
    "dot": ([problem("dot", "bfloat16", n=1 << 20)], ["sm_90"], {}),
    "rows": ([shaped_problem("argmax", "float32", *ROWS)], ["sm_90"], {}),
    "rows_atomic": ([shaped_problem("sum", "int32", *ROWS)], ["sm_90"], {"split": 8, "combine": "atomic"}),
    "rows_last": ([shaped_problem("logsumexp", "float32", *ROWS)], ["sm_90"], {"split": 4}),
    "columns": ([shaped_problem("all", "bool", *COLUMNS)], ["sm_90"], {}),
    "columns_two_pass": ([shaped_problem("var", "bfloat16", *COLUMNS)], ["sm_90"], {"split": 4, "combine": "two_pass"}),
    "columns_dot": ([shaped_problem("dot", "complex64", *COLUMNS)], ["sm_90"], {"split": 2}),
    "sizes": ([problem("min", "int8", n=n) for n in (1 << 10, 1 << 24)], ["sm_80", "sm_90"], {}),
    "own": ([make_problem(json.loads(OWN)["name"], "int32", 1 << 20, custom=OWN)], ["sm_90"], {}),
    "compensated": ([make_problem("sum", "complex128", 1 << 20, accumulate="compensated")], ["sm_90"], {}),
}


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(keys, "WARNED", set())


@functools.cache
def sample(format: str, which: str) -> tuple[Export, Texts]:
    problems, archs, fix = SAMPLES[which]
    whole = exported(format, problems, archs, **fix)
    return whole, texts_of(whole, format)


def module_of(format: str, whole: Export, texts: Texts) -> Any:
    """The module of an export, that never launches anything."""

    def launched(*given: Any) -> None:
        raise AssertionError("nothing is to be launched")

    return executed(whole.name, texts[f"{whole.name}.py"], cupy=stand_in(launched), torch=bare_torch())


# --- text -------------------------------------------------------------------------------------------------------------


def test_the_files_are_as_ruff_wants_them(tmp_path: Path) -> None:
    for format in FORMATS:
        for which in SAMPLES:
            (tmp_path / format / which).mkdir(parents=True)
            for name, text in sample(format, which)[1].items():
                (tmp_path / format / which / name).write_text(text)
    # A name as long as may be, evidence, and a command of several lines.
    fix = {"block": 512, "vector": 4, "items": 8, "accumulators": 4, "exchange": "lds", "tree": "unrolled", "wave": 64}
    for format in FORMATS:
        name, out = "a" * 100, tmp_path / "long" / format
        redtune.export("sum", format=format, arch="sm_90", out=out, default=True, fix=fix, name=name)
    for verb in (["check"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *verb, "--no-cache", "--config", str(ROOT / "pyproject.toml")]
        done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def imports_of(text: str) -> set[str]:
    """The packages beyond Python's own that a text imports."""
    nodes = list(ast.walk(ast.parse(text)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    from_ = {node.module or "." for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in plain | from_} - sys.stdlib_module_names


@pytest.mark.parametrize("which", SAMPLES)
def test_the_files_need_nothing_but_the_library(which: str) -> None:
    for format, needed in (("cupy", {"cupy", "numpy"}), ("torch", {"torch"})):
        whole, texts = sample(format, which)
        assert set(texts) == {f"{whole.name}.py", f"test_{whole.name}.py", "README.md", "manifest.json"}
        assert imports_of(texts[f"{whole.name}.py"]) == needed
        assert imports_of(texts[f"test_{whole.name}.py"]) == needed | {whole.name}
        assert f"```sh\npython test_{whole.name}.py\n```" in texts["README.md"]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("which", SAMPLES)
def test_the_kernels_are_those_of_the_export(format: str, which: str) -> None:
    whole, texts = sample(format, which)
    module = module_of(format, whole, texts)
    for kernel, variant in zip(module.KERNELS, whole.variants, strict=True):
        assert kernel.source == variant.kernel.source
        assert (kernel.name, kernel.options) == (variant.space, variant.kernel.flags)
        assert f"sm_{kernel.capability}" == variant.device.arch
    assert module.__all__ == ["reduce"]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", ["torch", "cupy", "numpy", "queue"])
def test_a_name_that_would_hide_another_module(format: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"a module called {name} would hide the one that is imported"):
        redtune.export("max", format=format, arch="sm_90", out=tmp_path / "out", default=True, name=name)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("redtune_max_float32", "max_float32"),
        ("mine", "mine"),
        ("redtune_2x", "redtune_2x"),
        ("redtune_or", "redtune_or"),
    ],
)
def test_the_name_of_the_operator(name: str, operator: str) -> None:
    whole, _ = sample("torch", "flat")
    assert python.operator_name(replace(whole, name=name)) == operator
    assert f'NAME = "{operator}"\n' in texts_of(replace(whole, name=name), "torch")[f"{name}.py"]


def test_the_readme_says_what_an_early_launch_takes() -> None:
    for format in FORMATS:
        said = "CUDA 12.3 or newer"
        assert said in sample(format, "early")[1]["README.md"]
        assert said not in sample(format, "two_pass")[1]["README.md"]


# --- launches ---------------------------------------------------------------------------------------------------------

PLANNED: list[tuple[Problem, Config]] = [
    *(
        (problem(op, n=1 << 20), config(combine=combine, walk=walk, **more))
        for op in ("sum", "max")
        for combine, more in (("two_pass", {}), ("last_block", {}), ("atomic", {}), ("cluster", {"cluster": 8}))
        for walk in ("stride", "chunk", "tile")
        if (op, combine) != ("sum", "atomic")
    ),
    (problem("sum", n=1 << 20), config(**{"combine": "two_pass", "second_launch": "early"})),
    (problem("sum", "int32", n=1 << 20), config(**{"combine": "tally", "walk": "stride"})),
    (problem("any", "int8", n=1 << 20), config(**{"combine": "tally", "walk": "stride"})),
    *(
        (shaped_problem("max", "float32", shape, 1), config(split=split, combine=combine, exchange="lds", **more))
        for shape in (ROWS[0], COLUMNS[0])
        for split, combine, more in (
            (1, "two_pass", {}),
            (1, "two_pass", {"team": 8}),
            (4, "two_pass", {}),
            (4, "two_pass", {"team": 32}),
            (8, "last_block", {"team": 16}),
            (8, "atomic", {}),
            (8, "cluster", {"cluster": 4}),
        )
    ),
]
SIZES = (0, 1, 2, 31, 33, 1023, 1024, 1025, 4096, 4097, 100_003, 1 << 24, (1 << 31) + 17)


def of_config(p: Problem, c: Config) -> Export:
    """An export of one kernel."""
    on = target("cuda", "sm_90")
    kernel, out_type = rendered(on, c, p), make_text(p, c, on.dialect, on.device).out_type
    return Export(default_name(p), (Variant("v0", kernel, on.device, None, store.buckets(p), out_type),), "redtune ...")


@pytest.mark.parametrize("format", FORMATS)
def test_it_launches_what_the_plan_says(format: str) -> None:
    on = target("cuda", "sm_90")
    for p, c in PLANNED:
        whole = of_config(p, c)
        (kernel,) = module_of(format, whole, texts_of(whole, format)).KERNELS
        for size in SIZES:
            at = replace(p, n=size) if p.layout == "flat" else replace(p, outer=max(2, size), inner=min(p.inner, 2))
            for units in (1, 7, 132):
                right = make_plan(at, c, on.dialect, replace(on.device, compute_units=units))
                plan = kernel.plan(at.n if p.layout == "flat" else at.results, units)
                assert (plan.parts, 4 * plan.counters) == (right.parts, right.counter_bytes), (p, c, size, units)
                assert plan.partials_bytes == right.partials_bytes, (p, c, size, units)
                found = [(*step[:4], getattr(step, "is_early", False)) for step in plan.launches]
                launches = [(one.entry, one.grid, one.block, one.args, one.is_early) for one in right.launches]
                assert found == launches, (p, c, size, units)


def test_a_grid_that_is_too_large_is_refused() -> None:
    p = problem("max", n=1 << 20)
    whole = of_config(p, config(walk="tile", items=1, block=32, accumulators=1))
    (kernel,) = module_of("cupy", whole, texts_of(whole, "cupy")).KERNELS
    assert kernel.plan(32 * 0x7FFFFFFF, 132).launches[0].grid == 0x7FFFFFFF
    with pytest.raises(ValueError, match="more than a grid of tiles takes"):
        kernel.plan(32 * 0x7FFFFFFF + 1, 132)


@pytest.mark.parametrize("format", FORMATS)
def test_the_nearest_kernel_of_the_newest_architecture_is_taken(format: str) -> None:
    whole, texts = sample(format, "sizes")
    module = module_of(format, whole, texts)
    assert [kernel.name for kernel in module.KERNELS] == ["v0", "v1", "v2", "v3"]
    for capability, size, name in (
        (80, 1, "v0"),
        (86, 1 << 17, "v0"),
        (89, (1 << 17) + 1, "v1"),
        (90, 0, "v2"),
        (90, 1 << 30, "v3"),
        (120, 1000, "v2"),
    ):
        assert module.choose(capability, (size,)).name == name
    with pytest.raises(RuntimeError, match="these kernels are for sm_80 and newer GPUs, not for sm_75"):
        module.choose(75, (1000,))
    for size in SIZES:
        assert module.size_class(size) == (store.bucket_of(size) if size else 0)


def test_sizes_of_rows_and_columns_count_together() -> None:
    for shapes, axis in (((1 << 4, 1 << 16), (1 << 16, 1 << 4)), 1), (((4, 1 << 16, 4), (4, 4, 1 << 16)), 1):
        whole = exported("cupy", [shaped_problem("max", "float32", shape, axis) for shape in shapes], ["sm_90"])
        module = module_of("cupy", whole, texts_of(whole, "cupy"))
        assert [module.choose(90, shape).name for shape in shapes] == ["v0", "v1"]


# --- the self-test ----------------------------------------------------------------------------------------------------


def launches_of(whole: Export, wrong: bool = False) -> Launched:
    """Does on the host what the kernels do; if `wrong`, one element of each input too few."""

    def launched(entry: str, grid: int, block: int, given: list[int]) -> None:
        for variant in whole.variants:
            m = variant.numbers
            if entry == m["main"]:
                values = dict(zip(m["main_args"], given, strict=True))
                values["n"] -= wrong and values["n"] > 1
                reduce_on_host(whole.problem, values)
                return
            assert entry in (m["before"], m["after"])

    return launched


def self_test(whole: Export, texts: Texts, wrong: bool = False) -> Any:
    """The self-test of a module over CuPy, on the host."""
    name = whole.name
    cupy = stand_in(launches_of(whole, wrong))
    module = executed(name, texts[f"{name}.py"], cupy=cupy)
    if hasattr(module, "launch_early"):  # a call of the driver, which is not here
        module.launch_early = lambda kernel, grid, block, arguments: kernel((grid,), (block,), arguments)
    with imported(cupy=cupy, **{name: module}):
        return executed(f"test_{name}", texts[f"test_{name}.py"], cupy=cupy, **{name: module})


@pytest.mark.parametrize("which", SAMPLES)
def test_the_self_test_passes_right_results(which: str, capsys: pytest.CaptureFixture[str]) -> None:
    whole, texts = sample("cupy", which)
    test = self_test(whole, texts)
    for part in (test.test_cases, test.test_out, test.test_shapes, test.test_errors, test.test_other_gpu):
        part()
    lines = capsys.readouterr().out.splitlines()
    assert len(test.OUTCOMES) == len(lines) > 60
    assert all(line.startswith("ok      ") for line in lines)


@pytest.mark.parametrize("which", ["flat", "rows", "columns_dot", "sizes"])
def test_the_self_test_fails_wrong_results(which: str, capsys: pytest.CaptureFixture[str]) -> None:
    whole, texts = sample("cupy", which)
    test = self_test(whole, texts, wrong=True)
    with pytest.raises(AssertionError):
        test.test_cases()
    assert 0 < test.OUTCOMES.count(False) < len(test.OUTCOMES)
    assert "FAILED" in capsys.readouterr().out


def test_its_inputs_are_those_of_the_checks() -> None:
    whole, texts = sample("cupy", "dot")
    test = self_test(whole, texts)
    assert np.array_equal(test.PICKS, picks(len(test.PICKS)))
    assert test.FIRST.first == 1
    assert test.FIRST[3:6] == test.SECOND[3:6]


def test_arrays_that_are_refused_launch_nothing() -> None:
    whole, texts = sample("cupy", "flat")
    module = module_of("cupy", whole, texts)
    with pytest.raises(TypeError, match="x is a list: it must be"):
        module.reduce([1.0])
    x = stand_in(lambda *given: None).zeros((3, 4), "float32")
    with pytest.raises(TypeError, match="x holds float32: it must hold float16"):
        module.reduce(x)


def test_bfloat16_comes_in_two_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    whole, texts = sample("cupy", "columns_two_pass")
    cupy = stand_in(launches_of(whole))
    module = executed(whole.name, texts[f"{whole.name}.py"], cupy=cupy)
    values = np.arange(24).reshape(2, 4, 3).astype(ml_dtypes.bfloat16)
    for x in (cupy.asarray(values), cupy.asarray(values.view(np.uint16))):
        out = module.reduce(x, 1)
        assert (out.dtype, out.shape) == (x.dtype, (2, 3))
        assert np.array_equal(
            np.asarray(out).view(np.uint16), values.astype(np.float32).var(1).astype(values.dtype).view(np.uint16)
        )


# --- PyTorch ----------------------------------------------------------------------------------------------------------


def same_body(text: str, name: str) -> str:
    """A function of a text."""
    return next(
        ast.unparse(node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name
    )


@pytest.mark.parametrize("which", SAMPLES)
def test_both_formats_compute_the_same_launches(which: str) -> None:
    (whole, one), (_, other) = sample("cupy", which), sample("torch", which)
    texts = one[f"{whole.name}.py"], other[f"{whole.name}.py"]
    for name in ("Plan", "Launch", "Kernel", "choose", "size_class", *(f"plan_{v.space}" for v in whole.variants)):
        assert same_body(texts[0], name) == same_body(texts[1], name)
    pointers = [re.sub(r"\.data(_ptr\(\)|\.ptr)", "", text) for text in texts]
    values = [re.findall(r"^        values = \{.*?^        \}", text, re.DOTALL | re.MULTILINE) for text in pointers]
    assert values[0] == values[1]
    assert len(values[0]) == 1


def test_pytorch_has_every_dtype() -> None:
    """So that no kernel is refused."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    assert [name for name in DTYPES if not isinstance(getattr(torch, name, None), torch.dtype)] == []


@pytest.mark.parametrize("which", SAMPLES)
def test_the_operator_is_one_to_pytorch(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The self-test on the CPU, opcheck, torch.compile and torch.export included; with launches on the host."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    whole, texts = sample("torch", which)
    name = whole.name
    on_cpu = re.sub(r"not ([xy])\.is_cuda", r"\1.is_cuda", texts[f"{name}.py"])
    (tmp_path / f"{name}.py").write_text(on_cpu)
    (tmp_path / f"test_{name}.py").write_text(texts[f"test_{name}.py"].replace('"cuda"', '"cpu"'))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda x: x)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda x: 0)
    monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: types.SimpleNamespace(cuda_stream=0))
    test = importlib.import_module(f"test_{name}")
    launched = launches_of(whole)
    module: Any = test.exported
    module.gpu = lambda device: (CAPABILITY, UNITS)
    module.context = lambda device: None
    module.driver = lambda: types.SimpleNamespace(cuCtxSetCurrent=lambda context: 0)
    module.function = lambda device, kernel, entry: entry
    module.launch = lambda entry, grid, block, given, stream: launched(entry, grid, block, given)
    try:
        for part in (test.test_cases, test.test_shapes, test.test_operator, test.test_compile, test.test_other_gpu):
            part()
        assert all(test.OUTCOMES)
        if torch.version.cuda:  # then it brings the compiler
            assert all(module.compiled(kernel, CAPABILITY).startswith(b"\x7fELF") for kernel in module.KERNELS)
        with pytest.raises(AssertionError):  # a tensor on the CPU is none that it should take
            test.test_errors()
        failed = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("ok")]
        assert failed == ["FAILED  a tensor on the CPU"]
    finally:
        for one in (name, f"test_{name}"):
            sys.modules.pop(one)
