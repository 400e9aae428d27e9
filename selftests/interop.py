# SPDX-License-Identifier: GPL-2.0
"""Our client with the C server, the C client with our server, both invalidation modes."""

from __future__ import annotations

import errno

from lab.selftest_case import case
from lab.selftest_case import OTHER
from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import policy
from lib import rnbd
from lib.fio import fio_jobs
from lib.fio import verified
from lib.operations import every_operation

TOPOLOGY = "two"
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


@case(timeout=300, module_sets=("ours",), quick=("stock", OTHER))
def test_our_client_invalidating(t: Test) -> None:
    """Our client with the C server, always_invalidate=Y."""
    use(t, "ours", "c", "Y")
    exercise(t)
    polled(t)
    server_ends_first(t)


@case(timeout=300, module_sets=("ours",), quick=())
def test_our_client_trusting(t: Test) -> None:
    """Our client with the C server, always_invalidate=N."""
    use(t, "ours", "c", "N")
    exercise(t)
    polled(t)


@case(timeout=300, module_sets=("ours",), quick=("stock", OTHER))
def test_our_server_invalidating(t: Test) -> None:
    """The C client with our server, always_invalidate=Y."""
    use(t, "c", "ours", "Y")
    exercise(t)
    server_ends_first(t)


@case(timeout=300, module_sets=("ours",), quick=())
def test_our_server_trusting(t: Test) -> None:
    """The C client with our server, always_invalidate=N."""
    use(t, "c", "ours", "N")
    exercise(t)


@case(timeout=300, module_sets=("ours",), quick=("stock", OTHER))
def test_c_client_maps_a_file(t: Test) -> None:
    """The C client uses a file of our server as a disk."""
    use(t, "c", "ours", "Y")
    folder = "/mnt/images"
    t.server.run(f"set -e; mkfs.ext4 -q -F {disks.PLAIN}; mkdir -p {folder}\n"
                 f"mount {disks.PLAIN} {folder}; truncate -s 64M {folder}/disk.img")
    t.defer(t.server.run, f"umount {folder}; rmdir {folder}")
    policy.allow(t)
    device = rnbd.map_device(t, f"{folder}/disk.img")
    t.equal(device.size(), 64 * MIB, "size")
    every_operation(t, device, behind=disks.PLAIN)
    report = verified(t.client, device.path, rw="randrw", bssplit="4k/70:64k/30", iodepth=8,
                      size="8m", io_size=t.scaled(16 * MIB, 2 * MIB), offset="8m")
    t.equal(report.errors, 0, "errors")
    device.unmap()
    t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True)


@case(module_sets=("ours",))
def test_c_server_knows_no_io_mode(t: Test) -> None:
    """A C server cannot be told how to use a disk: the disk is not mapped, and the log says why."""
    use(t, "ours", "c", "Y")
    with rnbd.refusal(t, "io_mode=direct", (errno.EOPNOTSUPP,), "the server does not know of io_mode"):
        rnbd.map_device(t, disks.PLAIN, io_mode="direct", keep=True)


# A refused mapping leaks an object of the C client, and sometimes crashes its unloading.
@case(timeout=300, kernels=("stock",), module_sets=("ours",))
def test_our_server_with_a_policy(t: Test) -> None:
    """The C client is let in and refused by an export policy, with EACCES."""
    use(t, "c", "ours", "Y")
    policy.load(t, policy.rule("sess", f"ip:{t.client.address}", mode="ro"),
                policy.rule("other", f"ip:{t.server.address}", device="/**", mode="ro,rw"))
    for session, mode in (("sess", "rw"), ("other", "ro")):
        with t.expect_errno(errno.EACCES):
            rnbd.map_device(t, disks.PLAIN, session=session, access_mode=mode)
    device = rnbd.map_device(t, disks.PLAIN, access_mode="ro")
    with t.expect_errno(errno.EACCES):
        rnbd.map_device(t, disks.WITHOUT_DISCARD, access_mode="ro")
    t.client.call(guest_io.digest, path=device.path, offset=0, length=4096)
    device.unmap()


@case(timeout=300, module_sets=("c",))
def test_same_set(t: Test) -> None:
    """Both ends C: what the other tests of this file do, as a check of this file."""
    for mode in ("Y", "N"):
        use(t, "c", "c", mode)
        exercise(t)
    server_ends_first(t)


@case(timeout=300, quick=(OTHER,), module_sets=("ours",))
def test_both_ours(t: Test) -> None:
    """Both ends ours, on two machines."""
    for mode in ("Y", "N"):
        use(t, "ours", "ours", mode)
        exercise(t)
    server_ends_first(t)
