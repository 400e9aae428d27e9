# SPDX-License-Identifier: GPL-2.0
"""Requests that all wait for the same disk, inside the guest."""

from __future__ import annotations

import mmap
import os
import threading
import time
from dataclasses import dataclass

BLOCK = 1 << 20
# What memory is filled with whose request has ended.
MARK = 0x5A
# Buffered reads and writes, and flushes of the disk's cache.
BUFFERED, FLUSH = "buffered", "flush"

_buffers: list[mmap.mmap] = []


@dataclass
class _Request:
    """One request: ``kind`` is read, write, or one of the above; ``number`` gives it its own place."""

    path: str
    kind: str
    length: int
    number: int
    errno: int = 0
    seconds: float = 0.0

    def run(self) -> None:
        """Do it, and note how it ended; mark the memory of what was to be read."""
        began = time.monotonic()
        buffer = mmap.mmap(-1, max(self.length, mmap.PAGESIZE))
        view = memoryview(buffer)[:self.length]
        try:
            fd = os.open(self.path, os.O_RDWR | (0 if self.kind in (BUFFERED, FLUSH) else os.O_DIRECT))
            try:
                if self.kind == FLUSH:
                    os.fsync(fd)
                elif self.kind == "write":
                    os.pwritev(fd, [view], self.number * BLOCK)
                else:
                    os.preadv(fd, [view], self.number * BLOCK)
            finally:
                os.close(fd)
        except OSError as error:
            self.errno = error.errno or -1
        self.seconds = time.monotonic() - began
        if self.kind == "read":
            view[:] = bytes([MARK]) * self.length
            _buffers.append(buffer)
        view.release()


def run(path: str, requests: list[tuple[str, int]]) -> list[tuple[int, float]]:
    """Do requests (kind, length) at once, each at a place of its own; the errno of each and its seconds.
    The memory of reads is kept and marked until :func:`spoilt`."""
    done = [_Request(path, kind, length, number) for number, (kind, length) in enumerate(requests)]
    threads = [threading.Thread(target=request.run) for request in done]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [(request.errno, request.seconds) for request in done]


def spoilt() -> int:
    """How many bytes of the memory that :func:`run` has marked are not as they were."""
    wrong = 0
    while _buffers:
        data = _buffers.pop()[:]
        # What was not asked for is zero.
        wrong += len(data) - data.count(MARK) - data.count(0)
        wrong += data.rstrip(b"\0").count(0)
    return wrong
