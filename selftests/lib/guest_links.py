# SPDX-License-Identifier: GPL-2.0
"""Changes to queueing disciplines, by one tc that goes on running.

Starting a program takes the debug kernel a second, and tests change links all the time.
"""

from __future__ import annotations

import re
import socket
import subprocess
import time

# A command whose output has so many lines, the first with this beginning. The output says that the commands
# before it are done.
LAST, ANSWER, ANSWER_LINES = "qdisc show dev lo", "qdisc ", 3

class Tc:
    """A tc that reads commands from a pipe until one of them fails."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(["tc", "-s", "-batch", "-"], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, commands: list[str]) -> str:
        """Run commands and return what tc printed; RuntimeError with that text if a command fails, and
        then this tc has ended."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        for command in (*commands, LAST):
            process.stdin.write(command + "\n")
        process.stdin.flush()
        said: list[str] = []
        for line in process.stdout:
            if line.startswith(ANSWER):
                for _ in range(ANSWER_LINES - 1):
                    process.stdout.readline()
                return "".join(said)
            said.append(line)
        process.wait()
        raise RuntimeError("".join(said))

    def end(self) -> None:
        """End this tc."""
        self._process.communicate()


_running: list[Tc] = []


def tc(commands: list[str]) -> None:
    """Run these commands of tc; RuntimeError with what tc says if a command fails."""
    if not _running:
        _running.append(Tc())
    try:
        _running[0].run(commands)
    except RuntimeError:
        _running.clear()
        raise


def hear_after(device: str, preferences: list[int], deaf: float, seconds: float) -> list[int]:
    """Remove the ingress filters of a device ``deaf`` seconds after the filter of each preference has
    dropped a packet, or after ``seconds``. Return how many packets each filter has dropped."""
    own = Tc()
    shows = [f"filter show dev {device} ingress pref {preference}" for preference in preferences]

    def dropped() -> list[int]:
        return [sum(int(count) for count in re.findall(r"Sent \d+ bytes (\d+) pkts?", own.run([show])))
                for show in shows]

    deadline = time.monotonic() + seconds
    while not all(dropped()) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(deaf)
    counts = dropped()
    own.run([f"filter del dev {device} ingress"])
    own.end()
    return counts


def pass_behind(address: str, timeout: float = 60.0) -> None:
    """Wait until a packet to this address, and so all those before it, have come there."""
    try:
        # Nobody listens; whoever refuses has got it.
        socket.create_connection((address, 9), timeout=timeout).close()
    except ConnectionRefusedError:
        return
