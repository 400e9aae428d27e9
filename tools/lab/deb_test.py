# SPDX-License-Identifier: GPL-2.0
"""`lab deb-test`: the packages on a machine: installed, booted, upgraded, removed.

With --quick there is one boot, and the kernel's Rust metadata comes from the
cache; otherwise it is made on the machine too, and what goes wrong is tried.
"""

from __future__ import annotations

import argparse
import shutil
import struct
import subprocess
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

from . import c_modules
from . import cache
from . import deb
from . import deb_machine
from . import documents
from . import foreign
from . import kernel
from . import paths
from . import run
from . import setup
from . import steps
from .arch import ARM64
from .deb_initramfs import LegOfItsOwn
from .deb_machine import Disk
from .deb_mirror import MirrorAtBoot
from .story import expect
from .story import run as run_story
from .vm import Disk as DataDisk
from .vm import Platform
from .vm import sparse_disk
from .vm_platform import platform

NEXT_VERSION = "99.0"
SESSION = "store"
CONFIG = f"""# changed by the administrator
[[session]]
name = "{SESSION}"
paths = ["ip:10.77.0.2"]
devices = ["vdb", {{ path = "vdc", access_mode = "ro" }}]
"""
MOUNT = "/srv/data"
FSTAB = f"/dev/rnbd/by-session/{SESSION}/vdb {MOUNT} ext4 {{options}}_netdev,x-systemd.requires=rnbd.service 0 2\n"
PATIENT = "nofail,x-systemd.device-timeout=infinity,"
LINKS = f"/dev/rnbd/by-session/{SESSION}"
CONFFILE = "/etc/rnbd/rnbd.toml"
HOST = "/etc/modprobe.d/rnbd-host.conf"
# An emulated machine on a busy host stands still now and then.
MODULE_OPTIONS = "options rtrs_client ack_timeout_ms=8000\n"


NEWER = "7.9.1+deb13-amd64"
# A package as that of a kernel and its headers, but for the kernel; installed with apt.
MADE_UP_KERNEL = """set -e
tree=$(mktemp -d)
mkdir -p "$tree/DEBIAN" "$tree/boot" "$tree/usr/src/linux-headers-{new}" "$tree/usr/lib/modules/{new}"
cp -r /usr/src/linux-headers-{old}/.config /usr/src/linux-headers-{old}/Makefile \\
	/usr/src/linux-headers-{old}/include "$tree/usr/src/linux-headers-{new}"
echo none > "$tree/boot/vmlinuz-{new}"
ln -s /usr/src/linux-headers-{new} "$tree/usr/lib/modules/{new}/build"
printf '%s\\n' 'Package: linux-image-{new}' 'Version: 7.9.1-1' 'Architecture: amd64' \\
	'Maintainer: none <none@none.invalid>' 'Description: made up' > "$tree/DEBIAN/control"
printf '%s\\n' '#!/bin/sh -e' \\
	'run-parts --report --arg={new} --arg=/boot/vmlinuz-{new} /etc/kernel/postinst.d' \\
	'run-parts --report --arg={new} /etc/kernel/header_postinst.d' > "$tree/DEBIAN/postinst"
chmod 755 "$tree/DEBIAN/postinst" "$tree"
dpkg-deb -b "$tree" "$tree.deb"
apt-get -q install -y "$tree.deb" """


class Story:
    """The cases, in order; each goes on from what the one before left."""

    def __init__(self, directory: Path, quick: bool) -> None:
        self.directory = directory
        self.quick = quick
        self.release = kernel.chosen().release
        self.log = steps.log_path("deb-test")
        self.log.write_text("")
        self.debs = directory / "debs"
        self.debs.mkdir()
        self.disk: Disk = deb_machine.fresh_disk(directory, [run.Bind(self.debs, "/mnt/debs")])
        self.before: dict[str, str] = {}
        self.host_uuid = ""
        self.modules = directory / "modules"
        self.pair: deb_machine.Pair | None = None
        self.at_boot: MirrorAtBoot | None = None

    def cases(self) -> list[Callable[[], None]]:
        if self.quick:
            return [self.install, self.newer_kernel, self.boot, self.names, self.documented, self.identity,
                    self.mirror, self.own_test, self.shut_down, self.purge]
        return [
            self.without_source, self.source_arrives, self.wrong_source, self.purge,
            self.install, self.newer_kernel, self.boot, self.names, self.documented, self.identity,
            self.mirror, self.own_test, self.names_with_c, self.shut_down,
            self.mirror_created, self.mirror_after_a_shutdown, self.mirror_after_a_power_cut,
            self.mirror_without_a_server, self.leg_of_its_own,
            self.upgrade, self.boot_without_server, self.shut_down,
            self.remove_keeps_configuration, self.purge, self.for_arm64,
        ]  # fmt: skip

    # On the disk

    def sh(self, script: str) -> None:
        self.disk.sh(script, self.log)

    def apt_install(self, *files: str) -> str:
        """Installs packages by file name; gives what apt printed."""
        names = " ".join(f"/mnt/debs/{name}" for name in files)
        return self.disk.output(f"apt-get -q install -y --no-install-recommends {names} 2>&1")

    def dkms_status(self) -> str:
        return self.disk.output("dkms status 2>/dev/null").strip()

    def take_files(self) -> None:
        if not self.before:
            self.before = self.disk.files()

    def copy_debs(self, version: str | None) -> list[str]:
        found = deb.build_to_test(version, crate=False)
        for file in found:
            shutil.copy(file, self.debs / file.name)
        return [file.name for file in found]

    def without_source(self) -> None:
        """Without the kernel's source the installation succeeds and says what to install."""
        self.sh(f"dpkg --force-depends --remove linux-source-{kernel.chosen().series}")
        self.take_files()
        self.copy_debs(None)
        said = self.disk.output("dpkg --force-depends -i /mnt/debs/rnbd-dkms_*.deb 2>&1")
        expect(f"the source of kernel {self.release} is not installed" in said, said)
        expect("remedy: apt install linux-source-" in said, said)
        expect("installed" not in self.dkms_status(), self.dkms_status())

    def source_arrives(self) -> None:
        """The modules are built when the source comes."""
        source = next(cache.root().glob(f"debs/*/linux-source-{kernel.chosen().series}_*.deb"))
        shutil.copy(source, self.debs / "source.deb")
        said = self.disk.output("dpkg -i /mnt/debs/source.deb 2>&1")
        expect("Installing /lib/modules" in said, said)
        expect(f"{self.release}, x86_64: installed" in self.dkms_status(), self.dkms_status())
        sources = ("usr/src/linux-source", "usr/share/doc/linux-source")
        self.before |= {name: what for name, what in self.disk.files().items() if name.startswith(sources)}

    def wrong_source(self) -> None:
        """A source of another version is named when the modules have to be built, and nothing is built with it."""
        helper = f"/usr/src/rnbd-{deb.version()}/packaging/dkms/rnbd-dkms"
        self.sh("cp /var/lib/dpkg/status /root/status; "
                f"dkms uninstall -m rnbd -v {deb.version()} -k {self.release}; rm -r /var/cache/rnbd-dkms/*; "
                "sed -i '/^Package: linux-source-/,/^$/s/^Version: .*/Version: 7.3.1-1/' /var/lib/dpkg/status")
        said = self.disk.output(f"{helper} check {self.release} || true; {helper} install {deb.version()}; "
                                "cp /root/status /var/lib/dpkg/status")
        expect("is version 7.3.1-1, but linux-headers" in said, said)
        expect("installed" not in self.dkms_status(), self.dkms_status())

    def install(self) -> None:
        """Both packages install with apt; modules are built and everything is in its place."""
        self.take_files()
        # Made once from nothing is enough; `source_arrives' does that.
        binds = [*self.disk.binds, run.Bind(deb_machine.metadata().path / "rnbd-dkms", "/mnt/metadata")]
        argv = run.chroot_command(self.disk.mount, ["cp", "-a", "/mnt/metadata/.", "/var/cache/rnbd-dkms"], binds,
                                  image=self.disk.file)
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
        self.copy_debs(None)
        # As the document says, to the letter.
        said = self.disk.output(f"cd /mnt/debs\nexec 2>&1\n{documented('apt install')[0].text}")
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(said)
        expect(f"{self.release}, x86_64: installed" in self.dkms_status(), said)
        expect("no modules can be built" not in said, said)
        self.disk.output(
            "set -e; test -f /etc/rnbd/rnbd.toml; rnbdctl --version; man -w rnbdctl; man -w fence_rnbd\n"
            "fence_rnbd -o metadata | grep -q '<action name=\"on\"'\n"
            "test -e /etc/systemd/system/multi-user.target.wants/rnbd.service\n"
            "cd /etc/systemd/system/multi-user.target.wants\n"
            "! test -e rnbd-exporter.service; ! test -e fence-rnbd-watch.service\n"
            "test -s /usr/share/bash-completion/completions/rnbdctl\n"
            "rnbdctl schema | cmp - /usr/share/rnbdctl/schema.json\n"
            f"modinfo -k {self.release} rnbd_client rnbd_server >/dev/null\n"
            "systemd-analyze verify --man=no rnbd.service rnbd-exporter.service fence-rnbd-watch.service "
            "rnbd-mirror.path rnbd-mirror.service rnbd-mirror-stop.service; "
            "udevadm verify /usr/lib/udev/rules.d/60-rnbd.rules /usr/lib/udev/rules.d/62-rnbd-mirror.rules"
        )
        # An empty configuration is one that says nothing.
        self.disk.output("rnbdctl config check")
        self.host_uuid = self.disk.output(f"sed -n 's/^options rnbd_client host_uuid=//p' {HOST}").strip()
        expect(str(uuid.UUID(self.host_uuid)) == self.host_uuid, f"host_uuid is {self.host_uuid!r}")

    def newer_kernel(self) -> None:
        """A kernel newer than the modules know breaks nothing: apt succeeds, and warns before it boots."""
        said = self.disk.output(f"{MADE_UP_KERNEL.format(old=self.release, new=NEWER)} 2>&1")
        expect(f"kernel {NEWER} is newer than these modules, which are made for" in said, said)
        expect(f"WARNING: kernel {NEWER}, the newest, has no RNBD modules" in said, said)
        expect(f"To go on with kernel {self.release}:" in said, said)
        expect(self.disk.output(f"dpkg-query -W -f '${{db:Status-Status}}' linux-image-{NEWER}") == "installed", said)
        expect(f"{self.release}, x86_64: installed" in self.dkms_status(), self.dkms_status())
        expect(NEWER not in self.dkms_status(), self.dkms_status())
        checked = self.disk.output("rnbd-dkms check || true")
        expect(f"kernel {self.release}: the modules are installed\n" in f"{checked}\n", checked)
        expect(f"no modules can be built for kernel {NEWER}" in checked, checked)

    def upgrade(self) -> None:
        """A higher version is built anew and keeps the configuration."""
        made = self.copy_debs(NEXT_VERSION)
        metadata_before = self.disk.output("stat -c %Y /var/cache/rnbd-dkms/*/key.json")
        said = self.apt_install(*made)
        expect(f"rnbd/{NEXT_VERSION}, {self.release}, x86_64: installed" in self.dkms_status(), said)
        expect(f"rnbd/{deb.version()}" not in self.dkms_status(), self.dkms_status())
        expect(self.disk.output(f"cat {CONFFILE}") == CONFIG, "the configuration changed")
        expect(self.host_uuid in self.disk.output(f"cat {HOST}"), "the name of the machine changed")
        expect(self.disk.output("stat -c %Y /var/cache/rnbd-dkms/*/key.json") == metadata_before,
               "metadata was made again for nothing")
        expect(self.disk.output("dpkg-query -W -f '${Version}' rnbdctl") == NEXT_VERSION,
               "rnbdctl is not of the new version")
        # It was not installed before.
        self.disk.output("set -e; rnbd-csi --version; man -w rnbd-csi\n"
                         "test -s /usr/share/doc/rnbd-csi/examples/kubernetes/driver.yaml")

    def remove_keeps_configuration(self) -> None:
        """Removing takes all but the configuration."""
        # The made-up kernel, which a running machine has purged from its copy of the disk only.
        self.disk.output(f"dpkg --purge linux-image-{NEWER}; apt-get -q remove -y rnbd-csi rnbd-dkms rnbdctl 2>&1")
        expect(self.dkms_status() == "", self.dkms_status())
        left = self.left()
        # That the service is enabled is configuration too.
        kept = ("etc/apt/apt.conf.d/80rnbd-dkms", "etc/modprobe.d/rnbd-host.conf", "etc/rnbd", "etc/rnbd/rnbd.toml",
                "etc/systemd/system/multi-user.target.wants/rnbd.service",
                "etc/systemd/system/paths.target.wants/rnbd-mirror.path")
        expect(left == [f"left behind: /{name}" for name in kept], "\n".join(left))

    def purge(self) -> None:
        """Purging leaves nothing behind."""
        # apt refuses patterns of packages that it does not know.
        self.disk.output(f"names=$(dpkg-query -f '${{Package}} ' -W 'rnbd*' 'linux-image-{NEWER}*' 2>/dev/null || :)\n"
                         "test -n \"$names\" && apt-get -q purge -y $names 2>&1")
        left = self.left()
        expect(not left, "\n".join(left))
        expect(self.dkms_status() == "", self.dkms_status())

    # The machine

    own = (*deb_machine.NETWORK, "etc/modprobe.d/test.conf", "srv/data", "etc/.updated", "var/.updated")

    def left(self) -> list[str]:
        """What is not as it was before the packages, besides what this test put there as the administrator."""
        # Enabling units of the network makes links and folders.
        mine = {*self.own, "host", "etc/fstab", "etc/machine-id"}

        def counts(name: str) -> bool:
            return name not in mine and ("rnbd" in name or not name.startswith(("etc/systemd/system/", "etc/lvm/")))

        after = self.disk.files()
        return deb_machine.difference(
            {name: what for name, what in self.before.items() if counts(name)},
            {name: what for name, what in after.items() if counts(name)},
        )

    def configure(self, fstab: str) -> None:
        """Writes what an administrator writes."""
        files = {**deb_machine.NETWORK, "etc/modprobe.d/test.conf": MODULE_OPTIONS,
                 "etc/rnbd/rnbd.toml": CONFIG, "etc/fstab": fstab}
        deb_machine.configure(self.disk, self.directory, files, "systemd-networkd soft-roce")
        self.sh(f"mkdir -p {MOUNT}")

    def made_of(self) -> Platform:
        """What the machines are made of, with the modules that DKMS made."""
        deb_machine.extract_modules(self.disk, self.modules)
        return platform("stock", {"ours": self.modules, "c": c_modules.folder("stock")})

    def start_pair(self, with_server: bool) -> None:
        pair = deb_machine.Pair(self.made_of(), self.disk, self.directory)
        self.pair = pair
        pair.server.spec.disks = [DataDisk(self.file_system()), DataDisk(self.partitioned())]
        # The server first: it needs a fraction of the time.
        pair.server.start()
        pair.finish_boot(pair.server)
        if with_server:
            self.start_server()
        pair.client.start()
        pair.finish_boot(pair.client)

    def start_server(self) -> None:
        assert self.pair is not None
        self.pair.server.modules_load("rnbd_server", rtrs_server="ack_timeout_ms=8000",
                                      rnbd_server="dev_search_path=/dev")

    def file_system(self) -> Path:
        """A disk with a file to be found through the mount."""
        image = sparse_disk(self.directory, "vdb.img", 64 << 20)
        tree = self.directory / "content"
        tree.mkdir(exist_ok=True)
        (tree / "greeting").write_text("hello\n")
        binds = [run.Bind(tree, "/mnt/content"), run.Bind(image, "/mnt/vdb.img")]
        argv = ["mkfs.ext4", "-q", "-F", "-L", "remote", "-d", "/mnt/content", "/mnt/vdb.img"]
        run.chroot(paths.build_root(), argv, binds, self.log)
        return image

    def partitioned(self) -> Path:
        """A disk with one partition."""
        image = sparse_disk(self.directory, "vdc.img", 64 << 20)
        entry = struct.pack("<B3sB3sII", 0, b"", 0x83, b"", 2048, 4096)
        with open(image, "r+b") as file:
            file.seek(446)
            file.write(entry.ljust(64, b"\0") + b"\x55\xaa")
        return image

    def sh_client(self, command: str, timeout: float = 60.0) -> str:
        assert self.pair is not None
        return self.pair.sh(command, timeout)

    def wait_client(self, command: str, what: str, timeout: float = 120.0) -> None:
        assert self.pair is not None
        self.pair.wait(command, what, timeout)

    def boot(self) -> None:
        """After a reboot the disks of rnbd.toml are mapped and what fstab says is mounted."""
        self.configure(FSTAB.format(options=""))
        self.start_pair(with_server=True)
        self.wait_client("systemctl is-active -q multi-user.target remote-fs.target", "the boot does not get ready",
                         240)
        state = self.sh_client("systemctl is-active rnbd.service srv-data.mount || true")
        expect(state.split() == ["active", "active"], state)
        expect(self.sh_client(f"cat {MOUNT}/greeting") == "hello", "the file on the remote disk")
        failed = self.sh_client("systemctl --failed --plain --no-legend")
        expect(failed == "", failed)
        name = self.sh_client("cat /sys/module/rnbd_client/parameters/host_uuid")
        expect(name == self.host_uuid, f"host_uuid is {name}, the package has written {self.host_uuid}")

    def names(self) -> None:
        """Stable names: of both disks, of a partition, and by label."""
        self.wait_client(f"test -e {LINKS}/vdc-part1", "a partition has no name", 60)
        links = self.sh_client(f"cd {LINKS}; for l in *; do echo $l $(basename $(readlink -f $l)); done").splitlines()
        for link in links:
            name, disk = link.split()
            part = ""
            if name.endswith("-part1"):
                name, part = name.removesuffix("-part1"), "p1"
            path = self.sh_client(f"cat /sys/block/{disk.removesuffix('p1')}/rnbd/mapping_path")
            expect(path == name and disk.endswith(part), link)
        expect([link.split()[0] for link in links] == ["vdb", "vdc", "vdc-part1"], str(links))
        mounted = self.sh_client(f"basename $(findmnt -no SOURCE {MOUNT})")
        expect(self.sh_client("basename $(readlink -f /dev/disk/by-label/remote)") == mounted, "no link by label")

    def documented(self) -> None:
        """The other commands of the documents for such a machine do what they are to do."""
        # With the made-up kernel the check rightly fails.
        self.sh_client(f"dpkg --purge linux-image-{NEWER}", 120)
        for block in documented(""):
            if not block.text.startswith("apt install"):
                self.sh_client(f"set -e\n{block.text}", 120)
        expect("rnbd_server" in self.sh_client("cat /proc/modules"), "rnbd_server is not loaded")
        self.sh_client("modprobe -r rnbd_server && modprobe rnbd_server")
        self.wait_client("rnbdctl server policy show | grep -q '^allow '",
                         "the module was loaded again without its policy", 30)

    def identity(self) -> None:
        """A disk with a wwid has one link by it, however often it is mapped, and LVM takes the disk."""
        assert self.pair is not None
        server = self.pair.server
        server.run("modprobe sd_mod; modprobe scsi_debug dev_size_mb=64")
        disk = server.sh("ls /sys/bus/pseudo/drivers/scsi_debug/adapter*/host*/target*/*/block")
        wwid = server.read(f"/sys/block/{disk}/device/wwid")
        link = f"/dev/disk/by-id/rnbd-{wwid}"
        for order in (("rw", "ro"), ("ro", "rw")):
            for mode in order:
                self.map_by_hand(disk, mode)
            # An event of the other disk changes nothing.
            self.sh_client("udevadm trigger /dev/rnbd/by-session/ro/*; udevadm settle")
            self.leads(link, "rw")
            self.unmap_by_hand("rw")
            self.leads(link, "ro")
            self.unmap_by_hand("ro")
            expect(self.sh_client(f"ls {link} 2>/dev/null || true") == "", "the link is left after unmapping")
        self.map_by_hand(disk, "rw")
        self.sh_client(f"set -e; pvcreate {link}; vgcreate group {link}; lvcreate -qy -L 16M -n volume group", 60)
        self.unmap_by_hand("rw", "vgchange -q -an group")
        # Whatever its number and its session are.
        self.map_by_hand(disk, "again", "rw")
        said = self.sh_client("vgchange -ay group; lvs --noheadings -o lv_name,devices group", 60)
        expect("volume" in said, said)
        self.sh_client("vgremove -qy group")
        self.unmap_by_hand("again")
        server.run("modprobe -r scsi_debug")

    def mirror(self) -> None:
        """A mirror of two disks is assembled when both are mapped, whatever their numbers and sessions are."""
        assert self.pair is not None
        server = self.pair.server
        server.run("modprobe sd_mod; modprobe scsi_debug dev_size_mb=64 add_host=2 per_host_store=1")
        disks = server.sh("ls -d /sys/bus/pseudo/drivers/scsi_debug/adapter*/host*/target*/*/block/*").split()
        names = [Path(disk).name for disk in disks]
        wwids = [server.read(f"/sys/block/{name}/device/wwid") for name in names]
        links = [f"/dev/disk/by-id/rnbd-{wwid}" for wwid in wwids]
        for name in names:
            self.map_by_hand(name, name, "rw")
        create = "mdadm --create /dev/md/mirror --run --level=1 --raid-devices=2 --assume-clean"
        self.sh_client(f"set -e; udevadm settle\n{create} {' '.join(links)}\n"
                       "udevadm settle; echo hello | dd of=/dev/md/mirror bs=4096 conv=sync oflag=direct", 120)
        for name in names:
            self.unmap_by_hand(name, "mdadm -q --stop /dev/md/mirror 2>/dev/null || true")
        for name in reversed(names):
            self.map_by_hand(name, f"again-{name}", "rw")
        self.wait_client("test -b /dev/md/mirror", "the mirror is not assembled", 60)
        state = self.sh_client("udevadm settle; cat /proc/mdstat; mdadm --detail /dev/md/mirror; "
                               "dd if=/dev/md/mirror bs=5 count=1 iflag=fullblock")
        expect("[UU]" in state and "active" in state and state.endswith("hello"), state)
        for name in names:
            self.unmap_by_hand(f"again-{name}", "mdadm -q --stop /dev/md/mirror 2>/dev/null || true")
        server.run("modprobe -r scsi_debug")

    def mirror_created(self) -> None:
        """On a machine that has created its mirror, the service starts by itself, and the mirror can be mounted."""
        self.at_boot = MirrorAtBoot(self.made_of(), self.disk, self.directory, MODULE_OPTIONS)
        self.at_boot.create()

    def mirror_after_a_shutdown(self) -> None:
        """A shutdown stops the mirror in order, and the next boot mounts it."""
        assert self.at_boot is not None
        self.at_boot.after_a_shutdown()

    def mirror_after_a_power_cut(self) -> None:
        """A machine that lost its power mounts its mirror when it boots."""
        assert self.at_boot is not None
        self.at_boot.after_a_power_cut()

    def mirror_without_a_server(self) -> None:
        """The mirror is mounted at a boot while a server is away, and is whole when the server is back."""
        assert self.at_boot is not None
        self.at_boot.without_a_server()

    def leg_of_its_own(self) -> None:
        """In the initial RAM disk mdadm starts an array of the machine, and leaves its leg of a mirror alone, also when
        the root file system is found late, and when mdadm.conf names the leg."""
        at_boot = self.at_boot
        assert at_boot is not None
        expect(setup.setup("initramfs"), "the set-up of a machine with an initial RAM disk failed")
        array, line = at_boot.array(), at_boot.line()
        at_boot.close()
        own = LegOfItsOwn(self.directory, self.debs, self.log)
        try:
            own.install()
            made_of, leg = self.made_of(), at_boot.images[0]
            own.boot(made_of, leg, array)
            own.find_root_late()
            own.boot(made_of, leg, array)
            own.find_root_late(line)
            own.boot(made_of, leg, array)
        finally:
            own.close()
        self.at_boot = None

    def map_by_hand(self, disk: str, session: str, mode: str = "") -> None:
        """Maps a disk of the server by a session with a name; the access mode is called the same, or `mode`."""
        assert self.pair is not None
        self.pair.client.write("/sys/class/rnbd-client/ctl/map_device",
                               f"sessname={session} path=ip:10.77.0.2 device_path={disk} access_mode={mode or session}")
        self.wait_client(f"test -b /dev/rnbd/by-session/{session}/{disk}", "a disk has no name", 60)

    def unmap_by_hand(self, session: str, before: str = "") -> None:
        """Unmaps the disk of a session."""
        self.sh_client(f"set -e; {before}\nd=$(basename $(readlink -f /dev/rnbd/by-session/{session}/*))\n"
                       "udevadm settle; echo normal > /sys/block/$d/rnbd/unmap_device; udevadm settle", 60)

    def leads(self, link: str, session: str) -> None:
        """A link leads to the disk of a session."""
        ends = self.sh_client(f"readlink -f {link} /dev/rnbd/by-session/{session}/*").split()
        expect(len(ends) == 2 and ends[0] == ends[1], f"{link} leads to {ends[0]}, the disk of {session} is {ends[1:]}")

    def for_arm64(self) -> None:
        """The programs' packages for arm64 have programs for arm64, and depend on nothing of amd64."""
        expect(setup.setup("deb"), "the set-up of what builds packages failed")
        # With the package that is the same for all architectures, which was made before.
        made = [file for file in deb.build_to_test(built_for=ARM64) if file.stem.endswith("_arm64")]
        expect([file.name.split("_")[0] for file in made] == ["rnbd-csi", "rnbdctl"], f"the packages are {made}")
        for file in made:
            program = file.name.split("_")[0]
            tree = self.directory / f"arm64-{program}"
            run.call(["dpkg-deb", "-x", str(file), str(tree)], self.log)
            head = (tree / "usr/bin" / program).read_bytes()[:20]
            expect(head[:4] == b"\x7fELF" and int.from_bytes(head[18:20], "little") == foreign.ELF_MACHINES["arm64"],
                   f"usr/bin/{program} begins with {head.hex()}")
            control = subprocess.run(["dpkg-deb", "-f", str(file)], capture_output=True, text=True, check=True).stdout
            expect("\nArchitecture: arm64\n" in control and "libc6 (>=" in control, control)

    def own_test(self) -> None:
        """The test in the packages, which is made for autopkgtest, maps a disk of this machine over soft-RoCE."""
        assert self.pair is not None
        self.sh_client("systemctl stop srv-data.mount; systemctl stop rnbd; modprobe -r rnbd_client rnbd_server", 60)
        self.pair.client.create("/root/map-disk", (paths.CHECKOUT / "debian/tests/map-disk").read_text())
        said = self.sh_client("sh /root/map-disk", 120)
        expect("mapped 67108864 bytes, wrote and read 16 MiB, unmapped" in said, said)
        self.sh_client("systemctl start rnbd srv-data.mount", 120)

    def names_with_c(self) -> None:
        """The names are there with the C modules too, mapped by hand."""
        assert self.pair is not None
        client = self.pair.client
        self.sh_client("systemctl stop srv-data.mount; systemctl stop rnbd; modprobe -r rnbd_client", 60)
        client.modules_unload_all()
        client.module_set = "c"
        client.modules_load("rnbd_client")
        for path in ("vdb", "/vdc"):
            client.write("/sys/class/rnbd-client/ctl/map_device",
                         f"sessname=byhand path=ip:10.77.0.2 device_path={path}")
        self.wait_client("test -b /dev/rnbd/by-session/byhand/vdb -a -b /dev/rnbd/by-session/byhand/vdc-part1",
                         "no names with the C modules", 60)
        self.sh_client("udevadm settle; for d in /sys/block/rnbd*; do echo force > $d/rnbd/unmap_device; done; "
                       "udevadm settle")
        expect(self.sh_client("ls -A /dev/rnbd 2>/dev/null || true") == "", "names are left after unmapping")
        client.modules_unload_all()
        client.module_set = "ours"
        self.sh_client("systemctl start rnbd srv-data.mount", 120)

    def boot_without_server(self) -> None:
        """Without its server the machine gets ready all the same, and mounts the disk when that comes."""
        self.configure(FSTAB.format(options=PATIENT))
        self.start_pair(with_server=False)
        self.wait_client("systemctl is-active -q multi-user.target", "the boot waits for the server", 240)
        expect(self.sh_client("systemctl show -P SubState rnbd.service") == "running", "rnbd.service does not wait")
        self.start_server()
        self.wait_client(f"test -e {MOUNT}/greeting", "the disk is not mounted when the server is there", 120)

    def shut_down(self) -> None:
        """Shutting down unmaps: the server is told at once. No kernel says anything bad."""
        pair = self.pair
        assert pair is not None
        trouble = [line for node in pair.nodes for line in node.dmesg_check()]
        expect(not trouble, "\n".join(trouble[:40]))
        pair.shut_down(SESSION)
        self.close()

    def close(self) -> None:
        if self.pair is not None:
            self.pair.close()
            self.pair = None
        if self.at_boot is not None:
            self.at_boot.close()

    def last_words(self) -> str:
        """The end of the consoles of the machines that run."""
        pair = self.at_boot.pair if self.at_boot is not None else self.pair
        return pair.last_words(40) if pair is not None else ""


def documented(start: str) -> list[documents.Block]:
    """The blocks of all documents for a machine with the packages that begin with `start`, install.md's first."""
    names = sorted(documents.documents(), key=lambda path: path.stem != "install")
    found = [block for path in names for block in documents.blocks(path)]
    return [block for block in found if block.place == "install" and block.text.startswith(start)]


def main(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="rnbd-deb-", dir=options.scratch) as folder:
        story = Story(Path(folder), options.quick)
        try:
            return run_story(story.cases(), story.last_words)
        finally:
            story.close()


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("deb-test", help="install, boot, upgrade and remove the Debian packages")
    command.add_argument("--quick", action="store_true", help="one boot, and metadata from the cache")
    command.add_argument("--scratch", type=Path, help="where to put disk images for the time (several GB)")
    command.set_defaults(run=main)

