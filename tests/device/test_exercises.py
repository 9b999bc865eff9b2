"""The exercises of courses on reductions, as the judge solves them: what is broken in a rung of the ladder is found
out, on the inputs that show it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from redtune.backends import backend_named
from redtune.judge import Bench
from redtune.lab import Lab
from redtune.problems import make_problem
from redtune.render import render
from redtune.rungs import config_of, rung_numbered
from redtune.types import Kernel, Trial, Verdict
from redtune.windows import Window
from tests.device.contract import first_device
from tests.need import need

SEQUENTIAL, UNROLLED = 3, 6
LEFT_OUT = 1001  # elements, no whole number of tiles


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    need("opencl")
    with Lab(first_device("opencl"), make_problem("max", "float32", LEFT_OUT), is_cold=False) as found:
        yield found


def rung(lab: Lab, number: int, *changes: tuple[str, str], count: int = 1) -> Kernel:
    """The kernel of a rung of a max, changed in so many places."""
    problem = make_problem("max", "float32", LEFT_OUT)
    kernel = render(problem, config_of(rung_numbered(number), 256, problem, lab.dialect), lab.dialect, lab.device)
    source = kernel.source
    for pattern, put in changes:
        source, found = re.subn(pattern, put, source, count=count)
        assert found, pattern
    return replace(kernel, source=source, digest=f"changed{hash(source)}")


def judged(lab: Lab, kernel: Kernel) -> Trial:
    return lab.trial(lab.compile(kernel), None)


def test_the_rungs_are_right_as_they_are(lab: Lab) -> None:
    for number in (SEQUENTIAL, UNROLLED):
        assert judged(lab, rung(lab, number)).verdict == Verdict.OK


# --- max with the identity of a sum -----------------------------------------------------------------------------------

IDENTITY_0 = (r"s\.value = -?[^;]+INF[^;]*;|s\.value = -INFINITY;", "s.value = 0;")


def values_of(kernel: Kernel, lab: Lab, data: np.ndarray) -> float:
    """What a kernel gives for one array, run in this process."""
    backend = backend_named("opencl")
    session = backend.open(lab.device)
    bench = Bench(session, lab.dialect, lab.device, replace(kernel.problem, n=data.size), kernel.config, None)
    bench.program = session.load(kernel, backend.compile(kernel, lab.device))
    window = Window(0, 1, data.size, 1)
    bench.prepare([window], 4)
    return float(bench.results(bench.bind(session.upload(data), window), window, np.dtype(np.float32))[0])


def test_a_wrong_identity_shows_on_negative_numbers_and_a_tail_alone(lab: Lab) -> None:
    wrong = rung(lab, SEQUENTIAL, IDENTITY_0)
    trial = judged(lab, wrong)
    assert trial.verdict == Verdict.WRONG
    assert re.search(r"gave -?0\.0, not -", trial.note), trial.note
    negative = -np.arange(1, LEFT_OUT + 1, dtype=np.float32)
    assert values_of(wrong, lab, negative) == 0.0 != negative.max()
    assert values_of(wrong, lab, -negative) == LEFT_OUT, "where the maximum is positive nothing shows"
    assert values_of(rung(lab, SEQUENTIAL), lab, negative) == -1.0


# --- the missing barriers ---------------------------------------------------------------------------------------------

BARRIER = r"barrier\(CLK_LOCAL_MEM_FENCE\);"


@pytest.mark.parametrize("which", [0, 1])
def test_each_missing_barrier_is_found_out(lab: Lab, which: int) -> None:
    """The one after the load, and the one between two steps."""
    whole = rung(lab, SEQUENTIAL)
    start = whole.source.index("State meet_block")
    places = [match.span() for match in re.finditer(BARRIER, whole.source) if match.start() > start][:2]
    begin, end = places[which]
    source = whole.source[:begin] + ";" + whole.source[end:]
    trial = judged(lab, replace(whole, source=source, digest=f"without{which}"))
    assert trial.verdict == Verdict.WRONG, trial.note
