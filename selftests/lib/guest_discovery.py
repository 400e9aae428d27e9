# SPDX-License-Identifier: GPL-2.0
"""Asking the client's module for the disks of a server, for discovery.py."""

from __future__ import annotations

import os

FILE = "/dev/rnbd-discover"


def lines(line: str, room: int = 4096) -> list[str]:
    """The lines that are read after this one was written; OSError as the kernel says."""
    file = os.open(FILE, os.O_RDWR)
    try:
        os.write(file, line.encode())
        text = b""
        while piece := os.read(file, room):
            text += piece
        return text.decode("latin-1").splitlines()
    finally:
        os.close(file)


def errors(line: str) -> list[int]:
    """The errnos of what is wrong with the use of the file."""
    found = []
    file = os.open(FILE, os.O_RDWR)
    try:
        for use in (lambda: os.read(file, 4096), lambda: os.write(file, b"nonsense"),
                    lambda: os.write(file, b"sessname=x" * 1000), lambda: os.write(file, line.encode()),
                    lambda: os.read(file, 100), lambda: os.write(file, line.encode())):
            try:
                use()
                found.append(0)
            except OSError as error:
                found.append(error.errno or -1)
    finally:
        os.close(file)
    return found


def links(folder: str, target: str, count: int) -> None:
    """Make a folder with so many links to one disk."""
    os.makedirs(folder)
    for number in range(count):
        os.symlink(target, f"{folder}/disk{number:05}")
