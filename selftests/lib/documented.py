# SPDX-License-Identifier: GPL-2.0
"""Machines as the documents describe them, and a block of a document typed there.

The machines get the addresses of the documents (192.0.2.10 and 198.51.100.10 are the
server's, .20 the client's), an unused interface eth2 and disks of the documents' names;
`modprobe` and the shell find the modules and the program. There are two machines, so the
server is also the documents' other client: it maps disks of its own.
"""

from __future__ import annotations

from lab.documents import Block
from lab.selftest_case import Test
from lab.vm_node import Node
from lib import disks
from lib import program

NETWORKS = ("192.0.2", "198.51.100")
DISKS = {"/dev/nvme0n1": disks.PLAIN, "/dev/nvme1n1": disks.WITHOUT_DISCARD}
PLACES = ("client", "other-client", "server")


def modprobe_finds_ours(node: Node) -> None:
    """Put the modules where modprobe looks.

    They stay: nothing else in the tests uses them, and depmod takes seconds.
    """
    node.run("set -e; d=/lib/modules/$(uname -r)/updates; [ ! -d $d ] || exit 0; mkdir -p $d\n"
             f"cp /host/modules/{node.module_set}/*.ko $d; depmod -a", timeout=120)


def prepare(t: Test) -> None:
    """Make the machines what the documents assume."""
    for node, host in ((t.server, 10), (t.client, 20)):
        node.modules_unload_all()
        program.install(node)
        modprobe_finds_ours(node)
        for link, network in enumerate(NETWORKS):
            node.run(f"ip addr replace {network}.{host}/24 dev eth{link}")
        # An interface without an RDMA device.
        node.run("ip link add eth2 type dummy && ip link set eth2 up; mkdir -p /etc/rnbd")
    t.server.run("".join(f"ln -sf {disk} {name}\n" for name, disk in DISKS.items()))
    t.defer(tidy, t)


def tidy(t: Test) -> None:
    """Take back what the commands left, and the names."""
    t.client.run("cd /; umount /mnt", check=False)
    for node in t.nodes:
        node.run("for d in /sys/block/rnbd*; do [ ! -d $d ] || echo force >$d/rnbd/unmap_device; done", check=False)
    for node in t.nodes:
        node.run("rm -rf /etc/rnbd; ip link del eth2")
        # What modprobe has loaded, the test's own notes do not know.
        node.modules_unload_all()
        for link, network in enumerate(NETWORKS):
            node.run(f"for a in $(ip -o -4 addr show dev eth{link} | grep -o '{network}[0-9./]*'); do "
                     f"ip addr del $a dev eth{link}; done")
    t.server.run("rm -f " + " ".join(DISKS))


def type_block(t: Test, block: Block) -> None:
    """Type a block on the machine that it is for, one of ``PLACES``."""
    node = t.client if block.place == "client" else t.server
    result = node.run(f"set -e\n{block.text}", check=False, timeout=60)
    t.equal(result.rc, 0, f"exit code of {block}: {result.out[-500:]}{result.err[-500:]}")
