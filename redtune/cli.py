"""The command line: parse, one call of the API, print, exit code.

Exit codes: 0 done, 1 the work failed, 2 wrong usage, 130 interrupted (143 where SIGTERM did it). Errors are one or
two lines on stderr.
"""

from __future__ import annotations

import json
import math
import sys
import traceback
import warnings
from typing import Annotated, Any, Optional

import typer

from redtune.arguments import (
    Accumulate,
    AsJson,
    Axis,
    BackendName,
    DeviceIndex,
    Dtype,
    Finish,
    Fix,
    Map,
    Number,
    Op,
    OpFile,
    OpOrNone,
    Out,
    Shape,
    parse_axis,
    parse_fixes,
    parse_n,
    parse_names,
    parse_operator,
    parse_seconds,
    parse_shape,
    size_of,
)
from redtune.errors import RedtuneError, UsageError, printable

app = typer.Typer(
    help="Write, prove and tune reduction kernels for the device in front of you.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def print_json(document: dict[str, Any]) -> None:
    """The one document of --json."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=True) + "\n")


@app.command()
def devices(
    backend: BackendName = None,
    measure: Annotated[bool, typer.Option("--measure", help="Measure the read and copy ceilings.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the devices, and say for each backend without one why."""
    from redtune import api, terminal
    from redtune.errors import BackendMissing
    from redtune.types import as_json as plain

    found, absent = api.devices(backend)
    if not found:
        raise BackendMissing("no device was found: " + "; ".join(absent.values()))
    figures = [api.measure_device(device) if measure else {} for device in found]
    if as_json:
        rows = [plain(device) | extra for device, extra in zip(found, figures, strict=True)]
        print_json({"devices": rows, "absent": absent})
    else:
        terminal.show_devices(found, figures, absent)


@app.command()
def search(
    op: OpOrNone = None,
    ops: Annotated[Optional[str], typer.Option("--ops", help="Several, one search each: sum,max,argmax.")] = None,  # noqa: UP045
    manifest: Annotated[Optional[str], typer.Option(help="YAML list of problems to tune.", metavar="FILE")] = None,  # noqa: UP045
    dtype: Dtype = "float32",
    n: Number = None,
    shape: Shape = None,
    axis: Axis = None,
    like: Annotated[Optional[str], typer.Option(help="Take dtype and shape from a .npy file.", metavar="FILE")] = None,  # noqa: UP045
    accumulate: Accumulate = None,
    op_file: OpFile = None,
    map_: Map = None,
    finish: Finish = None,
    backend: BackendName = None,
    device: DeviceIndex = 0,
    trials: Annotated[Optional[int], typer.Option(help="Configs the study holds in the end.")] = None,  # noqa: UP045
    time_limit: Annotated[Optional[str], typer.Option(help="Stop measuring after: 45s, 2m.", metavar="TIME")] = None,  # noqa: UP045
    sampler: Annotated[str, typer.Option(help="tpe, random, gp, cmaes or exhaustive.")] = "tpe",
    determinism: Annotated[str, typer.Option(help="any, or run-to-run: the same bits on every run.")] = "any",
    cold: Annotated[bool, typer.Option("--cold/--warm", help="Whether inputs rotate past the last cache.")] = True,
    fix: Fix = None,
    seed: Annotated[int, typer.Option(help="Of inputs and sampler.")] = 0,
    storage: Annotated[Optional[str], typer.Option(help="Database of studies.", metavar="URL")] = None,  # noqa: UP045
    study: Annotated[Optional[str], typer.Option(help="Name of the study.")] = None,  # noqa: UP045
    as_json: AsJson = False,
) -> None:
    """Tune one reduction on this device and keep the winner, or one after the other: --ops, --manifest."""
    from redtune import api, terminal
    from redtune import manifest as manifests

    if sum(given is not None for given in (op, ops, manifest)) != 1:
        raise UsageError("search wants one of --op, --ops and --manifest")
    options: dict[str, Any] = {
        "trials": trials,
        "time_limit_s": parse_seconds(time_limit),
        "sampler": sampler,
        "seed": seed,
        "fix": parse_fixes(fix),
        "cold": cold,
        "storage": storage,
        "study": study,
    }
    if manifest is not None:
        wanted = manifests.read_manifest(manifest)
    else:
        dtype, count, lengths = size_of(dtype, n, shape, axis, like)
        wanted = []
        for name in [op] if op is not None else [part.strip() for part in str(ops).split(",")]:
            known, custom = parse_operator(str(name), op_file, map_, finish)
            problem = api.wanted_problem(
                known, dtype, count, lengths, parse_axis(axis), determinism, accumulate, custom
            )
            wanted.append((problem, count is not None or lengths is not None))
    try:
        with terminal.progress_board(len(wanted), is_quiet=as_json) as (each, progress):
            done = api.search_many(wanted, backend=backend, device=device, each=each, progress=progress, **options)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; every finished trial is kept, and the same command continues") from None
    if op is not None:
        (report,) = done
        if isinstance(report, RedtuneError):
            raise report
        print_json(terminal.report_json(report)) if as_json else terminal.show_report(report)
        return
    problems = [problem for problem, _ in wanted]
    if as_json:
        print_json(terminal.reports_json(problems, done))
    else:
        terminal.show_reports(problems, done)
    failed = [error for error in done if isinstance(error, RedtuneError)]
    if failed:
        raise RedtuneError(f"{len(failed)} of {len(done)} searches failed; the first: {failed[0]}")


@app.command()
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


@app.command()
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


@app.command()
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
    cold: Annotated[bool, typer.Option("--cold/--warm", help="Whether inputs rotate past the last cache.")] = True,
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
    from redtune import api, benched, heat, terminal
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
        comparison = api.side_by_side(
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
        found = api.benched(
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
    from redtune import api, checked, terminal

    with terminal.progress_board(1, is_quiet=as_json) as (_, progress):
        found = api.check_configs(folder, ops, dtypes, layouts, progress=progress, **options)
    print_json(checked.checked_json(found)) if as_json else checked.show_checked(found)
    found.check()


ONE_PROBLEM = {"--dtype", "--n", "--shape", "--axis"}
NOT_CHECK = {"--op", "--quick", "--full", "--csv", "--markdown", "--plot", "--cold", *ONE_PROBLEM}
MATRIX = {"--quick", "--full", "--ops", "--dtypes", "--layouts", "--time-limit", "--csv", "--markdown", "--plot"}


def asked_options(context: typer.Context) -> set[str]:
    """The options that stand on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}
    return {f"--{name.replace('_', '-')}" for name in given}


@app.command()
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
    from redtune import api, terminal
    from redtune.probing import probe_json

    known, custom = parse_operator(op, op_file, map_, finish)
    with terminal.progress_board(1, is_quiet=as_json) as (_, progress):
        found = api.probe(
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


@app.command()
def compare(
    context: typer.Context,
    knobs: Annotated[list[str], typer.Argument(help="One knob or two: wave, exchange, combine, vector, ...")],
    op: Op,
    dtype: Dtype = "float32",
    n: Number = None,
    shape: Shape = None,
    axis: Axis = None,
    like: Annotated[Optional[str], typer.Option(help="Take dtype and shape from a .npy file.", metavar="FILE")] = None,  # noqa: UP045
    accumulate: Accumulate = None,
    determinism: Annotated[str, typer.Option(help="any, or run-to-run: the same bits on every run.")] = "any",
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
    cold: Annotated[bool, typer.Option("--cold/--warm", help="Whether inputs rotate past the last cache.")] = True,
    fix: Fix = None,
    seed: Annotated[int, typer.Option(help="Of inputs and sampler.")] = 0,
    aa: Annotated[bool, typer.Option("--aa", help="Time the best config against itself: only noise shows.")] = False,
    plot: Annotated[Optional[str], typer.Option("--plot", help="A picture of it.", metavar="FILE.png")] = None,  # noqa: UP045
    csv: Annotated[Optional[str], typer.Option("--csv", help="The table as CSV.", metavar="FILE")] = None,  # noqa: UP045
    as_json: AsJson = False,
) -> None:
    """Which choice of a knob is right on this device, and by how much, beyond noise; or with --target, what limits each
    choice on AMD GPUs that are not here."""
    from redtune import api, compared, limited, terminal

    dtype, count, lengths = size_of(dtype, n, shape, axis, like)
    known, custom = parse_operator(op, op_file, map_, finish)
    if target is not None:
        check_nothing_runs(context)
        with terminal.progress_board(1, is_quiet=as_json) as (_, progress):
            limits = api.limited(
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
        found = api.compared(
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


@app.command()
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


@app.command()
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
    from redtune import api, matrix, terminal

    with terminal.progress_board(1, is_quiet=as_json) as (_, progress):
        found = api.verify(
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


@app.command(hidden=True)
def worker() -> None:
    """The isolated process that a search starts."""
    from redtune import worker as process

    raise SystemExit(process.main())


INTERRUPTED = 130


class Interrupted(RedtuneError):
    """Ctrl-C; what was finished is kept."""


def _say(text: str) -> None:
    """A message on stderr; what it quotes cannot steer a terminal."""
    print("redtune: " + "\n".join(map(printable, text.split("\n"))), file=sys.stderr)


def main(arguments: list[str]) -> int:
    """The command line. Gives the exit code; prints errors in one or two lines, with a traceback only on --debug."""
    is_debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    warnings.showwarning = lambda message, *_, **__: _say(f"warning: {message}")
    try:
        code = app(args=arguments or ["--help"], prog_name="redtune", standalone_mode=False)
    except RedtuneError as error:
        if is_debug:
            traceback.print_exc()
        _say(str(error))
        return INTERRUPTED if isinstance(error, Interrupted) else 2 if isinstance(error, UsageError) else 1
    except typer.Abort:
        _say("interrupted")
        return INTERRUPTED
    except Exception as error:
        # Typer's own errors of usage carry their sentence; its versions differ in where the class lives.
        if not hasattr(error, "format_message"):
            raise
        _say(error.format_message())
        return 2
    return code if isinstance(code, int) else 0
