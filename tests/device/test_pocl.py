"""A sample of configs on PoCL, a CPU device whose OpenCL C is 1.2 and which has device-scope atomics but no sub-groups.

Debian's `pocl-opencl-icd` brings it; so does a folder for `OCL_ICD_VENDORS` whose .icd file names a libpocl.so.
"""

from __future__ import annotations

import os
from collections import defaultdict

import pytest

from redtune.backends import backend_named
from redtune.config import Config
from redtune.lab import Lab, list_devices
from redtune.operators import OPERATORS
from redtune.render import render
from redtune.types import Device, Problem, Trial, Verdict
from tests.device.contract import is_compiler_fault
from tests.device.sample import sampled
from tests.need import need

COUNT, SEED = 24, 31
PLATFORM = "Portable Computing Language"
Judged = list[tuple[Problem, Config, Trial]]


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
    by_problem: dict[Problem, list[Config]] = defaultdict(list)
    for problem, config in sampled(backend_named("opencl").dialect, device, COUNT, SEED):
        by_problem[problem].append(config)
    rows = []
    for problem, configs in by_problem.items():
        with Lab(device, problem) as lab:
            ahead = [lab.compile_ahead(render(problem, c, lab.dialect, device)) for c in configs]
            rows += [(problem, config, lab.trial(f.result(), None)) for config, f in zip(configs, ahead, strict=True)]
    return rows


def is_known_crash(problem: Problem, config: Config, trial: Trial) -> bool:
    """PoCL 3.1's compiler dies of a tree that is called twice, as last_block does, over a state of several fields."""
    is_suspect = config.combine == "last_block" and len(OPERATORS[problem.op].state) > 1
    return is_suspect and is_compiler_fault(trial)


class TestPocl:
    def test_every_sampled_config_is_right(self, judged: Judged) -> None:
        bad = [row for row in judged if row[2].verdict != Verdict.OK and not is_known_crash(*row)]
        assert not bad, "\n".join(f"{p.op} {p.dtype} {c}: {t.verdict} {t.note}" for p, c, t in bad)

    def test_the_sample_is_as_large_and_wide_as_promised(self, judged: Judged) -> None:
        assert len(judged) == COUNT
        right = [config for _, config, trial in judged if trial.verdict == Verdict.OK]
        assert len(right) >= 0.7 * COUNT
        assert {config.tree for config in right} == {"interleaved", "strided", "sequential"}
        assert {config.walk for config in right} == {"tile", "stride", "chunk"}
        assert {config.combine for config in right} == {"two_pass", "atomic", "last_block"}
