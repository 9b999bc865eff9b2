"""What a person and a program see of the limits of choices on GPUs that are not here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from redtune.comparing import words
from redtune.config import is_read
from redtune.instructions import LANE_KINDS
from redtune.limits import RANKED_BY, UNSUPPORTED, Limited, Limits
from redtune.terminal import console, in_brief, in_words
from redtune.types import as_json
from redtune.written import writing

if TYPE_CHECKING:
    import pandas

NO_CLAIM = f"ranked by {RANKED_BY}; nothing was timed: no claim about speed"
Write = Callable[[dict[str, Any]], str]


def cells(row: Limits) -> dict[str, Any]:
    """A row as plain values by column: empty where there is none."""
    taken, held, seen = row.taken, row.held, row.reading
    is_there = taken is not None and held is not None and seen is not None
    values = dict.fromkeys(COLUMNS)
    if is_there:
        assert taken and held and seen and row.config  # for the type checker: they are there together
        values |= {
            "rank": row.rank,
            "hardware_wave": taken.wavefront_size,
            "tail": row.config.wave if is_read("wave", row.config) else None,
            "vgprs": taken.vgprs,
            "agprs": taken.agprs,
            "sgprs": taken.sgprs,
            "lds_bytes": taken.lds_bytes,
            "vgpr_spills": taken.vgpr_spills,
            "sgpr_spills": taken.sgpr_spills,
            "scratch_bytes": taken.scratch_bytes,
            "waves_per_simd": held.waves,
            "limited_by": held.limited_by,
            "waves_of_grid": held.resident,
            "bytes_in_flight_per_cu": row.bytes_in_flight,
            "widest_load_bits": seen.widest_load,
            "loads": " ".join(f"{count}x{bits}" for bits, count in seen.loads.items()),
            "waits": " ".join(map(str, seen.waits)),
            "counts_down": seen.counts_down,
            "loads_in_flight": seen.loads_in_flight,
            **seen.lanes,
            "lds_reads": seen.lds_reads,
            "lds_writes": seen.lds_writes,
            "barriers": seen.barriers,
            "fences": seen.fences,
            "invalidations": seen.invalidations,
            "write_backs": seen.write_backs,
        }
    return {"target": row.target, **row.choice, **values, "note": row.note, "verdict": row.verdict}


COLUMNS = (
    *("rank", "hardware_wave", "tail", "vgprs", "agprs", "sgprs", "lds_bytes", "vgpr_spills", "sgpr_spills"),
    *("scratch_bytes", "waves_per_simd", "limited_by", "waves_of_grid", "bytes_in_flight_per_cu"),
    *("widest_load_bits", "loads", "waits", "counts_down", "loads_in_flight", *LANE_KINDS),
    *("lds_reads", "lds_writes", "barriers", "fences", "invalidations", "write_backs"),
)


def limits_frame(found: Limited) -> pandas.DataFrame:
    """The rows as a pandas DataFrame, with the config of each in a column of its own."""
    import pandas

    # Whole numbers stay whole beside rows that have none.
    return pandas.DataFrame([{**cells(row), "config": row.config} for row in found.rows]).convert_dtypes()


def limits_json(found: Limited) -> dict[str, Any]:
    """The document of --json."""
    return {
        "knob": ",".join(found.knobs),
        "problem": as_json(found.problem),
        "targets": list(found.targets),
        "compiler": found.compiler,
        "ranked_by": RANKED_BY,
        "is_timed": False,
        "rows": [_row_json(row) for row in found.rows],
    }


def _row_json(row: Limits) -> dict[str, Any]:
    """A row of the document: what a table writes in one cell is a list or an object here."""
    lists: dict[str, Any] = {}
    if row.reading is not None:
        lists = {"loads": {str(bits): n for bits, n in row.reading.loads.items()}, "waits": list(row.reading.waits)}
    return {**cells(row), **lists, "config": as_json(row.config) if row.config else None}


def write_csv(found: Limited, path: str) -> None:
    """The rows as a CSV file. Raises UsageError where it cannot be written."""
    with writing(path):
        limits_frame(found).drop(columns="config").to_csv(path, index=False)


def _number(name: str, form: str = "d") -> Write:
    return lambda row: "-" if row[name] is None else format(row[name], form)


def _text(name: str) -> Write:
    return lambda row: row[name] or "-"


def _kib(row: dict[str, Any]) -> str:
    return "-" if row["bytes_in_flight_per_cu"] is None else f"{row['bytes_in_flight_per_cu'] / 1024:g}"


def _spills(row: dict[str, Any]) -> str:
    return "-" if row["vgprs"] is None else str(row["vgpr_spills"] + row["sgpr_spills"])


# Heading, what is written, and the columns that must hold something for it to be shown.
TAKEN: list[tuple[str, Write, tuple[str, ...]]] = [
    ("VGPRs", _number("vgprs"), ()),
    ("AGPRs", _number("agprs"), ("agprs",)),
    ("SGPRs", _number("sgprs"), ()),
    ("LDS", _number("lds_bytes"), ()),
    ("spills", _spills, ()),
    ("scratch", _number("scratch_bytes"), ("scratch_bytes",)),
    ("waves", _number("waves_per_simd", "g"), ()),
    ("limit", _text("limited_by"), ()),
    ("of grid", _number("waves_of_grid", "g"), ()),
    ("KiB/CU", _kib, ()),
]
SHORT = {"permlane": "plane", "readlane": "rlane", "swizzle": "swizz", "permute": "perm", "bpermute": "bperm"}
WRAPPED = ("loads, bits", "waits")  # lists, which may take several lines where there are many columns
READ: list[tuple[str, Write, tuple[str, ...]]] = [
    ("loads, bits", _text("loads"), ()),
    ("waits", _text("waits"), ()),
    ("peak", _number("loads_in_flight"), ()),
    *((SHORT.get(kind, kind), _number(kind), (kind,)) for kind in LANE_KINDS),
    ("LDS r", _number("lds_reads"), ()),
    ("w", _number("lds_writes"), ()),
    ("bar.", _number("barriers"), ()),
    ("fence", _number("fences"), ("fences",)),
    ("inv", _number("invalidations"), ("invalidations",)),
    ("wb", _number("write_backs"), ("write_backs",)),
]
LEGEND = (
    "hw: lanes that issue together; tail: lanes that meet by themselves; waves: of a SIMD, by what the code takes; "
    "of grid: those that the grid gives it; KiB/CU: under way at once by items x vector x threads.",
    "waits: loads that may still be under way at each wait of the main loop (a count that goes down works on one load "
    "while others come in, 0 alone waits for all); peak: the most under way there.",
)


def show_limits(found: Limited) -> None:
    """Two tables, what the code takes and what it consists of, and what they say."""
    out = console()
    rows = [(row, cells(row)) for row in found.rows]
    title = f"{in_brief(found.problem)} by {found.compiler}: what each choice of {' and '.join(found.knobs)} takes"
    out.print(_table(title, found, rows, TAKEN))
    compiled = [(row, values) for row, values in rows if row.taken]
    out.print(_table("what its code consists of", found, compiled, READ))
    out.print(NO_CLAIM, highlight=False)
    for line in LEGEND:
        out.print(line, highlight=False)
    if any(row.note for row in found.rows):
        out.print(f"hw *: {UNSUPPORTED}", highlight=False)
    for verdict in dict.fromkeys(row.verdict for row in found.rows if row.verdict):
        rest = [row for row in found.rows if row.verdict == verdict]
        targets = ", ".join(dict.fromkeys(row.target for row in rest))
        which = "; ".join(dict.fromkeys(words(row.choice) for row in rest))
        out.print(f"{targets}: {which}: {verdict}", highlight=False)
    for config in dict.fromkeys(row.config for row in found.rows if row.config):
        out.print(f"    {in_words(config, found.problem)}", highlight=False)


def _table(
    title: str,
    found: Limited,
    rows: Sequence[tuple[Limits, dict[str, Any]]],
    columns: Sequence[tuple[str, Write, tuple[str, ...]]],
) -> Table:
    table = Table(title=title, padding=(0, 0))
    shown = [
        (head, write)
        for head, write, needed in columns
        if not needed or any(values[name] for _, values in rows for name in needed)
    ]
    for name in ("target", "#", *found.knobs, "hw", "tail"):
        table.add_column(name, no_wrap=True)
    for head, _ in shown:
        table.add_column(head, justify="right", no_wrap=head not in WRAPPED)
    for k, (row, values) in enumerate(rows):
        table.add_row(
            row.target,
            str(row.rank or "-"),
            *(str(row.choice[name]) for name in found.knobs),
            _number("hardware_wave")(values) + ("*" if row.note else ""),
            _number("tail")(values),
            *(write(values) for _, write in shown),
            end_section=k + 1 < len(rows) and rows[k + 1][0].target != row.target,
        )
    return table
