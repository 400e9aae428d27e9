# SPDX-License-Identifier: GPL-2.0
"""Which functions an instruction belongs to, by the debug information: inlined ones, too."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from . import arch
from . import debian
from . import rust_source

_FOLDERS = "|".join(rust_source.CRATES.values())
_OURS = re.compile(rf"^(?!/kernel/|/usr/)(.*?)/((?:{_FOLDERS})/[\w/]+\.(?:rs|c|h))$")
_CLOSURE = re.compile(r"::\{closure#\d+\}(?:::<.*>)?$")
_LOCATION = re.compile(r"^(.*):(\d+|\?)(?: \(discriminator \d+\))?$")


@dataclass(frozen=True)
class Frame:
    """A function at some place of its source; `file` is empty if it is not ours."""

    function: str
    file: str
    line: int
    # The checkout that the module was built from.
    checkout: str = ""

    @property
    def is_closure(self) -> bool:
        """Whether it is written inside of another function."""
        return bool(_CLOSURE.search(self.function))


def tool(name: str, about: arch.Arch = arch.AMD64) -> list[str]:
    """How to run a program of the build root's on the host: the one for files of this machine."""
    root = debian.buildroot(about).path / "root"
    libraries = root / "usr/lib/x86_64-linux-gnu"
    program = root / "usr/bin" / f"{about.prefix}{name}"
    return [str(root / "lib64/ld-linux-x86-64.so.2"), "--library-path", str(libraries), str(program)]


def parse(text: str) -> dict[int, list[Frame]]:
    """Reads what `addr2line -a -f -i` prints: the frames of each address, outermost first."""
    found: dict[int, list[Frame]] = {}
    frames: list[Frame] = []
    lines = iter(text.splitlines())
    for line in lines:
        if re.fullmatch(r"0x[0-9a-f]{16}", line):
            frames = found[int(line, 16)] = []
            continue
        place = _LOCATION.match(next(lines))
        ours = _OURS.match(place[1]) if place else None
        number = int(place[2]) if place and place[2] != "?" else 0
        frames.insert(0, Frame(line, ours[2] if ours else "", number, ours[1] if ours else ""))
    return found


def frames(module: Path, offsets: Iterable[int]) -> dict[int, list[Frame]]:
    """The frames of places in the section .text of a module."""
    wanted = "\n".join(f"{offset:#x}" for offset in sorted(set(offsets)))
    argv = [*tool("addr2line"), "-e", str(module), "-j", ".text", "-a", "-f", "-i", "-C"]
    done = subprocess.run(argv, input=wanted, capture_output=True, text=True, check=True)
    return parse(done.stdout)


def has_debug_information(module: Path) -> bool:
    """Whether a module says where its instructions come from."""
    return b".debug_info\0" in module.read_bytes()
