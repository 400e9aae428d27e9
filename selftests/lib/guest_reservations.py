# SPDX-License-Identifier: GPL-2.0
"""Persistent reservations by the kernel's ioctls (linux/pr.h), inside the guest."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct
import threading
import time
from typing import Any

CONFLICT = 0x18  # PR_STS_RESERVATION_CONFLICT
PATH_FAILED = 0x10000  # PR_STS_PATH_FAILED
_WRITE, _READ = 1, 2
BLOCK = 4096
_running: dict[str, Any] = {}


def _ioctl(path: str, number: int, size: int, data: bytearray, direction: int = _WRITE) -> int:
    """What the ioctl returns: 0 or a status of the disk; a negative errno if it fails."""
    try:
        fd = os.open(path, os.O_RDWR)
    except PermissionError:
        # The disk is read-only.
        fd = os.open(path, os.O_RDONLY)
    try:
        status: Any = fcntl.ioctl(fd, direction << 30 | size << 16 | ord("p") << 8 | number, data, True)
        return int(status)
    except OSError as error:
        return -(error.errno or 0)
    finally:
        os.close(fd)


def command(path: str, what: str, key: int = 0, other: int = 0, kind: int = 0, flags: int = 0) -> int:
    """Give a command; ``other`` is the new key, or the one to be preempted."""
    if what == "register":
        return _ioctl(path, 200, 24, bytearray(struct.pack("<QQII", key, other, flags, 0)))
    if what in ("reserve", "release"):
        number = 201 if what == "reserve" else 202
        return _ioctl(path, number, 16, bytearray(struct.pack("<QII", key, kind, flags)))
    if what in ("preempt", "abort"):
        number = 203 if what == "preempt" else 204
        return _ioctl(path, number, 24, bytearray(struct.pack("<QQII", key, other, kind, flags)))
    assert what == "clear", what
    return _ioctl(path, 205, 16, bytearray(struct.pack("<QII", key, flags, 0)))


def keys(path: str, room: int = 64) -> dict[str, Any]:
    """The registered keys, how many there are, and the generation."""
    memory = (ctypes.c_uint64 * max(room, 1))()
    data = bytearray(struct.pack("<IIQ", 0, room, ctypes.addressof(memory)))
    status = _ioctl(path, 206, 16, data, _WRITE | _READ)
    generation, count, _ = struct.unpack("<IIQ", data)
    return {"status": status, "generation": generation, "count": count,
            "keys": list(memory)[:min(count, room)] if status == 0 else []}


def held(path: str) -> dict[str, int]:
    """The reservation: key, type, generation."""
    data = bytearray(16)
    status = _ioctl(path, 207, 16, data, _READ)
    key, generation, kind = struct.unpack("<QII", data)
    return {"status": status, "key": key, "generation": generation, "kind": kind}


def access(path: str) -> list[int]:
    """The errno of a read and of a write past the page cache."""
    results: list[int] = []
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    buffer = mmap.mmap(-1, BLOCK)
    try:
        for is_write in (False, True):
            try:
                if is_write:
                    os.pwrite(fd, buffer, 0)
                else:
                    os.preadv(fd, [buffer], 0)
                results.append(0)
            except OSError as error:
                results.append(error.errno or 0)
    finally:
        os.close(fd)
    return results


def access_often(path: str, offset: int, count: int) -> None:
    """Write and read a block past the page cache, one after the other."""
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    buffer = mmap.mmap(-1, BLOCK)
    try:
        for _ in range(count):
            os.pwrite(fd, buffer, offset)
            os.preadv(fd, [buffer], offset)
    finally:
        os.close(fd)


def start(name: str, path: str, what: str, **arguments: int) -> None:
    """Give a command in a thread, or ask for the ``holder``'s key."""
    state: dict[str, Any] = {"result": None}

    def work() -> None:
        if what == "holder":
            state["result"] = held(path)["key"]
        else:
            state["result"] = command(path, what, **arguments)

    state["thread"] = threading.Thread(target=work, daemon=True)
    _running[name] = state
    state["thread"].start()


def result(name: str, wait: float = 0.0) -> int | None:
    """The result of such a command; None while it is not over."""
    state = _running[name]
    state["thread"].join(wait)
    return state["result"]


def stamp_start(name: str, path: str, blocks: int, size: int) -> None:
    """Write blocks over and over, each in a thread, with numbers that rise, until an error."""
    state: dict[str, Any] = {"stop": False, "errnos": [], "writes": 0, "threads": []}

    def work(block: int) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
        buffer = mmap.mmap(-1, size)
        number = 0
        try:
            while not state["stop"]:
                number += 1
                buffer[:] = struct.pack("<Q", number) * (size // 8)
                os.pwrite(fd, buffer, block * size)
                state["writes"] += 1
        except OSError as error:
            state["errnos"].append(error.errno)
        finally:
            os.close(fd)

    for block in range(blocks):
        thread = threading.Thread(target=work, args=(block,), daemon=True)
        state["threads"].append(thread)
        thread.start()
    _running[name] = state
    deadline = time.monotonic() + 30
    while state["writes"] < 4 * blocks and time.monotonic() < deadline:
        time.sleep(0.005)


def stamp_end(name: str, stop: bool = False) -> dict[str, Any]:
    """Wait for the end of the writers; how they ended."""
    state = _running.pop(name)
    state["stop"] = stop
    for thread in state["threads"]:
        thread.join(30.0)
    return {"writes": state["writes"], "errnos": state["errnos"],
            "running": any(thread.is_alive() for thread in state["threads"])}


def mark(path: str, blocks: int, size: int, byte: int) -> None:
    """Write this byte over the blocks."""
    fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, blocks * size)
    buffer[:] = bytes([byte]) * (blocks * size)
    try:
        os.pwrite(fd, buffer, 0)
    finally:
        os.close(fd)


def marked(path: str, blocks: int, size: int, byte: int) -> list[int]:
    """Which blocks have another byte somewhere, read past the page cache."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, blocks * size)
    try:
        assert os.preadv(fd, [buffer], 0) == blocks * size
    finally:
        os.close(fd)
    wanted = bytes([byte]) * size
    return [block for block in range(blocks) if buffer[block * size:(block + 1) * size] != wanted]
