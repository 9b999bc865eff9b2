"""`redtune show`: what is tuned, and the text of a kernel."""

from __future__ import annotations

import sys
from typing import Annotated, Optional

import typer

from redtune.arguments import (
    Accumulate,
    AsJson,
    Axis,
    BackendName,
    DeviceIndex,
    Dtype,
    Fix,
    Number,
    Shape,
    parse_axis,
    parse_fixes,
    parse_n,
    parse_shape,
)
from redtune.errors import UsageError
from redtune.verbs.shared import print_json


def show(
    op: Annotated[Optional[str], typer.Option("--op", help="Only this operator.")] = None,  # noqa: UP045
    dtype: Dtype = "float32",
    n: Number = None,
    shape: Shape = None,
    axis: Axis = None,
    accumulate: Accumulate = None,
    backend: BackendName = None,
    device: DeviceIndex = 0,
    arch: Annotated[Optional[str], typer.Option(help="Write for sm_90, gfx942, ... with no device.")] = None,  # noqa: UP045
    fix: Fix = None,
    source: Annotated[bool, typer.Option("--source", help="Print the kernel instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """List what is tuned, for which device, with its evidence; or print a kernel."""
    from redtune import api, terminal
    from redtune.types import as_json as plain

    if source:
        if op is None:
            raise UsageError("--source prints the kernel of one operator: name it with --op")
        sys.stdout.write(
            api.source(
                op,
                dtype,
                parse_n(n),
                shape=parse_shape(shape),
                axis=parse_axis(axis),
                accumulate=accumulate,
                backend=backend,
                device=device,
                arch=arch,
                fix=parse_fixes(fix),
            )
        )
        return
    rows = api.tuned(op)
    if as_json:
        print_json({"tuned": [{"from": whose, **plain(best)} for whose, best in rows]})
    else:
        terminal.show_tuned(rows, is_brief=op is None)
