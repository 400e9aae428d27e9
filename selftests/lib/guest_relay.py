# SPDX-License-Identifier: GPL-2.0
"""Carries connections of one socket to another, as ``ssh -L`` does; inside the guest.

An address is the path of a Unix socket, or HOST:PORT.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading

# Where a connection to each address is carried.
_TARGETS: dict[str, str] = {}


def _is_path(address: str) -> bool:
    return address.startswith("/")


def _numbers(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _connected(address: str) -> socket.socket:
    if not _is_path(address):
        return socket.create_connection(_numbers(address))
    end = socket.socket(socket.AF_UNIX)
    end.connect(address)
    return end


def _copy(source: socket.socket, sink: socket.socket) -> None:
    """All bytes, and then the end."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def _carry(near: socket.socket, to: str) -> None:
    with near:
        try:
            far = _connected(to)
        except OSError as error:
            with open("/dev/kmsg", "w") as log:
                log.write(f"relay to {to}: {error}")
            return
        with far:
            back = threading.Thread(target=_copy, args=(far, near), daemon=True)
            back.start()
            _copy(near, far)
            back.join()


def start(at: str, to: str) -> None:
    """Listens at an address until the machine ends, and carries each connection to the address that was given last."""
    is_new = at not in _TARGETS
    _TARGETS[at] = to
    if not is_new:
        return
    if _is_path(at):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(at)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(at)
    else:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(_numbers(at))
    listener.listen()

    def serve() -> None:
        while True:
            near, _ = listener.accept()
            threading.Thread(target=_carry, args=(near, _TARGETS[at]), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
