"""How the lanes of an AMD wave meet in registers, without shared memory: one step after the other, by the wave's size.

A wave is cut into rows of 16 lanes. Within a row the controls of DPP swap lanes, so that after four steps every lane of
a row has the row's state. Across rows an architecture has what it has: CDNA hands the last lane of a row on to the next
row, RDNA swaps two rows, and both read one lane into a scalar register.

After the last step the first of so many lanes holds the state of them all, each counted once. Other lanes may hold what
they like: where a row has none before it, a broadcast brings zeros, and nobody who counts reads them afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ROW = 16


@dataclass(frozen=True, slots=True)
class Move:
    """One step: every lane fetches a state by the function `fetch`, which takes constants as `arguments`, and merges it
    with its own, or takes it as it is."""

    fetch: str
    arguments: str
    is_merged: bool
    help: str


@dataclass(frozen=True, slots=True)
class Fetch:
    """A function that gives every lane a word of another one, as HIP spells it: the `constants` it takes, with their
    types and without, and its lines, which read the lane's own word `x`."""

    name: str
    constants: str
    names: str
    lines: tuple[str, ...]
    help: str


FETCHES = {
    fetch.name: fetch
    for fetch in (
        Fetch(
            "dpp",
            "int CONTROL",
            "CONTROL",
            ("return __builtin_amdgcn_update_dpp(0, x, CONTROL, 0xf, 0xf, true);",),
            "Of the lane that a control of DPP names; zeros where there is none.",
        ),
        Fetch(
            "other_row",
            "",
            "",
            ("return (int)__builtin_amdgcn_permlanex16(0u, (unsigned int)x, 0u, 0u, false, true);",),
            "Of the first lane of the other row of two; all lanes of a row have the same.",
        ),
        Fetch(
            "from_lane",
            "int LANE",
            "LANE",
            ("return __builtin_amdgcn_readlane(x, LANE);",),
            "Of one lane of the wave, for all of them.",
        ),
        Fetch(
            "from_lane_of_half",
            "int HALF, int FIRST, int SECOND",
            "HALF, FIRST, SECOND",
            (
                "const int first = __builtin_amdgcn_readlane(x, FIRST);",
                "const int second = __builtin_amdgcn_readlane(x, SECOND);",
                "return threadIdx.x & HALF ? second : first;",
            ),
            "Of one lane of the half of the wave that the thread is in.",
        ),
    )
}

# Controls of DPP by their numbers in the instruction. Every lane of a row has a source in its row.
_IN_ROW = (
    Move("dpp", "0xb1", True, "quad_perm:[1,0,3,2]: the other lane of a pair"),
    Move("dpp", "0x4e", True, "quad_perm:[2,3,0,1]: the other pair of four"),
    Move("dpp", "0x141", True, "row_half_mirror: the other four of eight"),
    Move("dpp", "0x140", True, "row_mirror: the other eight of a row"),
)
_BROADCAST_15 = Move("dpp", "0x142", True, "row_bcast:15: the row before, in rows 1 and 3")
_BROADCAST_31 = Move("dpp", "0x143", True, "row_bcast:31: the first two rows, in row 3")
_LAST_LANE = Move("from_lane", "63", False, "the last lane has all")
_OTHER_ROW_OF_HALF = Move("from_lane_of_half", "32, 16, 48", True, "the second row of this half of the wave")
_OTHER_ROW = Move("other_row", "", True, "the other row of two")
_OTHER_HALF = Move("from_lane", "32", True, "the second half of the wave")


def moves_of(width: int, is_cdna: bool) -> tuple[Move, ...]:
    """The steps in which groups of `width` neighbouring lanes meet, rounded up to a power of two."""
    steps = [move for k, move in enumerate(_IN_ROW) if 1 << k < width]
    if width > ROW and not is_cdna:
        steps.append(_OTHER_ROW)
        steps += [_OTHER_HALF] if width > 2 * ROW else []
    elif width > 2 * ROW:
        steps += [_BROADCAST_15, _BROADCAST_31, _LAST_LANE]
    elif width > ROW:
        steps.append(_OTHER_ROW_OF_HALF)
    return tuple(steps)


def fetches_of(moves: Iterable[Move]) -> tuple[Fetch, ...]:
    """The functions that some steps need, each once."""
    return tuple(FETCHES[name] for name in dict.fromkeys(move.fetch for move in moves))
