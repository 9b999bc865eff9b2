"""What a person and a program see of an export."""

from __future__ import annotations

from typing import Any

from redtune.exporting.about import About
from redtune.exporting.export import Exported
from redtune.terminal import console, from_home
from redtune.types import as_json


def show_export(exported: Exported) -> None:
    """What an export holds, and where it is."""
    out, whole = console(), exported.export
    about = About(whole)
    folder = exported.files[0].parent
    out.print(f"{whole.name}  {exported.format}  {from_home(folder)}", highlight=False, soft_wrap=True)
    for variant in whole.variants:
        out.print(f"  {variant.space}  {about.tuned_for(variant)}", highlight=False)
        for line in about.measured(variant):
            out.print(f"      {line}", highlight=False, soft_wrap=True)
    out.print("Files: " + ", ".join(path.name for path in exported.files), highlight=False, soft_wrap=True)
    out.print(f"{folder.name}/README.md says how to build, check and call it.", highlight=False)


def export_json(exported: Exported) -> dict[str, Any]:
    """The document of --json."""
    whole = exported.export
    return {
        "name": whole.name,
        "format": exported.format,
        "command": whole.command,
        "files": [str(path) for path in exported.files],
        "variants": [
            {
                "name": v.space,
                "arch": v.device.arch,
                "problem": as_json(v.problem),
                "config": as_json(v.config),
                "best": as_json(v.best) if v.best is not None else None,
            }
            for v in whole.variants
        ],
    }
