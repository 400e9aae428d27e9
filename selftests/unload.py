# SPDX-License-Identifier: GPL-2.0
"""Unloading modules: in order, out of order, and in use."""

from __future__ import annotations

import errno

from lab.selftest_case import case
from lab.selftest_case import EVERYWHERE
from lab.selftest_case import Test
from lab.vm import wait_until
from lib import disks
from lib import guest_io
from lib import rnbd

TOPOLOGY = "one"
BUSY = errno.EAGAIN  # delete_module(2) on a module that is used


def test_order(t: Test) -> None:
    """A module that another one uses stays."""
    rnbd.load(t)
    for name in ("rtrs_core", "rtrs_client", "rtrs_server"):
        with t.expect_errno(BUSY):
            t.client.module_unload(name)
    for name in ("rnbd_client", "rtrs_client", "rnbd_server", "rtrs_server", "rtrs_core"):
        t.client.module_unload(name)
        t.check(not t.client.module_loaded(name), f"{name} is still loaded")
    for folder in (rnbd.CLIENT_SESSIONS, rnbd.SERVER_SESSIONS, "/sys/class/rnbd-client",
                   "/sys/class/rnbd-server"):
        t.check(not t.client.exists(folder), f"{folder} is still there")


def test_client_alone(t: Test) -> None:
    """The client's modules load and unload without the server's."""
    rnbd.load(t, server=False)
    t.check(t.client.exists(rnbd.MAP_DEVICE), "no map_device")
    t.client.modules_unload_all()


def test_server_alone(t: Test) -> None:
    """The server's modules load and unload without the client's."""
    rnbd.load(t, client=False)
    t.check(t.server.exists(rnbd.SERVER_DEVICES), "no devices folder")
    t.server.modules_unload_all()


def test_open_device(t: Test) -> None:
    """While a mapped disk is open, its client module and all below it stay."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    t.client.call(guest_io.hold, path=device.path, name="holder")
    t.defer(t.client.call, guest_io.release, name="holder")
    for name in ("rnbd_client", "rtrs_client", "rtrs_core"):
        with t.expect_errno(BUSY):
            t.client.module_unload(name)
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)


@case(c_known_failure="the C module unmaps idle devices when it is unloaded")
def test_client_while_mapped(t: Test) -> None:
    """The client's module stays as long as a device is mapped, and goes afterwards."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    with t.expect_errno(BUSY):
        t.client.module_unload("rnbd_client")
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
    device.unmap()
    t.client.module_unload("rnbd_client")


@case(quick=EVERYWHERE)
def test_server_while_mapped(t: Test) -> None:
    """Unloading the server under a mapping closes the session: the client's IO fails, the client stays,
    and its device works again when the module is back."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    t.server.module_unload("rnbd_server")
    t.client.wait_for(f"{device.sysfs}/state", matches="closed")
    with t.expect_errno(errno.EIO):
        t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
    t.equal(t.server.exists("/sys/class/rnbd-server"), False, "the class of a module that is unloaded")
    t.server.modules_load("rnbd_server")
    rnbd.reconnect(t, rnbd.client_path(t, "sess"))
    t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=30)
    rnbd.works(t, device)
    device.unmap()


def test_unload_right_after_unmap(t: Test) -> None:
    """Unloading does not race with the close that an unmap began."""
    for _ in range(t.scaled(8, 2)):
        rnbd.load(t, rtrs_server="sess_queue_depth=64")
        rnbd.map_device(t, disks.PLAIN, keep=True).unmap()
        # The unmap's own reference to the module may be an instant from gone.
        wait_until(lambda: _unloaded(t, "rnbd_client"), 5 * t.client.slow,
                   "unload of rnbd_client")
        t.client.modules_unload_all()


def _unloaded(t: Test, name: str) -> bool:
    try:
        t.server.module_unload(name)
    except OSError as error:
        t.equal(error.errno, BUSY, "errno")
        return False
    return True


def _goes(t: Test) -> None:
    """The server's module can be unloaded, at most a look at the requests later."""
    wait_until(lambda: _unloaded(t, "rnbd_server"), 10 * t.server.slow, "unload of rnbd_server")


@case(module_sets=("ours",), quick=("stock", "debug"))
def test_disk_hangs(t: Test) -> None:
    """While a disk has a request that it does not finish, the server's module stays, and the log names the disk."""
    rnbd.load(t)
    disk = disks.holdable(t, 16, disks.LARGE_BLOCKS)
    device = rnbd.map_device(t, disk)
    mark = t.server.log_mark()
    disks.hold(t, disk)
    reader = t.client.start_job(f"dd if={device.path} of=/dev/null bs=4k count=1 iflag=direct")
    t.server.wait_log("requests are not finished for 2000 ms: rnbd_server cannot be unloaded", mark)
    t.server.wait_log(f'device "{disk}" is open, its disk counts', mark)
    with t.expect_errno(BUSY):
        t.server.module_unload("rnbd_server")
    # The client has gone, its request is still there.
    t.client.write(f"{rnbd.client_path(t, 'sess')}/disconnect", "1")
    t.check(reader.wait().rc != 0, "a read succeeded without its disk")
    with t.expect_errno(BUSY):
        t.server.module_unload("rnbd_server")
    disks.let_go(t, disk)
    _goes(t)


@case(module_sets=("ours",))
def test_open_hangs(t: Test) -> None:
    """While a file is opened on a file system that does not answer, the server's module stays."""
    folder, disk = "/mnt/hangs", disks.holdable(t, 64, disks.PLAIN)
    t.server.run(f"mkfs.ext4 -q {disk} && mkdir -p {folder} && mount {disk} {folder} && mkdir {folder}/below "
                 f"&& truncate -s 1M {folder}/below/disk.img && umount {folder} && mount {disk} {folder}")
    t.defer(t.server.run, f"umount {folder} && rmdir {folder}")
    rnbd.load(t, rnbd_server=f"dev_search_path={folder}")
    disks.hold(t, disk)
    text = rnbd.map_text(session="sess", device_path="below/disk.img", paths=[f"ip:{t.server.address}"])
    mark = t.server.log_mark()
    mapping = t.client.start_job(f"echo '{text}' >{rnbd.MAP_DEVICE}")
    t.server.wait_log("requests are not finished for 2000 ms: rnbd_server cannot be unloaded", mark)
    with t.expect_errno(BUSY):
        t.server.module_unload("rnbd_server")
    disks.let_go(t, disk)
    t.equal(mapping.wait().rc, 0, "exit code of the mapping")
    rnbd.unmap_all(t)
    _goes(t)
