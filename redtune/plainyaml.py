"""YAML from people one does not know: plain data comes out of a file, or one sentence that says why not.

No tag can name a class here. An alias (*) is refused, as a small file could make a huge or an endless document of a
few; so is a name given twice, of which the first would be dropped; and a file longer than its reader allows is not
read.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

MAX_DEPTH = 50  # of lists and mappings in each other


class NotPlain(ValueError):
    """What is wrong with a text, in one line."""


def read_plain(path: Path, most_bytes: int) -> Any:
    """The plain data in a YAML file: mappings, lists, strings, numbers, dates. Raises OSError where it cannot be read,
    and NotPlain."""
    try:
        with path.open("rb") as file:
            raw = file.read(most_bytes + 1)
    except ValueError as error:  # a name that no file can have
        raise OSError(str(error)) from error
    if len(raw) > most_bytes:
        raise NotPlain(f"it is too long: at most {most_bytes} bytes")
    return plain_data(raw)


def plain_data(raw: bytes) -> Any:
    """The plain data in a YAML text. Raises NotPlain."""
    import yaml

    # The parser in C, where it was built, is ten times as fast.
    safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(safe):  # type: ignore[misc]
        """The safe loader without names given twice."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = Counter(key.value for key, _ in node.value if isinstance(key.value, str))
            for key, times in keys.items():
                if times > 1:
                    raise yaml.YAMLError(f"{key!r} is given twice")
            return super().construct_mapping(node, deep)

    try:
        text, depth = raw.decode("utf-8"), 0
        # Before anything is built, as the parser in C would run out of stack, and aliases grow where they are built.
        for event in yaml.parse(text, safe):
            if isinstance(event, yaml.AliasEvent):
                raise yaml.YAMLError("it has an alias (*), and everything is to be written out")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise yaml.YAMLError("it is nested too deeply")
        return yaml.load(text, Loader)
    # The safe loader lets through whatever the conversion of a scalar raises: a KeyError for `!!bool perhaps`.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, ArithmeticError) as error:
        raise NotPlain(" ".join(str(error).split())[:200] or type(error).__name__) from error
