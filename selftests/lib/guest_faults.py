# SPDX-License-Identifier: GPL-2.0
"""Have the kernel's allocations fail: the Nth of one system call, or some of a module's."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from typing import Any

DEBUGFS = "/sys/kernel/debug"
KINDS = ("failslab", "fail_page_alloc")
_text: dict[str, tuple[int, int]] = {}
# The most that the kernel may have counted so far; it counts while one allocation is to fail, and
# lets it fail when the count is a multiple of an interval.
_counted = dict.fromkeys(KINDS, 0)


def _set(kind: str, name: str, value: object) -> None:
    with open(f"{DEBUGFS}/{kind}/{name}", "w", encoding="ascii") as file:
        file.write(str(value))


def _find_text() -> None:
    """Note where the functions of soft-RoCE and of each of our modules begin and end.

    There are many symbols, and this machine is slow, so it is done once for each test.
    """
    near: list[Any] = []
    ours: dict[str, Any] = {}
    rxe = 0
    with open("/proc/kallsyms", encoding="ascii") as file:
        for line in file:
            words = line.split()
            if words[2].startswith("rxe_") and words[1] in "tT":
                near.append(int(words[0], 16))
                if words[2] == "rxe_create_qp":
                    rxe = near[-1]
            elif len(words) > 3 and words[3].startswith(("[rtrs_", "[rnbd_")) and words[1] in "tT":
                ours.setdefault(words[3][1:-1], []).append(int(words[0], 16))
    # Symbols of other sections lie far away.
    ours["rxe"] = [place for place in near if abs(place - rxe) < 1 << 20]
    _text.clear()
    _text.update({name: (min(places), max(places) + 4096) for name, places in ours.items()})


def _text_of(*modules: str) -> tuple[int, int]:
    """Where the functions of modules begin and end."""
    return min(_text[name][0] for name in modules), max(_text[name][1] for name in modules)


def _require(kind: str, start: int = 0, end: int = (1 << 64) - 1) -> None:
    _set(kind, "require-start", hex(start))
    _set(kind, "require-end", hex(end))


def prepare(own: Sequence[str] = ()) -> None:
    """Allocations that may sleep can fail, too, and failing is not reported by a stack trace.

    Those of soft-RoCE do not fail: it warns about some of its own. With names of modules, only
    allocations fail that these make themselves, or by a function that they call.
    """
    _find_text()
    start, end = _text_of("rxe")
    for kind in KINDS:
        _set(kind, "probability", 0)
        _set(kind, "verbose", 0)
        _set(kind, "ignore-gfp-wait", "N")
        # Between should_fail() and who asks for memory there are five functions at most.
        _set(kind, "stacktrace-depth", 9 if own else 32)
        _set(kind, "reject-start", hex(start))
        _set(kind, "reject-end", hex(end))
        _require(kind, *(_text_of(*own) if own else ()))
    _set("fail_page_alloc", "min-order", 0)
    _set("fail_page_alloc", "ignore-gfp-highmem", "N")


def write_failing(path: str, text: str, nth: int) -> tuple[int, bool]:
    """One write(2) in which the nth allocation fails.

    Returns the errno (0 if it succeeded) and whether there were so many allocations.
    """
    file = os.open(path, os.O_WRONLY)
    fault = os.open("/proc/thread-self/fail-nth", os.O_RDWR)
    data, number = text.encode(), str(nth).encode()
    error = 0
    try:
        os.write(fault, number)
        try:
            os.write(file, data)
        except OSError as failure:
            error = failure.errno or errno.EIO
        left = int(os.pread(fault, 32, 0).strip(b"\0\n "))
        os.pwrite(fault, b"0", 0)
    finally:
        os.close(fault)
        os.close(file)
    return error, left == 0


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii", buffering=1) as file:
        file.write(text)


def _wait_gone(paths: list[str], seconds: float) -> list[str]:
    """Wait until none of the paths is there; those that stay."""
    deadline = time.monotonic() + seconds
    while left := [path for path in paths if os.path.lexists(path)]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return left


def map_failing(map_device: str, text: str, link: str, gone: list[str], nth: int, step: int,
                seconds: float, patience: float) -> dict[str, Any]:
    """Map a device over and over with one allocation failing, and unmap it if it succeeded.

    Begins with allocation ``nth`` and goes on ``step`` further until there is none or the time is
    over.
    ``link`` is there while the device is mapped; ``gone`` are paths that must not be there after
    it. Returns what there was, and which allocation is to be ``next``: none after the last one.
    """
    started = time.monotonic()
    outcomes: dict[int, int] = {}
    slowest, odd, injected = 0.0, "", True
    while injected and not odd and time.monotonic() - started < seconds:
        begun = time.monotonic()
        error, injected = write_failing(map_device, text, nth)
        slowest = max(slowest, time.monotonic() - begun)
        if injected:
            outcomes[error] = outcomes.get(error, 0) + 1
        elif error:
            odd = f"errno {error} although no allocation failed (number {nth})"
        if error == 0:
            _write(f"{link}/rnbd/unmap_device", "normal")
        elif os.path.lexists(link):
            odd = f"allocation {nth}: errno {error}, but {link} is there"
        if left := _wait_gone([link, *gone], patience):
            odd = f"allocation {nth}: errno {error}, left behind: {left}"
        nth += step
    return {"outcomes": sorted(outcomes.items()), "slowest": slowest, "odd": odd,
            "next": nth if injected else 0}


def fail_once(module: str, kind: str, nth: int) -> None:
    """The ``nth`` allocation from now on below a module's functions will fail, and no other one.

    It may be some later if there were not so many the last time. Take ``end`` afterwards.
    """
    _require(kind, *_text_of(module))
    _counted[kind] += nth
    _set(kind, "interval", _counted[kind])
    _set(kind, "times", 1)
    _set(kind, "probability", 100)


def fail_often(module: str, percent: int) -> None:
    """So many of the allocations below a module's functions fail."""
    for kind in KINDS:
        _require(kind, *_text_of(module))
        _set(kind, "interval", 1)
        _set(kind, "times", 1 << 30)
        _set(kind, "probability", percent)


def fail_blocks(module: str) -> None:
    """All allocations of more than eight pages below a module's functions fail; small objects may need that many."""
    kind = "fail_page_alloc"
    _require(kind, *_text_of(module))
    _set(kind, "min-order", 4)
    _set(kind, "interval", 1)
    _set(kind, "times", 1 << 30)
    _set(kind, "probability", 100)


def end() -> int:
    """No allocation fails any more; how many did since ``fail_once`` or ``fail_often``."""
    count = 0
    for kind in KINDS:
        with open(f"{DEBUGFS}/{kind}/probability", encoding="ascii") as file:
            active = int(file.read()) > 0
        _set(kind, "probability", 0)
        with open(f"{DEBUGFS}/{kind}/times", encoding="ascii") as file:
            left = int(file.read())
        if active:
            count += (1 if left <= 1 else 1 << 30) - left
            if left == 1:
                _counted[kind] -= 1
        _require(kind)
    return count
