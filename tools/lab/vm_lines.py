# SPDX-License-Identifier: GPL-2.0
"""Cache lines of data that requests use, and those that more than one processor writes, by a plugin (vm_lines.c)."""

from __future__ import annotations

import bisect
import struct
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass

from .vm_count import Place
from .vm_count import Symbols
from .vm_node import Node
from .vm_plugin import Connection
from .vm_trace import Range

_SHARED = struct.Struct("<5Q")
_TOTALS = struct.Struct("<4Q")
_FIRST = struct.Struct("<3Q")
_BEGINS = 2


@dataclass(frozen=True)
class Totals:
    """What so many requests did."""

    requests: int
    # Lines that the kernel, and the modules in question, have used, each once for a request.
    kernel: int
    modules: int
    # How often a line was written by another processor than before.
    handovers: int


@dataclass(frozen=True)
class Shared:
    """A line that more than one processor has written."""

    address: int
    writes: int
    handovers: int
    # The code that has written it last when it was handed over, and the code of the processor before.
    code: int
    code_before: int


@dataclass(frozen=True)
class First:
    """Code of a module that was the first of the modules' code to use lines for a request."""

    code: int
    # So many, each once for a request, and those of them on a stack.
    lines: int
    of_stack: int


class Lines(Connection):
    """The plugin of one machine."""

    def begin(self, begins: Sequence[int], requests: int, ranges: Sequence[Range]) -> None:
        """Look at so many requests, which begin at these addresses, and at the modules with these ranges."""
        if len(begins) > _BEGINS:
            raise ValueError(f"{len(begins)} places where requests begin")
        numbers = [*begins, *[0] * (_BEGINS - len(begins)), requests, len(ranges)]
        numbers += [number for one in ranges for number in one]
        self.confirmed(b"w" + struct.pack(f"<{len(numbers)}Q", *numbers))

    def end(self) -> tuple[Totals, list[Shared]]:
        """End it; what was done in all, and the lines that were handed over."""
        self.send(b"t")
        totals = [Totals(*record) for record in self.records(_TOTALS)]
        self.send(b"s")
        shared = [Shared(*record) for record in self.records(_SHARED)]
        return (totals[0] if totals else Totals(0, 0, 0, 0)), shared

    def first(self) -> list[First]:
        """After the end: the code of the modules that used lines first for a request."""
        self.send(b"f")
        return [First(*record) for record in self.records(_FIRST)]


class Names:
    """What a guest has loaded, by address: functions, and data with a name."""

    def __init__(self, kallsyms: str) -> None:
        self.functions = Symbols(kallsyms)
        found: dict[int, str] = {}
        self._starts: dict[str, int] = {}
        for line in kallsyms.splitlines():
            address, kind, name, *module = line.split()
            place = f"{module[0].strip('[]')}: {name}" if module else name
            if kind in "dDbBrRvV":
                found.setdefault(int(address, 16), place)
            elif kind in "tT" and not module:
                self._starts.setdefault(name, int(address, 16))
        self._addresses = sorted(found)
        self._data = [found[address] for address in self._addresses]

    def start(self, function: str) -> int:
        """Where a function of the kernel proper begins. Raises KeyError without it."""
        return self._starts[function]

    def data(self, address: int) -> str:
        """What data is at an address of the kernel's own data or of a module's; empty for memory without a name."""
        index = bisect.bisect_right(self._addresses, address) - 1
        # The kernel and its modules are at the end of the address space; all behind other symbols has no name.
        if index < 0 or address >> 31 != (1 << 33) - 1 or address - self._addresses[index] > 1 << 20:
            return ""
        return self._data[index]

    def ranges(self, wanted: Callable[[Place], bool]) -> list[Range]:
        """The addresses of the functions that are wanted."""
        return self.functions.ranges(wanted)


def names(node: Node) -> Names:
    """What is loaded in a guest now."""
    return Names(node.sh("echo 0 >/proc/sys/kernel/kptr_restrict; cat /proc/kallsyms", timeout=120))
