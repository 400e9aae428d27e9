# SPDX-License-Identifier: GPL-2.0
"""Reads, writes and block ioctls with exact errnos, inside the guest."""

import array
import fcntl
import hashlib
import mmap
import os
import random
import struct
import threading
import time

BLKROGET = 0x125E
BLKFLSBUF = 0x1261
BLKDISCARD = 0x1277
BLKSECDISCARD = 0x127D
BLKZEROOUT = 0x127F
CLEARS = {"discard": BLKDISCARD, "secure_erase": BLKSECDISCARD, "zero_out": BLKZEROOUT}

PAGE = 4096
_held = {}


def pattern(seed, length):
    """Bytes that only this seed gives."""
    return random.Random(seed).randbytes(length)


def _buffer(length):
    return mmap.mmap(-1, max(-(-length // PAGE) * PAGE, PAGE))


def _open(path, flags, direct=True):
    return os.open(path, flags | (os.O_DIRECT if direct else 0))


def write(path, offset, length, seed, direct=True, sync=False):
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


def _read(path, offset, length, direct):
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


def digest(path, offset, length, direct=True):
    """SHA-256 of a range."""
    return hashlib.sha256(_read(path, offset, length, direct)).hexdigest()


def pattern_digest(seed, length):
    """SHA-256 of a pattern."""
    return hashlib.sha256(pattern(seed, length)).hexdigest()


def compare(path, offset, length, seed, direct=True):
    """Offset of the first byte that differs from the pattern; None if none does."""
    got, wanted = _read(path, offset, length, direct), pattern(seed, length)
    if got == wanted:
        return None
    return next(at for at in range(length) if got[at] != wanted[at])


def cleared(path, length, seed, sector=512):
    """The ranges of sectors from the start, [first, end), that differ from the pattern; they must
    be zero."""
    got, wanted = _read(path, 0, length, True), pattern(seed, length)
    ranges = []
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


def filled_with(path, offset, length, value):
    """Whether every byte of a range is ``value``."""
    return _read(path, offset, length, True) == bytes([value]) * length


def all_zero(path, offset, length):
    """Whether a range reads as zeroes."""
    return filled_with(path, offset, length, 0)


def write_beside_reads(path, other, reads):
    """Write a page, and while that is under way begin to read many of another disk, all from one
    CPU; how many reads were done when the write was."""
    os.sched_setaffinity(0, {0})
    done = []

    def read(number):
        _read(other, number << 20, PAGE, True)
        done.append(number)

    result = []

    def wait_for_write():
        write(path, 0, PAGE, 1)
        result.append(len(done))

    def inflight():
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


def overwrite_beside(path, length, blocks, seeds, meanwhile):
    """Write blocks with the first seed, all at once; when half of them are done write "1" to the file
    ``meanwhile``, if there is one; when all are done write them with the second seed. How many were
    done by then, and the seconds that the others took."""
    finished = threading.Semaphore(0)
    failed = []

    def change(action, *arguments):
        try:
            action(*arguments)
        except OSError as error:
            failed.append(error)
        finished.release()

    def begin(seed):
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


def wait_finished(disk, count, seconds):
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


def read_on_cpus(path, cpus, readers=4, count=8):
    """Read a page so often by each of some readers on each of these CPUs, and so on their queues."""
    failed = []

    def read(cpu):
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


def scattered(path, offset, pieces, seed, write_it):
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


def clear(fd, operation, offset, length):
    """Do what an operation of CLEARS does to a range of an open device."""
    fcntl.ioctl(fd, CLEARS[operation], struct.pack("QQ", offset, length))


def _clear(path, operation, offset, length):
    fd = os.open(path, os.O_RDWR)
    try:
        clear(fd, operation, offset, length)
    finally:
        os.close(fd)


def discard(path, offset, length):
    """Discard a range."""
    _clear(path, "discard", offset, length)


def secure_erase(path, offset, length):
    """Secure erase of a range."""
    _clear(path, "secure_erase", offset, length)


def zero_out(path, offset, length):
    """Write zeroes by the block layer."""
    _clear(path, "zero_out", offset, length)


def without_length(path):
    """What requests of no bytes give, by name: a number of bytes or an errno."""
    results = {}
    fd = _open(path, os.O_RDWR)
    try:
        for name, function in (
                ("write", lambda: os.pwrite(fd, memoryview(_buffer(0))[:0], PAGE)),
                ("read", lambda: os.preadv(fd, [memoryview(_buffer(0))[:0]], PAGE)),
                *((name, lambda name=name: clear(fd, name, PAGE, 0)) for name in CLEARS)):
            try:
                results[name] = function()
            except OSError as error:
                results[name] = -error.errno
    finally:
        os.close(fd)
    return results


def fsync(path):
    """Flush a device's cache."""
    fd = os.open(path, os.O_RDWR)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def is_read_only(path):
    """BLKROGET."""
    fd = os.open(path, os.O_RDONLY)
    try:
        value = array.array("i", [0])
        fcntl.ioctl(fd, BLKROGET, value)
        return bool(value[0])
    finally:
        os.close(fd)


def hold(path, name, write_it=False):
    """Keep a device open until ``release``."""
    _held[name] = os.open(path, os.O_RDWR if write_it else os.O_RDONLY)


def release(name):
    """Close what ``hold`` opened."""
    fd = _held.pop(name, None)
    if fd is not None:
        os.close(fd)


def writer_start(path, name, length=4096):
    """Write over and over in a thread until an error or ``writer_stop``."""
    state = {"stop": False, "writes": 0, "errno": 0, "running": True}
    fd = _open(path, os.O_WRONLY)
    _held[name] = state

    def work():
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


def writer_stop(name, wait=10.0, stop=True):
    """Stop a writer, or wait for its own end; returns how it went."""
    state = _held.pop(name)
    state["stop"] = stop
    state["thread"].join(wait)
    return {key: state[key] for key in ("writes", "errno", "running")}


def geometry(path):
    """Heads, sectors and cylinders by HDIO_GETGEO."""
    fd = os.open(path, os.O_RDONLY)
    try:
        data = fcntl.ioctl(fd, 0x0301, bytes(16))
        return list(struct.unpack_from("BBH", data))
    finally:
        os.close(fd)


def write_mbr(path, partitions):
    """A DOS partition table with (offset, length) in bytes."""
    table = b"".join(struct.pack("<8B2I", 0, 0, 0, 0, 0x83, 0, 0, 0, offset // 512, length // 512)
                     for offset, length in partitions)
    with open(path, "r+b", buffering=0) as disk:
        disk.write(bytes(446) + table.ljust(64, b"\0") + b"\x55\xaa")
        os.fsync(disk.fileno())


def texts(paths):
    """The text of each file that can be read."""
    found = {}
    for path in paths:
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                found[path] = file.read()
        except OSError as error:
            found[path] = f"errno {error.errno}"
    return found
