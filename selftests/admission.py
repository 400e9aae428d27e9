# SPDX-License-Identifier: GPL-2.0
"""What a server gives to peers that have shown nothing yet, and how much its clients may have."""

from __future__ import annotations

import errno

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import guest_admission
from lib import rnbd

TOPOLOGY = "one"
ONLY_OURS = ("ours",)
CLIENTS = "/sys/module/rtrs_server/clients"


def counted(t: Test, name: str, client: str = "") -> int:
    """A number of all clients, or of the one at an address."""
    return int(t.server.read(f"{CLIENTS}/{client and f'ip:{client}/'}{name}"))


def nothing_left(t: Test) -> None:
    """All that clients had is given back."""
    for name in ("sessions", "paths", "connections", "half_open"):
        t.server.wait_for(f"{CLIENTS}/{name}", matches="^0$")


def load(t: Test, **limits: int) -> None:
    """Have the server loaded with these limits."""
    rnbd.load(t, client=False, rtrs_server=" ".join(f"{name}={limit}" for name, limit in limits.items()))
    t.client.run("modprobe rdma_ucm")


@case(module_sets=ONLY_OURS)
def test_unconfirmed(t: Test) -> None:
    """Paths that nobody has confirmed make room for newer ones: they keep no client out."""
    for limits in ({"max_half_open_per_client": 4}, {"max_half_open": 4}):
        load(t, **limits)
        before = counted(t, "given_up")
        t.equal(t.client.call(guest_admission.unconfirmed, t.server.address, count=7), 0,
                f"{limits}: chunk of the answer")
        t.equal(counted(t, "given_up") - before, 4, f"{limits}: paths that were closed for newer ones")
        t.equal(counted(t, "refused"), 0, f"{limits}: refusals")
        nothing_left(t)


@case(module_sets=ONLY_OURS)
def test_confirmed(t: Test) -> None:
    """Half-open paths that were confirmed stay; more than the limit are refused, and the log says why."""
    load(t, max_half_open_per_client=3)
    mark = t.server.log_mark()
    t.equal(t.client.call(guest_admission.confirmed, t.server.address, count=5), [-errno.EBUSY] * 2, "refusals")
    t.equal(counted(t, "refused"), 2, "refusals counted")
    t.equal(counted(t, "given_up"), 0, "paths that were closed for newer ones")
    t.server.wait_log(rf"ip:{t.client.address}: refused: the address has 3 half-open paths, as many as "
                      "max_half_open_per_client allows", since=mark)
    nothing_left(t)


@case(module_sets=ONLY_OURS)
def test_cost(t: Test) -> None:
    """A half-open path costs the server some KiB: it has no chunks yet."""
    count, go = 40, "/run/go"
    load(t)
    before = int(t.server.sh("awk '/^MemAvailable/ {print $2}' /proc/meminfo"))
    t.client.run(f"rm -f {go}")
    held = t.client.start_call(60, guest_admission.hold, t.server.address, count=count, until=go)
    t.server.wait_for(f"{CLIENTS}/half_open", matches=f"^{count}$")
    used = before - int(t.server.sh("awk '/^MemAvailable/ {print $2}' /proc/meminfo"))
    t.client.create(go, "")
    t.equal(held.wait(), [], "refusals")
    t.say(f"{used // count} KiB for each of {count} half-open paths")
    # The debug kernel keeps where each piece of memory was allocated.
    t.check(used < (512 if t.debug else 256) * count, f"{used} KiB for {count} half-open paths")
    nothing_left(t)


@case(module_sets=ONLY_OURS)
def test_sessions(t: Test) -> None:
    """An address has as many sessions as it may have; they are counted, and the next one is refused."""
    rnbd.load(t, rtrs_server="max_sessions_per_client=1")
    device = rnbd.map_device(t, disks.PLAIN, session="first")
    address = t.client.address
    for name, client in (("sessions", ""), ("paths", ""), ("sessions", address), ("paths", address)):
        t.equal(counted(t, name, client), 1, f"{name} {client}")
    t.check(counted(t, "connections", address) > 1, "no connections")
    mark = t.server.log_mark()
    with t.expect_errno(errno.ECONNRESET, errno.EBUSY, errno.EIO):
        rnbd.map_device(t, disks.PLAIN, session="second")
    t.server.wait_log("refused: the address has 1 sessions, as many as max_sessions_per_client allows", since=mark)
    t.client.run(f"dd if={device.path} of=/dev/null bs=4k count=1 iflag=direct status=none")
    device.unmap()
    t.server.wait_for(f"{CLIENTS}/ip:{address}", gone=True)
    nothing_left(t)


@case(module_sets=ONLY_OURS, quick=(), kernels=("stock",), timeout=300)
def test_flood(t: Test) -> None:
    """Requests for connections that are not confirmed do not keep a client from being established."""
    load(t)
    go, rounds = "/run/go", 15
    t.server.run("modprobe rdma_ucm")
    usual = t.server.call(guest_admission.establish, t.server.address, rounds=rounds)
    t.client.run(f"rm -f {go}")
    flood = t.client.start_call(120, guest_admission.flood, t.server.address, until=go, at_a_time=200)
    t.server.wait_for(f"{CLIENTS}/half_open", matches="^64$")
    beside = t.server.call_within(120, guest_admission.establish, t.server.address, rounds=rounds)
    t.client.create(go, "")
    asked, seconds = flood.wait()
    t.say(f"established in {usual:.1f} ms, in {beside:.1f} ms beside {asked / seconds:.0f} requests a second")
    t.check(beside < 2 * usual, f"{beside:.1f} ms beside a flood, {usual:.1f} ms without")
    nothing_left(t)
