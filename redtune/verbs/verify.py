"""`redtune verify`: a sample of all that could be chosen, judged."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from redtune.arguments import AsJson, BackendName, DeviceIndex, parse_names
from redtune.verbs.shared import print_json


def verify(
    op: Annotated[Optional[str], typer.Option("--op", help="Only these: sum,max,argmax.")] = None,  # noqa: UP045
    dtype: Annotated[Optional[str], typer.Option(help="Only these: float32,int8.")] = None,  # noqa: UP045
    layout: Annotated[Optional[str], typer.Option(help="Only these: flat,rows,columns.")] = None,  # noqa: UP045
    configs: Annotated[int, typer.Option(help="How many valid configs, over every strategy.")] = 60,
    sanitize: Annotated[bool, typer.Option("--sanitize", help="Run them under every checker there is.")] = False,
    backend: BackendName = None,
    device: DeviceIndex = 0,
    seed: Annotated[int, typer.Option(help="Of sample and inputs.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Judge a sample of all that could be chosen on this device, or watch it under race and memory checkers."""
    from redtune import api_judge, matrix, terminal

    with terminal.progress_board(1, is_quiet=as_json) as (_, progress):
        found = api_judge.verify(
            parse_names(op),
            parse_names(dtype),
            parse_names(layout),
            configs=configs,
            sanitize=sanitize,
            backend=backend,
            device=device,
            seed=seed,
            progress=progress,
        )
    print_json(matrix.verified_json(found)) if as_json else matrix.show_verified(found)
    found.check()
