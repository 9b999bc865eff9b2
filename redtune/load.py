"""A device kept busy: what is repeatable only as long as nothing else runs shows when something does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

TOGETHER = 8  # calls that are handed over at once, so that the device does not wait for the next one


@contextmanager
def kept_busy(turn: Callable[[], None]) -> Iterator[None]:
    """Runs `turn` over and over in a thread of its own while the block runs, and once before it. Raises what a turn
    raised: from then on there was no load."""
    began, over = threading.Event(), threading.Event()

    def turns() -> None:
        while not over.is_set():
            turn()
            began.set()

    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(turns)
        load.add_done_callback(lambda _: began.set())
        try:
            began.wait()
            yield
        finally:
            over.set()
            load.result()
