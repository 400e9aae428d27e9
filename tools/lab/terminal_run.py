# SPDX-License-Identifier: GPL-2.0
"""A program in a terminal of its own: what it writes there."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import termios
import time


def output(argv: list[str], columns: int, rows: int, seconds: float, keys: str = "") -> str:
    """What a program writes to a terminal of this size, as UTF-8.

    It ends by itself; or, if there are ``keys``, they are pressed after ``seconds``, and what is written from then on
    is left out. OSError for a program that cannot be started, TimeoutError for one that does not end.
    """
    ours, theirs = os.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        with subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
                              start_new_session=True) as process:
            os.close(theirs)
            theirs = -1
            text = _read(ours, time.monotonic() + seconds)
            if keys:
                os.write(ours, keys.encode())
                _read(ours, time.monotonic() + seconds)
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired as error:
                process.kill()
                raise TimeoutError(f"{argv[0]} does not end") from error
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)
    return text.decode("utf-8", "replace")


def _read(terminal: int, until: float) -> bytes:
    """What comes until the program ends, or the time is over."""
    found = b""
    while (left := until - time.monotonic()) > 0:
        if not select.select([terminal], [], [], left)[0]:
            break
        try:
            more = os.read(terminal, 65536)
        except OSError:
            # The other end was closed.
            break
        if not more:
            break
        found += more
    return found
