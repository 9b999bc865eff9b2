"""Every rung of the ladder, on an NVIDIA GPU at the size of the course."""

import pytest

from tests.device.climbs import Climbs


@pytest.mark.gpu
class TestCudaLadder(Climbs):
    backend = "cuda"
    n = 1 << 24
