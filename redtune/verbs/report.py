"""`redtune report`: a search as one page."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from redtune.arguments import AsJson
from redtune.verbs.shared import print_json


def report(
    study: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(help="Key, name or problem of a search; lists them if left out."),
    ] = None,
    out: Annotated[str, typer.Option("--out", "-o", help="The page to write.", metavar="FILE.html")] = "report.html",
    storage: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Database of studies, where it had one.", metavar="URL"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write what a search left behind as one page of HTML: history, importance, slices, failures, finalists, source."""
    from redtune import api_report
    from redtune.reporting import listed
    from redtune.reporting.searched import all_searched

    if study is None:
        there = all_searched()
        print_json(listed.listed_json(there)) if as_json else listed.show_searched(there)
        return
    path = api_report.report(study, out, storage=storage, force=force)
    print_json({"file": str(path)}) if as_json else typer.echo(f"written to {path}")
