# SPDX-License-Identifier: GPL-2.0
"""One path that goes away and comes back: requests wait or fail, devices are found again."""

from __future__ import annotations

import errno
import time

from lab.selftest_case import case
from lab.selftest_case import OTHER
from lab.selftest_case import SkipTest
from lab.selftest_case import Test
from lab.vm import wait_until
from lib import cable
from lib import disks
from lib import guest_io
from lib import guest_rounds
from lib import memory
from lib import rnbd
from lib.batches import Batches
from lib.rnbd import Device
from lib.stream import seconds
from lib.stream import Stream
from lib.stream import verified

TOPOLOGY = "two"

RETRIES = {"reconnect_delay_ms": 2000, "connect_timeout_ms": 10000}
FAST = {"hb_interval_ms": 200, "hb_missed_max": 3, **RETRIES}
KIB = 1 << 10


def fast_server(t: Test) -> str:
    """Parameters of the server's transport."""
    return f"{rnbd.fewer_buffers(t)}hb_interval_ms=200 hb_missed_max=3"


def load(t: Test, server_parameters: str | None = None, server: bool = True) -> None:
    """Have the server's modules with these parameters, or none, while the client's stay."""
    if server_parameters is None:
        server_parameters = fast_server(t)
    # The first connection of a machine that has just booted takes long if the host is busy.
    rnbd.load(t, rtrs_client="connect_timeout_ms=120000", rtrs_server=server_parameters,
              server=server)


def map_with(t: Test, **settings: object) -> Device:
    """A device, fast settings, and these."""
    cable.prepare(t)
    load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    rnbd.configure(t, **{**FAST, **settings})
    return device


def map_calmly(t: Test, **settings: object) -> Device:
    """A device with C's heartbeats: no path is lost but by what the test does."""
    load(t, "")
    device = rnbd.map_device(t, disks.PLAIN)
    rnbd.configure(t, **{**RETRIES, **settings})
    return device


def in_batches(t: Test) -> Batches:
    """Requests in batches on another disk of the session."""
    return Batches(t, rnbd.map_device(t, disks.WITHOUT_DISCARD))


def lose(t: Test, device: Device) -> None:
    """Cut the link and wait until the client has noticed."""
    cable.cut(t, 0)
    t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=30)


@case(timeout=600, module_sets=("ours",), quick=())
def test_hold_over_a_lost_link(t: Test) -> None:
    """With hold_io_ms requests wait for the link, and go on without an error."""
    device = map_with(t, hold_io_ms=60000)
    stream, batches = Stream(t, device), in_batches(t)
    taken = []
    for _ in range(t.rounds(3)):
        lose(t, device)
        before = stream.progress()["requests"]
        time.sleep(1)
        t.equal(stream.progress()["requests"], before, "requests without a path")
        cable.mend(t, 0)
        taken.append(stream.go_on())
        batches.go_on()
    t.say(f"goes on after {seconds(taken)}; {verified(stream.stop())}; {batches.stop()}")
    t.check(max(taken) < 15 * t.client.slow, f"going on took {taken} s")


@case(module_sets=("ours",))
def test_hold_ends(t: Test) -> None:
    """When hold_io_ms is over, waiting requests fail, and new ones at once."""
    device = map_with(t, hold_io_ms=4000)
    stream = Stream(t, device)
    lose(t, device)
    wait_until(lambda: not stream.progress()["running"], 10 * t.client.slow, "the requests' end")
    result = stream.stop(check=False)
    t.equal((result["errnos"], result["hung"]), ([errno.EIO], 0), "errors and hung requests")
    # The loss was noticed after 0.8 to 1 s.
    t.check(4.0 <= result["error_after"] < 8.0 * t.client.slow,
            f"requests failed after {result['error_after']:.2f} s")
    t.say(f"failed after {result['error_after']:.2f} s")
    started = time.monotonic()
    with t.expect_errno(errno.EIO):
        t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
    t.check(time.monotonic() - started < 3.5 * t.client.slow, "a new request waited")
    cable.mend(t, 0)
    t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=40)
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)


@case(module_sets=("ours",))
def test_hold_of_one_disk(t: Test) -> None:
    """A disk whose own hold_io_ms is 0 fails at once, while another disk of the session waits."""
    device = map_with(t, hold_io_ms=60000)
    other = rnbd.map_device(t, disks.WITHOUT_DISCARD)
    t.equal(other.attribute("hold_io_ms"), "-1", "what a disk begins with")
    with t.expect_errno(errno.EINVAL):
        t.client.write(f"{other.sysfs}/hold_io_ms", "-2")
    t.client.write(f"{other.sysfs}/hold_io_ms", "0")
    stream = Stream(t, device)
    lose(t, device)
    started = time.monotonic()
    with t.expect_errno(errno.EIO):
        t.client.call(guest_io.write, path=other.path, offset=0, length=4096, seed=1)
    t.check(time.monotonic() - started < 3.5 * t.client.slow, "a request of that disk waited")
    t.check(stream.progress()["running"], "requests of the other disk did not wait")
    cable.mend(t, 0)
    stream.go_on()
    t.say(verified(stream.stop()))
    t.client.wait_for(f"{other.sysfs}/state", matches="open", timeout=40)
    rnbd.works(t, other)


def multipath(t: Test, device: Device) -> str:
    """A disk of dm-multipath on a device, whose requests it marks to fail fast."""
    if t.client.run("modinfo dm_multipath dm_round_robin", check=False).rc != 0:
        raise SkipTest(f"kernel {t.client.release} has no module dm_multipath")
    sectors = device.size() // 512
    t.client.run("modprobe dm_multipath; modprobe dm_round_robin; dmsetup create --noudevsync multi --table "
                 f"'0 {sectors} multipath 0 0 1 1 round-robin 0 1 1 {device.path} 1000' && dmsetup mknodes multi")
    t.defer(t.client.run, "dmsetup remove --noudevsync --retry multi")
    return "/dev/mapper/multi"


@case(module_sets=("ours",))
def test_fail_fast(t: Test) -> None:
    """With hold_io_ms a request that is marked to fail fast fails at once, while others of the disk wait."""
    device = map_with(t, hold_io_ms=60000)
    above = multipath(t, device)
    stream = Stream(t, device)
    t.client.call(guest_io.digest, path=above, offset=0, length=4096)
    lose(t, device)
    started = time.monotonic()
    with t.expect_errno(errno.EIO):
        t.client.call(guest_io.digest, path=above, offset=0, length=4096)
    taken = time.monotonic() - started
    t.check(taken < 3.5 * t.client.slow, f"a request of dm-multipath failed after {taken:.1f} s only")
    progress = stream.progress()
    t.equal(progress["running"], progress["workers"], "others whose requests wait")
    cable.mend(t, 0)
    stream.go_on()
    t.say(f"failed after {taken:.2f} s; {verified(stream.stop())}")
    # dm-multipath has failed its only path, and takes the device again when it is told to.
    number = t.client.sh(f"stat -c '%Hr:%Lr' {device.path}").strip()
    t.client.run(f"dmsetup message multi 0 reinstate_path {number}")
    t.client.call(guest_io.digest, path=above, offset=0, length=4096)


@case(module_sets=("ours",))
def test_without_hold(t: Test) -> None:
    """By default requests fail as soon as the last path is lost."""
    cable.prepare(t)
    load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    stream = Stream(t, device)
    rnbd.configure(t, **FAST)
    cable.cut(t, 0)
    wait_until(lambda: not stream.progress()["running"], 10 * t.client.slow, "the requests' end")
    result = stream.stop(check=False)
    t.equal((result["errnos"], result["hung"]), ([errno.EIO], 0), "errors and hung requests")
    t.check(result["error_after"] < 3.0 * t.client.slow,
            f"requests failed after {result['error_after']:.2f} s")


@case(module_sets=("ours",))
def test_unmap_while_held(t: Test) -> None:
    """unmap_device=force ends waiting requests; the session closes."""
    device = map_with(t, hold_io_ms=600000)
    stream = Stream(t, device)
    lose(t, device)
    started = time.monotonic()
    device.unmap("force")
    taken = time.monotonic() - started
    result = stream.stop(check=False)
    t.equal(result["hung"], 0, "hung requests")
    t.check(result["errnos"] and set(result["errnos"]) <= {errno.EIO, errno.ENXIO, errno.ENODEV},
            f"errnos: {result['errnos']}")
    t.check(taken < 6 * t.client.slow, f"unmapping took {taken:.1f} s")
    t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True)


@case(module_sets=("ours",))
def test_hold_switched_off(t: Test) -> None:
    """hold_io_ms set to 0 while requests wait fails them."""
    device = map_with(t, hold_io_ms=600000)
    stream = Stream(t, device)
    lose(t, device)
    rnbd.configure(t, hold_io_ms=0)
    result = stream.stop(check=False, wait=5.0)
    t.equal((result["errnos"], result["hung"]), ([errno.EIO], 0), "errors and hung requests")


@case(module_sets=("ours",), quick=("stock", OTHER))
def test_by_hand(t: Test) -> None:
    """A path that was just disconnected can be connected at once, and takes requests."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    path = rnbd.client_path(t, "sess")
    for number in range(t.rounds(4)):
        t.client.write(f"{path}/disconnect", "1")
        t.client.write(f"{path}/reconnect", "1")
        t.equal(t.client.read(f"{path}/state"), "connected", f"state of the path, round {number}")
        t.client.wait_for(f"{device.sysfs}/state", matches="open")
        t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=number)


def attempt_fails(t: Test) -> None:
    """Wait until another attempt to connect the only path again has failed."""
    def failed() -> int:
        return int(t.client.read(f"{rnbd.client_path(t, 'sess')}/stats/reconnects").split()[1])

    before = failed()
    wait_until(lambda: failed() > before, 20 * t.client.slow, "an attempt that fails")


@case(timeout=600, module_sets=("ours",), quick=())
def test_server_modules_reloaded(t: Test) -> None:
    """The server's modules are unloaded and loaded again; IO goes on by itself."""
    device = map_with(t, hold_io_ms=60000)
    stream, batches = Stream(t, device), in_batches(t)
    taken = []
    for _ in range(t.rounds(1)):
        t.server.modules_unload_all()
        t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=30)
        attempt_fails(t)
        t.server.modules_load("rnbd_server", rtrs_server=fast_server(t))
        taken.append(stream.go_on())
        t.client.wait_for(f"{device.sysfs}/state", matches="open")
        batches.go_on()
    t.say(f"goes on {seconds(taken)} after the modules are back; {verified(stream.stop())}; "
          + batches.stop())
    t.check(max(taken) < 20 * t.client.slow, f"going on took {taken} s")


@case(timeout=300, module_sets=("ours",))
def test_other_queue_depth(t: Test) -> None:
    """A server that comes back with another queue depth is refused once, and asked no more."""
    device = map_calmly(t)
    load(t, server=False)
    t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=30)
    mark = t.client.log_mark()
    load(t, "sess_queue_depth=256")
    t.client.wait_log("queue depth changed from 512 to 256", mark, timeout=60)
    t.equal(device.attribute("state"), "closed", "state with another queue depth")
    t.equal(t.client.read(f"{rnbd.client_path(t, 'sess')}/state"), "disconnected", "path")
    with t.expect_errno(errno.EIO):
        rnbd.works(t, device, 4096, 1)
    path = rnbd.client_path(t, "sess")
    t.client.wait_log("no more attempts to reconnect", mark, timeout=60)
    failed = t.client.read(f"{path}/stats/reconnects")
    load(t, "")
    # Attempts come 1 s apart at most, so this one would have made some meanwhile.
    other = rnbd.map_device(t, disks.WITHOUT_DISCARD, session="other")
    Stream(t, other).stop()
    t.equal(t.client.read(f"{path}/stats/reconnects"), failed, "attempts meanwhile")
    lines = [line for line in t.client.log_since(mark) if "queue depth changed" in line]
    t.equal(len(lines), 1, "lines in the log")
    t.client.write(f"{path}/reconnect", "1")
    t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=60)
    rnbd.works(t, device, 4096, 2)


@case(timeout=300, module_sets=("ours",))
def test_no_more_attempts(t: Test) -> None:
    """After max_reconnect_attempts a path stays disconnected until reconnect is written."""
    device = map_calmly(t, max_reconnect_attempts=2, reconnect_delay_ms=1000)
    # Six attempts come after shorter waits than reconnect_delay_ms, and do not count.
    attempts = "0 8"
    path = rnbd.client_path(t, "sess")
    mark = t.client.log_mark()
    load(t, server=False)
    t.client.wait_log("no more attempts", mark, timeout=60)
    t.equal(t.client.read(f"{path}/stats/reconnects"), attempts, "successful and failed attempts")
    load(t, "")
    # Attempts come 1 s apart at most, so this one would have made some meanwhile.
    other = rnbd.map_device(t, disks.WITHOUT_DISCARD, session="other")
    Stream(t, other).stop()
    t.equal(t.server.listdir(rnbd.SERVER_SESSIONS), ["other"], "sessions of the server")
    t.equal(t.client.read(f"{path}/state"), "disconnected", "path")
    t.equal(t.client.read(f"{path}/stats/reconnects"), attempts,
            "attempts that were made meanwhile")
    t.equal(device.attribute("state"), "closed", "state")
    t.client.write(f"{path}/reconnect", "1")
    t.equal(t.client.read(f"{path}/state"), "connected", "path")
    t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=30)
    rnbd.works(t, device, 4096, 3)


@case(timeout=300, module_sets=("ours",))
def test_attempts_come_less_often(t: Test) -> None:
    """Each wait before an attempt is twice as long as the last one, up to reconnect_delay_ms."""
    device = map_calmly(t, max_reconnect_attempts=1, reconnect_delay_ms=3200)
    mark = t.client.log_mark()
    load(t, server=False)
    t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=30)
    started = time.monotonic()
    t.client.wait_log("no more attempts", mark, timeout=60)
    taken = time.monotonic() - started
    t.say(f"seven attempts, and giving up, in {taken:.1f} s")
    # 50, 100, 200, 400, 800, 1600 and twice 3200 ms, from each of which a quarter can be left out;
    # eight waits of the shortest are 0.4 s, of the longest 26 s.
    t.check(6.5 < taken < 18.0 * t.client.slow, f"seven attempts took {taken:.1f} s")
    t.equal(t.client.read(f"{rnbd.client_path(t, 'sess')}/stats/reconnects"), "0 7",
            "successful and failed attempts")


@case(timeout=300)
def test_no_attempt(t: Test) -> None:
    """With max_reconnect_attempts of 0 a path that is lost is not connected again, by hand neither."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    path = rnbd.client_path(t, "sess")
    rnbd.configure(t, max_reconnect_attempts=0)
    t.equal(t.client.read(f"{path}/state"), "connected", "path")
    mark = t.client.log_mark()
    t.server.write(f"{rnbd.server_path(t, 'sess')}/disconnect", "1")
    t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=30)
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/sess", gone=True, timeout=30)
    if t.modules == "ours":  # C would try, or not, after 30 s
        t.client.wait_log("no more attempts", mark)
    with t.expect_errno(errno.ENOTCONN):
        t.client.write(f"{path}/reconnect", "1")
    t.equal(t.client.read(f"{path}/state"), "disconnected", "path")
    t.equal(t.client.read(f"{path}/stats/reconnects"), "0 0", "successful and failed attempts")
    t.equal(t.server.listdir(rnbd.SERVER_SESSIONS), [], "sessions of the server")
    rnbd.configure(t, max_reconnect_attempts=-1)
    rnbd.reconnect(t, path)
    t.client.wait_for(f"{device.sysfs}/state", matches="open")
    rnbd.works(t, device, 4096, 5)


@case(timeout=300)
def test_reconnect_twice(t: Test) -> None:
    """Writing reconnect while the path is being connected is EBUSY; the attempt goes on."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    path = rnbd.client_path(t, "sess")
    t.client.write(f"{path}/disconnect", "1")
    t.server.pause()
    t.defer(t.server.resume)
    job = t.client.start_job(f"echo $$ >/tmp/asked; echo 1 > {path}/reconnect", timeout=120)
    t.client.wait_for("/tmp/asked", matches=r"\d")
    t.defer(t.client.run, "rm /tmp/asked")
    t.client.wait_for(f"/proc/{t.client.read('/tmp/asked')}/stack", matches=r"\[rtrs_client\]")
    if t.modules == "c":
        # It begins a second after it was asked.
        time.sleep(2.5)
    t.check(not job.done(), "an attempt without a server has ended")
    with t.expect_errno(errno.EBUSY):
        t.client.write(f"{path}/reconnect", "1")
    t.equal(t.client.read(f"{path}/state"), "disconnected", "path")
    t.server.resume()
    t.equal(job.wait().rc, 0, "exit code of who was first")
    t.equal(t.client.read(f"{path}/state"), "connected", "path")
    t.client.wait_for(f"{device.sysfs}/state", matches="open")
    rnbd.works(t, device, 4096, 6)


@case(timeout=300, module_sets=("ours",))
def test_reconnect_without_server(t: Test) -> None:
    """Writing reconnect while nobody listens is ENOTCONN; then the path tries by itself."""
    device = map_calmly(t)
    path = rnbd.client_path(t, "sess")
    # Closed by hand it makes no attempt of its own, with which this one would be EBUSY.
    t.client.write(f"{path}/disconnect", "1")
    load(t, server=False)
    with t.expect_errno(errno.ENOTCONN):
        t.client.write(f"{path}/reconnect", "1")
    t.equal(t.client.read(f"{path}/state"), "disconnected", "path")
    load(t, "")
    t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=60)
    rnbd.works(t, device, 4096, 4)


@case(timeout=1200, kernels=("stock",), module_sets=("ours",), quick=())
def test_two_hundred_times(t: Test) -> None:
    """A path that is disconnected and connected over and over leaves both machines' memory as it was."""
    count = t.rounds(20, 200)
    # 1 MiB a session.
    rnbd.load(t, rtrs_server="sess_queue_depth=32 max_chunk_size=32768")
    device = rnbd.map_device(t, disks.PLAIN)

    def rounds(number: int) -> None:
        t.client.call_within(4.0 * number + 60, guest_rounds.disconnect_and_connect,
                             path=rnbd.client_path(t, "sess"), device=device.path,
                             state=f"{device.sysfs}/state", count=number)

    rounds(10)
    slabs = [memory.slabs(node) for node in t.nodes]
    before = [memory.available(node) for node in t.nodes]
    started = time.monotonic()
    rounds(count)
    taken = time.monotonic() - started
    # In the order of the measurements before.
    grown = [memory.grown_slabs(node, slabs[index], count) for index, node in enumerate(t.nodes)]
    missing = [memory.wait_returned(node, before[index], (1024 + 2 * count) * KIB,
                                    f"{node.name} after {count} rounds")
               for index, node in enumerate(t.nodes)]
    t.say(f"{count} rounds in {taken:.1f} s; missing afterwards: " + ", ".join(
        f"{bytes_ // KIB} KiB on the {node.name}"
        for node, bytes_ in zip(t.nodes, missing, strict=True)))
    t.equal(grown, [{} for _ in t.nodes], "slabs that grew, of each machine")
    reconnects = t.client.read(f"{rnbd.client_path(t, 'sess')}/stats/reconnects").split()
    t.equal(reconnects[0], str(10 + count), "successful attempts to connect again")


@case(timeout=1500, module_sets=("ours",), quick=())
def test_server_reboots(t: Test) -> None:
    """The server loses power and boots again; IO goes on by itself and nothing is lost."""
    device = map_with(t, hold_io_ms=200000)
    stream, batches = Stream(t, device), in_batches(t)
    away, taken = [], []
    for _ in range(t.rounds(1)):
        started = time.monotonic()
        t.lab.reboot(t.server)
        load(t)
        away.append(time.monotonic() - started)
        taken.append(stream.go_on())
        t.equal(device.attribute("state"), "open", "state")
        batches.go_on()
    t.say(f"server away for {seconds(away)}, IO goes on {seconds(taken)} later; "
          f"{verified(stream.stop())}; {batches.stop()}")
    t.check(max(taken) < 20 * t.client.slow, f"going on took {taken} s")


@case(timeout=600, module_sets=("ours",), quick=())
def test_device_removed(t: Test) -> None:
    """The client's RDMA device is deleted under IO and comes back."""
    device = map_with(t, hold_io_ms=60000)
    stream, batches = Stream(t, device), in_batches(t)
    times = []
    for _ in range(t.rounds(3)):
        started = time.monotonic()
        t.client.run("rdma link delete rxe0", timeout=30)
        taken = time.monotonic() - started
        t.defer(t.client.run, "rdma link show rxe0/1 || rdma link add rxe0 type rxe netdev eth0",
                check=False)
        t.check(taken < 10 * t.client.slow, f"deleting the link took {taken:.1f} s")
        t.client.wait_for(f"{device.sysfs}/state", matches="closed")
        t.equal(t.client.read(f"{rnbd.client_path(t, 'sess')}/state"), "disconnected", "path")
        t.client.run("rdma link add rxe0 type rxe netdev eth0")
        times.append(stream.go_on())
        batches.go_on()
    t.say(f"goes on {seconds(times)} after the device is back; {verified(stream.stop())}; "
          + batches.stop())
    t.check(max(times) < 20 * t.client.slow, f"going on took {times} s")
