# SPDX-License-Identifier: GPL-2.0
"""CPUs that go offline and come back, on a machine that is client and server."""

from __future__ import annotations

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import rnbd
from lib.stream import Stream
from lib.stream import verified

TOPOLOGY = "one"
CPU = "/sys/devices/system/cpu/cpu1/online"


@case(timeout=300)
def test_under_io(t: Test) -> None:
    """IO goes on while a CPU is away, and a device can be mapped, reached and unmapped then."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    # One CPU has to connect beside this, in 30 s, also on the debug kernel.
    stream = Stream(t, device, workers=1 if t.debug else 4)
    t.defer(t.client.write, CPU, "1")
    for number in range(t.rounds(1)):
        t.client.write(CPU, "0")
        stream.go_on()
        for session in ("sess", f"other{number}"):
            other = rnbd.map_device(t, disks.LARGE_BLOCKS, session=session)
            t.client.call(guest_io.write, path=other.path, offset=0, length=65536, seed=number)
            t.client.write(CPU, "1")
            t.intact(t.client.call(guest_io.compare, path=other.path, offset=0, length=65536,
                                   seed=number), None, f"first wrong byte in session {session}")
            # By all connections: they were made for the CPU that was away, too.
            t.client.run(["taskset", "-c", "1", "dd", f"if={other.path}", "of=/dev/null", "bs=64k",
                          "count=4", "iflag=direct"])
            t.client.write(CPU, "0")
            other.unmap()
        t.client.write(CPU, "1")
        stream.go_on()
    t.say(verified(stream.stop()))
