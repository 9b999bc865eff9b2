"""Knobs, refusals and the space of legal configs."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redtune.backends import BACKENDS
from redtune.combine import COMBINES
from redtune.config import (
    KNOBS,
    Config,
    choices,
    combinations,
    default_of,
    help_of,
    is_read,
    own_refusals,
    parse_fix,
    settled,
)
from redtune.dtypes import DTYPES
from redtune.errors import UsageError
from redtune.operators import OPERATORS
from redtune.refusals import MAX_BLOCKS, problem_refusal, refusals
from redtune.space import make_space
from redtune.types import Problem
from tests.text.kernels import ARCHS, Target, config, problem, random_cases, reasons, rendered, target

ROOT = Path(__file__).parents[2]


# --- knobs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KNOBS)
def test_a_knob_is_complete(name: str) -> None:
    values = choices(name)
    assert len(set(values)) == len(values) > 1
    assert default_of(name) in values
    assert {type(value) for value in values} == {type(default_of(name))}
    # The help stands behind a constant in emitted code and in --help: a phrase, no sentence, no line break.
    assert re.fullmatch(r"[^\n]{5,110}[^.\n]", help_of(name))
    assert not help_of(name)[0].isupper()


def test_a_default_must_be_a_choice() -> None:
    from redtune.config import knob

    with pytest.raises(AssertionError, match="3 is not one of"):
        knob(3, (1, 2), "help")


@pytest.mark.parametrize("name", [name for name, field in KNOBS.items() if field.metadata["when"]])
def test_a_condition_reads_earlier_knobs_only(name: str) -> None:
    """`combinations` and `draw` ask it before the later ones have a value."""
    earlier = list(KNOBS)[: list(KNOBS).index(name)]
    for values in itertools.product(
        *({default_of(n), *choices(n)} if isinstance(default_of(n), str) else [default_of(n)] for n in earlier)
    ):
        KNOBS[name].metadata["when"](type("Earlier", (), dict(zip(earlier, values, strict=True))))


@pytest.mark.parametrize("name", KNOBS)
def test_parse_fix(name: str) -> None:
    for value in choices(name):
        assert parse_fix(f"{name}={value}") == (name, value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("block", "--fix wants KNOB=VALUE, not 'block'"),
        ("", "--fix wants KNOB=VALUE, not ''"),
        ("blok=256", "there is no knob 'blok': did you mean 'block'? choose from "),
        ("=256", "there is no knob '': choose from "),
        ("block=100", "knob block cannot be '100': choose from 32, 64, "),
        ("block=", "knob block cannot be '': choose from 32, "),
        ("block=0256", "knob block cannot be '0256': choose from 32, "),
        ("block=256.0", "knob block cannot be '256.0': choose from 32, "),
        ("walk=Tile", "knob walk cannot be 'Tile': choose from tile, stride, chunk"),
        ("walk=tile=x", "knob walk cannot be 'tile=x': choose from tile, "),
    ],
)
def test_parse_fix_says_what_is_wrong(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_fix(text)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_settled_resets_what_has_no_effect() -> None:
    idle = dataclasses.replace(Config(), tree="strided", second_block=64, cluster=8, walk="tile", blocks_per_cu=8)
    assert settled(idle) == dataclasses.replace(Config(), walk="tile")
    used = dataclasses.replace(Config(), exchange="lds", tree="strided", combine="two_pass", second_block=64)
    assert settled(used) == used
    assert settled(dataclasses.replace(used, wave=64)) == used  # the strided tree has no tail
    unrolled = dataclasses.replace(used, tree="unrolled", wave=64)
    assert settled(unrolled) == unrolled


def test_settling_again_changes_nothing() -> None:
    rng = random.Random(0)
    for _ in range(500):
        drawn = settled(Config(**{name: rng.choice(choices(name)) for name in KNOBS}))
        assert settled(drawn) == drawn
        assert all(is_read(name, drawn) or getattr(drawn, name) == default_of(name) for name in KNOBS)


def test_the_default_is_legal_everywhere() -> None:
    for dialect in ARCHS:
        for op, dtype in itertools.product(OPERATORS, DTYPES):
            for n in (1, 1000, 2**40):
                assert reasons(target(dialect), Config(), problem(op, dtype, n)) == []


# --- refusals ---------------------------------------------------------------------------------------------------------

RUN_TO_RUN = {"determinism": "run-to-run"}


@dataclasses.dataclass(frozen=True)
class Refused:
    """One config that cannot be, and words that its sentence holds."""

    words: tuple[str, ...]
    knobs: dict[str, Any]
    on: Target = dataclasses.field(default_factory=lambda: target("cuda"))
    problem: Problem = dataclasses.field(default_factory=problem)


REFUSED = [
    Refused(("block", "100", "32, 64"), {"block": 100}),
    Refused(("walk", "'zigzag'", "tile, stride, chunk"), {"walk": "zigzag"}),
    Refused(("tree strided", "no effect", "sequential"), {"tree": "strided"}),
    Refused(("cluster 8", "no effect", "4"), {"cluster": 8}),
    Refused(("block 96", "64-lane"), {"block": 96, "wave": 64}),
    Refused(("power of two", "384"), {"exchange": "lds", "block": 384}),
    Refused(("items 32", "vector 8", "256", "128"), {"items": 32, "vector": 8}),
    Refused(
        ("items 8", "vector 8", "64", "32 on a CPU"),
        {"items": 8, "vector": 8},
        target("opencl"),
        problem("max", "int8"),
    ),
    Refused(("accumulators 4", "2 elements"), {"items": 2, "vector": 1, "accumulators": 4}),
    Refused(("block 1024", "512", "sm_90"), {"block": 1024}, target("cuda", max_block=512)),
    Refused(
        ("second block 1024", "512", "sm_90"),
        {"combine": "two_pass", "second_block": 1024},
        target("cuda", max_block=512),
    ),
    Refused(("vector 8", "float64", "64 bytes", "16"), {"vector": 8}, problem=problem(dtype="float64")),
    Refused(
        ("16388 bytes", "8192", "sm_90"),
        {"exchange": "lds", "block": 1024},
        target("cuda", lds_bytes=8192),
        problem("argmax"),
    ),
    Refused(("walk tile", "blocks", str(MAX_BLOCKS)), {"walk": "tile"}, problem=problem(n=2**33)),
    # the dialects
    Refused(("no_allocate", "sm_75"), {"hint": "no_allocate"}, target("cuda", "sm_75")),
    Refused(("redux", "sm_75"), {"exchange": "redux"}, target("cuda", "sm_75"), problem("max", "int32")),
    Refused(("redux", "max", "float32"), {"exchange": "redux"}, problem=problem("max")),
    Refused(("redux", "argmax", "int32"), {"exchange": "redux"}, problem=problem("argmax", "int32")),
    Refused(("redux", "prod", "int32", "uint64"), {"exchange": "redux"}, problem=problem("prod", "int32")),
    Refused(("redux", "32", "64"), {"exchange": "redux", "wave": 64}, problem=problem("max", "int32")),
    Refused(("16 tails", "64", "15"), {"block": 1024, "wave": 64}),
    Refused(("16 tails", "64", "15"), {"wave": 64, "combine": "two_pass", "second_block": 1024}),
    Refused(("no_allocate", "HIP", "streaming"), {"hint": "no_allocate"}, target("hip")),
    Refused(("redux", "NVIDIA"), {"exchange": "redux"}, target("hip"), problem("max", "int32")),
    Refused(("redux", "NVIDIA"), {"exchange": "redux"}, target("opencl"), problem("max", "int32")),
    Refused(("cpu", "sub-groups of 64"), {"wave": 64}, target("opencl", waves=(32,))),
    Refused(("sub-groups of 64",), {"exchange": "lds", "tree": "unrolled", "wave": 64}, target("opencl", waves=(32,))),
    Refused(("shuffle", "cl_khr_subgroup_shuffle_relative"), {}, target("opencl", features=("device_atomics",))),
    Refused(("no_allocate", "OpenCL", "streaming"), {"hint": "no_allocate"}, target("opencl")),
    Refused(
        ("streaming", "clang", "cpu"),
        {"hint": "streaming"},
        target("opencl", features=("device_atomics", "subgroup_shuffle")),
    ),
    # the combines
    Refused(("last_block", "acquire-release", "cpu"), {}, target("opencl", features=("subgroup_shuffle",))),
    Refused(("atomic", "one field", "argmax has 2"), {"combine": "atomic"}, problem=problem("argmax")),
    Refused(("atomic", "float16", "float32"), {"combine": "atomic"}, problem=problem(dtype="float16")),
    Refused(("atomic", "int8", "int32"), {"combine": "atomic"}, problem=problem("max", "int8")),
    Refused(
        ("atomic", "int64", "64-bit", "sm_90"),
        {"combine": "atomic"},
        target("cuda", features=()),
        problem(dtype="int32"),
    ),
    Refused(
        ("atomic", "float32", "run-to-run"), {"combine": "atomic"}, problem=dataclasses.replace(problem(), **RUN_TO_RUN)
    ),
    Refused(("cluster", "sm_80"), {"combine": "cluster"}, target("cuda", "sm_80")),
    Refused(("cluster", "gfx942"), {"combine": "cluster"}, target("hip")),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: "-".join(map(str, case.knobs.values())))
def test_a_refusal_is_a_sentence_with_the_value(case: Refused) -> None:
    found = reasons(case.on, dataclasses.replace(Config(), **case.knobs), case.problem)
    assert any(all(word in sentence for word in case.words) for sentence in found), found
    for sentence in found:
        assert re.fullmatch(r"[^\n]*[^.\n]", sentence)


def rules() -> Iterator[str]:
    """A pattern for every sentence that the doors can refuse with, from their source."""
    doors = ["config.py", "refusals.py", "combine.py", *(f"backends/{name}.py" for name in BACKENDS)]
    for door in doors:
        for node in ast.walk(ast.parse((ROOT / "redtune" / door).read_text())):
            if isinstance(node, ast.Yield) and isinstance(node.value, ast.JoinedStr):
                parts = (re.escape(p.value) if isinstance(p, ast.Constant) else ".*" for p in node.value.values)
                yield "".join(parts)
            elif isinstance(node, ast.Yield) and isinstance(node.value, ast.Constant):
                yield re.escape(node.value.value)


def test_every_rule_has_a_test() -> None:
    produced = {
        s for case in REFUSED for s in reasons(case.on, dataclasses.replace(Config(), **case.knobs), case.problem)
    }
    missing = [rule for rule in rules() if not any(re.fullmatch(rule, sentence) for sentence in produced)]
    assert len(list(rules())) > 20
    assert missing == []


# A config can come from a file, with any whole number or any text in a field.
ODD = {int: (0, -1, 10**30), str: ("", "x")}
ODD_CONFIGS = [{name: value} for name in KNOBS for value in ODD[type(default_of(name))]]


@pytest.mark.parametrize("knobs", ODD_CONFIGS, ids=str)
def test_a_value_that_no_knob_has_is_refused_and_no_more(knobs: dict[str, Any]) -> None:
    (name,) = knobs
    sentences = list(own_refusals(dataclasses.replace(Config(), **knobs)))
    assert any(sentence.startswith(f"knob {name} cannot be {knobs[name]!r}") for sentence in sentences)


def test_a_device_without_float64_takes_no_float64() -> None:
    on = target("opencl", features=())
    assert "cpu has no float64" in problem_refusal(problem(dtype="float64"), on.device)
    assert problem_refusal(problem(), on.device) == ""
    with pytest.raises(UsageError, match="cpu has no float64"):
        make_space(problem(dtype="float64"), on.dialect, on.device, {})


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_run_to_run_keeps_atomics_where_order_is_nothing(op: str, dtype: str) -> None:
    on = target("cuda")
    c = config(combine="atomic")
    any_order = set(reasons(on, c, problem(op, dtype)))
    fixed_order = set(reasons(on, c, problem(op, dtype, determinism="run-to-run")))
    assert any_order <= fixed_order
    rounds = op in ("sum", "prod") and DTYPES[dtype].kind == "float"
    assert any("run-to-run" in sentence for sentence in fixed_order - any_order) == rounds


# --- the space --------------------------------------------------------------------------------------------------------


def test_combinations_are_settled_and_each_is_there_once() -> None:
    admitted = {name: choices(name) if isinstance(default_of(name), str) else choices(name)[:2] for name in KNOBS}
    admitted |= {"block": (256,), "items": (4,), "accumulators": (4,), "blocks_per_cu": (1, 2), "cluster": (4, 8)}
    admitted |= {"second_block": (64, 256), "wave": (32, 64)}
    found = list(combinations({}, admitted))
    assert len(found) == len(set(found)) > 1000
    assert all(c == settled(c) for c in found)
    everything = itertools.product(*(admitted[name] for name in KNOBS))
    assert set(found) == {settled(Config(*values)) for values in everything}


FIXED: dict[str, Any] = {"block": 512, "vector": 4, "items": 4, "accumulators": 4}


@pytest.mark.parametrize(
    ("dialect", "op", "dtype", "fixed"),
    [
        ("cuda", "max", "int32", FIXED),
        ("cuda", "argmax", "float32", FIXED | {"exchange": "lds"}),
        ("hip", "sum", "float32", FIXED | {"wave": 64}),
        ("opencl", "sum", "float64", FIXED | {"vector": 2, "combine": "two_pass"}),
    ],
)
def test_the_walk_finds_what_brute_force_finds(dialect: str, op: str, dtype: str, fixed: dict[str, Any]) -> None:
    on, p = target(dialect), problem(op, dtype)
    space = make_space(p, on.dialect, on.device, fixed)
    walked = list(space.walk())
    options = ([fixed[name]] if name in fixed else choices(name) for name in KNOBS)
    legal = {
        c for values in itertools.product(*options) if not refusals(c := Config(*values), p, on.dialect, on.device)
    }
    assert len(walked) == len(set(walked))
    assert set(walked) == legal
    assert space.is_within(len(legal))
    assert not space.is_within(len(legal) - 1)
    # What is offered of each knob is what some legal config has, no more and no less.
    assert space.admitted == {
        name: tuple(v for v in choices(name) if any(getattr(c, name) == v for c in legal)) for name in KNOBS
    }


@pytest.mark.parametrize("dialect", ARCHS)
def test_every_draw_is_legal_and_renders(dialect: str) -> None:
    on = target(dialect)
    for c, p in random_cases(on, 180, seed=2):
        assert settled(c) == c
        kernel = rendered(on, c, p)
        assert kernel.source.count("{") == kernel.source.count("}")
        assert kernel.launches


def test_draws_reach_every_choice() -> None:
    on = target("cuda")
    space = make_space(problem("max", "int32"), on.dialect, on.device, {})
    rng = random.Random(0)
    drawn = [space.draw(rng) for _ in range(600)]
    for name in KNOBS:
        assert {getattr(c, name) for c in drawn} == set(space.admitted[name]), name


def test_draws_keep_what_is_fixed() -> None:
    on = target("cuda")
    space = make_space(problem(), on.dialect, on.device, {"block": 128, "exchange": "lds", "tree": "unrolled"})
    rng = random.Random(0)
    drawn = [space.draw(rng) for _ in range(50)]
    assert {(c.block, c.exchange, c.tree) for c in drawn if c} == {(128, "lds", "unrolled")}
    assert "block is fixed at 128, not 256" in space.refusals(Config())


@pytest.mark.parametrize(
    ("fixed", "words"),
    [
        ({"block": 96, "wave": 64}, ("block=96, wave=64", "block 96 is not a whole number of 64-lane tails")),
        ({"exchange": "redux"}, ("exchange=redux", "redux needs a state of one 32-bit integer")),
        ({"combine": "atomic", "tree": "strided", "exchange": "shuffle"}, ("tree=strided", "no effect")),
        ({"vector": 8}, ("vector=8", "load of 32 bytes")),
    ],
)
def test_a_space_with_nothing_in_it_says_why(fixed: dict[str, Any], words: tuple[str, ...]) -> None:
    on = target("cuda")
    with pytest.raises(UsageError) as caught:
        make_space(problem(), on.dialect, on.device, fixed)
    assert all(word in str(caught.value) for word in words)
    assert str(caught.value).startswith("no config is left with ")


# What a plain OpenCL 1.2 device offers, NVIDIA's included: no sub-group size to ask for, no ordered atomics.
PLAIN = {"features": ("fp64", "atomics_64"), "waves": ()}


@pytest.mark.parametrize("op", ["sum", "argmax"])
def test_a_plain_opencl_device_has_a_space(op: str) -> None:
    on = target("opencl", **PLAIN)
    space = make_space(problem(op), on.dialect, on.device, {})
    assert space.admitted["exchange"] == ("lds",)
    assert "two_pass" in space.admitted["combine"]
    assert {64, 256, 1024} <= set(space.admitted["block"])
    assert space.draw(random.Random(0)) is not None


def test_every_combine_has_a_meaning() -> None:
    assert all(re.fullmatch(r"[a-z][^\n]*[^.\n]", combine.meaning) for combine in COMBINES.values())
