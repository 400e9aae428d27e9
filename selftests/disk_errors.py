# SPDX-License-Identifier: GPL-2.0
"""Programs see the errors of the server's disk as they would see them on the server."""

from __future__ import annotations

import errno

from lab.selftest_case import case
from lab.selftest_case import OTHER
from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import rnbd

TOPOLOGY = "one"
QUICK = ("stock", OTHER)

READ, WRITE = "0x28", "0x2a"
# How scsi_debug ends a command: host byte, driver byte, status byte, sense key and both codes of the sense data.
FAULTS = {
    "unrecovered read error": (READ, "0 0 0x2 0x3 0x11 0x0"),
    "write error": (WRITE, "0 0 0x2 0x3 0xc 0x2"),
    "hardware failure": (READ, "0 0 0x2 0x4 0x44 0x0"),
    "space allocation failed": (WRITE, "0 0 0x2 0x7 0x27 0x7"),
    "protection information is wrong": (READ, "0 0 0x2 0xb 0x10 0x1"),
    "reservation conflict": (WRITE, "0 0 0x18 0 0 0"),
    "transport failure": (READ, "0xf 0 0 0 0 0"),
    "no connection": (READ, "0x1 0 0 0 0 0"),
}
DEBUG = "/sys/kernel/debug"


def fault_file(t: Test, disk: str) -> str:
    """The file that takes the faults of a scsi_debug disk."""
    t.server.run(f"mountpoint -q {DEBUG} || mount -t debugfs debugfs {DEBUG}")
    address = t.server.sh(f"basename $(readlink -f /sys/block/{disk[5:]}/device)")
    return f"{DEBUG}/scsi_debug/{address}/error"


def test_errors_of_disks(t: Test) -> None:
    """A medium, target, space, protection, reservation or transport error is that error at the client."""
    rnbd.load(t)
    disk = disks.scsi_debug(t, dev_size_mb=16)
    file = fault_file(t, disk)
    device = rnbd.map_device(t, disk)
    seen = {}
    for name, (command, end) in FAULTS.items():
        # Count 0 would never end it, and a disk tries again by itself.
        t.server.write(file, f"2 -100 {command} {end}")
        write_it = command == WRITE
        local = t.server.call(guest_io.result, path=disk, write_it=write_it)
        t.check(local != 0, f"{name}: the server's disk does not fail")
        remote = t.client.call(guest_io.result, path=device.path, write_it=write_it)
        t.server.write(file, f"- 2 {command}")
        t.equal(errno.errorcode.get(remote), errno.errorcode[local], f"error of the client's disk: {name}")
        seen[name] = local
    t.say(", ".join(f"{name}: {errno.errorcode[number]}" for name, number in seen.items()))
    t.check(len(set(seen.values())) >= 6, f"the disk has few kinds of errors: {seen}")
    rnbd.works(t, device)


@case(c_known_failure="a disk that was set read-only cannot be opened for writing", quick=("stock",))
def test_set_read_only(t: Test) -> None:
    """A disk that is set read-only at the client opens for writing as a local one, and no write reaches the server."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    t.client.run(f"blockdev --setro {device.path}")
    before = rnbd.disk_stats(t.server, disks.PLAIN[5:])
    t.client.run(f"exec 3<>{device.path}")
    t.equal(t.client.call(guest_io.result, path=device.path, write_it=True), errno.EPERM, "error of a write")
    t.equal(t.client.call(guest_io.result, path=device.path, write_it=False), 0, "error of a read")
    after = rnbd.disk_stats(t.server, disks.PLAIN[5:])
    t.equal(after["writes"] - before["writes"], 0, "writes on the server's disk")
    t.client.run(f"blockdev --setrw {device.path}")
    rnbd.works(t, device)
