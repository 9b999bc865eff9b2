"""Run after run the same bits, on the OpenCL device."""

from tests.device.probing import Bits


class TestOpenclBits(Bits):
    backend = "opencl"
    runs = 12
    many = 40
    n = 1 << 20
    doubles = 10**6
    ones = 1 << 22
