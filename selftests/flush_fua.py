# SPDX-License-Identifier: GPL-2.0
"""Flush and FUA reach the server's disk, by that disk's own statistics."""

from lab.selftest_case import case
from lib import disks
from lib import rnbd

TOPOLOGY = "one"


def flushes(t, disk):
    """Flushes that the server's disk has completed."""
    return rnbd.disk_stats(t.server, disk.removeprefix("/dev/"))["flushes"]


def test_flush(t):
    """fsync on the client is one flush on a disk with a write cache."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    t.equal(device.queue("write_cache"), "write back", "write_cache")
    for count in (1, 3):
        before = flushes(t, disks.PLAIN)
        for index in range(count):
            t.client.call("guest_io.write", path=device.path, offset=4096 * index, length=4096,
                          seed=index)
            t.client.call("guest_io.fsync", path=device.path)
        t.check(flushes(t, disks.PLAIN) - before >= count,
                f"{flushes(t, disks.PLAIN) - before} flushes for {count} fsync calls")


def test_flush_reaches_the_machine(t):
    """The flush goes through the server's disk to what stands behind it."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    before = t.server.disk_stats(1)["flush_operations"]
    t.client.call("guest_io.write", path=device.path, offset=0, length=4096, seed=1)
    t.client.call("guest_io.fsync", path=device.path)
    after = t.server.disk_stats(1)["flush_operations"]
    t.check(after > before, "no flush reached the host's disk")


def test_write_through(t):
    """A disk without a write cache has none on the client, and gets no flush."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.WITHOUT_DISCARD)
    t.equal(device.queue("write_cache"), "write through", "write_cache")
    before = flushes(t, disks.WITHOUT_DISCARD)
    t.client.call("guest_io.write", path=device.path, offset=0, length=4096, seed=1)
    t.client.call("guest_io.fsync", path=device.path)
    t.equal(flushes(t, disks.WITHOUT_DISCARD) - before, 0, "flushes of the server's disk")


def test_synchronous_write_without_fua(t):
    """A synchronous write becomes a write and a flush where the disk has no FUA."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    t.equal(device.queue("fua"), "0", "fua")
    before = flushes(t, disks.PLAIN)
    t.client.call("guest_io.write", path=device.path, offset=0, length=4096, seed=2, sync=True)
    t.check(flushes(t, disks.PLAIN) > before, "no flush followed the synchronous write")


@case(kernels=("stock",))  # the debug kernel has no tracing
def test_fua(t):
    """A synchronous write is one FUA write where the disk has it."""
    rnbd.load(t)
    disk = disks.null_blk(t, cache_size=4, fua=1)
    t.equal(t.server.read(f"/sys/block/{disk[5:]}/queue/fua"), "1", "fua of the server's disk")
    device = rnbd.map_device(t, disk)
    t.equal(device.queue("fua"), "1", "fua")
    t.equal(device.queue("write_cache"), "write back", "write_cache")
    t.server.run("echo 1 > /sys/kernel/tracing/events/block/block_rq_issue/enable; "
                 "echo > /sys/kernel/tracing/trace")
    t.defer(t.server.run, "echo 0 > /sys/kernel/tracing/events/block/block_rq_issue/enable")
    t.client.call("guest_io.write", path=device.path, offset=0, length=4096, seed=3, sync=True)
    number = t.server.sh(f"stat -c '%Hr,%Lr' {disk}")
    issued = [line for line in t.server.read("/sys/kernel/tracing/trace").splitlines()
              if "block_rq_issue" in line and f" {number} " in line]
    t.check(any(f"{number} WF" in line for line in issued),
            f"no FUA write was issued to the server's disk: {issued}")
    t.intact(t.client.call("guest_io.compare", path=device.path, offset=0, length=4096, seed=3),
             None, "first wrong byte")


def test_server_disk_loses_power(t):
    """What fsync confirmed is on the disk after null_blk throws its cache away."""
    rnbd.load(t)
    disk = disks.null_blk(t, cache_size=4)
    device = rnbd.map_device(t, disk)
    t.client.call("guest_io.write", path=device.path, offset=0, length=65536, seed=4)
    t.client.call("guest_io.fsync", path=device.path)
    t.intact(t.server.call("guest_io.compare", path=disk, offset=0, length=65536, seed=4), None,
             "first wrong byte after fsync")
