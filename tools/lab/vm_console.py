# SPDX-License-Identifier: GPL-2.0
"""Joins this terminal to machines' serial consoles.

Ctrl-] then n changes to the next machine, Ctrl-] then q ends.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import termios
import tty
from collections.abc import Iterator
from pathlib import Path

ESCAPE = b"\x1d"


class Console:
    """One machine's console socket."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(str(path))


class Keys:
    """What is typed, cut where it is for us and not for a machine."""

    def __init__(self) -> None:
        self._escaped = False

    def parse(self, typed: bytes) -> Iterator[tuple[str, bytes]]:
        """``("text", bytes)`` for the machine, ``("next", bytes to wake its prompt)``, ``("quit", b"")``."""
        text = b""
        for number in typed:
            key = bytes((number,))
            if self._escaped:
                self._escaped = False
                if key in (b"q", b"n"):
                    if text:
                        yield "text", text
                    text = b""
                    yield ("quit", b"") if key == b"q" else ("next", b"\r")
                    continue
            elif key == ESCAPE:
                self._escaped = True
                continue
            text += key
        if text:
            yield "text", text


def relay(consoles: list[Console]) -> None:
    """Talk to one console at a time until `q` or until its machine ends."""
    current = 0
    saved = termios.tcgetattr(0)
    tty.setraw(0)
    keys = Keys()
    # A shell shows its prompt when it is asked.
    consoles[0].sock.sendall(b"\r")
    try:
        while True:
            ready = select.select([0, *(console.sock for console in consoles)], [], [])[0]
            for index, console in enumerate(consoles):
                if console.sock in ready:
                    data = console.sock.recv(65536)
                    if not data:
                        return
                    # What the others say is in their console logs.
                    if index == current:
                        os.write(1, data)
            if 0 not in ready:
                continue
            typed = os.read(0, 4096)
            if not typed:
                return
            for kind, data in keys.parse(typed):
                if kind == "quit":
                    return
                if kind == "next":
                    current = (current + 1) % len(consoles)
                    os.write(1, f"\r\n[{consoles[current].name}]\r\n".encode())
                consoles[current].sock.sendall(data)
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, saved)


def main(arguments: list[str]) -> int:
    """`vm_console NAME=SOCKET...`"""
    consoles = [Console(name, Path(path))
                for name, _, path in (argument.partition("=") for argument in arguments)]
    relay(consoles)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
