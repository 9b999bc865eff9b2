"""What a reduction of arrays needs before it can be launched: layout, config, kernel, launches.

Nothing here measures or tunes. A config is the caller's, a stored one, or the default; whatever was worked out for an
array's shape, strides and dtype is kept, so that the next call of the like only launches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from redtune import store
from redtune.arrays import Again, Engine, Form, Launcher
from redtune.config import Config
from redtune.defaults import starting_points
from redtune.errors import CompileError, UsageError
from redtune.layouts import Fit, Layout, Strides
from redtune.operators import result_of
from redtune.plan import make_plan, operands_of
from redtune.problems import make_problem
from redtune.refusals import problem_refusal, refusals
from redtune.render import render
from redtune.types import Problem


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for, beside the arrays."""

    op: str
    custom: str
    axis: int | tuple[int, ...] | None
    dtype: str | None
    keepdims: bool
    ddof: int
    determinism: str
    accumulate: str | None
    config: Config | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything about a reduction but the memory it works on."""

    problem: Problem
    config: Config
    origin: str
    launch: Launcher
    operands: tuple[str, ...]
    starts: tuple[int, ...]  # where each operand begins, in elements after its first
    packs: (
        tuple[int, ...] | None
    )  # the order of axes in which operands are copied first, None where they are read as is
    result: str  # the dtype of the result
    is_fresh: bool  # whether the result must be made in C order first, whatever `out` is


PREPARED: dict[Any, Prepared] = {}
AGAIN: dict[Any, Again] = {}
_LOCK = threading.Lock()
KEPT = 4096  # distinct reductions remembered


def forget() -> None:
    """Drops what was prepared, so that configs tuned since then are found."""
    with _LOCK:
        PREPARED.clear()
        AGAIN.clear()


def _keep(table: dict[Any, Any], key: Any, value: Any) -> None:
    """Adds an entry; the oldest makes room."""
    with _LOCK:
        if len(table) >= KEPT:
            table.pop(next(iter(table)))
        table[key] = value


def keep_again(key: Any, again: Again | None) -> None:
    """Remembers a reduction by what the caller gave."""
    if again is not None:
        _keep(AGAIN, key, again)


def remembered(key: Any, make: Callable[[], Prepared]) -> Prepared:
    """What was prepared for a key, or prepared now. Two threads that meet here first do the work twice, with the same
    outcome; compiled kernels are shared."""
    found = PREPARED.get(key)
    if found is None:
        found = make()
        _keep(PREPARED, key, found)
    return found


def problem_for(request: Request, forms: Sequence[Form], fitted: Fit, flags: Mapping[str, Any]) -> Problem:
    """The problem of arrays that are walked so; `flags` are its further fields."""
    layout = fitted.layout
    problem = make_problem(
        request.op,
        forms[0].dtype,
        layout.n,
        request.determinism,
        outer=layout.outer,
        inner=layout.inner,
        accumulate=request.accumulate,
        result=request.dtype,
        custom=request.custom,
    )
    return replace(problem, is_strided=layout.kind == "columns" and layout.inner == 1, **flags)


def prepare(request: Request, engine: Engine, forms: Sequence[Form], fitted: Fit, flags: Mapping[str, Any]) -> Prepared:
    """Chooses config and launches for arrays that are walked so."""
    return _with_kernel(request, problem_for(request, forms, fitted, flags), engine, fitted)


def _with_kernel(
    request: Request,
    problem: Problem,
    engine: Engine,
    fitted: Fit,
) -> Prepared:
    layout = fitted.layout
    device, dialect = engine.device, engine.backend.dialect
    reason = problem_refusal(problem, device)
    if reason:
        raise UsageError(reason)
    config, origin, program = _first_that_compiles(request, problem, engine)
    plan = make_plan(problem, config, dialect, device)
    values: dict[str, Any] = {"n": layout.n, "outer": layout.outer, "inner": layout.inner, "parts": plan.parts}
    values |= {"out_outer": layout.out_outer, "out_inner": layout.out_inner, "ddof": request.ddof}
    is_alone = plan.parts == 1  # blocks that share no result leave nothing for each other
    values |= {"partials": 0 if is_alone else plan.partials_bytes, "counter": 0 if is_alone else plan.counter_bytes}
    for name, strides in zip(operands_of(problem), layout.inputs, strict=True):
        values[f"{name}_outer"], values[f"{name}_n"], values[f"{name}_inner"] = strides.outer, strides.n, strides.inner
    return Prepared(
        problem=problem,
        config=config,
        origin=origin,
        launch=engine.prepare(program, plan.launches, values),
        operands=operands_of(problem),
        starts=tuple(strides.start for strides in layout.inputs),
        packs=fitted.packs,
        result=result_of(problem),
        is_fresh=fitted.is_fresh,
    )


def _first_that_compiles(request: Request, problem: Problem, engine: Engine) -> tuple[Config, str, Any]:
    """The config asked for; or the stored one, else the first of the default shapes whose kernel the vendor's compiler
    gets through, with a warning for each that it does not."""
    device, dialect = engine.device, engine.backend.dialect
    if request.config is not None:
        reasons = refusals(request.config, problem, dialect, device)
        if reasons:
            raise UsageError(reasons[0])
        return request.config, "the caller", engine.load(render(problem, request.config, dialect, device))
    # Masks, initial values and ragged rows are never tuned for themselves: what suits the rows suits them.
    alike = replace(problem, is_masked=False, is_seeded=False, is_ragged=False)
    found = store.lookup(problem, dialect, device, alike=alike)
    shapes = [c for c in starting_points(problem, dialect, device) if c != found.config]
    failure: CompileError | None = None
    for config in (found.config, *shapes):
        try:
            program = engine.load(render(problem, config, dialect, device))
        except CompileError as error:
            failure = failure or error
            store.warn_once(
                f"the compiler of {device.name} fails on {problem.op} of {problem.dtype}; another config runs"
            )
            continue
        return config, found.origin if config == found.config else "a default that compiles", program
    assert failure is not None, "there is always a config to try"
    raise failure


def prepare_ragged(
    request: Request,
    engine: Engine,
    forms: Sequence[Form],
    rows: int,
    mean: int,
    out_stride: int,
    flags: Mapping[str, Any],
) -> Prepared:
    """Chooses config and launches for rows of a flat array between offsets, `mean` elements long on average."""
    is_packed = any(form.is_apart or form.strides != (1,) for form in forms)
    whole = Strides(0, 0, 1, 0)
    layout = Layout("ragged", rows, mean, 1, (whole,) * len(forms), out_stride, 0)
    fitted = Fit(layout, (0,) if is_packed else None, False)
    problem = problem_for(request, forms, fitted, {**flags, "is_ragged": True})
    return _with_kernel(request, problem, engine, fitted)
