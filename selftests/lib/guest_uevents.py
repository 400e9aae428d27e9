# SPDX-License-Identifier: GPL-2.0
"""Records the kernel's uevents."""

from __future__ import annotations

import select
import socket
import threading
import time
from typing import Any

_state: dict[str, Any] = {}


def _record(sock: socket.socket, events: list[Any]) -> None:
    while _state.get("sock") is sock:
        if select.select([sock], [], [], 0.1)[0]:
            head = sock.recv(65536).split(b"\0", 1)[0].decode(errors="replace")
            action, _, path = head.partition("@")
            events.append([action, path])


def start() -> int:
    """Begin to record; returns a mark for ``seen``."""
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 15)
    sock.bind((0, 1))
    _state.update(sock=sock, events=[])
    threading.Thread(target=_record, args=(sock, _state["events"]), daemon=True).start()
    return 0


def seen(since: int, wanted: list[tuple[str, str]], seconds: float) -> list[tuple[str, str]]:
    """Events since a mark, when all wanted ([action, end of path]) came or time is up."""
    deadline = time.monotonic() + seconds
    while True:
        events = _state["events"][since:]
        if all(any(action == event[0] and event[1].endswith(path) for event in events)
               for action, path in wanted) or time.monotonic() > deadline:
            return events
        time.sleep(0.02)


def stop() -> None:
    """End the recording."""
    sock = _state.pop("sock", None)
    if sock:
        time.sleep(0.15)
        sock.close()
