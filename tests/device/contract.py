"""The contract every backend keeps. A backend's test file inherits the suite and names the backend."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
import pytest

from redtune.api import make_problem
from redtune.backends import backend_named
from redtune.config import Config, is_read, settled
from redtune.defaults import default_config
from redtune.errors import CompileError
from redtune.lab import Compiled, Lab, list_devices
from redtune.operators import OPERATORS
from redtune.refusals import refusals
from redtune.render import render
from redtune.space import make_space
from redtune.types import Device, Kernel, Problem, Trial, Verdict
from tests.device.sample import N, sampled
from tests.need import need

SEED = 20


class Contract:
    """Set `backend`, and `count`: how many valid configs are judged."""

    backend: str
    count: int

    @pytest.fixture
    def device(self) -> Device:
        need(self.backend)
        return first_device(self.backend)

    @pytest.fixture
    def judged(self, device: Device) -> list[tuple[Problem, Config, Trial]]:
        return judge_sample(device, self.count)

    def test_every_sampled_config_is_right(self, judged: list[tuple[Problem, Config, Trial]]) -> None:
        wrong = [
            f"{problem.op} {problem.dtype} {config}: {trial.verdict} {trial.note}"
            for problem, config, trial in judged
            if trial.verdict != Verdict.OK and not is_compiler_fault(trial)
        ]
        assert not wrong, "\n".join(wrong)

    def test_the_sample_is_as_large_as_promised_and_mostly_compiles(
        self, judged: list[tuple[Problem, Config, Trial]]
    ) -> None:
        crashed = [(p, c) for p, c, trial in judged if is_compiler_fault(trial)]
        assert len(judged) - len(crashed) >= self.count * 0.97
        # A vendor's compiler may fail on a kernel; more than a few are our fault.
        assert len(crashed) <= 0.03 * self.count, crashed
        print(f"\n{self.backend}: {len(judged)} judged", Counter(trial.verdict.value for _, _, trial in judged))

    def test_the_sample_leaves_out_no_strategy(
        self, device: Device, judged: list[tuple[Problem, Config, Trial]]
    ) -> None:
        dialect = backend_named(self.backend).dialect
        wide = make_space(make_problem("max", "int32", N), dialect, device, {}).admitted
        for name in ("exchange", "tree", "wave", "combine", "walk", "hint", "vector"):
            seen = {getattr(config, name) for _, config, _ in judged if is_read(name, config)}
            assert set(wide[name]) <= seen, f"{name}: {set(wide[name]) - seen} was never judged"
        assert {(p.op) for p, _, _ in judged} == set(OPERATORS)

    @pytest.fixture
    def lab(self, device: Device) -> Iterator[Lab]:
        with Lab(device, make_problem("max", "float32", 100_003)) as lab:
            yield lab

    def kernel(self, lab: Lab, **knobs: object) -> Kernel:
        config = settled(dataclasses.replace(default_config(lab.problem, lab.dialect, lab.device), **knobs))
        assert not refusals(config, lab.problem, lab.dialect, lab.device)
        return render(lab.problem, config, lab.dialect, lab.device)

    def test_a_kernel_that_does_not_compile_says_why(self, lab: Lab) -> None:
        broken = dataclasses.replace(self.kernel(lab), source=self.kernel(lab).source + "\nthis is no kernel;\n")
        compiled = lab.compile(broken)
        assert compiled.binary is None
        assert compiled.verdict == Verdict.NOT_COMPILED
        assert compiled.note
        assert lab.trial(compiled, None).verdict == Verdict.NOT_COMPILED

    def test_a_compile_error_carries_log_and_source(self, device: Device, lab: Lab) -> None:
        kernel = dataclasses.replace(self.kernel(lab), source="nonsense")
        with pytest.raises(CompileError) as caught:
            backend_named(self.backend).compile(kernel, device)
        assert "nonsense" in caught.value.source
        assert caught.value.log.strip()
        assert caught.value.numbered_source().startswith("   1  nonsense")

    def test_a_wrong_kernel_is_found_out_and_costs_nothing_else(self, lab: Lab) -> None:
        right = self.kernel(lab)
        skipped = right.source.replace(
            "for (index_t i = head + tiles * TILE", "for (index_t i = n + head + tiles * TILE"
        )
        assert skipped != right.source
        trial = lab.trial(lab.compile(dataclasses.replace(right, source=skipped)), None)
        assert trial.verdict == Verdict.WRONG
        assert "max of" in trial.note
        assert lab.trial(lab.compile(right), None).verdict == Verdict.OK

    def test_a_kernel_that_never_ends_costs_only_itself(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("redtune.lab.TRIAL_LIMIT_S", 5.0)
        right = self.kernel(lab)
        assert lab.trial(lab.compile(right), None).verdict == Verdict.OK
        assert lab.trial(lab.compile(endless(right)), None).verdict == Verdict.TIMED_OUT
        assert lab.trial(lab.compile(right), None).verdict == Verdict.OK

    def test_an_illegal_access_costs_only_itself(self, lab: Lab) -> None:
        right = self.kernel(lab)
        trial = lab.trial(lab.compile(illegal(right)), None)
        assert trial.verdict == Verdict.CRASHED
        assert trial.note
        assert lab.trial(lab.compile(right), None).verdict == Verdict.OK

    def test_a_binary_of_garbage_costs_only_itself(self, lab: Lab) -> None:
        right = self.kernel(lab)
        assert lab.trial(Compiled(right, "AAAA"), None).verdict == Verdict.CRASHED
        assert lab.trial(lab.compile(right), None).verdict == Verdict.OK

    def test_finals_pair_the_finalists_and_label_them(self, lab: Lab) -> None:
        finals = lab.finals([lab.compile(self.kernel(lab)), lab.compile(self.kernel(lab, accumulators=1))], 5)
        assert [len(row) for row in finals.samples] == [5, 5]
        assert finals.labels == ("run-to-run", "run-to-run")
        assert all(s > 0 for row in finals.samples for s in row)
        assert finals.baseline or finals.baseline_absent

    def test_the_ceiling_is_not_below_what_a_kernel_reaches(self, lab: Lab) -> None:
        n_bytes = 1 << 24
        ceiling = lab.ceiling(n_bytes)
        assert 0 < ceiling.median_us < np.inf


@functools.cache
def first_device(backend: str) -> Device:
    """Device 0 of a backend, asked for once."""
    return list_devices(backend)[0]


@functools.cache
def judge_sample(device: Device, count: int) -> list[tuple[Problem, Config, Trial]]:
    """Every sampled config with its verdict, each problem in one lab."""
    by_problem: dict[Problem, list[Config]] = defaultdict(list)
    for problem, config in sampled(backend_named(device.backend).dialect, device, count, SEED):
        by_problem[problem].append(config)
    rows = []
    for problem, configs in by_problem.items():
        with Lab(device, problem) as lab:
            ahead = [lab.compile_ahead(render(problem, c, lab.dialect, device)) for c in configs]
            compiled = [future.result() for future in ahead]
            rows += [(problem, c.kernel.config, lab.trial(c, None)) for c in compiled]
    return rows


def is_compiler_fault(trial: Trial) -> bool:
    """A vendor's compiler that dies or does not end is its own fault; a kernel that it refuses is ours."""
    return trial.micros is None and trial.note.startswith(("the compiler crashed", "the compiler took longer"))


def _with_statement(kernel: Kernel, statement: str) -> Kernel:
    mark = "    // 4. The blocks meet."
    assert mark in kernel.source
    return dataclasses.replace(kernel, source=kernel.source.replace(mark, f"    {statement}\n{mark}"))


def _global(kernel: Kernel) -> str:
    return "__global " if kernel.dialect == "opencl" else ""


def endless(kernel: Kernel) -> Kernel:
    """The kernel with a wait for a value that never comes."""
    return _with_statement(kernel, f"while (*(volatile {_global(kernel)}unsigned int *)counter != 77777u) {{ }}")


def illegal(kernel: Kernel) -> Kernel:
    """The kernel with a write to address 8."""
    return _with_statement(kernel, f"*(volatile {_global(kernel)}unsigned int *)8 = 1u;")
