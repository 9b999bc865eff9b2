"""Random data on a device, made once for every problem of a dtype: the inputs are slices of it.

A pattern is made on the host and repeated on the device, which is faster than sending as much. Every input begins at a
multiple of 512 bytes, as what an allocator gives does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from redtune.backends import Session
from redtune.dtypes import Dtype, dtype_named

PATTERN_BYTES = 1 << 26
ALIGNED = 512
DRAWN = 1 << 20  # values rounded to a narrow dtype at a time

Array = np.ndarray[Any, Any]


def pattern(dtype: Dtype, size: int, seed: int) -> Array:
    """`size` bytes of random elements: floats in [0.5, 1.5), integers over their range, fair bools. Of these every sum,
    mean and norm grows with the number of elements, so that a missing part shows."""
    rng, count = np.random.default_rng(seed), size // dtype.bytes
    if dtype.kind == "bool":
        return rng.integers(0, 2, count, np.uint8).view(bool)
    if dtype.kind in ("int", "uint"):
        return np.frombuffer(rng.bytes(count * dtype.bytes), dtype.name)
    raw = np.empty(count, dtype.storage())
    wide = np.float64 if dtype.register == "float64" else np.float32
    for first in range(0, count, DRAWN):
        part = raw[first : first + DRAWN]
        drawn = [rng.random(len(part), wide) + wide(0.5) for _ in range(dtype.parts)]
        part[:] = dtype.encode(drawn[0] + 1j * drawn[1] if dtype.parts > 1 else drawn[0])
    return raw


def padded(size: int) -> int:
    """How far apart inputs of so many bytes lie."""
    return -(-size // ALIGNED) * ALIGNED


@dataclass(frozen=True)
class Pool:
    """A buffer full of random elements, and the same on the host where the two share memory."""

    session: Session
    dtype: str
    size: int
    buffer: Any
    host: Array | None

    def part(self, first: int, size: int) -> Any:
        """`size` bytes from byte `first` on, as a buffer."""
        return self.session.part(self.buffer, first, size)


def make_pool(session: Session, dtype: str, size: int, seed: int, *, is_shared: bool) -> Pool:
    """A pool of at least `size` bytes; in memory of the host where the device shares it."""
    kind = dtype_named(dtype)
    size = padded(size)
    made = pattern(kind, min(size, PATTERN_BYTES), seed).view(np.uint8)
    if is_shared:
        host = np.resize(made, size)
        return Pool(session, dtype, size, session.upload(host), host)
    buffer = session.empty(size)
    done = len(made)
    session.write(session.part(buffer, 0, done), made)
    while done < size:  # twice as much with every copy, and always whole patterns from the first on
        step = min(done, size - done)
        session.copy(session.part(buffer, done, step), session.part(buffer, 0, step), step)
        done += step
    return Pool(session, dtype, size, buffer, None)


@dataclass(frozen=True)
class Slices:
    """The inputs of one problem: the k-th is `size` bytes long and begins k strides into the pool."""

    pool: Pool
    size: int

    def __getitem__(self, k: int) -> Any:
        """The k-th input as a buffer."""
        return self.pool.part(k * padded(self.size), self.size)

    def host(self, k: int) -> Array:
        """The bytes of the k-th input. Only where device and host share memory."""
        assert self.pool.host is not None, "a device with memory of its own"
        first = k * padded(self.size)
        return self.pool.host[first : first + self.size]

    def __len__(self) -> int:
        return self.pool.size // padded(self.size)
