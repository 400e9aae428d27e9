# SPDX-License-Identifier: GPL-2.0
"""Poll queues: requests that are looked for instead of interrupting."""

from __future__ import annotations

import errno
from typing import Any

from lab.selftest_case import case
from lab.selftest_case import Test
from lab.vm_node import Node
from lib import disks
from lib import guest_io
from lib import rnbd
from lib.fio import verified
from lib.rnbd import Device

TOPOLOGY = "two"
# Requests in flight.
DEPTH = 4
KIB = 1 << 10
MIB = 1 << 20


def interrupts(t: Test) -> int:
    """Softirqs that completion queues have raised on the client."""
    for line in t.client.read("/proc/softirqs").splitlines():
        name, _, counts = line.strip().partition(":")
        if name == "IRQ_POLL":
            return sum(int(count) for count in counts.split())
    raise AssertionError("no IRQ_POLL in /proc/softirqs")


def requests(path: str, node: Node) -> int:
    """Reads and writes that a path has carried."""
    words = [int(word) for word in node.read(f"{path}/stats/rdma").split()]
    return words[0] + words[2]


def polled_over_two_paths(t: Test) -> tuple[Device, list[str]]:
    """A device with poll queues, and the folders of its paths: the second one was added later."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN, nr_poll_queues=2)
    session = f"{rnbd.CLIENT_SESSIONS}/sess"
    t.client.write(f"{session}/mpath_policy", "rr")
    t.client.write(f"{session}/add_path", f"ip:{t.server.address6}")
    paths = [f"{session}/paths/{name}" for name in t.client.listdir(f"{session}/paths")]
    t.equal(len(paths), 2, "paths")
    return device, paths


def polled_fio(t: Test, device: Device, **options: Any) -> tuple[int, int]:
    """Writes and verifies with polled requests; how many, and the softirqs meanwhile."""
    before = interrupts(t)
    report = verified(t.client, device.path, **{"rw": "randwrite", "bs": "4k", "iodepth": DEPTH,
                                                "hipri": 1, "size": t.scaled(MIB // 2, 128 * KIB),
                                                **options})
    t.equal(report.errors, 0, "errors")
    count = report.read.ios + report.write.ios
    t.check(count > 0, "fio did nothing")
    return count, interrupts(t) - before


def same_on_the_server(t: Test, device: Device, length: int) -> None:
    """What was written must be on the server's disk."""
    mine = t.client.call(guest_io.digest, path=device.path, offset=0, length=length)
    theirs = t.server.call(guest_io.digest, path=device.device_path, offset=0, length=length)
    t.equal(mine, theirs, "digest, client against server's disk")


@case(timeout=240, c_known_failure="requests of poll queues go on connections that interrupt", quick=())
def test_no_interrupts(t: Test) -> None:
    """Polled requests finish without a softirq, others with; both are right."""
    # Heartbeats raise softirqs as well, many of them while a slow machine works off its requests.
    rare = "hb_interval_ms=600000" if t.modules == "ours" else ""
    rnbd.load(t, rtrs_client=rare, rtrs_server=rare)
    device = rnbd.map_device(t, disks.PLAIN, nr_poll_queues=2)
    t.equal(device.queue("io_poll"), "1", "io_poll")
    t.equal(device.attribute("nr_poll_queues"), "2", "nr_poll_queues")
    count, raised = polled_fio(t, device, hipri=0)
    t.check(raised > count // 8, f"{raised} softirqs for {count} requests that were not polled")
    count, raised = polled_fio(t, device)
    t.check(raised < count // 16, f"{raised} softirqs for {count} polled requests")
    same_on_the_server(t, device, MIB // 2)


@case(timeout=240, c_known_failure="large polled writes of several jobs fail with ECONNABORTED", quick=())
def test_shapes(t: Test) -> None:
    """Polled requests of all sizes, several jobs on one poll queue."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN, nr_poll_queues=1)
    for size, numjobs in ((512, 2), (64 * KIB, 1), (124 * KIB, 2)):
        polled_fio(t, device, bs=size, numjobs=numjobs, size=size * t.scaled(64, 8),
                   offset_increment="8m", iodepth=8)
    # Longer than a request can be, so not polled.
    polled_fio(t, device, bs=MIB, size=4 * MIB)
    same_on_the_server(t, device, 4 * MIB)


@case(timeout=240, c_known_failure="requests of poll queues go on connections that interrupt", quick=())
def test_migrations(t: Test) -> None:
    """The first poll queue is the first CPU's: responses that another CPU polls for count as migrated."""
    # Acknowledgements of heartbeats come on any CPU.
    rare = "hb_interval_ms=600000" if t.modules == "ours" else ""
    rnbd.load(t, rtrs_client=rare, rtrs_server=rare)
    device = rnbd.map_device(t, disks.PLAIN, nr_poll_queues=1)
    path = rnbd.client_path(t, "sess")
    for cpu in (0, 1):
        t.client.write(f"{path}/stats/reset_all", "1")
        count, _ = polled_fio(t, device, cpus_allowed=str(cpu))
        moved = {name: [int(word) for word in
                        t.client.read(f"{path}/stats/cpu_migration_{name}").split()]
                 for name in ("from", "to")}
        t.equal(sum(moved["from"]), sum(moved["to"]), f"sums of {moved}")
        if cpu == 0:
            t.check(sum(moved["from"]) < count // 16, f"{count} requests from CPU 0: {moved}")
        else:
            # A message may have the responses of all requests in flight.
            t.check(min(moved["from"][0], moved["to"][1]) >= count // DEPTH,
                    f"{count} requests from CPU 1: {moved}")


@case(timeout=240, module_sets=("ours",))  # C gives a path that is added later no poll queues
def test_added_path(t: Test) -> None:
    """A path that is added later has its poll queues too; either path serves alone."""
    device, paths = polled_over_two_paths(t)
    before = [requests(path, t.client) for path in paths]
    count, raised = polled_fio(t, device)
    # Heartbeats raise some, more of them the slower the machine is.
    t.check(raised < count // 16 + 16,
            f"{raised} softirqs for {count} polled requests on two paths")
    carried = [requests(path, t.client) - was for path, was in zip(paths, before, strict=True)]
    t.check(min(carried) > count // 4, f"requests that each path carried: {carried}")
    for path in paths:
        t.client.write(f"{path}/disconnect", "1")
        polled_fio(t, device)
        rnbd.reconnect(t, path)
        t.client.wait_for(f"{path}/state", matches="connected")
    same_on_the_server(t, device, MIB // 2)


@case(timeout=240, module_sets=("ours",), quick=())
def test_path_fails_under_polling(t: Test) -> None:
    """A path that goes while requests are polled for: the other one finishes them."""
    device, paths = polled_over_two_paths(t)
    job = t.client.start_job(
        ["fio", "--name=polled", f"--filename={device.path}", "--ioengine=io_uring", "--hipri=1",
         "--direct=1", "--rw=randwrite", "--bs=4k", "--iodepth=8", "--size=4m", "--thread=1",
         "--verify=crc32c", "--verify_fatal=1", "--io_size=400m"], timeout=100)
    for path in paths:
        t.client.write(f"{path}/stats/reset_all", "1")
        t.client.wait_for(f"{path}/stats/rdma", matches=r"^\d+ \d+ \d{2,} ")
        t.client.write(f"{path}/disconnect", "1")
        t.check(not job.done(), "fio ended when a path went")
        rnbd.reconnect(t, path)
        t.client.wait_for(f"{path}/state", matches="connected")
    # The last paths go: the requests fail, and nobody polls for ever.
    for path in paths:
        t.client.write(f"{path}/disconnect", "1")
    result = job.wait()
    t.check(not result.timed_out, "fio polls although there is no path")
    t.check(result.rc != 0 and "Input/output error" in result.out + result.err,
            f"fio without a path: exit code {result.rc}: {result.err[-300:]}")
    t.equal(device.attribute("state"), "closed", "state")
    for path in paths:
        rnbd.reconnect(t, path)
    t.client.wait_for(f"{device.sysfs}/state", matches="open")
    polled_fio(t, device)


def test_number(t: Test) -> None:
    """From -1, which is one for each CPU, to the number of CPUs; otherwise EINVAL."""
    rnbd.load(t)
    cpus = int(t.client.sh("nproc"))
    for asked, got in ((-1, cpus), (0, 0), (1, 1), (cpus, cpus)):
        device = rnbd.map_device(t, disks.PLAIN, nr_poll_queues=asked)
        t.equal(device.attribute("nr_poll_queues"), str(got), f"nr_poll_queues for {asked}")
        t.equal(device.queue("io_poll"), "1" if got else "0", f"io_poll for {asked}")
        device.unmap()
        t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True)
    for asked in (-2, cpus + 1):
        with t.expect_errno(errno.EINVAL):
            rnbd.map_device(t, disks.PLAIN, nr_poll_queues=asked)
