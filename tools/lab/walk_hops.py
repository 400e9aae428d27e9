# SPDX-License-Identifier: GPL-2.0
"""The hops of a request: which functions of ours it passes through, in which order.

A hop is a function of ours that is called, or inlined, on the way of a request. Each
counts once in a walk, however often it is called. A closure is part of the function that it is
written in. These are no hops:

* a function whose body is one expression (in C, one statement), if it leads to no other
  hop: it reads or computes a value;
* what is in bindings/sync/: it stands for atomics, RCU and locks of the kernel crate, and is
  that where the kernel is configured to inline those.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field
from functools import cache
from pathlib import Path

from . import house
from . import paths
from . import rust_source
from .vm_trace import Step
from .walk_calls import Call
from .walk_calls import CLIENT
from .walk_calls import Functions
from .walk_calls import MODULES
from .walk_calls import SERVER
from .walk_frames import Frame

# The kernel's functions between which the walks lie.
POST = "rxe_post_send"
BIO = ("submit_bio", "submit_bio_noacct")
END = ("blk_mq_end_request", "blk_mq_end_request_batch")
MARKS = frozenset({POST, *BIO, *END})
ENTRY = "queue_rq"
# Stands for what the kernel has.
PRIMITIVES = "bindings/sync/"
_C_BODY = r"^(?:\w[^;{}\n]*\s\**|\**)%s\([^;{}]*\)\s*\{(.*?)^\}"
Frames = dict[str, dict[int, list[Frame]]]


@dataclass(frozen=True)
class Entry:
    """A function that is entered, or (with `mark`) one of the kernel's that is called."""

    side: str
    depth: int
    frame: Frame | None = None
    is_inlined: bool = False
    # Whether the kernel called the function that this is, or is inlined into; and no other one of ours.
    is_callback: bool = False
    is_root: bool = False
    mark: str = ""


@dataclass(frozen=True)
class Hop:
    """A function of the walk."""

    depth: int
    name: str
    file: str
    line: int
    is_inlined: bool


@dataclass
class Walk:
    """One of the four ways."""

    title: str
    hops: list[Hop] = field(default_factory=list)
    # All functions that are entered, with those that are no hop.
    entered: int = 0

    @property
    def files(self) -> int:
        """In how many source files the hops are."""
        return len({hop.file for hop in self.hops})

    def of(self, folder: str) -> int:
        """How many of the hops are in a folder."""
        return sum(hop.file.startswith(f"{folder}/") for hop in self.hops)


@cache
def _is_one_statement(path: Path, function: str) -> bool:
    """Whether a function in C has one statement; false if it is not found."""
    found = re.search(_C_BODY % re.escape(function), path.read_text(), re.MULTILINE | re.DOTALL)
    return found is not None and found[1].count(";") == 1


@cache
def _source(checkout: Path, file: str) -> tuple[list[house.Function], list[str]]:
    path = checkout / file
    if not path.exists():
        raise RuntimeError(f"{path} is not there: the modules are built from other sources")
    if path.suffix != ".rs":
        return [], []
    code = rust_source.code(path.read_text())
    return list(house.functions(rust_source.words(code))), code.split("\n")


def place(frame: Frame, checkout: Path = paths.CHECKOUT) -> tuple[str, int, bool]:
    """A function's file and first line, and whether its body is one expression.

    Raises RuntimeError if the source is not there any more.
    """
    checkout = Path(frame.checkout) if frame.checkout else checkout
    functions, lines = _source(checkout, frame.file)
    around = [one for one in functions if one.start <= frame.line <= one.end]
    if not around:
        # C, or what a macro or `derive` makes.
        is_value = frame.file.endswith(".rs") or _is_one_statement(checkout / frame.file, frame.function)
        return f"{frame.file}:{frame.function}", 0, is_value
    one = max(around, key=lambda function: function.start)
    text = "\n".join(lines[one.start - 1:one.end])
    return frame.file, one.start, ";" not in text[text.index("{"):]


def _entries(call: Call, side: str, depth: int, functions: Functions, bases: dict[str, int],
             frames: Frames) -> Iterator[Entry]:
    seen: set[tuple[tuple[str, int], ...]] = set()
    # How deep in inlined functions the next call is made.
    inner = 1
    for part in call.parts:
        if isinstance(part, Call):
            yield from _entries(part, part.side() or side, depth + inner, functions, bases, frames)
        elif isinstance(part, str):
            yield Entry(side, depth, mark=part)
        else:
            for offset in offsets(part, functions, bases):
                known = frames[call.function.module].get(offset, [])
                key: tuple[tuple[str, int], ...] = ()
                line = own = 0
                for number, frame in enumerate(known):
                    key = (*key, (frame.function, line))
                    line = frame.line
                    if not frame.file or frame.is_closure:
                        continue
                    if key not in seen:
                        seen.add(key)
                        yield Entry(side, depth + own, frame, number > 0, call.is_callback, call.parent is None)
                    own += 1
                inner = max(own, 1)


def offsets(step: Step, functions: Functions, bases: dict[str, int]) -> range:
    """The places of a block in the section .text of its module; none for the kernel."""
    function = functions.at(step.address)
    if function is None or function.module not in MODULES:
        return range(0)
    start = step.address - bases[function.module]
    return range(start, start + step.bytes)


def wanted(roots: list[Call], functions: Functions, bases: dict[str, int]) -> dict[str, set[int]]:
    """The places of which the frames have to be known, by module."""
    found: dict[str, set[int]] = {module: set() for module in MODULES}
    for root in roots:
        for event in root.events():
            if isinstance(event, Step):
                function = functions.at(event.address)
                if function is not None and function.module in found:
                    found[function.module].update(offsets(event, functions, bases))
    return found


def requests(roots: list[Call]) -> list[list[Call]]:
    """What was called for each request, when there is one at a time."""
    found: list[list[Call]] = []
    for root in roots:
        if ENTRY in root.function.name:
            found.append([])
        if found:
            found[-1].append(root)
    # The last one is not known to be whole.
    return found[:-1]


def shape(request: list[Call]) -> tuple[str, ...]:
    """What two requests have in common that took the same way."""
    return tuple(event.function.name if isinstance(event, Call) else event
                 for root in request for event in root.events() if not isinstance(event, Step))


def walks(request: list[Call], functions: Functions, bases: dict[str, int], frames: Frames,
          checkout: Path = paths.CHECKOUT) -> list[Walk]:
    """The four walks of a request."""
    entries = [entry for root in request
               for entry in _entries(root, root.side() or SERVER, 0, functions, bases, frames)]
    client = [entry for entry in entries if entry.side == CLIENT]
    server = [entry for entry in entries if entry.side != CLIENT]
    posted = next((index for index, entry in enumerate(client) if entry.mark == POST), len(client))
    submitted = next((index for index, entry in enumerate(server) if entry.mark in BIO), len(server))
    ended = next((index for index, entry in enumerate(server) if index > submitted and entry.is_callback), len(server))
    completed = next((index for index, entry in enumerate(client) if index > posted and entry.is_root), len(client))
    return [
        _walk("client, from queue_rq(s) to the post", client[:posted], checkout),
        _walk("server, from the completion to the bio", server[:submitted], checkout),
        _walk("server, from the bio's end to the post", _until(server[ended:], (POST,)), checkout),
        _walk("client, from the completion to the request's end", _until(client[completed:], END), checkout),
    ]


def _until(entries: list[Entry], marks: tuple[str, ...]) -> list[Entry]:
    end = next((index for index, entry in enumerate(entries) if entry.mark in marks), len(entries))
    return entries[:end]


def _walk(title: str, entries: list[Entry], checkout: Path) -> Walk:
    inside = [entry for entry in entries if entry.frame is not None]
    places = [place(entry.frame, checkout) for entry in inside if entry.frame is not None]
    is_hop = [False] * len(inside)
    for index in reversed(range(len(inside))):
        if places[index][0].startswith(PRIMITIVES):
            continue
        leads = False
        for below in range(index + 1, len(inside)):
            if inside[below].depth <= inside[index].depth:
                break
            leads = leads or is_hop[below]
        is_hop[index] = leads or not places[index][2]
    walk = Walk(title, entered=len({where[:2] for where in places}))
    seen = set()
    for entry, where, counts in zip(inside, places, is_hop, strict=True):
        if counts and entry.frame is not None and where[:2] not in seen:
            seen.add(where[:2])
            walk.hops.append(Hop(entry.depth, entry.frame.function, entry.frame.file, where[1], entry.is_inlined))
    return walk
