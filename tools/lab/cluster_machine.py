# SPDX-License-Identifier: GPL-2.0
"""Three machines of Documentation/clusters.md: a server, and two Debian hosts with Pacemaker and QEMU.

The server is the runner's own machine. A host is a Debian with systemd that keeps what it writes, over reboots, too. It
has the package rnbdctl, and the modules of this checkout. Each host has a cable to the server, and there is one
between the hosts.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from . import cache
from . import deb
from . import deb_machine
from . import debian
from . import image
from . import kernel
from . import paths
from . import run
from .deb_machine import Disk
from .steps import Work
from .vm import DEFAULT_MTU
from .vm import Platform
from .vm import stage_platform
from .vm_kvm import choose_accelerator
from .vm_machine import Disk as DataDisk
from .vm_machine import Ethernet
from .vm_machine import Spec
from .vm_node import Node

PACKAGES = (
    "systemd-sysv", "udev", "dbus", "iproute2", "rdma-core", "kmod", "e2fsprogs", "python3", "procps", "libc6",
    "util-linux-extra", "socat", "pacemaker", "pacemaker-cli-utils", "python3-pacemaker", "crmsh", "resource-agents",
    "qemu-system-x86",
)  # fmt: skip
HOSTS = ("alpha", "beta")
SERVER = "192.0.2.10"
# By host: its address on the network of the disks and on that of the cluster.
ADDRESSES = {"alpha": ("192.0.2.20", "198.51.100.20"), "beta": ("192.0.2.21", "198.51.100.21")}
DISK_NAMES = ("naa.5000c50000000001", "naa.5000c50000000002")
# Which cable of a host leads to the other one.
BETWEEN = 1
# An emulated machine on a busy host stands still now and then.
MODULE_OPTIONS = "options rtrs_{end} ack_timeout_ms=8000\n"


def machine() -> cache.Artifact:
    """Folder with root.img, the disk of a host before our package."""
    return cache.artifact("cluster-machine", base=debian.base().key, packages=PACKAGES, stock=kernel.stock().key,
                          modules=image.GUEST_MODULES, recipe=1)


def make_machine(work: Work) -> None:
    """Makes the image of a host."""
    tree = debian.copy_base(work)
    debian.install(tree, PACKAGES, "cluster", work.log)
    (tree / "usr/sbin/policy-rc.d").unlink()
    for folder in ("host", "usr/lib/modules"):
        (tree / folder).mkdir(exist_ok=True)
    cache.remove_tree(tree / "var/lib/apt/lists")
    (tree / "etc/machine-id").write_text("uninitialized\n")
    modules = image.guest_modules(work)
    image.make_root_image(tree, modules, work.folder / "root.img", work.log, "has_journal")
    for waste in (tree, modules, work.folder / "every"):
        cache.remove_tree(waste)


def files(host: str) -> dict[str, str]:
    """What the administrator of a host has set up before: its name, its networks, and soft-RoCE."""
    number = HOSTS.index(host)
    made = {"etc/hostname": f"{host}\n",
            "etc/machine-id": f"{0x77 + number:032x}\n",
            "etc/modprobe.d/test.conf": MODULE_OPTIONS.format(end="client"),
            "etc/systemd/system/soft-roce.service": deb_machine.NETWORK["etc/systemd/system/soft-roce.service"]}
    for link, name in enumerate((deb_machine.CABLE, "cluster0")):
        made[f"etc/systemd/network/1{link}-{name}.link"] = (
            f"[Match]\nMACAddress={mac(number, link)}\n[Link]\nName={name}\n")
        made[f"etc/systemd/network/2{link}-{name}.network"] = (
            f"[Match]\nName={name}\n[Network]\nAddress={ADDRESSES[host][link]}/24\nLinkLocalAddressing=no\n")
    return made


def mac(number: int, link: int) -> str:
    """The hardware address of a machine's end of a cable."""
    return f"52:54:00:77:{number:02x}:{link:02x}"


def make_disk(directory: Path, host: str, package: Path, modules: Path, log: Path) -> Path:
    """The disk of a host: the image with the package, the modules and the files of `files`."""
    folder = directory / host
    (folder / "files").mkdir(parents=True)
    for name, text in files(host).items():
        (folder / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "files" / name).write_text(text)
    disk = Disk(directory / f"{host}.img", folder / "mnt",
                [run.Bind(folder / "files", "/mnt/files"), run.Bind(package, "/mnt/rnbdctl.deb"),
                 run.Bind(modules, "/mnt/modules")])
    disk.mount.mkdir()
    subprocess.run(["cp", "--sparse=always", str(machine().path / "root.img"), str(disk.file)], check=True)
    disk.sh("dpkg -i /mnt/rnbdctl.deb\n"
            "mkdir -p /lib/modules/$(ls /lib/modules)/updates; cp /mnt/modules/*.ko /lib/modules/*/updates\n"
            "depmod $(ls /lib/modules); cp -r /mnt/files/. /; touch /etc/.updated /var/.updated\n"
            "systemctl -q enable systemd-networkd soft-roce; systemctl -q disable corosync pacemaker", log)
    return disk.file


class Cluster:
    """The three machines."""

    def __init__(self, platform: Platform, disks: list[Path], log: Path) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="rnbd-cluster-"))
        share = stage_platform(self.directory / "share", platform)
        (share / "lab-agent.service").write_text(deb_machine.AGENT_UNIT)
        modules = share / "modules/ours"
        accel = choose_accelerator(platform.qemu, platform.kernel, platform.arch)
        package = next(file for file in deb.build_to_test(crate=False) if file.name.startswith("rnbdctl_"))
        initrd = deb_machine.initramfs(self.directory)

        def spec(name: str, root: Path) -> Spec:
            return Spec(name=name, qemu=platform.qemu, kernel=platform.kernel, initrd=platform.initrd, root_image=root,
                        share=share, accel=accel, yield_plugin=platform.yield_plugin)

        server = spec("storage", platform.root_image)
        server.disks = [DataDisk(file, wwn=name.removeprefix("naa."))
                        for file, name in zip(disks, DISK_NAMES, strict=True)]
        server.ethernet = [self._cable(f"{host}-storage", True, mac(2, index)) for index, host in enumerate(HOSTS)]
        self.server = Node(server, self.directory)
        self.hosts: dict[str, Node] = {}
        for number, host in enumerate(HOSTS):
            own = spec(host, make_disk(self.directory, host, package, modules, log))
            own.root_snapshot = False
            # A virtual machine runs in it.
            own.memory_mib = 1536
            own.initrd = initrd
            own.kernel_args += ["rw", "systemd.wants=lab-agent.service",
                                *(f"systemd.mask={unit}" for unit in deb_machine.MASKED)]
            own.ethernet = [self._cable(f"{host}-storage", False, mac(number, 0)),
                            self._cable("between", number == 0, mac(number, BETWEEN))]
            self.hosts[host] = Node(own, self.directory)

    def _cable(self, name: str, listens: bool, address: str) -> Ethernet:
        return Ethernet(self.directory / name, listens, DEFAULT_MTU, address, recycle_pages=False)

    @property
    def nodes(self) -> list[Node]:
        """All three."""
        return [self.server, *self.hosts.values()]

    def start(self) -> None:
        """Boots the machines, the server first."""
        self.server.start()
        self.server.wait_ready(300.0)
        updates = f"/lib/modules/{kernel.chosen().release}/updates"
        self.server.run(
            "set -e; hostname storage; modprobe -a virtio_net rdma_rxe virtio_scsi sd_mod; ip link set lo up\n"
            f"mkdir -p {updates}; cp /host/modules/ours/*.ko {updates}; depmod\n"
            f"mkdir -p /etc/modprobe.d; echo '{MODULE_OPTIONS.format(end='server')}' > /etc/modprobe.d/test.conf\n"
            + "".join(f"ip link set eth{index} mtu {DEFAULT_MTU} up\n"
                      # Not an address with a peer: RDMA devices take the peer's for their own.
                      f"ip addr add {SERVER}/32 dev eth{index}\n"
                      f"ip route add {ADDRESSES[host][0]} dev eth{index} src {SERVER}\n"
                      f"rdma link add rxe{index} type rxe netdev eth{index}\n" for index, host in enumerate(HOSTS))
            + "for i in $(seq 100); do [ -b /dev/sdb ] && exit; sleep 0.1; done; exit 1", timeout=180)
        for host in HOSTS:
            self.hosts[host].start()
        for host in HOSTS:
            self.finish_boot(host)

    def finish_boot(self, host: str) -> None:
        """Waits for the agent and for the boot's end, of a host that was started."""
        self.hosts[host].wait_ready(600.0)
        self.hosts[host].run("systemctl is-system-running --wait", check=False, timeout=600)
        # In a chroot the file is that of the runner's own host.
        names = "".join(f"{ADDRESSES[name][1]} {name}\n" for name in HOSTS)
        self.hosts[host].create("/etc/hosts", f"127.0.0.1 localhost\n{names}")

    def close(self) -> None:
        """Ends the machines and removes their disks."""
        for node in self.nodes:
            node.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def last_words(self, lines: int = 25) -> str:
        """The last console lines of every machine."""
        return "\n".join(f"--- console of {node.name}:\n{node.last_console(lines)}" for node in self.nodes)


def boot_sector(directory: Path, log: Path) -> bytes:
    """The virtual machine of `cluster_guest.S`."""
    shutil.copy(Path(__file__).parent / "cluster_guest.S", directory / "guest.S")
    script = ("cd /mnt/out; as --32 -o guest.o guest.S; "
              "ld -m elf_i386 -Ttext 0x7c00 --oformat binary -o guest.bin guest.o")
    run.chroot(paths.build_root(), ["sh", "-euc", script], [run.Bind(directory, "/mnt/out")], log)
    return (directory / "guest.bin").read_bytes()
