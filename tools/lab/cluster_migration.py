# SPDX-License-Identifier: GPL-2.0
"""Cases of `lab cluster-test`: a virtual machine that writes for ever moves between two hosts.

The old host goes on to write after the move, or was stopped in the middle of a request. Nothing of that may reach the
disk.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from . import cluster_machine
from .cluster_machine import HOSTS
from .cluster_story import other_host
from .cluster_story import Story
from .story import expect

DISK = f"/dev/disk/by-id/rnbd-{cluster_machine.DISK_NAMES[1]}"
CONSOLE = "/run/www.console"
# As the kernel cuts its name.
PROCESS = "qemu-system-x86"
# Numbers that are in sectors of the virtual machine's disk, as cluster_guest.S writes them; -1: not one number.
SECTORS = f"""
import mmap, os, struct
fd = os.open("{DISK}", os.O_RDONLY | os.O_DIRECT)
room = mmap.mmap(-1, 1032 * 512)
os.preadv(fd, [room], 0)
for sector in range(8, 1032):
    numbers = struct.unpack_from("=128I", room, sector * 512)
    print(numbers[0] if len(set(numbers)) == 1 else -1)
"""
GUEST_SECTORS = 1024
ROUNDS = 20
ROUNDS_SECONDS = 600.0
# What is exchanged in the document's commands when the machine moves from beta to alpha.
EXCHANGED = {"0x10": "0x20", "0x20": "0x10", "198.51.100.20": "198.51.100.21", "198.51.100.21": "198.51.100.20"}


def exchanged(text: str) -> str:
    """Commands for the way back."""
    return re.sub("|".join(re.escape(word) for word in EXCHANGED), lambda found: EXCHANGED[found[0]], text)


def follow(numbers: list[int]) -> list[int]:
    """The numbers around the first that does not follow the one before it; empty if all do."""
    for place in range(1, len(numbers)):
        if numbers[place] != numbers[place - 1] + 1:
            return numbers[max(0, place - 3):place + 2]
    return []


class Migration:
    """The cases, in order."""

    def __init__(self, story: Story) -> None:
        self.story = story
        # The document's commands for a move from alpha to beta, by what they do.
        self.commands: dict[str, str] = {}

    def cases(self) -> list[Callable[[], None]]:
        """What is run."""
        return [self.machine_moves, self.host_fails, self.moves_again]

    def read_block(self, name: str, containing: str, host: str) -> None:
        """Takes the next block of the document as the commands for something."""
        block = self.story.next_block(containing)
        expect(block.place == host, f"{block} is for {block.place}")
        self.commands[name] = block.text

    def give(self, host: str, name: str, timeout: float = 300.0) -> str:
        """Types commands of the document on a host, whichever way the machine moves; what they print."""
        first = {"reserve": "alpha", "start": "alpha", "migrate": "alpha", "quit": "alpha"}.get(name, "beta")
        text = self.commands[name] if host == first else exchanged(self.commands[name])
        return self.story.type_text(self.story.host(host), name, text, timeout)

    def console(self, host: str) -> str:
        """What the virtual machine has printed on a host."""
        return self.story.host(host).run(["cat", CONSOLE]).out

    def writes(self, host: str) -> None:
        """Waits until the virtual machine writes on a host."""
        before = self.console(host).count("\n")
        self.story.wait(f"the virtual machine writes on {host}",
                        lambda: self.console(host).count("\n") > before + 20)

    def has_failed(self, host: str) -> None:
        """Waits until a write of a machine that has lost the disk has ended with an error."""
        self.story.wait(f"a write of the machine on {host} ends with an error",
                        lambda: self.console(host).endswith("error\n"))

    def tell(self, host: str, command: str) -> None:
        """Gives QEMU on a host a command."""
        self.story.host(host).sh(f"echo {command} | socat -t 60 - UNIX-CONNECT:/run/www.monitor")

    def end(self, host: str) -> None:
        """Ends QEMU on a host."""
        self.give(host, "quit")
        self.story.wait(f"QEMU ends on {host}", lambda: not self.has_qemu(host))

    def has_qemu(self, host: str) -> bool:
        """Whether QEMU runs on a host."""
        return self.story.host(host).run(["pgrep", "-x", PROCESS], check=False).rc == 0

    def signal(self, host: str, name: str) -> None:
        """Gives QEMU on a host a signal."""
        self.story.host(host).sh(["pkill", f"-{name}", "-x", PROCESS])

    def sectors(self, host: str) -> list[int]:
        """The numbers on the disk."""
        return [int(word) for word in self.story.host(host).sh(["python3", "-c", SECTORS]).split()]

    def printed(self, console: str) -> list[int]:
        """The numbers in a text of the console, without those that are not whole."""
        return [int(word, 16) for word in re.findall(r"\b[0-9a-f]{8}\b", console)]

    def check_disk(self, host: str, printed: list[int]) -> None:
        """Each number that a machine has printed, and which none has replaced since, is on the disk.

        The write after the last number may have been done, and that number not printed yet.
        """
        found = self.sectors(host)
        for number in printed[-GUEST_SECTORS + 1:]:
            expect(found[number % GUEST_SECTORS] == number,
                   f"number {number} is printed, and its sector has {found[number % GUEST_SECTORS]}")

    # The cases

    def machine_moves(self) -> None:
        """A virtual machine that writes moves from alpha to beta without a gap, and alpha can write no more."""
        self.read_block("reserve", "blkpr -c reserve", "alpha")
        self.read_block("start", "qemu-system-x86_64", "alpha")
        self.read_block("register", "blkpr -c register", "beta")
        self.read_block("incoming", "-incoming", "beta")
        self.read_block("migrate", "migrate tcp:", "alpha")
        self.read_block("preempt", "blkpr -c preempt", "beta")
        self.read_block("continue", "cont", "beta")
        self.read_block("quit", "quit", "alpha")
        self.give("alpha", "reserve")
        self.give("alpha", "start", 600)
        self.writes("alpha")
        printed = self.move("alpha", insist=True)
        expect(printed[0] == 1, f"the first number is {printed[0]}")
        self.tell("beta", "stop")
        self.check_disk("beta", self.printed(self.console("beta")))
        self.tell("beta", "cont")

    def move(self, source: str, insist: bool = False) -> list[int]:
        """Moves the running machine to the other host; the numbers printed on both.

        With `insist`, the machine is told to go on on the old host, too: what an administrator must not do.
        """
        target = other_host(source)
        self.give(target, "register")
        self.give(target, "incoming", 600)
        self.give(source, "migrate", 900)
        self.give(target, "preempt")
        before = self.console(source)
        self.story.write_is_refused(source, DISK)
        self.give(target, "continue")
        self.writes(target)
        if insist:
            self.tell(source, "cont")
            self.has_failed(source)
        self.end(source)
        printed = self.printed(before + self.console(target))
        expect(not follow(printed), f"the numbers have a gap: {follow(printed)}")
        return printed

    def host_fails(self) -> None:
        """Beta stands still in the middle of its requests, and alpha takes the disk: no write of beta comes later."""
        self.take_over("beta")

    def take_over(self, source: str) -> None:
        """QEMU of a host stops, the other host takes the disk, and then QEMU goes on to write."""
        target = other_host(source)
        self.signal(source, "STOP")
        self.give(target, "register")
        self.give(target, "preempt")
        taken = self.sectors(target)
        self.check_disk(target, self.printed(self.console(source)))
        self.signal(source, "CONT")
        self.has_failed(source)
        later = self.sectors(target)
        expect(later == taken, "writes came after the disk was taken: "
               f"{[(old, new) for old, new in zip(taken, later, strict=True) if old != new]}")
        self.end(source)
        self.give(target, "start", 600)
        self.writes(target)

    def moves_again(self) -> None:
        """The machine goes to and fro, by migration and by a host that stands still in turn."""
        source = next(name for name in HOSTS if self.has_qemu(name))
        started, rounds = time.monotonic(), 2
        while rounds < ROUNDS and time.monotonic() < started + ROUNDS_SECONDS:
            if rounds % 2:
                self.take_over(source)
            else:
                self.move(source)
            source, rounds = other_host(source), rounds + 1
        print(f"# {rounds} rounds of take-over, {rounds // 2} of them by a host that stands still; those after the "
              f"second took {time.monotonic() - started:.0f} s", flush=True)
        self.end(source)
