# SPDX-License-Identifier: GPL-2.0
"""Several paths: how requests are spread, and paths that are added and removed under IO."""

from __future__ import annotations

import errno
import re
import time

from lab.selftest_case import case
from lab.selftest_case import OTHER
from lab.selftest_case import Test
from lab.vm import wait_until
from lib import cable
from lib import disks
from lib import fio
from lib import guest_io
from lib import guest_links
from lib import rnbd
from lib import uevents
from lib.batches import Batches
from lib.lag import Lag
from lib.rnbd import Device
from lib.stream import seconds
from lib.stream import Stream
from lib.stream import verified

TOPOLOGY = "two"
LINKS = 2

MAX_PATHS = 128
SESSION = f"{rnbd.CLIENT_SESSIONS}/sess"

# A path's cur_latency of 100 ms or more, or of less.
SLOW, QUICK = r"^[1-9]\d{8,} ns", r"^\d{1,8} ns"


def map_on(t: Test, *paths: str) -> Device:
    """A device with these paths."""
    cable.prepare(t)
    rnbd.load(t, rtrs_server=rnbd.fewer_buffers(t).rstrip())
    return rnbd.map_device(t, disks.PLAIN, paths=[f"ip:{path}" for path in paths])


def paths(t: Test) -> list[str]:
    """Names of the session's paths."""
    return t.client.listdir(f"{SESSION}/paths")


def name_of(t: Test, address: str) -> str:
    """The path to an address."""
    found = [name for name in paths(t) if name.endswith(f"@ip:{address}")]
    t.equal(len(found), 1, f"paths to {address} among {paths(t)}")
    return found[0]


def counts(t: Test, device: Device, policy: str, iodepth: int = 8) -> list[int]:
    """How many reads each path gets of 400 under a policy."""
    t.client.write(f"{SESSION}/mpath_policy", policy)
    names = [name_of(t, address) for address in t.server.addresses]
    for name in names:
        t.client.write(f"{SESSION}/paths/{name}/stats/reset_all", "1")
    fio.fio(t.client, device.path, rw="randread", bs="4k", iodepth=iodepth, number_ios=400,
            size="64M")
    return [int(t.client.read(f"{SESSION}/paths/{name}/stats/rdma").split()[0]) for name in names]


def counts_beside_slow(t: Test, device: Device, slow: int, most: int, lag: Lag) -> list[int]:
    """How many reads each path gets under min-latency while path ``slow`` is the slow one, by what the
    client measures. A busy host makes the other one slow at times: if the other one gets ``most`` at
    most, and is slow afterwards or a machine stood still meanwhile, they are counted again."""
    files = [f"{SESSION}/paths/{name_of(t, address)}/cur_latency" for address in t.server.addresses]
    found: list[int] = []
    for _ in range(3):
        t.client.wait_for(files[slow], matches=SLOW, timeout=20)
        t.client.wait_for(files[1 - slow], matches=QUICK, timeout=20)
        lag.lost()
        found = counts(t, device, "min-latency")
        stood_still = lag.lost()
        texts = [t.client.read(file) for file in files]
        if found[1 - slow] > most or (re.search(QUICK, texts[1 - slow]) and stood_still < 0.3):
            break
        t.say(f"min-latency with path {slow} slow: {found}; cur_latency {texts}, "
              f"stood still for {stood_still:.2f} s")
    return found


def test_policies(t: Test) -> None:
    """Round-robin takes turns, min-inflight uses all paths, min-latency the quicker one."""
    device = map_on(t, *t.server.addresses)
    got = counts(t, device, "round-robin")
    t.check(sum(got) >= 400 and min(got) > 180, f"round-robin: {got}")
    got = counts(t, device, "min-inflight")
    t.check(sum(got) >= 400 and min(got) > 40, f"min-inflight: {got}")
    if t.modules != "ours":
        return
    got = counts(t, device, "min-inflight", iodepth=1)
    t.check(min(got) > 100, f"min-inflight with one request at a time: {got}")
    t.client.write(f"{SESSION}/hb_interval_ms", "50")
    t.client.write(f"{SESSION}/hb_missed_max", "100")
    lag = Lag(t)
    # Far more than a slow machine takes by itself.
    delay = f"delay {round(300 * t.client.slow)}ms"
    for slow in (0, 1):
        cable.change(t, t.server, [slow], delay, "delay 0ms")
        path = f"{SESSION}/paths/{name_of(t, t.server.addresses[slow])}"
        # The debug kernel acknowledges heartbeats late by itself, now and then.
        most = 200 if t.debug else 300
        got = counts_beside_slow(t, device, slow, most, lag)
        by_requests = counts(t, device, "min-inflight")
        cable.have(t.server, [slow], "delay 0ms")
        t.check(got[1 - slow] > most, f"min-latency with path {slow} slow: {got}")
        # Taking turns they would get 200 each.
        t.check(by_requests[slow] < 150, f"min-inflight with path {slow} slow: {by_requests}")
        t.client.wait_for(f"{path}/cur_latency", matches=QUICK, timeout=20)


@case(timeout=600)
def test_add_and_remove(t: Test) -> None:
    """Paths are added and removed under verified IO, over IPv4 and IPv6."""
    device = map_on(t, t.server.addresses[0])
    stream = Stream(t, device)
    batches = Batches(t, rnbd.map_device(t, disks.WITHOUT_DISCARD))
    first = name_of(t, t.server.addresses[0])
    texts = (f"ip:{t.server.addresses[1]}",
             f"ip:{t.client.addresses[1]}@ip:{t.server.addresses[1]}",
             f"ip:{t.client.addresses[1]},ip:{t.server.addresses[1]}",
             f"ip:{t.server.addresses6[1]}")
    added = []
    for number in range(t.rounds(4)):
        text = texts[number % len(texts)]
        started = time.monotonic()
        t.client.write(f"{SESSION}/add_path", text)
        added.append(time.monotonic() - started)
        t.equal(len(paths(t)), 2, f"paths after {text}")
        (second,) = [name for name in paths(t) if name != first]
        stream.go_on()
        requests = t.client.read(f"{SESSION}/paths/{second}/stats/rdma").split()
        t.check(int(requests[0]) + int(requests[2]) > 0, f"{text} carried nothing")
        # What it carries goes on by the other one; then the other way round.
        t.client.write(f"{SESSION}/paths/{second}/disconnect", "1")
        stream.go_on()
        t.client.write(f"{SESSION}/paths/{second}/reconnect", "1")
        t.client.write(f"{SESSION}/paths/{first}/disconnect", "1")
        stream.go_on()
        t.client.write(f"{SESSION}/paths/{first}/reconnect", "1")
        stream.go_on()
        t.client.write(f"{SESSION}/paths/{second}/remove_path", "1")
        t.equal(paths(t), [first], "paths after removal")
        stream.go_on()
        batches.go_on()
    result = stream.stop()
    t.say(f"adding took {seconds(added)}; {verified(result)}; "
          f"longest request {result['longest']:.2f} s; {batches.stop()}")
    t.check(result["longest"] < 8.0 * t.client.slow, f"a request took {result['longest']:.2f} s")


def written_twice(t: Test, device: Device, number: int, delay: str,
                  meanwhile: str = "") -> tuple[list[tuple[int, int, int]], float]:
    """Blocks are written, some on the second path, whose packets come late; when it is taken down and
    all are written, once more. What has to be found, and the seconds until the first were written."""
    length, blocks = (4 << 10, 64 << 10)[number % 2], 16
    cable.change(t, t.client, [1], f"delay {delay}", "delay 0ms")
    seeds = [1 + 2 * number * blocks, 1 + (2 * number + 1) * blocks]
    done, taken = t.client.call_within(60, guest_io.overwrite_beside, path=device.path,
                                       length=length, blocks=blocks, seeds=seeds,
                                       meanwhile=meanwhile)
    t.check(done < blocks, f"no request was on the slow path, {done} of {blocks} done")
    return [(block * length, length, seeds[1] + block) for block in range(blocks)], taken


def compare(t: Test, device: Device, wanted: list[tuple[int, int, int]], number: int) -> None:
    """Fail if the disk has something else."""
    for offset, length, seed in wanted:
        t.intact(t.client.call(guest_io.compare, path=device.path, offset=offset, length=length,
                               seed=seed), None, f"difference at {offset}, round {number}")


@case(module_sets=("ours",), quick=(OTHER,))
def test_late_requests(t: Test) -> None:
    """What a path had sent when it was taken down does not overwrite what was written after that."""
    device = map_on(t, *t.server.addresses)
    t.client.write(f"{SESSION}/mpath_policy", "round-robin")
    slow, gaps = name_of(t, t.server.addresses[1]), []
    for number in range(t.rounds(4)):
        wanted, taken = written_twice(t, device, number, "300ms",
                                      f"{SESSION}/paths/{slow}/disconnect")
        gaps.append(taken)
        # All that was on the way has come before the end of the connection.
        t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/sess/paths/{slow}", gone=True)
        compare(t, device, wanted, number)
        cable.have(t.client, [1], "delay 0ms")
        rnbd.reconnect(t, f"{SESSION}/paths/{slow}")
    t.say(f"until what was on the slow path was written: {seconds(gaps)}")


@case(timeout=240, module_sets=("ours",))
def test_late_requests_of_silent(t: Test) -> None:
    """The same of a path that was lost since its heartbeats took too long."""
    interval, delay = (1000, "12s") if t.debug else (200, "4s")
    device = map_on(t, *t.server.addresses)
    t.client.write(f"{SESSION}/mpath_policy", "round-robin")
    slow, gaps = name_of(t, t.server.addresses[1]), []
    for name, value in {"hb_interval_ms": interval, "hb_missed_max": 3,
                        "reconnect_delay_ms": 60000}.items():
        t.client.write(f"{SESSION}/{name}", str(value))
    for number in range(t.rounds(1, 10)):
        wanted, taken = written_twice(t, device, number, delay)
        gaps.append(taken)
        # It comes behind all that was on the way.
        t.client.call(guest_links.pass_behind, address=t.server.addresses[1])
        compare(t, device, wanted, number)
        cable.have(t.client, [1], "delay 0ms")
        rnbd.reconnect(t, f"{SESSION}/paths/{slow}")
    t.say(f"until what was on the slow path was written: {seconds(gaps)}")


def test_policy_changes(t: Test) -> None:
    """The policy is changed over and over under verified IO."""
    device = map_on(t, *t.server.addresses)
    stream = Stream(t, device)
    batches = Batches(t, rnbd.map_device(t, disks.WITHOUT_DISCARD))
    for number in range(20):
        t.client.write(f"{SESSION}/mpath_policy", ("rr", "mi", "ml")[number % 3])
        stream.go_on(requests=1)
    result = stream.stop()
    t.say(f"20 changes; {verified(result)}; longest request {result['longest']:.2f} s; "
          f"{batches.stop()}")
    t.check(result["longest"] < 8.0 * t.client.slow, f"a request took {result['longest']:.2f} s")


def test_names(t: Test) -> None:
    """On both ends a path is named client@server by its addresses, and tells them."""
    rnbd.load(t)
    for link in range(LINKS):
        for mine, other in ((t.client.addresses, t.server.addresses),
                            (t.client.addresses6, t.server.addresses6)):
            near, far = f"ip:{mine[link]}", f"ip:{other[link]}"
            for text in (far, f"{near}@{far}"):
                device = rnbd.map_device(t, disks.PLAIN, paths=[text])
                for node, folder in ((t.client, SESSION), (t.server, f"{rnbd.SERVER_SESSIONS}/sess")):
                    t.equal(node.listdir(f"{folder}/paths"), [f"{near}@{far}"],
                            f"paths of the {node.name} for {text}")
                    path = f"{folder}/paths/{near}@{far}"
                    t.equal([node.read(f"{path}/{name}") for name in ("src_addr", "dst_addr")],
                            [near, far], f"addresses of the {node.name}'s path for {text}")
                    t.equal([node.read(f"{path}/{name}") for name in ("hca_name", "hca_port")],
                            [f"rxe{link}", "1"], f"device of the {node.name}'s path for {text}")
                device.unmap()
                for node, folder in ((t.client, SESSION), (t.server, f"{rnbd.SERVER_SESSIONS}/sess")):
                    node.wait_for(folder, gone=True, timeout=30)


def duplicates_of_lost(t: Test, device: Device) -> None:
    """While no path is connected the same paths are not tried either."""
    uevents.record(t)
    before = paths(t)
    for name in before:
        t.client.write(f"{SESSION}/paths/{name}/disconnect", "1")
    t.client.wait_for(f"{device.sysfs}/state", matches="closed")
    for name in before:
        for text in (name, name.rsplit("@", 1)[1]):
            with t.expect_errno(errno.EEXIST):
                t.client.write(f"{SESSION}/add_path", text)
    t.equal((paths(t), device.attribute("state")), (before, "closed"),
            "paths and the device's state")
    t.equal(uevents.actions(t, device, ["offline"]), ["offline"], "uevents")
    for name in before:
        rnbd.reconnect(t, f"{SESSION}/paths/{name}")
    t.client.wait_for(f"{device.sysfs}/state", matches="open")


def test_duplicates(t: Test) -> None:
    """A path that exists is EEXIST, whichever way it is written, and changes nothing."""
    device = map_on(t, *t.server.addresses)
    before = paths(t)
    for link in (0, 1):
        for text in (f"ip:{t.server.addresses[link]}",
                     f"ip:{t.client.addresses[link]}@ip:{t.server.addresses[link]}",
                     f"ip:{t.client.addresses[link]},ip:{t.server.addresses[link]}"):
            with t.expect_errno(errno.EEXIST):
                t.client.write(f"{SESSION}/add_path", text)
            t.equal(paths(t), before, f"paths after {text}")
    if t.modules == "ours":  # C connects the path and is told by sysfs
        duplicates_of_lost(t, device)
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
    device.unmap()
    t.client.wait_for(SESSION, gone=True)
    # The other way round: by both its addresses first, then without the one of this machine.
    pairs = [f"ip:{mine}@ip:{other}"
             for mine, other in zip(t.client.addresses, t.server.addresses, strict=True)]
    device = rnbd.map_device(t, disks.PLAIN, paths=pairs)
    t.client.write(f"{SESSION}/paths/{pairs[0]}/disconnect", "1")
    with t.expect_errno(errno.EEXIST):
        t.client.write(f"{SESSION}/add_path", f"ip:{t.server.addresses[0]}")
    t.equal(sorted(paths(t)), sorted(pairs), "paths after a duplicate of one that is down")
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=2)
    device.unmap()
    t.client.wait_for(SESSION, gone=True)
    with t.expect_errno(errno.EEXIST):
        rnbd.map_device(t, disks.PLAIN, paths=[f"ip:{t.server.address}"] * 2)
    t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), [], "sessions after a duplicate")


def more_addresses(t: Test, count: int) -> list[tuple[str, str]]:
    """Both machines get so many IPv4 addresses a link; each of a client's with each of a server's."""
    for node, host in ((t.client, 100), (t.server, 200)):
        for link in range(LINKS):
            for number in range(count):
                address = f"10.77.{link}.{host + number}/24 dev eth{link}"
                node.run(f"ip addr add {address}")
                t.defer(node.run, f"ip addr del {address}")
    return [(f"10.77.{link}.{100 + mine}", f"10.77.{link}.{200 + other}")
            for link in range(LINKS) for mine in range(count) for other in range(count)]


def test_same_ends_at_once(t: Test) -> None:
    """A path that is added twice at the same time, with and without its source, is there once."""
    map_on(t, t.server.addresses[0])
    # A server refuses a path while it takes one of the same ends down: each round has its own.
    others = sorted({other for _, other in more_addresses(t, t.rounds(10))})
    for number, other in enumerate(others):
        link = number * LINKS // len(others)
        full = f"ip:{t.client.addresses[link]}@ip:{other}"
        texts = (f"ip:{other}", full) if number % 2 else (full, f"ip:{other}")
        expected = sorted([*paths(t), full])
        jobs = [t.client.start_job(f"echo {text} > {SESSION}/add_path") for text in texts]
        codes = [job.wait().rc for job in jobs]
        t.equal(sorted(paths(t)), expected, f"paths in round {number} ({codes})")
        t.equal(codes.count(0), 1, f"writes that succeeded in round {number}")
        t.client.write(f"{SESSION}/paths/{full}/remove_path", "1")


def test_six_at_once(t: Test) -> None:
    """As many paths as map_device takes; all are connected and carry requests."""
    rnbd.load(t)
    pairs = more_addresses(t, 2)[::-1][:6]
    device = rnbd.map_device(t, disks.PLAIN,
                             paths=[f"ip:{mine}@ip:{other}" for mine, other in pairs])
    t.equal(sorted(paths(t)), sorted(f"ip:{mine}@ip:{other}" for mine, other in pairs), "paths")
    t.client.write(f"{SESSION}/mpath_policy", "round-robin")
    fio.verified(t.client, device.path, rw="randwrite", bs="4k", iodepth=4, size="1M")
    for name in paths(t):
        t.equal(t.client.read(f"{SESSION}/paths/{name}/state"), "connected", name)
        t.check(not t.client.read(f"{SESSION}/paths/{name}/stats/rdma").startswith("0 0 0 0 "),
                f"{name} has carried nothing")


@case(timeout=2400, kernels=("stock",), quick=(), module_sets=("ours",))
def test_most_paths(t: Test) -> None:
    """A session takes 128 paths and no more; IO works over all, and they can be removed again."""
    rnbd.load(t, rtrs_server="sess_queue_depth=4")
    pairs = more_addresses(t, 8)
    t.equal(len(pairs), MAX_PATHS, "pairs of addresses")
    device = rnbd.map_device(t, disks.PLAIN, paths=[f"ip:{pairs[0][0]}@ip:{pairs[0][1]}"])
    started = time.monotonic()
    for number, (mine, other) in enumerate(pairs[1:], 2):
        t.client.write(f"{SESSION}/add_path", f"ip:{mine}@ip:{other}")
        t.equal(len(paths(t)), number, f"paths after {mine}@{other}")
    added = time.monotonic() - started
    t.equal(len(t.server.listdir(f"{rnbd.SERVER_SESSIONS}/sess/paths")), MAX_PATHS,
            "paths of the server")
    for _ in range(2):
        with t.expect_errno(errno.ENOSPC):
            t.client.write(f"{SESSION}/add_path", f"ip:{t.server.address6}")
    t.equal(len(paths(t)), MAX_PATHS, "paths after one too many")
    t.client.write(f"{SESSION}/mpath_policy", "round-robin")
    fio.verified(t.client, device.path, rw="randwrite", bs="4k", iodepth=3, size="4M",
                 timeout=300)
    idle = [name for name in paths(t)
            if t.client.read(f"{SESSION}/paths/{name}/stats/rdma").startswith("0 0 0 0 ")]
    t.equal(idle, [], "paths that carried nothing")
    started = time.monotonic()
    for name in paths(t)[1:]:
        t.client.write(f"{SESSION}/paths/{name}/remove_path", "1")
    removed = time.monotonic() - started
    t.equal(len(paths(t)), 1, "paths that are left")
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
    wait_until(lambda: len(t.server.listdir(f"{rnbd.SERVER_SESSIONS}/sess/paths")) == 1,
               60 * t.server.slow, "the end of all paths but one on the server")
    device.unmap()
    t.client.wait_for(SESSION, gone=True, timeout=30)
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/sess", gone=True, timeout=30)
    t.say(f"{MAX_PATHS - 1} paths added in {added:.1f} s, removed in {removed:.1f} s")
