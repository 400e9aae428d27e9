# SPDX-License-Identifier: GPL-2.0
"""A link that loses packets."""

from lab.selftest_case import case
from lab.vm import wait_until
from lab.vm_node import CommandFailed
from lib import disks
from lib import rnbd
from lib.fio import fio
from lib.fio import verified

TOPOLOGY = "two"

KIB = 1024


def lossy(t, percent):
    """Both machines lose so many of the packets that they send; until the test is over."""
    for node in t.nodes:
        node.run(f"modprobe sch_netem; tc qdisc replace dev eth0 root netem loss {percent}%")
        t.defer(node.run, "tc qdisc del dev eth0 root 2>/dev/null || true")


@case(timeout=180)
def test_nothing_hangs(t):
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
    report = fio(t.client, device.path, check=False, rw="randrw", bs=64 * KIB, iodepth=16, size="64m",
                 runtime=t.rounds(8), time_based=True, continue_on_error="all", timeout=100)
    t.say(f"{report.read.ios + report.write.ios} requests, {report.errors} errors")
    for node in t.nodes:
        node.run("tc qdisc del dev eth0 root")
    t.say("reconnects: " + t.client.read(f"{rnbd.client_path(t, 'sess')}/stats/reconnects"))
    # The path may be about to fail, with a queue pair that broke when the last loss was made good.
    wait_until(lambda: sound(t, device), 60 * t.client.slow, "a path that carries requests")
    verified(t.client, device.path, rw="randwrite", bs=64 * KIB, iodepth=1, size="8m")


def sound(t, device):
    """Whether requests on all queues are answered now."""
    try:
        fio(t.client, device.path, rw="randread", bs=4 * KIB, iodepth=4, size="64k", numjobs=4,
            cpus_allowed="0-1", cpus_allowed_policy="split")
    except CommandFailed:
        return False
    return True
