# SPDX-License-Identifier: GPL-2.0
"""Changes to queueing disciplines, by one tc that goes on running.

Starting a program takes the debug kernel a second, and tests change links all the time.
"""

from __future__ import annotations

import socket
import subprocess

# A command with one line of an answer, by which the ones before it are known to be done.
LAST, ANSWER = "qdisc show dev lo", "qdisc "

_running: list[subprocess.Popen[str]] = []


def tc(commands: list[str]) -> None:
    """Run these commands of tc; RuntimeError with what it says if one fails."""
    if not _running:
        _running.append(subprocess.Popen(["tc", "-batch", "-"], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                         text=True))
    process = _running[0]
    assert process.stdin is not None and process.stdout is not None
    for command in (*commands, LAST):
        process.stdin.write(command + "\n")
    process.stdin.flush()
    said = []
    for line in process.stdout:
        if line.startswith(ANSWER):
            return
        said.append(line)
    # It ends when a command has failed.
    process.wait()
    _running.clear()
    raise RuntimeError("".join(said))


def pass_behind(address: str, timeout: float = 60.0) -> None:
    """Wait until a packet to this address, and so all those before it, have come there."""
    try:
        # Nobody listens; whoever refuses has got it.
        socket.create_connection((address, 9), timeout=timeout).close()
    except ConnectionRefusedError:
        return
