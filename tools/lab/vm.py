# SPDX-License-Identifier: GPL-2.0
"""Test machines by topology: one for both roles, two on a cable, three, four, or five.

``one``: a machine that is client and server at once, soft-RoCE on a dummy
interface. ``two``: a client and a server machine, virtio-net joined by a
socket. ``three`` and ``five``: a client and two or four servers, each with a
cable of its own to the client. ``four``: two clients and two servers, and a
cable between each client and each server. Machines boot the cached image with
all writes thrown away.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from ipaddress import ip_address
from pathlib import Path

from .arch import AMD64
from .arch import Arch
from .vm_channel import MachineDied
from .vm_kvm import choose_accelerator
from .vm_machine import Disk
from .vm_machine import Ethernet
from .vm_machine import Spec
from .vm_machine import stage_share
from .vm_node import CommandFailed
from .vm_node import Node

# By number of the link; the machines are host 1, 2 and so on of each.
SUBNET = "10.77.{link}.{host}"
SUBNET6 = "fd77:0:0:{link}::{host}"
# An Ethernet MTU of 4500 gives the RDMA MTU 4096: a 4 KiB payload is one packet.
DEFAULT_MTU = 4500
MACHINES = {"one": ["one"], "two": ["client", "server"], "three": ["client", "server", "server2"],
            "four": ["client", "server", "server2", "client2"],
            "five": ["client", "server", "server2", "server3", "server4"]}
# Which machines, by their places above, each cable of a topology joins. One and two machines have as many as is wanted.
CABLES = {"three": [(0, 1), (0, 2)], "four": [(0, 1), (0, 2), (1, 3), (2, 3)], "five": [(0, 1), (0, 2), (0, 3), (0, 4)]}
SLOW = {"stock": 1.0, "debug": 8.0}


@dataclass(frozen=True)
class Platform:
    """What machines are started from."""

    qemu: list[str]
    kernel: Path
    initrd: Path | None
    root_image: Path
    selftests: Path
    modules: dict[str, Path]
    arch: Arch = AMD64
    flavour: str = "stock"
    # Whether the long form repeats a fault as often as the test asks for: on the newest stock kernel of amd64.
    thorough: bool = True
    # A plugin of the emulator that lets other threads go first while a processor spins.
    yield_plugin: Path | None = None
    # What the server is made of, if it has another kernel than the client.
    server: Platform | None = None

    def of(self, node: str) -> Platform:
        """What a machine is made of, by its name."""
        return self.server if self.server is not None and node == "server" else self


@dataclass
class Options:
    """How to build a topology. ``links`` is the number of cables, or of dummy interfaces."""

    cpus: int = 2
    memory_mib: int = 1024
    links: int = 1
    mtu: int = DEFAULT_MTU
    icount: bool = False
    plugin: Path | None = None
    accel: str | None = None
    kernel_args: list[str] = field(default_factory=list)
    shell: bool = False
    disks: dict[str, list[Disk]] = field(default_factory=dict)
    module_sets: dict[str, str] = field(default_factory=dict)


class Lab:
    """The machines of one topology and their scratch directory."""

    def __init__(self, platform: Platform, topology: str, options: Options | None = None) -> None:
        if topology not in MACHINES:
            raise ValueError(f"unknown topology {topology!r}")
        self.platform = platform
        self.topology = topology
        self.options = options or Options()
        self.directory = Path(tempfile.mkdtemp(prefix="rnbd-vm-"))
        self.nodes: list[Node] = []
        names = MACHINES[topology]
        shares: dict[int, Path] = {}
        for index, name in enumerate(names):
            own = platform.of(name)
            if id(own) not in shares:
                shares[id(own)] = stage_platform(self.directory / f"share-{name}", own)
            accel = self.options.accel or choose_accelerator(own.qemu, own.kernel, own.arch)
            slow = SLOW.get(own.flavour, 1.0) * (4.0 if self.options.icount else 1.0)
            spec = Spec(
                name=name, qemu=own.qemu, kernel=own.kernel, initrd=own.initrd,
                root_image=own.root_image, share=shares[id(own)], arch=own.arch, cpus=self.options.cpus,
                memory_mib=self.options.memory_mib * (2 if own.flavour == "debug" else 1),
                accel=accel, icount=self.options.icount,
                plugin=self.options.plugin, yield_plugin=own.yield_plugin,
                disks=self.options.disks.get(name, []), shell=self.options.shell,
                kernel_args=list(self.options.kernel_args))
            if topology != "one":
                spec.ethernet = [Ethernet(self.directory / f"cable{link}", index == self.ends_of(link)[0],
                                          self.options.mtu,
                                          f"52:54:00:77:0{link}:0{index + 1}",
                                          recycle_pages=self.options.icount)
                                 for link in self.links_of(index)]
            self.nodes.append(Node(
                spec, self.directory, slow=slow,
                module_set=self.options.module_sets.get(name, "ours")))

    def links_of(self, index: int) -> list[int]:
        """The numbers of a machine's links."""
        return [link for link in range(self.options.links) if index in self.ends_of(link)]

    def ends_of(self, link: int) -> tuple[int, int]:
        """The machines that a link joins, by their places; the first one listens for the other one."""
        return CABLES[self.topology][link] if self.topology in CABLES else (0, len(MACHINES[self.topology]) - 1)

    @property
    def client(self) -> Node:
        """The machine that maps devices."""
        return self.nodes[0]

    @property
    def server(self) -> Node:
        """The machine that exports them; in topology ``one`` the same, of several the first."""
        return self.nodes[min(1, len(self.nodes) - 1)]

    def start(self, timeout: float = 60.0) -> None:
        """Boot all machines and give them addresses."""
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            try:
                self.finish_boot(node, timeout)
            except (MachineDied, CommandFailed) as error:
                self._boot_once_more(node, error)

    def _boot_once_more(self, node: Node, error: Exception) -> None:
        """On a busy host an emulated machine now and then stops while it looks for a clock, or stands
        still; and the emulator does not always see that the kernel has changed its own code."""
        print("\n".join(f"# {line}" for line in f"{error}\nbooting it once more".splitlines()),
              flush=True)
        node.kill()
        node.start()
        self.finish_reboot(node)

    def finish_boot(self, node: Node, timeout: float = 60.0) -> None:
        """After ``node.start()``: wait for its agent and set up its network."""
        node.wait_ready(timeout * node.slow)
        host = self.nodes.index(node) + 1
        kind = "dummy" if self.topology == "one" else "eth"
        node.addresses, node.addresses6 = [], []
        for number, link in enumerate(self.links_of(host - 1)):
            node.network_up(f"{kind}{number}", link, SUBNET.format(link=link, host=host),
                            str(ip_address(SUBNET6.format(link=link, host=host))),
                            self.options.mtu)

    def reboot(self, node: Node) -> None:
        """Cut a machine's power and boot it again. Data disks keep their data."""
        node.kill()
        node.start()
        try:
            self.finish_reboot(node)
        except MachineDied as error:
            self._boot_once_more(node, error)

    def finish_reboot(self, node: Node) -> None:
        """As ``finish_boot``, for a machine that was started again in a test."""
        self.finish_boot(node)
        # A debug kernel's boot speaks of what it checks, and KASAN of what is done before it is ready.
        node.dmesg_check()

    def close(self, keep_logs: bool = False) -> None:
        """Kill the machines; remove the scratch directory unless told to keep logs."""
        for node in self.nodes:
            node.kill()
        if keep_logs:
            for share in {node.spec.share for node in self.nodes}:
                shutil.rmtree(share, ignore_errors=True)
        else:
            shutil.rmtree(self.directory, ignore_errors=True)

    def last_words(self, lines: int = 30) -> str:
        """The last console lines of every machine."""
        return "\n".join(f"--- console of {node.name}:\n{node.last_console(lines)}"
                         for node in self.nodes)


def stage_platform(share: Path, platform: Platform) -> Path:
    """Fill the folder that machines of a platform see on /host."""
    stage_share(share, platform.selftests / "lib" / "init.sh", {"selftests": platform.selftests})
    stage_modules(share / "modules", platform.modules)
    return share


def stage_modules(target: Path, sets: dict[str, Path]) -> None:
    """Copy each set's .ko files, wherever below its folder, into one flat folder."""
    for name, source in sets.items():
        (target / name).mkdir(parents=True)
        for file in sorted(source.rglob("*.ko")):
            shutil.copy(file, target / name / file.name)


# Between two looks of `wait_until`, in s.
LOOK_PAUSE = 0.05
LONGEST_PAUSE = 2.0


def wait_until(condition: Callable[[], bool], timeout: float, what: str) -> None:
    """Poll a condition that no event announces, with a deadline.

    A look that starts a program in an emulated machine takes most of a second of a processor, which the machine needs
    for what is waited for. So after a look the wait is as long as the look was.
    """
    deadline = time.monotonic() + timeout
    while True:
        began = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        if now > deadline:
            raise TimeoutError(f"{what}: not within {timeout:.0f} s")
        time.sleep(min(max(LOOK_PAUSE, now - began), LONGEST_PAUSE))


def sparse_disk(directory: Path, name: str, size: int) -> Path:
    """An empty sparse file of ``size`` bytes to be a machine's disk."""
    path = directory / name
    with open(path, "wb") as file:
        file.truncate(size)
    return path


def standard_disks(lab: Lab) -> None:
    """Give every machine the disks that tests expect.

    vdb 512 MiB with discard and a write cache, vdc 512 MiB without either,
    vdd 64 MiB with 4 KiB logical blocks. Their data outlives a power cut.
    """
    for node in lab.nodes:
        folder, name = lab.directory, node.name
        node.spec.disks += [
            Disk(sparse_disk(folder, f"{name}.vdb", 512 << 20)),
            Disk(sparse_disk(folder, f"{name}.vdc", 512 << 20), discard=False, write_cache=False),
            Disk(sparse_disk(folder, f"{name}.vdd", 64 << 20), block_size=4096),
        ]


__all__: Sequence[str] = ("DEFAULT_MTU", "Disk", "Lab", "MachineDied", "Node", "Options",
                          "Platform", "sparse_disk", "standard_disks", "wait_until")
