# SPDX-License-Identifier: GPL-2.0
"""Network namespaces: both ends live in the initial one, as the C modules do."""

from __future__ import annotations

import errno

from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import rnbd

TOPOLOGY = "one"
NEAR, FAR = "10.78.0.1", "10.78.0.2"

# A namespace with an interface, an address and an RDMA device of its own.
SETUP = f"""set -e
modprobe veth; modprobe rdma_ucm
ip netns add other
ip link add veth0 type veth peer name veth1 netns other
ip link set veth0 mtu 4500 up
ip addr add {NEAR}/24 dev veth0
ip netns exec other ip link set lo up
ip netns exec other ip link set veth1 mtu 4500 up
ip netns exec other ip addr add {FAR}/24 dev veth1
rdma link add rxe8 type rxe netdev veth0
ip netns exec other rdma link add rxe9 type rxe netdev veth1
"""
CLEAN = "rdma link delete rxe9; rdma link delete rxe8; ip link del veth0; ip netns del other; true"


def set_up(t: Test) -> None:
    """Two RDMA devices on a cable, one of them in another namespace."""
    rnbd.load(t)
    t.defer(t.server.run, CLEAN)
    t.server.run(SETUP)


def test_client_in_another(t: Test) -> None:
    """A client program in another namespace is one on the network: it is served."""
    set_up(t)
    program = ("import sys; sys.path[:0] = ['/host/selftests']; from lib import guest_hostile; "
               f"print(guest_hostile.polite('{NEAR}'))")
    t.equal(t.client.sh(["ip", "netns", "exec", "other", "python3", "-c", program], timeout=60),
            "0", "chunk of the answer")
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/hostile", gone=True)


def test_address_of_another(t: Test) -> None:
    """Nobody listens on an address of another namespace."""
    set_up(t)
    with t.expect_errno(errno.ECONNRESET, errno.ECONNREFUSED, errno.ETIMEDOUT, errno.EHOSTUNREACH):
        rnbd.map_device(t, disks.PLAIN, paths=[f"ip:{FAR}"])
    t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), [], "sessions afterwards")
    rnbd.map_device(t, disks.PLAIN, paths=[f"ip:{NEAR}"]).unmap()


def test_map_in_another(t: Test) -> None:
    """map_device means addresses of the initial namespace, wherever the writer is."""
    set_up(t)
    text = rnbd.map_text(session="sess", device_path=disks.PLAIN, paths=[f"ip:{NEAR}"])
    t.client.run(["ip", "netns", "exec", "other", "bash", "-c",
                  f"echo {text} >{rnbd.MAP_DEVICE}"])
    device = rnbd.find_device(t.client, disks.PLAIN, "sess")
    t.defer(device.unmap_if_mapped)
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
    # The path is a loop within the initial namespace.
    t.equal(t.client.listdir(f"{rnbd.CLIENT_SESSIONS}/sess/paths"), [f"ip:{NEAR}@ip:{NEAR}"],
            "paths")
    device.unmap()


def test_namespace_goes(t: Test) -> None:
    """The end of a namespace, RDMA device and all, under a session of a client in it."""
    set_up(t)
    program = ("import sys; sys.path[:0] = ['/host/selftests']; from lib import guest_rtrs_peer\n"
               f"peer = guest_rtrs_peer.Peer('{NEAR}'); peer.establish(b'leaving')\n"
               "print('up', flush=True); sys.stdin.read()")
    job = t.client.start_job(["ip", "netns", "exec", "other", "python3", "-c",
                              program.replace("sys.stdin.read()", "import time; time.sleep(100)")],
                             timeout=110)
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/leaving", timeout=30)
    job.kill()
    job.wait()
    t.client.run(CLEAN)
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/leaving", gone=True, timeout=60)
    rnbd.map_device(t, disks.PLAIN).unmap()
