"""redtune.reduce against numpy on the OpenCL device: calls at random over everything that a call can hold.

REDTUNE_EXAMPLES=20000 runs so many examples on a wider pool of kernels.
"""

from __future__ import annotations

import os

import numpy as np
from hypothesis import HealthCheck, given, settings

from redtune.arrays.opencl import host_engine
from redtune.dtypes import DTYPES
from redtune.operators import OPERATORS
from tests.device.calls import Call, Pool, calls, fault_of, make_heads, ml_dtypes
from tests.need import need

EXAMPLES = int(os.environ.get("REDTUNE_EXAMPLES", "2000"))
IS_LONG = EXAMPLES > 5000
KERNELS = 1000 if IS_LONG else 150  # compiled at most
HEADS = make_heads(240 if IS_LONG else 40, tuple(DTYPES), seed=4)


def test_a_call_at_random_agrees_with_numpy() -> None:
    need("opencl")
    engine = host_engine()
    pool = Pool(engine, each=1, loose=8, tries=2) if IS_LONG else Pool(engine, each=1, loose=3, tries=4)
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
