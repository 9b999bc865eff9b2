"""A device kept busy."""

from __future__ import annotations

import threading
import time

import pytest

from redtune.load import kept_busy


def test_turns_go_on_for_as_long_as_the_block() -> None:
    turns = threading.Semaphore(0)

    def turn() -> None:
        time.sleep(0.01)
        turns.release()

    with kept_busy(turn):
        assert turns.acquire(blocking=False), "one turn is over before the block begins"
        for _ in range(20):
            assert turns.acquire(timeout=10)
    while turns.acquire(blocking=False):
        pass
    assert not turns.acquire(timeout=0.05), "none begins after it"


def test_a_load_that_fails_is_no_load() -> None:
    count = 0

    def fails_late() -> None:
        nonlocal count
        count += 1
        if count > 3:
            raise OSError("lost")

    def fails() -> None:
        raise OSError("lost")

    for turn in (fails, fails_late):
        with pytest.raises(OSError, match="lost"), kept_busy(turn):
            threading.Event().wait(0.05)


def test_the_load_ends_when_the_block_fails() -> None:
    before = threading.active_count()
    with pytest.raises(KeyError), kept_busy(lambda: None):
        raise KeyError
    assert threading.active_count() == before
