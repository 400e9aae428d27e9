# SPDX-License-Identifier: GPL-2.0
"""The order in which a machine executes our modules, by a plugin of the emulator (vm_trace.c)."""

from __future__ import annotations

import enum
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

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


class Trace:
    """The plugin of one machine."""

    def __init__(self, path: Path) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.connect(str(path))
        self._file = self._sock.makefile("rb")

    def begin(self, ranges: list[Range]) -> None:
        """Begin to write down what is executed in these ranges."""
        numbers = [number for one in ranges for number in one]
        self._sock.sendall(b"w" + struct.pack(f"<{1 + len(numbers)}Q", len(ranges), *numbers))
        if self._file.read(1) != b"w":
            raise ConnectionResetError("the emulator's plugin is gone")

    def end(self) -> list[Step]:
        """End it; what was executed, in order."""
        self._sock.sendall(b"s")
        found: list[Step] = []
        while True:
            address, size, locked, leaving, cpu, others = _STEP.unpack(self._file.read(_STEP.size))
            if not address:
                return found
            found.append(Step(address, size, locked, Leaving(leaving), cpu, others))

    def close(self) -> None:
        """Disconnect."""
        self._file.close()
        self._sock.close()
