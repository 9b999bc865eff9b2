"""The user's own operators: read from YAML or from expressions, and proven to keep the laws of a reduction.

A definition travels as text: into a worker process, into the store. So it is checked again wherever it is read (see
`redtune.definitions`), and nothing in it is ever executed.
"""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from redtune.definitions import CHOICES, checked_text, make_operator
from redtune.dtypes import dtype_named
from redtune.errors import UsageError
from redtune.operators import Operator, operator_for

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
    found = _read_yaml(path)
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


def _read_yaml(path: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """The safe loader without aliases, of which a small file could make a huge or an endless one, and with no name
        given twice, of which it would drop the first."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("it has an alias (*), and everything is to be written out")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = Counter(key.value for key, _ in node.value if isinstance(key.value, str))
            for key, times in keys.items():
                if times > 1:
                    raise yaml.YAMLError(f"{key!r} is given twice")
            return super().construct_mapping(node, deep)

    what = f"the operator file {path}"
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{what} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(raw) > MAX_FILE_BYTES:
        raise UsageError(f"{what} is too long: at most {MAX_FILE_BYTES} bytes")
    try:
        return yaml.load(raw.decode("utf-8"), Loader)
    except RecursionError as error:
        raise UsageError(f"{what} is nested too deeply") from error
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
        raise UsageError(f"{what} is no YAML that can be used: {' '.join(str(error).split())[:200]}") from error
