"""What a person sees: tables through rich, a progress line on a terminal, plain text when piped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table

from redtune.config import KNOBS, Config, is_read
from redtune.errors import RedtuneError
from redtune.outcome import Progress as Step
from redtune.outcome import Report, gigabytes_per_second
from redtune.probing import Probe
from redtune.sidebyside import Comparison
from redtune.store import user_path
from redtune.types import Best, Device, Problem, as_json

PLAIN_WIDTH = 110
EVERY = 10  # when piped, one line in so many trials


def console() -> Console:
    """Of stdout; when piped, wide enough that no table is cut."""
    if sys.stdout.isatty():
        return Console(markup=False)
    return Console(width=PLAIN_WIDTH, no_color=True, highlight=False, markup=False)


def of_ceiling(micros: float | None, ceiling_us: float | None) -> str:
    """Percent of the read ceiling that a time reaches."""
    return f"{ceiling_us / micros:.1%}" if micros and ceiling_us else "-"


def describe(step: Step) -> str:
    """The best so far in GB/s and percent of the ceiling."""
    if step.best_us is None or not step.data_bytes:
        return step.step
    rate = gigabytes_per_second(step.data_bytes, step.best_us)
    return f"{step.step}: best {rate:.1f} GB/s, {of_ceiling(step.best_us, step.ceiling_us)} of the ceiling"


Show = Callable[[Step], None]
Begin = Callable[[int, Problem], None]


@contextmanager
def progress_board(count: int, is_quiet: bool) -> Iterator[tuple[Begin, Show]]:
    """Two functions: one hears which of `count` problems begins, the other how far it is. They show bars on a terminal
    (one more for all problems where there are several), a line now and then when piped, nothing when quiet."""
    if is_quiet:
        yield lambda index, problem: None, lambda step: None
        return
    if not sys.stderr.isatty():
        yield _lines(count)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Bars(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bars:
        whole = bars.add_task("problems", total=count, visible=count > 1)
        task = bars.add_task("finding the device", total=None)

        def begin(index: int, problem: Problem) -> None:
            bars.update(whole, description=in_brief(problem), completed=index)

        def show(step: Step) -> None:
            bars.update(task, description=describe(step), completed=step.done, total=step.budget or None)

        yield begin, show


def _lines(count: int) -> tuple[Begin, Show]:
    """Progress as lines of text."""

    def begin(index: int, problem: Problem) -> None:
        if count > 1:
            print(f"{index + 1} of {count}: {in_brief(problem)}", file=sys.stderr, flush=True)

    def show(step: Step) -> None:
        if not step.done or step.done % EVERY == 0 or step.done == step.budget:
            done = f" ({step.done} of {step.budget})" if step.budget else ""
            print(f"{describe(step)}{done}", file=sys.stderr, flush=True)

    return begin, show


def in_brief(problem: Problem) -> str:
    """A problem in a few words: max of 1024 float32, sum of 16 x (64) x 4 float32 (the reduced length in brackets)."""
    size = str(problem.n)
    if problem.layout != "flat":
        lengths = [str(problem.outer), f"({problem.n})", str(problem.inner)]
        size = " x ".join(lengths[: 3 if problem.inner > 1 else 2])
    more = f" in {problem.accumulate}" if problem.accumulate == "float64" != problem.dtype else ""
    return f"{problem.op} of {size} {problem.dtype}{more}{', compensated' if problem.is_compensated else ''}"


def short(value: Any) -> str:
    """A number, or as much of nested lists as a line holds."""
    text = str(value)
    return text if len(text) <= PLAIN_WIDTH else f"{text[: PLAIN_WIDTH - 4]} ..."


def in_words(config: Config, problem: Problem) -> str:
    """Every knob that has an effect, with its value."""
    idle = {"team", "split"} if problem.layout == "flat" else set()
    return " ".join(f"{name}={getattr(config, name)}" for name in KNOBS if is_read(name, config) and name not in idle)


def show_devices(found: list[Device], figures: list[dict[str, float]], absent: dict[str, str]) -> None:
    """The devices, their ceilings if they were measured, and the backends that have none."""
    out = console()
    is_measured = any(figures)
    table = Table("backend", "#", "device", "arch", "waves", "units", "cache", "memory", title="Devices")
    for heading in ("read GB/s", "copy GB/s") if is_measured else ():
        table.add_column(heading, justify="right")
    for device, extra in zip(found, figures, strict=True):
        row = [device.backend, str(device.index), device.name, device.arch]
        row += [", ".join(map(str, device.waves)) or "none", str(device.compute_units)]
        row += [f"{device.cache_bytes / 2**20:.0f} MiB", f"{device.memory_bytes / 2**30:.1f} GiB"]
        row += [f"{extra['read_gbps']:.1f}", f"{extra['copy_gbps']:.1f}"] if is_measured else []
        table.add_row(*row)
    out.print(table)
    for device in found:
        out.print(f"{device.backend} {device.index}: {device.toolchain}; driver {device.driver}")
    for backend, reason in absent.items():
        out.print(f"{backend}: none: {reason}")


def show_report(report: Report) -> None:
    """What a search found."""
    out, best = console(), report.best
    assert best is not None, "a search without a winner raises"
    problem, device = report.problem, report.device
    title = f"{in_brief(problem)} on {device.name} ({device.backend}, {report.temperature})"
    table = Table("", "median us", "spread us", "GB/s", "of ceiling", "time against default", title=title)
    for column in table.columns[1:]:
        column.justify = "right"
    data_bytes = best.gbps * best.median_us * 1e3
    ceiling_us = data_bytes / best.ceiling_gbps * 1e-3 if best.ceiling_gbps else None

    def row(label: str, micros: float, spread: float | None) -> None:
        against = f"{micros / best.default_us:.3f}" if best.default_us else "-"
        table.add_row(
            label,
            f"{micros:.2f}",
            "-" if spread is None else f"{spread:.2f}",
            f"{gigabytes_per_second(int(data_bytes), micros):.1f}",
            of_ceiling(micros, ceiling_us),
            against,
        )

    row("winner", best.median_us, best.spread_us)
    for finalist in report.finalists:
        if finalist.config != best.config:
            row(f"finalist, {finalist.role}", finalist.timing.median_us, finalist.timing.spread_us)
    if best.baseline_us is not None:
        row(best.baseline, best.baseline_us, None)
    if best.worst_us is not None:
        row("slowest verified config", best.worst_us, None)
    if ceiling_us is not None:
        row("read ceiling, measured", ceiling_us, None)
    out.print(table)
    _show_story(out, report, best)


def as_shown(best: Best) -> str:
    """The label of a winner, and how it was shown."""
    seen = best.repeated
    if seen is None:
        return best.determinism
    results = "the same bits" if seen.distinct == 1 else f"{seen.distinct} different results"
    return f"{best.determinism}: {results} in {seen.runs} runs idle and {seen.runs} under load"


def from_home(path: Path) -> str:
    """A path as a person writes it."""
    try:
        home = Path.home()
    except RuntimeError:  # the user has none
        return str(path)
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _show_story(out: Console, report: Report, best: Best) -> None:
    counts = ", ".join(f"{count} {verdict}" for verdict, count in report.verdicts().items())
    resumed = f" ({report.resumed} of them from earlier calls)" if report.resumed else ""
    out.print(f"winner: {in_words(best.config, best.problem)}")
    out.print(f"verdict: {report.verdict}")
    out.print(f"results {as_shown(best)}")
    if best.worst_us and best.worst_us > best.median_us:
        out.print(f"worth: {best.worst_us / best.median_us:.1f}x over the slowest verified config")
    out.print(f"started from: {report.started_from}")
    out.print(
        f"trials: {len(report.trials)}{resumed}: {counts}; stopped: {report.stopped}; {report.seconds:.0f} s in all"
    )
    for verdict, trial in report.first_failures().items():
        out.print(f"first {verdict}: {in_words(trial.config, report.problem)}: {trial.note}")
    if report.baseline_absent:
        out.print(f"no library to compare with: {report.baseline_absent}")
    if report.is_saved:
        out.print(f"kept in: {from_home(user_path(best.problem, best.device, best.temperature))}", soft_wrap=True)
    else:
        out.print("not kept: the search had fixed knobs, or the cache cannot be written")


def report_json(report: Report) -> dict[str, Any]:
    """The document of `search --json`."""
    return {
        "problem": as_json(report.problem),
        "device": as_json(report.device),
        "best": as_json(report.best),
        "finalists": as_json(report.finalists),
        "trials": len(report.trials),
        "resumed": report.resumed,
        "started_from": report.started_from,
        "verdict": report.verdict,
        "verdicts": report.verdicts(),
        "first_failures": {verdict: as_json(trial) for verdict, trial in report.first_failures().items()},
        "stopped": report.stopped,
        "seconds": report.seconds,
        "measuring_seconds": report.measuring_seconds,
        "baseline_absent": report.baseline_absent,
        "is_saved": report.is_saved,
    }


def reports_json(problems: list[Problem], done: list[Report | RedtuneError]) -> dict[str, Any]:
    """The document of `search --json` for several problems: a report each, or the problem with its error."""
    rows = []
    for problem, report in zip(problems, done, strict=True):
        if isinstance(report, RedtuneError):
            rows.append({"problem": as_json(problem), "error": str(report)})
        else:
            rows.append(report_json(report))
    return {"searches": rows}


def show_reports(problems: list[Problem], done: list[Report | RedtuneError]) -> None:
    """What several searches found, one line each."""
    out = console()
    headings = ("problem", "median us", "GB/s", "of ceiling", "against default", "against library", "trials")
    table = Table(*headings, title="Tuned")
    for column in table.columns[1:]:
        column.justify = "right"
    for problem, report in zip(problems, done, strict=True):
        best = None if isinstance(report, RedtuneError) else report.best
        if isinstance(report, RedtuneError) or best is None:
            table.add_row(in_brief(problem), *("-",) * 5, "failed")
            continue
        share = f"{best.gbps / best.ceiling_gbps:.1%}" if best.ceiling_gbps else "-"
        against = [f"{best.median_us / us:.3f}" if us else "-" for us in (best.default_us, best.baseline_us)]
        row = [f"{best.median_us:.2f}", f"{best.gbps:.1f}", share, *against, str(len(report.trials))]
        table.add_row(in_brief(report.problem), *row)
    out.print(table)
    for problem, report in zip(problems, done, strict=True):
        if isinstance(report, RedtuneError):
            out.print(f"{in_brief(problem)}: {report}")


def ratio_words(ratio: tuple[float, float, float]) -> str:
    """A ratio with its interval; a tiny one with its leading digits."""
    return "{} ({} to {})".format(*(f"{part:.2f}" if part >= 0.1 else f"{part:.2g}" for part in ratio))


def show_comparison(comparison: Comparison) -> None:
    """The stored winner beside the libraries."""
    out, problem, device = console(), comparison.problem, comparison.device
    title = f"{in_brief(problem)} on {device.name} ({device.backend}, {comparison.temperature})"
    table = Table("", "median us", "spread us", "GB/s", "of ceiling", title=title)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in comparison.rows:
        times = f"{row.timing.median_us:.2f}", f"{row.timing.spread_us:.2f}"
        table.add_row(row.name, *times, f"{row.gbps:.1f}", f"{row.of_ceiling:.1%}")
    out.print(table)
    out.print(f"read ceiling, measured: {comparison.ceiling.median_us:.2f} us")
    if comparison.speedup is not None:
        out.print(f"speed-up over the fastest library: {ratio_words(comparison.speedup)}")
    for row in comparison.rows:
        out.print(f"{row.name}: {row.types}{f'; {row.odd}' if row.odd else ''}")
    for row in comparison.rows:
        if row.config is not None:
            out.print(f"{row.name}: {in_words(row.config, problem)}")
    for name, reason in comparison.absent:
        out.print(f"{name}: absent: {reason}")


def show_probe(probe: Probe) -> None:
    """What every way that blocks meet gave, run after run."""
    out, runs = console(), probe.repeats
    title = f"{in_brief(probe.problem)} on {probe.device.name} ({probe.device.backend})"
    headings = ("combine", "blocks", "promised", "idle", "loaded", "spread", "ulps", "verdict")
    table = Table(*headings, title=title)
    for column in table.columns[3:7]:
        column.justify = "right"
    for s in probe.strategies:
        promise = "the same bits" if s.is_promised else "may vary"
        if s.repeated is None:
            table.add_row(s.combine, *("-",) * 6, s.verdict)
            continue
        seen = s.repeated
        ulps = "-" if seen.ulps is None else str(seen.ulps)
        row = [str(s.blocks), promise, str(seen.idle), str(seen.loaded), f"{seen.spread:.3g}", ulps, s.verdict]
        table.add_row(s.combine, *row)
    out.print(table)
    out.print(f"idle, loaded: how many different results {runs} runs of one input gave with the device idle and loaded")
    for s in probe.strategies:
        if s.config is None:
            out.print(f"{s.combine}: {s.refusal}")
        elif s.repeated is not None:
            words = in_words(s.config, probe.problem)
            out.print(f"{s.combine}: {words}; a run took {s.repeated.slowed:.1f}x as long under load")


def show_tuned(rows: list[tuple[str, Best]], is_brief: bool = False) -> None:
    """The stored winners with their evidence; in brief, of those shipped only how many there are."""
    out = console()
    if not rows:
        out.print("nothing is tuned yet: redtune search --op max")
        return
    listed = [(whose, best) for whose, best in rows if whose != "shipped" or not is_brief]
    headings = ("problem", "arch", "median us", "spread us", "GB/s", "of ceiling", "found", "from")
    table = Table(*headings, title="Tuned")
    for whose, best in listed:
        share = f"{best.gbps / best.ceiling_gbps:.1%}" if best.ceiling_gbps else "-"
        table.add_row(
            in_brief(best.problem),
            best.device.arch,
            f"{best.median_us:.2f}",
            f"{best.spread_us:.2f}",
            f"{best.gbps:.1f}",
            share,
            best.found[:10],
            whose,
        )
    if listed:
        out.print(table)
    for whose, best in listed:
        evidence = f"{best.trials} trials, {best.temperature}, seed {best.seed}"
        if best.baseline_us:
            evidence += f"; {best.baseline} {best.baseline_us:.2f} us"
        if whose == "shipped" and best.default_us:
            evidence += f"; the default {best.default_us:.2f} us; commit {best.versions['commit']}"
        out.print(f"{in_brief(best.problem)} on {best.device.name}: {in_words(best.config, best.problem)}")
        out.print(f"  results {as_shown(best)}")
        out.print(f"  {evidence}; {best.device.toolchain}; driver {best.device.driver}")
    if is_brief:
        _show_shipped(out, [best for whose, best in rows if whose == "shipped"])


def _show_shipped(out: Console, shipped: list[Best]) -> None:
    """How much comes with redtune, for each device."""
    for key in dict.fromkeys((best.device.backend, best.device.arch, best.device.name) for best in shipped):
        here = [b.problem for b in shipped if (b.device.backend, b.device.arch, b.device.name) == key]
        ops, dtypes = len({problem.op for problem in here}), len({problem.dtype for problem in here})
        out.print(
            f"shipped for {key[0]} {key[1]}, measured on {key[2]}: {len(here)} configs, {ops} operators, {dtypes} types"
        )
    if shipped:
        out.print("redtune show --op sum lists those of one operator")
