"""The language of operators: what it takes, what it refuses, and that C and numpy agree on what it says."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from redtune.dialect import c_limits, c_words
from redtune.dtypes import DTYPES
from redtune.errors import UsageError
from redtune.expressions import ARITY, evaluate, parse, spell
from redtune.operators import OPERATORS
from tests.text.kernels import target


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
    ],
)
def test_spelling(text: str, spelled: str) -> None:
    assert spell(text, WORDS, c_limits(target("cuda").dialect, DTYPES["int32"])) == spelled


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
        called = st.builds("{}({}, {})".format, st.sampled_from(words), numbers, numbers) if words else st.nothing()
        return binary | bare | negated | picked | called

    numbers = st.recursive(st.sampled_from(leaves), longer, max_leaves=6)
    return numbers | conditions(numbers)


def batches(texts: Text) -> Batch:
    return st.lists(texts, min_size=30, max_size=30)


@pytest.fixture(scope="module")
def gcc() -> str:
    found = shutil.which("gcc")
    if found is None:
        pytest.skip("gcc is not on PATH, and the spelled text wants a C compiler")
    return found


def compiled(gcc: str, texts: Sequence[str], dtype: str, c_type: str) -> ctypes.CDLL:
    """A library with f0, f1, ...: the spelled texts as functions of a, b and c, over arrays."""
    words = c_words(DTYPES[dtype])
    lines = ["#define EACH for (int i = 0; i < n; i++)"]
    for k, text in enumerate(texts):
        lines += [f"void f{k}(int n, const {c_type} *A, const {c_type} *B, const {c_type} *C, {c_type} *out) {{"]
        lines += [
            f"    EACH {{ const {c_type} a = A[i], b = B[i], c = C[i]; out[i] = {spell(text, words, {})}; }}",
            "}",
        ]
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "f.c"), Path(folder, "f.so")
        source.write_text("\n".join(lines))
        flags = ["-O0", "-fwrapv", "-ffp-contract=off", "-w", "-shared", "-fPIC"]
        done = subprocess.run([gcc, *flags, "-o", library, source], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return ctypes.CDLL(str(library))


def differing(gcc: str, texts: Sequence[str], dtype: str, c_type: str, values: Any) -> list[str]:
    """The texts whose C says something else than numpy, each with its C, shortest first."""
    a, b, c = (np.ascontiguousarray(x.ravel()) for x in np.meshgrid(values, values, values))
    library = compiled(gcc, texts, dtype, c_type)
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
    max_examples=12,
    deadline=None,
    phases=[Phase.generate],
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example, HealthCheck.data_too_large],
)
INTEGERS = np.arange(-3, 4)
FLOATS = np.array([np.nan, -np.inf, -1.5, 0.0, 1.0, np.inf])


@given(texts=batches(expressions(["a", "b", "c", "0", "2"], ["+", "-", "*", "&", "|", "^"], ["larger", "smaller"])))
@RANDOM
def test_c_and_numpy_agree_on_integers(gcc: str, texts: list[str]) -> None:
    assert differing(gcc, texts, "int64", "long long", INTEGERS) == []


@given(texts=batches(expressions(["a", "b", "c", "0.5"], ["+", "-", "*"], ["larger", "smaller"])))
@RANDOM
def test_c_and_numpy_agree_on_floats(gcc: str, texts: list[str]) -> None:
    assert differing(gcc, texts, "float64", "double", FLOATS) == []


# Of zeros of both signs, either may be the larger one, and a division would show which it was. Names only: a quotient
# of two constants is Python's, which is exact, and C's, which is not.
@given(texts=batches(expressions(["a", "b", "c"], ["+", "-", "*", "/"], [])))
@RANDOM
def test_c_and_numpy_agree_on_quotients(gcc: str, texts: list[str]) -> None:
    assert differing(gcc, texts, "float64", "double", FLOATS) == []


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
]


@pytest.mark.parametrize("text", CORNERS)
@pytest.mark.parametrize(("dtype", "c_type"), [("int64", "long long"), ("float64", "double")])
def test_c_and_numpy_agree_on_corners(gcc: str, text: str, dtype: str, c_type: str) -> None:
    assert differing(gcc, [text], dtype, c_type, INTEGERS if dtype == "int64" else FLOATS) == []


WINS = sorted({op.wins for op in OPERATORS.values() if op.wins})


@pytest.mark.parametrize("text", WINS)
@pytest.mark.parametrize(("dtype", "c_type"), [("int64", "long long"), ("float64", "double")])
def test_c_and_numpy_agree_on_the_operators_conditions(gcc: str, text: str, dtype: str, c_type: str) -> None:
    plain = text.replace("a.value", "a").replace("b.value", "b").replace("a.index < b.index", "c < 0")
    assert differing(gcc, [plain], dtype, c_type, INTEGERS if dtype == "int64" else FLOATS) == []


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint64"])
def test_every_word_has_a_spelling_and_a_meaning(dtype: str) -> None:
    assert set(c_words(DTYPES[dtype])) == set(ARITY)
    for word, arity in ARITY.items():
        evaluate(f"{word}({', '.join(['1'] * arity)})", {})
