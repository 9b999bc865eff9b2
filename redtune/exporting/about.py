"""What an export says of itself, in words."""

from __future__ import annotations

from dataclasses import dataclass

from redtune.exporting.variants import Export, Variant, plain_arch
from redtune.render import templates_digest
from redtune.types import Best


@dataclass(frozen=True, slots=True)
class About:
    """The sentences of an export's files."""

    export: Export

    @property
    def takes(self) -> str:
        """The input in words."""
        two = "two arrays" if self.export.op.inputs > 1 else "an array"
        return {
            "flat": f"{two} of n elements",
            "rows": f"{two} of outer rows, each of n elements",
            "columns": f"{two} of outer x n x inner elements",
        }[self.export.problem.layout]

    @property
    def reduces(self) -> str:
        """What the function does, in words."""
        op = self.export.problem.op
        return {
            "flat": f"The {op} of n elements goes to out[0].",
            "rows": f"The {op} of each row of n elements goes to out: outer results.",
            "columns": f"The {op} of n elements goes to out, for each outer and inner: outer x inner results.",
        }[self.export.problem.layout]

    @property
    def determinism(self) -> str:
        """What is known of repeated runs."""
        if self.export.problem.determinism == "run-to-run":
            asked = "run-to-run was asked for: the same input gives the same bits on every run of a device"
        else:
            asked = "any order of the additions was allowed"
        seen = {v.best.determinism for v in self.export.variants if v.best is not None}
        if not seen:
            return f"{asked}; no runs were compared"
        return f"{asked}; repeated runs showed {' and '.join(sorted(seen))}"

    @property
    def counts(self) -> bool:
        """Whether any kernel counts its blocks in the workspace."""
        return any(variant.numbers["counter"] for variant in self.export.variants)

    def arch_index(self, variant: Variant) -> int:
        """Which of the export's architectures a variant is for."""
        return self.export.archs.index(plain_arch(variant.device))

    @property
    def starts_early(self) -> bool:
        """Whether a launch may start before the one in front of it has ended."""
        return any(variant.numbers["is_second_early"] for variant in self.export.variants)

    def size(self, variant: Variant, name: str) -> int:
        """One of the sizes that a variant was tuned for."""
        return int(getattr(variant.problem, name))

    @property
    def names(self) -> tuple[str, ...]:
        """The sizes that an array of this layout has."""
        return {"flat": ("n",), "rows": ("outer", "n"), "columns": ("outer", "n", "inner")}[self.export.problem.layout]

    def sizes(self, variant: Variant) -> str:
        """The sizes that a variant was tuned for."""
        return " x ".join(str(self.size(variant, name)) for name in self.names)

    def classes(self, variant: Variant) -> list[int]:
        """Their powers of two, rounded up."""
        n, outer, inner = variant.sizes
        return [{"n": n, "outer": outer, "inner": inner}[name] for name in self.names]

    def tuned_for(self, variant: Variant) -> str:
        """The architecture and the sizes of a variant."""
        return f"{plain_arch(variant.device)}, {self.sizes(variant)} elements"

    def measured(self, variant: Variant) -> list[str]:
        """The evidence of a variant."""
        best = variant.best
        if best is None:
            return ["This config was not measured: no search has compared it with others."]
        share = f", {100 * best.gbps / best.ceiling_gbps:.1f} % of the read ceiling" if best.ceiling_gbps else ""
        lines = [
            f"Measured {best.found[:10]} on {best.device.name} ({best.device.arch}), driver {best.device.driver}, "
            f"{best.device.toolchain}:",
            f"{best.median_us:.2f} us, spread {best.spread_us:.2f} us, {best.gbps:.1f} GB/s {best.temperature}{share}, "
            f"the best of {best.trials} trials with seed {best.seed}.",
        ]
        if best.templates != templates_digest():
            lines.append("The kernel's text has changed since then.")
        return lines + _beside(best)

    def stored(self, variant: Variant) -> str:
        """The speed that the search has measured, to stand beside another figure."""
        return f" (the search: {variant.best.gbps:.1f} GB/s)" if variant.best is not None else ""

    def workspace(self, variant: Variant) -> str:
        """What a kernel keeps in its workspace."""
        numbers = variant.numbers
        parts = ["a counter of blocks, which launches leave at zero"] * bool(numbers["counter"])
        parts += ["what blocks leave for each other"] * numbers["has_partials"]
        return " and ".join(parts) or "nothing in it: a byte, so that it is none of nullptr"


def _beside(best: Best) -> list[str]:
    """Figures of the same search to compare with."""
    rows = [("the default config", best.default_us), (best.baseline, best.baseline_us)]
    found = [f"{name} {time_us:.2f} us" for name, time_us in rows if time_us]
    return [f"Beside it: {', '.join(found)}."] if found else []
