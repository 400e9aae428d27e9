# SPDX-License-Identifier: GPL-2.0
"""What a lost path had sent does not land after newer data, however late it and the server's word are.

A client sends the requests of a lost path again when the server has said that the path has ended. Here
that word is late, too: the server does not get what comes to the service connection of the path that
carries the question. All that was written last must be on the disk when everything has come.
"""

from __future__ import annotations

import json

from lab.selftest_case import case
from lab.selftest_case import search
from lab.selftest_case import Test
from lab.vm_node import PendingCall
from lib import cable
from lib import disks
from lib import guest_io
from lib import guest_links
from lib import rnbd
from lib.rnbd import Device
from lib.stream import seconds

TOPOLOGY = "two"

SESSION = f"{rnbd.CLIENT_SESSIONS}/sess"
BLOCKS = 16
# How late packets of the second link are, and how long the first link's service connection hears
# nothing after it was asked, in seconds.
LATE, DEAF = 2, 4
# As they are in packets: an RDMA write of one packet with an immediate, and the question.
WRITE_WITH_IMMEDIATE, PATH_END = 0x0B, 4


def prepare(t: Test, disk: str) -> Device:
    """A device with a path by each link, used in turn. Heartbeats are frequent and may be missed for
    half a minute: longer than the server is deaf on a slow machine."""
    cable.prepare(t)
    t.server.run("tc qdisc add dev eth0 clsact")
    t.defer(t.server.run, "tc qdisc del dev eth0 clsact")
    # What is lost is sent again after a second or so.
    rnbd.load(t, rtrs_client="ack_timeout_ms=1000", ack_timeout_ms=0,
              rtrs_server=f"{rnbd.fewer_buffers(t)}ack_timeout_ms=8000")
    device = rnbd.map_device(t, disk, paths=[f"ip:{address}" for address in t.server.addresses])
    for name, value in {"hb_interval_ms": 300, "hb_missed_max": 100, "mpath_policy": "round-robin",
                        "reconnect_delay_ms": 60000}.items():
        t.client.write(f"{SESSION}/{name}", str(value))
    return device


def queue_pairs(t: Test) -> set[int]:
    """The server's queue pairs of connections on the first link, by number."""
    text = t.server.sh("rdma -j resource show qp link rxe0/1")
    return {pair["lqpn"] for pair in json.loads(text) if pair["type"] == "RC"}


def service_connection(t: Test, before: set[int]) -> int:
    """The service connection of the path that has come since there were these: it is made first."""
    return min(queue_pairs(t) - before)


def deafen(t: Test, queue_pair: int, version: int = 4) -> None:
    """The server gets nothing of what comes to a queue pair, by this version of IP. What asks for the end
    of a path is dropped by a filter of its own, which counts it."""
    header, next_header = {4: (20, 9), 6: (40, 6)}[version]
    # Behind the IP header: UDP (8 bytes), the base header with operation and queue pair (12), the
    # header of a write (16), the immediate, which has its type in front.
    base = header + 8
    here = (f"u32 match u8 17 0xff at {next_header} match u16 4791 0xffff at {header + 2} "
            f"match u32 {queue_pair:#x} 0xffffff at {base + 4}")
    question = (f"match u8 {WRITE_WITH_IMMEDIATE:#x} 0xff at {base} "
                f"match u8 {PATH_END << 4:#x} 0xf0 at {base + 28}")
    add = f"tc filter add dev eth0 ingress protocol {'ip' if version == 4 else 'ipv6'}"
    t.server.run(f"{add} pref {version} {here} {question} action drop\n"
                 f"{add} pref {10 + version} {here} action drop")


def hears_later(t: Test, versions: tuple[int, ...] = (4,)) -> PendingCall[list[int]]:
    """The server hears again ``DEAF`` seconds after the carrier of each version of IP has asked in vain, or
    after 20 seconds."""
    return t.server.start_call(90, guest_links.hear_after, device="eth0", preferences=list(versions),
                               deaf=DEAF, seconds=20)


def asked_in_vain(t: Test, hears: PendingCall[list[int]], taken: float) -> None:
    """Each of the paths that carry the question has sent it and was not heard, and the requests of the
    late path were not sent again before the server was."""
    lost = hears.wait()
    t.check(all(lost), f"questions lost by carrier: {lost}")
    t.check(taken > LATE, f"the late path's requests went on after {taken:.1f} s, unheard")


def written_twice(t: Test, device: Device, number: int,
                  meanwhile: str = "") -> tuple[list[tuple[int, int, int]], float]:
    """All blocks are written, half of them by the second link, whose packets come late, and which is
    lost by then; and when all are written, once more. What is to be found, and the seconds until
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
    late, gaps = rnbd.path_to(t, t.server.addresses[1]), []
    carrier = service_connection(t, set())
    for number in range(t.rounds(2)):
        cable.change(t, t.client, [1], f"delay {LATE}s", "delay 0ms")
        deafen(t, carrier)
        hears = hears_later(t)
        wanted, taken = written_twice(t, device, number, f"{late}/disconnect")
        gaps.append(taken)
        asked_in_vain(t, hears, taken)
        compare(t, device, wanted, number)
        cable.have(t.client, [1], "delay 0ms")
        rnbd.reconnect(t, late)
    t.say(f"until the requests of the late path were written: {seconds(gaps)}")


@case(timeout=240, module_sets=("ours",), quick=())
def test_by_hand(t: Test) -> None:
    """A path is disconnected whose packets come late, and the server can be asked later still."""
    by_hand(t, prepare(t, disks.PLAIN))


@case(timeout=300, module_sets=("ours",), quick=())
def test_slow_disk(t: Test) -> None:
    """The same with a disk that takes 400 ms for a write."""
    sectors = t.server.sh(f"blockdev --getsz {disks.PLAIN}").strip()
    t.server.run("modprobe dm_delay; dmsetup create --noudevsync late --table "
                 f"'0 {sectors} delay {disks.PLAIN} 0 0 {disks.PLAIN} 0 400' && dmsetup mknodes late")
    t.defer(t.server.run, "dmsetup remove --noudevsync --retry late")
    by_hand(t, prepare(t, "/dev/mapper/late"))


@case(timeout=240, module_sets=("ours",), quick=())
def test_carrier_lost(t: Test) -> None:
    """Two paths carry the question in vain, and one of them is lost, too; the other one has the response
    when the server hears it."""
    device = prepare(t, disks.PLAIN)
    carrier, late = (rnbd.path_to(t, address) for address in t.server.addresses)
    before = queue_pairs(t)
    first, gaps = service_connection(t, set()), []
    t.client.write(f"{SESSION}/add_path", f"ip:{t.server.addresses6[0]}")
    second = service_connection(t, before)
    for number in range(t.rounds(2)):
        cable.change(t, t.client, [1], f"delay {LATE}s", "delay 0ms")
        deafen(t, first)
        deafen(t, second, version=6)
        hears = hears_later(t, versions=(4, 6))
        # The carrier is lost while the path is being ended, after it has asked.
        loses = t.client.start_job(f"until ! grep -q '^connected' {late}/state; do sleep 0.1; done; "
                                   f"sleep {DEAF / 2}; echo 1 > {carrier}/disconnect", timeout=60)
        wanted, taken = written_twice(t, device, number, f"{late}/disconnect")
        gaps.append(taken)
        t.equal(loses.wait().rc, 0, "exit code of the carrier's loss")
        asked_in_vain(t, hears, taken)
        compare(t, device, wanted, number)
        cable.have(t.client, [1], "delay 0ms")
        before = queue_pairs(t)
        rnbd.reconnect(t, carrier)
        first = service_connection(t, before)
        rnbd.reconnect(t, late)
    t.say(f"until the requests of the late path were written: {seconds(gaps)}")


@case(timeout=240, module_sets=("ours",), quick=())
def test_another_comes_up(t: Test) -> None:
    """The only path that carries the question is not heard; one that comes up asks, too."""
    device = prepare(t, disks.PLAIN)
    late, gaps = rnbd.path_to(t, t.server.addresses[1]), []
    carrier = service_connection(t, set())
    t.client.write(f"{SESSION}/add_path", f"ip:{t.server.addresses6[0]}")
    other = rnbd.path_to(t, t.server.addresses6[0])
    for number in range(t.rounds(2)):
        t.client.write(f"{other}/disconnect", "1")
        cable.change(t, t.client, [1], f"delay {LATE}s", "delay 0ms")
        deafen(t, carrier)
        comes = t.client.start_job(f"sleep {LATE}; echo 1 > {other}/reconnect", timeout=60)
        wanted, taken = written_twice(t, device, number, f"{late}/disconnect")
        gaps.append(taken)
        t.equal(comes.wait().rc, 0, "exit code of the other path's return")
        # The carrier is still not heard.
        (lost,) = t.server.call(guest_links.hear_after, device="eth0", preferences=[4], deaf=0, seconds=0)
        t.check(lost > 0, "the carrier has not asked")
        compare(t, device, wanted, number)
        cable.have(t.client, [1], "delay 0ms")
        rnbd.reconnect(t, late)
    t.say(f"until the requests of the late path were written: {seconds(gaps)}")


@case(timeout=240, module_sets=("ours",))
def test_link_cut(t: Test) -> None:
    """The late path's link is cut, so that the server hears of its end by no other path than the one
    that carries the question; what had left before still comes."""
    device = prepare(t, disks.PLAIN)
    late, gaps = rnbd.path_to(t, t.server.addresses[1]), []
    carrier = service_connection(t, set())
    # Read by who cuts the link, written to when half of the requests are done.
    half = "/tmp/half"
    t.client.run(f"rm -f {half}; mkfifo {half}")
    for number in range(t.rounds(2)):
        cable.change(t, t.client, [1], f"delay {LATE}s", "delay 0ms")
        deafen(t, carrier)
        hears = hears_later(t)
        cut = t.client.start_job(
            f"read -r _ < {half}; tc qdisc change dev eth1 root netem limit 10000 delay {LATE}s loss 100%; "
            f"tc -s qdisc show dev eth1; echo 1 > {late}/disconnect", timeout=60)
        wanted, taken = written_twice(t, device, number, half)
        gaps.append(taken)
        result = cut.wait()
        t.equal(result.rc, 0, f"exit code of the cut, {result.err}")
        left = int(search(r"backlog \S+ (\d+)p", result.out)[1])
        t.check(left > 0, "nothing was on its way when the link was cut")
        asked_in_vain(t, hears, taken)
        cable.have(t.client, [1], f"delay {LATE}s loss 0%")
        compare(t, device, wanted, number)
        cable.have(t.client, [1], "delay 0ms")
        rnbd.reconnect(t, late)
    t.say(f"until the requests of the late path were written: {seconds(gaps)}")
