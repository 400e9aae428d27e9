# SPDX-License-Identifier: GPL-2.0
"""Files as disks: image files of the server, past the page cache and through it."""

from __future__ import annotations

import errno

from lab.selftest_case import case
from lab.selftest_case import OTHER
from lab.selftest_case import Test
from lib import disks
from lib import guest_hostile_io
from lib import guest_io
from lib import images
from lib import rnbd
from lib.fio import verified
from lib.operations import every_operation
from lib.rnbd import Device

TOPOLOGY = "one"
ONLY_OURS = ("ours",)
KIB = 1 << 10
MIB = 1 << 20


def a_disk(t: Test, kind: str) -> None:
    """An image is a disk with the blocks of its file system, on which every operation works."""
    images.load(t)
    path = images.sparse(t, images.file_system(t, kind))
    device = rnbd.map_device(t, path)
    t.equal(device.size(), images.SIZE, "size")
    for name, value in (("logical_block_size", "512"), ("physical_block_size", "4096"),
                        ("discard_granularity", "4096"), ("write_cache", "write back"),
                        ("fua", "1")):
        t.equal(device.queue(name), value, name)
    for name in ("discard_max_bytes", "write_zeroes_max_bytes"):
        t.check(int(device.queue(name)) > MIB, f"{name} is {device.queue(name)}")
    t.equal(t.server.read(f"{images.exported(path)}/path"), path, "path of the file")
    t.equal(t.server.read(f"{images.exported(path)}/sessions/sess/io_mode"), "direct", "io_mode")
    t.check(not t.server.exists(f"{images.exported(path)}/block_dev"), "a file has a block_dev")
    # Of a sparse file, then of one that has been written.
    for _ in range(2):
        every_operation(t, device, behind=disks.PLAIN)
    for size, depth, amount in ((512, 4, MIB), (4 * KIB, 16, 4 * MIB), (256 * KIB, 4, 16 * MIB)):
        report = verified(t.client, device.path, rw="randrw", bs=size, iodepth=depth, offset="8m",
                          size="16m", io_size=t.scaled(amount, size * 16), timeout=180)
        t.equal(report.errors, 0, f"errors with bs={size}")
    images.written(t, device, path)
    device.unmap()
    t.server.wait_for(images.exported(path), gone=True)


@case(module_sets=ONLY_OURS, quick=("debug", OTHER), timeout=180)
def test_ext4(t: Test) -> None:
    """A sparse image on ext4: every operation, with verified data."""
    a_disk(t, "ext4")


@case(module_sets=ONLY_OURS, kernels=("stock",), timeout=180, quick=())
def test_xfs(t: Test) -> None:
    """The same on XFS."""
    a_disk(t, "xfs")


@case(module_sets=ONLY_OURS, timeout=180)
def test_buffered(t: Test) -> None:
    """With file_io_mode=buffered requests go through the page cache; the file is what was written."""
    images.load(t, rnbd_server="file_io_mode=buffered")
    path = images.sparse(t, images.file_system(t))
    device = rnbd.map_device(t, path)
    t.equal(t.server.read(f"{images.exported(path)}/sessions/sess/io_mode"), "buffered", "io_mode")
    every_operation(t, device, behind=disks.PLAIN)
    report = verified(t.client, device.path, rw="randrw", bs="4k", iodepth=16, offset="8m",
                      size="16m", io_size=t.scaled(4 * MIB, MIB), timeout=180)
    t.equal(report.errors, 0, "errors")
    images.written(t, device, path)
    before = rnbd.disk_stats(t.server, disks.PLAIN[5:])["reads"]
    t.client.call(guest_io.digest, path=device.path, offset=0, length=64 * KIB)
    t.equal(rnbd.disk_stats(t.server, disks.PLAIN[5:])["reads"], before,
            "reads of the server's disk, for what is in its page cache")


@case(module_sets=ONLY_OURS, quick=())
def test_wish(t: Test) -> None:
    """A client says how the server uses the disk; all clients that have the disk open use it in the same way."""
    images.load(t)
    path = images.sparse(t, images.file_system(t))
    block = disks.WITHOUT_DISCARD
    for disk, folder in ((block, f"{rnbd.SERVER_DEVICES}/{block[5:]}"), (path, images.exported(path))):
        for mode, other in (("buffered", "direct"), ("direct", "buffered")):
            device = rnbd.map_device(t, disk, io_mode=mode)
            t.equal(device.attribute("io_mode"), mode, "the client's wish")
            t.equal(t.server.read(f"{folder}/sessions/sess/io_mode"), mode, f"io_mode of {disk}")
            rnbd.works(t, device, MIB)
            # Another client gets the same without a wish, and nothing else.
            reader = rnbd.map_device(t, disk, session="reader", access_mode="ro")
            t.equal(reader.attribute("io_mode"), "any", "the reader's wish")
            t.equal(t.server.read(f"{folder}/sessions/reader/io_mode"), mode, "io_mode of the reader")
            back_in_another_order(t, [device, reader], folder, mode)
            reader.unmap()
            mark = t.server.log_mark()
            with t.expect_errno(errno.EBUSY):
                rnbd.map_device(t, disk, session="reader", access_mode="ro", io_mode=other)
            t.server.wait_log(f"is open with io mode '{mode}' by other sessions", mark)
            # The wish outlives the session.
            rnbd.reconnect(t, rnbd.client_path(t, "sess"))
            t.client.wait_for(f"{device.sysfs}/state", matches="open")
            t.equal(t.server.read(f"{folder}/sessions/sess/io_mode"), mode, "io_mode after a reconnection")
            device.unmap()
            t.server.wait_for(folder, gone=True)


def back_in_another_order(t: Test, devices: list[Device], folder: str, mode: str) -> None:
    """When all sessions were lost the disk is used as before, also if a client without a wish is back first."""
    sessions = [device.attribute("session") for device in devices]
    for session in sessions:
        t.client.write(f"{rnbd.client_path(t, session)}/disconnect", "1")
    t.server.wait_for(folder, gone=True)
    for session, device in reversed(list(zip(sessions, devices, strict=True))):
        t.client.write(f"{rnbd.client_path(t, session)}/reconnect", "1")
        t.client.wait_for(f"{device.sysfs}/state", matches="open")
        t.equal(t.server.read(f"{folder}/sessions/{session}/io_mode"), mode, f"io_mode of {session}, which is back")


@case(module_sets=ONLY_OURS, quick=())
def test_memory_file(t: Test) -> None:
    """A file on tmpfs is a disk, in both modes; one on ramfs is one through the page cache only."""
    for mode in ("direct", "buffered"):
        images.load(t, rnbd_server=f"file_io_mode={mode}")
        for kind in ("tmpfs", "ramfs"):
            folder = f"/mnt/{kind}"
            t.server.run(f"mkdir -p {folder}; mount -t {kind} none {folder}")
            path = images.sparse(t, folder)
            if (kind, mode) == ("ramfs", "direct"):
                mark = t.server.log_mark()
                with t.expect_errno(errno.EINVAL):
                    rnbd.map_device(t, path)
                t.server.wait_log("does no direct IO to it; load rnbd_server with file_io_mode=buffered",
                                  mark)
                # With a client that has it open through the page cache, a client without a wish gets the same.
                device = rnbd.map_device(t, path, io_mode="buffered")
                rnbd.map_device(t, path, session="reader", access_mode="ro").unmap()
                device.unmap()
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
    images.load(t, rnbd_server="block_io_mode=buffered")
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
    images.load(t)
    path = images.sparse(t, images.file_system(t))
    device = rnbd.map_device(t, path)
    t.check(images.used(t, path) < 64 * KIB, f"a sparse file takes {images.used(t, path)} bytes")
    t.client.call(guest_io.write, path=device.path, offset=0, length=8 * MIB, seed=1)
    full = images.used(t, path)
    t.check(full >= 8 * MIB, f"{full} bytes after a write of 8 MiB")
    t.client.call(guest_io.zero_out, path=device.path, offset=0, length=MIB)
    t.check(images.used(t, path) >= full, f"{images.used(t, path)} bytes after a write of zeroes, {full} before")
    t.client.call(guest_io.discard, path=device.path, offset=0, length=4 * MIB)
    left = images.used(t, path)
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
    t.equal(int(t.server.sh(f"stat -c %s {path}")), images.SIZE, "size of the file")


@case(module_sets=ONLY_OURS, timeout=120)
def test_no_space(t: Test) -> None:
    """When the file system is full the client gets ENOSPC, and a discard makes room again."""
    images.load(t)
    folder = images.file_system(t, disk=disks.loop(t, 32))
    device = rnbd.map_device(t, images.sparse(t, folder))
    with t.expect_errno(errno.ENOSPC):
        for at in range(0, images.SIZE, MIB):
            t.client.call(guest_io.write, path=device.path, offset=at, length=MIB, seed=at)
    t.equal(device.attribute("state"), "open", "state")
    t.intact(t.client.call(guest_io.compare, path=device.path, offset=0, length=MIB, seed=0), None,
             "first wrong byte")
    t.client.call(guest_io.discard, path=device.path, offset=4 * MIB, length=4 * MIB)
    t.client.call(guest_io.write, path=device.path, offset=images.SIZE - MIB, length=MIB, seed=5)
    t.intact(t.client.call(guest_io.compare, path=device.path, offset=images.SIZE - MIB, length=MIB,
                           seed=5), None, "first wrong byte")


@case(module_sets=ONLY_OURS)
def test_flush(t: Test) -> None:
    """fsync and synchronous writes of the client reach the disk below the file system."""
    for mode in ("direct", "buffered"):
        images.load(t, rnbd_server=f"file_io_mode={mode}")
        folder = images.file_system(t)
        device = rnbd.map_device(t, images.sparse(t, folder))

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


@case(module_sets=ONLY_OURS, quick=())
def test_read_only(t: Test) -> None:
    """A file that cannot be written is mapped ro only; and ro changes nothing."""
    images.load(t)
    folder = images.file_system(t)
    path = images.sparse(t, folder)
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
    images.load(t, client=False)
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
        images.load(t, client=False, rnbd_server=f"file_io_mode={mode}")
        folder = images.file_system(t)
        path = images.sparse(t, folder)
        results = t.client.call(guest_hostile_io.requests, address=t.server.address,
                                device_path=path)
        good = {name for name, number in results.items() if number == 0}
        t.equal(good, {"a good write", "a good discard"}, f"{mode}: requests that succeeded")
        for name in ("write beyond the end", "write across the end"):
            t.equal(results[name], errno.EIO, f"{mode}: errno of a {name}")
        t.equal(int(t.server.sh(f"stat -c %s {path}")), images.SIZE, f"{mode}: size of the file")
        t.server.wait_for(images.exported(path), gone=True)
        t.server.run(f"umount {folder}")


@case(module_sets=ONLY_OURS)
def test_two_names(t: Test) -> None:
    """Names of one file are one disk: one writer, one directory, and once in a session."""
    images.load(t, rtrs_server="sess_queue_depth=64")
    folder = images.file_system(t)
    path = images.sparse(t, folder)
    names = [path, f"{folder}/hard", f"{folder}/soft", "/mnt/bound"]
    t.server.run(f"cd {folder}; ln disk.img hard; ln -s disk.img soft; touch {names[3]}\n"
                 f"mount --bind {path} {names[3]}")
    t.defer(t.server.run, f"umount {names[3]}; rm {names[3]}")
    first = rnbd.map_device(t, names[2], session="first")
    # A link is followed.
    t.equal(t.server.listdir(rnbd.SERVER_DEVICES), [images.exported(path).rsplit("/", 1)[1]], "exports")
    for name in names:
        with t.expect_errno(errno.EPERM):
            rnbd.map_device(t, name, session="second")
    for name in (names[0], names[1], names[3]):
        with t.expect_errno(errno.EEXIST):
            rnbd.map_device(t, name, session="first", access_mode="ro")
    reader = rnbd.map_device(t, names[1], session="second", access_mode="ro")
    t.equal(sorted(t.server.listdir(f"{images.exported(path)}/sessions")), ["first", "second"], "sessions")
    t.client.call(guest_io.write, path=first.path, offset=0, length=64 * KIB, seed=3)
    t.intact(t.client.call(guest_io.compare, path=reader.path, offset=0, length=64 * KIB, seed=3),
             None, "first wrong byte by the other name")
    first.unmap()
    reader.unmap()
    t.server.wait_for(images.exported(path), gone=True)


@case(module_sets=ONLY_OURS)
def test_odd_names(t: Test) -> None:
    """Paths that no name in sysfs can have, or two could share, have directories of their own."""
    images.load(t)
    folder = images.file_system(t)
    t.server.run(f"mkdir -p {folder}/{'d' * 200}/{'e' * 200} {folder}/a")
    long = f"{folder}/{'d' * 200}/{'e' * 200}/disk.img"
    t.server.run(f"truncate -s {images.SIZE} '{folder}/a!b' {folder}/a/b {long}; ln -s {long} {folder}/long")
    for session, asked, path in (("first", f"{folder}/a!b", f"{folder}/a!b"),
                                 ("second", f"{folder}/a/b", f"{folder}/a/b"),
                                 ("third", f"{folder}/long", long)):
        # Two of them have the same name on the client, but for the session.
        rnbd.map_device(t, asked, session=session)
        shown = {t.server.read(f"{rnbd.SERVER_DEVICES}/{name}/path"): name
                 for name in t.server.listdir(rnbd.SERVER_DEVICES)}
        t.check(path in shown, f"{path} is not among {shown}")
    t.equal(len(shown), 3, "directories")


@case(module_sets=ONLY_OURS, quick=())
def test_refused(t: Test) -> None:
    """What is no disk is refused at once, with a reason in the log, in both modes."""
    for mode in ("direct", "buffered"):
        images.load(t, rnbd_server=f"file_io_mode={mode}")
        folder = images.file_system(t)
        t.server.run(f"set -e; cd {folder}; mkdir folder; mkfifo fifo; mknod char c 1 5; truncate -s 100 small\n"
                     "touch empty; ln -s loop loop; python3 -c \"import socket; "
                     "socket.socket(socket.AF_UNIX).bind('socket')\"\n"
                     "dd if=/dev/zero of=swap bs=1M count=2 status=none; chmod 600 swap; mkswap -q swap\n"
                     "swapon swap")
        t.defer(t.server.run, f"swapoff {folder}/swap", check=False)
        no_data = "is neither a block device nor a regular file with data"
        cases = [(f"{folder}/{name}", errno.ENOENT, no_data)
                 for name in ("folder", "fifo", "char", "socket")]
        cases += [(path, errno.ENOENT, no_data)
                  for path in ("/proc/version", "/proc/kcore", "/sys/kernel/mm/ksm/run", "/dev/mem")
                  if t.server.exists(path)]
        cases += [(f"{folder}/small", errno.EINVAL, "it has 100 bytes, and a block has 512"),
                  (f"{folder}/empty", errno.EINVAL, "it has 0 bytes"),
                  # The log has a line of every open that failed, but no more than ten in five seconds.
                  (f"{folder}/swap", errno.ETXTBSY, ""),
                  (f"{folder}/nothing", errno.ENOENT, ""),
                  (f"{folder}/loop", errno.ENOENT, "")]
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


@case(module_sets=ONLY_OURS)
def test_given(t: Test) -> None:
    """Without an export policy files are given below a search path of their own only."""
    rnbd.load(t)
    folder = images.file_system(t)
    path = images.sparse(t, folder)
    mark = t.server.log_mark()
    with t.expect_errno(errno.ENOENT):
        rnbd.map_device(t, path)
    t.server.wait_log("is not exported: set dev_search_path to a folder of images", mark)
    t.equal(t.server.listdir(rnbd.SERVER_DEVICES), [], "exports")
    # A block device is.
    rnbd.map_device(t, disks.WITHOUT_DISCARD).unmap()
    rnbd.load(t, rnbd_server=f"dev_search_path={folder}")
    device = rnbd.map_device(t, "disk.img")
    images.written(t, device, path)
    device.unmap()


@case(module_sets=ONLY_OURS)
def test_blocks(t: Test) -> None:
    """On a disk with blocks of 4 KiB a direct file has such blocks, and a buffered one has 512 bytes."""
    for mode, block in (("direct", 4096), ("buffered", 512)):
        images.load(t, rnbd_server=f"file_io_mode={mode}")
        folder = images.file_system(t, disk=disks.LARGE_BLOCKS)
        t.equal(t.server.read("/sys/block/vdd/queue/logical_block_size"), "4096", "the disk's blocks")
        path = images.sparse(t, folder, images.SIZE + 2048)
        device = rnbd.map_device(t, path)
        t.equal(device.queue("logical_block_size"), str(block), f"{mode}: logical_block_size")
        t.equal(device.queue("physical_block_size"), "4096", f"{mode}: physical_block_size")
        t.equal(device.size(), (images.SIZE + 2048) // block * block, f"{mode}: size")
        rnbd.works(t, device, MIB)
        if block == 512:
            t.client.call(guest_io.write, path=device.path, offset=512, length=512, seed=1)
        device.unmap()
        t.server.run(f"umount {folder}")


@case(module_sets=ONLY_OURS, kernels=("stock",))  # the debug kernel has no XFS
def test_shared_blocks(t: Test) -> None:
    """A copy that shares its blocks is written without changing the original."""
    images.load(t)
    folder = images.file_system(t, "xfs")
    golden = images.sparse(t, folder, name="golden.img")
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


@case(module_sets=ONLY_OURS, timeout=180, quick=())
def test_file_system_inside(t: Test) -> None:
    """A file system on a mapped image: made, filled, trimmed, checked; its blocks are given back."""
    images.load(t)
    path = images.sparse(t, images.file_system(t), 128 * MIB)
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
    full = images.used(t, path)
    t.client.run("rm -r /mnt/inside/*; sync; fstrim /mnt/inside; umount /mnt/inside", timeout=120)
    t.check(images.used(t, path) <= full - 16 * MIB,
            f"{images.used(t, path)} bytes after fstrim, {full} before")
