"""Run after run the same bits, on an NVIDIA GPU: as often and as large as the reports of other projects ask."""

import pytest

from tests.device.probing import Bits


@pytest.mark.gpu
class TestCudaBits(Bits):
    backend = "cuda"
    runs = 200
    many = 10_000
    n = 1 << 24
    doubles = 10**7
    ones = 1 << 26
