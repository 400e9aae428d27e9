# SPDX-License-Identifier: GPL-2.0
"""What the ends ask of a connection, as seen by an end in user space."""

from __future__ import annotations

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import guest_hostile
from lib import guest_hostile_server
from lib import rnbd

TOPOLOGY = "one"
# Seven times, and for ever.
PACKETS, NOT_RECEIVED = 7, 7


@case()
def test_of_the_client(t: Test) -> None:
    """The client asks for packets to be sent again 7 times, and for ever if no receive waits."""
    rnbd.load(t, server=False)
    t.server.run("modprobe rdma_ucm")
    t.server.call(guest_hostile_server.start)
    t.defer(t.server.call_within, 60, guest_hostile_server.stop)
    device = rnbd.map_device(t, "/dev/user_space")
    asked = t.server.call(guest_hostile_server.retries)
    t.check(len(asked) == 1 + int(t.client.sh("nproc")), f"{len(asked)} connections")
    t.equal([tuple(each) for each in asked], [(PACKETS, NOT_RECEIVED)] * len(asked),
            "retries of packets, and of messages that find no receive")
    device.unmap()


@case()
def test_of_the_server(t: Test) -> None:
    """The server asks for messages to be sent again for ever if no receive waits."""
    rnbd.load(t, client=False)
    t.client.run("modprobe rdma_ucm")
    asked = t.client.call(guest_hostile.retries, address=t.server.address)
    t.equal(asked, [NOT_RECEIVED] * 2, "retries of messages that find no receive")
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/hostile", gone=True)
