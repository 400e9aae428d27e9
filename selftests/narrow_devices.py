# SPDX-License-Identifier: GPL-2.0
"""RDMA devices that take less than soft-RoCE does: it refuses what they would refuse."""

from __future__ import annotations

import errno

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import guest_modules
from lib import rnbd

TOPOLOGY = "one"
KIB = 1 << 10
# Some adapters have one scatter entry for a receive.
RECEIVE_ENTRIES = "max_recv_sge=1"
# The client's queues would like 2,049 times 30 of them, the server's have at most 16,384.
QUEUE_ENTRIES = 20000


def narrow(t: Test, parameters: str) -> None:
    """Have soft-RoCE refuse (selftests/modules/narrow_device.c)."""
    t.client.call(guest_modules.load, folder="/host/modules/test", names=["narrow_device"],
                  parameters={"narrow_device": parameters})
    t.defer(t.client.module_unload, "narrow_device")


def pieces_arrive(t: Test) -> None:
    """Requests of one and of many pieces carry the right data in both directions."""
    device = rnbd.map_device(t, disks.PLAIN)
    for seed, pieces in enumerate(([(0, 4 * KIB)], [(512, 512)] * 3, [(0, 4 * KIB)] * 16,
                                   [(512 * (index % 8), 512) for index in range(100)])):
        length = sum(piece for _at, piece in pieces)
        t.client.call(guest_io.scattered, path=device.path, offset=seed << 20, pieces=pieces,
                      seed=seed, write_it=True)
        t.intact(t.server.call(guest_io.compare, path=disks.PLAIN, offset=seed << 20,
                               length=length, seed=seed), None, "first wrong byte")
        t.check(t.client.call(guest_io.scattered, path=device.path, offset=seed << 20,
                              pieces=pieces, seed=seed, write_it=False), "read something else")
    device.unmap()


@case(module_sets=("ours",))
def test_receives(t: Test) -> None:
    """One scatter entry for a receive is enough, however many chunks the server has."""
    for depth in (512, 4096):
        rnbd.load(t, rtrs_server=f"sess_queue_depth={depth} max_chunk_size=8192")
        narrow(t, RECEIVE_ENTRIES)
        pieces_arrive(t)
        t.client.module_unload("narrow_device")


@case(module_sets=("ours",))
def test_long_queues(t: Test) -> None:
    """A device that has not got so many scatter entries in a long queue is asked for fewer."""
    rnbd.load(t)
    narrow(t, f"max_queue_sge={QUEUE_ENTRIES}")
    pieces_arrive(t)
    refused = int(t.client.read("/sys/module/narrow_device/parameters/refused"))
    t.check(refused > 0, "nothing was refused")
    # It is asked for what it has, after the first connection.
    t.check(refused < 4, f"{refused} queue pairs were refused")


@case(module_sets=("ours",))
def test_no_registration(t: Test) -> None:
    """A device that cannot register memory is refused with a reason, and nothing stays behind."""
    rnbd.load(t)
    narrow(t, "no_registration=1")
    mark = t.client.log_mark()
    for _ in range(2):
        with t.expect_errno(errno.EOPNOTSUPP):
            rnbd.map_device(t, disks.PLAIN)
    t.client.wait_log("the RDMA device cannot register memory", mark)
    for folder in (rnbd.CLIENT_SESSIONS, rnbd.SERVER_SESSIONS, rnbd.CLIENT_DEVICES):
        t.equal(t.client.listdir(folder), [], f"entries of {folder}")
    t.client.module_unload("narrow_device")
    pieces_arrive(t)
