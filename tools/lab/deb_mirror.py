# SPDX-License-Identifier: GPL-2.0
"""A machine with the packages whose disk keeps what it writes: its mirror is there after each boot, and a leg on one of
its own disks is left alone. Part of `lab deb-test`.
"""

from __future__ import annotations

from pathlib import Path

from . import deb_machine
from . import run
from .deb_machine import Disk
from .deb_machine import Pair
from .story import expect
from .vm import Disk as DataDisk
from .vm import Platform
from .vm import sparse_disk

NAME = "db"
MIRROR = f"/dev/md/{NAME}"
MOUNT = "/srv/data"
# Both are addresses of the one server here: legs of sessions with a common address are refused.
ADDRESSES = {"near": "10.77.0.2", "far": "10.77.0.3"}
DISKS = {"near": "vdb", "far": "vdc"}
LEGS = [f"{DISKS[session]}@{session}" for session in ADDRESSES]
CONFIG = "".join(
    f'[[session]]\nname = "{session}"\npaths = ["ip:{address}"]\nhb_interval_ms = 2000\n'
    f'devices = ["{DISKS[session]}"]\n\n' for session, address in ADDRESSES.items()
) + f'[[mirror]]\nname = "{NAME}"\nlegs = ["{LEGS[0]}", "{LEGS[1]}"]\n'
# The line of Documentation/mirrors.md, but for the folder.
FSTAB = f"{MIRROR} {MOUNT} ext4 _netdev,x-systemd.requires=rnbd-mirror.service 0 2\n"
UNITS = ("rnbd.service", "rnbd-mirror.path", "rnbd-mirror.service", "rnbd-mirror-stop.service", "srv-data.mount")
BOOT_SECONDS = 240.0


class MirrorAtBoot:
    """The machine, and a server of both legs. `close` ends both."""

    def __init__(self, made_of: Platform, disk: Disk, directory: Path, options: str) -> None:
        """``disk`` is copied; ``options`` are those of the modules, for /etc/modprobe.d."""
        self.directory = directory
        self.disk = Disk(directory / "mirror.img", disk.mount, disk.binds)
        run.call(["cp", "--sparse=always", str(disk.file), str(self.disk.file)], directory / "cp.log")
        files = {**deb_machine.NETWORK, "etc/modprobe.d/test.conf": options, "etc/rnbd/rnbd.toml": CONFIG,
                 "etc/fstab": ""}
        deb_machine.configure(self.disk, directory, files, "systemd-networkd soft-roce")
        self.pair = Pair(made_of, self.disk, directory)
        self.pair.client.spec.root_snapshot = False
        self.images = [sparse_disk(directory, f"leg-{session}.img", 128 << 20) for session in ADDRESSES]
        self.spare = sparse_disk(directory, "spare.img", 64 << 20)
        self.pair.server.spec.disks = [DataDisk(image) for image in (*self.images, self.spare)]

    def array(self) -> Path:
        """The image of a disk that the server has made an array of its own; the array does not run."""
        create = "mdadm --create /dev/md/own --run --force --level=1 --raid-devices=1 --metadata=1.2 /dev/vdd"
        self.pair.server.sh(f"set -e; modprobe raid1; {create}; mdadm --stop /dev/md/own", timeout=120)
        return self.spare

    def line(self) -> str:
        """The line of mdadm.conf that names the leg of the session "near" as mdadm writes it."""
        return self.pair.server.sh("mdadm --examine --brief /dev/vdb").strip()

    def close(self) -> None:
        """Ends both machines, and removes the copy of the disk."""
        self.pair.close()
        self.disk.file.unlink(missing_ok=True)

    def create(self) -> None:
        """The mirror is created by rnbd.toml's table; the service then starts by itself."""
        pair = self.pair
        pair.server.start()
        pair.finish_boot(pair.server)
        self.far_address("add")
        pair.server.modules_load("rnbd_server", rtrs_server="ack_timeout_ms=8000", rnbd_server="dev_search_path=/dev")
        self.boot(["active", "active", "inactive", "inactive", "inactive"])
        for session, name in DISKS.items():
            pair.wait(f"test -b /dev/rnbd/by-session/{session}/{name}", f"the disk of {session} is not mapped")
        pair.sh(f"mkdir -p {MOUNT}; rnbdctl mirror create {NAME} --assume-clean", 120)
        pair.wait("systemctl is-active -q rnbd-mirror.service", "rnbd-mirror.path did not start the service")
        pair.sh(f"set -e; mkfs.ext4 -q {MIRROR}; echo '{FSTAB.strip()}' >> /etc/fstab; systemctl daemon-reload\n"
                f"systemctl start srv-data.mount; echo first > {MOUNT}/file; sync", 120)

    def after_a_shutdown(self) -> None:
        """A shutdown stops the mirror in order, and the next boot mounts it."""
        self.pair.shut_down("near")
        expect(not self.pair.server.exists("/sys/class/rtrs-server/far"), "the server has a session of the second leg")
        for name in DISKS.values():
            said = self.pair.server.sh(f"mdadm --examine /dev/{name}")
            expect("State : clean" in said and "Array State : AA" in said, f"the leg {name} after the shutdown: {said}")
        self.boot_with_mirror("whole", "first")

    def after_a_power_cut(self) -> None:
        """A client that lost its power mounts its mirror when it boots."""
        self.pair.sh(f"echo second > {MOUNT}/file; sync")
        self.pair.client.kill()
        self.boot_with_mirror("whole", "second")

    def without_a_server(self) -> None:
        """A boot while the server of a leg is away: the mirror is mounted, and whole when the server is back."""
        pair = self.pair
        pair.shut_down("near")
        self.far_address("del")
        self.boot_with_mirror("degraded", "second")
        pair.sh(f"echo third > {MOUNT}/file; sync")
        self.far_address("add")
        pair.wait(f"rnbdctl mirror status {NAME} | grep -q whole", "the leg is not added when its server is back")
        expect(pair.sh(f"cat {MOUNT}/file") == "third", "the file after the leg is back")
        pair.shut_down("near")

    def boot(self, wanted: list[str]) -> None:
        """Boots the machine; its units are then in the wanted states. multi-user.target does not wait for them."""
        pair = self.pair
        pair.client.kill()
        pair.client.start()
        pair.finish_boot(pair.client)
        pair.wait("systemctl is-active -q multi-user.target", "the boot does not get ready", BOOT_SECONDS)
        is_wanted = f"test \"$(systemctl is-active {' '.join(UNITS)} | xargs)\" = '{' '.join(wanted)}'"
        pair.wait(is_wanted, f"{' '.join(UNITS)} are not {' '.join(wanted)}", BOOT_SECONDS)
        failed = pair.sh("systemctl --failed --plain --no-legend")
        expect(failed == "", failed)

    def boot_with_mirror(self, state: str, content: str) -> None:
        """Boots the machine: its mirror has the state, and is mounted with its file."""
        pair = self.pair
        pair.client.start()
        pair.finish_boot(pair.client)
        pair.wait("systemctl is-active -q srv-data.mount", "the mirror is not mounted", BOOT_SECONDS)
        pair.wait("systemctl is-active -q multi-user.target remote-fs.target", "the boot does not get ready",
                  BOOT_SECONDS)
        expect(pair.sh(f"cat {MOUNT}/file") == content, "the file on the mirror")
        pair.wait(f"rnbdctl mirror status {NAME} | grep -q {state}", f"the mirror is not {state}", 60)
        units = pair.sh(f"systemctl is-active {' '.join(UNITS)} || true").split()
        expect(units == ["active"] * len(UNITS), f"{' '.join(UNITS)}: {' '.join(units)}")
        failed = pair.sh("systemctl --failed --plain --no-legend")
        expect(failed == "", failed)

    def far_address(self, what: str) -> None:
        """Gives the server the address of the second leg's session (``add``), or takes it (``del``)."""
        self.pair.server.sh(f"ip addr {what} {ADDRESSES['far']}/24 dev eth0")
