# SPDX-License-Identifier: GPL-2.0
"""Sizes of modules are those of the sections that stay."""

import struct
import tempfile
import unittest
from pathlib import Path

from lab import sizes


def elf(sections: list[tuple[str, int, int, int]]) -> bytes:
    """A file with these sections: name, type, flags, size."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name, *_ in sections) + b".shstrtab\0"
    headers = []
    for name, kind, flags, size in [*sections, (".shstrtab", 3, 0, len(names))]:
        place = names.index(b"\0" + name.encode() + b"\0") + 1
        headers.append(struct.pack("<IIQQQQ24x", place, kind, flags, 0, 64, size))
    start = 64 + len(names)
    header = b"\x7fELF\x02\x01" + bytes(34) + struct.pack("<Q", start) + bytes(10)
    header += struct.pack("<HHH", 64, len(headers), len(headers) - 1)
    return header + names + b"".join(headers)


class Sizes(unittest.TestCase):
    def test_kinds(self) -> None:
        sections = [
            (".text", 1, sizes.ALLOC | sizes.EXEC, 1000),
            (".init.text", 1, sizes.ALLOC | sizes.EXEC, 10),
            (".rodata", 1, sizes.ALLOC, 200),
            (".modinfo", 1, sizes.ALLOC, 20),
            (".data", 1, sizes.ALLOC | sizes.WRITE, 30),
            (".bss", sizes.NOBITS, sizes.ALLOC | sizes.WRITE, 4),
            (".debug_info", 1, 0, 100000),
        ]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "x.ko"
            file.write_bytes(elf(sections))
            self.assertEqual(sizes.size(file), sizes.Size(1000, 200, 34))
            file.write_bytes(b"x" * 100)
            with self.assertRaises(RuntimeError):
                sizes.size(file)


if __name__ == "__main__":
    unittest.main()
