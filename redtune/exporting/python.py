"""Python modules over CuPy and PyTorch: one file with the kernel and its launches, and one that checks it."""

from __future__ import annotations

import keyword
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from redtune.errors import UsageError
from redtune.exporting.about import About
from redtune.exporting.checks import Case, Checks, word_bytes
from redtune.exporting.variants import Export, Variant
from redtune.exporting.writing import Texts, names_of
from redtune.render import render_file

WIDTH = 120  # of a line
BLANK_LINES = 2  # between functions


@dataclass(frozen=True, slots=True)
class Library:
    """One library of arrays: what it is called in a sentence, how it comes, and how the function is called."""

    name: str
    title: str
    array: str
    needs: str
    use: str


CUPY = Library(
    name="cupy",
    title="CuPy",
    array="cupy.ndarray",
    needs="Python 3.10, CuPy (`pip install cupy-cuda13x`, or the one for your CUDA)",
    use="{call} is the result, a CuPy array on the GPU of `x`. It runs on CuPy's current stream.",
)
TORCH = Library(
    name="torch",
    title="PyTorch",
    array="torch.Tensor",
    needs="Python 3.10 on Linux, PyTorch 2.4 for CUDA",
    use="{call} is the result, a tensor on the GPU of `x`. It runs on PyTorch's current stream, is the operator "
    "`torch.ops.redtune.{op}`, and works under `torch.compile`, `torch.export` and in CUDA graphs. Gradients are not "
    "defined.",
)


def cupy_files(export: Export) -> Texts:
    """The files of a module over CuPy."""
    return _files(export, CUPY)


def torch_files(export: Export) -> Texts:
    """The files of a module that registers a PyTorch operator."""
    return _files(export, TORCH)


def _files(export: Export, library: Library) -> Texts:
    module, test = f"{export.name}.py", f"test_{export.name}.py"
    if export.name in sys.stdlib_module_names | {"cupy", "numpy", "torch"}:
        raise UsageError(f"a module called {export.name} would hide the one that is imported: choose another name")
    names = names_of(
        export,
        format=library.name,
        library=library,
        operator=operator_name(export),
        arguments=argument_names(export),
        parameters=parameters(export, library),
        inputs=("x", "y")[: export.op.inputs],
        imports=sorted([library.name, export.name, *["numpy"] * (library is CUPY)], key=str.lower),
        comments=comments,
        prose=prose,
        listed=listed,
        signature=signature,
        literal=literal,
        hexes=hexes,
        case=case_lines,
        word=word_bytes,
        capability=capability,
        lengths=lengths,
        pair=pair,
    )
    called = ", ".join([*names["inputs"], *["axis"] * (export.problem.layout == "columns")])
    call = f"`{export.name}.reduce({called})`"
    meanings = {module: "the kernel, how it is launched, and `reduce`: all that a program needs", test: "the self-test"}
    what = f"The kernel, how it is launched with {library.title}, and `reduce`."
    return {
        module: render_file(library.name, BLANK_LINES, **names, what=what),
        test: render_file(f"{library.name}_selftest", BLANK_LINES, **names, what=f"The self-test of {module}."),
        "README.md": render_file(
            "readme",
            **names,
            what=f"a module for {library.title} with a self-test.",
            needs=f"It takes {library.needs} and a GPU of {min(export.archs, key=_number)}, or newer ones.",
            build=f"python {test}",
            use=f"{library.use.format(call=call, op=names['operator'])} Its docstring says the rest. The kernel is "
            "compiled at the first call on a GPU. `pytest` runs the checks, too.",
            files=list(meanings.items()),
        ),
    }


def operator_name(export: Export) -> str:
    """What PyTorch calls the operator, behind `redtune::`."""
    short = export.name.removeprefix("redtune_")
    return short if short.isidentifier() and not keyword.iskeyword(short) else export.name


def argument_names(export: Export) -> list[str]:
    """The arguments that some kernel of the export takes, each once."""
    numbers = [variant.numbers for variant in export.variants]
    taken = [m[f"{step}_args"] for m in numbers for step in ("main", "before", "after") if m[step]]
    return list(dict.fromkeys(name for names in taken for name in names))


def parameters(export: Export, library: Library) -> list[str]:
    """The parameters of `reduce`."""
    found = [f"{name}: {library.array}" for name in ("x", "y")[: export.op.inputs]]
    found += ["axis: int"] * (export.problem.layout == "columns")
    found += [f"out: {library.array} | None = None"] * (library is CUPY)
    return found + ["*", "ddof: int = 0"] * export.reads_ddof


def lengths(about: About, variant: Variant) -> list[str]:
    """The sizes that a variant was tuned for."""
    return [str(about.size(variant, name)) for name in about.names]


def pair(checks: Checks) -> tuple[int, int]:
    """Two cases of the same sizes, more than a tile: one that is misaligned, and one whose results differ if any do."""

    def sizes(case: Case) -> tuple[int, int, int]:
        return case.outer, case.n, case.inner

    cases = list(enumerate(checks.cases))
    first = max((k for k, case in cases if case.first and case.plant < 0), key=lambda k: checks.cases[k].n)
    alike = [k for k, case in cases if sizes(case) == sizes(checks.cases[first]) and not case.first]
    return first, max(alike, key=lambda k: checks.cases[k].expected != checks.cases[first].expected)


def capability(variant: Variant) -> int:
    """The architecture of a variant as CUDA counts them: 90 for 9.0."""
    return _number(variant.device.arch)


def _number(arch: str) -> int:
    return int("".join(c for c in arch if c.isdigit()))


# --- text in the shape that ruff gives it -----------------------------------------------------------------------------


def comments(text: str) -> str:
    """Comments with their long lines wrapped."""
    return "\n".join(
        textwrap.fill(
            line,
            WIDTH,
            subsequent_indent="#" + " " * (len(line[1:]) - len(line[1:].lstrip()) + 2),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.rstrip("\n").splitlines()
    )


def prose(text: str, indent: int) -> str:
    """A paragraph in lines that are indented, the first one by what stands before it."""
    lines = textwrap.wrap(text, WIDTH - indent - 3, break_long_words=False, break_on_hyphens=False)
    return ("\n" + " " * indent).join(lines)


def listed(start: str, items: Sequence[str], end: str = "") -> str:
    """A tuple behind `start`, on one line or on one for each item."""
    line = f"{start}({', '.join(items)}{',' * (len(items) == 1)}){end}"
    if len(line) <= WIDTH:
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    return "\n".join([f"{start}(", *(f"{indent}    {item}," for item in items), f"{indent}){end}"])


def signature(name: str, found: Sequence[str], result: str) -> str:
    """The head of a function."""
    inside = ", ".join(found)
    line = f"def {name}({inside}) -> {result}:"
    return line if len(line) <= WIDTH else f"def {name}(\n    {inside}\n) -> {result}:"


def literal(source: str) -> str:
    """A kernel as a string. Its lines are as long as they are."""
    if '"""' in source or source.endswith('"'):
        raise AssertionError("the kernel ends the string it stands in")
    first, *others = source.splitlines()
    is_long = max(map(len, [first, *others])) > WIDTH or len(first) + len('SOURCE_V00 = r"""') > WIDTH
    return f'r"""{source}"""' + "  # noqa: E501" * is_long


def hexes(words: Iterable[int], size: int) -> list[str]:
    """Bits as numbers of so many bytes."""
    return [f"0x{bits:0{2 * size}x}" for bits in words]


def case_lines(checks: Checks, case: Case, index: int) -> str:
    """One check as a call."""
    words = ", ".join(hexes(case.value, word_bytes(checks.export.dtype)))
    numbers = f"{case.first}, {case.outer}, {case.n}, {case.inner}, {case.plant}, [{words}], {checks.start(index)}"
    whole = f'    Case("{case.about}", "{case.table}", {numbers}),'
    return whole if len(whole) <= WIDTH else f'    Case("{case.about}",\n         "{case.table}", {numbers}),'
