"""How fast a device could reduce, and what stands where below that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redtune.ceilings import Roofline
    from redtune.outcome import Progress


def measured_roofline(
    ops: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    *,
    backend: str | None = None,
    device: int = 0,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Roofline:
    """What `roofline` found, as a record."""
    from redtune.ceilings import asked_problems, measure_roofline
    from redtune.lab import find_device

    asked_problems(ops, dtypes)  # a wrong name before a device is looked for
    return measure_roofline(find_device(backend, device), ops, dtypes, progress)


def roofline(ops: Sequence[str] = (), dtypes: Sequence[str] = (), **options: Any) -> Any:
    """Where each operator and dtype stands below the measured ceilings of a device: a pandas DataFrame, one row each.

    `operations` and `bytes` are of one element and `intensity` their quotient, `ceiling_gops` is in 10^9 operations a
    second and `attainable_gbps` in 10^9 bytes a second, `fraction` is what the stored winner (`winner_gbps`) reaches of
    that. `.attrs["ceilings"]` has the read, copy and arithmetic ceilings with their ridges, `.attrs["launch"]` what a
    launch costs. Takes `backend`, `device` and `progress`; raises UsageError and BackendMissing.
    """
    from redtune.roofed import roofline_frame

    return roofline_frame(measured_roofline(ops, dtypes, **options))
