# SPDX-License-Identifier: GPL-2.0
"""QEMU Machine Protocol: commands to a running emulator."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any


class QmpError(Exception):
    """QEMU refused a command, or is gone."""


class Qmp:
    """One monitor connection. Events are read and dropped."""

    def __init__(self, path: Path, timeout: float = 20.0) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.settimeout(timeout)
        connect_when_there(self._sock, path, timeout)
        self._file = self._sock.makefile("rwb")
        self._line()  # greeting
        self.command("qmp_capabilities")

    def _line(self) -> dict[str, Any]:
        text = self._file.readline()
        if not text:
            raise QmpError("monitor closed")
        return json.loads(text)

    def command(self, name: str, /, **arguments: Any) -> Any:
        """Run one command and return its result."""
        message = {"execute": name, "arguments": arguments}
        try:
            self._file.write(json.dumps(message).encode() + b"\n")
            self._file.flush()
            while True:
                answer = self._line()
                if "error" in answer:
                    raise QmpError(f"{name}: {answer['error']['desc']}")
                if "return" in answer:
                    return answer["return"]
        except OSError as error:
            raise QmpError(f"{name}: {error}") from error

    def close(self) -> None:
        """Drop the connection; the machine keeps running."""
        self._file.close()
        self._sock.close()


def connect_when_there(sock: socket.socket, path: Path, timeout: float) -> None:
    """Connect to a Unix socket that another process is about to create."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            sock.connect(str(path))
            return
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
