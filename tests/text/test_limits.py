"""What limits a choice on AMD GPUs that are not here: the reading of disassembly, the arithmetic of occupancy, and the
command with clang.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import redtune
from redtune import amdgpu, api_compare
from redtune.amdgpu import KernelResources
from redtune.cli import main
from redtune.config import Config, choices
from redtune.errors import RedtuneError, UsageError
from redtune.instructions import Instruction, load_bits, load_wait, main_loop, parse, read
from redtune.limited import NO_CLAIM
from redtune.limits import TARGETS, UNSUPPORTED, Limited, Limits, Occupancy, family_of, occupancy, with_values
from tests.need import need
from tests.text.kernels import problem

GFX9 = """
kernel.hsaco:	file format elf64-amdgpu

Disassembly of section .text:

0000000000001000 <first>:
	global_load_dwordx2 v[0:1], v[0:1], off                    // 000000001000: DC548000 007F0000
	s_endpgm                                                   // 000000001008: BF810000

0000000000001100 <main>:
	global_load_ubyte v9, v[6:7], off                          // 000000001100: DC408000 097F0006
	s_waitcnt vmcnt(0)                                         // 000000001108: BF8C0F70
	global_load_dwordx4 v[6:9], v[6:7], off                    // 000000001110: DC5C8000 067F0006
	global_load_dwordx4 v[12:15], v[12:13], off                // 000000001118: DC5C8000 0C7F000C
	global_load_dwordx4 v[16:19], v[24:25], off                // 000000001120: DC5C8000 107F0018
	s_waitcnt vmcnt(2) lgkmcnt(0)                              // 000000001128: BF8C0072
	v_add_f32_e32 v1, v6, v1                                   // 00000000112C: 02020306
	s_waitcnt vmcnt(1)                                         // 000000001130: BF8C0F71
	s_waitcnt vmcnt(0)                                         // 000000001134: BF8C0F70
	s_waitcnt lgkmcnt(0)                                       // 000000001138: BF8CC07F
	s_cbranch_vccz 65524                                       // 00000000113C: BF86FFF4 <main+0x10>
	v_mov_b32_dpp v2, v1 row_shr:1 row_mask:0xf bank_mask:0xf  // 000000001140: 7E0402FA FF011101
	v_add_f32_dpp v1, v1, v1 row_bcast:15 row_mask:0xa bank_mask:0xf // 000000001148: 020202FA AF014201
	v_readlane_b32 s4, v1, 63                                  // 000000001150: D2890004 00017F01
	v_readfirstlane_b32 s5, v1                                 // 000000001158: 7E0A0501
	ds_bpermute_b32 v6, v11, v1                                // 00000000115C: D87E0000 0600010B
	ds_permute_b32 v6, v11, v1                                 // 000000001164: D87C0000 0600010B
	ds_swizzle_b32 v6, v1 offset:swizzle(BITMASK_PERM,"00p00") // 00000000116C: D87A0000 06000001
	ds_write_b32 v4, v9                                        // 000000001174: D81A0000 00000904
	s_barrier                                                  // 00000000117C: BF8A0000
	ds_read2_b32 v[4:5], v4 offset1:1                          // 000000001180: D86E0100 04000004
	buffer_wbl2 sc1                                            // 000000001188: E0A08000 00000000
	buffer_inv sc1                                             // 000000001190: E0A48000 00000000
	buffer_inv sc0                                             // 000000001198: E0A44000 00000000
	s_endpgm                                                   // 0000000011A0: BF810000
"""

GFX12 = """
0000000000001a00 <main>:
	s_load_b64 s[30:31], s[0:1], 0x0                           // 000000001A00: F4002780 F8000000
	global_load_b128 v[5:8], v[3:4], off                       // 000000001A08: EE05C07C 00000005 00000003
	global_load_b128 v[10:13], v[3:4], off offset:-16384       // 000000001A14: EE05C07C 0000000A FFC00003
	s_wait_loadcnt 0x1                                         // 000000001A20: BFC00001
	s_wait_loadcnt_dscnt 0x0                                   // 000000001A24: BFC80000
	s_cbranch_vccz 65528                                       // 000000001A28: BFA3FFF8 <main+0x8>
	global_load_u16 v1, v[3:4], off                            // 000000001A2C: EE04807C 00000001 00000003
	global_load_d16_b16 v1, v[3:4], off                        // 000000001A38: EE08007C 00000001 00000003
	v_permlanex16_b32 v2, v1, s0, s0                           // 000000001A44: D65C0002 00000101
	v_permlane64_b32_e32 v3, v2                                // 000000001A4C: 7E06CF02
	v_max_num_f32_dpp v1, v1, v1 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf // 000000001A50: 2C0202FA FF00B101
	v_max3_num_f32_e64_dpp v1, v1, v1, v2 row_xmask:1 // 000000001A58: D62C0001 040A02FA FF016101
	ds_store_b32 v3, v9                                        // 000000001A64: D8340000 00000903
	global_wb scope:SCOPE_SE                                   // 000000001A6C: EE0B007C 00040000 00000000
	s_barrier_signal -1                                        // 000000001A78: BE804EC1
	s_barrier_wait 0xffff                                      // 000000001A7C: BF94FFFF
	global_inv scope:SCOPE_SE                                  // 000000001A80: EE0AC07C 00040000 00000000
	ds_load_b32 v3, v3                                         // 000000001A8C: D8D80000 03000003
	global_inv scope:SCOPE_DEV                                 // 000000001A94: EE0AC07C 00080000 00000000
	s_endpgm                                                   // 000000001AA0: BFB00000
"""


def test_reading_gfx9() -> None:
    seen = read(GFX9, "main")
    assert seen.loads == {128: 3, 8: 1}
    assert seen.widest_load == 128
    assert (seen.waits, seen.counts_down, seen.loads_in_flight) == ((2, 1, 0), True, 3)
    assert seen.lanes == {"dpp": 2, "permlane": 0, "readlane": 1, "swizzle": 1, "permute": 1, "bpermute": 1}
    assert (seen.lds_reads, seen.lds_writes, seen.barriers) == (1, 1, 1)
    assert (seen.fences, seen.invalidations, seen.write_backs) == (1, 2, 1)


def test_reading_gfx12() -> None:
    seen = read(GFX12, "main")
    assert seen.loads == {128: 2, 16: 2}
    assert (seen.waits, seen.counts_down, seen.loads_in_flight) == ((1, 0), True, 2)
    assert seen.lanes == {"dpp": 2, "permlane": 2, "readlane": 0, "swizzle": 0, "permute": 0, "bpermute": 0}
    assert (seen.lds_reads, seen.lds_writes, seen.barriers) == (1, 1, 1)
    assert (seen.fences, seen.invalidations, seen.write_backs) == (1, 2, 1)


def test_another_entry_point_is_another_kernel() -> None:
    assert read(GFX9, "first").loads == {64: 1}
    assert [line.name for line in parse(GFX9, "first")] == ["global_load_dwordx2", "s_endpgm"]
    branch = next(line for line in parse(GFX9, "main") if line.to is not None)
    assert (branch.at, branch.to) == (0x113C, 0x1110)


@pytest.mark.parametrize(
    ("line", "bits"),
    [
        ("global_load_dword", 32), ("global_load_dwordx3", 96), ("flat_load_dwordx4", 128), ("global_load_sbyte", 8),
        ("global_load_short_d16_hi", 16), ("buffer_load_ushort", 16), ("global_load_b32", 32), ("global_load_b96", 96),
        ("global_load_u8", 8), ("global_load_i16", 16), ("global_load_d16_hi_b16", 16), ("global_load_d16_u8", 8),
        ("global_load_lds_dword", 0), ("s_load_dwordx2", 0), ("scratch_load_dword", 0), ("global_store_dword", 0),
    ],
)  # fmt: skip
def test_the_width_of_a_load(line: str, bits: int) -> None:
    assert load_bits(Instruction(line, "v1, v[2:3], off")) == bits


@pytest.mark.parametrize(
    ("name", "operands", "left"),
    [
        ("s_waitcnt", "vmcnt(7)", 7),
        ("s_waitcnt", "vmcnt(0) expcnt(0) lgkmcnt(0)", 0),
        ("s_waitcnt", "lgkmcnt(0)", None),
        ("s_waitcnt_vscnt", "null, 0x0", None),
        ("s_wait_loadcnt", "0x3f", 63),
        ("s_wait_loadcnt_dscnt", "0x302", 3),
        ("s_wait_dscnt", "0x0", None),
        ("s_wait_storecnt_dscnt", "0x0", None),
    ],
)
def test_how_many_loads_a_wait_leaves_under_way(name: str, operands: str, left: int | None) -> None:
    assert load_wait(Instruction(name, operands)) == left


def code(*names: str) -> list[Instruction]:
    """A line for each word: a load, a wait (`wait:2`), a branch to a place in the list (`to:0`)."""
    made = []
    for at, name in enumerate(names):
        what, _, number = name.partition(":")
        if what == "load":
            made.append(Instruction("global_load_dwordx4", "", at))
        elif what == "wait":
            made.append(Instruction("s_waitcnt", f"vmcnt({number})", at))
        elif what == "to":
            made.append(Instruction("s_cbranch_vccz", "", at, int(number)))
        else:
            made.append(Instruction(name, "", at))
    return made


def test_the_main_loop_is_the_innermost_one_that_loads_most() -> None:
    nested = code("v_nop", "load", "load", "wait:1", "to:1", "load", "wait:0", "to:0")
    assert main_loop(nested) == nested[1:5]
    two_ends = code("load", "to:0", "load", "to:0")
    assert main_loop(two_ends) == two_ends
    straight = code("load", "wait:0", "to:9", "load", "load", "load", "wait:0", "to:9", "load", "to:8")
    assert main_loop(straight) == straight[3:8]
    after_a_head = code("load", "wait:0", "load", "load", "to:2")
    assert main_loop(after_a_head) == after_a_head[2:]
    assert list(main_loop([])) == []


def test_loads_that_go_on_into_the_next_round_count() -> None:
    from redtune.instructions import most_in_flight

    assert most_in_flight(code("load", "wait:1", "load", "wait:0")) == 2
    assert most_in_flight(code("wait:0", "load", "load")) == 2
    assert most_in_flight(code("wait:2", "load", "load")) == 4


def test_waits_for_all_do_not_count_down() -> None:
    text = GFX9.replace("vmcnt(2)", "vmcnt(0)").replace("vmcnt(1)", "vmcnt(0)")
    assert read(text, "main").waits == (0, 0, 0)
    assert not read(text, "main").counts_down


# --- occupancy --------------------------------------------------------------------------------------------------------


def taken(wave: int, vgprs: int, lds_bytes: int = 0, sgprs: int = 40) -> KernelResources:
    return KernelResources("main", vgprs, sgprs, None, lds_bytes, 0, 0, 0, wave)


@pytest.mark.parametrize(
    ("target", "wave", "vgprs", "waves"),
    [
        ("gfx90a", 64, 64, 8), ("gfx90a", 64, 65, 7), ("gfx942", 64, 128, 4), ("gfx942", 64, 129, 3),
        ("gfx950", 64, 512, 1), ("gfx1030", 32, 64, 16), ("gfx1030", 32, 65, 12), ("gfx1030", 64, 32, 16),
        ("gfx1030", 64, 33, 12), ("gfx1100", 32, 96, 16), ("gfx1100", 32, 97, 12), ("gfx1100", 64, 48, 16),
        ("gfx1100", 64, 49, 12), ("gfx1201", 32, 256, 5), ("gfx1200", 64, 256, 2),
    ],
)  # fmt: skip
def test_registers_limit_waves(target: str, wave: int, vgprs: int, waves: int) -> None:
    held = occupancy(family_of(target), taken(wave, vgprs), wave, None)
    assert (held.waves, held.limited_by == "VGPRs") == (waves, waves < TARGETS[target].waves)


@pytest.mark.parametrize(
    ("target", "resources", "block", "per_cu", "expected"),
    [
        # 30 KiB: two blocks of a CU, of 4 waves on 4 SIMDs.
        ("gfx942", taken(64, 24, 30 << 10), 256, None, Occupancy(2, "LDS", 2, 512)),
        ("gfx950", taken(64, 24, 30 << 10), 256, None, Occupancy(5, "LDS", 5, 1280)),
        # Two CUs of RDNA share 128 KiB and hold 4 blocks of 8 waves on 4 SIMDs.
        ("gfx1100", taken(32, 24, 30 << 10), 256, None, Occupancy(8, "LDS", 8, 512)),
        # 5 waves a SIMD are 20, and a block has 16.
        ("gfx90a", taken(64, 96), 1024, None, Occupancy(4, "VGPRs", 4, 1024)),
        ("gfx90a", taken(64, 24), 768, None, Occupancy(6, "whole blocks", 6, 1536)),
        ("gfx90a", taken(64, 24), 512, 2, Occupancy(8, "", 4, 1024)),
        ("gfx1100", taken(32, 24), 512, 2, Occupancy(16, "", 16, 1024)),
        ("gfx90a", taken(64, 24, sgprs=104), 64, None, Occupancy(7, "SGPRs", 7, 1792)),
        ("gfx1030", taken(64, 24, sgprs=104), 64, None, Occupancy(16, "", 16, 2048)),
    ],
)
def test_blocks_limit_waves(
    target: str, resources: KernelResources, block: int, per_cu: int | None, expected: Occupancy
) -> None:
    assert occupancy(family_of(target), resources, block, per_cu) == expected


def test_a_choice_keeps_the_rest_of_a_config() -> None:
    base = Config(vector=4, items=4, accumulators=8)
    assert with_values(base, {"vector": 1}) == Config(vector=1, items=4, accumulators=4)
    assert with_values(base, {"vector": 1, "accumulators": 8}).accumulators == 8
    # What has no effect stays, to be refused in words.
    assert with_values(base, {"exchange": "lds", "wave": 64}).wave == 64


def test_features_of_a_target_are_no_other_target() -> None:
    assert family_of("gfx90a:xnack-") is TARGETS["gfx90a"]


# --- the command ------------------------------------------------------------------------------------------------------

ASKED = ["compare", "wave", "exchange", "--op", "argmax", "--target", "gfx90a,gfx1100,gfx1201"]


@pytest.fixture(scope="module")
def some() -> Limited:
    need("clang")
    return api_compare.limited(["wave", "exchange"], "argmax", target=["gfx90a", "gfx1100", "gfx1201"])


def rows_of(found: Limited, **wanted: Any) -> list[Any]:
    return [row for row in found.rows if {"target": row.target, **row.choice}.items() >= wanted.items()]


def test_every_choice_on_every_target_is_a_row(some: Limited) -> None:
    some.check()
    assert some.targets == ("gfx90a", "gfx1100", "gfx1201")
    for target in some.targets:
        rows = rows_of(some, target=target)
        assert len({tuple(row.choice.items()) for row in rows}) == len(rows) == 2 * len(choices("exchange"))
        there = [row for row in rows if row.taken]
        assert [row.rank for row in there] == sorted(row.rank for row in there)
        assert there[0].rank == 1


def test_waves_are_those_of_the_hardware(some: Limited) -> None:
    """CDNA has one size, and a narrow tail is a part of it; RDNA is compiled for the one that is asked for."""
    sizes = {
        (row.target, row.choice["wave"]): row.taken.wavefront_size
        for row in some.rows
        if row.choice["exchange"] == "shuffle"
    }
    assert {sizes["gfx90a", 32], sizes["gfx90a", 64]} == {64}
    for target in ("gfx1100", "gfx1201"):
        assert (sizes[target, 32], sizes[target, 64]) == (32, 64)
        assert [row.note for row in rows_of(some, target=target, exchange="shuffle", wave=64)] == [UNSUPPORTED]
    assert all(row.note == "" for row in rows_of(some, target="gfx90a"))


def test_a_choice_that_cannot_be_is_a_row_with_its_reason(some: Limited) -> None:
    for row in rows_of(some, exchange="redux"):
        assert row.taken is None
        assert row.config is None
        assert row.verdict.startswith("refused: ")
    (idle,) = rows_of(some, target="gfx1100", exchange="lds", wave=64)
    assert "wave 64 has no effect" in idle.verdict


def test_what_the_code_holds(some: Limited) -> None:
    for row in some.rows:
        if not row.taken:
            continue
        assert row.reading.widest_load == 128, row
        assert row.reading.counts_down, row
        assert row.reading.fences <= 1, row
        assert (row.taken.scratch_bytes, row.taken.vgpr_spills, row.taken.sgpr_spills) == (0, 0, 0), row
        assert row.bytes_in_flight == row.config.items * row.config.vector * 4 * row.held.threads
        through_shuffles = row.reading.lanes["bpermute"] > 0
        assert through_shuffles == (row.choice["exchange"] == "shuffle"), row
        assert row.reading.barriers >= 1


def test_rdna_is_compiled_in_both_sizes_where_no_wave_was_asked_for() -> None:
    need("clang")
    found = api_compare.limited(["hint"], "max", target=["gfx1100"], fix={"exchange": "shuffle"})
    plain = [row.taken.wavefront_size for row in rows_of(found, hint="none") if row.taken]
    assert sorted(plain) == [32, 64]
    assert len(rows_of(found, hint="no_allocate")) == 1, "one reason is enough"
    found = api_compare.limited(["exchange"], "max", target=["gfx1100"], fix={"wave": 64})
    assert [row.taken.wavefront_size for row in rows_of(found, exchange="shuffle") if row.taken] == [64]


def test_a_target_that_the_compiler_does_not_know_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    need("clang")
    monkeypatch.setitem(TARGETS, "gfx999f", TARGETS["gfx90a"])
    found = api_compare.limited(["exchange"], "max", target=["gfx999f"], fix={"wave": 64})
    assert any("has no target gfx999f" in row.verdict for row in found.rows)
    with pytest.raises(RedtuneError, match=r"no choice compiled: .*gfx999f"):
        found.check()


def shown(monkeypatch: pytest.MonkeyPatch, found: Limited, *more: str) -> int:
    """The command, with what it would find."""
    monkeypatch.setattr(api_compare, "limited", lambda *arguments, **options: found)
    return main([*ASKED, *more])


def test_the_tables(some: Limited, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(monkeypatch, some) == 0
    out = capsys.readouterr().out
    flat = " ".join(out.split())
    for words in (NO_CLAIM, "VGPRs", "hw", "tail", "KiB/CU", "loads, bits", "waits", "bperm", "dpp", UNSUPPORTED,
                  "is an NVIDIA instruction", "of grid", "argmax of 268435456 float32"):  # fmt: skip
        assert words in flat, words
    assert all(len(line) <= 110 for line in out.splitlines())


def test_the_document(some: Limited, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(monkeypatch, some, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["knob"] == "wave,exchange"
    assert document["is_timed"] is False
    assert len(document["rows"]) == len(some.rows)
    row = document["rows"][0]
    assert {"target", "wave", "exchange", "rank", "hardware_wave", "tail", "vgprs", "limited_by", "verdict"} <= set(row)
    assert row["loads"]["128"] >= 4
    assert row["waits"] == list(some.rows[0].reading.waits)  # type: ignore[union-attr]
    assert row["config"]["exchange"] == row["exchange"]


def test_the_file_of_values(some: Limited, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert shown(monkeypatch, some, "--csv", str(tmp_path / "x.csv")) == 0
    rows = list(csv.DictReader((tmp_path / "x.csv").open()))
    assert [row["target"] for row in rows] == [row.target for row in some.rows]
    assert rows[0]["rank"] == "1"


def test_the_frame(some: Limited, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_compare, "limited", lambda *arguments, **options: some)
    frame = redtune.compare(["wave", "exchange"], "argmax", target="gfx90a,gfx1100,gfx1201")
    assert {"target", "config", "vgprs"} <= set(frame.columns)
    assert len(frame) == len(some.rows)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--target", "gfx1101"], "there is no target 'gfx1101': did you mean 'gfx1201'?"),
        (["--target", "gfx1100", "--device", "0"], "--device is for choices that run here"),
        (["--target", "gfx1100", "--trials", "3"], "--trials is for choices that run here"),
        (["--target", "gfx1100", "--time-limit", "3s"], "--time-limit is for choices that run here"),
        (["--target", "gfx1100", "--warm"], "--cold and --warm are for choices that run here"),
        (["--target", "gfx1100", "--seed", "1"], "--seed is for choices that run here"),
        (["--target", "gfx1100", "--aa"], "--aa is for choices that run here"),
        (["--target", "gfx1100", "--plot", "x.png"], "--plot is for choices that run here"),
        (["--target", "gfx1100", "--backend", "cuda"], "leave out the backend cuda, or name hip"),
        (["--target", "gfx1100", "--fix", "wave=32"], "wave is compared, so that it cannot be fixed at 32"),
        (["--target", "gfx1100", "--csv", "/nowhere/x.csv"], "/nowhere/x.csv cannot be written"),
    ],
)
def test_what_makes_no_sense_is_said_in_a_sentence(
    more: list[str], sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if "--csv" in more:
        monkeypatch.setattr(
            api_compare, "limited", lambda *a, **o: Limited(problem(), (), (), "", (Limits("gfx1100", {}),))
        )
    assert main(["compare", "wave", "--op", "max", *more]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert len(said.splitlines()) == 1


def test_no_target_at_all() -> None:
    with pytest.raises(UsageError, match="there is no target to compile for: choose from gfx90a"):
        api_compare.limited(["wave"], "max", target=[])


def test_no_compiler_names_the_packages(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(amdgpu, "ROCM_GLOB", "no-such-folder")
    assert main(["compare", "wave", "--op", "max", "--target", "gfx1100"]) == 1
    assert "apt install clang-19 lld-19 rocm-device-libs libamdhip64-dev" in capsys.readouterr().err


def test_no_objdump_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(amdgpu, "ROCM_GLOB", "no-such-folder")
    monkeypatch.setattr(amdgpu, "_roots", lambda compiler: [])
    with pytest.raises(amdgpu.ToolMissing, match=r"llvm-objdump .*llvm-19"):
        amdgpu.disassemble(b"")


def test_what_is_no_code_object_has_no_instructions() -> None:
    need("clang")
    with pytest.raises(RedtuneError, match="could not read the code object"):
        amdgpu.disassemble(b"not an ELF file")
