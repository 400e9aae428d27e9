# SPDX-License-Identifier: GPL-2.0
"""An RDMA listener that is not RTRS, by librdmacm."""

import ctypes
import os
import select
import socket
import struct
import threading

CONNECT_REQUEST = 4
PS_TCP = 0x0106


class _ConnParam(ctypes.Structure):
    _fields_ = [("private_data", ctypes.c_char_p), ("private_data_len", ctypes.c_uint8),
                ("responder_resources", ctypes.c_uint8), ("initiator_depth", ctypes.c_uint8),
                ("flow_control", ctypes.c_uint8), ("retry_count", ctypes.c_uint8),
                ("rnr_retry_count", ctypes.c_uint8), ("srq", ctypes.c_uint8),
                ("qp_num", ctypes.c_uint32)]


class _Event(ctypes.Structure):
    _fields_ = [("id", ctypes.c_void_p), ("listen_id", ctypes.c_void_p),
                ("event", ctypes.c_int), ("status", ctypes.c_int)]


class _Channel(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_int)]


class _Listener:
    def __init__(self, port, accept, data):
        self.lib = ctypes.CDLL("librdmacm.so.1", use_errno=True)
        self.lib.rdma_create_event_channel.restype = ctypes.POINTER(_Channel)
        self.accept, self.data = accept, data
        self.requests = 0
        self.ids = []
        self.stopping = False
        self.channel = self.lib.rdma_create_event_channel()
        if not self.channel:
            raise OSError(ctypes.get_errno(), "rdma_create_event_channel")
        self.listen_id = ctypes.c_void_p()
        self._check(self.lib.rdma_create_id(self.channel, ctypes.byref(self.listen_id), None,
                                            PS_TCP), "rdma_create_id")
        address = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(port), bytes(4))
        self._check(self.lib.rdma_bind_addr(self.listen_id, address), "rdma_bind_addr")
        self._check(self.lib.rdma_listen(self.listen_id, 16), "rdma_listen")
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    @staticmethod
    def _check(result, what):
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), what)

    def _serve(self):
        while not self.stopping:
            if not select.select([self.channel.contents.fd], [], [], 0.1)[0]:
                continue
            event = ctypes.POINTER(_Event)()
            if self.lib.rdma_get_cm_event(self.channel, ctypes.byref(event)) != 0:
                return
            kind, new_id = event.contents.event, ctypes.c_void_p(event.contents.id)
            self.lib.rdma_ack_cm_event(event)
            if kind == CONNECT_REQUEST:
                self.requests += 1
                self.ids.append(new_id)
                self._answer(new_id)

    def _answer(self, new_id):
        if self.accept:
            param = _ConnParam(self.data or None, len(self.data), 1, 1, 0, 7, 7, 0, 0x123)
            self.lib.rdma_accept(new_id, ctypes.byref(param))
        else:
            self.lib.rdma_reject(new_id, self.data or None, ctypes.c_uint8(len(self.data)))

    def stop(self):
        self.stopping = True
        self.thread.join(5)
        for cm_id in self.ids:
            self.lib.rdma_destroy_id(cm_id)
        self.lib.rdma_destroy_id(self.listen_id)
        self.lib.rdma_destroy_event_channel(self.channel)
        return self.requests


_running = []


def start(port, accept, data):
    """Listen; answer every connection request with this private data."""
    _running.append(_Listener(port, accept, bytes(data)))


def stop():
    """Stop; returns how many connection requests came."""
    return _running.pop().stop() if _running else 0
