# SPDX-License-Identifier: GPL-2.0
"""Clients that go without a word, and clients that the server sends away."""

from __future__ import annotations

import errno
import time

from lab.selftest_case import case
from lab.selftest_case import Test
from lab.vm import wait_until
from lib import disks
from lib import guest_io
from lib import rnbd
from lib.rnbd import Device

TOPOLOGY = "two"
FAST = "hb_interval_ms=500 hb_missed_max=4"
# The server looks twice a second at what it has to tell; the rest is for a machine that is busy.
SOON = 5.0


def start_writer(t: Test, device: Device) -> None:
    """Writes over and over; waits for the first ones."""
    t.client.call(guest_io.writer_start, path=device.path, name="writer")
    t.client.wait_for(f"/sys/block/{device.name}/stat",
                      matches=r"^\s*\d+\s+\d+\s+\d+\s+\d+\s+\d\d")


def lose_client(t: Test, parameters: str, patience: float) -> float:
    """Power off the client while it writes; returns the seconds until its device is closed."""
    rnbd.load(t, rtrs_server=parameters)
    # The server's machine is also the other client.
    if not t.server.module_loaded("rnbd_client"):
        t.server.modules_load("rnbd_client", rnbd_client="", rtrs_client="")
    device = rnbd.map_device(t, disks.PLAIN, session="dead", keep=True)
    start_writer(t, device)
    with t.expect_errno(errno.EPERM):
        rnbd.map_device(t, disks.PLAIN, session="heir", node=t.server)
    t.client.kill()
    started = time.monotonic()
    try:
        t.server.wait_for(f"{rnbd.SERVER_DEVICES}/vdb", gone=True, timeout=patience)
        taken = time.monotonic() - started
        t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/dead", gone=True)
        heir = rnbd.map_device(t, disks.PLAIN, session="heir", node=t.server, keep=True)
        t.server.call(guest_io.write, path=heir.path, offset=0, length=65536, seed=1)
        t.intact(t.server.call(guest_io.compare, path=heir.path, offset=0, length=65536, seed=1),
                 None, "first wrong byte of the other client")
        heir.unmap()
    finally:
        t.client.start()
        t.lab.finish_reboot(t.client)
        t.server.modules_unload_all()
    return taken


@case(timeout=180, quick=())
def test_power_cut(t: Test) -> None:
    """A client's machine dies while it writes: with C's timing another can write after 40 s."""
    taken = lose_client(t, "", 45.0)
    t.say(f"closed after {taken:.1f} s")


@case(module_sets=("ours",), quick=())
def test_power_cut_fast(t: Test) -> None:
    """The same with a heartbeat of half a second: another client can write after some seconds."""
    taken = lose_client(t, FAST, 8.0)
    t.say(f"closed after {taken:.1f} s")


@case(timeout=180, quick=())
def test_again_after_power_cut(t: Test) -> None:
    """A client that died and is back maps its disk for writing again, under the same name."""
    ours = t.modules == "ours"
    # So long that the client is back before the server has noticed; see test_power_cut for that.
    rnbd.load(t, rtrs_server="hb_interval_ms=600000" if ours else "")
    rnbd.map_device(t, disks.PLAIN, keep=True)
    t.client.kill()
    t.client.start()
    t.lab.finish_reboot(t.client)
    t.client.modules_load("rnbd_client", rnbd_client="", rtrs_client="")
    if ours:
        # The machine has begun to count its queue pairs anew. One with the number of an old one would
        # have the server's connection manager end the old connection.
        for _ in range(4):
            with t.expect_errno(errno.ECONNRESET, errno.ECONNREFUSED):
                rnbd.map_device(t, disks.PLAIN, paths=[f"ip:{t.client.address}"])
        mark = t.server.log_mark()
        with t.expect_errno(errno.ECONNRESET):
            rnbd.map_device(t, disks.PLAIN)
        t.server.wait_log("session name sess is in use by another client", mark)
        t.server.write(f"{rnbd.server_path(t, 'sess')}/disconnect", "1")
    last: list[Device] = []

    def mapped() -> bool:
        try:
            last[:] = [rnbd.map_device(t, disks.PLAIN)]
        except OSError as error:
            # The name is the old session's until the server has noticed.
            t.equal(error.errno, errno.ECONNRESET, "errno of a client that is back too early")
            return False
        return True

    wait_until(mapped, 60.0 * t.client.slow, "mapping the disk again")
    t.client.call(guest_io.write, path=last[0].path, offset=0, length=4096, seed=1)


@case(timeout=180, quick=())
def test_disconnect(t: Test) -> None:
    """disconnect of a path on the server returns at once; the client's IO fails, both ends tidy."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    path = rnbd.server_path(t, "sess")
    for word in ("0", "2", "11", "disconnect", "\n"):
        mark = t.server.log_mark()
        with t.expect_errno(errno.EINVAL):
            t.server.write(f"{path}/disconnect", word)
        t.server.wait_log("disconnect: invalid value", mark)
    t.equal(t.client.read(f"{rnbd.client_path(t, 'sess')}/state"), "connected", "path state")
    start_writer(t, device)
    started = time.monotonic()
    t.server.write(f"{path}/disconnect", "1\n")
    t.check(time.monotonic() - started < 3 * t.server.slow, "the write to disconnect waited")
    t.server.wait_for(f"{rnbd.SERVER_DEVICES}/vdb", gone=True)
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/sess", gone=True)
    end = t.client.call_within(40, guest_io.writer_stop, name="writer", stop=False, wait=20.0)
    t.check(not end["running"], "the writer is still waiting for its IO")
    t.equal(end["errno"], errno.EIO, "errno of the writer")
    device.unmap("force")
    again = rnbd.map_device(t, disks.PLAIN)
    t.client.call(guest_io.write, path=again.path, offset=0, length=4096, seed=1)


@case(c_known_failure="a write to a device that was closed by force succeeds once another one "
                      "has been mapped")
def test_force_close(t: Test) -> None:
    """force_close under IO: the writer gets EIO, and what comes late hits no other disk."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    start_writer(t, device)
    mark = t.client.log_mark()
    t.server.write(f"{rnbd.SERVER_DEVICES}/vdb/sessions/sess/force_close", "1")
    t.check(not t.server.exists(f"{rnbd.SERVER_DEVICES}/vdb"), "the device is still exported")
    end = t.client.call_within(40, guest_io.writer_stop, name="writer", stop=False, wait=20.0)
    t.check(not end["running"], "the writer is still waiting for its IO")
    t.equal(end["errno"], errno.EIO, "errno of the writer")
    # The next device must not get the number that the client knows the closed one by.
    t.server.call(guest_io.write, path=disks.WITHOUT_DISCARD, offset=0, length=4096, seed=7)
    other = rnbd.map_device(t, disks.WITHOUT_DISCARD)
    for _ in range(3):
        with t.expect_errno(errno.EIO):
            t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=8)
    t.client.wait_log(f"I/O failed with err: -{errno.ENOTCONN}", mark)
    if t.modules == "c":
        # The client is not told: to it the device is open, and there is nothing to map again.
        t.equal(device.attribute("state"), "open", "state of a device that the server has closed")
        with t.expect_errno(errno.EALREADY):
            t.client.write(f"{device.sysfs}/remap_device", "1")
    else:
        t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=SOON)
    t.intact(t.client.call(guest_io.compare, path=other.path, offset=0, length=4096, seed=7),
             None, "first wrong byte of the other disk")
    t.check(rnbd.disk_stats(t.server, "vdb")["writes"] > 0, "nothing was written before")
    # Somebody else can have the disk; the client gets it back after it has unmapped it (ours also by remap_device).
    device.unmap()
    again = rnbd.map_device(t, disks.PLAIN)
    t.client.call(guest_io.write, path=again.path, offset=0, length=4096, seed=1)


@case(timeout=180)
def test_force_close_often(t: Test) -> None:
    """force_close while the device is mapped, written and unmapped, over and over."""
    rnbd.load(t, rtrs_server="sess_queue_depth=64")
    keeper = rnbd.map_device(t, disks.WITHOUT_DISCARD)
    closer = t.server.start_job(
        "while [ ! -e /tmp/stop ]; do\n"
        f"echo 1 2>/dev/null >{rnbd.SERVER_DEVICES}/vdb/sessions/sess/force_close; done",
        timeout=150)
    t.defer(t.server.run, "rm -f /tmp/stop")
    try:
        for _ in range(t.scaled(20, 3)):
            device = rnbd.map_device(t, disks.PLAIN)
            try:
                t.client.call(guest_io.write, path=device.path, offset=0, length=65536, seed=1)
            except OSError as error:
                t.equal(error.errno, errno.EIO, "errno of a write")
            device.unmap("force")
    finally:
        t.server.run("touch /tmp/stop")
        closer.wait()
    t.client.call(guest_io.write, path=keeper.path, offset=0, length=4096, seed=1)
    t.equal(t.server.listdir(rnbd.SERVER_DEVICES), ["vdc"], "exported devices at the end")
