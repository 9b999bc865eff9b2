"""Where a search's next config comes from: Optuna's ask and tell over a study that outlives the process.

The only file that imports Optuna.
"""

from __future__ import annotations

import json
import os
import random
import socket
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from redtune.config import KNOBS, Config, Value, default_of, is_read
from redtune.dtypes import unknown
from redtune.errors import BackendMissing, RedtuneError, UsageError
from redtune.space import Space
from redtune.store import cache_path, warn_once
from redtune.types import Trial, Verdict, as_json, from_json

SAMPLERS = ("tpe", "random", "gp", "cmaes", "exhaustive")
STARTUP_TRIALS = 12
# So many known or refused proposals in a row, and the next config is drawn from what is left instead.
PATIENCE = 6

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
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise UsageError(f"the storage {url!r} does not open: {first}") from error
    path = cache_path() / "studies.journal"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return JournalStorage(JournalFileBackend(str(path)))
    except OSError as error:
        warn_once(f"the study could not be kept in {path.parent} ({error}); this search starts from nothing")
        return optuna.storages.InMemoryStorage()
    except (ValueError, KeyError) as error:
        damaged = _set_aside(path)
        warn_once(f"the study file was damaged ({error}) and is kept as {damaged.name}; a new one was begun")
        return JournalStorage(JournalFileBackend(str(path)))


def _set_aside(path: Path) -> Path:
    damaged = path.with_name(f"{path.name}.damaged")
    path.replace(damaged)
    return damaged


class Proposals:
    """Asks for configs, is told trials, remembers every config that was measured."""

    def __init__(self, space: Space, study: str, sampler: str, seed: int, storage: str | None) -> None:
        self.space = space
        self.sampler = sampler
        self.rng = random.Random(seed)
        try:
            self.study = optuna.create_study(
                storage=open_storage(storage),
                study_name=study,
                sampler=make_sampler(sampler, seed),
                load_if_exists=True,
                direction="minimize",
            )
        except optuna.exceptions.StorageInternalError as error:
            raise UsageError(f"the storage {storage!r} does not open: {str(error).splitlines()[0]}") from error
        self.known: dict[Config, Trial] = {}
        self._asked: dict[Config, optuna.Trial] = {}
        self._walk = space.walk()
        self._recall()

    def _recall(self) -> None:
        """Reads the trials of earlier calls, and ends those that a killed process left running."""
        for trial in self.study.get_trials(deepcopy=False):
            if trial.state == optuna.trial.TrialState.RUNNING:
                if not _is_alive(trial.user_attrs.get("owner", "")):
                    self.study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
                continue
            try:
                done = from_json(Trial, json.loads(trial.user_attrs["trial"]))
            except (KeyError, ValueError, RedtuneError):
                continue
            if done.verdict != Verdict.REFUSED:
                self.known[done.config] = done

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
            if config not in self.known and self.parameters(config) is not None and not self.space.refusals(config):
                fresh.append(config)
        return fresh

    def adopt(self, config: Config) -> bool:
        """Makes a config that did not come from Optuna one of its trials. False if it is known or on its way."""
        values = self.parameters(config)
        if config in self.known or config in self._asked or values is None:
            return False
        self.study.enqueue_trial(values)
        return self._ask() == config

    def _ask(self) -> Config:
        trial = self.study.ask()
        config = self.suggest(trial)
        trial.set_user_attr("owner", _owner())
        if config in self.known:
            self._tell(trial, self.known[config])
        elif config not in self._asked:
            reasons = self.space.refusals(config)
            if reasons:
                self._tell(trial, Trial(config, "", Verdict.REFUSED, note=reasons[0]))
            else:
                self._asked[config] = trial
                return config
        else:
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return config

    def next(self) -> tuple[Config | None, list[str]]:
        """A legal config that was not measured and is not on its way, or None when none is left; and the refusals met
        on the way."""
        refused: list[str] = []
        if self.sampler == "exhaustive":
            return next((c for c in self._walk if self.adopt(c)), None), refused
        for _ in range(PATIENCE):
            before = len(self._asked)
            config = self._ask()
            if len(self._asked) > before:
                return config, refused
            refused += self.space.refusals(config)[:1]
        for _ in range(PATIENCE * 10):
            drawn = self.space.draw(self.rng)
            if drawn is not None and self.adopt(drawn):
                return drawn, refused
        return None, refused

    def tell(self, trial: Trial) -> None:
        """Records what became of a config. A failure is a failed state with its reason, never a number."""
        self.known[trial.config] = trial
        self._tell(self._asked.pop(trial.config), trial)

    def _tell(self, asked: optuna.Trial, trial: Trial) -> None:
        asked.set_user_attr("trial", json.dumps(as_json(trial)))
        if trial.verdict == Verdict.OK:
            self.study.tell(asked, trial.micros)
        else:
            self.study.tell(asked, state=optuna.trial.TrialState.FAIL)

    def abandon(self) -> None:
        """Ends what was asked and will not be measured."""
        for asked in self._asked.values():
            self.study.tell(asked, state=optuna.trial.TrialState.FAIL)
        self._asked.clear()


def _owner() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def _is_alive(owner: str) -> bool:
    """Whether the process that asked may still answer; of another machine's nothing is known, so it may."""
    host, _, pid = owner.rpartition(":")
    if host != socket.gethostname() or not pid.isdigit():
        return bool(host)
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return int(pid) != os.getpid()
