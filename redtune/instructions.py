"""What the disassembly of an AMD kernel says: how wide it loads and how it waits, how lanes, waves and blocks meet."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# How lanes read each other's registers. Those of the first kind cost an ordinary instruction, those that begin with ds_
# go through the unit of shared memory.
LANE_KINDS = {
    "dpp": r"v_\w+_dpp",
    "permlane": r"v_permlane\w+",
    "readlane": r"v_readlane_b32",
    "swizzle": r"ds_swizzle_b32",
    "permute": r"ds_permute_b32",
    "bpermute": r"ds_bpermute_b32",
}
THROUGH_LDS = ("swizzle", "permute", "bpermute")
# gfx11 and later say b128 where earlier ones say dwordx4, load and store where they say read and write.
LOAD = re.compile(r"(?:global|flat|buffer)_load_(?!lds)(\w+)")
LDS_READ, LDS_WRITE = re.compile(r"ds_(?:read|load)\w*"), re.compile(r"ds_(?:write|store)\w*")
BARRIER = re.compile(r"s_barrier(?:_signal)?")  # gfx12 parts it: a signal, and a wait of its own
WRITE_BACK = re.compile(r"buffer_wbl2|global_wb")
INVALIDATE = re.compile(r"buffer_wbinvl1\w*|buffer_inv|buffer_gl[01]_inv|buffer_invl2|global_inv")
# What only an acquire from all blocks needs, once each time: the caches that a workgroup does not share.
DEVICE_ACQUIRE = re.compile(
    r"buffer_wbinvl1_vol|buffer_inv\b.*\bsc1|buffer_gl1_inv|global_inv\b.*scope:SCOPE_(?:DEV|SYS)"
)
DPP_CONTROL = re.compile(
    r"\b(?:quad_perm|dpp8):\[|\b(?:row|wave)_(?:sh[lr]|ro[lr]|bcast|newbcast|share|xmask)\b|\brow_(?:half_)?mirror\b"
)

_LABEL = re.compile(r"^[0-9a-f]+ <(\w+)>:$")
_LINE = re.compile(r"^\s+([a-z]\w+)\s*(.*?)\s*(?://\s*([0-9A-F]+):.*?(?:<\w+?(?:\+0x([0-9a-f]+))?>)?)?$")
_COUNTER = re.compile(r"vmcnt\((\d+)\)")
_BITS = {"byte": 8, "short": 16, "dword": 32}
_WIDE = 8  # where the count of loads lies in an operand that holds two counts


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line. `at` is its address, `to` that of a branch's target, both None where the text has none."""

    name: str
    operands: str
    at: int | None = None
    to: int | None = None

    @property
    def text(self) -> str:
        """As it is written."""
        return f"{self.name} {self.operands}"


@dataclass(frozen=True, slots=True)
class Reading:
    """What the instructions of one entry point are.

    `loads` counts loads from memory by their width in bits. `waits` are the counts of loads still under way that the
    main loop waits for, in its order, and `loads_in_flight` the most that are under way there at once. `lanes` counts
    instructions by which lanes meet, by kind. `fences` counts acquires from all blocks, `invalidations` and
    `write_backs` the instructions on caches that they and barriers consist of.
    """

    loads: dict[int, int]
    waits: tuple[int, ...]
    loads_in_flight: int
    lanes: dict[str, int]
    lds_reads: int
    lds_writes: int
    barriers: int
    fences: int
    invalidations: int
    write_backs: int

    @property
    def widest_load(self) -> int:
        """In bits; 0 where nothing is loaded."""
        return max(self.loads, default=0)

    @property
    def counts_down(self) -> bool:
        """Whether the main loop works on the first load while later ones are under way."""
        return any(later < earlier for earlier, later in itertools.pairwise(self.waits))


def parse(text: str, entry: str) -> list[Instruction]:
    """The instructions of one entry point, from the text of llvm-objdump; of all, where the text names none."""
    found: list[Instruction] = []
    start, inside = 0, "<" not in text or f"<{entry}>:" not in text
    for line in text.splitlines():
        if label := _LABEL.match(line):
            inside = label[1] == entry
            start = int(line.split()[0], 16)
        elif inside and (match := _LINE.match(line)):
            name, operands, at, offset = match.groups()
            is_branch = re.match(r"s_c?branch", name)
            to = start + int(offset or "0", 16) if is_branch and at else None
            found.append(Instruction(name, operands, int(at, 16) if at else None, to))
    return found


def read(text: str, entry: str) -> Reading:
    """What the disassembly says of one entry point."""
    code = parse(text, entry)

    def count(pattern: re.Pattern[str]) -> int:
        return sum(bool(pattern.fullmatch(line.name)) for line in code)

    main = main_loop(code)
    lanes = {kind: count(re.compile(pattern)) for kind, pattern in LANE_KINDS.items() if kind != "dpp"}
    return Reading(
        loads=dict(sorted(Counter(filter(None, map(load_bits, code))).items(), reverse=True)),
        waits=tuple(n for n in map(load_wait, main) if n is not None),
        loads_in_flight=most_in_flight(main),
        lanes={"dpp": sum(map(is_dpp, code)), **lanes},
        lds_reads=count(LDS_READ),
        lds_writes=count(LDS_WRITE),
        barriers=count(BARRIER),
        fences=sum(bool(DEVICE_ACQUIRE.match(line.text)) for line in code),
        invalidations=count(INVALIDATE),
        write_backs=count(WRITE_BACK),
    )


def is_dpp(line: Instruction) -> bool:
    """Whether an operand comes from another lane: by the name, or by a control where the name is short."""
    return bool(re.fullmatch(LANE_KINDS["dpp"], line.name)) or (
        line.name.startswith("v_") and bool(DPP_CONTROL.search(line.operands))
    )


def load_bits(line: Instruction) -> int:
    """How wide a load from memory is, in bits; 0 for any other instruction."""
    match = LOAD.fullmatch(line.name)
    if match is None:
        return 0
    if old := re.match(r"[us]?(byte|short|dword)(?:x(\d))?", match[1]):
        return _BITS[old[1]] * int(old[2] or 1)
    new = re.search(r"[biu](\d+)$", match[1])
    return int(new[1]) if new else 0


def load_wait(line: Instruction) -> int | None:
    """How many loads may still be under way after a wait; None where it does not wait for loads."""
    if line.name == "s_waitcnt":
        match = _COUNTER.search(line.operands)
        return int(match[1]) if match else None
    if line.name == "s_wait_loadcnt":
        return int(line.operands, 0)
    return int(line.operands, 0) >> _WIDE if line.name == "s_wait_loadcnt_dscnt" else None


def most_in_flight(code: Sequence[Instruction]) -> int:
    """The most loads under way at once, from one line to the next and once more: a loop begins where it ended."""
    under_way = most = 0
    for line in itertools.chain(code, code):
        wait = load_wait(line)
        under_way = under_way + (load_bits(line) > 0) if wait is None else min(under_way, wait)
        most = max(most, under_way)
    return most


def main_loop(code: Sequence[Instruction]) -> Sequence[Instruction]:
    """The innermost loop, or else the piece without a branch, that loads the most bits: most elements come by there."""

    def loaded(piece: Sequence[Instruction]) -> int:
        return sum(map(load_bits, piece))

    return max(itertools.chain(_innermost(code), _pieces(code)), key=loaded, default=())


def _innermost(code: Sequence[Instruction]) -> Iterator[Sequence[Instruction]]:
    """The loops that hold no other: from the target of a branch backwards to the last one that goes there."""
    places = {line.at: k for k, line in enumerate(code) if line.at is not None}
    loops: dict[int, int] = {}
    for k, line in enumerate(code):
        first = places.get(line.to) if line.to is not None else None
        if first is not None and first <= k:
            loops[first] = k
    for first, last in loops.items():
        if not any(first < other <= last for other in loops):
            yield code[first : last + 1]


def _pieces(code: Sequence[Instruction]) -> Iterator[Sequence[Instruction]]:
    """What runs from end to end: between two branches or places that branches go to."""
    targets = {line.to for line in code} - {None}
    first = 0
    for k, line in enumerate(code):
        if line.at in targets:
            yield code[first:k]
            first = k
        if line.name.startswith(("s_branch", "s_cbranch")):
            yield code[first : k + 1]
            first = k + 1
    yield code[first:]
