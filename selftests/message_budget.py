# SPDX-License-Identifier: GPL-2.0
"""How many RDMA messages a request takes, by the packets that the device counts."""

from __future__ import annotations

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import rnbd
from lib.fio import fio
from lib.rnbd import Device

PACKETS = "/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts"
KIB = 1 << 10
REQUESTS = 250
# RDMA MTU 4096. A message is its packets and an acknowledgement; with two messages a request of
# 4 KiB is four packets if it is a read, and five if it is a write, whose headers need one more.
# Acknowledgements of long messages may be more than one.
BUDGET = {("randread", 512): 4, ("randread", 4 * KIB): 4, ("randread", 64 * KIB): 19,
          ("randwrite", 512): 4, ("randwrite", 4 * KIB): 5, ("randwrite", 64 * KIB): 20}


def packets_per_request(t: Test, device: Device, pattern: str, size: int, depth: int = 1) -> float:
    """The packets of both ends of this machine, without heartbeats to speak of."""
    before = int(t.client.read(PACKETS))
    report = fio(t.client, device.path, rw=pattern, bs=size, iodepth=depth, number_ios=REQUESTS)
    t.equal(report.errors, 0, "errors")
    return (int(t.client.read(PACKETS)) - before) / REQUESTS


@case(module_sets=("ours",))
def test_two_messages(t: Test) -> None:
    """A read and a write are two messages each, safe or trusting."""
    for setting in ("Y", "N"):
        rnbd.load(t, rtrs_server=f"always_invalidate={setting}")
        device = rnbd.map_device(t, disks.null_blk(t, size=256), keep=True)
        for (pattern, size), budget in BUDGET.items():
            packets = packets_per_request(t, device, pattern, size)
            # Opening the device reads a few blocks. A long write in the safe mode gets a new key
            # with its response, in one message all the same.
            t.check(budget * 0.95 <= packets <= budget * 1.15,
                    f"always_invalidate={setting}: {pattern} of {size} bytes: {packets:.2f} "
                    f"packets, wanted {budget}")
        device.unmap()


# The debug kernel is so slow that each write has its response before the next one is done.
@case(module_sets=("ours",), kernels=("stock",), quick=())
def test_coalesced_responses(t: Test) -> None:
    """Of many writes at a time, several have their responses in one message."""
    for setting in ("Y", "N"):
        rnbd.load(t, rtrs_server=f"always_invalidate={setting}")
        # With memory null_blk may sleep when it takes a request, so a worker submits to it.
        for memory in (0, 1):
            disk = disks.null_blk(t, size=256, memory_backed=memory)
            device = rnbd.map_device(t, disk, keep=True)
            alone = packets_per_request(t, device, "randwrite", 4 * KIB)
            together = packets_per_request(t, device, "randwrite", 4 * KIB, depth=32)
            # A message and its acknowledgement, if there is none for half of the requests.
            t.check(together < alone - 1,
                    f"always_invalidate={setting}, memory_backed={memory}: {together:.2f} packets a "
                    f"write with 32 at a time, {alone:.2f} with one")
            device.unmap()
