"""How lanes meet in registers on AMD GPUs. No such GPU is at hand, so the emitted steps are followed by hand, lane by
lane, as the instruction sets define them; and what clang makes of them is read.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from redtune.amdgpu import KernelResources, describe, disassemble
from redtune.backends import backend_named
from redtune.config import Config, choices, settled, team_of
from redtune.defaults import default_config
from redtune.dtypes import DTYPES, dtype_named
from redtune.instructions import Instruction, Reading, is_dpp, load_bits, parse, read
from redtune.lanes import FETCHES, moves_of
from redtune.plan import entry_names, make_plan, second_team
from redtune.types import Kernel, Problem
from tests.need import need
from tests.text.kernels import LAYOUTS, PAIRS, Target, config, problem, reasons, rendered, target

ROW = 16


@dataclass(frozen=True)
class Held:
    """Of which threads a state knows, and which of them it counts more than once, a bit for each."""

    known: int = 0
    twice: int = 0

    def __add__(self, other: Held) -> Held:
        return Held(self.known | other.known, self.twice | other.twice | self.known & other.known)


def of(threads: range) -> Held:
    """Each of some threads once."""
    return Held(((1 << len(threads)) - 1) << threads.start if threads else 0)


def each(count: int) -> list[Held]:
    """What so many threads hold at first: themselves."""
    return [of(range(thread, thread + 1)) for thread in range(count)]


GARBAGE = of(range(4096, 4097))  # what no lane should have read


def dpp_source(control: int, lane: int) -> int | None:
    """The lane that a lane reads, by the tables of AMD's manuals (Vega and RDNA 2, "DPP"); None where there is none."""
    row, place = lane - lane % ROW, lane % ROW
    if control <= 0xFF:
        return lane - lane % 4 + (control >> 2 * (lane % 4) & 3)
    if 0x101 <= control <= 0x10F:  # row_shl
        return lane + (control & 15) if place + (control & 15) < ROW else None
    if 0x111 <= control <= 0x11F:  # row_shr
        return lane - (control & 15) if place >= (control & 15) else None
    if control == 0x140:  # row_mirror
        return row + ROW - 1 - place
    if control == 0x141:  # row_half_mirror
        return lane - lane % 8 + 7 - lane % 8
    if control == 0x142:  # row_bcast:15, CDNA only
        return row - 1 if row else None
    if control == 0x143:  # row_bcast:31, CDNA only
        return 31 if lane >= 32 else None
    raise AssertionError(f"the control {control:#x} is unknown")


@dataclass(frozen=True)
class Step:
    """A line of a meeting: which function fetches, with which constants, and whether its state is merged."""

    fetch: str
    numbers: tuple[int, ...]
    is_merged: bool


def follow(lanes: Sequence[Held], active: Sequence[bool], steps: Sequence[Step], is_cdna: bool) -> list[Held]:
    """What the lanes of one wave hold after some steps. A lane that is not active gives zeros, or an old register."""
    held = list(lanes)

    def at(lane: int | None) -> Held:
        return held[lane] if lane is not None and lane < len(held) and active[lane] else GARBAGE

    for step in steps:
        if step.fetch == "dpp":
            assert is_cdna or step.numbers[0] < 0x142, "RDNA has no broadcasts between rows"
            fetched = [at(dpp_source(step.numbers[0], lane)) for lane in range(len(held))]
        elif step.fetch == "other_row":
            assert not is_cdna, "CDNA swaps no rows"
            fetched = [at((lane ^ ROW) - lane % ROW) for lane in range(len(held))]
        elif step.fetch == "from_lane":
            fetched = [at(step.numbers[0])] * len(held)
        else:
            assert step.fetch == "from_lane_of_half"
            bit, first, second = step.numbers
            fetched = [at(second if lane & bit else first) for lane in range(len(held))]
        merged = [mine + new if step.is_merged else new for mine, new in zip(held, fetched, strict=True)]
        held = [new if is_on else old for new, old, is_on in zip(merged, held, active, strict=True)]
    return held


def steps_of(width: int, is_cdna: bool) -> list[Step]:
    return [
        Step(move.fetch, tuple(int(n, 0) for n in move.arguments.split(",") if n), move.is_merged)
        for move in moves_of(width, is_cdna)
    ]


@pytest.mark.parametrize(("is_cdna", "wave"), [(True, 64), (False, 32), (False, 64)])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 6, 8, 12, 16, 32, 64])
def test_every_lane_reaches_the_first_one_once(width: int, is_cdna: bool, wave: int) -> None:
    if width > wave:
        assert not is_cdna
        return
    rounded = 1 << (width - 1).bit_length()
    held = follow(each(wave), [True] * wave, steps_of(width, is_cdna), is_cdna)
    for first in range(0, wave, rounded):
        assert held[first] == of(range(first, first + rounded))


@pytest.mark.parametrize("width", [2, 4, 8, 16, 32])
def test_half_a_wave_meets_alone(width: int) -> None:
    """A tail of 32 lanes on CDNA: the other half may be somewhere else, or never there."""
    for half in (0, 32):
        active = [half <= lane < half + 32 for lane in range(64)]
        held = follow(each(64), active, steps_of(width, True), True)
        for first in range(half, half + 32, width):
            assert held[first] == of(range(first, first + width))


def test_the_follower_sees_faults() -> None:
    """Steps that leave lanes out, count them twice, or read what is not there."""
    start, active, whole = each(64), [True] * 64, of(range(64))
    good = steps_of(64, True)
    for k in range(len(good)):
        assert follow(start, active, good[:k] + good[k + 1 :], True)[0] != whole
    assert follow(start, active, [*good[:3], *good[2:]], True)[0] != whole
    shifted = [Step("dpp", (0x111,), True)]  # the first lane of a row has none before it
    assert follow(start, active, shifted, True)[0].known & GARBAGE.known
    assert follow(start, [lane < 32 for lane in range(64)], good, True)[0].known & GARBAGE.known


# --- whole meetings, as they are emitted ------------------------------------------------------------------------------


def emitted(source: str, name: str) -> tuple[list[Step], list[Step], int]:
    """The steps of a meeting before and after the tails left their states, and how many tails that are."""
    body = re.search(rf"State {name}\(State state, State \*slots\) \{{\n(.*?)\n\}}", source, re.DOTALL)
    assert body is not None
    found: tuple[list[Step], list[Step]] = ([], [])
    after, held = 0, 0
    for line in body[1].splitlines():
        if "__syncthreads" in line:
            after = 1
        elif match := re.match(r" +state = (merge\(state, )?(\w+)(?:<(.+?)>)?\(state\)", line):
            if match[2] == "held":
                assert held == after, "steps come to an end before the lanes part"
                held += 1
                continue
            assert match[2] in FETCHES
            assert held == after
            numbers = tuple(int(n, 0) for n in (match[3] or "").split(",") if n)
            found[after].append(Step(match[2], numbers, match[1] is not None))
    assert held == after + 1
    tails = re.search(r"if \(lane < (\d+)\)", body[1])
    return *found, int(tails[1]) if tails else 1


def meeting(on: Target, c: Config, team: int, block: int, source: str, name: str) -> list[Held]:
    """What the first threads of all teams of a block hold after a meeting."""
    is_cdna = on.device.arch.startswith("gfx9")
    wave = on.dialect.hardware_wave(c, on.device)
    lanes = min(c.wave, wave)
    first, last, tails = emitted(source, name)
    threads = each(block)

    def through(states: list[Held], steps: list[Step], active: Sequence[bool]) -> list[Held]:
        size = -(-block // wave) * wave
        states = states + [GARBAGE] * (size - block)
        on_ = [*active, *[False] * (size - block)]
        parts = (follow(states[at : at + wave], on_[at : at + wave], steps, is_cdna) for at in range(0, size, wave))
        return list(itertools.chain(*parts))[:block]

    threads = through(threads, first, [True] * block)
    if tails > 1:
        slots = [threads[at] for at in range(0, block, c.wave)]
        active = [thread % team < lanes for thread in range(block)]
        for thread in range(block):
            if active[thread]:
                lane = thread % lanes
                threads[thread] = slots[thread // team * tails + lane] if lane < tails else Held()
        threads = through(threads, last, active)
    return [threads[at] for at in range(0, block, team)]


HIP = ("gfx942", "gfx1030", "gfx1201")


def meetings(arch: str) -> Iterator[tuple[Target, Config, Problem]]:
    """Every block, tail and team there is."""
    on = target("hip", arch)
    for wave, block in itertools.product(choices("wave"), choices("block")):
        for team in choices("team"):
            p = problem("argmax", "float64", **LAYOUTS["rows" if team else "flat"])
            c = config(exchange="dpp", wave=wave, block=block, team=team, combine="two_pass", second_block=1024)
            c = c if not team else replace(c, split=2)
            if team != 1 and settled(c) == c and not reasons(on, c, p):
                yield on, c, p


@pytest.mark.parametrize("arch", HIP)
def test_every_thread_reaches_the_first_one_of_its_team_once(arch: str) -> None:
    seen = 0
    for on, c, p in meetings(arch):
        source, team = rendered(on, c, p).source, team_of(c)
        wanted = [of(range(at, at + team)) for at in range(0, c.block, team)]
        assert meeting(on, c, team, c.block, source, "meet_block") == wanted, c
        shared = second_team(p, c)
        wanted = [of(range(at, at + shared)) for at in range(0, c.second_block, shared)]
        assert meeting(on, c, shared, c.second_block, source, "meet_second") == wanted, c
        seen += 1
    assert seen > 60


def test_every_state_goes_word_by_word() -> None:
    """Each field in as many words as it has, by every function that fetches."""
    on = target("hip", "gfx1100")
    for op, dtype in PAIRS:
        p = problem(op, dtype)
        c = config(exchange="dpp", wave=64)
        if reasons(on, c, p):
            continue
        source = rendered(on, c, p).source
        state = re.search(r"typedef struct \{\n([^{}]*)\} State;", source)
        assert state is not None
        fields = re.findall(r"    ([\w ]+?) (\w+);", state[1])
        for name in ("dpp", "other_row", "from_lane"):
            body = re.search(rf"State {name}\(State s\) \{{\n(.*?)\n\}}", source, re.DOTALL)
            assert body is not None
            for type_, field in fields:
                words = 2 if type_ in ("double", "long long", "unsigned long long") else 1
                line = next(line for line in body[1].splitlines() if line.startswith(f"    s.{field} = "))
                assert line.count(f"{name}_word") == words, line
                assert f"__builtin_bit_cast({type_}, " in line
            assert body[1].count("s.") >= len(fields)


def test_the_other_dialects_know_nothing_of_it() -> None:
    for name in ("cuda", "opencl"):
        on = target(name)
        assert [reason for reason in reasons(on, config(exchange="dpp"), problem()) if "AMD" in reason]
        assert on.dialect.moves(config(exchange="dpp"), on.device, 32) == ()
    on = target("hip")
    assert on.dialect.moves(config(), on.device, 32) == ()
    assert make_plan(problem(), config(exchange="dpp"), on.dialect, on.device)


# --- what clang makes of it -------------------------------------------------------------------------------------------

PARTS = re.compile(r"v_cmpx\w*|s_\w*saveexec\w*|s_c?branch\w*")


def compiled(arch: str, c: Config, p: Problem) -> tuple[KernelResources, Reading, list[Instruction]]:
    backend = backend_named("hip")
    on = target("hip", arch)
    kernel: Kernel = rendered(on, c, p)
    binary = backend.compile(kernel, on.device)
    entry = entry_names(p, c).main
    text = disassemble(binary)
    taken = next(found for found in describe(binary) if found.name == entry)
    return taken, read(text, entry), parse(text, entry)


@pytest.mark.parametrize(
    ("arch", "wave"), [("gfx90a", 64), ("gfx942", 32), ("gfx1030", 32), ("gfx1100", 64), ("gfx1201", 32)]
)
@pytest.mark.parametrize(("op", "dtype"), [("max", "float32"), ("argmax", "float64")])
def test_a_wave_meets_in_registers_alone(arch: str, wave: int, op: str, dtype: str) -> None:
    """No shared memory, no barrier; and nobody leaves, and nothing branches, while lanes meet."""
    need("clang")
    on, p = target("hip", arch), problem(op, dtype)
    start = default_config(p, on.dialect, on.device)
    c = settled(replace(start, block=wave, wave=wave, exchange="dpp", combine="two_pass", second_block=64))
    taken, seen, code = compiled(arch, c, p)
    assert (seen.lds_reads, seen.lds_writes, seen.barriers, seen.fences) == (0, 0, 0, 0)
    assert {kind for kind, count in seen.lanes.items() if count} <= {"dpp", "readlane", "permlane"}
    words = {"max": 1, "argmax": 4}[op]
    fetched = [line for line in code if is_dpp(line) or re.fullmatch(r"v_(?:permlane|readlane)\w*", line.name)]
    assert len(fetched) >= words * len(moves_of(wave, arch.startswith("gfx9")))
    first, last = (code.index(line) for line in (fetched[0], fetched[-1]))
    between = [line.text for line in code[first:last] if PARTS.fullmatch(line.name) or line.operands.startswith("exec")]
    assert between == [], "a lane that is gone has nothing to give"
    assert (taken.scratch_bytes, taken.vgpr_spills, taken.sgpr_spills) == (0, 0, 0)
    assert seen.counts_down


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_the_default_kernel_meets_so_too(arch: str) -> None:
    """A block of many waves: shared memory holds what the waves left, and one fence is enough for a block."""
    need("clang")
    on, p = target("hip", arch), problem("sum")
    c = settled(replace(default_config(p, on.dialect, on.device), exchange="dpp"))
    taken, seen, _ = compiled(arch, c, p)
    assert seen.lanes["bpermute"] == seen.lanes["swizzle"] == 0
    assert seen.fences <= 1
    assert seen.counts_down
    assert (taken.scratch_bytes, taken.vgpr_spills) == (0, 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_loads_are_as_wide_as_they_are_asked_to_be(dtype: str) -> None:
    need("clang")
    p = problem("any" if dtype == "bool" else "sum", dtype)
    vector = 16 // dtype_named(dtype).bytes
    c = config(exchange="dpp", vector=vector, items=2, accumulators=2 if vector < 8 else 4)
    _, seen, code = compiled("gfx90a", c, p)
    assert seen.widest_load == 128
    assert sum(load_bits(line) == 128 for line in code) >= c.items
