"""Records survive their trip through JSON, and what does not fit is named."""

from __future__ import annotations

import dataclasses
import enum
import json
import types
import typing
from typing import Any

import pytest

import redtune.types
from redtune.config import Config
from redtune.errors import UsageError
from redtune.types import Best, Problem, Timing, Trial, as_json, from_json
from tests.text.kernels import config, problem, rendered, target


def sample(kind: Any, is_full: bool = True) -> Any:
    """A value of the type: every record with all its optional fields, or with none of them."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{f.name: sample(hints[f.name], is_full) for f in dataclasses.fields(kind)})
    if origin in (typing.Union, types.UnionType):
        return sample(inner[0], is_full) if is_full else None
    if origin is tuple:
        return (sample(inner[0], is_full), sample(inner[0], is_full)) if is_full else ()
    if origin is dict:
        return {"key": sample(inner[1], is_full)} if is_full else {}
    if issubclass(kind, enum.Enum):
        return list(kind)[is_full]
    return {int: 2**53 + 1, float: 0.1, str: "a text", bool: is_full}[kind]


CLASSES = [c for c in vars(redtune.types).values() if dataclasses.is_dataclass(c)]
BEST = sample(Best)
RECORDS = [sample(c, is_full) for c in CLASSES for is_full in (True, False)]
RECORDS.append(rendered(target("cuda"), config(combine="two_pass"), problem()))


@pytest.mark.parametrize(
    ("fields", "layout", "results"),
    [
        ({}, "flat", 1),
        ({"outer": 3}, "rows", 3),
        ({"inner": 3}, "columns", 3),
        ({"outer": 2, "inner": 3}, "columns", 6),
        ({"is_strided": True}, "columns", 1),
        ({"outer": 4, "is_strided": True}, "columns", 4),
        ({"is_ragged": True}, "ragged", 1),
        ({"outer": 5, "is_ragged": True}, "ragged", 5),
    ],
)
def test_how_elements_lie(fields: dict[str, Any], layout: str, results: int) -> None:
    p = problem(**fields)
    assert (p.layout, p.results) == (layout, results)


def test_an_entry_from_before_there_were_layouts_is_a_flat_problem() -> None:
    old = {"op": "sum", "dtype": "float32", "accumulate": "float32", "n": 1 << 24, "determinism": "any"}
    assert from_json(Problem, old) == problem()


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: type(r).__name__)
def test_round_trip(record: Any) -> None:
    back = from_json(type(record), json.loads(json.dumps(as_json(record))))
    assert back == record
    assert type(back) is type(record)


def test_a_whole_number_is_a_float_where_one_is_wanted() -> None:
    timing = from_json(Timing, {"median_us": 2, "spread_us": 0, "samples": 3})
    assert isinstance(timing.median_us, float)


def changed(record: Any, path: str, value: Any) -> Any:
    data = as_json(record)
    *way, last = path.split(".")
    at = data
    for key in way:
        at = at[key]
    at[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("trials", "40"),
        ("trials", 40.0),
        ("trials", True),
        ("trials", None),
        ("median_us", "12.5"),
        ("median_us", True),
        ("median_us", None),
        ("worst_us", "slow"),
        ("baseline", 3),
        ("versions", ["numpy"]),
        ("problem", "sum"),
        ("problem", None),
        ("problem.n", 1.5),
        ("problem.op", None),
        ("problem.outer", 2.0),
        ("problem.is_masked", 1),
        ("problem.is_seeded", None),
        ("problem.result", None),
        ("device.waves", 32),
        ("device.waves", ["32"]),
        ("device.features", [1]),
        ("config.block", "256"),
        ("config.walk", 1),
    ],
)
def test_a_wrong_type_is_named(path: str, value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        from_json(Best, changed(BEST, path, value))
    assert str(caught.value).startswith(f"Best.{path} cannot be ")


def test_an_unknown_verdict_is_named() -> None:
    with pytest.raises(UsageError, match=r"^Trial\.verdict cannot be 'FINE'"):
        from_json(Trial, as_json(sample(Trial)) | {"verdict": "FINE"})


@pytest.mark.parametrize(
    ("path", "where"), [("colour", "Best"), ("problem.shape", "Best.problem"), ("config.warp", "Best.config")]
)
def test_an_unknown_field_is_named(path: str, where: str) -> None:
    with pytest.raises(UsageError, match=rf"^{where} has no field {path.rpartition('.')[2]!r}$"):
        from_json(Best, changed(BEST, path, 1))


@pytest.mark.parametrize("cls", CLASSES)
def test_a_missing_field_is_named(cls: type) -> None:
    record = next(r for r in RECORDS if isinstance(r, cls))
    for field in dataclasses.fields(cls):
        data = {name: value for name, value in as_json(record).items() if name != field.name}
        if field.default is dataclasses.MISSING:
            with pytest.raises(UsageError, match=rf"^{cls.__name__} lacks its field {field.name!r}$"):
                from_json(cls, data)
        else:
            assert getattr(from_json(cls, data), field.name) == field.default


@pytest.mark.parametrize("data", [None, [], "text", 3])
def test_what_is_no_mapping_is_refused(data: Any) -> None:
    with pytest.raises(UsageError, match=r"^Config cannot be .*mapping"):
        from_json(Config, data)


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: type(r).__name__)
def test_records_are_frozen(record: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, dataclasses.fields(record)[0].name, None)
    assert not hasattr(record, "__dict__")
