# SPDX-License-Identifier: GPL-2.0
"""Calls of our functions, from the order in which their blocks were executed.

A function is entered at its first address and left by a return, or by a jump that does
not stay in it. What the kernel does in between is not seen, but that it did something is.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field

from .vm_trace import Leaving
from .vm_trace import Range
from .vm_trace import Step

CLIENT = "client"
SERVER = "server"
# The modules that are one end's; rtrs_core is both ends'.
SIDES = {"rtrs_client": CLIENT, "rnbd_client": CLIENT, "rtrs_server": SERVER, "rnbd_server": SERVER}
MODULES = ("rtrs_core", *SIDES)
# What the kernel crate calls where C has an inline function.
HELPER = "rust_helper_"
# An indirect call goes through so many blocks of the kernel.
THUNK = 2


@dataclass(frozen=True)
class Function:
    """A function of a module, or one of the kernel that is watched."""

    module: str
    name: str
    start: int


class Functions:
    """What a guest has loaded, by address."""

    def __init__(self, kallsyms: str, marks: frozenset[str]) -> None:
        found: dict[int, Function] = {}
        self._all: list[int] = []
        for line in kallsyms.splitlines():
            address, kind, name, *module = line.split()
            if kind not in "tTwW" or name.startswith((".", "__pfx_")):
                continue
            start = int(address, 16)
            self._all.append(start)
            owner = module[0].strip("[]") if module else ""
            if owner in MODULES or name in marks or (not owner and name.startswith(HELPER)):
                found.setdefault(start, Function(owner, name, start))
        self._all.sort()
        self._starts = sorted(found)
        self._found = found

    def ranges(self) -> list[Range]:
        """The addresses to watch: functions that follow each other are one range."""
        merged: list[Range] = []
        for start in self._starts:
            following = bisect.bisect_right(self._all, start)
            is_code = self._found[start].module in MODULES or self._found[start].name.startswith(HELPER)
            end = self._all[following] if is_code and following < len(self._all) else start + 1
            if merged and start - merged[-1][1] < 64 and is_code:
                merged[-1] = (merged[-1][0], end)
            else:
                merged.append((start, end))
        return merged

    def at(self, address: int) -> Function | None:
        """The function of an address in one of the ranges."""
        index = bisect.bisect_right(self._starts, address) - 1
        return self._found[self._starts[index]] if index >= 0 else None


@dataclass
class Call:
    """One call of a function of ours."""

    function: Function
    # When it began: the number of the step.
    number: int
    # Whether the kernel called it, rather than a function of ours.
    is_callback: bool
    parent: Call | None = None
    # Its blocks, the calls that it makes, and the names of the kernel's functions that it gets to.
    parts: list[Step | Call | str] = field(default_factory=list)

    def side(self) -> str:
        """Whose it is, by what it or what it calls belongs to; empty if that is not known."""
        own = SIDES.get(self.function.module)
        if own:
            return own
        found = (part.side() for part in self.parts if isinstance(part, Call))
        below = next((side for side in found if side), "")
        return below or (self.parent.side_above() if self.parent else "")

    def side_above(self) -> str:
        """The same, by those that called it only."""
        return SIDES.get(self.function.module) or (self.parent.side_above() if self.parent else "")

    def events(self) -> Iterator[Call | Step | str]:
        """It and all below it, in order."""
        yield self
        for part in self.parts:
            if isinstance(part, Call):
                yield from part.events()
            else:
                yield part


@dataclass
class _Cpu:
    """What a processor is in, the innermost call last, and its last step."""

    stack: list[Call] = field(default_factory=list)
    last: Step | None = None

    def is_in(self, function: Function) -> bool:
        """Whether the innermost call is of this function."""
        return bool(self.stack) and self.stack[-1].function == function

    def leave(self) -> None:
        """The innermost call has ended."""
        if self.stack:
            self.stack.pop()


def calls(steps: list[Step], functions: Functions) -> list[Call]:
    """All calls that no other function of ours made, in order of their beginning."""
    roots: list[Call] = []
    cpus: dict[int, _Cpu] = {}
    for number, step in enumerate(steps):
        function = functions.at(step.address)
        if function is None:
            continue
        cpu = cpus.setdefault(step.cpu, _Cpu())
        is_start = function.start == step.address
        if function.module not in MODULES:
            _foreign(cpu, function, step, is_start)
            continue
        # A jump to another function, ours or the kernel's, is a call and a return.
        if cpu.last is not None and cpu.last.leaving == Leaving.JUMPS and (is_start or not cpu.is_in(function)):
            cpu.leave()
        while not is_start and cpu.stack and not cpu.is_in(function):
            cpu.leave()
        if is_start or not cpu.stack:
            _enter(cpu, Call(function, number, step.others > THUNK or not cpu.stack), roots)
        cpu.stack[-1].parts.append(step)
        cpu.last = step
        if step.leaving == Leaving.RETURNS:
            cpu.leave()
            cpu.last = None
    return roots


def _enter(cpu: _Cpu, call: Call, roots: list[Call]) -> None:
    parent = cpu.stack[-1] if cpu.stack else None
    if parent is None or (call.is_callback and _other_end(parent, call.function)):
        # In the latter case an interrupt: what it interrupted did not call it.
        roots.append(call)
    else:
        call.parent = parent
        parent.parts.append(call)
    cpu.stack.append(call)


def _foreign(cpu: _Cpu, function: Function, step: Step, is_start: bool) -> None:
    """A watched function of the kernel."""
    if not cpu.stack:
        return
    if function.name.startswith(HELPER):
        if step.others <= THUNK:
            cpu.stack[-1].parts.append(step)
    elif is_start:
        cpu.stack[-1].parts.append(function.name)


def _other_end(parent: Call, function: Function) -> bool:
    side = SIDES.get(function.module)
    above = parent.side_above()
    return bool(side and above and side != above)
