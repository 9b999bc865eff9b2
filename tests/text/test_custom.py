"""Operators of the user: what is taken, what is refused in which words, the laws, and the references they get."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redtune import definitions, measured, sorts
from redtune.custom import MAX_FILE_BYTES, check_laws, define, derived, load_operators, read_custom
from redtune.dtypes import DTYPES
from redtune.errors import UsageError
from redtune.evaluation import numpy_fold, numpy_identity, numpy_lift, numpy_merge
from redtune.expressions import ARITY, parse
from redtune.laws import broken_law
from redtune.operators import NO_INDEX, OPERATORS, WHOLE, Operator
from redtune.references import Depths
from tests.text.kernels import ARCHS, target

EXAMPLES = Path(__file__).parents[2] / "configs" / "operators.yaml"
REAL_DTYPES = [name for name, dtype in DTYPES.items() if dtype.kind != "complex"]

RANGE: dict[str, Any] = {
    "meaning": "the largest value minus the smallest",
    "state": {"low": "value", "high": "value"},
    "identity": {"low": "highest", "high": "lowest"},
    "lift": {"low": "x", "high": "x"},
    "merge": {"low": "smaller(a.low, b.low)", "high": "larger(a.high, b.high)"},
    "finish": "a.high - a.low",
    "exact": True,
}


def single(
    merge: str, identity: Any = 0, lift: Any = "x", finish: Any = "a.v", kind: str = "value", **more: Any
) -> Any:
    """A definition with one field."""
    fields = {"identity": {"v": identity}, "lift": {"v": lift}, "merge": {"v": merge}}
    return {"state": {"v": kind}, **fields, "finish": finish, **more}


def made(spec: Mapping[str, Any], name: str = "mine") -> Operator:
    return read_custom(define(name, spec))


def refusal(spec: Any, name: Any = "mine") -> str:
    """The sentence that refuses a definition: one line."""
    with pytest.raises(UsageError) as caught:
        define(name, spec)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def changed(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**RANGE, **changes}.items() if value is not None}


def reduced(op: Operator, *inputs: Any) -> Any:
    return op.reference(*(np.asarray(values) for values in inputs))


# --- definitions ------------------------------------------------------------------------------------------------------


def test_a_full_definition_becomes_the_operator_it_says() -> None:
    op = made(RANGE, "span")
    assert (op.name, op.meaning, op.exact, op.inputs, op.empty) == ("span", RANGE["meaning"], True, 1, None)
    assert op.state == (("low", "value"), ("high", "value"))
    assert op.identity == ("highest", "lowest")
    assert op.lift == ("x", "x")
    assert op.merge == ("smaller(a.low, b.low)", "larger(a.high, b.high)")
    assert op.finish == ("a.high - a.low",)
    assert (op.accumulates, op.result, op.native, op.seeds, op.on_complex) == ("register", "same", "", False, None)
    assert reduced(op, [3.0, -2.0, 7.0]) == 9


def test_fields_keep_their_order_through_the_text() -> None:
    spec = single("a.v + b.v") | {"state": {"v": "value", "a1": "value"}}
    for key in ("identity", "lift", "merge"):
        spec[key] = {"a1": "0" if key != "merge" else "a.a1 + b.a1", **spec[key]}
    assert made(spec).state == (("v", "value"), ("a1", "value"))
    assert made(spec).merge == ("a.v + b.v", "a.a1 + b.a1")


SPECS: dict[str, Any] = {
    "range": RANGE,
    "product": single("a.v * b.v", 1, kind="wrapping", accumulates="sum", result="sum", empty=1),
    "dotted": single("a.v + b.v", lift="x * y", kind="sum", inputs=2, accumulates="sum"),
    "nan_when_empty": single("larger(a.v, b.v)", "lowest", empty=float("nan"), exact=True),
    "first_above_three": single("pick(won, a.v, b.v)", "no_index", "pick(x > 3, i, no_index)", kind="index")
    | {"lets": {"first": {"kind": "flag", "text": "a.v < b.v"}, "won": {"kind": "flag", "text": "first"}}}
    | {"result": "index", "exact": True},
    "mapped": {"from": "sum", "map": "x * x", "finish": "sqrt(a)"},
    "only_mapped": {"from": "norm_l2", "map": "x - 1", "meaning": "the distance from ones"},
}


@pytest.mark.parametrize("name", SPECS)
def test_the_text_says_everything_and_is_one_for_equal_definitions(name: str) -> None:
    text = define(name, SPECS[name])
    assert json.dumps(json.loads(text), sort_keys=True) == text
    shuffled = dict(reversed(list(SPECS[name].items())))
    assert define(name, shuffled) == text
    op = read_custom(text)
    assert op is read_custom(text)
    # A process that has never seen the definition reads the same operator, and comes to the same results.
    other = (
        "import sys, numpy as np\n"
        "from redtune.custom import read_custom\n"
        "op = read_custom(sys.stdin.read())\n"
        "x = np.array([[3.0, 1.0, 5.0]])\n"
        "row = (op.state, op.lets, op.identity, op.lift, op.merge, op.finish, op.empty, op.exact, op.bites)\n"
        "print(row + (op.accumulates, op.result, op.inputs, op.accepts, op.reference(*[x] * op.inputs).tolist()))"
    )
    if name in ("mapped", "first_above_three"):
        said = subprocess.run([sys.executable, "-c", other], input=text, capture_output=True, text=True, check=True)
        x = np.array([[3.0, 1.0, 5.0]])
        row = (op.state, op.lets, op.identity, op.lift, op.merge, op.finish, op.empty, op.exact, op.bites)
        assert said.stdout.strip() == str(
            (*row, op.accumulates, op.result, op.inputs, op.accepts, op.reference(*[x] * op.inputs).tolist())
        )


def test_spelling_does_not_make_another_operator() -> None:
    plain = define("span", RANGE)
    assert define("span", changed(finish="(a.high-a.low)  # the span")) == plain
    assert define("span", changed(lift={"high": "(x)", "low": "x"})) == plain
    assert define("span", changed(finish="a.low - a.high")) != plain
    assert define("span2", RANGE) != plain


def test_numbers_that_yaml_has_read_are_expressions() -> None:
    assert made(single("a.v + b.v", 0, 1)).lift == ("1",)
    assert made(single("a.v + b.v", 0.0, "x")).identity == ("0",)
    assert made(single("a.v + b.v", 0, 0.5, accumulates="float")).lift == ("0.5",)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "1", '"x"', "{}", '{"name": "a"}', '{"name": "a", "state": 3}', "[" * 5000, '{"name": []}']
)
def test_a_text_that_redtune_did_not_write_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_custom(text)


def test_a_text_is_checked_again_when_it_is_read() -> None:
    good = json.loads(define("span", RANGE))
    for key, value in (("finish", "__import__('os')"), ("name", "x; y"), ("meaning", "a\nb"), ("finish", "q")):
        with pytest.raises(UsageError):
            read_custom(json.dumps({**good, key: value}))


# --- refusals ---------------------------------------------------------------------------------------------------------

REFUSED = [
    (changed(state=None), "operator mine lacks state"),
    (changed(state=None, finish=None), "operator mine lacks state, finish"),
    (changed(extra=1), "operator mine has the key 'extra': choose from state, identity, lift, merge, finish, meaning"),
    ({1: 2}, "operator mine has the key 1: choose from"),
    (7, "operator mine cannot be 7: a mapping is wanted"),
    (None, "operator mine cannot be None: a mapping is wanted"),
    ([], "operator mine cannot be []: a mapping is wanted"),
    (changed(state={}), "operator mine: state cannot be {}: a mapping of 1 to 3 fields"),
    (changed(state=dict.fromkeys("cdef", "value")), "a mapping of 1 to 3 fields and their kinds is wanted"),
    (
        changed(state={"low": "vlaue", "high": "value"}),
        "the kind of field low cannot be 'vlaue': choose from value, sum,",
    ),
    (changed(state={"low": ["value"], "high": "value"}), "the kind of field low cannot be ['value']"),
    (changed(lift={"low": "x"}), "lift cannot be {'low': 'x'}: an expression for each field is wanted (low, high)"),
    (changed(lift="x"), "lift cannot be 'x': an expression for each field is wanted"),
    (
        changed(merge={"low": "a.low", "high": "b.high", "mid": "0"}),
        "an expression for each field is wanted (low, high)",
    ),
    (changed(finish=["a.low"]), "finish cannot be ['a.low']: an expression is wanted"),
    (changed(finish=True), "finish cannot be True: an expression is wanted"),
    (changed(finish=float("inf")), "finish cannot be inf: an expression is wanted"),
    (changed(exact="yes"), "exact cannot be 'yes': choose from false, true"),
    (changed(exact=1), "exact cannot be 1: choose from false, true"),
    (changed(inputs=3), "inputs cannot be 3: choose from 1, 2"),
    (changed(inputs=True), "inputs cannot be True: choose from 1, 2"),
    (changed(accumulates="double"), "accumulates cannot be 'double': choose from register, sum, float"),
    (changed(result="int"), "result cannot be 'int': choose from same, sum, float, index, flag"),
    (changed(empty="zero"), "empty cannot be 'zero': a number is wanted"),
    (changed(empty=True), "empty cannot be True: a number is wanted"),
    (changed(empty=2**70), "empty cannot be 1180591620717411303424: a number is wanted"),
    (changed(lets=[]), "lets cannot be []: a mapping of 0 to 8 names is wanted"),
    (changed(lets={"w": "a.low"}), "let w cannot be 'a.low': a kind and a text are wanted"),
    (changed(lets={"w": {"kind": "sum", "text": "1"}}), "the kind of let w cannot be 'sum': choose from flag, value"),
    (changed(lets={"w": {"kind": "flag", "text": "a.low"}}), "let w is 'a.low', and a flag needs a comparison"),
    (changed(meaning=""), "meaning cannot be ''"),
    (changed(meaning="x" * 201), "at most 200 characters"),
    (changed(accumulates="float", result="same"), "its result is float, index or flag, not same"),
    (changed(result="float"), "has a result of float: add accumulates: float"),
    (changed(result="index"), "its finish 'a.high - a.low' is no whole number"),
    (changed(finish="(a.high - a.low) / 2"), "finish divides, takes roots or has a point in a number: add accumulates"),
    (changed(lift={"low": "0.5 * x", "high": "x"}), "lift low divides, takes roots or has a point in a number"),
    (single("a.v | b.v", accumulates="float"), "merge v takes bits, and accumulates: float leaves it none"),
    (single("a.v + b.v", kind="count"), "lift v is 'x', and a field of kind count needs whole numbers"),
    (
        single("a.v | b.v", "lowest", "x > 0", kind="flag"),
        "identity v is 'lowest', and a field of kind flag needs whole",
    ),
    # names
    (changed(finish="q"), "finish reads 'q', which has no meaning there: it may read numbers and a.low, a.high, count"),
    (changed(finish="b.low"), "finish reads 'b.low'"),
    (changed(finish="a.mid"), "finish reads 'a.mid'"),
    (changed(finish="x"), "finish reads 'x'"),
    (changed(finish="sqrt + 1"), "finish reads 'sqrt'"),
    (
        changed(lift={"low": "y", "high": "x"}),
        "lift low reads 'y', which has no meaning there: it may read numbers and x, i",
    ),
    (changed(lift={"low": "a.low", "high": "x"}), "lift low reads 'a.low'"),
    (changed(lift={"low": "count", "high": "x"}), "lift low reads 'count'"),
    (
        changed(identity={"low": "x", "high": "lowest"}),
        "identity low reads 'x', which has no meaning there: it may read",
    ),
    (changed(identity={"low": "huge_from", "high": "lowest"}), "identity low reads 'huge_from'"),
    (changed(merge={"low": "x", "high": "b.high"}), "merge low reads 'x'"),
    (changed(merge={"low": "count", "high": "b.high"}), "merge low reads 'count'"),
    (changed(merge={"low": "later", "high": "b.high"}), "merge low reads 'later'"),
    # what C and numpy read differently
    (changed(finish="(a.low > 1) + (a.high > 1)"), "adds up truth values: write pick(..., 1, 0) for each"),
    (changed(finish="(a.low > 1) - (a.high > 1)"), "adds up truth values"),
    (changed(finish="-(a.low > 1)"), "negates a truth value"),
    (changed(finish="real(a.low > 1)"), "makes a number of a truth value"),
    (changed(finish="1 / 2", accumulates="float"), "'1 / 2' in '1 / 2' divides whole numbers: write real(...)"),
    (changed(finish="count / 2", accumulates="float"), "divides whole numbers"),
    (changed(finish="sqrt(count)", accumulates="float"), "is of whole numbers, and sqrt takes values: write real(...)"),
    (changed(finish="larger(count, 3)"), "is of whole numbers, and larger takes values: compare and pick"),
    (changed(finish="larger(a.low, count)"), "is of whole numbers, and larger takes values"),
    (changed(finish="absolute(a.low > 1)"), "is of whole numbers, and absolute takes values"),
    (
        changed(finish="a.low + 9223372036854775808"),
        "'9223372036854775808' in 'a.low + 9223372036854775808' is more than",
    ),
    (changed(finish="a.low + 1e999", accumulates="float"), "is no finite number: write highest"),
    (
        changed(finish="a.low + 1.0 / 0", accumulates="float"),
        "operator mine cannot be evaluated: float division by zero",
    ),
    # the language
    (
        changed(finish="a.low ** 2"),
        "is not in the language of operators; there is no power, so write x * x for a square",
    ),
    (changed(finish=""), "operator mine: finish: the expression '' does not parse"),
    (changed(finish="a.low +"), "does not parse"),
    (changed(finish="+".join(["a.low"] * 200)), "an expression of 1199 characters is too long: at most 500"),
    (changed(finish="+".join(["a.low*a.high"] * 38)), "an expression of 643 characters is too long: at most 500"),
    (changed(finish="-" * 65 + "a.low"), "is nested too deeply; at most 60 levels"),
    # sums
    (single("a.v", kind="sum"), "merge v is 'a.v'; a field of kind sum is merged by a sum of terms"),
    (single("larger(a.v, b.v)", kind="sum"), "'larger(a.v, b.v)' is not: give it the kind value"),
    (single("a.v * b.v", kind="sum"), "'a.v * b.v' is not"),
    (single("(a.v + b.v) * 2", kind="sum"), "one term alone is not: give it the kind value"),
    (single("a.v - b.v", kind="sum"), "one term alone is not"),
    (single("a.v + b.v + a.v * b.v", kind="sum"), "'a.v * b.v' is not"),
    (single("a.v + absolute(b.v)", kind="sum"), "'absolute(b.v)' is not"),
    (single("a.v + (b.v - 1)", kind="sum"), "'b.v - 1' is not"),
    (single("a.v + pick(b.v > 0, b.v, 0)", kind="sum"), "'pick(b.v > 0, b.v, 0)' is not"),
    (single("a.v + pick(a.v == a.v, b.v, 1)", kind="sum"), "is not: give it"),
    (single("a.v + t", kind="sum", lets={"t": {"kind": "value", "text": "b.v"}}), "'t' is not: give it"),
    (
        single(
            "a.v + b.v * t",
            kind="sum",
            lets={"s1": {"kind": "value", "text": "b.v"}, "t": {"kind": "value", "text": "s1"}},
        ),
        "'b.v * t' is not: give it",
    ),
    # derived
    ({"from": "sum"}, "operator mine is sum itself: give a map, a finish, or both"),
    ({"from": "smu", "map": "x"}, "there is no operator 'smu': did you mean 'sum'?"),
    ({"from": 3, "map": "x"}, "from cannot be 3: the name of an operator is wanted"),
    ({"from": "sum", "map": "x", "merge": {}}, "has the key 'merge': choose from from, map, finish, meaning"),
    ({"from": "sum", "map": "y"}, "operator mine: map reads 'y', which has no meaning there"),
    ({"from": "sum", "map": "a.total"}, "operator mine: map reads 'a.total'"),
    ({"from": "sum", "finish": "x"}, "operator mine: finish reads 'x'"),
    ({"from": "sum", "finish": "a.size"}, "operator mine: finish reads 'a.size'"),
    ({"from": "sum", "map": "x**2"}, "there is no power, so write x * x for a square"),
    ({"from": "sum", "map": 3, "finish": []}, "finish cannot be []: an expression is wanted"),
    ({"from": "bitwise_or", "map": "x / 2"}, "bitwise_or takes whole numbers, and its map or finish divides"),
    ({"from": "mean", "map": "x & 3"}, "operator mine takes bits, and it accumulates in float"),
    ({"from": "norm_l1", "map": "x > 3"}, "is of whole numbers, and absolute takes values"),
    ({"from": "norm_l2", "map": "x + " * 40 + "x"}, "is too long: at most 500"),
]


@pytest.mark.parametrize(("spec", "words"), REFUSED, ids=[words[:50] for _, words in REFUSED])
def test_what_is_wrong_is_said_in_a_sentence(spec: Any, words: str) -> None:
    sentence = refusal(spec)
    assert words in sentence
    assert "mine" in sentence or "there is no operator" in sentence


@pytest.mark.parametrize("name", ["", "a b", "a;", "1a", "a-b", "a\n", "é", "a" * 41, None, 3, "out[0]", "x/*", "a.b"])
def test_an_operator_has_the_name_of_a_c_function(name: Any) -> None:
    assert refusal(RANGE, name).startswith("an operator cannot be called ")


@pytest.mark.parametrize("name", OPERATORS)
def test_no_operator_hides_one_of_redtunes(name: str) -> None:
    assert refusal(RANGE, name) == f"operator {name} is one of redtune's own: choose another name"


HOSTILE_NAMES = [
    "int",
    "float4",
    "uchar16",
    "struct",
    "kernel",
    "__global",
    "global",
    "half",
    "lambda",
    "template",
    "linux",
]
HOSTILE_NAMES += [
    "threadIdx",
    "BLOCK",
    "NULL",
    "real_t",
    "size_t",
    "seen",
    "count",
    "low_lost",
    "a__b",
    "a" * 41,
    "",
    "a b",
]
HOSTILE_NAMES += [
    "x;",
    "x\n",
    "1a",
    "é",
    "\uff58",
    "a.b",
    "x]",
    "x = 1",
    "while",
    "typename",
    "co_await",
    "dim3",
    "not_eq",
    "yield",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_no_field_and_no_let_has_a_name_that_a_kernel_trips_over(name: str) -> None:
    spec = {key: ({name: value["v"]} if isinstance(value, dict) else value) for key, value in single("0").items()}
    assert refusal(spec).startswith("operator mine: a field cannot be called ")
    lets = {name: {"kind": "value", "text": "a.v"}}
    assert refusal(single("a.v", lets=lets)).startswith("operator mine: a let cannot be called ")


@pytest.mark.parametrize("name", ["a", "b", "s", "add", "sqrt", "larger", "lowest", "no_index", "max_nan", "x", "fabs"])
def test_no_let_hides_what_a_merge_uses(name: str) -> None:
    lets = {name: {"kind": "value", "text": "a.v"}}
    assert f"a let cannot be called {name}: " in refusal(single("a.v", lets=lets))


@pytest.mark.parametrize("name", ["x", "y", "low", "total", "re", "im", "n", "v2", "running_sum"])
def test_ordinary_fields_are_welcome(name: str) -> None:
    spec = single("0", finish=f"a.{name}")
    spec |= {key: {name: value["v"]} for key, value in spec.items() if isinstance(value, dict)}
    assert made(spec | {"merge": {name: f"a.{name} + b.{name}"}}).state == ((name, "value"),)


INJECTIONS = [
    "__import__('os').system('touch /tmp/redtune-was-here')",
    "x; out[0] = 1",
    "a.v; out[0] = 1",
    "a.v */ /* b",
    "a.v // b",
    "a.v /* b */",
    "a.v.real",
    "a.__class__",
    "a.v.__class__.__bases__",
    "threadIdx.x",
    "threadIdx",
    "out[0]",
    "(lambda: 1)()",
    "[a.v for a in b]",
    "f'{a.v}'",
    "'text'",
    "a.v if b.v else 0",
    'a.v\n+ 1; asm("trap;")',
    "a.v\\\n",
    "eval('1')",
    "print(1)",
    "sqrt(a.v)(1)",
    "exp.__globals__",
    "(a := 3)",
    "a.v\0",
    "await a",
    "%pragma",
    "#define x 1",
    "a.v ? 1 : 0",
    "&a.v",
    "*a",
    "a->v",
    "0x1p3",
    "1u",
    "a.v,b.v",
    "\uff21.v",
]


@pytest.mark.parametrize("text", INJECTIONS)
def test_nothing_but_expressions_comes_in(text: str) -> None:
    for key in ("identity", "lift", "merge"):
        assert "mine" in refusal(single("a.v + b.v") | {key: {"v": text}})
    assert "mine" in refusal(single("a.v + b.v", finish=text))
    assert "mine" in refusal(single("a.v + b.v", lets={"t": {"kind": "value", "text": text}}))
    for base in ("sum", "argmax"):
        assert "mine" in refusal({"from": base, "map": text})
        assert "mine" in refusal({"from": base, "finish": text})
    assert not Path("/tmp/redtune-was-here").exists()


@pytest.mark.parametrize(
    "meaning", ["a\nb", "a\\", 'say "x"', "a */ b", "trap ??/", "tab\t", "\u2028", "", 3, None, ["a"]]
)
def test_a_meaning_stays_in_its_comment(meaning: Any) -> None:
    assert "meaning cannot be" in refusal({**RANGE, "meaning": meaning})
    assert "meaning cannot be" in refusal({"from": "sum", "map": "x", "meaning": meaning})


def test_a_long_map_has_a_meaning_that_fits() -> None:
    assert len(made({"from": "sum", "map": " + ".join(["x"] * 55)}).meaning) <= definitions.MAX_MEANING


# --- files ------------------------------------------------------------------------------------------------------------


def loaded(folder: Path, text: str | bytes) -> Any:
    path = folder / "ops.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_operators(str(path))


def test_a_file_gives_each_operator_by_name(tmp_path: Path) -> None:
    found = loaded(
        tmp_path, json.dumps({"span": RANGE, "rms": {"from": "sum", "map": "x*x", "finish": "sqrt(a/count)"}})
    )
    assert found == {"span": define("span", RANGE), "rms": define("rms", json.loads(found["rms"]) and SPEC_RMS)}


SPEC_RMS = {"from": "sum", "map": "x * x", "finish": "sqrt(a / count)"}
BOMB = "a: &a [1,1]\n" + "".join(f"{c}: &{c} [*{p},*{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "defines no operators: a mapping from names to definitions is wanted"),
        ("[]", "defines no operators"),
        ("- a", "defines no operators"),
        ("3", "defines no operators"),
        ("mine: {from: sum", "is no YAML that can be used: while parsing a flow mapping"),
        ("mine: 3", "operator mine cannot be 3: a mapping is wanted"),
        ("3: {from: sum, map: x}", "an operator cannot be called 3"),
        ("mine: {from: sum, map: q}", "operator mine: map reads 'q'"),
        ("mine: {from: sum, map: x}\nmine: {from: max, map: x}", "'mine' is given twice"),
        ("mine: {from: sum, map: x, map: y}", "'map' is given twice"),
        (BOMB, "it has an alias (*), and everything is to be written out"),
        ("mine: &a {from: sum, map: *a}", "it has an alias"),
        ("&a [*a]", "it has an alias"),
        ("[" * 700, "is nested too deeply"),
        ("mine: !!python/object/apply:os.system ['touch /tmp/redtune-was-here']", "is no YAML that can be used"),
        (b"mine: \xff", "is no YAML that can be used"),
        ("mine: \0", "is no YAML that can be used"),
        ("? [a]\n: 1", "is no YAML that can be used"),
        ("? {a: b}\n: 1", "is no YAML that can be used"),
        ("mine: 2001-99-99", "is no YAML that can be used"),
        (b"#" * (MAX_FILE_BYTES + 1), f"is too long: at most {MAX_FILE_BYTES} bytes"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        loaded(tmp_path, text)
    sentence = str(caught.value)
    assert words in sentence
    assert str(tmp_path / "ops.yaml") in sentence
    assert "\n" not in sentence
    assert not Path("/tmp/redtune-was-here").exists()


@pytest.mark.parametrize("path", ["missing.yaml", ".", "a\0b"])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, path: str) -> None:
    with pytest.raises(UsageError, match=r"the operator file .* cannot be read"):
        load_operators(str(tmp_path / path))


# --- the laws ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", REAL_DTYPES)
@pytest.mark.parametrize("name", load_operators(str(EXAMPLES)))
def test_the_examples_keep_the_laws(name: str, dtype: str) -> None:
    check_laws(load_operators(str(EXAMPLES))[name], dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint8", "bool"])
def test_redtunes_own_operators_keep_the_laws_as_they_are_tested_here(dtype: str) -> None:
    kind = DTYPES[dtype]
    entries = [op for op in OPERATORS.values() if kind.kind in op.accepts]
    assert {op.name: broken_law(op, kind) for op in entries} == {op.name: "" for op in entries}


DERIVED = [
    ("sum", "x * x", "sqrt(a)"),
    ("max", "absolute(x)", None),
    ("prod", "x / 2", None),
    ("argmin", "-x / 3", None),
]
DERIVED += [
    ("mean", "exp(x)", "log(a)"),
    ("var", "x * 2", "a + 1"),
    ("logsumexp", "-x / 1", None),
    ("any", "x > 2", None),
]
DERIVED += [("nanmax", "x / 1 - 1", "a * a"), ("norm_l2", "x - 1", None), ("count_nonzero", "x > 1", "a / count")]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int16", "uint8"])
@pytest.mark.parametrize(("base", "map_", "finish"), DERIVED)
def test_derived_operators_keep_the_laws(base: str, map_: str, finish: str | None, dtype: str) -> None:
    if map_.startswith("-x") and dtype == "uint8":
        return  # accumulated in floats, where it is fine; the words are in the next test
    check_laws(derived(base, map_, finish), dtype)


@pytest.mark.parametrize(
    ("spec", "dtype", "sentence"),
    [
        (
            single("(a.v + b.v) / 2", "0", accumulates="float"),
            "float32",
            "the identity of operator mine is not neutral in float32: 1 and nothing gives 0.5, 1 alone gives 1",
        ),
        (
            single("pick(a.n == 0, b.v, pick(b.n == 0, a.v, (a.v + b.v) / 2))", accumulates="float")
            | {"state": {"v": "value", "n": "count"}}
            | {"identity": {"v": 0, "n": 0}, "lift": {"v": "x", "n": 1}}
            | {"merge": {"v": "pick(a.n == 0, b.v, pick(b.n == 0, a.v, (a.v + b.v) / 2))", "n": "a.n + b.n"}},
            "float32",
            "operator mine is not associative in float32: of 1, 1 and 2, (1 and 1) and 2 gives 1.5, "
            "1 and (1 and 2) gives 1.25",
        ),
        (
            single("a.v - b.v"),
            "float32",
            "the identity of operator mine is not neutral in float32: nothing and 1 gives -1, 1 alone gives 1",
        ),
        (
            single("pick(a.n == 0, b.v, pick(b.n == 0, a.v, a.v - b.v))")
            | {"state": {"v": "value", "n": "count"}}
            | {"identity": {"v": 0, "n": 0}, "lift": {"v": "x", "n": 1}}
            | {"merge": {"v": "pick(a.n == 0, b.v, pick(b.n == 0, a.v, a.v - b.v))", "n": "a.n + b.n"}},
            "int32",
            "operator mine is not commutative in int32: 1 and 2 gives -1, 2 and 1 gives 1",
        ),
        (
            single("larger(a.v, b.v)", 0, exact=True),
            "float64",
            "the identity of operator mine is not neutral in float64: -1 and nothing gives 0, -1 alone gives -1",
        ),
        (
            single("larger(a.v, b.v)", -1, exact=True),
            "uint8",
            "the identity of operator mine is not neutral in uint8: 1 and nothing gives 255, 1 alone gives 1",
        ),
        (
            single("pick(a.v > b.v, a.v, b.v)", "lowest", exact=True),
            "float16",
            "the identity of operator mine is not neutral in float16: nan and nothing gives -inf, nan alone gives nan",
        ),
        (
            single("a.v + b.v", exact=True),
            "float32",
            "operator mine is not associative in float32: of ",
        ),
        (
            single("pick(a.v > 3, a.v, a.v + b.v)", exact=True),
            "int64",
            "operator mine is not commutative in int64: 1 and 5 gives 6, 5 and 1 gives 5",
        ),
        (
            changed(merge={"low": "smaller(a.low, b.low)", "high": "b.high"}),
            "int32",
            "the identity of operator mine is not neutral in int32: 1 and nothing gives 2147483647, 1 alone gives 0",
        ),
        (
            single("a.v + b.v", finish="0 * a.v", exact=True, identity=1),
            "int8",
            "the identity of operator mine is not neutral in int8: 1 and nothing gives v 2, 1 alone gives v 1",
        ),
        (
            single("pick(a.v < b.v, a.v, b.v)", "no_index", "i", kind="index", result="index", exact=True)
            | {"state": {"v": "value", "at": "index"}}
            | {"identity": {"v": "lowest", "at": "no_index"}, "lift": {"v": "x", "at": "i"}, "finish": "a.at"}
            | {
                "merge": {
                    "v": "larger(a.v, b.v)",
                    "at": "pick((a.v > b.v) | (a.v == b.v) & (a.at != no_index), a.at, b.at)",
                }
            },
            "int32",
            "operator mine is not commutative in int32: 1 at 0 and 1 at 1 gives 0, 1 at 1 and 1 at 0 gives 1",
        ),
        (
            single("a.v + b.v", lift="x * x + y", inputs=2, identity=1),
            "int16",
            "the identity of operator mine is not neutral in int16: (1, 1) and nothing gives 3, (1, 1) alone gives 2",
        ),
    ],
    ids=lambda value: str(value)[-60:],
)
def test_a_broken_law_is_shown_by_an_example(spec: Any, dtype: str, sentence: str) -> None:
    text = define("mine", spec)
    with pytest.raises(UsageError) as caught:
        check_laws(text, dtype)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("text", "dtype", "words"),
    [
        (derived("sum", None, "larger(a, 0)"), "int32", "orders or divides a.total, and sums of int32 have no sign"),
        (derived("sum", None, "absolute(a)"), "int64", "orders or divides a.total"),
        (
            derived("max", "x * x", None),
            "int32",
            "leaves the range of int32 in int32: x * x of 2147483647 is 461168601413242",
        ),
        (
            derived("max", "x - 3", None),
            "uint8",
            "leaves the range of uint32 in uint8: x - 3 of 1 is -2; choose a dtype",
        ),
        (
            derived("sum", "pick(x > -1, x, 0)", None),
            "uint8",
            "has a negative number in its lift total, and uint8 has no sign",
        ),
        (derived("sum", "x * i", None), "uint64", "joins counts or indices with values in its lift total"),
        (derived("sum", "x + 3000000000000", None), "float32", ""),
        (
            define("mine", single("a.v + b.v - (b.v & 0) * 9999999999")),
            "int32",
            "cannot be evaluated in int32: Python integer 9999999999",
        ),
        (derived("bitwise_or", "x & 3", None), "float32", "sum"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_a_dtype_has_no_meaning_for(text: str, dtype: str, words: str) -> None:
    if not words:
        check_laws(text, dtype)
        return
    with pytest.raises(UsageError) as caught:
        check_laws(text, dtype)
    assert (words in str(caught.value)) != (words == "sum")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint64", "bool", "float32"])
def test_sums_that_wrap_around_are_lawful_and_quiet(dtype: str) -> None:
    check_laws(define("mine", single("a.v + b.v", kind="sum", accumulates="sum", result="sum")), dtype)
    check_laws(define("mine", single("a.v * b.v", 1, kind="wrapping")), dtype)


# --- derived operators ------------------------------------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(5, 1000))
AGAINST_NUMPY = [
    ("sum", "x*x", "sqrt(a)", lambda x: np.linalg.norm(x, axis=-1)),
    ("sum", "x*x", "sqrt(a / count)", lambda x: np.sqrt((x * x).mean(-1))),
    ("sum", "larger(x, 0)", None, lambda x: np.maximum(x, 0).sum(-1)),
    ("sum", "x > 1", None, lambda x: (x > 1).sum(-1)),
    ("sumsq", "x - 1", None, lambda x: ((x - 1) ** 2).sum(-1)),
    ("mean", "exp(x)", "log(a)", lambda x: np.log(np.exp(x).mean(-1))),
    ("max", "absolute(x)", "a * 2", lambda x: np.abs(x).max(-1) * 2),
    ("argmax", "-x", None, lambda x: x.argmin(-1)),
    ("argmax", None, "a + 1", lambda x: x.argmax(-1) + 1),
    ("argmax", None, "a / count", lambda x: x.argmax(-1) / x.shape[-1]),
    ("count_nonzero", "x > 0", "a / count", lambda x: (x > 0).mean(-1)),
    ("any", "x > 3", None, lambda x: (x > 3).any(-1)),
    ("var", None, "sqrt(a)", lambda x: x.std(-1)),
    ("var", "2 * x", "a * count", lambda x: (2 * x).var(-1) * x.shape[-1]),
    ("logsumexp", "x / 2", None, lambda x: np.log(np.exp(x / 2).sum(-1))),
    ("norm_l2", None, "a * a", lambda x: (x * x).sum(-1)),
    ("nansum", "log(x)", None, lambda x: np.nansum(np.log(x), -1)),
    ("sum", None, "a.total - count", lambda x: x.sum(-1) - x.shape[-1]),
]


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize(("base", "map_", "finish", "expected"), AGAINST_NUMPY)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_derived_operators_give_what_numpy_gives(base: str, map_: Any, finish: Any, expected: Any, dtype: str) -> None:
    op = read_custom(derived(base, map_, finish))
    x = X.astype(dtype)
    np.testing.assert_allclose(op.reference(x), expected(x.astype("float64")), rtol=1e-12, atol=1e-12)
    for row in range(2):
        np.testing.assert_allclose(op.reference(x[row]), expected(x[row].astype("float64")), rtol=1e-12, atol=1e-12)


def test_a_derived_operator_of_two_inputs() -> None:
    op = read_custom(derived("dot", "x - y", "a / count"))
    np.testing.assert_allclose(op.reference(X, X[::-1]), ((X - X[::-1]) * X[::-1]).mean(-1))


@pytest.mark.parametrize(
    ("base", "map_", "finish", "accumulates", "result", "empty"),
    [
        ("sum", "x * x", None, "sum", "sum", 0),
        ("sum", "x * x", "sqrt(a)", "float", "float", 0),
        ("sum", "x / 2", None, "float", "float", 0),
        ("sum", "x * 0.5", None, "float", "float", 0),
        ("sum", None, "a + 1", "sum", "sum", 1),
        ("sum", None, "a / count", "float", "float", float("nan")),
        ("max", "absolute(x)", None, "register", "same", None),
        ("max", "log(x)", None, "float", "float", None),
        ("argmax", "exp(x)", None, "float", "index", None),
        ("argmax", None, "a / count", "float", "float", None),
        ("any", "sqrt(x)", None, "float", "flag", 0),
        ("var", "x + 1", None, "float", "float", float("nan")),
        ("prod", None, "a + 1", "sum", "sum", 2),
        ("bitwise_and", None, "a & 7", "register", "same", 7),
    ],
)
def test_types_of_derived_operators(
    base: str, map_: Any, finish: Any, accumulates: str, result: str, empty: float | None
) -> None:
    op = read_custom(derived(base, map_, finish))
    assert (op.accumulates, op.result) == (accumulates, result)
    np.testing.assert_equal(op.empty, empty)
    assert (op.name, op.exact, op.state) == (f"{base}_custom", OPERATORS[base].exact, OPERATORS[base].state)
    assert (op.seeds, op.on_complex, op.native) == (False, None, OPERATORS[base].native)
    assert (op.merge, op.identity, op.lets) == (OPERATORS[base].merge, OPERATORS[base].identity, OPERATORS[base].lets)


def test_bits_leave_floats_out() -> None:
    assert read_custom(derived("sum", "x & 3", None)).accepts == WHOLE
    assert read_custom(derived("bitwise_or", "x + 1", None)).accepts == WHOLE
    assert made(single("a.v | b.v", exact=True)).accepts == WHOLE
    assert made(single("a.v | b.v", 0, "x > 2", kind="flag", exact=True)).accepts == ("bool", "int", "uint", "float")


def test_only_names_are_replaced() -> None:
    op = read_custom(derived("var", "x + 1", "a / a.squares"))
    assert op.lift == ("1", "x + 1", "x + 1 - (x + 1)")
    assert op.finish == ("a.squares / real(pick(a.seen > ddof, a.seen - ddof, 0)) / a.squares",)
    assert read_custom(derived("sumsq", "x - 1", None)).lift == ("(x - 1) * (x - 1)",)
    assert read_custom(derived("norm_l1", "exp(x)", None)).lift == ("absolute(exp(x))",)


def test_neither_map_nor_finish_is_refused() -> None:
    with pytest.raises(UsageError, match="sum itself: give a map, a finish, or both"):
        derived("sum", None, None)
    with pytest.raises(UsageError, match="there is no operator 'nope'"):
        derived("nope", "x", None)


# --- references and tolerances ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", REAL_DTYPES)
def test_the_examples_give_what_numpy_gives(dtype: str) -> None:
    ops = {name: read_custom(text) for name, text in load_operators(str(EXAMPLES)).items()}
    rng = np.random.default_rng(0)
    kind = DTYPES[dtype]
    raw = kind.encode(rng.normal(size=(7, 301)) * 20 if kind.kind == "float" else rng.integers(0, 100, (7, 301)))
    x = kind.decode(raw) if kind.kind != "bool" else raw > 50
    wide = x.astype("float64")
    span = ops["range"].reference(x)
    np.testing.assert_array_equal(span, (x.max(-1) ^ x.min(-1)) if kind.kind == "bool" else np.ptp(wide, axis=-1))
    at = np.abs(wide).argmax(-1)
    np.testing.assert_array_equal(ops["absmax"].reference(x), wide[np.arange(7), at])
    np.testing.assert_allclose(ops["root_mean_square"].reference(x), np.sqrt((wide**2).mean(-1)), rtol=1e-12)
    with np.errstate(all="ignore"):
        expected = np.exp(np.log(np.abs(wide) + 1).mean(-1))
    np.testing.assert_allclose(ops["geometric_mean"].reference(np.abs(wide) + 1), expected, rtol=1e-12)


def test_integers_are_folded_as_a_kernel_folds_them() -> None:
    op = made(single("a.v + b.v", kind="sum", accumulates="sum", result="sum"))
    got = op.reference(np.array([2**63 - 1, 1], "int64"))
    assert got.dtype == "int64"
    assert got == -(2**63)
    assert op.reference(np.array([[-5, 2], [7, 1]], "int8")).tolist() == [-3, 8]
    assert op.reference(np.array([True, True, False])) == 2
    narrow = made(single("a.v + b.v", kind="sum"))
    assert narrow.reference(np.array([100, 100], "int8")) == -56


def test_a_sum_of_signed_integers_keeps_its_sign_in_finish() -> None:
    op = read_custom(derived("sum", None, "a * 2 - count"))
    assert op.reference(np.array([-5, 2], "int64")) == -8


@pytest.mark.parametrize("name", ["range", "absmax", "root_mean_square"])
@pytest.mark.parametrize("shape", [(1, 10), (3, 64), (3, 65), (2, 1000), (1000, 3), (130, 1), (4, 5, 6), (7,)])
def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch, name: str, shape: tuple[int, ...]) -> None:
    op = read_custom(load_operators(str(EXAMPLES))[name])
    x = np.random.default_rng(1).integers(-50, 50, shape).astype("float32")
    whole = op.reference(x)
    assert whole.shape == shape[:-1]
    moved = measured._measures(op, x)[0].moves
    monkeypatch.setattr(measured, "BLOCK", 64)
    np.testing.assert_array_equal(op.reference(x), whole)
    for field, fields in measured._measures(op, x)[0].moves.items():
        for other, values in fields.items():
            np.testing.assert_allclose(values, moved[field][other], rtol=1e-5)


def test_columns_are_added_up_as_carefully_as_rows() -> None:
    op = read_custom(derived("sum", "x / 3", None))
    x = np.random.default_rng(0).random((40, 5000))
    np.testing.assert_array_equal(op.reference(np.asfortranarray(x)), op.reference(x))
    error = np.abs(op.reference(x.T) - (x.T.astype(np.longdouble) / 3).sum(-1)).astype("float64")
    bound = op.tolerance.bound(op.tolerance.measures(x.T), Depths(1, 1), 2.0**-53)  # type: ignore[union-attr]
    assert (error <= bound).all()


def test_indices_count_through_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    op = read_custom(derived("argmax", "x * 2", None))
    x = np.zeros((2, 500), "float32")
    x[0, 321] = x[1, 130] = 1
    monkeypatch.setattr(measured, "BLOCK", 64)
    assert op.reference(x).tolist() == [321, 130]


@pytest.mark.parametrize("base", [name for name, op in OPERATORS.items() if op.accepts != ("complex",)])
def test_folding_in_blocks_is_folding(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op, kind = OPERATORS[base], "int64" if OPERATORS[base].accepts == WHOLE else "float64"
    inputs = [np.random.default_rng(k).integers(-3, 4, (3, 257)).astype(kind) for k in range(op.inputs)]
    monkeypatch.setattr(measured, "BLOCK", 32)
    got, state = measured.fold(op, kind, inputs), numpy_identity(op, kind)
    for i in range(257):
        one = numpy_lift(op, kind, inputs[0][:, i], np.int64(i), *(values[:, i] for values in inputs[1:]))
        state = numpy_merge(op, kind, state, one)
    for name, values in state.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-12)


def test_folding_keeps_the_types_of_a_state() -> None:
    x = np.array([[1, 2, 3]], "int32")
    for spec in (
        single("a.v + b.v", kind="sum"),
        single("larger(a.v, b.v)", "lowest"),
        single("b.v + a.v", kind="sum"),
    ):
        op = made(spec)
        one = numpy_lift(op, "int32", x, np.arange(3))
        assert measured.fold(op, "int32", [x])["v"].dtype == one["v"].dtype


def test_no_elements_have_the_state_of_none() -> None:
    assert measured.fold(made(RANGE), "float32", [np.zeros((2, 0), "float32")])["low"].tolist() == [np.inf, np.inf]


def chained(op: Operator, accumulate: str, x: Any, order: Any) -> Any:
    """A fold one element after the other, as a kernel that is as deep as can be."""
    state = numpy_identity(op, accumulate)
    for i in order:
        state = numpy_merge(op, accumulate, state, numpy_lift(op, accumulate, x[..., i], np.int64(i)))
    return measured.finished(op, accumulate, state, x.shape[-1])


ROUNDED = [("sum", "x * x - x", None), ("sum", "exp(x)", "log(a)"), ("mean", "x / 3", "sqrt(absolute(a))")]
ROUNDED += [
    ("prod", "1 + x / 100", None),
    ("var", "x + 10", None),
    ("logsumexp", "x * 3", None),
    ("max", "x * x - x", None),
]
ROUNDED += [("norm_l2", "x / 7", "a * a - 1"), ("sum", "(x - 1) * (x + 1)", "a - count")]


@pytest.mark.parametrize(("base", "map_", "finish"), ROUNDED)
@pytest.mark.parametrize(("n", "rows"), [(1, 3000), (2, 3000), (3, 3000), (7, 1000), (200, 100)])
def test_no_order_is_out_of_tolerance_and_a_lost_element_is(
    base: str, map_: str, finish: Any, n: int, rows: int
) -> None:
    op = read_custom(derived(base, map_, finish))
    assert op.tolerance is not None
    assert op.tolerance.rounds
    rng = np.random.default_rng(n)
    x = rng.normal(size=(rows, n)).astype("float32")
    right = op.reference(x)
    bound = op.tolerance.bound(op.tolerance.measures(x), Depths(n, n), 2.0**-24)
    assert bound.shape == right.shape
    for order in (np.arange(n), np.arange(n)[::-1], rng.permutation(n), rng.permutation(n)):
        got = chained(op, "float32", x, order)
        assert (np.abs(got - right) <= bound).all()
    if n > 1 and base != "max":
        lost = np.abs(chained(op, "float32", x, np.arange(n - 1)) - right)
        assert (lost > bound).mean() > (0.9 if n < 200 else 0.5)  # some elements say next to nothing
    # As tight as the built-in bounds: they hold for the deepest order, and no error comes near a hundredth of a result.
    assert np.nanmedian(bound / (np.abs(right) + 1)) < 1e-2


@pytest.mark.parametrize("n", [3, 100])
def test_a_tolerance_in_float64_allows_for_the_references_own_rounding(n: int) -> None:
    op = read_custom(derived("sum", "x * x - x", None))
    x = np.random.default_rng(n).normal(size=(2000, n))
    bound = op.tolerance.bound(op.tolerance.measures(x), Depths(n, n), 2.0**-53)  # type: ignore[union-attr]
    error = np.abs(chained(op, "float64", x, np.arange(n)[::-1]) - op.reference(x))
    assert error.any()
    assert (error <= bound).all()
    assert bound.max() < 1e-11
    by_u = [op.tolerance.bound(op.tolerance.measures(x), Depths(4, 4), u) / u for u in (2.0**-53, 2.0**-24)]  # type: ignore[union-attr]
    assert np.median(by_u[0] / by_u[1]) > 1.1


def test_sums_keep_what_they_lose_so_their_tolerance_goes_by_the_chain() -> None:
    x = np.random.default_rng(0).normal(size=1000).astype("float32")
    for spec, ratio in ((single("a.v + b.v", kind="sum"), 1), (single("a.v + b.v"), 10)):
        op = made(spec)
        bounds = [op.tolerance.bound(op.tolerance.measures(x), Depths(96, full), 2.0**-24) for full in (96, 996)]  # type: ignore[union-attr]
        assert bounds[1] / bounds[0] == pytest.approx(ratio, rel=0.01)
        assert bounds[0] == pytest.approx(100 * 2.0**-24 * np.abs(x).sum(), rel=0.05)


def test_an_operator_that_only_chooses_has_no_tolerance() -> None:
    assert made(single("larger(a.v, b.v)", "lowest", exact=True)).tolerance is None
    assert read_custom(derived("argmax", "-x", None)).tolerance is None
    assert read_custom(derived("max", "absolute(x)", None)).tolerance is None
    # What rounds before or after the choice may be a little off, and no more.
    op = made(RANGE)
    assert op.exact
    bound = op.tolerance.bound(op.tolerance.measures(np.array([[1.0, 3.0]], "float32")), Depths(99, 99), 2.0**-24)  # type: ignore[union-attr]
    assert 2.0**-24 < bound[0] < 20 * 2.0**-24


def test_where_float32_ends_its_infinity_is_right() -> None:
    op = read_custom(derived("sum", "exp(x)", "log(a)"))
    assert op.reference(np.array([100.0, 0.0], "float32")) == np.inf
    assert op.reference(np.array([100.0, 0.0], "float64")) == pytest.approx(100)
    squares = read_custom(derived("sum", "x * x", "sqrt(a)"))
    assert squares.reference(np.array([1e30, 0.0], "float32")) == np.inf
    assert squares.reference(np.array([1e15], "float32")) == pytest.approx(1e15)


@pytest.mark.parametrize(
    ("text", "bites"),
    [
        (define("mine", RANGE), "any"),
        (define("mine", changed(lift={"low": "x * x", "high": "x * x"})), "small"),
        (define("mine", single("a.v + b.v")), "small"),
        (define("mine", single("a.v * b.v", 1)), "units"),
        (derived("max", "absolute(x)", None), "any"),
        (derived("max", "x * x", None), "small"),  # of values that nearly tie, the rounded squares may tie
        (derived("max", "log(x)", None), "ones"),
        (derived("sum", "x * x", None), "small"),
        (derived("sum", "1 / x", None), "units"),
        (derived("sum", "sqrt(x)", None), "ones"),
        (derived("prod", "x * x", None), "units"),
        (derived("prod", "1 + x", None), "zeros"),
        (derived("prod", "x * x * x / 2 + 0.5", None), "ones"),
        (derived("any", "x > 3", None), "zeros"),
        (derived("any", "x - 1", None), "ones"),
        (derived("all", "x + 1", None), "ones"),
        (derived("prod", None, "a + 1"), "units"),
    ],
)
def test_the_judges_data_leave_results_finite(text: str, bites: str) -> None:
    assert read_custom(text).bites == bites


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.sampled_from(["x + 1", "x * x", "-x", "larger(x, 0)", "pick(x > 0, x, 2 * x)", "smaller(x, 3) - x"]),
    st.lists(st.integers(-40, 40), min_size=1, max_size=70),
)
def test_references_are_the_folds_of_evaluation(map_: str, values: list[int]) -> None:
    op = read_custom(derived("sum", map_, None))
    x = np.array(values, "float32")
    state = numpy_fold(op, "float64", [x])
    assert op.reference(x) == state["total"]


# --- anything at all --------------------------------------------------------------------------------------------------

TOKENS = ["x", "y", "i", "a.v", "b.v", "t", "count", "0", "1", "2.5", "lowest", "no_index", "a", "q", "1e999", "9" * 30]
TOKENS += [
    "+",
    "-",
    "*",
    "/",
    "&",
    "|",
    "<",
    "==",
    "**",
    "(",
    ")",
    ",",
    "pick(",
    "larger(",
    "sqrt(",
    "exp(",
    "real(",
    ".",
]
SOUP = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=8).map(" ".join)
TERMS = st.recursive(
    st.sampled_from(TOKENS[:12]),
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/", "&", "<", "=="]), inner)
        | st.builds("{}({})".format, st.sampled_from(["sqrt", "exp", "log", "real", "absolute", "-"]), inner)
        | st.builds("pick({}, {}, {})".format, inner, inner, inner)
    ),
    max_leaves=5,
)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3)
ANYTHING = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(PLAIN, inner, max_size=2), max_leaves=4
)
FUZZ = settings(max_examples=150, deadline=None, derandomize=True)


def sentence_of(call: Callable[[], object]) -> str:
    """What a call is refused for, or nothing: any other exception is a fault."""
    try:
        call()
    except UsageError as error:
        return str(error)
    return ""


def check_any(spec: Any) -> None:
    """A definition is taken, or refused in one line, whatever it is; and so is each dtype."""
    sentence = sentence_of(lambda: define("mine", spec))
    assert "\n" not in sentence
    if sentence:
        return
    text = define("mine", spec)
    read_custom(text)
    for dtype in ("float32", "int32", "uint8"):
        assert "\n" not in sentence_of(lambda dtype=dtype: check_laws(text, dtype))  # type: ignore[misc]


@FUZZ
@given(
    st.sampled_from(
        [*single("a.v + b.v"), "meaning", "exact", "empty", "accumulates", "result", "inputs", "lets", "from"]
    ),
    ANYTHING,
)
def test_any_value_is_taken_or_refused(key: str, value: Any) -> None:
    check_any({**single("a.v + b.v"), key: value})
    check_any({"from": "sum", "map": "x", key: value})


@FUZZ
@given(
    st.sampled_from(["identity", "lift", "merge", "finish", "map"]),
    SOUP | TERMS,
    st.sampled_from(["register", "float"]),
)
def test_any_expression_is_taken_or_refused(key: str, text: str, accumulates: str) -> None:
    if key != "map":
        value = text if key == "finish" else {"v": text}
        check_any({**single("a.v + b.v", accumulates=accumulates), key: value})
    for base in ("sum", "argmax") if key in ("finish", "map") else ():
        check_any({"from": base, key: text})


# --- the language -----------------------------------------------------------------------------------------------------


def test_every_built_in_operator_is_one_that_a_user_could_write() -> None:
    for op in OPERATORS.values():
        parts = sorts.facts_by_part(op)
        sorts.check_sums(op)
        assert {f"lift {name}" for name, _ in op.state} <= set(parts)
        makes_floats = any(facts.makes_floats for facts in parts.values())
        assert not makes_floats or op.accumulates == "float"


def test_every_word_has_a_sort() -> None:
    names = {"x": "value", "i": "whole"}
    for word, arity in ARITY.items():
        if word in sorts.OUR_OWN:
            with pytest.raises(UsageError, match=f"write exp for {word}"):
                sorts.facts_of(f"{word}(x)", names, "here")
            continue
        assert sorts.facts_of(f"{word}({', '.join('x' * arity)})", names, "here").sort in ("value", "truth")  # type: ignore[arg-type]
    assert NO_INDEX == 2**63 - 1


@pytest.mark.parametrize(
    ("text", "sort", "roundings"),
    [
        ("3", "literal", 0),
        ("2.5", "value", 0),
        ("True", "truth", 0),
        ("x", "value", 0),
        ("-x", "value", 0),
        ("x + 1", "value", 1),
        ("x * x - x", "value", 2),
        ("i + 1", "whole", 0),
        ("i * 2 - 1", "whole", 0),
        ("x > 3", "truth", 0),
        ("(x > 3) & (x < 5)", "truth", 0),
        ("(x > 3) * (x < 5)", "truth", 0),
        ("(x > 3) * x", "value", 1),
        ("i & 3", "whole", 0),
        ("x & 3", "value", 0),
        ("pick(x > 3, x, 0)", "value", 0),
        ("pick(x > 3, i, no_index)", "whole", 0),
        ("pick(x > 3, 1, 0)", "whole", 0),
        ("pick(x > 3, x > 4, x > 5)", "truth", 0),
        ("larger(x, 0)", "value", 0),
        ("above(x, 0)", "truth", 0),
        ("real(i)", "value", 1),
        ("sqrt(x)", "value", 6),
        ("1 / x", "value", 5),
        ("exp(x) + 1", "value", 7),
    ],
)
def test_sorts_and_roundings(text: str, sort: str, roundings: int) -> None:
    facts = sorts.facts_of(text, {"x": "value", "i": "whole", "no_index": "whole"}, "here")
    assert (facts.sort, facts.roundings) == (sort, roundings)


@pytest.mark.parametrize(
    "merge",
    [
        "a.v + b.v",
        "b.v + a.v * 2",
        "a.v + (b.v - a.v) * b.w",
        "a.v * a.w + b.v / b.w",
        "a.v + b.v + a.w * b.w",
        "a.v + pick(a.w > 0, b.v, 0)",
        "-(-a.v) + b.v",
        "a.v + b.v * share",
    ],
)
def test_sums_whose_terms_are_linear(merge: str) -> None:
    spec = {"state": {"v": "sum", "w": "value"}, "identity": {"v": 0, "w": 0}, "lift": {"v": "x", "w": "x"}}
    spec |= {"merge": {"v": merge, "w": "larger(a.w, b.w)"}, "finish": "a.v", "accumulates": "float"}
    spec |= {"lets": {"share": {"kind": "value", "text": "a.w + b.w"}}}
    assert made(spec).merge[0] == merge.replace("-(-a.v)", "--a.v")
    parse(merge)


# --- kernels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ARCHS)
@pytest.mark.parametrize("name", load_operators(str(EXAMPLES)))
def test_the_examples_render(name: str, backend: str) -> None:
    from redtune.config import Config
    from redtune.problems import make_problem
    from redtune.render import render

    text = load_operators(str(EXAMPLES))[name]
    to = target(backend)
    source = render(make_problem(name, custom=text, n=1 << 20), Config(), to.dialect, to.device).source
    assert f"redtune_{name}_float32" in source
    assert read_custom(text).meaning in source
