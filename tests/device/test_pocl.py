"""A sample of configs on PoCL, a CPU device whose OpenCL C is 1.2 and which has device-scope atomics but no sub-groups.

Debian's `pocl-opencl-icd` brings it; so does a folder for `OCL_ICD_VENDORS` whose .icd file names a libpocl.so.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from redtune.api import make_problem
from redtune.backends import backend_named
from redtune.config import Config, settled
from redtune.lab import list_devices
from redtune.plan import state_layout
from redtune.refusals import refusals
from redtune.render import render
from redtune.sampling import LAYOUTS
from redtune.types import Device, Problem, Trial, Verdict
from tests.device.contract import Judged, Rounds, is_compiler_fault, judge_sample, told
from tests.need import need

COUNT, SEED = 30, 31
PLATFORM = "Portable Computing Language"


@pytest.fixture(scope="module")
def device() -> Device:
    need("opencl")
    found = [device for device in list_devices("opencl") if device.toolchain.startswith(PLATFORM)]
    if not found:
        report = pytest.fail if "pocl" in os.environ.get("REDTUNE_TEST_REQUIRE", "").split(",") else pytest.skip
        report("none of the OpenCL platforms is PoCL: install pocl-opencl-icd")
    return found[0]


@pytest.fixture(scope="module")
def judged(device: Device) -> Judged:
    return judge_sample(device, COUNT, SEED)


def is_known_fault(problem: Problem, config: Config, trial: Trial) -> bool:
    """PoCL 3.1 dies of a tree that is called twice, as last_block does, over a state of several fields; or it gives
    the threads of a CPU one memory for what each should have of its own, so that now and then a block's sum is wrong.
    With POCL_MAX_PTHREAD_COUNT=1, or with any other way to meet, it never is."""
    is_suspect = config.combine == "last_block" and len(state_layout(problem)[0]) > 1
    return is_suspect and (is_compiler_fault(trial) or trial.verdict == Verdict.WRONG)


class TestPocl:
    def test_every_sampled_config_is_right(self, judged: Judged) -> None:
        bad = [row for row in judged if row[2].verdict != Verdict.OK and not is_known_fault(*row)]
        assert not bad, told(bad)

    def test_the_sample_is_as_large_and_wide_as_promised(self, judged: Judged) -> None:
        assert len(judged) == COUNT
        right = [(problem, config) for problem, config, trial in judged if trial.verdict == Verdict.OK]
        assert len(right) >= 0.7 * COUNT
        assert {problem.layout for problem, _ in right} == set(LAYOUTS)
        assert {config.tree for _, config in right} == {"interleaved", "strided", "sequential"}
        assert {config.walk for _, config in right} == {"tile", "stride", "chunk"}
        assert {config.combine for _, config in right} == {"two_pass", "atomic", "last_block"}


@pytest.mark.parametrize("tree", ["interleaved", "strided", "sequential"])
def test_the_largest_and_smallest_of_a_hundred_thousand_are_exact(
    tree: str, device: Device, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Trees over a block of 256 threads, through the judge and as a user's file goes."""
    path = tmp_path_factory.mktemp("values") / "values.npy"
    values = np.random.default_rng(0).standard_normal(100_000)
    np.save(path, values)
    dialect = backend_named("opencl").dialect
    with Rounds(device, make_problem("max"), is_cold=False) as rounds:
        for op, combine in (("max", "two_pass"), ("min", "two_pass"), ("max", "last_block"), ("min", "atomic")):
            problem = make_problem(op, "float64", 100_000)
            config = settled(Config(exchange="lds", tree=tree, block=256, combine=combine))
            assert not refusals(config, problem, dialect, device)
            rounds.turn_to(problem)
            trial = rounds.trial(rounds.compile(render(problem, config, dialect, device)), None)
            assert trial.verdict == Verdict.OK, trial.note
            if combine == "two_pass":
                compiled = rounds.compile(render(problem, config, dialect, device, output="state"))
                assert rounds.reduce_file(compiled, str(path)) == getattr(values, op)()
