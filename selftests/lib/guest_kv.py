# SPDX-License-Identifier: GPL-2.0
"""Values of the sample client, inside the guest: put, got, and used by several tasks at once."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from lib.guest_io import pattern

FOLDER = "/sys/class/rtrs-kv"

_busy: dict[str, dict[str, Any]] = {}


def _write(path: str, value: bytes, at: int = 0) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        done = 0
        while done < len(value):
            done += os.pwrite(fd, value[done:], at + done)
    finally:
        os.close(fd)


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        value = b""
        while piece := os.pread(fd, 1 << 20, len(value)):
            value += piece
        return value
    finally:
        os.close(fd)


def put(key: str, length: int, seed: int, at: int = 0) -> None:
    """Write a pattern to a key's value, in as many calls as the kernel makes of it."""
    _write(f"{FOLDER}/{key}/value", pattern(seed, length), at)


def put_on_cpu(cpu: int, key: str, length: int, seed: int) -> None:
    """As ``put``, on a CPU."""
    usual = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        put(key, length, seed)
    finally:
        os.sched_setaffinity(0, usual)


def put_often(path: str, length: int, count: int) -> None:
    """Write one pattern to the file of a value, so often, each time in one call."""
    value = pattern(1, length)
    fd = os.open(path, os.O_WRONLY)
    try:
        for _ in range(count):
            if os.pwrite(fd, value, 0) != length:
                raise OSError(f"less than {length} bytes were taken")
    finally:
        os.close(fd)


def difference(key: str, length: int, seed: int) -> str:
    """What is wrong with a key's value; nothing if it is that pattern, and ends there."""
    value = _read(f"{FOLDER}/{key}/value")
    if len(value) != length:
        return f"{len(value)} bytes instead of {length}"
    wanted = pattern(seed, length)
    wrong = [at for at in range(length) if value[at] != wanted[at]]
    return f"byte {wrong[0]} and {len(wrong) - 1} more of {length}" if wrong else ""


def all_at_once(keys: list[str], rounds: int, length: int) -> list[str]:
    """Each key has a task of its own, which puts values and gets them again; what went wrong."""
    problems: list[str] = []

    def work(number: int, key: str) -> None:
        try:
            for turn in range(rounds):
                put(key, length, seed=number * rounds + turn)
                if wrong := difference(key, length, seed=number * rounds + turn):
                    problems.append(f"{key}, round {turn}: {wrong}")
        except OSError as error:
            problems.append(f"{key}: {error}")

    threads = [threading.Thread(target=work, args=(number, key)) for number, key in enumerate(keys)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return problems


def one_key_for_all(key: str, tasks: int, rounds: int, length: int) -> list[str]:
    """Several tasks put values of one key, each filled with a byte of its own; what they get that none has put."""
    problems: list[str] = []
    put_by = [bytes([task + 1]) * length for task in range(tasks)]
    _write(f"{FOLDER}/{key}/value", put_by[0])

    def work(value: bytes) -> None:
        try:
            for _ in range(rounds):
                _write(f"{FOLDER}/{key}/value", value)
                if (got := _read(f"{FOLDER}/{key}/value")) not in put_by:
                    problems.append(f"{len(got)} bytes, of {len(set(got))} values")
        except OSError as error:
            problems.append(str(error))

    threads = [threading.Thread(target=work, args=(value,)) for value in put_by]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return problems


def busy_start(key: str, length: int) -> None:
    """Put values over and over in a task, until an error or `busy_stop`."""
    state: dict[str, Any] = {"stop": False, "puts": 0, "errno": 0}
    _busy[key] = state

    def work() -> None:
        try:
            while not state["stop"]:
                put(key, length, seed=state["puts"])
                state["puts"] += 1
        except OSError as error:
            state["errno"] = error.errno

    state["thread"] = threading.Thread(target=work, daemon=True)
    state["thread"].start()


def busy_puts(key: str, count: int, seconds: float) -> bool:
    """Wait until that task has put so many values, for at most so long."""
    deadline = time.monotonic() + seconds
    while _busy[key]["puts"] < count and time.monotonic() < deadline and _busy[key]["thread"].is_alive():
        _busy[key]["thread"].join(0.02)
    return bool(_busy[key]["puts"] >= count)


def busy_stop(key: str, seconds: float, stop: bool = True) -> dict[str, Any]:
    """Stop the task, or wait for its own end: the values it has put, its errno (0: none), whether it still runs."""
    state = _busy.pop(key)
    state["stop"] = stop
    state["thread"].join(seconds)
    return {"puts": state["puts"], "errno": state["errno"], "runs": state["thread"].is_alive()}
