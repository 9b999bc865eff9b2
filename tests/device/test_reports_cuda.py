"""The value rows of other projects' reports on an NVIDIA GPU, the large ones included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from tests.device.reports import Rows
from tests.device.trying import Kit, cores
from tests.need import need

ROOM = 2e10  # bytes of an array


class GpuKit(Kit):
    """CuPy's arrays; PyTorch's where CuPy has no such type."""

    def bfloat16(self, values: Any) -> Any:
        try:
            import torch
        except ImportError:
            return None
        return torch.as_tensor(np.asarray(values, np.float32), device="cuda").to(torch.bfloat16)

    def foreign(self, x: Any) -> Any:
        return self.xp.asarray(x)

    def host(self, results: Sequence[Any]) -> Any:
        if hasattr(results[0], "cpu"):
            import torch

            return torch.stack(list(results)).to(torch.float32).cpu().numpy()
        return self.xp.asnumpy(self.xp.stack(results))


@pytest.mark.gpu
class TestCudaRows(Rows):
    @pytest.fixture(scope="class")
    def kit(self) -> Iterator[Kit]:
        need("cuda")
        import cupy

        from redtune.arrays.cuda import cuda_engine

        made = GpuKit(cupy, cuda_engine(0), per_row=24, per_kind=24, room=ROOM, compilers=cores())
        yield made
        made.close()
