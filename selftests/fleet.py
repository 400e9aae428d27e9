# SPDX-License-Identifier: GPL-2.0
"""Many disks and mirrors of several servers at once: no server holds up another one's disks."""

from __future__ import annotations

import time

from lab.selftest_case import case
from lab.selftest_case import Test
from lab.vm import wait_until
from lib import cable
from lib.fleet import Fleet
from lib.fleet import FleetMirror
from lib.rnbd import Device
from lib.stream import seconds
from lib.stream import Stream
from lib.stream import verified

TOPOLOGY = "five"
MEMORY_MIB = 512
OURS = ("ours",)
# The debug kernel has no md.
STOCK = ("stock",)
# At each server.
DISKS = 30
# All servers together may take so much longer than the slowest one alone.
SLOWER = 1.5


def ring(count: int, servers: int) -> list[FleetMirror]:
    """Mirrors over each server and the next one, the last one with the first; each has disks of its own."""
    return [FleetMirror(f"m{number}", (number % servers, (number + 1) % servers), number) for number in range(count)]


@case(module_sets=OURS, kernels=STOCK, timeout=900, quick=())
def test_boot(t: Test) -> None:
    """The disks of four servers are there in the time that the slowest server takes alone, whatever the order."""
    fleet = Fleet(t, DISKS)
    alone = []
    for number in range(len(fleet.servers)):
        fleet.configure([number])
        alone.append(fleet.apply())
        t.equal(fleet.mapped(), DISKS, f"disks of server {number}")
        t.client.run("rnbdctl unmap --all")
    together = []
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        fleet.configure(order)
        together.append(fleet.apply())
        t.equal(fleet.mapped(), DISKS * len(order), f"disks in the order {order}")
        t.client.run("rnbdctl unmap --all")
    t.say(f"{DISKS} disks of each server: {seconds(alone)} alone, {seconds(together)} together")
    t.check(max(together) <= SLOWER * max(alone), f"{together} s together, {alone} s alone")


@case(module_sets=OURS, kernels=STOCK, timeout=1800, quick=())
def test_boot_with_mirrors(t: Test) -> None:
    """A client that lost its power has its disks and its mirrors again, without an administrator."""
    fleet = Fleet(t, DISKS)
    some = ring(12, len(fleet.servers))
    everything = range(len(fleet.servers))
    fleet.configure(everything, some)
    fleet.apply()
    fleet.create(some)
    fleet.background("mirror watch")
    fleet.wait_whole(some)
    fleet.reboot_client()
    fleet.configure(everything, some)
    began = time.monotonic()
    fleet.background("mirror watch")
    fleet.background("apply --wait")
    wait_until(lambda: fleet.mapped() == DISKS * len(fleet.servers), 120.0, "all disks")
    disks = time.monotonic() - began
    fleet.wait_whole(some)
    t.say(f"{DISKS * len(fleet.servers)} disks after {disks:.1f} s, {len(some)} mirrors whole after "
          f"{time.monotonic() - began:.1f} s")


@case(module_sets=OURS, kernels=STOCK, timeout=900, quick=())
def test_server_that_hangs(t: Test) -> None:
    """A server that nothing comes from delays its own disks only; they are there when it is back."""
    fleet = Fleet(t, DISKS)
    healthy = [0, 1, 3]
    fleet.configure(healthy)
    usual = fleet.apply()
    t.client.run("rnbdctl unmap --all")
    fleet.configure([2, *healthy])
    cable.change(t, fleet.servers[2], [0], "loss 100%", "loss 0%")
    began = time.monotonic()
    job = fleet.background("apply --wait")
    wait_until(lambda: fleet.mapped() == DISKS * len(healthy), 60.0, "the disks of the other servers")
    beside = time.monotonic() - began
    t.equal(fleet.mapped(2), 0, "disks of the server that hangs")
    t.say(f"{DISKS * len(healthy)} disks in {usual:.1f} s, in {beside:.1f} s beside a server that hangs")
    t.check(beside <= SLOWER * usual, f"{beside:.1f} s beside a server that hangs, {usual:.1f} s without")
    cable.have(fleet.servers[2], [0], "loss 0%")
    fleet.finish(job)
    t.equal(fleet.mapped(), DISKS * len(fleet.servers), "disks in the end")


@case(module_sets=OURS, kernels=STOCK, timeout=3600, quick=())
def test_rolling_reboot(t: Test) -> None:
    """All servers lose their power in turn, under verified IO on mirrors: each mirror is whole in the end."""
    fleet = Fleet(t, 4)
    some = ring(4, len(fleet.servers))
    fleet.configure(range(len(fleet.servers)), some)
    fleet.apply()
    fleet.create(some)
    fleet.background("mirror watch")
    fleet.wait_whole(some)
    streams = [Stream(t, Device(t.client, f"md/{mirror.name}", "", ""), name=mirror.name, workers=1,
                      operations=("write",), spares=True) for mirror in some]
    pauses, whole = [], []
    for _ in range(t.rounds(1, 5)):
        for number in range(len(fleet.servers)):
            for stream in streams:
                stream.longest()
            fleet.reboot_server(number)
            whole.append(fleet.wait_whole(some))
            for stream in streams:
                stream.go_on()
            pauses.append(max(stream.longest() for stream in streams))
    results = [stream.stop() for stream in streams]
    for mirror in some:
        t.client.run(f"rnbdctl mirror stop {mirror.name}")
        # The superblock of md, before the data, names its own leg.
        fleet.same(mirror, 1 << 20)
    t.say(f"{len(pauses)} reboots; pauses: {seconds(pauses)}; whole again after {seconds(whole)}; "
          f"{'; '.join(verified(result) for result in results)}")

