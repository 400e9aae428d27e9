# SPDX-License-Identifier: GPL-2.0
"""What happens to a file, its file system or the server while a client has the file mapped."""

from __future__ import annotations

import errno

from lab.selftest_case import case
from lab.selftest_case import SkipTest
from lab.selftest_case import Test
from lab.vm_node import Job
from lib import disks
from lib import guest_io
from lib import images
from lib import policy
from lib import rnbd
from lib.operations import requests

TOPOLOGY = "one"
ONLY_OURS = ("ours",)
KIB = 1 << 10
MIB = 1 << 20


@case(module_sets=ONLY_OURS)
def test_deleted_and_replaced(t: Test) -> None:
    """The open file stays whatever becomes of its name, and the name's new file is another disk."""
    images.load(t)
    folder = images.file_system(t)
    path = images.sparse(t, folder)
    device = rnbd.map_device(t, path)
    rnbd.works(t, device, MIB)
    t.server.run(f"mv {path} {folder}/renamed")
    rnbd.works(t, device, MIB, seed=2)
    free = int(t.server.sh(f"rm {folder}/renamed; sync; stat -f -c %f {folder}"))
    rnbd.works(t, device, MIB, seed=3)
    t.server.call(guest_io.write, path=images.sparse(t, folder, 2 * images.SIZE), offset=0, length=MIB, seed=4)
    t.intact(t.client.call(guest_io.compare, path=device.path, offset=0, length=MIB, seed=3), None,
             "first wrong byte of the deleted file")
    other = rnbd.map_device(t, path, session="second")
    t.equal(other.size(), 2 * images.SIZE, "size of the new file")
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
        images.load(t, rnbd_server=f"file_io_mode={mode}")
        folder = images.file_system(t)
        path = images.sparse(t, folder)
        device = rnbd.map_device(t, path)
        t.client.call(guest_io.write, path=device.path, offset=0, length=2 * MIB, seed=1)
        t.server.run(f"truncate -s {MIB} {path}")
        # The client learns of it. As a C client, which does not, it goes on to ask for what was there.
        t.client.wait_for(f"/sys/block/{device.name}/size", matches=f"^{MIB // 512}$", timeout=5)
        t.client.write(f"{device.sysfs}/resize", str(images.SIZE // 512))
        for offset in (MIB - 4 * KIB, MIB, images.SIZE - 8 * KIB):
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
    images.load(t)
    path = images.sparse(t, images.file_system(t))
    device = rnbd.map_device(t, path)
    for size in (2 * images.SIZE + 700, images.SIZE // 2):
        t.server.run(f"truncate -s {size} {path}")
        blocks = size // 512
        t.client.wait_for(f"/sys/block/{device.name}/size", matches=f"^{blocks}$", timeout=5)
        t.client.call(guest_io.write, path=device.path, offset=(blocks - 1) * 512, length=512, seed=1)
        t.equal(int(t.server.sh(f"stat -c %s {path}")), size, "size of the file")
    # A client that makes its own disk longer does not make the file longer.
    t.client.write(f"{device.sysfs}/resize", str(images.SIZE // 512))
    with t.expect_errno(errno.EIO):
        t.client.call(guest_io.write, path=device.path, offset=images.SIZE - 4096, length=4096, seed=1)
    t.equal(int(t.server.sh(f"stat -c %s {path}")), images.SIZE // 2, "size of the file at the end")


@case(module_sets=ONLY_OURS)
def test_session_comes_back(t: Test) -> None:
    """A client that had lost its path opens the file again, with its new size."""
    images.load(t)
    path = images.sparse(t, images.file_system(t))
    device = rnbd.map_device(t, path)
    rnbd.works(t, device)
    client_path = rnbd.client_path(t, "sess")
    t.client.write(f"{client_path}/disconnect", "1")
    t.client.wait_for(f"{device.sysfs}/state", matches="closed")
    t.server.wait_for(images.exported(path), gone=True)
    t.server.run(f"truncate -s {2 * images.SIZE} {path}")
    rnbd.reconnect(t, client_path)
    t.client.wait_for(f"{device.sysfs}/state", matches="open")
    t.equal(device.size(), 2 * images.SIZE, "size")
    rnbd.works(t, device, seed=2)


def write_without_end(t: Test, device: rnbd.Device, depth: int) -> Job:
    """Start writes that wait for the server's file system, and return when all are in flight."""
    writer = t.client.start_job(
        ["fio", "--name=w", f"--filename={device.path}", "--rw=randwrite", "--bs=4k", f"--iodepth={depth}",
         "--ioengine=io_uring", "--direct=1", "--size=1m", "--offset=8m", "--thread=1"],
        timeout=100)
    t.client.wait_for(f"/sys/block/{device.name}/inflight", matches=rf"^\s*\d+\s+{depth}\s", timeout=60)
    return writer


@case(module_sets=ONLY_OURS, timeout=120)
def test_frozen(t: Test) -> None:
    """While a file system is frozen writes to it wait; its reads and other disks do not."""
    images.load(t)
    folder = images.file_system(t)
    path = images.sparse(t, folder)
    device = rnbd.map_device(t, path)
    elsewhere = rnbd.map_device(t, images.sparse(t, images.file_system(t, disk=disks.LARGE_BLOCKS)))
    other = rnbd.map_device(t, disks.WITHOUT_DISCARD)
    rnbd.works(t, device, MIB)
    t.client.run("udevadm settle", timeout=60)
    t.server.run(f"fsfreeze -f {folder}")
    t.defer(t.server.run, f"fsfreeze -u {folder}", check=False)
    # More than the file has work for at the same time on a CPU.
    writer = write_without_end(t, device, depth=160)
    for disk in (elsewhere, other):
        rnbd.works(t, disk, 256 * KIB)
    t.check(not writer.done(), "writes to a frozen file system have ended")
    t.server.run(f"fsfreeze -u {folder}")
    t.equal(writer.wait().rc, 0, "exit code of the writer")
    t.server.run(f"fsfreeze -f {folder}")
    # Fewer than the file has work for at the same time on a CPU, and several for each work item.
    writer = write_without_end(t, device, depth=32)
    t.intact(t.client.call(guest_io.compare, path=device.path, offset=0, length=MIB, seed=1), None,
             "first wrong byte read from a frozen file system")
    t.check(not writer.done(), "writes to a frozen file system have ended")
    t.server.run(f"fsfreeze -u {folder}")
    t.equal(writer.wait().rc, 0, "exit code of the second writer")


@case(module_sets=ONLY_OURS, timeout=120)
def test_unload_while_mapped(t: Test) -> None:
    """Unloading the server under IO closes the file: its file system can be unmounted."""
    for mode in ("direct", "buffered"):
        images.load(t, rnbd_server=f"file_io_mode={mode}")
        folder = images.file_system(t)
        path = images.sparse(t, folder)
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
    """force_close of a file under IO finishes what is in flight, and another client may write."""
    images.load(t)
    path = images.sparse(t, images.file_system(t))
    device = rnbd.map_device(t, path)
    t.client.call(guest_io.writer_start, path=device.path, name="writer")
    t.client.wait_for(f"/sys/block/{device.name}/stat", matches=r"^\s*\d+\s+\d+\s+\d+\s+\d+\s+\d\d")
    t.server.write(f"{images.exported(path)}/sessions/sess/force_close", "1")
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
    images.load(t)
    disk = disks.scsi_debug(t, dev_size_mb=64)
    folder = "/mnt/failing"
    t.server.run(f"set -e; mkfs.ext4 -q -F {disk}; mkdir -p {folder}; mount {disk} {folder}")
    t.defer(t.server.run, f"umount {folder}; rmdir {folder}", check=False)
    path = images.sparse(t, folder, 16 * MIB)
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
    t.server.wait_for(images.exported(path), gone=True)
    t.server.run(f"umount {folder}; rmdir {folder}")
