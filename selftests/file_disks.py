# SPDX-License-Identifier: GPL-2.0
"""Files as disks: image files of the server, past the page cache and through it."""

from __future__ import annotations

import errno
from typing import Any

from lab.selftest_case import case
from lab.selftest_case import OTHER
from lab.selftest_case import SkipTest
from lab.selftest_case import Test
from lib import disks
from lib import guest_hostile_io
from lib import guest_io
from lib import policy
from lib import rnbd
from lib.fio import verified
from lib.operations import every_operation
from lib.operations import requests
from lib.rnbd import Device

TOPOLOGY = "one"
ONLY_OURS = ("ours",)
KIB = 1 << 10
MIB = 1 << 20
SIZE = 64 * MIB
MAKE = {"ext4": "mkfs.ext4 -q -F", "xfs": "mkfs.xfs -q -f"}


def load(t: Test, **parameters: Any) -> None:
    """The modules, and an export policy by which the server gives all disks and files."""
    rnbd.load(t, **parameters)
    policy.allow(t)


def file_system(t: Test, kind: str = "ext4", disk: str = disks.PLAIN, options: str = "") -> str:
    """An empty file system on a disk of the server, mounted until the test is over; its folder."""
    folder = f"/mnt/{kind}{disk.replace('/', '-')}"
    t.server.run(f"set -e; {MAKE[kind]} {options} {disk}; mkdir -p {folder}\n"
                 f"modprobe -q {kind} || :; mount -t {kind} {disk} {folder}", timeout=120)
    t.defer(t.server.run, f"set -e; ! mountpoint -q {folder} || umount {folder}; [ ! -d {folder} ] || rmdir {folder}")
    return folder


def image(t: Test, folder: str, size: int = SIZE, name: str = "disk.img") -> str:
    """A sparse file."""
    path = f"{folder}/{name}"
    t.server.run(f"truncate -s {size} {path}")
    return path


def used(t: Test, path: str) -> int:
    """The space that a file takes, in bytes."""
    return 512 * int(t.server.sh(f"sync {path}; stat -c %b {path}"))


def exported(path: str) -> str:
    """The directory of a file that is mapped."""
    return f"{rnbd.SERVER_DEVICES}/{path.replace('/', '!')}"


def written(t: Test, device: Device, image_path: str, length: int = MIB, seed: int = 1) -> None:
    """What is written to a device is read from it, and is in the file."""
    rnbd.works(t, device, length, seed)
    t.intact(t.server.call(guest_io.compare, path=image_path, offset=0, length=length, seed=seed),
             None, "first wrong byte of the file")


def a_disk(t: Test, kind: str) -> None:
    """An image is a disk with the blocks of its file system, on which every operation works."""
    load(t)
    path = image(t, file_system(t, kind))
    device = rnbd.map_device(t, path)
    t.equal(device.size(), SIZE, "size")
    for name, value in (("logical_block_size", "512"), ("physical_block_size", "4096"),
                        ("discard_granularity", "4096"), ("write_cache", "write back"),
                        ("fua", "1")):
        t.equal(device.queue(name), value, name)
    for name in ("discard_max_bytes", "write_zeroes_max_bytes"):
        t.check(int(device.queue(name)) > MIB, f"{name} is {device.queue(name)}")
    t.equal(t.server.read(f"{exported(path)}/path"), path, "path of the file")
    t.equal(t.server.read(f"{exported(path)}/sessions/sess/io_mode"), "direct", "io_mode")
    t.check(not t.server.exists(f"{exported(path)}/block_dev"), "a file has a block_dev")
    # Of a sparse file, then of one that has been written.
    for _ in range(2):
        every_operation(t, device, behind=disks.PLAIN)
    for bs, depth in (("512", 4), ("4k", 16), ("256k", 4)):
        report = verified(t.client, device.path, rw="randrw", bs=bs, iodepth=depth, offset="8m",
                          size="16m", io_size=t.scaled(4 * MIB, MIB), timeout=180)
        t.equal(report.errors, 0, f"errors with bs={bs}")
    written(t, device, path)
    device.unmap()
    t.server.wait_for(exported(path), gone=True)


@case(module_sets=ONLY_OURS, quick=("stock", "debug", OTHER), timeout=180)
def test_ext4(t: Test) -> None:
    """A sparse image on ext4: every operation, with verified data."""
    a_disk(t, "ext4")


@case(module_sets=ONLY_OURS, quick=("stock", OTHER), kernels=("stock",), timeout=180)
def test_xfs(t: Test) -> None:
    """The same on XFS."""
    a_disk(t, "xfs")


@case(module_sets=ONLY_OURS, timeout=180)
def test_buffered(t: Test) -> None:
    """With file_io_mode=buffered requests go through the page cache; the file is what was written."""
    load(t, rnbd_server="file_io_mode=buffered")
    path = image(t, file_system(t))
    device = rnbd.map_device(t, path)
    t.equal(t.server.read(f"{exported(path)}/sessions/sess/io_mode"), "buffered", "io_mode")
    every_operation(t, device, behind=disks.PLAIN)
    report = verified(t.client, device.path, rw="randrw", bs="4k", iodepth=16, offset="8m",
                      size="16m", io_size=t.scaled(4 * MIB, MIB), timeout=180)
    t.equal(report.errors, 0, "errors")
    written(t, device, path)
    before = rnbd.disk_stats(t.server, disks.PLAIN[5:])["reads"]
    t.client.call(guest_io.digest, path=device.path, offset=0, length=64 * KIB)
    t.equal(rnbd.disk_stats(t.server, disks.PLAIN[5:])["reads"], before,
            "reads of the server's disk, for what is in its page cache")


@case(module_sets=ONLY_OURS)
def test_memory_file(t: Test) -> None:
    """A file on tmpfs is a disk, in both modes; one on ramfs is one through the page cache only."""
    for mode in ("direct", "buffered"):
        load(t, rnbd_server=f"file_io_mode={mode}")
        for kind in ("tmpfs", "ramfs"):
            folder = f"/mnt/{kind}"
            t.server.run(f"mkdir -p {folder}; mount -t {kind} none {folder}")
            path = image(t, folder)
            if (kind, mode) == ("ramfs", "direct"):
                mark = t.server.log_mark()
                with t.expect_errno(errno.EINVAL):
                    rnbd.map_device(t, path)
                t.server.wait_log("takes no direct IO to it; with file_io_mode=buffered it can",
                                  mark)
            else:
                device = rnbd.map_device(t, path)
                rnbd.works(t, device, MIB)
                if kind == "tmpfs":
                    t.client.call(guest_io.zero_out, path=device.path, offset=0, length=64 * KIB)
                    t.client.call(guest_io.discard, path=device.path, offset=64 * KIB,
                                  length=64 * KIB)
                    t.check(t.client.call(guest_io.all_zero, path=device.path, offset=0,
                                          length=128 * KIB), "cleared ranges are not zero")
                device.unmap()
            t.server.run(f"umount {folder}; rmdir {folder}")


@case(module_sets=ONLY_OURS, timeout=180)
def test_block_device_buffered(t: Test) -> None:
    """With block_io_mode=buffered a block device is used through its page cache."""
    load(t, rnbd_server="block_io_mode=buffered")
    device = rnbd.map_device(t, disks.PLAIN)
    folder = f"{rnbd.SERVER_DEVICES}/vdb"
    t.equal(t.server.read(f"{folder}/sessions/sess/io_mode"), "buffered", "io_mode")
    t.check(t.server.realpath(f"{folder}/block_dev").endswith("/block/vdb"),
            "block_dev leads elsewhere")
    t.check(not t.server.exists(f"{folder}/path"), "a block device has a path")
    every_operation(t, device)
    rnbd.works(t, device, MIB)
    before = rnbd.disk_stats(t.server, disks.PLAIN[5:])["reads"]
    t.client.call(guest_io.digest, path=device.path, offset=0, length=64 * KIB)
    t.equal(rnbd.disk_stats(t.server, disks.PLAIN[5:])["reads"], before,
            "reads of the server's disk, for what is in its page cache")
    with t.expect_errno(errno.EPERM):
        rnbd.map_device(t, disks.PLAIN, session="second")


@case(module_sets=ONLY_OURS)
def test_space(t: Test) -> None:
    """Writing takes space, discarding gives it back, and writing zeroes keeps it."""
    load(t)
    path = image(t, file_system(t))
    device = rnbd.map_device(t, path)
    t.check(used(t, path) < 64 * KIB, f"a sparse file takes {used(t, path)} bytes")
    t.client.call(guest_io.write, path=device.path, offset=0, length=8 * MIB, seed=1)
    full = used(t, path)
    t.check(full >= 8 * MIB, f"{full} bytes after a write of 8 MiB")
    t.client.call(guest_io.zero_out, path=device.path, offset=0, length=MIB)
    t.check(used(t, path) >= full, f"{used(t, path)} bytes after a write of zeroes, {full} before")
    t.client.call(guest_io.discard, path=device.path, offset=0, length=4 * MIB)
    left = used(t, path)
    t.check(left <= full - 4 * MIB, f"{left} bytes after a discard of 4 MiB, {full} before")
    t.check(t.client.call(guest_io.all_zero, path=device.path, offset=0, length=4 * MIB),
            "the discarded range is not zero")
    # Not whole blocks of the file system.
    t.client.call(guest_io.write, path=device.path, offset=0, length=64 * KIB, seed=2)
    t.client.call(guest_io.zero_out, path=device.path, offset=512, length=8 * KIB)
    t.check(t.client.call(guest_io.all_zero, path=device.path, offset=512, length=8 * KIB),
            "the zeroed range is not zero")
    t.intact(t.client.call(guest_io.compare, path=device.path, offset=0, length=512, seed=2), None,
             "first changed byte before the range")
    t.equal(int(t.server.sh(f"stat -c %s {path}")), SIZE, "size of the file")


@case(module_sets=ONLY_OURS, timeout=120)
def test_no_space(t: Test) -> None:
    """When the file system is full the client gets ENOSPC, and a discard makes room again."""
    load(t)
    folder = file_system(t, disk=disks.loop(t, 32))
    device = rnbd.map_device(t, image(t, folder))
    with t.expect_errno(errno.ENOSPC):
        for at in range(0, SIZE, MIB):
            t.client.call(guest_io.write, path=device.path, offset=at, length=MIB, seed=at)
    t.equal(device.attribute("state"), "open", "state")
    t.intact(t.client.call(guest_io.compare, path=device.path, offset=0, length=MIB, seed=0), None,
             "first wrong byte")
    t.client.call(guest_io.discard, path=device.path, offset=4 * MIB, length=4 * MIB)
    t.client.call(guest_io.write, path=device.path, offset=SIZE - MIB, length=MIB, seed=5)
    t.intact(t.client.call(guest_io.compare, path=device.path, offset=SIZE - MIB, length=MIB,
                           seed=5), None, "first wrong byte")


@case(module_sets=ONLY_OURS)
def test_flush(t: Test) -> None:
    """fsync and synchronous writes of the client reach the disk below the file system."""
    for mode in ("direct", "buffered"):
        load(t, rnbd_server=f"file_io_mode={mode}")
        folder = file_system(t)
        device = rnbd.map_device(t, image(t, folder))

        def flushes() -> int:
            return t.server.disk_stats(1)["flush_operations"]

        # New blocks, then old ones: only the former change the file's map of blocks.
        for _ in range(2):
            t.client.call(guest_io.write, path=device.path, offset=0, length=64 * KIB, seed=1)
            before = flushes()
            t.client.call(guest_io.fsync, path=device.path)
            t.check(flushes() > before, f"{mode}: no flush arrived")
            before = flushes()
            t.client.call(guest_io.write, path=device.path, offset=0, length=4 * KIB, seed=2,
                          sync=True)
            t.check(flushes() > before, f"{mode}: no flush followed a synchronous write")
        device.unmap()
        t.server.run(f"umount {folder}; mount {disks.PLAIN} {folder}")
        t.intact(t.server.call(guest_io.compare, path=f"{folder}/disk.img", offset=0, length=4 * KIB,
                               seed=2), None, f"{mode}: first wrong byte of the file")
        t.server.run(f"umount {folder}")


@case(module_sets=ONLY_OURS)
def test_read_only(t: Test) -> None:
    """A file that cannot be written is mapped ro only; and ro changes nothing."""
    load(t)
    folder = file_system(t)
    path = image(t, folder)
    t.server.call(guest_io.write, path=path, offset=0, length=64 * KIB, seed=6)

    def only_read(number: int, why: str) -> None:
        try:
            with t.expect_errno(number):
                rnbd.map_device(t, path)
        except AssertionError as error:
            raise AssertionError(f"{why}: {error}") from None
        device = rnbd.map_device(t, path, access_mode="ro")
        t.equal(t.client.read(f"/sys/block/{device.name}/ro"), "1", "ro of the disk")
        t.intact(t.client.call(guest_io.compare, path=device.path, offset=0, length=64 * KIB,
                               seed=6), None, f"{why}: first wrong byte")
        device.unmap()

    t.server.run(f"chattr +i {path}")
    only_read(errno.EPERM, "immutable")
    t.server.run(f"chattr -i {path}; mount -o remount,ro {folder}")
    only_read(errno.EROFS, "mounted read-only")
    t.server.run(f"mount -o remount,rw {folder}")
    load(t, client=False)
    t.client.run("modprobe rdma_ucm")
    results = t.client.call(guest_hostile_io.read_only, address=t.server.address, device_path=path)
    for name in ("read", "flush"):
        t.equal(results.pop(name), 0, f"errno of a {name}")
    for name, number in results.items():
        t.equal(number, errno.EROFS, f"errno of a {name}")
    t.intact(t.server.call(guest_io.compare, path=path, offset=0, length=64 * KIB, seed=6), None,
             "first wrong byte of the file")


@case(module_sets=ONLY_OURS)
def test_hostile_client(t: Test) -> None:
    """Requests that make no sense are refused, and none makes the file longer."""
    t.client.run("modprobe rdma_ucm")
    for mode in ("direct", "buffered"):
        load(t, client=False, rnbd_server=f"file_io_mode={mode}")
        folder = file_system(t)
        path = image(t, folder)
        results = t.client.call(guest_hostile_io.requests, address=t.server.address,
                                device_path=path)
        good = {name for name, number in results.items() if number == 0}
        t.equal(good, {"a good write", "a good discard"}, f"{mode}: requests that succeeded")
        for name in ("write beyond the end", "write across the end"):
            t.equal(results[name], errno.EIO, f"{mode}: errno of a {name}")
        t.equal(int(t.server.sh(f"stat -c %s {path}")), SIZE, f"{mode}: size of the file")
        t.server.wait_for(exported(path), gone=True)
        t.server.run(f"umount {folder}")


@case(module_sets=ONLY_OURS)
def test_deleted_and_replaced(t: Test) -> None:
    """The open file stays whatever becomes of its name, and the name's new file is another disk."""
    load(t)
    folder = file_system(t)
    path = image(t, folder)
    device = rnbd.map_device(t, path)
    rnbd.works(t, device, MIB)
    t.server.run(f"mv {path} {folder}/renamed")
    rnbd.works(t, device, MIB, seed=2)
    free = int(t.server.sh(f"rm {folder}/renamed; sync; stat -f -c %f {folder}"))
    rnbd.works(t, device, MIB, seed=3)
    t.server.call(guest_io.write, path=image(t, folder, 2 * SIZE), offset=0, length=MIB, seed=4)
    t.intact(t.client.call(guest_io.compare, path=device.path, offset=0, length=MIB, seed=3), None,
             "first wrong byte of the deleted file")
    other = rnbd.map_device(t, path, session="second")
    t.equal(other.size(), 2 * SIZE, "size of the new file")
    t.equal(len(t.server.listdir(rnbd.SERVER_DEVICES)), 2, "directories of the two files")
    t.intact(t.client.call(guest_io.compare, path=other.path, offset=0, length=MIB, seed=4), None,
             "first wrong byte of the new file")
    other.unmap()
    t.server.run(f"rm {path}")
    device.unmap()
    t.check(int(t.server.sh(f"sync; stat -f -c %f {folder}")) > free,
            "the deleted file was not freed when it was unmapped")


@case(module_sets=ONLY_OURS)
def test_truncated(t: Test) -> None:
    """Behind the end of a file that was made shorter requests fail, and nothing makes it longer."""
    for mode in ("direct", "buffered"):
        load(t, rnbd_server=f"file_io_mode={mode}")
        folder = file_system(t)
        path = image(t, folder)
        device = rnbd.map_device(t, path)
        t.client.call(guest_io.write, path=device.path, offset=0, length=2 * MIB, seed=1)
        t.server.run(f"truncate -s {MIB} {path}")
        # The client learns of it. As a C client, which does not, it goes on to ask for what was there.
        t.client.wait_for(f"/sys/block/{device.name}/size", matches=f"^{MIB // 512}$", timeout=5)
        t.client.write(f"{device.sysfs}/resize", str(SIZE // 512))
        for offset in (MIB - 4 * KIB, MIB, SIZE - 8 * KIB):
            for name, request in requests(t.client, device.path, offset, 8 * KIB).items():
                try:
                    with t.expect_errno(errno.EIO):
                        request()
                except AssertionError as error:
                    raise AssertionError(f"{mode}: {name} at {offset}: {error}") from None
        t.equal(int(t.server.sh(f"stat -c %s {path}")), MIB, f"{mode}: size of the file")
        t.intact(t.client.call(guest_io.compare, path=device.path, offset=0, length=MIB - 4 * KIB,
                               seed=1), None, "first wrong byte before the end")
        t.equal(device.attribute("state"), "open", "state")
        device.unmap()
        t.server.run(f"umount {folder}")


@case(module_sets=ONLY_OURS)
def test_resized(t: Test) -> None:
    """A file that grows, and one that is cut short, has its new size at the client soon."""
    load(t)
    path = image(t, file_system(t))
    device = rnbd.map_device(t, path)
    for size in (2 * SIZE + 700, SIZE // 2):
        t.server.run(f"truncate -s {size} {path}")
        blocks = size // 512
        t.client.wait_for(f"/sys/block/{device.name}/size", matches=f"^{blocks}$", timeout=5)
        t.client.call(guest_io.write, path=device.path, offset=(blocks - 1) * 512, length=512, seed=1)
        t.equal(int(t.server.sh(f"stat -c %s {path}")), size, "size of the file")
    # A client that makes its own disk longer does not make the file longer.
    t.client.write(f"{device.sysfs}/resize", str(SIZE // 512))
    with t.expect_errno(errno.EIO):
        t.client.call(guest_io.write, path=device.path, offset=SIZE - 4096, length=4096, seed=1)
    t.equal(int(t.server.sh(f"stat -c %s {path}")), SIZE // 2, "size of the file at the end")


@case(module_sets=ONLY_OURS)
def test_session_comes_back(t: Test) -> None:
    """A client that had lost its path opens the file again, with its new size."""
    load(t)
    path = image(t, file_system(t))
    device = rnbd.map_device(t, path)
    rnbd.works(t, device)
    client_path = rnbd.client_path(t, "sess")
    t.client.write(f"{client_path}/disconnect", "1")
    t.client.wait_for(f"{device.sysfs}/state", matches="closed")
    t.server.wait_for(exported(path), gone=True)
    t.server.run(f"truncate -s {2 * SIZE} {path}")
    rnbd.reconnect(t, client_path)
    t.client.wait_for(f"{device.sysfs}/state", matches="open")
    t.equal(device.size(), 2 * SIZE, "size")
    rnbd.works(t, device, seed=2)


@case(module_sets=ONLY_OURS, timeout=120)
def test_frozen(t: Test) -> None:
    """While a file system is frozen writes to it wait; its reads and other disks do not."""
    load(t)
    folder = file_system(t)
    path = image(t, folder)
    device = rnbd.map_device(t, path)
    elsewhere = rnbd.map_device(t, image(t, file_system(t, disk=disks.LARGE_BLOCKS)))
    other = rnbd.map_device(t, disks.WITHOUT_DISCARD)
    rnbd.works(t, device, MIB)
    t.client.run("udevadm settle", timeout=60)
    t.server.run(f"fsfreeze -f {folder}")
    t.defer(t.server.run, f"fsfreeze -u {folder}", check=False)
    # More than the file has work for at the same time on a CPU.
    writer = t.client.start_job(
        ["fio", "--name=w", f"--filename={device.path}", "--rw=randwrite", "--bs=4k", "--iodepth=160",
         "--ioengine=io_uring", "--direct=1", "--size=1m", "--offset=8m", "--thread=1"],
        timeout=100)
    t.client.wait_for(f"/sys/block/{device.name}/inflight", matches=r"^\s*\d+\s+1[0-9][0-9]",
                      timeout=60)
    for disk in (elsewhere, other):
        rnbd.works(t, disk, 256 * KIB)
    t.check(not writer.done(), "writes to a frozen file system have ended")
    t.server.run(f"fsfreeze -u {folder}")
    t.equal(writer.wait().rc, 0, "exit code of the writer")
    t.server.run(f"fsfreeze -f {folder}")
    t.intact(t.client.call(guest_io.compare, path=device.path, offset=0, length=MIB, seed=1), None,
             "first wrong byte read from a frozen file system")
    t.server.run(f"fsfreeze -u {folder}")


@case(module_sets=ONLY_OURS)
def test_two_names(t: Test) -> None:
    """Names of one file are one disk: one writer, one directory, and once in a session."""
    load(t, rtrs_server="sess_queue_depth=64")
    folder = file_system(t)
    path = image(t, folder)
    names = [path, f"{folder}/hard", f"{folder}/soft", "/mnt/bound"]
    t.server.run(f"cd {folder}; ln disk.img hard; ln -s disk.img soft; touch {names[3]}\n"
                 f"mount --bind {path} {names[3]}")
    t.defer(t.server.run, f"umount {names[3]}; rm {names[3]}")
    first = rnbd.map_device(t, names[2], session="first")
    # A link is followed.
    t.equal(t.server.listdir(rnbd.SERVER_DEVICES), [exported(path).rsplit("/", 1)[1]], "exports")
    for name in names:
        with t.expect_errno(errno.EPERM):
            rnbd.map_device(t, name, session="second")
    for name in (names[0], names[1], names[3]):
        with t.expect_errno(errno.EEXIST):
            rnbd.map_device(t, name, session="first", access_mode="ro")
    reader = rnbd.map_device(t, names[1], session="second", access_mode="ro")
    t.equal(sorted(t.server.listdir(f"{exported(path)}/sessions")), ["first", "second"], "sessions")
    t.client.call(guest_io.write, path=first.path, offset=0, length=64 * KIB, seed=3)
    t.intact(t.client.call(guest_io.compare, path=reader.path, offset=0, length=64 * KIB, seed=3),
             None, "first wrong byte by the other name")
    first.unmap()
    reader.unmap()
    t.server.wait_for(exported(path), gone=True)


@case(module_sets=ONLY_OURS)
def test_odd_names(t: Test) -> None:
    """Paths that no name in sysfs can have, or two could share, have directories of their own."""
    load(t)
    folder = file_system(t)
    t.server.run(f"mkdir -p {folder}/{'d' * 200}/{'e' * 200} {folder}/a")
    long = f"{folder}/{'d' * 200}/{'e' * 200}/disk.img"
    t.server.run(f"truncate -s {SIZE} '{folder}/a!b' {folder}/a/b {long}; ln -s {long} {folder}/long")
    for session, asked, path in (("first", f"{folder}/a!b", f"{folder}/a!b"),
                                 ("second", f"{folder}/a/b", f"{folder}/a/b"),
                                 ("third", f"{folder}/long", long)):
        # Two of them have the same name on the client, but for the session.
        rnbd.map_device(t, asked, session=session)
        shown = {t.server.read(f"{rnbd.SERVER_DEVICES}/{name}/path"): name
                 for name in t.server.listdir(rnbd.SERVER_DEVICES)}
        t.check(path in shown, f"{path} is not among {shown}")
    t.equal(len(shown), 3, "directories")


@case(module_sets=ONLY_OURS)
def test_refused(t: Test) -> None:
    """What is no disk is refused at once, with a reason in the log, in both modes."""
    for mode in ("direct", "buffered"):
        load(t, rnbd_server=f"file_io_mode={mode}")
        folder = file_system(t)
        t.server.run(f"set -e; cd {folder}; mkdir folder; mkfifo fifo; mknod char c 1 5; truncate -s 100 small\n"
                     "touch empty; ln -s loop loop; python3 -c \"import socket; "
                     "socket.socket(socket.AF_UNIX).bind('socket')\"\n"
                     "dd if=/dev/zero of=swap bs=1M count=2 status=none; chmod 600 swap; mkswap -q swap\n"
                     "swapon swap")
        t.defer(t.server.run, f"swapoff {folder}/swap", check=False)
        no_data = "is no block device and no file with data"
        cases = [(f"{folder}/{name}", errno.ENOTBLK, no_data)
                 for name in ("folder", "fifo", "char", "socket")]
        cases += [(path, errno.ENOTBLK, no_data)
                  for path in ("/proc/version", "/proc/kcore", "/sys/kernel/mm/ksm/run", "/dev/mem")
                  if t.server.exists(path)]
        cases += [(f"{folder}/small", errno.EINVAL, "it has 100 bytes, and a block has 512"),
                  (f"{folder}/empty", errno.EINVAL, "it has 0 bytes"),
                  # The log has a line of every open that failed, but no more than ten in five seconds.
                  (f"{folder}/swap", errno.ETXTBSY, ""),
                  (f"{folder}/nothing", errno.ENOENT, ""),
                  (f"{folder}/loop", errno.ELOOP, "")]
        for path, number, log in cases:
            mark = t.server.log_mark()
            try:
                with t.expect_errno(number):
                    rnbd.map_device(t, path)
            except AssertionError as error:
                raise AssertionError(f"{mode}: {path}: {error}") from None
            if log:
                t.server.wait_log(log, mark)
            t.equal(t.server.listdir(rnbd.SERVER_DEVICES), [], f"exports after {path}")
        t.server.run(f"swapoff {folder}/swap; umount {folder}")


@case(module_sets=ONLY_OURS, quick=("stock", OTHER))
def test_given(t: Test) -> None:
    """Without an export policy files are given below a search path of their own only."""
    rnbd.load(t)
    folder = file_system(t)
    path = image(t, folder)
    mark = t.server.log_mark()
    with t.expect_errno(errno.ENOTBLK):
        rnbd.map_device(t, path)
    t.server.wait_log("is not given: set dev_search_path to a folder of images", mark)
    t.equal(t.server.listdir(rnbd.SERVER_DEVICES), [], "exports")
    # A block device is.
    rnbd.map_device(t, disks.WITHOUT_DISCARD).unmap()
    rnbd.load(t, rnbd_server=f"dev_search_path={folder}")
    device = rnbd.map_device(t, "disk.img")
    written(t, device, path)
    device.unmap()


@case(module_sets=ONLY_OURS)
def test_blocks(t: Test) -> None:
    """On a disk with blocks of 4 KiB a direct file has such blocks, and a buffered one has 512 bytes."""
    for mode, block in (("direct", 4096), ("buffered", 512)):
        load(t, rnbd_server=f"file_io_mode={mode}")
        folder = file_system(t, disk=disks.LARGE_BLOCKS)
        t.equal(t.server.read("/sys/block/vdd/queue/logical_block_size"), "4096", "the disk's blocks")
        path = image(t, folder, SIZE + 2048)
        device = rnbd.map_device(t, path)
        t.equal(device.queue("logical_block_size"), str(block), f"{mode}: logical_block_size")
        t.equal(device.queue("physical_block_size"), "4096", f"{mode}: physical_block_size")
        t.equal(device.size(), (SIZE + 2048) // block * block, f"{mode}: size")
        rnbd.works(t, device, MIB)
        if block == 512:
            t.client.call(guest_io.write, path=device.path, offset=512, length=512, seed=1)
        device.unmap()
        t.server.run(f"umount {folder}")


@case(module_sets=ONLY_OURS, kernels=("stock",))  # the debug kernel has no XFS
def test_shared_blocks(t: Test) -> None:
    """A copy that shares its blocks is written without changing the original."""
    load(t)
    folder = file_system(t, "xfs")
    golden = image(t, folder, name="golden.img")
    t.server.call(guest_io.write, path=golden, offset=0, length=MIB, seed=1)
    path = f"{folder}/disk.img"
    t.server.run(f"cp --reflink=always {golden} {path}")
    device = rnbd.map_device(t, path)
    t.equal(device.queue("logical_block_size"), "4096", "logical_block_size")
    t.client.call(guest_io.write, path=device.path, offset=64 * KIB, length=64 * KIB, seed=2)
    t.intact(t.client.call(guest_io.compare, path=device.path, offset=0, length=64 * KIB, seed=1),
             None, "first changed byte of the copy")
    # Blocks are shared anew under the mapped disk, as for a snapshot.
    t.server.run(f"cp --reflink=always {path} {folder}/snapshot.img")
    rnbd.works(t, device, MIB, seed=3)
    t.intact(t.server.call(guest_io.compare, path=golden, offset=0, length=MIB, seed=1), None,
             "first changed byte of the original")
    t.intact(t.server.call(guest_io.compare, path=f"{folder}/snapshot.img", offset=64 * KIB,
                           length=64 * KIB, seed=2), None, "first changed byte of the snapshot")


@case(module_sets=ONLY_OURS, timeout=180)
def test_file_system_inside(t: Test) -> None:
    """A file system on a mapped image: made, filled, trimmed, checked; its blocks are given back."""
    load(t)
    path = image(t, file_system(t), 128 * MIB)
    device = rnbd.map_device(t, path)
    t.client.run(f"set -e; mkfs.ext4 -q -F {device.path}; mkdir -p /mnt/inside\n"
                 f"mount {device.path} /mnt/inside; cp -r /usr/lib/python3* /mnt/inside 2>/dev/null || :\n"
                 "dd if=/dev/urandom of=/mnt/inside/data bs=1M count=16 status=none\n"
                 "cd /mnt/inside; sha256sum data >/tmp/sum; sync; cd /; umount /mnt/inside",
                 timeout=150)
    t.defer(t.client.run, "umount /mnt/inside; rmdir /mnt/inside; rm -f /tmp/sum", check=False)
    device.unmap()
    device = rnbd.map_device(t, path)
    t.client.run(f"set -e; e2fsck -fn {device.path}; mount {device.path} /mnt/inside\n"
                 "cd /mnt/inside; sha256sum --quiet -c /tmp/sum", timeout=120)
    full = used(t, path)
    t.client.run("rm -r /mnt/inside/*; sync; fstrim /mnt/inside; umount /mnt/inside", timeout=120)
    t.check(used(t, path) <= full - 16 * MIB,
            f"{used(t, path)} bytes after fstrim, {full} before")


@case(module_sets=ONLY_OURS, timeout=120)
def test_unload_while_mapped(t: Test) -> None:
    """Unloading the server under IO closes the file: its file system can be unmounted."""
    for mode in ("direct", "buffered"):
        load(t, rnbd_server=f"file_io_mode={mode}")
        folder = file_system(t)
        path = image(t, folder)
        device = rnbd.map_device(t, path)
        t.client.call(guest_io.writer_start, path=device.path, name="writer")
        t.client.wait_for(f"/sys/block/{device.name}/stat",
                          matches=r"^\s*\d+\s+\d+\s+\d+\s+\d+\s+\d\d")
        t.server.module_unload("rnbd_server")
        t.server.run(f"umount {folder}; mount {disks.PLAIN} {folder}")
        end = t.client.call_within(60, guest_io.writer_stop, name="writer", stop=False, wait=20.0)
        t.check(not end["running"], "the writer still waits for its IO")
        t.equal(end["errno"], errno.EIO, "errno of the writer")
        t.server.modules_load("rnbd_server")
        policy.allow(t)
        rnbd.reconnect(t, rnbd.client_path(t, "sess"))
        t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=30)
        rnbd.works(t, device, MIB)
        device.unmap()
        t.server.run(f"umount {folder}")


@case(module_sets=ONLY_OURS, timeout=120)
def test_force_close(t: Test) -> None:
    """force_close of a file under IO finishes what is under way, and another client may write."""
    load(t)
    path = image(t, file_system(t))
    device = rnbd.map_device(t, path)
    t.client.call(guest_io.writer_start, path=device.path, name="writer")
    t.client.wait_for(f"/sys/block/{device.name}/stat", matches=r"^\s*\d+\s+\d+\s+\d+\s+\d+\s+\d\d")
    t.server.write(f"{exported(path)}/sessions/sess/force_close", "1")
    end = t.client.call_within(60, guest_io.writer_stop, name="writer", stop=False, wait=20.0)
    t.equal((end["running"], end["errno"]), (False, errno.EIO), "the writer")
    other = rnbd.map_device(t, path, session="second")
    rnbd.works(t, other, MIB)
    other.unmap()
    device.unmap("force")


@case(module_sets=ONLY_OURS, timeout=120)
def test_file_system_that_fails(t: Test) -> None:
    """When the disk below fails, so do requests, and only they; all is let go."""
    if t.server.run("modinfo scsi_debug", check=False).rc != 0:
        raise SkipTest("no module scsi_debug")
    load(t)
    disk = disks.scsi_debug(t, dev_size_mb=64)
    folder = "/mnt/failing"
    t.server.run(f"set -e; mkfs.ext4 -q -F {disk}; mkdir -p {folder}; mount {disk} {folder}")
    t.defer(t.server.run, f"umount {folder}; rmdir {folder}", check=False)
    path = image(t, folder, 16 * MIB)
    device = rnbd.map_device(t, path)
    other = rnbd.map_device(t, disks.PLAIN)
    rnbd.works(t, device, MIB)
    t.server.write(f"/sys/block/{disk[5:]}/device/delete", "1")
    request = requests(t.client, device.path, 0, 4096)
    for name in ("read", "write", "sync_write"):
        with t.expect_errno(errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO):
            request[name]()
    rnbd.works(t, other)
    device.unmap()
    t.server.wait_for(exported(path), gone=True)
    t.server.run(f"umount {folder}; rmdir {folder}")
