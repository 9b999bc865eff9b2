"""Kernels that only compute: what they reach is the arithmetic ceiling of a device, for an operation and a dtype.

Each is one operation of the language of operators, spelled by the dialect as the reductions have it, over chains of
values in the registers of every thread. Every step takes the value of a neighbouring chain, so that a compiler can
neither foresee nor merge any; what the values become is of no interest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from redtune.config import Config, settled
from redtune.dialect import Dialect
from redtune.dtypes import dtype_named
from redtune.operators import FieldKind, field_type
from redtune.problems import make_problem
from redtune.refusals import problem_refusal
from redtune.render import render_ceiling
from redtune.text import Constant, make_text, spelled_for
from redtune.types import Device, Kernel, Launch

CHAINS = 12  # more than steps are under way at once, and fewer than a thread has registers
TURNS = 8
BLOCK = {"gpu": 256, "cpu": 64}
BLOCKS_PER_CU = {"gpu": 4, "cpu": 8}
ENTRY = "redtune_arithmetic"
DTYPES = ("float32", "float64", "int32", "int64")


@dataclass(frozen=True, slots=True)
class Step:
    """One operation: its text over a chain `a` and its neighbour `b`, how many operations it counts as, and the
    operator and kind of field that it is taken from."""

    name: str
    help: str
    text: str
    operations: int
    op: str
    field: FieldKind
    is_of_floats: bool = False


# What sum, max and dot merge with, and what logsumexp adds up.
STEPS = {
    step.name: step
    for step in (
        Step("add", "additions", "a + b", 1, "sum", "sum"),
        Step("max", "the larger of two", "larger(a, b)", 1, "max", "value"),
        Step("fma", "products that are added", "a + b * b", 2, "dot", "sum", is_of_floats=True),
        Step("exp", "exponentials of numbers not above zero", "decay(-a)", 1, "logsumexp", "sum", is_of_floats=True),
    )
}


@dataclass(frozen=True, slots=True)
class Chains:
    """What the template may read as `chains`."""

    help: str
    entry: str
    count: int
    constants: tuple[Constant, ...]
    type: str
    step: str


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The kernel of an operation in a dtype, or why the device has none."""

    step: Step
    dtype: str
    kernel: Kernel | None
    absent: str = ""


def arithmetic_kernels(device: Device, dialect: Dialect) -> Iterator[Arithmetic]:
    """A kernel for each operation and dtype. One launch takes the buffer `out` and the number `rounds`."""
    for dtype in DTYPES:
        for step in STEPS.values():
            if not step.is_of_floats or dtype_named(dtype).kind == "float":
                yield _made(step, dtype, device, dialect)


def _made(step: Step, dtype: str, device: Device, dialect: Dialect) -> Arithmetic:
    problem = replace(make_problem(step.op, dtype, 1), accumulate=dtype)
    config = settled(replace(Config(), exchange="lds", combine="two_pass"))  # asks for no wave
    against = problem_refusal(problem, device)
    if against:
        return Arithmetic(step, dtype, None, against)
    block, blocks = BLOCK[device.kind], BLOCKS_PER_CU[device.kind] * device.compute_units
    chains = Chains(
        help=step.help,
        entry=ENTRY,
        count=CHAINS,
        constants=(
            Constant("BLOCK", block, "threads per block"),
            Constant("CHAINS", CHAINS, "of each thread"),
            Constant("TURNS", TURNS, "steps of each chain between two jumps back"),
        ),
        type=dialect.types[field_type(step.field, dtype)],
        step=spelled_for(step.text, problem, dialect, device),
    )
    source = render_ceiling("arithmetic", problem, config, make_text(problem, config, dialect, device), chains=chains)
    flags = dialect.flags(config, device.arch)
    digest = hashlib.sha256("\n".join((source, *flags, device.arch)).encode()).hexdigest()[:16]
    launch = Launch(ENTRY, blocks, block, ("out", "rounds"))
    kernel = Kernel(problem, config, dialect.name, device.arch, source, flags, (launch,), 0, 0, digest)
    return Arithmetic(step, dtype, kernel)


def steps_in(kernel: Kernel) -> int:
    """How many steps one round of a launch takes, over all its threads."""
    (launch,) = kernel.launches
    return CHAINS * TURNS * launch.grid * launch.block
