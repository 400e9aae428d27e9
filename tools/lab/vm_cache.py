# SPDX-License-Identifier: GPL-2.0
"""Misses of a modelled machine's caches, by kernel module and function.

The emulator has no caches; a plugin (vm_cache.c) models those of each processor while the machine runs, without taking
any of the guest's time.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass

from .vm_count import Place
from .vm_count import Symbols
from .vm_plugin import Connection

_BLOCK = struct.Struct("<6Q")
# What is modelled, as in vm_cache.c.
SIZES = "L1 32 KiB for instructions and 32 KiB for data, of 8 ways; L2 1 MiB, of 16 ways; lines of 64 bytes"


@dataclass
class Misses:
    """What a function did with its processor's caches."""

    instructions: int = 0
    accesses: int = 0
    # Of the caches for instructions and for data, and of the second one for both.
    l1i: int = 0
    l1d: int = 0
    l2: int = 0


class Caches(Connection):
    """The caches of one machine."""

    def begin(self) -> None:
        """Begin to count, with empty caches."""
        self.confirmed(b"r")

    def end(self, known: Symbols) -> dict[Place, Misses]:
        """End it; what each function missed."""
        self.send(b"d")
        found: defaultdict[Place, Misses] = defaultdict(Misses)
        for address, instructions, accesses, l1i, l1d, l2 in self.records(_BLOCK):
            misses = found[known.place(address)[0]]
            misses.instructions += instructions
            misses.accesses += accesses
            misses.l1i += l1i
            misses.l1d += l1d
            misses.l2 += l2
        return found
