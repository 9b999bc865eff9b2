"""What stands on the page of a search: everything as words and plots, for a template to write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from redtune.backends import backend_named
from redtune.config import KNOBS, Config, Value, help_of, is_read
from redtune.dtypes import dtype_named
from redtune.errors import RedtuneError, printable
from redtune.operators import accumulate_type, operator_of
from redtune.outcome import gigabytes_per_second
from redtune.render import render, render_page, templates_digest
from redtune.reporting.figures import Plot, bars, history, intervals, rate_of, slices
from redtune.reporting.searched import Searched
from redtune.studies import EVALUATOR, Studied
from redtune.terminal import as_shown, in_brief, in_words, of_ceiling
from redtune.types import Problem, Trial, Verdict


@dataclass(frozen=True, slots=True)
class Fact:
    """A name and what it is."""

    name: str
    value: str
    help: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A verdict, how many trials met it, and the first of them."""

    verdict: str
    count: int
    config: str
    note: str


@dataclass(frozen=True, slots=True)
class Page:
    """What the template may read as `page`. A plot that cannot be is None, and a sentence says why."""

    title: str
    subtitle: str
    figures: tuple[Fact, ...]
    verdict: str
    history: Plot | None
    importance: Plot | None
    about_importance: str
    slices: tuple[tuple[str, str, Plot], ...]
    counts: str
    failures: tuple[Failure, ...]
    finalists: tuple[tuple[str, ...], ...]
    intervals: Plot | None
    about_finalists: str
    winner: tuple[Fact, ...]
    source: str
    about_source: str
    environment: tuple[Fact, ...]
    command: str


def written(searched: Searched, studied: Studied) -> str:
    """The page as HTML."""
    return render_page("page", page=page_of(searched, studied))


def page_of(searched: Searched, studied: Studied) -> Page:
    """Everything on the page."""
    trials = [told.trial for told in studied.told]
    measured = [trial for trial in trials if trial.verdict != Verdict.REFUSED]
    right = [trial for trial in measured if trial.verdict == Verdict.OK]
    problem, best, ceiling_us = searched.problem, searched.best, searched.ceiling_us
    ceiling = gigabytes_per_second(searched.data_bytes, ceiling_us) if ceiling_us else None
    source, about_source = _source(searched)
    return Page(
        title=in_brief(problem),
        subtitle=", ".join(
            (searched.device.name, searched.device.backend, f"{searched.temperature} inputs", searched.when[:10])
        ),
        figures=tuple(_figures(searched, len(measured))),
        verdict=searched.verdict or "the search did not come to its end, so nothing was decided",
        history=history(measured, searched.data_bytes, ceiling) if measured else None,
        importance=bars(studied.importance.shares, "importance of knobs") if studied.importance.shares else None,
        about_importance=_about_importance(studied),
        slices=tuple(_slices(right, searched.data_bytes, best.config if best else None, problem)),
        counts=_counts(trials),
        failures=tuple(_failures(trials, problem)),
        finalists=tuple(_finalists(searched)),
        intervals=_intervals(searched),
        about_finalists=_about_finalists(searched),
        winner=tuple(_knobs(best.config, problem)) if best else (),
        source=source,
        about_source=about_source,
        environment=tuple(_environment(searched)),
        command=command(searched),
    )


def _figures(searched: Searched, measured: int) -> Iterator[Fact]:
    """What one wants to know first."""
    best = searched.best
    yield Fact(
        "trials", str(measured), f"of {searched.budget} asked for; {searched.stopped or 'not stopped by itself'}"
    )
    if best is None:
        return
    yield Fact("winner", f"{best.gbps:.4g} GB/s", f"{best.median_us:.2f} us, spread {best.spread_us:.2f} us")
    yield Fact(
        "of the read ceiling", of_ceiling(best.median_us, searched.final_ceiling_us), "measured in the same rounds"
    )
    if best.default_us:
        yield Fact("time over the default's", f"{best.median_us / best.default_us:.3f}", f"{best.default_us:.2f} us")
    if best.baseline_us:
        yield Fact(
            f"time over {best.baseline}", f"{best.median_us / best.baseline_us:.3f}", f"{best.baseline_us:.2f} us"
        )
    if best.worst_us and best.worst_us > best.median_us:
        yield Fact("slowest right config", f"{best.worst_us / best.median_us:.1f}x", "as long as the winner")
    yield Fact("results", best.determinism, as_shown(best).partition(": ")[2])


def _about_importance(studied: Studied) -> str:
    found = studied.importance
    if found.reason:
        return f"No importance: {found.reason}."
    few = f" Few trials tell of {', '.join(found.few)}." if found.few else ""
    return (
        f"By {EVALUATOR}: how much each knob decides whether a config is among the best {found.share:.0%} of the right "
        "ones. It says which choices the search has seen to matter, not which are right."
        f"{few}"
    )


def _slices(
    right: Sequence[Trial], data_bytes: int, best: Config | None, problem: Problem
) -> Iterator[tuple[str, str, Plot]]:
    """A plot for each knob that had an effect and more than one value."""
    idle = {"team", "split"} if problem.layout == "flat" else set()
    for knob in KNOBS:
        seen: list[tuple[Value, float]] = [
            (getattr(trial.config, knob), rate_of(trial, data_bytes)) for trial in right if is_read(knob, trial.config)
        ]
        if knob not in idle and len({value for value, _ in seen}) > 1:
            its = getattr(best, knob) if best is not None and is_read(knob, best) else None
            yield knob, help_of(knob), slices(knob, seen, its)


def _counts(trials: Sequence[Trial]) -> str:
    counts = {verdict: sum(trial.verdict == verdict for trial in trials) for verdict in Verdict}
    return ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count) or "no trials"


def _failures(trials: Sequence[Trial], problem: Problem) -> Iterator[Failure]:
    for verdict in Verdict:
        met = [trial for trial in trials if trial.verdict == verdict]
        if met and verdict != Verdict.OK:
            yield Failure(verdict.value, len(met), in_words(met[0].config, problem), printable(met[0].note))


def _finalists(searched: Searched) -> Iterator[tuple[str, ...]]:
    """Place, role, median, spread, GB/s, of ceiling, ratio, interval, results; last the config, for a line below."""
    for k, one in enumerate(searched.finalists, 1):
        micros = one.timing.median_us
        yield (
            f"{k}{' (winner)' if searched.best and one.config == searched.best.config else ''}",
            one.role,
            f"{micros:.2f}",
            f"{one.timing.spread_us:.2f}",
            f"{gigabytes_per_second(searched.data_bytes, micros):.4g}",
            of_ceiling(micros, searched.final_ceiling_us),
            f"{one.ratio:.4f}",
            f"{one.low:.4f} to {one.high:.4f}",
            one.repeated.determinism,
            in_words(one.config, searched.problem),
        )


def _intervals(searched: Searched) -> Plot | None:
    names = [str(k) for k in range(1, len(searched.finalists) + 1)]
    return intervals(searched.finalists, names) if names else None


def _about_finalists(searched: Searched) -> str:
    if not searched.finalists:
        return "There were no final rounds: the search was ended before them, or no config came through the judge."
    return (
        "Timed in turns, in a process of their own. The ratio is the median of paired times over those of the "
        "incumbent, with the interval that holds the true one 19 times in 20; a winner must keep clear of 1."
    )


def _knobs(config: Config, problem: Problem) -> Iterator[Fact]:
    idle = {"team", "split"} if problem.layout == "flat" else set()
    for knob in KNOBS:
        if is_read(knob, config) and knob not in idle:
            yield Fact(knob, str(getattr(config, knob)), help_of(knob))


def _source(searched: Searched) -> tuple[str, str]:
    """The winner's kernel, written again, and what is to be said about it."""
    best = searched.best
    if best is None:
        return "", "There is no winner, so there is no source."
    dialect = backend_named(searched.device.backend).dialect
    try:
        source = render(searched.problem, best.config, dialect, searched.device).source
    except (RedtuneError, LookupError, ValueError, AssertionError):
        return "", "This version of redtune cannot write the kernel of this config any more."
    if best.templates != templates_digest():
        return source, "The templates have changed since it was measured: this is the text that they give now."
    return source, "The very text that was measured."


def _environment(searched: Searched) -> Iterator[Fact]:
    device = searched.device
    yield Fact("device", device.name)
    yield Fact("architecture", device.arch)
    yield Fact("driver", device.driver)
    yield Fact("toolchain", device.toolchain)
    yield Fact("compute units", str(device.compute_units))
    yield Fact("last-level cache", f"{device.cache_bytes / 2**20:.0f} MiB")
    for name, version in searched.best.versions.items() if searched.best else ():
        yield Fact(name, version)
    yield Fact("sampler, seed", f"{searched.sampler}, {searched.seed}")
    if searched.fixed:
        yield Fact("fixed knobs", " ".join(f"{name}={value}" for name, value in searched.fixed.items()))
    yield Fact("began with", searched.started_from)
    yield Fact("took", f"{searched.seconds:.0f} s in its last call")
    yield Fact("last changed", searched.when)
    yield Fact("key", searched.key)
    yield Fact("study", printable(searched.study))


def command(searched: Searched) -> str:
    """The command that goes on with the search, where one can say it."""
    problem = searched.problem
    if problem.custom or problem.is_masked or problem.is_seeded or problem.is_ragged or problem.result:
        return ""
    if problem.is_strided and problem.inner == 1:
        return ""
    words = ["redtune search", f"--op {problem.op}", f"--dtype {problem.dtype}"]
    if problem.layout == "flat":
        words.append(f"--n {problem.n}")
    else:
        lengths = (problem.outer, problem.n, problem.inner)[: 3 if problem.inner > 1 else 2]
        words.append(f"--shape {'x'.join(map(str, lengths))} --axis 1")
    if problem.is_compensated:
        words.append("--accumulate compensated")
    elif problem.accumulate != accumulate_type(operator_of(problem), dtype_named(problem.dtype)):
        words.append(f"--accumulate {problem.accumulate}")
    words += [f"--determinism {problem.determinism}"] if problem.determinism != "any" else []
    words += [f"--backend {searched.device.backend}", f"--trials {searched.budget}"]
    words += [f"--sampler {searched.sampler}"] if searched.sampler != "tpe" else []
    words += ["--warm"] if searched.temperature == "warm" else []
    words += [f"--fix {name}={value}" for name, value in searched.fixed.items()]
    return " ".join([*words, f"--seed {searched.seed}"])
