"""One input reduced over and over, on an idle device and on a busy one: do the results differ, and by how much?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np

from redtune.backends import Call, Session
from redtune.data import Array
from redtune.dtypes import Dtype, dtype_named
from redtune.types import Repeated


def repeated(session: Session, once: Callable[[], Array], result: Dtype, runs: int, load: Sequence[Call]) -> Repeated:
    """Calls `once`, which gives the raw results of one run, `runs` times with nothing beside it, and `runs` times
    while the calls of `load` keep the device busy."""
    seen = _Seen(result)
    idle_s, idle = _half(once, runs, seen)
    with session.under_load(load):
        loaded_s, loaded = _half(once, runs, seen)
    spread, ulps = seen.spread()
    return Repeated(runs, len(idle), len(loaded), len(idle | loaded), spread, ulps, loaded_s / idle_s)


def _half(once: Callable[[], Array], runs: int, seen: _Seen) -> tuple[float, set[bytes]]:
    """The median of the seconds that a run took, and the digests of the results."""
    took, digests = [], set()
    for _ in range(runs):
        start = time.perf_counter()
        raw = once()
        took.append(time.perf_counter() - start)
        digests.add(seen.add(raw))
    return statistics.median(took), digests


class _Seen:
    """The results so far: their digests, and for each result its lowest and its highest value."""

    def __init__(self, result: Dtype) -> None:
        self.dtype = dtype_named(result.register) if result.kind == "complex" else result
        self.digests: set[bytes] = set()
        self.ends: tuple[Array, Array] | None = None  # the lowest and the highest bits, in the order of the values

    def add(self, raw: Array) -> bytes:
        """The digest of raw results, which count once however often they come."""
        digest = blake2b(raw.tobytes(), digest_size=16).digest()
        if digest not in self.digests:
            self.digests.add(digest)
            steps = self._steps(raw)
            low, high = self.ends or (steps, steps)
            self.ends = np.minimum(low, steps), np.maximum(high, steps)
        return digest

    def _steps(self, raw: Array) -> Array:
        """Results as integers, one up for each next larger value; both zeros of floats are 0."""
        values = raw.view(self.dtype.storage())
        if self.dtype.kind != "float":
            return values.astype(np.uint64 if self.dtype.kind == "uint" else np.int64)
        bits = values.view(f"int{8 * self.dtype.bytes}")
        below = bits < 0
        return np.where(below, np.iinfo(bits.dtype).min - bits, bits).astype(np.int64)

    def _values(self, steps: Array) -> Array:
        """The values again."""
        if self.dtype.kind != "float":
            return steps
        narrow = steps.astype(f"int{8 * self.dtype.bytes}")
        bits = np.where(narrow < 0, np.iinfo(narrow.dtype).min - narrow, narrow)
        return self.dtype.decode(bits.view(self.dtype.storage())).astype(np.float64)

    def spread(self) -> tuple[float, int | None]:
        """The largest difference between two results, as a number and in steps of a float dtype."""
        assert self.ends is not None, "something ran"
        low, high = self.ends
        with np.errstate(all="ignore"):
            # As unsigned numbers, the distance between any two of them fits.
            apart = int((high.view(np.uint64) - low.view(np.uint64)).max())
            if self.dtype.kind != "float":
                return float(apart), None
            return float(np.where(high == low, 0.0, self._values(high) - self._values(low)).max()), apart
