"""A worker process that dies, hangs or talks nonsense costs one job, and none outlives its parent."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from redtune.errors import BackendMissing, RedtuneError, UsageError
from redtune.process import WorkerDied, WorkerProcess, WorkerTimedOut
from redtune.worker import PARENT_VARIABLE

ROOT = Path(__file__).parents[2]

# Answers each job by doing what its name says.
SCRIPT = """
import ctypes, json, os, signal, subprocess, sys, time

def say(text):
    sys.stdout.write(text)
    sys.stdout.flush()

for line in sys.stdin:
    job = json.loads(line)
    name = job["job"]
    if name == "echo":
        say(json.dumps({"pid": os.getpid(), "size": len(line)}) + "\\n")
    elif name == "exit":
        sys.stderr.write("first\\nlast words\\n")
        sys.stderr.flush()
        os._exit(job["code"])
    elif name == "segfault":
        ctypes.string_at(8)
    elif name == "signal":
        os.kill(os.getpid(), job["number"])
        time.sleep(600)
    elif name == "hang":
        say(json.dumps({"half": 1})[:5])
        time.sleep(600)
    elif name == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    elif name == "say":
        say(job["text"])
    elif name == "child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        say(json.dumps({"child": child.pid}) + "\\n")
    elif name == "noise":
        sys.stderr.write("x" * 5_000_000)
        sys.stderr.flush()
        say(json.dumps({"much": "y" * 5_000_000}) + "\\n")
"""
PATIENCE_S = 60  # a limit that a loaded machine does not reach by itself


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerProcess]:
    monkeypatch.setattr("redtune.process.command", lambda: ([sys.executable, "-c", SCRIPT], {"PYTHONPATH": ""}))
    worker = WorkerProcess()
    yield worker
    worker.kill()


def is_running(pid: int) -> bool:
    """Whether a process does anything still; one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def until(condition: Callable[[], bool], limit_s: float = 30.0) -> bool:
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def pid_of(worker: WorkerProcess) -> int:
    pid = worker.ask("echo", PATIENCE_S)["pid"]
    assert isinstance(pid, int)
    return pid


def test_jobs_go_to_the_same_process(worker: WorkerProcess) -> None:
    assert not worker.is_alive()
    assert pid_of(worker) == pid_of(worker)
    assert worker.generation == worker.ensure() == 1
    assert worker.is_alive()


def test_a_job_larger_than_the_pipe_arrives_whole(worker: WorkerProcess) -> None:
    assert worker.ask("echo", PATIENCE_S, binary="z" * 3_000_000)["size"] > 3_000_000


def test_much_talk_on_both_outputs_blocks_nothing(worker: WorkerProcess) -> None:
    for _ in range(2):
        assert len(worker.ask("noise", PATIENCE_S)["much"]) == 5_000_000


def replaced(worker: WorkerProcess, before: int) -> None:
    """The next job goes to a new process, and the old one is gone."""
    assert not is_running(before)
    generation = worker.generation
    assert pid_of(worker) != before
    assert worker.generation == generation + 1


@pytest.mark.parametrize(
    ("job", "arguments", "how"),
    [
        ("exit", {"code": 3}, "exit code 3: last words"),
        ("exit", {"code": 0}, "exit code 0: last words"),
        ("segfault", {}, "signal SIGSEGV"),
        ("signal", {"number": int(signal.SIGABRT)}, "signal SIGABRT"),
        ("signal", {"number": int(signal.SIGKILL)}, "signal SIGKILL"),
        ("signal", {"number": int(signal.SIGRTMIN) + 5}, "signal"),
    ],
)
def test_a_worker_that_dies_says_how_and_is_replaced(
    worker: WorkerProcess, job: str, arguments: dict[str, int], how: str
) -> None:
    before = pid_of(worker)
    with pytest.raises(WorkerDied) as caught:
        worker.ask(job, PATIENCE_S, **arguments)
    assert how in str(caught.value)
    assert "\n" not in str(caught.value)
    replaced(worker, before)


def test_a_worker_killed_between_jobs_is_replaced(worker: WorkerProcess) -> None:
    before = pid_of(worker)
    os.kill(before, signal.SIGKILL)
    assert until(lambda: not is_running(before))
    replaced(worker, before)


@pytest.mark.parametrize("job", ["hang", "deaf"])
def test_a_worker_that_hangs_is_killed_and_replaced(worker: WorkerProcess, job: str) -> None:
    before = pid_of(worker)
    with pytest.raises(WorkerTimedOut, match=r"no answer within 0\.5 s"):
        worker.ask(job, 0.5)
    replaced(worker, before)


@pytest.mark.parametrize("text", ["garbage\n", "\n", "[1]\n", "17\n", '"text"\n', "null\n", "{\n", "\udcff\n"])
def test_an_answer_that_is_none_ends_the_worker(worker: WorkerProcess, text: str) -> None:
    before = pid_of(worker)
    with pytest.raises(WorkerDied):
        worker.ask("say", PATIENCE_S, text=text)
    replaced(worker, before)


@pytest.mark.parametrize(
    ("kind", "raised"), [("UsageError", UsageError), ("BackendMissing", BackendMissing), ("Other", RedtuneError)]
)
def test_an_error_that_the_worker_reports_is_raised_and_the_worker_stays(
    worker: WorkerProcess, kind: str, raised: type[RedtuneError]
) -> None:
    before = pid_of(worker)
    with pytest.raises(raised, match="no such thing") as caught:
        worker.ask("say", PATIENCE_S, text=f'{{"error": "no such thing", "kind": "{kind}"}}\n')
    assert type(caught.value) is raised
    assert pid_of(worker) == before


def test_a_worker_that_says_it_is_unfit_is_replaced(worker: WorkerProcess) -> None:
    before = pid_of(worker)
    with pytest.raises(WorkerDied, match="the context is poisoned"):
        worker.ask("say", PATIENCE_S, text='{"crashed": "the context is poisoned"}\n')
    replaced(worker, before)


def test_kill_may_come_at_any_time(worker: WorkerProcess) -> None:
    worker.kill()
    before = pid_of(worker)
    worker.kill()
    worker.kill()
    assert not is_running(before)
    assert not worker.is_alive()
    replaced(worker, before)


def test_a_command_that_cannot_start_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redtune.process.command", lambda: ([sys.executable, "-c", "1/0"], {"PYTHONPATH": ""}))
    worker = WorkerProcess()
    with pytest.raises(WorkerDied, match="ZeroDivisionError"):
        worker.ask("echo", PATIENCE_S)


# A parent with the real worker, which is idle or in a job that never ends.
PARENT = '''
import sys, threading, time
from redtune import process

HANG = """
import time
from redtune import worker
worker.Station.hang = lambda self, job: time.sleep(600)
worker.main()
"""
command = process.command()
process.command = lambda: ([sys.executable, "-c", HANG], command[1])
worker = process.WorkerProcess()
worker.ensure()
if {is_busy}:
    threading.Thread(target=lambda: worker.ask("hang", 600), daemon=True).start()
    time.sleep(1)
print(worker._process.pid, flush=True)
time.sleep(600)
'''


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
def test_no_worker_outlives_its_parent(is_busy: bool) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(is_busy=is_busy)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert is_running(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert until(lambda: not is_running(pid))


def test_a_retired_worker_starts_no_more(worker: WorkerProcess) -> None:
    worker.ensure()
    worker.retire()
    assert not worker.is_alive()
    with pytest.raises(WorkerDied):
        worker.ask("anything", 5.0)
    assert not worker.is_alive()


# --- what is left behind ----------------------------------------------------------------------------------------------


def test_what_a_worker_has_started_ends_with_it(worker: WorkerProcess) -> None:
    child = worker.ask("child", PATIENCE_S)["child"]
    assert is_running(child)
    worker.kill()
    assert until(lambda: not is_running(child))


# A worker in a job that never ends, with a process that it has started.
BUSY = """
import subprocess, sys, time
from redtune import worker

def hang(self, job):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=subprocess.DEVNULL)
    print(child.pid, file=sys.stderr, flush=True)
    time.sleep(600)

worker.Station.hang = hang
worker.main()
"""
JOB = b'{"job": "hang", "limit_s": 600}\n'


def busy_worker(parent: int) -> subprocess.Popen[bytes]:
    """The real worker, told who has started it, with a job that never ends in its pipe."""
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), PARENT_VARIABLE: str(parent)},
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(JOB)
    process.stdin.flush()
    return process


def test_a_worker_whose_parent_was_gone_before_it_looked_ends_with_all_it_has_started() -> None:
    """It takes a while to start, and a kill may come in that while."""
    process = busy_worker(2**22 + 1)
    try:
        assert process.wait(30) == -signal.SIGKILL
    finally:
        process.kill()
        _, said = process.communicate()
    for child in map(int, said.split()):
        assert until(lambda child=child: not is_running(child))  # type: ignore[misc]


def test_a_worker_ended_by_another_thread_is_not_waited_for(worker: WorkerProcess) -> None:
    worker.ensure()
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            worker.ask("hang", 600)
        except RedtuneError as error:
            failed.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(0.3)
    worker.retire()
    asking.join(10)
    assert not asking.is_alive()
    assert [type(error) for error in failed] == [WorkerDied]


def test_a_worker_retired_while_it_starts_is_gone(worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    original = subprocess.Popen

    def start(*arguments: Any, **options: Any) -> Any:
        started.append(original(*arguments, **options))
        worker.retire()
        return started[0]

    monkeypatch.setattr("redtune.process.subprocess.Popen", start)
    with pytest.raises(WorkerDied, match="the search is over"):
        worker.ask("echo", PATIENCE_S)
    assert started[0].returncode == -signal.SIGKILL


def test_an_answer_that_makes_no_sense_ends_the_worker(worker: WorkerProcess) -> None:
    before = pid_of(worker)
    with pytest.raises(WorkerDied, match="which makes no sense"):
        worker.read("echo", PATIENCE_S, "size", lambda said: said["size"]["width"])
    replaced(worker, before)


@pytest.mark.parametrize("what", ["no such program", "no place for its words", "too many processes"])
def test_a_worker_that_cannot_start_is_one_sentence(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    if what == "no such program":
        monkeypatch.setattr("redtune.process.command", lambda: (["/no/such/python"], {"PYTHONPATH": ""}))
    elif what == "too many processes":
        monkeypatch.setattr("redtune.process.subprocess.Popen", refuse)
    else:
        monkeypatch.setattr("redtune.process.tempfile.TemporaryFile", refuse)
    with pytest.raises(WorkerDied, match="no process could be started") as caught:
        WorkerProcess().ask("echo", PATIENCE_S)
    assert len(str(caught.value).splitlines()) == 1
