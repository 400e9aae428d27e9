# SPDX-License-Identifier: GPL-2.0
"""The fencing agent for Pacemaker takes a node off a disk, and lets the node come back when it can do no harm."""

from __future__ import annotations

import errno

from lab.paths import CHECKOUT
from lab.selftest_case import case
from lab.selftest_case import Test
from lab.vm_node import Node
from lib import disks
from lib import documented
from lib import guest_reservations as pr
from lib import rnbd
from lib.reservations import READ_WRITE

TOPOLOGY = "two"
ONLY_OURS = ("ours",)
DISK = "/dev/rnbd0"
AGENT = "/tmp/fence_rnbd"
SETTINGS = f"devices={DISK}\nkeys=alpha:0x10;beta:0x20\n"
ON, OFF = 0, 2


def agent(node: Node, action: str, target: str = "") -> tuple[int, str]:
    """Calls the agent as Pacemaker does; its exit code, and what it says."""
    text = f"action={action}\n{SETTINGS}" + (f"nodename={target}\n" if target else "")
    result = node.run(["python3", AGENT], check=False, stdin=text)
    return result.rc, (result.out + result.err).strip()


def prepare(t: Test) -> None:
    """The client is called alpha, and the server, which maps its own disk, beta."""
    documented.prepare(t)
    for node, name in ((t.client, "alpha"), (t.server, "beta")):
        before = node.read("/proc/sys/kernel/hostname")
        node.run(f"set -e; hostname {name}\nmodprobe rtrs_client ack_timeout_ms={rnbd.ACK_TIMEOUT_MS}\n"
                 "modprobe rnbd_client", timeout=120)
        t.defer(node.write, "/proc/sys/kernel/hostname", before)
        node.create(AGENT, (CHECKOUT / "packaging/pacemaker/fence_rnbd").read_bytes())
    t.server.run(f"set -e; modprobe rtrs_server ack_timeout_ms={rnbd.ACK_TIMEOUT_MS}; modprobe rnbd_server",
                 timeout=120)
    for node, name in ((t.client, "alpha"), (t.server, "beta")):
        node.write(rnbd.MAP_DEVICE, f"sessname={name} path=ip:192.0.2.10 device_path={disks.PLAIN} "
                                    "access_mode=migration")


@case(module_sets=ONLY_OURS, timeout=180, quick=())
def test_fence_rnbd(t: Test) -> None:
    """A node is registered, fenced by the other one, refused while it uses the disk, and registered again."""
    prepare(t)
    alpha, beta = t.client, t.server
    for node, name in ((alpha, "alpha"), (beta, "beta")):
        t.equal(agent(node, "monitor"), (0, ""), f"monitor on {name}")
        t.equal(agent(node, "on", name), (0, ""), f"on of {name}")
        # Again, as after a restart of Pacemaker.
        t.equal(agent(node, "on", name), (0, ""), f"on of {name}, once more")
    t.equal(alpha.call(pr.held, path=DISK), alpha.call(pr.held, path=DISK) | {"key": 0x10, "kind": 3}, "reservation")
    t.equal(agent(beta, "status", "alpha"), (ON, "Status: ON"), "status of alpha")
    alpha.run(f"mkfs.ext4 -q {DISK}; mkdir -p /mnt/fence; mount -t ext4 {DISK} /mnt/fence")
    t.defer(alpha.run, "umount /mnt/fence", check=False)
    t.equal(agent(alpha, "on", "alpha"), (0, ""), "on of alpha while it uses the disk and has its key")
    t.equal(agent(beta, "off", "alpha"), (0, ""), "off of alpha")
    t.equal(beta.call(pr.keys, path=DISK)["keys"], [0x20], "keys after alpha was fenced")
    # What the file system has not written yet fails with the write of the test: then its errno is EIO.
    read, written = alpha.call(pr.access, path=DISK)
    t.check(read == 0 and written in (errno.EBADE, errno.EIO), f"errnos of alpha: {read}, {written}")
    t.equal(beta.call(pr.access, path=DISK), READ_WRITE, "errnos of beta")
    t.equal(agent(beta, "status", "alpha"), (OFF, "Status: OFF"), "status of alpha that was fenced")
    code, said = agent(alpha, "off", "beta")
    t.check(code == 1 and "alpha is not registered" in said, f"off of beta by alpha: {code} {said}")
    code, said = agent(alpha, "on", "alpha")
    t.check(code == 1 and "is in use, and alpha has lost it" in said, f"on of alpha while it uses the disk: {said}")
    alpha.run("umount /mnt/fence")
    t.equal(agent(alpha, "on", "alpha"), (0, ""), "on of alpha without the file system")
    t.equal(alpha.call(pr.access, path=DISK), READ_WRITE, "errnos of alpha that is back")
    t.equal(sorted(beta.call(pr.keys, path=DISK)["keys"]), [0x10, 0x20], "keys at the end")
    beta.run(f"blkpr -c clear -k 0x20 {DISK}")
    t.server.run("echo force > /sys/block/rnbd0/rnbd/unmap_device")


@case(module_sets=ONLY_OURS, quick=())
def test_read_only(t: Test) -> None:
    """The agent says what to do about a disk that is mapped read-only, and about a disk of another kind."""
    prepare(t)
    for node in t.nodes:
        node.run("echo force > /sys/block/rnbd0/rnbd/unmap_device")
    t.client.write(rnbd.MAP_DEVICE, f"sessname=alpha path=ip:192.0.2.10 device_path={disks.PLAIN} access_mode=ro")
    code, said = agent(t.client, "on", "alpha")
    t.check(code == 1 and "map the disk with access_mode=migration" in said, f"on of a read-only disk: {code} {said}")
    result = t.client.run(["python3", AGENT, "-o", "monitor", "-d", disks.PLAIN, "-k", "alpha:1;beta:2"], check=False)
    t.check(result.rc == 1 and "has no reservations" in result.err, f"monitor of a disk without reservations: {result}")
