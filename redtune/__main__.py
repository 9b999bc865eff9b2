"""The `redtune` command and `python -m redtune`."""

from __future__ import annotations

import signal
import sys

INTERRUPTED = 130
# What ends a command as Ctrl-C does: workers are ended, finished trials kept, one line says so.
ENDINGS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def main() -> int:
    """Runs the command line and gives the exit code: 128 and the number of the signal that ended it, if one did."""
    received: list[int] = []

    def end(number: int, frame: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    for number in ENDINGS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, end)
    try:
        from redtune import cli

        code = cli.main(sys.argv[1:])
    except KeyboardInterrupt:
        print("redtune: interrupted", file=sys.stderr)
        code = INTERRUPTED
    return 128 + received[0] if received and code == INTERRUPTED else code


if __name__ == "__main__":
    sys.exit(main())
