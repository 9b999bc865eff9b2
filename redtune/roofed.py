"""What a person and a program see of a roofline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from redtune.arithmetic import DTYPES, STEPS
from redtune.ceilings import Roofline, Stand
from redtune.plan import read_bytes
from redtune.terminal import console, in_brief
from redtune.types import as_json
from redtune.written import writing

if TYPE_CHECKING:
    import pandas

SHOWN_EQUAL = ("int8", "float16", "float32", "float64")
LEGEND = (
    "ceilings in 10^9 operations a second; a ridge is where one meets the read ceiling, in operations a byte. "
    "op/el: operations of an element as the operator's entry has them; op/B: of a byte; ceiling: of this mix of "
    "operations; attainable: the slower of reading and computing; winner: the stored config for the largest size, with "
    "what was measured when it was found; of it: of the attainable, with the read ceiling of those same rounds."
)


def cells(stand: Stand) -> dict[str, Any]:
    """A row as plain values by column: None where there is none. Rates are in 10^9 bytes or operations a second."""
    best = stand.best
    return {
        "op": stand.problem.op,
        "dtype": stand.problem.dtype,
        "operations": stand.operations,
        "bytes": stand.bytes,
        "intensity": stand.intensity,
        "ceiling_gops": stand.ceiling_gops,
        "attainable_gbps": stand.attainable_gbps,
        "bound": stand.bound,
        "winner": stand.whose or None,
        "winner_bytes": read_bytes(best.problem) if best else None,
        "winner_gbps": best.gbps if best else None,
        "fraction": stand.fraction,
    }


def roofline_frame(found: Roofline) -> pandas.DataFrame:
    """The operators as a pandas DataFrame; `.attrs` holds the ceilings and what a launch costs."""
    import pandas

    frame = pandas.DataFrame([cells(stand) for stand in found.stands]).convert_dtypes()
    document = roofline_json(found)
    frame.attrs.update({name: document[name] for name in ("device", "ceilings", "launch")})
    return frame


def roofline_json(found: Roofline) -> dict[str, Any]:
    """The document of --json."""
    return {
        "device": as_json(found.device),
        "ceilings": {
            "bytes": found.bytes,
            "read_gbps": found.read_gbps,
            "copy_gbps": found.copy_gbps,
            "arithmetic": [as_json(roof) for roof in found.roofs],
        },
        "launch": as_json(found.launching),
        "rows": [cells(stand) | {"best": as_json(stand.best)} for stand in found.stands],
    }


def write_csv(found: Roofline, path: str) -> None:
    """The operators as a CSV file. Raises UsageError where it cannot be written."""
    with writing(path):
        roofline_frame(found).to_csv(path, index=False)


def show_roofline(found: Roofline) -> None:
    """Two tables, the ceilings and the operators, and what a launch costs."""
    out = console()
    out.print(_ceilings(found))
    for reason in dict.fromkeys(roof.absent for roof in found.roofs if roof.absent):
        which = ", ".join(f"{roof.name} of {roof.dtype}" for roof in found.roofs if roof.absent == reason)
        out.print(f"{which}: absent: {reason}")
    out.print(_operators(found))
    out.print(LEGEND, highlight=False)
    launch = found.launching
    out.print(
        f"launch: {launch.empty_us:.2f} us for a kernel that does nothing, {launch.smallest_us:.2f} us for the "
        f"smallest reduction ({in_brief(launch.smallest)}),",
        highlight=False,
    )
    equal = ", ".join(f"{launch.n_equal[name]} {name}" for name in SHOWN_EQUAL)
    out.print(f"in which the device reads {equal}: below that, a reduction is mostly launch.", highlight=False)
    if not any(stand.best for stand in found.stands):
        out.print(
            "no winner: nothing of this is tuned on this device yet: redtune search --ops sum,max", highlight=False
        )


def _ceilings(found: Roofline) -> Table:
    device = found.device
    title = (
        f"The roofline of {device.name} ({device.backend}): reads {found.read_gbps:.1f} GB/s, copies "
        f"{found.copy_gbps:.1f} GB/s, cold"
    )
    table = Table("computes in", title=title)
    for name in STEPS:
        table.add_column(name, justify="right")
        table.add_column("ridge", justify="right")
    for dtype in DTYPES:
        row = [dtype]
        for name in STEPS:
            roof = found.roof(name, dtype)
            row += [_rate(roof.gops), f"{roof.ridge:.2f}"] if roof else ["-", "-"]
        table.add_row(*row)
    return table


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def _operators(found: Roofline) -> Table:
    headings = ("op/el", "op/B", "ceiling Gop/s", "attainable GB/s", "bound by", "winner", "bytes", "GB/s", "of it")
    table = Table("operator", "dtype", *headings, title="Where operators stand", padding=(0, 0))
    for column, heading in zip(table.columns[2:], headings, strict=True):
        column.justify = "left" if heading in ("bound by", "winner") else "right"
    for stand in found.stands:
        best, fraction = stand.best, stand.fraction
        table.add_row(
            stand.problem.op,
            stand.problem.dtype,
            str(stand.operations),
            f"{stand.intensity:.3g}",
            _rate(stand.ceiling_gops),
            _rate(stand.attainable_gbps),
            stand.bound,
            stand.whose or "-",
            _power(read_bytes(best.problem)) if best else "-",
            _rate(best.gbps) if best else "-",
            f"{fraction:.1%}" if fraction else "-",
        )
    return table


def _power(size: int) -> str:
    return f"2^{size.bit_length() - 1}" if size & (size - 1) == 0 else f"{size:.3g}"
