# SPDX-License-Identifier: GPL-2.0
"""The commands in the documents, so that tests can run them.

A fenced block says what it is: ``sh client``, ``sh server`` are commands for one of
the machines, ``sh other-client`` for a second machine that maps disks, ``sh here`` for a
checkout, ``sh install`` for a machine on which the packages are installed. clusters.md has
machines of its own: ``sh storage``, and ``sh alpha``, ``sh beta`` or ``sh hosts`` for both.
first-hour.md has ``sh storage``, and ``sh clients`` for each of two clients.
mirrors.md has ``sh storage1``, ``sh storage2``, and ``sh mirror`` for their client.
``text`` and the names of other languages are not run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from lab.paths import CHECKOUT

PLACES = ("client", "other-client", "server", "here", "install", "storage", "alpha", "beta", "hosts", "clients",
          "storage1", "storage2", "mirror")
OTHERS = ("text", "toml", "json", "ini", "yaml", "rust", "c", "python")


@dataclass(frozen=True)
class Block:
    """One fenced block of commands."""

    document: str
    line: int
    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def commands(text: str) -> list[str]:
    """The commands of a block, each with its continued lines and its here-document.

    Comments and empty lines are none. ValueError for a line with several commands, which would count as one.
    """
    found: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        command = [line]
        while command[-1].endswith("\\"):
            command.append(next(lines, ""))
        if re.search(r"&&|[;|]", re.sub(r"'[^']*'|\"[^\"]*\"", "", "\n".join(command))):
            raise ValueError(f"several commands in a line: {line}")
        if here := re.search(r"<<-?\s*['\"]?(\w+)", line):
            while command[-1].strip() != here[1]:
                command.append(next(lines, here[1]))
        found.append("\n".join(command))
    return found


def documents() -> list[Path]:
    """All documents of the checkout that tell a reader what to type."""
    own = (CHECKOUT / "README.md", CHECKOUT / "tools/lab/README.md")
    return [own[0], *sorted((CHECKOUT / "Documentation").glob("*.md")), own[1]]


def blocks(path: Path) -> list[Block]:
    """The blocks of commands of a document; ValueError for one that does not say what it is."""
    found: list[Block] = []
    name = path.relative_to(CHECKOUT).as_posix() if path.is_relative_to(CHECKOUT) else path.name
    lines: list[str] | None = None
    start, info = 0, ""
    for number, line in enumerate(path.read_text().split("\n"), 1):
        if not line.startswith("```"):
            if lines is not None:
                lines.append(line)
        elif lines is None:
            start, info, lines = number, line[3:].strip(), []
            if info not in OTHERS and info not in (f"sh {place}" for place in PLACES):
                raise ValueError(f"{name}:{number}: a block is `sh PLACE` or a language, not {info!r}")
        else:
            if info.startswith("sh "):
                found.append(Block(name, start, info[3:], "\n".join(lines) + "\n"))
            lines = None
    if lines is not None:
        raise ValueError(f"{name}:{start}: a block without an end")
    return found
