"""kill -9 of a search and of its workers at random moments. A longer run: `python results/kills.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.caches import new_cache
from tests.device.killing import kill_often, settled
from tests.need import need


@pytest.mark.skipif(not Path("/proc").exists(), reason="processes are looked up in /proc")
def test_a_search_that_is_killed_over_and_over_goes_on_where_it_was(tmp_path: Path) -> None:
    need("opencl")
    found = kill_often(new_cache(tmp_path / "cache"), kills=4, seed=1, longest_s=4.0)
    assert found.kills == {"parent": 2, "worker": 2}
    assert (found.lost, found.orphans) == (0, 0)
    assert found.last["resumed"] == found.before
    assert found.last["trials"] == found.before + found.crashed + 1
    assert found.last["is_saved"]
    assert len(settled(tmp_path / "cache")) >= found.before
