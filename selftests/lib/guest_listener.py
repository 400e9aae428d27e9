# SPDX-License-Identifier: GPL-2.0
"""An RDMA listener that is not RTRS, by librdmacm."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from lib import guest_verbs
from lib.guest_verbs import cm


class _Listener:
    def __init__(self, port: int, accept: bool, data: bytes) -> None:
        self.accept, self.data = accept, data
        self.requests = 0
        self.ids: list[Any] = []
        self.stopping = False
        self.events = guest_verbs.EventChannel()
        self.listen_id = self.events.new_id()
        address = guest_verbs.socket_address("0.0.0.0", port)
        guest_verbs.check(cm.rdma_bind_addr(self.listen_id, address), "rdma_bind_addr")
        guest_verbs.check(cm.rdma_listen(self.listen_id, 16), "rdma_listen")
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while not self.stopping:
            got = self.events.next(0.1)
            if got and got.event == guest_verbs.CONNECT_REQUEST:
                new_id = ctypes.c_void_p(got.id)
                self.requests += 1
                self.ids.append(new_id)
                self._answer(new_id)

    def _answer(self, new_id: Any) -> None:
        if self.accept:
            param = guest_verbs.ConnParam(self.data or None, len(self.data), 1, 1, 0, 7, 7, 0,
                                          0x123)
            cm.rdma_accept(new_id, ctypes.byref(param))
        else:
            cm.rdma_reject(new_id, self.data or None, ctypes.c_uint8(len(self.data)))

    def stop(self) -> int:
        self.stopping = True
        self.thread.join(5)
        for cm_id in self.ids:
            cm.rdma_destroy_id(cm_id)
        cm.rdma_destroy_id(self.listen_id)
        self.events.close()
        return self.requests


_running = []


def start(port: int, accept: bool, data: list[int]) -> None:
    """Listen; respond to every connection request with these bytes of private data."""
    _running.append(_Listener(port, accept, bytes(data)))


def stop() -> int:
    """Stop; returns how many connection requests came."""
    return _running.pop().stop() if _running else 0
