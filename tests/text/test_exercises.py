"""The exercises of courses on reductions that need no device: a divergent barrier, the arithmetic of an analysis."""

from __future__ import annotations

import re

import pytest

from redtune.counting import weigh
from redtune.outcome import gigabytes_per_second
from redtune.plan import read_bytes
from redtune.problems import make_problem
from redtune.render import render
from redtune.rungs import config_of, rungs
from tests.text.kernels import ARCHS, problem, target
from tests.text.reading import BARRIER, complaints

# --- the barrier inside the branch ------------------------------------------------------------------------------------

IN_BRANCH = r"(if \(thread < s\)\n)( +)(slots\[thread\] = merge\(.*\);\n) +(\S*(?:barrier|__syncthreads)\(.*?\);)"


@pytest.mark.parametrize("dialect", ARCHS)
def test_a_barrier_in_a_branch_is_read_in_the_text(dialect: str) -> None:
    on = target(dialect)
    p = problem("max")
    source = render(p, config_of(rungs()[2], 256, p, on.dialect), on.dialect, on.device).source
    assert complaints(source) == []
    broken, found = re.subn(IN_BRANCH, r"if (thread < s) {\n\2\3\2\4\n        }", source, count=1)
    assert found == 1
    assert any("not every thread comes to" in said for said in complaints(broken))


@pytest.mark.parametrize("dialect", ARCHS)
def test_no_rung_has_a_barrier_in_a_branch(dialect: str) -> None:
    on = target(dialect)
    p = problem("max")
    for rung in rungs():
        source = render(p, config_of(rung, 256, p, on.dialect), on.dialect, on.device).source
        assert BARRIER.search(source)
        assert complaints(source) == []


# --- the analysis -----------------------------------------------------------------------------------------------------

N = 1 << 24


def test_a_reduction_reads_four_bytes_for_each_addition() -> None:
    p = make_problem("sum", "float32", N)
    assert read_bytes(p) == 4 * N == 67_108_864
    assert weigh(p, 256).work / read_bytes(p) == pytest.approx(0.25, rel=1e-6), "far left of any ridge"


def test_the_floor_is_bytes_over_bandwidth_and_the_share_its_inverse() -> None:
    """At 4800 GB/s 2^24 float32 take 13.98 us at least; 18.6 us are 75 % of that, whatever the first rung took."""
    data = read_bytes(make_problem("sum", "float32", N))
    floor_us = data / 4800e9 * 1e6
    assert floor_us == pytest.approx(13.98, abs=0.01)
    assert gigabytes_per_second(data, floor_us) == pytest.approx(4800)
    assert gigabytes_per_second(data, 18.6) / 4800 == pytest.approx(floor_us / 18.6) == pytest.approx(0.752, abs=0.001)


def test_work_dwarfs_depth_on_a_hundred_thousand_lanes() -> None:
    """Brent: 168 steps of work and 24 of depth, so that a shallower tree gains nothing."""
    model = weigh(make_problem("sum", "float32", N), 256)
    assert model.work // 100_000 == 167
    assert model.depth == 24
    assert model.work / 100_000 / model.depth == pytest.approx(7, abs=0.1)


def test_blocks_are_what_the_cascade_saves() -> None:
    """One tree for each 256 elements, for each 512, and then for each block that the device keeps."""
    on = target("cuda", compute_units=132)
    blocks = [row.blocks for row in weigh(make_problem("sum", "float32", N), 256, on.device).rows]
    assert blocks[:7] == [65536, 65536, 65536, 32768, 32768, 32768, 8 * 132]
