# SPDX-License-Identifier: GPL-2.0
"""How large the modules are in the kernel's memory, beside the C modules, and their source.

What a module takes loaded is the sum of the sections of its .ko file that are allocated
and stay: without those that are only used while it is loaded, and without the rounding up
to pages that the kernel adds. Of the source, lines with code are counted: no tests,
comments or blank lines.
"""

from __future__ import annotations

import argparse
import struct
from dataclasses import dataclass
from pathlib import Path

from . import build
from . import c_modules
from . import paths
from . import rust_source

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

    def __add__(self, other: Size) -> Size:
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
        sums = [left + right for left, right in zip(sums, sizes, strict=True)]
        lines.append(_row(name.replace("-", "_"), sizes))
    lines.append(_row("all", sums))
    return "\n".join(lines)


def _row(name: str, sizes: list[Size]) -> str:
    figures = [figure for one in sizes for figure in (one.code, one.constants, one.data, one.total)]
    return f"| {name} | " + " | ".join(f"{figure:,}" for figure in figures) + " |"


def lines(checkout: Path = paths.CHECKOUT) -> dict[str, int]:
    """The Rust lines of each crate's folder."""
    return {folder: sum(rust_source.count_lines(file.read_text()) for file in rust_source.files(crate, checkout)
                        if not rust_source.is_test(file.relative_to(checkout)))
            for crate, folder in rust_source.CRATES.items()}


def lines_table(counted: dict[str, int]) -> str:
    """A table in Markdown of them."""
    rows = [f"| `{folder}/` | {count:,} |" for folder, count in counted.items()]
    return "\n".join(["| crate | lines |", "|---|---|", *rows, f"| all | {sum(counted.values()):,} |"])


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command `lab sizes`."""
    command = commands.add_parser("sizes", help="print the sizes of source and modules",
                                  description=__doc__)
    command.add_argument("--modules-dir", metavar="DIR", help="built modules (default: build them)")
    command.add_argument("--lines", action="store_true", help="only count the lines of the Rust source")
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    print(lines_table(lines()))
    if options.lines:
        return 0
    print()
    ours = Path(options.modules_dir) if options.modules_dir else build.modules("stock")
    print(table(ours, c_modules.folder("stock")))
    return 0
