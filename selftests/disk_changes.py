# SPDX-License-Identifier: GPL-2.0
"""What happens to the server's disk while it is mapped."""

from __future__ import annotations

import errno

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import rnbd
from lib.operations import requests

TOPOLOGY = "one"
MIB = 1 << 20
SESSION = f"{rnbd.CLIENT_SESSIONS}/sess"
FAILS = (errno.EIO, errno.ENODEV, errno.ENXIO)


def test_removed(t: Test) -> None:
    """A disk that is pulled out: its requests fail, the session's others go on, all is let go."""
    rnbd.load(t)
    disk = disks.scsi_debug(t, dev_size_mb=16)
    device = rnbd.map_device(t, disk)
    other = rnbd.map_device(t, disks.PLAIN)
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
    t.client.call(guest_io.writer_start, path=device.path, name="writer")
    t.client.wait_for(f"/sys/block/{device.name}/stat", matches=r"^\s*\d+\s+\d+\s+\d+\s+\d+\s+\d\d")
    t.server.write(f"/sys/block/{disk[5:]}/device/delete", "1")
    end = t.client.call_within(40, guest_io.writer_stop, name="writer", stop=False, wait=20.0)
    t.check(not end["running"], "the writer still waits for its IO")
    t.check(end["errno"] in FAILS, f"the writer ended with errno {end['errno']}")
    request = requests(t.client, device.path, 0, 4096)
    for name in ("read", "write"):
        with t.expect_errno(*FAILS):
            request[name]()
    t.client.call(guest_io.write, path=other.path, offset=0, length=4096, seed=2)
    t.equal(device.attribute("state"), "open", "state")
    device.unmap()
    t.server.wait_for(f"{rnbd.SERVER_DEVICES}/{disk[5:]}", gone=True)
    with t.expect_errno(errno.ENOENT, errno.ENXIO):
        rnbd.map_device(t, disk)
    # Nobody holds the driver.
    t.server.run("modprobe -r scsi_debug; modprobe scsi_debug")


@case(c_known_failure="the server writes to a disk that has been set read-only")
def test_set_read_only(t: Test) -> None:
    """A disk that is set read-only while it is mapped is read and not written."""
    rnbd.load(t)
    disk = disks.loop(t, 16)
    device = rnbd.map_device(t, disk)
    t.client.call(guest_io.write, path=device.path, offset=0, length=65536, seed=1)
    t.server.run(f"blockdev --setro {disk}")
    t.defer(t.server.run, f"blockdev --setrw {disk}")
    request = requests(t.client, device.path, 0, 4096)
    for name in ("write", "discard", "zero_out"):
        with t.expect_errno(errno.EIO, errno.EROFS, errno.EPERM):
            request[name]()
    t.intact(t.client.call(guest_io.compare, path=device.path, offset=0, length=65536, seed=1),
             None, "first changed byte")
    if t.modules == "ours":
        # The client's disk follows.
        t.client.wait_for(f"/sys/block/{device.name}/ro", matches="^1$")
    t.server.run(f"blockdev --setrw {disk}")
    t.client.wait_for(f"/sys/block/{device.name}/ro", matches="^0$")
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=2)
    t.intact(t.server.call(guest_io.compare, path=disk, offset=0, length=4096, seed=2), None,
             "first wrong byte")


def test_slow_disk(t: Test) -> None:
    """A disk that takes a second for each request delays its own requests only."""
    rnbd.load(t)
    slow = rnbd.map_device(t, disks.null_blk(t, completion_nsec=1000000000, irqmode=2))
    fast = rnbd.map_device(t, disks.PLAIN)
    job = t.client.start_job(
        ["fio", "--name=slow", f"--filename={slow.path}", "--rw=randwrite", "--bs=4k",
         "--iodepth=64", "--ioengine=io_uring", "--direct=1", "--io_size=1m", "--size=1m",
         "--thread=1"], timeout=60)
    t.client.wait_for(f"/sys/block/{slow.name}/inflight", matches=r"^\s*\d+\s+[1-9]", timeout=60)
    for index in range(8):
        t.client.call(guest_io.write, path=fast.path, offset=4096 * index, length=4096, seed=1)
    t.check(not job.done(), "the slow disk was done before the fast one")
    t.equal(job.wait().rc, 0, "exit code of fio on the slow disk")


@case(module_sets=("ours",))
def test_hangs(t: Test) -> None:
    """While force_close waits for a disk that hangs, the session's other path goes and comes."""
    rnbd.load(t)
    name = "hanging"
    t.server.run(f"modprobe dm-mod; dmsetup create {name} --table "
                 f"\"0 $(blockdev --getsz {disks.LARGE_BLOCKS}) linear {disks.LARGE_BLOCKS} 0\"; "
                 f"dmsetup mknodes {name}")
    t.defer(t.server.run, f"dmsetup remove --retry {name}")
    device = rnbd.map_device(t, f"/dev/mapper/{name}")
    (disk,) = t.server.listdir(rnbd.SERVER_DEVICES)
    export = f"{rnbd.SERVER_DEVICES}/{disk}/sessions/sess"
    t.client.write(f"{SESSION}/add_path", f"ip:{t.server.address6}")
    paths = [f"{SESSION}/paths/{name}" for name in t.client.listdir(f"{SESSION}/paths")]
    t.equal(len(paths), 2, "paths")
    t.server.run(f"dmsetup suspend --noflush --nolockfs {name}")
    t.defer(t.server.run, f"dmsetup resume {name}")
    reader = t.client.start_job(f"dd if={device.path} of=/dev/null bs=4k count=1 iflag=direct")
    t.client.wait_for(f"/sys/block/{device.name}/inflight", matches=r"^\s*[1-9]")
    idle = [path for path in paths if t.client.read(f"{path}/stats/rdma").split()[4] == "0"]
    t.equal(len(idle), 1, "paths without a request")
    closer = t.server.start_job(f"echo 1 >{export}/force_close")
    t.server.wait_for(export, gone=True)
    for _ in range(2):
        t.client.write(f"{idle[0]}/disconnect", "1")
        rnbd.reconnect(t, idle[0])
    t.check(not closer.done(), "force_close did not wait for the disk")
    t.check(not reader.done(), "the read was answered before the disk went on")
    t.server.run(f"dmsetup resume {name}")
    t.equal(closer.wait().rc, 0, "exit code of the write to force_close")
    t.equal(reader.wait().rc, 0, "exit code of the read that waited")


@case(module_sets=("ours",), timeout=180, quick=())
def test_no_room(t: Test) -> None:
    """A disk without room holds up no other disk, no other session, and no heartbeats, on any CPU."""
    rnbd.load(t)
    full = rnbd.map_device(t, disks.null_blk(t, completion_nsec=4000000000, irqmode=2,
                                             hw_queue_depth=1))
    # With memory null_blk may sleep when it takes a request, as a full disk does.
    others = [rnbd.map_device(t, disks.PLAIN), rnbd.map_device(t, disks.null_blk(t, memory_backed=1)),
              rnbd.map_device(t, disks.WITHOUT_DISCARD, session="second")]
    t.client.run("udevadm settle", timeout=90)
    for session in ("sess", "second"):
        t.client.write(f"{rnbd.CLIENT_SESSIONS}/{session}/hb_interval_ms", "500")
    cpus = range(int(t.client.sh("nproc")))
    requests = 10
    reads = [t.client.start_job(f"taskset -c {index % len(cpus)} dd if={full.path} of=/dev/null "
                                f"bs=4k count=1 skip={index} iflag=direct", timeout=120)
             for index in range(requests)]
    t.client.wait_for(f"/sys/block/{full.name}/inflight", matches=rf"^\s*([5-9]|{requests})\s",
                      timeout=60)
    for cpu in cpus:
        for device in others:
            t.client.run(f"taskset -c {cpu} dd if=/dev/zero of={device.path} bs=64k count=4 "
                         "oflag=direct")
    done = sum(job.done() for job in reads)
    # A server that waits for room looks at nothing else of that CPU until the last read has its place.
    t.check(done <= requests // 2, f"{done} of the full disk's {requests} reads came before others")
    for job in reads:
        t.equal(job.wait().rc, 0, "exit code of a reader of the full disk")
    for session in ("sess", "second"):
        reconnects = t.client.read(f"{rnbd.client_path(t, session)}/stats/reconnects").split()
        t.equal(reconnects, ["0", "0"], f"reconnects of {session}")


@case(module_sets=("ours",), timeout=180)
def test_full_disk(t: Test) -> None:
    """A write is answered when its disk is done, also while the server waits for room in another
    disk, which takes long for each request."""
    rnbd.load(t)
    slow = rnbd.map_device(t, disks.null_blk(t, completion_nsec=400000000, irqmode=2,
                                             hw_queue_depth=1))
    other = rnbd.map_device(t, disks.null_blk(t, completion_nsec=1000000000, irqmode=2))
    t.client.run("udevadm settle", timeout=90)
    # The first reads are taken from the network alone; the rest comes while the server waits for
    # room, and that is when the write, as long as two or three reads, is done.
    reads = t.client.call_within(90, guest_io.write_beside_reads, path=other.path, other=slow.path,
                                 reads=24)
    t.say(f"{reads} of 24 reads were done when the write was")
    t.check(reads < 10, f"{reads} of 24 reads were done before the write, which began earlier")
