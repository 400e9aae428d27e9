# SPDX-License-Identifier: GPL-2.0
"""The frequency of this host's time stamp counter, which emulated amd64 processors have too.

A kernel that boots on an emulated machine measures that frequency by timers of the machine. If the host stops the
machine meanwhile, the result may be a fraction of the frequency, and the kernel's clock then runs as many times too
fast: its watchdogs report hung tasks and lost timers, and tests run out of time. So machines are told the frequency.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import platform
import time
from collections.abc import Callable

# `rdtsc; shl rdx, 32; or rax, rdx; ret`
RDTSC = bytes.fromhex("0f31 48c1e220 4809d0 c3")
APART_SECONDS = 0.05
# Of so many reads the one counts that was not interrupted: the one that took the shortest time.
READS = 20


def _reader() -> Callable[[], int]:
    """A function that reads the counter."""
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(RDTSC)
    function = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))

    def read() -> int:
        # The function's code lives as long as the mapping.
        assert not memory.closed
        return int(function())

    return read


def moment() -> tuple[int, int]:
    """The time in ns, and the counter at that time."""
    read = _reader()
    best = (1 << 62, 0, 0)
    for _ in range(READS):
        before = time.monotonic_ns()
        counter = read()
        took = time.monotonic_ns() - before
        best = min(best, (took, before + took // 2, counter))
    return best[1], best[2]


@functools.cache
def tsc_khz() -> int:
    """The frequency in kHz; 0 if this host has another architecture."""
    if platform.machine() != "x86_64":
        return 0
    begin, first = moment()
    time.sleep(APART_SECONDS)
    end, last = moment()
    return (last - first) * 1_000_000 // (end - begin)
