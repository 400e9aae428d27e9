# SPDX-License-Identifier: GPL-2.0
"""Partitions without a program for them."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct

BLKPG = 0x1269
ADD, DELETE = 1, 2


def _ioctl(path: str, op: int, number: int, start: int, length: int) -> None:
    data = ctypes.create_string_buffer(struct.pack("qqi64s64s4x", start, length, number, b"", b""))
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.ioctl(fd, BLKPG, struct.pack("iii4xP", op, 0, len(data.raw) - 1,
                                           ctypes.addressof(data)))
    finally:
        os.close(fd)


def add(path: str, number: int, start: int, length: int) -> None:
    """Partition ``number`` of a disk, in bytes."""
    _ioctl(path, ADD, number, start, length)


def delete(path: str, number: int) -> None:
    """Undo ``add``."""
    _ioctl(path, DELETE, number, 0, 0)
