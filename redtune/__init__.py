"""redtune: reduction kernels, written, proven and tuned for the device in front of you.

Every operator is a function of its own: redtune.max(x, axis=0) is redtune.reduce(x, "max", axis=0).

Names load when they are first used: importing redtune loads no vendor package and reads no environment.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redtune.api import devices, reduce_file, search, search_many, source, tune, tuned
    from redtune.api_bench import bench
    from redtune.api_compare import compare
    from redtune.api_judge import probe, verify
    from redtune.api_learn import ladder, model
    from redtune.api_report import report
    from redtune.api_roofline import roofline
    from redtune.config import Config
    from redtune.errors import BackendMissing, CompileError, RedtuneError, UsageError
    from redtune.exporting.export import Exported, export
    from redtune.outcome import Report
    from redtune.reducing import reduce
    from redtune.types import Best, Device, Problem, Trial

__version__ = "0.1.0"

_HOMES = {
    "redtune.api": ("devices", "reduce_file", "search", "search_many", "source", "tune", "tuned"),
    "redtune.api_bench": ("bench",),
    "redtune.api_compare": ("compare",),
    "redtune.api_judge": ("probe", "verify"),
    "redtune.api_learn": ("ladder", "model"),
    "redtune.api_report": ("report",),
    "redtune.api_roofline": ("roofline",),
    "redtune.config": ("Config",),
    "redtune.errors": ("BackendMissing", "CompileError", "RedtuneError", "UsageError"),
    "redtune.exporting.export": ("Exported", "export"),
    "redtune.outcome": ("Report",),
    "redtune.reducing": ("reduce",),
    "redtune.types": ("Best", "Device", "Problem", "Trial"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BackendMissing",
    "Best",
    "CompileError",
    "Config",
    "Device",
    "Exported",
    "Problem",
    "RedtuneError",
    "Report",
    "Trial",
    "UsageError",
    "bench",
    "compare",
    "devices",
    "export",
    "ladder",
    "model",
    "probe",
    "reduce",
    "reduce_file",
    "report",
    "roofline",
    "search",
    "search_many",
    "source",
    "tune",
    "tuned",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        # Kept, so that the next use does not come here again.
        return globals().setdefault(name, getattr(importlib.import_module(_HOME[name]), name))
    # `from redtune import store` asks here before it looks for a module.
    if not name.startswith("_") and importlib.util.find_spec(f"redtune.{name}") is None:
        from redtune.operators import OPERATORS

        if name in OPERATORS:
            from redtune.reducing import named

            return globals().setdefault(name, named(name))
    raise AttributeError(f"module 'redtune' has no attribute {name!r}")


def __dir__() -> list[str]:
    from redtune.operators import OPERATORS

    return sorted([*__all__, *OPERATORS])
