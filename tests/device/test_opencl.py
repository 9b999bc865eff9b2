"""The contract on the OpenCL device, the embedded default."""

from tests.device.contract import Contract
from tests.device.flags import EXTREMES, SPLIT, Broken, Flags, Many, Sums


class TestOpencl(Contract):
    backend = "opencl"
    count = 102
    seed = 15  # one in which so few leave out no strategy


class TestFlags(Flags):
    backend = "opencl"
    flags = 88


class TestBroken(Broken):
    backend = "opencl"


class TestSums(Sums):
    backend = "opencl"
    many = (
        Many("flat", (1, 2**25, 1), EXTREMES, 0),
        Many("flat", (1, 2**22 + 5, 1), (), 16),
        Many("rows", (8, 2**20 + 3, 1), SPLIT, 2),
        Many("columns", (1, 2**20 + 3, 6), SPLIT, 2),
    )
