"""`redtune export`: a kernel for a project of one's own."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from redtune.arguments import (
    Accumulate,
    AsJson,
    Axis,
    DeviceIndex,
    Dtype,
    Finish,
    Fix,
    Map,
    Op,
    OpFile,
    parse_axis,
    parse_fixes,
    parse_n,
    parse_names,
    parse_operator,
    parse_shape,
)
from redtune.verbs.shared import print_json


def export(
    op: Op,
    format: Annotated[str, typer.Option("--format", help="cuda, hip, opencl, cupy or torch.")],
    out: Annotated[str, typer.Option("--out", help="An empty folder, or one to be made.", metavar="DIR")],
    dtype: Dtype = "float32",
    n: Annotated[Optional[str], typer.Option("--n", help="Sizes: 2**20,2**28; all that are tuned if left out.")] = None,  # noqa: UP045
    shape: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--shape", help="Shape of a C array: 4096x4096; may be repeated.", metavar="AxBxC"),
    ] = None,
    axis: Axis = None,
    accumulate: Accumulate = None,
    determinism: Annotated[str, typer.Option(help="any, or run-to-run: the winner of such a search.")] = "any",
    op_file: OpFile = None,
    map_: Map = None,
    finish: Finish = None,
    arch: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--arch", help="For sm_80,sm_90 or gfx942, with no device here.", metavar="ARCHS"),
    ] = None,
    device: DeviceIndex = 0,
    cold: Annotated[
        bool, typer.Option("--cold/--warm", help="Which winner: of inputs out of the cache, or in it.")
    ] = True,
    fix: Fix = None,
    default: Annotated[bool, typer.Option("--default", help="The default config where nothing is tuned.")] = False,
    name: Annotated[Optional[str], typer.Option("--name", help="What the function is called.")] = None,  # noqa: UP045
    binaries: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--with", help="Compiled kernels beside the source: ptx,cubin or hsaco.", metavar="KINDS"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files of a folder that is not empty.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the tuned kernel as a small project that needs no redtune: launcher, self-test, provenance."""
    from redtune.exporting.export import export as export_winner
    from redtune.exporting.shown import export_json, show_export

    known, custom = parse_operator(op, op_file, map_, finish)
    found = export_winner(
        known,
        dtype,
        [parse_n(one) or 0 for one in n.split(",")] if n is not None else None,
        shape=[parse_shape(one) or () for one in shape] if shape else None,
        axis=parse_axis(axis),
        accumulate=accumulate,
        determinism=determinism,
        custom=custom,
        format=format,
        out=out,
        arch=parse_names(arch) if arch is not None else None,
        device=device,
        cold=cold,
        fix=parse_fixes(fix),
        default=default,
        name=name,
        binaries=parse_names(binaries),
        force=force,
    )
    print_json(export_json(found)) if as_json else show_export(found)
