"""The element types redtune reduces, one entry each."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from redtune.errors import DtypeError

if TYPE_CHECKING:
    import numpy as np


Kind = Literal["bool", "int", "uint", "float", "complex"]


@dataclass(frozen=True, slots=True)
class Dtype:
    """An element type. `register` names the narrowest dtype that a thread computes with, for a complex type that of its
    two parts; `u` is the unit roundoff."""

    name: str
    bytes: int
    kind: Kind
    register: str
    sum_type: str  # what numpy's sum and prod return for it
    float_type: str  # what numpy's mean returns for it
    u: float = 0.0

    @property
    def parts(self) -> int:
        """How many numbers an element consists of."""
        return 2 if self.kind == "complex" else 1

    @property
    def limits(self) -> tuple[int, int]:
        """The lowest and the highest integer of a type that is none of floats."""
        if self.kind == "bool":
            return 0, 1
        bits = 8 * self.bytes
        return (0, 2**bits - 1) if self.kind == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    def storage(self) -> np.dtype[Any]:
        """The numpy dtype that holds the bits: bfloat16 has none of its own and travels as uint16."""
        import numpy as np

        return np.dtype("uint16" if self.name == "bfloat16" else self.name)

    def encode(self, values: Any) -> np.ndarray[Any, Any]:
        """Values as this dtype's bits, rounded to nearest even."""
        import numpy as np

        if self.name != "bfloat16":
            return np.asarray(values).astype(self.storage())
        bits = np.asarray(values, dtype=np.float32).view(np.uint32)
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        quiet = (bits >> np.uint32(16)) | np.uint32(0x40)  # adding could carry a NaN's payload into infinity
        is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
        return np.where(is_nan, quiet, rounded).astype(np.uint16)

    def decode(self, raw: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Bits of this dtype as numpy values (bfloat16 as float32)."""
        import numpy as np

        if self.name != "bfloat16":
            return raw.view(self.storage())
        return (raw.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


DTYPES = {
    d.name: d
    for d in (
        Dtype("bool", 1, "bool", "uint32", "int64", "float64"),
        Dtype("int8", 1, "int", "int32", "int64", "float64"),
        Dtype("int16", 2, "int", "int32", "int64", "float64"),
        Dtype("int32", 4, "int", "int32", "int64", "float64"),
        Dtype("int64", 8, "int", "int64", "int64", "float64"),
        Dtype("uint8", 1, "uint", "uint32", "uint64", "float64"),
        Dtype("uint16", 2, "uint", "uint32", "uint64", "float64"),
        Dtype("uint32", 4, "uint", "uint32", "uint64", "float64"),
        Dtype("uint64", 8, "uint", "uint64", "uint64", "float64"),
        Dtype("float16", 2, "float", "float32", "float16", "float16", 2.0**-11),
        Dtype("bfloat16", 2, "float", "float32", "bfloat16", "bfloat16", 2.0**-8),
        Dtype("float32", 4, "float", "float32", "float32", "float32", 2.0**-24),
        Dtype("float64", 8, "float", "float64", "float64", "float64", 2.0**-53),
        Dtype("complex64", 8, "complex", "float32", "complex64", "complex64", 2.0**-24),
        Dtype("complex128", 16, "complex", "float64", "complex128", "complex128", 2.0**-53),
    )
}

UNSIGNED = {"int32": "uint32", "int64": "uint64"}


def rounds_into(dtype: Dtype, wide: Dtype) -> bool:
    """Whether an element may have to be rounded to become a `wide`."""
    if not wide.u:
        return False
    bits = 8 * dtype.bytes - (dtype.kind == "int")
    return dtype.u < wide.u if dtype.u else bits > -math.log2(wide.u)


def dtype_named(name: str) -> Dtype:
    """The entry called `name`. Raises DtypeError with the nearest name and the list."""
    if name not in DTYPES:
        raise DtypeError(unknown("dtype", name, DTYPES))
    return DTYPES[name]


def unknown(what: str, name: str, known: Any) -> str:
    """The sentence for a name that is not in a table: the nearest one, then all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, 1, 0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"there is no {what} {name!r}: {hint}choose from {', '.join(names)}"
