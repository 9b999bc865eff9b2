"""`redtune bench`: redtune beside the libraries."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

from redtune.arguments import (
    AsJson,
    Axis,
    BackendName,
    Cold,
    DeviceIndex,
    Dtype,
    Number,
    OpOrNone,
    Shape,
    parse_axis,
    parse_n,
    parse_names,
    parse_seconds,
    parse_shape,
)
from redtune.errors import UsageError
from redtune.verbs.shared import Interrupted, asked_options, print_json


def bench(
    context: typer.Context,
    op: OpOrNone = None,
    dtype: Dtype = "float32",
    n: Number = None,
    shape: Shape = None,
    axis: Axis = None,
    quick: Annotated[bool, typer.Option("--quick", help="About 40 cells; this, if nothing else is asked for.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Every cell, more than 1000.")] = False,
    ops: Annotated[Optional[str], typer.Option("--ops", help="Cells of these: sum,max; of the full matrix.")] = None,  # noqa: UP045
    dtypes: Annotated[Optional[str], typer.Option("--dtypes", help="Cells of these: float32,int8.")] = None,  # noqa: UP045
    layouts: Annotated[Optional[str], typer.Option("--layouts", help="Of these: flat,rows,columns.")] = None,  # noqa: UP045
    time_limit: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--time-limit", help="Begin no cell after: 90s, 5m. The interesting come first.", metavar="TIME"),
    ] = None,
    backend: BackendName = None,
    device: DeviceIndex = 0,
    cold: Cold = True,
    seed: Annotated[int, typer.Option(help="Of the inputs.")] = 0,
    csv: Annotated[Optional[str], typer.Option("--csv", help="Every row of every cell.", metavar="FILE")] = None,  # noqa: UP045
    markdown: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--markdown", help="A report, the losing cells first.", metavar="FILE"),
    ] = None,
    plot: Annotated[Optional[str], typer.Option("--plot", help="A heat map of speed-ups.", metavar="FILE.png")] = None,  # noqa: UP045
    check: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--check", help="Measure a sample of the configs there again: do they hold?", metavar="FOLDER"),
    ] = None,
    sample: Annotated[Optional[int], typer.Option("--sample", help="How many --check measures.")] = None,  # noqa: UP045
    as_json: AsJson = False,
) -> None:
    """Time redtune beside every library that is there and the read ceiling, in turns in one run; nothing is tuned.

    With --op one problem: its size by --n or --shape and --axis. Without, a matrix of operator, dtype, layout and
    size: --quick, --full, or that part of the full one which --ops, --dtypes and --layouts name; Ctrl-C ends it with
    what is there. Everybody's results on the same input are compared; who is absent is named with the reason. With
    --check configs a sample of the configs that come with redtune, beside the default: do they still hold?
    """
    from redtune import api_bench, benched, heat, terminal
    from redtune.benching import INTERRUPTION
    from redtune.types import as_json as plain

    asked = asked_options(context)
    one, many = sorted(asked & ONE_PROBLEM), sorted(asked & MATRIX)
    if op is not None and many:
        raise UsageError(f"{many[0]} is for the matrix: leave out --op, which asks for one problem")
    if check is not None:
        if others := sorted(asked & NOT_CHECK):
            raise UsageError(f"{others[0]} has no meaning beside --check; --ops, --dtypes and --layouts say what of it")
        check_configs(
            check,
            parse_names(ops),
            parse_names(dtypes),
            parse_names(layouts),
            sample=sample,
            backend=backend,
            device=device,
            seed=seed,
            time_limit_s=parse_seconds(time_limit),
            as_json=as_json,
        )
        return
    if sample is not None:
        raise UsageError("--sample says how many configs --check measures: name their folder with it")
    if op is None and one:
        raise UsageError(
            f"{one[0]} is for one problem: name its operator with --op, or restrict the matrix with --ops ..."
        )
    if op is not None:
        comparison = api_bench.side_by_side(
            op,
            dtype,
            parse_n(n),
            shape=parse_shape(shape),
            axis=parse_axis(axis),
            backend=backend,
            device=device,
            cold=cold,
            seed=seed,
        )
        print_json(plain(comparison)) if as_json else terminal.show_comparison(comparison)
        return
    with terminal.progress_board(1, is_quiet=as_json) as (_, progress):
        found = api_bench.benched(
            parse_names(ops),
            parse_names(dtypes),
            parse_names(layouts),
            quick=quick,
            full=full,
            backend=backend,
            device=device,
            cold=cold,
            seed=seed,
            time_limit_s=parse_seconds(time_limit),
            progress=progress,
        )
    writers = ((benched.write_csv, csv), (benched.write_markdown, markdown), (heat.write_plot, plot))
    print_json(benched.benched_json(found)) if as_json else benched.show_benched(found)
    for write, path in writers:
        if path is not None:
            write(found, path)
    if found.stopped == INTERRUPTION:
        raise Interrupted(f"interrupted after {len(found.measured)} cells")
    found.check()


def check_configs(
    folder: str,
    ops: tuple[str, ...],
    dtypes: tuple[str, ...],
    layouts: tuple[str, ...],
    *,
    as_json: bool,
    **options: Any,
) -> None:
    """Shipped configs measured again."""
    from redtune import api_bench, checked, terminal

    with terminal.progress_board(1, is_quiet=as_json) as (_, progress):
        found = api_bench.check_configs(folder, ops, dtypes, layouts, progress=progress, **options)
    print_json(checked.checked_json(found)) if as_json else checked.show_checked(found)
    found.check()


ONE_PROBLEM = {"--dtype", "--n", "--shape", "--axis"}


NOT_CHECK = {"--op", "--quick", "--full", "--csv", "--markdown", "--plot", "--cold", *ONE_PROBLEM}


MATRIX = {"--quick", "--full", "--ops", "--dtypes", "--layouts", "--time-limit", "--csv", "--markdown", "--plot"}
