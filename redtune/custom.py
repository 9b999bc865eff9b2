"""The user's own operators: read from YAML or from expressions, and proven to keep the laws of a reduction.

A definition travels as text: into a worker process, into the store. So it is checked again wherever it is read (see
`redtune.definitions`), and nothing in it is ever executed.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from redtune.definitions import CHOICES, checked_text, make_operator
from redtune.dtypes import dtype_named
from redtune.errors import UsageError
from redtune.operators import Operator, operator_for
from redtune.plainyaml import read_plain

MAX_FILE_BYTES = 1 << 20


@functools.cache
def read_custom(text: str) -> Operator:
    """The operator that a definition describes: JSON as `define` makes it. Raises UsageError where it is none."""
    try:
        spec = json.loads(text)
        name = spec.pop("name")
        spec |= {key: dict(spec[key]) for key in ("state", "lets") if key in spec}
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise UsageError(f"the operator {text[:60]!r} cannot be read: it is none that redtune wrote") from error
    return make_operator(name, spec)


def define(name: str, spec: Mapping[str, Any]) -> str:
    """The canonical text of a definition, full or derived from another operator. Raises UsageError for the first thing
    that is wrong with it."""
    op = make_operator(name, spec)
    plain: dict[str, Any] = {"name": name, "meaning": op.meaning}
    if "from" in spec:
        plain["from"] = spec["from"]
        plain |= {key: checked_text(name, key, spec[key]) for key in ("map", "finish") if spec.get(key) is not None}
    else:
        fields = [field for field, _ in op.state]
        plain |= {key: dict(zip(fields, getattr(op, key), strict=True)) for key in ("identity", "lift", "merge")}
        plain |= {key: getattr(op, key) for key in CHOICES}
        plain |= {"state": op.state, "finish": op.finish[0]}
        plain["lets"] = [(let.name, {"kind": let.kind, "text": let.text}) for let in op.lets]
        if op.empty is not None:
            plain["empty"] = op.empty if math.isfinite(op.empty) else str(op.empty)
    return json.dumps(plain, sort_keys=True, allow_nan=False)


def load_operators(path: str) -> dict[str, str]:
    """The canonical text of each operator of a YAML file, by name. Raises UsageError naming the file and the fault."""
    try:
        found = read_plain(Path(path), MAX_FILE_BYTES)
    except OSError as error:
        raise UsageError(f"the operator file {path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"the operator file {path} is no YAML that can be used: {error}") from error
    if not isinstance(found, dict) or not found:
        raise UsageError(f"{path} defines no operators: a mapping from names to definitions is wanted")
    try:
        return {name: define(name, spec) for name, spec in found.items()}
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def derived(base: str, map_: str | None, finish: str | None) -> str:
    """The canonical text of a known operator with every element mapped first, its result finished further, or both."""
    given = {"map": map_, "finish": finish}
    return define(f"{base}_custom", {"from": base} | {key: text for key, text in given.items() if text is not None})


def check_laws(custom: str, dtype: str) -> None:
    """Raises UsageError, with a counterexample, where the operator is no reduction of a dtype: where its identity
    changes something, or the order of merging matters."""
    from redtune.laws import broken_law

    element = dtype_named(dtype)
    sentence = broken_law(operator_for(read_custom(custom), element), element)
    if sentence:
        raise UsageError(sentence)
