"""Every rung of the ladder, on the OpenCL device."""

from tests.device.climbs import Climbs


class TestOpenclLadder(Climbs):
    backend = "opencl"
    n = 1 << 16
