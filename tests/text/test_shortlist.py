"""What is tried for the configs that come with redtune: legal, each once, and the same text wherever it is compiled."""

from __future__ import annotations

import argparse
import base64
import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redtune.config import Config
from redtune.defaults import default_config
from redtune.lab import Compiled
from redtune.refusals import is_legal
from tests.text.kernels import PAIRS, config, problem, rendered, target

ROOT = Path(__file__).parents[2]
ON = target("cuda", "sm_90")
H200 = dataclasses.replace(ON.device, name="NVIDIA H200", cache_bytes=60 << 20, memory_bytes=140 << 30, driver="1")
SAMPLED = [("sum", "float32"), ("argmax", "int8"), ("max", "int32"), ("norm_l2", "float64"), ("dot", "complex128")]


@pytest.fixture(scope="module")
def tried() -> Iterator[Any]:
    """The modules of results/, which is no package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "results"))
        import shipping
        import shortlist

        yield shortlist, shipping
        for name in ("ship", "shipping", "shortlist"):
            sys.modules.pop(name, None)


def test_every_operator_and_dtype_has_a_grid(tried: Any) -> None:
    shortlist, _ = tried
    for op, dtype in PAIRS:
        found = list(shortlist.grid(op, dtype))
        assert len(set(found)) == len(found)
        assert {p.layout for p in found} == {"flat", "rows", "columns"}
    everything = [p for op, dtype in PAIRS for p in shortlist.grid(op, dtype)]
    first = sorted(everything, key=shortlist.importance)[0]
    assert (first.op, first.dtype, first.layout) == ("sum", "float32", "flat")


@pytest.mark.parametrize(("op", "dtype"), SAMPLED)
def test_what_is_tried_is_legal_and_the_default_comes_first(op: str, dtype: str, tried: Any) -> None:
    shortlist, shipping = tried
    for p in shortlist.grid(op, dtype):
        found = shortlist.shortlist(p, ON.dialect, ON.device)
        assert found[0] == default_config(p, ON.dialect, ON.device)
        assert 4 <= len(found) == len(set(found)) <= 45, p
        assert all(is_legal(c, p, ON.dialect, ON.device) for c in found)
        # What is compiled without the device is what it runs, and what the judge gets is the same text.
        assert shortlist.shortlist(p, ON.dialect, H200) == found
        there = dataclasses.replace(p, **({"outer": 1, "inner": 1} | shipping.MODERATE[p.layout]))
        last = found[-1]
        texts = {rendered(ON, last, p).digest, rendered(dataclasses.replace(ON, device=H200), last, p).digest}
        if is_legal(last, there, ON.dialect, ON.device):
            texts.add(rendered(ON, last, there).digest)
        assert len(texts) == 1


def test_the_command_names_a_table_and_not_where_it_lies(tried: Any) -> None:
    import ship

    given = argparse.Namespace(table="/a/b/behind.csv", below=1.3, binaries="/c/made", steps=True, time_limit=60.0)
    for name in ("ops", "dtypes", "layouts", "flat", "rows", "columns"):
        setattr(given, name, None)
    assert ship.command(given) == (
        "python results/ship.py --table behind.csv --below 1.3 --binaries made --steps --time-limit 60"
    )


def test_the_problems_of_a_table_are_those_behind_and_the_worst_comes_first(tried: Any, tmp_path: Path) -> None:
    import ship

    rows = [
        ("sum", "float32", 4096, 1.3),
        ("max", "int32", 1000, 0.9),
        ("max", "int32", 4096, 0.8),
        ("sum", "int8", 64, ""),
    ]
    lines = [f"{op},{dtype},flat,{n},{n},1,1,{speedup}" for op, dtype, n, speedup in rows]
    path = tmp_path / "before.csv"
    path.write_text("\n".join(["op,dtype,layout,size,n,outer,inner,speedup", *lines]))
    assert ship.behind(path, 1.0) == [problem("max", "int32", n=4096), problem("max", "int32", n=1000)]
    assert ship.behind(path, 2.0)[-1] == problem("sum", n=4096)


def test_a_config_is_carried_over_with_loads_as_wide(tried: Any) -> None:
    shortlist, _ = tried
    there = config(block=512, vector=4, items=8, accumulators=4, hint="streaming")
    for dtype, vector, accumulators in (("float32", 4, 4), ("int8", 16, 4), ("float64", 2, 4), ("float16", 8, 8)):
        found = shortlist.carried_over(there, problem("sum"), problem("sum", dtype), ON.dialect)
        assert (found.vector, found.accumulators) == (vector, accumulators)
        assert (found.block, found.items, found.hint) == (512, 8, "streaming")
        assert is_legal(found, problem("sum", dtype), ON.dialect, ON.device)


def test_compiled_kernels_are_kept_by_their_text(tried: Any, tmp_path: Path) -> None:
    _, shipping = tried
    kept = shipping.Binaries(tmp_path / "kept")
    kernel = rendered(ON, Config(), problem("max"))
    with pytest.raises(FileNotFoundError):
        kept.read(kernel)
    made = Compiled(kernel, base64.b64encode(b"cubin" * 1000).decode())
    assert kept.keep(made) < 1000
    assert kept.read(kernel) == made
    assert kernel.digest in kept
    assert "0" * 16 not in kept
