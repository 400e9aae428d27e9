# SPDX-License-Identifier: GPL-2.0
"""Three Debian machines for Documentation/first-hour.md: a server and two clients, joined by two networks.

All are copies of one disk, on which the packages were installed: what a machine writes there is lost when it ends. A
kernel argument tells a copy its name, and the hardware addresses of its cables tell it its addresses. Each client has
a cable to the server in each of the networks.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from . import deb_machine
from .vm import DEFAULT_MTU
from .vm import Platform
from .vm import sparse_disk
from .vm import stage_platform
from .vm_kvm import choose_accelerator
from .vm_machine import Disk as DataDisk
from .vm_machine import Ethernet
from .vm_machine import Spec
from .vm_node import Node

SERVER = "storage"
CLIENTS = ("web1", "web2")
NAMES = (SERVER, *CLIENTS)
NETWORKS = ("192.0.2", "198.51.100")
HOSTS = {SERVER: 10, "web1": 20, "web2": 21}
DISK_BYTES = 256 << 20
# The disks of the server, which finds them as sda and sdb.
DISK_NAMES = ("5000c50000000011", "5000c50000000012")
# An emulated machine on a busy host stands still now and then.
MODULE_OPTIONS = "".join(f"options rtrs_{end} ack_timeout_ms=8000\n" for end in ("client", "server"))
SOFT_ROCE = """for interface in /sys/class/net/rdma*; do
	rdma link add rxe${interface##*/rdma} type rxe netdev ${interface##*/} || exit
done
"""


def address(name: str, network: int) -> str:
    """The address of a machine in a network."""
    return f"{NETWORKS[network]}.{HOSTS[name]}"


def mac(name: str, interface: int) -> str:
    """The hardware address of a machine's interface."""
    return f"52:54:00:78:{NAMES.index(name):02x}:{interface:02x}"


def interfaces(name: str) -> list[tuple[int, str]]:
    """The interfaces of a machine in their order: the network, and the client that the cable is for."""
    clients = CLIENTS if name == SERVER else (name,)
    return [(network, client) for network in range(len(NETWORKS)) for client in clients]


def network_files() -> dict[str, str]:
    """What systemd is told of the interfaces of all three machines."""
    files = {}
    for name in NAMES:
        for number, (network, client) in enumerate(interfaces(name)):
            match = f"[Match]\nMACAddress={mac(name, number)}\n"
            own = address(name, network)
            text = f"{match}[Network]\nLinkLocalAddressing=no\nAddress={own}"
            if name == SERVER:
                # Two cables have this address. One with a peer does not do: RDMA devices take the peer's for their own.
                text += f"/32\n[Route]\nDestination={address(client, network)}/32\nPreferredSource={own}\nScope=link\n"
            else:
                text += "/24\n"
            files[f"etc/systemd/network/10-{name}-{number}.link"] = f"{match}[Link]\nName=rdma{number}\n"
            files[f"etc/systemd/network/20-{name}-{number}.network"] = text
    return files


def files() -> dict[str, str]:
    """What the administrator has set up before the hour begins: networks, and soft-RoCE on them."""
    unit = deb_machine.NETWORK["etc/systemd/system/soft-roce.service"]
    lines = [line for line in unit.splitlines() if not line.startswith("ExecStart=")]
    lines.insert(lines.index("[Service]") + 1, "ExecStart=/bin/sh /usr/local/sbin/soft-roce")
    return {**network_files(),
            "etc/systemd/system/soft-roce.service": "\n".join(lines) + "\n",
            "usr/local/sbin/soft-roce": SOFT_ROCE,
            "etc/modprobe.d/test.conf": MODULE_OPTIONS,
            # Not the first boot, at which systemd sets all units to their presets.
            "etc/machine-id": f"{0x78:032x}\n"}


class Machines:
    """The three, from a disk with the packages and the files of `files`."""

    def __init__(self, platform: Platform, disk: Path) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="rnbd-first-hour-"))
        share = stage_platform(self.directory / "share", platform)
        (share / "lab-agent.service").write_text(deb_machine.AGENT_UNIT)
        accel = choose_accelerator(platform.qemu, platform.kernel, platform.arch)
        initrd = deb_machine.initramfs(self.directory)
        self.disks = [sparse_disk(self.directory, f"{name}.img", DISK_BYTES) for name in ("sda", "sdb")]
        self.nodes: dict[str, Node] = {}
        for number, name in enumerate(NAMES):
            spec = Spec(name=name, qemu=platform.qemu, kernel=platform.kernel, initrd=initrd, root_image=disk,
                        share=share, accel=accel, yield_plugin=platform.yield_plugin)
            spec.kernel_args += ["rw", f"systemd.hostname={name}", f"systemd.machine_id={0x7800 + number:032x}",
                                 # The package makes one on each machine; these are copies.
                                 f"rnbd_client.host_uuid={number:08x}-0000-4000-8000-000000000078",
                                 "systemd.wants=lab-agent.service",
                                 *(f"systemd.mask={unit}" for unit in deb_machine.MASKED)]
            spec.ethernet = [
                Ethernet(self.directory / f"{client}-{network}", name == SERVER, DEFAULT_MTU, mac(name, interface),
                         recycle_pages=False)
                for interface, (network, client) in enumerate(interfaces(name))]
            if name == SERVER:
                spec.disks = [DataDisk(file, wwn=wwn) for file, wwn in zip(self.disks, DISK_NAMES, strict=True)]
            self.nodes[name] = Node(spec, self.directory)

    def start(self) -> None:
        """Boots the machines, and has the clients know the server by its name."""
        for name in NAMES:
            self.nodes[name].start()
        for name in NAMES:
            node = self.nodes[name]
            node.wait_ready(600.0)
            node.run("systemctl is-system-running --wait", check=False, timeout=600)
            known = "".join(f"{address(SERVER, network)} {SERVER}\n" for network in range(len(NETWORKS)))
            # In a chroot the file is that of the runner's own host.
            node.create("/etc/hosts", f"127.0.0.1 localhost {name}\n" + (known if name != SERVER else ""))

    def close(self) -> None:
        """Ends the machines and removes their disks."""
        for node in self.nodes.values():
            node.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def last_words(self, lines: int = 25) -> str:
        """The last console lines of every machine."""
        return "\n".join(f"--- console of {node.name}:\n{node.last_console(lines)}" for node in self.nodes.values())
