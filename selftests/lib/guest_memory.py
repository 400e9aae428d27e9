# SPDX-License-Identifier: GPL-2.0
"""Memory of the guest: make it short, make it fragmented."""

from __future__ import annotations

import ctypes
import os

PAGE = 4096
KEEP_SIZE, PUNCH_HOLE = 1, 2


def punch(path: str, keep: int, free: int, length: int) -> None:
    """Give back ``free`` pages of a file in memory after each ``keep``, ``length`` bytes in all."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(path, os.O_RDWR)
    try:
        offset = keep * PAGE
        while length > 0:
            if libc.fallocate(fd, KEEP_SIZE | PUNCH_HOLE, ctypes.c_long(offset),
                              ctypes.c_long(free * PAGE)) != 0:
                raise OSError(ctypes.get_errno(), "fallocate", path)
            offset += (keep + free) * PAGE
            length -= free * PAGE
    finally:
        os.close(fd)
