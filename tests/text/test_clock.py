"""The clock's arithmetic and policy, on a session whose times are scripted."""

from __future__ import annotations

import functools
import itertools
import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from redtune.backends import Call, Session
from redtune.clock import (
    FEW,
    LONG_S,
    MAX_BUFFERS,
    SAMPLES,
    SHORTEST_S,
    copies_for,
    interleave,
    is_time,
    measure,
    paired_ratio,
    sampler,
    shuffled,
    summary,
)
from tests.text.kernels import target


class FakeReplay:
    def __init__(self, session: FakeSession, calls: Sequence[Call]) -> None:
        self.session, self.calls = session, calls

    def run(self) -> float:
        self.session.runs.append([call.steps[0] for call in self.calls])
        return sum(self.session.seconds() for _ in self.calls)


class FakeSession:
    """Every call takes `seconds()`; `runs` lists which calls each run held."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.seconds = seconds
        self.runs: list[list[Any]] = []

    def replay(self, calls: Sequence[Call]) -> FakeReplay:
        return FakeReplay(self, list(calls))


def scripted(seconds: float | Callable[[], float]) -> tuple[FakeSession, Session]:
    fake = FakeSession(seconds if callable(seconds) else lambda: seconds)
    return fake, cast(Session, fake)


def calls(count: int) -> list[Call]:
    return [Call((k,), ()) for k in range(count)]


# --- figures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "median", "spread"),
    [([3.0], 3.0, 0.0), ([1.0, 3.0], 2.0, 0.5), ([5.0, 1.0, 4.0, 2.0, 3.0], 3.0, 1.0), ([2.0] * 9, 2.0, 0.0)],
)
def test_summary_is_median_and_half_the_distance_of_the_quartiles(
    samples: list[float], median: float, spread: float
) -> None:
    timing = summary([s * 1e-6 for s in samples])
    assert (timing.median_us, timing.spread_us) == pytest.approx((median, spread))
    assert timing.samples == len(samples)


def test_one_outlier_moves_nothing() -> None:
    quiet = [1.0 + k * 1e-3 for k in range(11)]
    assert summary([*quiet[:-1], 1000.0]) == summary(quiet)


@pytest.mark.parametrize("rounds", [15, 41])
@pytest.mark.parametrize("ratio", [0.5, 0.97, 1.0, 2.0])
def test_the_interval_holds_the_true_ratio_19_times_in_20(ratio: float, rounds: int) -> None:
    """Noise that both share, as a machine that heats up makes, must not widen it; noise of their own may."""
    rng = random.Random(rounds)
    times, hits = 400, 0
    for _ in range(times):
        drift = [rng.uniform(1, 2) for _ in range(rounds)]
        other = [d * rng.lognormvariate(0, 0.03) for d in drift]
        mine = [ratio * d * rng.lognormvariate(0, 0.03) for d in drift]
        middle, low, high = paired_ratio(mine, other)
        assert low <= middle <= high
        assert (low, high) == pytest.approx((ratio, ratio), rel=0.2)
        hits += low <= ratio <= high
    assert hits >= 0.93 * times


def test_a_ratio_is_of_the_same_round() -> None:
    assert paired_ratio([1.0, 20.0, 300.0], [2.0, 40.0, 600.0]) == (0.5, 0.5, 0.5)


def test_rounds_without_a_partner_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="shorter"):
        paired_ratio([1.0, 2.0], [1.0])


# --- order ------------------------------------------------------------------------------------------------------------


def test_turns_come_in_another_order_each_time() -> None:
    """So that nothing always runs behind the same other thing, which would favour or harm it."""
    order: list[str] = []

    def one(name: str) -> Callable[[], float]:
        def sample() -> float:
            order.append(name)
            return float(len(order))

        return sample

    rounds = 41
    rows = interleave([one("a"), one("b"), one("c")], rounds)
    assert [len(row) for row in rows] == [rounds] * 3
    assert all(set(order[3 * k : 3 * k + 3]) == set("abc") for k in range(rounds))
    assert all(order[int(at) - 1] == name for name, row in zip("abc", rows, strict=True) for at in row)
    before = Counter(itertools.pairwise(order))
    shares = [before[a, b] / rounds for a in "abc" for b in "abc" if a != b]
    assert min(shares) > 0.2
    assert interleave([one("x")], 3) == [[float(3 * rounds + k) for k in (1, 2, 3)]]


@pytest.mark.parametrize(
    ("cache", "memory", "data", "is_cold", "copies"),
    [
        (100, 0, 10, True, 40),
        (100, 0, 10, False, 1),
        (100, 0, 1000, True, 1),
        (101, 0, 10, True, 41),
        (0, 0, 10, True, 1),
        (1 << 30, 0, 4, True, MAX_BUFFERS),
        (100, 100, 10, True, 5),  # half of the memory
        (100, 10, 100, True, 1),
    ],
)
def test_inputs_rotate_past_the_cache_and_fit_the_memory(
    cache: int, memory: int, data: int, is_cold: bool, copies: int
) -> None:
    assert copies_for(target("cuda", cache_bytes=cache, memory_bytes=memory).device, data, is_cold) == copies


# --- samples ----------------------------------------------------------------------------------------------------------


def test_long_calls_are_samples_of_their_own_and_rotate() -> None:
    fake, session = scripted(2 * LONG_S)
    sample = sampler(session, calls(3))
    fake.runs.clear()
    assert [sample() for _ in range(6)] == [2 * LONG_S] * 6
    assert all(len(run) == 1 for run in fake.runs)
    assert sorted(run[0] for run in fake.runs) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("count", [1, 3, 64])
def test_short_calls_run_together_for_longer_than_the_step_of_the_clock(count: int) -> None:
    fake, session = scripted(1e-6)
    sample = sampler(session, calls(count))
    fake.runs.clear()
    assert sample() == pytest.approx(1e-6)
    (run,) = fake.runs
    assert len(run) * 1e-6 >= 0.999 * SHORTEST_S
    assert {run.count(k) for k in range(count)} == {len(run) // count}, "every input as often"


def test_a_call_of_no_time_at_all_ends() -> None:
    fake, session = scripted(0.0)
    assert sampler(session, calls(2))() == 0.0
    assert max(map(len, fake.runs)) <= SHORTEST_S / 1e-7 + 2


@pytest.mark.parametrize("best_us", [None, 1000.0, 500.0])
def test_a_candidate_near_the_best_is_measured_in_full(best_us: float | None) -> None:
    _, session = scripted(1e-3)
    timing = measure(session, calls(2), best_us)
    assert timing.samples == SAMPLES
    assert timing.median_us == pytest.approx(1000.0)


def test_a_slow_candidate_gets_a_few_samples() -> None:
    _, session = scripted(1e-3)
    assert measure(session, calls(2), best_us=250.0).samples == FEW


def test_a_hopeless_candidate_gets_one() -> None:
    fake, session = scripted(1e-3)
    timing = measure(session, calls(2), best_us=100.0)
    assert (timing.samples, timing.median_us, timing.spread_us) == (1, pytest.approx(1000.0), 0.0)
    assert len(fake.runs) == 1


def test_a_slow_first_call_is_warm_up_and_not_measured() -> None:
    times = iter([0.1] + [1e-3] * 1000)
    _, session = scripted(lambda: next(times))
    assert measure(session, calls(2)).median_us == pytest.approx(1000.0)


def test_a_median_of_noise_is_near_the_truth() -> None:
    rng = random.Random(3)
    _, session = scripted(lambda: 1e-3 * rng.lognormvariate(0, 0.05))
    rows = [measure(session, calls(2)) for _ in range(50)]
    assert statistics.median(t.median_us for t in rows) == pytest.approx(1000.0, rel=0.02)
    assert all(0 < t.spread_us < 100 for t in rows)


# --- a clock that lies ------------------------------------------------------------------------------------------------

LIES = [0.0, -1e-3, math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("lie", LIES)
def test_a_clock_that_always_lies_measures_nothing(lie: float) -> None:
    _, session = scripted(lie)
    timing = measure(session, calls(2))
    assert not is_time(timing.median_us)


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("turn", [3, 5, 9])
def test_a_clock_that_lies_once_measures_nothing(lie: float, turn: int) -> None:
    """A median would hide it, and NaN sorts anywhere."""
    times = iter([1e-3] * turn + [lie] + [1e-3] * 1000)
    _, session = scripted(lambda: next(times))
    assert not is_time(measure(session, calls(2)).median_us)


@pytest.mark.parametrize("lie", LIES)
def test_a_first_call_without_a_time_is_no_reason_to_run_for_ever(lie: float) -> None:
    times = iter([1e-6, lie] + [1e-6] * 100_000)
    fake, session = scripted(lambda: next(times))
    assert sampler(session, calls(2))() == pytest.approx(1e-6)
    assert max(map(len, fake.runs)) <= SHORTEST_S / 1e-7 + 2


def test_samplers_of_one_thing_take_turns_in_shuffled_order() -> None:
    each = {float(name): functools.partial(float, name) for name in range(8)}
    sample = shuffled(list(each.values()), seed=3)
    rounds = [[sample() for _ in each] for _ in range(5)]
    assert all(sorted(row) == list(each) for row in rounds)  # every one as often as any other
    assert len({tuple(row) for row in rounds}) > 1
