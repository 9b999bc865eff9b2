"""`redtune probe`: the same bits in every run?"""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from redtune.arguments import (
    Accumulate,
    AsJson,
    Axis,
    BackendName,
    DeviceIndex,
    Dtype,
    Finish,
    Map,
    Number,
    Op,
    OpFile,
    Shape,
    parse_axis,
    parse_n,
    parse_operator,
    parse_shape,
)
from redtune.verbs.shared import print_json


def probe(
    op: Op = "sum",
    dtype: Dtype = "float32",
    n: Number = None,
    shape: Shape = None,
    axis: Axis = None,
    accumulate: Accumulate = None,
    op_file: OpFile = None,
    map_: Map = None,
    finish: Finish = None,
    backend: BackendName = None,
    device: DeviceIndex = 0,
    repeats: Annotated[Optional[int], typer.Option(help="Runs idle, and as many under load.")] = None,  # noqa: UP045
    seed: Annotated[int, typer.Option(help="Of the input.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Reduce one input over and over with each way that blocks meet: are the bits the same in every run?"""
    from redtune import api_judge, terminal
    from redtune.probing import probe_json

    known, custom = parse_operator(op, op_file, map_, finish)
    with terminal.progress_board(1, is_quiet=as_json) as (_, progress):
        found = api_judge.probe(
            known,
            dtype,
            parse_n(n),
            shape=parse_shape(shape),
            axis=parse_axis(axis),
            accumulate=accumulate,
            custom=custom,
            backend=backend,
            device=device,
            repeats=repeats,
            seed=seed,
            progress=progress,
        )
    print_json(probe_json(found)) if as_json else terminal.show_probe(found)
    found.check()
