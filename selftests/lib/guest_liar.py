# SPDX-License-Identifier: GPL-2.0
"""A server that keeps to the protocol up to a point and then lies, made up by a generator, for campaign.py.

As with guest_campaign.py, the seed and the number of a round decide what is said in it. In each round a disk
is mapped, read and written, and unmapped by force. What goes wrong for the disk's user is not looked at: the
kernel must stand it, and other sessions must not notice.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import struct
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from lib import guest_rtrs_server as rtrs
from lib import guest_verbs as verbs
from lib.guest_campaign import limit
from lib.guest_campaign import spoil

CLIENT = Path("/sys/class/rnbd-client/ctl")
SESSION = Path("/sys/class/rtrs-client/liar")
DISK = "/dev/liar"
LINK = CLIENT / "devices" / f"{DISK.replace('/', '!')}@liar"
# How long a round waits for a server that says nothing, in seconds; then the server disconnects.
PATIENCE = 5.0
LONGEST = 64 << 10


class Liar(rtrs.Server):
    """Lies now and then."""

    def __init__(self, port: int) -> None:
        self.rng = random.Random(0)
        self.counts: Counter[str] = Counter()
        self.odds = 0.0
        super().__init__(port, queue_depth=8)

    def begin(self, seed: int, number: int) -> None:
        """Begin a round."""
        self.rng = random.Random(f"{seed}/{number}")
        # Some rounds have few lies, so that they get far.
        self.odds = self.rng.choice((0.01, 0.05, 0.2))
        self.features = self.rng.choice((0, 9, 25, limit(self.rng, 32)))
        self.log.clear()
        self.requests.clear()

    def lies(self, kind: str) -> bool:
        """Whether to lie now."""
        self.counts[kind] += 1
        return self.rng.random() < self.odds

    def conn_response(self, fields: Any) -> tuple[bytes, bool]:
        """The answer to a connection request."""
        data, accept = super().conn_response(fields)
        if self.lies("connect"):
            return spoil(self.rng, data), self.rng.random() < 0.8
        return data, accept

    def info(self, connection: Any) -> None:
        """The answer to an information request."""
        if not self.lies("info"):
            return super().info(connection)
        size = self.chunk_size * self.queue_depth
        one = (limit(self.rng, 64), limit(self.rng, 32), self.rng.choice((size, limit(self.rng, 32))))
        whole = (self.chunks.address, self.chunks.rkey, size)
        message = rtrs.info_rsp([self.rng.choice((one, whole))] * self.rng.choice((0, 1, 2, 8)))
        return connection.send(verbs.SEND, spoil(self.rng, message))

    def heartbeat(self, connection: Any) -> None:
        """The answer to a heartbeat."""
        for _ in range(self.rng.choice((0, 2, 5)) if self.lies("heartbeat") else 1):
            super().heartbeat(connection)

    def session_info(self, request: rtrs.Request) -> bytes:
        """All extensions that the client offers."""
        magic, features, nonce = struct.unpack_from("<IIQ", request.header, 8)
        message = struct.pack("<HHB3xIIQ12x", rtrs.SESS_INFO + 1, 0, 2, magic, features, nonce)
        return spoil(self.rng, message) if self.lies("sess_info") else message

    def opened(self, request: rtrs.Request) -> bytes:
        """The answer to an open message, with an identity."""
        message = super().opened(request) + b"naa.5000".ljust(128, b"\0")
        return spoil(self.rng, message) if self.lies("open") else message

    def control(self, request: rtrs.Request) -> None:
        """The answer to what is no IO."""
        if request.message in (rtrs.SESS_INFO, rtrs.OPEN):
            return super().control(request)
        data = b""
        if request.target:
            # News of the disk; the front of what else there is looks the same.
            record = struct.pack("<IIQ9IB11x", 7, self.rng.choice((0, 1, 2, 4, 8, 16, 32)), 2048, 256, 0, 0, 0, 0, 0,
                                 512, 512, 32, 0)
            data = struct.pack("<HHIHHI", request.message + 1, 0, limit(self.rng, 32), 1, 0, 0) + record
        if self.lies("control"):
            return self.answer(request, spoil(self.rng, data), self.rng.choice((0, 0, 5, 511, limit(self.rng, 9))))
        return self.answer(request, data)

    def io(self, request: rtrs.Request) -> None:
        """A request of the disk."""
        if not self.lies("io"):
            return super().io(request)
        how = self.rng.randrange(8)
        connection = request.connection
        if how == 0:
            return self.answer(request, number=limit(self.rng, 9))
        if how == 1:
            # Less than was asked for, or nothing.
            return self.answer(request, bytes(self.rng.choice((0, 1, rtrs.SECTOR))))
        if how == 2:
            # Twice, and by another connection.
            super().io(request)
            return self.answer(request, connection=self.rng.choice(list(self.connections.values())))
        if how == 3:
            connection.immediate(self.rng.randrange(16), limit(self.rng, 28))
        elif how == 4:
            numbers = [limit(self.rng, 16) for _ in range(self.rng.choice((0, 1, 64)))]
            message = struct.pack(f"<{len(numbers)}H", *numbers)
            count = self.rng.choice((len(numbers), limit(self.rng, 28)))
            connection.send(verbs.SEND_WITH_IMM, spoil(self.rng, message), imm=rtrs.IO_RSPS << 28 | count)
        elif how == 5:
            connection.send(verbs.SEND_WITH_INV, invalidate=limit(self.rng, 32))
        elif how == 6:
            connection.disconnect()
        else:
            return self.answer(request, invalidate=self.rng.random() < 0.5, claim=self.rng.random() < 0.5)
        return super().io(request)

    def _immediate(self, connection: Any, imm: int) -> None:
        try:
            super()._immediate(connection, imm)
        except (struct.error, ValueError, IndexError, AssertionError):
            # The client has believed in another layout of the chunks.
            connection.disconnect()


def tell(file: Path, text: str) -> None:
    """Write a file of the kernel, once: a file object would write again what has failed."""
    handle = os.open(file, os.O_WRONLY)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def use(rng: random.Random, path: str) -> None:
    """Read and write a disk a little."""
    disk = os.open(path, os.O_RDWR | os.O_DIRECT)
    try:
        with mmap.mmap(-1, LONGEST) as memory:
            for _ in range(rng.randrange(1, 12)):
                length = rng.choice((rtrs.SECTOR, 4096, 4096, LONGEST))
                offset = rng.randrange(8) * 4096
                view = memoryview(memory)[:length]
                try:
                    if rng.random() < 0.5:
                        os.preadv(disk, [view], offset)
                    else:
                        os.pwritev(disk, [view], offset)
                finally:
                    view.release()
    finally:
        os.close(disk)


def run_round(server: Liar, line: str, seed: int, number: int) -> None:
    """Map, use and unmap the disk of the liar."""
    server.begin(seed, number)
    watchdog = threading.Event()

    def watch() -> None:
        while not watchdog.wait(PATIENCE):
            server.odds = 0.0
            server.drop_all()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    rng = random.Random(f"{seed}/{number}/client")
    try:
        with contextlib.suppress(OSError):
            tell(CLIENT / "map_device", line)
            use(rng, f"/dev/{LINK.resolve().name}")
        if LINK.is_symlink():
            with contextlib.suppress(OSError):
                tell(LINK / "rnbd/unmap_device", "force")
        end = time.monotonic() + 30
        while SESSION.exists():
            if time.monotonic() > end:
                raise TimeoutError(f"round {number}: the session stays")
            time.sleep(0.01)
    finally:
        watchdog.set()
        watcher.join()
    if server.error:
        raise RuntimeError(server.error)


def attack(address: str, port: int, seed: int, first: int, seconds: float) -> tuple[int, dict[str, int]]:
    """Attack the client for a while, from a round on; the number of the next round, and how many messages of each
    kind were answered."""
    server = Liar(port)
    line = f"sessname=liar path=ip:{address} dest_port={port} device_path={DISK}"
    number = first
    end = time.monotonic() + seconds
    log = Path("/dev/kmsg")
    try:
        while time.monotonic() < end:
            log.write_text(f"campaign: seed {seed} round {number}\n")
            run_round(server, line, seed, number)
            number += 1
    finally:
        server.stop()
    return number, dict(server.counts)
