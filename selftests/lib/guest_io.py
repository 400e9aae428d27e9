# SPDX-License-Identifier: GPL-2.0
"""Reads, writes and block ioctls with exact errnos, inside the guest."""

from __future__ import annotations

import array
import fcntl
import functools
import hashlib
import mmap
import os
import random
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

BLKROGET = 0x125E
BLKFLSBUF = 0x1261
BLKDISCARD = 0x1277
BLKSECDISCARD = 0x127D
BLKZEROOUT = 0x127F
CLEARS = {"discard": BLKDISCARD, "secure_erase": BLKSECDISCARD, "zero_out": BLKZEROOUT}

PAGE = 4096
_held: dict[str, Any] = {}


def pattern(seed: int, length: int) -> bytes:
    """Bytes that only this seed gives."""
    return random.Random(seed).randbytes(length)


def _buffer(length: int) -> mmap.mmap:
    return mmap.mmap(-1, max(-(-length // PAGE) * PAGE, PAGE))


def _open(path: str, flags: int, direct: bool = True) -> int:
    return os.open(path, flags | (os.O_DIRECT if direct else 0))


def write(path: str, offset: int, length: int, seed: int, direct: bool = True,
          sync: bool = False) -> None:
    """Write a pattern; with ``sync`` each write is on the disk when it returns."""
    fd = _open(path, os.O_WRONLY | (os.O_DSYNC if sync else 0), direct)
    try:
        buffer = _buffer(length)
        buffer[:length] = pattern(seed, length)
        view = memoryview(buffer)[:length]
        done = 0
        while done < length:
            done += os.pwrite(fd, view[done:], offset + done)
        del view
    finally:
        os.close(fd)


def _read(path: str, offset: int, length: int, direct: bool) -> bytes:
    fd = _open(path, os.O_RDONLY, direct)
    try:
        buffer = _buffer(length)
        done = 0
        while done < length:
            view = memoryview(buffer)[done:length]
            count = os.preadv(fd, [view], offset + done)
            del view
            if count == 0:
                raise OSError(5, "end of device", path)
            done += count
        return buffer[:length]
    finally:
        os.close(fd)


def digest(path: str, offset: int, length: int, direct: bool = True) -> str:
    """SHA-256 of a range."""
    return hashlib.sha256(_read(path, offset, length, direct)).hexdigest()


def pattern_digest(seed: int, length: int) -> str:
    """SHA-256 of a pattern."""
    return hashlib.sha256(pattern(seed, length)).hexdigest()


def compare(path: str, offset: int, length: int, seed: int, direct: bool = True) -> int | None:
    """Offset of the first byte that differs from the pattern; None if none does."""
    got, wanted = _read(path, offset, length, direct), pattern(seed, length)
    if got == wanted:
        return None
    return next(at for at in range(length) if got[at] != wanted[at])


def cleared(path: str, length: int, seed: int, sector: int = 512) -> list[list[int]]:
    """The ranges of sectors from the start, [first, end), that differ from the pattern; they must
    be zero."""
    got, wanted = _read(path, 0, length, True), pattern(seed, length)
    ranges: list[list[int]] = []
    for number in range(length // sector):
        place = slice(number * sector, (number + 1) * sector)
        if got[place] == wanted[place]:
            continue
        if any(got[place]):
            raise OSError(5, f"sector {number} is neither the pattern nor zero", path)
        if ranges and ranges[-1][1] == number:
            ranges[-1][1] = number + 1
        else:
            ranges.append([number, number + 1])
    return ranges


def filled_with(path: str, offset: int, length: int, value: int) -> bool:
    """Whether every byte of a range is ``value``."""
    return _read(path, offset, length, True) == bytes([value]) * length


def all_zero(path: str, offset: int, length: int) -> bool:
    """Whether a range reads as zeroes."""
    return filled_with(path, offset, length, 0)


def write_beside_reads(path: str, other: str, reads: int) -> int:
    """Write a page, and while that is in flight begin to read many of another disk, all from one
    CPU; how many reads were done when the write was."""
    os.sched_setaffinity(0, {0})
    done = []

    def read(number: int) -> None:
        _read(other, number << 20, PAGE, True)
        done.append(number)

    result = []

    def wait_for_write() -> None:
        write(path, 0, PAGE, 1)
        result.append(len(done))

    def inflight() -> int:
        return int(open(f"/sys/block/{os.path.basename(path)}/inflight").read().split()[1])

    writer = threading.Thread(target=wait_for_write)
    writer.start()
    while writer.is_alive() and not inflight():
        pass
    readers = [threading.Thread(target=read, args=(number,)) for number in range(reads)]
    for thread in readers:
        thread.start()
    for thread in [writer, *readers]:
        thread.join()
    return result[0]


def overwrite_beside(path: str, length: int, blocks: int, seeds: list[int],
                     meanwhile: str) -> tuple[int, float]:
    """Write blocks with the first seed, all at once; when half of them are done write "1" to the file
    ``meanwhile``, if there is one; when all are done write them with the second seed. How many were
    done by then, and the seconds that the others took."""
    finished = threading.Semaphore(0)
    failed = []

    def change(action: Callable[..., None], *arguments: Any) -> None:
        try:
            action(*arguments)
        except OSError as error:
            failed.append(error)
        finished.release()

    def begin(seed: int) -> list[threading.Thread]:
        return [threading.Thread(target=change,
                                 args=(write, path, number * length, length, seed + number))
                for number in range(blocks)]

    first, second = begin(seeds[0]), begin(seeds[1])
    for thread in first:
        thread.start()
    for _ in range(blocks // 2):
        finished.acquire()
    done = blocks - sum(thread.is_alive() for thread in first)
    started = time.monotonic()
    if meanwhile:
        with open(meanwhile, "w", encoding="ascii") as file:
            file.write("1")
    for thread in first:
        thread.join()
    taken = time.monotonic() - started
    for thread in second:
        thread.start()
    for thread in second:
        thread.join()
    if failed:
        raise failed[0]
    return done, taken


def wait_finished(disk: str, count: int, seconds: float) -> bool:
    """Whether a disk has finished so many reads and writes since it was made, within a time."""
    deadline = time.monotonic() + seconds
    while True:
        with open(f"/sys/block/{disk}/stat", encoding="ascii") as stat:
            words = stat.read().split()
        if int(words[0]) + int(words[4]) >= count:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)


def read_on_cpus(path: str, cpus: list[int], readers: int = 4, count: int = 8) -> None:
    """Read a page so often by each of some readers on each of these CPUs, and so on their queues."""
    failed = []

    def read(cpu: int) -> None:
        os.sched_setaffinity(0, {cpu})
        try:
            for number in range(count):
                _read(path, number * PAGE, PAGE, True)
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=read, args=(cpu,)) for cpu in cpus for _ in range(readers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def scattered(path: str, offset: int, pieces: list[tuple[int, int]], seed: int,
              write_it: bool) -> bool:
    """One vectored request whose pieces start anywhere in their own pages.

    ``pieces`` is a list of (offset in page, length). Writes the pattern, or
    reads and returns whether it is the pattern.
    """
    total = sum(length for _at, length in pieces)
    wanted = pattern(seed, total)
    buffer = _buffer(sum(-(-(at + length) // PAGE) * PAGE + PAGE for at, length in pieces))
    views, base, source = [], 0, 0
    for at, length in pieces:
        if write_it:
            buffer[base + at:base + at + length] = wanted[source:source + length]
        views.append(memoryview(buffer)[base + at:base + at + length])
        base += -(-(at + length) // PAGE) * PAGE + PAGE
        source += length
    fd = _open(path, os.O_RDWR)
    try:
        done = (os.pwritev if write_it else os.preadv)(fd, views, offset)
    finally:
        os.close(fd)
    if done != total:
        raise OSError(5, f"short transfer of {done} bytes", path)
    return write_it or b"".join(bytes(view) for view in views) == wanted


def clear(fd: int, operation: str, offset: int, length: int) -> None:
    """Do what an operation of CLEARS does to a range of an open device."""
    fcntl.ioctl(fd, CLEARS[operation], struct.pack("QQ", offset, length))


def _clear(path: str, operation: str, offset: int, length: int) -> None:
    fd = os.open(path, os.O_RDWR)
    try:
        clear(fd, operation, offset, length)
    finally:
        os.close(fd)


def discard(path: str, offset: int, length: int) -> None:
    """Discard a range."""
    _clear(path, "discard", offset, length)


def secure_erase(path: str, offset: int, length: int) -> None:
    """Secure erase of a range."""
    _clear(path, "secure_erase", offset, length)


def zero_out(path: str, offset: int, length: int) -> None:
    """Write zeroes by the block layer."""
    _clear(path, "zero_out", offset, length)


def without_length(path: str) -> dict[str, int | None]:
    """What requests of no bytes give, by name: a number of bytes or an errno."""
    results: dict[str, int | None] = {}
    fd = _open(path, os.O_RDWR)
    try:
        nothing = memoryview(_buffer(0))[:0]
        requests: dict[str, Callable[[], int | None]] = {
            "write": lambda: os.pwrite(fd, nothing, PAGE),
            "read": lambda: os.preadv(fd, [nothing], PAGE),
            **{name: functools.partial(clear, fd, name, PAGE, 0) for name in CLEARS}}
        for name, request in requests.items():
            try:
                results[name] = request()
            except OSError as error:
                results[name] = -(error.errno or 0)
    finally:
        os.close(fd)
    return results


def result(path: str, write_it: bool, length: int = 4096) -> int:
    """The error number of one direct request at the start of a disk; 0 if it succeeds."""
    buffer = _buffer(length)
    try:
        fd = _open(path, os.O_RDWR if write_it else os.O_RDONLY)
        try:
            os.pwritev(fd, [buffer], 0) if write_it else os.preadv(fd, [buffer], 0)
        finally:
            os.close(fd)
    except OSError as error:
        return error.errno or -1
    return 0


def fsync(path: str) -> None:
    """Flush a device's cache."""
    fd = os.open(path, os.O_RDWR)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def is_read_only(path: str) -> bool:
    """BLKROGET."""
    fd = os.open(path, os.O_RDONLY)
    try:
        value = array.array("i", [0])
        fcntl.ioctl(fd, BLKROGET, value)
        return bool(value[0])
    finally:
        os.close(fd)


def hold(path: str, name: str, write_it: bool = False) -> None:
    """Keep a device open until ``release``."""
    _held[name] = os.open(path, os.O_RDWR if write_it else os.O_RDONLY)


def release(name: str) -> None:
    """Close what ``hold`` opened."""
    fd = _held.pop(name, None)
    if fd is not None:
        os.close(fd)


def writer_start(path: str, name: str, length: int = 4096) -> None:
    """Write over and over in a thread until an error or ``writer_stop``."""
    state: dict[str, Any] = {"stop": False, "writes": 0, "errno": 0, "running": True}
    fd = _open(path, os.O_WRONLY)
    _held[name] = state

    def work() -> None:
        buffer = _buffer(length)
        try:
            while not state["stop"]:
                os.pwrite(fd, buffer, 0)
                state["writes"] += 1
        except OSError as error:
            state["errno"] = error.errno
        finally:
            os.close(fd)
            state["running"] = False

    state["thread"] = threading.Thread(target=work, daemon=True)
    state["thread"].start()


def writer_stop(name: str, wait: float = 10.0, stop: bool = True) -> dict[str, Any]:
    """Stop a writer, or wait for its own end; returns how it went."""
    state = _held.pop(name)
    state["stop"] = stop
    state["thread"].join(wait)
    return {key: state[key] for key in ("writes", "errno", "running")}


def geometry(path: str) -> list[int]:
    """Heads, sectors and cylinders by HDIO_GETGEO."""
    fd = os.open(path, os.O_RDONLY)
    try:
        data = fcntl.ioctl(fd, 0x0301, bytes(16))
        return list(struct.unpack_from("BBH", data))
    finally:
        os.close(fd)


def write_mbr(path: str, partitions: list[tuple[int, int]]) -> None:
    """A DOS partition table with (offset, length) in bytes."""
    table = b"".join(struct.pack("<8B2I", 0, 0, 0, 0, 0x83, 0, 0, 0, offset // 512, length // 512)
                     for offset, length in partitions)
    with open(path, "r+b", buffering=0) as disk:
        disk.write(bytes(446) + table.ljust(64, b"\0") + b"\x55\xaa")
        os.fsync(disk.fileno())


def texts(paths: list[str]) -> dict[str, str]:
    """The text of each file that can be read."""
    found = {}
    for path in paths:
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                found[path] = file.read()
        except OSError as error:
            found[path] = f"errno {error.errno}"
    return found
