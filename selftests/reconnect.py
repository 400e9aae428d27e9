# SPDX-License-Identifier: GPL-2.0
"""One path that goes away and comes back: requests wait or fail, devices are found again."""

import errno
import time

from lab.selftest_case import case
from lib import cable
from lib import disks
from lib import rnbd
from lib.stream import Stream
from lib.stream import seconds
from lib.stream import verified

TOPOLOGY = "two"

FAST = {"hb_interval_ms": 200, "hb_missed_max": 3, "reconnect_delay_ms": 2000,
        "connect_timeout_ms": 10000}
FAST_SERVER = "hb_interval_ms=200 hb_missed_max=3"


def map_with(t, **settings):
    """A device, fast settings, and these."""
    cable.prepare(t)
    # The first connection of a machine that has just booted takes long if the host is busy.
    rnbd.load(t, rtrs_client="connect_timeout_ms=120000", rtrs_server=FAST_SERVER)
    device = rnbd.map_device(t, disks.PLAIN)
    configure(t, **{**FAST, **settings})
    return device


def configure(t, **settings):
    """Write settings of session sess."""
    for name, value in settings.items():
        t.client.write(f"{rnbd.CLIENT_SESSIONS}/sess/{name}", str(value))


def lose(t, device):
    """Cut the link and wait until the client has noticed."""
    cable.cut(t)
    t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=30)


@case(timeout=600, module_sets=("ours",))
def test_hold_over_a_lost_link(t):
    """With hold_io_ms requests wait for the link, and go on without an error."""
    device = map_with(t, hold_io_ms=60000)
    stream = Stream(t, device)
    taken = []
    for _ in range(t.rounds(3)):
        lose(t, device)
        before = stream.progress()["requests"]
        time.sleep(1)
        t.equal(stream.progress()["requests"], before, "requests without a path")
        cable.mend(t)
        taken.append(stream.go_on())
    t.say(f"goes on after {seconds(taken)}; {verified(stream.stop())}")
    t.check(max(taken) < 15 * t.client.slow, f"going on took {taken} s")


@case(module_sets=("ours",))
def test_hold_ends(t):
    """When hold_io_ms is over, waiting requests fail, and new ones at once."""
    device = map_with(t, hold_io_ms=4000)
    stream = Stream(t, device)
    lose(t, device)
    deadline = time.monotonic() + 10 * t.client.slow
    while stream.progress()["running"] and time.monotonic() < deadline:
        time.sleep(0.05)
    result = stream.stop(check=False)
    t.equal((result["errnos"], result["hung"]), ([errno.EIO], 0), "errors and hung requests")
    # The loss was noticed after 0.8 to 1 s.
    t.check(4.0 <= result["error_after"] < 8.0 * t.client.slow,
            f"requests failed after {result['error_after']:.2f} s")
    print(f"    # failed after {result['error_after']:.2f} s", flush=True)
    started = time.monotonic()
    with t.expect_errno(errno.EIO):
        t.client.call("guest_io.write", path=device.path, offset=0, length=4096, seed=1)
    t.check(time.monotonic() - started < 3.5 * t.client.slow, "a new request waited")
    cable.mend(t)
    t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=40)
    t.client.call("guest_io.write", path=device.path, offset=0, length=4096, seed=1)


@case(module_sets=("ours",))
def test_without_hold(t):
    """By default requests fail as soon as the last path is lost."""
    device = map_with(t)
    stream = Stream(t, device)
    cable.cut(t)
    deadline = time.monotonic() + 10 * t.client.slow
    while stream.progress()["running"] and time.monotonic() < deadline:
        time.sleep(0.05)
    result = stream.stop(check=False)
    t.equal((result["errnos"], result["hung"]), ([errno.EIO], 0), "errors and hung requests")
    t.check(result["error_after"] < 3.0 * t.client.slow,
            f"requests failed after {result['error_after']:.2f} s")


@case(module_sets=("ours",))
def test_unmap_while_held(t):
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
def test_hold_switched_off(t):
    """hold_io_ms set to 0 while requests wait fails them."""
    device = map_with(t, hold_io_ms=600000)
    stream = Stream(t, device)
    lose(t, device)
    configure(t, hold_io_ms=0)
    result = stream.stop(check=False, wait=5.0)
    t.equal((result["errnos"], result["hung"]), ([errno.EIO], 0), "errors and hung requests")


@case(timeout=600, module_sets=("ours",))
def test_server_modules_reloaded(t):
    """The server's modules are unloaded and loaded again; IO goes on by itself."""
    device = map_with(t, hold_io_ms=60000)
    stream = Stream(t, device)
    taken = []
    for _ in range(t.rounds(1)):
        t.server.modules_unload_all()
        t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=30)
        time.sleep(2)
        t.server.modules_load("rnbd_server", rtrs_server=FAST_SERVER)
        taken.append(stream.go_on())
        t.client.wait_for(f"{device.sysfs}/state", matches="open")
    t.say(f"goes on {seconds(taken)} after the modules are back; {verified(stream.stop())}")


@case(timeout=1500, module_sets=("ours",))
def test_server_reboots(t):
    """The server loses power and boots again; IO goes on by itself and nothing is lost."""
    device = map_with(t, hold_io_ms=200000)
    stream = Stream(t, device)
    away, taken = [], []
    for _ in range(t.rounds(1)):
        started = time.monotonic()
        t.lab.reboot(t.server)
        rnbd.load(t, rtrs_client="connect_timeout_ms=120000", rtrs_server=FAST_SERVER)
        away.append(time.monotonic() - started)
        taken.append(stream.go_on())
        t.equal(device.attribute("state"), "open", "state")
    t.say(f"server away for {seconds(away)}, IO goes on {seconds(taken)} later; "
          f"{verified(stream.stop())}")
    t.check(max(taken) < 20 * t.client.slow, f"going on took {taken} s")


@case(timeout=600, module_sets=("ours",))
def test_device_removed(t):
    """The client's RDMA device is deleted under IO and comes back."""
    device = map_with(t, hold_io_ms=60000)
    stream = Stream(t, device)
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
    t.say(f"goes on {seconds(times)} after the device is back; {verified(stream.stop())}")
