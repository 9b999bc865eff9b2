"""The language of operators: what it takes, what it refuses, and that C and numpy agree on what it says."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from redtune.dialect import c_limits, c_words
from redtune.dtypes import DTYPES
from redtune.errors import UsageError
from redtune.evaluation import limits
from redtune.expressions import ARITY, MAX_LENGTH, addends, evaluate, names_in, parse, renamed, spell
from tests.text.ccode import library
from tests.text.kernels import ARCHS, target


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "x",
        "-x",
        "1.5",
        "True",
        "a.total + b.total",
        "a.value * (b.value - 1) / 2",
        "(a & b) | (a ^ b)",
        "x != 0",
        "pick(above(a.value, b.value), larger(a.value, 3), -smaller(x, i))",
        "absolute(x) > huge_from",
        "sqrt(exp(a.top) + log(real(a.seen)))",
        "((x))",
    ],
)
def test_what_is_in_the_language(text: str) -> None:
    parse(text)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("larger(a, b).value", "larger(a, b).value"),
        ("a.b.c", "a.b.c"),
        ("lambda: 1", "lambda: 1"),
        ("a[0]", "a[0]"),
        ("foo(a)", "foo(a)"),
        ("abs(x) + 1", "abs(x)"),
        ("a.larger(b, c)", "a.larger(b, c)"),
        ("larger(a)", "larger(a)"),
        ("larger(a, b, c)", "larger(a, b, c)"),
        ("pick(a, b)", "pick(a, b)"),
        ("sqrt(a, b)", "sqrt(a, b)"),
        ("absolute()", "absolute()"),
        ("real(x=1)", "real(x=1)"),
        ("pow(a, 2)", "pow(a, 2)"),
        ("larger(a, b=1)", "larger(a, b=1)"),
        ("larger(*a, b)", "*a"),
        ("a < b < c", "a < b < c"),
        ("a in b", "a in b"),
        ("a is b", "a is b"),
        ("a and b", "a and b"),
        ("not a", "not a"),
        ("~a", "~a"),
        ("+a", "+a"),
        ("a ** 2", "a ** 2"),
        ("a // 2", "a // 2"),
        ("a % 2", "a % 2"),
        ("a << 2", "a << 2"),
        ("a if b else c", "a if b else c"),
        ("(a, b)", "(a, b)"),
        ("[a]", "[a]"),
        ("{a: b}", "{a: b}"),
        ("[i for i in x]", "[i for i in x]"),
        ("(a := 1)", "(a := 1)"),
        ("'text'", "'text'"),
        ("None", "None"),
        ("1j", "1j"),
        ("...", "..."),
        ("f'{a}'", "f'{a}'"),
        ("a + (b @ c)", "b @ c"),
        ("pick(a, b, c[1])", "c[1]"),
    ],
)
def test_what_is_not_is_named(text: str, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert str(caught.value) == f"{part!r} in {text!r} is not in the language of operators"


@pytest.mark.parametrize("text", ["", "a +", "a b", "x = 1", "import os", "a; b", "(a", "return x", "a\nb", "0x", " a"])
def test_what_does_not_parse_is_one_sentence(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert str(caught.value).startswith(f"the expression {text!r} does not parse: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["a\0b", "-" * 5000 + "a", "(" * 500 + "a" + ")" * 500])
def test_hostile_text_is_a_usage_error_too(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)


def test_what_is_too_long_is_refused() -> None:
    parse("+".join(["a"] * ((MAX_LENGTH + 1) // 2)))
    with pytest.raises(UsageError, match=rf"^an expression of {MAX_LENGTH + 2} characters is too long: at most 500$"):
        parse("a" * (MAX_LENGTH + 2))


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("0", set()),
        ("x * tiny_scale", {"x", "tiny_scale"}),
        ("a.total + b.total", {"a.total", "b.total"}),
        ("pick(x == x, x, 0)", {"x"}),
        ("real(a.seen) / real(pick(a.seen > ddof, a.seen - ddof, 0))", {"a.seen", "ddof"}),
        ("-absolute(i) < larger(a.top, fade)", {"i", "a.top", "fade"}),
        ("x.re * y.im", {"x.re", "y.im"}),
    ],
)
def test_the_names_an_expression_reads(text: str, names: set[str]) -> None:
    assert names_in(text) == names


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("a", ("a",)),
        ("a + b", ("a", "b")),
        ("a + b + c * d", ("a", "b", "c * d")),
        ("a + (b + c)", ("a", "b", "c")),
        ("(a + b) * c", ("(a + b) * c",)),
        ("a - b", ("a - b",)),
        ("a - b + c", ("a - b", "c")),
        ("-(a + b)", ("-(a + b)",)),
        ("pick(a, b + c, d)", ("pick(a, b + c, d)",)),
        ("a.total * pick(up, f, 1) + b.total", ("a.total * pick(up, f, 1)", "b.total")),
    ],
)
def test_the_terms_of_a_sum(text: str, terms: tuple[str, ...]) -> None:
    assert addends(text) == terms
    if "." not in text:
        names = {"a": 2, "b": 3, "c": 5, "d": 7}
        assert sum(evaluate(term, names) for term in terms) == evaluate(text, names)


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("a.total + b.total", "a.lost + b.lost"),
        ("a.total * fade + b.seen", "a.lost * fade + b.seen"),
        ("(b.total - a.total) * total", "(b.lost - a.lost) * total"),
        ("larger(-a.total, 0)", "larger(-a.lost, 0)"),
    ],
)
def test_fields_by_other_names(text: str, new: str) -> None:
    tree = parse(text)
    assert renamed(text, {"total": "lost"}) == new
    assert parse(text) is tree
    assert renamed(text, {}) == text, "the checked tree, which is kept, must stay as it was"


# --- spelling ---------------------------------------------------------------------------------------------------------

WORDS = c_words(DTYPES["int32"])


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("a.total + b.total", "a.total + b.total"),
        ("a + b * c", "a + (b * c)"),
        ("(a + b) * c", "(a + b) * c"),
        ("a - (b - c)", "a - (b - c)"),
        ("above(a, b)", "a > b"),
        ("pick(a, b, c)", "a ? b : c"),
        ("pick(a < b, a, b)", "(a < b) ? a : b"),
        ("True + x", "1 + x"),
        ("lowest", "(-2147483647 - 1)"),
        ("absolute(x)", "x < 0 ? -x : x"),
        ("absolute(x) + 1", "(x < 0 ? -x : x) + 1"),
        ("larger(absolute(x), a)", "(x < 0 ? -x : x) > a ? (x < 0 ? -x : x) : a"),
        ("real(a.seen) / b", "((real_t)a.seen) / b"),
        ("real(a + b)", "(real_t)(a + b)"),
        ("sqrt(x) * 2", "sqrt(x) * 2"),
        ("exp(a.top - b.top)", "exp(a.top - b.top)"),
        ("log(sqrt(x))", "log(sqrt(x))"),
    ],
)
def test_spelling(text: str, spelled: str) -> None:
    assert spell(text, WORDS, c_limits(target("cuda").dialect, DTYPES["int32"])) == spelled


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("absolute(x)", "fabs(x)"),
        ("absolute(x) > huge_from", "fabs(x) > 0x1p43f"),
        ("larger(a, b)", "((a > b) | (a != a)) ? a : b"),
        ("larger(absolute(x), a)", "((fabs(x) > a) | (fabs(x) != fabs(x))) ? fabs(x) : a"),
        ("above(a, b)", "(a > b) | (a != a)"),
        ("lowest", "-INFINITY"),
        ("nan_or_highest", "NAN"),
        ("tiny_scale * x", "0x1p90f * x"),
        ("-x * 2", "(-x) * 2"),
        ("x * 0.1 + 1e-05", "(x * 0.1f) + 1e-05f"),  # without the f the kernel would compute in double
    ],
)
def test_spelling_of_floats(text: str, spelled: str) -> None:
    dtype = DTYPES["float32"]
    assert spell(text, c_words(dtype), c_limits(target("opencl").dialect, dtype)) == spelled


@pytest.mark.parametrize("dialect", ARCHS)
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64", "float32", "float64"])
def test_every_limit_has_a_spelling(dialect: str, dtype: str) -> None:
    assert set(c_limits(target(dialect).dialect, DTYPES[dtype])) == set(limits(DTYPES[dtype]))


# --- C and numpy ------------------------------------------------------------------------------------------------------

Text = st.SearchStrategy[str]
Batch = st.SearchStrategy[list[str]]


def expressions(leaves: Sequence[str], operations: Sequence[str], words: Sequence[str]) -> Text:
    """Texts of numbers and conditions. A condition is no number here: numpy adds two of them to a condition."""

    def conditions(numbers: Text) -> Text:
        compared = st.builds("({} {} {})".format, numbers, st.sampled_from(["<", ">", "<=", ">=", "==", "!="]), numbers)
        ordered = st.builds("{}({}, {})".format, st.sampled_from(["above", "below"]), numbers, numbers)
        plain = compared | ordered
        joined = st.builds("({} {} {})".format, plain, st.sampled_from(["&", "|", "^", "==", "!="]), plain)
        return plain | joined

    def longer(numbers: Text) -> Text:
        binary = st.builds("({} {} {})".format, numbers, st.sampled_from(operations), numbers)
        # Without brackets the precedence is Python's, which C must be made to follow.
        bare = st.builds("{} {} {}".format, numbers, st.sampled_from(operations), numbers)
        negated = st.builds("(-{})".format, numbers) | st.builds("-{}".format, numbers)
        picked = st.builds("pick({}, {}, {})".format, conditions(numbers), numbers, numbers)
        called = [
            st.builds(f"{word}({', '.join(['{}'] * ARITY[word])})".format, *[numbers] * ARITY[word]) for word in words
        ]
        return st.one_of(binary, bare, negated, picked, *called)

    numbers = st.recursive(st.sampled_from(leaves), longer, max_leaves=6)
    return numbers | conditions(numbers)


def batches(texts: Text) -> Batch:
    return st.lists(texts, min_size=30, max_size=30)


def compiled(texts: Sequence[str], dtype: str, c_type: str) -> ctypes.CDLL:
    """A library with f0, f1, ...: the spelled texts as functions of a, b and c, over arrays."""
    words = c_words(DTYPES[dtype])
    lines = [f"typedef {c_type} real_t;", "#define EACH for (int i = 0; i < n; i++)"]
    for k, text in enumerate(texts):
        lines += [f"void f{k}(int n, const {c_type} *A, const {c_type} *B, const {c_type} *C, {c_type} *out) {{"]
        lines += [
            f"    EACH {{ const {c_type} a = A[i], b = B[i], c = C[i]; out[i] = {spell(text, words, {})}; }}",
            "}",
        ]
    return library("\n".join(lines))


def differing(texts: Sequence[str], dtype: str, c_type: str, values: Any) -> list[str]:
    """The texts whose C says something else than numpy, each with its C, shortest first."""
    a, b, c = (np.ascontiguousarray(x.ravel()) for x in np.meshgrid(values, values, values))
    library = compiled(texts, dtype, c_type)
    found = []
    for k, text in enumerate(texts):
        with np.errstate(all="ignore"):
            expected = np.broadcast_to(evaluate(text, {"a": a, "b": b, "c": c}), a.shape)
        got = np.empty_like(a)
        getattr(library, f"f{k}")(len(a), *(ctypes.c_void_p(x.ctypes.data) for x in (a, b, c, got)))
        if not np.array_equal(got, expected.astype(a.dtype), equal_nan=a.dtype.kind == "f"):
            found.append(f"{text}   in C: {spell(text, c_words(DTYPES[dtype]), {})}")
    return sorted(found, key=len)


# A batch names its shortest text itself, and shrinking would call gcc hundreds of times.
RANDOM = settings(
    max_examples=8,
    deadline=None,
    phases=[Phase.generate],
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example, HealthCheck.data_too_large],
)
INTEGERS = np.arange(-3, 4)
NUMBERS = ["larger", "smaller", "absolute", "real"]
FLOATS = np.array([np.nan, -np.inf, -1.5, 0.0, 1.0, np.inf])


@given(texts=batches(expressions(["a", "b", "c", "0", "2"], ["+", "-", "*", "&", "|", "^"], NUMBERS)))
@RANDOM
def test_c_and_numpy_agree_on_integers(texts: list[str]) -> None:
    assert differing(texts, "int64", "long long", INTEGERS) == []


@given(texts=batches(expressions(["a", "b", "c", "0.5"], ["+", "-", "*"], [*NUMBERS, "sqrt"])))
@RANDOM
def test_c_and_numpy_agree_on_floats(texts: list[str]) -> None:
    assert differing(texts, "float64", "double", FLOATS) == []


# Of zeros of both signs, either may be the larger one, and a division would show which it was. Names only: a quotient
# of two constants is Python's, which is exact, and C's, which is not.
@given(texts=batches(expressions(["a", "b", "c"], ["+", "-", "*", "/"], [])))
@RANDOM
def test_c_and_numpy_agree_on_quotients(texts: list[str]) -> None:
    assert differing(texts, "float64", "double", FLOATS) == []


# What an earlier spelling got wrong, or could.
CORNERS = [
    "-(-a)",
    "a - -b",
    "-(-(-a))",
    "above(a, b) == above(b, a)",
    "above(a, b) != below(a, b)",
    "pick(above(a, b) == above(b, a), a, b)",
    "larger(a, (b + c)) * 2",
    "larger(a, b) + larger(b, c)",
    "pick(a < b, a, (b + c)) + 1",
    "-larger(a, (b + c))",
    "larger(larger(a, (b - c)), smaller((a * b), c))",
    "larger(pick(a < b, a, b), pick(b < c, b, (c - a)))",
    "pick(pick(a < b, b < c, a < c), a, b)",
    "(a < b) == (b < c)",
    "-absolute(-a)",
    "absolute(a - b) * -absolute(c)",
    "absolute(larger(a, (b + c)))",
    "larger(absolute(a), absolute((b - c)))",
    "real(a) + real((b - c)) * 2",
    "absolute(pick(a < b, a, -c))",
]


@pytest.mark.parametrize(("dtype", "c_type"), [("int64", "long long"), ("float64", "double")])
def test_c_and_numpy_agree_on_corners(dtype: str, c_type: str) -> None:
    assert differing(CORNERS, dtype, c_type, INTEGERS if dtype == "int64" else FLOATS) == []


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint64"])
def test_every_word_has_a_spelling_and_a_meaning(dtype: str) -> None:
    assert set(c_words(DTYPES[dtype])) == {*ARITY, "literal"}
    for word, arity in ARITY.items():
        evaluate(f"{word}({', '.join(['1'] * arity)})", {})
