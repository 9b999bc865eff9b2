"""What operators say in C is what numpy makes of them: every entry, as the kernels spell it."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import numpy as np
import pytest

from redtune.config import Config
from redtune.dtypes import DTYPES, Dtype
from redtune.evaluation import State, numpy_finish, numpy_identity, numpy_lift, numpy_merge
from redtune.operators import Operator, accumulate_type, result_type
from redtune.text import Text, make_text
from tests.text.ccode import library
from tests.text.folds import Array, exact_values, special_values
from tests.text.kernels import PAIRS, operator, problem, target

# Every kind of accumulator that C computes in as numpy does: a float32 is a double in what C calls sqrt.
DTYPES_IN_C = ("bool", "int64", "uint8", "float64", "complex128")
C_TYPES = """
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
"""
INDICES = np.array([0, 1, 7, 2**31, 2**62])


def spelled(op: str, dtype: str) -> Text:
    """The words of the plain C dialect."""
    on = target("opencl")
    return make_text(problem(op, dtype), Config(), on.dialect, on.device)


def functions(op: Operator, dtype: Dtype) -> str:
    """`identity`, `lift`, `merge` and `finish` of an operator over arrays."""
    text, name = spelled(op.name, dtype.name), op.name
    state = [field for field in text.state if not field.is_lost]
    element = text.operands[0].element_type
    value = "struct {" + element + " re, im; }" if dtype.parts > 1 else text.real_type
    fields = " ".join(f"{field.type} {field.name};" for field in state)
    lets = " ".join(f"const {let.type} {let.name} = {let.text};" for let in text.lets)

    def each(member: str) -> str:
        return " ".join(f"s.{field.name} = {getattr(field, member)};" for field in state)

    parts = " ".join(f"out[{len(text.finish)} * k + {i}] = {finish};" for i, finish in enumerate(text.finish))
    widened = "{0}" if dtype.parts > 1 else "(value)({0})"
    raw = value if dtype.parts > 1 else element
    return f"""
#define real_t {text.real_type}
#define result_part_t {text.result_part_type}
#define value value_{name}
#define raw raw_{name}
#define State State_{name}
typedef {value} value;
typedef {raw if dtype.parts == 1 else "value"} raw;
typedef struct {{ {fields} }} State;
void identity_{name}(State *out) {{ State s; {each("identity")} *out = s; }}
void lift_{name}(int n, const raw *X, const raw *Y, const long *I, State *out) {{
    for (int k = 0; k < n; k++) {{
        const value x = {widened.format("X[k]")}, y = {widened.format("Y[k]")};
        const long i = I[k];
        State s; {each("lift")} out[k] = s;
    }}
}}
void merge_{name}(int n, const State *A, const State *B, State *out) {{
    for (int k = 0; k < n; k++) {{
        const State a = A[k], b = B[k];
        {lets}
        State s; {each("merge")} out[k] = s;
    }}
}}
void finish_{name}(int count, const State *A, long n, long ddof, result_part_t *out) {{
    for (int k = 0; k < count; k++) {{ const State a = A[k]; {parts} }}
}}
#undef real_t
#undef result_part_t
#undef value
#undef raw
#undef State
"""


def record(op: str, dtype: str) -> np.dtype[Any]:
    """The state as numpy sees what C wrote."""
    text = spelled(op, dtype)
    state = [field for field in text.state if not field.is_lost]
    return np.dtype({"names": [f.name for f in state], "formats": [f.dtype for f in state]}, align=True)


def pointer(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def assert_same(found: Array, wanted: State, near: float) -> None:
    for field, values in wanted.items():
        values = np.broadcast_to(values, found.shape)
        assert found[field].dtype == values.dtype
        np.testing.assert_allclose(found[field], values, rtol=near, atol=0, err_msg=field)


@pytest.fixture(scope="module", params=DTYPES_IN_C)
def in_c(request: pytest.FixtureRequest) -> tuple[Dtype, ctypes.CDLL]:
    """A dtype, and all operators that take it in one library."""
    dtype = DTYPES[request.param]
    mine = [operator(o, d) for o, d in PAIRS if d == dtype.name]
    return dtype, library(C_TYPES + "".join(functions(op, dtype) for op in mine))


def test_c_says_what_numpy_says(in_c: tuple[Dtype, ctypes.CDLL]) -> None:
    dtype, found = in_c
    rng = np.random.default_rng(0)
    for op in (operator(o, d) for o, d in PAIRS if d == dtype.name):
        accumulate, result = accumulate_type(op, dtype), DTYPES[result_type(op, dtype)]
        # The exponential of C may be a unit in the last place off numpy's.
        near = 1e-15 if op.lets and not op.exact else 0
        values = special_values(dtype) if dtype.kind != "complex" else exact_values(op, dtype)
        x, i = (side.ravel() for side in np.meshgrid(values, INDICES))
        y = rng.permutation(x)
        kind = record(op.name, dtype.name)

        states = np.empty(1, kind)
        getattr(found, f"identity_{op.name}")(pointer(states))
        assert_same(states, numpy_identity(op, accumulate), 0)

        states = np.empty(len(x), kind)
        lift = getattr(found, f"lift_{op.name}")
        lift(len(x), *(pointer(np.ascontiguousarray(a)) for a in (x, y, i)), pointer(states))
        lifted = numpy_lift(op, accumulate, x, i, y)
        assert_same(states, lifted, 0)

        a, b = rng.permutation(states), states
        merged = np.empty_like(states)
        getattr(found, f"merge_{op.name}")(len(a), pointer(a), pointer(b), pointer(merged))
        fields = ({f: side[f] for f in kind.names or ()} for side in (a, b))
        assert_same(merged, numpy_merge(op, accumulate, *fields), near)

        for n, ddof in itertools.product((1, 5), (0, 1)):
            part = DTYPES[result.register] if result.kind == "complex" else result
            out = np.empty(len(merged) * len(op.finish), part.storage())
            finish = getattr(found, f"finish_{op.name}")
            finish(len(merged), pointer(merged), ctypes.c_long(n), ctypes.c_long(ddof), pointer(out))
            state = {f: merged[f] for f in kind.names or ()}
            wanted = numpy_finish(op, accumulate, result, state, count=n, ddof=ddof)
            np.testing.assert_allclose(out.view(wanted.dtype), wanted, rtol=max(near, 1e-15), atol=0, err_msg=op.name)
