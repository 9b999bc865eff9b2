"""What can be told of a kernel by reading it: whether every thread comes to every barrier, whether shuffles name all
lanes, and whether what blocks leave for each other is there before they are counted.

Hardware may forgive each of these for years, so that no run shows them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

BARRIER = re.compile(r"__syncthreads\(\)|\bbarrier\(CLK|\bmeet_\w+\(|\bcluster_barrier\(\)|\btail_barrier\(|_sync\(")
WHOLE_BLOCK = re.compile(r"__syncthreads\(\)|\bbarrier\(CLK|\bmeet_\w+\(|\bcluster_barrier\(\)")


def functions(source: str) -> Iterator[str]:
    """The bodies of a kernel text's functions, without comments."""
    begin = depth = 0
    text = re.sub(r"//.*", "", source)
    for brace in re.finditer(r"[{}]", text):
        if brace[0] == "{":
            begin = brace.end() if depth == 0 else begin
            depth += 1
        else:
            depth -= 1
            if depth == 0 and text[:begin].rstrip("{ \n").endswith(")"):
                yield text[begin : brace.start()]


def conditions_at_barriers(body: str) -> Iterator[str]:
    """The conditions around each barrier of the whole block, braces or not."""
    around: list[str] = []
    header = ""
    for piece in re.split(r"(?<=[{};])", body):
        if WHOLE_BLOCK.search(piece):
            yield " && ".join([*around, *re.findall(r"(?:if|for|while) \(.*", piece)])
        if piece.endswith("{"):
            header += piece.strip()
            around.append(header)
        elif piece.endswith("}"):
            around.pop()
        header = piece if piece.count("(") > piece.count(")") else ""  # the parts of a for's head


# What is not the same for every thread of a block.
OF_A_THREAD = re.compile(r"\b(thread|lane|tail|member|which|is_there|row|n_here|head|get_sub_group_id)\b")


def complaints(source: str) -> list[str]:
    """What is wrong with a kernel's text."""
    found = []
    for body in functions(source):
        for condition in conditions_at_barriers(body):
            if OF_A_THREAD.search(condition):
                found.append(f"a barrier that not every thread comes to: {condition}")
        found += _counting(body)
    for mask in re.findall(r"_sync\((0x\w+)", source):
        if mask not in ("0xffffffffu", "0xffffffffffffffffull"):
            found.append(f"a shuffle among some of the lanes: {mask}")
    found += [f"a wave reads what another wrote with nothing to wait for: {read}" for read in _hasty(source)]
    if "count_up(" in source and not re.search(r"acq_rel|memory_order_acq_rel|__threadfence\(\)|ACQ_REL", source):
        found.append("blocks are counted without release and acquire")
    return found


LANES = 32  # of an NVIDIA wave, for which alone `__syncwarp` waits


def _hasty(source: str) -> Iterator[str]:
    """Reads of a slot of another wave that was written since the whole block waited."""
    is_written = False
    for line in source.splitlines():
        if re.search(r"__syncthreads\(\)|tail_barrier\(|\bbarrier\(CLK", line):
            is_written = False
        far = [read for read in re.finditer(r"slots\[thread \+ (\d+)", line) if int(read[1]) >= LANES]
        if far and is_written and "__syncwarp" in source:
            yield far[0][0]
        is_written |= bool(re.search(r"slots\[[^]]*\] = ", line))


def _counting(body: str) -> Iterator[str]:
    """A block leaves its states, comes to a barrier if several threads left them, counts itself, and comes to a barrier
    before it reads what the others left."""
    count = re.search(r"is_last = count_up\(", body)
    if not count:
        return
    stores = list(re.finditer(r"(?:if \(([^\n]*)\)[ {]*\n\s*)?partials\[[^\n]*\] = state;", body))
    behind = body[count.end() :]
    if not stores or stores[-1].start() > count.start():
        yield "a block is counted before its state is there"
        return
    between = body[stores[-1].end() : count.start()]
    if "member" in (stores[-1][1] or "") and not WHOLE_BLOCK.search(between):
        yield "a block is counted before all its teams have left their states"
    if not re.match(r"[^\n]*\) == \(unsigned int\)\((?:blocks|parts|clusters) - 1\);", behind):
        yield "a block that is not the last takes itself for it, or none does"
    reading = re.search(r"\(is_last", behind)
    if reading and not WHOLE_BLOCK.search(behind[: reading.start()]):
        yield "threads read whether their block is the last before they are told"
