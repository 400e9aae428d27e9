# SPDX-License-Identifier: GPL-2.0
"""Discards and writes of zeroes at their limits."""

from __future__ import annotations

import errno

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import guest_hostile_io
from lib import guest_io
from lib import rnbd
from lib.rnbd import Device

TOPOLOGY = "one"
KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
SEED = 21


def fill(t: Test, device: Device, length: int = MIB) -> None:
    """Put a pattern at the beginning."""
    t.client.call(guest_io.write, path=device.path, offset=0, length=length, seed=SEED)


def cleared(t: Test, path: str, length: int = MIB) -> list[tuple[int, int]]:
    """The ranges of sectors that do not have the pattern any more, as [first, end); each must
    be zero."""
    return [(pair[0], pair[1]) for pair in t.client.call(guest_io.cleared, path=path, length=length,
                                                  seed=SEED)]


def test_misaligned_discard(t: Test) -> None:
    """On a disk with granules that begin at an offset, whole granules of the range go.

    At least those that the server itself would clear: the block layer cuts ranges at multiples of
    the granule's size, and may lose the first granule."""
    rnbd.load(t)
    disk = disks.scsi_debug(t, lbpu=1, lbprz=1, unmap_granularity=16, unmap_alignment=8,
                            unmap_max_blocks=64)
    ranges = ((8, 24), (8, 40), (9, 39), (8, 264), (1, 300), (23, 25), (24, 39), (0, 2048),
              (2047, 2048))
    wanted = []
    for first, end in ranges:
        t.server.call(guest_io.write, path=disk, offset=0, length=MIB, seed=SEED)
        t.server.call(guest_io.discard, path=disk, offset=first * 512,
                      length=(end - first) * 512)
        wanted.append(cleared(t, disk))
    t.check(wanted[0] == [(8, 24)] and wanted[2] == [], f"scsi_debug has other granules: {wanted}")
    device = rnbd.map_device(t, disk)
    for name in ("queue/discard_granularity", "queue/discard_max_bytes", "discard_alignment"):
        t.equal(t.client.read(f"/sys/block/{device.name}/{name}"),
                t.server.read(f"/sys/block/{disk[5:]}/{name}"), name)
    t.equal((device.queue("discard_granularity"), device.queue("discard_max_bytes")),
            ("8192", "32768"), "granularity and maximum")
    for (first, end), places in zip(ranges, wanted, strict=True):
        fill(t, device)
        t.client.call(guest_io.discard, path=device.path, offset=first * 512,
                      length=(end - first) * 512)
        got = cleared(t, disk)
        text = f"sectors cleared by a discard of {first}..{end}: {got}, at the server {places}"
        t.check(all(first <= low and high <= end and low % 16 == high % 16 == 8
                    for low, high in got), text)
        t.check(all(any(low <= at and to <= high for low, high in got) for at, to in places), text)


def test_exact_discard(t: Test) -> None:
    """A disk without granules discards exactly what was meant."""
    rnbd.load(t)
    disk = disks.null_blk(t, discard=1, blocksize=512)
    device = rnbd.map_device(t, disk)
    for first, end in ((0, 1), (1, 2), (7, 9), (1, 2047), (0, 2048), (2047, 2048)):
        fill(t, device)
        t.client.call(guest_io.discard, path=device.path, offset=first * 512,
                      length=(end - first) * 512)
        t.equal(cleared(t, disk), [(first, end)], f"sectors cleared by a discard of {first}..{end}")


def test_longest_discard(t: Test) -> None:
    """A discard of more than 4 GiB is cut where a length in bytes ends, and whole."""
    rnbd.load(t)
    disk = disks.loop(t, 9 * GIB // MIB)
    device = rnbd.map_device(t, disk)
    for name in ("discard_max_bytes", "discard_max_hw_bytes", "discard_granularity"):
        t.equal(device.queue(name), t.server.read(f"/sys/block/{disk[5:]}/queue/{name}"), name)
    places = (4096, 4 * GIB - 4096, 4 * GIB, 8 * GIB - 8192, 8 * GIB, 9 * GIB - 8192)
    for offset, length in ((0, 9 * GIB), (4096, 9 * GIB - 8192)):
        for place in (0, *places, 9 * GIB - 4096):
            t.client.call(guest_io.write, path=device.path, offset=place, length=4096, seed=SEED)
        before = rnbd.disk_stats(t.server, disk[5:])
        t.client.call(guest_io.discard, path=device.path, offset=offset, length=length)
        after = rnbd.disk_stats(t.server, disk[5:])
        t.equal(after["discard_sectors"] - before["discard_sectors"], length // 512,
                "sectors discarded on the server's disk")
        for place in places:
            t.check(t.client.call(guest_io.all_zero, path=disk, offset=place, length=4096),
                    f"not discarded at {place}")
    for place in (0, 9 * GIB - 4096):
        t.intact(t.client.call(guest_io.compare, path=disk, offset=place, length=4096,
                               seed=SEED), None, f"first changed byte outside the range at {place}")


def test_write_zeroes(t: Test) -> None:
    """Zeroes of any range, longer than one request's too, and nothing beside it."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.scsi_debug(t, lbpws=1, lbprz=1, write_same_length=128))
    t.equal(device.queue("write_zeroes_max_bytes"), "65536", "write_zeroes_max_bytes")
    for first, end in ((0, 1), (7, 9), (1, 2047), (128, 256), (127, 385)):
        fill(t, device)
        t.client.call(guest_io.zero_out, path=device.path, offset=first * 512,
                      length=(end - first) * 512)
        t.equal(cleared(t, device.path), [(first, end)], f"sectors zeroed of {first}..{end}")


def test_less_than_a_block(t: Test) -> None:
    """Parts of a block cannot be discarded or zeroed; beyond the end there is nothing."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.LARGE_BLOCKS)
    fill(t, device)
    for function in (guest_io.discard, guest_io.zero_out):
        for offset, length in ((512, 4096), (0, 512), (4096, 4608), (0, device.size() + 4096),
                               (device.size(), 4096)):
            with t.expect_errno(errno.EINVAL):
                t.client.call(function, path=device.path, offset=offset, length=length)
    t.equal(cleared(t, device.path), [], "sectors cleared")


@case(module_sets=("ours",))
def test_hostile_requests(t: Test) -> None:
    """Requests on the wire that no block layer makes: each is answered, none does anything."""
    rnbd.load(t, client=False)
    t.client.run("modprobe rdma_ucm")
    disk = disks.null_blk(t, discard=1)
    t.server.call(guest_io.write, path=disk, offset=0, length=MIB, seed=SEED)
    results = t.client.call(guest_hostile_io.requests, address=t.server.address,
                            device_path=disk)
    t.equal(results.pop("a good write"), 0, "a good write")
    t.equal(results.pop("a good discard"), 0, "a good discard")
    for name in ("unknown device", "last device"):
        t.equal(results[name], errno.ENOTCONN, f"errno for the {name}")
    for name, number in results.items():
        t.check(number != 0, f"{name}: answered as if it were done")
    results = t.client.call(guest_hostile_io.reads, address=t.server.address, device_path=disk)
    t.equal(results.pop("good"), 0, "a good read")
    for name, number in results.items():
        t.equal(number, errno.EINVAL, f"errno for a read {name}")
    # 1 and 2: what the good ones did.
    t.equal(t.server.call(guest_io.cleared, path=disk, length=MIB, seed=SEED),
            [[256, 264], [512, 520]], "sectors changed")
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/hostile", gone=True)
