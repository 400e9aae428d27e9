# SPDX-License-Identifier: GPL-2.0
"""Every kind of request once, data checked on both ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate
from typing import ParamSpec
from typing import TypeVar

from lab.selftest_case import Test
from lab.vm_node import Node
from lib import disks
from lib import guest_io
from lib.rnbd import Device

P = ParamSpec("P")
R = TypeVar("R")
KIB = 1 << 10
# The emulator's count of the standard disks with a write cache.
NUMBERS = {disks.PLAIN: 1, disks.LARGE_BLOCKS: 3}

# What one request at a time can be (guest_stream.py); a secure erase is for our client only: C's
# maps a scatterlist that it does not have.
OPERATIONS = ("write", "sync_write", "flush", "discard", "zero_out")
ERASE = (*OPERATIONS, "secure_erase")


def requests(node: Node, path: str, offset: int, length: int) -> dict[str, Callable[[], object]]:
    """Functions that make a request for a range of a device, by name; writes are of a pattern that
    no test writes."""
    return {
        "write": lambda: node.call(guest_io.write, path, offset, length, seed=97),
        "sync_write": lambda: node.call(guest_io.write, path, offset, length, seed=97, sync=True),
        "read": lambda: node.call(guest_io.digest, path, offset, length),
        "discard": lambda: node.call(guest_io.discard, path, offset, length),
        "zero_out": lambda: node.call(guest_io.zero_out, path, offset, length),
    }


def every_operation(t: Test, device: Device, *, offset: int = 0, timeout: float = 60.0,
                    behind: str = "") -> None:
    """All operations within a MiB from ``offset`` of a standard disk with a write cache, or of a
    file, which is on the standard disk ``behind``."""
    block = int(device.queue("logical_block_size"))
    # The C client sends a flush with a sector of -1, and the C server refuses that for these disks.
    flushes = block == 512 or "ours" in (t.client.module_set, t.server.module_set)
    number = NUMBERS[behind or device.device_path]

    def client(function: Callable[Concatenate[str, int, int, P], R], length: int, at: int = 0,
               *arguments: P.args, **named: P.kwargs) -> R:
        return t.client.call_within(timeout, function, device.path, offset + at, length,
                                    *arguments, **named)

    client(guest_io.write, 512 * KIB, seed=1)
    if flushes:
        t.client.call_within(timeout, guest_io.fsync, path=device.path)
    t.intact(t.server.call(guest_io.compare, path=device.device_path, offset=offset,
                           length=512 * KIB, seed=1), None, "first wrong byte on the server's disk")
    t.intact(client(guest_io.compare, 512 * KIB, seed=1), None, "first wrong byte")
    pieces = [(512 * (index % 8), block) for index in range(48 * KIB // block)]
    for write_it in (True, False):
        t.check(t.client.call_within(timeout, guest_io.scattered, path=device.path,
                                     offset=offset + block, seed=2, write_it=write_it,
                                     pieces=pieces),
                "a scattered request reads back differently")
    before = t.server.disk_stats(number)["flush_operations"]
    client(guest_io.write, 4 * KIB, seed=3, sync=flushes)
    if flushes:
        t.check(t.server.disk_stats(number)["flush_operations"] > before, "no flush arrived")
    client(guest_io.discard, 64 * KIB)
    client(guest_io.zero_out, 64 * KIB, 64 * KIB)
    t.check(client(guest_io.all_zero, 128 * KIB),
            "discarded and zeroed ranges do not read as zeroes")
