"""A worker process seen from the parent: asked with a time limit, killed when it overruns, replaced when it is gone."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from typing import Any

from redtune.errors import BackendMissing, RedtuneError, UsageError
from redtune.worker import command

KINDS = {"BackendMissing": BackendMissing, "UsageError": UsageError}


class WorkerDied(RedtuneError):
    """The process ended in the middle of a job; the text says how."""


class WorkerTimedOut(RedtuneError):
    """The job overran its limit and the process was killed."""


class WorkerProcess:
    """One worker. Starts at the first question, and anew after it died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: Any = None
        self._pending = b""
        self._is_retired = False
        self.generation = 0  # how often a process was started: state held in the old one is gone

    def _start(self) -> subprocess.Popen[bytes]:
        arguments, extra = command()
        path = os.pathsep.join(filter(None, (extra["PYTHONPATH"], os.environ.get("PYTHONPATH"))))
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is for the parent, which ends its workers in order
        )
        assert process.stdin is not None and process.stdout is not None
        os.set_blocking(process.stdin.fileno(), False)
        os.set_blocking(process.stdout.fileno(), False)
        self._pending = b""
        self.generation += 1
        self._process = process
        return process

    def is_alive(self) -> bool:
        """Whether a process is there to hold state."""
        return self._process is not None and self._process.poll() is None

    def ensure(self) -> int:
        """Starts a process if there is none; the number of the one there is."""
        if self._is_retired:
            raise WorkerDied("the search is over")
        if not self.is_alive():
            self.kill()
            self._start()
        return self.generation

    def ask(self, job: str, limit_s: float, wants: str = "", **arguments: Any) -> dict[str, Any]:
        """The answer to a job, which holds the field `wants` if one is named. Raises WorkerTimedOut, WorkerDied, or the
        error that the worker reports.
        """
        self.ensure()
        line = json.dumps({"job": job, "limit_s": limit_s, **arguments}).encode() + b"\n"
        said = self._exchange(line, time.monotonic() + limit_s, limit_s)
        if "error" in said:
            raise KINDS.get(said["kind"], RedtuneError)(said["error"])
        if "crashed" in said:
            self.kill()
            raise WorkerDied(said["crashed"])
        if wants and wants not in said:
            self.kill()
            raise WorkerDied(f"the worker answered {str(said)[:80]!r} to {job}, without {wants}")
        return said

    def _exchange(self, line: bytes, deadline: float, limit_s: float) -> dict[str, Any]:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            ready.register(process.stdin, selectors.EVENT_WRITE)
            while b"\n" not in self._pending:
                left = deadline - time.monotonic()
                if left <= 0:
                    self.kill()
                    raise WorkerTimedOut(f"no answer within {limit_s:g} s")
                for key, _ in ready.select(left):
                    if key.fileobj is process.stdout:
                        piece = os.read(process.stdout.fileno(), 1 << 20)
                        if not piece:
                            raise WorkerDied(self._obituary())
                        self._pending += piece
                        continue
                    try:
                        line = line[os.write(process.stdin.fileno(), line) :]
                    except BlockingIOError:
                        continue
                    except BrokenPipeError:
                        raise WorkerDied(self._obituary()) from None
                    if not line:
                        ready.unregister(process.stdin)
        first, _, self._pending = self._pending.partition(b"\n")
        try:
            return dict(json.loads(first))
        except (ValueError, TypeError):
            self.kill()
            raise WorkerDied(f"the worker answered {first[:80]!r}, which is not an answer") from None

    def _obituary(self) -> str:
        """How the process ended, in one line."""
        assert self._process is not None
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        self.kill()
        how = _signal_name(-code) if code < 0 else f"exit code {code}"
        return f"the process ended with {how}" + (f": {said[-1].strip()[:200]}" if said else "")

    def retire(self) -> None:
        """Ends the process and starts no other, whatever a thread may still ask."""
        self._is_retired = True
        self.kill()

    def kill(self) -> None:
        """Ends the process, whatever it is doing."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, self._errors):
            if pipe is not None:
                pipe.close()


def _signal_name(number: int) -> str:
    try:
        return f"signal {signal.Signals(number).name}"
    except ValueError:  # real-time signals have no name
        return f"signal {number}"
