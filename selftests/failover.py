# SPDX-License-Identifier: GPL-2.0
"""Two links: requests of a path that fails go on by the other one."""

import time

from lab.selftest_case import case
from lib import disks
from lib import rnbd
from lib.stream import Stream

TOPOLOGY = "two"
LINKS = 2

FAST = {"hb_interval_ms": 200, "hb_missed_max": 3, "reconnect_delay_ms": 2000,
        "connect_timeout_ms": 2000}
FAST_SERVER = "hb_interval_ms=200 hb_missed_max=3"
ROUNDS = 3


def map_on_both(t, **settings):
    """A device with a path over each link, and fast settings."""
    rnbd.load(t, rtrs_server=FAST_SERVER if t.modules == "ours" else "")
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


@case(timeout=300, module_sets=("ours",))
def test_link_down(t):
    """A link is pulled under verified IO: a gap under 1.2 s, no error, and the path returns."""
    device = map_on_both(t)
    stream = Stream(t, device)
    gaps, back = [], []
    for number in range(ROUNDS):
        link = number % 2
        t.client.write(f"{path_of(t, link)}/stats/reset_all", "1")
        stream.longest()
        for node in t.nodes:
            node.set_link(link, False)
            t.defer(node.set_link, link, True)
        t.client.wait_for(f"{path_of(t, link)}/state", matches="disconnected", timeout=30)
        stream.go_on()
        gaps.append(stream.longest())
        failed_over = rdma(t, link)[5]
        t.check(failed_over > 0, "no request was in flight when the link went down")
        for node in t.nodes:
            node.set_link(link, True)
        started = time.monotonic()
        t.client.wait_for(f"{path_of(t, link)}/state", matches="^connected", timeout=40)
        back.append(time.monotonic() - started)
        stream.go_on()
    result = stream.stop()
    print(f"    # failover gaps {', '.join(f'{gap:.2f}' for gap in gaps)} s; path back after "
          f"{', '.join(f'{taken:.1f}' for taken in back)} s; {result['writes']} writes and "
          f"{result['reads']} reads verified", flush=True)
    t.check(max(gaps) < 1.2 * t.client.slow, f"failover gaps: {gaps}")
