# SPDX-License-Identifier: GPL-2.0
"""With state_dir reservations are kept when the server's modules are loaded again, or its machine boots again."""

from __future__ import annotations

import errno

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import guest_reservations as pr
from lib import images
from lib import rnbd
from lib.reservations import access
from lib.reservations import do
from lib.reservations import must
from lib.reservations import NOTHING
from lib.reservations import READ_ONLY
from lib.reservations import READ_WRITE
from lib.rnbd import Device

TOPOLOGY = "two"
ONLY_OURS = ("ours",)
KEPT = "/sys/class/rnbd-server/ctl/kept_reservations"
MARKER = "rnbd-reservations"
# What the erasable disk is called, and by whom its identifier was read.
EUI = 0x0123456789ABCDEF
FILE = f"eui.{EUI:016x}.reservations"


class Kept:
    """A server with a state directory; its images, which have names in the world, and the directory."""

    def __init__(self, t: Test, *, own_disk: bool = False) -> None:
        self.t = t
        t.server.modules_unload_all()
        self.images = images.file_system(t)
        self.folder = images.file_system(t, disk=disks.loop(t, 16)) if own_disk else f"{self.images}/state"
        # Unloaded before what they use is unmounted.
        t.defer(t.server.modules_unload_all)
        t.server.run(f"mkdir -p {self.folder}; touch {self.folder}/{MARKER}")
        self.load()
        self.image = images.sparse(t, self.images)

    def load(self) -> None:
        """The modules."""
        images.load(self.t, rnbd_server=f"state_dir={self.folder}")

    def again(self) -> None:
        """The server's modules are unloaded and loaded."""
        self.t.server.modules_unload_all()
        self.load()

    def files(self) -> list[str]:
        """The files of the directory."""
        return [name for name in self.t.server.listdir(self.folder) if name not in ("lost+found", MARKER)]

    def reserved(self, kind: int) -> None:
        """A machine reserves the disk, and goes."""
        first = rnbd.map_device(self.t, self.image, session="first")
        must(self.t, first, "register", other=1)
        must(self.t, first, "reserve", key=1, kind=kind)
        first.unmap()

    def two(self) -> tuple[Device, Device]:
        """The disk of two machines."""
        return (rnbd.map_device(self.t, self.image, session="first"),
                rnbd.map_device(self.t, self.image, session="second", access_mode="migration"))


@case(module_sets=ONLY_OURS, timeout=180)
def test_loaded_again(t: Test) -> None:
    """The holder has the disk still, the other machine is fenced still, and can take the disk over."""
    kept = Kept(t)
    kept.reserved(1)
    kept.again()
    first, second = kept.two()
    t.equal((access(t, first), access(t, second)), (READ_WRITE, READ_ONLY), "errnos of the holder and a stranger")
    t.equal(t.client.call(pr.keys, path=second.path), {"status": 0, "generation": 1, "count": 1, "keys": [1]}, "keys")
    must(t, second, "register", other=2)
    must(t, second, "preempt", key=2, other=1, kind=2)
    first.unmap()
    second.unmap()
    kept.again()
    first, second = kept.two()
    t.equal((access(t, first), access(t, second)), (NOTHING, READ_WRITE), "errnos after the takeover")
    t.equal(t.client.call(pr.held, path=second.path), {"status": 0, "key": 2, "generation": 3, "kind": 2}, "holder")
    must(t, second, "clear", key=2)
    t.equal(kept.files(), [], "files after clear")
    first.unmap()
    second.unmap()
    kept.again()
    first = rnbd.map_device(t, kept.image, session="first")
    t.equal(access(t, first), READ_WRITE, "errnos after clear")


@case(module_sets=ONLY_OURS, timeout=240, quick=())
def test_server_reboots(t: Test) -> None:
    """What the server has answered with success is there after it has lost power."""
    kept = Kept(t)
    kept.reserved(2)
    second = rnbd.map_device(t, kept.image, session="second")
    must(t, second, "register", other=2)
    must(t, second, "preempt", key=2, other=1, kind=2)
    t.lab.reboot(t.server)
    second.unmap("force")
    t.server.run(f"set -e; mkdir -p {kept.images}; modprobe -q ext4 || :\n"
                 f"mount -t ext4 {disks.PLAIN} {kept.images}", timeout=120)
    kept.load()
    first, second = kept.two()
    t.equal((access(t, first), access(t, second)), (NOTHING, READ_WRITE), "errnos of the old holder and the new one")
    t.equal(t.client.call(pr.keys, path=second.path)["keys"], [2], "keys")
    must(t, second, "clear", key=2)


@case(module_sets=ONLY_OURS, timeout=180, quick=())
def test_damaged_file(t: Test) -> None:
    """A disk whose file makes no sense is not opened until the administrator drops the file."""
    kept = Kept(t)
    kept.reserved(1)
    name, = kept.files()
    file = f"{kept.folder}/{name}"
    with t.expect_errno(errno.EPERM):
        rnbd.map_device(t, images.sparse(t, kept.folder), session="first")
    t.server.run(f"rm {kept.folder}/disk.img")
    damages = {"its checksum is wrong": f"printf x | dd of={file} bs=1 seek=100 conv=notrunc status=none",
               "it has 5 bytes in place of 96": f"truncate -s 5 {file}",
               "it does not begin with": f"truncate -s 1M {file}",
               "cannot read": f"rm {file}; mkdir {file}"}
    for damage, how in damages.items():
        t.server.modules_unload_all()
        t.server.run(how)
        kept.load()
        mark = t.server.log_mark()
        with t.expect_errno(errno.EUCLEAN, errno.EIO):
            rnbd.map_device(t, kept.image, session="second")
        t.server.wait_log(f"{name}.*{damage}|{damage}.*{name}", mark)
    t.server.run(f"rmdir {file}; echo nonsense > {file}")
    wwid = name.removesuffix(".reservations")
    mark = t.server.log_mark()
    t.server.write(KEPT, wwid)
    t.server.wait_log(f"the administrator has dropped the reservations of .*{wwid}", mark)
    t.equal(kept.files(), [], "files")
    with t.expect_errno(errno.ENOENT):
        t.server.write(KEPT, wwid)
    second = rnbd.map_device(t, kept.image, session="second")
    t.equal(access(t, second), READ_WRITE, "errnos when the file is gone")


@case(module_sets=ONLY_OURS, timeout=180)
def test_unreadable_name(t: Test) -> None:
    """A disk whose wwid cannot be read at the moment is not opened, and is opened again when it can be read."""
    kept = Kept(t)
    kept.image = disks.erasable(t)
    disks.identify(t, EUI)
    kept.reserved(1)
    t.equal(kept.files(), [FILE], "files")
    for error in (errno.EIO, errno.EAGAIN):
        disks.identify(t, EUI, error=error)
        mark = t.server.log_mark()
        with t.expect_errno(errno.EAGAIN):
            rnbd.map_device(t, kept.image, session="second")
        t.server.wait_log("the disk's wwid cannot be read now .*: the disk is not opened: look at the disk, and map it "
                          "again", mark)
    t.server.wait_for(f"{rnbd.SERVER_DEVICES}/erasable", gone=True)
    disks.identify(t, EUI)
    second = rnbd.map_device(t, kept.image, session="second")
    t.equal(access(t, second), READ_ONLY, "errnos of a stranger when the wwid can be read")
    # A client that had the disk tries again by itself.
    path = rnbd.client_path(t, "second")
    disks.identify(t, EUI, error=errno.EIO)
    t.client.write(f"{path}/disconnect", "1")
    t.client.wait_for(f"{second.sysfs}/state", matches="closed")
    t.server.wait_for(f"{rnbd.SERVER_DEVICES}/erasable", gone=True)
    mark = t.server.log_mark()
    rnbd.reconnect(t, path)
    t.server.wait_log("the disk's wwid cannot be read now", mark)
    t.equal(second.attribute("state"), "closed", "state while the wwid cannot be read")
    disks.identify(t, EUI)
    t.client.wait_for(f"{second.sysfs}/state", matches="open", timeout=60)
    t.equal(access(t, second), READ_ONLY, "errnos of the stranger that is back")


@case(module_sets=ONLY_OURS, timeout=180)
def test_named_later(t: Test) -> None:
    """Where keys of before the disk's wwid was known meet a file of the disk, the administrator says which count."""
    kept = Kept(t)
    kept.image = disks.erasable(t)
    disks.identify(t, EUI)
    kept.reserved(1)
    for drop, wanted in (("erasable", READ_ONLY), (FILE, NOTHING)):
        kept.again()
        disks.identify(t, 0)
        # In memory only, and of a type by which it is told from the one of the file.
        kept.reserved(2)
        t.server.wait_for(f"{rnbd.SERVER_DEVICES}/erasable", gone=True)
        disks.identify(t, EUI)
        mark = t.server.log_mark()
        with t.expect_errno(errno.EUCLEAN):
            rnbd.map_device(t, kept.image, session="second")
        t.server.wait_log("machines have registered before its wwid was known, and state_dir has reservations of "
                          f".*{FILE.removesuffix('.reservations')}.*: .* until either is cleared .*kept_reservations",
                          mark)
        t.equal(kept.files(), [FILE], "files when the disk was refused")
        if drop == FILE:
            t.server.run(f"rm {kept.folder}/{drop}")
        else:
            t.server.write(KEPT, drop)
        second = rnbd.map_device(t, kept.image, session="second")
        t.equal(access(t, second), wanted, f"errnos of a stranger when {drop} was dropped")
        second.unmap()


@case(module_sets=ONLY_OURS, timeout=180)
def test_two_devices(t: Test) -> None:
    """A device that was known before its wwid was is not opened beside another one of the same disk."""
    kept = Kept(t)
    kept.image = disks.erasable(t, devices=2)
    kept.reserved(1)
    t.server.wait_for(f"{rnbd.SERVER_DEVICES}/erasable", gone=True)
    disks.identify(t, EUI)
    holder = rnbd.map_device(t, f"{kept.image}1", session="holder")
    must(t, holder, "register", other=2)
    must(t, holder, "reserve", key=2, kind=2)
    mark = t.server.log_mark()
    with t.expect_errno(errno.EBUSY):
        rnbd.map_device(t, kept.image, session="second")
    t.server.wait_log("the server knows the disk twice, by its wwid .* and from before its wwid was known: the disk is "
                      "not opened until", mark)
    t.server.write(KEPT, "erasable")
    second = rnbd.map_device(t, kept.image, session="second")
    t.equal((access(t, holder), access(t, second)), (READ_WRITE, NOTHING), "errnos by the two devices of the disk")


@case(module_sets=ONLY_OURS, timeout=180, quick=())
def test_write_fails(t: Test) -> None:
    """A command that cannot be kept fails and changes nothing."""
    kept = Kept(t, own_disk=True)
    first, second = kept.two()
    must(t, first, "register", other=1)
    must(t, second, "register", other=2)
    must(t, first, "reserve", key=1, kind=1)
    failures = ((errno.EROFS, f"mount -o remount,ro {kept.folder}", f"mount -o remount,rw {kept.folder}"),
                (errno.ENOSPC, f"! dd if=/dev/zero of={kept.folder}/full bs=1k 2>/dev/null", f"rm {kept.folder}/full"))
    for number, begin, end in failures:
        t.server.run(begin)
        mark = t.server.log_mark()
        t.equal(do(t, second, "preempt", key=2, other=1, kind=1), -number, "preempt that cannot be kept")
        t.server.wait_log("state_dir: cannot write", mark)
        # It changes nothing, so there is nothing to write.
        must(t, first, "reserve", key=1, kind=1)
        t.equal((access(t, first), access(t, second)), (READ_WRITE, READ_ONLY), "errnos after the failure")
        t.server.run(end)
    first.unmap()
    second.unmap()
    kept.again()
    first, second = kept.two()
    t.equal((access(t, first), access(t, second)), (READ_WRITE, READ_ONLY), "errnos of what is kept")
    must(t, second, "preempt", key=2, other=1, kind=1)
    t.equal((access(t, first), access(t, second)), (READ_ONLY, READ_WRITE), "errnos after preempt")


@case(module_sets=ONLY_OURS, timeout=180)
def test_administrator(t: Test) -> None:
    """The administrator drops what is kept, of open disks and of others; disks without a name are not kept."""
    kept = Kept(t)
    folder = images.exported(kept.image)
    device = rnbd.map_device(t, kept.image, session="first")
    must(t, device, "register", other=1)
    t.server.write(f"{folder}/clear_reservations", "1")
    t.equal(kept.files(), [], "files after clear_reservations")
    must(t, device, "register", other=1)
    t.equal(len(kept.files()), 1, "files")
    device.unmap()
    t.server.wait_for(folder, gone=True)
    t.server.write(KEPT, folder.rsplit("/", 1)[-1])
    t.equal(kept.files(), [], "files after kept_reservations")
    mark = t.server.log_mark()
    nameless = rnbd.map_device(t, disks.null_blk(t), session="first")
    t.server.wait_log("has no wwid: its reservations are not in state_dir", mark)
    must(t, nameless, "register", other=1)
    t.equal(kept.files(), [], "files of a disk without a name")


@case(module_sets=ONLY_OURS, quick=())
def test_c_client(t: Test) -> None:
    """A C client uses the disk as ever, and is fenced when the server is loaded again."""
    kept = Kept(t)
    rnbd.use_set(t.client, "c")
    t.defer_once(rnbd.use_set, t.client, t.modules)
    kept.load()
    stranger = rnbd.map_device(t, kept.image, session="stranger")
    rnbd.works(t, stranger)
    stranger.unmap()
    rnbd.use_set(t.client, t.modules)
    kept.load()
    kept.reserved(1)
    rnbd.use_set(t.client, "c")
    kept.again()
    stranger = rnbd.map_device(t, kept.image, session="stranger")
    t.equal(access(t, stranger), READ_ONLY, "errnos of a C client")
