"""`redtune verify` on a real device, and under a real checker."""

from __future__ import annotations

import json
from pathlib import Path

from redtune.types import Verdict
from tests.device.test_end_to_end import redtune
from tests.need import need


def test_a_sample_is_judged(tmp_path: Path) -> None:
    need("opencl")
    out, err = redtune(tmp_path, "verify", "--backend", "opencl", "--configs", "3", "--json")
    found = json.loads(out)
    assert (err, found["configs"], found["bad"]) == ("", 3, 0)
    assert {row["by"] for row in found["rows"]} == {"judge"}
    assert {"op", "dtype"} <= set(found["rows"][0]["problem"])


def test_a_sample_runs_under_the_simulator(tmp_path: Path) -> None:
    need("opencl")
    need("oclgrind")
    options = ("--sanitize", "--configs", "2", "--op", "sum,max,argmax", "--seed", "2")
    out, _ = redtune(tmp_path, "verify", "--backend", "opencl", *options, "--json")
    found = json.loads(out)
    assert found["absent"] == {}
    assert [(row["by"], row["verdict"]) for row in found["rows"]] == [("oclgrind", Verdict.OK.value)] * 2
