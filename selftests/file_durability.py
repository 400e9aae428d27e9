# SPDX-License-Identifier: GPL-2.0
"""What a client has flushed to a file of the server is there after a crash of the server.

The file system of the file is on a disk whose writes dm-log-writes logs as they become durable. The log is
replayed to another disk up to a mark: that is what a crash at the mark would have left.
"""

from __future__ import annotations

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import guest_log_writes
from lib import policy
from lib import rnbd
from lib.rnbd import Device

TOPOLOGY = "one"
KIB = 1 << 10
MIB = 1 << 20
SIZE = 32 * MIB
DISK_MIB = {"ext4": 64, "xfs": 320}
MAKE = {"ext4": "mkfs.ext4 -q -F", "xfs": "mkfs.xfs -q -f"}
# ext4 is not to flush of its own accord during a test.
OPTIONS = {"ext4": "-o commit=300", "xfs": ""}
FOLDER, REPLAYED = "/mnt/logged", "/mnt/replayed"


class Logged:
    """A file system on a disk whose writes are logged to the first standard disk."""

    def __init__(self, t: Test, kind: str) -> None:
        self.t, self.kind = t, kind
        self.log = disks.PLAIN
        self.data, self.copy = (disks.loop(t, DISK_MIB[kind]) for _ in range(2))
        t.server.run(f"set -e; modprobe dm_log_writes; wipefs -qa {self.log}\n"
                     "dmsetup create --noudevsync logged --table "
                     f"'0 {DISK_MIB[kind] * 2048} log-writes {self.data} {self.log}'\n"
                     f"dmsetup mknodes logged; {MAKE[kind]} /dev/mapper/logged\n"
                     f"mkdir -p {FOLDER} {REPLAYED}; modprobe -q {kind} || :\n"
                     f"mount -t {kind} {OPTIONS[kind]} /dev/mapper/logged {FOLDER}\n"
                     f"truncate -s {SIZE} {FOLDER}/disk.img; sync", timeout=120)
        self.live = True
        t.defer(self.end)

    def end(self) -> None:
        """Unmount the file system, and have the log written to its end."""
        if self.live:
            self.live = False
            self.t.server.run(f"umount {FOLDER}; dmsetup remove --noudevsync --retry logged", timeout=120)

    def mark(self, name: str) -> None:
        """Mark what is durable now."""
        self.t.server.run(f"dmsetup message logged 0 mark {name}")

    def differences(self, mark: str, wanted: dict[int, int]) -> list[str]:
        """What a crash at the mark would have left otherwise than wanted, by offset and seed."""
        t = self.t
        t.server.call_within(120, guest_log_writes.replay, log=self.log, disk=self.copy, mark=mark)
        t.server.run(f"mount -t {self.kind} {self.copy} {REPLAYED}", timeout=120)
        try:
            return [f"{mark}: {offset // KIB} KiB"
                    for offset, seed in wanted.items()
                    if t.server.call(guest_io.compare, path=f"{REPLAYED}/disk.img", offset=offset,
                                     length=LENGTH, seed=seed, direct=False) is not None]
        finally:
            t.server.run(f"umount {REPLAYED}")


LENGTH = 64 * KIB


def write(t: Test, device: Device, offset: int, seed: int, *, sync: bool = False) -> None:
    """Write ``LENGTH`` bytes of a client's disk; with ``sync`` by writes with FUA."""
    t.client.call(guest_io.write, path=device.path, offset=offset, length=LENGTH, seed=seed, sync=sync)


def flushed(t: Test, kind: str, mode: str) -> None:
    """All that was flushed, or written with FUA, is there after a crash; the rest need not be."""
    rnbd.load(t, rnbd_server=f"file_io_mode={mode}")
    policy.allow(t)
    logged = Logged(t, kind)
    device = rnbd.map_device(t, f"{FOLDER}/disk.img")
    durable: dict[int, int] = {}
    marks: list[tuple[str, dict[int, int]]] = []
    # A crash is replayed from the beginning of the log, so each round takes longer than the one before.
    for number in range(t.rounds(2)):
        # New blocks, then blocks that were written before; the flush covers both.
        fresh = number * MIB
        for offset in (fresh, fresh + 256 * KIB, fresh // 2):
            write(t, device, offset, seed := 10 * number + offset // KIB)
            durable[offset] = seed
        t.client.call(guest_io.fsync, path=device.path)
        logged.mark(f"flushed{number}")
        marks.append((f"flushed{number}", dict(durable)))
        write(t, device, fresh + 512 * KIB, number, sync=True)
        durable[fresh + 512 * KIB] = number
        logged.mark(f"fua{number}")
        marks.append((f"fua{number}", dict(durable)))
    # Written, and not flushed: a crash may lose it. If it were there the log would prove nothing.
    write(t, device, SIZE - MIB, 99)
    logged.mark("unflushed")
    device.unmap()
    t.server.wait_for(f"{rnbd.SERVER_DEVICES}/{FOLDER.replace('/', '!')}!disk.img", gone=True)
    logged.end()
    for name, wanted in marks:
        t.equal(logged.differences(name, wanted), [], f"lost by a crash, {kind}, {mode}")
    if kind == "ext4":
        t.check(logged.differences("unflushed", {SIZE - MIB: 99}), "what was not flushed is durable")


@case(module_sets=("ours",), timeout=240, quick=("stock",))
def test_ext4(t: Test) -> None:
    """An image on ext4, past the page cache."""
    flushed(t, "ext4", "direct")


@case(module_sets=("ours",), timeout=240, quick=())
def test_ext4_buffered(t: Test) -> None:
    """The same through the page cache."""
    flushed(t, "ext4", "buffered")


@case(module_sets=("ours",), kernels=("stock",), timeout=600, quick=())
def test_xfs(t: Test) -> None:
    """An image on XFS, past the page cache."""
    flushed(t, "xfs", "direct")
