"""redtune: reduction kernels, written, proven and tuned for the device in front of you.

Names load when they are first used: importing redtune loads no vendor package and reads no environment.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redtune.api import devices, reduce_file, search, source, tuned
    from redtune.config import Config
    from redtune.errors import BackendMissing, CompileError, RedtuneError, UsageError
    from redtune.outcome import Report
    from redtune.types import Best, Device, Problem, Trial

__version__ = "0.1.0"

_HOMES = {
    "redtune.api": ("devices", "reduce_file", "search", "source", "tuned"),
    "redtune.config": ("Config",),
    "redtune.errors": ("BackendMissing", "CompileError", "RedtuneError", "UsageError"),
    "redtune.outcome": ("Report",),
    "redtune.types": ("Best", "Device", "Problem", "Trial"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BackendMissing",
    "Best",
    "CompileError",
    "Config",
    "Device",
    "Problem",
    "RedtuneError",
    "Report",
    "Trial",
    "UsageError",
    "devices",
    "reduce_file",
    "search",
    "source",
    "tuned",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'redtune' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
