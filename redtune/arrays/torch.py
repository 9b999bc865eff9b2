"""PyTorch's tensors on a GPU, on PyTorch's own stream."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from redtune.arrays import Again, Form
from redtune.arrays.cuda import POINTER_BYTES, CudaArrays
from redtune.dtypes import DTYPES, unknown


class TorchArrays(CudaArrays):
    """Tensors; results are tensors that no gradient flows through."""

    def __init__(self) -> None:
        super().__init__()
        self.torch: Any = importlib.import_module("torch")
        names = [name for name in DTYPES if hasattr(self.torch, name)]
        self.names = {getattr(self.torch, name): name for name in names}
        self.dtypes = {name: getattr(self.torch, name) for name in names}
        # Those that no lazy conjugation can hide in.
        self.plain = {dtype: DTYPES[name].bytes for dtype, name in self.names.items() if DTYPES[name].parts == 1}
        self.raw_stream: Callable[[int], int] = getattr(
            self.torch._C, "_cuda_getCurrentRawStream", lambda index: self.torch.cuda.current_stream(index).cuda_stream
        )

    def accept(self, x: Any) -> Any:
        """The tensor; a lazily conjugated or negated one as it reads."""
        if x.device.type != "cuda":
            raise TypeError(f"a tensor on {x.device} is not on a GPU: pass x.cuda(), or x.numpy() for the CPU")
        return x.detach().resolve_conj().resolve_neg()

    def form(self, x: Any) -> Form:
        if not hasattr(x, "data_ptr"):
            return super().form(x)
        name = self.names.get(x.dtype)
        if name is None:
            raise TypeError(unknown("dtype", str(x.dtype).removeprefix("torch."), self.dtypes))
        apart = x.data_ptr() % min(DTYPES[name].bytes, POINTER_BYTES)
        return Form(tuple(x.shape), tuple(x.stride()), name, ("cuda", x.device.index), bool(apart))

    def memory(self, x: Any) -> tuple[int, int]:
        return (x.data_ptr() if hasattr(x, "data_ptr") else x.data.ptr), 0

    def as_cupy(self, x: Any) -> Any:
        if not hasattr(x, "data_ptr"):
            return x
        cuda = self.cupy.cuda
        dtype = DTYPES[self.names[x.dtype]].storage()
        device = x.device.index
        storage = x.untyped_storage()
        memory = cuda.UnownedMemory(storage.data_ptr(), max(1, storage.nbytes()), x, device)
        start = cuda.MemoryPointer(memory, x.data_ptr() - storage.data_ptr())
        strides = tuple(stride * dtype.itemsize for stride in x.stride())
        return self.cupy.ndarray(tuple(x.shape), dtype, memptr=start, strides=strides)

    def dtype_name(self, x: Any, view: Any) -> str:
        return self.names[x.dtype] if hasattr(x, "data_ptr") else super().dtype_name(x, view)

    def stream(self, x: Any) -> int:
        """The handle of the caller's current PyTorch stream on the tensor's GPU."""
        return self.raw_stream(x.get_device())

    def token(self, x: Any) -> Any:
        # A tensor that is negated when it is read, lies on the CPU or between elements needs a closer look.
        dtype = x.dtype
        size = self.plain.get(dtype)
        if size is None or not x.is_cuda or x.data_ptr() & (size - 1) or 0 in x.shape or x.is_neg():
            return None
        return x.shape, x.stride(), dtype, x.get_device()

    def repeat(self, again: Again, x: Any) -> Any:
        """A known reduction, with the result in a new tensor."""
        out = x.new_empty(again.shape, dtype=again.storage)
        stream = self.raw_stream(again.engine.index)
        if again.engine.is_current():
            again.launch.again(x.data_ptr(), again.start, out.data_ptr(), stream)
        else:
            again.launch({"data": x.data_ptr(), "data_first": again.start, "out": out.data_ptr()}, stream)
        return out

    def storage(self, like: Any, dtype: str) -> Any:
        if dtype not in self.dtypes:
            raise TypeError(f"torch has no {dtype}: ask for another dtype")
        return self.dtypes[dtype]

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str) -> Any:
        return self.torch.empty(shape, dtype=self.storage(like, dtype), device=like.device)
