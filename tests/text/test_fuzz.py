"""Arbitrary files, definitions and command lines: one sentence or the right thing, never a traceback.

REDTUNE_FUZZ is how many times as long as usual each of these runs; `python results/fuzz.py` runs by the clock.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings

from tests.text.fuzzing import FUZZED

TIMES = int(os.environ.get("REDTUNE_FUZZ", "1"))
EXAMPLES = {"the store": (40, 60, 60, 30), "operators": (100, 40), "command lines": (150,)}

# redtune silences Optuna's word on experimental features at import; pytest undoes that for every test.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(("what", "which"), [(what, k) for what, rows in FUZZED.items() for k in range(len(rows))])
def test_nothing_that_is_given_ends_in_a_traceback(what: str, which: int) -> None:
    strategy, check = FUZZED[what][which]

    @settings(
        max_examples=EXAMPLES[what][which] * TIMES,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(strategy)
    def checked(example: object) -> None:
        check(example)

    checked()
