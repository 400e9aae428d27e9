# SPDX-License-Identifier: GPL-2.0
"""What a hostile or broken RTRS server says, for hostile_server.py.

``start`` one, ``misbehave`` in one place, ``behave`` again, ``stop`` it. A fault is a function that
stands for a method of the server; it is given the server, the method, and what the method is given.
"""

from __future__ import annotations

import errno
import functools
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from lib import guest_rtrs_server as rtrs
from lib import guest_verbs as verbs

SPOILT = 0xEE  # what is written to where nothing is asked for any more
BEFORE = 0xAA  # what is in a buffer before it is read to
SECTOR = rtrs.SECTOR

_running = []


def start(**settings: Any) -> None:
    """Start a server that keeps to the protocol."""
    _running.append(rtrs.Server(**settings))


def stop() -> None:
    """Stop it; raises what it stumbled over."""
    while _running:
        _running.pop().stop()


def misbehave(place: str, fault: str, times: int | None = None, **arguments: Any) -> None:
    """From now on, or only so many ``times``, a method of the server does something else."""
    server = _running[-1]
    normal = getattr(type(server), place)
    left = [times]

    def replaced(*given: Any) -> Any:
        if left[0] == 0:
            return normal(server, *given)
        if left[0]:
            left[0] -= 1
        return globals()[fault](server, functools.partial(normal, server), *given, **arguments)

    setattr(server, place, replaced)


def behave() -> None:
    """From now on nothing is wrong."""
    server = _running[-1]
    for place in [name for name in vars(server) if callable(getattr(type(server), name, None))]:
        delattr(server, place)


def drop_all() -> None:
    """Disconnect the client."""
    _running[-1].drop_all()


def wait_for(what: str, cid_or_message: int, count: int = 1) -> None:
    """Wait until this came from the client; see Server.log."""
    server = _running[-1]
    server.wait_for(lambda: server.log.count((what, cid_or_message)) >= count,
                    f"{what} {cid_or_message}")


def count(what: str, cid_or_message: int) -> int:
    """How often this came from the client."""
    return _running[-1].log.count((what, cid_or_message))


def targets() -> list[int]:
    """The addresses that reads named for their data."""
    return [address for kind, address in _running[-1].log if kind == "target"]


def retries() -> list[tuple[int, int]]:
    """How often each connection's request asked that packets, and messages that find no receive,
    be sent again."""
    return [what for kind, what in _running[-1].log if kind == "retries"]


# Connection requests and the information request.


def conn_fields(server: rtrs.Server, normal: Any, request: Any, cid: int = 0, accept: bool = True,
                **fields: Any) -> tuple[bytes, bool]:
    """Respond to the request for a connection with these fields."""
    if request["cid"] != cid:
        return normal(request)
    if cid == 0:
        # The rest is to agree with what was said.
        server.chunk_size = (fields.get("max_io_size", server.max_io_size)
                             + fields.get("max_hdr_size", server.max_hdr_size))
    return rtrs.conn_rsp(server, **fields), accept


def conn_raw(_server: rtrs.Server, normal: Any, request: Any, cid: int = 0, accept: bool = True,
             data: str = "") -> tuple[bytes, bool]:
    """Respond to the request for a connection with these bytes."""
    if request["cid"] != cid:
        return normal(request)
    return bytes.fromhex(data), accept


def info(server: rtrs.Server, _normal: Any, connection: Any, what: str) -> None:
    """Respond to the information request with something wrong."""
    chunk, address, key = server.chunk_size, server.chunks.address, server.chunks.rkey
    depth, top = server.queue_depth, (1 << 64) - 4096
    whole = [(address, key, depth * chunk)]
    each = [(address + index * chunk, key, chunk) for index in range(depth)]
    messages: dict[str, Callable[[], bytes]] = {
        "type": lambda: rtrs.info_rsp(whole, kind=2),
        "no descriptors": lambda: rtrs.info_rsp([]),
        "too many descriptors": lambda: rtrs.info_rsp(each + each[:1]),
        "65535 descriptors": lambda: rtrs.info_rsp(whole, count=65535),
        "too many chunks": lambda: rtrs.info_rsp([(address, key, (depth + 1) * chunk)]),
        "too few chunks": lambda: rtrs.info_rsp([(address, key, (depth - 1) * chunk)]),
        "parts of chunks": lambda: rtrs.info_rsp([(address, key, chunk + 1),
                                                  (address, key, chunk - 1)]),
        "an empty descriptor": lambda: rtrs.info_rsp([(address, key, 0),
                                                      (address, key, depth * chunk)]),
        "an address that overflows": lambda: rtrs.info_rsp([(top, key, depth * chunk)]),
        "no room for its descriptors": lambda: rtrs.info_rsp(each[:1], count=depth),
        "a refusal": lambda: rtrs.info_rsp([], number=-errno.EACCES),
        "a refusal with a number of the kernel's": lambda: rtrs.info_rsp([], number=-512),
        "three bytes": lambda: b"\1\0\1",
        "no bytes": lambda: b"",
    }
    connection.send(verbs.SEND, messages[what]())


def info_immediate(_server: rtrs.Server, _normal: Any, connection: Any) -> None:
    """An immediate instead of the information."""
    connection.immediate(rtrs.HB_MSG)


def info_twice(_server: rtrs.Server, normal: Any, connection: Any) -> None:
    """The information, and once more."""
    normal(connection)
    normal(connection)


def early_info(server: rtrs.Server, _normal: Any, connection: Any) -> None:
    """The information as soon as the connection stands."""
    if connection.cid == 0:
        type(server).info(server, connection)


def nothing(_server: rtrs.Server, _normal: Any, *_given: Any) -> None:
    """Do not answer."""


# RNBD.


def reply(server: rtrs.Server, _normal: Any, request: Any, data: str = "", number: int = 0) -> None:
    """Respond to a request that is no IO with these bytes and this errno."""
    server.answer(request, bytes.fromhex(data), number)


def open_fields(_server: rtrs.Server, _normal: Any, _request: Any, **fields: Any) -> bytes:
    """Respond to the opening of the disk with these fields."""
    return rtrs.open_rsp(**fields)


def open_short(_server: rtrs.Server, normal: Any, request: Any, length: int) -> bytes:
    """Respond to the opening of the disk with the beginning of the response."""
    return normal(request)[:length]


def info_version(_server: rtrs.Server, normal: Any, request: Any, version: int = 2,
                 kind: int = 1) -> bytes:
    """Respond to the first message of a session with this version and this type."""
    message = bytearray(normal(request))
    message[0], message[4] = kind, version
    return bytes(message)


def extension(_server: rtrs.Server, _normal: Any, request: Any, nonce: int = 0,
              without: int = 0) -> bytes:
    """Respond to the first message of a session with the extensions that it offers but these bits, and with its nonce,
    or with one that differs in these bits."""
    magic, features, number = struct.unpack_from("<IIQ", request.header, 8)
    return struct.pack("<HHB3xIIQ12x", rtrs.SESS_INFO + 1, 0, 2, magic, features & ~without,
                       number ^ nonce)


def named(_server: rtrs.Server, normal: Any, request: Any, name: str) -> bytes:
    """Respond to the opening of the disk with this name of the disk behind the response."""
    answer: bytes = normal(request)
    return answer + name.encode().ljust(128, b"\0")


def tell_disks(server: rtrs.Server, normal: Any, request: Any, paths: list[str], count: int | None = None,
               more: bool = False, kind: int = rtrs.DISCOVER + 1, sectors: int = 8, blocks: int = SECTOR,
               path_len: int | None = None, wwid: str = "", endless: bool = False) -> None:
    """Respond to who asks for disks with disks of these paths; with ``endless`` ever new ones."""
    if request.message != rtrs.DISCOVER:
        return normal(request)
    if endless:
        after = request.header[4:259].split(b"\0")[0]
        number = int(after or b"0")
        paths = [f"{number + step:012}" for step in range(1, 100)]
    data = struct.pack("<HHHH8x", kind, 0, len(paths) if count is None else count, int(more))
    for path in paths:
        name = path.encode("latin-1")
        length = len(name) if path_len is None else path_len
        data += struct.pack("<QIHBBBB2x", sectors, blocks, 0, 7, 0, length, len(wwid)) + name + wwid.encode()
    return server.answer(request, data)


def tell_news(server: rtrs.Server, normal: Any, request: Any, records: list[tuple[int, int]],
              sequence: int = 1, count: int | None = None, more: bool = False,
              kind: int = rtrs.NEWS + 1, blocks: int = SECTOR, drain_ms: int | None = None,
              limits: dict[str, int] | None = None, record_flags: int = 0, reason: int = 0) -> None:
    """Respond to who asks for news with these records, device and size in sectors; with other limits than those of a
    disk that has nothing special, with these flags and reason; and with the time for which the server drains, if
    there is one."""
    if request.message != rtrs.NEWS:
        return normal(request)
    count = len(records) if count is None else count
    flags = int(more) | (0 if drain_ms is None else 2)
    data = struct.pack("<HHIHHI", kind, 0, sequence, count, flags, drain_ms or 0)
    values = {"max_hw_sectors": 256, "max_write_zeroes_sectors": 0, "max_discard_sectors": 0,
              "max_secure_erase_sectors": 0, "discard_granularity": 0, "discard_alignment": 0,
              "physical_block_size": blocks, "logical_block_size": blocks, "max_segments": 32} | (limits or {})
    for device_id, sectors in records:
        data += struct.pack("<IIQ9IB11x", device_id, record_flags, sectors, *values.values(), reason)
    return server.answer(request, data)


def ring(number: int, times: int = 1) -> None:
    """Ring at the client, with this number and those behind it."""
    for connection in list(_running[-1].connections.values()):
        for index in range(times if connection.cid == 0 else 0):
            connection.immediate(rtrs.DOORBELL, number + index)


def never_open(server: rtrs.Server, normal: Any, request: Any) -> None:
    """Do not answer the opening of the disk, but for ``answer_late``."""
    if request.message == rtrs.OPEN:
        server.late = functools.partial(normal, request)
    else:
        normal(request)


def answer_late() -> None:
    """Respond to what has no response yet."""
    _running[-1].late()


# Responses to IO.


def first_immediates(_server: rtrs.Server, normal: Any, request: Any, kinds: list[int],
                     about: int) -> None:
    """Immediates, and then the response."""
    for kind in kinds:
        request.connection.immediate(kind, about)
    normal(request)


def twice(_server: rtrs.Server, normal: Any, request: Any) -> None:
    """Respond, and respond once more."""
    normal(request)
    request.connection.immediate(rtrs.IO_RSP, request.chunk)


def on_another(server: rtrs.Server, _normal: Any, request: Any, cid: int) -> None:
    """Respond on another connection than that of the request: this one, or (1) any for IO."""
    own = request.connection
    other = next(connection for connection in server.connections.values()
                 if connection is not own and min(connection.cid, 1) == cid)
    server.answer(request, b"x" * request.length, connection=other)


def message(_server: rtrs.Server, _normal: Any, request: Any, opcode: int, data: str = "",
            imm: int = 0) -> None:
    """A message instead of a response."""
    request.connection.send(opcode, bytes.fromhex(data), imm=imm)


def wrong_place(server: rtrs.Server, normal: Any, request: Any) -> None:
    """Write to where nobody asked for anything, and then respond."""
    request.target = request.target[0] + (1 << 20), request.target[1]
    normal(request)


def with_errno(server: rtrs.Server, _normal: Any, request: Any, number: int) -> None:
    """Respond with an errno, or 0, and no data."""
    server.answer(request, number=number)


def fewer_bytes(server: rtrs.Server, _normal: Any, request: Any, length: int) -> None:
    """Respond with fewer bytes than asked for."""
    server.answer(request, bytes([0x55]) * length)


def drop(server: rtrs.Server, _normal: Any, _request: Any) -> None:
    """Disconnect instead of answering."""
    server.drop_all()


# The end of a path.


def lose_path(server: rtrs.Server, _normal: Any, request: Any) -> None:
    """Disconnect the path of a request instead of answering."""
    server.end_path(request.connection.path)


def copies() -> tuple[int, list[int], list[int]]:
    """Of the last two requests for the disk: the number of the first one's path, the chunks of both, and how many
    questions for the end of that path had come before each of both."""
    server = _running[-1]
    first, second = server.requests[-2:]
    path = first.connection.path
    if second.connection.path == path:
        raise AssertionError("the last two requests came by one path")
    before, questions = [], 0
    for entry in server.log:
        if entry == ("request", rtrs.IO):
            before.append(questions)
        questions += entry == ("path end", path)
    return path, [first.chunk, second.chunk], before[-2:]


# Invalidations.


def key_claims(server: rtrs.Server, _normal: Any, request: Any, invalidate: bool, claim: bool) -> None:
    """Respond with an invalidation or without one, and say the same or not."""
    server.answer(request, b"x" * request.length, invalidate=invalidate, claim=claim)


def key_of_another(server: rtrs.Server, _normal: Any, request: Any, key: int | None = None) -> None:
    """Invalidate another key, by default that of the pages for short reads; claim it was right."""
    if key is None:
        key = next(old.target[1] for old in reversed(server.requests) if old.target
                   and old.operation == rtrs.IO_READ and old.length <= 4096)
    request.connection.send(verbs.SEND_WITH_INV, invalidate=key)
    server.answer(request, b"x" * request.length, invalidate=False, claim=True)


def key_elsewhere(server: rtrs.Server, _normal: Any, request: Any) -> None:
    """Invalidate the right key by another connection, and do not say so. The response brings no data,
    which might come too late."""
    other = next(connection for connection in server.connections.values()
                 if connection.cid not in (0, request.connection.cid))
    # The client would invalidate it first if it had the response before.
    server.invalidate(other, request.target[1],
                      lambda: server.answer(request, invalidate=False, claim=False))


# Heartbeats.


def flood(server: rtrs.Server, _normal: Any, _connection: Any, number: int = 1000) -> None:
    """Acknowledge a heartbeat with many, on all connections."""
    for connection in list(server.connections.values()):
        for _ in range(number):
            deadline = time.monotonic() + rtrs.TIMEOUT
            while True:
                try:
                    connection.immediate(rtrs.HB_MSG)
                    break
                except OSError as error:
                    # The queue is full, or the connection is closed.
                    if error.errno != errno.ENOMEM or time.monotonic() > deadline:
                        return
                    time.sleep(0.001)
        connection.immediate(rtrs.HB_ACK)


# The client's side.


class _Reader:
    """Reads the beginning of a disk over and over, into a buffer that holds BEFORE."""

    def __init__(self, path: str, length: int) -> None:
        self.path, self.length = path, length
        self.buffer = mmap.mmap(-1, length)

    def __enter__(self) -> _Reader:
        self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def read(self, cpu: int = 0) -> bytes:
        """Read on a CPU; the bytes."""
        os.sched_setaffinity(0, {cpu})
        self.buffer[:] = bytes([BEFORE]) * self.length
        got = os.preadv(self.fd, [self.buffer], 0)
        if got != self.length:
            raise OSError(errno.EIO, f"{got} bytes", self.path)
        return self.buffer[:]


def read(path: str, length: int, cpu: int = 0) -> list[int]:
    """Read the beginning of a disk; the values of its bytes."""
    with _Reader(path, length) as reader:
        return sorted(set(reader.read(cpu)))


def fill(value: int) -> None:
    """Have the disk hold nothing but this value."""
    disk = _running[-1].disk
    disk[:] = bytes([value]) * len(disk)


def _overwrite(reader: _Reader, cpu: int = 0) -> tuple[str, bool]:
    before = reader.read(cpu)
    server = _running[-1]
    result = server.overwrite(server.requests[-1], bytes([SPOILT]) * reader.length)
    return result, reader.buffer[:] != before


def overwrite(path: str, length: int) -> tuple[str, bool]:
    """Read, and have the server write again to where it was told to: whether it could, and
    whether the buffer changed."""
    with _Reader(path, length) as reader:
        return _overwrite(reader)


def errnos(path: str, length: int, step: int) -> dict[str, list[int]]:
    """Read and respond with errnos that are ``step`` apart; by errno of the read, those answered."""
    results: dict[str, list[int]] = {}
    with _Reader(path, length) as reader:
        for number in range(1, 512, step):
            misbehave("io", "with_errno", number=number)
            try:
                reader.read()
                got = 0
            except OSError as error:
                got = error.errno or 0
            results.setdefault(str(got), []).append(number)
    behave()
    return results


def answer_early(path: str, length: int, times: int) -> None:
    """Respond to the requests of a tag all the time, also those that have not come yet, while the
    beginning of a disk is read."""
    server = _running[-1]
    with _Reader(path, length) as reader:
        reader.read()
        last, ended = server.requests[-1], threading.Event()
        misbehave("io", "nothing")

        def answer() -> None:
            while not ended.is_set():
                try:
                    last.connection.immediate(rtrs.IO_RSP, last.chunk)
                except OSError as error:
                    # The queue is full, or the connection is closed.
                    if error.errno != errno.ENOMEM:
                        return

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            for _ in range(times):
                reader.read()
        finally:
            ended.set()
            thread.join()
    behave()


def _last_key(server: rtrs.Server) -> int:
    target = server.requests[-1].target
    assert target is not None, "the last request has no key"
    return target[1]


def repeated_key(path: str, length: int) -> tuple[str, bool]:
    """Have a key invalidated by a connection that it is not used on, use all others on the old
    connection, and then that one again on the other, with a response that claims to have
    invalidated it: what a write to it does, and whether it was the same key."""
    server = _running[-1]
    with _Reader(path, length) as reader:
        misbehave("io", "key_elsewhere", times=1)
        reader.read()
        first = _last_key(server)
        misbehave("io", "with_errno", number=0)
        for _ in range(255):
            reader.read()
        misbehave("io", "key_claims", invalidate=False, claim=True)
        result, _changed = _overwrite(reader, 1)
    behave()
    return result, _last_key(server) == first
