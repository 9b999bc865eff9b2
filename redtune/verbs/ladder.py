"""`redtune ladder`: the classic rungs of a reduction, from a divergent tree to the tuned kernel."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated, Optional

import typer

from redtune.arguments import (
    AsJson,
    BackendName,
    Cold,
    DeviceIndex,
    Dtype,
    Finish,
    Map,
    Op,
    OpFile,
    parse_n,
    parse_operator,
)
from redtune.errors import UsageError
from redtune.verbs.shared import asked_options, print_json

NOT_ALL = {"--op", "--op-file", "--map-", "--finish", "--tune", "--plot"}
RUNS = {"--all-ops", "--tune", "--csv", "--markdown", "--plot", "--json", "--seed"}


def ladder(
    context: typer.Context,
    op: Op = "sum",
    dtype: Dtype = "float32",
    n: Annotated[str, typer.Option("--n", help="How many elements: 2**24, 1e6, 1000.", metavar="N")] = "2**24",
    block: Annotated[
        int, typer.Option(help="Threads per block, a power of two; of all rungs but the tuned one.")
    ] = 256,
    explain: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            "--explain", help="Print the emitted kernel of this rung with its steps; nothing runs.", metavar="RUNG"
        ),
    ] = None,
    all_ops: Annotated[bool, typer.Option("--all-ops", help="The ladder of every operator, a line for each.")] = False,
    tune: Annotated[bool, typer.Option("--tune", help="Search first, so that there is a tuned rung.")] = False,
    op_file: OpFile = None,
    map_: Map = None,
    finish: Finish = None,
    backend: BackendName = None,
    device: DeviceIndex = 0,
    arch: Annotated[Optional[str], typer.Option(help="With --explain: for sm_90, gfx942, ... not here.")] = None,  # noqa: UP045
    cold: Cold = True,
    seed: Annotated[int, typer.Option(help="Of the inputs.")] = 0,
    plot: Annotated[Optional[str], typer.Option("--plot", help="A picture of it.", metavar="FILE.png")] = None,  # noqa: UP045
    csv: Annotated[Optional[str], typer.Option("--csv", help="The table as CSV.", metavar="FILE")] = None,  # noqa: UP045
    markdown: Annotated[Optional[str], typer.Option("--markdown", help="A page of it.", metavar="FILE")] = None,  # noqa: UP045
    as_json: AsJson = False,
) -> None:
    """Climb from the divergent tree of 2007 to the tuned kernel: every classic way to reduce down to one
    value, judged, timed together beside the read ceiling, with the problem that each still has."""
    asked = asked_options(context)
    count = parse_n(n) or 0
    if explain is not None:
        if others := sorted(asked & RUNS):
            raise UsageError(f"{others[0]} is for rungs that run: --explain prints a kernel")
        print_explained(explain, op, op_file, map_, finish, dtype, count, block, backend, device, arch, cold)
        return
    if arch is not None:
        raise UsageError("--arch is for --explain, which needs no device; what runs here has the device's")
    from redtune import api_learn, climbed, terminal

    command = shlex.join(["redtune", *sys.argv[1:]])
    if all_ops:
        if others := sorted(asked & NOT_ALL):
            raise UsageError(f"{others[0].removesuffix('-')} is for one operator, and --all-ops takes all")
        with terminal.progress_board(1, is_quiet=as_json) as (_, progress):
            every, absent = api_learn.climbed_all(
                dtype, count, block=block, backend=backend, device=device, cold=cold, seed=seed, progress=progress
            )
        if as_json:
            print_json({"ladders": [climbed.ladder_json(one) for one in every], "absent": absent})
        else:
            climbed.show_all(every, absent)
        page = climbed.markdown_all(every, absent, command)
    else:
        known, custom = parse_operator(op, op_file, map_, finish)
        with terminal.progress_board(1, is_quiet=as_json) as (_, progress):
            found = api_learn.climbed(
                known,
                dtype,
                count,
                block=block,
                custom=custom,
                tune=tune,
                backend=backend,
                device=device,
                cold=cold,
                seed=seed,
                progress=progress,
            )
        every, page = [found], climbed.markdown(found, command)
        print_json(climbed.ladder_json(found)) if as_json else climbed.show_ladder(found)
        if plot is not None:
            climbed.write_plot(found, plot)
    if csv is not None:
        climbed.write_csv(every, csv)
    if markdown is not None:
        climbed.write_text(page, markdown)
    for one in every:
        one.check()


def print_explained(
    number: int,
    op: str,
    op_file: str | None,
    map_: str | None,
    finish: str | None,
    dtype: str,
    n: int,
    block: int,
    backend: str | None,
    device: int,
    arch: str | None,
    cold: bool,
) -> None:
    """The kernel of one rung."""
    from redtune import api_learn

    known, custom = parse_operator(op, op_file, map_, finish)
    options = {"block": block, "custom": custom, "backend": backend, "device": device, "arch": arch, "cold": cold}
    sys.stdout.write(api_learn.explained(number, known, dtype, n, **options))  # type: ignore[arg-type]
