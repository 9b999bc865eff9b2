"""`redtune devices`: the devices there are."""

from __future__ import annotations

from typing import Annotated

import typer

from redtune.arguments import AsJson, BackendName
from redtune.verbs.shared import print_json


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
