"""`redtune run`: a file reduced."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from redtune.arguments import (
    AsJson,
    Axis,
    BackendName,
    DeviceIndex,
    Finish,
    Map,
    Op,
    OpFile,
    Out,
    parse_axis,
    parse_operator,
)
from redtune.verbs.shared import print_json


def run(
    file: Annotated[str, typer.Argument(help="A .npy file.")],
    op: Op,
    axis: Axis = None,
    keepdims: Annotated[bool, typer.Option("--keepdims", help="Keep reduced axes with length 1.")] = False,
    out: Out = None,
    op_file: OpFile = None,
    map_: Map = None,
    finish: Finish = None,
    backend: BackendName = None,
    device: DeviceIndex = 0,
    as_json: AsJson = False,
) -> None:
    """Reduce a file with the tuned kernel: all its elements, or some axes."""
    from redtune import api, terminal
    from redtune.types import as_json as plain

    name, custom = parse_operator(op, op_file, map_, finish)
    result = api.reduce_file(
        file,
        name,
        axis=parse_axis(axis),
        keepdims=keepdims,
        backend=backend,
        device=device,
        custom=custom,
        out=out,
    )
    if as_json:
        print_json(plain(result))
        return
    typer.echo(terminal.short(result["value"]) if out is None else f"written to {out}")
    each = f" for each of {math.prod(result['shape'])} results" if result["shape"] else ""
    typer.echo(f"{name} of {result['n']} {result['dtype']} elements{each}; config: {result['origin']}", err=True)
