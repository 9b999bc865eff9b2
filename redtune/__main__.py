"""The `redtune` command and `python -m redtune`."""

from __future__ import annotations

import sys


def main() -> int:
    """Runs the command line and gives the exit code."""
    from redtune import cli

    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
