"""What a language can spell: the record each backend fills in, and what the C family has in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redtune.dtypes import Dtype
from redtune.evaluation import NORM_POWERS

if TYPE_CHECKING:
    from redtune.config import Config
    from redtune.lanes import Move
    from redtune.operators import Operator
    from redtune.packing import Packing
    from redtune.types import Device, Problem

Moves = Callable[["Config", "Device", int], tuple["Move", ...]]
Refusals = Callable[["Config", "Problem", "Operator", "Device"], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One language. `types` spells a dtype in memory (16-bit floats are raw bits there); `hardware_wave` says how many
    lanes issue together for a config; `words` spells operator words that the language has something better for;
    `refusals` says what it cannot spell; `atomics` maps (native operation, dtype) to a statement over `out`;
    `packings` maps (what is folded, dtype) to how the elements of a word are folded at once; `moves` are the steps in
    which so many lanes meet in registers, where a config has them meet so.
    """

    name: str
    types: Mapping[str, str]
    suffix_64: str  # what a signed 64-bit literal ends with
    raw: Mapping[int, str]  # the type of one load, by its bytes
    infinity: Mapping[str, str]
    nan: Mapping[str, str]
    hardware_wave: Callable[[Config, Device], int]
    refusals: Refusals
    lane_mask: str = ""
    flags: Callable[[Config, str], tuple[str, ...]] = lambda config, arch: ()
    words: Callable[[Dtype, str], Mapping[str, str]] = lambda dtype, arch: {}
    atomics: Mapping[tuple[str, str], str] = field(default_factory=dict)
    packings: Mapping[tuple[str, str], Packing] = field(default_factory=dict)
    address_type: str = "unsigned long long"
    moves: Moves = lambda config, device, width: ()
    profiler: str = ""  # the vendor's program that counts what a kernel does, where redtune knows to ask it
    asks_wave: bool = False  # whether a kernel asks for the width of its waves
    about_waves: str = ""  # what a hardware wave and a tail are there, where they are compared


def c_words(dtype: Dtype) -> dict[str, str]:
    """The operator words in plain C. For floats, a value that differs from itself is NaN, and NaN wins."""
    words = {
        "pick": "{0} ? {1} : {2}",
        "above": "{0} > {1}",
        "below": "{0} < {1}",
        "larger": "{0} > {1} ? {0} : {1}",
        "smaller": "{0} < {1} ? {0} : {1}",
        "absolute": "{0} < 0 ? -{0} : {0}",
        "real": "(real_t){0}",
        "sqrt": "sqrt({0})",
        "exp": "exp({0})",
        "decay": "exp({0})",
        "log": "log({0})",
        "literal": "{0}f" if dtype.name == "float32" else "{0}",
    }
    if dtype.kind == "float":
        words |= {
            "above": "({0} > {1}) | ({0} != {0})",
            "below": "({0} < {1}) | ({0} != {0})",
            "larger": "(({0} > {1}) | ({0} != {0})) ? {0} : {1}",
            "smaller": "(({0} < {1}) | ({0} != {0})) ? {0} : {1}",
            "absolute": "fabs({0})",
        }
    return words


def c_limits(dialect: Dialect, dtype: Dtype) -> dict[str, str]:
    """The names of limits of a register dtype as literals: infinities for floats, and where norms scale."""
    if dtype.kind == "float":
        infinity, nan, suffix = dialect.infinity[dtype.name], dialect.nan[dtype.name], "f" * (dtype.name == "float32")
        powers = {name: f"0x1p{power}{suffix}" for name, power in NORM_POWERS[dtype.name].items()}
        return {
            "lowest": f"-{infinity}",
            "highest": infinity,
            "nan_or_lowest": nan,
            "nan_or_highest": nan,
            **powers,
        }
    bits = dtype.bytes * 8
    suffix = dialect.suffix_64 if bits == 64 else ""
    low, high = dtype.limits
    if dtype.kind == "uint":
        lowest, highest = (f"{limit}{'U' + suffix if suffix else 'u'}" for limit in (low, high))
    else:
        # The lowest integer has no literal of its own in C.
        lowest, highest = f"(-{high}{suffix} - 1)", f"{high}{suffix}"
    return {"lowest": lowest, "highest": highest, "nan_or_lowest": lowest, "nan_or_highest": highest}
