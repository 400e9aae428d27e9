# SPDX-License-Identifier: GPL-2.0
"""Every block operation on disks that support it and on disks that do not."""

from __future__ import annotations

import errno

from lab.selftest_case import case
from lab.selftest_case import OTHER
from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import rnbd
from lib.rnbd import Device

TOPOLOGY = "one"
QUICK = ("stock", OTHER)
MIB = 1 << 20
SEED = 5


def fill(t: Test, device: Device, length: int = MIB) -> None:
    """Put a pattern at the beginning."""
    t.client.call(guest_io.write, path=device.path, offset=0, length=length, seed=SEED)


def zeroes(t: Test, device: Device, offset: int, length: int) -> bool:
    """Whether a range reads as zeroes."""
    return t.client.call(guest_io.all_zero, path=device.path, offset=offset, length=length)


def unchanged(t: Test, device: Device, length: int = MIB) -> None:
    """The pattern must still be there."""
    t.intact(t.client.call(guest_io.compare, path=device.path, offset=0, length=length,
                           seed=SEED), None, "first byte that changed")


def test_discard(t: Test) -> None:
    """Discard reaches a disk that takes it, and only the range that was meant."""
    rnbd.load(t)
    disk = disks.null_blk(t, discard=1, size=64)
    device = rnbd.map_device(t, disk)
    t.check(int(device.queue("discard_max_bytes")) > 0, "the client's disk takes no discards")
    t.equal(device.queue("discard_granularity"),
            t.server.read(f"/sys/block/{disk[5:]}/queue/discard_granularity"),
            "discard granularity")
    fill(t, device)
    before = rnbd.disk_stats(t.server, disk[5:])
    t.client.call(guest_io.discard, path=device.path, offset=65536, length=131072)
    after = rnbd.disk_stats(t.server, disk[5:])
    t.equal(after["discard_sectors"] - before["discard_sectors"], 256,
            "sectors discarded on the server's disk")
    t.check(zeroes(t, device, 65536, 131072), "discarded range does not read as zeroes")
    t.intact(t.client.call(guest_io.compare, path=device.path, offset=0, length=65536,
                           seed=SEED), None, "first changed byte before the range")


def test_discard_whole_disk(t: Test) -> None:
    """A discard of the whole disk is cut to what the server's disk takes at once."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    t.client.run(["blkdiscard", device.path])
    t.check(zeroes(t, device, 0, MIB), "discarded disk does not read as zeroes")


def test_no_discard(t: Test) -> None:
    """A disk without discard gives EOPNOTSUPP and keeps its data."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.WITHOUT_DISCARD)
    t.equal(device.queue("discard_max_bytes"), "0", "discard_max_bytes")
    fill(t, device)
    with t.expect_errno(errno.EOPNOTSUPP):
        t.client.call(guest_io.discard, path=device.path, offset=0, length=65536)
    unchanged(t, device)


def test_write_zeroes(t: Test) -> None:
    """Write-zeroes is one header-only request where the server's disk has it."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    t.check(int(device.queue("write_zeroes_max_bytes")) > 0, "no write-zeroes on the client")
    fill(t, device)
    path = rnbd.client_path(t, "sess")
    bytes_before = int(t.client.read(f"{path}/stats/rdma").split()[3])
    t.client.call(guest_io.zero_out, path=device.path, offset=4096, length=MIB // 2)
    bytes_after = int(t.client.read(f"{path}/stats/rdma").split()[3])
    t.check(zeroes(t, device, 4096, MIB // 2), "zeroed range does not read as zeroes")
    t.intact(t.client.call(guest_io.compare, path=device.path, offset=0, length=4096,
                           seed=SEED), None, "first changed byte before the range")
    t.check(bytes_after - bytes_before < 65536,
            f"{bytes_after - bytes_before} bytes of zeroes went over the wire")


def test_no_write_zeroes(t: Test) -> None:
    """Without write-zeroes on the server's disk the block layer writes zeroes itself."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.WITHOUT_DISCARD)
    t.equal(device.queue("write_zeroes_max_bytes"), "0", "write_zeroes_max_bytes")
    fill(t, device)
    t.client.call(guest_io.zero_out, path=device.path, offset=4096, length=65536)
    t.check(zeroes(t, device, 4096, 65536), "zeroed range does not read as zeroes")


def test_no_secure_erase(t: Test) -> None:
    """A disk without secure erase gives EOPNOTSUPP and keeps its data."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    fill(t, device)
    with t.expect_errno(errno.EOPNOTSUPP):
        t.client.call(guest_io.secure_erase, path=device.path, offset=0, length=65536)
    unchanged(t, device)


# The C client maps a scatterlist that a secure erase does not have: a NULL dereference.
@case(module_sets=("ours",))
def test_secure_erase(t: Test) -> None:
    """Secure erase reaches a disk that has it, as itself, and only the range meant."""
    rnbd.load(t)
    disk = disks.erasable(t)
    device = rnbd.map_device(t, disk)
    fill(t, device)
    # Behind the first range.
    t.client.call(guest_io.write, path=device.path, offset=196608, length=65536, seed=SEED + 1)
    counter = "/sys/module/erasable_disk/parameters/erased"
    for offset, length in ((65536, 131072), (0, 4 * MIB)):
        before = int(t.server.read(counter))
        t.client.call(guest_io.secure_erase, path=device.path, offset=offset, length=length)
        t.equal(int(t.server.read(counter)) - before, length // 512, "sectors erased")
        t.check(t.server.call(guest_io.filled_with, path=disk, offset=offset, length=length,
                              value=0xE5), "the range was not erased on the server's disk")
        if offset:
            t.intact(t.client.call(guest_io.compare, path=device.path, offset=0, length=offset,
                                   seed=SEED), None, "first changed byte before the range")
            t.intact(t.client.call(guest_io.compare, path=device.path, offset=offset + length,
                                   length=65536, seed=SEED + 1), None,
                     "first changed byte behind the range")
    before = int(t.server.read(counter))
    t.client.call(guest_io.discard, path=device.path, offset=0, length=65536)
    t.check(zeroes(t, device, 0, 65536), "discarded range does not read as zeroes")
    t.equal(int(t.server.read(counter)), before, "sectors erased, after a discard")


@case(c_known_failure="the limit is cut to 16 bits on the wire, so 65536 sectors become none")
def test_secure_erase_limit(t: Test) -> None:
    """A disk that erases 65536 sectors at once can do so through the client."""
    rnbd.load(t)
    disk = disks.erasable(t, max_erase_sectors=65536)
    device = rnbd.map_device(t, disk)
    fill(t, device, 2 * MIB)
    t.client.call(guest_io.secure_erase, path=device.path, offset=0, length=MIB)
    t.check(t.server.call(guest_io.filled_with, path=disk, offset=0, length=MIB, value=0xE5),
            "the range was not erased on the server's disk")
    t.equal(t.server.read("/sys/module/erasable_disk/parameters/erased"), str(MIB // 512),
            "sectors erased")


def test_scsi_disk(t: Test) -> None:
    """A SCSI disk's unmap and write-same limits arrive, and both work."""
    rnbd.load(t)
    disk = disks.scsi_debug(t, lbpu=1, lbpws=1, lbprz=1, unmap_max_blocks=1024)
    device = rnbd.map_device(t, disk)
    for name in ("discard_granularity", "logical_block_size", "physical_block_size"):
        t.equal(device.queue(name), t.server.read(f"/sys/block/{disk[5:]}/queue/{name}"), name)
    fill(t, device)
    t.client.call(guest_io.discard, path=device.path, offset=0, length=65536)
    t.check(zeroes(t, device, 0, 65536), "discarded range does not read as zeroes")
    t.client.call(guest_io.zero_out, path=device.path, offset=131072, length=65536)
    t.check(zeroes(t, device, 131072, 65536), "zeroed range does not read as zeroes")


def test_limits(t: Test) -> None:
    """Request limits are the smaller of the session's and the disk's."""
    rnbd.load(t, rtrs_server="max_chunk_size=65536")
    device = rnbd.map_device(t, disks.PLAIN)
    t.equal(device.queue("max_hw_sectors_kb"), "60", "max_hw_sectors_kb with chunks of 64 KiB")
    t.equal(device.queue("logical_block_size"), "512", "logical_block_size")
    t.equal(device.queue("optimal_io_size"), str(60 << 10), "optimal_io_size")
    fill(t, device)
    unchanged(t, device)


def test_unaligned_offsets_fail(t: Test) -> None:
    """Direct IO below the logical block size is refused on the client."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.LARGE_BLOCKS)
    with t.expect_errno(errno.EINVAL):
        t.client.call(guest_io.write, path=device.path, offset=512, length=512, seed=1)


def test_disk_errors(t: Test) -> None:
    """An error of the server's disk is the client's error, and only of that request."""
    rnbd.load(t)
    disk = disks.null_blk(t, size=64, badblocks="+2048-2055")
    device = rnbd.map_device(t, disk)
    with t.expect_errno(errno.EIO):
        t.client.call(guest_io.digest, path=device.path, offset=MIB, length=4096)
    with t.expect_errno(errno.EIO):
        t.client.call(guest_io.write, path=device.path, offset=MIB, length=4096, seed=1)
    fill(t, device)
    unchanged(t, device)
    t.equal(device.attribute("state"), "open", "state after disk errors")


def test_without_length(t: Test) -> None:
    """Requests of no bytes are what they are on the server's disk, and nothing is sent for them."""
    rnbd.load(t)
    disk = disks.null_blk(t, discard=1, size=64)
    device = rnbd.map_device(t, disk)
    t.client.run("udevadm settle", timeout=60)
    wanted = t.server.call(guest_io.without_length, path=disk)
    before = rnbd.disk_stats(t.client, device.name)
    t.equal(t.client.call(guest_io.without_length, path=device.path), wanted, "results")
    after = rnbd.disk_stats(t.client, device.name)
    for name in ("writes", "discards"):
        t.equal(after[name], before[name], f"{name} of the disk")
    fill(t, device)
    unchanged(t, device)


@case(c_known_failure="the cylinders are counted from the bytes of the size when mapped, and cut to 16 bits")
def test_geometry(t: Test) -> None:
    """The disk reports 4 heads, 16 sectors and the cylinders of its size, as fdisk and friends ask."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    for sectors in (device.size() // 512, 8192):
        t.client.write(f"{device.sysfs}/resize", str(sectors))
        t.equal(t.client.call(guest_io.geometry, path=device.path),
                [4, 16, sectors // 64], "heads, sectors of a track and cylinders")


def test_resize(t: Test) -> None:
    """Writing sectors to resize changes the client's capacity and says so."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    t.client.write(f"{device.sysfs}/resize", "8192")
    t.equal(device.size(), 8192 * 512, "size")
    with t.expect_errno(errno.EINVAL):
        t.client.write(f"{device.sysfs}/resize", "many")
    t.equal(device.size(), 8192 * 512, "size after a bad value")
