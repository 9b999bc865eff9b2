"""What the templates of every export may read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redtune.exporting.about import About
from redtune.exporting.checks import Checks
from redtune.exporting.variants import Export

Texts = dict[str, str]  # the files of an export by name


def names_of(export: Export, **more: Any) -> Mapping[str, Any]:
    """What every template of an export may read."""
    return {"export": export, "about": About(export), "checks": Checks(export), **more}
