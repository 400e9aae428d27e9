# SPDX-License-Identifier: GPL-2.0
"""Paths with fewer connections than the client has CPUs (rtrs_client nr_connections)."""

from __future__ import annotations

from lab.selftest_case import case
from lab.selftest_case import EVERYWHERE
from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import guest_kv
from lib import rnbd
from lib.fio import verified

TOPOLOGY = "two"
CPUS = 2
EVERY_CPU = list(range(CPUS))
CONNECTIONS = "/sys/module/rtrs_server/clients/connections"


def queues(t: Test, disk: str) -> dict[str, str]:
    """The CPUs of each hardware queue of a disk."""
    folder = f"/sys/block/{disk}/mq"
    return {name: t.client.read(f"{folder}/{name}/cpu_list") for name in t.client.listdir(folder)}


@case(module_sets=("ours",), quick=EVERYWHERE)
def test_shared_evenly(t: Test) -> None:
    """CPUs share the connections evenly; each CPU reads and writes its data."""
    for wanted, shared in ((1, {"0": "0, 1"}), (2, {"0": "0", "1": "1"})):
        rnbd.load(t, rtrs_client=f"nr_connections={wanted}")
        device = rnbd.map_device(t, disks.PLAIN)
        t.equal(queues(t, device.name), shared, f"CPUs of the queues with nr_connections={wanted}")
        # The path has a service connection, too.
        t.equal(int(t.server.read(CONNECTIONS)), wanted + 1, f"connections with nr_connections={wanted}")
        verified(t.client, device.path, rw="randwrite", bs=4096, iodepth=16, size="1m", numjobs=CPUS,
                 offset_increment="1m", cpus_allowed="0-1", cpus_allowed_policy="split")
        t.client.call(guest_io.read_on_cpus, path=device.path, cpus=EVERY_CPU)
        device.unmap()


@case(module_sets=("ours",))
def test_server_of_c(t: Test) -> None:
    """A C server serves a client that makes fewer connections."""
    rnbd.use_set(t.server, "c")
    t.defer(rnbd.use_set, t.server, t.modules)
    rnbd.load(t, rtrs_client="nr_connections=1")
    device = rnbd.map_device(t, disks.PLAIN)
    t.equal(queues(t, device.name), {"0": "0, 1"}, "CPUs of the queues")
    verified(t.client, device.path, rw="randwrite", bs=4096, iodepth=16, size="1m", numjobs=CPUS,
             offset_increment="1m", cpus_allowed="0-1", cpus_allowed_policy="split")


@case(module_sets=("ours",))
def test_more_than_cpus(t: Test) -> None:
    """More connections than CPUs are not made."""
    rnbd.load(t, rtrs_client="nr_connections=4095")
    device = rnbd.map_device(t, disks.PLAIN)
    t.equal(queues(t, device.name), {str(cpu): str(cpu) for cpu in EVERY_CPU}, "CPUs of the queues")
    t.equal(int(t.server.read(CONNECTIONS)), CPUS + 1, "connections")


@case(module_sets=("ours",))
def test_polled(t: Test) -> None:
    """Polled queues follow the other queues; the first polled queue has the first CPU."""
    rnbd.load(t, rtrs_client="nr_connections=1")
    device = rnbd.map_device(t, disks.PLAIN, nr_poll_queues=2)
    t.equal(queues(t, device.name), {"0": "0, 1", "1": "0", "2": "1"}, "CPUs of the queues")
    for cpu in EVERY_CPU:
        verified(t.client, device.path, rw="randwrite", bs=4096, size="256k", ioengine="pvsync2", hipri=1,
                 cpus_allowed=cpu)


@case(module_sets=("ours",))
def test_path_comes_back(t: Test) -> None:
    """A path that was lost under requests of all CPUs has as many connections as before."""
    rnbd.load(t, rtrs_client="nr_connections=1 hold_io_ms=60000")
    device = rnbd.map_device(t, disks.PLAIN)
    path = rnbd.client_path(t, "sess")
    reads = t.client.start_call(120, guest_io.read_on_cpus, path=device.path, cpus=EVERY_CPU, count=t.scaled(60, 20))
    rnbd.reconnect(t, path)
    reads.wait()
    t.server.wait_for(CONNECTIONS, matches="^2$", timeout=30)
    rnbd.works(t, device)


@case(module_sets=("ours",))
def test_tasks_that_wait(t: Test) -> None:
    """A user of the transport whose tasks wait for each request uses it on every CPU."""
    t.client.modules_unload_all()
    t.server.modules_unload_all()
    for node in t.nodes:
        t.defer(node.modules_unload_all)
    t.server.modules_load("rtrs_kv_server", rtrs_server=rnbd.fewer_buffers(t).rstrip())
    t.client.modules_load("rtrs_kv_client", rtrs_client="nr_connections=1",
                          rtrs_kv_client=f"server=ip:{t.server.address} keys=colour")
    for cpu in EVERY_CPU:
        t.client.call(guest_kv.put_on_cpu, cpu=cpu, key="colour", length=1000, seed=cpu)
        t.intact(t.client.call(guest_kv.difference, key="colour", length=1000, seed=cpu), "",
                 f"the value that was put on CPU {cpu}")
