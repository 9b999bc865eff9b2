"""What an OpenCL export is made of, with no device."""

from __future__ import annotations

import re

import pytest

from redtune.errors import UsageError
from redtune.exporting.formats import texts_of
from redtune.exporting.opencl import needed, parameters
from tests.text.exports import exported
from tests.text.kernels import problem


def test_kernels_of_several_devices_are_refused() -> None:
    with pytest.raises(UsageError, match="an opencl export is for one device, not for cpu and another-cpu"):
        texts_of(exported("opencl", [problem("max")], ["cpu", "another-cpu"]), "opencl")


def test_a_kernel_is_as_it_was_emitted_below_its_own_evidence() -> None:
    whole = exported("opencl", [problem("max", n=1 << 10), problem("max", n=1 << 24)], ["cpu"])
    texts = texts_of(whole, "opencl")
    for variant, other in zip(whole.variants, reversed(whole.variants), strict=True):
        text = texts[f"{whole.name}_{variant.space}.cl"]
        assert text.endswith(variant.kernel.source)
        head = text.removesuffix(variant.kernel.source)
        assert f"{variant.space}: cpu, {variant.problem.n} elements" in head
        assert other.space not in head
        assert f'#include "{whole.name}_{variant.space}.cl.h"' in texts[f"{whole.name}.c"]


def test_every_argument_is_a_parameter_of_the_kernels_in_its_place() -> None:
    for combine in ("two_pass", "atomic", "last_block"):
        whole = exported("opencl", [problem("sum", "int32", n=1 << 20)], ["cpu"], combine=combine)
        (variant,) = whole.variants
        known = [f"ARG_{name.upper()}" for name in parameters(whole)]
        steps = re.findall(r'\] = \{"(\w+)", (\d+), \{(.*?)\}\}', texts_of(whole, "opencl")[f"{whole.name}.c"])
        assert len(steps) == {"two_pass": 2, "atomic": 2, "last_block": 1}[combine]
        for entry, count, names in steps:
            declared = re.search(rf"__kernel void {entry}\(\s*(.*?)\)\s*\{{", variant.kernel.source, re.DOTALL)
            assert declared is not None
            given = [f"ARG_{re.split(r'[ *]', one)[-1].upper()}" for one in declared[1].split(",")]
            assert names.split(", ") == given
            assert len(given) == int(count)
            assert set(given) <= set(known)


def test_the_readme_says_what_a_device_must_offer() -> None:
    plain = exported("opencl", [problem("max")], ["cpu"], exchange="lds", combine="two_pass")
    assert needed(plain) == []
    assert "and any OpenCL device." in texts_of(plain, "opencl")["README.md"]
    asking = exported("opencl", [problem("sum", "float64")], ["cpu"], exchange="shuffle", combine="last_block")
    assert needed(asking) == [
        "cl_khr_fp64",
        "cl_intel_required_subgroup_size",
        "cl_khr_subgroup_shuffle_relative",
        "OpenCL C 3.0 with acquire-release atomics across blocks",
    ]
