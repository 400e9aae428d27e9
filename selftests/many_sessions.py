# SPDX-License-Identifier: GPL-2.0
"""Many sessions, many devices, many rounds."""

from __future__ import annotations

import time

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import guest_rounds
from lib import memory
from lib import rnbd

TOPOLOGY = "one"
KIB = 1 << 10
NAME_RACE = "a session is refused while the last one of its name is still being closed"


def test_twenty_sessions(t: Test) -> None:
    """Twenty sessions with a device each: all work at once, and all go."""
    count = 4 if t.debug else 20
    # 1 MiB a session.
    rnbd.load(t, rtrs_server="sess_queue_depth=32 max_chunk_size=32768")
    mapped = []
    for index in range(count):
        disk = disks.null_blk(t, size=1)
        mapped.append((disk, rnbd.map_device(t, disk, session=f"session{index}")))
    t.equal(len(t.server.listdir(rnbd.SERVER_SESSIONS)), count, "sessions of the server")
    t.equal(len(t.client.listdir(rnbd.CLIENT_SESSIONS)), count, "sessions of the client")
    if t.modules == "ours":
        taken = sum(int(t.server.read(f"{rnbd.SERVER_SESSIONS}/session{index}/memory_bytes"))
                    for index in range(count))
        t.check(count << 20 <= taken <= (count << 20) * 1.02, f"the sessions take {taken} bytes")
    for index, (_disk, device) in enumerate(mapped):
        t.client.call(guest_io.writer_start, path=device.path, name=f"writer{index}")
    for _disk, device in mapped:
        t.client.wait_for(f"/sys/block/{device.name}/stat",
                          matches=r"^\s*\d+\s+\d+\s+\d+\s+\d+\s+\d\d", timeout=30)
    for index in range(count):
        end = t.client.call(guest_io.writer_stop, name=f"writer{index}")
        t.equal(end["errno"], 0, f"errno of writer {index}")
    for index, (_disk, device) in enumerate(mapped):
        t.client.call(guest_io.write, path=device.path, offset=64 * KIB, length=64 * KIB,
                      seed=index)
    for index, (disk, device) in enumerate(mapped):
        t.intact(t.server.call(guest_io.compare, path=disk, offset=64 * KIB, length=64 * KIB,
                               seed=index), None, f"first wrong byte of {disk}")
        device.unmap()
    for index in range(count):
        t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/session{index}", gone=True)


@case(timeout=240, quick=())
def test_hundred_devices(t: Test) -> None:
    """A hundred devices in one session are mapped in less than ten seconds, and each is its own."""
    count = 8 if t.debug else 100
    rnbd.load(t, rtrs_server="sess_queue_depth=128")
    t.server.run(f"modprobe -r null_blk 2>/dev/null; modprobe null_blk nr_devices={count} "
                 "memory_backed=1 gb=1 queue_mode=0 submit_queues=1")
    t.defer(t.server.run, "modprobe -r null_blk")
    lines = [rnbd.map_text(session="sess", device_path=f"/dev/nullb{index}",
                           paths=[f"ip:{t.server.address}"])
             for index in range(count)]
    t.defer(t.client.run, "for d in /sys/block/rnbd*; do [ -e $d/rnbd/unmap_device ] && "
                          "echo force >$d/rnbd/unmap_device; done; true", timeout=100)
    # By one program, so that the time is that of the kernel.
    taken = t.client.call_within(120, guest_rounds.write_each, path=rnbd.MAP_DEVICE, lines=lines)
    t.say(f"{count} devices mapped in {taken:.1f} s, at most {taken / count * 1000:.0f} ms each")
    t.check(taken < 10 * t.client.slow, f"mapping {count} devices took {taken:.1f} s")
    t.equal(len(t.server.listdir(rnbd.SERVER_DEVICES)), count, "exported devices")
    t.equal(t.server.listdir(rnbd.SERVER_SESSIONS), ["sess"], "sessions")
    mapped = [rnbd.find_device(t.client, f"/dev/nullb{index}", "sess") for index in range(count)]
    t.equal(len({device.name for device in mapped}), count, "disks")
    for index, device in enumerate(mapped):
        t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=index)
    for index in range(count):
        t.intact(t.server.call(guest_io.compare, path=f"/dev/nullb{index}", offset=0,
                               length=4096, seed=index), None, f"first wrong byte of disk {index}")
    started = time.monotonic()
    for device in mapped:
        device.unmap()
    t.say(f"unmapped in {time.monotonic() - started:.1f} s")
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/sess", gone=True)


# On the debug kernel the request has ended before the device is unmapped.
@case(module_sets=("ours",), kernels=("stock",))
def test_same_name_again(t: Test) -> None:
    """A session of the name of one that has just been closed is not refused."""
    rnbd.load(t)
    # A request that is in flight on the server's disk keeps the old session for two seconds; the
    # server has the new one wait for ten.
    slow = disks.null_blk(t, irqmode=2, completion_nsec=2000000000)
    device = rnbd.map_device(t, slow)
    t.client.call(guest_io.writer_start, path=device.path, name="writer")
    t.server.wait_for(f"/sys/block/{slow[5:]}/inflight", matches=r"\s*\d+\s+[1-9]")
    # The client cannot close the device any more, which would wait for the request.
    t.client.write(f"{rnbd.client_path(t, 'sess')}/disconnect", "1")
    device.unmap("force")
    t.client.call_within(40, guest_io.writer_stop, name="writer", stop=False, wait=20.0)
    t.equal(t.server.listdir(rnbd.SERVER_SESSIONS), ["sess"], "sessions that are being closed")
    again = rnbd.map_device(t, disks.PLAIN)
    t.client.call(guest_io.write, path=again.path, offset=0, length=4096, seed=1)


def rounds(t: Test, count: int, session: str = "sess") -> None:
    """Map, use and unmap, so often."""
    text = rnbd.map_text(session=session, device_path=disks.PLAIN,
                         paths=[f"ip:{t.server.address}"])
    link = f"{rnbd.CLIENT_DEVICES}/{rnbd.link_name(disks.PLAIN, session)}"
    t.client.call_within(2.0 * count + 60, guest_rounds.map_and_unmap, map_device=rnbd.MAP_DEVICE,
                         text=text, link=link, count=count)
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/{session}", gone=True)


def rounds_leave_nothing(t: Test, count: int) -> None:
    """Memory after so many rounds is memory before."""
    rnbd.load(t, rtrs_server="sess_queue_depth=32 max_chunk_size=32768")
    rounds(t, 10)
    slabs = memory.slabs(t.server)
    before = memory.available(t.server)
    started = time.monotonic()
    rounds(t, count)
    taken = time.monotonic() - started
    # In the order of the measurements before.
    grown = memory.grown_slabs(t.server, slabs, count)
    missing = memory.wait_returned(t.server, before, (1024 + 2 * count) * KIB, f"{count} rounds")
    t.say(f"{count} rounds in {taken:.1f} s, {missing // KIB} KiB missing afterwards")
    t.equal(grown, {}, f"slabs that grew with {count} rounds")


@case(timeout=240, kernels=("stock",), c_known_failure=NAME_RACE, quick=())
def test_fifty_rounds(t: Test) -> None:
    """Mapping and unmapping fifty times leaves the machine's memory as it was."""
    rounds_leave_nothing(t, 50)


@case(timeout=900, kernels=("stock",), quick=(), c_known_failure=NAME_RACE)
def test_five_hundred_rounds(t: Test) -> None:
    """Five hundred times, where a page for each would show."""
    rounds_leave_nothing(t, 500)
