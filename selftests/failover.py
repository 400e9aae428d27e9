# SPDX-License-Identifier: GPL-2.0
"""Two links: requests of a path that fails go on by the other one."""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Callable

from lab.selftest_case import case
from lab.selftest_case import OTHER
from lab.selftest_case import Test
from lab.vm import wait_until
from lab.vm_node import Node
from lib import cable
from lib import disks
from lib import rnbd
from lib import uevents
from lib.batches import Batches
from lib.lag import Lag
from lib.rnbd import Device
from lib.stream import seconds
from lib.stream import Stream
from lib.stream import verified

TOPOLOGY = "two"

FAST = {"hb_missed_max": 3, "reconnect_delay_ms": 2000, "connect_timeout_ms": 10000}


def heartbeat_ms(t: Test) -> int:
    """How often the ends say that they are there; the debug kernel keeps silent for a second at times."""
    return 1000 if t.debug else 200


def fast_server(t: Test) -> str:
    """Parameters of the server's transport."""
    return f"{rnbd.fewer_buffers(t)}hb_interval_ms={heartbeat_ms(t)} hb_missed_max=3"


def map_on_both(t: Test, **settings: object) -> Device:
    """A device with a path over each link, and fast settings."""
    cable.prepare(t)
    # The first connection of a machine that has just booted takes long if the host is busy.
    rnbd.load(t, rtrs_client="connect_timeout_ms=120000", rtrs_server=fast_server(t))
    device = rnbd.map_device(t, disks.PLAIN,
                             paths=[f"ip:{address}" for address in t.server.addresses])
    for name, value in {"hb_interval_ms": heartbeat_ms(t), **FAST, **settings}.items():
        t.client.write(f"{rnbd.CLIENT_SESSIONS}/sess/{name}", str(value))
    return device


def in_batches(t: Test) -> Batches:
    """fio that writes and verifies in batches on another disk of the session."""
    paths = [f"ip:{address}" for address in t.server.addresses]
    return Batches(t, rnbd.map_device(t, disks.WITHOUT_DISCARD, paths=paths))


def rdma(t: Test, link: int) -> list[int]:
    """Counters of a path: reads, bytes, writes, bytes, in flight, failed over."""
    return [int(word) for word in t.client.read(f"{rnbd.path_over(t, link)}/stats/rdma").split()]


def taken_over(t: Test) -> list[int]:
    """How many requests of the other one each path has taken over."""
    return [rdma(t, link)[5] for link in (0, 1)]


def connected(t: Test, path: str) -> float:
    """Wait until a path is connected; the seconds it took."""
    started = time.monotonic()
    t.client.wait_for(f"{path}/state", matches="^connected", timeout=40)
    return time.monotonic() - started


def lose_and_find(t: Test, stream: Stream, lag: Lag, link: int) -> tuple[float, float, float]:
    """Cut a link and mend it; the longest time that a request took, the same without what a machine
    stood still for, and until the link is back."""
    stream.longest()
    lag.lost()
    cable.cut(t, link)
    t.client.wait_for(f"{rnbd.path_over(t, link)}/state", matches="disconnected", timeout=30)
    stream.go_on()
    gap = stream.longest()
    own = gap - lag.lost()
    cable.mend(t, link)
    back = connected(t, rnbd.path_over(t, link))
    stream.go_on()
    return gap, own, back


def lose_links(t: Test, count: int, with_fio: bool) -> list[float]:
    """A link dies under verified IO, and comes back, in turn; the longest a request took each time,
    without what a machine stood still for."""
    lag = Lag(t)
    # Only a busy host loses both paths, and that is not what this is about.
    stream = Stream(t, map_on_both(t, hold_io_ms=60000))
    batches = in_batches(t) if with_fio else None
    gaps, own, backs, failed_over = [], [], [], 0
    for number in range(count):
        lost, other = number % 2, 1 - number % 2
        before = taken_over(t)
        gap, without, back = lose_and_find(t, stream, lag, lost)
        gaps.append(gap)
        own.append(without)
        backs.append(back)
        if batches:
            batches.go_on()
        after = taken_over(t)
        t.equal(after[lost], before[lost], "requests that the path without a link has taken over")
        failed_over += after[other] - before[other]
    result = verified(stream.stop())
    if batches:
        result += f"; {batches.stop()}"
    t.say(f"failover gaps {seconds(gaps)}, without lost time {seconds(own)}; path back after {seconds(backs)}; "
          f"{failed_over} requests failed over; {result}")
    t.check(failed_over > 0, "no request was in flight when a link was cut")
    t.check(max(gaps) < 4.0 * t.client.slow, f"failover gaps: {gaps}")
    return own


@case(timeout=900, module_sets=("ours",), quick=("stock", OTHER))
def test_link_down(t: Test) -> None:
    """A link dies under verified IO: half of the gaps are under 1.2 s and all under 1.5 s, no request
    fails, and the path returns."""
    gaps = sorted(lose_links(t, t.rounds(2), with_fio=False))
    # 0.8 to 1 s of silence and the failover.
    t.check(gaps[-1] < 1.5 * t.client.slow, f"failover gaps, without lost time: {gaps}")
    t.check(gaps[(len(gaps) - 1) // 2] < 1.2 * t.client.slow,
            f"more than half of the failover gaps, without lost time: {gaps}")


@case(timeout=900, quick=(), module_sets=("ours",))
def test_link_down_under_fio(t: Test) -> None:
    """The same with 32 requests of fio in flight, which is slower where processors are emulated."""
    lose_links(t, t.rounds(2), with_fio=True)


@case(timeout=900, module_sets=("ours",), quick=())
def test_both_links_down(t: Test) -> None:
    """Both links die one after the other; requests wait and go on by the first that is back."""
    device = map_on_both(t, hold_io_ms=60000)
    stream, batches = Stream(t, device), in_batches(t)
    taken = []
    for number in range(t.rounds(2)):
        first = number % 2
        cable.cut(t, 0, 1)
        t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=30)
        cable.mend(t, first)
        taken.append(stream.go_on())
        cable.mend(t, 1 - first)
        t.client.wait_for(f"{rnbd.path_over(t, 1 - first)}/state", matches="^connected", timeout=40)
        stream.go_on()
        batches.go_on()
    t.say(f"goes on after {seconds(taken)}; {verified(stream.stop())}; {batches.stop()}")
    t.check(max(taken) < 20 * t.client.slow, f"going on took {taken} s")


def devices_in_turn(t: Test, count: int, lose: Callable[[int, str], None],
                    find: Callable[[int], None]) -> None:
    """One path and then the other is lost by ``lose(link, path)``, which IO survives, and comes back
    after ``find(link)``."""
    # Only a busy host loses both paths, and that is not what this is about.
    device = map_on_both(t, hold_io_ms=60000)
    stream, batches = Stream(t, device), in_batches(t)
    gaps, backs = [], []
    for number in range(count):
        link = number % 2
        path = rnbd.path_over(t, link)
        stream.longest()
        lose(link, path)
        stream.go_on()
        gaps.append(stream.longest())
        find(link)
        backs.append(connected(t, path))
        stream.go_on()
        batches.go_on()
    t.say(f"gaps {seconds(gaps)}; path back after {seconds(backs)}; {verified(stream.stop())}; "
          f"{batches.stop()}")
    t.check(max(gaps) < 4.0 * t.client.slow, f"gaps: {gaps}")


def delete_device(t: Test, link: int) -> None:
    """Remove the RDMA device of a link; when the test is over there is one again."""
    started = time.monotonic()
    t.client.run(f"rdma link delete rxe{link}", timeout=30)
    taken = time.monotonic() - started
    t.defer_once(t.client.run, f"rdma link show rxe{link}/1 || "
                 f"rdma link add rxe{link} type rxe netdev eth{link}")
    t.check(taken < 10 * t.client.slow, f"deleting the device took {taken:.1f} s")


def add_device(t: Test, link: int) -> None:
    """Make the RDMA device of a link."""
    t.client.run(f"rdma link add rxe{link} type rxe netdev eth{link}")


@case(timeout=900, module_sets=("ours",), quick=("debug",))
def test_device_removed(t: Test) -> None:
    """The RDMA device of one path is deleted under IO; the other carries on, and it comes back."""
    def lose(link: int, path: str) -> None:
        delete_device(t, link)
        t.equal(t.client.read(f"{path}/state"), "disconnected", "path without a device")

    devices_in_turn(t, t.rounds(3), lose, lambda link: add_device(t, link))


@case(timeout=900, quick=(), module_sets=("ours",))
def test_carrier_lost(t: Test) -> None:
    """The carrier of a link goes: IO goes on by the other path, and the path comes back."""
    def lose(link: int, path: str) -> None:
        t.client.set_link(link, False)
        t.defer_once(t.client.set_link, link, True)
        t.client.wait_for(f"{path}/state", matches="disconnected", timeout=30)

    def find(link: int) -> None:
        t.client.set_link(link, True)
        t.client.wait_for(f"/sys/class/net/eth{link}/carrier", matches="1")
        # lib/cable.py says what becomes of soft-RoCE's connection manager.
        delete_device(t, link)
        add_device(t, link)

    devices_in_turn(t, t.rounds(2), lose, find)


@case(timeout=600, quick=(), module_sets=("ours",))
def test_disconnects(t: Test) -> None:
    """Paths are disconnected and connected again by hand, one after the other and both at once."""
    device = map_on_both(t, hold_io_ms=60000)
    stream, batches = Stream(t, device), in_batches(t)
    gaps, backs, both = [], [], []
    for number in range(t.rounds(4)):
        folders = [rnbd.path_over(t, link) for link in (0, 1)]
        uevents.record(t)
        for path in folders[::1 - number % 2 * 2]:
            stream.longest()
            t.client.write(f"{path}/disconnect", "1")
            stream.go_on()
            gaps.append(stream.longest())
            started = time.monotonic()
            rnbd.reconnect(t, path)
            backs.append(time.monotonic() - started)
            stream.go_on()
        for path in folders:
            t.client.write(f"{path}/disconnect", "1")
        t.client.wait_for(f"{device.sysfs}/state", matches="closed")
        # None while there was the other path.
        t.equal(uevents.actions(t, device, ["offline"]), ["offline"], "uevents")
        started = time.monotonic()
        for path in folders:
            rnbd.reconnect(t, path)
        stream.go_on()
        both.append(time.monotonic() - started)
        batches.go_on()
    t.say(f"gaps {seconds(gaps)}; connecting took {seconds(backs)}; "
          f"both paths and going on {seconds(both)}; {verified(stream.stop())}; {batches.stop()}")
    t.check(max(gaps) < 4.0 * t.client.slow, f"gaps: {gaps}")


def server_comes_again(t: Test, count: int, restart: Callable[[Device], None]) -> None:
    """The server goes and comes ``count`` times, by ``restart(device)``: IO goes on, by both paths."""
    device = map_on_both(t, hold_io_ms=200000)
    stream, batches = Stream(t, device), in_batches(t)
    taken, both = [], []
    for _ in range(count):
        restart(device)
        started = time.monotonic()
        taken.append(stream.go_on())
        for link in (0, 1):
            connected(t, rnbd.path_over(t, link))
        both.append(time.monotonic() - started)
        stream.go_on()
        t.equal(len(t.server.listdir(f"{rnbd.SERVER_SESSIONS}/sess/paths")), 2, "server's paths")
        batches.go_on()
    t.say(f"goes on after {seconds(taken)}, both paths after {seconds(both)}; "
          f"{verified(stream.stop())}; {batches.stop()}")
    t.check(max(both) < 20 * t.client.slow, f"both paths took {both} s")


@case(timeout=900, module_sets=("ours",), quick=())
def test_server_reloaded(t: Test) -> None:
    """The server's modules are unloaded and loaded: both paths connect at once, and IO goes on."""
    def restart(device: Device) -> None:
        t.server.modules_unload_all()
        t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=30)
        t.server.modules_load("rnbd_server", rtrs_server=fast_server(t))

    server_comes_again(t, t.rounds(2), restart)


@case(timeout=1500, quick=(), module_sets=("ours",))
def test_server_reboots(t: Test) -> None:
    """The server loses power and boots again: IO goes on, by both paths."""
    def restart(_device: Device) -> None:
        t.lab.reboot(t.server)
        rnbd.load(t, rtrs_client="connect_timeout_ms=120000", rtrs_server=fast_server(t))

    server_comes_again(t, t.rounds(1), restart)


def queue_pairs(node: Node, link: int) -> set[int]:
    """Numbers of the queue pairs of an RDMA device."""
    found = json.loads(node.sh(f"rdma -j resource show qp link rxe{link}/1") or "[]")
    return {entry["lqpn"] for entry in found}


@case(timeout=240, quick=(), module_sets=("ours",))
def test_lost_on_the_server(t: Test) -> None:
    """The server loses its last path while the client, which does not see it, connects another."""
    device = map_on_both(t, hold_io_ms=60000, hb_interval_ms=2000, hb_missed_max=5)
    stream = Stream(t, device)
    folder = f"{rnbd.SERVER_SESSIONS}/sess/paths"
    silent, again = (f"{folder}/{name}" for address in t.client.addresses
                     for name in t.server.listdir(folder) if address in name)
    # So that connecting takes more than a second.
    for node in t.nodes:
        cable.change(t, node, [1], "delay 150ms", "delay 0ms")
    before = queue_pairs(t.server, 1)
    t.server.write(f"{again}/disconnect", "1")
    wait_until(lambda: bool(queue_pairs(t.server, 1) - before), 30 * t.server.slow, "a new connection")
    cable.change(t, t.server, [0], "loss 100%", "loss 0%")
    t.server.write(f"{silent}/disconnect", "1")
    t.server.wait_for(silent, gone=True)
    t.equal(t.client.read(f"{rnbd.path_over(t, 0)}/state"), "connected", "the path that is silent")
    taken = stream.go_on()
    cable.mend(t, 0, 1)
    connected(t, rnbd.path_over(t, 0))
    connected(t, rnbd.path_over(t, 1))
    stream.go_on()
    t.say(f"goes on after {taken:.1f} s; {verified(stream.stop())}")
    t.equal(device.attribute("state"), "open", "state")


@case(timeout=240, quick=(), module_sets=("ours",))
def test_lost_again(t: Test) -> None:
    """Both paths go, and whichever is back first goes again at once: the device comes back by the other one."""
    device = map_on_both(t, hold_io_ms=600000, reconnect_delay_ms=300)
    stream = Stream(t, device)
    folder = f"{rnbd.SERVER_SESSIONS}/sess/paths"
    slowest = 0.0
    for _round in range(t.rounds(5, 40)):
        # By one program of the server, which is faster than the client.
        t.server.run(f"cd {folder} && for path in *; do echo 1 >$path/disconnect; done; "
                     f"cd /; until [ -n \"$(ls {folder} 2>/dev/null)\" ]; do sleep 0.02; done; "
                     f"for path in {folder}/*; do echo 1 >$path/disconnect; done; true")
        started = time.monotonic()
        stream.go_on()
        t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=30)
        slowest = max(slowest, time.monotonic() - started)
        for number in (0, 1):
            connected(t, rnbd.path_over(t, number))
    t.say(f"back after at most {slowest:.1f} s; {verified(stream.stop())}")


def reads_at_server(t: Test) -> int:
    """How many reads the server has got by all paths."""
    folder = f"{rnbd.SERVER_SESSIONS}/sess/paths"
    return sum(int(t.server.read(f"{folder}/{name}/stats/rdma").split()[0])
               for name in t.server.listdir(folder))


def given_up_read(t: Test, addresses: list[str], connect: Callable[[float], object]) -> None:
    """Give up a read that the server's disk holds, by disconnecting all paths, and write with as many
    requests as there are buffers after ``connect(seconds)``, which is tried before the read is
    finished and, if the server does not let it, again afterwards."""
    held = disks.holdable(t, 8, disks.WITHOUT_DISCARD)
    rnbd.load(t, rtrs_client="connect_timeout_ms=120000", rtrs_server="sess_queue_depth=8")
    paths = [f"ip:{address}" for address in addresses]
    device = rnbd.map_device(t, disks.PLAIN, paths=paths)
    slow = rnbd.map_device(t, held, paths=paths)
    t.client.run("udevadm settle", timeout=60)
    disks.hold(t, held)
    before = reads_at_server(t)
    read = t.client.start_job(["dd", f"if={slow.path}", "of=/dev/null", "bs=64k", "count=1",
                               "iflag=direct"], timeout=240)
    t.client.wait_for(f"/sys/block/{slow.name}/inflight", matches=r"^\s*1\s", timeout=30)
    wait_until(lambda: reads_at_server(t) > before, 30 * t.client.slow, "the read at the server")
    links = range(len(addresses))
    # The one that the read is on first, or it would fail over.
    for link in sorted(links, key=lambda link: rdma(t, link)[4], reverse=True):
        t.client.write(f"{rnbd.path_over(t, link)}/disconnect", "1")
    t.check(read.wait().rc != 0, "the read did not fail without a path")

    early = connects(t, connect, 5.0)
    if not early:
        disks.let_go(t, held)
        connect(60.0)
    t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=30)
    # More at a time than there are buffers, so that each is used.
    blocks = 200
    write = t.client.start_job(
        ["fio", "--name=after", f"--filename={device.path}", "--rw=randwrite", "--bs=64k",
         "--direct=1", "--ioengine=io_uring", "--iodepth=32", f"--size={blocks * 64}k",
         "--verify=crc32c", "--do_verify=1", "--verify_fatal=0", "--thread=1"], timeout=120)
    if early:
        # All but the one in the buffer of the read.
        wait_until(lambda: int(t.client.read(f"/sys/block/{device.name}/stat").split()[4])
                   >= blocks - 1, 60 * t.client.slow, "the writes beside the one that waits")
        disks.let_go(t, held)
    result = write.wait()
    t.say("connected before the read was finished" if early
          else "not connected before the read was finished")
    t.equal(result.rc, 0, f"exit code of fio, which says {result.err[-500:]}")


def connects(t: Test, connect: Callable[[float], object], seconds: float) -> bool:
    """Whether ``connect(seconds)`` does its work."""
    try:
        connect(seconds)
    except OSError as error:
        t.check(error.errno in (errno.ENOTCONN, errno.ECONNRESET), f"errno: {error}")
        return False
    return True


@case(timeout=300, module_sets=("ours",))
def test_given_up_read(t: Test) -> None:
    """A read that the client has given up does not spoil the data of a later write in its buffer."""
    given_up_read(t, t.server.addresses,
                  lambda seconds: rnbd.reconnect(t, rnbd.path_over(t, 1), seconds))


@case(timeout=300, module_sets=("ours",), quick=())
def test_given_up_read_path_added(t: Test) -> None:
    """The same, with a path that is added: it is refused before the read is finished."""
    def connect(seconds: float) -> None:
        if seconds < 10.0:
            t.client.write(f"{rnbd.CLIENT_SESSIONS}/sess/add_path", f"ip:{t.server.addresses[1]}")
        else:
            rnbd.reconnect(t, rnbd.path_over(t, 0), seconds)

    given_up_read(t, t.server.addresses[:1], connect)
