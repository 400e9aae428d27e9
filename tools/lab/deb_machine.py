# SPDX-License-Identifier: GPL-2.0
"""A Debian machine that packages are installed on: its disk image, and booting it.

Installing compiles, which takes forever in an emulated machine, so it happens
at the host's speed in a chroot of the disk image; the machine is then booted
from the image, which is what a reboot after an installation is.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path

from . import cache
from . import cpio
from . import image
from . import kernel
from . import packages
from . import paths
from . import run
from .steps import Work
from .story import expect
from .story import quoted
from .vm import Lab
from .vm import Options
from .vm import Platform
from .vm_node import CommandFailed
from .vm_node import Node

CABLE = "rdma0"
MAC = "52:54:00:77:00:01"
# Instead of the runner's own first program: systemd, with the runner's agent as a unit.
INIT_END = """/bin/busybox mount -t tmpfs -o mode=755 tmpfs /root/run
/bin/busybox mkdir -p /root/run/systemd/system
/bin/busybox cp /root/host/lab-agent.service /root/run/systemd/system/
exec /bin/busybox switch_root /root /sbin/init
"""
AGENT_UNIT = """[Unit]
Description=The test runner's agent
DefaultDependencies=no
After=systemd-tmpfiles-setup-dev.service
[Service]
ExecStart=/usr/bin/python3 -E -s -S /host/selftests/lib/agent.py
Restart=always
KillMode=process
"""
# What an administrator sets up before RNBD: a network, and on it soft-RoCE.
NETWORK = {
    "etc/systemd/network/10-cable.link": f"[Match]\nMACAddress={MAC}\n[Link]\nName={CABLE}\n",
    "etc/systemd/network/20-cable.network": (
        f"[Match]\nName={CABLE}\n[Network]\nAddress=10.77.0.1/24\nLinkLocalAddressing=no\n"
    ),
    "etc/systemd/system/soft-roce.service": (
        "[Unit]\nDescription=Soft-RoCE\nWants=network-online.target\nAfter=network-online.target\n"
        f"[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/bin/rdma link add rxe0 type rxe netdev {CABLE}\n"
        "[Install]\nWantedBy=multi-user.target\n"
    ),
}
# What takes an emulated machine long and has no part in this.
MASKED = (
    "rdma-ndd.service", "rdma-load-modules@rdma.service", "systemd-binfmt.service", "getty@tty1.service",
    "serial-getty@ttyS0.service", "apt-daily.timer", "apt-daily-upgrade.timer", "man-db.timer", "e2scrub_all.timer",
)  # fmt: skip
# What changes in a running system whatever is installed.
_VOLATILE = (
    "dev/", "host/", "mnt/", "proc/", "root/", "run/", "sys/", "tmp/", "var/backups/", "var/cache/apt/",
    "var/cache/debconf/", "var/cache/ldconfig/", "var/cache/man/", "var/lib/apt/", "var/lib/dpkg/", "var/lib/systemd/",
    "var/log/", "etc/resolv.conf", "etc/hosts", "etc/ssl/host-ca.crt", "var/tmp/", "etc/ld.so.cache",
    # DKMS makes its signing key with the first module, and keeps it for all that follow.
    "var/lib/dkms/mok.",
)  # fmt: skip


# What to look at when something does not come.
_STATE = """systemctl --no-pager status rnbd.service 'rnbd-mirror*' srv-data.mount
journalctl -b -u rnbd -u 'rnbd-mirror*' --no-pager | tail -20
rnbdctl list; rnbdctl mirror status; ls -lR /dev/rnbd; cat /proc/mdstat /var/lib/rnbd/mirrors/*.json
systemctl list-jobs; true"""


@dataclass
class Disk:
    """The disk image of the machine."""

    file: Path
    mount: Path
    binds: list[run.Bind] = field(default_factory=list)

    def sh(self, script: str, log: Path) -> None:
        """Runs a shell script in the system on the disk; its output goes to the end of `log`."""
        run.chroot(self.mount, ["sh", "-euc", script], self.binds, log, image=self.file)

    def output(self, script: str) -> str:
        """What a script prints."""
        argv = run.chroot_command(self.mount, ["sh", "-euc", script], self.binds, image=self.file)
        done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise run.CommandFailed(f"`{script[:200]}' ended with status {done.returncode}: "
                                    f"{done.stdout[-1000:]}{done.stderr[-1000:]}")
        return done.stdout

    def files(self) -> dict[str, str]:
        """Every file of the system with what it is: a digest, a link's target, or a folder."""
        script = (
            "cd /; find . -xdev \\( -type f -printf '%P\\tf%s %m\\n' \\) -o \\( -type l -printf '%P\\tl%l\\n' \\)"
            " -o \\( -type d -printf '%P\\td%m\\n' \\)"
        )
        found = {}
        for line in self.output(script).splitlines():
            name, _, what = line.partition("\t")
            if name and not f"{name}/".startswith(_VOLATILE) and not name.startswith(_VOLATILE):
                found[name] = what
        # Tables of modules have their size from before even when they are made again.
        sums = self.output("find /usr/lib/modules /etc -xdev -type f -exec sha256sum {} + | sort")
        for line in sums.splitlines():
            digest, name = line.split("  ", 1)
            if name.lstrip("/") in found:
                found[name.lstrip("/")] += f" {digest}"
        return found


def fresh_disk(directory: Path, binds: list[run.Bind], own_initramfs: bool = False) -> Disk:
    """A copy of the machine's image, before any of our packages."""
    made = packages.machine(own_initramfs)
    disk = Disk(directory / f"{made.name}.img", directory / "mnt", binds)
    disk.mount.mkdir(exist_ok=True)
    subprocess.run(["cp", "--sparse=always", str(made.path / "root.img"), str(disk.file)], check=True)
    return disk


def difference(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """What is not as it was, one line each."""
    lines = [f"left behind: /{name}" for name in sorted(after.keys() - before.keys())]
    lines += [f"gone: /{name}" for name in sorted(before.keys() - after.keys())]
    return lines + [f"changed: /{name}" for name in sorted(before.keys() & after.keys()) if before[name] != after[name]]


def initramfs(directory: Path) -> Path:
    """The usual initramfs with another end: the second archive's /init replaces the first one's."""
    init = image.INIT.replace('exec /bin/busybox switch_root /root /host/init "$@"\n', INIT_END)
    if INIT_END not in init:
        raise RuntimeError("image.INIT does not end as deb_machine expects")
    file = directory / "machine.cpio"
    usual = (image.boot().path / "initramfs.cpio").read_bytes()
    file.write_bytes(usual + cpio.archive([cpio.file("init", init.encode(), 0o755)]))
    return file


def configure(disk: Disk, directory: Path, files: dict[str, str], units: str) -> None:
    """Writes what an administrator writes, and enables units (names with spaces between them).

    ``directory`` holds the files for the time.
    """
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        root = Path(folder)
        # Not the first boot, at which systemd sets all units to their presets.
        for name, text in {**files, "etc/machine-id": f"{0x77:032x}\n"}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        binds = [*disk.binds, run.Bind(root, "/mnt/new")]
        # Nor the first boot after an update, at which it makes all its tables again.
        script = f"cp -r /mnt/new/. /; touch /etc/.updated /var/.updated; mkdir -p /host; systemctl -q enable {units}"
        argv = run.chroot_command(disk.mount, ["sh", "-euc", script], binds, image=disk.file)
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)


class Pair(Lab):
    """Two machines on a cable: the installed one is the client, the runner's own the server."""

    def __init__(self, platform: Platform, disk: Disk, directory: Path) -> None:
        super().__init__(platform, "two", Options(cpus=2))
        share = self.client.spec.share
        (share / "lab-agent.service").write_text(AGENT_UNIT)
        spec = self.client.spec
        spec.root_image = disk.file
        spec.initrd = initramfs(directory)
        spec.kernel_args += ["rw", "systemd.wants=lab-agent.service", *(f"systemd.mask={unit}" for unit in MASKED)]

    def finish_boot(self, node: Node, timeout: float = 60.0) -> None:
        """The installed machine sets up its network by itself."""
        if node is not self.client:
            super().finish_boot(node, timeout)
            return
        node.wait_ready(180.0)
        node.addresses = ["10.77.0.1"]

    def sh(self, command: str, timeout: float = 60.0) -> str:
        """What a command prints on the installed machine; the time is in seconds."""
        return self.client.sh(command, timeout=timeout)

    def wait(self, command: str, what: str, timeout: float = 120.0) -> None:
        """Waits until a command succeeds on the installed machine, which looks itself. ``what`` says what is wrong if
        it does not."""
        script = f"for i in $(seq {int(timeout * 2)}); do {command} && exit; sleep 0.5; done; exit 1"
        try:
            self.sh(f"bash -c {quoted(script)}", timeout=timeout + 60)
        except CommandFailed as error:
            raise AssertionError(f"{what}\n{self.sh(_STATE)}") from error

    def shut_down(self, session: str) -> None:
        """Shuts the installed machine down: it unmaps, so the server is told at once that the session ends."""
        at_server = f"/sys/class/rtrs-server/{session}"
        expect(self.server.exists(at_server), f"the server has no session {session}")
        self.client.start_job(["systemctl", "poweroff"])
        self.server.wait_for(at_server, gone=True, timeout=60)
        deadline = time.monotonic() + 60
        while self.client.alive() and time.monotonic() < deadline:
            time.sleep(0.1)
        console = self.client.last_console(400)
        expect(not self.client.alive(), f"the machine does not power off\n{console}")
        expect("FAILED" not in console, console)


def extract_modules(disk: Disk, to: Path) -> None:
    """Copies the modules that DKMS made out of the image, unpacked."""
    to.mkdir(parents=True, exist_ok=True)
    bind = run.Bind(to, "/mnt/modules")
    script = "cp /lib/modules/*/updates/dkms/*.ko.xz /mnt/modules; xz -df /mnt/modules/*.xz"
    argv = run.chroot_command(disk.mount, ["sh", "-euc", script], [*disk.binds, bind], image=disk.file)
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)


def metadata() -> cache.Artifact:
    """The kernel's Rust metadata as the package makes it on the machine."""
    made_by = cache.digest((paths.CHECKOUT / "packaging/dkms/metadata.py").read_text())
    return cache.artifact("dkms-metadata", machine=packages.machine().key, made_by=made_by, recipe=1)


def make_metadata(work: Work) -> None:
    disk = fresh_disk(work.folder,
                      [run.Bind(paths.CHECKOUT / "packaging", "/mnt/packaging"),
                       run.Bind(paths.CHECKOUT / "KERNELS", "/mnt/KERNELS", True), run.Bind(work.folder, "/mnt/out")])
    release = kernel.chosen().release
    disk.sh(
        "mkdir /tmp/p; cp -r /mnt/packaging /mnt/KERNELS /tmp/p\n"
        f"/tmp/p/packaging/dkms/rnbd-dkms prepare {release} /lib/modules/{release}/build\n"
        "cp -a /var/cache/rnbd-dkms /mnt/out/rnbd-dkms",
        work.log,
    )
    disk.file.unlink()
    disk.mount.rmdir()
