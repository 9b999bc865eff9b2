"""Cache folders for tests that start from nothing, but need not compile what another test has compiled."""

from __future__ import annotations

import os
from pathlib import Path

SHARED = "REDTUNE_TEST_BINARIES"  # the folder of compiled kernels of all tests of a run


def new_cache(folder: Path) -> Path:
    """A new cache folder at that place. Nothing is tuned in it; its compiled kernels are those of all tests."""
    folder.mkdir(mode=0o700)
    (folder / "binaries").symlink_to(os.environ[SHARED])
    return folder
