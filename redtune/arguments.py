"""Arguments of the command line: the options that several commands share, and what their texts stand for."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Optional

import typer

from redtune.errors import UsageError

OP_HELP = "What to reduce with: sum, max, argmax, var, logsumexp, ... (a wrong name lists them all)."
Op = Annotated[str, typer.Option("--op", help=OP_HELP)]
OpOrNone = Annotated[Optional[str], typer.Option("--op", help=OP_HELP)]  # noqa: UP045
Shape = Annotated[Optional[str], typer.Option("--shape", help="Shape of a C array: 4096x4096.", metavar="AxBxC")]  # noqa: UP045
Axis = Annotated[Optional[str], typer.Option("--axis", help="Axes to reduce: 1, -1 or 0,2; all if left out.")]  # noqa: UP045
Out = Annotated[Optional[str], typer.Option("--out", help="Write the result to a .npy file.", metavar="FILE")]  # noqa: UP045
Accumulate = Annotated[Optional[str], typer.Option(help="float64 or compensated, for more digits.")]  # noqa: UP045
OpFile = Annotated[Optional[str], typer.Option("--op-file", help="YAML file of operators of your own.", metavar="FILE")]  # noqa: UP045
Map = Annotated[Optional[str], typer.Option("--map", help="Expression of x instead of each element.", metavar="EXPR")]  # noqa: UP045
Finish = Annotated[Optional[str], typer.Option("--finish", help="Expression of the result a.", metavar="EXPR")]  # noqa: UP045
Dtype = Annotated[str, typer.Option(help="Type of the elements: float32, bfloat16, int8, ...")]
Number = Annotated[Optional[str], typer.Option("--n", help="How many elements: 2**26, 1e6, 1000.", metavar="N")]  # noqa: UP045
BackendName = Annotated[Optional[str], typer.Option("--backend", help="cuda, hip or opencl; the first with a device.")]  # noqa: UP045
DeviceIndex = Annotated[int, typer.Option("--device", help="Which device of the backend, from 0.")]
Like = Annotated[Optional[str], typer.Option(help="Take dtype and shape from a .npy file.", metavar="FILE")]  # noqa: UP045
Cold = Annotated[bool, typer.Option("--cold/--warm", help="Whether inputs rotate past the last cache.")]
Determinism = Annotated[str, typer.Option(help="any, or run-to-run: the same bits on every run.")]
Fix = Annotated[Optional[list[str]], typer.Option("--fix", help="KNOB=VALUE; may be repeated.", metavar="KNOB=VALUE")]  # noqa: UP045
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout and nothing else.")]


def parse_n(text: str | None) -> int | None:
    """`2**26`, `2^26`, `1e6`, `1_000` as a number of elements."""
    if text is None:
        return None
    power = re.fullmatch(r"(\d{1,19})(?:\*\*|\^)(\d{1,3})", text.strip())
    if power:
        base, exponent = int(power[1]), int(power[2])
        if exponent * base.bit_length() > 200:
            raise UsageError(f"n cannot be {text!r}: that is more elements than any memory holds")
        return int(pow(base, exponent))
    try:
        value = float(text) if re.search(r"[.eE]", text) else int(text)
    except ValueError:
        raise UsageError(f"n cannot be {text!r}: write a whole number, 2**26 or 1e6") from None
    if value != value or value in (float("inf"), float("-inf")) or value != int(value):
        raise UsageError(f"n cannot be {text!r}: write a whole number, 2**26 or 1e6")
    return int(value)


def parse_names(text: str | None) -> tuple[str, ...]:
    """`sum,max` as names; none for no text."""
    return tuple(part.strip() for part in text.split(",")) if text is not None else ()


def parse_seconds(text: str | None) -> float | None:
    """`90`, `90s` or `2m` as seconds."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h)?", text.strip())
    if not match:
        raise UsageError(f"a time limit cannot be {text!r}: write 90, 90s, 2m or 1h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2] or "s"]


def parse_shape(text: str | None) -> tuple[int, ...] | None:
    """`4096x4096`, `2**20x16` or `8,16` as a shape."""
    if text is None:
        return None
    lengths = [parse_n(length) for length in re.split(r"\s*[x,]\s*", text.strip())]
    return tuple(length or 0 for length in lengths)


def parse_axis(text: str | None) -> int | tuple[int, ...] | None:
    """`1`, `-1` or `0,2` as an axis or several."""
    if text is None:
        return None
    try:
        axes = tuple(int(axis) for axis in text.split(","))
    except ValueError:
        raise UsageError(f"axis cannot be {text!r}: write 1, -1 or 0,2") from None
    return axes[0] if len(axes) == 1 else axes


def parse_operator(op: str, op_file: str | None, map_: str | None, finish: str | None) -> tuple[str, str]:
    """The name of an operator and, where it is the user's own, its definition."""
    from redtune.custom import derived, load_operators
    from redtune.dtypes import unknown
    from redtune.operators import OPERATORS

    if op_file is not None:
        if map_ is not None or finish is not None:
            raise UsageError("--op-file holds whole operators: leave --map and --finish to the known ones")
        own = load_operators(op_file)
        if op in own:
            return op, own[op]
        if op not in OPERATORS:
            raise UsageError(unknown("operator", op, [*OPERATORS, *own]))
    if map_ is not None or finish is not None:
        text = derived(op, map_, finish)
        return str(json.loads(text)["name"]), text
    return op, ""


def parse_fixes(texts: list[str] | None) -> dict[str, Any]:
    """Every --fix as a knob and its value."""
    from redtune.config import parse_fix

    return dict(parse_fix(text) for text in texts or [])


def size_of(
    dtype: str, n: str | None, shape: str | None, axis: str | None, like: str | None
) -> tuple[str, int | None, tuple[int, ...] | None]:
    """dtype, flat size and shape as asked for, or as a file has them; a file without axes counts as flat."""
    if like is None:
        return dtype, parse_n(n), parse_shape(shape)
    from redtune.files import open_npy

    if n is not None or shape is not None:
        raise UsageError("--like takes the size from the file: leave out --n and --shape")
    array = open_npy(like)
    name = array.dtype.newbyteorder("=").name
    return (name, int(array.size), None) if axis is None else (name, None, tuple(array.shape))
