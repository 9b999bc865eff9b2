"""The contract every backend keeps. A backend's test file inherits the suite and names the backend."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from redtune.api import make_problem
from redtune.backends import backend_named
from redtune.config import KNOBS, Config, is_read, settled
from redtune.defaults import default_config
from redtune.dtypes import DTYPES
from redtune.errors import CompileError
from redtune.lab import REPEATS, Compiled, Lab, list_devices
from redtune.operators import OPERATORS
from redtune.refusals import refusals
from redtune.render import render
from redtune.sampling import LAYOUTS, SHAPES, Demands, legal_strata, problem_of, sampled, wishes
from redtune.types import Device, Kernel, Problem, Trial, Verdict
from tests.need import need

SEED = 20
PATIENCE_S = 180.0

Judged = list[tuple[Problem, Config, Trial]]


class Contract:
    """Set `backend`, and `count`: how many valid configs are judged. `seed` chooses which."""

    backend: str
    count: int
    seed = SEED

    @pytest.fixture
    def device(self) -> Device:
        need(self.backend)
        return first_device(self.backend)

    @pytest.fixture
    def judged(self, device: Device) -> Judged:
        return judge_sample(device, self.count, self.seed)

    def test_every_sampled_config_is_right(self, judged: Judged) -> None:
        wrong = [row for row in judged if row[2].verdict != Verdict.OK and not is_compiler_fault(row[2])]
        assert not wrong, told(wrong)

    def test_the_sample_is_as_large_as_promised_and_mostly_compiles(self, judged: Judged) -> None:
        crashed = [row for row in judged if is_compiler_fault(row[2])]
        assert len(judged) - len(crashed) >= self.count * 0.97
        # A vendor's compiler may fail on a kernel; more than a few are our fault.
        assert len(crashed) <= 0.03 * self.count, told(crashed)
        print(f"\n{self.backend}: {len(judged)} judged", Counter(trial.verdict.value for _, _, trial in judged))

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_the_sample_leaves_out_no_strategy(self, layout: str, device: Device, judged: Judged) -> None:
        rows = [(problem, config) for problem, config, _ in judged if problem.layout == layout]
        seen = {(name, getattr(config, name)) for _, config in rows for name in KNOBS if is_read(name, config)}
        assert not set(wishes(layout, device)) - seen, "never judged"
        strata = legal_strata(layout, device)
        met = [row for row in strata if any(meets(config, row) for _, config in rows)]
        assert len(met) >= 0.85 * min(len(strata), len(rows)), f"{len(met)} of {len(strata)}"
        assert {problem.op for problem, _ in rows} == set(OPERATORS)
        assert {problem.dtype for problem, _ in rows} == set(DTYPES)
        assert {problem.is_compensated for problem, _ in rows} == {False, True}
        assert len({problem.result for problem, _ in rows}) >= 3

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

    @pytest.mark.parametrize("layout", LAYOUTS[1:])
    def test_a_wrong_kernel_of_a_layout_is_found_out(self, layout: str, device: Device) -> None:
        problem = problem_of("max", "float32", layout, SHAPES[layout][1])
        with Lab(device, problem) as lab:
            right = self.kernel(lab, split=1, combine="two_pass", second_block=256)
            for piece, instead, note in (
                ("i < n_here;", "i < n_here - 1;", "max of"),
                ("member == 0 && is_there", "member == 0", "beyond its result"),
                ("group < groups;", "group < groups - 1;", "max of"),
            ):
                assert piece in right.source
                broken = dataclasses.replace(right, source=right.source.replace(piece, instead))
                trial = lab.trial(lab.compile(broken), None)
                assert (trial.verdict, note in trial.note) == (Verdict.WRONG, True), (piece, trial.note)
            assert lab.trial(lab.compile(right), None).verdict == Verdict.OK

    def test_a_kernel_that_never_ends_costs_only_itself(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        right = self.kernel(lab)
        assert lab.trial(lab.compile(right), None).verdict == Verdict.OK
        compiled = lab.compile(endless(right))
        with monkeypatch.context() as patch:
            patch.setattr("redtune.lab.TRIAL_LIMIT_S", 2.0)
            assert lab.trial(compiled, None).verdict == Verdict.TIMED_OUT
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

    def test_finals_pair_the_finalists_and_label_them(self, lab: Lab, device: Device) -> None:
        finals = lab.finals([lab.compile(self.kernel(lab)), lab.compile(self.kernel(lab, accumulators=1))], 5)
        assert [len(row) for row in finals.samples] == [5, 5]
        assert [(seen.determinism, seen.runs) for seen in finals.repeats] == [("run-to-run", REPEATS[device.kind])] * 2
        assert all(seen.slowed > 0 for seen in finals.repeats)
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


class Rounds(Lab):
    """A lab that goes from problem to problem, so that its processes start once."""

    def judge(self, pairs: Iterable[tuple[Problem, Config]]) -> Judged:
        """The verdict on every config, while the next ones are compiled."""
        made = [(p, self.compile_ahead(render(p, c, self.dialect, self.device))) for p, c in pairs]
        rows = []
        for problem, future in made:
            compiled = future.result()
            self.turn_to(problem)
            rows.append((problem, compiled.kernel.config, self.trial(compiled, None)))
        return rows


@functools.cache
def judge_sample(device: Device, count: int, seed: int) -> Judged:
    """Every sampled config with its verdict. What is right counts here, however long a busy machine takes."""
    with pytest.MonkeyPatch.context() as patch, Rounds(device, make_problem("max"), is_cold=False) as rounds:
        patch.setattr("redtune.lab.TRIAL_LIMIT_S", PATIENCE_S)
        patch.setattr("redtune.lab.COMPILE_LIMIT_S", PATIENCE_S)
        return rounds.judge(sampled(device, count, seed))


def told(rows: Judged) -> str:
    """A line for each config and what became of it."""
    return "\n".join(f"{trial.verdict} {trial.note}: {problem} {config}" for problem, config, trial in rows)


def meets(config: Config, demands: Demands) -> bool:
    """Whether every knob demanded has an effect in a config, and one of the values demanded."""
    return all(is_read(name, config) and getattr(config, name) in values for name, values in demands.items())


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
