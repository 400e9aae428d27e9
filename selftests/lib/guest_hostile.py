# SPDX-License-Identifier: GPL-2.0
"""What a hostile or broken RTRS client does, for hostile_client.py."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import struct
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lib import guest_rtrs_peer as rtrs
from lib import guest_verbs

PAD = b"\0" * 16
SESS_INFO, OPEN, IO = 0, 2, 4  # RNBD's messages
RW_WRITE = 1
FIFREEZE, FITHAW = 0xC0045877, 0xC0045878


def polite(address: str) -> int:
    """A client that does nothing wrong but in the message of the user; the chunk of the response."""
    with rtrs.Peer(address) as peer:
        peer.establish()
        peer.request(PAD + struct.pack("<HH", 2, len(PAD)), offset=len(PAD))
        return peer.answer()[0]


def addresses(address: str) -> list[int]:
    """Where the chunks are, as the server says."""
    with rtrs.Peer(address) as peer:
        peer.establish()
        return [place for place, _ in peer.chunks]


def retries(address: str) -> list[int]:
    """How often the server asks, on each connection, that messages that find no receive be sent
    again."""
    with rtrs.Peer(address) as peer:
        peer.establish()
        return [connection.retries[1] for connection in peer.connections]


def refusals(address: str) -> dict[str, Any]:
    """Connection requests that are refused; the errno of each."""
    results = {}

    def attempt(name: str, data: bytes) -> None:
        try:
            connection = rtrs.Connection(address, data)
        except rtrs.Refused as refused:
            results[name] = refused.args[0]
        else:
            connection.close()
            results[name] = 0

    conn_req = functools.partial(rtrs.conn_req, sess_uuid=os.urandom(16), paths_uuid=os.urandom(16))
    good = conn_req()
    attempt("empty", b"")
    attempt("short", good[:6])
    attempt("magic", conn_req(magic=0x1BBE))
    attempt("version", conn_req(version=0x0300))
    attempt("cid", conn_req(cid=1, cid_num=1))
    attempt("no connections", conn_req(cid_num=0))
    attempt("too many connections", conn_req(cid_num=4097))
    attempt("unknown session", conn_req(first_conn=False))
    attempt("session of connection 1", conn_req(cid=1, cid_num=2))
    return results


def second_requests(address: str) -> dict[str, Any]:
    """Requests that do not fit the path they name; the errno of each."""
    results = {}
    with rtrs.Peer(address) as peer:
        peer.connect_one()

        def attempt(name: str, cid: int, **fields: Any) -> None:
            try:
                peer.connect_one(cid, **fields)
            except rtrs.Refused as refused:
                results[name] = refused.args[0]
            else:
                results[name] = 0

        attempt("again", 0)
        attempt("other number", 1, cid_num=3)
        attempt("same addresses", 0, sess_uuid=os.urandom(16))
        attempt("path of connection 1", 1, sess_uuid=os.urandom(16))
        peer.connect_one(1)
        peer.send_info()
        peer.receive_info()
        attempt("connected", 1)
    return results


def connect_as_another(address: str, source: str) -> tuple[int, int]:
    """Connect somebody else's path again from another address: the errno, and the chunk of an
    response that the path gives after that."""
    with rtrs.Peer(address) as peer:
        peer.establish()
        try:
            peer.connect_one(0, source=source, recon_cnt=1)
        except rtrs.Refused as refused:
            error = refused.args[0]
        else:
            error = 0
        peer.request(PAD + struct.pack("<HH", 2, len(PAD)), offset=len(PAD))
        return error, peer.answer()[0]


def info_requests(address: str) -> dict[str, bool]:
    """Information requests that close the path; which did."""
    results = {}
    bad = {
        "empty name": struct.pack("<H255s15x", 0, b""),
        "slash": struct.pack("<H255s15x", 0, b"a/b"),
        "dot": struct.pack("<H255s15x", 0, b"a.b"),
        "newline": struct.pack("<H255s15x", 0, b"a\nb"),
        "no end": struct.pack("<H", 0) + b"x" * 270,
        "short": struct.pack("<H", 0) + b"x\0",
        "type": struct.pack("<H255s15x", 7, b"x"),
    }
    for name, raw in bad.items():
        with rtrs.Peer(address) as peer:
            peer.connect_all()
            peer.send_info(raw=raw)
            results[name] = peer.wait_closed()
    with rtrs.Peer(address) as peer:
        peer.connect_one()
        peer.send_info()
        results["connection missing"] = peer.wait_closed()
    return results


def name_in_use(address: str) -> tuple[bool, bool]:
    """A second client with the name of the first; whether it and the first were closed."""
    with rtrs.Peer(address) as first, rtrs.Peer(address) as second:
        first.establish(b"same")
        second.connect_all()
        second.send_info(b"same")
        return second.wait_closed(), first.connections[0].is_closed()


def answered(address: str) -> dict[str, Any]:
    """Requests that are wrong but understood; the errno of each response."""
    results = {}
    with rtrs.Peer(address) as peer:
        peer.establish()

        def attempt(name: str, data: bytes, offset: int | None = None, **where: Any) -> None:
            peer.request(data, offset=offset, **where)
            chunk, number = peer.answer()
            results[name] = number if chunk == where.get("chunk", 0) else f"chunk {chunk}"

        attempt("usr_len", struct.pack("<HH", 2, 1) + PAD)
        attempt("usr_len of a read", struct.pack("<HHHH", 3, 5, 0, 0) + PAD)
        attempt("sg_cnt", peer.read_message(sg_cnt=2))
        attempt("length 0", peer.read_message(length=0), place=4096)
        attempt("length", peer.read_message(length=4097), place=4096)
        attempt("length beyond the chunk", peer.read_message(length=peer.chunk_size + 1), place=4096)
        attempt("length of 4 GiB", peer.read_message(length=0xFFFFFFFF), place=4096)
        attempt("long header", struct.pack("<HH", 2, 5000) + PAD, place=8192)
        attempt("no header", struct.pack("<HH", 2, 0) + PAD)
        attempt("junk header", struct.pack("<HH", 2, 64) + PAD, place=64)
        attempt("last chunk", struct.pack("<HH", 2, 1) + PAD, chunk=peer.queue_depth - 1)
        # What is not asked for is not sent.
        peer.scratch.write(0, b"\xaa" * 8192)
        attempt("read of an error", peer.read_message(usr_len=8, length=4096), place=8192)
        results["untouched"] = peer.scratch.buffer.raw[:8192] == b"\xaa" * 8192
    return results


def closing(address: str, invalidates: bool) -> dict[str, bool]:
    """What closes the path; which did. ``invalidates``: the server invalidates always."""
    results = {}

    def attempt(name: str, action: Callable[[rtrs.Peer], None], establish: bool = True) -> None:
        with rtrs.Peer(address) as peer:
            if establish:
                peer.establish()
            else:
                peer.connect_all()
            action(peer)
            results[name] = peer.wait_closed()

    def last_bytes(peer: rtrs.Peer, count: int) -> None:
        place = peer.chunk_size - count
        peer.request(struct.pack("<HHHH", 3, 0, 0, 1)[:count], place=place)

    def same_chunk_twice(peer: rtrs.Peer) -> None:
        # Some of them come while another one waits for its chunk to be invalidated, as the data is
        # too long to be copied.
        for _ in range(40):
            peer.request(struct.pack("<HH", 2, 8) + PAD, place=8192)

    attempt("type", lambda peer: peer.request(struct.pack("<HH", 9, 0) + PAD))
    attempt("message at the end", lambda peer: last_bytes(peer, 2))
    attempt("read message at the end", lambda peer: last_bytes(peer, 8))
    attempt("chunk", lambda peer: peer.request(PAD, imm=peer.imm(peer.queue_depth, 0)))
    if invalidates:
        attempt("same chunk", same_chunk_twice)
    attempt("send", lambda peer: peer.connections[1].post_send(
        rtrs.SEND, [peer.scratch.sge(0, 16)]))
    attempt("beyond the chunks", lambda peer: peer.request(
        PAD, imm=0, place=peer.chunk_size * peer.queue_depth))
    return results


def unknown_immediates(address: str) -> int:
    """Immediates without a meaning are ignored: a good request is answered after them."""
    with rtrs.Peer(address) as peer:
        peer.establish()
        for kind in (1, 2, 3, 7, 10, 15):
            peer.request(b"", imm=kind << 28 | 5)
        peer.request(struct.pack("<HH", 2, 1) + PAD)
        return peer.answer()[0]


def heartbeats(address: str, count: int = 2000) -> tuple[int, int]:
    """More heartbeats than anybody needs; whether a request is answered after them."""
    with rtrs.Peer(address) as peer:
        peer.establish()
        service = peer.connections[0]
        acknowledged = 0
        for _ in range(count):
            service.post_send(rtrs.RDMA_WRITE_WITH_IMM, imm=rtrs.HB_MSG << 28)
            # The server's own heartbeats come in between.
            while service.next_immediate() >> 28 != rtrs.HB_ACK:
                pass
            acknowledged += 1
        peer.request(struct.pack("<HH", 2, 1) + PAD)
        return acknowledged, peer.answer()[0]


def deaf(address: str, requests: int = 3000) -> int:
    """A client that asks and never takes a response; how many requests it got rid of."""
    with rtrs.Peer(address, receives=0) as peer:
        peer.establish()
        sent = 0
        try:
            for index in range(requests):
                peer.request(struct.pack("<HH", 2, 1) + PAD, chunk=index % peer.queue_depth)
                while (wc := peer.connections[1].poll()) is not None:
                    if wc.status != 0:
                        return sent
                sent += 1
        except OSError:
            pass
        return sent


def half_open(address: str, seconds: float) -> tuple[bool, float]:
    """A path that is never established; whether the server closed it in time."""
    with rtrs.Peer(address, connections=3) as peer:
        peer.connect_one()
        peer.connect_one()
        started = time.monotonic()
        closed = all(connection.wait_closed(seconds) for connection in peer.connections)
        return closed, time.monotonic() - started


def half_open_and_asking(address: str, seconds: float) -> tuple[int, float]:
    """A path that is never established, and a connection more every four seconds: the number of the first one that the
    server refuses, and when it did."""
    with rtrs.Peer(address, connections=40) as peer:
        started = time.monotonic()
        for number in range(40):
            try:
                peer.connect_one()
            except rtrs.Refused:
                return number, time.monotonic() - started
            if time.monotonic() - started > seconds:
                break
            # The pace is what is tested: each of these gave the path another half minute.
            peer.connections[0].wait_closed(4)
        return -1, time.monotonic() - started


def silent(address: str, seconds: float) -> tuple[bool, float]:
    """A client that does not answer heartbeats; whether the server gave it up, and when."""
    with rtrs.Peer(address) as peer:
        peer.establish()
        started = time.monotonic()
        closed = peer.connections[0].wait_closed(seconds)
        return closed, time.monotonic() - started


def many_paths(address: str, rounds: int) -> None:
    """Paths that come and go without a word."""
    for _ in range(rounds):
        peer = rtrs.Peer(address)
        peer.connect_one()
        for connection in peer.connections:
            connection.close()


def too_many_paths(address: str, sources: list[str]) -> tuple[int, int, int]:
    """A session with a path from each of these addresses: how many there are when the server refuses
    one, the errno, and that of one in the place of one that is gone (0 if it is accepted)."""
    # Queues of the usual length would take half of the machine's memory.
    session = rtrs.Peer(address, source=sources[0], depth=64)
    peers = [session]
    try:
        session.establish()
        refused = 0
        for source in sources[1:]:
            peer = rtrs.Peer(address, source=source, paths_uuid=session.paths_uuid,
                             first_conn=False, depth=64)
            refused = refusal(peer)
            if refused:
                break
            peers.append(peer)
        count = len(peers)
        gone = peers.pop()
        gone.connections[0].close()
        # The server closes it by and by.
        deadline = time.monotonic() + rtrs.TIMEOUT
        while (again := refusal(peer)) and time.monotonic() < deadline:
            time.sleep(0.05)
        if not again:
            peers.append(peer)
        return count, refused, again
    finally:
        for peer in reversed(peers):
            for connection in peer.connections:
                connection.close()


def refusal(peer: rtrs.Peer) -> int:
    """Make a path's first connection; the errno if it is refused, or 0."""
    try:
        peer.connect_one()
    except rtrs.Refused as refused:
        return refused.args[0]
    return 0


def stale_key(address: str) -> str:
    """A chunk's old key after its data was used; whether the server's memory is safe from it.

    Only with always_invalidate: the response to a write whose data is not copied brings a new key.
    """
    with rtrs.Peer(address) as peer:
        peer.establish()
        old = peer.chunks[0]
        peer.request(b"x" * 8192 + struct.pack("<HH", 2, 0) + PAD, offset=8192)
        peer.answer()
        if peer.chunks[0] == old:
            return "same key"
        peer.chunks[0] = old
        peer.request(b"y" * 16)
        return "refused" if peer.connections[1].wait_closed() else "accepted"


def open_device(peer: rtrs.Peer, path: str) -> int:
    """Open a disk of the server for writing; its number."""
    def ask(header: bytes) -> None:
        message = peer.read_message(usr_len=len(header), length=64)
        peer.request(header + message, place=64, offset=64 + len(header))
        assert peer.answer() == (0, 0), "the server refused"

    ask(struct.pack("<HHB31x", SESS_INFO, 0, 2))
    ask(struct.pack("<HHBx255s3x", OPEN, 0, 1, path.encode()))
    return struct.unpack_from("<I", peer.scratch.buffer, 4)[0]


def clean_responses(address: str, path: str) -> dict[str, list[int]]:
    """Fill a chunk with bytes that are no zeroes, and ask in it for the session information and for a disk; what the
    bytes of each response hold that have no meaning, and those behind the response."""
    results = {}
    room, stale = 4096, 0xEE
    with rtrs.Peer(address) as peer:
        peer.establish()
        for name, header, fields in (
                ("session information", struct.pack("<HHB31x", SESS_INFO, 0, 2), [(1, 4), (5, 36)]),
                ("open", struct.pack("<HHBx255s3x", OPEN, 0, 0, path.encode()), [(1, 2), (2, 4), (44, 45), (47, 56)])):
            peer.scratch.write(0, bytes(room))
            message = peer.read_message(usr_len=len(header), length=room)
            fill = bytes([stale]) * room
            peer.request(fill + header + message, offset=room + len(header))
            assert peer.answer() == (0, 0), f"the server refused: {name}"
            got = peer.scratch.buffer.raw[:room]
            results[name] = [value for begin, end in fields for value in got[begin:end]]
            results[f"behind the response: {name}"] = [value for value in got[fields[-1][1]:] if value]
    return {name: sorted(set(values)) for name, values in results.items()}


@contextlib.contextmanager
def frozen(folder: str) -> Iterator[None]:
    """Nothing is written to the file system of ``folder`` inside."""
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.ioctl(descriptor, FIFREEZE, 0)
    try:
        yield
    finally:
        fcntl.ioctl(descriptor, FITHAW, 0)
        os.close(descriptor)


def wait_for_writes(device: str, busy: bool) -> None:
    """Wait until ``device`` has writes in flight, or none."""
    inflight = Path("/sys/block", Path(device).name, "inflight")
    deadline = time.monotonic() + rtrs.TIMEOUT
    while (inflight.read_text().split()[1] != "0") != busy:
        if time.monotonic() > deadline:
            raise TimeoutError("the disk got no request" if busy else "the request was not finished")
        time.sleep(0.002)


def write_request(peer: rtrs.Peer, disk: int, sector: int, data: bytes) -> None:
    """Send a write for chunk 0."""
    header = struct.pack("<HHIQIIH6x", IO, 0, disk, sector, RW_WRITE, len(data), 0)
    message = struct.pack("<HH", 2, len(header))
    peer.request(data + header + message, offset=len(data) + len(header))


def early(address: str, device: str, folder: str,
          requests: int) -> tuple[list[tuple[int, int]], list[int]]:
    """Send writes for the same chunk while the disk has the first; the responses, and what the disk has.

    No responses if the server closed the path.
    """
    with rtrs.Peer(address) as peer:
        peer.establish()
        disk = open_device(peer, device)
        with frozen(folder):
            write_request(peer, disk, 0, b"a" * 512)
            wait_for_writes(device, busy=True)
            for index in range(1, requests):
                write_request(peer, disk, 8 * index, b"b" * 512)
            if requests > 2:
                closed = peer.wait_closed()
        answers = [] if requests > 2 and closed else [peer.answer() for _ in range(requests)]
        wait_for_writes(device, busy=False)
    with open(device, "rb", buffering=0) as file:
        data = file.read(8192)
    return answers, [data[0], data[4096]]


def _changed_by(connection: rtrs.Connection, other: rtrs.Memory, length: int, remote: tuple[int, int]) -> str:
    """Write to a chunk; what became of it."""
    while connection.poll() is not None:
        pass
    connection.post_send(guest_verbs.RDMA_WRITE, [other.sge(0, length)], remote=remote)
    while (wc := connection.poll()) is None:
        time.sleep(0.002)
    return "refused" if wc.status else "accepted"


def _another_path(first: rtrs.Peer, source: str) -> rtrs.Peer:
    """Another path of a session, from another address; still to be connected."""
    return rtrs.Peer(first.address, source=source, paths_uuid=first.paths_uuid, first_conn=False)


def rewrite_by_another_path(address: str, device: str, folder: str, length: int,
                            source: str) -> tuple[str, list[int]]:
    """The same as rewrite(), with the key that another path of the session has for the chunk."""
    with rtrs.Peer(address) as peer:
        peer.establish()
        with _another_path(peer, source) as second:
            second.establish()
            disk = open_device(peer, device)
            other = rtrs.Memory(second.pd, length, b"y" * length)
            with frozen(folder):
                write_request(peer, disk, 0, b"x" * length)
                wait_for_writes(device, busy=True)
                what = _changed_by(second.connections[1], other, length, second.chunks[0])
            wait_for_writes(device, busy=False)
            peer.answer()
    with open(device, "rb", buffering=0) as file:
        return what, sorted(set(file.read(length)))


def add_path_beside_write(address: str, device: str, folder: str, length: int,
                          source: str) -> tuple[bool, bool, list[int]]:
    """Add a path while the disk has a write of the first one: whether it was up before the write had ended, and after
    that, and the bytes that the disk holds then."""
    with rtrs.Peer(address) as peer:
        peer.establish()
        disk = open_device(peer, device)
        with _another_path(peer, source) as second:
            second.connect_all()

            def come_up() -> None:
                second.send_info()
                second.receive_info()

            thread = threading.Thread(target=come_up)
            with frozen(folder):
                write_request(peer, disk, 0, b"x" * length)
                wait_for_writes(device, busy=True)
                thread.start()
                # An established path responds within milliseconds.
                thread.join(2)
                early = not thread.is_alive()
            wait_for_writes(device, busy=False)
            peer.answer()
            thread.join(rtrs.TIMEOUT)
            late = hasattr(second, "chunks")
    with open(device, "rb", buffering=0) as file:
        return early, late, sorted(set(file.read(length)))


def rewrite(address: str, device: str, folder: str, length: int) -> tuple[str, list[int]]:
    """Write x to a disk, and y to the chunk while the disk has the request but not the data yet.

    The disk is a loop disk on a file in ``folder``, whose file system is frozen meanwhile. Returns
    what became of the second RDMA write, and the bytes that the disk holds then.
    """
    with rtrs.Peer(address) as peer:
        peer.establish()
        disk = open_device(peer, device)
        other = rtrs.Memory(peer.pd, length, b"y" * length)
        with frozen(folder):
            write_request(peer, disk, 0, b"x" * length)
            wait_for_writes(device, busy=True)
            what = _changed_by(peer.connections[1], other, length, peer.chunks[0])
        wait_for_writes(device, busy=False)
    with open(device, "rb", buffering=0) as file:
        return what, sorted(set(file.read(length)))
