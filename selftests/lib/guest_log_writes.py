# SPDX-License-Identifier: GPL-2.0
"""Logs of dm-log-writes: the writes to a disk, each listed when a flush or FUA has made it durable.

The format is that of drivers/md/dm-log-writes.c: a super block, then a sector of metadata for each entry
with the entry's data behind it.
"""

from __future__ import annotations

import os
import struct

MAGIC, VERSION = 0x6A736677736872, 1
SUPER, ENTRY = struct.Struct("<QQQI"), struct.Struct("<QQQQ")
DISCARD, MARK = 1 << 2, 1 << 3
ZEROES = 1 << 20


def _clear(disk: int, offset: int, length: int) -> None:
    while length:
        length, piece = length - min(length, ZEROES), min(length, ZEROES)
        offset += os.pwrite(disk, bytes(piece), offset)


def replay(log: str, disk: str, mark: str) -> int:
    """Write to a disk what was durable on the logged disk when the log was marked, from the log's beginning;
    how many entries that took. LookupError if the log has no such mark."""
    reader, writer = os.open(log, os.O_RDONLY), os.open(disk, os.O_WRONLY)
    try:
        magic, version, entries, sector_size = SUPER.unpack(os.pread(reader, SUPER.size, 0))
        if (magic, version) != (MAGIC, VERSION):
            raise ValueError(f"{log} is no log of writes: {magic:#x}, version {version}")
        at = sector_size
        for number in range(entries):
            head = os.pread(reader, sector_size, at)
            sector, count, flags, data_length = ENTRY.unpack_from(head)
            at += sector_size
            if flags & MARK:
                if head[ENTRY.size:ENTRY.size + data_length] == mark.encode():
                    os.fsync(writer)
                    return number
            elif flags & DISCARD:
                _clear(writer, sector * sector_size, count * sector_size)
            elif count:
                data = os.pread(reader, count * sector_size, at)
                os.pwrite(writer, data, sector * sector_size)
                at += count * sector_size
        raise LookupError(f"{log} has no mark {mark} among {entries} entries")
    finally:
        os.close(writer)
        os.close(reader)
