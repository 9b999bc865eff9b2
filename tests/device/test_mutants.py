"""Broken kernels are found out: by the judge, by a checker, or by reading them where hardware forgives what they do."""

from __future__ import annotations

from pathlib import Path

import pytest

from redtune.backends import backend_named
from redtune.checkers import CHECKERS
from redtune.lab import list_devices
from tests.device.mutants import broken, is_caught, judged, mutants, read, watched
from tests.device.mutations import TABLE
from tests.need import need

# Where a mutation may do no harm on a device, or only what nobody who looks there can see; and who sees it.
HARMLESS = {
    "opencl": {
        "lanes that do not wait": "the lanes of a sub-group take every step together here: racecheck sees it",
    },
    "cuda": {
        "a stride too long": "no block has a second tile among so many: a CPU has",
        "a group too far apart": "no block has a second group among so many: a CPU has",
    },
}
ARCHS = {"opencl": "plain", "cuda": "sm_90"}


def test_the_table_is_as_long_as_promised() -> None:
    names = [mutation.name for mutation in TABLE]
    assert len(names) == len(set(names)) >= 40
    assert all(set(rows) <= set(names) for rows in HARMLESS.values())


@pytest.mark.parametrize("backend", ARCHS)
def test_every_mutation_finds_its_place(backend: str) -> None:
    """On some kernel that the backend has; and no mutant is the kernel that it was made of."""
    device = backend_named(backend).describe(ARCHS[backend])
    for mutation in TABLE:
        found = list(mutants([mutation], device))
        assert found or (mutation.only and backend not in mutation.only) or _needs_another(mutation.name), mutation.name
        assert len({mutant.kernel.source for mutant in found}) == len(found)


def _needs_another(name: str) -> bool:
    """Whether the kernels that a mutation is made on are those of another backend alone."""
    return "cluster" in name or name == "half of a wide tail that does not wait"


def test_a_mutation_that_finds_no_place_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="is not in"):
        broken("int x;", TABLE[0])


@pytest.mark.parametrize("backend", ["opencl", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_every_mutant_is_found_out(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All on a GPU; on a CPU, which takes its time, the first of every other mutation (of all: results/mutants.py).
    Checkers look at what the judge let pass."""
    need(backend)
    monkeypatch.setattr("redtune.lab.TRIAL_LIMIT_S", 10.0)
    monkeypatch.setattr("redtune.lab.EXAMINE_LIMIT_S", 60.0)
    device = list_devices(backend)[0]
    is_slow = device.kind == "cpu"
    found = list(mutants(TABLE[::2] if is_slow else TABLE, device, is_first_only=is_slow))
    outcomes = zip(found, judged(device, found), read(found), strict=True)
    left = {mutant.name: mutant for mutant, *rows in outcomes if not any(map(is_caught, rows))}
    for checker in CHECKERS[backend]:
        table = list({mutant.mutation.name: mutant.mutation for mutant in left.values()}.values())
        folder = tmp_path / checker.name
        folder.mkdir()
        for name, row in watched(device, checker, table, folder, left).items() if table else ():
            if is_caught(row):
                left.pop(name, None)
    assert {name for name, mutant in left.items() if mutant.mutation.name not in HARMLESS[backend]} == set()
