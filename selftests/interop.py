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
from lib import program
from lib import rnbd
from lib.fio import verified
from lib.interplay import exercise
from lib.interplay import MIB
from lib.interplay import polled
from lib.interplay import server_ends_first
from lib.interplay import use
from lib.operations import every_operation

TOPOLOGY = "two"


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


@case(timeout=300, module_sets=("ours",), quick=("stock",))
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
def test_c_server_knows_no_discovery(t: Test) -> None:
    """A C server cannot be asked which disks it has: the program says so, and leaves nothing behind."""
    use(t, "ours", "c", "Y")
    program.install(t.client)
    said = program.run(t.client, "discover", t.server.address, code=7)
    t.check("does not list its disks" in said.err, said.err)
    t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), [], "sessions afterwards")


@case(module_sets=("ours",))
def test_c_server_knows_no_io_mode(t: Test) -> None:
    """A C server cannot be told how to use a disk: the disk is not mapped, and the log says why."""
    use(t, "ours", "c", "Y")
    with rnbd.refusal(t, "io_mode=direct", (errno.EOPNOTSUPP,), "the server does not know io_mode="):
        rnbd.map_device(t, disks.PLAIN, io_mode="direct", keep=True)


# A refused mapping leaks an object of the C client, and sometimes crashes its unloading.
@case(timeout=300, kernels=("stock",), module_sets=("ours",))
def test_our_server_with_a_policy(t: Test) -> None:
    """The C client is let in and refused by an export policy, with EACCES; a session that no rule is about is
    disconnected, as C's protocol has no other way."""
    use(t, "c", "ours", "Y")
    policy.load(t, policy.rule("sess", f"ip:{t.client.address}", mode="ro"),
                policy.rule("other", f"ip:{t.server.address}", device="/**", mode="ro,rw"))
    for session, mode, number in (("sess", "rw", errno.EACCES), ("other", "ro", errno.ECONNRESET)):
        with t.expect_errno(number):
            rnbd.map_device(t, disks.PLAIN, session=session, access_mode=mode)
    device = rnbd.map_device(t, disks.PLAIN, access_mode="ro")
    with t.expect_errno(errno.EACCES):
        rnbd.map_device(t, disks.WITHOUT_DISCARD, access_mode="ro")
    t.client.call(guest_io.digest, path=device.path, offset=0, length=4096)
    device.unmap()


@case(timeout=300, module_sets=("ours",), quick=("stock",))
def test_c_client_has_to_prove_its_identity(t: Test) -> None:
    """The C client is refused by a server that asks for a proof of identity, and both logs say why; by another server
    that knows of keys it is served."""
    use(t, "c", "ours", "Y")
    rnbd.load(t, rtrs_server=f"{rnbd.fewer_buffers(t)}require_auth=Y")
    client, server = t.client.log_mark(), t.server.log_mark()
    with t.expect_errno(errno.ENOKEY):
        rnbd.map_device(t, disks.PLAIN)
    t.client.wait_log("rtrs errno -ENOKEY", client)
    t.server.wait_log("refused: require_auth is set, .*clients of mainline Linux", server)
    rnbd.load(t, rtrs_server=f"{rnbd.fewer_buffers(t)}require_auth=N")
    device = rnbd.map_device(t, disks.PLAIN)
    t.equal(t.server.read(f"{rnbd.SERVER_SESSIONS}/sess/client_id"), "", "client id that is proved")
    rnbd.works(t, device)


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
