"""Plan to kernel text: the only file that imports jinja2. The text is a pure function of problem, config and arch."""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2

from redtune.config import Config
from redtune.dialect import Dialect
from redtune.operators import operator_of
from redtune.plan import make_plan
from redtune.text import Text, make_text
from redtune.types import Device, Kernel, Problem

WIDTH = 110  # of a list of parameters
EXPORT = "export"  # the folder of what is written around kernels
CEILING = "ceiling"  # the folder of kernels that reduce nothing
REPORT = "report"  # the folder of pages, whose names are escaped as HTML wants it
ASIDE = (EXPORT, CEILING, REPORT)  # what no reduction is made of


@functools.cache
def templates_path() -> Path:
    """Where the templates lie: inside the installed package, or beside it in a checkout."""
    inside = Path(str(importlib.resources.files("redtune"))) / "templates"
    return inside if inside.is_dir() else inside.parents[1] / "templates"


def wrapped(parameters: str) -> str:
    """A list of parameters in lines that a reader takes in, the later ones indented by four columns."""
    lines = [""]
    for parameter in parameters.split(", "):
        if len(lines[-1]) + len(parameter) > WIDTH:
            lines.append("")
        lines[-1] += parameter + ", "
    return "\n    ".join(line.rstrip() for line in lines).removesuffix(",")


def in_lines(words: Iterable[object], width: int = 100) -> str:
    """Words with commas behind them, in lines that are indented by four columns."""
    return textwrap.fill(" ".join(f"{word}," for word in words), width, initial_indent="    ", subsequent_indent="    ")


def c_word(bits: int, size: int) -> str:
    """Bits as a literal of C, of an unsigned integer of so many bytes."""
    return f"0x{bits:0{2 * size}x}{'ull' if size == 8 else 'u'}"


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_path()),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=lambda name: name is not None and name.startswith(f"{REPORT}/"),
    )
    environment.filters["wrapped"] = wrapped
    environment.filters["in_lines"] = in_lines
    environment.filters["c_word"] = c_word
    return environment


@functools.cache
def templates_digest() -> str:
    """A short digest of the kernels' templates: a stored winner says which ones it was measured with."""
    total = hashlib.sha256()
    for path in sorted(templates_path().rglob("*.jinja")):
        if path.parent.name in ASIDE:
            continue
        total.update(path.relative_to(templates_path()).as_posix().encode())
        total.update(path.read_bytes())
    return total.hexdigest()[:12]


def render_file(template: str, blank_lines: int = 1, **names: Any) -> str:
    """A file of an export: the template `export/<template>.jinja` with these names; so many blank lines at most."""
    return _tidied(_environment().get_template(f"{EXPORT}/{template}.jinja").render(**names), blank_lines)


def render_page(template: str, **names: Any) -> str:
    """A page of HTML: the template `report/<template>.jinja` with these names, every one of them escaped."""
    return _environment().get_template(f"{REPORT}/{template}.jinja").render(**names)


def render_ceiling(template: str, problem: Problem, config: Config, plan: Text, **names: Any) -> str:
    """The text of a kernel that reduces nothing: the template `ceiling/<template>.jinja`. `plan` is that of a reduction
    whose words it uses."""
    found = _environment().get_template(f"{CEILING}/{template}.jinja")
    return _tidied(found.render(problem=problem, config=config, op=operator_of(problem), plan=plan, **names))


def _tidied(written: str, blank_lines: int = 1) -> str:
    """Parts that are not there leave no gap."""
    most = "\n" * (blank_lines + 1)
    return re.sub(f"{most}\n+", most, written).strip() + "\n"


def render(problem: Problem, config: Config, dialect: Dialect, device: Device, output: str = "value") -> Kernel:
    """The kernel of a config that was not refused. `output` "state" leaves the state unfinished, for work in chunks."""
    plan = make_plan(problem, config, dialect, device)
    text = make_text(problem, config, dialect, device, output)
    written = (
        _environment()
        .get_template("kernel.jinja")
        .render(problem=problem, config=config, op=operator_of(problem), plan=text)
    )
    source = _tidied(written)
    flags = dialect.flags(config, device.arch)
    digest = hashlib.sha256("\n".join((source, *flags, device.arch)).encode()).hexdigest()[:16]
    return Kernel(
        problem=problem,
        config=config,
        dialect=dialect.name,
        arch=device.arch,
        source=source,
        flags=flags,
        launches=plan.launches,
        partials_bytes=plan.partials_bytes,
        counter_bytes=plan.counter_bytes,
        digest=digest,
    )
