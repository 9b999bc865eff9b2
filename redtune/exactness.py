"""How far the results of kernels are from the right one at full size, on numbers of one sign: the worker's half."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from redtune.answers import Answers
from redtune.backends import Session
from redtune.data import Dataset, random_dataset
from redtune.dialect import Dialect
from redtune.judge import Bench
from redtune.operators import accumulates_in_floats
from redtune.types import Device, Kernel, Problem
from redtune.windows import Window


def magnitudes(problem: Problem, answers: Answers, seed: int) -> Dataset:
    """Random values of the problem's size, floats without their signs: of a sum that cancels, errors relative to it
    would say how much of it cancels."""
    size = problem.n * problem.results * answers.op.inputs
    drawn = random_dataset(answers.op, answers.dtype, size, seed, accumulates_in_floats(problem))
    if answers.dtype.kind != "float":
        return drawn
    raw = answers.dtype.encode(np.abs(drawn.values))
    return replace(drawn, raw=raw, values=answers.dtype.decode(raw))


def relative_errors(
    session: Session, device: Device, dialect: Dialect, loaded: Sequence[tuple[Kernel, Any]], seed: int
) -> list[float]:
    """The largest |result - right| / |right| of each kernel of one problem, against numpy in float64 or more; the
    difference itself where the right result is 0."""
    problem = loaded[0][0].problem
    answers, whole = Answers(problem), Window(0, problem.outer, problem.n, problem.inner)
    drawn = magnitudes(problem, answers, seed)
    right = answers.known(drawn, whole, whole.size).exact
    data = session.upload(drawn.raw)
    errors = []
    for kernel, program in loaded:
        bench = Bench(session, dialect, device, problem, kernel.config, program)
        bench.prepare([whole], answers.result.bytes)
        bits = bench.results(bench.bind(data, whole, whole.size), whole, answers.result.storage())
        errors.append(relative_error(answers.result.decode(bits), right))
    return errors


def relative_error(got: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> float:
    """The largest error over the size of the right result."""
    wide = np.clongdouble if np.iscomplexobj(right) else np.longdouble
    with np.errstate(all="ignore"):
        mine, exact = got.astype(wide), right.astype(wide)
        same = (mine == exact) | ((mine != mine) & (exact != exact))
        gap = np.where(same, 0, np.abs(mine - exact))
        return float(np.max(gap / np.where(exact == 0, 1, np.abs(exact))))
