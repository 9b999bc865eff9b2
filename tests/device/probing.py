"""Every way that blocks meet gives the bits it promises, run after run, idle and under load. A backend's test file
inherits the suite and names the backend."""

from __future__ import annotations

import numpy as np
import pytest

from redtune.api import make_problem
from redtune.backends import Session, backend_named
from redtune.combine import COMBINES
from redtune.config import Config
from redtune.judge import Bench
from redtune.operators import result_of
from redtune.probing import Probe, Strategy, probe_strategies, strategy_of
from redtune.problems import shaped_problem
from redtune.render import render
from redtune.types import Device, Problem
from redtune.windows import Window
from tests.device.contract import first_device
from tests.need import need


class Bits:
    """Set `backend`; how many `runs` and how `many` of what is short, idle and as often under load; and of how many
    elements: `n`, or `doubles` of the sum and `ones` for the last block, which reports of other projects give."""

    backend: str
    runs: int
    many: int
    n: int
    doubles: int
    ones: int

    @pytest.fixture
    def device(self) -> Device:
        need(self.backend)
        return first_device(self.backend)

    def probe(self, problem: Problem, device: Device, runs: int) -> tuple[Probe, list[Strategy]]:
        """What was seen, no promise broken, and those strategies that promise nothing."""
        found = probe_strategies(problem, device, runs, 0, lambda progress: None)
        found.check()
        refused = {s.combine for s in found.strategies if s.repeated is None}
        needs = {"cluster": "clusters", "collector": "waiting_blocks"}
        absent = {name for name, feature in needs.items() if feature not in device.features}
        of_flat = {"collector", "tally"} if problem.outer > 1 else set()
        of_integers = {"tally"} if problem.dtype != "int32" else set()
        assert refused <= absent | of_flat | of_integers
        for s in found.strategies:
            assert s.repeated is None or s.repeated.runs == runs
        return found, [s for s in found.strategies if s.repeated and not s.is_promised]

    def test_float64_sums_are_the_same_in_every_run(self, device: Device) -> None:
        """B131, with values of many magnitudes."""
        _, free = self.probe(make_problem("sum", "float64", self.doubles), device, self.runs)
        assert [s.combine for s in free] == ["atomic"]

    def test_atomics_on_floats_vary(self, device: Device) -> None:
        """Where these did not, that nothing else does would say little: no order was disturbed."""
        _, (free,) = self.probe(shaped_problem("sum", "float64", (16, 100_003), 1), device, self.runs)
        assert free.repeated is not None
        assert free.repeated.determinism == "varies"
        assert free.repeated.ulps

    def test_products_are_the_same_in_every_run(self, device: Device) -> None:
        """Where sums keep what they lose to rounding, products do not: partials in another order would show."""
        _, free = self.probe(make_problem("prod", "float64", self.doubles), device, self.runs)
        assert [s.combine for s in free] == ["atomic"]

    def test_the_maximum_of_zeros_is_the_same_in_every_run_but_for_atomics(self, device: Device) -> None:
        _, (free,) = self.probe(make_problem("max", "float32", self.n), device, self.runs)
        assert free.repeated is not None
        assert free.repeated.distinct <= 2
        assert (free.repeated.spread, free.repeated.ulps) == (0, 0)

    def test_sums_of_integers_are_the_same_in_every_run(self, device: Device) -> None:
        found, free = self.probe(make_problem("sum", "int32", self.n), device, self.runs)
        assert not free
        assert "atomic" in {s.combine for s in found.strategies if s.is_promised}

    def test_row_sums_are_the_same_again_and_again(self, device: Device) -> None:
        """B129."""
        self.probe(shaped_problem("sum", "float32", (16, 2, 50000), 2), device, self.many)

    def test_the_last_block_sees_the_others_under_load(self, device: Device) -> None:
        """B109: a partial that is not yet there, or one of the run before, would change the count of the ones."""
        backend = backend_named(self.backend)
        for problem in (make_problem("sum", dtype, self.ones) for dtype in ("float32", "int32")):
            counting = [combine.name for combine in COMBINES.values() if combine.counter]
            configs = [strategy_of(name, problem, backend.dialect, device).config for name in counting]
            assert any(configs)
            for config in filter(None, configs):
                self.count_ones(problem, config, device)

    def count_ones(self, problem: Problem, config: Config, device: Device) -> None:
        backend = backend_named(self.backend)
        session: Session = backend.open(device)
        kernel = render(problem, config, backend.dialect, device)
        program = session.load(kernel, backend.compile(kernel, device))
        whole = Window(0, 1, problem.n, 1)
        benches = [Bench(session, backend.dialect, device, problem, config, program) for _ in range(2)]
        inputs = [session.upload(np.full(problem.n, value, problem.dtype)) for value in (1, 2)]
        for bench in benches:
            bench.prepare([whole], 4)
        call, load = (bench.bind(data, whole) for bench, data in zip(benches, inputs, strict=True))
        wrong = []
        with session.under_load([load]):
            for _ in range(self.many):
                (got,) = benches[0].results(call, whole, np.dtype(result_of(problem)))
                wrong += [got] if got != problem.n else []
        for bench in benches:
            bench.check_guards()
        beside = session.download(benches[1].out, np.zeros(1, result_of(problem)))
        assert beside == 2 * problem.n, "the load ran, and was right as well"
        assert not wrong, f"{config.combine}: {len(wrong)} of {self.many} runs, the first with {wrong[0]}"
