# SPDX-License-Identifier: GPL-2.0
"""A server with an initial RAM disk of its own, whose disk is a leg of a mirror: mdadm leaves the leg alone. Part of
`lab deb-test`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from . import deb_machine
from . import kernel
from . import run
from .deb_machine import Disk
from .deb_machine import Pair
from .story import expect
from .vm import Disk as DataDisk
from .vm import Platform

RULE = "/usr/lib/udev/rules.d/62-rnbd-mirror.rules"
AGENT = deb_machine.AGENT_UNIT.replace("[Service]", "RequiresMountsFor=/host\n[Service]")
FSTAB = "host /host 9p trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose 0 0\n"
# The root file system is found when mdadm has given up waiting for missing disks, after 20 tries.
LATE_TRIES = 25
LATE_ROOT = f"""#!/bin/sh
[ "${{1:-}}" != prereqs ] || exit 0
tries=$(cat /run/late.tries 2>/dev/null || echo 0)
tries=$((tries + 1))
echo $tries > /run/late.tries
[ $tries -lt {LATE_TRIES} ] || ln -sf vda /dev/late
"""
LATE_SCRIPT = "/etc/initramfs-tools/scripts/local-block/late"
BOOT_SECONDS = 240.0


class LegOfItsOwn:
    """The machine with the package rnbdctl. `close` ends it."""

    def __init__(self, directory: Path, debs: Path, log: Path) -> None:
        self.directory = directory
        self.log = log
        self.disk: Disk = deb_machine.fresh_disk(directory, [run.Bind(debs, "/mnt/debs")], own_initramfs=True)
        self.initrd = directory / "initrd.img"
        self.root = "/dev/vda"
        self.pair: Pair | None = None

    def close(self) -> None:
        """Ends the machine, and removes its disk."""
        if self.pair is not None:
            self.pair.close()
            self.pair = None
        self.disk.file.unlink(missing_ok=True)

    def install(self) -> None:
        """The package puts its rule into the initial RAM disk that is there."""
        image = f"/boot/initrd.img-{kernel.chosen().release}"
        expect(RULE not in self.disk.output(f"lsinitramfs -l {image}"), "the rule was there before the package")
        self.disk.sh("dpkg -i /mnt/debs/rnbdctl_*.deb", self.log)
        expect(RULE.lstrip("/") in self.disk.output(f"lsinitramfs {image}"), f"{image} lacks {RULE}")
        self.configure({})

    def find_root_late(self, line: str = "") -> None:
        """From now on the root file system is found late. ``line`` goes to the end of mdadm.conf."""
        self.root = "/dev/late"
        self.configure({LATE_SCRIPT.lstrip("/"): LATE_ROOT})
        self.disk.sh(f"chmod 755 {LATE_SCRIPT}; echo '{line}' >> /etc/mdadm/mdadm.conf; update-initramfs -u", self.log)

    def configure(self, files: dict[str, str]) -> None:
        """Writes what an administrator writes."""
        usual = {**deb_machine.NETWORK, "etc/fstab": FSTAB, "etc/systemd/system/lab-agent.service": AGENT}
        deb_machine.configure(self.disk, self.directory, {**usual, **files}, "systemd-networkd")

    def take_initrd(self) -> None:
        """Copies the initial RAM disk out of the machine's disk."""
        image = f"/boot/initrd.img-{kernel.chosen().release}"
        binds = [*self.disk.binds, run.Bind(self.directory, "/mnt/out")]
        argv = run.chroot_command(self.disk.mount, ["cp", image, f"/mnt/out/{self.initrd.name}"], binds,
                                  image=self.disk.file)
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)

    def boot(self, made_of: Platform, leg: Path, array: Path) -> None:
        """Boots with a leg and with an array of the machine's own: only the array is started, in the initial RAM
        disk."""
        self.take_initrd()
        pair = self.pair = Pair(made_of, self.disk, self.directory)
        spec = pair.client.spec
        spec.initrd = self.initrd
        spec.disks = [DataDisk(leg), DataDisk(array)]
        spec.kernel_args = [argument for argument in spec.kernel_args if not argument.startswith("systemd.wants=")]
        spec.kernel_args += ["systemd.wants=lab-agent.service", f"root={self.root}"]
        pair.client.start()
        pair.client.wait_ready(BOOT_SECONDS)
        mdstat = pair.sh("cat /proc/mdstat")
        expect("vdc" in mdstat and "active" in mdstat, f"the machine's own array was not started\n{mdstat}")
        expect("vdb" not in mdstat, f"the leg was started\n{mdstat}")
        log = pair.sh("dmesg")
        started, running = log.find("md/raid1"), log.find("running in system mode")
        expect(0 <= started < running, f"the array was not started in the initial RAM disk\n{log[-3000:]}")
        properties = pair.sh("udevadm info --query=property --name=/dev/vdb")
        expect("SYSTEMD_READY=0" in properties and "RNBD_MIRROR_LEG=1" in properties, properties)
        pair.close()
        self.pair = None

