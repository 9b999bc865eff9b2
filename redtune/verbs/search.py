"""`redtune search`: tuning."""

from __future__ import annotations

from typing import Annotated, Any, Optional

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
    OpFile,
    OpOrNone,
    Shape,
    parse_axis,
    parse_fixes,
    parse_operator,
    parse_seconds,
    size_of,
)
from redtune.errors import RedtuneError, UsageError
from redtune.verbs.shared import Interrupted, print_json


def search(
    op: OpOrNone = None,
    ops: Annotated[Optional[str], typer.Option("--ops", help="Several, one search each: sum,max,argmax.")] = None,  # noqa: UP045
    manifest: Annotated[Optional[str], typer.Option(help="YAML list of problems to tune.", metavar="FILE")] = None,  # noqa: UP045
    dtype: Dtype = "float32",
    n: Number = None,
    shape: Shape = None,
    axis: Axis = None,
    like: Like = None,
    accumulate: Accumulate = None,
    op_file: OpFile = None,
    map_: Map = None,
    finish: Finish = None,
    backend: BackendName = None,
    device: DeviceIndex = 0,
    trials: Annotated[Optional[int], typer.Option(help="Configs the study holds in the end.")] = None,  # noqa: UP045
    time_limit: Annotated[Optional[str], typer.Option(help="Stop measuring after: 45s, 2m.", metavar="TIME")] = None,  # noqa: UP045
    sampler: Annotated[str, typer.Option(help="tpe, random, gp, cmaes or exhaustive.")] = "tpe",
    determinism: Determinism = "any",
    cold: Cold = True,
    fix: Fix = None,
    seed: Annotated[int, typer.Option(help="Of inputs and sampler.")] = 0,
    storage: Annotated[Optional[str], typer.Option(help="Database of studies.", metavar="URL")] = None,  # noqa: UP045
    study: Annotated[Optional[str], typer.Option(help="Name of the study.")] = None,  # noqa: UP045
    as_json: AsJson = False,
) -> None:
    """Tune one reduction on this device and keep the winner, or one after the other: --ops, --manifest."""
    from redtune import api, terminal
    from redtune import manifest as manifests
    from redtune.wanted import wanted_problem

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
            problem = wanted_problem(known, dtype, count, lengths, parse_axis(axis), determinism, accumulate, custom)
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
