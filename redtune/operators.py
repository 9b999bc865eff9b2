"""The door for operators: `OPERATORS` has one entry each, written once for every language.

An operator folds elements into a *state* of one to three fields. `lift` makes the state of one element `x` (and `y`
of a second input) at index `i`, `merge` joins the states `a` and `b`, `finish` turns the last state into the result.
All are expressions of `redtune.expressions`; numpy evaluates the same text (`redtune.evaluation`), so the laws
(identity, commutativity, associativity) are tested with no device.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from redtune import references as right
from redtune.dtypes import DTYPES, UNSIGNED, Dtype, unknown
from redtune.errors import DtypeError, UsageError
from redtune.gathering import EXACT_MOMENTS, EXPONENTIALS, MOMENTS, SQUARES, Gather, first_of
from redtune.references import Reference, Tolerance

if TYPE_CHECKING:
    from redtune.types import Problem

# What a field of a state holds. "value": the accumulator. "sum": the accumulator, added up: integers wrap around
# (signed overflow is undefined in C, so the field is unsigned in the kernel), floats keep what rounding loses from tile
# to tile. "wrapping": the accumulator, integers wrap around. "flag": zero or one. "index" and "count": 64-bit integers.
FieldKind = Literal["value", "sum", "wrapping", "flag", "index", "count"]

NO_INDEX = 2**63 - 1
REAL = ("bool", "int", "uint", "float")
WHOLE = ("bool", "int", "uint")


@dataclass(frozen=True, slots=True)
class Let:
    """A name that `merge` may use for a part of its expressions: a truth value or an accumulator."""

    name: str
    kind: Literal["flag", "value"]
    text: str


@dataclass(frozen=True, slots=True)
class Operator:
    """One reduction. `exact` says whether the result is the same for every order of merging (else: for integers only).

    `accumulates`: in the narrowest register, in numpy's type for sums, or in a float as numpy's mean does. `result` is
    the type of the result by numpy's rule. `finish` may read `count` (how many elements) and `ddof`. `reference` gives
    the right answers for decoded numpy values (see redtune.references), `tolerance` how far a float result may be from
    them; `empty` what a reduction of nothing gives, None where numpy raises. `seeds` says that `initial` has a meaning,
    `seed` how it becomes a state where it does not as an element does. `gather` says how a tile becomes a state at
    once, where that is cheaper, `whole_gather` how one of narrow integers does, in 32 bits. `on_complex` and `in_range`
    are the entries for complex numbers, and for elements none of whose squares leaves the range of what accumulates
    them, where they are others.
    """

    name: str
    meaning: str
    state: tuple[tuple[str, FieldKind], ...]
    identity: tuple[str, ...]
    lift: tuple[str, ...]
    merge: tuple[str, ...]
    finish: tuple[str, ...]  # one expression; two for a complex result
    reference: Reference
    exact: bool
    bites: Literal[
        "any", "small", "units", "zeros", "ones"
    ]  # data whose result is exact in any order: see redtune.data
    tolerance: Tolerance | None = None
    accumulates: Literal["register", "sum", "float"] = "register"
    result: Literal["same", "sum", "float", "index", "flag"] = "same"
    native: Literal["", "add", "max", "min", "and", "or", "xor"] = ""  # what instruction sets call it
    lets: tuple[Let, ...] = ()
    empty: float | None = None
    accepts: tuple[str, ...] = REAL
    inputs: int = 1
    seeds: bool = False
    seed: tuple[str, ...] = ()
    on_complex: Operator | None = None
    in_range: Operator | None = None
    gather: Gather | None = None
    whole_gather: Gather | None = None


# Of two candidates the one that comes first in NaN-first order; of equals (two NaNs included) the lower index.
_FIRST = "pick({0}(a.value, b.value) == {0}(b.value, a.value), a.index < b.index, {0}(a.value, b.value))"
_PICK_BOTH = ("pick(wins, a.value, b.value)", "pick(wins, a.index, b.index)")
_VALUE_AND_INDEX: tuple[tuple[str, FieldKind], ...] = (("value", "value"), ("index", "index"))
_TOTAL: tuple[tuple[str, FieldKind], ...] = (("total", "sum"),)
_PARTS: tuple[tuple[str, FieldKind], ...] = (("re", "sum"), ("im", "sum"))
# NaN is no value here: it loses against any other, and stays where there is no other.
_LARGEST_OF_NUMBERS = "pick(a.value >= b.value, a.value, pick(b.value == b.value, b.value, a.value))"
_SMALLEST_OF_NUMBERS = "pick(a.value <= b.value, a.value, pick(b.value == b.value, b.value, a.value))"


def _complex_sum(name: str, meaning: str, lift: tuple[str, str], finish: tuple[str, str], **more: Any) -> Operator:
    """A sum of complex numbers: the parts add up on their own."""
    return Operator(
        name=name,
        meaning=meaning,
        state=_PARTS,
        identity=("0", "0"),
        lift=lift,
        merge=("a.re + b.re", "a.im + b.im"),
        finish=finish,
        exact=False,
        bites="small",
        accepts=("complex",),
        native="add",
        **({"accumulates": "sum", "result": "sum"} | more),
    )


def _index_of(name: str, meaning: str, order: str, seed: str, reference: Reference) -> Operator:
    return Operator(
        name=name,
        meaning=f"the index of {meaning}; the first NaN wins, of equals the lowest index",
        state=_VALUE_AND_INDEX,
        identity=(seed, "no_index"),
        lift=("x", "i"),
        lets=(Let("wins", "flag", _FIRST.format(order)),),
        merge=_PICK_BOTH,
        finish=("a.index",),
        reference=reference,
        exact=True,
        bites="any",
        result="index",
        gather=first_of(order, "larger" if order == "above" else "smaller"),
    )


def _chosen(name: str, meaning: str, seed: str, merge: str, reference: Reference, native: Any = "") -> Operator:
    """An operator that picks one of the values."""
    return Operator(
        name=name,
        meaning=meaning,
        state=(("value", "value"),),
        identity=(seed,),
        lift=("x",),
        merge=(merge,),
        finish=("a.value",),
        reference=reference,
        exact=True,
        bites="any",
        native=native,
        seeds=True,
    )


def _summed(name: str, meaning: str, lift: str, reference: Reference, tolerance: Tolerance, **more: Any) -> Operator:
    """An operator that adds up something of each element."""
    fields: dict[str, Any] = {
        "state": _TOTAL,
        "identity": ("0",),
        "merge": ("a.total + b.total",),
        "finish": ("a.total",),
        "accumulates": "sum",
        "result": "sum",
        "native": "add",
        "empty": 0,
        "exact": False,
        "bites": "small",
    }
    return Operator(
        name=name, meaning=meaning, lift=(lift,), reference=reference, tolerance=tolerance, **(fields | more)
    )


def _bitwise(name: str, meaning: str, seed: str, sign: str, native: Any, empty: int, bites: Any) -> Operator:
    def reference(values: Any) -> Any:
        import numpy as np

        return getattr(np, name).reduce(values, axis=-1)

    return Operator(
        name=name,
        meaning=meaning,
        state=(("bits", "value"),),
        identity=(seed,),
        lift=("x",),
        merge=(f"a.bits {sign} b.bits",),
        finish=("a.bits",),
        reference=reference,
        exact=True,
        bites=bites,
        native=native,
        empty=empty,
        accepts=WHOLE,
        seeds=True,
    )


def _truth(name: str, meaning: str, seed: str, sign: str, reference: Reference) -> Operator:
    return Operator(
        name=name,
        meaning=meaning,
        state=(("found", "flag"),),
        identity=(seed,),
        lift=("x != 0",),
        merge=(f"a.found {sign} b.found",),
        finish=("a.found",),
        reference=reference,
        exact=True,
        bites="ones" if sign == "&" else "zeros",
        result="flag",
        native="and" if sign == "&" else "or",
        empty=int(seed),
    )


# Three sums of squares, of tiny, ordinary and huge values, each scaled so that neither overflow nor underflow can touch
# a norm that fits (Blue, ACM TOMS 4, 1978; the constants here leave room for 2^40 elements). NaN goes with the
# ordinary.
_IS_HUGE, _IS_TINY = "(absolute(x) > huge_from)", "(absolute(x) < tiny_below)"
_NORM_L2 = Operator(
    name="norm_l2",
    meaning="the Euclidean norm; no square overflows or underflows",
    state=(("tiny", "sum"), ("ordinary", "sum"), ("huge", "sum")),
    identity=("0", "0", "0"),
    lift=(
        f"pick({_IS_TINY}, x * tiny_scale * (x * tiny_scale), 0)",
        f"pick({_IS_HUGE} | {_IS_TINY}, 0, x * x)",
        f"pick({_IS_HUGE}, x * huge_scale * (x * huge_scale), 0)",
    ),
    merge=("a.tiny + b.tiny", "a.ordinary + b.ordinary", "a.huge + b.huge"),
    finish=(
        "sqrt(pick(a.huge > 0, a.huge + a.ordinary * huge_scale * huge_scale, "
        "pick(a.ordinary == 0, a.tiny, a.ordinary + a.tiny / tiny_scale / tiny_scale)))"
        " * pick(a.huge > 0, 1 / huge_scale, pick(a.ordinary == 0, 1 / tiny_scale, 1))",
    ),
    reference=right.norm,
    exact=False,
    bites="small",
    tolerance=right.NORM,
    accumulates="float",
    result="float",
    empty=0,
    in_range=_summed(
        "norm_l2",
        "the Euclidean norm",
        "x * x",
        right.norm,
        right.NORM,
        finish=("sqrt(a.total)",),
        accumulates="float",
        result="float",
        native="",
    ),
    gather=SQUARES,
)

# Count, mean and sum of squared deviations of two sets together (Chan, Golub, LeVeque, 1979). Within a tile the counts
# are known when the kernel is compiled, so nothing is divided there.
_VAR = Operator(
    name="var",
    meaning="the variance: squared deviations from the mean over count - ddof",
    state=(("seen", "count"), ("mean", "sum"), ("squares", "sum")),
    identity=("0", "0", "0"),
    lift=("1", "x", "x - x"),  # infinities and NaN have no deviation
    lets=(Let("share", "value", "pick(b.seen == 0, 0, real(b.seen) / real(a.seen + b.seen))"),),
    merge=(
        "a.seen + b.seen",
        "a.mean + (b.mean - a.mean) * share",
        # The counts first: nothing leaves the range that the sum does not, and a set of no elements adds nothing.
        "a.squares + b.squares + (b.mean - a.mean) * (real(a.seen) * share) * (b.mean - a.mean)",
    ),
    finish=("a.squares / real(pick(a.seen > ddof, a.seen - ddof, 0))",),
    reference=lambda values: right.real(values).var(axis=-1),
    exact=False,
    bites="small",
    tolerance=right.VARIANCE,
    accumulates="float",
    result="float",
    empty=float("nan"),
    gather=MOMENTS,
    whole_gather=EXACT_MOMENTS,
)

_STD = Operator(
    name="std",
    meaning="the standard deviation: the root of the variance",
    state=_VAR.state,
    identity=_VAR.identity,
    lift=_VAR.lift,
    lets=_VAR.lets,
    merge=_VAR.merge,
    finish=(f"sqrt({_VAR.finish[0]})",),
    reference=lambda values: right.real(values).std(axis=-1),
    exact=False,
    bites="small",
    tolerance=right.DEVIATION,
    accumulates="float",
    result="float",
    empty=float("nan"),
    gather=MOMENTS,
    whole_gather=EXACT_MOMENTS,
)

# The largest value so far, and the sum of exponentials of the distances below it.
_LOGSUMEXP = Operator(
    name="logsumexp",
    meaning="log(sum(exp(x))), with the largest value taken out",
    state=(("top", "value"), ("total", "sum")),
    identity=("lowest", "0"),
    lift=("x", "1"),
    lets=(
        Let("fade", "value", "pick(a.top == b.top, 1, exp(smaller(a.top, b.top) - larger(a.top, b.top)))"),
        Let("rises", "flag", "a.top < b.top"),
    ),
    merge=("larger(a.top, b.top)", "a.total * pick(rises, fade, 1) + b.total * pick(rises, 1, fade)"),
    finish=("a.top + log(a.total)",),
    reference=right.log_of_sum,
    exact=False,
    bites="small",
    tolerance=right.LOG,
    accumulates="float",
    result="float",
    empty=float("-inf"),
    gather=EXPONENTIALS,
)

_PROD = Operator(
    name="prod",
    meaning="the product",
    state=(("total", "wrapping"),),
    identity=("1",),
    lift=("x",),
    merge=("a.total * b.total",),
    finish=("a.total",),
    reference=right.product,
    exact=False,
    bites="units",
    tolerance=right.PRODUCT,
    accumulates="sum",
    result="sum",
    empty=1,
    seeds=True,
    on_complex=Operator(
        name="prod",
        meaning="the product",
        state=(("re", "value"), ("im", "value")),
        identity=("1", "0"),
        lift=("x.re", "x.im"),
        merge=("a.re * b.re - a.im * b.im", "a.re * b.im + a.im * b.re"),
        finish=("a.re", "a.im"),
        reference=right.product,
        exact=False,
        bites="units",
        tolerance=right.PRODUCT,
        accumulates="sum",
        result="sum",
        empty=1,
        accepts=("complex",),
    ),
)

OPERATORS = {
    op.name: op
    for op in (
        _summed(
            "sum",
            "the sum",
            "x",
            right.total,
            right.SUM,
            seeds=True,
            on_complex=_complex_sum(
                "sum",
                "the sum",
                ("x.re", "x.im"),
                ("a.re", "a.im"),
                reference=right.total,
                tolerance=right.SUM,
                empty=0,
            ),
        ),
        _PROD,
        _chosen("max", "the largest value; NaN wins", "lowest", "larger(a.value, b.value)", lambda v: v.max(-1), "max"),
        _chosen(
            "min", "the smallest value; NaN wins", "highest", "smaller(a.value, b.value)", lambda v: v.min(-1), "min"
        ),
        _index_of("argmax", "the largest value", "above", "lowest", lambda v: v.argmax(-1)),
        _index_of("argmin", "the smallest value", "below", "highest", lambda v: v.argmin(-1)),
        _chosen(
            "nanmax",
            "the largest value that is not NaN",
            "nan_or_lowest",
            _LARGEST_OF_NUMBERS,
            right.nan_extreme("max", float("-inf")),
        ),
        _chosen(
            "nanmin",
            "the smallest value that is not NaN",
            "nan_or_highest",
            _SMALLEST_OF_NUMBERS,
            right.nan_extreme("min", float("inf")),
        ),
        _summed(
            "nansum",
            "the sum, NaN counting as zero",
            "pick(x == x, x, 0)",
            lambda v: right.total(right.without_nan(v)),
            right.NAN_SUM,
            seeds=True,
            seed=("x",),  # to numpy it is a value beside the elements: NaN stays one
        ),
        _truth("any", "whether any element is not zero; NaN is not", "0", "|", lambda v: (v != 0).any(-1)),
        _truth("all", "whether no element is zero", "1", "&", lambda v: (v != 0).all(-1)),
        _summed(
            "count_nonzero",
            "how many elements are not zero; NaN is not",
            "x != 0",
            lambda v: (v != 0).sum(-1),
            right.SUM,
            state=(("total", "count"),),
            accumulates="register",
            result="index",
            exact=True,
            bites="any",
        ),
        _bitwise("bitwise_and", "the bits that all elements have", "-1", "&", "and", -1, "ones"),
        _bitwise("bitwise_or", "the bits that any element has", "0", "|", "or", 0, "zeros"),
        _bitwise("bitwise_xor", "the bits that an odd number of elements have", "0", "^", "xor", 0, "any"),
        _summed(
            "mean",
            "the sum over the number of elements",
            "x",
            right.mean,
            right.MEAN,
            finish=("a.total / real(count)",),
            accumulates="float",
            result="float",
            native="",
            empty=float("nan"),
            on_complex=_complex_sum(
                "mean",
                "the sum over the number of elements",
                ("x.re", "x.im"),
                ("a.re / real(count)", "a.im / real(count)"),
                reference=right.mean,
                tolerance=right.MEAN,
                empty=float("nan"),
            ),
        ),
        _VAR,
        _STD,
        _summed(
            "norm_l1",
            "the sum of absolute values",
            "absolute(x)",
            lambda v: abs(right.real(v)).sum(-1),
            right.SUM_OF_SIZES,
            accumulates="float",
            result="float",
        ),
        _NORM_L2,
        Operator(
            name="norm_inf",
            meaning="the largest absolute value; NaN wins",
            state=(("value", "value"),),
            identity=("0",),
            lift=("absolute(x)",),
            merge=("larger(a.value, b.value)",),
            finish=("a.value",),
            reference=lambda v: abs(right.real(v)).max(-1),
            exact=True,
            bites="any",
            accumulates="float",
            result="float",
            native="max",
            empty=0,
        ),
        _summed("sumsq", "the sum of squares", "x * x", right.squares, right.SQUARES),
        _summed(
            "dot",
            "the sum of products of two inputs",
            "x * y",
            right.dot,
            right.DOT,
            result="same",
            inputs=2,
            on_complex=_complex_sum(
                "dot",
                "the sum of products of two inputs; none is conjugated",
                ("x.re * y.re - x.im * y.im", "x.re * y.im + x.im * y.re"),
                ("a.re", "a.im"),
                reference=right.dot,
                tolerance=right.DOT,
                inputs=2,
                empty=0,
            ),
        ),
        _LOGSUMEXP,
    )
}


def operator_named(name: str) -> Operator:
    """The entry called `name`. Raises UsageError with the nearest name and the list."""
    if name not in OPERATORS:
        raise UsageError(unknown("operator", name, OPERATORS))
    return OPERATORS[name]


def squares_in_range(dtype: Dtype, accumulate: str) -> bool:
    """Whether the square of every element, 2^40 of them together, is a normal number of the accumulator or 0."""
    if dtype.name == "float16":
        return True  # from 2^-48 to 2^32
    return dtype.name != "float64" and (accumulate == "float64" or (dtype.kind in WHOLE and dtype.bytes < 8))


def operator_for(op: Operator, dtype: Dtype, accumulate: str | None = None) -> Operator:
    """The entry as it stands for elements of a dtype, accumulated as it is unless another way is named. Raises
    DtypeError where it has none."""
    if dtype.kind in op.accepts:
        if op.in_range is not None and squares_in_range(dtype, accumulate or accumulate_type(op, dtype)):
            return op.in_range
        return op
    if op.on_complex is not None and dtype.kind in op.on_complex.accepts:
        return op.on_complex
    kinds = op.accepts + (op.on_complex.accepts if op.on_complex else ())
    allowed = [d.name for d in DTYPES.values() if d.kind in kinds]
    raise DtypeError(f"{op.name} of {dtype.name} has no meaning: choose from {', '.join(allowed)}")


def counts_in_order(op: Operator) -> bool:
    """Whether the result is an index, so that elements must be counted in the order of the array."""
    return op.result == "index" and "i" in op.lift


def entry_of(name: str, custom: str) -> Operator:
    """The entry called `name`, or the user's own with that definition."""
    if not custom:
        return operator_named(name)
    from redtune.custom import read_custom

    return read_custom(custom)


@functools.lru_cache(maxsize=4096)
def operator_of(problem: Problem) -> Operator:
    """The entry that a problem reduces with: for its dtype, and the user's own where it has one."""
    return operator_for(entry_of(problem.op, problem.custom), DTYPES[problem.dtype], problem.accumulate)


def accumulate_type(op: Operator, dtype: Dtype) -> str:
    """The dtype of the running value: float32 for 16-bit floats, 64 bits for integers whose sum could overflow, a part
    of a complex number."""
    if dtype.kind in WHOLE and op.accumulates != "register":
        return dtype.sum_type if op.accumulates == "sum" else dtype.float_type
    return dtype.register


def result_type(op: Operator, dtype: Dtype) -> str:
    """The dtype of the result, as numpy has it."""
    by_rule = {"same": dtype.name, "sum": dtype.sum_type, "float": dtype.float_type, "index": "int64", "flag": "bool"}
    return by_rule[op.result]


def result_of(problem: Problem) -> str:
    """The dtype of a problem's result: the one asked for, or numpy's."""
    return problem.result or result_type(operator_of(problem), DTYPES[problem.dtype])


def accumulates_in_floats(problem: Problem) -> bool:
    """Whether integers are added up as floats."""
    return DTYPES[problem.dtype].kind in WHOLE and DTYPES[problem.accumulate].kind == "float"


def is_order_free(op: Operator, accumulate: str) -> bool:
    """Whether every order of merging gives the same value."""
    return op.exact or DTYPES[accumulate].kind != "float"


def has_one_answer(op: Operator, accumulate: str) -> bool:
    """Whether every order of merging gives the same bits. Among floats the largest of 0.0 and -0.0 is either, and of
    two NaNs one is kept: equal values, but not equal bits."""
    return all(DTYPES[field_type(kind, accumulate)].kind != "float" for _, kind in op.state)


def field_type(kind: FieldKind, accumulate: str) -> str:
    """The dtype a field of a state has in the kernel."""
    if kind in ("index", "count"):
        return "int64"
    if kind == "flag":
        return "uint32"
    return UNSIGNED.get(accumulate, accumulate) if kind in ("wrapping", "sum") else accumulate


def keeps_losses(op: Operator, accumulate: str) -> bool:
    """Whether the state carries what float sums lose to rounding."""
    return DTYPES[accumulate].kind == "float" and any(kind == "sum" for _, kind in op.state)
