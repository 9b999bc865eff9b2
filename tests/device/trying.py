"""Tries calls of redtune.reduce with many configs each: which configs, compiled ahead, and what comes of them.

A kernel costs its compilation, and its text does not depend on sizes. So the configs of an operator, a dtype and a
layout are drawn once and shared by every case of the kind.
"""

from __future__ import annotations

import base64
import dataclasses
import itertools
import os
import queue
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import redtune
from redtune import store
from redtune.config import KNOBS, Config, Value, choices, is_read, team_of
from redtune.defaults import default_config
from redtune.dtypes import DTYPES
from redtune.errors import RedtuneError, UsageError
from redtune.plan import make_plan, state_layout
from redtune.process import WorkerDied, WorkerProcess, WorkerTimedOut
from redtune.reducing import problem_of
from redtune.refusals import refusals
from redtune.render import render
from redtune.space import Space, make_space
from redtune.types import Device, Kernel, Problem, as_json

SEED = 7
COMPILE_LIMIT_S = 60.0
DRAWN = 120  # configs to choose from at a time
FIRST = 3  # configs that have kernels of their own in any case
SMALL_BYTES = 1 << 20  # beyond it a call is made once with each config, else twice: the second one is a known call
RUN_LIMIT_S = 0.12  # configs that would take longer for one call are passed over

# Knobs of which every pair of values is sought; of the others every value.
STRUCTURE = ("exchange", "tree", "wave", "combine", "walk", "hint", "vector")
Fixed = Mapping[str, Value]


@dataclass(frozen=True)
class Call:
    """A call with its right result, compared in value, shape and dtype. `dtype` names that of the result where `right`
    has another; `rel` is the relative tolerance where the rules of the rows have none; `then` takes the result (as
    float64) to what `right` is about. `fixed` are choices of knobs, of which each is tried."""

    op: str
    x: Any
    right: Any
    axis: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = ""
    rel: float | None = None
    then: Callable[[Any], Any] | None = None
    fixed: tuple[Fixed, ...] = ({},)
    runs: int = 0  # how often, over all configs
    is_bitwise: bool = False  # every run gives the same bits
    has_out: bool = False


class Compilers:
    """Processes that compile kernels into the cache, where the engine finds them."""

    def __init__(self, device: Device, count: int) -> None:
        self.device, self.pool = device, ThreadPoolExecutor(count)
        self.workers = [WorkerProcess() for _ in range(count)]
        self.idle: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()
        for worker in self.workers:
            self.idle.put(worker)
        self.known: dict[str, Future[str]] = {}

    def compile(self, kernel: Kernel) -> Future[str]:
        """Why the compiler crashed, or nothing."""
        code = kernel.code
        if code not in self.known:
            self.known[code] = self.pool.submit(self._compile, kernel)
        return self.known[code]

    def _compile(self, kernel: Kernel) -> str:
        worker = self.idle.get()
        try:
            jobs = {"device": as_json(self.device), "kernel": as_json(kernel)}
            said = worker.ask("compile", COMPILE_LIMIT_S, "done", **jobs)
        except (WorkerDied, WorkerTimedOut) as error:
            return str(error)
        finally:
            self.idle.put(worker)
        if "binary" in said:
            store.keep_binary(kernel, self.device, base64.b64decode(said["binary"]))
        return ""  # one that was refused says so again where it is loaded

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)
        for worker in self.workers:
            worker.retire()


class Sample:
    """Configs of one kind of kernel, drawn at random and put in an order in which new choices come first: each the one
    that shows most that is new for its cost. `compiled` holds configs whose kernels are there already: those that are
    legal here come before all others. Where kernels are dear, every other config after the first few is one with the
    code of the one before it on another grid."""

    def __init__(
        self, space: Space, seed: str, cost: Callable[[Config], float], compiled: list[Config], is_dear: bool
    ) -> None:
        self.space, self.cost, self.rng, self.is_dear = space, cost, random.Random(seed), is_dear
        self.compiled, self.given = compiled, 0
        self.chosen: list[Config] = []
        self.pool: dict[Config, tuple[frozenset[Any], float]] = {}  # what a config shows, and its cost
        self.seen: set[Any] = set()
        self.draws_left = 20 * DRAWN

    def __iter__(self) -> Iterator[Config]:
        for k in itertools.count():
            if k == len(self.chosen) and not self._choose():
                return
            yield self.chosen[k]

    def _choose(self) -> bool:
        while self.given < len(self.compiled):
            config = self.compiled[self.given]
            self.given += 1
            if config not in self.chosen and self.space.allows(config):
                self.seen |= features(config)
                self.pool.pop(config, None)
                self.chosen.append(config)
                return True
        while len(self.pool) < DRAWN // 2 and self.draws_left:
            self.draws_left -= 1
            config = self.space.draw(self.rng)
            if config is not None and config not in self.chosen and config not in self.pool:
                self.pool[config] = features(config), self.cost(config)
        best = self._sibling() if self.is_dear and len(self.chosen) >= FIRST and len(self.chosen) % 2 else None
        if best is None and not self.pool:
            return False
        best = best or max(self.pool, key=lambda c: (1 + len(self.pool[c][0] - self.seen)) / self.pool[c][1])
        self.pool.pop(best, None)
        self.seen |= features(best)
        self.chosen.append(best)
        self.compiled.append(best)
        self.given = len(self.compiled)
        return True

    def _sibling(self) -> Config | None:
        """The last config on another grid, preferably of a size that none had yet; its code is the same."""
        found = [config for config in siblings(self.chosen[-1]) if config not in self.chosen]
        found = [config for config in found if self.space.allows(config)]
        return max(found, key=lambda config: len(features(config) - self.seen), default=None)


def siblings(config: Config) -> Iterator[Config]:
    """The configs that have a kernel's code in common with another: what differs is said at its launch."""
    is_split = config.split > 1
    for name in ("blocks_per_cu", *("split",) * is_split):
        others = (value for value in choices(name) if not (name == "split" and value == 1))
        yield from (dataclasses.replace(config, **{name: value}) for value in others if is_read(name, config))


def features(config: Config) -> frozenset[Any]:
    """What a config shows: values of knobs that have an effect, and pairs of them."""
    singles = [(name, getattr(config, name)) for name in KNOBS if is_read(name, config)]
    shown = [one for one in singles if one[0] in STRUCTURE]
    return frozenset(singles) | frozenset(itertools.combinations(shown, 2))


def compile_cost(problem: Problem, config: Config, device: Device) -> float:
    """What a kernel costs to compile, up to a factor. Intel's compiler turns the lanes of a sub-group into vectors."""
    if device.kind != "cpu" or not has_lanes(config):
        return 1.0
    each = 4 if problem.dtype in ("float16", "bfloat16") else 1
    fields = len(state_layout(problem)[0])
    return fields * config.wave / 32 * (3 + each * config.items * config.vector / 4)


def has_lanes(config: Config) -> bool:
    """Whether threads meet as lanes of a sub-group."""
    return config.team != 1 and (config.exchange != "lds" or config.tree == "unrolled")


def run_seconds(problem: Problem, config: Config, plan: Any, device: Device) -> float:
    """About how long one call takes: `turns` threads in all, each of which folds its share and meets the others."""
    groups = -(-problem.results // (config.block // team_of(config)))
    turns = groups * plan.parts * config.block
    if device.kind == "cpu":
        return 1e-9 * problem.n * problem.results + (250e-9 if has_lanes(config) else 20e-9) * turns
    share = problem.n / (plan.parts * team_of(config) * config.items * config.vector)
    at_once = min(plan.blocks * config.block, device.compute_units * 2048)
    return 1e-6 * (share + 2) * max(1.0, turns / at_once)


# --- a machine --------------------------------------------------------------------------------------------------------


class Kit:
    """A machine to try calls on: an array module, an engine, and how much of everything there is time for.

    `per_row` configs are shared out over what a case calls (operators, dtypes, layouts), but each gets at least
    `per_kind`. `room` is the memory that an array may take.
    """

    def __init__(self, xp: Any, engine: Any, *, per_row: int, per_kind: int, room: float, compilers: int) -> None:
        self.xp, self.engine, self.room = xp, engine, room
        self.per_row, self.per_kind = per_row, per_kind
        self.device: Device = engine.device
        self.dialect = engine.backend.dialect
        self.compilers = Compilers(self.device, compilers)
        self.samples: dict[Any, Sample] = {}
        self.compiled: dict[Any, list[Config]] = defaultdict(list)  # by what a kernel's text depends on beside them
        self.crashed: list[str] = []
        self.tried = 0
        self.lost = ""  # what the device was lost to

    def size(self, full: int, small: int, itemsize: int = 1) -> int:
        """The size of a row where there is room for it, else a small one of the kind."""
        return full if full * itemsize <= self.room else small

    @property
    def is_gpu(self) -> bool:
        return self.device.kind == "gpu"

    @property
    def last_blocks(self) -> tuple[Fixed, ...]:
        """The ways to combine in which the last one to come folds what the others left."""
        names = ("last_block", "cluster") if "clusters" in self.device.features else ("last_block",)
        return tuple({"combine": name} for name in names)

    def bfloat16(self, values: Any) -> Any:
        """An array of bfloat16; None where nothing here has them."""
        raise NotImplementedError

    def foreign(self, x: Any) -> Any:
        """The numpy array, in another byte order than the machine's, as an array of the kind."""
        raise NotImplementedError

    def dtype_name(self, result: Any) -> str:
        return str(result.dtype).removeprefix("torch.")

    def host(self, results: Sequence[Any]) -> Any:
        """The results of one call in host memory, one after the other; bfloat16 as float32."""
        raise NotImplementedError

    # --- configs --------------------------------------------------------------------------------------------------

    def problem(self, call: Call) -> Problem:
        """The problem that a call is."""
        names = ("accumulate", "determinism")
        asked = {"accumulate": None, "determinism": "any", "custom": ""}
        asked |= {name: call.options[name] for name in names if name in call.options}
        return problem_of(call.x, call.op, call.axis, call.options.get("dtype"), **asked)[0]

    def configs(self, problems: Sequence[Problem], fixed: Fixed) -> Iterator[Config]:
        """Configs that are valid for each of the problems, which differ in their sizes alone: the default first."""
        first = problems[0]
        start = [] if fixed else [default_config(first, self.dialect, self.device)]
        given = set()
        for config in itertools.chain(start, self._sample(first, fixed)):
            if config not in given and all(self._is_fit(problem, config) for problem in problems):
                given.add(config)
                yield config

    def _sample(self, problem: Problem, fixed: Fixed) -> Sample:
        key = (kind_of(problem), *sorted(fixed.items()))
        if key not in self.samples:
            text = dataclasses.replace(key[0][0], determinism="any"), key[0][1]
            self.samples[key] = Sample(
                make_space(problem, self.dialect, self.device, fixed),
                f"{SEED} {key}",
                cost=lambda config: compile_cost(problem, config, self.device),
                compiled=self.compiled[text],
                is_dear=not self.is_gpu,
            )
        return self.samples[key]

    def _is_fit(self, problem: Problem, config: Config) -> bool:
        if refusals(config, problem, self.dialect, self.device):
            return False
        plan = make_plan(problem, config, self.dialect, self.device)
        return run_seconds(problem, config, plan, self.device) <= RUN_LIMIT_S

    def choices(self, problem: Problem, fixed: Sequence[Fixed]) -> list[Fixed]:
        """Those of the choices that some config of the problem makes; free choice where none does."""
        legal = []
        for one in fixed:
            try:
                self._sample(problem, one)
            except UsageError:
                continue
            legal.append(one)
        return legal or [{}]

    # --- trying ---------------------------------------------------------------------------------------------------

    def faults(self, calls: Sequence[Call], at_least: int = 20) -> list[str]:
        """What is wrong with the calls under any of the configs."""
        assert not self.lost, f"the device was lost to {self.lost}"
        kinds: dict[Any, list[tuple[Call, Problem]]] = defaultdict(list)
        for call in calls:
            problem = self.problem(call)
            kinds[kind_of(problem), str(call.fixed)].append((call, problem))
        count = max(self.per_kind, -(-self.per_row // len(kinds)))
        if not self.is_gpu and max(call.x.nbytes for call in calls) > 1e9:
            count = at_least = 3  # on a CPU seconds for each
        faults, before = [], self.tried
        for members in kinds.values():
            problems = [problem for _, problem in members]
            choices = self.choices(problems[0], members[0][0].fixed)
            for fixed in choices:
                faults += self._faults(members, self.configs(problems, fixed), -(-count // len(choices)))
        assert self.tried - before >= at_least, f"{self.tried - before} configs are no sample"
        return faults

    def _faults(self, members: Sequence[tuple[Call, Problem]], configs: Iterator[Config], count: int) -> Iterator[str]:
        ahead: deque[tuple[Config, list[Future[str]]]] = deque()

        def start() -> None:
            config = next(configs, None)
            if config is not None:
                kernels = {k.code: k for k in (self.kernel(p, config) for _, p in members)}
                ahead.append((config, [self.compilers.compile(kernel) for kernel in kernels.values()]))

        for _ in range(count):
            start()
        while ahead:
            config, compiled = ahead.popleft()
            crashes = [why for future in compiled if (why := future.result())]
            if crashes:  # another one stands in
                self.crashed.append(f"{members[0][1].op} of {members[0][1].dtype} {config}: {crashes[0]}")
                start()
                continue
            self.tried += 1
            for call, _ in members:
                fault = self.fault(call, config, count)
                if fault:
                    yield f"{call.op} of {what(call.x)} along {call.axis}: {fault} with {short(config)}"

    def kernel(self, problem: Problem, config: Config) -> Kernel:
        return render(problem, config, self.dialect, self.device)

    def fault(self, call: Call, config: Config | None, of: int = 1) -> str:
        """What is wrong with a call, which `of` configs are tried for."""
        runs = -(-call.runs // of) if call.runs else 1 + (call.x.nbytes <= SMALL_BYTES)
        try:
            results = [self.reduce(call, config) for _ in range(runs)]
            name, shape = self.dtype_name(results[0]), tuple(results[0].shape)
            got = self.host(results)
        except (RedtuneError, ValueError, TypeError, IndexError) as error:
            return f"{type(error).__name__}: {str(error)[:300]}"
        except Exception as error:
            self.lost = f"{call.op} with {config}: {type(error).__name__}: {error}"
            raise
        return difference(call, got, name, shape)

    def reduce(self, call: Call, config: Config | None) -> Any:
        more = dict(call.options)
        if call.has_out:
            more["out"] = self.xp.full(np.shape(call.right), 77, call.right.dtype)
        done = redtune.reduce(call.x, call.op, axis=call.axis, config=config, **more)
        assert done is more.get("out", done), "the result is not out"
        return done

    def close(self) -> None:
        self.compilers.close()


def kind_of(problem: Problem) -> Any:
    """What a kernel's text depends on beside its config."""
    return dataclasses.replace(problem, n=1, outer=1, inner=1), problem.layout


def short(config: Config | None) -> str:
    """A config by its knobs that have an effect."""
    if config is None:
        return "the default"
    return " ".join(f"{name}={getattr(config, name)}" for name in KNOBS if is_read(name, config))


def what(x: Any) -> str:
    return f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}"


# --- right or wrong ---------------------------------------------------------------------------------------------------

EXACT = ("max", "min", "argmax", "argmin")


def difference(call: Call, got: Any, dtype: str, shape: tuple[int, ...]) -> str:
    """How the results of all runs of a call differ from the right one, or nothing."""
    right = np.asarray(call.right)
    wanted = call.dtype or str(right.dtype)
    if call.then is None and shape != right.shape:
        return f"the shape is {shape}, not {right.shape}"
    if dtype != wanted:
        return f"the dtype is {dtype}, not {wanted}"
    if call.is_bitwise and any(one.tobytes() != got[0].tobytes() for one in got):
        return f"the bits differ between {len(got)} runs"
    for k, one in enumerate(got):
        found = one if call.then is None else np.asarray(call.then(one.astype(np.float64)))
        is_off = ~is_close(found, right, tolerance(call, right, wanted))
        if is_off.any():
            at = tuple(int(i) for i in np.argwhere(is_off)[0])
            place = f" at {at} ({int(is_off.sum())} of {is_off.size})" if at else ""
            again = f", run {k + 1} of {len(got)}" if k else ""
            return f"{found[at]!r}, not {right[at]!r}{place}{again}"
    return ""


def tolerance(call: Call, right: Any, dtype: str) -> Any:
    """The largest error: none for what is chosen or whole, else by the type of the result."""
    size = np.abs(np.where(np.isfinite(right), right, 0)).astype(np.float64)
    if call.rel is not None:
        return call.rel * size
    if call.op in EXACT or DTYPES[dtype].kind != "float":
        return 0 * size
    if DTYPES[dtype].bytes == 2:  # one unit in the last place
        digits = 10 if dtype == "float16" else 7
        return np.exp2(np.maximum(np.frexp(size)[1] - 1, -14) - digits)
    return (1e-12 if dtype == "float64" else 1e-5) * size


def is_close(got: Any, right: Any, off: Any) -> Any:
    """Equal, both NaN, or not farther apart than `off`."""
    if right.dtype.kind != "f":
        return np.asarray(got == right)
    with np.errstate(invalid="ignore"):
        near = np.abs(got.astype(np.float64) - right.astype(np.float64)) <= off
    return (got == right) | (np.isnan(got) & np.isnan(right)) | near


def cores() -> int:
    return max(2, min(16, os.cpu_count() or 2))
