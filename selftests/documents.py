# SPDX-License-Identifier: GPL-2.0
"""What the documents tell an administrator to type works as it stands there.

The machines get the addresses of the documents (192.0.2.10 and 198.51.100.10 are the
server's, .20 the client's), an unused interface eth2 and disks of the documents' names;
`modprobe` and the shell find the modules and the program.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lab import documents
from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import program

TOPOLOGY = "two"

NETWORKS = ("192.0.2", "198.51.100")
DISKS = {"/dev/nvme0n1": disks.PLAIN, "/dev/nvme1n1": disks.WITHOUT_DISCARD}


def prepare(t: Test) -> None:
    """Make the machines what the documents assume."""
    for node, host in ((t.server, 10), (t.client, 20)):
        node.modules_unload_all()
        program.install(node)
        # Stays: nothing else in the tests uses it, and depmod takes seconds.
        node.run("set -e; d=/lib/modules/$(uname -r)/updates; [ ! -d $d ] || exit 0; mkdir -p $d\n"
                 f"cp /host/modules/{node.module_set}/*.ko $d; depmod -a", timeout=120)
        for link, network in enumerate(NETWORKS):
            node.run(f"ip addr replace {network}.{host}/24 dev eth{link}")
        # An interface without an RDMA device.
        node.run("ip link add eth2 type dummy && ip link set eth2 up; mkdir -p /etc/rnbd")
    t.server.run("".join(f"ln -sf {disk} {name}\n" for name, disk in DISKS.items()))
    t.defer(tidy, t)


def tidy(t: Test) -> None:
    """Take back what the commands left, and the names."""
    t.client.run("cd /; umount /mnt; for d in /sys/block/rnbd*; do "
                 "[ ! -d $d ] || echo force >$d/rnbd/unmap_device; done", check=False)
    for node in t.nodes:
        node.run("rm -rf /etc/rnbd; ip link del eth2")
        # What modprobe has loaded, the test's own notes do not know.
        node.modules_unload_all()
        for link, network in enumerate(NETWORKS):
            node.run(f"for a in $(ip -o -4 addr show dev eth{link} | grep -o '{network}[0-9./]*'); do "
                     f"ip addr del $a dev eth{link}; done")
    t.server.run("rm -f " + " ".join(DISKS))


def run(t: Test, path: Path) -> None:
    """Type all blocks of a document, from the first to the last."""
    prepare(t)
    for block in documents.blocks(path):
        if block.place in ("client", "server"):
            node = t.client if block.place == "client" else t.server
            result = node.run(f"set -e\n{block.text}", check=False, timeout=60)
            t.equal(result.rc, 0, f"exit code of {block}: {result.out[-500:]}{result.err[-500:]}")


def subject(path: Path) -> Callable[[Test], None]:
    """The test of one document."""
    def test(t: Test) -> None:
        run(t, path)

    test.__doc__ = f"The commands of {path.relative_to(documents.CHECKOUT)}."
    return case(module_sets=("ours",))(test)


for _path in documents.documents():
    if any(_block.place in ("client", "server") for _block in documents.blocks(_path)):
        globals()["test_" + _path.stem.lower().replace("-", "_")] = subject(_path)
