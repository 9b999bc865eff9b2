"""Kernels that differ in their grids alone are compiled once."""

from __future__ import annotations

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from redtune.codes import KEPT, Codes
from redtune.lab import Compiled
from redtune.types import Kernel, Verdict
from tests.text.kernels import ARCHS, LAYOUTS, config, problem, rendered, target


class Compiler:
    """Counts what it compiles, and says of it what it is told to."""

    def __init__(self, *said: str | None) -> None:
        self.said, self.asked = list(said), list[Kernel]()

    def __call__(self, kernel: Kernel) -> Compiled:
        self.asked.append(kernel)
        binary = self.said.pop(0) if self.said else "AAAA"
        return Compiled(kernel, binary, Verdict.OK if binary else Verdict.CRASHED, "" if binary else "it crashed")


ON = target("opencl")
NARROW, WIDE = (rendered(ON, config(blocks_per_cu=blocks), problem("max")) for blocks in (1, 32))


@pytest.mark.parametrize("dialect", ARCHS)
def test_the_code_leaves_out_what_is_said_at_the_launch(dialect: str) -> None:
    on, rows = target(dialect), problem("max", **LAYOUTS["rows"])
    flat = {rendered(on, config(blocks_per_cu=blocks), problem("max")).code for blocks in (1, 2, 32)}
    split = {rendered(on, config(split=split, combine="two_pass"), rows).code for split in (2, 4, 32)}
    assert len(flat) == len(split) == 1
    others = [config(block=64), config(items=8), config(walk="chunk"), config(second_block=64, combine="two_pass")]
    assert len({rendered(on, one, problem("max")).code for one in others} | flat) == len(others) + 1
    apart = rendered(on, config(split=1, combine="two_pass"), rows)
    assert apart.code not in split


def test_whatever_else_a_compiler_sees_makes_other_code() -> None:
    broken = NARROW.source.replace("\n}", "\n;}", 1)
    changes = {"source": broken, "flags": ("-cl-fast-relaxed-math",), "arch": "another"}
    codes = {dataclasses.replace(NARROW, **{name: value}).code for name, value in changes.items()}
    assert len(codes | {NARROW.code}) == len(changes) + 1


def test_the_same_code_is_compiled_once_and_launched_as_each_kernel_asks() -> None:
    codes, compiler = Codes(), Compiler("BBBB")
    first, second = codes.compiled(NARROW, compiler), codes.compiled(WIDE, compiler)
    assert compiler.asked == [NARROW]
    assert (first, second) == (Compiled(NARROW, "BBBB"), Compiled(WIDE, "BBBB"))
    assert NARROW.launches != WIDE.launches


def test_a_compiler_that_fails_is_asked_again() -> None:
    codes, compiler = Codes(), Compiler(None, None, "BBBB")
    found = [codes.compiled(kernel, compiler) for kernel in (NARROW, WIDE, NARROW, WIDE)]
    assert [one.verdict for one in found] == [Verdict.CRASHED, Verdict.CRASHED, Verdict.OK, Verdict.OK]
    assert len(compiler.asked) == 3


def test_an_error_is_raised_and_not_kept() -> None:
    codes = Codes()

    def stopped(kernel: Kernel) -> Compiled:
        raise RuntimeError("the search is over")

    with pytest.raises(RuntimeError, match="over"):
        codes.compiled(NARROW, stopped)
    assert codes.compiled(NARROW, Compiler("BBBB")).binary == "BBBB"


def test_who_comes_while_it_is_compiled_waits_for_it() -> None:
    codes, has_begun, goes_on = Codes(), threading.Event(), threading.Event()
    inner = Compiler("BBBB")

    def slow(kernel: Kernel) -> Compiled:
        has_begun.set()
        assert goes_on.wait(60)
        return inner(kernel)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(codes.compiled, NARROW, slow)
        assert has_begun.wait(60)
        second = pool.submit(codes.compiled, WIDE, slow)
        goes_on.set()
        assert [first.result(60).kernel, second.result(60).kernel] == [NARROW, WIDE]
    assert inner.asked == [NARROW]


def test_no_more_than_the_last_few_are_kept() -> None:
    codes, compiler = Codes(), Compiler()
    many = [dataclasses.replace(NARROW, arch=f"number {k}") for k in range(KEPT + 1)]
    for kernel in many:
        codes.compiled(kernel, compiler)
    codes.compiled(many[-1], compiler)
    assert len(compiler.asked) == len(many)
    codes.compiled(many[0], compiler)
    assert len(compiler.asked) == len(many) + 1
