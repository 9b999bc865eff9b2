"""`redtune model`: what each rung of the ladder costs, counted before anything runs."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated, Optional

import typer

from redtune.arguments import AsJson, BackendName, Cold, DeviceIndex, Dtype, Op, parse_n
from redtune.verbs.shared import print_json


def model(
    op: Op = "sum",
    dtype: Dtype = "float32",
    n: Annotated[str, typer.Option("--n", help="How many elements: 2**24, 1e6, 1000.", metavar="N")] = "2**24",
    block: Annotated[int, typer.Option(help="Threads per block, a power of two.")] = 256,
    run: Annotated[bool, typer.Option("--run/--no-run", help="Whether the rungs are measured beside it.")] = True,
    profile: Annotated[bool, typer.Option("--profile", help="Counters of NVIDIA's ncu beside it.")] = False,
    backend: BackendName = None,
    device: DeviceIndex = 0,
    cold: Cold = True,
    seed: Annotated[int, typer.Option(help="Of the inputs.")] = 0,
    plot: Annotated[Optional[str], typer.Option("--plot", help="Counts beside times.", metavar="FILE.png")] = None,  # noqa: UP045
    csv: Annotated[Optional[str], typer.Option("--csv", help="The table as CSV.", metavar="FILE")] = None,  # noqa: UP045
    markdown: Annotated[Optional[str], typer.Option("--markdown", help="A page of it.", metavar="FILE")] = None,  # noqa: UP045
    as_json: AsJson = False,
) -> None:
    """Count what each rung of the ladder costs before anything runs: runs of whole waves, turns that bank conflicts
    take, additions, barriers, words of shared memory; and say where the count explains the clock."""
    from redtune import api_learn, climbed, terminal, weighed

    with terminal.progress_board(1, is_quiet=as_json) as (_, progress):
        found = api_learn.counted(
            op,
            dtype,
            parse_n(n) or 0,
            block=block,
            run=run,
            profile=profile,
            backend=backend,
            device=device,
            cold=cold,
            seed=seed,
            progress=progress,
        )
    print_json(weighed.model_json(found)) if as_json else weighed.show_model(found)
    if csv is not None:
        weighed.write_csv(found, csv)
    if markdown is not None:
        command = shlex.join(["redtune", *sys.argv[1:]])
        where = climbed.environment(found.device, seed, "cold" if cold else "warm") if found.device else ""
        climbed.write_text(weighed.markdown(found, command, where), markdown)
    if plot is not None:
        weighed.write_plot(found, plot)
