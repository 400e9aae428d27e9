# SPDX-License-Identifier: GPL-2.0
"""The same thing over and over, without a word to the host in between."""

from __future__ import annotations

import errno
import os
import time


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def write_each(path: str, lines: list[str]) -> float:
    """Writes each line to a file, by a write(2) each; the seconds it took."""
    started = time.monotonic()
    for line in lines:
        _write(path, line)
    return time.monotonic() - started


def map_and_unmap(map_device: str, text: str, link: str, count: int) -> None:
    """Maps a device, writes a block and unmaps it, ``count`` times."""
    for _ in range(count):
        _write(map_device, text)
        disk = os.path.basename(os.path.realpath(link))
        fd = os.open(f"/dev/{disk}", os.O_WRONLY | os.O_SYNC)
        try:
            os.pwrite(fd, b"x" * 4096, 0)
        finally:
            os.close(fd)
        # Whoever looks at new disks may still have it open.
        for attempt in range(100):
            try:
                _write(f"{link}/rnbd/unmap_device", "normal")
                break
            except OSError:
                if attempt == 99:
                    raise
                time.sleep(0.02)


def disconnect_and_connect(path: str, device: str, state: str, count: int) -> None:
    """Takes a path down and up, and writes a block each time, ``count`` times.

    ``path`` is its folder, ``state`` the device's file that says when it is open again.
    """
    for _ in range(count):
        _write(f"{path}/disconnect", "1")
        # The server may still be closing the old connections.
        for attempt in range(200):
            try:
                _write(f"{path}/reconnect", "1")
                break
            except OSError as error:
                if error.errno != errno.ENOTCONN or attempt == 199:
                    raise
                time.sleep(0.05)
        _wait_for_text(state, "open")
        fd = os.open(device, os.O_WRONLY | os.O_SYNC)
        try:
            os.pwrite(fd, b"x" * 4096, 0)
        finally:
            os.close(fd)


def _wait_for_text(path: str, text: str) -> None:
    for _ in range(3000):
        with open(path, encoding="ascii") as file:
            if file.read().strip() == text:
                return
        time.sleep(0.01)
    raise TimeoutError(f"{path} does not become {text}")
