"""`redtune compare`: which choice of a knob is right."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from redtune.arguments import (
    Accumulate,
    AsJson,
    Axis,
    BackendName,
    Cold,
    Determinism,
    DeviceIndex,
    Dtype,
    Finish,
    Fix,
    Like,
    Map,
    Number,
    Op,
    OpFile,
    Shape,
    parse_axis,
    parse_fixes,
    parse_names,
    parse_operator,
    parse_seconds,
    size_of,
)
from redtune.errors import UsageError
from redtune.verbs.shared import print_json


def compare(
    context: typer.Context,
    knobs: Annotated[list[str], typer.Argument(help="One knob or two: wave, exchange, combine, vector, ...")],
    op: Op,
    dtype: Dtype = "float32",
    n: Number = None,
    shape: Shape = None,
    axis: Axis = None,
    like: Like = None,
    accumulate: Accumulate = None,
    determinism: Determinism = "any",
    op_file: OpFile = None,
    map_: Map = None,
    finish: Finish = None,
    target: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--target", help="gfx942,gfx1100: what limits each choice there; nothing runs.", metavar="ARCHS"),
    ] = None,
    backend: BackendName = None,
    device: DeviceIndex = 0,
    trials: Annotated[Optional[int], typer.Option(help="Configs measured under each choice.")] = None,  # noqa: UP045
    time_limit: Annotated[Optional[str], typer.Option(help="For each choice: 45s, 2m.", metavar="TIME")] = None,  # noqa: UP045
    cold: Cold = True,
    fix: Fix = None,
    seed: Annotated[int, typer.Option(help="Of inputs and sampler.")] = 0,
    aa: Annotated[bool, typer.Option("--aa", help="Time the best config against itself: only noise shows.")] = False,
    plot: Annotated[Optional[str], typer.Option("--plot", help="A picture of it.", metavar="FILE.png")] = None,  # noqa: UP045
    csv: Annotated[Optional[str], typer.Option("--csv", help="The table as CSV.", metavar="FILE")] = None,  # noqa: UP045
    as_json: AsJson = False,
) -> None:
    """Which choice of a knob is right on this device, and by how much, beyond noise; or with --target, what limits each
    choice on AMD GPUs that are not here."""
    from redtune import api_compare, compared, limited, terminal

    dtype, count, lengths = size_of(dtype, n, shape, axis, like)
    known, custom = parse_operator(op, op_file, map_, finish)
    if target is not None:
        check_nothing_runs(context)
        with terminal.progress_board(1, is_quiet=as_json) as (_, progress):
            limits = api_compare.limited(
                knobs,
                known,
                dtype,
                count,
                target=parse_names(target),
                shape=lengths,
                axis=parse_axis(axis),
                accumulate=accumulate,
                determinism=determinism,
                custom=custom,
                backend=backend,
                fix=parse_fixes(fix),
                progress=progress,
            )
        if csv is not None:
            limited.write_csv(limits, csv)
        print_json(limited.limits_json(limits)) if as_json else limited.show_limits(limits)
        limits.check()
        return
    with terminal.progress_board(1, is_quiet=as_json) as (_, progress):
        found = api_compare.compared(
            knobs,
            known,
            dtype,
            count,
            shape=lengths,
            axis=parse_axis(axis),
            accumulate=accumulate,
            determinism=determinism,
            custom=custom,
            backend=backend,
            device=device,
            trials=trials,
            time_limit_s=parse_seconds(time_limit),
            cold=cold,
            fix=parse_fixes(fix),
            seed=seed,
            aa=aa,
            progress=progress,
        )
    if csv is not None:
        compared.write_csv(found, csv)
    if plot is not None:
        compared.write_plot(found, plot)
    print_json(compared.compared_json(found)) if as_json else compared.show_compared(found)
    found.check()


# The options of a comparison that runs on a device.
RUNS = ("device", "trials", "time_limit", "cold", "seed", "aa", "plot")


def check_nothing_runs(context: typer.Context) -> None:
    """Raises UsageError for an option that has no meaning where nothing runs."""
    for name in RUNS:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = "--cold and --warm are" if name == "cold" else f"--{name.replace('_', '-')} is"
            raise UsageError(f"{option} for choices that run here: with --target nothing runs and nothing is timed")
