# SPDX-License-Identifier: GPL-2.0
"""A client's disk follows its server's disk, without anybody's doing."""

from __future__ import annotations

import errno
import time
from typing import Any

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import guest_hostile_io
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
from lib.hostile import within_log_limit
from lib.rnbd import Device

TOPOLOGY = "two"
MIB = 1 << 20
# The server looks twice a second; the rest is for a machine that is busy.
SOON = 5.0
MANY = 64
# What the server in user space calls its disk.
DEVICE_ID = 7
# The feature of a server that tells which devices it has closed, and the flag of such a record.
CLOSED, IS_CLOSED = 1 << 4, 1 << 5


def wait_size(t: Test, device: Device, mib: int) -> None:
    """The client's disk has this size soon."""
    t.client.wait_for(f"/sys/block/{device.name}/size", matches=f"^{mib * 2048}$", timeout=SOON)


def wait_read_only(t: Test, device: Device, read_only: bool) -> None:
    """The client's disk is read-only, or can be written to, soon."""
    t.client.wait_for(f"/sys/block/{device.name}/ro", matches=f"^{int(read_only)}$", timeout=SOON)


def end_works(t: Test, device: Device, disk: str, mib: int) -> None:
    """What is written to the last block of the client's disk is on the last block of the server's."""
    at = mib * MIB - 4096
    t.client.call(guest_io.write, path=device.path, offset=at, length=4096, seed=mib)
    t.intact(t.server.call(guest_io.compare, path=disk, offset=at, length=4096, seed=mib), None,
             f"first wrong byte at the end of {mib} MiB")


def lose(t: Test, device: Device, export: str) -> None:
    """Take the session's path away, and wait until both ends have seen it."""
    t.client.write(f"{rnbd.client_path(t, 'sess')}/disconnect", "1")
    t.client.wait_for(f"{device.sysfs}/state", matches="closed")
    t.server.wait_for(f"{rnbd.SERVER_DEVICES}/{export}", gone=True)


def reconnect(t: Test, device: Device) -> None:
    """Give the path back; the device is open again."""
    rnbd.reconnect(t, rnbd.client_path(t, "sess"))
    t.client.wait_for(f"{device.sysfs}/state", matches="open")


@case(module_sets=("ours",))
def test_size_under_io(t: Test) -> None:
    """A disk that grows and shrinks while it is written to has its new size at the client, too."""
    rnbd.load(t)
    disk = disks.loop(t, 64)
    device = rnbd.map_device(t, disk)
    t.client.call(guest_io.writer_start, path=device.path, name="writer")
    taken = []
    for mib in (96, 48, 80):
        uevents.record(t)
        started = time.monotonic()
        disks.resize_loop(t, disk, mib)
        wait_size(t, device, mib)
        taken.append(time.monotonic() - started)
        seen = uevents.actions(t, device, ["change"])
        t.check("change" in seen, f"uevents for the new size: {seen}")
        end_works(t, device, disk, mib)
        with t.expect_errno(errno.ENOSPC):
            t.client.call(guest_io.write, path=device.path, offset=mib * MIB, length=4096, seed=1)
    end = t.client.call(guest_io.writer_stop, name="writer")
    t.check(end["writes"] > 0, "the writer wrote nothing")
    t.equal((end["errno"], end["running"]), (0, False), "the writer's errno, and whether it waits")
    t.equal(t.client.read(f"{rnbd.client_path(t, 'sess')}/stats/reconnects"), "0 0", "reconnects")
    t.say("the new size was there after " + ", ".join(f"{one:.1f} s" for one in taken))


@case(module_sets=("ours",))
def test_read_only(t: Test) -> None:
    """A disk that is set read-only is read-only at the client, also for who has it open, and back."""
    rnbd.load(t)
    disk = disks.loop(t, 16)
    device = rnbd.map_device(t, disk)
    t.check(not t.client.call(guest_io.is_read_only, path=device.path), "read-only from the start")
    t.client.call(guest_io.write, path=device.path, offset=0, length=65536, seed=1)
    t.client.call(guest_io.writer_start, path=device.path, name="writer", length=512)
    mark = t.client.log_mark()
    uevents.record(t)
    t.server.run(f"blockdev --setro {disk}")
    t.defer(t.server.run, f"blockdev --setrw {disk}")
    wait_read_only(t, device, True)
    t.client.wait_log("disk is read-only", mark)
    t.check("change" in uevents.actions(t, device, ["change"]), "no uevent")
    end = t.client.call_within(40, guest_io.writer_stop, name="writer", stop=False, wait=20.0)
    t.check(not end["running"], "the writer goes on")
    # EIO if a write came to the server before the client knew.
    t.check(end["errno"] in (errno.EPERM, errno.EROFS, errno.EIO), f"the writer ended with {end['errno']}")
    with t.expect_errno(errno.EPERM, errno.EROFS):
        t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=2)
    t.server.run(f"blockdev --setrw {disk}")
    wait_read_only(t, device, False)
    rnbd.works(t, device, seed=3)


@case(module_sets=("ours",))
def test_mapped_read_only(t: Test) -> None:
    """A disk that was mapped read-only stays so, whatever is done to the server's."""
    rnbd.load(t)
    disk, beside = disks.loop(t, 16), disks.loop(t, 16)
    device = rnbd.map_device(t, disk, access_mode="ro")
    witness = rnbd.map_device(t, beside)
    for command, read_only in (("--setro", True), ("--setrw", False)):
        t.server.run(f"blockdev {command} {disk} {beside}")
        wait_read_only(t, witness, read_only)
        t.check(t.client.call(guest_io.is_read_only, path=device.path), f"writable after {command}")


@case(module_sets=("ours",))
def test_size_by_hand(t: Test) -> None:
    """A size that the administrator sets stays until the server's disk has another one."""
    rnbd.load(t)
    disk = disks.loop(t, 32)
    device = rnbd.map_device(t, disk)
    t.client.write(f"{device.sysfs}/resize", str(16 * 2048))
    t.server.run(f"blockdev --setro {disk}")
    t.defer(t.server.run, f"blockdev --setrw {disk}")
    wait_read_only(t, device, True)
    t.equal(device.size(), 16 * MIB, "size after other news")
    t.server.run(f"blockdev --setrw {disk}")
    wait_read_only(t, device, False)
    disks.resize_loop(t, disk, 48)
    wait_size(t, device, 48)
    end_works(t, device, disk, 48)


@case(module_sets=("ours",))
def test_removed(t: Test) -> None:
    """A disk that is pulled out is logged, keeps its size, and is logged when it is back."""
    rnbd.load(t)
    disk = disks.null_blk(t, size=32)
    folder = f"/sys/kernel/config/nullb/{disk[5:]}"
    device, other = rnbd.map_device(t, disk), rnbd.map_device(t, disks.PLAIN)
    mark = t.client.log_mark()
    t.server.write(f"{folder}/power", "0")
    t.client.wait_log(rf"{disk[5:]}@sess> The server's disk was removed", mark)
    t.equal(device.size(), 32 * MIB, "size of the disk that was removed")
    t.equal(device.attribute("state"), "open", "state")
    rnbd.works(t, other)
    lose(t, device, disk[5:])
    t.server.write(f"{folder}/power", "1")
    reconnect(t, device)
    t.client.wait_log(rf"{disk[5:]}@sess> The server's disk is back", mark)
    rnbd.works(t, device)
    said = [line for line in t.client.log_since(mark) if "was removed" in line or "is back" in line]
    t.equal(len(said), 2, f"log lines: {said}")


@case(module_sets=("ours",))
def test_unplugged(t: Test) -> None:
    """A SCSI disk that is unplugged is logged."""
    rnbd.load(t)
    disk = disks.scsi_debug(t, dev_size_mb=16)
    device = rnbd.map_device(t, disk)
    mark = t.client.log_mark()
    t.server.write(f"/sys/block/{disk[5:]}/device/delete", "1")
    t.client.wait_log(rf"{disk[5:]}@sess> The server's disk was removed", mark)
    t.equal(device.size(), 16 * MIB, "size")
    device.unmap()


@case(module_sets=("ours",))
def test_hanging_disk(t: Test) -> None:
    """The server sees a change of a disk while another disk hangs with its requests."""
    rnbd.load(t)
    hanging = disks.holdable(t, 16, disks.LARGE_BLOCKS)
    disk = disks.loop(t, 16)
    held, device = rnbd.map_device(t, hanging), rnbd.map_device(t, disk)
    disks.hold(t, hanging)
    reader = t.client.start_job(f"dd if={held.path} of=/dev/null bs=4k count=1 iflag=direct")
    t.client.wait_for(f"/sys/block/{held.name}/inflight", matches=r"^\s*[1-9]")
    disks.resize_loop(t, disk, 32)
    wait_size(t, device, 32)
    t.check(not reader.done(), "the disk did not hang")
    disks.let_go(t, hanging)
    t.equal(reader.wait().rc, 0, "exit code of the reader")


@case(module_sets=("ours",), timeout=300, quick=())
def test_many(t: Test) -> None:
    """Many disks that change at once take few messages, and all are told of."""
    rnbd.load(t)
    count = t.scaled(MANY, MANY // 4)
    every = [disks.loop(t, 4) for _ in range(count)]
    devices = [rnbd.map_device(t, disk) for disk in every]
    path = rnbd.client_path(t, "sess")

    def reads() -> int:
        return int(t.client.read(f"{path}/stats/rdma").split()[0])

    # The news of the opens are read when the last device has news that came later.
    disks.resize_loop(t, every[-1], 6)
    wait_size(t, devices[-1], 6)
    before = reads()
    t.server.run("\n".join(f"truncate -s 8M $(losetup -nO BACK-FILE {disk})" for disk in every))
    started = time.monotonic()
    t.server.run("\n".join(f"losetup -c {disk}" for disk in every))
    changing = time.monotonic() - started
    for device in devices:
        wait_size(t, device, 8)
    asked = reads() - before
    # Each look of the server can be one doorbell, which is asked about with 63 disks a message.
    looks = int(changing / 0.5) + 2
    t.say(f"{count} disks that changed within {changing:.1f} s took {asked} messages")
    t.check(asked <= looks * (1 + count // 63), f"{asked} messages for {count} disks in {looks} looks")
    t.check(asked < count / 2 or looks > 8, f"{asked} messages for {count} disks")


@case(module_sets=("ours",))
def test_while_away(t: Test) -> None:
    """What changes while the session is away is there when it is back, and so is what follows."""
    rnbd.load(t)
    disk = disks.loop(t, 32)
    device = rnbd.map_device(t, disk)
    disks.resize_loop(t, disk, 40)
    wait_size(t, device, 40)
    for mib in (64, 24):
        lose(t, device, disk[5:])
        disks.resize_loop(t, disk, mib)
        reconnect(t, device)
        wait_size(t, device, mib)
        end_works(t, device, disk, mib)
        # The server numbers changes anew.
        disks.resize_loop(t, disk, mib + 4)
        wait_size(t, device, mib + 4)


@case(module_sets=("ours",))
def test_two_paths(t: Test) -> None:
    """News come by the path that is left."""
    rnbd.load(t)
    disk = disks.loop(t, 16)
    device = rnbd.map_device(t, disk)
    t.client.write(f"{rnbd.CLIENT_SESSIONS}/sess/add_path", f"ip:{t.server.address6}")
    first = rnbd.path_to(t, t.server.address)
    t.client.write(f"{first}/disconnect", "1")
    disks.resize_loop(t, disk, 24)
    wait_size(t, device, 24)
    rnbd.reconnect(t, first)
    disks.resize_loop(t, disk, 32)
    wait_size(t, device, 32)
    t.equal(device.attribute("state"), "open", "state")


@case(module_sets=("ours",))
def test_hostile_client(t: Test) -> None:
    """News are for who has agreed on them and asks properly; the rest gets an error, and no harm is done."""
    rnbd.load(t, client=False)
    got = t.client.call_within(60, guest_hostile_io.news, address=t.server.address,
                               device_path=disks.PLAIN)
    refused = errno.EINVAL
    one = [1, 1, 0]
    t.equal(got, {"not agreed on": refused, "agreement": 0, "agreed": True, "cut": refused,
                  "no room": errno.EMSGSIZE, "without memory": errno.EMSGSIZE,
                  "as a write": errno.EMSGSIZE, "least room": one, "device": True,
                  "known": [1, 0, 0], "from the last device": [1, 0, 0],
                  "agreement without news": 0, "not agreed on any more": refused,
                  "write afterwards": 0}, "errors and answers")


@case(module_sets=("ours",), timeout=180)
def test_hostile_server(t: Test) -> None:
    """News that make no sense are refused and logged; a server that rings all the time is asked seldom."""
    serve(t, features=RINGS)
    call(t, hostile.misbehave, place="session_info", fault="extension")

    def tell(**what: Any) -> None:
        call(t, hostile.misbehave, place="control", fault="tell_news", **what)

    tell(records=[(DEVICE_ID, 2048)])
    device = rnbd.map_device(t, DISK)
    call(t, hostile.wait_for, "request", NEWS)
    faults: tuple[tuple[str, dict[str, Any]], ...] = (
        ("unexpected type 0x6", {"kind": NEWS, "records": []}),
        ("count of the news response has", {"records": [], "count": 64}),
        ("that goes on has", {"records": [], "more": True}),
        ("device id in the news", {"records": [(DEVICE_ID, 8), (DEVICE_ID, 8)]}),
        ("size in the news", {"records": [(DEVICE_ID, 1 << 63)]}),
        ("logical block size in the news", {"records": [(DEVICE_ID, 8)], "blocks": 513}))
    for number, (log, fault) in enumerate(faults, 2):
        within_log_limit(t)
        mark = t.client.log_mark()
        tell(sequence=number, **fault)
        call(t, hostile.ring, number=number)
        t.client.wait_log(log, mark)
        t.equal(path_state(t), "connected", f"path after {log!r}")
        t.equal(device.size(), 2048 * 512, f"size after {log!r}")
    before = call(t, hostile.count, "request", NEWS)
    call(t, hostile.ring, number=100, times=20)
    tell(sequence=200, records=[(DEVICE_ID - 1, 8), (DEVICE_ID, 4096), (DEVICE_ID + 1, 8)])
    call(t, hostile.ring, number=200)
    wait_size(t, device, 2)
    asked = call(t, hostile.count, "request", NEWS) - before
    t.check(asked < 10, f"asked {asked} times after 21 doorbells")
    device.unmap()


@case(module_sets=("ours",))
def test_closed_by_hostile_server(t: Test) -> None:
    """A server that has not agreed to tell which devices it has closed closes none; otherwise any reason will do."""
    serve(t, features=RINGS)
    call(t, hostile.misbehave, place="control", fault="tell_news", records=[(DEVICE_ID, 4096)], sequence=9,
         record_flags=IS_CLOSED, reason=255)
    for without, state in ((CLOSED, "open"), (0, "closed")):
        call(t, hostile.misbehave, place="session_info", fault="extension", without=without)
        mark = t.client.log_mark()
        device = rnbd.map_device(t, DISK)
        if without:
            wait_size(t, device, 2)
        else:
            t.client.wait_log("The server has closed the device: requests fail", mark)
        t.equal(device.attribute("state"), state, "state")
        t.equal(path_state(t), "connected", "path")
        device.unmap()


@case(module_sets=("ours",))
def test_old_data_for_an_agreement(t: Test) -> None:
    """A server whose response has somebody else's nonce, as old data may, is asked for no news."""
    serve(t, features=RINGS)
    call(t, hostile.misbehave, place="session_info", fault="extension", nonce=1 << 63)
    device = rnbd.map_device(t, DISK)
    call(t, hostile.ring, number=5)
    t.check(t.client.call(guest_io.all_zero, path=device.path, offset=0, length=4096), "what was read")
    device.unmap()
    t.equal(call(t, hostile.count, "request", NEWS), 0, "requests for news")


def without_news(t: Test, client: str, server: str) -> None:
    """A peer that knows no news works as ever, and is sent nothing that it does not know."""
    for node, name in ((t.client, client), (t.server, server)):
        rnbd.use_set(node, name)
        t.defer(rnbd.use_set, node, t.modules)
    rnbd.load(t)
    disk = disks.loop(t, 16)
    device = rnbd.map_device(t, disk)
    marks = [node.log_mark() for node in t.nodes]
    disks.resize_loop(t, disk, 32)
    for seed in range(20):
        rnbd.works(t, device, length=MIB, seed=seed)
    # Longer than the server takes to see it.
    t.client.run(f"timeout 3 sh -c 'while :; do dd if={device.path} of=/dev/null bs=1M count=1 "
                 "iflag=direct 2>/dev/null || exit 9; done' || test $? = 124")
    t.equal(device.size(), 16 * MIB, "size that nobody told")
    for node, mark in zip(t.nodes, marks, strict=True):
        said = [line for line in node.log_since(mark) if "rtrs" in line or "rnbd" in line]
        t.equal(said, [], f"log of {node.name}")
    t.equal(t.client.read(f"{rnbd.client_path(t, 'sess')}/state"), "connected", "path")
    t.client.write(f"{device.sysfs}/resize", str(32 * 2048))
    end_works(t, device, disk, 32)


@case(module_sets=("ours",), quick=())
def test_c_client(t: Test) -> None:
    """A C client of our server is not rung at."""
    without_news(t, "c", "ours")


@case(module_sets=("ours",), quick=())
def test_c_server(t: Test) -> None:
    """Our client asks a C server for nothing."""
    without_news(t, "ours", "c")
