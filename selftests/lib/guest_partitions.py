# SPDX-License-Identifier: GPL-2.0
"""Partition tables, written without the tools for it."""

from __future__ import annotations

import os
import struct
import uuid
import zlib

LINUX_DATA = uuid.UUID("0fc63daf-8483-4772-8e79-3d69d8477de4").bytes_le
ENTRIES = 128
BLOCK = 512


def write_gpt(path: str, partitions: list[tuple[int, int]]) -> None:
    """A GPT with (offset, length) in bytes, on a disk with blocks of 512 bytes."""
    with open(path, "r+b", buffering=0) as disk:
        blocks = disk.seek(0, os.SEEK_END) // BLOCK
        table = b"".join(
            struct.pack("<16s16sQQQ72s", LINUX_DATA, uuid.uuid4().bytes_le, offset // BLOCK,
                        (offset + length) // BLOCK - 1, 0, b"")
            for offset, length in partitions).ljust(ENTRIES * 128, b"\0")
        own = uuid.uuid4().bytes_le
        table_blocks = len(table) // BLOCK

        def header(here: int, other: int, table_at: int) -> bytes:
            fields = struct.pack("<8sIIIIQQQQ16sQIII", b"EFI PART", 0x10000, 92, 0, 0, here, other,
                                 2 + table_blocks, blocks - 2 - table_blocks, own, table_at,
                                 ENTRIES, 128, zlib.crc32(table))
            fields = fields[:16] + struct.pack("<I", zlib.crc32(fields)) + fields[20:]
            return fields.ljust(BLOCK, b"\0")

        last = blocks - 1
        protective = struct.pack("<8B2I", 0, 0, 2, 0, 0xEE, 255, 255, 255, 1,
                                 min(last, 0xFFFFFFFF))
        disk.seek(0)
        disk.write(bytes(446) + protective.ljust(64, b"\0") + b"\x55\xaa"
                   + header(1, last, 2) + table)
        disk.seek((last - table_blocks) * BLOCK)
        disk.write(table + header(last, 1, last - table_blocks))
        os.fsync(disk.fileno())
