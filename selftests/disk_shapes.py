# SPDX-License-Identifier: GPL-2.0
"""Disks of all block sizes and sizes, and with partitions."""

from __future__ import annotations

import errno

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import guest_partitions
from lib import rnbd
from lib import uevents
from lib.fio import verified
from lib.rnbd import Device

TOPOLOGY = "one"
KIB = 1 << 10
MIB = 1 << 20
TIB = 1 << 40
SEED = 11


def block_sizes(t: Test, device: Device, disk: str) -> int:
    """Logical and physical block size, which must be the server's disk's."""
    for name in ("logical_block_size", "physical_block_size"):
        t.equal(device.queue(name), t.server.read(f"/sys/block/{disk[5:]}/queue/{name}"), name)
    return int(device.queue("logical_block_size"))


def write_everywhere(t: Test, device: Device, disk: str, block: int) -> None:
    """Whole blocks are written and read, to the last one; less than a block is refused."""
    size = device.size()
    for offset, length in ((0, block), (block, 3 * block), (size - block, block),
                           (size - 4 * block, 4 * block), (MIB, 256 * KIB)):
        t.client.call(guest_io.write, path=device.path, offset=offset, length=length, seed=SEED)
        for path in (device.path, disk):
            t.intact(t.client.call(guest_io.compare, path=path, offset=offset, length=length,
                                   seed=SEED), None, f"first wrong byte of {path} at {offset}")
    if block > 512:
        with t.expect_errno(errno.EINVAL):
            t.client.call(guest_io.write, path=device.path, offset=block // 2, length=block,
                          seed=1)
        with t.expect_errno(errno.EINVAL):
            t.client.call(guest_io.write, path=device.path, offset=0, length=block // 2, seed=1)


def test_block_sizes(t: Test) -> None:
    """Disks with logical blocks of 512 bytes to more than a page."""
    rnbd.load(t)
    blocks = [512, 1024, 2048, 4096]
    if disks.can_exceed_page(t.server):
        blocks += [16384, 32768]
    else:
        t.say("this kernel has no huge pages, so no blocks of more than a page")
    for block in blocks:
        disk = disks.loop(t, 16, block_size=block)
        device = rnbd.map_device(t, disk)
        t.equal(block_sizes(t, device, disk), block, "logical_block_size")
        write_everywhere(t, device, disk, block)
        device.unmap()


def test_emulated_blocks(t: Test) -> None:
    """A disk with 4 KiB sectors that pretends to have 512 byte ones says so at the client."""
    rnbd.load(t)
    disk = disks.scsi_debug(t, sector_size=512, physblk_exp=3)
    device = rnbd.map_device(t, disk)
    t.equal(block_sizes(t, device, disk), 512, "logical_block_size")
    t.equal(device.queue("physical_block_size"), "4096", "physical_block_size")
    write_everywhere(t, device, disk, 512)


@case(c_known_failure="a flush fails on a SCSI disk with 4 KiB sectors: it has sector -1")
def test_native_blocks(t: Test) -> None:
    """A SCSI disk with 4 KiB sectors: data, and a file system that needs its block size."""
    rnbd.load(t)
    disk = disks.scsi_debug(t, sector_size=4096, dev_size_mb=64)
    device = rnbd.map_device(t, disk)
    t.equal(block_sizes(t, device, disk), 4096, "logical_block_size")
    write_everywhere(t, device, disk, 4096)
    t.client.run(f"set -e; mkfs.ext4 -q -F {device.path}; mkdir -p /mnt/fs\n"
                 f"mount {device.path} /mnt/fs; head -c 300000 /dev/urandom >/mnt/fs/file\n"
                 "sum=$(sha256sum </mnt/fs/file); umount /mnt/fs\n"
                 f"mount {device.path} /mnt/fs; [ \"$sum\" = \"$(sha256sum </mnt/fs/file)\" ]\n"
                 f"umount /mnt/fs; e2fsck -fn {device.path}", timeout=60)


@case(timeout=180)
def test_request_sizes(t: Test) -> None:
    """The longest request follows the server's chunks, up to 512 KiB; data of that length."""
    for chunk, longest in ((8 * KIB, 4), (64 * KIB, 60), (MIB, 512)):
        rnbd.load(t, rtrs_server=f"max_chunk_size={chunk} sess_queue_depth=32")
        device = rnbd.map_device(t, disks.PLAIN)
        t.equal(device.queue("max_hw_sectors_kb"), str(longest), f"max_hw_sectors_kb, {chunk}")
        t.equal(device.queue("optimal_io_size"), str(longest * KIB), f"optimal_io_size, {chunk}")
        t.client.write(f"/sys/block/{device.name}/queue/max_sectors_kb", str(longest))
        for offset, length in ((512, longest * KIB), (MIB, 3 * longest * KIB - 512)):
            t.client.call(guest_io.write, path=device.path, offset=offset, length=length,
                          seed=length)
            for path in (device.path, disks.PLAIN):
                t.intact(t.client.call(guest_io.compare, path=path, offset=offset, length=length,
                                       seed=length), None, f"first wrong byte of {path}, {chunk}")
        device.unmap()


def test_blocks_longer_than_requests(t: Test) -> None:
    """A disk whose blocks do not fit a request is refused, and nothing of it stays."""
    if not disks.can_exceed_page(t.server):
        t.skip("this kernel has no huge pages, so no blocks of more than a page")
    rnbd.load(t, rtrs_server="max_chunk_size=8192 sess_queue_depth=32")
    disk = disks.loop(t, 16, block_size=16384)
    mark = t.client.log_mark()
    with t.expect_errno(errno.EINVAL):
        rnbd.map_device(t, disk)
    if t.modules == "ours":
        t.client.wait_log("blocks of 16384 bytes, and a request carries at most 4096", mark)
    t.equal(t.client.listdir(rnbd.CLIENT_DEVICES), [], "links in ctl/devices")
    t.server.wait_for(f"{rnbd.SERVER_DEVICES}/{disk[5:]}", gone=True)
    t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True)
    rnbd.map_device(t, disks.LARGE_BLOCKS)


@case(timeout=180, c_known_failure="some requests fail with EIO when others have all the chunks")
def test_few_requests(t: Test) -> None:
    """Three busy disks share a session of two requests: none starves, all data is right."""
    rnbd.load(t, rtrs_server="sess_queue_depth=2")
    devices = [rnbd.map_device(t, disk)
               for disk in (disks.PLAIN, disks.WITHOUT_DISCARD, disks.LARGE_BLOCKS)]
    jobs = [t.client.start_job(
        ["fio", "--name=x", f"--filename={device.path}", "--rw=randwrite", "--bs=4k",
         "--iodepth=16", "--ioengine=io_uring", "--direct=1", "--verify=crc32c",
         "--verify_fatal=1", f"--size={t.scaled(MIB, 128 * KIB)}", "--thread=1"], timeout=120)
        for device in devices]
    for device, job in zip(devices, jobs, strict=True):
        result = job.wait()
        t.equal(result.rc, 0, f"exit code of fio on {device.device_path}: {result.err[-300:]}")


@case(module_sets=("ours",))
def test_many_requests(t: Test) -> None:
    """Of more chunks than the RDMA device has completions for, as many are used as it has."""
    rnbd.load(t, rtrs_server="sess_queue_depth=8000 max_chunk_size=8192")
    device = rnbd.map_device(t, disks.PLAIN)
    slots = int(device.queue("nr_requests"))
    t.check(4000 < slots < 5000, f"the disk has room for {slots} requests")
    verified(t.client, device.path, rw="randwrite", bs=4 * KIB, iodepth=64,
             size=t.scaled(8 * MIB, MIB))


def test_large_disk(t: Test) -> None:
    """Beyond 2 and 4 TiB of a large disk nothing wraps around."""
    rnbd.load(t)
    disk = disks.loop(t, 5 * TIB // MIB)
    device = rnbd.map_device(t, disk)
    t.equal(device.size(), 5 * TIB, "size")
    # The low 32 bits of each sector number are those of another place.
    places = (0, MIB, 2 * TIB - 64 * KIB, 2 * TIB + MIB, 4 * TIB - 64 * KIB, 4 * TIB + 2 * MIB,
              5 * TIB - 128 * KIB)
    for place in places:
        t.client.call(guest_io.write, path=device.path, offset=place, length=128 * KIB,
                      seed=place)
    for place in places:
        for path in (device.path, disk):
            t.intact(t.client.call(guest_io.compare, path=path, offset=place, length=128 * KIB,
                                   seed=place), None, f"first wrong byte of {path} at {place}")
    report = verified(t.client, device.path, rw="randwrite", bs="4k", iodepth=8,
                      offset=2 * TIB - MIB, size=2 * MIB, io_size=t.scaled(2 * MIB, 128 * KIB))
    t.equal(report.errors, 0, "errors around 2 TiB")
    t.client.call(guest_io.discard, path=device.path, offset=2 * TIB + MIB, length=64 * KIB)
    t.client.call(guest_io.zero_out, path=device.path, offset=4 * TIB + 2 * MIB,
                  length=64 * KIB)
    for place in (2 * TIB + MIB, 4 * TIB + 2 * MIB):
        t.check(t.client.call(guest_io.all_zero, path=disk, offset=place, length=64 * KIB),
                f"not cleared at {place}")
    for place in (0, MIB):
        t.intact(t.client.call(guest_io.compare, path=disk, offset=place, length=128 * KIB,
                               seed=place), None, f"first wrong byte at {place}, after that")


def test_small_disk(t: Test) -> None:
    """A disk of a few sectors, and reading it by chunks longer than it is."""
    rnbd.load(t)
    disk = disks.loop(t, 1)
    t.server.run(f"truncate -s 3584 $(losetup -nO BACK-FILE {disk}); losetup -c {disk}")
    device = rnbd.map_device(t, disk)
    t.equal(device.size(), 3584, "size")
    t.client.call(guest_io.write, path=device.path, offset=0, length=3584, seed=SEED,
                  direct=False)
    t.client.call(guest_io.fsync, path=device.path)
    t.equal(t.client.sh(f"blockdev --flushbufs {device.path}; cat {device.path} | wc -c"), "3584",
            "bytes that can be read")
    t.intact(t.server.call(guest_io.compare, path=disk, offset=0, length=3584, seed=SEED), None,
             "first wrong byte")


def test_partitions(t: Test) -> None:
    """63 partitions, each with a minor number of the disk's 64; written, they are where they are.

    A disk that is mapped beside it has numbers of its own."""
    rnbd.load(t)
    beside = rnbd.map_device(t, disks.WITHOUT_DISCARD)
    device = rnbd.map_device(t, disks.PLAIN)
    parts = [((1 + index) * MIB, MIB) for index in range(63)]
    t.defer(t.server.call, guest_io.zero_out, path=disks.PLAIN, offset=0, length=MIB)
    t.client.call(guest_partitions.write_gpt, path=device.path, partitions=parts)
    t.client.run(f"blockdev --rereadpt {device.path}")
    t.client.wait_for(f"{device.path}p63")
    major, first = [int(word) for word in t.client.sh(f"stat -c '%Hr %Lr' {device.path}").split()]
    t.equal(first % 64, 0, "minor number of the disk, modulo 64")
    for number in (1, 2, 63):
        t.equal(t.client.sh(f"stat -c '%Hr %Lr' {device.path}p{number}"),
                f"{major} {first + number}", f"numbers of partition {number}")
        t.client.call(guest_io.write, path=f"{device.path}p{number}", offset=0, length=8192,
                      seed=number)
        t.intact(t.server.call(guest_io.compare, path=disks.PLAIN, offset=number * MIB,
                               length=8192, seed=number), None,
                 f"first wrong byte of partition {number} on the server's disk")
    with t.expect_errno(errno.ENOSPC):
        t.client.call(guest_io.write, path=f"{device.path}p1", offset=MIB, length=4096, seed=1)
    t.check(int(t.client.sh(f"stat -c %Lr {beside.path}")) not in range(first, first + 64),
            "two disks share minor numbers")
    # A partition that is open holds its disk.
    t.client.call(guest_io.hold, path=f"{device.path}p63", name="partition")
    t.defer(t.client.call, guest_io.release, name="partition")
    with t.expect_errno(errno.EBUSY):
        device.unmap()
    t.client.call(guest_io.release, name="partition")
    device.unmap()
    t.check(not t.client.exists(f"{device.path}p63"), "a partition outlives its disk")


def test_partition_of_the_server(t: Test) -> None:
    """A partition of the server's disk is mapped as a disk, and cannot be left."""
    rnbd.load(t)
    t.server.call(guest_partitions.write_gpt, path=disks.PLAIN,
                  partitions=[(MIB, 4 * MIB), (5 * MIB, 4 * MIB)])
    t.defer(t.server.run, f"blkdiscard -z -l 1M {disks.PLAIN}; blockdev --rereadpt {disks.PLAIN}")
    t.server.run(f"blockdev --rereadpt {disks.PLAIN}")
    t.server.wait_for(f"{disks.PLAIN}2")
    t.server.call(guest_io.write, path=disks.PLAIN, offset=5 * MIB, length=4096, seed=1)
    device = rnbd.map_device(t, f"{disks.PLAIN}1")
    t.equal(device.size(), 4 * MIB, "size")
    t.equal(t.server.listdir(rnbd.SERVER_DEVICES), [f"{disks.PLAIN[5:]}1"], "exported devices")
    t.client.call(guest_io.write, path=device.path, offset=4 * MIB - 8192, length=8192, seed=2)
    t.intact(t.server.call(guest_io.compare, path=disks.PLAIN, offset=5 * MIB - 8192, length=8192,
                           seed=2), None, "first wrong byte of the partition")
    with t.expect_errno(errno.ENOSPC):
        t.client.call(guest_io.write, path=device.path, offset=4 * MIB, length=4096, seed=2)
    t.client.write(f"{device.sysfs}/resize", str(5 * MIB // 512))
    with t.expect_errno(errno.EIO):
        t.client.call(guest_io.write, path=device.path, offset=4 * MIB, length=4096, seed=2)
    t.intact(t.server.call(guest_io.compare, path=disks.PLAIN, offset=5 * MIB, length=4096,
                           seed=1), None, "first wrong byte behind the partition")


@case(timeout=180)
def test_resize(t: Test) -> None:
    """resize takes what C takes, and says so to user space; the rest is EINVAL or ERANGE."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    uevents.record(t)
    for word, sectors in (("8192", 8192), ("0x4000\n", 0x4000), ("0XaB", 0xab),
                          ("010", 8), ("0", 0), ("+16", 16), ("1048576", 1 << 20)):
        t.client.write(f"{device.sysfs}/resize", word)
        t.equal(device.size(), sectors * 512, f"size after {word!r}")
    seen = uevents.actions(t, device, ["change"])
    t.check("change" in seen, f"uevents: {seen}")
    for word in ("many", "-1", "8192 ", " 8192", "12x", "1 2", "0x", "08", "0b1", "0o17", "\n"):
        with t.expect_errno(errno.EINVAL):
            t.client.write(f"{device.sysfs}/resize", word)
    for word in ("18446744073709551616", "0x10000000000000000", "99999999999999999999999"):
        with t.expect_errno(errno.ERANGE):
            t.client.write(f"{device.sysfs}/resize", word)
    t.equal(device.size(), 512 * MIB, "size after bad values")
