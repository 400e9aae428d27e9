# SPDX-License-Identifier: GPL-2.0
"""What the cases of `lab cluster-test` share: the machines, and the blocks of Documentation/clusters.md."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from . import cluster_machine
from . import documents
from . import paths
from . import steps
from .cluster_machine import HOSTS
from .documents import Block
from .story import expect
from .vm import sparse_disk
from .vm_node import CommandFailed
from .vm_node import Node
from .vm_platform import module_folders
from .vm_platform import platform

DOCUMENT = paths.CHECKOUT / "Documentation/clusters.md"
KEYS = {"alpha": 0x10, "beta": 0x20}
RESERVATIONS = "/sys/class/rnbd-server/ctl/devices/{}/reservations"
DISK_BYTES = 64 << 20


def other_host(name: str) -> str:
    """The host that is not called `name`."""
    return next(host for host in HOSTS if host != name)


class Story:
    """The machines, and what of the document is not typed yet."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = steps.log_path("cluster-test")
        self.blocks = documents.blocks(DOCUMENT)
        self.cluster: cluster_machine.Cluster | None = None

    @property
    def machines(self) -> cluster_machine.Cluster:
        """All three; `boot` has made them."""
        assert self.cluster is not None
        return self.cluster

    @property
    def server(self) -> Node:
        """The machine with the disks."""
        return self.machines.server

    def host(self, name: str) -> Node:
        """A machine that uses the disks."""
        return self.machines.hosts[name]

    def next_block(self, containing: str) -> Block:
        """The next block of the document, which must have a text."""
        block = self.blocks.pop(0)
        expect(containing in block.text, f"{block} is not the block with `{containing}':\n{block.text}")
        return block

    def skip_to(self, containing: str) -> None:
        """Leaves out the blocks before the one with a text."""
        while containing not in self.blocks[0].text:
            self.blocks.pop(0)

    def type_text(self, node: Node, what: str, text: str, timeout: float = 300.0) -> str:
        """Types commands on a machine; what they print."""
        result = node.run(f"set -e\n{text}", check=False, timeout=timeout)
        expect(result.rc == 0, f"{what} on {node.name}: exit code {result.rc}: {result.out}{result.err}")
        return result.out + result.err

    def type_block(self, containing: str, timeout: float = 300.0) -> str:
        """Types the next block of the document on the machines that it is for; what it prints."""
        block = self.next_block(containing)
        nodes = {"storage": [self.server], "hosts": [self.host(name) for name in HOSTS]}
        return "".join(self.type_text(node, str(block), block.text, timeout)
                       for node in nodes.get(block.place) or [self.host(block.place)])

    def wait(self, what: str, condition: Callable[[], bool], timeout: float = 600.0) -> None:
        """Waits for something that no event announces to the runner."""
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {timeout:.0f} s: {what}\n{self.state()}")
            time.sleep(1.0)

    def state(self) -> str:
        """What the machines say about themselves."""
        said = [f"keys: {self.registered('sda')} {self.registered('sdb')}"]
        script = ("crm_mon -1 -r; stonith_admin --history '*' --verbose | tail -20; findmnt /srv/shop; "
                  "journalctl -b --no-pager -u rnbd -u corosync -u pacemaker -u fence-rnbd-watch | tail -40; "
                  "rnbdctl list; tail -n 3 /run/www.console")
        for name in HOSTS:
            if self.host(name).alive():
                try:
                    result = self.host(name).run(script, check=False, timeout=60)
                except (CommandFailed, OSError, RuntimeError) as error:
                    said.append(f"--- {name}: {error}")
                else:
                    said.append(f"--- {name}\n{result.out}{result.err}")
        return "\n".join(said)

    def registered(self, disk: str) -> list[int]:
        """The keys that are registered with a disk of the server."""
        if not self.server.exists(RESERVATIONS.format(disk)):
            return []
        lines = self.server.read(RESERVATIONS.format(disk)).splitlines()
        return sorted(int(line.split()[0], 16) for line in lines if line.startswith("0x"))

    def write_is_refused(self, host: str, disk: str) -> None:
        """A write of a host to the end of a disk ends with a reservation conflict."""
        last = DISK_BYTES // 4096 - 1
        said = self.host(host).run(f"dd if=/dev/zero of={disk} bs=4096 count=1 seek={last} oflag=direct conv=notrunc",
                                   check=False)
        expect(said.rc != 0 and "Invalid exchange" in said.err, f"a write of {host} to {disk}: {said}")

    # The cases

    def boot(self) -> None:
        """The server and the hosts boot."""
        self.log.write_text("")
        content = self.directory / "content"
        content.mkdir()
        disks = [sparse_disk(self.directory, f"{name}.img", DISK_BYTES) for name in ("sda", "sdb")]
        with open(disks[1], "r+b") as file:
            file.write(cluster_machine.boot_sector(content, self.log))
        made = platform("stock", {"ours": module_folders("stock")["ours"]})
        self.cluster = cluster_machine.Cluster(made, disks, self.log)
        self.cluster.start()

    def map(self) -> None:
        """Both hosts map both disks, and have names of their own."""
        said = self.type_block("state_dir=")
        expect(said.split() == list(cluster_machine.DISK_NAMES), f"wwids: {said}")
        self.type_block("host_uuid=")
        self.type_block("rnbd.toml")
        uuids = {self.host(name).read("/sys/module/rnbd_client/parameters/host_uuid") for name in HOSTS}
        expect(len(uuids) == len(HOSTS) and all(re.fullmatch("[0-9a-f-]{36}", uuid) for uuid in uuids),
               f"host_uuid of the hosts: {uuids}")

    def kernels_are_well(self) -> None:
        """No kernel says anything bad."""
        trouble = [f"{node.name}: {line}" for node in self.machines.nodes for line in node.dmesg_check()]
        expect(not trouble, "\n".join(trouble[:40]))

    def close(self) -> None:
        """Ends the machines."""
        if self.cluster is not None:
            self.cluster.close()
