# SPDX-License-Identifier: GPL-2.0
"""An RTRS client that does what it is told, in user space: for what the modules never send.

A Peer is one path to the server of this machine or another one, with its connections; what it
wrote and got is at hand byte by byte.
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Any
from typing import Self

from lib import guest_verbs
from lib.guest_verbs import ADDR_RESOLVED
from lib.guest_verbs import check
from lib.guest_verbs import cm
from lib.guest_verbs import DISCONNECTED
from lib.guest_verbs import ESTABLISHED
from lib.guest_verbs import Memory
from lib.guest_verbs import RDMA_WRITE_WITH_IMM
from lib.guest_verbs import REJECTED
from lib.guest_verbs import ROUTE_RESOLVED
from lib.guest_verbs import SEND
from lib.guest_verbs import WC_RECV
from lib.guest_verbs import WC_RECV_RDMA_WITH_IMM
from lib.guest_verbs import WITH_IMM

MAGIC, VERSION = 0x1BBD, 0x0200
IO_REQ, IO_RSP, IO_RSP_W_INV, PATH_END, PATH_ENDED, HB_MSG, HB_ACK = 0, 1, 2, 4, 5, 8, 9
# Features: short and coalesced responses, and the ends of paths.
PATH_ENDS = 1 | 2 | 8
# The server says why it refuses a session.
REFUSAL = 1 << 6
# Where the code of a further connection is in its request, if the path has one.
CODE_AT = 45
TIMEOUT = 20.0


class Refused(Exception):
    """The server refused a connection; the argument is the errno of its message."""


class Closed(Exception):
    """The server closed the connection."""


def conn_req(*, cid: int = 0, cid_num: int = 1, recon_cnt: int = 0, sess_uuid: bytes,
             paths_uuid: bytes | None, first_conn: bool = True, magic: int = MAGIC,
             version: int = VERSION, features: int = 0, given_up: int = 0) -> bytes:
    """The private data of a connection request."""
    return struct.pack("<BBHHHHH16s16sB3xII", 0, 0, magic, version, cid, cid_num, recon_cnt,
                       sess_uuid, paths_uuid, int(first_conn), features, given_up)


class Connection(guest_verbs.QueuePair):
    """One connection; made with any private data, which may depend on the number of the queue pair."""

    def __init__(self, address: str, private_data: bytes | Callable[[int], bytes], *, port: int = 1234, pd: Any = None,
                 receives: int = 64, source: str | None = None, depth: int = 2048) -> None:
        self.keep: list[Memory] = []
        self.closed = False
        self.events = guest_verbs.EventChannel()
        self.id = self.events.new_id()
        try:
            self._ask(guest_verbs.socket_address(address, port), private_data, pd, receives, source, depth)
            self._answered()
        except BaseException:
            self._free()
            raise

    def _ask(self, target: Any, private_data: bytes | Callable[[int], bytes], pd: Any, receives: int,
             source: str | None, depth: int) -> None:
        near = source and guest_verbs.socket_address(source, 0)
        check(cm.rdma_resolve_addr(self.id, near, target, 5000), "rdma_resolve_addr")
        self._expect(ADDR_RESOLVED)
        check(cm.rdma_resolve_route(self.id, 5000), "rdma_resolve_route")
        self._expect(ROUTE_RESOLVED)
        super().__init__(self.id, pd=pd, depth=depth)
        self.recv_memory = Memory(self.pd, 64 * max(receives, 1))
        for index in range(receives):
            self.post_recv(self.recv_memory.sge(64 * index, 64), index)
        data = private_data if isinstance(private_data, bytes) else private_data(self.number())
        param = guest_verbs.ConnParam(data, len(data), 0, 0, 0, 7, 7, 0, 0)
        check(cm.rdma_connect(self.id, ctypes.byref(param)), "rdma_connect")

    def number(self) -> int:
        """The number of the queue pair."""
        return int(guest_verbs.Qp.from_address(self.id.contents.qp).qp_num)

    def _answered(self) -> None:
        """Take the server's response. Before this the connection is not confirmed: the library does that here."""
        accepted = self._expect(ESTABLISHED)
        self.answer, self.retries = accepted.data, accepted.retries

    def _expect(self, wanted: int) -> guest_verbs.CmEvent:
        got = self.events.next(TIMEOUT)
        if got is None:
            raise TimeoutError(f"no event, wanted {wanted}")
        if got.event == wanted:
            return got
        if got.event == REJECTED:
            number = struct.unpack_from("<h", got.data, 4)[0] if len(got.data) >= 56 else None
            raise Refused(number)
        if got.event == DISCONNECTED:
            raise Closed()
        raise OSError(max(-got.status, 0), f"event {got.event}, wanted {wanted}")

    def wait_closed(self, timeout: float = TIMEOUT) -> bool:
        """Wait until the server has closed the connection."""
        deadline = time.monotonic() + timeout
        while not self.closed and (left := deadline - time.monotonic()) > 0:
            got = self.events.next(left)
            # Rejected if the server has not yet seen that the connection is established.
            self.closed = got is not None and got.event in (DISCONNECTED, REJECTED)
        return self.closed

    def is_closed(self) -> bool:
        """Whether the server has closed the connection by now."""
        return self.wait_closed(0.001)

    def next_receive(self, timeout: float = TIMEOUT) -> tuple[int | None, bytes]:
        """The next message from the server: its immediate (None without one) and its bytes.

        The receive is posted again. Raises Closed if the connection fails, TimeoutError.
        """
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            wc = self.poll()
            if wc is None:
                time.sleep(0.002)
                continue
            if wc.status != 0:
                raise Closed()
            if wc.opcode not in (WC_RECV, WC_RECV_RDMA_WITH_IMM):
                continue
            imm = socket.ntohl(wc.imm) if wc.wc_flags & WITH_IMM else None
            data = b""
            if wc.opcode == WC_RECV:
                data = self.recv_memory.buffer.raw[64 * wc.wr_id:][:min(wc.byte_len, 64)]
            self.post_recv(self.recv_memory.sge(64 * wc.wr_id, 64), wc.wr_id)
            return imm, data
        raise TimeoutError("nothing received")

    def next_immediate(self) -> int:
        """The immediate of the next message from the server, which has to have one."""
        imm, data = self.next_receive()
        if imm is None:
            raise ValueError(f"a message without an immediate: {data!r}")
        return imm

    def close(self) -> None:
        """Disconnect and free what the kernel would keep."""
        cm.rdma_disconnect(self.id)
        self._free()

    def _free(self) -> None:
        if self.id.contents.qp:
            self.destroy()
        cm.rdma_destroy_id(self.id)
        self.events.close()


class Unconfirmed(Connection):
    """A connection whose response has come and is not taken: the server does not learn that it has come."""

    def _answered(self) -> None:
        if not select.select([self.events.fd], [], [], TIMEOUT)[0]:
            raise TimeoutError("no answer")


class Peer:
    """A path of a client, with its connections."""

    def __init__(self, address: str, *, connections: int = 2, port: int = 1234,
                 paths_uuid: bytes | None = None, first_conn: bool = True, receives: int = 64,
                 source: str | None = None, features: int = 0, given_up: int = 0,
                 depth: int = 2048) -> None:
        self.source, self.depth = source, depth
        self.features, self.given_up = features, given_up
        self.paths_uuid = paths_uuid or os.urandom(16)
        self.sess_uuid = os.urandom(16)
        self.address, self.port, self.count, self.receives = address, port, connections, receives
        self.first_conn = first_conn
        self.connections: list[Connection] = []
        self.pd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self.connections:
            connection.close()

    def connect_one(self, cid: int | None = None, *, source: str | None = None,
                    code: Callable[[int], bytes] | None = None, **fields: Any) -> Connection:
        """Make the next connection, or the one given, with these fields in its request; from ``source``, the path's
        address, or any; with the ``code`` that is made of the number of the queue pair."""
        values = {"cid": len(self.connections) if cid is None else cid, "cid_num": self.count,
                  "sess_uuid": self.sess_uuid, "paths_uuid": self.paths_uuid,
                  "first_conn": self.first_conn, "features": self.features,
                  "given_up": self.given_up, **fields}
        request = conn_req(**values)

        def with_code(queue_pair: int) -> bytes:
            return request[:CODE_AT] + code(queue_pair) if code else request

        connection = Connection(self.address, with_code, port=self.port, pd=self.pd,
                                receives=0 if values["cid"] == 0 else self.receives,
                                source=source or self.source, depth=self.depth)
        self.pd = connection.pd
        self.connections.append(connection)
        answer = struct.unpack_from("<HHHHIII", connection.answer)
        (_, _, _, self.queue_depth, self.max_io, self.max_hdr, self.flags) = answer
        return connection

    def connect_all(self) -> None:
        """Make all connections."""
        while len(self.connections) < self.count:
            self.connect_one()

    def send_info(self, name: bytes = b"hostile", *, raw: bytes | None = None, room: bool = True) -> None:
        """Send the information request, or these bytes instead, with room for the response or without."""
        service = self.connections[0]
        if room:
            self.make_room()
        request = raw if raw is not None else struct.pack("<H255s15x", 0, name)
        self.info_request = Memory(self.pd, 512, request)
        service.post_send(SEND, [self.info_request.sge(0, len(request))])

    def make_room(self) -> None:
        """Make room for the information response."""
        size = 8 + 16 * self.queue_depth
        self.info = Memory(self.pd, size)
        self.connections[0].post_recv(self.info.sge(0, size), 1 << 32)

    def receive_info(self) -> None:
        """Wait for the response; then the chunks are known, or with which errno the server refuses the session."""
        service = self.connections[0]
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            # A response that comes before the server disconnects has a completion by then.
            is_closed = service.is_closed()
            wc = service.poll()
            if wc is None:
                if is_closed:
                    raise Closed()
            elif wc.status != 0:
                raise Closed()
            elif wc.opcode == WC_RECV and wc.wr_id == 1 << 32:
                break
        else:
            raise TimeoutError("no information response")
        raw = self.info.buffer.raw
        count, self.refusal = struct.unpack_from("<Hh", raw, 2)
        self.chunk_size = self.max_io + self.max_hdr
        self.chunks = []
        for index in range(count):
            addr, key, length = struct.unpack_from("<QII", raw, 8 + 16 * index)
            self.chunks += [(addr + offset, key) for offset in range(0, length, self.chunk_size)]
        self.mem_bits = 28 - max(self.queue_depth - 1, 0).bit_length()
        # The service connection gets heartbeats from now on.
        service.recv_memory = Memory(self.pd, 64 * 64)
        for index in range(64):
            service.post_recv(service.recv_memory.sge(64 * index, 64), index)
        self.scratch = Memory(self.pd, max(self.chunk_size, 4096))

    def establish(self, name: bytes = b"hostile") -> None:
        """All that a client does before its first request."""
        self.connect_all()
        self.send_info(name)
        self.receive_info()

    def imm(self, chunk: int, offset: int) -> int:
        """The immediate of a request."""
        return (IO_REQ << 28) | (chunk << self.mem_bits) | offset

    def request(self, data: bytes, *, chunk: int = 0, offset: int | None = None,
                imm: int | None = None, cid: int = 1, place: int = 0) -> None:
        """Write data to a place in a chunk, with the immediate of a request whose message is at
        an offset (from the chunk's start), or with another one."""
        offset = place if offset is None else offset
        imm = self.imm(chunk, offset) if imm is None else imm
        memory = Memory(self.pd, max(len(data), 1), data)
        self.connections[cid].keep.append(memory)
        address, key = self.chunks[chunk]
        sges = [memory.sge(0, len(data))] if data else []
        self.connections[cid].post_send(RDMA_WRITE_WITH_IMM, sges, imm=imm,
                                        remote=(address + place, key))

    def read_message(self, *, usr_len: int = 0, sg_cnt: int = 1, length: int | None = None,
                     flags: int = 0, target: Any = None) -> bytes:
        """An RTRS read message."""
        target = target or self.scratch
        length = len(target.buffer) if length is None else length
        return struct.pack("<HHHHQII", 3, usr_len, flags, sg_cnt, target.address, target.rkey,
                           length)

    def answer(self, *, cid: int = 1, timeout: float = TIMEOUT) -> tuple[int, int]:
        """The next response: chunk and errno, after its new key was noted."""
        while True:
            imm, data = self.connections[cid].next_receive(timeout)
            if imm is None:
                continue
            kind, payload = imm >> 28, imm & 0x0FFFFFFF
            if kind in (IO_RSP, IO_RSP_W_INV):
                chunk = payload & 0x7FFFF
                if len(data) >= 8:
                    key = struct.unpack_from("<I", data, 4)[0]
                    self.chunks[chunk] = self.chunks[chunk][0], key
                return chunk, payload >> 19
            if kind == HB_MSG:
                self.connections[cid].post_send(RDMA_WRITE_WITH_IMM, imm=HB_ACK << 28)

    def number(self) -> int:
        """The number of the path in messages on others, before it is connected again."""
        return struct.unpack_from("<I", self.sess_uuid)[0] & 0x0FFFFFFF

    def service(self, kind: int, payload: int = 0) -> tuple[int, int]:
        """Send an immediate on the service connection; the type and payload of the next one that
        comes, but for heartbeats."""
        service = self.connections[0]
        service.post_send(RDMA_WRITE_WITH_IMM, imm=kind << 28 | payload)
        while (imm := service.next_immediate()) >> 28 == HB_MSG:
            pass
        return imm >> 28, imm & 0x0FFFFFFF

    def wait_closed(self) -> bool:
        """Wait until the server has closed all connections."""
        return all(connection.wait_closed() for connection in self.connections)
