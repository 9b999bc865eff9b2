"""The contract on the OpenCL device, the embedded default."""

from tests.device.contract import Contract


class TestOpencl(Contract):
    backend = "opencl"
    count = 210
