# SPDX-License-Identifier: GPL-2.0
"""Host end of the control channel; selftests/lib/agent.py is the guest's."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import socket
import struct
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .vm_qmp import connect_when_there

_LENGTHS = struct.Struct(">II")


class MachineDied(Exception):
    """The machine, or its agent, is gone; carries what the console said."""


class AgentError(Exception):
    """The agent failed in a way that is no result of the request."""


@dataclass
class Answer:
    """One answer: its header and the pieces of its payload."""

    header: dict[str, Any]
    blobs: list[bytes]


# Where an answer comes; None if the machine has died.
Slot = queue.SimpleQueue[Answer | None]


class Channel:
    """Requests to one guest. Safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connect_when_there(self._sock, path, 20.0)
        self._send_lock = threading.Lock()
        self._state_lock = threading.Lock()
        self._waiting: dict[int, Slot] = {}
        self._ids = itertools.count(1)
        self._closed = False
        self.hello: Slot = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read_exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self._sock.recv(min(count - len(data), 1 << 20))
            if not piece:
                raise ConnectionResetError
            data += piece
        return bytes(data)

    def _read(self) -> None:
        try:
            while True:
                header_len, payload_len = _LENGTHS.unpack(self._read_exactly(_LENGTHS.size))
                header = json.loads(self._read_exactly(header_len))
                payload = self._read_exactly(payload_len)
                blobs, at = [], 0
                for size in header.get("blobs", []):
                    blobs.append(payload[at:at + size])
                    at += size
                self._deliver(Answer(header, blobs))
        except (OSError, ValueError):
            pass
        with self._state_lock:
            self._closed = True
            waiting, self._waiting = self._waiting, {}
        self.hello.put(None)
        for slot in waiting.values():
            slot.put(None)

    def _deliver(self, answer: Answer) -> None:
        number = answer.header["id"]
        if number == 0:
            self.hello.put(answer)
            return
        with self._state_lock:
            slot = self._waiting.pop(number, None)
        if slot is not None:
            slot.put(answer)

    def start(self, op: str, payload: bytes = b"", **header: Any) -> tuple[int, Slot]:
        """Send a request; the answer comes through the returned queue (None: died)."""
        number = next(self._ids)
        slot: Slot = queue.SimpleQueue()
        with self._state_lock:
            if self._closed:
                raise MachineDied("control channel closed")
            self._waiting[number] = slot
        text = json.dumps({"id": number, "op": op, **header}).encode()
        try:
            with self._send_lock:
                self._sock.sendall(_LENGTHS.pack(len(text), len(payload)) + text + payload)
        except OSError as error:
            raise MachineDied(f"control channel: {error}") from error
        return number, slot

    @staticmethod
    def finish(slot: Slot, what: str, timeout: float) -> Answer:
        """Wait for an answer; errors of the guest's kernel become OSError."""
        try:
            answer = slot.get(timeout=timeout)
        except queue.Empty:
            raise MachineDied(f"no answer to {what} within {timeout:.0f} s") from None
        if answer is None:
            raise MachineDied(f"died during {what}")
        if "exception" in answer.header:
            raise AgentError(f"{what}: {answer.header['exception']}\n"
                             f"{answer.header['traceback']}")
        if "errno" in answer.header:
            number = answer.header["errno"]
            raise OSError(number, os.strerror(number), what)
        return answer

    def request(self, op: str, what: str, timeout: float, payload: bytes = b"",
                **header: Any) -> Answer:
        """Send a request and wait for its answer."""
        _number, slot = self.start(op, payload, **header)
        return self.finish(slot, what, timeout)

    def close(self) -> None:
        """Disconnect."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
