"""Files of shipped configs, made up for tests."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from redtune import shipped, store
from redtune.config import Config
from redtune.shipped import Row, Sheet
from redtune.types import Problem
from tests.text.kernels import Target, config, problem, target

GPU = target("cuda", name="NVIDIA H200")


def row(p: Problem, c: Config, **changes: Any) -> Row:
    made = Row(
        layout=p.layout,
        n=p.n,
        config=c,
        median_us=4.25,
        spread_us=0.05,
        gbps=986.9,
        ceiling_gbps=1033.5,
        default_us=4.5,
        candidates=12,
        outer=p.outer,
        inner=p.inner,
    )
    return dataclasses.replace(made, **changes)


def sheet(*pairs: tuple[Problem, Config], on: Target = GPU, **changes: Any) -> Sheet:
    """The file of some configs, all of one operator and dtype."""
    made = Sheet(
        format=store.format_number(),
        op=pairs[0][0].op,
        dtype=pairs[0][0].dtype,
        device=on.device,
        templates=store.templates_digest(),
        commit="abcdef0",
        command="python results/ship.py --out configs",
        found="2026-01-01",
        seed=0,
        temperature="cold",
        determinism="any",
        versions={"python": "3.11"},
        rows=tuple(row(p, c) for p, c in pairs),
    )
    return dataclasses.replace(made, **changes)


def put(root: Path, made: Sheet) -> Path:
    """Writes a file where it is looked for."""
    path = root / store.folder_name(made.device) / made.file_name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(shipped.sheet_text(made))
    return path


def ship(root: Path, p: Problem | None = None, c: Config | None = None, on: Target = GPU, **changes: Any) -> Path:
    """Ships one config."""
    return put(root, sheet((p or problem("max"), c or config(block=128)), on=on, **changes))
