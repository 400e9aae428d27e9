# SPDX-License-Identifier: GPL-2.0
"""What happens to the server's disk while it is mapped."""

import errno

from lab.selftest_case import case
from lib import disks
from lib import rnbd

TOPOLOGY = "one"
MIB = 1 << 20
FAILS = (errno.EIO, errno.ENODEV, errno.ENXIO)


def test_removed(t):
    """A disk that is pulled out: its requests fail, the session's others go on, all is let go."""
    rnbd.load(t)
    disk = disks.scsi_debug(t, dev_size_mb=16)
    device = rnbd.map_device(t, disk)
    other = rnbd.map_device(t, disks.PLAIN)
    t.client.call("guest_io.write", path=device.path, offset=0, length=4096, seed=1)
    t.client.call("guest_io.writer_start", path=device.path, name="writer")
    t.client.wait_for(f"/sys/block/{device.name}/stat", matches=r"^\s*\d+\s+\d+\s+\d+\s+\d+\s+\d\d")
    t.server.write(f"/sys/block/{disk[5:]}/device/delete", "1")
    end = t.client.call("guest_io.writer_stop", name="writer", stop=False, wait=20.0, timeout=40)
    t.check(not end["running"], "the writer still waits for its IO")
    t.check(end["errno"] in FAILS, f"the writer ended with errno {end['errno']}")
    for function, options in (("digest", {}), ("write", {"seed": 1})):
        with t.expect_errno(*FAILS):
            t.client.call(f"guest_io.{function}", path=device.path, offset=0, length=4096,
                          **options)
    t.client.call("guest_io.write", path=other.path, offset=0, length=4096, seed=2)
    t.equal(device.attribute("state"), "open", "state")
    device.unmap()
    t.server.wait_for(f"{rnbd.SERVER_DEVICES}/{disk[5:]}", gone=True)
    with t.expect_errno(errno.ENOENT, errno.ENXIO):
        rnbd.map_device(t, disk)
    # Nobody holds the driver.
    t.server.run("modprobe -r scsi_debug; modprobe scsi_debug")


@case(c_known_failure="the server writes to a disk that has been set read-only")
def test_set_read_only(t):
    """A disk that is set read-only while it is mapped is read and not written."""
    rnbd.load(t)
    disk = disks.loop(t, 16)
    device = rnbd.map_device(t, disk)
    t.client.call("guest_io.write", path=device.path, offset=0, length=65536, seed=1)
    t.server.run(f"blockdev --setro {disk}")
    t.defer(t.server.run, f"blockdev --setrw {disk}")
    for function, options in (("write", {"seed": 2}), ("discard", {}), ("zero_out", {})):
        with t.expect_errno(errno.EIO, errno.EROFS, errno.EPERM):
            t.client.call(f"guest_io.{function}", path=device.path, offset=0, length=4096,
                          **options)
    t.equal(t.client.call("guest_io.compare", path=device.path, offset=0, length=65536, seed=1),
            None, "first changed byte")
    t.server.run(f"blockdev --setrw {disk}")
    t.client.call("guest_io.write", path=device.path, offset=0, length=4096, seed=2)
    t.equal(t.server.call("guest_io.compare", path=disk, offset=0, length=4096, seed=2), None,
            "first wrong byte")


def test_slow_disk(t):
    """A disk that takes a second for each request delays its own requests only."""
    rnbd.load(t)
    slow = rnbd.map_device(t, disks.null_blk(t, completion_nsec=1000000000, irqmode=2))
    fast = rnbd.map_device(t, disks.PLAIN)
    job = t.client.start_job(
        ["fio", "--name=slow", f"--filename={slow.path}", "--rw=randwrite", "--bs=4k",
         "--iodepth=64", "--ioengine=io_uring", "--direct=1", "--io_size=1m", "--size=1m",
         "--thread=1"], timeout=60)
    t.client.wait_for(f"/sys/block/{slow.name}/inflight", matches=r"^\s*\d+\s+[1-9]")
    for index in range(8):
        t.client.call("guest_io.write", path=fast.path, offset=4096 * index, length=4096, seed=1)
    t.check(not job.done(), "the slow disk was done before the fast one")
    t.equal(job.wait().rc, 0, "exit code of fio on the slow disk")
