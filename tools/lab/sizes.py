# SPDX-License-Identifier: GPL-2.0
"""How large the modules are in the kernel's memory, beside the C modules."""

import argparse
import struct
from dataclasses import dataclass
from pathlib import Path

from . import build
from . import c_modules

ALLOC, WRITE, EXEC = 2, 1, 4
NOBITS = 8
# Used while a module is loaded only, or by tools.
TEMPORARY = (".init", ".modinfo", "__versions", ".BTF")


@dataclass
class Size:
    """Bytes of a module's sections that stay in memory."""

    code: int = 0
    constants: int = 0
    data: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.code + self.constants + self.data

    def __add__(self, other: "Size") -> "Size":
        return Size(self.code + other.code, self.constants + other.constants, self.data + other.data)


def size(module: Path) -> Size:
    """The size of a module, from its section headers (ELF, 64 bits, little-endian)."""
    elf = module.read_bytes()
    if elf[:6] != b"\x7fELF\x02\x01":
        raise RuntimeError(f"{module} is no 64-bit little-endian ELF file")
    table, = struct.unpack_from("<Q", elf, 40)
    length, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + length * index) for index in range(count)]
    strings = headers[names][4]
    found = Size()
    for name, kind, flags, _address, _offset, bytes_ in headers:
        start = strings + name
        text = elf[start : elf.index(b"\0", start)].decode()
        if not flags & ALLOC or text.startswith(TEMPORARY):
            continue
        if flags & EXEC:
            found.code += bytes_
        elif kind == NOBITS or flags & WRITE:
            found.data += bytes_
        else:
            found.constants += bytes_
    return found


def table(ours: Path, theirs: Path) -> str:
    """A table in Markdown of the modules in two folders."""
    lines = ["| module | code | constants | data | together | C: code | constants | data | together |",
             "|---|---|---|---|---|---|---|---|---|"]
    sums = [Size(), Size()]
    for name in c_modules.MODULES:
        sizes = [size(ours / f"{name.replace('-', '_')}.ko"), size(theirs / f"{name}.ko")]
        sums = [left + right for left, right in zip(sums, sizes)]
        lines.append(_row(name.replace("-", "_"), sizes))
    lines.append(_row("all", sums))
    return "\n".join(lines)


def _row(name: str, sizes: list[Size]) -> str:
    figures = [figure for one in sizes for figure in (one.code, one.constants, one.data, one.total)]
    return f"| {name} | " + " | ".join(f"{figure:,}" for figure in figures) + " |"


def add_parser(commands: argparse._SubParsersAction) -> None:
    """The command `lab sizes`."""
    command = commands.add_parser("sizes", help="print the modules' sizes, beside those of C")
    command.add_argument("--modules-dir", metavar="DIR", help="built modules (default: build them)")
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    ours = Path(options.modules_dir) if options.modules_dir else build.modules("stock")
    print(table(ours, c_modules.folder("stock")))
    return 0
