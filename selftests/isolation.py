# SPDX-License-Identifier: GPL-2.0
"""A client whose disk does not answer holds up no other client."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import images
from lib import rnbd
from lib.fio import fio
from lib.fio import start
from lib.rnbd import Device

TOPOLOGY = "one"
ONLY_OURS = ("ours",)
# Requests that hang, and those of the other client that are in flight at a time.
HUNG, DEPTH = 64, 4
ROUNDS, REQUESTS = 5, 1500


def latency(t: Test, device: Device) -> float:
    """The mean latency of reads, in microseconds."""
    return fio(t.client, device.path, rw="randread", bs="4k", iodepth=DEPTH, size="32m",
               number_ios=t.scaled(REQUESTS, REQUESTS // 5)).read.mean_latency_us


def compare(t: Test, what: str, hung: Device, hang: Callable[[], object], let_go: Callable[[], object]) -> None:
    """Another client's reads take as long as ever while the requests for ``hung`` do not end."""
    honest = rnbd.map_device(t, disks.null_blk(t, size=64), session="honest")
    usual, beside = [], []
    for _ in range(ROUNDS):
        usual.append(latency(t, honest))
        hang()
        job = start(t.client, hung.path, rw="write:4k", bs="4k", iodepth=HUNG, size="8m", number_ios=HUNG)
        t.client.wait_for(f"/sys/block/{hung.name}/inflight", matches=rf"\s{HUNG}$")
        beside.append(latency(t, honest))
        t.client.wait_for(f"/sys/block/{hung.name}/inflight", matches=rf"\s{HUNG}$", timeout=1)
        let_go()
        t.equal(job.wait().write.ios, HUNG, "requests that ended when the disk went on")
    # In turn, so that whatever else the machine does counts for both.
    ratio = statistics.median(now / before for now, before in zip(beside, usual, strict=True))
    t.say(f"{what}: reads of another client take {statistics.median(beside):.0f} us beside {HUNG} requests that hang, "
          f"{statistics.median(usual):.0f} us without: {ratio:.2f} times as long")
    t.check(ratio < 1.5, f"{ratio:.2f} times the usual latency")


@case(module_sets=ONLY_OURS, timeout=240)
def test_hung_disk(t: Test) -> None:
    """A block device that hangs with one client's requests does not slow another client's disk."""
    rnbd.load(t)
    disk = disks.holdable(t, 16, disks.null_blk(t, size=64))
    hung = rnbd.map_device(t, disk, session="hung")
    compare(t, "a disk that hangs", hung, lambda: disks.hold(t, disk), lambda: disks.let_go(t, disk))


@case(module_sets=ONLY_OURS, timeout=240, quick=())
def test_hung_file(t: Test) -> None:
    """The same with a file through the page cache, whose requests each take a task of the server."""
    images.load(t, rnbd_server="file_io_mode=buffered")
    disk = disks.holdable(t, 64, disks.PLAIN)
    folder = images.file_system(t, disk=disk)
    hung = rnbd.map_device(t, images.sparse(t, folder, size=32 << 20), session="hung")
    t.defer(t.server.run, f"fsfreeze -u {folder}", check=False)
    compare(t, "a file system that is frozen", hung, lambda: t.server.run(f"fsfreeze -f {folder}"),
            lambda: t.server.run(f"fsfreeze -u {folder}"))
