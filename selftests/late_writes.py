# SPDX-License-Identifier: GPL-2.0
"""What a lost path had sent does not land after newer data, however late it and the server's word are.

A client sends the requests of a lost path again when the server has said that the path has ended. Here
that word is late, too: the server does not get what comes to the service connection of the path that
carries the question. All that was written last must be on the disk when everything has come.
"""

from __future__ import annotations

import json

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import cable
from lib import disks
from lib import guest_io
from lib import guest_links
from lib import rnbd
from lib.rnbd import Device
from lib.stream import seconds

TOPOLOGY = "two"
LINKS = 2

SESSION = f"{rnbd.CLIENT_SESSIONS}/sess"
BLOCKS = 16
# How late packets of the second link are, and how long the first link's service connection hears
# nothing, in seconds.
LATE, DEAF = 2, 4


def prepare(t: Test, disk: str) -> Device:
    """A device with a path by each link, used in turn. Heartbeats are frequent and may be missed for
    ten seconds."""
    cable.prepare(t)
    t.server.run("tc qdisc add dev eth0 clsact")
    t.defer(t.server.run, "tc qdisc del dev eth0 clsact")
    # What is lost is sent again after a second or so.
    rnbd.load(t, rtrs_client="ack_timeout_ms=1000", ack_timeout_ms=0,
              rtrs_server=f"{rnbd.fewer_buffers(t)}ack_timeout_ms=8000")
    device = rnbd.map_device(t, disk, paths=[f"ip:{address}" for address in t.server.addresses])
    for name, value in {"hb_interval_ms": 100, "hb_missed_max": 100, "mpath_policy": "round-robin",
                        "reconnect_delay_ms": 60000}.items():
        t.client.write(f"{SESSION}/{name}", str(value))
    return device


def path_to(t: Test, address: str) -> str:
    """The folder of the client's path to an address."""
    (name,) = [name for name in t.client.listdir(f"{SESSION}/paths") if name.endswith(f"@ip:{address}")]
    return f"{SESSION}/paths/{name}"


def service_connection(t: Test) -> int:
    """The number of the queue pair on the first link that the server made first."""
    text = t.server.sh("rdma -j resource show qp link rxe0/1")
    return min(pair["lqpn"] for pair in json.loads(text) if pair["type"] == "RC")


def deafen(t: Test) -> None:
    """The server gets nothing of what comes to the first path's service connection."""
    t.server.run("tc filter add dev eth0 ingress protocol ip u32 match u8 17 0xff at 9 "
                 f"match u16 4791 0xffff at 22 match u32 {service_connection(t):#x} 0xffffff at 32 "
                 "action drop")


def written_twice(t: Test, device: Device, number: int,
                  meanwhile: str = "") -> tuple[list[tuple[int, int, int]], float]:
    """All blocks are written, half of them by the second link, whose packets come late, and which is
    given up by then; and when all are written, once more. What is to be found, and the seconds until
    the first were written."""
    length = (4 << 10, 64 << 10)[number % 2]
    seeds = [1 + 2 * number * BLOCKS, 1 + (2 * number + 1) * BLOCKS]
    done, taken = t.client.call_within(60, guest_io.overwrite_beside, path=device.path,
                                       length=length, blocks=BLOCKS, seeds=seeds,
                                       meanwhile=meanwhile)
    t.check(done < BLOCKS, f"no request was on the late path, {done} of {BLOCKS} done")
    return [(block * length, length, seeds[1] + block) for block in range(BLOCKS)], taken


def compare(t: Test, device: Device, wanted: list[tuple[int, int, int]], number: int) -> None:
    """Fail if the disk has something else, when all that is late has come."""
    t.client.call(guest_links.pass_behind, address=t.server.addresses[1])
    for offset, length, seed in wanted:
        t.intact(t.client.call(guest_io.compare, path=device.path, offset=offset, length=length,
                               seed=seed), None, f"difference at {offset}, round {number}")


def by_hand(t: Test, device: Device) -> None:
    """The late path is disconnected by hand; the server is asked for a while in vain."""
    late, gaps = path_to(t, t.server.addresses[1]), []
    for number in range(t.rounds(2)):
        cable.change(t, t.client, [1], f"delay {LATE}s", "delay 0ms")
        deafen(t)
        hears = t.server.start_job(f"sleep {DEAF}; tc filter del dev eth0 ingress", timeout=60)
        wanted, taken = written_twice(t, device, number, f"{late}/disconnect")
        gaps.append(taken)
        t.equal(hears.wait().rc, 0, "the filter's end")
        compare(t, device, wanted, number)
        cable.have(t.client, [1], "delay 0ms")
        rnbd.reconnect(t, late)
    t.say(f"until the requests of the late path were written: {seconds(gaps)}")


@case(timeout=240, module_sets=("ours",))
def test_by_hand(t: Test) -> None:
    """A path is disconnected whose packets come late, and the server can be asked later still."""
    by_hand(t, prepare(t, disks.PLAIN))


@case(timeout=300, module_sets=("ours",))
def test_slow_disk(t: Test) -> None:
    """The same with a disk that takes 400 ms for a write."""
    sectors = t.server.sh(f"blockdev --getsz {disks.PLAIN}").strip()
    t.server.run("modprobe dm_delay; dmsetup create --noudevsync late --table "
                 f"'0 {sectors} delay {disks.PLAIN} 0 0 {disks.PLAIN} 0 400' && dmsetup mknodes late")
    t.defer(t.server.run, "dmsetup remove --noudevsync --retry late")
    by_hand(t, prepare(t, "/dev/mapper/late"))


@case(timeout=240, module_sets=("ours",))
def test_carrier_lost(t: Test) -> None:
    """The path that carries the question is lost, too; another one has come up by then."""
    device = prepare(t, disks.PLAIN)
    carrier, late = (path_to(t, address) for address in t.server.addresses)
    gaps = []
    t.client.write(f"{SESSION}/add_path", f"ip:{t.server.addresses6[0]}")
    other = path_to(t, t.server.addresses6[0])
    for number in range(t.rounds(2)):
        t.client.write(f"{other}/disconnect", "1")
        cable.change(t, t.client, [1], f"delay {LATE}s", "delay 0ms")
        deafen(t)
        changes = t.client.start_job(f"sleep 1; echo 1 > {other}/reconnect; sleep {DEAF - 1}; "
                                     f"echo 1 > {carrier}/disconnect", timeout=60)
        wanted, taken = written_twice(t, device, number, f"{late}/disconnect")
        gaps.append(taken)
        result = changes.wait()
        t.equal(result.rc, 0, f"the other paths' changes, {result.err}")
        compare(t, device, wanted, number)
        t.server.run("tc filter del dev eth0 ingress")
        cable.have(t.client, [1], "delay 0ms")
        for path in (carrier, late):
            rnbd.reconnect(t, path)
    t.say(f"until the requests of the late path were written: {seconds(gaps)}")


@case(timeout=240, module_sets=("ours",))
def test_link_cut(t: Test) -> None:
    """The late path's link is cut, so that the server hears of its end by no other path than the one
    that carries the question; what had left before still comes."""
    device = prepare(t, disks.PLAIN)
    late, gaps = path_to(t, t.server.addresses[1]), []
    for number in range(t.rounds(2)):
        cable.change(t, t.client, [1], f"delay {LATE}s", "delay 0ms")
        deafen(t)
        hears = t.server.start_job(f"sleep {DEAF}; tc filter del dev eth0 ingress", timeout=60)
        cut = t.client.start_job(
            f"sleep 0.5; tc qdisc change dev eth1 root netem limit 10000 delay {LATE}s loss 100%; "
            f"echo 1 > {late}/disconnect", timeout=60)
        wanted, taken = written_twice(t, device, number)
        gaps.append(taken)
        t.equal([job.wait().rc for job in (hears, cut)], [0, 0], "what was done meanwhile")
        cable.have(t.client, [1], f"delay {LATE}s loss 0%")
        compare(t, device, wanted, number)
        cable.have(t.client, [1], "delay 0ms")
        rnbd.reconnect(t, late)
    t.say(f"until the requests of the late path were written: {seconds(gaps)}")
