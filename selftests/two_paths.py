# SPDX-License-Identifier: GPL-2.0
"""Two paths of a machine that is client and server at once: what `failover` does with two machines, in small."""

from __future__ import annotations

from lab.selftest_case import case
from lab.selftest_case import OTHER
from lab.selftest_case import Test
from lib import disks
from lib import rnbd
from lib.stream import Stream
from lib.stream import verified

TOPOLOGY = "one"


@case(quick=(OTHER,))
def test_lost_in_turn(t: Test) -> None:
    """The server ends each path in turn under verified IO: the other path carries on, and the lost path comes back."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    t.client.write(f"{rnbd.CLIENT_SESSIONS}/sess/add_path", f"ip:{t.server.address6}")
    stream = Stream(t, device)
    for address in (t.server.address, t.server.address6):
        path = rnbd.path_to(t, address)
        # Both ends of a path have the same address here, so its folders have the same name.
        t.server.write(f"{rnbd.SERVER_SESSIONS}/sess/paths/{path.rsplit('/', 1)[-1]}/disconnect", "1")
        t.client.wait_for(f"{path}/state", matches="^(disconnected|reconnecting)", timeout=20)
        stream.go_on()
        rnbd.reconnect(t, path)
        t.client.wait_for(f"{path}/state", matches="^connected", timeout=20)
        stream.go_on()
    t.say(verified(stream.stop()))
