# SPDX-License-Identifier: GPL-2.0
"""Clients that keep to the protocol up to a point and then lie, made up by a generator, for campaign.py.

A campaign consists of rounds; what a round sends is decided by the seed and the round's number alone, so
a round can be run again. Each one is a client of its own: it connects, most often as it should, and then
sends messages that are right, or wrong in a place, in any order, until the server has had enough of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import random
import struct
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lib import guest_rtrs_peer as rtrs
from lib import guest_verbs as verbs

SECTOR = 512
# RNBD's messages of a client.
SESS_INFO, OPEN, IO, CLOSE, NEWS, HOST, RESERVATION, DISCOVER = 0, 2, 4, 5, 6, 9, 10, 12
ALL_FEATURES = 0xFF
OUT = 256 << 10  # memory that messages are sent from
STEPS = 60  # the most messages of a round
PATIENCE = 4.0  # how long a round waits for the server, in seconds

# What a client gets when the server, or its own mistake, has ended a connection.
ENDED = (rtrs.Refused, rtrs.Closed, TimeoutError, OSError)


def limit(rng: random.Random, bits: int) -> int:
    """A number of so many bits, likely one at a limit."""
    top = (1 << bits) - 1
    return rng.choice((0, 0, 1, 2, 7, SECTOR, 4096, top, top - 1, top >> 1, (top >> 1) + 1, rng.getrandbits(bits),
                       1 << rng.randrange(bits))) & top


def spoil(rng: random.Random, data: bytes) -> bytes:
    """A message as it is, or wrong in a place."""
    if not data or rng.random() < 0.5:
        return data
    how = rng.randrange(4)
    if how == 0:
        return data[:rng.randrange(len(data))]
    if how == 1:
        return data + bytes(rng.randrange(256) for _ in range(rng.choice((1, 4, 64))))
    size = rng.choice((1, 2, 4, 8))
    at = rng.randrange(max(len(data) - size, 0) + 1)
    return data[:at] + limit(rng, 8 * size).to_bytes(size, "little") + data[at + size:]


class User:
    """The messages of the block driver."""

    def __init__(self, rng: random.Random, disk: str) -> None:
        self.rng, self.disk = rng, disk
        self.kinds: dict[str, Callable[[], bytes]] = {
            "sess_info": self.sess_info, "open": self.open, "io": self.io, "close": self.close, "news": self.news,
            "host": self.host, "reservation": self.reservation, "discover": self.discover, "junk": self.junk}
        # As many messages of a kind as that, on average.
        self.weights = (2, 4, 12, 2, 2, 1, 3, 2, 1)

    def device(self) -> int:
        """The number of a device, which may be open."""
        return self.rng.choice((0, 0, 0, 1, limit(self.rng, 32)))

    def sess_info(self) -> bytes:
        """Agrees on extensions."""
        return struct.pack("<HHB3x4sIQ12x", SESS_INFO, 0, self.rng.choice((2, 2, 1, limit(self.rng, 8))), b"RNBX",
                           self.rng.choice((ALL_FEATURES, ALL_FEATURES, limit(self.rng, 32))), limit(self.rng, 64))

    def open(self) -> bytes:
        """Opens the disk, or what is none."""
        path = self.rng.choice((self.disk, self.disk, self.disk, "/dev/null", "/", "/dev/../dev/null", "x" * 254,
                                "/etc/passwd", "/dev/there-is-no-such-disk", ""))
        return struct.pack("<HHBB255s3x", OPEN, 0, self.rng.choice((0, 1, 2, limit(self.rng, 8))),
                           self.rng.choice((0, 0, 1, 2, limit(self.rng, 8))), path.encode())

    def io(self) -> bytes:
        """A request of a disk."""
        operation = self.rng.choice((0, 0, 1, 1, 2, 3, 4, 5, limit(self.rng, 8)))
        flags = self.rng.choice((0, 0x100, 0x200, 0x400, 0x800, limit(self.rng, 24) << 8))
        sector = self.rng.choice((0, 8, self.rng.randrange(1 << 16), limit(self.rng, 64)))
        length = self.rng.choice((0, SECTOR, 4096, 4096, 65536, limit(self.rng, 32)))
        return struct.pack("<HHIQIIH6x", IO, 0, self.device(), sector, operation | flags, length, limit(self.rng, 16))

    def close(self) -> bytes:
        """Closes a device."""
        return struct.pack("<HHI", CLOSE, 0, self.device())

    def news(self) -> bytes:
        """Asks for news."""
        return struct.pack("<HHII", NEWS, 0, limit(self.rng, 32), limit(self.rng, 32))

    def host(self) -> bytes:
        """Tells a machine's name."""
        return struct.pack("<HHI16s", HOST, 0, 0, bytes(self.rng.randrange(256) for _ in range(16)))

    def reservation(self) -> bytes:
        """A command about a reservation."""
        return struct.pack("<HHIBBHIQQ", RESERVATION, 0, self.device(), self.rng.randrange(8), self.rng.randrange(8),
                           self.rng.choice((0, 1, 2, limit(self.rng, 16))), limit(self.rng, 32),
                           self.rng.choice((0, 1, 2)), self.rng.choice((0, 1, 2)))

    def discover(self) -> bytes:
        """Asks for disks."""
        after = self.rng.choice((b"", b"dev/vda", b"z", b"a/b/c/d/e/f/g/h", b"x" * 254, b"../x", b"/"))
        return struct.pack("<HH255s5x", DISCOVER, 0, after)

    def junk(self) -> bytes:
        """No message."""
        return bytes(self.rng.randrange(256) for _ in range(self.rng.choice((0, 1, 4, 64, 300))))

    def next(self) -> tuple[str, bytes]:
        """A message and what it is called."""
        kind = self.rng.choices(list(self.kinds), self.weights)[0]
        return kind, spoil(self.rng, self.kinds[kind]())


class Round:
    """One client."""

    def __init__(self, address: str, seed: int, number: int, disk: str, counts: Counter[str]) -> None:
        self.rng = random.Random(f"{seed}/{number}")
        self.user = User(self.rng, disk)
        self.counts = counts
        self.peer = rtrs.Peer(address, connections=self.rng.choice((1, 2, 2, 3)), depth=256,
                              features=self.rng.choice((0, 9, 25, limit(self.rng, 32))),
                              given_up=self.rng.choice((0, 0, limit(self.rng, 32))))
        self.name = f"hostile{number}".encode()
        self.place = 0

    def run(self) -> None:
        """Do all of it."""
        try:
            with self.peer, contextlib.suppress(*ENDED):
                self.establish()
                self.out = verbs.Memory(self.peer.pd, OUT)
                for _ in range(self.rng.randrange(STEPS)):
                    self.step()
                    if not self.drain():
                        return
        finally:
            self.free()

    def free(self) -> None:
        """Give the memory of the client back, whose connections are gone: there are thousands of rounds."""
        owners = [self, self.peer, *self.peer.connections]
        for owner in owners:
            for memory in [value for value in vars(owner).values() if isinstance(value, verbs.Memory)]:
                memory.free()
        if self.peer.pd:
            verbs.ib.ibv_dealloc_pd(ctypes.c_void_p(self.peer.pd))

    def count(self, kind: str) -> None:
        """One more message of a kind."""
        self.counts[kind] += 1

    def establish(self) -> None:
        """Connect; in one of eight rounds with a lie, which may be accepted."""
        lies = self.rng.random() < 0.125
        wrong = self.rng.choice(("cid", "cid_num", "recon_cnt", "magic", "version", "sess_uuid", "first_conn"))
        value = {"sess_uuid": bytes(16), "first_conn": False}.get(wrong, limit(self.rng, 16))
        at = self.rng.randrange(self.peer.count)
        for cid in range(self.peer.count):
            self.count("connect")
            lie: dict[str, Any] = {wrong: value} if lies and cid == at else {}
            self.peer.connect_one(cid, **lie)
        self.count("info")
        if self.rng.random() < 0.1:
            self.peer.send_info(raw=spoil(self.rng, struct.pack("<H255s15x", 0, self.name)) or b"\0")
        else:
            self.peer.send_info(self.name)
        self.peer.receive_info()

    def step(self) -> None:
        """Send something."""
        kinds = (self.message, self.immediate, self.send, self.write, self.connect, self.disconnect, self.wait)
        self.rng.choices(kinds, (80, 6, 1, 4, 1, 1, 4))[0]()

    def any_connection(self) -> rtrs.Connection:
        """One of the connections."""
        return self.rng.choice(self.peer.connections)

    def memory(self, data: bytes) -> list[verbs.Sge]:
        """Memory with these bytes, which stay for a while."""
        if not data:
            return []
        if self.place + len(data) > OUT:
            self.place = 0
        self.out.write(self.place, data)
        sge = self.out.sge(self.place, len(data))
        self.place += len(data)
        return [sge]

    def message(self) -> None:
        """A request: data, a user's message, the transport's message."""
        kind, header = self.user.next()
        self.count(kind)
        rng = self.rng
        told = rng.choice((len(header),) * 8 + (limit(rng, 16),))
        room = rng.choice((4096, 4096, 4096, SECTOR, 600, 65536, limit(rng, 32)))
        if rng.random() < 0.6:
            data = b""
            target = self.peer.scratch
            key = rng.choice((target.rkey,) * 12 + (0, limit(rng, 32)))
            rtrs_message = struct.pack("<HHHHQII", 3, told, rng.choice((0, 1, limit(rng, 16))),
                                       rng.choice((1,) * 8 + (0, limit(rng, 16))), target.address, key,
                                       min(room, len(target.buffer)) if rng.random() < 0.9 else room)
        else:
            data = bytes(rng.choice((0, 0, SECTOR, 4096, 8192, rng.randrange(8192))))
            rtrs_message = struct.pack("<HH", 2, told)
        rtrs_message = spoil(rng, rtrs_message) if rng.random() < 0.1 else rtrs_message
        whole = data + header + rtrs_message
        chunk = rng.choice((0, 0, 1, 2, rng.randrange(self.peer.queue_depth)))
        offset = len(data) + len(header)
        if rng.random() < 0.05:
            offset = limit(rng, self.peer.mem_bits)
        imm = self.peer.imm(chunk, offset) if rng.random() < 0.97 else limit(rng, 28)
        address, chunk_key = self.peer.chunks[chunk]
        connection = self.peer.connections[-1] if rng.random() < 0.9 else self.any_connection()
        connection.post_send(verbs.RDMA_WRITE_WITH_IMM, self.memory(whole), imm=imm, remote=(address, chunk_key))

    def immediate(self) -> None:
        """An immediate alone."""
        self.count("immediate")
        kind = self.rng.choice((0, 1, 2, 3, 4, 5, 6, 8, 9, self.rng.randrange(16)))
        payload = self.rng.choice((limit(self.rng, 28), self.peer.number()))
        self.any_connection().post_send(verbs.RDMA_WRITE_WITH_IMM, imm=kind << 28 | payload)

    def send(self) -> None:
        """A message on any connection."""
        self.count("send")
        self.any_connection().post_send(verbs.SEND, self.memory(spoil(self.rng, struct.pack("<HH", 0, 0))))

    def write(self) -> None:
        """Write somewhere, most often into a chunk."""
        self.count("write")
        address, key = self.rng.choice(self.peer.chunks)
        place = self.rng.choice((0, SECTOR, self.peer.chunk_size - 8, self.peer.chunk_size - 1, limit(self.rng, 32)))
        key = self.rng.choice((key,) * 8 + (limit(self.rng, 32),))
        self.any_connection().post_send(verbs.RDMA_WRITE, self.memory(b"\xee" * 8), remote=(address + place, key))

    def connect(self) -> None:
        """One more connection of the path, whatever there is."""
        self.count("connect")
        with contextlib.suppress(rtrs.Refused):
            self.peer.connect_one(self.rng.choice((0, 1, self.peer.count, limit(self.rng, 16))),
                                  recon_cnt=self.rng.choice((0, 1, limit(self.rng, 16))))

    def disconnect(self) -> None:
        """End a connection; the others go on."""
        self.count("disconnect")
        verbs.cm.rdma_disconnect(self.any_connection().id)

    def wait(self) -> None:
        """Let the server answer."""
        time.sleep(self.rng.choice((0.001, 0.01, 0.03)))

    def drain(self) -> bool:
        """Take what the server has sent; false if it has ended a connection."""
        for connection in self.peer.connections:
            while (wc := connection.poll()) is not None:
                if wc.status != 0:
                    return False
                if wc.opcode not in (verbs.WC_RECV, verbs.WC_RECV_RDMA_WITH_IMM):
                    continue
                # The information response had a place of its own.
                if wc.wr_id < 64:
                    connection.post_recv(connection.recv_memory.sge(64 * wc.wr_id, 64), wc.wr_id)
        return True


def attack(address: str, seed: int, first: int, seconds: float, disk: str) -> tuple[int, dict[str, int]]:
    """Attack the server for a while, from a round on; the number of the next round, and how many messages
    of each kind were sent. The kernel's log has the numbers of rounds, as the machine may not come back."""
    counts: Counter[str] = Counter()
    end = time.monotonic() + seconds
    number = first
    log = Path("/dev/kmsg")
    patience, rtrs.TIMEOUT = rtrs.TIMEOUT, PATIENCE
    while time.monotonic() < end:
        log.write_text(f"campaign: seed {seed} round {number}\n")
        Round(address, seed, number, disk, counts).run()
        number += 1
    rtrs.TIMEOUT = patience
    return number, dict(counts)
