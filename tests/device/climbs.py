"""The ladder on a device: what every backend's rungs must hold."""

from __future__ import annotations

from typing import ClassVar

import pytest

from redtune import api_learn
from redtune.climbing import ABSENT, PASSED, REFUSED
from redtune.rungs import rungs
from redtune.types import Device
from tests.device.contract import first_device
from tests.need import need


class Climbs:
    """Every rung is right, down to one value."""

    backend: ClassVar[str]
    n: ClassVar[int]

    @pytest.fixture(autouse=True)
    def device(self) -> Device:
        need(self.backend)
        return first_device(self.backend)

    def test_every_rung_of_a_sum_passes(self) -> None:
        found = api_learn.climbed("sum", n=self.n, backend=self.backend)
        found.check()
        classic = found.rows[: len(rungs())]
        assert [row.verdict for row in classic] == [PASSED] * len(rungs())
        assert found.rows[-1].verdict in (PASSED, ABSENT)
        for row in classic:
            assert row.timing is not None
            assert row.error is not None
            assert row.error < 1e-5, "numbers of one sign: a drift of a few roundings"
            assert 0 <= (row.bound_share or 0) <= 1
        assert found.ceiling is not None

    @pytest.mark.parametrize(("op", "dtype"), [("argmax", "float32"), ("max", "int32")])
    def test_a_rung_is_right_or_says_why_it_cannot_be(self, op: str, dtype: str) -> None:
        found = api_learn.climbed(op, dtype, self.n - 3, block=64, backend=self.backend)
        found.check()
        refused = [row.rung.number for row in found.rows if row.verdict == REFUSED]
        assert refused == ([5, 9] if op == "argmax" else [5])
        assert all(row.error == 0 for row in found.rows if row.verdict == PASSED), "nothing rounds"
