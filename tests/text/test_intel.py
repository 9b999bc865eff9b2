"""What Intel's runtime is told to compile for, by the CPU that it finds itself on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from redtune import intel

CORE = "processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: a CPU\nflags\t\t: fpu {flags}\n"


@pytest.mark.parametrize(
    ("vendor", "flags", "own", "told"),
    [
        ("AuthenticAMD", "avx2 avx512f", None, "core-avx2"),
        ("AuthenticAMD", "avx2 avx512f", "skx", "skx"),
        ("AuthenticAMD", "avx2", None, None),
        ("GenuineIntel", "avx2 avx512f", None, None),
    ],
)
def test_others_cpus_with_avx512_get_kernels_for_avx2(
    vendor: str, flags: str, own: str | None, told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("\n".join(CORE.format(vendor=vendor, flags=flags) for _ in range(2)))
    monkeypatch.setattr(intel, "CPU_INFO", path)
    monkeypatch.setenv(intel.TARGET, own or "")
    if own is None:
        monkeypatch.delenv(intel.TARGET)
    intel.choose_target()
    assert os.environ.get(intel.TARGET) == told
    assert intel.chosen_target() == ((told,) if told else ())


@pytest.mark.parametrize("text", [None, "", "Processor : ARMv8\n\n"])
def test_where_nothing_is_said_nothing_is_chosen(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cpuinfo"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(intel, "CPU_INFO", path)
    monkeypatch.setenv(intel.TARGET, "")
    monkeypatch.delenv(intel.TARGET)
    intel.choose_target()
    assert intel.TARGET not in os.environ
