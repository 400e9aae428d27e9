# SPDX-License-Identifier: GPL-2.0
"""Many mapped devices at once, with times by the guest's clock."""

from __future__ import annotations

import errno
import os
import time

# How often to look whether something has come about, in seconds.
INTERVAL = 0.01


def _file(name: str, file: str) -> str:
    return f"/sys/block/{name}/rnbd/{file}"


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def look_at_each(names: list[str]) -> float:
    """Reads of each device what a list of devices says of it; the seconds that this took."""
    started = time.monotonic()
    for name in names:
        for file in ("mapping_path", "state", "access_mode"):
            _read(_file(name, file))
        _read(f"/sys/block/{name}/size")
    return time.monotonic() - started


def unmap_each(names: list[str], seconds: float) -> float:
    """Unmaps devices one after the other; the seconds that this took. Raises TimeoutError after so many."""
    started = time.monotonic()
    for name in names:
        # A program that looks at new disks may still have this one open.
        while True:
            try:
                _write(_file(name, "unmap_device"), "normal")
                break
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                _wait(started, seconds, f"{name} is in use")
    return time.monotonic() - started


def connect_again(paths: list[str], names: list[str], seconds: float) -> float:
    """Takes paths down and up again; the seconds until all devices are open after the paths were asked for.

    ``paths`` are their folders. Raises TimeoutError after so many seconds.
    """
    started = time.monotonic()
    for path in paths:
        _write(f"{path}/disconnect", "1")
    while any(_read(_file(name, "state")) == "open" for name in names):
        _wait(started, seconds, "a device stays open without a path")
    asked = time.monotonic()
    for path in paths:
        # The server may still be closing the old connections.
        while True:
            try:
                _write(f"{path}/reconnect", "1")
                break
            except OSError as error:
                if error.errno not in (errno.ENOTCONN, errno.ECONNRESET, errno.ECONNREFUSED):
                    raise
                _wait(asked, seconds, f"{path} is not connected")
    # The last one is opened last, mostly.
    for name in reversed(names):
        while _read(_file(name, "state")) != "open":
            _wait(asked, seconds, f"{name} is not opened again")
    return time.monotonic() - asked


def _wait(started: float, seconds: float, what: str) -> None:
    if time.monotonic() - started > seconds:
        raise TimeoutError(f"{what} after {seconds:.0f} s")
    time.sleep(INTERVAL)
