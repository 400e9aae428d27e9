# SPDX-License-Identifier: GPL-2.0
"""What requests for connections cost a server whose senders cannot be reached, and what they cost its clients."""

from __future__ import annotations

import statistics

from lab.selftest_case import case
from lab.selftest_case import search
from lab.selftest_case import Test
from lib import guest_admission
from lib import guest_cm_flood
from lib import guest_kernel_time
from lib import rnbd

TOPOLOGY = "two"
ONLY_OURS = ("ours",)
CLIENTS = "/sys/module/rtrs_server/clients"
# Requests a second. Beside so many as are stated a client is established in at most twice its usual time.
RATES, STATED = (50, 100, 200), 100
# Half-open paths at a time, and the addresses that ask for them.
MOST, SOURCES = 256, 64
ROUNDS = 15
GO = "/run/go"


def counted(t: Test, name: str) -> int:
    """A number of all clients."""
    return int(t.server.read(f"{CLIENTS}/{name}"))


def available_kib(t: Test) -> int:
    """The memory that the server's programs could have, in KiB."""
    return int(search(r"MemAvailable:\s+(\d+)", t.server.read("/proc/meminfo"))[1])


def unreachable(t: Test) -> list[str]:
    """Addresses of no machine, for which the client's adapter gets what is sent to them.

    The server's connection manager looks for an address on the link before it answers, for up to a second if nobody
    says to have it: so an attacker who wants more responses says so.
    """
    network = t.server.address.rpartition(".")[0]
    sources = [f"{network}.{100 + number}" for number in range(SOURCES)]
    adapter = t.client.read("/sys/class/net/eth0/address")
    t.server.run("set -e\n" + "\n".join(f"ip neigh replace {source} lladdr {adapter} dev eth0 nud permanent"
                                        for source in sources))
    t.defer(t.server.run, "\n".join(f"ip neigh del {source} dev eth0" for source in sources))
    return sources


def established(t: Test) -> float:
    """The median of the times in which a client is established, in ms."""
    return t.client.call_within(120, guest_admission.establish, t.server.address, rounds=ROUNDS)


@case(module_sets=ONLY_OURS, quick=(), kernels=("stock",), timeout=600)
def test_unreachable(t: Test) -> None:
    """Requests for connections from addresses that do not confirm them do not keep a client from being established;
    what each of them costs is printed."""
    rnbd.load(t, client=False, rtrs_server=f"max_half_open={MOST}")
    for node in t.nodes:
        node.run("modprobe rdma_ucm")
    sources = unreachable(t)
    usual = established(t)
    t.say(f"established in {usual:.1f} ms without a flood")
    ratios = {}
    for rate in RATES:
        # Also what the honest sessions had is free again.
        for name in ("half_open", "paths", "connections"):
            t.server.wait_for(f"{CLIENTS}/{name}", matches="^0$", timeout=45)
        free, given_up = available_kib(t), counted(t, "given_up")
        t.client.run(f"rm -f {GO}")
        flood = t.client.start_call(200, guest_cm_flood.flood, t.server.address, sources, rate, GO)
        # As many paths as there may be, and each new one takes the place of an older one.
        t.server.wait_for(f"{CLIENTS}/given_up", matches=rf"^(?!{given_up}$)", timeout=60)
        cost = (free - available_kib(t)) / counted(t, "half_open")
        t.server.call(guest_kernel_time.start, "cma_ib_req_handler")
        beside = established(t)
        times = t.server.call(guest_kernel_time.stop)
        t.client.create(GO, "")
        asked, seconds = flood.wait()
        ratios[rate] = beside / usual
        t.check(times, "the connection manager has handled no request")
        t.say(f"established in {beside:.1f} ms, {ratios[rate]:.1f} times as long, beside {asked / seconds:.0f} "
              f"requests a second; {cost:.0f} KiB for each half-open path; the connection manager, with the listener, "
              f"has taken {statistics.median(times):.0f} us for each request")
    t.check(ratios[STATED] < 2, f"{ratios[STATED]:.1f} times the usual time beside {STATED} requests a second")
