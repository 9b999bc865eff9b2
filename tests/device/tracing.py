"""An emitted kernel with every access of its threads to shared memory written down while it runs, and what that shows.

The text between the head and the end of `meet_block` is changed in three places only: the index of a slot goes through
a function that notes it, and so does each merge and each wait. Nothing here knows how a tree is meant to go.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from redtune.backends import backend_named
from redtune.config import Config
from redtune.render import render
from redtune.types import Device, Problem

READ, WRITE, MERGE, BLOCK, TAIL = range(1, 6)
ROOM = 64  # notes of a thread
NOTED = f"""
static inline int noted(__global int *notes, int what, int slot) {{
    __global int *own = notes + get_local_id(0) * {ROOM};
    own[0]++;
    own[own[0]] = what * 65536 + slot;
    return slot;
}}
"""


def with_notes(source: str) -> str:
    """The text of a kernel that takes one argument more, a buffer for notes."""
    start = source.index("static inline State meet_block(")
    end = source.index("\n}\n", start)
    body = source[start:end].replace("__local State *slots)", "__local State *slots, __global int *notes)")
    body = re.sub(r"slots\[([^\]]+)\](?= = )", rf"slots[noted(notes, {WRITE}, \1)]", body)
    body = re.sub(r"slots\[(?!noted)([^\]]+)\]", rf"slots[noted(notes, {READ}, \1)]", body)
    body = re.sub(r"= (merge\(.*\));", rf"= (noted(notes, {MERGE}, 0), \1);", body)
    body = re.sub(r"(?<!_)(barrier\(.*?\);)", rf"noted(notes, {BLOCK}, 0); \1", body)
    body = re.sub(r"(sub_group_barrier\(.*?\);)", rf"noted(notes, {TAIL}, 0); \1", body)
    text = source[:start] + NOTED + "\n" + body + source[end:]
    text = text.replace("meet_block(state, slots);", "meet_block(state, slots, notes);")
    main = r"(__kernel void \w+\([^)]*?)\)(?=\s*\{\s*__local State slots)"
    return re.sub(main, r"\1, __global int *notes)", text, count=1)


def run_one_block(problem: Problem, config: Config, device: Device) -> tuple[list[list[tuple[int, int]]], int]:
    """What each thread of one block noted, in order, as (what, slot); and the result of the numbers 1, 2, 3, ..."""
    backend = backend_named("opencl")
    kernel = render(problem, config, backend.dialect, device)
    session: Any = backend.open(device)
    cl, context, queue = session.cl, session.context, session.queue
    program = cl.Program(context, with_notes(kernel.source)).build(options=list(kernel.flags), cache_dir=False)
    launch = next(each for each in kernel.launches if "data" in each.args)
    assert launch.grid == 1
    data, out = np.arange(1, problem.n + 1, dtype=problem.dtype), np.zeros(1, problem.dtype)
    notes = np.zeros((config.block, ROOM), np.int32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    hosts = {"data": data, "out": out, "partials": np.zeros(64, np.uint8), "notes": notes}
    given: dict[str, Any] = {name: cl.Buffer(context, flags, hostbuf=host) for name, host in hosts.items()}
    given |= {"data_first": np.int64(0), "n": np.int64(problem.n)}
    arguments = [given[name] for name in (*launch.args, "notes")]
    cl.Kernel(program, launch.entry)(queue, (config.block,), (config.block,), *arguments)
    cl.enqueue_copy(queue, notes, given["notes"])
    cl.enqueue_copy(queue, out, given["out"])
    assert notes[:, 0].max() < ROOM
    return [[divmod(int(note), 65536) for note in row[1 : row[0] + 1]] for row in notes], int(out[0])


@dataclass(frozen=True)
class Seen:
    """What the notes of a block come to, for waves of so many lanes."""

    warp_runs: int
    serialised: int
    additions: int
    barriers: int
    tail_waits: int
    lds_words: int
    active: tuple[int, ...]


def seen(threads: list[list[tuple[int, int]]], lanes: int, banks: int) -> Seen:
    """Counts from notes alone. Between two waits, the k-th merge of each thread is one step, and the k-th accesses of
    the lanes of a wave happen at once."""
    steps: dict[tuple[int, int], list[int]] = defaultdict(list)  # (waits before, which merge): who
    accesses: dict[tuple[int, int, int, int], set[int]] = defaultdict(set)  # (waits before, wave, which, what): slots
    for thread, notes in enumerate(threads):
        waits, merges, kinds = 0, 0, Counter[int]()
        for what, slot in notes:
            if what in (BLOCK, TAIL):
                waits, merges, kinds = waits + 1, 0, Counter[int]()
            elif what == MERGE:
                steps[waits, merges].append(thread)
                merges += 1
            else:
                accesses[waits, thread // lanes, kinds[what], what].add(slot)
                kinds[what] += 1
    runs = serialised = 0
    for (waits, _), who in steps.items():
        for wave in {thread // lanes for thread in who}:
            own = [slots for (w, v, _, _), slots in accesses.items() if (w, v) == (waits, wave)]
            runs += 1
            serialised += max((max(Counter(slot % banks for slot in slots).values()) for slots in own), default=1)
    every = Counter(what for notes in threads for what, _ in notes)
    first = Counter(what for what, _ in threads[0])
    barriers = {sum(what == BLOCK for what, _ in notes) for notes in threads}
    assert barriers == {first[BLOCK]}, "every thread comes to every barrier"
    return Seen(
        runs,
        serialised,
        every[MERGE],
        first[BLOCK],
        first[TAIL],
        every[READ] + every[WRITE],
        tuple(len(who) for _, who in sorted(steps.items())),
    )
