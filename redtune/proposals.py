"""Where a search's next config comes from: Optuna's ask and tell over a study that outlives the process.

Beside `redtune.journal` and `redtune.studies`, the only file that imports Optuna.

What a config met in earlier calls is known, and it is not measured again, with one exception: a config that crashed
once is tried once more, as it may have been killed from outside or have been short of memory. One that crashed twice is
left alone for good. A config that was under way when its process was killed met nothing, and is tried as if it was new.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import math
import os
import random
import socket
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import optuna
from optuna.storages import JournalStorage

from redtune.config import KNOBS, Config, Value, default_of, is_read
from redtune.dtypes import unknown
from redtune.errors import BackendMissing, RedtuneError, UsageError, printable
from redtune.journal import Journal
from redtune.space import Space
from redtune.store import UNWRITABLE, cache_path, warn_once, warn_unkept
from redtune.types import Trial, Verdict, as_json, from_json

SAMPLERS = ("tpe", "random", "gp", "cmaes", "exhaustive")
STARTUP_TRIALS = 12
# So many known or refused proposals in a row, and the next config is drawn from what is left instead.
PATIENCE = 6
# With tpe every so many proposals one lies beside one of the so many best: a model of a few trials knows little of what
# one more step does, and kernels that differ in one knob are mostly alike.
NEAR_EVERY, NEAR_BEST = 2, 3
ASKING_S = 60.0
CRASHES = 2  # so many, and a config is not tried again

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


def make_sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    """The Optuna sampler of a name. Raises UsageError for an unknown one, BackendMissing where it lacks a package."""
    if name not in SAMPLERS:
        raise UsageError(unknown("sampler", name, SAMPLERS))
    if name == "tpe":
        return optuna.samplers.TPESampler(
            seed=seed, multivariate=True, group=True, constant_liar=True, n_startup_trials=STARTUP_TRIALS
        )
    try:
        if name == "gp":
            import scipy  # noqa: F401
            import torch  # noqa: F401

            return optuna.samplers.GPSampler(seed=seed, n_startup_trials=STARTUP_TRIALS)
        if name == "cmaes":
            import cmaes  # noqa: F401

            return optuna.samplers.CmaEsSampler(seed=seed, n_startup_trials=STARTUP_TRIALS)
    except ImportError as error:
        raise BackendMissing(f"the sampler {name} needs {error.name}: pip install 'redtune[{name}]'") from error
    return optuna.samplers.RandomSampler(seed=seed)


def open_storage(url: str | None) -> Any:
    """The storage of studies: a journal file in the user's cache, or a database URL."""
    if url is not None:
        try:
            return optuna.storages.get_storage(url)
        except Exception as error:  # database drivers raise whatever they like
            raise UsageError(f"the storage {url!r} does not open: {_first_line(error)}") from error
    path = journal_path()
    try:
        return JournalStorage(Journal(path))
    except UNWRITABLE as error:
        warn_unkept("the study", path.parent, error)
        return optuna.storages.InMemoryStorage()


def journal_path() -> Path:
    """The file that holds the studies when no storage is named."""
    return cache_path() / "studies.journal"


def damaged_path(path: Path) -> Path:
    """Where a damaged file is kept."""
    return path.with_name(f"{path.name}.damaged")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


P = ParamSpec("P")
R = TypeVar("R")


def _with_storage(method: Callable[P, R]) -> Callable[P, R]:
    """A method that speaks of a storage that fails in the middle of a search as one speaks to a user."""

    @functools.wraps(method)
    def spoken(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except optuna.exceptions.StorageInternalError as error:
            raise RedtuneError(f"the storage of the study failed: {_first_line(error)}") from error

    return spoken


# The searches of this process that may still tell a trial.
_ACTIVE: set[str] = set()


class Proposals:
    """Asks for configs, is told trials, remembers every config that was measured."""

    def __init__(self, space: Space, study: str, sampler: str, seed: int, storage: str | None) -> None:
        self.space = space
        self.sampler = sampler
        self.rng = random.Random(seed)
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"
        self.known: dict[Config, Trial] = {}
        self.once_crashed: list[Config] = []  # in earlier calls, and to be tried once more
        self._asked: dict[Config, optuna.Trial | None] = {}  # None: it did not come from Optuna
        self._walk = space.walk()
        self._can_ask = True  # until the sampler fails
        self._turns = 0
        make = make_sampler(sampler, seed)
        try:
            self.study = self._open(study, make, storage)
        except optuna.exceptions.StorageInternalError as error:
            raise UsageError(f"the storage {storage!r} does not open: {_first_line(error)}") from error
        except (AssertionError, AttributeError, LookupError, TypeError, ValueError, ArithmeticError) as error:
            if isinstance(error, UsageError):
                raise
            if storage is not None:
                raise UsageError(f"the storage {storage!r} makes no sense: {_first_line(error)}") from error
            # Whole records that make no sense together: nothing can be kept of them but the file itself.
            damaged = journal_path().replace(damaged_path(journal_path()))
            warn_once(
                f"the study file made no sense ({_first_line(error)}) and is kept as {damaged}; a new one was begun"
            )
            self.study = self._open(study, make, storage)
        _ACTIVE.add(self.owner)

    def _open(self, name: str, sampler: optuna.samplers.BaseSampler, storage: str | None) -> optuna.Study:
        study = optuna.create_study(
            storage=open_storage(storage), study_name=name, sampler=sampler, load_if_exists=True, direction="minimize"
        )
        self._recall(study)
        return study

    def _recall(self, study: optuna.Study) -> None:
        """Reads the trials of earlier calls, and ends those that a killed process left running."""
        crashes: Counter[Config] = Counter()
        for trial in study.get_trials(deepcopy=False):
            if trial.state == optuna.trial.TrialState.RUNNING:
                if not _may_answer(trial):
                    # Another process that opens the study now may end it first.
                    with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError, ValueError):
                        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
                continue
            done = _measured(trial)
            if done is not None and self.space.allows(done.config):
                crashes[done.config] += done.verdict == Verdict.CRASHED
                self.known[done.config] = done
        for config, times in crashes.items():
            if times < CRASHES and self.known[config].verdict == Verdict.CRASHED:
                del self.known[config]
                self.once_crashed.append(config)

    def suggest(self, trial: optuna.Trial) -> Config:
        """A config from Optuna's values: numbers by their place among the choices, so that near is near."""
        values: dict[str, Value] = {}
        for name in KNOBS:
            options = self.space.admitted[name]
            if not is_read(name, Config(**values)) and name not in self.space.fixed:  # type: ignore[arg-type]
                values[name] = default_of(name)
            elif len(options) == 1:
                values[name] = options[0]
            elif isinstance(options[0], str):
                values[name] = cast(str, trial.suggest_categorical(name, options))
            else:
                values[name] = options[trial.suggest_int(name, 0, len(options) - 1)]
        return Config(**values)  # type: ignore[arg-type]

    def parameters(self, config: Config) -> dict[str, Value] | None:
        """Optuna's values for a config, or None where it lies outside the admitted choices."""
        rows: dict[str, Value] = {}
        for name, options in self.space.admitted.items():
            value = getattr(config, name)
            if not is_read(name, config) or len(options) == 1:
                continue
            if value not in options:
                return None
            rows[name] = value if isinstance(value, str) else options.index(value)
        return rows

    def queue(self, configs: Sequence[Config]) -> list[Config]:
        """The legal and unmeasured ones among `configs`, each once, in their order."""
        fresh = []
        for config in dict.fromkeys(configs):
            if config not in self.known and self.parameters(config) is not None and self.space.allows(config):
                fresh.append(config)
        return fresh

    def adopt(self, config: Config) -> bool:
        """Makes a config that did not come from Optuna one of its trials. False if it is known or on its way."""
        if config in self.known or config in self._asked or self.parameters(config) is None:
            return False
        self._asked[config] = None
        return True

    def _ask(self) -> Config | None:
        """A config of the sampler's, or None where it makes nothing of what the study holds."""
        trial = self.study.ask()
        try:
            config = self.suggest(trial)
        except (ValueError, TypeError, LookupError, ArithmeticError, AssertionError, RuntimeError) as error:
            warn_once(f"the sampler fails on what the study holds ({_first_line(error)}); configs are drawn at random")
            self._can_ask = False
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
            return None
        trial.set_user_attr("owner", self.owner)
        if config in self.known:
            self._end(trial, self.known[config])
        elif config in self._asked:
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
        elif reasons := self.space.refusals(config):
            self._tell(trial, Trial(config, "", Verdict.REFUSED, note=reasons[0]))
        else:
            self._asked[config] = trial
        return config

    @_with_storage
    def next(self) -> tuple[Config | None, list[str]]:
        """A legal config that was not measured and is not on its way, or None when none is left; and the refusals met
        on the way."""
        refused: list[str] = []
        if self.sampler == "exhaustive":
            return next((c for c in self._walk if self.adopt(c)), None), refused
        self._turns += 1
        if self.sampler == "tpe" and self._turns % NEAR_EVERY == 0 and (near := self._near()) is not None:
            return near, refused
        for _ in range(PATIENCE):
            before = len(self._asked)
            config = self._ask() if self._can_ask else None
            if config is None:
                break
            if len(self._asked) > before:
                return config, refused
            refused += self.space.refusals(config)[:1]
        for _ in range(PATIENCE * 10):
            drawn = self.space.draw(self.rng)
            if drawn is not None and self.adopt(drawn):
                return drawn, refused
        return None, refused

    def _near(self) -> Config | None:
        """One of those beside one of the best."""
        done = [t for t in self.known.values() if t.verdict == Verdict.OK]
        for trial in sorted(done, key=lambda t: t.micros or math.inf)[:NEAR_BEST]:
            beside = list(dict.fromkeys(self.space.beside(trial.config)))
            self.rng.shuffle(beside)
            for config in beside:
                if self.adopt(config):
                    return config
        return None

    @_with_storage
    def tell(self, trial: Trial) -> None:
        """Records what became of a config. A failure is a failed state with its reason, never a number."""
        self.known[trial.config] = trial
        asked = self._asked.pop(trial.config)
        if asked is None:
            self._add(trial)
        else:
            self._tell(asked, trial)

    @_with_storage
    def revise(self, trial: Trial) -> None:
        """Records what became later of a config that was told before: the last word counts."""
        self.known[trial.config] = trial
        self._add(trial)

    def _add(self, trial: Trial) -> None:
        is_ok = trial.verdict == Verdict.OK
        values = self.parameters(trial.config) or {}
        self.study.add_trial(
            optuna.trial.create_trial(
                state=optuna.trial.TrialState.COMPLETE if is_ok else optuna.trial.TrialState.FAIL,
                value=trial.micros if is_ok else None,
                params=dict(values),
                distributions={name: self._distribution(name) for name in values},
                user_attrs={"trial": json.dumps(as_json(trial)), "owner": self.owner},
            )
        )

    def _distribution(self, name: str) -> optuna.distributions.BaseDistribution:
        options = self.space.admitted[name]
        if isinstance(options[0], str):
            return optuna.distributions.CategoricalDistribution(options)
        return optuna.distributions.IntDistribution(0, len(options) - 1)

    def _tell(self, asked: optuna.Trial, trial: Trial) -> None:
        try:
            asked.set_user_attr("trial", json.dumps(as_json(trial)))
            self._end(asked, trial)
        except optuna.exceptions.UpdateFinishedTrialError:
            # Another process, which could not see this one, has taken it for dead and ended its trial.
            self._add(trial)

    def _end(self, asked: optuna.Trial, trial: Trial) -> None:
        if trial.verdict == Verdict.OK:
            self.study.tell(asked, trial.micros)
        else:
            self.study.tell(asked, state=optuna.trial.TrialState.FAIL)

    @_with_storage
    def close(self) -> None:
        """Ends what was asked and will not be measured."""
        for asked in self._asked.values():
            if asked is not None:
                self.study.tell(asked, state=optuna.trial.TrialState.FAIL)
        self._asked.clear()
        _ACTIVE.discard(self.owner)


def _measured(trial: optuna.trial.FrozenTrial) -> Trial | None:
    """What a finished trial says that became of its config on the device, if anything."""
    done = told_in(trial)
    return None if done is None or done.verdict == Verdict.REFUSED else done


def told_in(trial: optuna.trial.FrozenTrial) -> Trial | None:
    """What a finished trial says that became of its config, or None where it says nothing that can be believed."""
    try:
        done = from_json(Trial, json.loads(trial.user_attrs["trial"]))
    except (KeyError, ValueError, TypeError, RecursionError):
        return None
    if (done.verdict == Verdict.OK) != (done.micros is not None):
        return None
    figures = (done.micros, done.spread_us, done.error)
    is_sound = all(value is None or 0 <= value < math.inf for value in figures) and done.micros != 0
    return replace(done, note=printable(done.note)) if is_sound else None


def _may_answer(trial: optuna.trial.FrozenTrial) -> bool:
    """Whether the search behind a running trial is still there; one that has no owner yet was asked for just now."""
    owner = trial.user_attrs.get("owner")
    if owner is not None:
        return _is_alive(str(owner))
    started = trial.datetime_start
    return started is not None and (datetime.datetime.now() - started).total_seconds() < ASKING_S


def _is_alive(owner: str) -> bool:
    """Whether the search that asked may still answer; of another machine's nothing is known, so it may."""
    host, pid, _ = [*owner.rsplit(":", 2), "", ""][:3]
    if host != socket.gethostname() or not pid.isdigit():
        return bool(host)
    if int(pid) == os.getpid():
        return owner in _ACTIVE
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
