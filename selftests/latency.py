# SPDX-License-Identifier: GPL-2.0
"""Where the time of requests goes: both ends count it while they are asked to, in the stage that takes it."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from typing import Any

from lab.selftest_case import case
from lab.selftest_case import OTHER
from lab.selftest_case import Test
from lab.vm import wait_until
from lab.vm_node import Node
from lib import cable
from lib import disks
from lib import fio
from lib import guest_io
from lib import program
from lib import rnbd
from lib.rnbd import Device

TOPOLOGY = "two"
ONLY_OURS = ("ours",)

CLIENT_STAGES = ("wait", "remote", "whole")
SERVER_STAGES = ("queue", "disk", "response", "whole")
KINDS = ("read", "write", "other")
KIB, MIB = 1 << 10, 1 << 20
DELAY_MS = 100
# Of a stage that nothing was done to, in the mean; an emulated machine takes ms for a request.
FREE_MS = 50.0


def client_folder(device: Device) -> str:
    """The histograms of a device."""
    return f"{device.sysfs}/latency"


def server_folder(t: Test) -> str:
    """The histograms of the server's end of the only device."""
    names = t.server.listdir(rnbd.SERVER_DEVICES)
    t.equal(len(names), 1, f"exported devices among {names}")
    return f"{rnbd.SERVER_DEVICES}/{names[0]}/sessions/sess/latency"


class Look:
    """What a folder of histograms says: for each file the requests, and their ns."""

    def __init__(self, node: Node, folder: str, stages: tuple[str, ...]) -> None:
        names = [f"{kind}_{stage}" for kind in KINDS for stage in stages]
        text = node.sh(f"cd {folder}; for f in {' '.join(names)}; do echo file $f; cat $f; done")
        self.requests, self.ns = {}, {}
        for part in text.split("file ")[1:]:
            name, requests, ns, *buckets = part.strip().split("\n")
            self.requests[name] = int(requests.removeprefix("requests "))
            self.ns[name] = int(ns.removeprefix("ns "))
            counted = sum(int(line.split()[1]) for line in buckets)
            assert counted == self.requests[name], f"{folder}/{name}: {counted} in buckets of {part}"

    def total(self) -> int:
        """All requests."""
        return sum(self.requests[f"{kind}_whole"] for kind in KINDS)

    def mean_ms(self, name: str) -> float:
        """The mean of a file."""
        return self.ns[name] / self.requests[name] / 1e6


def begin(node: Node, folder: str, seconds: int = 600) -> None:
    """Have requests be counted."""
    node.write(f"{folder}/seconds", str(seconds))


def reads(t: Test, device: Device, count: int) -> None:
    """So many reads, one after the other."""
    for number in range(count):
        t.client.call(guest_io.digest, path=device.path, offset=number * 4 * KIB, length=4 * KIB)


def adds_up(t: Test, look: Look, stages: tuple[str, ...]) -> None:
    """All stages have the same requests, and their times are the whole."""
    for kind in KINDS:
        counts = {look.requests[f"{kind}_{stage}"] for stage in stages}
        t.equal(len(counts), 1, f"numbers of {kind} requests in the stages: {look.requests}")
        parts = sum(look.ns[f"{kind}_{stage}"] for stage in stages[:-1])
        t.equal(look.ns[f"{kind}_whole"], parts, f"ns of all {kind} requests, and the sum of the stages")


@case(timeout=240, module_sets=ONLY_OURS, quick=("stock", "debug", OTHER))
def test_counts(t: Test) -> None:
    """Each request is counted once at both ends, none before and none after; the times add up."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    rnbd.works(t, device)
    ends = [(t.client, client_folder(device), CLIENT_STAGES),
            (t.server, server_folder(t), SERVER_STAGES)]

    def requests() -> list[dict[str, int]]:
        looks = [Look(*end) for end in ends]
        for look, (_, _, stages) in zip(looks, ends, strict=True):
            adds_up(t, look, stages)
        return [{kind: look.requests[f"{kind}_whole"] for kind in KINDS} for look in looks]

    def settle(made: dict[str, int]) -> None:
        # The server counts just after it has sent the response.
        wait_until(lambda: Look(*ends[1]).total() >= sum(made.values()), 10 * t.client.slow,
                   f"{made} requests counted by the server")

    def some() -> dict[str, int]:
        before = rnbd.disk_stats(t.client, device.name)
        reads(t, device, 8)
        rnbd.works(t, device, 256 * KIB)
        t.client.call(guest_io.discard, path=device.path, offset=MIB, length=MIB)
        after = rnbd.disk_stats(t.client, device.name)
        made = {name: after[name] - before[name] for name in after}
        return {"read": made["reads"], "write": made["writes"], "other": made["discards"] + made["flushes"]}

    t.equal(requests(), [dict.fromkeys(KINDS, 0)] * 2, "requests counted before anybody asked")
    for node, folder, _ in ends:
        begin(node, folder)
        t.equal(node.read(f"{folder}/seconds").strip(), "600", "seconds that are left")
    made = some()
    t.check(all(made.values()), f"requests that were made: {made}")
    settle(made)
    t.equal(requests(), [made, made], "requests counted at both ends, and those that were made")
    for node, folder, _ in ends:
        # A shorter time does not end what was asked for longer.
        begin(node, folder, 1)
        t.check(int(node.read(f"{folder}/seconds")) > 500, "a shorter time has shortened the longer one")
        begin(node, folder, 0)
        t.equal(node.read(f"{folder}/seconds").strip(), "0", "seconds that are left")
    some()
    t.equal(requests(), [made, made], "requests counted after the end")
    for node, folder, _ in ends:
        begin(node, folder, 1)
        node.wait_for(f"{folder}/seconds", matches="^0", timeout=20)
    some()
    t.equal(requests(), [made, made], "requests counted after the time was over")
    for node, folder, _ in ends:
        for text in ("3601", "-1", "x", ""):
            with t.expect_errno(errno.EINVAL, errno.ERANGE):
                node.write(f"{folder}/seconds", text or "\n")


@case(module_sets=ONLY_OURS)
def test_unmap_while_counting(t: Test) -> None:
    """A device can be unmapped, and closed by the server, while its requests are counted."""
    rnbd.load(t)
    for how in ("normal", "force"):
        device = rnbd.map_device(t, disks.PLAIN)
        begin(t.client, client_folder(device))
        begin(t.server, server_folder(t))
        reads(t, device, 2)
        device.unmap(how)
    device = rnbd.map_device(t, disks.PLAIN)
    folder = server_folder(t)
    begin(t.server, folder)
    t.server.write(f"{folder}/../force_close", "1")
    t.server.wait_for(folder, gone=True)
    rnbd.unmap_all(t)
    # Nothing keeps the modules.
    t.client.modules_unload_all()
    t.server.modules_unload_all()


def slow_disk(t: Test, ms: int) -> str:
    """A disk of the server whose requests take this long."""
    sectors = t.server.sh(f"blockdev --getsz {disks.PLAIN}").strip()
    t.server.run("modprobe dm_delay; dmsetup create --noudevsync slow --table "
                 f"'0 {sectors} delay {disks.PLAIN} 0 {ms}' && dmsetup mknodes slow")
    t.defer(t.server.run, "dmsetup remove --noudevsync --retry slow")
    return "/dev/mapper/slow"


def measured(t: Test, device: Device, run: Callable[[], object]) -> tuple[Look, Look]:
    """What both ends count while something is done."""
    folders = client_folder(device), server_folder(t)
    begin(t.client, folders[0])
    begin(t.server, folders[1])
    run()
    return Look(t.client, folders[0], CLIENT_STAGES), Look(t.server, folders[1], SERVER_STAGES)


def free(t: Test, look: Look, *names: str) -> None:
    """These stages have taken next to nothing."""
    for name in names:
        t.check(look.mean_ms(name) < FREE_MS * t.client.slow, f"{name}: {look.mean_ms(name):.1f} ms")


@case(module_sets=ONLY_OURS)
def test_disk(t: Test) -> None:
    """The time of a slow disk is the server's disk's, and remote for the client."""
    rnbd.load(t)
    disk = slow_disk(t, DELAY_MS)
    device = rnbd.map_device(t, disk)
    client, server = measured(t, device, lambda: reads(t, device, 8))
    t.check(server.mean_ms("read_disk") >= DELAY_MS * 0.95, f"disk: {server.mean_ms('read_disk'):.1f} ms")
    t.check(client.mean_ms("read_remote") >= DELAY_MS * 0.95, f"remote: {client.mean_ms('read_remote'):.1f} ms")
    free(t, server, "read_queue", "read_response")
    free(t, client, "read_wait")
    t.say(f"of {client.mean_ms('read_whole'):.1f} ms the disk took {server.mean_ms('read_disk'):.1f} ms")


def program_says(t: Test, node: Node, *args: object) -> Callable[[], Any]:
    """Begins to measure on a machine by the program; a function that waits for what it says."""
    job = node.start_job(["rnbdctl", "latency", "--seconds", "4", "-o", "json", *map(str, args)])

    def wait() -> Any:
        result = job.wait()
        t.equal((result.rc, result.err), (0, ""), f"rnbdctl latency on {node.name}")
        document = json.loads(result.out)
        program.check_schema(node, [("latency", document)])
        return document

    return wait


@case(timeout=300, module_sets=ONLY_OURS)
def test_network(t: Test) -> None:
    """The time of a slow network is remote for the client, and the program tells it from the server's."""
    cable.prepare(t)
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    for node in t.nodes:
        program.install(node)
    cable.change(t, t.server, [0], f"delay {DELAY_MS}ms", "delay 0ms")
    client, server = measured(t, device, lambda: reads(t, device, 4))
    t.check(client.mean_ms("read_remote") >= DELAY_MS * 0.95, f"remote: {client.mean_ms('read_remote'):.1f} ms")
    free(t, server, "read_whole")
    free(t, client, "read_wait")
    load = fio.start(t.client, device.path, rw="randread", bs="4k", iodepth=1, time_based=True, runtime=20)
    there, here = program_says(t, t.server), program_says(t, t.client, device.name)
    document = there()
    t.equal([device["side"] for device in document["devices"]], ["server"], "ends that the server tells of")
    file = "/tmp/server.json"
    t.client.create(file, json.dumps(document))
    t.defer(t.client.run, f"rm {file}")
    t.equal(here()["devices"][0]["kinds"][0]["network_mean_ns"], None, "the network's share without the server")
    reading = program_says(t, t.client, device.name, "--server-json", file)()["devices"][0]["kinds"][0]
    table = program.run(t.client, "latency", device.name, "--seconds", 1, "--histogram", "--server-json", file).out
    load.wait()
    share = reading["network_mean_ns"]
    t.check(share is not None and share >= DELAY_MS * 0.9e6, f"the network's share: {share} ns of {reading}")
    t.check("network" in table, f"no network in the table:\n{table}")
    t.say(f"the network takes {share / 1e6:.1f} ms in the mean\n{table}")


@case(timeout=240, module_sets=ONLY_OURS, quick=())
def test_wait(t: Test) -> None:
    """The time for which requests wait for a tag, or in an I/O scheduler, is the client's."""
    rnbd.load(t, rtrs_server="sess_queue_depth=8")
    disk = slow_disk(t, 50)
    device = rnbd.map_device(t, disk)
    # The debug kernel does not note when a request began to wait for a tag.
    schedulers = ["mq-deadline"] if t.debug else ["none", "mq-deadline"]
    for scheduler in schedulers:
        t.client.write(f"/sys/block/{device.name}/queue/scheduler", scheduler)
        folder = client_folder(device)
        before = Look(t.client, folder, CLIENT_STAGES)

        def load() -> object:
            return fio.fio(t.client, device.path, rw="randread", bs="4k", iodepth=4, numjobs=16,
                           time_based=True, runtime=3)

        after, _ = measured(t, device, load)
        requests = after.requests["read_wait"] - before.requests["read_wait"]
        wait, remote = ((after.ns[name] - before.ns[name]) / requests / 1e6
                        for name in ("read_wait", "read_remote"))
        t.say(f"{scheduler}: {requests} requests waited {wait:.1f} ms, remote {remote:.1f} ms")
        # Of 64 requests at most 7 are on their way, for 50 ms.
        t.check(wait > 100, f"with {scheduler} requests waited {wait:.1f} ms only")
        t.check(remote < wait, f"with {scheduler} remote is {remote:.1f} ms of {wait:.1f} ms")
