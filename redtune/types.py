"""The frozen records that travel between redtune's parts.

Every record turns into plain JSON data and back (`as_json`, `from_json`), so the same shapes cross the pipe to the
worker process, rest in the store and appear under `--json`.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import reprlib
import types
import typing
from dataclasses import dataclass
from typing import Any, TypeVar

from redtune.config import Config
from redtune.errors import UsageError


class Verdict(enum.StrEnum):
    """What became of one trial."""

    OK = "OK"
    REFUSED = "REFUSED"
    NOT_COMPILED = "NOT_COMPILED"
    WRONG = "WRONG"
    TIMED_OUT = "TIMED_OUT"
    CRASHED = "CRASHED"


DETERMINISMS = ("any", "run-to-run")


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be reduced: `outer` x `n` x `inner` elements, `n` of them into one. Flat: outer = inner = 1.

    `accumulate` is the dtype of the running value (of a part, for complex numbers), `is_compensated` whether every
    addition keeps what it loses, `determinism` what is promised about repeated runs. `result` is the dtype of the
    results, numpy's choice where it is empty. `is_strided`: reduced elements are not next to each other. `is_ragged`:
    the rows are of different lengths, `n` the mean of them. `is_masked`: elements count where a mask says so.
    `is_seeded`: an initial value takes part. `custom` holds the definition of an operator that is not redtune's own.
    """

    op: str
    dtype: str
    accumulate: str
    n: int
    outer: int = 1
    inner: int = 1
    determinism: str = "any"
    result: str = ""
    is_compensated: bool = False
    is_strided: bool = False
    is_ragged: bool = False
    is_masked: bool = False
    is_seeded: bool = False
    custom: str = ""

    @property
    def layout(self) -> str:
        """How the reduced elements lie: "flat", "rows", "columns" or "ragged"."""
        if self.is_ragged:
            return "ragged"
        if self.is_strided or self.inner > 1:
            return "columns"
        return "rows" if self.outer > 1 else "flat"

    @property
    def results(self) -> int:
        """How many results there are."""
        return self.outer * self.inner


@dataclass(frozen=True, slots=True)
class Device:
    """One device of one backend. `waves` are the hardware wave sizes it can run, sizes are in bytes."""

    backend: str
    index: int
    name: str
    vendor: str
    arch: str
    kind: str  # "gpu" or "cpu": on a CPU, compiling next to a measurement disturbs it
    waves: tuple[int, ...]
    max_block: int
    lds_bytes: int
    compute_units: int
    cache_bytes: int
    memory_bytes: int
    features: tuple[str, ...]
    toolchain: str
    driver: str


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of one entry point. `args` names its arguments: buffers (`data`, `other`, `mask`, `offsets`,
    `partials`, `counter`, `out`), the number `initial`, or integers (sizes and strides, in elements). One that is
    `early` may start before the launch in front of it has ended, and waits for that itself."""

    entry: str
    grid: int
    block: int
    args: tuple[str, ...]
    is_early: bool = False


@dataclass(frozen=True, slots=True)
class Kernel:
    """Emitted text and how to launch it for one problem on one device."""

    problem: Problem
    config: Config
    dialect: str
    arch: str
    source: str
    flags: tuple[str, ...]
    launches: tuple[Launch, ...]
    partials_bytes: int
    counter_bytes: int
    digest: str

    @property
    def code(self) -> str:
        """A digest of what a compiler makes code of: of kernels that differ in their grids alone, comments say so."""
        lines = (line for line in self.source.splitlines() if not line.lstrip().startswith("//"))
        return hashlib.sha256("\n".join((*lines, *self.flags, self.arch)).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Timing:
    """Repeated measurements of one thing: median, and spread as half the distance between the quartiles, in us."""

    median_us: float
    spread_us: float
    samples: int


@dataclass(frozen=True, slots=True)
class Trial:
    """One config measured on one device, with its verdict. `error` is the largest error seen over its bound."""

    config: Config
    digest: str
    verdict: Verdict
    micros: float | None = None
    spread_us: float | None = None
    error: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Repeated:
    """What one input gave when it was reduced over and over: `runs` times on the idle device and as often under load.

    `idle`, `loaded` and `distinct` count the different results, bit for bit, of either half and of both. `spread` is
    the largest difference between two of them, `ulps` the same in steps of a float dtype. `slowed` says how many times
    as long a run took under load: what does not slow it down was none.
    """

    runs: int
    idle: int
    loaded: int
    distinct: int
    spread: float
    ulps: int | None
    slowed: float

    @property
    def determinism(self) -> str:
        """What the runs showed: "run-to-run" or "varies"."""
        return "run-to-run" if self.distinct == 1 else "varies"


@dataclass(frozen=True, slots=True)
class Resources:
    """What the main launch of a compiled kernel takes on a device; None where the device does not say.

    `registers` are of a thread, `lds_bytes` of a block, `spill_bytes` those of a thread that did not fit into registers
    or other private memory, `occupancy` the share of a compute unit's threads that can be there at once. `wave` says
    how many lanes issue together. `counts` are instructions in the compiled text, those by which lanes and waves meet.
    """

    registers: int | None
    lds_bytes: int | None
    spill_bytes: int | None
    occupancy: float | None
    wave: int | None
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Best:
    """A stored winner and the evidence for it. Times are of the whole reduction, in microseconds."""

    problem: Problem
    device: Device
    config: Config
    median_us: float
    spread_us: float
    runner_up_us: float | None
    default_us: float | None
    worst_us: float | None
    baseline_us: float | None
    baseline: str
    gbps: float
    ceiling_gbps: float | None
    temperature: str  # "cold" or "warm": whether the inputs rotated past the last-level cache
    determinism: str  # what the finalist runs showed: "run-to-run" or "varies"
    trials: int
    seed: int
    found: str  # ISO date of the measurement
    versions: dict[str, str]
    templates: str  # digest of the templates the kernel came from
    format: int
    repeated: Repeated | None = None  # how `determinism` was shown


T = TypeVar("T")


def as_json(record: Any) -> Any:
    """Plain JSON data (dicts, lists, strings, numbers) of a record."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {f.name: as_json(getattr(record, f.name)) for f in dataclasses.fields(record)}
    if isinstance(record, enum.Enum):
        return record.value
    if isinstance(record, (list, tuple)):
        return [as_json(item) for item in record]
    if isinstance(record, dict):
        return {str(k): as_json(v) for k, v in record.items()}
    return record


def from_json(cls: type[T], data: Any) -> T:
    """The record of `cls` that `data` describes. Raises UsageError naming the first field that does not fit."""
    return typing.cast(T, _read(cls, data, cls.__name__))


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _read(kind: Any, data: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _read_record(typing.cast(type, kind), data, where)
    if origin in (typing.Union, types.UnionType):
        if data is None and type(None) in typing.get_args(kind):
            return None
        return _read(next(k for k in typing.get_args(kind) if k is not type(None)), data, where)
    if origin is tuple and isinstance(data, (list, tuple)):
        return tuple(_read(typing.get_args(kind)[0], item, where) for item in data)
    if origin is dict and isinstance(data, dict):
        return {str(k): _read(typing.get_args(kind)[1], v, where) for k, v in data.items()}
    if isinstance(kind, type) and issubclass(kind, enum.Enum) and data in [member.value for member in kind]:
        return kind(data)
    if kind is float and isinstance(data, (int, float)) and not isinstance(data, bool):
        return float(data)
    if kind in (int, str, bool) and type(data) is kind:
        return data
    raise UsageError(f"{where} cannot be {reprlib.repr(data)}")


def _read_record(cls: type, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise UsageError(f"{where} cannot be {reprlib.repr(data)}: a mapping is wanted")
    fields = dataclasses.fields(cls)
    unknown = set(data) - {f.name for f in fields}
    if unknown:
        raise UsageError(f"{where} has no field {sorted(str(name)[:40] for name in unknown)[0]!r}")
    values = {}
    for f in fields:
        if f.name in data:
            values[f.name] = _read(_hints(cls)[f.name], data[f.name], f"{where}.{f.name}")
        elif f.default is dataclasses.MISSING:
            raise UsageError(f"{where} lacks its field {f.name!r}")
    return cls(**values)
