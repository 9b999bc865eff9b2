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
from redtune.render import render
from redtune.types import Device, Problem, Trial, Verdict
from tests.device.sample import sampled
from tests.need import need

COUNT, SEED = 36, 31
PLATFORM = "Portable Computing Language"


class TestPocl:
    @pytest.fixture(scope="class")
    def device(self) -> Device:
        need("opencl")
        found = [device for device in list_devices("opencl") if device.toolchain.startswith(PLATFORM)]
        if not found:
            report = pytest.fail if "pocl" in os.environ.get("REDTUNE_TEST_REQUIRE", "").split(",") else pytest.skip
            report("none of the OpenCL platforms is PoCL: install pocl-opencl-icd")
        return found[0]

    @pytest.fixture(scope="class")
    def judged(self, device: Device) -> list[tuple[Problem, Config, Trial]]:
        by_problem: dict[Problem, list[Config]] = defaultdict(list)
        for problem, config in sampled(backend_named("opencl").dialect, device, COUNT, SEED):
            by_problem[problem].append(config)
        rows = []
        for problem, configs in by_problem.items():
            with Lab(device, problem) as lab:
                ahead = [lab.compile_ahead(render(problem, c, lab.dialect, device)) for c in configs]
                rows += [
                    (problem, config, lab.trial(f.result(), None)) for config, f in zip(configs, ahead, strict=True)
                ]
        return rows

    def test_every_sampled_config_is_right(self, judged: list[tuple[Problem, Config, Trial]]) -> None:
        wrong = [f"{p.op} {p.dtype} {c}: {t.verdict} {t.note}" for p, c, t in judged if t.verdict != Verdict.OK]
        assert not wrong, "\n".join(wrong)

    def test_the_sample_is_as_large_and_wide_as_promised(self, judged: list[tuple[Problem, Config, Trial]]) -> None:
        assert len(judged) == COUNT
        configs = [config for _, config, _ in judged]
        assert {config.tree for config in configs} == {"interleaved", "strided", "sequential"}
        assert {config.walk for config in configs} == {"tile", "stride", "chunk"}
        assert {config.combine for config in configs} == {"two_pass", "atomic", "last_block"}
