"""Inputs that the judge does not make, and their right results: masks, initial values, rows of any length, strides of
any kind, at any alignment."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from redtune.answers import Known, largest_error, smallest
from redtune.config import Config
from redtune.data import FEW, background, random_dataset
from redtune.dialect import Dialect
from redtune.dtypes import Dtype, dtype_named
from redtune.operators import Operator, accumulates_in_floats, operator_of, result_of
from redtune.plan import Plan, make_plan, operands_of
from redtune.types import Device, Problem

Array = np.ndarray[Any, Any]
ROOM = 60_000  # elements of a case


# --- where elements and results lie -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operand:
    """An array in memory and where in it the elements of each result lie, in their order."""

    memory: Array
    at: tuple[Array, ...]

    def values(self, dtype: Dtype) -> list[Array]:
        """The elements of each result."""
        decoded = dtype.decode(self.memory)
        return [decoded[places] for places in self.at]


@dataclass(frozen=True)
class Case:
    """One launch: sizes and strides by the names of a kernel's arguments, operands by their names, places of the
    results."""

    sizes: dict[str, int]
    operands: dict[str, Operand]
    offsets: Array | None
    out_at: Array
    ddof: int
    initial: Any
    told: str


def lengths(tile: int, most: int) -> list[int]:
    """Numbers of elements around a tile, at most so many."""
    return [n for n in (1, 2, 5, 31, tile - 1, tile, tile + 1, 2 * tile + 3, 5 * tile + 7) if 1 <= n <= most]


def make_case(problem: Problem, tile: int, rng: np.random.Generator, room: int = ROOM, most: int = 400) -> Case:
    """Sizes, strides and elements at random, with what a kernel may stumble over; at most about `room` elements and
    `most` results."""
    offsets = None
    if problem.layout == "ragged":
        sizes, places, offsets = ragged(problem, tile, rng, room, most)
    else:
        sizes, places = regular(problem, tile, rng, room, most)
    op, dtype = operator_of(problem), dtype_named(problem.dtype)
    operands = {name: filled(name, problem, at, rng) for name, at in places.items()}
    outer, inner = sizes["outer"], sizes["inner"]
    given = {
        "rows": [(1, 0), (3, 0)],
        "ragged": [(1, 0), (2, 0)],
        "columns": [(inner, 1), (1, outer), (2 * inner, 2), (3, 3 * outer + 1)],
        "flat": [(0, 0)],
    }[problem.layout]
    out_outer, out_inner = given[rng.integers(len(given))]
    sizes |= {"out_outer": out_outer, "out_inner": out_inner}
    out_at = (np.arange(outer)[:, None] * out_outer + np.arange(inner)[None, :] * out_inner).ravel()
    told = f"{sizes} mask {operands['mask'].memory.mean():.2f}" if "mask" in operands else f"{sizes}"
    return Case(sizes, operands, offsets, out_at, int(rng.integers(0, 3)), initial_of(problem, op, dtype, rng), told)


def regular(
    problem: Problem, tile: int, rng: np.random.Generator, room: int, most: int
) -> tuple[dict[str, int], dict[str, tuple[Array, ...]]]:
    """Sizes and strides of each operand for itself: gaps, axes backwards or standing still, any alignment."""
    counts = {"flat": [(1, 1)], "rows": [(1, 1), (3, 1), (9, 1), (70, 1), (400, 1)]}
    counts["columns"] = [(1, 1), (5, 1), (2, 7), (1, 37), (4, 33), (3, 130)]
    few = [(outer, inner) for outer, inner in counts[problem.layout] if outer * inner <= most]
    outer, inner = few[rng.integers(len(few))]
    options = lengths(tile, max(1, room // (outer * inner)))
    n = int(options[rng.integers(len(options))])
    sizes = {"outer": outer, "n": n, "inner": inner}
    places = {}
    for name in operands_of(problem):
        strides = strides_of(problem.layout, (outer, n, inner), rng)
        steps = [np.arange(size) * step for size, step in zip((outer, n, inner), strides, strict=True)]
        grid = steps[0][:, None, None] + steps[1][None, :, None] + steps[2][None, None, :]
        first = int(rng.integers(0, 6) - grid.min())
        sizes |= {f"{name}_first": first}
        sizes |= {f"{name}_{axis}": step for axis, step in zip(("outer", "n", "inner"), strides, strict=True)}
        places[name] = tuple((grid + first).swapaxes(1, 2).reshape(-1, n))
    return sizes, places


def strides_of(layout: str, shape: tuple[int, int, int], rng: np.random.Generator) -> tuple[int, int, int]:
    outer, n, _ = shape
    if layout != "columns":
        pitches = [n, n + 3, 2 * n + 1, -n, -(n + 5), 0]
        return (pitches[rng.integers(len(pitches))] if outer > 1 else 0), 1, 0
    strides, step = [0, 0, 0], 1
    for axis in rng.permutation(3):
        # A gap behind the axis, the axis backwards, or every step onto the same element.
        strides[axis] = step * int(rng.choice([1, 1, 1, -1, -1, 0]))
        step = step * shape[axis] + int(rng.integers(0, 3))
    return strides[0], strides[1], strides[2]


def ragged(
    problem: Problem, tile: int, rng: np.random.Generator, room: int, most: int
) -> tuple[dict[str, int], dict[str, tuple[Array, ...]], Array]:
    """Rows from nothing to several tiles; the operands lie alike and begin anywhere."""
    outer = int(rng.choice([rows for rows in (1, 2, 17, 90, 300) if rows <= most]))
    options = [0, 0, *lengths(tile, max(1, room // outer))]
    rows = rng.choice(options, outer) if rng.random() < 0.9 else np.zeros(outer, np.int64)
    offsets = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64) + int(rng.integers(0, 4))
    sizes = {"outer": outer, "n": max(1, int(rows.mean())), "inner": 1}
    places = {}
    for name in operands_of(problem):
        sizes[f"{name}_first"] = first = int(rng.integers(0, 6))
        places[name] = tuple(np.arange(a, b) + first for a, b in itertools.pairwise(offsets))
    return sizes, places, offsets


def filled(name: str, problem: Problem, at: tuple[Array, ...], rng: np.random.Generator) -> Operand:
    """Memory that ends with the last element, and holds what would show in any result where no element is."""
    op, dtype = operator_of(problem), dtype_named(problem.dtype)
    # Squares of large integers leave the range of a float32, and what is right there is nobody's promise.
    is_narrow = accumulates_in_floats(problem) and problem.accumulate == "float32"
    used = np.unique(np.concatenate(at)) if at else np.zeros(0, np.int64)
    size = int(used.max(initial=-1)) + 1
    if name == "mask":
        share = rng.choice([0.0, 0.02, 0.5, 0.5, 0.5, 1.0])
        memory = np.ones(size, np.uint8)
        memory[used] = rng.random(len(used)) < share
        if len(at) > 1 and len(at[0]) < len(used):
            memory[at[0]] = False
        return Operand(np.resize(memory, max(1, size)), at)
    extremes = [np.nan, np.inf] if dtype.kind in ("float", "complex") else list(dtype.limits)
    decoded = dtype.decode(dtype.encode(np.resize(np.array(extremes, object).astype(kind_of(dtype)), max(1, size))))
    if rng.random() < 0.5:
        values = dtype.decode(dtype.encode(background(op, dtype, len(used), rng)))
        largest = [end for end in (-FEW, FEW) if dtype.limits[0] <= end <= dtype.limits[1]] if is_narrow else extremes
        few = [0, 1, *largest] if dtype.kind != "bool" else [0, 1]
        planted = rng.random(len(used)) < min(1.0, 0.5 * len(at) / max(1, len(used)))
        values[planted] = rng.choice(np.array(few, object).astype(values.dtype), int(planted.sum()))
    else:
        values = random_dataset(op, dtype, len(used), int(rng.integers(1000)), is_narrow).values
    decoded = decoded.copy()
    decoded[used] = values
    return Operand(dtype.encode(decoded), at)


def kind_of(dtype: Dtype) -> str:
    """The numpy dtype of decoded values."""
    return "float32" if dtype.name == "bfloat16" else dtype.name


def initial_of(problem: Problem, op: Operator, dtype: Dtype, rng: np.random.Generator) -> Any:
    """An initial value in the type that the kernel accumulates in, sometimes one that wins over all elements."""
    if not problem.is_seeded:
        return None
    high = dtype.limits[1] if dtype.kind not in ("float", "complex") else 1000
    low = dtype.limits[0] if dtype.kind not in ("float", "complex") else -1000
    small = 1 if dtype.kind in ("bool", "uint") else -1
    chosen = (high, low, small, 1)[rng.integers(4)]
    return np.array([chosen]).astype(problem.accumulate)[0]  # what is negative wraps around in an unsigned sum


# --- right answers ----------------------------------------------------------------------------------------------------


def expect(problem: Problem, plan: Plan, case: Case) -> Iterator[tuple[Any, Any, Any] | None]:
    """(rounded, exact, bound or None where it must be exact) of each result; None where nothing is promised."""
    op, dtype, result = operator_of(problem), dtype_named(problem.dtype), dtype_named(result_of(problem))
    inputs = [case.operands[name].values(dtype) for name in operands_of(problem) if name != "mask"]
    masks = case.operands["mask"].values(dtype_named("bool")) if problem.is_masked else None
    for k in range(len(inputs[0])):
        mine = [rows[k] for rows in inputs]
        if masks is not None:
            mine = [values[masks[k]] for values in mine]
        if dtype.kind != "complex" and (problem.is_seeded or result.kind == "float"):
            mine = [values.astype(problem.accumulate) for values in mine]
        if problem.is_seeded:
            mine = [np.append(mine[0], case.initial)]
        if not len(mine[0]):
            yield None if op.empty is None else (*rounded(result, op.empty), None)
            continue
        yield right(problem, op, result, plan, case.ddof, [values[None, :] for values in mine])


def rounded(result: Dtype, exact: Any) -> tuple[Any, Any]:
    exact = np.asarray([exact]).ravel()[:1]
    return result.decode(result.encode(exact))[0], exact[0]


def right(
    problem: Problem, op: Operator, result: Dtype, plan: Plan, ddof: int, inputs: list[Array]
) -> tuple[Any, Any, Any]:
    count = inputs[0].shape[-1]
    scale = np.longdouble(1)
    if "ddof" in " ".join(op.finish):
        scale = np.longdouble(count) / np.longdouble(max(count - ddof, 0))
        scale = np.sqrt(scale) if "sqrt" in op.finish[0] else scale
    exact = np.asarray(op.reference(*inputs))
    nearest, exact_one = rounded(result, exact * scale if scale != 1 else exact)
    if op.tolerance is None or dtype_named(problem.accumulate).kind != "float":
        return nearest, exact_one, None
    u = dtype_named(problem.accumulate).u
    bound = op.tolerance.bound(op.tolerance.measures(*inputs), plan.depths, u) * scale
    rounding = result.u * np.abs(exact_one) + smallest(result) if result.u else 0
    parts = [part for part in (np.asarray(bound).ravel()[0], rounding) if np.isfinite(part)]
    return nearest, exact_one, sum(parts)


def compare(got: Array, problem: Problem, plan: Plan, case: Case) -> tuple[list[str], int]:
    """What is wrong with the first wrong result, and how many results there is a right answer to."""
    with np.errstate(all="ignore"):
        rows = list(expect(problem, plan, case))
    promised = [k for k, row in enumerate(rows) if row is not None]
    for k in promised:
        nearest, exact, bound = rows[k]
        known = Known(np.array([nearest]), np.array([exact]), None)
        off, _ = largest_error(got[k : k + 1], known, None if bound is None else np.array([bound]))
        if off is not None:
            n, within = len(case.operands["data"].at[k]), "" if bound is None else f" within {bound:.3g}"
            return [f"result {k} of {len(rows)}, of {n} elements, is {got[k]}, not {exact}{within}"], len(promised)
    return [], len(promised)


# --- how they are launched --------------------------------------------------------------------------------------------


def plan_of(problem: Problem, config: Config, sizes: dict[str, int], dialect: Dialect, device: Device) -> Plan:
    """The launches for sizes; one row or column alone still goes through the kernel for many."""
    here = replace(problem, n=sizes["n"], outer=sizes["outer"], inner=sizes["inner"])
    if here.layout != problem.layout:
        here = replace(here, is_strided=True) if problem.layout == "columns" else replace(here, outer=2)
    return make_plan(here, config, dialect, device)
