"""`redtune worker`: the isolated process, which no help names."""

from __future__ import annotations


def worker() -> None:
    """The isolated process that a search starts."""
    from redtune import worker as process

    raise SystemExit(process.main())
