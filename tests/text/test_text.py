"""The words of a kernel: what is spelled how, and nothing that nobody reads."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from redtune.config import KNOBS
from redtune.custom import derived
from redtune.dtypes import DTYPES
from redtune.expressions import needs_sign
from redtune.text import Field, Text, make_text
from redtune.types import Problem
from tests.text.kernels import (
    ARCHS,
    LAYOUTS,
    Target,
    config,
    many_cases,
    problem,
    random_problems,
    rendered,
    target,
)

CUDA = target("cuda")


def words(p: Problem, on: Target = CUDA, output: str = "value", **knobs: Any) -> Text:
    return make_text(p, config(**knobs), on.dialect, on.device, output)


def state(p: Problem, on: Target = CUDA) -> dict[str, Field]:
    return {field.name: field for field in words(p, on).state}


# --- the state --------------------------------------------------------------------------------------------------------


def test_a_sum_adds_its_other_side_and_keeps_both_losses() -> None:
    fields = state(problem("sum", is_compensated=True))
    total, lost = fields["total"], fields["total_lost"]
    assert (total.type, total.identity, total.lift, total.merge) == ("float", "0", "x", "a.total + b.total")
    assert (total.keeps, total.addends) == ("total_lost", ("a.total", "b.total"))
    assert total.lost_before == "a.total_lost + b.total_lost"
    assert lost.is_lost
    assert (lost.keeps, lost.identity) == ("", "0")


def test_a_thread_keeps_what_it_lost_and_is_handed_states_that_lost_nothing() -> None:
    fields = state(problem("sum"))
    assert set(fields) == {"total"}
    assert (fields["total"].keeps, fields["total"].lost_before) == ("total_lost", "a.total_lost")
    assert state(problem("var"))["mean"].lost_before == "a.mean_lost + ((0 - a.mean_lost) * share)"
    assert state(problem("logsumexp"))["total"].lost_before == "a.total_lost * (rises ? fade : 1)"


def test_a_mean_moves_by_a_share_of_the_difference() -> None:
    both = state(problem("var", is_compensated=True))
    mean, squares = both["mean"], both["squares"]
    assert mean.addends == ("a.mean", "(b.mean - a.mean) * share")
    assert mean.lost_before == "a.mean_lost + ((b.mean_lost - a.mean_lost) * share)"
    assert squares.addends[0] == "a.squares"
    assert squares.addends[1].startswith("b.squares + ")
    assert squares.lost_before == "a.squares_lost + b.squares_lost"
    assert (state(problem("var"))["seen"].lift, state(problem("var"))["seen"].type) == ("1", "long long")


def test_sums_of_exponentials_fade_with_their_losses() -> None:
    total = state(problem("logsumexp", "float64", is_compensated=True))["total"]
    assert total.addends == ("a.total * (rises ? fade : 1)", "b.total * (rises ? 1 : fade)")
    assert total.lost_before == "(a.total_lost * (rises ? fade : 1)) + (b.total_lost * (rises ? 1 : fade))"
    assert [(let.type, let.name) for let in words(problem("logsumexp")).lets] == [("real_t", "fade"), ("bool", "rises")]


@pytest.mark.parametrize(
    ("op", "dtype", "field", "type_", "lift"),
    [
        ("sum", "int8", "total", "unsigned long long", "(unsigned long long)((unsigned long long)x)"),
        ("sum", "uint16", "total", "unsigned long long", "x"),
        ("prod", "int64", "total", "unsigned long long", "(unsigned long long)((unsigned long long)x)"),
        ("any", "float32", "found", "unsigned int", "(unsigned int)(x != 0)"),
        ("count_nonzero", "float64", "total", "long long", "(long long)(x != 0)"),
        ("argmax", "int8", "index", "long long", "(long long)(i)"),
        ("max", "int8", "value", "int", "x"),
        ("bitwise_or", "uint64", "bits", "unsigned long long", "x"),
        ("prod", "complex64", "im", "float", "x.im"),
    ],
)
def test_what_a_field_is_made_of(op: str, dtype: str, field: str, type_: str, lift: str) -> None:
    found = state(problem(op, dtype))[field]
    assert (found.type, found.lift) == (type_, lift)
    assert not found.keeps


@pytest.mark.parametrize(
    ("op", "dtype", "identity"),
    [
        ("max", "float32", "-__int_as_float(0x7f800000)"),
        ("min", "float64", "__longlong_as_double(0x7ff0000000000000LL)"),
        ("nanmax", "float32", "__int_as_float(0x7fc00000)"),
        ("nanmin", "int8", "2147483647"),
        ("max", "int64", "(-9223372036854775807LL - 1)"),
        ("min", "uint64", "18446744073709551615ULL"),
        ("max", "bool", "0u"),
        ("bitwise_and", "uint8", "-1"),
    ],
)
def test_what_a_field_begins_with(op: str, dtype: str, identity: str) -> None:
    assert words(problem(op, dtype)).state[0].identity == identity


MAPS = (
    "absolute(x)",
    "larger(x, 3)",
    "pick(x < 0, 1, 2)",
    "pick(below(x, 2), x, 1)",
    "x * x",
    "-x",
    "pick(x == 2, 5, x)",
)


@pytest.mark.parametrize("map_", MAPS)
@pytest.mark.parametrize("base", ["sum", "prod", "sumsq"])
@pytest.mark.parametrize("dtype", [name for name, dtype in DTYPES.items() if dtype.kind == "int"])
def test_a_map_sees_the_sign_it_asks_for(dtype: str, base: str, map_: str) -> None:
    """Sums wrap around in an unsigned type; an order or an absolute value in it would be another one."""
    p = dataclasses.replace(problem(base, dtype), op=f"{base}_custom", custom=derived(base, map_, None))
    (field,) = words(p).state
    assert field.type.startswith("unsigned")
    assert ("unsigned" in re.sub(r"^\(unsigned[ a-z]*\)\(", "(", field.lift)) != needs_sign(map_)


def test_the_fields_of_ptx_have_their_places() -> None:
    for p in itertools.islice(random_problems(0), 60):
        for field in words(p).state:
            assert field.ptx[0] in "fsu"
            assert field.ptx[1:] == ("64" if "64" in field.dtype else "32")
            assert field.ptx_letter == {"f32": "f", "f64": "d"}.get(field.ptx, "l" if field.ptx[1:] == "64" else "r")


# --- the result -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "finish", "narrows"),
    [
        (problem("sum"), ("(result_part_t)a.total",), ""),
        (problem("sum", "float16"), ("narrow(a.total)",), "float16"),
        (problem("mean", "bfloat16"), ("narrow(a.total / ((real_t)n))",), "bfloat16"),
        (problem("mean", is_masked=True), ("(result_part_t)(a.total / ((real_t)a.seen))",), ""),
        (problem("any", "int8"), ("(result_part_t)(a.found != 0)",), ""),
        (problem("max", "bool"), ("(result_part_t)(a.value != 0)",), ""),
        (problem("sum", "complex64"), ("(result_part_t)a.re", "(result_part_t)a.im"), ""),
        (problem("sum", "int32", result="float16"), ("narrow(a.total)",), "float16"),
        (problem("sum", "float16", result="float32"), ("(result_part_t)a.total",), ""),
        (problem("argmax", "float16"), ("(result_part_t)a.index",), ""),
    ],
)
def test_how_a_state_becomes_a_result(p: Problem, finish: tuple[str, ...], narrows: str) -> None:
    found = words(p)
    assert (found.finish, found.narrows) == (finish, narrows)


def test_a_state_that_is_left_is_not_finished() -> None:
    left = words(problem("mean"), output="state")
    assert (left.out_type, left.store) == ("State", "")
    whole = words(problem("mean"))
    assert (whole.out_type, whole.store, whole.finish_args) == ("result_t", "finish", ("n",))


@pytest.mark.parametrize(
    ("p", "spelled"),
    [
        (problem("sum"), "atomicAdd((float *)out, s.total)"),
        (problem("sum", "int32"), "atomicAdd((unsigned long long *)out, s.total)"),
        (problem("max", "int32"), "atomicMax((int *)out, s.value)"),
        (problem("bitwise_xor", "uint64"), "atomicXor((unsigned long long *)out, s.bits)"),
        (problem("max", "float32"), ""),  # no instruction lets NaN win
        (problem("prod", "float32"), ""),
        (problem("argmax", "int32"), ""),
    ],
)
def test_the_atomics_of_the_language(p: Problem, spelled: str) -> None:
    assert words(p).native_atomic == spelled


# --- the head ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "shape"),
    [
        (problem(), "An array of any length and alignment in"),
        (problem("dot"), "Two arrays of any length and alignment in"),
        (problem(is_masked=True), "An array of any length and alignment in, where a mask says so"),
        (problem(**LAYOUTS["rows"]), "An array of rows in, each of n neighbouring elements"),
        (problem(**LAYOUTS["columns"]), "An array of outer x n x inner elements with any strides in"),
        (problem(**LAYOUTS["strided"]), "An array of outer x n x inner elements with any strides in"),
        (problem(**LAYOUTS["ragged"]), "An array of rows of any lengths in, each from one offset to the next"),
    ],
)
def test_the_shape_in_a_phrase(p: Problem, shape: str) -> None:
    assert words(p).shape == shape


def constants(p: Problem, **knobs: Any) -> dict[str, int]:
    return {constant.name: constant.value for constant in words(p, **knobs).constants}


def test_constants_of_a_flat_kernel() -> None:
    found = constants(problem(), block=128, items=2, vector=4, accumulators=2, combine="two_pass")
    assert found == {
        "BLOCK": 128,
        "VECTOR": 4,
        "ITEMS": 2,
        "ACCUMULATORS": 2,
        "WAVE": 32,
        "SECOND_BLOCK": 256,
        "LANES": 32,
        "TILE": 1024,
    }


def test_constants_of_rows() -> None:
    alone = constants(problem(**LAYOUTS["rows"]), block=128, team=8, combine="two_pass")
    assert (alone["TEAM"], alone["TEAMS"], alone["TILE"]) == (8, 16, 32)
    assert "SECOND_BLOCK" not in alone
    whole = constants(problem(**LAYOUTS["rows"]), block=128, split=4, combine="two_pass")
    assert (whole["TEAM"], whole["TEAMS"], whole["SECOND_BLOCK"]) == (128, 1, 256)
    assert "LANES" not in constants(problem(**LAYOUTS["columns"]), team=8, exchange="lds")
    assert {"SPLIT", "BLOCKS_PER_CU"}.isdisjoint(whole)


def test_choices_name_what_took_effect() -> None:
    def names(p: Problem, **knobs: Any) -> list[str]:
        return [choice.name for choice in words(p, **knobs).choices]

    assert names(problem()) == ["walk", "exchange", "combine", "hint"]
    assert names(problem(), exchange="lds") == ["walk", "exchange", "tree", "combine", "hint"]
    assert names(problem(**LAYOUTS["rows"]), combine="two_pass") == ["walk", "exchange", "hint"]
    assert names(problem(**LAYOUTS["rows"]), team=1, combine="two_pass") == ["walk", "hint"]
    assert names(problem(**LAYOUTS["rows"]), split=2) == ["walk", "exchange", "combine", "hint"]


def test_operands_and_how_they_are_loaded() -> None:
    data, other, mask = words(problem("dot", "int16", is_masked=True), vector=8, items=2).operands
    assert (data.name, data.element_type, data.raw_type, data.raw_words, data.raw_bits) == (
        "data",
        "short",
        "uint4",
        4,
        128,
    )
    assert dataclasses.replace(other, name="data", suffix="") == data
    assert (mask.element_type, mask.raw_type, mask.raw_bits, mask.suffix) == ("unsigned char", "uint2", 64, "_mask")
    assert mask.is_mask
    assert not other.is_mask
    (complex_,) = words(problem("sum", "complex64"), vector=2).operands
    assert (complex_.element_type, complex_.raw_bits) == ("float", 128)


# --- all of it --------------------------------------------------------------------------------------------------------

# Written although nobody reads them, in some kernels. No other name may join them.
UNREAD = {"identity", "merge", "address_t", "real_t", "load_raw", "load_raw_mask", "raw", "WAVE", "LANES"}


@pytest.mark.parametrize("dialect", ARCHS)
def test_what_is_defined_is_read(dialect: str) -> None:
    for case in many_cases(dialect):
        text = re.sub(r"//.*", "", case.kernel.source)
        names = set(re.findall(r"(?:constexpr int|#define) (\w+)", text))
        names |= set(re.findall(r"typedef [^;{]*?\b(\w+);", text)) | set(re.findall(r"\} (\w+);", text))
        names |= set(re.findall(r"^static [^;=]*?\b(\w+)\([^;]*\) \{", text, re.M))
        names |= set(
            re.findall(r"^\s+(?:const )?(?:int|index_t|bool|raw_t|State|Part)\s+(\w+)\s*(?:=|;|\[)", text, re.M)
        )
        seen = Counter(re.findall(r"\w+", text))
        assert {name for name in names if seen[name] < 2} <= UNREAD, case.config


HEADER = re.compile(r"(\} )?(else )?(if|for|while) \(.*\)|(\} )?else")


def misplaced(source: str) -> Iterator[str]:
    """The lines that do not stand where braces, or headers without braces, put them."""
    braces = headers = brackets = 0
    for line in re.sub(r"//.*", "", source).splitlines():
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if brackets == 0 and len(line.rstrip()) - len(text) != 4 * (braces + headers - text.startswith("}")):
            yield line
        headers = headers + 1 if brackets == 0 and HEADER.fullmatch(text) else 0
        braces += text.count("{") - text.count("}")
        brackets += text.count("(") - text.count(")")
    assert braces == brackets == 0


def test_the_guard_of_lines_sees_faults() -> None:
    good = "void f(int a,\n       int b)\n{\n    for (;;)\n        if (a)\n            b();\n    c();\n}\n"
    assert list(misplaced(good)) == []
    assert list(misplaced(good.replace("            b", "        b"))) == ["        b();"]
    assert list(misplaced(good.replace("    c", "        c"))) == ["        c();"]


@pytest.mark.parametrize("dialect", ARCHS)
def test_the_text_is_laid_out_for_reading(dialect: str) -> None:
    for case in many_cases(dialect):
        source = case.kernel.source
        assert source.endswith("}\n")
        assert not re.search(r"[ \t]$|\n\n\n|\t", source, re.M)
        assert list(misplaced(source)) == []


@pytest.mark.parametrize("dialect", ARCHS)
def test_no_block_begins_or_ends_with_a_gap(dialect: str) -> None:
    gaps = re.compile(r".*\{\n\n.*|.*\n\n\s*\}")
    found = {(case.config.combine, gap) for case in many_cases(dialect) for gap in gaps.findall(case.kernel.source)}
    assert found == set()


def test_a_knob_that_chose_code_says_so_in_the_head() -> None:
    for case in many_cases("cuda"):
        head = case.kernel.source.partition("typedef")[0]
        assert head.startswith(f"// {case.problem.op} of {case.problem.dtype}: ")
        assert re.search(r"^// Made by: redtune(\.reduce\(x, | show --source --op )", head, re.M)
        assert re.search(r"^constexpr int BLOCK = \d+;  // threads per block$", head, re.M)
    assert set(KNOBS) >= {"walk", "exchange", "combine", "hint", "tree"}
    flat = rendered(CUDA, config(), problem())
    assert "// combine last_block: how the blocks meet" in flat.source
