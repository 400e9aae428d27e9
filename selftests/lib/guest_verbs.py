# SPDX-License-Identifier: GPL-2.0
"""RDMA connections in user space, by librdmacm and libibverbs through ctypes.

What a client (guest_rtrs_peer.py) and servers (guest_listener.py, guest_rtrs_server.py) share.
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
import struct
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

ADDR_RESOLVED, ROUTE_RESOLVED, CONNECT_REQUEST, ESTABLISHED = 0, 2, 4, 9
REJECTED, DISCONNECTED = 8, 10
PS_TCP = 0x0106
QPT_RC = 2
RDMA_WRITE, RDMA_WRITE_WITH_IMM, SEND, SEND_WITH_IMM, SEND_WITH_INV = 0, 1, 2, 3, 9
SIGNALED = 2
WC_RECV, WC_RECV_RDMA_WITH_IMM = 128, 129
WITH_IMM = 2
WC_REM_ACCESS_ERR = 10
LOCAL_WRITE, REMOTE_WRITE = 1, 2
# Places in struct ibv_context_ops.
POLL_CQ, REQ_NOTIFY_CQ, POST_SEND, POST_RECV = 11, 12, 25, 26


class CmId(ctypes.Structure):
    """struct rdma_cm_id, its beginning."""

    _fields_ = [("verbs", ctypes.c_void_p), ("channel", ctypes.c_void_p),
                ("context", ctypes.c_void_p), ("qp", ctypes.c_void_p)]


class Event(ctypes.Structure):
    """struct rdma_cm_event, with the parameters of a connection."""

    _fields_ = [("id", ctypes.c_void_p), ("listen_id", ctypes.c_void_p),
                ("event", ctypes.c_int), ("status", ctypes.c_int),
                ("private_data", ctypes.POINTER(ctypes.c_uint8)), ("len", ctypes.c_uint8),
                ("responder_resources", ctypes.c_uint8), ("initiator_depth", ctypes.c_uint8),
                ("flow_control", ctypes.c_uint8), ("retry_count", ctypes.c_uint8),
                ("rnr_retry_count", ctypes.c_uint8)]


class CmEvent(NamedTuple):
    """What an event says: its number, private data, status, the address of its id, and how often
    the other end asks that packets, and messages that find no receive, be sent again."""

    event: int
    data: bytes
    status: int
    id: int
    retries: tuple[int, int]


class _Channel(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_int)]


class CompletionChannel(ctypes.Structure):
    """struct ibv_comp_channel."""

    _fields_ = [("context", ctypes.c_void_p), ("fd", ctypes.c_int), ("refcnt", ctypes.c_int)]


class ConnParam(ctypes.Structure):
    """struct rdma_conn_param."""

    _fields_ = [("private_data", ctypes.c_char_p), ("private_data_len", ctypes.c_uint8),
                ("responder_resources", ctypes.c_uint8), ("initiator_depth", ctypes.c_uint8),
                ("flow_control", ctypes.c_uint8), ("retry_count", ctypes.c_uint8),
                ("rnr_retry_count", ctypes.c_uint8), ("srq", ctypes.c_uint8),
                ("qp_num", ctypes.c_uint32)]


class InitAttr(ctypes.Structure):
    """struct ibv_qp_init_attr."""

    _fields_ = [("qp_context", ctypes.c_void_p), ("send_cq", ctypes.c_void_p),
                ("recv_cq", ctypes.c_void_p), ("srq", ctypes.c_void_p),
                ("max_send_wr", ctypes.c_uint32), ("max_recv_wr", ctypes.c_uint32),
                ("max_send_sge", ctypes.c_uint32), ("max_recv_sge", ctypes.c_uint32),
                ("max_inline_data", ctypes.c_uint32), ("qp_type", ctypes.c_int),
                ("sq_sig_all", ctypes.c_int)]


class Qp(ctypes.Structure):
    """The beginning of struct ibv_qp."""

    _fields_ = [("context", ctypes.c_void_p), ("qp_context", ctypes.c_void_p), ("pd", ctypes.c_void_p),
                ("send_cq", ctypes.c_void_p), ("recv_cq", ctypes.c_void_p), ("srq", ctypes.c_void_p),
                ("handle", ctypes.c_uint32), ("qp_num", ctypes.c_uint32)]


class Mr(ctypes.Structure):
    """struct ibv_mr."""

    _fields_ = [("context", ctypes.c_void_p), ("pd", ctypes.c_void_p), ("addr", ctypes.c_void_p),
                ("length", ctypes.c_size_t), ("handle", ctypes.c_uint32),
                ("lkey", ctypes.c_uint32), ("rkey", ctypes.c_uint32)]


class Sge(ctypes.Structure):
    """struct ibv_sge."""

    _fields_ = [("addr", ctypes.c_uint64), ("length", ctypes.c_uint32), ("lkey", ctypes.c_uint32)]


class SendWr(ctypes.Structure):
    """struct ibv_send_wr."""

    _fields_ = [("wr_id", ctypes.c_uint64), ("next", ctypes.c_void_p),
                ("sg_list", ctypes.POINTER(Sge)), ("num_sge", ctypes.c_int),
                ("opcode", ctypes.c_int), ("send_flags", ctypes.c_uint),
                ("imm", ctypes.c_uint32), ("remote_addr", ctypes.c_uint64),
                ("rkey", ctypes.c_uint32), ("rest", ctypes.c_uint8 * 76)]


class RecvWr(ctypes.Structure):
    """struct ibv_recv_wr."""

    _fields_ = [("wr_id", ctypes.c_uint64), ("next", ctypes.c_void_p),
                ("sg_list", ctypes.POINTER(Sge)), ("num_sge", ctypes.c_int)]


class Wc(ctypes.Structure):
    """struct ibv_wc."""

    _fields_ = [("wr_id", ctypes.c_uint64), ("status", ctypes.c_int), ("opcode", ctypes.c_int),
                ("vendor_err", ctypes.c_uint32), ("byte_len", ctypes.c_uint32),
                ("imm", ctypes.c_uint32), ("qp_num", ctypes.c_uint32),
                ("src_qp", ctypes.c_uint32), ("wc_flags", ctypes.c_uint),
                ("rest", ctypes.c_uint8 * 8)]


class Library:
    """A shared library, loaded when a function of it is first used: the machine that runs the tests
    has none, and names the functions of this module."""

    def __init__(self, file: str, results: dict[str, Any]) -> None:
        self._file, self._results = file, results

    def __getattr__(self, name: str) -> Any:
        library = ctypes.CDLL(self._file, use_errno=True)
        for function, result in self._results.items():
            getattr(library, function).restype = result
        function = getattr(library, name)
        setattr(self, name, function)
        return function


cm = Library("librdmacm.so.1",
             {"rdma_create_event_channel": ctypes.POINTER(_Channel)})
ib = Library("libibverbs.so.1", {
    "ibv_alloc_pd": ctypes.c_void_p, "ibv_create_cq": ctypes.c_void_p,
    "ibv_create_comp_channel": ctypes.POINTER(CompletionChannel),
    "ibv_reg_mr": ctypes.POINTER(Mr)})


def check(result: int, what: str) -> None:
    """Raise OSError unless a call has returned zero."""
    if result != 0:
        number = ctypes.get_errno() if result < 0 else result
        raise OSError(number, os.strerror(number), what)


def call(verbs: int, place: int, *arguments: Any) -> int:
    """Call the function at a place of a context's operations; what libibverbs has inline."""
    function = ctypes.cast(verbs + 8 + 8 * place, ctypes.POINTER(ctypes.c_void_p))[0]
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *([ctypes.c_void_p] * len(arguments)))
    return kind(function)(*arguments)


def poll(verbs: int, queue: Any) -> Wc | None:
    """One completion of a queue, or None."""
    wc = Wc()
    return wc if call(verbs, POLL_CQ, queue, 1, ctypes.addressof(wc)) > 0 else None


def socket_address(address: str, port: int) -> bytes:
    """A struct sockaddr_in."""
    return struct.pack("=HH4s8x", socket.AF_INET, socket.htons(port), socket.inet_aton(address))


class Memory:
    """Registered memory."""

    def __init__(self, pd: Any, size: int, data: bytes = b"") -> None:
        self.buffer = ctypes.create_string_buffer(size)
        self.write(0, data)
        self.mr = ib.ibv_reg_mr(ctypes.c_void_p(pd), self.buffer, ctypes.c_size_t(size),
                                LOCAL_WRITE | REMOTE_WRITE)
        if not self.mr:
            check(-1, "ibv_reg_mr")

    @property
    def address(self) -> int:
        """Where it begins."""
        return ctypes.addressof(self.buffer)

    @property
    def rkey(self) -> int:
        """The key that others reach it by."""
        return self.mr.contents.rkey

    def write(self, offset: int, data: bytes) -> None:
        """Change a part of it."""
        if offset < 0 or offset + len(data) > len(self.buffer):
            raise ValueError(f"{len(data)} bytes at {offset} of {len(self.buffer)}")
        ctypes.memmove(self.address + offset, data, len(data))

    def read(self, offset: int, length: int) -> bytes:
        """What a part of it holds."""
        if offset < 0 or offset + length > len(self.buffer):
            raise ValueError(f"{length} bytes at {offset} of {len(self.buffer)}")
        return ctypes.string_at(self.address + offset, length)

    def sge(self, offset: int, length: int) -> Sge:
        """A piece of it, to send or to receive into."""
        return Sge(self.address + offset, length, self.mr.contents.lkey)

    def free(self) -> None:
        """Take the registration back."""
        ib.ibv_dereg_mr(self.mr)


class EventChannel:
    """Where the events of connections come."""

    def __init__(self) -> None:
        self.channel = cm.rdma_create_event_channel()
        if not self.channel:
            check(-1, "rdma_create_event_channel")

    @property
    def fd(self) -> int:
        """Readable when there is an event."""
        return self.channel.contents.fd

    def new_id(self) -> Any:
        """A new id whose events come here."""
        cm_id = ctypes.POINTER(CmId)()
        check(cm.rdma_create_id(self.channel, ctypes.byref(cm_id), None, PS_TCP),
              "rdma_create_id")
        return cm_id

    def next(self, timeout: float) -> CmEvent | None:
        """The next event; None if there is none in time."""
        if not select.select([self.fd], [], [], timeout)[0]:
            return None
        event = ctypes.POINTER(Event)()
        check(cm.rdma_get_cm_event(self.channel, ctypes.byref(event)), "rdma_get_cm_event")
        found = event.contents
        data = bytes(found.private_data[:found.len]) if found.private_data else b""
        result = CmEvent(found.event, data, found.status, found.id,
                         (found.retry_count, found.rnr_retry_count))
        cm.rdma_ack_cm_event(event)
        return result

    def close(self) -> None:
        """Free it; its ids are gone."""
        cm.rdma_destroy_event_channel(self.channel)


class QueuePair:
    """The queue pair of an id. Without ``pd`` and ``cq`` it has its own."""

    def __init__(self, cm_id: Any, *, pd: Any = None, cq: Any = None, depth: int = 2048) -> None:
        self.id = cm_id
        self.verbs = cm_id.contents.verbs
        self.pd = pd or ib.ibv_alloc_pd(ctypes.c_void_p(self.verbs))
        self.own_cq = not cq
        self.cq = cq or ib.ibv_create_cq(ctypes.c_void_p(self.verbs), 4 * depth, None, None, 0)
        attributes = InitAttr(None, self.cq, self.cq, None, depth, 2 * depth, 4, 1, 0, QPT_RC, 0)
        check(cm.rdma_create_qp(self.id, ctypes.c_void_p(self.pd), ctypes.byref(attributes)),
              "rdma_create_qp")

    def post_recv(self, sge: Sge, wr_id: int = 0) -> None:
        """Post a receive."""
        wr = RecvWr(wr_id, None, ctypes.pointer(sge), 1)
        bad = ctypes.c_void_p()
        check(call(self.verbs, POST_RECV, self.id.contents.qp, ctypes.addressof(wr),
                   ctypes.addressof(bad)), "ibv_post_recv")

    def post_send(self, opcode: int, sges: Sequence[Sge] = (), *, imm: int = 0, invalidate: int = 0,
                  remote: tuple[int, int] = (0, 0), signaled: bool = True, wr_id: int = 0) -> None:
        """Post a send or an RDMA write."""
        sge_list = (Sge * max(len(sges), 1))(*sges)
        extra = invalidate if opcode == SEND_WITH_INV else socket.htonl(imm)
        wr = SendWr(wr_id, None, sge_list, len(sges), opcode, SIGNALED if signaled else 0,
                    extra, remote[0], remote[1])
        bad = ctypes.c_void_p()
        check(call(self.verbs, POST_SEND, self.id.contents.qp, ctypes.addressof(wr),
                   ctypes.addressof(bad)), "ibv_post_send")

    def poll(self) -> Wc | None:
        """One completion, or None."""
        return poll(self.verbs, self.cq)

    def destroy(self) -> None:
        """Free it and its own completion queue, which take megabytes of the kernel's memory."""
        cm.rdma_destroy_qp(self.id)
        if self.own_cq:
            check(ib.ibv_destroy_cq(ctypes.c_void_p(self.cq)), "ibv_destroy_cq")
