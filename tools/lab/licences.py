# SPDX-License-Identifier: GPL-2.0
"""`lab licences`: what the programs are linked with goes with their licence, GPL-2.0.

Version 2 of the GPL only, so Apache-2.0 alone does not do: its terms about patents are restrictions more. Most crates
are under "MIT OR Apache-2.0", and are used under MIT then.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import build
from . import house
from . import paths
from . import run
from .run import CommandFailed

# Those of which a program under GPL-2.0 can be made, by their SPDX names.
GOOD = frozenset({
    "0BSD", "BSD-1-Clause", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "GPL-2.0", "GPL-2.0-only",
    "GPL-2.0-or-later", "ISC", "LGPL-2.1-only", "LGPL-2.1-or-later", "MIT", "MIT-0", "Unicode-3.0", "Unicode-DFS-2016",
    "Unlicense", "Zlib",
})  # fmt: skip
_WORD = re.compile(r"\(|\)|/|[\w.+-]+")


@dataclass
class _Reader:
    """Reads an expression of SPDX from its beginning to its end."""

    words: list[str]

    def take(self, *wanted: str) -> bool:
        if self.words and self.words[0] in wanted:
            self.words.pop(0)
            return True
        return False

    def either(self) -> bool:
        good = self.both()
        # Old crates have a slash for OR.
        while self.take("OR", "/"):
            good = self.both() or good
        return good

    def both(self) -> bool:
        good = self.one()
        while self.take("AND"):
            good = self.one() and good
        return good

    def one(self) -> bool:
        if self.take("("):
            good = self.either()
            if not self.take(")"):
                raise ValueError("a bracket is not closed")
            return good
        if not self.words or self.words[0] in ("OR", "AND", "WITH", "/", ")"):
            raise ValueError("a licence is missing")
        name = self.words.pop(0)
        if self.take("WITH"):
            # An exception only permits more.
            self.one()
        return name in GOOD


def is_good(expression: str) -> bool:
    """Whether a crate under that licence, an expression of SPDX, can be linked; ValueError if it is none."""
    reader = _Reader(_WORD.findall(expression))
    good = reader.either()
    if reader.words:
        raise ValueError(f"{expression!r} goes on with {' '.join(reader.words)!r}")
    return good


def problems(metadata: dict[str, Any], name: str) -> list[str]:
    """What is wrong with the crates of which a program is made, by `cargo metadata`."""
    found = []
    linked = _linked(metadata)
    for package in metadata["packages"]:
        crate = f"{name}: {package['name']} {package['version']}"
        licence = package["license"]
        if package["id"] not in linked:
            continue
        try:
            if not licence:
                found.append(f"{crate} does not name its licence")
            elif not is_good(licence):
                found.append(f"{crate} is under {licence}, which does not go with GPL-2.0")
        except ValueError as error:
            found.append(f"{crate}: {error}")
    return found


def _linked(metadata: dict[str, Any]) -> set[str]:
    """The crates that become a part of the program: no programs that only build it, and no tests' ones."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    linked: set[str] = set()
    waiting = [metadata["resolve"]["root"]]
    while waiting:
        crate = waiting.pop()
        if crate in linked:
            continue
        linked.add(crate)
        for dependency in nodes[crate]["deps"]:
            # A kind of None is an ordinary dependency. Macros are among them; what they write is in the program.
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    return linked


def metadata_of(manifest: Path) -> dict[str, Any]:
    """What cargo says of a crate and all that it is made of, for Linux."""
    argv = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu",
            "--manifest-path", str(manifest)]
    command = run.chroot_command(paths.build_root(), argv, build.cargo_binds(), cwd=str(paths.CHECKOUT))
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandFailed(f"cargo metadata of {manifest}: {done.stderr[-2000:]}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def check(checkout: Path = paths.CHECKOUT) -> list[str]:
    """What is wrong with the licences of the programs' crates."""
    found = []
    for program in house.PROGRAMS:
        found += problems(metadata_of(checkout / program / "Cargo.toml"), program)
    return found


def _run(_options: argparse.Namespace) -> int:
    found = check()
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command `lab licences`."""
    command = commands.add_parser("licences", help="check the licences of the programs' crates", description=__doc__)
    command.set_defaults(run=_run)
