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
    """How often these functions, MODULE:NAME, are called while the value is put so often."""
    names = [function.partition(":")[2] for function in functions]
    try:
        for name, function in zip(names, functions, strict=True):
            _write("kprobe_events", f"p:{name} {function}", os.O_APPEND)
        for name in names:
            _write(f"events/kprobes/{name}/enable", "1")
        put(length, 1, count)
        with open(f"{TRACING}/kprobe_profile", encoding="ascii") as file:
            hits = {row[0]: int(row[1]) for row in map(str.split, file)}
    finally:
        for name in names:
            with suppress(FileNotFoundError):
                _write(f"events/kprobes/{name}/enable", "0")
        _write("kprobe_events", "", os.O_TRUNC)
    return {function: hits[name] for name, function in zip(names, functions, strict=True)}


def _write(name: str, text: str, flags: int = 0) -> None:
    """Write a line; an error says what the line was, and what the kernel thought of it."""
    # Not open(): to append it looks for the end, which these files do not have.
    fd = os.open(f"{TRACING}/{name}", os.O_WRONLY | flags)
    try:
        os.write(fd, f"{text}\n".encode())
    except OSError as error:
        with open(f"{TRACING}/error_log", encoding="ascii") as log:
            why = log.read()
        raise OSError(error.errno, f"{error.strerror}, {why}", f"{name}: {text}") from error
    finally:
        os.close(fd)
