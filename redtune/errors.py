"""What redtune raises. The texts are for users: one or two sentences that say what, which value, what is allowed."""

from __future__ import annotations


class RedtuneError(Exception):
    """Anything redtune reports to its user; the work failed."""


class UsageError(RedtuneError, ValueError):
    """The request itself is wrong: an unknown name, a size that makes no sense, a value that is refused."""


class BackendMissing(RedtuneError):
    """A backend, its driver or its device is not there; the text says what to install."""


class CompileError(RedtuneError):
    """A kernel did not compile. Carries the compiler's log and the source it read."""

    def __init__(self, log: str, source: str) -> None:
        lines = [line.strip() for line in log.splitlines() if line.strip()]
        first_error = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")
        super().__init__(first_error or "the compiler gave no log")
        self.log = log
        self.source = source

    def numbered_source(self) -> str:
        """The source with line numbers, to read the log against."""
        return "\n".join(f"{i:4d}  {line}" for i, line in enumerate(self.source.splitlines(), 1))


class DtypeError(UsageError, TypeError):
    """A dtype that has no meaning here; a TypeError too, as numpy has it."""


def printable(text: str) -> str:
    """The text with a mark for every character that is none to read: it may come from a file, and steer a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def in_a_line(error: Exception) -> str:
    """The first line of what an error says, or its kind where it says nothing."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return printable(lines[0][:200])
