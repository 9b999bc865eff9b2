"""Calls of redtune.reduce at random, for any array library that slices as numpy does, and the check of their results.

A kernel costs its compilation, so the calls draw on a pool: so many heads (operator, dtype and whatever else is in the
kernel's text), each with few configs per layout. Sizes, strides and values cost nothing and are drawn freely.
"""

from __future__ import annotations

import dataclasses
import math
import random
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import strategies as st

import redtune
from redtune import preparing, store
from redtune.arrays import Engine
from redtune.config import Config, team_of
from redtune.defaults import starting_points
from redtune.dtypes import DTYPES
from redtune.errors import CompileError, UsageError
from redtune.operators import OPERATORS, result_type
from redtune.plan import make_plan
from redtune.problems import running_type
from redtune.refusals import refusals
from redtune.sampling import unrolled
from redtune.types import Problem
from tests.device.oracle import DEPTHS, INDICES, Array, Asked, Part, Right, answer
from tests.text.kernels import PAIRS, Target, operator, random_config

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

POISON = 0x5A
SEEDS = st.integers(0, 2**32 - 1)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype called `name`; numpy has no bfloat16 of its own."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


# --- heads: what a kernel depends on beside layout and config ---------------------------------------------------------


@dataclass(frozen=True)
class Head:
    """The part of a call that its kernel's text depends on."""

    op: str
    dtype: str
    result: str | None = None
    accumulate: str | None = None
    determinism: str = "any"
    is_masked: bool = False
    is_seeded: bool = False
    is_ragged: bool = False


def results_of(op: str, dtype: str) -> Iterator[str]:
    """The dtypes that the results of an operator may be asked in."""
    for name in DTYPES:
        if "bfloat16" in (name, dtype) and name != dtype:
            continue
        try:
            running_type(operator(op, dtype), DTYPES[dtype], name, None)
        except UsageError:
            continue
        yield name


def accumulates_of(op: str, dtype: str, result: str | None) -> Iterator[str]:
    """What a call may ask to accumulate in."""
    for name in ("float64", "compensated"):
        try:
            running_type(operator(op, dtype), DTYPES[dtype], result, name)
        except UsageError:
            continue
        yield name


def varied(op: str, dtype: str, rng: random.Random) -> Head:
    """A head of an operator and a dtype with other things in it at random."""
    entry = operator(op, dtype)
    result = rng.choice([None, *results_of(op, dtype)]) if rng.random() < 0.4 else None
    accumulate = rng.choice([None, *accumulates_of(op, dtype, result)]) if rng.random() < 0.5 else None
    is_masked = op not in INDICES and rng.random() < 0.35
    is_seeded = entry.seeds and rng.random() < (0.8 if is_masked and entry.empty is None else 0.35)
    determinism = "run-to-run" if rng.random() < 0.2 else "any"
    return Head(op, dtype, result, accumulate, determinism, is_masked, is_seeded, rng.random() < 0.2)


def make_heads(count: int, dtypes: tuple[str, ...], seed: int) -> tuple[Head, ...]:
    """`count` heads, of every operator as many, and of every dtype some; the first of an operator are plain."""
    rng = random.Random(seed)
    names = [name for name in dtypes if name != "bfloat16" or ml_dtypes is not None]
    by_op = {op: [d for o, d in PAIRS if o == op and d in names] for op in OPERATORS}
    used: Counter[str] = Counter()
    heads: list[Head] = []
    while len(heads) < count:
        for op, takes in by_op.items():
            first = len(heads) < len(by_op)
            dtype = min(takes, key=lambda name: (used[name], rng.random()))
            used[dtype] += 1
            heads.append(Head(op, dtype) if first else varied(op, dtype, rng))
    return tuple(dict.fromkeys(heads))


# --- operands: values in memory, seen through strides -----------------------------------------------------------------


@dataclass(frozen=True)
class Operand:
    """An array as memory and the view that is taken of it, so that any library can take the same."""

    base: Array
    shape: tuple[int, ...]
    offset: int
    order: tuple[int, ...]  # the axes from the slowest in memory to the fastest
    steps: tuple[int, ...]  # 0 for a broadcast axis, negative for a reversed one
    is_apart: bool = False

    def view(self, memory: Any, xp: Any) -> Any:
        """The operand in `memory`, which is a copy of `base`."""
        lengths = self._lengths()
        size = math.prod(lengths)
        if self.is_apart:
            raw = xp.empty(memory.nbytes + 1, "uint8")
            raw[1:] = memory.view("uint8")
            memory = raw[1:].view(memory.dtype)
        laid = memory[self.offset : self.offset + size].reshape([lengths[axis] for axis in self.order])
        laid = laid.transpose([self.order.index(axis) for axis in range(len(self.shape))])
        laid = laid[(..., *(slice(None, None, step or 1) for step in self.steps))]
        return xp.broadcast_to(laid, self.shape) if 0 in self.steps else laid

    def on(self, xp: Any) -> Any:
        """The operand in memory of its own."""
        return self.view(xp.array(self.base), xp)

    def _lengths(self) -> tuple[int, ...]:
        return tuple(1 if step == 0 else n * abs(step) for n, step in zip(self.shape, self.steps, strict=True))

    def __repr__(self) -> str:
        base = f"{self.base.dtype.name}[{len(self.base)}]"
        return f"Operand({base}, {self.shape}, +{self.offset}, order={self.order}, steps={self.steps}" + (
            ", apart)" if self.is_apart else ")"
        )


LENGTHS = st.one_of(st.integers(2, 5), st.integers(0, 9), st.integers(2, 70), st.sampled_from([0, 1, 64, 65]))
MOST = 60_000


@st.composite
def shapes(draw: Any) -> tuple[int, ...]:
    """Up to 4 axes, not too many elements; one axis may be thousands long."""
    ndim = draw(st.sampled_from([0, 1, 2, 2, 3, 3, 4]))
    shape = [draw(LENGTHS) for _ in range(ndim)]
    if shape and draw(st.integers(0, 5)) == 0:
        shape[draw(st.integers(0, len(shape) - 1))] = draw(st.integers(500, 9000))
    while math.prod(shape) > MOST:
        shape[shape.index(max(shape))] //= 7
    return tuple(shape)


@st.composite
def operands(
    draw: Any,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    fill: Any,
    can_broadcast: bool = True,
    can_part: bool = True,
) -> Operand:
    """An operand of a shape, often just contiguous. `fill(count, rng)` gives the values."""
    ndim = len(shape)
    order, steps, offset, apart = tuple(range(ndim)), (1,) * ndim, 0, False
    style = draw(st.integers(0, 3))
    if style >= 1:
        order = tuple(draw(st.permutations(range(ndim))))
        offset = draw(st.integers(0, 5))
    if style >= 2:
        choice = st.sampled_from([1, 1, -1, 2, 3, -2] + [0] * can_broadcast)
        steps = tuple(draw(choice) for _ in range(ndim))
    if style >= 1 and can_part and dtype.itemsize > 1:
        apart = draw(st.integers(0, 9)) == 0
    operand = Operand(np.empty(0, dtype), shape, offset, order, steps, apart)
    count = offset + math.prod(operand._lengths()) + draw(st.integers(0, 2))
    base = fill(count, np.random.default_rng(draw(SEEDS)))
    return dataclasses.replace(operand, base=base.astype(dtype))


# --- values -----------------------------------------------------------------------------------------------------------

WHOLE_FLAVOURS = ("small", "any", "ties", "extremes", "zeros")
FLOAT_FLAVOURS = ("normal", "broad", "ties", "specials", "large", "offset", "zeros", "nans", "infinities", "whole")


def whole_values(flavour: str, dtype: str, count: int, rng: np.random.Generator) -> Array:
    """Integers and truth values."""
    low, high = DTYPES[dtype].limits
    kind = np.dtype(dtype)
    if flavour == "zeros":
        x = np.zeros(count, kind)
        x[rng.random(count) < 0.05] = 1
        return x
    if flavour == "any":
        return rng.integers(low, high, count, dtype=kind, endpoint=True)
    if flavour == "extremes":
        return rng.choice(np.array([low, high, 0, 1], kind), count)
    top = 3 if flavour == "ties" else 50
    return rng.integers(max(low, -top), min(high, top), count, dtype=kind, endpoint=True)


def float_values(flavour: str, dtype: str, op: str, count: int, rng: np.random.Generator) -> Array:
    """Real floats in float32 or float64, whichever `dtype` is in the registers."""
    kind = np.dtype("float64" if dtype in ("float64", "complex128") else "float32")
    top = {"float16": 65504.0, "bfloat16": 3.3e38}.get(dtype, float(np.finfo(kind).max))
    x = rng.standard_normal(count)
    if op == "prod" and flavour not in ("specials", "large", "nans", "infinities", "zeros"):
        # Most factors change nothing, so that the product stays in range.
        x = np.where(rng.random(count) < 12 / max(count, 12), x, rng.choice([1.0, -1.0], count))
    elif flavour == "broad":
        x *= np.exp(2 * rng.standard_normal(count))
    elif flavour == "ties":
        x = rng.choice([0.0, -0.0, 1.0, -1.0, 2.0], count)
    elif flavour == "whole":
        x = rng.integers(-9, 9, count, endpoint=True).astype(np.float64)
    elif flavour == "offset":
        x = 1000.0 + x
    elif flavour == "zeros":
        x = np.where(rng.random(count) < 0.1, x, 0.0)
    elif flavour == "large":
        x *= top / 5 / max(1, count) if rng.random() < 0.5 else top / 5
    if flavour in ("specials", "nans", "infinities"):
        odd = {"nans": [np.nan], "infinities": [np.inf, -np.inf]}.get(
            flavour, [np.nan, np.inf, -np.inf, -0.0, top, -top, float(np.finfo(kind).smallest_subnormal) * 3, 1e-30]
        )
        share = rng.choice([0.01, 0.2, 1.0])
        some = odd if rng.random() < 0.5 else [rng.choice(odd)]
        x = np.where(rng.random(count) < share, rng.choice(some, count), x)
    with np.errstate(over="ignore"):
        return np.clip(x, -top, top, where=np.isfinite(x), out=x).astype(kind)


def narrowed(head: Head, x: Array) -> Array:
    """The values, kept to what can be taken in the dtype asked for: C leaves open what a float out of range becomes."""
    wanted = DTYPES[head.result] if head.result else None
    if wanted is None or x.dtype.kind not in "fc":
        return x
    x = np.where(np.isfinite(x), x, 1)
    if wanted.kind in ("int", "uint", "bool"):
        x = np.clip(x, -100, 100)
        return abs(x) if wanted.kind in ("uint", "bool") else x
    return np.clip(x, -1e4, 1e4) if x.dtype.kind == "f" else x / np.maximum(abs(x) / 1e4, 1)


@st.composite
def fills(draw: Any, head: Head) -> Any:
    """A function that makes `count` elements."""
    dtype = DTYPES[head.dtype]
    if dtype.kind in ("bool", "int", "uint"):
        flavour = draw(st.sampled_from(WHOLE_FLAVOURS))
        return lambda count, rng: whole_values(flavour, head.dtype, count, rng)
    flavour = draw(st.sampled_from(FLOAT_FLAVOURS))

    def fill(count: int, rng: np.random.Generator) -> Array:
        with np.errstate(all="ignore"):
            x = float_values(flavour, head.dtype, head.op, count, rng)
            if dtype.kind == "complex":
                y = float_values(flavour, head.dtype, "", count, rng)
                # A factor of magnitude one where it would be one of the real numbers.
                x = x * np.exp(1j * y) if head.op == "prod" and flavour != "whole" else x + 1j * y
                x = np.where(np.isnan(x), np.nan, x) if head.op == "prod" else x
            return narrowed(head, x)

    return fill


# --- calls ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One call with its arrays, and how it picks its config."""

    head: Head
    operands: tuple[Operand, ...]
    axis: Any
    keepdims: bool = False
    where: Operand | None = None
    initial: Any = None
    ddof: int = 0
    offsets: tuple[int, ...] | None = None
    out: str = ""  # "", "contiguous" or "strided"
    out_style: int = 0
    pick: int = 0
    repeats: bool = False

    def arguments(self, xp: Any) -> tuple[Any, dict[str, Any]]:
        """What redtune.reduce is given, beside `out` and `config`; the arrays in memory of their own."""
        arrays = tuple(operand.on(xp) for operand in self.operands)
        options: dict[str, Any] = {"axis": self.axis, "keepdims": self.keepdims, "ddof": self.ddof}
        options |= {"dtype": self.head.result, "accumulate": self.head.accumulate}
        options |= {"determinism": self.head.determinism, "initial": self.initial}
        if self.where is not None:
            options["where"] = self.where.on(xp)
        if self.offsets is not None:
            options["offsets"] = list(self.offsets)
        return (arrays if len(arrays) > 1 else arrays[0]), options

    def asked(self) -> Asked:
        """The same of numpy, for all elements at once."""
        arrays = tuple(operand.on(np) for operand in self.operands)
        mask = None if self.where is None else self.where.on(np)
        return Asked(
            op=self.head.op,
            inputs=arrays,
            axis=self.axis,
            dtype=None if self.head.result == "bfloat16" else self.head.result,
            keepdims=self.keepdims,
            initial=self.initial,
            where=mask,
            ddof=self.ddof,
            accumulate=self.head.accumulate,
        )

    def refuses_masks(self) -> bool:
        """Whether a mask could leave nothing that has a value."""
        return operator(self.head.op, self.head.dtype).empty is None

    def right(self, depths: Any) -> Right:
        """The right results. Raises what numpy raises."""
        asked = self.asked()
        if self.offsets is None:
            return answer(asked, depths)
        x = np.broadcast_arrays(*asked.inputs)
        mask = None if asked.where is None else np.broadcast_to(asked.where, x[0].shape)
        each = [
            answer(
                dataclasses.replace(
                    asked,
                    inputs=tuple(one[start:end] for one in x),
                    where=None if mask is None else mask[start:end],
                    axis=None,
                    keepdims=False,
                ),
                depths,
            )
            for start, end in zip(self.offsets, self.offsets[1:], strict=False)
        ]
        if not each and self.where is not None and self.initial is None and self.refuses_masks():
            raise ValueError("a mask needs an initial value, however many rows there are")
        if not each:
            entry, element = operator(self.head.op, self.head.dtype), DTYPES[self.head.dtype]
            dtype = self.head.result or result_type(entry, element)
            nothing = np.zeros(0)
            return Right((0,), dtype, (Part(nothing, nothing, nothing),) * DTYPES[dtype].parts)
        parts = []
        for halves in zip(*(right.parts for right in each), strict=True):
            fields = {}
            for name in ("exact", "low", "high", "may_overflow", "free"):
                columns = [np.broadcast_to(getattr(half, name), 1) for half in halves]
                fields[name] = np.concatenate(columns)
            parts.append(Part(**fields))
        return Right((len(each),), each[0].dtype, tuple(parts))


@st.composite
def axes_of(draw: Any, op: str, ndim: int) -> Any:
    """None, one axis, several in any order, or none at all."""
    if ndim == 0:
        return draw(st.sampled_from([None, 0, -1] + [()] * (op not in INDICES)))
    one = st.integers(-ndim, ndim - 1)
    if op in INDICES:
        return draw(st.one_of(st.none(), one))
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return None
    if kind <= 6:
        return draw(one)
    few = draw(st.permutations(range(ndim)))[: draw(st.integers(0, ndim))]
    return tuple(axis - ndim * draw(st.booleans()) for axis in few)


def initial_of(head: Head, rng: np.random.Generator) -> Any:
    """An initial value that the dtype of the results has exactly."""
    if DTYPES[head.dtype].kind == "bool" and head.op not in ("sum", "prod", "nansum"):
        return bool(rng.integers(2))
    if DTYPES[head.result or head.dtype].kind == "bool":
        return bool(rng.integers(2))
    if DTYPES[head.result or head.dtype].kind == "float":
        return float(rng.choice([0.0, 1.0, -2.5, 40.0, 0.25, np.inf, -np.inf, np.nan]))
    is_signed = "uint" not in (head.result or head.dtype)
    return int(rng.choice([0, 1, 5, 100, -7 if is_signed else 7]))


@st.composite
def calls(draw: Any, heads: tuple[Head, ...], can_part: bool = True) -> Call:
    """Any call with one of the heads. `can_part` allows elements apart from multiples of their size."""
    head = draw(st.sampled_from(heads))
    dtype = numpy_dtype(head.dtype)
    entry = operator(head.op, head.dtype)
    if head.is_ragged:
        shape: tuple[int, ...] = (draw(st.one_of(st.integers(0, 90), st.integers(0, 3000))),)
    else:
        shape = draw(shapes())
    fill = draw(fills(head))
    given = [draw(operands(shape, dtype, fill, can_part=can_part))]
    if entry.inputs > 1:
        other = shape if head.is_ragged else draw(broadcastable(shape))
        given.append(draw(operands(other, dtype, draw(fills(head)), can_part=can_part)))
        if draw(st.booleans()):
            given.reverse()
    where = None
    if head.is_masked:
        density = draw(st.sampled_from([0.5, 0.9, 0.1, 1.0, 0.0]))
        over = shape if head.is_ragged else draw(broadcastable(shape))
        where = draw(operands(over, np.dtype(bool), lambda count, rng: rng.random(count) < density))
    more: dict[str, Any] = {"initial": initial_of(head, np.random.default_rng(draw(SEEDS)))} if head.is_seeded else {}
    if head.op in ("var", "std"):
        more["ddof"] = draw(st.sampled_from([0, 1, 1, 2, 3, -1, 7]))
    if head.is_ragged:
        ends = draw(st.lists(st.integers(0, shape[0]), min_size=1, max_size=draw(st.sampled_from([2, 5, 40]))))
        more["offsets"] = tuple(sorted(ends))
        axis = draw(st.sampled_from([None, 0, -1]))
    else:
        axis = draw(axes_of(head.op, len(shape)))
        more["keepdims"] = draw(st.booleans())
    return Call(
        head,
        tuple(given),
        axis,
        where=where,
        out=draw(st.sampled_from(["", "", "", "contiguous", "strided", "strided"])),
        out_style=draw(st.integers(0, 7)),
        pick=draw(st.integers(0, 5)),
        repeats=draw(st.integers(0, 3)) == 0,
        **more,
    )


@st.composite
def broadcastable(draw: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Mostly the shape itself, else one that broadcasts to it."""
    if draw(st.integers(0, 2)):
        return shape
    ones = tuple(1 if draw(st.booleans()) else length for length in shape)
    return ones[draw(st.integers(0, len(ones))) :]


# --- configs ----------------------------------------------------------------------------------------------------------

CANONICAL: dict[str, dict[str, Any]] = {
    "flat": {"n": 5000},
    "rows": {"n": 100, "outer": 40},
    "columns": {"n": 60, "outer": 3, "inner": 40, "is_strided": False},
    "ragged": {"n": 100, "outer": 20},
}


MAX_THREADS = 1 << 16


class Pool:
    """Few configs for each head and layout, the same in every run: the quickest to compile of so many `tries`. For
    `loose` of a hundred operators and dtypes the default config runs too, whatever the sizes make of it."""

    def __init__(self, engine: Engine, each: int, loose: int, tries: int = 1) -> None:
        self.engine, self.each, self.loose, self.tries = engine, each, loose, tries
        self.on = Target(engine.backend.dialect, engine.device)
        self.met: Counter[Any] = Counter()
        self._configs: dict[Problem, tuple[Config, ...]] = {}

    def choices(self, problem: Problem) -> tuple[Config, ...]:
        """The configs of a problem's kernels, whatever its sizes."""
        sizes = {"is_strided": problem.is_strided} | CANONICAL[problem.layout]
        key = dataclasses.replace(problem, **sizes)
        if key not in self._configs:
            rng = random.Random(zlib.crc32(repr(key).encode()))
            drawn = [self._quick(key, rng) for _ in range(self.each)]
            # The last of the shapes to start from is legal whatever the sizes are, and quick.
            self._configs[key] = (*drawn, starting_points(key, self.on.dialect, self.on.device)[-1])
        return self._configs[key]

    def _quick(self, problem: Problem, rng: random.Random) -> Config:
        """Of several configs the one that unrolls least, and so compiles fastest."""
        drawn = [random_config(self.on, problem, rng, steps=20) for _ in range(self.tries)]
        return min(drawn, key=lambda config: unrolled(problem, config))

    def config(self, problem: Problem, pick: int) -> Config | None:
        """A config of the pool that is legal for the problem, or None for the default one: of rows and columns that
        has a kernel for many a size, so it is for some heads only."""
        odds = 100 if problem.layout == "flat" and self.loose > 5 else 30 if problem.layout == "flat" else self.loose
        is_loose = zlib.crc32(f"{problem.op} {problem.dtype}".encode()) % 100 < odds
        if pick == 0 and is_loose:
            return None
        known = self.choices(problem)
        order = [known[(pick + k) % self.each] for k in range(self.each)] + [known[-1]]
        return next(c for c in order if self.suits(c, problem))

    def suits(self, config: Config, problem: Problem) -> bool:
        """Whether a config is legal for a problem, and the threads it starts are not too many to wait for."""
        threads = problem.results * config.split * team_of(config)
        is_quick = problem.layout == "flat" or threads <= MAX_THREADS or config.team == 1
        return is_quick and not refusals(config, problem, self.on.dialect, self.on.device)


class _FoundError(Exception):
    def __init__(self, problem: Problem) -> None:
        self.problem = problem


_PROBE = Config(block=-1)


def problem_of(arrays: Any, op: str, options: dict[str, Any]) -> Problem | None:
    """The problem that redtune makes of a call, or None where it needs no kernel. Raises what the call raises."""

    def stop(request: Any, problem: Problem, *rest: Any) -> Any:
        raise _FoundError(problem)

    with mock.patch.object(preparing, "_with_kernel", stop):
        try:
            redtune.reduce(arrays, op, **options, config=_PROBE)
        except _FoundError as found:
            return found.problem
    return None


# --- the check --------------------------------------------------------------------------------------------------------


def fault_of(call: Call, pool: Pool, xp: Any, to_host: Any) -> str:
    """What is wrong with what redtune makes of a call, or nothing. Counts in `pool.met` what was met."""
    pool.met["calls"] += 1
    op = call.head.op
    arrays, options = call.arguments(xp)
    try:
        right = call.right(DEPTHS)
    except ValueError as theirs:
        return _not_refused(call, pool, xp, theirs)
    out, memory = make_out(call, right, xp)
    problem = problem_of(arrays, op, options | {"out": out})
    config = None
    if problem is not None:
        config = pool.config(problem, call.pick)
        ran = config or store.lookup(problem, pool.on.dialect, pool.on.device).config
        right = call.right(make_plan(problem, ran, pool.on.dialect, pool.on.device).depths)
    for again in range(1 + call.repeats):
        if again:
            arrays, options = call.arguments(xp)
            out, memory = make_out(call, right, xp)
        try:
            got = redtune.reduce(arrays, op, **options, out=out, config=config)
        except CompileError as error:
            if not str(error).startswith(("the compiler crashed", "the compiler took")):
                raise
            pool.met["the vendor's compiler failed"] += 1
            return ""
        fault = "" if type(got) is xp.ndarray else f"the result is of {type(got)}"
        fault = fault or ("" if out is None or got is out else "the result is not out")
        fault = fault or right.fault(to_host(got)) or check_gaps(call, right, memory, to_host)
        if fault:
            return f"{fault}{', the second time' * again}; {problem}; {config}"
    _count(call, pool.met, problem, config)
    return ""


def _not_refused(call: Call, pool: Pool, xp: Any, theirs: ValueError) -> str:
    """Nothing, if redtune refuses what numpy refuses, in one line."""
    arrays, options = call.arguments(xp)
    try:
        redtune.reduce(arrays, call.head.op, **options)
    except ValueError as ours:
        pool.met["refused"] += 1
        return "" if "\n" not in str(ours) else f"two lines: {ours}"
    return f"no error, where numpy says: {theirs}"


def _count(call: Call, met: Counter[Any], problem: Problem | None, config: Config | None) -> None:
    head = call.head
    met.update([head.op, head.dtype, (head.op, head.dtype), f"out {call.out}"])
    met[f"layout {problem.layout if problem else 'of none'}"] += 1
    met.update(f"{name} {getattr(head, name)}" for name in ("result", "accumulate", "determinism"))
    met.update(name for name in ("is_masked", "is_seeded", "is_ragged") if getattr(head, name))
    met["default config" if config is None else "config given"] += 1
    seen = call.operands if call.where is None else (*call.operands, call.where)
    met["broadcast"] += any(0 in operand.steps for operand in seen)
    met["reversed"] += any(min(operand.steps, default=1) < 0 for operand in seen)
    met["apart"] += any(operand.is_apart for operand in seen)
    met["a length of 0"] += any(0 in operand.shape for operand in seen)
    met["no axis"] += call.axis == ()


def make_out(call: Call, right: Right, xp: Any) -> tuple[Any, Any]:
    """The array that `out` asks for, and the memory it lies in."""
    if not call.out:
        return None, None
    laid = out_operand(call, right)
    memory = xp.array(laid.base)
    return laid.view(memory, xp), memory


def out_operand(call: Call, right: Right) -> Operand:
    """How `out` lies in its memory, which is poisoned."""
    ndim, dtype = len(right.shape), numpy_dtype(right.dtype)
    order, steps, offset = tuple(range(ndim)), (1,) * ndim, 0
    if call.out == "strided":
        style = call.out_style
        order = tuple(reversed(order)) if style & 1 else order
        steps = tuple((2 if style & 2 and axis % 2 == 0 else 1) * (-1 if style & 4 else 1) for axis in range(ndim))
        offset = 3
    laid = Operand(np.zeros(0, dtype), right.shape, offset, order, steps)
    count = offset + math.prod(laid._lengths()) + 2
    base = np.frombuffer(bytes([POISON]) * (count * dtype.itemsize), dtype)
    return dataclasses.replace(laid, base=base)


def check_gaps(call: Call, right: Right, memory: Any, to_host: Any) -> str:
    """What was written around `out`, or nothing."""
    if memory is None:
        return ""
    after = to_host(memory).copy()
    laid = out_operand(call, right)
    laid.view(after, np)[...] = laid.view(laid.base, np)
    return "" if after.tobytes() == laid.base.tobytes() else "the memory around out has changed"
