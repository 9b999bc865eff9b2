"""What every file that a command writes has in common: one sentence where it cannot be, and the library of pictures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redtune.errors import BackendMissing, UsageError


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Within it a file that cannot be written is a UsageError."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def figure_type() -> Any:
    """Matplotlib's Figure. Raises BackendMissing where it is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BackendMissing(f"a plot needs matplotlib: pip install 'redtune[plot]' ({error})") from error
    return Figure
