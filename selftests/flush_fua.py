# SPDX-License-Identifier: GPL-2.0
"""Flush and FUA reach the server's disk, by that disk's own statistics."""

from __future__ import annotations

import errno

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import rnbd
from lib.rnbd import Device

TOPOLOGY = "one"
REQUEST = 4096


def flushes(t: Test, disk: str) -> int:
    """Flushes that the server's disk has completed."""
    return rnbd.disk_stats(t.server, disk.removeprefix("/dev/"))["flushes"]


def test_flush(t: Test) -> None:
    """fsync on the client is one flush on a disk with a write cache."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    t.equal(device.queue("write_cache"), "write back", "write_cache")
    for count in (1, 3):
        before = flushes(t, disks.PLAIN)
        for index in range(count):
            t.client.call(guest_io.write, path=device.path, offset=4096 * index, length=4096,
                          seed=index)
            t.client.call(guest_io.fsync, path=device.path)
        t.check(flushes(t, disks.PLAIN) - before >= count,
                f"{flushes(t, disks.PLAIN) - before} flushes for {count} fsync calls")


def test_flush_reaches_the_machine(t: Test) -> None:
    """The flush goes through the server's disk to what stands behind it."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    before = t.server.disk_stats(1)["flush_operations"]
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
    t.client.call(guest_io.fsync, path=device.path)
    after = t.server.disk_stats(1)["flush_operations"]
    t.check(after > before, "no flush reached the host's disk")


def messages(t: Test) -> int:
    """Requests that the session's path has sent, in both directions."""
    words = t.client.read(f"{rnbd.client_path(t, 'sess')}/stats/rdma").split()
    return int(words[0]) + int(words[2])


@case(module_sets=("ours",))
def test_no_cache(t: Test) -> None:
    """The client offers a cache for a disk that has none, and ends its flushes without a message."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.WITHOUT_DISCARD)
    t.equal(device.queue("write_cache"), "write back", "write_cache")
    t.equal(device.queue("fua"), "1", "fua")
    for options, wanted in (({}, 1), ({"sync": True}, 1)):
        before, sent = flushes(t, disks.WITHOUT_DISCARD), messages(t)
        t.client.call(guest_io.write, path=device.path, offset=0, length=REQUEST, seed=1, **options)
        for _ in range(3):
            t.client.call(guest_io.fsync, path=device.path)
        t.equal(messages(t) - sent, wanted, f"messages of a write {options} and three fsync")
        t.equal(flushes(t, disks.WITHOUT_DISCARD) - before, 0, "flushes of the server's disk")


def come_back(t: Test, device: Device, disk: str, **attributes: object) -> None:
    """Lose the session, and have the server's null_blk disk come back with other attributes."""
    folder = f"/sys/kernel/config/nullb/{disk[5:]}"
    path = rnbd.client_path(t, "sess")
    t.client.write(f"{path}/disconnect", "1")
    t.client.wait_for(f"{device.sysfs}/state", matches="closed")
    t.server.wait_for(f"{rnbd.SERVER_DEVICES}/{disk[5:]}", gone=True)
    with t.expect_errno(errno.EIO):
        t.client.call(guest_io.fsync, path=device.path)
    t.server.write(f"{folder}/power", "0")
    for name, value in attributes.items():
        t.server.write(f"{folder}/{name}", str(value))
    t.server.write(f"{folder}/power", "1")
    rnbd.reconnect(t, path)
    t.client.wait_for(f"{device.sysfs}/state", matches="open")


def cache_comes(t: Test, target: str) -> None:
    """What is above the device since the disk had no cache has its flushes carried out once it has one.

    ``target`` is the dm target above it, with what comes before the device in its table."""
    rnbd.load(t)
    disk = disks.null_blk(t, size=16)
    device = rnbd.map_device(t, disk)
    above = "above"
    t.client.run(f"modprobe dm-mod; modprobe -q dm-{target.split()[0]}; "
                 f"dmsetup create --noudevsync {above} --table "
                 f"'0 8192 {target} {device.path} 0' && dmsetup mknodes {above}")
    t.defer(t.client.run, f"dmsetup remove --noudevsync --retry {above}")

    def flushed(*, sync: bool = False) -> int:
        before = flushes(t, disk)
        t.client.call(guest_io.write, path=f"/dev/mapper/{above}", offset=0, length=REQUEST,
                      seed=1, sync=sync)
        if not sync:
            t.client.call(guest_io.fsync, path=f"/dev/mapper/{above}")
        return flushes(t, disk) - before

    for times, cache_mib in enumerate((0, 1, 0)):
        if times > 0:
            come_back(t, device, disk, cache_size=cache_mib)
        for options in ({}, {"sync": True}):
            seen = flushed(**options)
            t.check((seen > 0) == (cache_mib > 0),
                    f"{seen} flushes of a disk with a cache of {cache_mib} MiB, {options}")


@case(module_sets=("ours",))
def test_cache_comes(t: Test) -> None:
    """A disk that comes back with a write cache is flushed, also for a stacked driver of before."""
    cache_comes(t, "linear")


@case(kernels=("stock",), module_sets=("ours",))  # the debug kernel has no dm-crypt
def test_cache_comes_below_luks(t: Test) -> None:
    """The same below dm-crypt, which is what LUKS uses."""
    cache_comes(t, f"crypt aes-xts-plain64 {'0123456789abcdef' * 4} 0")


def test_synchronous_write_without_fua(t: Test) -> None:
    """A synchronous write ends with a flush where the disk has no FUA."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    t.equal(t.server.read("/sys/block/vdb/queue/fua").strip(), "0", "fua of the server's disk")
    before = flushes(t, disks.PLAIN)
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=2, sync=True)
    t.check(flushes(t, disks.PLAIN) > before, "no flush followed the synchronous write")


@case(kernels=("stock",))  # the debug kernel has no tracing
def test_fua(t: Test) -> None:
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
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=3, sync=True)
    number = t.server.sh(f"stat -c '%Hr,%Lr' {disk}")
    issued = [line for line in t.server.read("/sys/kernel/tracing/trace").splitlines()
              if "block_rq_issue" in line and f" {number} " in line]
    t.check(any(f"{number} WF" in line for line in issued),
            f"no FUA write was issued to the server's disk: {issued}")
    t.intact(t.client.call(guest_io.compare, path=device.path, offset=0, length=4096, seed=3),
             None, "first wrong byte")


def test_server_disk_loses_power(t: Test) -> None:
    """What fsync confirmed is on the disk after null_blk throws its cache away."""
    rnbd.load(t)
    disk = disks.null_blk(t, cache_size=4)
    device = rnbd.map_device(t, disk)
    t.client.call(guest_io.write, path=device.path, offset=0, length=65536, seed=4)
    t.client.call(guest_io.fsync, path=device.path)
    t.intact(t.server.call(guest_io.compare, path=disk, offset=0, length=65536, seed=4), None,
             "first wrong byte after fsync")
