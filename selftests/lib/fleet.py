# SPDX-License-Identifier: GPL-2.0
"""A client with many disks and mirrors of several servers, each at a distance of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from lab.selftest_case import Test
from lab.vm import wait_until
from lab.vm_node import Job
from lab.vm_node import Node
from lib import cable
from lib import disks
from lib import mirrors
from lib import program
from lib import rnbd

FILE = "/etc/rnbd/rnbd.toml"
SLICE_MIB = 12
# By so many milliseconds the packets of each server are delayed.
DELAYS_MS = (5, 10, 20, 40)
# Less than the default, so that the servers' machines may be small.
QUEUE_DEPTH = 64


def slice_name(number: int) -> str:
    """The path of a server's disk."""
    return f"/dev/mapper/slice{number}"


def session(server: int) -> str:
    """The name of the session with a server."""
    return f"storage{server + 1}"


@dataclass(frozen=True)
class FleetMirror:
    """A mirror over a disk of each of two servers, of the same number at both."""

    name: str
    servers: tuple[int, int]
    disk: int

    @property
    def legs(self) -> list[str]:
        """The names of its legs."""
        return [f"{slice_name(self.disk)}@{session(server)}" for server in self.servers]

    @property
    def table(self) -> str:
        """Its entry in the configuration."""
        legs = ", ".join(f'"{leg}"' for leg in self.legs)
        return f'[[mirror]]\nname = "{self.name}"\nlegs = [{legs}]\n'


class Fleet:
    """The machines, with `count` disks at each server."""

    def __init__(self, t: Test, count: int) -> None:
        self.t = t
        self.servers = t.nodes[1:]
        self.count = count
        self.jobs: list[Job] = []
        cable.prepare(t)
        for node in t.nodes:
            node.modules_unload_all()
            t.defer(node.modules_unload_all)
        for number, node in enumerate(self.servers):
            node.run(f"blkdiscard --force --zeroout {disks.PLAIN}")
            t.defer(node.run, "for m in /dev/mapper/slice*; do dmsetup remove --noudevsync $m; done", check=False)
            self.ready_server(number)
        t.client.run(f"set -e; mkfs.ext4 -q -F {disks.PLAIN}")
        self.ready_client()
        t.defer(self.tidy)

    def ready_server(self, number: int) -> None:
        """Makes a server's disks, which keep their data over a boot, and loads the modules."""
        node = self.servers[number]
        sectors = SLICE_MIB * 2048
        node.run("set -e; modprobe dm_mod\n"
                 f"for n in $(seq 0 {self.count - 1}); do\n"
                 f"t=\"0 {sectors} linear {disks.PLAIN} $((n * {sectors}))\"\n"
                 "dmsetup create --noudevsync slice$n --table \"$t\"; done; dmsetup mknodes", timeout=120)
        node.modules_load("rnbd_server", rtrs_server=f"{mirrors.FAST} sess_queue_depth={QUEUE_DEPTH}", rnbd_server="")
        cable.have(node, [0], f"delay {DELAYS_MS[number]}ms")

    def ready_client(self) -> None:
        """Mounts the disk of records, loads the client's modules and installs the program, as a boot would."""
        client = self.t.client
        client.run(f"set -e; modprobe -q ext4 || :; modprobe raid1; mkdir -p {mirrors.MEMORY} /etc/rnbd\n"
                   f"mountpoint -q {mirrors.MEMORY} || mount -t ext4 {disks.PLAIN} {mirrors.MEMORY}", timeout=120)
        client.modules_load("rnbd_client", rtrs_client=mirrors.FAST_CLIENT, rnbd_client=mirrors.HOST)
        program.install(client)

    def configure(self, servers: Sequence[int], some: Sequence[FleetMirror] = ()) -> None:
        """Writes the client's configuration: all disks of these servers, and some mirrors."""
        names = ", ".join(f'"{slice_name(number)}"' for number in range(self.count))
        tables = [f'[[session]]\nname = "{session(server)}"\npaths = ["{self.servers[server].address}"]\n'
                  f"devices = [{names}]\n" for server in servers]
        self.t.client.create(FILE, "\n".join([*tables, *(mirror.table for mirror in some)]))

    def mapped(self, server: int | None = None) -> int:
        """How many disks are mapped, of one server or of all."""
        names = self.t.client.listdir(rnbd.CLIENT_DEVICES) if self.t.client.exists(rnbd.CLIENT_DEVICES) else []
        return len([name for name in names if server is None or name.endswith(f"@{session(server)}")])

    def apply(self) -> float:
        """Maps what the configuration says; returns the seconds that took."""
        began = time.monotonic()
        program.run(self.t.client, "apply", timeout=300)
        return time.monotonic() - began

    def background(self, command: str) -> Job:
        """Starts a part of the program as its service would."""
        job = self.t.client.start_job(f"exec rnbdctl {command} >>/tmp/fleet-log 2>&1", timeout=3600)
        self.jobs.append(job)
        return job

    def finish(self, job: Job, seconds: float = 120.0) -> None:
        """Waits until a part of the program that ends by itself has ended; it must have done all of its work."""
        result = job.wait(seconds * self.t.client.slow)
        self.jobs.remove(job)
        said = self.t.client.run("tail -n 20 /tmp/fleet-log", check=False).out
        self.t.equal(result.rc, 0, f"exit code: {said}")

    def states(self, some: Sequence[FleetMirror]) -> list[str]:
        """The states of mirrors."""
        listed = program.json_of(self.t.client, "mirror", "status")["mirrors"]
        by_name = {mirror["name"]: mirror["state"] for mirror in listed}
        return [by_name.get(mirror.name, "unknown") for mirror in some]

    def wait_whole(self, some: Sequence[FleetMirror], seconds: float = 240.0) -> float:
        """Waits until mirrors are whole; returns the seconds that took."""
        began = time.monotonic()
        try:
            wait_until(lambda: set(self.states(some)) == {"whole"}, seconds * self.t.client.slow, "whole mirrors")
        except TimeoutError as error:
            said = self.t.client.run("tail -n 20 /tmp/fleet-log; cat /proc/mdstat", check=False).out
            raise AssertionError(f"{error}: {self.states(some)}\n{said}") from None
        return time.monotonic() - began

    def create(self, some: Sequence[FleetMirror]) -> None:
        """Creates mirrors of mapped disks, which are all zeroes."""
        for mirror in some:
            program.run(self.t.client, "mirror", "create", mirror.name, "--assume-clean", timeout=120)

    def reboot_server(self, number: int) -> None:
        """Cuts the power of a server, and boots it."""
        node: Node = self.servers[number]
        self.t.lab.reboot(node)
        node.run(f"tc qdisc replace dev eth0 root netem limit 10000 delay {DELAYS_MS[number]}ms")
        self.ready_server(number)

    def reboot_client(self) -> None:
        """Cuts the power of the client, and boots it up to where its services start."""
        self.jobs.clear()
        self.t.lab.reboot(self.t.client)
        self.t.client.run(f"set -e; modprobe -q ext4 || :; e2fsck -p {disks.PLAIN} || [ $? = 1 ]", timeout=120)
        self.ready_client()

    def same(self, mirror: FleetMirror, offset: int) -> None:
        """Compares the data of both legs of a mirror that is stopped, read at the servers, from an offset in bytes."""
        sums = [self.servers[server].sh(f"dd if={slice_name(mirror.disk)} iflag=direct bs=4096 skip={offset // 4096} "
                                        "status=none | sha256sum", timeout=120) for server in mirror.servers]
        self.t.intact(sums[1], sums[0], f"data of both legs of {mirror.name}")

    def tidy(self) -> None:
        """Ends the services, stops the mirrors, and removes their records and the mappings."""
        client = self.t.client
        for job in self.jobs:
            job.kill()
            job.wait(60.0)
        client.run("for m in /dev/md*; do [ ! -b $m ] || mdadm --stop $m; done", check=False)
        client.run(f"rm -rf {FILE} /run/rnbd/* {mirrors.MEMORY}/mirrors", check=False)
        rnbd.unmap_all(self.t)
        client.run(f"umount {mirrors.MEMORY}", check=False)
