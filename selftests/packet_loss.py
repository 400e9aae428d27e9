# SPDX-License-Identifier: GPL-2.0
"""A link that loses packets."""

from __future__ import annotations

import json
import time

from lab.selftest_case import case
from lab.selftest_case import search
from lab.selftest_case import Test
from lab.vm import wait_until
from lab.vm_node import CommandFailed
from lab.vm_node import Node
from lib import disks
from lib import rnbd
from lib.fio import fio
from lib.fio import verified
from lib.rnbd import Device
from lib.stream import Stream

TOPOLOGY = "two"

KIB = 1024


def lossy(t: Test, percent: int) -> None:
    """Both machines lose so many of the packets that they send; until the test is over."""
    for node in t.nodes:
        node.run(f"modprobe sch_netem; tc qdisc replace dev eth0 root netem loss {percent}%")
        t.defer(node.run, "tc qdisc del dev eth0 root 2>/dev/null || true")


@case(timeout=180, quick=())
def test_nothing_hangs(t: Test) -> None:
    """With 2 % lost, requests are answered or fail; with none lost again, the path is back and data are whole.

    soft-RoCE breaks a queue pair when it repeats what lies before a registration,
    without an error, so with reads in flight this is about queue pairs that
    break silently.
    """
    rnbd.load(t, ack_timeout_ms=0)
    device = rnbd.map_device(t, disks.PLAIN)
    session = f"{rnbd.CLIENT_SESSIONS}/sess"
    if t.modules == "ours":
        t.client.write(f"{session}/reconnect_delay_ms", "1000")
    lossy(t, 2)
    report = fio(t.client, device.path, check=False, rw="randrw", bs=64 * KIB, iodepth=16,
                 size="64m", runtime=t.rounds(4), time_based=True, continue_on_error="all",
                 timeout=100)
    t.say(f"{report.read.ios + report.write.ios} requests, {report.errors} errors")
    t.check(report.read.ios + report.write.ios > report.errors, "no request was successful")
    for node in t.nodes:
        lost = int(search(r"dropped (\d+)", node.sh("tc -s qdisc show dev eth0 root"))[1])
        t.check(lost > 0, f"no packet of the {node.name} was lost")
        node.run("tc qdisc del dev eth0 root")
    t.equal(t.client.read(f"/sys/block/{device.name}/inflight").split(), ["0", "0"],
            "requests in flight after fio has ended")
    t.say("reconnects: " + t.client.read(f"{rnbd.client_path(t, 'sess')}/stats/reconnects"))
    # The path may be about to fail, with a queue pair that broke when the last loss was made good.
    wait_until(lambda: sound(t, device), 60 * t.client.slow, "a path that carries requests")
    verified(t.client, device.path, rw="randwrite", bs=64 * KIB, iodepth=1, size="8m")


def sound(t: Test, device: Device) -> bool:
    """Whether requests on all queues are answered now."""
    try:
        fio(t.client, device.path, rw="randread", bs=4 * KIB, iodepth=4, size="64k", numjobs=4,
            cpus_allowed="0-1", cpus_allowed_policy="split")
    except CommandFailed:
        return False
    return True


def prepare_to_filter(t: Test) -> None:
    """Let packets that come to the client be dropped; to be called before there are connections."""
    t.client.run("tc qdisc add dev eth0 clsact")
    t.defer(t.client.run, "tc qdisc del dev eth0 clsact")


def drop_acknowledgements(node: Node, queue_pair: int) -> None:
    """Have a machine not see that what it sends on this queue pair is received, from now on."""
    # RoCE is UDP; what is looked at is the opcode, an acknowledgement, and the queue pair.
    node.run("tc filter add dev eth0 ingress protocol ip u32 match u8 17 0xff at 9 "
             "match u16 4791 0xffff at 22 match u8 0x11 0xff at 28 "
             f"match u32 {queue_pair:#x} 0xffffff at 32 action drop")


def see_acknowledgements(node: Node) -> None:
    """Have it see them again."""
    node.run("tc filter del dev eth0 ingress")


def service_queue_pair(node: Node) -> int:
    """The number of the queue pair of the client's service connection, which is made first."""
    pairs = json.loads(node.sh("rdma -j resource show qp link rxe0"))
    return min(pair["lqpn"] for pair in pairs if pair["type"] == "RC")


@case(module_sets=("ours",), kernels=("stock",))
def test_heartbeats_let_the_device_repeat(t: Test) -> None:
    """A request for a device goes on after its acknowledgement was lost, however often heartbeats come.

    soft-RoCE waits for longer each time that something is posted, and sends none of it while it
    waits.
    """
    prepare_to_filter(t)
    # No heartbeat before the request is stuck: it would be repeated with the request's registration,
    # which breaks the connection.
    rnbd.load(t, rtrs_client="hb_interval_ms=60000 ack_timeout_ms=2000",
              rtrs_server="hb_interval_ms=60000 ack_timeout_ms=8000", ack_timeout_ms=0)
    device = rnbd.map_device(t, disks.PLAIN)
    # The path is in use all the while, by other connections.
    stream = Stream(t, device, sizes=(4 * KIB,))
    drop_acknowledgements(t.client, service_queue_pair(t.client))
    opened = t.server.log_mark()
    text = rnbd.map_text(session="sess", device_path=disks.WITHOUT_DISCARD, paths=[])
    mapping = t.client.start_job(f"echo '{text}' > {rnbd.MAP_DEVICE}", timeout=50)
    t.server.wait_log("opened device", opened)
    t.client.write(f"{rnbd.CLIENT_SESSIONS}/sess/hb_interval_ms", "100")
    stream.go_on(requests=50)
    t.equal(mapping.done(), False, "mapped without an acknowledgement")
    see_acknowledgements(t.client)
    began = time.monotonic()
    result = mapping.wait()
    t.equal(result.rc, 0, f"mapping, {result.err}")
    t.say(f"mapped {time.monotonic() - began:.1f} s after acknowledgements were seen again")
    rnbd.find_device(t.client, disks.WITHOUT_DISCARD, "sess").unmap()
    stream.stop()
    reconnects = t.client.read(f"{rnbd.client_path(t, 'sess')}/stats/reconnects")
    t.equal(reconnects, "0 0", "reconnects")
