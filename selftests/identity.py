# SPDX-License-Identifier: GPL-2.0
"""A client's disk has the identity of the server's disk, and is no other disk later."""

from __future__ import annotations

from lab.selftest_case import case
from lab.selftest_case import OTHER
from lab.selftest_case import Test
from lib import disks
from lib import guest_partition
from lib import images
from lib import rnbd
from lib.rnbd import Device

TOPOLOGY = "one"
ONLY_OURS = ("ours",)


def wwid(device: Device) -> str | None:
    """The name of a disk in the world, if the kernel shows one."""
    file = f"/sys/block/{device.name}/wwid"
    return device.node.read(file) if device.node.exists(file) else None


@case(module_sets=ONLY_OURS, quick=("stock", OTHER))
def test_scsi_disk(t: Test) -> None:
    """A SCSI disk and its partition have the same name at every client, and by a second server."""
    rnbd.load(t)
    disk = disks.scsi_debug(t, dev_size_mb=32)
    wanted = t.server.read(f"/sys/block/{disk[5:]}/device/wwid")
    t.check(wanted.startswith("naa."), f"the server's disk is called {wanted}")
    first = rnbd.map_device(t, disk, access_mode="migration")
    second = rnbd.map_device(t, disk, session="second", access_mode="migration")
    t.equal([wwid(first), wwid(second)], [wanted] * 2, "names of the same disk in two sessions")
    # The client's disk is a server's disk, too: that asks the client's driver.
    again = rnbd.map_device(t, first.path, session="third", access_mode="ro")
    t.equal(wwid(again), wanted, "name at the client of a client")
    again.unmap()
    t.server.call(guest_partition.add, path=disk, number=1, start=1 << 20, length=2 << 20)
    t.defer(t.server.call, guest_partition.delete, path=disk, number=1)
    part = rnbd.map_device(t, f"{disk}1", session="fourth", access_mode="ro")
    t.equal(wwid(part), f"{wanted}-part1", "name of the partition")


@case(module_sets=ONLY_OURS, quick=("stock", OTHER))
def test_file(t: Test) -> None:
    """A file has a name that goes by its file system and its number there, not by its path."""
    images.load(t)
    folder = images.file_system(t)
    path = images.sparse(t, folder)
    uuid = t.server.sh(f"blkid -o value -s UUID {disks.PLAIN}").replace("-", "")
    inode = int(t.server.sh(f"stat -c %i {path}"))
    device = rnbd.map_device(t, path)
    name = wwid(device)
    t.check(name is not None and name.startswith(f"file.{uuid}.{inode:x}."), f"the file is called {name}")
    t.server.run(f"ln {path} {folder}/hard; mv {path} {folder}/moved")
    other = rnbd.map_device(t, f"{folder}/hard", session="second", access_mode="ro")
    t.equal(wwid(other), name, "name by another path")
    other.unmap()
    device.unmap()
    # A new file with the number of a deleted one.
    t.server.run(f"rm {folder}/hard {folder}/moved; sync")
    device = rnbd.map_device(t, images.sparse(t, folder))
    t.check(wwid(device) not in (None, name), f"a new file is called {wwid(device)} as well")


@case(module_sets=ONLY_OURS)
def test_without(t: Test) -> None:
    """A disk that has no name in itself has no such file, and is mapped as ever."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.loop(t, 16))
    t.equal(wwid(device), None, "name of a loop device")
    rnbd.works(t, device)


@case(module_sets=ONLY_OURS)
def test_another_disk(t: Test) -> None:
    """A disk that comes back as another one is refused; the first one is taken again."""
    images.load(t)
    folder = images.file_system(t)
    path = images.sparse(t, folder)
    device = rnbd.map_device(t, path)
    name = wwid(device)
    client_path = rnbd.client_path(t, "sess")

    t.client.write(f"{client_path}/disconnect", "1")
    t.client.wait_for(f"{device.sysfs}/state", matches="closed")
    t.server.wait_for(images.exported(path), gone=True)
    t.server.run(f"mv {path} {folder}/first; truncate -s {images.SIZE} {path}")
    mark = t.client.log_mark()
    rnbd.reconnect(t, client_path)
    t.client.wait_log("the server has another disk by this device path now, file\\..* and not file\\.", mark)
    t.equal(device.attribute("state"), "closed", "state with another file")
    t.server.wait_for(images.exported(path), gone=True)
    t.equal(wwid(device), name, "name meanwhile")

    t.server.run(f"ln -sf {disks.WITHOUT_DISCARD} {path}")
    mark = t.client.log_mark()
    t.client.run(f"echo 1 > {device.sysfs}/remap_device", check=False)
    t.client.wait_log("the server has another disk by this device path now, no name and not file\\.", mark)
    t.equal(device.attribute("state"), "closed", "state with a disk that has no name")

    t.server.run(f"mv {folder}/first {path}")
    t.client.write(f"{device.sysfs}/remap_device", "1")
    t.client.wait_for(f"{device.sysfs}/state", matches="open")
    rnbd.works(t, device)
