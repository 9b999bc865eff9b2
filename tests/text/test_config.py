"""Knobs, refusals and the space of legal configs."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import random
import re
from collections import Counter
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
from redtune.defaults import default_config, starting_points
from redtune.dtypes import DTYPES
from redtune.errors import UsageError
from redtune.operators import OPERATORS, field_type
from redtune.plan import make_plan
from redtune.refusals import MAX_BLOCKS, problem_refusal, refusals
from redtune.render import render
from redtune.space import make_space
from redtune.types import Problem
from redtune.wanted import default_with_fixes
from tests.text.kernels import (
    ARCHS,
    LAYOUTS,
    PAIRS,
    Target,
    config,
    extras,
    many_cases,
    operator,
    problem,
    random_config,
    random_problems,
    reasons,
    rendered,
    target,
)

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


@pytest.mark.parametrize("dialect", ARCHS)
def test_the_default_is_legal_for_every_flat_problem(dialect: str) -> None:
    on = target(dialect)
    for op, dtype in PAIRS:
        for n, extra in zip((1, 1000, 2**40, 2**24, 7), extras(op, dtype), strict=False):
            assert reasons(on, Config(), problem(op, dtype, n, **extra)) == []


@pytest.mark.parametrize("dialect", ["cuda", "hip"])
def test_the_default_of_a_large_problem_reads_as_wide_as_a_load_goes(dialect: str) -> None:
    """None of what runs anywhere is taken where the first shape can be, and what no cache keeps is streamed."""
    on = target(dialect)
    for dtype in DTYPES.values():
        found = default_config(problem("sum", dtype.name, (1 << 30) // dtype.bytes), on.dialect, on.device)
        assert (found.block, found.vector * dtype.bytes, found.walk) == (512, 16, "stride")
        assert found.hint == ("streaming" if found.vector > 1 else "none")
        kept = default_config(problem("sum", dtype.name, (1 << 26) // dtype.bytes), on.dialect, on.device)
        assert kept.hint == "none"


@pytest.mark.parametrize(
    ("arch", "op", "dtype", "finish"),
    [
        ("sm_90", "sum", "float32", ("collector", "after")),
        ("sm_90", "logsumexp", "float32", ("two_pass", "early")),
        ("sm_90", "max", "float64", ("two_pass", "early")),
        ("sm_90", "count_nonzero", "float32", ("tally", "after")),
        ("sm_80", "logsumexp", "float32", ("collector", "after")),
        ("sm_60", "logsumexp", "float32", ("two_pass", "after")),
    ],
)
def test_how_blocks_meet_by_default_follows_the_state_and_the_device(
    arch: str, op: str, dtype: str, finish: tuple[str, str]
) -> None:
    on = target("cuda", arch)
    found = default_config(problem(op, dtype, 1 << 20), on.dialect, on.device)
    assert (found.combine, found.second_launch) == finish


def test_a_knob_that_is_fixed_takes_the_next_start_where_it_does_not_go_with_the_default() -> None:
    on = target("cuda")
    p = problem("sum", "int32", 1 << 20)
    assert default_config(p, on.dialect, on.device).combine == "tally"
    found = default_with_fixes({"walk": "tile"}, p, on.dialect, on.device)
    assert (found.walk, found.combine, found.second_launch) == ("tile", "two_pass", "early")
    kept = default_with_fixes({"block": 512}, p, on.dialect, on.device)
    assert (kept.block, kept.combine) == (512, "tally")
    with pytest.raises(UsageError, match="combine tally counts up to 65535 blocks, and walk tile"):
        default_with_fixes({"walk": "tile", "combine": "tally"}, p, on.dialect, on.device)


@pytest.mark.parametrize("dialect", ARCHS)
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "flat"])
def test_a_search_has_somewhere_to_begin(dialect: str, layout: str) -> None:
    """Whatever the shape: tall, wide, huge, one of everything."""
    on, rng = target(dialect), random.Random(1)
    sizes = [(1, 1, 1), (1, 2**40, 1), (2**40, 1, 1), (3, 1000, 1), (10**6, 30, 1)]
    sizes += [(1, 1000, 1000), (7, 3, 2**30), (2**20, 2, 2)] * (layout == "columns")
    for op, dtype in rng.sample(PAIRS, 25):
        for outer, n, inner in rng.sample(sizes, 2):
            fields = LAYOUTS[layout] | {"outer": outer, "n": n, "inner": inner}
            p = problem(op, dtype, **fields | rng.choice(list(extras(op, dtype))))
            found = starting_points(p, on.dialect, on.device)
            assert found[0] == default_config(p, on.dialect, on.device)
            assert all(settled(c) == c and not reasons(on, c, p) for c in found)


# --- refusals ---------------------------------------------------------------------------------------------------------

RUN_TO_RUN = {"determinism": "run-to-run"}


@dataclasses.dataclass(frozen=True)
class Refused:
    """One config that cannot be, and words that its sentence holds."""

    words: tuple[str, ...]
    knobs: dict[str, Any]
    on: Target = dataclasses.field(default_factory=lambda: target("cuda"))
    problem: Problem = dataclasses.field(default_factory=problem)


ROWS, COLUMNS = problem(**LAYOUTS["rows"]), problem(**LAYOUTS["columns"])
INTEGER_ROWS = problem("max", "int32", **LAYOUTS["rows"])

REFUSED = [
    Refused(("block", "100", "32, 64"), {"block": 100}),
    Refused(("walk", "'zigzag'", "tile, stride, chunk"), {"walk": "zigzag"}),
    Refused(("tree strided", "no effect", "sequential"), {"tree": "strided"}),
    Refused(("cluster 8", "no effect", "4"), {"cluster": 8}),
    Refused(("block 96", "64-lane"), {"block": 96, "wave": 64}),
    Refused(("power of two", "384"), {"exchange": "lds", "block": 384}),
    Refused(("last_wave", "64", "take unrolled"), {"exchange": "lds", "tree": "last_wave", "block": 64}),
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
    Refused(("hint streaming", "complex64"), {"hint": "streaming"}, problem=problem(dtype="complex64")),
    Refused(("16 float additions", "8", "accumulators"), {"items": 32, "accumulators": 2}),
    Refused(("split 8", "MiB", "1024"), {"split": 8}, problem=problem(n=100, outer=2**30)),
    # layouts
    Refused(("team 64", "block of 64", "0"), {"team": 64, "block": 64}, problem=ROWS),
    Refused(("block 96", "teams of 64"), {"team": 64, "block": 96}, problem=ROWS),
    Refused(("team 8", "rows and columns", "0"), {"team": 8}),
    Refused(("split 4", "rows and columns", "1"), {"split": 4}),
    Refused(("walk tile", "flat", "rows"), {"walk": "tile"}, problem=ROWS),
    Refused(("combine last_block", "split is 1", "two_pass"), {}, problem=ROWS),
    Refused(("second_block 64", "split is 1", "256"), {"combine": "two_pass", "second_block": 64}, problem=ROWS),
    Refused(("split 4", "one thread", "team 1"), {"split": 4, "team": 1}, problem=ROWS),
    Refused(("tree unrolled", "whole block"), {"exchange": "lds", "tree": "unrolled", "team": 8}, problem=ROWS),
    Refused(("hint streaming", "neighbours", "1"), {"hint": "streaming"}, problem=COLUMNS),
    Refused(("wave 64", "team", "32"), {"team": 8, "wave": 64}, problem=ROWS),
    Refused(("exchange shuffle", "columns", "lds"), {"team": 8}, problem=COLUMNS),
    Refused(
        ("cluster", "whole blocks", "team 8", "split 2"),
        {"combine": "cluster", "team": 8, "split": 2},
        problem=ROWS,
    ),
    Refused(("cluster", "clusters of 4", "split 2"), {"combine": "cluster", "split": 2}, problem=ROWS),
    # the dialects
    Refused(("no_allocate", "sm_75"), {"hint": "no_allocate"}, target("cuda", "sm_75")),
    Refused(("redux", "sm_75"), {"exchange": "redux"}, target("cuda", "sm_75"), problem("max", "int32")),
    Refused(("redux", "max", "float32"), {"exchange": "redux"}, problem=problem("max")),
    Refused(("redux", "argmax", "int32"), {"exchange": "redux"}, problem=problem("argmax", "int32")),
    Refused(("redux", "prod", "int32", "uint64"), {"exchange": "redux"}, problem=problem("prod", "int32")),
    Refused(("redux", "32", "64"), {"exchange": "redux", "wave": 64}, problem=problem("max", "int32")),
    Refused(("redux", "32 lanes", "team of 8"), {"exchange": "redux", "team": 8}, problem=INTEGER_ROWS),
    Refused(("16 tails", "64", "15"), {"block": 1024, "wave": 64}),
    Refused(("16 tails", "64", "15"), {"wave": 64, "combine": "two_pass", "second_block": 1024}),
    Refused(("no_allocate", "HIP", "streaming"), {"hint": "no_allocate"}, target("hip")),
    Refused(("redux", "NVIDIA"), {"exchange": "redux"}, target("hip"), problem("max", "int32")),
    Refused(("redux", "NVIDIA"), {"exchange": "redux"}, target("opencl"), problem("max", "int32")),
    Refused(("dpp", "AMD"), {"exchange": "dpp"}, target("cuda")),
    Refused(("dpp", "AMD", "OpenCL"), {"exchange": "dpp"}, target("opencl")),
    Refused(
        ("wave 64", "team", "32"),
        {"exchange": "dpp", "team": 8, "wave": 64, "combine": "two_pass"},
        target("hip"),
        ROWS,
    ),
    Refused(("cpu", "sub-groups of 64"), {"wave": 64}, target("opencl", waves=(32,))),
    Refused(("sub-groups of 64",), {"exchange": "lds", "tree": "unrolled", "wave": 64}, target("opencl", waves=(32,))),
    Refused(("shuffle", "cl_khr_subgroup_shuffle_relative"), {}, target("opencl", features=("device_atomics",))),
    Refused(("no_allocate", "OpenCL", "streaming"), {"hint": "no_allocate"}, target("opencl")),
    Refused(
        ("streaming", "clang", "cpu"),
        {"hint": "streaming"},
        target("opencl", features=("device_atomics", "subgroup_shuffle")),
    ),
    Refused(
        ("streaming", "4 bytes", "CPU", "2"),
        {"hint": "streaming"},
        target("opencl"),
        problem("max", "float16"),
    ),
    # the combines
    Refused(("last_block", "acquire-release", "cpu"), {}, target("opencl", features=("subgroup_shuffle",))),
    Refused(("atomic", "one field", "argmax has 2"), {"combine": "atomic"}, problem=problem("argmax")),
    Refused(("atomic", "float16", "float32"), {"combine": "atomic"}, problem=problem(dtype="float16")),
    Refused(("atomic", "bool", "uint32"), {"combine": "atomic"}, problem=problem("any")),
    Refused(("atomic", "float32", "keeps what it loses"), {"combine": "atomic"}, problem=problem(is_compensated=True)),
    Refused(("atomic", "float32 sums", "264 blocks", "at most 4"), {"combine": "atomic"}),
    Refused(("atomic", "float32 sums", "8 blocks", "at most 4"), {"combine": "atomic", "split": 8}, problem=ROWS),
    Refused(("atomic", "int8", "int32"), {"combine": "atomic"}, problem=problem("max", "int8")),
    Refused(
        ("atomic", "int64", "64-bit", "sm_90"),
        {"combine": "atomic"},
        target("cuda", features=()),
        problem(dtype="int32"),
    ),
    Refused(
        ("atomic", "float64", "sm_60", "sm_52"),
        {"combine": "atomic", "block": 64},
        target("cuda", "sm_52"),
        problem("sum", "float64"),
    ),
    Refused(
        ("atomic", "float32", "run-to-run"), {"combine": "atomic"}, problem=dataclasses.replace(problem(), **RUN_TO_RUN)
    ),
    Refused(("cluster", "sm_80"), {"combine": "cluster"}, target("cuda", "sm_80")),
    Refused(("vector 4", "multiple of 4", "7"), {"vector": 4, "team": 8}, problem=problem(outer=3, n=5, inner=7)),
    Refused(("vector 2", "mask"), {"vector": 2, "team": 8}, problem=problem(n=5, inner=8, is_masked=True)),
    Refused(
        ("last_block", "counts", "several columns"), {"vector": 2, "team": 8, "split": 2}, problem=problem(n=5, inner=8)
    ),
    Refused(
        ("accumulators 4", "2 elements of a column"),
        {"vector": 2, "team": 8, "items": 2},
        problem=problem(n=5, inner=8),
    ),
    Refused(("collector", "wait", "gfx942"), {"combine": "collector"}, target("hip")),
    Refused(("collector", "flat", "rows"), {"combine": "collector", "split": 2}, problem=ROWS),
    Refused(
        ("second_launch early", "dependent launches", "sm_80"),
        {"combine": "two_pass", "second_launch": "early"},
        target("cuda", "sm_80"),
    ),
    Refused(
        ("second_launch early", "flat", "after"),
        {"combine": "two_pass", "second_launch": "early", "split": 2},
        problem=ROWS,
    ),
    Refused(("tally", "flat", "rows"), {"combine": "tally", "split": 2}, problem=ROWS),
    Refused(("tally", "integers", "sum", "float32"), {"combine": "tally"}, problem=problem("sum")),
    Refused(("tally", "integers", "max", "int32"), {"combine": "tally"}, problem=problem("max", "int32")),
    Refused(("tally", "integers", "prod", "int64"), {"combine": "tally"}, problem=problem("prod", "int32")),
    Refused(("tally", "64-bit atomics"), {"combine": "tally"}, target("opencl", features=()), problem("any", "int32")),
    Refused(("tally", "65535", "walk tile"), {"combine": "tally", "walk": "tile"}, problem=problem("any", "int32")),
    Refused(
        ("tally", "65535 blocks", "not 67200"),
        {"combine": "tally", "blocks_per_cu": 32},
        target("cuda", compute_units=2100),
        problem("any", "int32", n=2**30),
    ),
    Refused(("accumulators 8", "words", "4"), {"vector": 4, "accumulators": 8}, problem=problem("max", "int8")),
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
ODD_CONFIGS = [{name: v} for name in KNOBS for v in ODD[type(default_of(name))] if v not in choices(name)]


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
def test_run_to_run_keeps_atomics_where_order_is_nothing(op: str) -> None:
    on, c = target("cuda"), config(combine="atomic")
    for dtype in (dtype for name, dtype in PAIRS if name == op):
        p = problem(op, dtype)
        any_order, fixed_order = (
            {sentence for sentence in reasons(on, c, p) if sentence.startswith("combine atomic")}
            for p in (p, dataclasses.replace(p, determinism="run-to-run"))
        )
        # Sums of floats round; the larger of two equal ones is either, and they may differ in bits.
        in_floats = any(field_type(kind, p.accumulate).startswith("float") for _, kind in operator(op, dtype).state)
        can = len(operator(op, dtype).state) == 1
        assert any("run-to-run" in sentence for sentence in fixed_order) == (in_floats and can)
        assert in_floats or any_order == fixed_order


def test_atomics_on_floats_are_few() -> None:
    """Each rounds once more, one after the other, and nothing keeps what they lose."""
    on = target("cuda")
    few = problem(n=4 * 1024)
    assert reasons(on, config(combine="atomic", walk="tile"), few) == []
    assert reasons(on, config(combine="atomic", walk="tile"), dataclasses.replace(few, n=4 * 1024 + 1)) != []
    assert reasons(on, config(combine="atomic", split=4), ROWS) == []
    wide = problem(dtype="float64", n=1 << 22)
    assert reasons(on, config(combine="atomic", walk="tile"), wide) == []
    assert reasons(on, config(combine="atomic"), problem("sum", "int32")) == []
    assert reasons(on, config(combine="atomic"), problem("prod")) == []


@pytest.mark.parametrize("dialect", ARCHS)
def test_no_two_configs_mean_the_same_kernel(dialect: str) -> None:
    """One knob changed, and the text, the launches and the number of parts as they were: that knob has no effect."""
    on, rng = target(dialect), random.Random(3)
    others = [(name, value) for name in KNOBS for value in choices(name) if name != "blocks_per_cu"]
    found = set()
    for case in many_cases(dialect)[:50]:
        mine = meaning(on, case.config, case.problem)
        for name, value in rng.sample(others, 15):
            other = dataclasses.replace(case.config, **{name: value})
            if other == case.config or settled(other) != other or reasons(on, other, case.problem):
                continue
            if meaning(on, other, case.problem) == mine:
                found.add((name, case.problem.layout))
    assert found == set()


@pytest.mark.parametrize("dialect", ARCHS)
def test_a_tail_that_no_team_fills_has_no_width(dialect: str) -> None:
    on = target(dialect)
    narrow, wide = (config(team=8, wave=wave, combine="two_pass") for wave in (32, 64))
    assert reasons(on, narrow, ROWS) == []
    assert reasons(on, wide, ROWS) != [] or meaning(on, narrow, ROWS) != meaning(on, wide, ROWS)


def meaning(on: Target, c: Config, p: Problem) -> Any:
    """What a device gets to see of a config: no comment, and no constant that nobody reads."""
    kernel, plan = render(p, c, on.dialect, on.device), make_plan(p, c, on.dialect, on.device)
    text = re.sub(r"//.*", "", kernel.source)
    seen = Counter(re.findall(r"\w+", text))
    lines = (re.match(r"(?:constexpr int|#define) (\w+)", line) for line in text.splitlines())
    read = [
        line for line, constant in zip(text.splitlines(), lines, strict=True) if not constant or seen[constant[1]] > 1
    ]
    return read, kernel.flags, plan.launches, plan.parts


# --- the space --------------------------------------------------------------------------------------------------------


def test_combinations_are_settled_and_each_is_there_once() -> None:
    admitted = {name: choices(name) if isinstance(default_of(name), str) else choices(name)[:2] for name in KNOBS}
    admitted |= {"block": (256,), "items": (4,), "accumulators": (4,), "blocks_per_cu": (1, 2), "cluster": (4, 8)}
    admitted |= {"second_block": (64, 256), "wave": (32, 64), "team": (0, 1, 8), "split": (1, 4)}
    found = list(combinations({}, admitted))
    assert len(found) == len(set(found)) > 1000
    assert all(c == settled(c) for c in found)
    everything = itertools.product(*(admitted[name] for name in KNOBS))
    assert set(found) == {settled(Config(*values)) for values in everything}


FIXED: dict[str, Any] = {"block": 512, "vector": 4, "items": 4, "accumulators": 4, "blocks_per_cu": 2}
PLAINLY: dict[str, Any] = FIXED | {"hint": "none", "walk": "stride"}
# What brute force tries of the knobs that have many choices: what it does not is left out of what the walk finds.
TRIED: dict[str, tuple[int, ...]] = {"team": (0, 1, 8, 64), "split": (1, 4, 32)}


@pytest.mark.parametrize(
    ("dialect", "op", "dtype", "layout", "fixed"),
    [
        ("cuda", "max", "int32", "flat", FIXED | {"walk": "chunk"}),
        ("cuda", "argmax", "float32", "flat", FIXED | {"exchange": "lds", "walk": "stride"}),
        ("hip", "sum", "float32", "flat", FIXED | {"wave": 64, "walk": "stride"}),
        ("opencl", "sum", "float64", "flat", FIXED | {"vector": 2, "combine": "two_pass", "walk": "stride"}),
        ("cuda", "sum", "float32", "rows", PLAINLY | {"wave": 32}),
        ("hip", "var", "float32", "columns", PLAINLY | {"vector": 1, "wave": 32}),
        ("opencl", "max", "int8", "ragged", PLAINLY | {"exchange": "lds"}),
    ],
)
def test_the_walk_finds_what_brute_force_finds(
    dialect: str, op: str, dtype: str, layout: str, fixed: dict[str, Any]
) -> None:
    on, p = target(dialect), problem(op, dtype, **LAYOUTS[layout])
    space = make_space(p, on.dialect, on.device, fixed)
    walked = list(space.walk())
    assert len(walked) == len(set(walked))
    options = ([fixed[name]] if name in fixed else TRIED.get(name, choices(name)) for name in KNOBS)
    legal = {
        c for values in itertools.product(*options) if not refusals(c := Config(*values), p, on.dialect, on.device)
    }
    assert {c for c in walked if all(getattr(c, name) in tried for name, tried in TRIED.items())} == legal
    assert space.is_within(len(walked))
    assert not space.is_within(len(walked) - 1)
    # What is offered of each knob is what some legal config has, no more and no less.
    assert space.admitted == {
        name: tuple(v for v in choices(name) if any(getattr(c, name) == v for c in walked)) for name in KNOBS
    }
    for name in set(KNOBS) - set(TRIED):
        assert set(space.admitted[name]) == {getattr(c, name) for c in legal}, name


@pytest.mark.parametrize("dialect", ARCHS)
def test_every_draw_is_legal_and_renders(dialect: str) -> None:
    on, rng = target(dialect), random.Random(2)
    for p in itertools.islice(random_problems(2), 5):
        space = make_space(p, on.dialect, on.device, {})
        for _ in range(12):
            c = space.draw(rng)
            assert c is not None
            assert settled(c) == c
            kernel = rendered(on, c, p)
            assert kernel.source.count("{") == kernel.source.count("}")
            assert kernel.launches


@pytest.mark.parametrize("layout", ["flat", "rows"])
def test_draws_reach_every_choice(layout: str) -> None:
    on = target("cuda")
    space = make_space(problem("max", "int32", **LAYOUTS[layout]), on.dialect, on.device, {})
    rng = random.Random(0)
    drawn = [space.draw(rng) for _ in range(900)]
    for name in KNOBS:
        assert {getattr(c, name) for c in drawn} == set(space.admitted[name]), name


@pytest.mark.parametrize("dialect", ARCHS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_space_offers_what_some_legal_config_has(dialect: str, layout: str) -> None:
    """Legal configs found on another way, from knob to knob: a choice that the space leaves out is never proposed."""
    on, rng, p = target(dialect), random.Random(4), problem(**LAYOUTS[layout])
    space = make_space(p, on.dialect, on.device, {})
    met = [random_config(on, p, rng, 60) for _ in range(8)]
    missing = {(name, getattr(c, name)) for c in met for name in KNOBS if getattr(c, name) not in space.admitted[name]}
    assert missing == set()


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
        ({"team": 8}, ("team=8", "rows and columns")),
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


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("op", ["sum", "argmax"])
def test_a_plain_opencl_device_has_a_space(op: str, layout: str) -> None:
    on = target("opencl", **PLAIN)
    space = make_space(problem(op, **LAYOUTS[layout]), on.dialect, on.device, {})
    # One thread alone exchanges nothing, so that a shuffle it does not make is no hindrance.
    assert "lds" in space.admitted["exchange"]
    assert "shuffle" not in space.admitted["exchange"] or 1 in space.admitted["team"]
    assert "two_pass" in space.admitted["combine"]
    assert {64, 256, 1024} <= set(space.admitted["block"])
    assert space.draw(random.Random(0)) is not None


def test_every_combine_has_a_meaning() -> None:
    assert all(re.fullmatch(r"[a-z][^\n]*[^.\n]", combine.meaning) for combine in COMBINES.values())
