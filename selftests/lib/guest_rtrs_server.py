# SPDX-License-Identifier: GPL-2.0
"""An RTRS server with one RNBD disk, in user space, that can be made to do one thing wrong.

A Server keeps to the protocol. What it says is made by methods, each for one message; who wants
another message puts a function in the place of the method (guest_hostile_server.py). Everything
that comes is handled by one thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import socket
import struct
import threading
import traceback
from collections.abc import Callable
from typing import Any

from lib import guest_verbs as verbs
from lib.guest_verbs import cm
from lib.guest_verbs import ib

MAGIC, VERSION = 0x1BBD, 0x0200
IO_RSP, IO_RSP_W_INV, IO_RSPS, PATH_END, PATH_ENDED, DOORBELL, HB_MSG, HB_ACK = 1, 2, 3, 4, 5, 6, 8, 9
MSG_INFO_RSP, MSG_WRITE, MSG_READ, MSG_RKEY = 1, 2, 3, 4
NEED_INVAL = 1
SESS_INFO, OPEN, IO, CLOSE, NEWS, DISCOVER = 0, 2, 4, 5, 6, 12  # RNBD's messages; a response has the next number
IO_READ, IO_WRITE = 0, 1
SECTOR = 512
RECEIVES, RECEIVE_SIZE = 256, 512
SLOTS, SCRATCH = 64, 8
TIMEOUT = 20.0


class Request:
    """What a client wants: one message of RTRS, and the user's header in front of it."""

    def __init__(self, connection: Any, chunk: int, kind: int, header: bytes) -> None:
        self.connection, self.chunk, self.kind, self.header = connection, chunk, kind, header
        self.data = b""  # of a write
        self.flags, self.length = 0, 0  # of a read
        self.target: tuple[int, int] | None = None  # the address and the key that it has for the data
        self.operation, self.sector = -1, 0  # of IO

    @property
    def message(self) -> int:
        """The type of the user's message."""
        return struct.unpack_from("<H", self.header)[0]


class Connection(verbs.QueuePair):
    """One connection of a client."""

    def __init__(self, server: Server, cm_id: Any, number: int, fields: Any) -> None:
        super().__init__(cm_id, pd=server.pd, cq=server.queue)
        self.server, self.number, self.fields = server, number, fields
        self.cid, self.path = fields["cid"], fields["path"]
        self.receives = verbs.Memory(self.pd, RECEIVES * RECEIVE_SIZE)
        self.slots = verbs.Memory(self.pd, SLOTS * RECEIVE_SIZE)
        self.slot = 0
        for index in range(RECEIVES):
            self.receive(index)

    def receive(self, index: int) -> None:
        """Post a receive."""
        sge = self.receives.sge(index * RECEIVE_SIZE, RECEIVE_SIZE)
        self.post_recv(sge, self.number << 32 | index)

    def send(self, opcode: int, data: bytes = b"", **how: Any) -> None:
        """Send a short message or write it by RDMA; see QueuePair.post_send."""
        sges = []
        if data:
            self.slot = (self.slot + 1) % SLOTS
            place = self.slot * RECEIVE_SIZE
            self.slots.write(place, data)
            sges = [self.slots.sge(place, len(data))]
        self.post_send(opcode, sges, signaled=False, **how)

    def immediate(self, kind: int, payload: int = 0) -> None:
        """Send an immediate alone."""
        self.send(verbs.RDMA_WRITE_WITH_IMM, imm=kind << 28 | payload)

    def disconnect(self) -> None:
        """Close it; the event that it is closed follows."""
        cm.rdma_disconnect(self.id)

    def free(self) -> None:
        """Free all of it."""
        self.destroy()
        cm.rdma_destroy_id(self.id)
        self.receives.free()
        self.slots.free()


class Server:
    """Listens on a port from the beginning until ``stop``."""

    def __init__(self, port: int = 1234, *, queue_depth: int = 2, max_io_size: int = 128 << 10,
                 size: int = 1 << 20, new_rkey: bool = False, features: int = 0) -> None:
        self.queue_depth, self.max_io_size, self.max_hdr_size = queue_depth, max_io_size, 4096
        self.new_rkey, self.features = new_rkey, features
        self.chunk_size = max_io_size + self.max_hdr_size
        self.mem_bits = 28 - (queue_depth - 1).bit_length()
        self.disk = bytearray(size)
        self.connections: dict[int, Connection] = {}
        self.numbers = 0
        self.log: list[tuple[str, Any]] = []  # what came: connection requests, messages of the user
        self.requests: list[Request] = []  # all requests of the disk, in order
        self.done: dict[int, int] = {}  # status of what somebody waits for, by work request
        self.then: dict[int, Callable[[], object]] = {}  # what is to be done when a work request has ended
        self.changed = threading.Condition()
        self.place = 0
        self.error = ""
        self.pd = self.queue = self.channel = None
        self.context = 0
        self.chunks: verbs.Memory
        self.scratch: verbs.Memory
        self.late: Callable[[], object] = lambda: None
        self.events = verbs.EventChannel()
        self.listen_id = self.events.new_id()
        verbs.check(cm.rdma_bind_addr(self.listen_id, verbs.socket_address("0.0.0.0", port)),
                    "rdma_bind_addr")
        verbs.check(cm.rdma_listen(self.listen_id, 64), "rdma_listen")
        self.wake = os.pipe()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    # What the server says. Each of these may be replaced.

    def conn_response(self, fields: Any) -> tuple[bytes, bool]:
        """The response to a connection request, which has these fields; and whether it accepts."""
        if fields["cid"] == 0:
            self.chunk_size = self.max_io_size + self.max_hdr_size
        return conn_rsp(self), True

    def established(self, connection: Any) -> None:
        """Nothing is said when a connection stands."""

    def info(self, connection: Any) -> None:
        """Respond to the information request: one descriptor for all chunks."""
        connection.send(verbs.SEND, info_rsp([(self.chunks.address, self.chunks.rkey,
                                               self.chunk_size * self.queue_depth)]))

    def heartbeat(self, connection: Any) -> None:
        """Acknowledge a heartbeat."""
        connection.immediate(HB_ACK)

    def path_end(self, connection: Any, number: int) -> None:
        """End the path that has this number, and say so."""
        self.end_path(number)
        connection.immediate(PATH_ENDED, number)

    def session_info(self, _request: Request) -> bytes:
        """The response to the first message of a session."""
        return struct.pack("<HHB31x", SESS_INFO + 1, 0, 2)

    def opened(self, _request: Request) -> bytes:
        """The response to the opening of the disk."""
        return open_rsp(nsectors=len(self.disk) // SECTOR)

    def control(self, request: Request) -> None:
        """Carry out what is no IO, and respond."""
        if request.message == SESS_INFO:
            self.answer(request, self.session_info(request))
        elif request.message == OPEN:
            self.answer(request, self.opened(request))
        else:
            self.answer(request)

    def io(self, request: Request) -> None:
        """Carry out a read, a write or what else a disk does, and respond."""
        operation, sector = request.operation, request.sector
        if operation == IO_WRITE:
            self.disk[sector * SECTOR:sector * SECTOR + len(request.data)] = request.data
        data = b""
        if operation == IO_READ:
            data = bytes(self.disk[sector * SECTOR:sector * SECTOR + request.length])
            data = data.ljust(request.length, b"\0")
        self.answer(request, data)

    # How it says it.

    def answer(self, request: Request, data: bytes = b"", number: int = 0, *,
               invalidate: bool | None = None, claim: bool | None = None,
               connection: Connection | None = None) -> None:
        """Respond to a request: with data, or an errno. It is ``invalidate``d, and ``claim``ed to be,
        if the client wants that, unless they say otherwise."""
        connection = connection or request.connection
        wanted = bool(request.flags & NEED_INVAL) and request.target is not None
        if data and request.target:
            self.write_to(request, data[:request.length], connection=connection)
        if request.target and (wanted if invalidate is None else invalidate):
            connection.send(verbs.SEND_WITH_INV, invalidate=request.target[1])
        kind = IO_RSP_W_INV if (wanted if claim is None else claim) else IO_RSP
        payload = number << 19 | request.chunk
        if self.new_rkey:
            message = struct.pack("<HHI", MSG_RKEY, request.chunk, self.chunks.rkey)
            connection.send(verbs.SEND_WITH_IMM, message, imm=kind << 28 | payload)
        else:
            connection.immediate(kind, payload)

    def invalidate(self, connection: Any, key: int, then: Callable[[], object]) -> None:
        """Invalidate a key by a connection, and do ``then`` when the client's device has done that."""
        wr_id = 3 << 62 | len(self.requests)
        self.then[wr_id] = then
        connection.post_send(verbs.SEND_WITH_INV, [], signaled=True, wr_id=wr_id, invalidate=key)

    def write_to(self, request: Request, data: bytes, *, connection: Connection | None = None,
                 wr_id: int | None = None) -> None:
        """Write to where a request wants its data."""
        # Used in turn, so that what is being sent stays.
        self.place = (self.place + 1) % SCRATCH
        begin = self.place * self.max_io_size
        self.scratch.write(begin, data)
        assert request.target is not None, "the request has no place for data"
        sge = self.scratch.sge(begin, len(data))
        (connection or request.connection).post_send(
            verbs.RDMA_WRITE, [sge], remote=request.target, signaled=wr_id is not None,
            wr_id=wr_id or 0)

    def overwrite(self, request: Request, data: bytes) -> str:
        """Write once more to where the last request wanted its data; "accepted" or "refused", as
        its adapter says."""
        wr_id = 1 << 63 | len(self.requests)
        self.write_to(request, data, wr_id=wr_id)
        with self.changed:
            if not self.changed.wait_for(lambda: wr_id in self.done, TIMEOUT):
                raise TimeoutError("an RDMA write was not completed")
            status = self.done.pop(wr_id)
        return {0: "accepted", verbs.WC_REM_ACCESS_ERR: "refused"}.get(status, f"status {status}")

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition on what came holds."""
        with self.changed:
            if not self.changed.wait_for(condition, TIMEOUT):
                raise TimeoutError(what)

    # How it gets what the client says.

    def _serve(self) -> None:
        try:
            self._serve_until_woken()
        except Exception:
            self.error = traceback.format_exc()

    def _serve_until_woken(self) -> None:
        poll = select.poll()
        poll.register(self.events.fd, select.POLLIN)
        poll.register(self.wake[0], select.POLLIN)
        while True:
            ready = [fd for fd, _ in poll.poll()]
            if self.wake[0] in ready:
                return
            if self.events.fd in ready and (event := self.events.next(0)) is not None:
                had = self.channel
                self._event(event)
                if self.channel and not had:
                    poll.register(self.channel.contents.fd, select.POLLIN)
            if self.channel and self.channel.contents.fd in ready:
                self._completions()
            with self.changed:
                self.changed.notify_all()

    def _event(self, got: verbs.CmEvent) -> None:
        if got.event == verbs.CONNECT_REQUEST:
            self.log.append(("retries", got.retries))
            self._connect(ctypes.cast(got.id, ctypes.POINTER(verbs.CmId)), got.data)
        for number, connection in list(self.connections.items()):
            if ctypes.cast(connection.id, ctypes.c_void_p).value != got.id:
                continue
            if got.event == verbs.ESTABLISHED:
                self.established(connection)
            elif got.event == verbs.DISCONNECTED:
                connection.disconnect()
                self._forget(number)

    def _forget(self, number: int) -> None:
        self.connections.pop(number).free()

    def _connect(self, cm_id: Any, data: bytes) -> None:
        names = ("magic", "version", "cid", "cid_num", "recon_cnt")
        fields = dict(zip(names, struct.unpack_from("<HHHHH", data, 2), strict=True))
        fields["features"] = struct.unpack_from("<I", data, 48)[0]
        # The number of the path in messages.
        fields["path"] = struct.unpack_from("<I", data, 12)[0] + fields["recon_cnt"] & 0x0FFFFFFF
        self.log.append(("connection", fields["cid"]))
        if self.pd is None:
            self._set_up(cm_id.contents.verbs)
        response, accept = self.conn_response(fields)
        if not accept:
            cm.rdma_reject(cm_id, response, ctypes.c_uint8(len(response)))
            cm.rdma_destroy_id(cm_id)
            return
        self.numbers += 1
        try:
            connection = Connection(self, cm_id, self.numbers, fields)
        except OSError:
            # The client has given up meanwhile.
            cm.rdma_destroy_id(cm_id)
            return
        self.connections[self.numbers] = connection
        param = verbs.ConnParam(response or None, len(response), 1, 1, 0, 7, 7, 0, 0)
        if cm.rdma_accept(cm_id, ctypes.byref(param)) != 0:
            self._forget(self.numbers)

    def _set_up(self, context: int) -> None:
        self.pd = ib.ibv_alloc_pd(ctypes.c_void_p(context))
        self.channel = ib.ibv_create_comp_channel(ctypes.c_void_p(context))
        self.queue = ib.ibv_create_cq(ctypes.c_void_p(context), 16384, None, self.channel, 0)
        if not (self.pd and self.channel and self.queue):
            verbs.check(-1, "ibv_create_cq")
        verbs.call(context, verbs.REQ_NOTIFY_CQ, self.queue, 0)
        self.chunks = verbs.Memory(self.pd, self.queue_depth * self.chunk_size)
        self.scratch = verbs.Memory(self.pd, SCRATCH * self.max_io_size)
        self.context = context

    def _completions(self) -> None:
        queue, argument = ctypes.c_void_p(), ctypes.c_void_p()
        ib.ibv_get_cq_event(self.channel, ctypes.byref(queue), ctypes.byref(argument))
        ib.ibv_ack_cq_events(queue, 1)
        verbs.call(self.context, verbs.REQ_NOTIFY_CQ, self.queue, 0)
        while (wc := verbs.poll(self.context, self.queue)) is not None:
            if wc.wr_id in self.then:
                # If its connection has failed, the event that it is closed follows.
                with contextlib.suppress(OSError):
                    self.then.pop(wc.wr_id)()
            elif wc.wr_id >> 63:
                self.done[wc.wr_id] = wc.status
            elif wc.status == 0 and wc.opcode in (verbs.WC_RECV, verbs.WC_RECV_RDMA_WITH_IMM):
                connection = self.connections.get(wc.wr_id >> 32)
                if connection:
                    self._received(connection, wc)

    def _received(self, connection: Any, wc: verbs.Wc) -> None:
        try:
            if wc.wc_flags & verbs.WITH_IMM:
                self._immediate(connection, socket.ntohl(wc.imm))
            else:
                self.log.append(("information", connection.cid))
                self.info(connection)
            connection.receive(wc.wr_id & 0xFFFFFFFF)
        except OSError:
            # The connection has failed; the event that it is closed follows.
            pass

    def _immediate(self, connection: Any, imm: int) -> None:
        kind, payload = imm >> 28, imm & 0x0FFFFFFF
        if kind == HB_MSG:
            self.log.append(("heartbeat", connection.cid))
            self.heartbeat(connection)
        elif kind == HB_ACK:
            self.log.append(("acknowledgement", connection.cid))
        elif kind == PATH_END:
            self.log.append(("path end", payload))
            self.path_end(connection, payload)
        else:
            self._request(self.parse(connection, payload))

    def parse(self, connection: Any, payload: int) -> Request:
        """The request that an immediate is about."""
        chunk, offset = payload >> self.mem_bits, payload & ((1 << self.mem_bits) - 1)
        place = chunk * self.chunk_size + offset
        buffer = self.chunks.buffer
        kind, usr_len, flags, count = struct.unpack_from("<HHHH", buffer, place)
        request = Request(connection, chunk, kind, self.chunks.read(place - usr_len, usr_len))
        if kind == MSG_WRITE:
            begin = chunk * self.chunk_size
            request.data = self.chunks.read(begin, place - usr_len - begin)
        elif count:
            address, key, request.length = struct.unpack_from("<QII", buffer, place + 8)
            request.flags, request.target = flags, (address, key)
            self.log.append(("target", address))
        return request

    def _request(self, request: Request) -> None:
        self.log.append(("request", request.message))
        if request.message != IO:
            return self.control(request)
        request.sector, rw = struct.unpack_from("<QI", request.header, 8)
        request.operation = rw & 0xFF
        self.requests.append(request)
        return self.io(request)

    # The end.

    def drop_all(self) -> None:
        """Disconnect all clients."""
        for connection in list(self.connections.values()):
            connection.disconnect()

    def end_path(self, number: int) -> None:
        """Disconnect the path that has this number. Then its queue pairs take no message."""
        for connection in list(self.connections.values()):
            if connection.path == number:
                connection.disconnect()

    def stop(self) -> None:
        """Disconnect all clients and listen no more."""
        os.write(self.wake[1], b"x")
        self.thread.join(TIMEOUT)
        for number in list(self.connections):
            self.connections[number].disconnect()
            self._forget(number)
        cm.rdma_destroy_id(self.listen_id)
        self.events.close()
        for fd in self.wake:
            os.close(fd)
        if self.pd is not None:
            self.chunks.free()
            self.scratch.free()
            ib.ibv_destroy_cq(ctypes.c_void_p(self.queue))
            ib.ibv_destroy_comp_channel(self.channel)
            ib.ibv_dealloc_pd(ctypes.c_void_p(self.pd))
        if self.error:
            raise RuntimeError(self.error)


def conn_rsp(server: Server, **fields: Any) -> bytes:
    """The private data of the response to a connection request."""
    values = {"magic": MAGIC, "version": VERSION, "errno": 0, "queue_depth": server.queue_depth,
              "max_io_size": server.max_io_size, "max_hdr_size": server.max_hdr_size,
              "flags": 2 if server.new_rkey else 0, "features": server.features, **fields}
    return struct.pack("<HHhHIIII32x", *values.values())


def info_rsp(descriptors: list[tuple[int, int, int]], *, kind: int = MSG_INFO_RSP,
             count: int | None = None, number: int = 0) -> bytes:
    """An information response: (address, key, length) of each registration; or the errno of a refusal."""
    count = len(descriptors) if count is None else count
    return struct.pack("<HHh2x", kind, count, number) + b"".join(
        struct.pack("<QII", *descriptor) for descriptor in descriptors)


def open_rsp(**fields: Any) -> bytes:
    """The response to the opening of a disk."""
    values = {"kind": OPEN + 1, "padding": 0, "device_id": 7, "nsectors": 2048,
              "max_hw_sectors": 256, "max_write_zeroes_sectors": 0, "max_discard_sectors": 0,
              "discard_granularity": 0, "discard_alignment": 0, "physical_block_size": 512,
              "logical_block_size": 512, "max_segments": 32, "secure_discard": 0,
              "rotational": 0, "cache_policy": 0}
    unknown = set(fields) - set(values)
    assert not unknown, unknown
    values.update(fields)
    return struct.pack("<HHIQIIIIIHHHHBB10x", *values.values())
