"""One timing policy for all backends: warm-up, cold caches by default, medians of many samples, finalists in turns.

Times are device seconds from the start of the first launch of a reduction to the end of its last. Cold means that the
inputs rotate through buffers larger than the last-level cache, outside the timed region.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence

from redtune.backends import Call, Replay, Session
from redtune.types import Device, Timing

# The rotating inputs together are this many times the last-level cache. Where it is a GPU's, which replaces lines as it
# likes, twice as much still finds a part of itself there: 4 MiB of it took 3.8 us instead of 4.6 on an H200.
ROTATION = {"gpu": 4, "cpu": 2}
SAMPLES = 11
MAX_BUFFERS = 64
SHORTEST_S = 1e-3  # a sample shorter than this would show the step of the event clock
LONG_S = 5e-4  # a call longer than this is a sample of its own
SAMPLES_OF_LONG = 64  # so many inputs at most rotate for long calls
MANY = 1 << 14  # calls in one sample
HOPELESS = 3.0  # a candidate this many times slower than the best is not worth exact figures
FEW = 3


def copies_for(device: Device, data_bytes: int, is_cold: bool) -> int:
    """How many inputs rotate."""
    if not is_cold:
        return 1
    wanted = -(-ROTATION[device.kind] * device.cache_bytes // max(1, data_bytes))
    fits = int(0.5 * device.memory_bytes // max(1, data_bytes)) if device.memory_bytes else wanted
    return max(1, min(wanted, MAX_BUFFERS, fits))


def sampler(session: Session, calls: Sequence[Call]) -> Callable[[], float]:
    """A function that times one sample and gives seconds per call. `calls` do the same work on rotating inputs."""
    return turning(lambda turns: session.replay([calls[k] for k in turns]), len(calls))


def turning(replay: Callable[[Sequence[int]], Replay], count: int) -> Callable[[], float]:
    """The same where `replay` prepares the work on some of the `count` inputs."""
    first = replay([0])
    first.run()
    return paced(replay, range(count), first.run())


def paced(
    replay: Callable[[Sequence[int]], Replay], turns: Sequence[int], once_s: float, most: int = MANY
) -> Callable[[], float]:
    """A function that times one sample over the inputs `turns`, given what one call takes. Short calls are timed
    together, all inputs again and again while a sample is short, but no more than `most` calls."""
    if once_s >= LONG_S:
        replays = [replay([k]) for k in turns[:SAMPLES_OF_LONG]]
        turn = 0

        def one() -> float:
            nonlocal turn
            turn += 1
            return replays[turn % len(replays)].run()

        return one
    shown = max(once_s, 1e-7) if is_time(once_s) else 1e-7  # a clock that shows no time is found out by its samples
    rounds = max(1, min(-(-int(SHORTEST_S / shown) // len(turns)), most // len(turns)))
    many = [k for _ in range(rounds) for k in turns]
    together = replay(many)
    together.run()
    return lambda: together.run() / len(many)


def measure(session: Session, calls: Sequence[Call], best_us: float | None = None) -> Timing:
    """Median and spread of one candidate."""
    once = session.replay(calls[:1]).run()
    if once > patience_s(best_us):
        return summary([once])
    sample = sampler(session, calls)
    samples = [sample() for _ in range(FEW)]
    if best_us is None or statistics.median(samples) * 1e6 < HOPELESS * best_us:
        samples += [sample() for _ in range(SAMPLES - FEW)]
    return summary(samples)


def patience_s(best_us: float | None) -> float:
    """A single run longer than this will never win, however much a first run costs extra."""
    return math.inf if best_us is None else 2 * HOPELESS * best_us * 1e-6


def is_time(seconds: float) -> bool:
    """Whether a clock can have shown it: NaN, infinities, zero and less are faults of the clock."""
    return 0.0 < seconds < math.inf


def summary(samples_s: Sequence[float]) -> Timing:
    """Median and half the distance between the quartiles, in microseconds; NaN if any of them is no time."""
    if not all(map(is_time, samples_s)):
        return Timing(math.nan, math.nan, len(samples_s))
    micros = sorted(s * 1e6 for s in samples_s)
    if len(micros) == 1:
        return Timing(micros[0], 0.0, 1)
    low, _, high = statistics.quantiles(micros, n=4, method="inclusive")
    return Timing(statistics.median(micros), (high - low) / 2, len(micros))


def loads(device: Device, rounds: int) -> int:
    """How often a finalist is loaded. One kernel loaded twice differs from itself by up to 0.4 % of 4 us on a GPU: it
    matters where its code lies. Where every round has a load of its own, the rounds are as independent as the interval
    of their ratios takes them to be."""
    return rounds if device.kind == "gpu" else 1


def interleave(samplers: Sequence[Callable[[], float]], rounds: int, seed: int = 0) -> list[list[float]]:
    """Samples of several things, taken in turns so that a drift of the machine meets all alike; in another order in
    every round, as what ran before leaves its mark on caches and clocks."""
    rows: list[list[float]] = [[] for _ in samplers]
    rng = random.Random(len(samplers) + 1000 * seed)
    for _ in range(rounds):
        for k in rng.sample(range(len(samplers)), len(samplers)):
            rows[k].append(samplers[k]())
    return rows


def shuffled(samplers: Sequence[Callable[[], float]], seed: int) -> Callable[[], float]:
    """One sampler out of several of the same thing: each once, in an order of its own, before any comes again."""
    rng = random.Random(seed)
    waiting: list[Callable[[], float]] = []

    def sample() -> float:
        if not waiting:
            waiting.extend(rng.sample(samplers, len(samplers)))
        return waiting.pop()()

    return sample


def paired_ratio(mine: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """Median of mine / other over the rounds, and the interval that holds the true median 19 times in 20.

    The interval is the sign test's: ranks of the sorted ratios, no assumption on their distribution.
    """
    ratios = sorted(a / b for a, b in zip(mine, other, strict=True))
    n = len(ratios)
    reach = int(1.96 * (n**0.5) / 2) + 1
    middle = n // 2
    return statistics.median(ratios), ratios[max(0, middle - reach)], ratios[min(n - 1, middle + reach)]
