"""What may stand in for what: where nothing is tuned for an operator or a dtype, a config for one that reads as many
bytes and carries as much along is the better start than none.
"""

from __future__ import annotations

from collections.abc import Iterator

from redtune.dtypes import DTYPES, Dtype
from redtune.errors import DtypeError
from redtune.operators import OPERATORS, WHOLE, Operator, accumulate_type, operator_for, operator_of
from redtune.types import Problem


def like_dtypes(name: str) -> list[str]:
    """Other dtypes of the same width and kind, where signs and truth values make no difference: first those that
    threads compute with in the same type."""
    own = DTYPES[name]
    alike = [d for d in DTYPES.values() if d.name != name and d.bytes == own.bytes and _kind(d) == _kind(own)]
    return [d.name for d in sorted(alike, key=lambda d: (d.register != own.register, d.kind == "bool"))]


def _kind(dtype: Dtype) -> str:
    return "whole" if dtype.kind in WHOLE else dtype.kind


def like_operators(problem: Problem) -> list[str]:
    """Other operators whose state has as many fields, with a running value as wide: first those whose fields hold the
    same, that meet by the same instructions and take as many inputs."""
    own = operator_of(problem)
    width = DTYPES[problem.accumulate].bytes

    def far(op: Operator) -> tuple[bool, bool, bool]:
        return _kinds(op) != _kinds(own), op.native != own.native, op.inputs != own.inputs

    alike = [
        op
        for op in _entries(DTYPES[problem.dtype])
        if (op.name != own.name or problem.custom)
        and len(op.state) == len(own.state)
        and DTYPES[accumulate_type(op, DTYPES[problem.dtype])].bytes == width
    ]
    return [op.name for op in sorted(alike, key=far)]


def _kinds(op: Operator) -> tuple[str, ...]:
    return tuple(kind for _, kind in op.state)


def _entries(dtype: Dtype) -> Iterator[Operator]:
    """Every operator as it stands for elements of a dtype."""
    for op in OPERATORS.values():
        try:
            yield operator_for(op, dtype)
        except DtypeError:
            continue
