# SPDX-License-Identifier: GPL-2.0
"""Which access modes go together, and that read-only is read-only."""

from __future__ import annotations

import errno

from lab.selftest_case import case
from lab.selftest_case import EVERYWHERE
from lab.selftest_case import Test
from lib import disks
from lib import guest_hostile_io
from lib import guest_io
from lib import rnbd

TOPOLOGY = "one"

# Modes already mapped, the mode asked for, and whether it is granted.
MATRIX = (
    ((), "rw", True), ((), "ro", True), ((), "migration", True),
    (("rw",), "rw", False), (("rw",), "ro", True), (("rw",), "migration", True),
    (("ro",), "rw", True), (("ro",), "ro", True), (("ro",), "migration", True),
    (("migration",), "rw", False), (("migration",), "ro", True),
    (("migration",), "migration", True),
    (("migration", "migration"), "migration", False), (("rw", "migration"), "migration", False),
    (("rw", "migration"), "ro", True), (("rw", "migration"), "rw", False),
)


def test_matrix(t: Test) -> None:
    """One writer, two during a migration, any number of readers."""
    rnbd.load(t, rtrs_server="sess_queue_depth=64")
    for mapped, asked, granted in MATRIX:
        held = [rnbd.map_device(t, disks.PLAIN, session=f"held{index}", access_mode=mode)
                for index, mode in enumerate(mapped)]
        if granted:
            device = rnbd.map_device(t, disks.PLAIN, session="asking", access_mode=asked)
            t.equal(device.attribute("access_mode"), asked, "access_mode")
            device.unmap()
        else:
            mark = t.server.log_mark()
            try:
                with t.expect_errno(errno.EPERM):
                    rnbd.map_device(t, disks.PLAIN, session="asking", access_mode=asked)
            except AssertionError as error:
                raise AssertionError(f"{asked} beside {' and '.join(mapped)}: {error}") from None
            t.server.wait_log(r"vdb", mark)
        for device in held:
            device.unmap()
        t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/held0", gone=True)


def test_writer_returns_its_turn(t: Test) -> None:
    """When the writer unmaps, the next one is let in."""
    rnbd.load(t)
    first = rnbd.map_device(t, disks.PLAIN, session="first")
    with t.expect_errno(errno.EPERM):
        rnbd.map_device(t, disks.PLAIN, session="second")
    first.unmap()
    rnbd.map_device(t, disks.PLAIN, session="second")


@case(quick=EVERYWHERE)
def test_read_only(t: Test) -> None:
    """A read-only mapping reads, and writes, discards and zeroes nothing."""
    rnbd.load(t)
    t.server.call(guest_io.write, path=disks.PLAIN, offset=0, length=65536, seed=6)
    device = rnbd.map_device(t, disks.PLAIN, access_mode="ro")
    t.equal(t.client.read(f"/sys/block/{device.name}/ro"), "1", "ro of the disk")
    t.check(t.client.call(guest_io.is_read_only, path=device.path), "BLKROGET says writable")
    t.intact(t.client.call(guest_io.compare, path=device.path, offset=0, length=65536, seed=6),
             None, "first wrong byte read")
    before = rnbd.disk_stats(t.server, disks.PLAIN[5:])
    for clear in (guest_io.discard, guest_io.zero_out):
        with t.expect_errno(errno.EPERM, errno.EACCES, errno.EBADF):
            t.client.call(clear, path=device.path, offset=0, length=65536)
    with t.expect_errno(errno.EPERM, errno.EACCES):
        t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=9)
    t.client.run(f"blockdev --setrw {device.path}", check=False)
    with t.expect_errno(errno.EPERM, errno.EACCES):
        t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=9)
    after = rnbd.disk_stats(t.server, disks.PLAIN[5:])
    for name in ("writes", "discards"):
        t.equal(after[name] - before[name], 0, f"{name} on the server's disk")


def test_server_shows_the_mode(t: Test) -> None:
    """The server's files tell a mapping's mode and path."""
    rnbd.load(t)
    for mode, read_only in (("rw", "0"), ("ro", "1"), ("migration", "0")):
        device = rnbd.map_device(t, disks.PLAIN, access_mode=mode)
        folder = f"{rnbd.SERVER_DEVICES}/vdb/sessions/sess"
        t.equal(t.server.read(f"{folder}/access_mode"), mode, "access_mode")
        t.equal(t.server.read(f"{folder}/read_only"), read_only, "read_only")
        t.equal(t.server.read(f"{folder}/mapping_path"), disks.PLAIN, "mapping_path")
        device.unmap()


def test_read_only_disk(t: Test) -> None:
    """A read-only disk of the server can be mapped ro, not rw."""
    rnbd.load(t)
    disk = disks.loop(t, 16, read_only=True)
    with t.expect_errno(errno.EACCES, errno.EROFS, errno.EPERM):
        rnbd.map_device(t, disk, access_mode="rw")
    device = rnbd.map_device(t, disk, access_mode="ro")
    t.client.call(guest_io.digest, path=device.path, offset=0, length=4096)


# The C server opens the disk for reading only, and does not look again when it is written.
@case(module_sets=("ours",), quick=EVERYWHERE)
def test_hostile_writes(t: Test) -> None:
    """A client that writes what it has opened read-only gets EROFS; the disk stays as it is."""
    rnbd.load(t, client=False)
    t.client.run("modprobe rdma_ucm")
    disk = disks.null_blk(t, discard=1)
    t.server.call(guest_io.write, path=disk, offset=0, length=65536, seed=6)
    before = rnbd.disk_stats(t.server, disk[5:])
    results = t.client.call(guest_hostile_io.read_only, address=t.server.address,
                            device_path=disk)
    after = rnbd.disk_stats(t.server, disk[5:])
    for name in ("read", "flush"):
        t.equal(results.pop(name), 0, f"errno of a {name}")
    for name, number in results.items():
        t.equal(number, errno.EROFS, f"errno of a {name}")
    for name in ("writes", "discards"):
        t.equal(after[name] - before[name], 0, f"{name} on the server's disk")
    t.intact(t.server.call(guest_io.compare, path=disk, offset=0, length=65536, seed=6), None,
             "first wrong byte")
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/hostile", gone=True)


@case(module_sets=("ours",))
def test_open_again(t: Test) -> None:
    """A device that is open can be opened again as it was, and not in any other way."""
    rnbd.load(t, client=False)
    t.client.run("modprobe rdma_ucm")
    results = t.client.call(guest_hostile_io.opens, address=t.server.address,
                            device_path=disks.PLAIN)
    wanted = {"same mode": 0, "read-only": errno.EPERM, "migration": errno.EPERM,
              "another name": errno.EPERM, "another name, read-only": errno.EEXIST,
              "write afterwards": 0}
    for name, number in results.items():
        t.equal(number, wanted.get(name, errno.EINVAL), f"errno: {name}")
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/hostile", gone=True)
