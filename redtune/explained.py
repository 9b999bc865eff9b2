"""A rung's emitted kernel, below what is to be known of it before one reads it."""

from __future__ import annotations

from redtune.config import Config
from redtune.counting import steps_on
from redtune.dialect import Dialect
from redtune.plan import make_plan
from redtune.render import render
from redtune.rungs import Rung
from redtune.trees import Step
from redtune.types import Device, Problem


def explain(rung: Rung, config: Config, problem: Problem, dialect: Dialect, device: Device) -> str:
    """The rung's name and problem, its launches, the steps in which a block meets, and the text."""
    plan = make_plan(problem, config, dialect, device)
    lines = [f"rung {rung.number}, {rung.name}", f"its problem: {rung.lacks}"]
    lines += [
        f"launch {k}: {each.entry}, {each.grid} x {each.block} threads" for k, each in enumerate(plan.launches, 1)
    ]
    hardware = dialect.hardware_wave(config, device)
    if config.exchange in ("lds", "shuffle"):
        steps = [step for step in steps_on(problem, config, hardware) if step.is_merge]
        lines.append(f"the threads of a block meet in {len(steps)} steps, on waves of {hardware} lanes:")
        lines += [f"  {k}. {_step_in_words(step, hardware)}" for k, step in enumerate(steps, 1)]
    kernel = render(problem, config, dialect, device)
    return "\n".join(f"// {line}" for line in lines) + "\n\n" + kernel.source


def _step_in_words(step: Step, lanes: int) -> str:
    """Who merges with what, in how many waves, and what follows."""
    threads = step.threads
    stride = threads[1] - threads[0] if len(threads) > 1 else 1
    who = f"threads 0 to {threads[-1]}" + (f" by {stride}" if stride > 1 else "") if threads[-1] else "thread 0"
    runs = step.serialised(lanes)
    where = "by shuffles" if len(step.threads) > 1 else "in registers"
    if step.reads:
        where = f"slot {step.reads[0][-1]} the last to be read"
    if len(step.reads) > 1:
        where = (
            f"slots {step.writes[0][0]} and {step.reads[1][0]} first, {step.writes[0][-1]} and {step.reads[1][-1]} last"
        )
    waits = ", then a barrier" if step.after == "block" else ""
    waves = step.waves(lanes)
    turns = f" in {runs} turns" if runs > waves else ""
    return f"{who}: {where}; {waves} wave{'s' if waves > 1 else ''}{turns}{waits}"
