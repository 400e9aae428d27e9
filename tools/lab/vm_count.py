# SPDX-License-Identifier: GPL-2.0
"""Executed instructions of a machine, by kernel module and function.

The emulator counts them by a plugin (vm_count.c): exactly, without a program in
the guest and without taking any of the guest's time.
"""

from __future__ import annotations

import bisect
import struct
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from .vm_node import Node
from .vm_plugin import Connection

# The kernel has so many bytes between functions, at most.
_PADDING = 64
_BLOCK = struct.Struct("<QQIHHH6x")
USER = "user space"
KERNEL = "kernel"


@dataclass
class Spent:
    """What a function took, and how often it was called."""

    instructions: int = 0
    calls: int = 0
    # Of the instructions: those that lock the bus, fences, and those that switch interrupts off.
    locks: int = 0
    fences: int = 0
    masks: int = 0


@dataclass(frozen=True)
class Place:
    """A function of the kernel or of a module."""

    module: str
    function: str


class Symbols:
    """The functions that a guest has loaded at some moment."""

    def __init__(self, kallsyms: str) -> None:
        found: dict[int, Place] = {}
        for line in kallsyms.splitlines():
            fields = line.split()
            if len(fields) < 3 or fields[1] not in "tTwW":
                continue
            module = fields[3].strip("[]") if len(fields) > 3 else KERNEL
            found.setdefault(int(fields[0], 16), Place(module, fields[2]))
        self._addresses = sorted(found)
        self._places = [found[address] for address in self._addresses]

    def place(self, address: int) -> tuple[Place, bool]:
        """What is at an address, and whether it is the function's first one."""
        if not address >> 63:
            return Place(USER, ""), False
        index = bisect.bisect_right(self._addresses, address) - 1
        if index < 0:
            return Place(KERNEL, hex(address)), False
        return self._places[index], self._addresses[index] == address

    def ranges(self, wanted: Callable[[Place], bool]) -> list[tuple[int, int]]:
        """The addresses (first, behind the last) of the functions that are wanted; neighbours are one range.

        Of the last function only the first address is known.
        """
        merged: list[tuple[int, int]] = []
        for index, start in enumerate(self._addresses):
            if not wanted(self._places[index]):
                continue
            end = self._addresses[index + 1] if index + 1 < len(self._addresses) else start + 1
            if merged and start - merged[-1][1] < _PADDING:
                merged[-1] = (merged[-1][0], end)
            else:
                merged.append((start, end))
        return merged


def symbols(node: Node) -> Symbols:
    """What is loaded in a guest now."""
    return Symbols(node.sh("echo 0 >/proc/sys/kernel/kptr_restrict; cat /proc/kallsyms",
                           timeout=120))


class Instructions(Connection):
    """The counts of one machine."""

    def reset(self) -> None:
        """Begin at zero."""
        self.confirmed(b"r")

    def spent(self, known: Symbols) -> dict[Place, Spent]:
        """What each function took since the last reset."""
        self.send(b"d")
        found: defaultdict[Place, Spent] = defaultdict(Spent)
        for address, times, instructions, locks, fences, masks in self.records(_BLOCK):
            place, is_start = known.place(address)
            spent = found[place]
            spent.instructions += instructions * times
            spent.calls += times if is_start else 0
            spent.locks += locks * times
            spent.fences += fences * times
            spent.masks += masks * times
        return found
