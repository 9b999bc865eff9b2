"""What it gave to run compiled kernels, libraries and kernels that only read side by side, as the worker tells it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from redtune.clock import is_time, summary
from redtune.types import Timing, from_json

Samples = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one entrant gave on the same input as the others: the dtype, the first of the results that were compared,
    and which of the others it differs from. `off` is its largest distance from any of those, relative to their size.
    One that differs from most of the others is odd; of a pair that differs both are."""

    name: str
    dtype: str
    first: str
    compared: int
    differs_from: tuple[str, ...]
    off: float
    is_odd: bool

    def __str__(self) -> str:
        if not self.differs_from:
            return f"{self.name} agrees"
        return f"{self.name} gave {self.first} and differs from {', '.join(self.differs_from)} by up to {self.off:.2g}"


@dataclass(frozen=True, slots=True)
class Beside:
    """Samples in seconds of each compiled kernel, of each library by (name, samples, types), and of the kernels that
    only read as many bytes, all taken in turns; why other libraries are absent; and the answers of the kernels, called
    "kernel 0" and so on, and of the libraries. What is much slower than the fastest has few samples: those of the first
    rounds."""

    samples: tuple[Samples, ...]
    libraries: tuple[tuple[str, Samples, str], ...]
    absent: tuple[tuple[str, str], ...]
    readers: tuple[Samples, ...]
    answers: tuple[Answer, ...]

    def ceiling(self) -> Timing | None:
        """The read ceiling as it stood in the same rounds: the fastest of the kernels that only read."""
        rows = [row for row in self.readers if row and all(map(is_time, row))]
        return min((summary(row) for row in rows), key=lambda t: t.median_us, default=None)


def beside_in(said: dict[str, Any]) -> tuple[Beside, tuple[str, ...]]:
    """What a worker tells, and the digests of the reading kernels that it has timed."""
    groups: dict[str, list[tuple[str, Samples, str]]] = defaultdict(list)
    for row in said["timed"]:
        samples = tuple(map(float, row["samples"]))
        groups[row["group"]].append((str(row["name"]), samples, str(row["types"])))
    found = Beside(
        samples=tuple(samples for _, samples, _ in groups["kernel"]),
        libraries=tuple(groups["library"]),
        absent=tuple((str(name), str(reason)) for name, reason in said["absent"]),
        readers=tuple(samples for _, samples, _ in groups["reader"]),
        answers=tuple(from_json(Answer, row) for row in said["answers"]),
    )
    return found, tuple(name for name, _, _ in groups["reader"])
