# SPDX-License-Identifier: GPL-2.0
"""The order in which a machine executes our modules, by a plugin of the emulator (vm_trace.c)."""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

from .vm_plugin import Connection

_STEP = struct.Struct("<QIBBBxQ")
Range = tuple[int, int]


class Leaving(enum.IntEnum):
    """How the last instruction of a block leaves it."""

    GOES_ON = 0
    CALLS = 1
    JUMPS = 2
    RETURNS = 3


@dataclass(frozen=True)
class Step:
    """A block of instructions that was executed."""

    address: int
    bytes: int
    # How many of its instructions lock the bus.
    locked: int
    leaving: Leaving
    cpu: int
    # Blocks of the rest of the kernel that this processor executed before it.
    others: int


class Trace(Connection):
    """The plugin of one machine."""

    def begin(self, ranges: list[Range]) -> None:
        """Begin to write down what is executed in these ranges."""
        numbers = [number for one in ranges for number in one]
        self.confirmed(b"w" + struct.pack(f"<{1 + len(numbers)}Q", len(ranges), *numbers))

    def end(self) -> list[Step]:
        """End it; what was executed, in order."""
        self.send(b"s")
        return [Step(address, size, locked, Leaving(leaving), cpu, others)
                for address, size, locked, leaving, cpu, others in self.records(_STEP)]
