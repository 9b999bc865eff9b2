"""A worker of the tests: redtune's own, with jobs that put one kernel onto inputs that the judge does not make.

Run as a script it is the worker process; `hired` makes redtune's parents start it in place of theirs.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from redtune import worker
from redtune.backends import Session
from redtune.dtypes import dtype_named
from redtune.operators import result_of
from redtune.plan import Plan
from redtune.types import Kernel
from tests.device.cases import Array, Case, compare, make_case, plan_of

POISON, GUARD = 0xA5, 64
CASES = 4


@contextmanager
def hired() -> Iterator[None]:
    """Workers started within are those of this file."""
    root = str(Path(__file__).parents[2])
    with pytest.MonkeyPatch.context() as patch:
        command = [sys.executable, "-m", "tests.device.station"], {"PYTHONPATH": root}
        patch.setattr("redtune.process.command", lambda: command)
        yield


class Station(worker.Station):
    """Redtune's worker with more jobs."""

    def _plan(self, kernel: Kernel, sizes: dict[str, int]) -> Plan:
        return plan_of(kernel.problem, kernel.config, sizes, self.opened.backend.dialect, self.opened.device)

    def flagged(self, job: dict[str, Any]) -> dict[str, Any]:
        """Cases made for the kernel's problem, against numpy: what was wrong, how many results were compared."""
        kernel, program = self._load(job)
        rng = np.random.default_rng(job["seed"])
        tile = self._plan(kernel, {"n": 1000, "outer": 2, "inner": 2}).tile
        wrong, compared = [], 0
        for _ in range(CASES):
            case = make_case(kernel.problem, tile, rng)
            for turn in range(2):  # the second finds what the first left behind
                said, count = self._case(kernel, program, case)
                compared += count
                wrong += [f"{text} (turn {turn}) of {case.told}" for text in said]
        return {"compared": compared, "wrong": wrong}

    def _case(self, kernel: Kernel, program: Any, case: Case) -> tuple[list[str], int]:
        problem, session = kernel.problem, self.opened.session
        plan = self._plan(kernel, case.sizes)
        result = dtype_named(result_of(problem))
        hosts = {name: operand.memory for name, operand in case.operands.items()}
        hosts |= {"offsets": case.offsets} if case.offsets is not None else {}
        size = int(case.out_at.max() + 1) * result.bytes
        hosts["out"] = np.full(size + GUARD, POISON, np.uint8)
        hosts["partials"] = np.full(plan.partials_bytes + GUARD, POISON, np.uint8)
        hosts["counter"] = np.zeros(max(4, plan.counter_bytes), np.uint8)
        buffers = {name: session.upload(host) for name, host in hosts.items()}
        values = {**case.sizes, "parts": plan.parts, "ddof": case.ddof, "initial": case.initial, **buffers}
        session.run(session.bind(program, plan.launches, values))
        after = {name: session.download(buffers[name], np.empty_like(hosts[name])) for name in hosts}
        said = []
        bytes_at = (case.out_at[:, None] * result.bytes + np.arange(result.bytes)).ravel()
        if (np.delete(after["out"], bytes_at) != POISON).any():
            said.append("wrote where no result is")
        if (after["partials"][plan.partials_bytes :] != POISON).any():
            said.append("wrote beyond its scratch")
        if after["counter"].any():
            said.append("left its counter")
        got = result.decode(after["out"][bytes_at].view(result.storage()))
        wrong, compared = compare(got, problem, plan, case)
        return said + wrong, compared

    def accuracy(self, job: dict[str, Any]) -> dict[str, Any]:
        """The largest relative error over the results of a kernel on positive values."""
        kernel, program = self._load(job)
        problem, session = kernel.problem, self.opened.session
        shape = problem.outer, problem.n, problem.inner
        sizes = {"outer": shape[0], "n": shape[1], "inner": shape[2], "out_outer": shape[2], "out_inner": 1}
        sizes |= {"data_first": 0, "data_outer": shape[1] * shape[2], "data_n": shape[2], "data_inner": 1}
        plan = self._plan(kernel, sizes)
        out = np.zeros(problem.results, np.float32)
        buffers = {
            "data": uploaded(session, job["kind"], int(np.prod(shape))),
            "out": session.upload(out.copy()),
            "partials": session.upload(np.zeros(plan.partials_bytes + GUARD, np.uint8)),
            "counter": session.upload(np.zeros(max(4, plan.counter_bytes), np.uint8)),
        }
        session.run(session.bind(program, plan.launches, {**sizes, "parts": plan.parts, **buffers}))
        got = session.download(buffers["out"], out).astype(np.longdouble)
        exact = exact_sums(job["kind"], problem.op, shape)
        return {"off": float((np.abs(got - exact) / exact).max())}


@functools.cache
def positive(kind: str, n: int) -> Array:
    """Positive float32 values whose sums round in one direction (a constant), at random, or ever more (ascending)."""
    if kind == "constant":
        return np.full(n, 0.1, np.float32)
    values = np.random.default_rng(n).random(n, np.float32) + np.float32(1e-3)
    return np.sort(values) if kind == "ascending" else values


@functools.cache
def uploaded(session: Session, kind: str, n: int) -> Any:
    return session.upload(positive(kind, n))


@functools.cache
def exact_sums(kind: str, op: str, shape: tuple[int, int, int]) -> Array:
    """The results in extended precision."""
    values = positive(kind, int(np.prod(shape))).reshape(shape).astype(np.float64)
    values = values * values if op == "sumsq" else values  # exact: 48 bits
    return values.sum(axis=1, dtype=np.longdouble).ravel() / (shape[1] if op == "mean" else 1)


def main() -> int:
    worker.Station = Station  # type: ignore[misc]
    return worker.main()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
