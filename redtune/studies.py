"""A study read again for its report: every trial in its order, and which knobs mattered by Optuna's reckoning.

Beside `redtune.proposals` and `redtune.journal`, the only file that imports Optuna: what a search asks and tells is
there, and nothing here changes a study.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass

import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

from redtune.errors import RedtuneError, UsageError, in_a_line
from redtune.proposals import journal_path, open_storage, told_in
from redtune.types import Trial

EVALUATOR = "PED-ANOVA of Optuna"  # fANOVA would need scikit-learn
FEWEST = 20  # right trials, below which no importance is shown
AMONG_BEST = 5  # trials that the evaluator wants among the best
BEST_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Told:
    """What became of a trial of a study."""

    number: int
    trial: Trial


@dataclass(frozen=True, slots=True)
class Importance:
    """How much each knob decides whether a config is among the best `share` of the right ones, summing up to 1; none
    where there is a `reason` against it. Of the knobs in `few` Optuna says that it saw too little."""

    shares: dict[str, float]
    share: float
    reason: str = ""
    few: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Studied:
    """The trials in their order, what is unfinished left out, and the importance of knobs."""

    told: tuple[Told, ...]
    importance: Importance


def read_study(name: str, storage: str | None = None) -> Studied:
    """The study of that whole name, in the file of studies or in a database. Raises UsageError where there is none."""
    if storage is None and not journal_path().is_file():
        raise UsageError(f"the file of studies {journal_path().name} is not there any more, so there are no trials")
    try:
        study = optuna.load_study(study_name=name, storage=open_storage(storage))
        trials = study.get_trials(deepcopy=False)
    except KeyError:
        where = "the storage" if storage is not None else "the file of studies"
        raise UsageError(
            f"{where} does not have the trials of this search: if it was kept elsewhere, name that with --storage"
        ) from None
    except optuna.exceptions.StorageInternalError as error:
        raise RedtuneError(f"the storage of the study failed: {in_a_line(error)}") from error
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError, ArithmeticError) as error:
        if isinstance(error, UsageError):
            raise
        raise RedtuneError(f"the studies make no sense: {in_a_line(error)}") from error
    read = [(trial.number, told_in(trial)) for trial in trials if trial.state.is_finished()]
    told = tuple(Told(number, trial) for number, trial in read if trial is not None)
    return Studied(told, importance_in(study))


def importance_in(study: optuna.Study) -> Importance:
    """What Optuna reckons from the right trials of a study."""
    states = (optuna.trial.TrialState.COMPLETE,)
    right = study.get_trials(deepcopy=False, states=states)
    if len(right) < FEWEST:
        return Importance({}, BEST_SHARE, f"{len(right)} right trials are too few to tell: it takes {FEWEST}")
    share = max(BEST_SHARE, AMONG_BEST / len(right))
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(target_quantile=share))
    except (ValueError, RuntimeError, ArithmeticError, LookupError) as error:
        return Importance({}, share, f"Optuna cannot tell: {in_a_line(error)}")
    if not found or not any(found.values()):
        return Importance({}, share, "no knob had more than one value in the right trials")
    few = {name for warning in warned for name in re.findall(r"parameter `(\w+)`", str(warning.message))}
    return Importance(dict(found), share, few=tuple(name for name in found if name in few))
