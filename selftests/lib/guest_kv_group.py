# SPDX-License-Identifier: GPL-2.0
"""A value of the sample of a group, inside the guest: put and got; what the kernel did meanwhile."""

from __future__ import annotations

import os
from contextlib import suppress

from lib.guest_io import pattern

FOLDER = "/sys/class/rtrs-kv-group/colour"
TRACING = "/sys/kernel/tracing"


def put(length: int, seed: int, count: int = 1) -> None:
    """Write patterns to the value, each in one call; the last one is that of the seed."""
    fd = os.open(f"{FOLDER}/value", os.O_WRONLY)
    try:
        for number in range(count):
            text = pattern(seed + count - 1 - number, length)
            if os.pwrite(fd, text, 0) != length:
                raise OSError(f"less than {length} bytes were taken")
    finally:
        os.close(fd)


def difference(length: int, seed: int) -> str:
    """What is wrong with the value; nothing if it is that pattern, and ends there."""
    fd = os.open(f"{FOLDER}/value", os.O_RDONLY)
    try:
        value = os.pread(fd, 1 << 20, 0)
    finally:
        os.close(fd)
    if len(value) != length:
        return f"{len(value)} bytes instead of {length}"
    wanted = pattern(seed, length)
    wrong = [at for at in range(length) if value[at] != wanted[at]]
    return f"byte {wrong[0]} and {len(wrong) - 1} more of {length}" if wrong else ""


def calls_of_put(functions: list[str], length: int, count: int) -> dict[str, int]:
    """How often these functions of the kernel are called while the value is put so often."""
    with open(f"{TRACING}/kprobe_events", "a", encoding="ascii") as events:
        for name in functions:
            events.write(f"p:rnbd_count/{name} {name}\n")
            events.flush()
    try:
        before = _hits(functions)
        _enable(1)
        put(length, 1, count)
        _enable(0)
        after = _hits(functions)
    finally:
        _enable(0)
        with open(f"{TRACING}/kprobe_events", "a", encoding="ascii") as events:
            for name in functions:
                with suppress(OSError):
                    events.write(f"-:rnbd_count/{name}\n")
                    events.flush()
    return {name: after[name] - before[name] for name in functions}


def _enable(what: int) -> None:
    with suppress(FileNotFoundError), open(f"{TRACING}/events/rnbd_count/enable", "w", encoding="ascii") as file:
        file.write(str(what))


def _hits(functions: list[str]) -> dict[str, int]:
    with open(f"{TRACING}/kprobe_profile", encoding="ascii") as file:
        rows = [line.split() for line in file]
    return {name: sum(int(row[1]) for row in rows if row[0] == name) for name in functions}
