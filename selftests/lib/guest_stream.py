# SPDX-License-Identifier: GPL-2.0
"""A verifying writer that runs while things break, inside the guest.

Each worker owns a range of the disk. It writes blocks that say where and which round they are, or
clears them, reads them back, and compares; how long each request took is kept. A request that fails
ends the worker, and its range is then read again to see that what was confirmed before is there.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from lib import guest_io

BLOCK = 4096
# What a block holds after an operation that is no write: this byte.
CLEARED = {"discard": 0x00, "zero_out": 0x00, "secure_erase": 0xE5}
# The content of a block that no request of the stream has been confirmed for: anything may be there.
ANY = -1
_streams = {}


class Worker(threading.Thread):
    """Writes and reads one range."""

    def __init__(self, path: str, offset: int, blocks: int, size: int, operations: Sequence[str],
                 pause: float) -> None:
        super().__init__(daemon=True)
        self.path, self.first, self.blocks = path, offset // size, blocks
        self.size, self.operations, self.pause = size, operations, pause
        self.stop = False
        # Cleared while the worker is to begin nothing.
        self.may_begin = threading.Event()
        self.may_begin.set()
        self.idle = threading.Event()
        self.writes = self.reads = 0
        self.errno = 0
        self.error_after = 0.0
        self.wrong = ""
        self.longest = 0.0
        self.confirmed: dict[int, Any] = {}
        self.buffer = mmap.mmap(-1, size)

    def content(self, block: int, version: int | str) -> bytes:
        """The bytes of a block written in a round, or cleared by an operation."""
        if isinstance(version, str):
            return bytes([CLEARED[version]]) * self.size
        return struct.pack("<QQ", self.first + block, version) * (self.size // 16)

    def timed(self, request: Callable[[], object]) -> None:
        """Do one request and note how long it took."""
        started = time.monotonic()
        try:
            done = request()
        except OSError as error:
            self.errno, self.error_after = error.errno or 0, time.monotonic() - started
            raise
        self.longest = max(self.longest, time.monotonic() - started)
        if self.pause and not self.stop:
            time.sleep(self.pause)
        if done not in (None, self.size):
            self.wrong = self.wrong or f"short transfer of {done} bytes"

    def change(self, fd: int, block: int, operation: str, count: int) -> None:
        """Write a block, or clear it; it is what it was or what it shall be until that is done."""
        at = (self.first + block) * self.size
        version = operation if operation in CLEARED else count
        self.confirmed.setdefault(block, {ANY}).add(version)
        if operation in CLEARED:
            self.timed(lambda: guest_io.clear(fd, operation, at, self.size))
        else:
            self.buffer[:] = self.content(block, count)
            flags = os.RWF_DSYNC if operation == "sync_write" else 0
            self.timed(lambda: os.pwritev(fd, [self.buffer], at, flags))
            if operation == "flush":
                self.timed(lambda: os.fsync(fd))
        self.confirmed[block] = {version}
        self.writes += 1

    def check(self, fd: int, block: int, versions: Any) -> None:
        """Read a block, which must be one of these."""
        at = (self.first + block) * self.size
        self.timed(lambda: os.preadv(fd, [self.buffer], at))
        self.reads += 1
        got = self.buffer[:]
        if ANY not in versions and not any(got == self.content(block, version) for version in versions):
            self.wrong = self.wrong or (f"block {self.first + block}: round "
                                        f"{struct.unpack_from('<QQ', got)}, expected {versions}")

    def run(self) -> None:
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_DIRECT)
        except OSError as error:
            self.errno = error.errno or 0
            return
        try:
            count = 0
            while not self.stop:
                count += 1
                for block in range(self.blocks):
                    if not self.may_begin.is_set():
                        self.idle.set()
                        self.may_begin.wait()
                        self.idle.clear()
                    if self.stop:
                        break
                    operation = self.operations[(block + count) % len(self.operations)]
                    self.change(fd, block, operation, count)
                    # The block written last, and one that was written long ago.
                    self.check(fd, block, self.confirmed[block])
                    old = (block * 7 + count) % self.blocks
                    if old in self.confirmed:
                        self.check(fd, old, self.confirmed[old])
        except OSError:
            pass
        finally:
            os.close(fd)


def start(path: str, name: str = "stream", workers: int = 4, blocks: int = 64, offset: int = 0,
          sizes: Sequence[int] = (BLOCK,), operations: Sequence[str] = ("write",),
          pause: float = 0.0) -> None:
    """Begin with so many requests at once, of ``sizes`` bytes, each worker of one of them and with so
    many seconds between two; the operations in turn, of "write", "sync_write", "flush" (a write, and
    a flush after it) and those of CLEARED."""
    # A block between the ranges: requests of two workers are never merged.
    room = (blocks + 1) * max(sizes)
    _streams[name] = [Worker(path, offset + index * room, blocks, sizes[index % len(sizes)],
                             operations, pause)
                      for index in range(workers)]
    for worker in _streams[name]:
        worker.start()


def progress(name: str = "stream") -> dict[str, Any]:
    """Requests so far, workers that run, and the longest time a request took."""
    workers = _streams[name]
    return {"requests": sum(worker.writes + worker.reads for worker in workers),
            "workers": len(workers),
            "running": sum(worker.is_alive() for worker in workers),
            "least": min(worker.writes + worker.reads for worker in workers)}


def go_on(requests: int, seconds: float, name: str = "stream") -> dict[str, Any]:
    """Wait until every worker has done so many requests more: in how many seconds (None if not, as a
    worker has ended or the time is over), and the progress before and now."""
    started, begin = time.monotonic(), progress(name)
    while True:
        now, taken = progress(name), time.monotonic() - started
        if now["least"] >= begin["least"] + requests:
            return {"taken": taken, "begin": begin, "now": now}
        if now["running"] < now["workers"] or taken > seconds:
            return {"taken": None, "begin": begin, "now": now}
        time.sleep(0.02)


def longest(name: str = "stream") -> float:
    """The longest time a request took since the last call, in s."""
    taken = max(worker.longest for worker in _streams[name])
    for worker in _streams[name]:
        worker.longest = 0.0
    return taken


def hold(name: str = "stream", seconds: float = 30.0) -> bool:
    """Have the workers begin nothing until ``resume``; whether all were idle within so many seconds."""
    workers = _streams[name]
    for worker in workers:
        worker.may_begin.clear()
    end = time.monotonic() + seconds
    return all(worker.idle.wait(max(0.0, end - time.monotonic())) for worker in workers)


def resume(name: str = "stream") -> None:
    """Have the workers go on."""
    for worker in _streams[name]:
        worker.may_begin.set()


def confirmed(name: str = "stream") -> list[dict[str, Any]]:
    """What each worker's range must hold by the worker's writes until now, for ``wrong``."""
    return [{"offset": worker.first * worker.size, "blocks": worker.blocks, "size": worker.size,
             "versions": [[block, sorted(versions)] for block, versions in worker.confirmed.items()
                          if ANY not in versions]}
            for worker in _streams[name]]


def wrong(path: str, ranges: Sequence[dict[str, Any]]) -> list[str]:
    """Read what ``confirmed`` says of a stream, perhaps of another machine; the first wrong block of each range."""
    found = []
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        for one in ranges:
            worker = Worker(path, one["offset"], one["blocks"], one["size"], (), 0.0)
            for block, versions in one["versions"]:
                worker.check(fd, block, versions)
            found += [worker.wrong] if worker.wrong else []
    finally:
        os.close(fd)
    return found


def stop(name: str = "stream", verify: bool = True, wait: float = 30.0) -> dict[str, Any]:
    """End, and read everything again; returns what happened."""
    workers = _streams.pop(name)
    for worker in workers:
        worker.stop = True
        worker.may_begin.set()
    for worker in workers:
        worker.join(wait)
    hung = sum(worker.is_alive() for worker in workers)
    result = {"writes": sum(worker.writes for worker in workers),
              "reads": sum(worker.reads for worker in workers),
              "errnos": sorted({worker.errno for worker in workers if worker.errno}),
              "error_after": max(worker.error_after for worker in workers),
              "longest": max(worker.longest for worker in workers), "hung": hung}
    if verify and not hung:
        before = sum(worker.reads for worker in workers)
        for worker in workers:
            fd = os.open(worker.path, os.O_RDONLY | os.O_DIRECT)
            try:
                for block, counts in worker.confirmed.items():
                    worker.check(fd, block, counts)
            finally:
                os.close(fd)
        result["verified"] = sum(worker.reads for worker in workers) - before
    result["wrong"] = [worker.wrong for worker in workers if worker.wrong]
    return result
