# SPDX-License-Identifier: GPL-2.0
"""A server that goes away on purpose: clients that know of it wait, and no program sees an error."""

from __future__ import annotations

import errno
import time
from typing import Any

from lab.selftest_case import case
from lab.selftest_case import Test
from lab.vm import wait_until
from lib import disks
from lib import guest_hostile_server as hostile
from lib import guest_io
from lib import rnbd
from lib.hostile import call
from lib.hostile import DISK
from lib.hostile import NEWS
from lib.hostile import path_state
from lib.hostile import RINGS
from lib.hostile import serve
from lib.hostile import within_log_limit
from lib.rnbd import Device
from lib.stream import seconds
from lib.stream import Stream
from lib.stream import verified

TOPOLOGY = "two"
ONLY_OURS = ("ours",)
SERVER = "/sys/class/rnbd-server/ctl/drain"
CLIENT = f"{rnbd.CLIENT_SESSIONS}/sess/drain"
AWAY = "the server goes away for maintenance, for up to"
BACK = "the server is back from its maintenance"
# How much longer clients wait than the server refuses them, in s.
GRACE = 10
# What the server in user space calls its disk.
DEVICE_ID = 7


def load(t: Test) -> None:
    """Have the modules of both ends, the server's with the parameters of `load_server`."""
    rnbd.load(t, rtrs_server=rnbd.fewer_buffers(t))


def load_server(t: Test) -> None:
    """Load the server's modules as they were: a session cannot go on with fewer buffers, or more."""
    t.server.modules_load("rnbd_server", rtrs_server=f"{rnbd.fewer_buffers(t)}ack_timeout_ms={rnbd.ACK_TIMEOUT_MS}")


def begin(t: Test, duration: int, without: int = 0) -> None:
    """Have the server drain, and wait until those have left that know of it."""
    t.server.write(SERVER, str(duration))
    t.defer_once(end, t)
    t.server.wait_for(SERVER, matches=rf"^\d+ 0 {without}$", timeout=15)


def end(t: Test) -> None:
    """Have the server drain no more, if its modules are there."""
    if t.server.exists(SERVER):
        t.server.write(SERVER, "0")
        t.equal(t.server.read(SERVER), "off", SERVER)


def reload_server(t: Test) -> None:
    """Unload all of the server's modules, and load them again."""
    t.server.modules_unload_all()
    load_server(t)


def said(t: Test, mark: Any, text: str) -> list[str]:
    """The lines of the client's log with this text."""
    return [line for line in t.client.log_since(mark) if text in line]


def without_holding(t: Test, device: Device) -> Stream:
    """Verified IO in a session whose requests fail as soon as its last path is lost, and whose path stays
    disconnected after the first attempt to connect it again that fails."""
    for name, value in (("hold_io_ms", 0), ("max_reconnect_attempts", 0)):
        t.client.write(f"{rnbd.CLIENT_SESSIONS}/{device.session}/{name}", str(value))
    return Stream(t, device)


def refused(t: Test, what: str, device_path: str, **options: Any) -> None:
    """Mapping fails with the error and the line in the log that are documented."""
    mark = t.client.log_mark()
    try:
        with t.expect_errno(errno.EHOSTDOWN):
            rnbd.map_device(t, device_path, keep=True, **options)
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from None
    t.check(said(t, mark, "is draining for maintenance and opens no device"),
            f"{what}: {t.client.log_since(mark)}")


@case(timeout=300, module_sets=ONLY_OURS, quick=("stock", "debug"))
def test_modules_replaced(t: Test) -> None:
    """Two sessions under IO: the server is drained, its modules are unloaded and loaded, and the IO goes on."""
    load(t)
    devices = [rnbd.map_device(t, disks.PLAIN),
               rnbd.map_device(t, disks.WITHOUT_DISCARD, session="second")]
    streams = [without_holding(t, device) for device in devices]
    pauses, leaving = [], []
    for _ in range(t.rounds(2, 10)):
        mark = t.client.log_mark()
        for stream in streams:
            stream.longest()
        started = time.monotonic()
        begin(t, 600)
        leaving.append(time.monotonic() - started)
        t.check(int(t.client.read(CLIENT)) in range(500, 601 + GRACE), f"{CLIENT}: {t.client.read(CLIENT)}")
        t.equal(t.server.listdir(rnbd.SERVER_SESSIONS), [], "sessions of the server that was drained")
        t.equal(t.server.listdir(rnbd.SERVER_DEVICES), [], "devices of the server that was drained")
        reload_server(t)
        for stream in streams:
            stream.go_on()
        pauses += [stream.longest() for stream in streams]
        for device in devices:
            t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/{device.session}/drain", matches="^off$")
        for text in (AWAY, BACK):
            t.equal(len(said(t, mark, text)), 2, f"lines with {text!r} for two sessions")
        t.equal(said(t, mark, "I/O failed"), [], "failed requests")
        # An attempt that falls in with the loading of a module may fail as no other does.
        t.check(len(said(t, mark, "connecting to the server failed")) < 4, f"lines about attempts: {said(t, mark, '')}")
    ends = ", ".join(verified(stream.stop()) for stream in streams)
    t.say(f"clients have left after {seconds(leaving)}, requests paused for {seconds(pauses)}; {ends}")


@case(module_sets=ONLY_OURS, quick=("stock",))
def test_cancel(t: Test) -> None:
    """A drain that is cancelled lets the clients back in at once; there is one more after it."""
    load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    stream = without_holding(t, device)
    taken = []
    for _ in range(t.rounds(2, 10)):
        begin(t, 86400)
        before = stream.progress()["requests"]
        t.equal(path_state(t), "disconnected", "path")
        t.check(t.client.read(CLIENT).isdecimal(), f"{CLIENT}: {t.client.read(CLIENT)}")
        t.equal(stream.progress()["requests"], before, "requests while the server drains")
        started = time.monotonic()
        end(t)
        stream.go_on()
        taken.append(time.monotonic() - started)
        t.client.wait_for(CLIENT, matches="^off$")
    t.say(f"goes on {seconds(taken)} after the end; {verified(stream.stop())}")
    t.check(max(taken) < 5 * t.client.slow, f"going on took {taken} s")


@case(module_sets=ONLY_OURS, quick=())
def test_time_runs_out(t: Test) -> None:
    """When the time is over and the server is not back, requests fail as usual; then it is as ever."""
    load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    stream = Stream(t, device)
    mark = t.client.log_mark()
    started = time.monotonic()
    begin(t, 6)
    t.server.modules_unload_all()
    wait_until(lambda: not stream.progress()["running"], 30 * t.client.slow, "the requests' end")
    taken = time.monotonic() - started
    result = stream.stop(check=False)
    t.equal((result["errnos"], result["hung"]), ([errno.EIO], 0), "errors and hung requests")
    least = 6 + GRACE
    t.check(least - 0.5 < taken < least + 3 * t.client.slow, f"requests failed after {taken:.1f} s")
    t.client.wait_log("not back from its maintenance in the time that it announced", mark)
    t.equal(t.client.read(CLIENT), "off", CLIENT)
    load_server(t)
    t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=60)
    rnbd.works(t, device)
    t.equal(said(t, mark, BACK), [], "lines about a return after the time")
    t.say(f"failed after {taken:.1f} s of {least} s")


@case(module_sets=ONLY_OURS)
def test_over_while_there(t: Test) -> None:
    """When the time is over and the server was not unloaded, it lets clients in again by itself, without an error."""
    load(t)
    stream = without_holding(t, rnbd.map_device(t, disks.PLAIN))
    pauses = []
    for _ in range(t.rounds(1, 3)):
        mark = t.server.log_mark()
        stream.longest()
        begin(t, 4)
        t.server.wait_log("drain: the time is over, clients are let in again", mark)
        stream.go_on()
        t.equal(t.server.read(SERVER), "off", SERVER)
        t.client.wait_for(CLIENT, matches="^off$")
        pauses.append(stream.longest())
    t.say(f"requests paused for {seconds(pauses)} of 4 s; {verified(stream.stop())}")


def named_disk(t: Test, disk: str) -> str:
    """A name that can be given to another disk of the server, by ``rename``."""
    name = "/dev/renamed"
    rename(t, name, disk)
    t.defer(rename, t, name, None)
    return name


def rename(t: Test, name: str, disk: str | None) -> None:
    """Give a disk of the server this name, or none."""
    t.server.run(f"rm -f {name}" if disk is None else f"ln -sfn {disk} {name}")


@case(timeout=180, module_sets=ONLY_OURS, quick=())
def test_disk_comes_later(t: Test) -> None:
    """A disk that the server does not have yet is waited for, until it comes or is unmapped; the session's other
    disks are not."""
    load(t)
    stream = without_holding(t, rnbd.map_device(t, disks.PLAIN))
    name = named_disk(t, disks.WITHOUT_DISCARD)
    later = rnbd.map_device(t, name)
    late = Stream(t, later)

    def come_back_without() -> None:
        mark = t.client.log_mark()
        begin(t, 600)
        rename(t, name, None)
        reload_server(t)
        stream.go_on()
        t.client.wait_log(BACK, mark)
        t.equal(later.attribute("state"), "closed", f"state of {name}")
        t.check(t.client.read(CLIENT) != "off", f"{CLIENT} while {name} is not there")

    come_back_without()
    # The server is back: what is new may be mapped.
    rnbd.works(t, rnbd.map_device(t, disks.LARGE_BLOCKS))
    rename(t, name, disks.WITHOUT_DISCARD)
    late.go_on()
    t.client.wait_for(CLIENT, matches="^off$")
    late.stop()
    come_back_without()
    later.unmap()
    t.client.wait_for(CLIENT, matches="^off$")
    t.say(verified(stream.stop()))


@case(timeout=180, module_sets=ONLY_OURS, quick=("stock",))
def test_disk_is_another(t: Test) -> None:
    """A device that does not fit the server's disk any more fails its requests at once, and nothing waits for it."""
    load(t)
    stream = without_holding(t, rnbd.map_device(t, disks.PLAIN))
    name = named_disk(t, disks.WITHOUT_DISCARD)
    device = rnbd.map_device(t, name)
    lost = Stream(t, device)
    mark = t.client.log_mark()
    begin(t, 600)
    with t.expect_errno(errno.EHOSTDOWN):
        t.client.write(f"{device.sysfs}/remap_device", "1")
    rename(t, name, disks.LARGE_BLOCKS)
    reload_server(t)
    t.client.wait_log(BACK, mark)
    wait_until(lambda: not lost.progress()["running"], 20 * t.client.slow, "the requests' end")
    result = lost.stop(check=False)
    t.equal((result["errnos"], result["hung"]), ([errno.EIO], 0), "errors and hung requests")
    t.client.wait_for(CLIENT, matches="^off$")
    stream.go_on()
    t.say(verified(stream.stop()))


@case(module_sets=ONLY_OURS, quick=("stock",))
def test_new_maps(t: Test) -> None:
    """While the server drains, mapping by a new session and by one that has left is refused, and says why."""
    load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    begin(t, 600)
    refused(t, "a new session", disks.WITHOUT_DISCARD, session="second")
    refused(t, "a session that has left", disks.WITHOUT_DISCARD)
    t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), ["sess"], "sessions")
    t.equal(t.client.listdir(rnbd.CLIENT_DEVICES), [rnbd.link_name(disks.PLAIN, "sess")], "mappings")
    end(t)
    t.client.wait_for(f"{device.sysfs}/state", matches="open")
    rnbd.works(t, rnbd.map_device(t, disks.WITHOUT_DISCARD))
    rnbd.works(t, device)


@case(module_sets=ONLY_OURS, quick=("stock",))
def test_file(t: Test) -> None:
    """The server's file takes a number of seconds up to a day, and nothing else."""
    rnbd.load(t, client=False)
    t.equal(t.server.read(SERVER), "off", SERVER)
    mark = t.server.log_mark()
    for text, number in (("", errno.EINVAL), ("10m", errno.EINVAL), ("-1", errno.EINVAL),
                         ("86401", errno.EINVAL), ("99999999999999999999", errno.ERANGE)):
        if text:
            with t.expect_errno(number):
                t.server.write(SERVER, text)
    t.equal(t.server.read(SERVER), "off", f"{SERVER} after numbers that are none")
    t.server.wait_log("drain: 86401 is not between 0 and 86400", mark)
    t.server.write(SERVER, "0")
    begin(t, 86400)
    begin(t, 300)
    t.check(int(t.server.read(SERVER).split()[0]) in range(250, 301), f"{SERVER} after 300")
    end(t)


@case(timeout=300, module_sets=ONLY_OURS)
def test_paths(t: Test) -> None:
    """A session with two paths leaves by both, and both come back."""
    load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    t.client.write(f"{rnbd.CLIENT_SESSIONS}/sess/add_path", f"ip:{t.server.address6}")
    stream = without_holding(t, device)
    pauses = []
    for _ in range(t.rounds(2, 10)):
        stream.longest()
        begin(t, 600)
        reload_server(t)
        stream.go_on()
        pauses.append(stream.longest())
        folder = f"{rnbd.CLIENT_SESSIONS}/sess/paths"
        for path in t.client.listdir(folder):
            t.client.wait_for(f"{folder}/{path}/state", matches="^connected", timeout=30)
    t.say(f"requests paused for {seconds(pauses)}; {verified(stream.stop())}")


@case(timeout=180, module_sets=ONLY_OURS, quick=())
def test_hanging_disk(t: Test) -> None:
    """A request that hangs on the server's disk delays the leaving, but not for long, and ends without an error. A
    path that is added meanwhile leaves, too."""
    load(t)
    hanging = disks.holdable(t, 16, disks.LARGE_BLOCKS)
    held = rnbd.map_device(t, hanging)
    stream = without_holding(t, rnbd.map_device(t, disks.PLAIN, session="second"))
    disks.hold(t, hanging)
    reader = t.client.start_job(f"dd if={held.path} of=/dev/null bs=4k count=1 iflag=direct")
    t.client.wait_for(f"/sys/block/{held.name}/inflight", matches=r"^\s*[1-9]")
    mark = t.client.log_mark()
    started = time.monotonic()
    t.server.write(SERVER, "600")
    t.defer_once(end, t)
    t.client.wait_log(f"session sess: {AWAY}", mark)
    t.client.write(f"{rnbd.CLIENT_SESSIONS}/sess/add_path", f"ip:{t.server.address6}")
    for number in range(2):
        t.client.wait_for(f"{rnbd.client_path(t, 'sess', number)}/state", matches="^disconnected", timeout=30)
    taken = time.monotonic() - started
    t.check(9 < taken < 13 * t.client.slow, f"left after {taken:.1f} s")
    disks.let_go(t, hanging)
    end(t)
    stream.go_on()
    t.equal(reader.wait(60).rc, 0, "exit code of the reader")
    for number in range(2):
        t.client.wait_for(f"{rnbd.client_path(t, 'sess', number)}/state", matches="^connected", timeout=30)
    t.say(f"left after {taken:.1f} s; {verified(stream.stop())}")


# A refused mapping leaks an object of the C client.
@case(kernels=("stock",), module_sets=ONLY_OURS, quick=())
def test_c_client(t: Test) -> None:
    """A C client works on, is counted as one that does not leave, and is refused what is new."""
    rnbd.use_set(t.client, "c")
    t.defer(rnbd.use_set, t.client, t.modules)
    load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    marks = [node.log_mark() for node in t.nodes]
    begin(t, 600, without=1)
    for seed in range(20):
        rnbd.works(t, device, length=1 << 20, seed=seed)
    t.equal(t.client.log_since(marks[0]), [], "log of the C client")
    for session in ("sess", "second"):
        with t.expect_errno(errno.EHOSTDOWN):
            rnbd.map_device(t, disks.WITHOUT_DISCARD, session=session, keep=True)
    t.client.wait_log("Connect rejected.*EHOSTDOWN", marks[0])
    for seed in range(20):
        rnbd.works(t, device, length=1 << 20, seed=seed)
    end(t)
    t.equal(device.attribute("state"), "open", "state")
    t.equal(t.client.read(f"{rnbd.client_path(t, 'sess')}/stats/reconnects"), "0 0", "reconnects")


@case(module_sets=ONLY_OURS, quick=("stock",), timeout=180)
def test_hostile_server(t: Test) -> None:
    """A server's absurd times are refused and logged, those not agreed on are not looked at, and a good one is
    believed."""
    serve(t, features=RINGS)

    def tell(number: int, **what: Any) -> None:
        call(t, hostile.misbehave, place="control", fault="tell_news", sequence=number,
             records=[(DEVICE_ID, 2048)], **what)

    def agree(without: int) -> Device:
        call(t, hostile.misbehave, place="session_info", fault="extension", without=without)
        before = call(t, hostile.count, "request", NEWS)
        device = rnbd.map_device(t, DISK, keep=True)
        call(t, hostile.wait_for, "request", NEWS, before + 1)
        return device

    tell(1)
    device = agree(without=4)
    tell(2, drain_ms=600000)
    before = call(t, hostile.count, "request", NEWS)
    call(t, hostile.ring, number=2)
    call(t, hostile.wait_for, "request", NEWS, before + 1)
    t.equal((t.client.read(CLIENT), path_state(t)), ("off", "connected"), "what was not agreed on")
    device.unmap()
    t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True)
    tell(1)
    device = agree(without=0)
    for number, drain_ms in ((2, 0), (3, 86400001), (4, (1 << 32) - 1)):
        within_log_limit(t)
        mark = t.client.log_mark()
        tell(number, drain_ms=drain_ms)
        call(t, hostile.ring, number=number)
        t.client.wait_log("drain of the news response has", mark)
        t.equal((t.client.read(CLIENT), path_state(t)), ("off", "connected"), f"after {drain_ms} ms")
    mark = t.client.log_mark()
    tell(5, drain_ms=20000)
    call(t, hostile.ring, number=5)
    t.client.wait_log(AWAY, mark)
    tell(6, drain_ms=1)
    t.client.wait_log("requests are not held meanwhile", mark)
    t.equal(t.client.read(CLIENT), "off", f"{CLIENT} after 1 ms")
    mark = t.client.log_mark()
    tell(7, drain_ms=20000)
    call(t, hostile.ring, number=7)
    t.client.wait_log(AWAY, mark)
    tell(8)
    t.client.wait_log(BACK, mark)
    t.client.wait_for(CLIENT, matches="^off$")
    t.check(t.client.call(guest_io.all_zero, path=device.path, offset=0, length=4096), "what was read")
    device.unmap()
