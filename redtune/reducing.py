"""Reductions of arrays that live on a device, as numpy would do them, on the caller's stream."""

from __future__ import annotations

import contextlib
import functools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from redtune.arrays import KNOWN, Again, Engine, Form, Library, library_of
from redtune.config import Config
from redtune.dtypes import DTYPES, dtype_named
from redtune.errors import DtypeError, UsageError
from redtune.evaluation import numpy_finish, numpy_identity
from redtune.layouts import Fit, contiguous_strides, fit
from redtune.operators import Operator, counts_in_order, entry_of, operator_for, operator_named, result_type
from redtune.preparing import (
    AGAIN,
    Prepared,
    Request,
    keep_again,
    prepare,
    prepare_ragged,
    problem_for,
    remembered,
)
from redtune.problems import normal_axes, running_type
from redtune.types import DETERMINISMS, Device, Problem


def reduce(
    x: Any,
    op: str,
    axis: int | tuple[int, ...] | None = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
    ddof: int = 0,
    determinism: str = "any",
    *,
    accumulate: str | None = None,
    offsets: Any = None,
    config: Config | None = None,
    custom: str = "",
) -> Any:
    """Reduces an array on the device it lives on, as numpy would, and returns an array of the same kind.

    `x` is an array of cupy, torch (on a GPU), numba, jax, pyopencl or numpy (which runs on the OpenCL device), any
    shape, strides and alignment; for an operator of two inputs a pair of them. `axis` is one axis, several or all
    (None); a full reduction gives a 0-d array. `dtype` is the type in which elements are taken and results given;
    `accumulate` may be "float64" or "compensated". `where` is a boolean array that says which elements count,
    `initial` a value that takes part. `offsets` cuts a flat `x` into rows: row k is x[offsets[k]:offsets[k + 1]].
    `config` runs with a certain config; otherwise a stored one is used, or the default. Nothing is ever tuned here.

    Runs on the caller's stream and does not wait (numpy and pyopencl arrays: it does). Raises what numpy raises:
    AxisError, TypeError for a dtype, ValueError for an empty max, a wrong shape of `out` and the like.
    """
    name = dtype if dtype is None or dtype in DTYPES else dtype_name(dtype)
    if type(axis) is not int and axis is not None:
        axis = _plain_axis(axis)
    key: Any = (op, custom, axis, name, keepdims, ddof, determinism, accumulate, config)
    if where is not None or initial is not None or offsets is not None or out is not None:
        return _Call(Request(*key), x, where, offsets).run(out, initial)
    kind = type(x)
    library = KNOWN.get(kind) or library_of(x)
    token = None if library is None else library.token(x)
    if library is None or token is None:
        return _Call(Request(*key), x, None, None).run(None, None)
    key = (key, type(ddof), kind, token)  # a ddof of True is equal to 1, and none
    try:
        again = AGAIN.get(key)
    except TypeError:  # something that is no number or word, and says so where it is looked at
        _Call(Request(*key[0]), x, None, None)
        raise
    if again is not None:
        return library.repeat(again, x)
    call = _Call(Request(*key[0]), x, None, None)
    done = call.run(None, None)
    keep_again(key, call.again)
    return done


def problem_of(
    x: Any, op: str, axis: Any = None, dtype: Any = None, *, accumulate: Any, determinism: str, custom: str
) -> tuple[Problem, Device]:
    """The problem that a reduction is, and the device it is one on."""
    call = _Call(_request(op, axis, dtype, accumulate, determinism, custom), x, None, None)
    if math.prod(call.shape) == 0:
        raise UsageError(f"an array of shape {call.shape} has no elements to tune for")
    fitted = call.fitted(contiguous_strides(call.kept))
    return problem_for(call.request, call.forms, fitted, {}), call.engine.device


def described(x: Any, op: str, axis: Any, custom: str) -> tuple[Config | None, str, int]:
    """The config that a reduction runs with, where it comes from, and how many elements each result has."""
    call = _Call(_request(op, axis, None, None, "any", custom), x, None, None)
    n = math.prod(call.shape[k] for k in call.axes)
    if math.prod(call.shape) == 0:
        return None, "no elements", n
    prepared = call.prepared(contiguous_strides(call.result_shape), False)
    return prepared.config, prepared.origin, n


def _request(op: str, axis: Any, dtype: Any, accumulate: Any, determinism: str, custom: str) -> Request:
    name = dtype if dtype is None or dtype in DTYPES else dtype_name(dtype)
    return Request(op, custom, axis, name, False, 0, determinism, accumulate, None)


@functools.cache
def named(op: str) -> Callable[..., Any]:
    """The function of an operator: `reduce` with the operator in place."""
    entry = operator_named(op)

    if entry.inputs == 1:

        def one(x: Any, axis: Any = None, **options: Any) -> Any:
            return reduce(x, op, axis, **options)

        function: Callable[..., Any] = one
    else:

        def two(x: Any, y: Any, axis: Any = None, **options: Any) -> Any:
            return reduce((x, y), op, axis, **options)

        function = two
    function.__name__ = function.__qualname__ = op
    function.__doc__ = f"Of the elements along `axis` (all if None): {entry.meaning}. Options as in redtune.reduce."
    return function


def dtype_name(dtype: Any) -> str:
    """The name of a dtype of any library: "f4", np.float32, torch.float32. Raises DtypeError for what is none."""
    text = str(dtype).removeprefix("torch.")
    if text == str(dtype):
        with contextlib.suppress(TypeError):
            text = np.dtype(dtype).name
    return dtype_named(text).name


class _Call:
    """One call, checked: arrays, axes and what the result looks like."""

    def __init__(self, request: Request, x: Any, where: Any, offsets: Any) -> None:
        self.request = request
        _check_words(request)
        self.operator = entry_of(request.op, request.custom)
        self.given = _inputs(x, self.operator)
        self.library, self.held = _arrays(self.given)
        forms = [self.library.form(array) for array in self.held]
        self.operator = operator_for(self.operator, dtype_named(forms[0].dtype))
        _check_alike(self.operator, forms)
        self.shape = np.broadcast_shapes(*(form.shape for form in forms))
        self.forms = [_broadcast(form, self.shape) for form in forms]
        self.axes = normal_axes(_allowed_axis(request.axis, self.operator), len(self.shape))
        self.again: Again | None = None
        self.offsets = None if offsets is None else self._checked_offsets(offsets)
        self.is_masked = where is not None
        if self.is_masked:
            self._add_mask(where)
        result = request.dtype or None
        self.running = running_type(self.operator, dtype_named(forms[0].dtype), result, request.accumulate)
        if request.determinism not in DETERMINISMS:
            raise UsageError(f"determinism is {request.determinism!r}: choose from {', '.join(DETERMINISMS)}")
        if isinstance(request.ddof, bool) or not isinstance(request.ddof, int):
            raise TypeError(f"ddof is a whole number, not {request.ddof!r}")

    # --- what comes in ------------------------------------------------------------------------------------------------

    def _add_mask(self, where: Any) -> None:
        if counts_in_order(self.operator):
            raise TypeError(f"{self.operator.name} takes no where")
        if isinstance(where, (bool, np.bool_)) or (isinstance(where, np.ndarray) and not where.ndim):
            where = self.library.upload(self.held[0], np.asarray(where), self.library.stream(self.given[0]))
        library, (mask,) = _arrays([where])
        if library is not self.library:
            raise TypeError(f"where is of {type(where).__module__}, and the array of {type(self.given[0]).__module__}")
        form = self.library.form(mask)
        if form.dtype != "bool":
            raise DtypeError(f"where holds {form.dtype}; it must be bool")
        if form.place != self.forms[0].place:
            raise ValueError("where lies on another device than the array")
        try:
            self.forms.append(_broadcast(form, self.shape))
        except ValueError:
            raise ValueError(f"where of shape {form.shape} does not broadcast to {self.shape}") from None
        self.held.append(mask)

    def _checked_offsets(self, offsets: Any) -> Any:
        """The offsets in host memory. Raises where they are not sorted or run past the end."""
        if len(self.shape) != 1 or self.request.axis not in (None, 0, -1):
            raise ValueError(f"offsets cut a flat array into rows, not one of shape {self.shape}")
        library = None if isinstance(offsets, np.ndarray) else library_of(offsets)
        host = np.asarray(offsets) if library is None else library.to_host(offsets, library.stream(offsets))
        if host.ndim != 1 or not len(host) or host.dtype.kind not in "iu":
            raise ValueError(f"offsets are a list of at least one whole number, not {host.dtype} of shape {host.shape}")
        host = host.astype(np.int64)
        falls = np.flatnonzero(np.diff(host) < 0)
        if len(falls):
            k = int(falls[0])
            raise ValueError(f"offsets must not fall: offset {k + 1} is {host[k + 1]}, after {host[k]}")
        if host[0] < 0 or host[-1] > self.shape[0]:
            past = host[0] if host[0] < 0 else host[-1]
            raise ValueError(f"offset {past} lies outside the {self.shape[0]} elements")
        return host

    # --- what goes out ------------------------------------------------------------------------------------------------

    @property
    def kept(self) -> tuple[int, ...]:
        """The shape of the result without reduced axes."""
        if self.offsets is not None:
            return (len(self.offsets) - 1,)
        return tuple(length for axis, length in enumerate(self.shape) if axis not in self.axes)

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        if not self.request.keepdims or self.offsets is not None:
            return self.kept
        return tuple(1 if axis in self.axes else length for axis, length in enumerate(self.shape))

    def result_dtype(self) -> str:
        """The dtype of the result."""
        return self.request.dtype or result_type(self.operator, dtype_named(self.forms[0].dtype))

    def _checked_out(self, out: Any) -> Form:
        """How `out` lies in memory. Raises where it is not what the result needs."""
        if library_of(out) is not self.library:
            raise TypeError(f"out is of {type(out).__module__}, and the array of {type(self.given[0]).__module__}")
        if not getattr(getattr(out, "dtype", None), "isnative", True):
            raise DtypeError(f"out holds {out.dtype} in another byte order than this machine's")
        form = self.library.form(self.library.accept(out))
        if form.shape != self.result_shape:
            raise ValueError(f"out has the shape {form.shape}; the result has {self.result_shape}")
        if form.dtype != self.result_dtype():
            raise DtypeError(f"out holds {form.dtype}; the result is {self.result_dtype()}")
        if form.place != self.forms[0].place:
            raise ValueError("out lies on another device than the array")
        if form.is_apart:
            raise ValueError("out is misaligned: give an array whose elements lie at multiples of their size")
        if not getattr(getattr(out, "flags", None), "writeable", True):
            raise ValueError("out is read-only")
        if any(length > 1 and not stride for length, stride in zip(form.shape, form.strides, strict=True)):
            raise ValueError(f"out of shape {form.shape} and strides {form.strides} has one place for several results")
        return form

    # --- the work -----------------------------------------------------------------------------------------------------

    def run(self, out: Any, initial: Any) -> Any:
        """The result."""
        start = None if initial is None else self._start(initial)
        library, given = self.library, out
        form = None if out is None else self._checked_out(out)
        to = library.accept(out) if out is not None else self._empty(self.result_shape)
        if self.is_masked and self.operator.empty is None and start is None:
            raise ValueError(f"{self.operator.name} has no identity, so that where needs an initial value")
        stream = library.stream(self.given[0])
        is_of_nothing = self.offsets is None and math.prod(self.shape[axis] for axis in self.axes) == 0
        nothing = self._of_nothing(initial) if is_of_nothing else None
        if is_of_nothing or math.prod(self.kept) == 0:
            if math.prod(self.kept):
                library.fill(to, nothing, stream)
            return given if given is not None else library.finished(self.given[0], to, None, None)
        if self.offsets is not None:
            self._check_segments(start)
        # A kernel writes from the start of what it is given, and reads all the while.
        is_behind = library.memory(to)[1] != 0 or (given is not None and self._is_in_the_way(given))
        form = library.form(to) if form is None else form
        strides = contiguous_strides(self.result_shape) if is_behind else form.strides
        prepared = self.prepared(strides, start is not None)
        target = self._empty(self.kept) if is_behind or prepared.is_fresh else to
        memory = self._memory(prepared, target, stream)
        if start is not None:
            memory["initial"] = start
        prepared.launch(memory, stream)
        done = library.finished(self.given[0], target, memory["out"], stream)
        if target is to:
            self._remember(prepared)
            return done if given is None else given
        library.assign(to, target.reshape(self.result_shape), stream)
        return given if given is not None else library.finished(self.given[0], to, None, None)

    def _is_in_the_way(self, out: Any) -> bool:
        """Whether results cannot be written to `out` while the operands are read."""
        space, low, high = self.library.extent(self.library.accept(out))
        others = [self.library.extent(array) for array in self.held]
        return any(space == other and low < end and start < high for other, start, end in others)

    def _empty(self, shape: tuple[int, ...]) -> Any:
        """A new array for results."""
        return self.library.empty(self.held[0], shape, self.result_dtype())

    def _remember(self, prepared: Prepared) -> None:
        """Keeps what the next call of the like can do without a look at its arguments."""
        if prepared.packs is None and len(self.held) == 1:
            name = self.result_dtype()
            storage = self.library.storage(self.held[0], name)
            shape = self.result_shape
            self.again = Again(
                prepared.launch, self.engine, prepared.starts[0], shape, name, storage, math.prod(shape) == 1
            )

    def _start(self, initial: Any) -> Any:
        """The initial value in the type that the kernel accumulates in."""
        if not self.operator.seeds:
            raise TypeError(f"{self.operator.name} takes no initial value")
        if not np.isscalar(initial) and np.ndim(initial):
            raise TypeError(f"initial is {initial!r}; it must be a number")
        try:
            if dtype_named(self.result_dtype()).kind in ("bool", "int", "uint"):
                initial = np.dtype(self.result_dtype()).type(initial)  # raises where the type does not hold it
            return np.dtype(self.running).type(initial)
        except (TypeError, ValueError):
            raise TypeError(f"initial is {initial!r}; it must be a number") from None

    def _of_nothing(self, initial: Any) -> Any:
        """The result over no elements."""
        if initial is not None:
            return initial
        if self.operator.empty is None:
            raise ValueError(f"{self.operator.name} of no elements has no value: the shape is {self.shape}")
        identity = numpy_identity(self.operator, self.running)
        result = dtype_named(self.result_dtype())
        return numpy_finish(self.operator, self.running, result, identity, 0, self.request.ddof)[()]

    def _check_segments(self, start: Any) -> None:
        empty = np.flatnonzero(np.diff(np.asarray(self.offsets)) == 0)
        if len(empty) and self.operator.empty is None and start is None:
            raise ValueError(f"segment {int(empty[0])} is empty, and {self.operator.name} of no elements has no value")

    @property
    def engine(self) -> Engine:
        """The engine of the arrays' device."""
        return self.library.engine(self.forms[0].place)

    def fitted(self, result_strides: tuple[int, ...]) -> Fit:
        """How the arrays are walked."""
        return fit(
            self.shape,
            tuple(form.strides for form in self.forms),
            self.axes,
            result_strides,
            keeps_order=counts_in_order(self.operator),
            must_copy=any(form.is_apart for form in self.forms),
        )

    def prepared(self, out_strides: tuple[int, ...], is_seeded: bool) -> Prepared:
        kept_strides = out_strides
        if self.request.keepdims and self.offsets is None:
            kept_strides = tuple(stride for axis, stride in enumerate(out_strides) if axis not in self.axes)
        flags = {"is_masked": self.is_masked, "is_seeded": is_seeded}
        if self.offsets is not None:
            rows, mean = len(self.offsets) - 1, max(1, self.shape[0] // (len(self.offsets) - 1))
            key: Any = (self.request, tuple(self.forms), rows, mean, kept_strides, is_seeded)
            return remembered(
                key, lambda: prepare_ragged(self.request, self.engine, self.forms, rows, mean, kept_strides[0], flags)
            )
        key = (self.request, tuple(self.forms), kept_strides, is_seeded)
        return remembered(key, lambda: prepare(self.request, self.engine, self.forms, self.fitted(kept_strides), flags))

    def _memory(self, prepared: Prepared, target: Any, stream: Any) -> dict[str, Any]:
        """What the launches work on, by name."""
        library, memory = self.library, {}
        for name, array, start in zip(prepared.operands, self.held, prepared.starts, strict=True):
            source = array
            if prepared.packs is not None:
                source = library.packed(array, self.shape, prepared.packs, stream)
            place, first = library.memory(source)
            memory[name], memory[f"{name}_first"] = place, first + start
            memory[f"{name} is held"] = source
        memory["out"], _ = library.memory(target)
        if self.offsets is not None:
            uploaded = library.upload(self.held[0], self.offsets, stream)
            memory["offsets"], memory["offsets is held"] = library.memory(uploaded)[0], uploaded
        return memory


def _plain_axis(axis: Any) -> Any:
    """The axis as whole numbers, so that no 1.0 is taken for a 1 that was there before; what is none as it is."""
    if isinstance(axis, (tuple, list)):
        return tuple(_plain_axis(one) for one in axis)
    if hasattr(axis, "__index__") and not isinstance(axis, bool):
        with contextlib.suppress(TypeError):
            return operator.index(axis)
    return _NoAxis(axis)


class _NoAxis:
    """Something that is no axis, equal to nothing but itself."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def __repr__(self) -> str:
        return repr(self.given)


def _check_words(request: Request) -> None:
    """Raises TypeError for what is of no type that its place could hold."""
    if not isinstance(request.op, str):
        raise TypeError(f"the operator is a name, not {request.op!r}")
    for name in ("accumulate", "determinism"):
        value = getattr(request, name)
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{name} is a word, not {value!r}")
    if request.config is not None and not isinstance(request.config, Config):
        raise TypeError(f"config is a redtune.Config, not {request.config!r}")


def _inputs(x: Any, op: Operator) -> tuple[Any, ...]:
    """The arrays a call gives: one, or as many as the operator takes in a tuple."""
    if op.inputs == 1:
        return (x,)
    if not isinstance(x, (tuple, list)) or len(x) != op.inputs:
        raise TypeError(f"{op.name} takes {op.inputs} arrays: write ({', '.join('xyz'[: op.inputs])})")
    return tuple(x)


def _arrays(given: Sequence[Any]) -> tuple[Library, list[Any]]:
    """The library of arrays and the arrays as it reads them; what is no array becomes one of NumPy's."""
    made = [array if library_of(array) is not None else np.asarray(array) for array in given]
    libraries = [library_of(array) for array in made]
    library = libraries[0]
    assert library is not None
    if any(other is not library for other in libraries):
        kinds = " and ".join(type(array).__module__.partition(".")[0] for array in made)
        raise TypeError(f"the arrays are of different libraries: {kinds}")
    return library, [library.accept(array) for array in made]


def _check_alike(op: Operator, forms: Sequence[Form]) -> None:
    """Several inputs must lie together and hold the same."""
    dtypes = {form.dtype for form in forms}
    if len(dtypes) > 1:
        raise DtypeError(f"{op.name} of {' and '.join(form.dtype for form in forms)}: give both the same dtype")
    if len({form.place for form in forms}) > 1:
        raise ValueError(f"the arrays of {op.name} lie on different devices")


def _broadcast(form: Form, shape: tuple[int, ...]) -> Form:
    """The form as it broadcasts to a shape. Raises ValueError where it does not."""
    if form.shape == shape:
        return form
    if np.broadcast_shapes(form.shape, shape) != shape:
        raise ValueError(f"the shape {form.shape} does not broadcast to {shape}")
    missing = len(shape) - len(form.shape)
    lengths = (1,) * missing + form.shape
    strides = (0,) * missing + form.strides
    stretched = tuple(0 if a == 1 and b != 1 else s for a, b, s in zip(lengths, shape, strides, strict=True))
    return replace(form, shape=shape, strides=stretched)


def _allowed_axis(axis: Any, op: Operator) -> Any:
    """The axis of a call; an index counts along one axis or all."""
    if counts_in_order(op) and isinstance(axis, (tuple, list)):
        raise TypeError(f"{op.name} takes one axis or None, not {axis!r}")
    return axis
