# SPDX-License-Identifier: GPL-2.0
"""Two ends of different modules: put in place, and used in every way."""

from __future__ import annotations

from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import rnbd
from lib.fio import fio_jobs
from lib.fio import verified
from lib.operations import every_operation

KIB = 1 << 10
MIB = 1 << 20


def use(t: Test, client: str, server: str, mode: str) -> None:
    """Put a module set on each end; back to the run's own afterwards."""
    for node, name in ((t.client, client), (t.server, server)):
        rnbd.use_set(node, name)
        t.defer(rnbd.use_set, node, t.modules)
    rnbd.load(t, rtrs_server=f"{rnbd.fewer_buffers(t)}always_invalidate={mode}")


def exercise(t: Test) -> None:
    """Every kind of request, data checked on the other end's disk."""
    device = rnbd.map_device(t, disks.PLAIN)
    t.equal(device.size(), 512 * MIB, "size")
    # The debug kernel takes so long for more that soft-RoCE sends it again, which costs the
    # connection, and C has no setting for when.
    sizes, depths = ((512, 4 * KIB, 16 * KIB), (1, 4)) if t.debug else (
        (512, 4 * KIB, 64 * KIB, MIB), (1, 16))
    jobs = [{"name": f"bs{size}qd{depth}", "rw": "randrw", "bs": size, "iodepth": depth,
             "size": size * 16, "io_size": t.scaled(size * 64, size * 8), "verify": "crc32c",
             "offset": f"{index * 40 + depth}m"}
            for index, size in enumerate(sizes) for depth in depths]
    for report in fio_jobs(t.client, device.path, jobs, direct=1, ioengine="io_uring",
                           verify_fatal=1, timeout=200):
        t.equal(report.errors, 0, "errors")
    every_operation(t, device)
    large = rnbd.map_device(t, disks.LARGE_BLOCKS)
    every_operation(t, large)
    large.unmap()
    t.equal(t.client.read(f"{rnbd.client_path(t, 'sess')}/state"), "connected", "path state")
    read_only = rnbd.map_device(t, disks.WITHOUT_DISCARD, access_mode="ro")
    t.check(t.client.call(guest_io.is_read_only, path=read_only.path), "ro is writable")
    read_only.unmap()
    device.unmap()
    t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True)
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/sess", gone=True)


def polled(t: Test) -> None:
    """A session with connections that are polled: requests of both kinds."""
    device = rnbd.map_device(t, disks.PLAIN, nr_poll_queues=1)
    for hipri in (0, 1):
        report = verified(t.client, device.path, rw="randrw", bssplit="4k/70:64k/30", iodepth=8,
                          size="2m", io_size="4m", hipri=hipri)
        t.equal(report.errors, 0, "errors")
    device.unmap()
    t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True)


def server_ends_first(t: Test) -> None:
    """The server unloads under the mapping; the client unmaps cleanly afterwards."""
    device = rnbd.map_device(t, disks.PLAIN)
    t.server.module_unload("rnbd_server")
    t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=40)
    device.unmap()
