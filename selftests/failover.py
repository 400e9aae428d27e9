# SPDX-License-Identifier: GPL-2.0
"""Two links: requests of a path that fails go on by the other one."""

import time

from lab.selftest_case import case
from lib import cable
from lib import disks
from lib import rnbd
from lib.stream import Stream

TOPOLOGY = "two"
LINKS = 2

FAST = {"hb_interval_ms": 200, "hb_missed_max": 3, "reconnect_delay_ms": 2000,
        "connect_timeout_ms": 10000}
FAST_SERVER = "hb_interval_ms=200 hb_missed_max=3"
ROUNDS = 4


def map_on_both(t, **settings):
    """A device with a path over each link, and fast settings."""
    cable.prepare(t)
    # The first connection of a machine that has just booted takes long if the host is busy.
    rnbd.load(t, rtrs_client="connect_timeout_ms=120000", rtrs_server=FAST_SERVER)
    device = rnbd.map_device(t, disks.PLAIN,
                             paths=[f"ip:{address}" for address in t.server.addresses])
    for name, value in {**FAST, **settings}.items():
        t.client.write(f"{rnbd.CLIENT_SESSIONS}/sess/{name}", str(value))
    return device


def path_of(t, link):
    """sysfs folder of the path over a link."""
    address = t.server.addresses[link]
    folder = f"{rnbd.CLIENT_SESSIONS}/sess/paths"
    for name in t.client.listdir(folder):
        if name.endswith(f"@ip:{address}"):
            return f"{folder}/{name}"
    raise AssertionError(f"no path to {address}")


def rdma(t, link):
    """Counters of a path: reads, bytes, writes, bytes, in flight, failed over."""
    return [int(word) for word in t.client.read(f"{path_of(t, link)}/stats/rdma").split()]


def lose_and_find(t, stream, link):
    """Cut a link and mend it; the longest time that a request took, and until it is back."""
    stream.longest()
    cable.cut(t, link)
    t.client.wait_for(f"{path_of(t, link)}/state", matches="disconnected", timeout=30)
    stream.go_on()
    gap = stream.longest()
    cable.mend(t, link)
    started = time.monotonic()
    t.client.wait_for(f"{path_of(t, link)}/state", matches="^connected", timeout=40)
    back = time.monotonic() - started
    stream.go_on()
    return gap, back


def seconds(times):
    """Text for a report."""
    return ", ".join(f"{one:.2f}" for one in times)


@case(timeout=300, module_sets=("ours",))
def test_link_down(t):
    """A link dies under verified IO: a gap under 1.2 s, no error, and the path returns."""
    device = map_on_both(t)
    stream = Stream(t, device)
    gaps, backs = [], []
    for number in range(ROUNDS):
        gap, back = lose_and_find(t, stream, number % 2)
        gaps.append(gap)
        backs.append(back)
    failed_over = sum(rdma(t, link)[5] for link in (0, 1))
    result = stream.stop()
    print(f"    # failover gaps {seconds(gaps)} s; path back after {seconds(backs)} s; "
          f"{failed_over} requests failed over; {result['writes']} writes and "
          f"{result['reads']} reads verified", flush=True)
    t.check(failed_over > 0, "no request was in flight when a link was cut")
    # 0.8 to 1 s of silence and the failover; a host that is busy with other work adds to any one.
    t.check(min(gaps) < 1.2 * t.client.slow, f"failover gaps: {gaps}")
    t.check(max(gaps) < 4.0 * t.client.slow, f"failover gaps: {gaps}")


@case(timeout=300, module_sets=("ours",))
def test_both_links_down(t):
    """Both links die one after the other; requests wait and go on by the first that is back."""
    device = map_on_both(t, hold_io_ms=60000)
    stream = Stream(t, device)
    for number in range(2):
        cable.cut(t, 0)
        cable.cut(t, 1)
        t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=30)
        cable.mend(t, number)
        print(f"    # goes on after {stream.go_on():.1f} s", flush=True)
        cable.mend(t, 1 - number)
        t.client.wait_for(f"{path_of(t, 1 - number)}/state", matches="^connected", timeout=40)
        stream.go_on()
    stream.stop()


@case(timeout=240, module_sets=("ours",))
def test_device_removed(t):
    """The RDMA device of one path is deleted under IO; the other carries on, and it comes back."""
    device = map_on_both(t)
    stream = Stream(t, device)
    for number in range(3):
        link = number % 2
        path = path_of(t, link)
        started = time.monotonic()
        t.client.run(f"rdma link delete rxe{link}", timeout=30)
        taken = time.monotonic() - started
        t.defer(t.client.run, f"rdma link show rxe{link}/1 || "
                f"rdma link add rxe{link} type rxe netdev eth{link}", check=False)
        t.check(taken < 10 * t.client.slow, f"deleting the device took {taken:.1f} s")
        t.equal(t.client.read(f"{path}/state"), "disconnected", "path without a device")
        stream.go_on()
        t.client.run(f"rdma link add rxe{link} type rxe netdev eth{link}")
        t.client.wait_for(f"{path}/state", matches="^connected", timeout=40)
        stream.go_on()
    stream.stop()
