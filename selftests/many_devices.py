# SPDX-License-Identifier: GPL-2.0
"""Several sessions and devices at once."""

from __future__ import annotations

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import rnbd
from lib.fio import fio

TOPOLOGY = "one"
SESSIONS = ("alpha", "beta")
KIB = 1 << 10


@case(timeout=240, c_known_failure="an IO whose task is preempted while it chooses a path "
                                   "finds no path and fails with ECONNABORTED")
def test_two_sessions_eight_devices(t: Test) -> None:
    """Eight devices in two sessions, all busy at once, each with its own data."""
    rnbd.load(t)
    devices = []
    for index in range(8):
        disk = disks.null_blk(t, size=16)
        devices.append((disk, rnbd.map_device(t, disk, session=SESSIONS[index % 2])))
    for session in SESSIONS:
        t.equal(len(t.client.listdir(f"{rnbd.CLIENT_SESSIONS}/{session}/paths")), 1,
                f"paths of session {session}")
    for seed, (_disk, device) in enumerate(devices):
        t.client.call(guest_io.write, path=device.path, offset=8 << 20, length=65536, seed=seed)
    report = fio(t.client, ":".join(device.path for _disk, device in devices), rw="randwrite",
                 bs="4k", iodepth=32, size="4m", io_size=t.scaled(6 << 20, 512 * KIB), numjobs=2,
                 timeout=120)
    t.equal(report.errors, 0, "errors")
    for seed, (disk, _device) in enumerate(devices):
        t.intact(t.server.call(guest_io.compare, path=disk, offset=8 << 20, length=65536,
                               seed=seed), None, f"first wrong byte of {disk}")
        t.check(rnbd.disk_stats(t.server, disk[5:])["writes"] > 1, f"{disk} got no writes")


def test_session_ends_with_last_device(t: Test) -> None:
    """A session is shared by its devices and goes with the last one."""
    rnbd.load(t)
    first = rnbd.map_device(t, disks.PLAIN)
    # The session exists, so no path is needed.
    second = rnbd.map_device(t, disks.WITHOUT_DISCARD, paths=[])
    t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), ["sess"], "sessions")
    first.unmap()
    t.client.call(guest_io.write, path=second.path, offset=0, length=4096, seed=1)
    t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), ["sess"], "sessions after one unmap")
    second.unmap()
    t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True)
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/sess", gone=True)


def test_names_are_reused(t: Test) -> None:
    """Disk numbers are the lowest free ones."""
    rnbd.load(t)
    names = [rnbd.map_device(t, disk).name
             for disk in (disks.PLAIN, disks.WITHOUT_DISCARD, disks.LARGE_BLOCKS)]
    t.equal(names, ["rnbd0", "rnbd1", "rnbd2"], "disk names")
    t.client.write("/sys/block/rnbd1/rnbd/unmap_device", "normal")
    t.equal(rnbd.map_device(t, disks.WITHOUT_DISCARD).name, "rnbd1", "name of the next disk")


@case(timeout=180)
def test_parallel_map_and_unmap(t: Test) -> None:
    """Mapping and unmapping from several programs at once."""
    rnbd.load(t, rtrs_server="sess_queue_depth=64")
    disk_names = [disks.null_blk(t, size=16) for _ in range(4)]
    jobs = []
    for index, disk in enumerate(disk_names):
        session = SESSIONS[index % 2]
        text = rnbd.map_text(session=session, device_path=disk,
                             paths=[f"ip:{t.server.address}"])
        link = f"{rnbd.CLIENT_DEVICES}/{rnbd.link_name(disk, session)}"
        jobs.append(t.client.start_job(
            f"for i in $(seq {t.scaled(6, 2)}); do echo '{text}' >{rnbd.MAP_DEVICE} || exit 1\n"
            f"echo normal >{link}/rnbd/unmap_device || exit 2; done", timeout=120))
    for job in jobs:
        result = job.wait()
        t.equal((result.rc, result.err), (0, ""), "exit code and errors of a loop")
