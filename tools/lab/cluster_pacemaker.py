# SPDX-License-Identifier: GPL-2.0
"""Cases of `lab cluster-test`: Pacemaker moves a file system between two hosts, and a host that lost it reboots."""

from __future__ import annotations

import re
from collections.abc import Callable

from . import cluster_machine
from .cluster_machine import HOSTS
from .cluster_story import KEYS
from .cluster_story import other_host
from .cluster_story import RESERVATIONS
from .cluster_story import Story
from .story import expect

SHOP = f"/dev/disk/by-id/rnbd-{cluster_machine.DISK_NAMES[0]}"
MOUNT = "/srv/shop"
WATCH = "fence-rnbd-watch"
# Appends numbers to a file, each on stable storage before it is told on the console, which stays when a host stops.
WRITER = f"""
import os
file = os.open("{MOUNT}/numbers", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
console = os.open("/dev/ttyS0", os.O_WRONLY | os.O_NOCTTY)
number = os.fstat(file).st_size // 9
while True:
    number += 1
    os.write(file, b"%08d\\n" % number)
    os.fsync(file)
    os.write(console, b"stable %08d\\n" % number)
"""


class Pacemaker:
    """The cases, in order."""

    def __init__(self, story: Story) -> None:
        self.story = story

    def cases(self) -> list[Callable[[], None]]:
        """What is run."""
        return [self.cluster_starts, self.split, self.server_restarts, self.host_stands_still]

    def mounted(self) -> list[str]:
        """The hosts that have the file system."""
        return [name for name in HOSTS if self.story.host(name).alive()
                and self.story.host(name).run(["findmnt", MOUNT], check=False).rc == 0]

    def owner(self) -> tuple[str, str]:
        """The host that has the file system, and the other one."""
        found = self.mounted()
        expect(len(found) == 1, f"the file system is mounted on {found}")
        return found[0], other_host(found[0])

    def both_are_online(self) -> bool:
        """Whether Pacemaker sees both hosts."""
        result = self.story.host("alpha").run("crm_mon -1", check=False)
        return re.search(r"Online: \[ alpha beta \]", result.out) is not None

    def both_are_well(self) -> None:
        """Waits until both hosts are registered and just one has the file system."""
        self.story.wait("both hosts are registered", lambda: self.story.registered("sda") == sorted(KEYS.values()))
        self.story.wait("a host has the file system", lambda: len(self.mounted()) == 1)

    def start_writer(self, host: str) -> None:
        """Has a host append numbers to the file, until it fails."""
        self.story.host(host).create("/run/writer.py", WRITER)
        self.story.host(host).sh("systemd-run -q --unit=writer python3 /run/writer.py")
        before = self.stable(host)
        self.story.wait(f"{host} writes", lambda: self.stable(host) > before + 5)

    def stable(self, host: str) -> int:
        """The last number that a host has said to be on stable storage."""
        numbers = re.findall(r"stable (\d{8})\n", self.story.host(host).last_console(1 << 30) + "\n")
        return int(numbers[-1]) if numbers else 0

    def numbers(self, host: str) -> list[int]:
        """The numbers in the file, read from the disk."""
        return [int(line) for line in
                self.story.host(host).sh(f"echo 3 > /proc/sys/vm/drop_caches; cat {MOUNT}/numbers").split()]

    def reboots(self, host: str) -> None:
        """Waits until a host reboots since it was fenced, and boots it again."""
        node = self.story.host(host)
        self.story.wait(f"{host} reboots", lambda: not node.alive())
        expect(f"{SHOP}: this machine has lost its key: it was fenced, and reboots now" in node.last_console(50),
               f"{host} does not say why it reboots:\n{node.last_console(50)}")
        node.kill()
        node.start()
        self.story.machines.finish_boot(host)

    # The cases

    def cluster_starts(self) -> None:
        """Pacemaker registers both hosts and mounts the file system on one of them."""
        story = self.story
        story.type_block("mkfs.ext4")
        story.type_block("corosync.conf", 600)
        story.wait("both hosts are online", self.both_are_online)
        story.type_block("crm configure", 600)
        self.both_are_well()
        said = story.type_block("/reservations")
        expect("type write-exclusive-registrants-only" in said, said)
        expect("ON" in story.type_block("fence_rnbd -o status"), "the agent does not take beta for registered")

    def split(self) -> None:
        """The hosts lose each other: one has the file system, the other one cannot write, and reboots."""
        story = self.story
        owner, _ = self.owner()
        self.start_writer(owner)
        # Otherwise the host would have rebooted before it can try to write.
        for name in HOSTS:
            story.host(name).sh(f"systemctl kill --signal=STOP {WATCH}")
        story.host("alpha").set_link(cluster_machine.BETWEEN, False)
        story.wait("one host fences the other", lambda: len(story.registered("sda")) == 1)
        survivor = next(name for name in HOSTS if [KEYS[name]] == story.registered("sda"))
        fenced = other_host(survivor)
        story.write_is_refused(fenced, SHOP)
        if survivor == owner:
            before = self.stable(owner)
            story.wait(f"{owner} goes on to write", lambda: self.stable(owner) > before + 5)
        for name in HOSTS:
            story.host(name).sh(f"systemctl kill --signal=CONT {WATCH}")
        self.reboots(fenced)
        # A host that has booted has its cables plugged.
        story.host("alpha").set_link(cluster_machine.BETWEEN, True)
        self.both_are_well()
        expect(self.mounted() == [survivor], f"{survivor} fenced {fenced}, and the file system is on {self.mounted()}")
        if survivor != owner:
            # An emulated host may need longer to fence than the other one waits.
            print(f"# {survivor} did not have the file system, and was faster than {owner}", flush=True)
            self.check_numbers(survivor, self.stable(owner))
            self.start_writer(survivor)

    def check_numbers(self, host: str, last: int) -> int:
        """A host that took the file system over has all numbers up to the last that was on stable storage.

        One more may be on the disk, and not told. How many there are.
        """
        found = self.numbers(host)
        expect(found in (list(range(1, last + 1)), list(range(1, last + 2))),
               f"{last} numbers were on stable storage, the file on {host} has {len(found)}: ...{found[-5:]}")
        return len(found)

    def server_restarts(self) -> None:
        """The server's module is loaded again: programs wait, and reservations are as before."""
        story = self.story
        owner, _ = self.owner()
        file = RESERVATIONS.format("sda")
        before, number = story.server.read(file), self.stable(owner)
        story.server.run("modprobe -r rnbd_server && modprobe rnbd_server", timeout=120)
        story.wait("the disk is open again", lambda: story.server.exists(file))
        expect(story.server.read(file) == before, f"reservations were\n{before}\nand are\n{story.server.read(file)}")
        story.wait(f"{owner} goes on to write", lambda: self.stable(owner) > number + 5)

    def host_stands_still(self) -> None:
        """A host that stands still is fenced; the other one has all its data, and no later write of it."""
        story = self.story
        owner, other = self.owner()
        story.host(owner).pause()
        last = self.stable(owner)
        story.wait(f"{other} fences {owner}", lambda: story.registered("sda") == [KEYS[other]])
        story.wait(f"{other} has the file system",
                   lambda: story.host(other).run(["findmnt", MOUNT], check=False).rc == 0)
        found = self.check_numbers(other, last)
        self.start_writer(other)
        story.host(owner).resume()
        self.reboots(owner)
        self.both_are_well()
        story.host(other).run("systemctl kill --signal=SIGKILL writer", check=False)
        later = self.numbers(other)
        expect(later == list(range(1, len(later) + 1)) and len(later) > found,
               f"the file of {other} had {found} numbers, and has {len(later)}: ...{later[-5:]}")
        story.host(other).sh("crm_resource --resource shop --set-parameter target-role --meta -v Stopped "
                             "&& crm_resource --wait --timeout=120s", timeout=180)
        checked = story.host(other).run(f"e2fsck -f -n {SHOP}", check=False, timeout=120)
        expect(checked.rc == 0, f"the file system is damaged: {checked.out}{checked.err}")
