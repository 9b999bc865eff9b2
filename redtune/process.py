"""A worker process seen from the parent: asked with a time limit, killed when it overruns, replaced when it is gone."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from redtune.errors import BackendMissing, RedtuneError, UsageError
from redtune.worker import PARENT_VARIABLE, command

LOOK_S = 1.0  # how often one who waits for an answer looks whether the process was taken away
T = TypeVar("T")

KINDS = {"BackendMissing": BackendMissing, "UsageError": UsageError}


class WorkerDied(RedtuneError):
    """The process ended in the middle of a job; the text says how."""


class WorkerTimedOut(RedtuneError):
    """The job overran its limit and the process was killed."""


@dataclass(frozen=True, slots=True)
class Under:
    """What workers run under: what their environment holds besides; and for the one that runs kernels, a command before
    its own, and where it is to be logged."""

    prefix: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    logging: Mapping[str, str] = field(default_factory=dict)

    def for_compilers(self) -> Under:
        """The same for workers that run no kernel."""
        return Under(environment=self.environment)


class WorkerProcess:
    """One worker. Starts at the first question, and anew after it died."""

    def __init__(self, under: Under | None = None) -> None:
        self._under = under or Under()
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: Any = None
        self._pending = b""
        self._is_retired = False
        self.generation = 0  # how often a process was started: state held in the old one is gone

    def _start(self) -> None:
        arguments, extra = command()
        path = os.pathsep.join(filter(None, (extra["PYTHONPATH"], os.environ.get("PYTHONPATH"))))
        try:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
            process = subprocess.Popen(
                [*self._under.prefix, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**os.environ, "PYTHONPATH": path, **self._more_environment()},
                start_new_session=True,  # Ctrl-C is for the parent, which ends its workers in order
            )
        except OSError as error:
            raise WorkerDied(f"no process could be started: {error}") from error
        assert process.stdin is not None and process.stdout is not None
        os.set_blocking(process.stdin.fileno(), False)
        os.set_blocking(process.stdout.fileno(), False)
        self._pending = b""
        self.generation += 1
        self._process = process
        if self._is_retired:  # while it started
            self.kill()
            raise WorkerDied("the search is over")

    def _more_environment(self) -> dict[str, str]:
        # A command before the worker's own is its parent, and ends with this process by itself.
        parent = {} if self._under.prefix else {PARENT_VARIABLE: str(os.getpid())}
        return {**parent, **self._under.environment, **self._under.logging}

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
            raise KINDS.get(str(said.get("kind")), RedtuneError)(str(said["error"]))
        if "crashed" in said:
            self.kill()
            raise WorkerDied(str(said["crashed"]))
        if wants and wants not in said:
            self.kill()
            raise WorkerDied(f"the worker answered {str(said)[:80]!r} to {job}, without {wants}")
        return said

    def read(self, job: str, limit_s: float, wants: str, parse: Callable[[dict[str, Any]], T], **arguments: Any) -> T:
        """What `parse` makes of the answer to a job. A worker whose answer it cannot read has died."""
        said = self.ask(job, limit_s, wants, **arguments)
        try:
            return parse(said)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            self.kill()
            raise WorkerDied(f"the worker answered {str(said)[:80]!r} to {job}, which makes no sense") from error

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
                found = ready.select(min(left, LOOK_S))
                if self._process is not process:
                    raise WorkerDied("the process was ended by another thread")
                for key, _ in found:
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
        # With whatever it has started, such as a compiler: it leads a group of its own.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
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
