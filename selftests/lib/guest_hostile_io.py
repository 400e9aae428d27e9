# SPDX-License-Identifier: GPL-2.0
"""What a hostile RNBD client does with a device it has opened."""

from __future__ import annotations

import struct
from typing import Any

from lib import guest_rtrs_peer as rtrs

SESS_INFO, OPEN, IO, CLOSE, NEWS, HOST, RESERVATION = 0, 2, 4, 5, 6, 9, 10
# What agrees on extensions in the session information.
MAGIC, FEATURE_NEWS, FEATURE_RESERVATIONS = 0x58424E52, 1, 8
READ, WRITE, FLUSH, DISCARD, SECURE_ERASE, WRITE_ZEROES = range(6)
FUA, PREFLUSH = 1 << 9, 1 << 10
READ_ONLY, READ_WRITE, MIGRATION = range(3)
# A requested response's place in the chunk.
PLACE = 16384


class Rnbd:
    """An RNBD session by hand, with one device open."""

    def __init__(self, peer: rtrs.Peer, device_path: str, access_mode: int = READ_WRITE) -> None:
        self.peer = peer
        peer.establish()
        number = self.ask(struct.pack("<HxxB31x", SESS_INFO, 2), length=36)
        if number:
            raise OSError(number, "the server takes no session information")
        self.use(device_path, access_mode)

    def use(self, device_path: str, access_mode: int = READ_WRITE) -> None:
        """Open a device and use it from now on."""
        number = self.open(device_path, access_mode)
        if number:
            raise OSError(number, f"the server does not open {device_path}")
        self.device_id = struct.unpack_from("<I", self.peer.scratch.buffer.raw, 4)[0]

    def post(self, message: bytes, *, chunk: int = 0) -> None:
        """Send a message without data, whose response is yet to be taken."""
        self.peer.request(message + struct.pack("<HH", 2, len(message)), chunk=chunk, offset=len(message))

    def send(self, message: bytes) -> int:
        """A message without data; the errno of the response."""
        self.post(message)
        return self.peer.answer()[1]

    def close(self) -> bytes:
        """The message that closes the device in use."""
        return struct.pack("<HxxI", CLOSE, self.device_id)

    def agree(self, features: int) -> int:
        """Agree on extensions; the errno of the response."""
        return self.ask(struct.pack("<HxxB3xIIQ12x", SESS_INFO, 2, MAGIC, features, 1), length=36)

    def command(self, action: int, sequence: int, *, key: int = 0, service_key: int = 0, kind: int = 0,
                flags: int = 0, device_id: int | None = None) -> bytes:
        """The message of a command about a reservation."""
        device_id = self.device_id if device_id is None else device_id
        return struct.pack("<HxxIBBHIQQ", RESERVATION, device_id, action, kind, flags, sequence, key, service_key)

    def keys(self) -> list[int]:
        """The keys that are registered with the device in use."""
        number = self.ask(self.command(6, 0), length=536)
        if number:
            raise OSError(number, "the server gives no report")
        raw = self.peer.scratch.buffer.raw
        count = struct.unpack_from("<H", raw, 18)[0]
        return list(struct.unpack_from(f"<{count}Q", raw, 24))

    def ask(self, message: bytes, **fields: Any) -> int:
        """A message that is answered with data; the errno of the response."""
        peer = self.peer
        rtrs_message = peer.read_message(usr_len=len(message), **fields)
        peer.request(message + rtrs_message, place=PLACE, offset=PLACE + len(message))
        return peer.answer()[1]

    def open(self, name: str, access_mode: int = READ_WRITE, *, cut: int | None = None) -> int:
        """Open a device, by a message of which bytes may be missing; the errno of the response."""
        message = struct.pack("<HxxBx255s3x", OPEN, access_mode, name.encode())
        return self.ask(message[:cut], length=56)

    def read(self, size: int, **fields: Any) -> int:
        """A read of so many bytes into the memory that the fields say; the errno of the response."""
        return self.ask(struct.pack("<HxxIQIIH6x", IO, self.device_id, 0, READ, size, 0), **fields)

    def write(self, data: bytes, *, sector: int = 0, prio: int = 0, rw: int = WRITE,
              size: int | None = None, device_id: int | None = None) -> int:
        """A write; the errno of the response."""
        size = len(data) if size is None else size
        device_id = self.device_id if device_id is None else device_id
        message = struct.pack("<HxxIQIIH6x", IO, device_id, sector, rw, size, prio)
        self.peer.request(data + message + struct.pack("<HH", 2, len(message)),
                          offset=len(data) + len(message))
        return self.peer.answer()[1]


def priorities(address: str, device_path: str, values: list[int]) -> dict[str, int]:
    """Writes with these priorities; the errno of each."""
    with rtrs.Peer(address) as peer:
        rnbd = Rnbd(peer, device_path)
        return {str(value): rnbd.write(bytes(4096), sector=8 * index, prio=value)
                for index, value in enumerate(values)}


def requests(address: str, device_path: str) -> dict[str, int]:
    """Requests that make no sense, and two that do; the errno of each."""
    results = {}
    block = bytes(4096)
    with rtrs.Peer(address) as peer:
        rnbd = Rnbd(peer, device_path)

        def attempt(name: str, data: bytes = b"", **fields: Any) -> None:
            results[name] = rnbd.write(data, **fields)

        attempt("empty write")
        attempt("write of less than a sector", bytes(100))
        attempt("write that says less than it has", block, size=512)
        attempt("write that says more than it has", block, size=8192)
        attempt("write without data", size=4096)
        attempt("write beyond the end", block, sector=1 << 40)
        attempt("write across the end", block, sector=(64 << 11) - 4)
        attempt("write that wraps around", block, sector=(1 << 64) - 4)
        attempt("read with the data of a write", block, rw=READ)
        attempt("unknown operation", block, rw=77)
        attempt("unknown device", block, device_id=rnbd.device_id + 1)
        attempt("last device", block, device_id=0xFFFFFFFF)
        attempt("flush of some bytes", rw=FLUSH, size=4096)
        attempt("flush with data", block, rw=FLUSH)
        for name, operation in (("discard", DISCARD), ("secure erase", SECURE_ERASE),
                                ("write of zeroes", WRITE_ZEROES)):
            attempt(f"empty {name}", rw=operation, size=0)
            attempt(f"{name} of less than a sector", rw=operation, size=511)
            attempt(f"{name} beyond the end", rw=operation, sector=1 << 40, size=4096)
            attempt(f"{name} across the end", rw=operation, size=0xFFFFFE00)
            attempt(f"{name} that wraps around", rw=operation, sector=(1 << 64) - 4, size=4096)
            attempt(f"{name} with data", block, rw=operation)
            attempt(f"{name} with FUA", rw=operation | FUA, size=4096)
        attempt("a good write", block, sector=256)
        attempt("a good discard", rw=DISCARD, sector=512, size=4096)
    return results


def read_only(address: str, device_path: str) -> dict[str, int]:
    """Requests for a device that is open read-only; the errno of each."""
    results = {}
    with rtrs.Peer(address) as peer:
        rnbd = Rnbd(peer, device_path, READ_ONLY)
        block = bytes(4096)
        results["write"] = rnbd.write(block)
        results["write with FUA"] = rnbd.write(block, rw=WRITE | FUA)
        results["write with PREFLUSH"] = rnbd.write(block, rw=WRITE | PREFLUSH)
        for name, operation in (("discard", DISCARD), ("secure erase", SECURE_ERASE),
                                ("write of zeroes", WRITE_ZEROES)):
            results[name] = rnbd.write(b"", rw=operation, size=4096)
        results["flush"] = rnbd.write(b"", rw=FLUSH)
        results["read"] = rnbd.read(4096, length=4096)
    return results


def reads(address: str, device_path: str) -> dict[str, int]:
    """Reads whose length and memory do not agree, and one that is right; the errno of each."""
    with rtrs.Peer(address) as peer:
        rnbd = Rnbd(peer, device_path)
        return {"without memory": rnbd.read(4096, sg_cnt=0),
                "without memory, huge": rnbd.read(0xFFFFFE00, sg_cnt=0),
                "of more than there is memory for": rnbd.read(8192, length=4096),
                "of less than there is memory for": rnbd.read(512, length=4096),
                "good": rnbd.read(4096, length=4096)}


def opens(address: str, device_path: str) -> dict[str, int]:
    """A device is opened, and opened again in other ways; the errno of each."""
    with rtrs.Peer(address) as peer:
        rnbd = Rnbd(peer, device_path)
        return {"same mode": rnbd.open(device_path),
                "read-only": rnbd.open(device_path, READ_ONLY),
                "migration": rnbd.open(device_path, MIGRATION),
                "unknown mode": rnbd.open(device_path, 3),
                "another name": rnbd.open(f"/{device_path}"),
                "another name, read-only": rnbd.open(f"/{device_path}", READ_ONLY),
                "name without an end": rnbd.open("/".ljust(256, "x")),
                "no name": rnbd.open(""),
                "message cut in the name": rnbd.open(device_path, cut=20),
                "message cut before the mode": rnbd.open(device_path, cut=4),
                "write afterwards": rnbd.write(bytes(4096))}


def reservations(address: str, device_path: str) -> dict[str, Any]:
    """Commands about reservations that are malformed, repeated, or absurd; the errno of each."""
    results: dict[str, Any] = {}
    with rtrs.Peer(address) as peer:
        rnbd = Rnbd(peer, device_path)
        send, command = rnbd.send, rnbd.command

        def host(byte: int) -> bytes:
            return struct.pack("<Hxx4x16s", HOST, bytes([byte]) * 16)

        results["not agreed on"] = send(command(0, 1, service_key=7))
        results["host not agreed on"] = send(host(1))
        results["agreement"] = rnbd.agree(FEATURE_RESERVATIONS)
        results["nil host"] = send(host(0))
        results["host"] = send(host(1))
        results["host again"] = send(host(1))
        results["another host"] = send(host(2))
        results["cut"] = send(command(0, 1, service_key=7)[:31])
        results["longer"] = send(command(0, 1, service_key=7) + b"\0")
        results["unknown action"] = send(command(7, 1))
        results["last action"] = send(command(255, 1))
        results["unknown flag"] = send(command(0, 1, service_key=7, flags=4))
        results["to be kept"] = send(command(0, 1, service_key=7, flags=2))
        results["unknown device"] = send(command(0, 1, service_key=7, device_id=0xFFFFFFFF))
        results["report as a write"] = send(command(6, 1))
        results["report without room"] = rnbd.ask(command(6, 1), length=535)
        results["report"] = rnbd.ask(command(6, 1), length=536)
        results["stranger reserves"] = send(command(1, 2, kind=1))
        registers = command(0, 0xFFFFFFFF, service_key=(1 << 64) - 1)
        results["register"] = send(registers)
        results["repeated"] = [send(registers) for _ in range(3)]
        results["another command of that number"] = send(command(0, 0xFFFFFFFF, service_key=5))
        results["not repeated"] = send(command(0, 0, service_key=(1 << 64) - 1))
        for kind in (0, 7, 255):
            results[f"type {kind}"] = send(command(1, kind + 5, key=(1 << 64) - 1, kind=kind))
        results["reserve"] = send(command(1, 8, key=(1 << 64) - 1, kind=2))
        results["report of the reservation"] = rnbd.ask(command(6, 1), length=536)
        results["reported"] = list(struct.unpack_from("<HxxIQBxHIQQ", peer.scratch.buffer.raw))
        results["write"] = rnbd.write(bytes(4096))
        results["clear"] = send(command(3, 9, key=(1 << 64) - 1))
        results["write afterwards"] = rnbd.write(bytes(4096))
    return results


def reserve_many(address: str, paths: list[str], kind: int = 0) -> list[int]:
    """Register a key with each of these disks, and reserve it if there is a type; the errno of each. A
    disk is closed before the next one is opened."""
    numbers: list[int] = []
    with rtrs.Peer(address) as peer:
        rnbd = Rnbd(peer, paths[0])
        if number := rnbd.agree(FEATURE_RESERVATIONS):
            raise OSError(number, "the server takes no session information")
        for index, path in enumerate(paths):
            if index:
                rnbd.use(path)
            # Whatever key there is.
            number = rnbd.send(rnbd.command(0, 1, service_key=7, flags=1))
            if kind and not number:
                number = rnbd.send(rnbd.command(1, 2, key=7, kind=kind))
            numbers.append(number)
            rnbd.send(rnbd.close())
    return numbers


def register_and_close(address: str, device_path: str, rounds: int) -> dict[str, int]:
    """Register with a disk and close it at once, before there is a response; how often that was carried
    out, how often it came too late, and how often it was not as the response had said."""
    counts = {"registered": 0, "too late": 0, "wrong": 0}
    with rtrs.Peer(address) as peer:
        rnbd = Rnbd(peer, device_path)
        if number := rnbd.agree(FEATURE_RESERVATIONS):
            raise OSError(number, "the server takes no session information")
        for _ in range(rounds):
            rnbd.post(rnbd.command(0, 1, service_key=7), chunk=1)
            rnbd.post(rnbd.close())
            answers = dict(peer.answer() for _ in range(2))
            rnbd.use(device_path)
            counts["registered" if answers[1] == 0 else "too late"] += 1
            counts["wrong"] += rnbd.keys() != ([7] if answers[1] == 0 else [])
            rnbd.send(rnbd.command(0, 2, key=7))
    return counts


def news(address: str, device_path: str) -> dict[str, Any]:
    """News are asked for before and after they are agreed on, rightly and wrongly; the errno of each,
    and what the right ones bring: number, records, flags."""
    results: dict[str, Any] = {}
    nonce = 0x0123456789ABCDEF
    with rtrs.Peer(address) as peer:
        rnbd = Rnbd(peer, device_path)

        def message(since: int = 0, first: int = 0) -> bytes:
            return struct.pack("<HxxII", NEWS, since, first)

        def told(text: bytes, length: int = 4096) -> list[int]:
            number = rnbd.ask(text, length=length)
            if number:
                raise OSError(number, "no news")
            return list(struct.unpack_from("<IHH", peer.scratch.buffer.raw, 4))

        results["not agreed on"] = rnbd.ask(message(), length=4096)
        info = struct.pack("<HxxB3xIIQ12x", SESS_INFO, 2, MAGIC, FEATURE_NEWS | 1 << 31, nonce)
        results["agreement"] = rnbd.ask(info, length=36)
        results["agreed"] = (list(struct.unpack_from("<HxxB3xIIQ", peer.scratch.buffer.raw))
                             == [1, 2, MAGIC, FEATURE_NEWS, nonce])
        results["cut"] = rnbd.ask(message()[:11], length=4096)
        results["no room"] = rnbd.ask(message(), length=79)
        results["without memory"] = rnbd.ask(message(), sg_cnt=0)
        peer.request(message() + struct.pack("<HH", 2, len(message())), offset=len(message()))
        results["as a write"] = peer.answer()[1]
        results["least room"] = told(message(), length=80)
        results["device"] = struct.unpack_from("<I", peer.scratch.buffer.raw, 16)[0] == rnbd.device_id
        results["known"] = told(message(since=results["least room"][0]))
        results["from the last device"] = told(message(first=0xFFFFFFFF))
        results["agreement without news"] = rnbd.ask(struct.pack("<HxxB31x", SESS_INFO, 2), length=36)
        results["not agreed on any more"] = rnbd.ask(message(), length=4096)
        results["write afterwards"] = rnbd.write(bytes(4096))
    return results
