# SPDX-License-Identifier: GPL-2.0
"""How long a machine stands still: an emulated processor waits for one of a busy host."""

from __future__ import annotations

import threading
import time

INTERVAL = 0.02


class _Lag(threading.Thread):
    """Sleeps over and over, and adds up by how much too long it slept."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.lost = 0.0
        self.ended = threading.Event()

    def run(self) -> None:
        before = time.monotonic()
        while not self.ended.wait(INTERVAL):
            now = time.monotonic()
            self.lost += max(now - before - 2 * INTERVAL, 0.0)
            before = now


_running: list[_Lag] = []


def start() -> None:
    """Begin to measure."""
    _running.append(_Lag())
    _running[-1].start()


def lost() -> float:
    """The seconds that were lost since the last call."""
    found, _running[-1].lost = _running[-1].lost, 0.0
    return found


def stop() -> None:
    """End it."""
    while _running:
        _running.pop().ended.set()
