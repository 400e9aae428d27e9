# SPDX-License-Identifier: GPL-2.0
"""A client's disk has the limits that its server's disk has by now, and flushes go where there is a cache."""

from __future__ import annotations

import errno
from typing import Any

from lab.selftest_case import case
from lab.selftest_case import OTHER
from lab.selftest_case import Test
from lib import disks
from lib import guest_hostile_server as hostile
from lib import guest_io
from lib import rnbd
from lib import uevents
from lib.hostile import call
from lib.hostile import DISK
from lib.hostile import NEWS
from lib.hostile import path_state
from lib.hostile import RINGS
from lib.hostile import serve
from lib.rnbd import Device
from lib.stream import Stream

TOPOLOGY = "one"
ONLY_OURS = ("ours",)
QUICK_HERE = ("stock", OTHER)
MIB = 1 << 20
# The server looks twice a second; the rest is for a machine that is busy.
SOON = 5.0
# A device waits for requests in flight for two seconds, and then tries again after a second, and after two.
LATER = 20.0
# What the server in user space calls its disk.
DEVICE_ID = 7


def queue_file(device: Device, name: str) -> str:
    """A file with a limit of the client's disk."""
    return f"/sys/block/{device.name}/queue/{name}"


def wait_limit(t: Test, device: Device, name: str, value: int, timeout: float = SOON) -> None:
    """A limit of the client's disk is this soon."""
    t.client.wait_for(queue_file(device, name), matches=f"^{value}$", timeout=timeout)


def set_discard(t: Test, disk: str, length: int) -> None:
    """Let a disk of the server discard so many bytes at once; 0 for no discards, after which the kernel takes no
    other length."""
    number = t.server.sh(f"printf %d:%d $(stat -Lc '0x%t 0x%T' {disk})")
    t.server.write(f"/sys/dev/block/{number}/queue/discard_max_bytes", str(length))


@case(module_sets=ONLY_OURS, quick=QUICK_HERE)
def test_discard_under_io(t: Test) -> None:
    """The longest discard follows the server's under IO, with a uevent and one line in the log."""
    rnbd.load(t)
    disk = disks.null_blk(t, discard=1, size=64)
    device = rnbd.map_device(t, disk)
    stream = Stream(t, device)
    for before, length in ((None, MIB), (MIB, 4 * MIB), (4 * MIB, 0)):
        mark = t.client.log_mark()
        uevents.record(t)
        set_discard(t, disk, length)
        wait_limit(t, device, "discard_max_bytes", length)
        t.check("change" in uevents.actions(t, device, ["change"]), "no uevent")
        was = r"\d+" if before is None else str(before // 512)
        t.client.wait_log(rf"{disk[5:]}@sess> The server's disk has other limits now: "
                          rf"max_discard_sectors from {was} to {length // 512}", mark)
        said = [line for line in t.client.log_since(mark) if "other limits" in line]
        t.equal(len(said), 1, f"log lines: {said}")
        if length:
            t.client.call(guest_io.discard, path=device.path, offset=32 * MIB, length=8 * MIB)
        else:
            with t.expect_errno(errno.EOPNOTSUPP):
                t.client.call(guest_io.discard, path=device.path, offset=32 * MIB, length=MIB)
    stream.stop()
    t.equal(t.client.read(f"{rnbd.client_path(t, 'sess')}/stats/reconnects"), "0 0", "reconnects")


@case(module_sets=ONLY_OURS)
def test_by_hand(t: Test) -> None:
    """What the administrator has set at the client stays when other limits change."""
    rnbd.load(t)
    disk = disks.null_blk(t, discard=1, size=64)
    device = rnbd.map_device(t, disk)
    for read_ahead, length in ((8192, 8 * MIB), (16, 4 * MIB), (0, 2 * MIB)):
        by_hand = (("discard_max_bytes", MIB), ("max_sectors_kb", 64), ("read_ahead_kb", read_ahead))
        for name, value in by_hand:
            t.client.write(queue_file(device, name), str(value))
        mark = t.client.log_mark()
        set_discard(t, disk, length)
        wait_limit(t, device, "discard_max_hw_bytes", length)
        # The change is over, not only the limit set.
        t.client.wait_log("The server's disk has other limits now", mark, timeout=SOON)
        for name, value in by_hand:
            t.equal(int(device.queue(name)), value, name)


@case(module_sets=ONLY_OURS)
def test_table_reloaded(t: Test) -> None:
    """A disk of the device mapper that gets another table has the limits of the disks below."""
    rnbd.load(t)
    with_discard = disks.null_blk(t, discard=1, size=32)
    disk = disks.holdable(t, 16, disks.WITHOUT_DISCARD)
    device = rnbd.map_device(t, disk)
    t.equal(device.queue("discard_max_bytes"), "0", "discard_max_bytes to begin with")
    for below, has_discard in ((with_discard, True), (disks.WITHOUT_DISCARD, False)):
        t.server.run(f"dmsetup load {disk} --table '0 {16 * 2048} linear {below} 0' "
                     f"&& dmsetup suspend --noflush --nolockfs --noudevsync {disk} "
                     f"&& dmsetup resume --noudevsync {disk}")
        t.client.wait_for(queue_file(device, "discard_max_bytes"),
                          matches="^[1-9]" if has_discard else "^0$", timeout=SOON)
    rnbd.works(t, device)


@case(module_sets=ONLY_OURS)
def test_write_cache(t: Test) -> None:
    """A disk whose cache is turned on while it is used gets the flushes; each change is in the log."""
    rnbd.load(t)
    disk = disks.scsi_debug(t, dev_size_mb=16)
    cache = t.server.sh(f"echo /sys/block/{disk[5:]}/device/scsi_disk/*/cache_type")
    t.server.write(cache, "temporary write through")
    device = rnbd.map_device(t, disk)
    before = rnbd.disk_stats(t.server, disk[5:])["flushes"]
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
    t.client.call(guest_io.fsync, path=device.path)
    t.equal(rnbd.disk_stats(t.server, disk[5:])["flushes"], before, "flushes without a cache")
    mark = t.client.log_mark()
    t.server.write(cache, "temporary write back")
    t.client.wait_log(rf"{disk[5:]}@sess> The server's disk has a write cache now", mark, timeout=SOON)
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=2)
    t.client.call(guest_io.fsync, path=device.path)
    t.check(rnbd.disk_stats(t.server, disk[5:])["flushes"] > before, "the flush did not reach the disk")
    t.server.write(cache, "temporary write through")
    t.client.wait_log(rf"{disk[5:]}@sess> The server's disk has no write cache any more", mark, timeout=SOON)
    t.equal(device.queue("write_cache"), "write back", "what the client's disk offers")
    t.client.call(guest_io.fsync, path=device.path)


@case(module_sets=ONLY_OURS)
def test_twice_in_a_second(t: Test) -> None:
    """Of two changes that come at once the last one counts, also if it takes the first one back."""
    rnbd.load(t)
    disk = disks.null_blk(t, discard=1, size=64)
    device = rnbd.map_device(t, disk)
    for last in (2 * MIB, 4 * MIB, 2 * MIB):
        for length in (8 * MIB, MIB, last):
            set_discard(t, disk, length)
        wait_limit(t, device, "discard_max_bytes", last)
    # Longer than the server takes to see what it missed.
    for _ in range(10):
        rnbd.works(t, device, length=MIB)
    wait_limit(t, device, "discard_max_bytes", 2 * MIB)


@case(module_sets=ONLY_OURS)
def test_while_away(t: Test) -> None:
    """What changes while the session is lost and requests are held is there when it is back."""
    rnbd.load(t)
    disk = disks.null_blk(t, discard=1, size=64)
    device = rnbd.map_device(t, disk)
    rnbd.configure(t, hold_io_ms=60000)
    stream = Stream(t, device)
    path = rnbd.client_path(t, "sess")
    for length in (2 * MIB, 0):
        t.client.write(f"{path}/disconnect", "1")
        t.client.wait_for(f"{device.sysfs}/state", matches="closed")
        t.server.wait_for(f"{rnbd.SERVER_DEVICES}/{disk[5:]}", gone=True)
        set_discard(t, disk, length)
        rnbd.reconnect(t, path)
        wait_limit(t, device, "discard_max_bytes", length)
        t.equal(device.attribute("state"), "open", "state")
    stream.stop()


def hanging_and_beside(t: Test) -> tuple[str, str]:
    """A disk that can be made to hang, and one beside it; both have discards."""
    below = disks.null_blk(t, discard=1, size=32)
    return disks.holdable(t, 16, below), disks.null_blk(t, discard=1, size=32)


@case(module_sets=ONLY_OURS, timeout=240)
def test_hanging_disk(t: Test) -> None:
    """While a disk hangs its limits wait, and nothing else does; not the session that is lost then, either."""
    rnbd.load(t)
    hanging, disk = hanging_and_beside(t)
    held, device = rnbd.map_device(t, hanging), rnbd.map_device(t, disk)
    rnbd.configure(t, hold_io_ms=60000)
    disks.hold(t, hanging)
    before = held.queue("discard_max_bytes")
    reader = t.client.start_job(f"dd if={held.path} of=/dev/null bs=4k count=1 iflag=direct")
    t.client.wait_for(f"/sys/block/{held.name}/inflight", matches=r"^\s*[1-9]")
    set_discard(t, hanging, 0)
    for length in (MIB, 2 * MIB):
        set_discard(t, disk, length)
        wait_limit(t, device, "discard_max_bytes", length)
        rnbd.works(t, device)
    t.equal(held.queue("discard_max_bytes"), before, "longest discard while a request is in flight")
    # The limits are waiting for the request, or will again: the session is lost and comes back meanwhile.
    path = rnbd.client_path(t, "sess")
    t.client.write(f"{path}/disconnect", "1")
    t.client.wait_for(f"{device.sysfs}/state", matches="closed")
    disks.let_go(t, hanging)
    rnbd.reconnect(t, path)
    for one in (held, device):
        t.client.wait_for(f"{one.sysfs}/state", matches="open")
    t.equal(reader.wait().rc, 0, "exit code of the reader")
    wait_limit(t, held, "discard_max_bytes", 0, timeout=LATER)
    rnbd.works(t, held)
    rnbd.works(t, device)


@case(module_sets=ONLY_OURS)
def test_unmapped_while_waiting(t: Test) -> None:
    """A device whose limits wait for a request can be unmapped by force."""
    rnbd.load(t)
    hanging, beside = hanging_and_beside(t)
    device, other = rnbd.map_device(t, hanging), rnbd.map_device(t, beside)
    disks.hold(t, hanging)
    reader = t.client.start_job(f"dd if={device.path} of=/dev/null bs=4k count=1 iflag=direct")
    t.client.wait_for(f"/sys/block/{device.name}/inflight", matches=r"^\s*[1-9]")
    set_discard(t, hanging, 0)
    # When another disk has its limits, this one is waiting for the request.
    set_discard(t, beside, MIB)
    wait_limit(t, other, "discard_max_bytes", MIB)
    unmapping = t.client.start_job(f"echo force > {device.sysfs}/unmap_device")
    disks.let_go(t, hanging)
    t.equal(unmapping.wait().rc, 0, "exit code of the unmap")
    reader.wait()
    t.client.wait_for(f"/sys/block/{device.name}", gone=True)


@case(module_sets=ONLY_OURS, timeout=180)
def test_hostile_server(t: Test) -> None:
    """Limits that make no sense harm nobody, and a server that changes them all the time is bearable."""
    serve(t, features=RINGS)
    call(t, hostile.misbehave, place="session_info", fault="extension")
    number = 0

    def tell(**limits: int) -> None:
        nonlocal number
        number += 1
        call(t, hostile.misbehave, place="control", fault="tell_news", sequence=number,
             records=[(DEVICE_ID, 2048)], limits=limits)
        call(t, hostile.ring, number=number)

    most = (1 << 32) - 1
    tell()
    device = rnbd.map_device(t, DISK)
    call(t, hostile.wait_for, "request", NEWS)
    absurd: tuple[tuple[dict[str, int], tuple[str, Any]], ...] = (
        ({"max_discard_sectors": most, "discard_granularity": most, "discard_alignment": most},
         ("discard_granularity", most)),
        ({"max_discard_sectors": 1, "discard_granularity": 7, "max_secure_erase_sectors": most,
          "max_write_zeroes_sectors": most}, ("discard_max_bytes", 512)),
        ({"physical_block_size": 1 << 31, "max_discard_sectors": 8}, ("physical_block_size", 32768)),
        ({"physical_block_size": 3, "max_write_zeroes_sectors": 1}, ("physical_block_size", 512)),
        ({"max_hw_sectors": 0, "max_segments": 0, "max_discard_sectors": 16}, ("discard_max_bytes", 8192)))
    for limits, (name, value) in absurd:
        tell(**limits)
        wait_limit(t, device, name, value, timeout=LATER)
        t.equal(path_state(t), "connected", f"path after {limits}")
        t.check(t.client.call(guest_io.all_zero, path=device.path, offset=0, length=4096), f"read after {limits}")
        for clear in (guest_io.discard, guest_io.zero_out):
            try:
                t.client.call(clear, path=device.path, offset=4096, length=65536)
            except OSError as error:
                t.check(error.errno in (errno.EOPNOTSUPP, errno.EIO, errno.EINVAL), f"{error} after {limits}")
    for index in range(20):
        tell(max_discard_sectors=8 * (index % 2))
    t.check(t.client.call(guest_io.all_zero, path=device.path, offset=0, length=4096), "read after many changes")
    device.unmap()
