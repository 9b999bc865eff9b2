"""The command line: the verbs in the order of the help, and what becomes of errors.

Exit codes: 0 done, 1 the work failed, 2 wrong usage, 130 interrupted (143 where SIGTERM did it). Errors are one or
two lines on stderr.
"""

from __future__ import annotations

import sys
import traceback
import warnings

import typer

from redtune.errors import RedtuneError, UsageError, printable
from redtune.verbs.bench import bench
from redtune.verbs.compare import compare
from redtune.verbs.devices import devices
from redtune.verbs.export import export
from redtune.verbs.ladder import ladder
from redtune.verbs.model import model
from redtune.verbs.probe import probe
from redtune.verbs.report import report
from redtune.verbs.roofline import roofline
from redtune.verbs.run import run
from redtune.verbs.search import search
from redtune.verbs.shared import Interrupted
from redtune.verbs.show import show
from redtune.verbs.verify import verify
from redtune.verbs.worker import worker

app = typer.Typer(
    help="Write, prove and tune reduction kernels for the device in front of you.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for verb in (devices, search, show, run, bench, probe, compare, ladder, model, roofline, report, export, verify):
    app.command()(verb)
app.command(hidden=True)(worker)

INTERRUPTED = 130


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
