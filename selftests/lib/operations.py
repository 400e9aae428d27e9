# SPDX-License-Identifier: GPL-2.0
"""Every kind of request once, data checked on both ends."""

from __future__ import annotations

from lab.selftest_case import Test
from lib import disks
from lib.rnbd import Device

KIB = 1 << 10
# The emulator's count of the standard disks with a write cache.
NUMBERS = {disks.PLAIN: 1, disks.LARGE_BLOCKS: 3}

# What one request at a time can be (guest_stream.py); a secure erase is for our client only: C's
# maps a scatterlist that it does not have.
OPERATIONS = ("write", "sync_write", "flush", "discard", "zero_out")
ERASE = (*OPERATIONS, "secure_erase")


def every_operation(t: Test, device: Device, *, offset: int = 0, timeout: float = 60.0) -> None:
    """All operations within a MiB from ``offset`` of a standard disk with a write cache."""
    block = int(device.queue("logical_block_size"))
    # The C client sends a flush with a sector of -1, and the C server refuses that for these disks.
    flushes = block == 512 or "ours" in (t.client.module_set, t.server.module_set)
    number = NUMBERS[device.device_path]

    def client(function: str, length: int, at: int = 0, **options: object) -> object:
        return t.client.call(f"guest_io.{function}", path=device.path, offset=offset + at,
                             length=length, timeout=timeout, **options)

    client("write", 512 * KIB, seed=1)
    if flushes:
        t.client.call("guest_io.fsync", path=device.path, timeout=timeout)
    t.intact(t.server.call("guest_io.compare", path=device.device_path, offset=offset,
                           length=512 * KIB, seed=1), None, "first wrong byte on the server's disk")
    t.intact(client("compare", 512 * KIB, seed=1), None, "first wrong byte")
    pieces = [(512 * (index % 8), block) for index in range(48 * KIB // block)]
    for write_it in (True, False):
        t.check(t.client.call("guest_io.scattered", path=device.path, offset=offset + block, seed=2,
                              write_it=write_it, pieces=pieces, timeout=timeout),
                "a scattered request reads back differently")
    before = t.server.disk_stats(number)["flush_operations"]
    client("write", 4 * KIB, seed=3, sync=flushes)
    if flushes:
        t.check(t.server.disk_stats(number)["flush_operations"] > before, "no flush arrived")
    client("discard", 64 * KIB)
    client("zero_out", 64 * KIB, at=64 * KIB)
    t.check(client("all_zero", 128 * KIB), "discarded and zeroed ranges do not read as zeroes")
