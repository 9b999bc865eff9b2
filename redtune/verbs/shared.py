"""What several verbs do in the same way."""

from __future__ import annotations

import json
import sys
from typing import Any

import typer

from redtune.errors import RedtuneError


class Interrupted(RedtuneError):
    """Ctrl-C; what was finished is kept."""


def print_json(document: dict[str, Any]) -> None:
    """The one document of --json."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=True) + "\n")


def asked_options(context: typer.Context) -> set[str]:
    """The options that stand on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}
    return {f"--{name.replace('_', '-')}" for name in given}
