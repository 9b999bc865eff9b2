"""The value rows of other projects' reports on the OpenCL device.

REDTUNE_BIG=1 runs the rows of up to 2.2 GB in full, with a few configs each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from tests.device.reports import Rows
from tests.device.trying import Kit, cores
from tests.need import need

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None


class HostKit(Kit):
    """numpy's arrays on the OpenCL device."""

    def bfloat16(self, values: Any) -> Any:
        return None if ml_dtypes is None else np.asarray(values).astype(ml_dtypes.bfloat16)

    def foreign(self, x: Any) -> Any:
        return x

    def host(self, results: Sequence[Any]) -> Any:
        every = np.stack(results)
        return every.astype(np.float32) if every.dtype.name == "bfloat16" else every


class TestOpenclRows(Rows):
    @pytest.fixture(scope="class")
    def kit(self) -> Iterator[Kit]:
        need("opencl")
        from redtune.arrays.opencl import host_engine

        room = 2.3e9 if os.environ.get("REDTUNE_BIG") else 0.5e9
        made = HostKit(np, host_engine(), per_row=20, per_kind=2, room=room, compilers=cores())
        yield made
        made.close()
