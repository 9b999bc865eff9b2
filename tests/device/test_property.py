"""redtune.reduce against numpy on the OpenCL device: calls at random over everything that a call can hold.

REDTUNE_EXAMPLES=20000 runs so many examples on a wider pool of kernels.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from redtune.arrays.opencl import host_engine
from redtune.dtypes import DTYPES
from redtune.operators import OPERATORS
from tests.device.calls import Call, Pool, calls, fault_of, make_heads, ml_dtypes
from tests.device.oracle import Asked, answer, rounded
from tests.need import need
from tests.text.kernels import PAIRS

EXAMPLES = int(os.environ.get("REDTUNE_EXAMPLES", "2000"))
IS_LONG = EXAMPLES > 5000
KERNELS = 1000 if IS_LONG else 200  # compiled at most
HEADS = make_heads(240 if IS_LONG else 36, tuple(DTYPES), seed=4)


def test_a_call_at_random_agrees_with_numpy() -> None:
    need("opencl")
    engine = host_engine()
    pool = Pool(engine, each=1, loose=8, tries=2) if IS_LONG else Pool(engine, each=1, loose=2, tries=4)
    before = len(engine._programs)

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(call=calls(HEADS))
    def agrees(call: Call) -> None:
        fault = fault_of(call, pool, np, np.asarray)
        assert not fault, fault

    agrees()
    assert pool.met["calls"] >= EXAMPLES
    assert len(engine._programs) - before <= KERNELS
    assert pool.met["the vendor's compiler failed"] <= EXAMPLES // 50
    met = {name for name, count in pool.met.items() if count}
    assert met >= set(OPERATORS)
    assert met >= {name for name in DTYPES if name != "bfloat16" or ml_dtypes is not None}
    assert met >= {f"layout {name}" for name in ("flat", "rows", "columns", "ragged", "of none")}
    assert met >= {f"out {name}" for name in ("", "contiguous", "strided")}
    assert met >= {f"accumulate {name}" for name in (None, "float64", "compensated")}
    assert met >= {"is_masked", "is_seeded", "is_ragged", "determinism run-to-run", "refused"}
    assert met >= {"default config", "config given", "broadcast", "reversed", "apart", "a length of 0", "no axis"}


@pytest.mark.parametrize(("op", "dtype"), PAIRS)
def test_the_oracle_tells_wrong_from_right(op: str, dtype: str) -> None:
    """What is exact must be that, and what rounds may be off by little."""
    rng = np.random.default_rng(1)
    values = rng.uniform(0.6, 1.5, (2, 7, 40)) * (9 if DTYPES[dtype].kind in ("int", "uint") else 1)
    values[..., 3] *= dtype != "bool"
    if DTYPES[dtype].kind == "complex":
        values = values * np.exp(1j * values)
    storage = "float32" if dtype == "bfloat16" else dtype
    x = rounded(values, dtype).astype(storage) if storage == "float32" else values.astype(storage)
    right = answer(Asked(op, tuple(x[: OPERATORS[op].inputs]), -1, element=dtype))
    assert right.dtype == "bfloat16" or right.dtype in np.sctypeDict
    known = [part.exact if part.exact.dtype == bool else rounded(part.exact, right.dtype) for part in right.parts]
    got = known[0] if len(known) == 1 else (known[0] + 1j * known[1]).astype(right.dtype)
    assert right.fault(got, right.dtype) == ""
    assert right.fault(got, "int7").startswith("the dtype is int7")
    assert right.fault(got[:-1], right.dtype).startswith("the shape is (6,)")
    for k in range(7):
        wrong = got.copy()
        if wrong.dtype.kind == "b":
            wrong[k] = not wrong[k]
        elif wrong.dtype.kind in "iu":
            wrong[k] += 1
        else:
            wrong[k] *= 1 + max(4 * DTYPES[right.dtype].u, 1e-4 if right.dtype in ("float32", "complex64") else 1e-10)
        assert right.fault(wrong, right.dtype).startswith(f"result {k} of 7")
        if wrong.dtype.kind in "fc":
            wrong[k] = np.nan
            assert right.fault(wrong, right.dtype).startswith(f"result {k} of 7")
