"""How the threads of a block meet, step by step: who merges, which states in shared memory it reads and writes, and
what it waits for.

Worked out from the plan's `Meet`, from which the templates of `exchange/` and `tree/` write the text; a test runs the
emitted text with every access written down, and compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from redtune.config import WITH_TAIL, Config
from redtune.errors import UsageError
from redtune.plan import Meet, halvings

BANKS = 32  # of shared memory, each a word of four bytes wide
Slots = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """Something that some threads of a block do at once. `reads` and `writes` are accesses to the states in shared
    memory: the slot of each of the `threads`, in their order. `is_merge` says that each thread merges two states;
    `before` and `after` what is waited for: "block" for a barrier of all threads, "tail" for the lanes of a tail."""

    threads: tuple[int, ...]
    is_merge: bool
    reads: tuple[Slots, ...] = ()
    writes: tuple[Slots, ...] = ()
    before: str = ""
    after: str = ""

    def waves(self, lanes: int) -> int:
        """How many hardware waves of so many lanes run it."""
        return len({thread // lanes for thread in self.threads})

    def serialised(self, lanes: int, words: int = 1) -> int:
        """The same, each as often as the worst of its accesses splits: lanes of a wave that want different words of
        one bank take turns. A state is so many words long."""
        return sum(max((ways(part, words) for part in parts), default=1) for parts in self._by_wave(lanes))

    def _by_wave(self, lanes: int) -> Iterator[list[list[int]]]:
        """The accesses of each wave."""
        for wave in sorted({thread // lanes for thread in self.threads}):
            own = [k for k, thread in enumerate(self.threads) if thread // lanes == wave]
            yield [[slots[k] for k in own] for slots in (*self.reads, *self.writes)]


def ways(slots: Sequence[int], words: int) -> int:
    """How many turns one access takes: the most different words that one bank is asked for."""
    wanted = {slot * words + word for slot in slots for word in range(words)}
    banks = [word % BANKS for word in wanted]
    return max(banks.count(bank) for bank in set(banks))


def steps_of(meet: Meet, config: Config, lanes: int) -> list[Step]:
    """The steps in which a whole block meets, where `lanes` of it meet by shuffles. Raises UsageError for an exchange
    whose steps are instructions of one device."""
    if config.exchange == "lds":
        return list(_in_memory(meet, config))
    if config.exchange == "shuffle":
        return list(_by_shuffles(meet, config, lanes))
    raise UsageError(f"exchange {config.exchange} meets by instructions of its device, and nothing of it is counted")


def _in_memory(meet: Meet, config: Config) -> Iterator[Step]:
    every = tuple(range(meet.team))
    yield Step(every, False, writes=(every,), after="block")
    if config.tree not in WITH_TAIL:
        yield from _looped(meet.team, config.tree)
        yield Step(every, False, reads=(every,))
        return
    for step in meet.block_steps:
        is_last = step == meet.block_steps[-1]
        yield _halved(step, "" if is_last and not meet.is_wide else "block")
    tail = tuple(range(min(config.wave, meet.team)))
    yield Step(tail, False, reads=(tail,))
    for step in meet.tail_steps:
        threads = tuple(range(step))
        yield Step(threads, True, (tuple(t + step for t in threads),), (threads,), before="tail")


def _looped(team: int, tree: str) -> Iterator[Step]:
    """Steps of a loop with a barrier in it."""
    if tree == "sequential":
        yield from (_halved(step, "block") for step in halvings(team))
        return
    for step in reversed(halvings(team)):
        to = tuple(range(0, team, 2 * step))
        threads = to if tree == "interleaved" else tuple(range(len(to)))
        yield Step(threads, True, (to, tuple(slot + step for slot in to)), (to,), after="block")


def _halved(step: int, after: str) -> Step:
    threads = tuple(range(step))
    return Step(threads, True, (threads, tuple(t + step for t in threads)), (threads,), after=after)


def _by_shuffles(meet: Meet, config: Config, lanes: int) -> Iterator[Step]:
    every = tuple(range(meet.team))
    for _ in meet.lane_offsets:
        yield Step(every, True)
    heads = tuple(range(0, meet.team, config.wave))
    if meet.joins > 1:
        firsts = tuple(range(0, meet.team, lanes))
        yield Step(firsts, False, writes=(tuple(t // lanes for t in firsts),), after="tail")
        for other in range(1, meet.joins):
            yield Step(heads, True, (tuple(t // lanes + other for t in heads),))
    if meet.tails == 1:
        return
    before = "block" if meet.joins > 1 else ""
    yield Step(heads, False, writes=(tuple(t // config.wave for t in heads),), before=before, after="block")
    if meet.by_one:
        yield Step((0,), False, reads=tuple((tail,) for tail in range(meet.tails)))
        for offset in meet.tail_offsets:
            yield from [Step((0,), True)] * min(offset, meet.tails - offset)
        return
    first = tuple(range(min(lanes, meet.team)))
    waiting = first[: meet.tails]
    yield Step(waiting, False, reads=(waiting,))
    for _ in meet.tail_offsets:
        yield Step(first, True)
