# SPDX-License-Identifier: GPL-2.0
"""A verifying writer that runs while things break, inside the guest.

Each worker owns a range of the disk. It writes blocks that say where and which round they are,
reads them back, and compares; how long each request took is kept. A request that fails ends the
worker, and its range is then read again to see that what was confirmed before is there.
"""

import mmap
import os
import struct
import threading
import time

BLOCK = 4096
_streams = {}


class Worker(threading.Thread):
    """Writes and reads one range."""

    def __init__(self, path, first, blocks):
        super().__init__(daemon=True)
        self.path, self.first, self.blocks = path, first, blocks
        self.stop = False
        self.writes = self.reads = 0
        self.errno = 0
        self.error_after = 0.0
        self.wrong = ""
        self.longest = 0.0
        self.confirmed = {}
        self.buffer = mmap.mmap(-1, BLOCK)

    def content(self, block, count):
        """The bytes of a block in its round ``count``."""
        return struct.pack("<QQ", self.first + block, count) * (BLOCK // 16)

    def timed(self, request):
        """Do one request and note how long it took."""
        started = time.monotonic()
        try:
            done = request()
        except OSError as error:
            self.errno, self.error_after = error.errno, time.monotonic() - started
            raise
        self.longest = max(self.longest, time.monotonic() - started)
        if done != BLOCK:
            self.wrong = self.wrong or f"short transfer of {done} bytes"

    def check(self, fd, block, counts):
        """Read a block, which must be of one of these rounds."""
        at = (self.first + block) * BLOCK
        self.timed(lambda: os.preadv(fd, [self.buffer], at))
        self.reads += 1
        got = self.buffer[:]
        if not any(got == self.content(block, count) for count in counts):
            self.wrong = self.wrong or (f"block {self.first + block}: round "
                                        f"{struct.unpack_from('<QQ', got)}, expected {counts}")

    def run(self):
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_DIRECT)
        except OSError as error:
            self.errno = error.errno
            return
        try:
            count = 0
            while not self.stop:
                count += 1
                for block in range(self.blocks):
                    if self.stop:
                        break
                    self.buffer[:] = self.content(block, count)
                    at = (self.first + block) * BLOCK
                    self.confirmed.setdefault(block, set()).add(count)
                    self.timed(lambda at=at: os.pwrite(fd, self.buffer, at))
                    self.confirmed[block] = {count}
                    self.writes += 1
                    # The block written last, and one that was written long ago.
                    self.check(fd, block, self.confirmed[block])
                    old = (block * 7 + count) % self.blocks
                    if old in self.confirmed:
                        self.check(fd, old, self.confirmed[old])
        except OSError:
            pass
        finally:
            os.close(fd)


def start(path, name="stream", workers=4, blocks=64, offset=0):
    """Begin with so many requests at once."""
    _streams[name] = [Worker(path, offset // BLOCK + index * blocks, blocks)
                      for index in range(workers)]
    for worker in _streams[name]:
        worker.start()


def progress(name="stream"):
    """Requests so far, workers that run, and the longest time a request took."""
    workers = _streams[name]
    return {"requests": sum(worker.writes + worker.reads for worker in workers),
            "running": sum(worker.is_alive() for worker in workers),
            "least": min(worker.writes + worker.reads for worker in workers)}


def longest(name="stream"):
    """The longest time a request took since the last call, in s."""
    taken = max(worker.longest for worker in _streams[name])
    for worker in _streams[name]:
        worker.longest = 0.0
    return taken


def stop(name="stream", verify=True, wait=30.0):
    """End, and read everything again; returns what happened."""
    workers = _streams.pop(name)
    for worker in workers:
        worker.stop = True
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
