"""`redtune roofline`: the ceilings of a device, and what stands where below them."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from redtune.arguments import AsJson, BackendName, DeviceIndex, parse_names
from redtune.verbs.shared import print_json


def roofline(
    ops: Annotated[Optional[str], typer.Option("--ops", help="Only these: sum,max; all if left out.")] = None,  # noqa: UP045
    dtypes: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--dtypes", help="Of these: float32,int8; else one, and those that are tuned."),
    ] = None,
    backend: BackendName = None,
    device: DeviceIndex = 0,
    csv: Annotated[Optional[str], typer.Option("--csv", help="The operators as CSV.", metavar="FILE")] = None,  # noqa: UP045
    plot: Annotated[Optional[str], typer.Option("--plot", help="A picture of it.", metavar="FILE.png")] = None,  # noqa: UP045
    as_json: AsJson = False,
) -> None:
    """Measure how fast this device reads and computes, and say what bounds each operator and dtype and what the stored
    winners reach of that."""
    from redtune import api_roofline, roofed, roofplot, terminal

    with terminal.progress_board(1, is_quiet=as_json) as (_, progress):
        found = api_roofline.measured_roofline(
            parse_names(ops), parse_names(dtypes), backend=backend, device=device, progress=progress
        )
    print_json(roofed.roofline_json(found)) if as_json else roofed.show_roofline(found)
    if csv is not None:
        roofed.write_csv(found, csv)
    if plot is not None:
        roofplot.write_plot(found, plot)
