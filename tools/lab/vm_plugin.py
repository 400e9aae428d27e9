# SPDX-License-Identifier: GPL-2.0
"""Plugins of the emulator, each a C file of this folder that includes vm_plugin*.h, and their sockets."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from . import cache
from . import debian
from . import run


def compiled(name: str) -> Path:
    """The plugin of this name, compiled at first use."""
    here = Path(__file__).parent
    sources = {file.name: file.read_text() for file in [*sorted(here.glob("vm_plugin*.h")), here / f"{name}.c"]}
    artifact = name.replace("_", "-")
    target = cache.artifact(artifact, source=sources, buildroot=debian.buildroot().key)
    with cache.lock(artifact):
        if not target.is_complete():
            with cache.building(target) as (folder, _facts):
                for file, text in sources.items():
                    (folder / file).write_text(text)
                run.chroot(debian.buildroot().path / "root",
                           ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
                            "-o", f"{name}.so", f"{name}.c"],
                           [run.Bind(folder, "/mnt")], cwd="/mnt")
    return target.path / f"{name}.so"


class Connection:
    """A connection to the plugin of one machine."""

    def __init__(self, path: Path) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.connect(str(path))
        self._file = self._sock.makefile("rb")

    def send(self, command: bytes) -> None:
        """Send a command."""
        self._sock.sendall(command)

    def confirmed(self, command: bytes) -> None:
        """Send a command that is answered with its first byte."""
        self.send(command)
        if self._file.read(1) != command[:1]:
            raise ConnectionResetError("the emulator's plugin is gone")

    def records(self, layout: struct.Struct) -> Iterator[tuple[int, ...]]:
        """The records of an answer, to the one of zeros that ends it."""
        while any(record := layout.unpack(self._file.read(layout.size))):
            yield record

    def close(self) -> None:
        """Disconnect."""
        self._file.close()
        self._sock.close()
