"""The line t = c + bytes / B through the times of large flat reductions: what a launch costs, and how fast it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

FROM_N = 1 << 24  # elements, from which on the memory decides


@dataclass(frozen=True, slots=True)
class Fit:
    """The line of one contestant for one operator and dtype: `c_us` at no bytes, `gbps` on top of it. Through two
    `points` it is exact."""

    op: str
    dtype: str
    contestant: str
    c_us: float
    gbps: float
    points: int


def line(points: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """(c, B) of (bytes, microseconds): least squares of the relative errors, so that every size counts alike. B is in
    bytes per microsecond; infinite where time does not grow. Raises ValueError for fewer than two sizes."""
    rows = [(size / time, 1 / time) for size, time in points]
    # c and s = 1 / B minimise the sum of (c w + s v - 1)^2 with w = 1 / t and v = size / t.
    ww, wv, vv = sum(w * w for _, w in rows), sum(w * v for v, w in rows), sum(v * v for v, _ in rows)
    w1, v1 = sum(w for _, w in rows), sum(v for v, _ in rows)
    determinant = ww * vv - wv * wv
    if determinant <= 1e-12 * ww * vv:
        raise ValueError("a line goes through two sizes at least")
    c, s = (w1 * vv - v1 * wv) / determinant, (v1 * ww - w1 * wv) / determinant
    return c, 1 / s if s > 0 else float("inf")


def fits_of(times: Mapping[tuple[str, str, str], Mapping[int, float]]) -> list[Fit]:
    """A fit for each (operator, dtype, contestant) whose times in microseconds by bytes are of two sizes or more."""
    found = []
    for (op, dtype, contestant), by_bytes in times.items():
        if len(by_bytes) > 1:
            c, rate = line(by_bytes.items())
            found.append(Fit(op, dtype, contestant, c, rate * 1e-3, len(by_bytes)))
    return found
