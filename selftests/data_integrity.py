# SPDX-License-Identifier: GPL-2.0
"""What is written is what is read, by every size, shape, mode and file system."""

from __future__ import annotations

from lab.selftest_case import case
from lab.selftest_case import EVERYWHERE
from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import rnbd
from lib.fio import fio_jobs
from lib.fio import verified
from lib.rnbd import Device

TOPOLOGY = "one"
MODES = ("always_invalidate=Y", "always_invalidate=N")
KIB = 1 << 10
MIB = 1 << 20


def same_on_both_ends(t: Test, device: Device, server_disk: str, offset: int, length: int) -> None:
    """The client's view and the server's disk must agree."""
    mine = t.client.call(guest_io.digest, path=device.path, offset=offset, length=length)
    theirs = t.server.call(guest_io.digest, path=server_disk, offset=offset, length=length)
    t.equal(mine, theirs, f"digest of {length} bytes at {offset}, client against server's disk")


@case(timeout=240)
def test_block_sizes(t: Test) -> None:
    """Random mixes verified by fio, 512 B to 1 MiB, depth 1 and 32, both invalidation modes."""
    for mode in MODES:
        rnbd.load(t, rtrs_server=mode)
        device = rnbd.map_device(t, disks.PLAIN)
        jobs = []
        for index, size in enumerate((512, 4 * KIB, 20 * KIB, 64 * KIB, 124 * KIB, MIB)):
            for depth in (1, 32):
                count = t.scaled(max(8, min(160, 2 * MIB // size)), 4)
                jobs.append({"name": f"bs{size}qd{depth}", "bs": size, "iodepth": depth,
                             "rw": "randwrite", "size": size * count, "verify": "crc32c",
                             "offset": f"{(2 * index + (depth > 1)) * 33}m"})
        for report in fio_jobs(t.client, device.path, jobs, direct=1, ioengine="io_uring",
                               verify_fatal=1, timeout=200):
            t.equal(report.errors, 0, f"errors with {mode}")
            t.check(report.read.ios > 0, "fio verified nothing")
        same_on_both_ends(t, device, disks.PLAIN, 0, 4 * MIB)
        device.unmap()


@case(timeout=180)
def test_mixed_depth(t: Test) -> None:
    """A read/write mix at depth 32 on one region by four jobs keeps every block whole."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    jobs = [{"name": f"job{index}", "rw": "randrw", "bs": 4 * KIB, "iodepth": 32,
             "size": "4m", "offset": f"{index * 4}m", "verify": "crc32c",
             "io_size": t.scaled(4 * MIB, 256 * KIB)} for index in range(4)]
    for report in fio_jobs(t.client, device.path, jobs, direct=1, ioengine="io_uring",
                           verify_fatal=1, timeout=160):
        t.equal(report.errors, 0, "errors")


@case(timeout=180)
def test_full_depth(t: Test) -> None:
    """As many requests at a time as a session allows, all of one CPU: more than a send queue holds."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    # What is copied by the server, what is invalidated, and both.
    jobs = [{"name": f"bs{bssplit}", "bssplit": bssplit, "iodepth": 512, "rw": "randwrite",
             "size": f"{size}m", "offset": f"{index * 64}m", "verify": "crc32c",
             "cpus_allowed": 0, "iodepth_batch": 64}
            for index, (bssplit, size) in enumerate((("4k/100", 4), ("16k/100", 12),
                                                     ("4k/50:16k/50", 8)))]
    for report in fio_jobs(t.client, device.path, jobs, direct=1, ioengine="io_uring",
                           verify_fatal=1, timeout=160):
        t.equal(report.errors, 0, "errors")
        t.check(report.read.ios > 0, "fio verified nothing")
    for index in range(3):
        same_on_both_ends(t, device, disks.PLAIN, index * 64 * MIB, 4 * MIB)


@case(quick=EVERYWHERE)
def test_scattered_requests(t: Test) -> None:
    """Vectored requests whose pieces start and end anywhere in their pages."""
    shapes = {
        "one odd piece": [(512, 3584)],
        "gap after each piece": [(0, 512), (1024, 512), (2560, 1536), (0, 4096)],
        "pieces across pages": [(3584, 1024), (512, 8192), (3072, 4608)],
        "many small pieces": [(512 * (index % 8), 512) for index in range(200)],
        "more pages than a request may have": [(0, 4096)] * 256,
        "larger than the largest request": [(512, 130 * KIB), (0, 126 * KIB), (1024, 4 * KIB)],
    }
    for mode in MODES:
        rnbd.load(t, rtrs_server=mode)
        device = rnbd.map_device(t, disks.PLAIN)
        for seed, (name, pieces) in enumerate(shapes.items()):
            offset = 512 * (1 + seed) + seed * MIB
            t.client.call(guest_io.scattered, path=device.path, offset=offset, pieces=pieces,
                          seed=seed, write_it=True)
            length = sum(piece for _at, piece in pieces)
            t.intact(t.server.call(guest_io.compare, path=disks.PLAIN, offset=offset,
                                   length=length, seed=seed), None,
                     f"first wrong byte on the server's disk, {name}, {mode}")
            t.check(t.client.call(guest_io.scattered, path=device.path, offset=offset,
                                  pieces=pieces, seed=seed, write_it=False),
                    f"read back something else: {name}, {mode}")
        device.unmap()


def test_ends_of_disk(t: Test) -> None:
    """The first and the last sectors; beyond the end nothing is written."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    size = device.size()
    for offset, length in ((0, 512), (512, 7 * 512), (size - 512, 512), (size - MIB, MIB)):
        t.client.call(guest_io.write, path=device.path, offset=offset, length=length, seed=offset)
        t.intact(t.server.call(guest_io.compare, path=disks.PLAIN, offset=offset, length=length,
                               seed=offset), None, f"first wrong byte of {length} at {offset}")
    with t.expect_errno(28):  # ENOSPC
        t.client.call(guest_io.write, path=device.path, offset=size, length=512, seed=1)


def test_large_blocks(t: Test) -> None:
    """A disk with 4 KiB logical blocks keeps them on the client, and its data."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.LARGE_BLOCKS)
    t.equal(device.queue("logical_block_size"), "4096", "logical block size")
    t.equal(device.size(), 64 << 20, "size")
    report = verified(t.client, device.path, rw="randwrite", bs="4k", iodepth=16,
                      size=t.scaled(4 * MIB, 256 * KIB))
    t.equal(report.errors, 0, "errors")
    same_on_both_ends(t, device, disks.LARGE_BLOCKS, 0, MIB)


def test_reads_leave_nothing_behind(t: Test) -> None:
    """What a short read's chunk held before is not given to the next reader."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    t.client.call(guest_io.write, path=device.path, offset=0, length=120 * KIB, seed=7)
    t.client.call(guest_io.zero_out, path=device.path, offset=MIB, length=MIB)
    for size in (512, 4096, 64 * KIB):
        t.client.call(guest_io.digest, path=device.path, offset=0, length=120 * KIB)
        t.check(t.client.call(guest_io.all_zero, path=device.path, offset=MIB, length=size),
                f"{size} zero bytes read as something else")


def filesystem_round(t: Test, kind: str, mkfs: str) -> Device:
    """Make a file system, fill it, mount it again, check it."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    files = t.scaled(40, 5)
    t.client.run(f"{mkfs} {device.path}", timeout=120)
    t.client.run(
        f"set -e; mkdir -p /mnt/fs; mount -t {kind} {device.path} /mnt/fs; cd /mnt/fs\n"
        f"for i in $(seq {files}); do mkdir d$i; head -c $((i * 7919)) /dev/urandom >d$i/f; done\n"
        "dd if=/dev/urandom of=big bs=1M count=8 2>/dev/null\n"
        "find . -type f -print0 | sort -z | xargs -0 sha256sum >/tmp/sums; rm -r d1\n"
        "sync; cd /; umount /mnt/fs", timeout=120)
    device.unmap()
    device = rnbd.map_device(t, disks.PLAIN)
    t.client.run(f"set -e; mount -t {kind} {device.path} /mnt/fs; cd /mnt/fs\n"
                 "grep -v ' ./d1/' /tmp/sums | sha256sum --quiet -c\n"
                 "cd /; umount /mnt/fs", timeout=120)
    return device


@case(timeout=240)
def test_ext4(t: Test) -> None:
    """ext4: files survive unmapping; the file system checks clean."""
    device = filesystem_round(t, "ext4", "mkfs.ext4 -q -F")
    t.client.run(f"e2fsck -fn {device.path}", timeout=120)


@case(timeout=240, kernels=("stock",), quick=())  # the debug kernel has no XFS
def test_xfs(t: Test) -> None:
    """XFS: files survive unmapping; the file system checks clean."""
    device = filesystem_round(t, "xfs", "mkfs.xfs -q -f")
    t.client.run(f"xfs_repair -n {device.path}", timeout=120)


def test_partitions(t: Test) -> None:
    """A partition table on the disk gives partitions on the client."""
    rnbd.load(t)
    t.server.call(guest_io.write_mbr, path=disks.PLAIN, partitions=[(MIB, 8 * MIB),
                                                                      (9 * MIB, 8 * MIB)])
    t.defer(t.server.call, guest_io.zero_out, path=disks.PLAIN, offset=0, length=4096)
    device = rnbd.map_device(t, disks.PLAIN)
    t.client.wait_for(f"{device.path}p2")
    t.client.call(guest_io.write, path=f"{device.path}p2", offset=0, length=4096, seed=3)
    t.intact(t.server.call(guest_io.compare, path=disks.PLAIN, offset=9 * MIB, length=4096,
                           seed=3), None, "first wrong byte of the second partition")
