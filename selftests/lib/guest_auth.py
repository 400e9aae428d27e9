# SPDX-License-Identifier: GPL-2.0
"""The proof of a client's identity, made in user space: its messages and codes, and clients that cheat."""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from lib import guest_rtrs_peer as rtrs
from lib.guest_verbs import Memory
from lib.guest_verbs import WC_RECV

FEATURE_AUTH = 1 << 5
AUTH_REQ, AUTH_RSP = 5, 6
VERSION = 1
CODE_LEN = 11


def code(key: bytes, message: bytes) -> bytes:
    """HMAC-SHA-256."""
    return hmac.new(key, message, hashlib.sha256).digest()


@dataclass
class Said:
    """What both ends have said when connection 0 stands."""

    cid_num: int
    sess_uuid: bytes
    paths_uuid: bytes
    offered: int
    used: int
    queue_pair: int
    server_nonce: bytes
    server: str
    recon_cnt: int = 0
    first_conn: bool = True
    given_up: int = 0

    def transcript(self, label: bytes, client_nonce: bytes, client: str, number: int) -> bytes:
        """What a code is made of."""
        return struct.pack(
            "<16sHHHBB16s16s16sIIII32s32s64sI4x", label, VERSION, self.cid_num, self.recon_cnt, self.first_conn,
            1, socket.inet_aton(self.server), self.sess_uuid, self.paths_uuid, self.offered, self.used,
            self.given_up, self.queue_pair, self.server_nonce, client_nonce, client.encode(), number)


@dataclass
class Proof:
    """A client's half of a handshake."""

    said: Said
    client: str
    number: int
    key: bytes
    nonce: bytes

    def code(self, label: bytes) -> bytes:
        """The code with a label."""
        return code(self.key, self.said.transcript(label, self.nonce, self.client, self.number))

    def request(self) -> bytes:
        """The message to the server."""
        return struct.pack("<HHI32s64s32s", AUTH_REQ, VERSION, self.number, self.nonce, self.client.encode(),
                           self.code(b"rtrs auth client"))

    def is_answered_by(self, response: bytes) -> bool:
        """Whether the server has proved that it has the key."""
        kind, number, server_code = struct.unpack("<Hh4x32s", response[:40])
        return kind == AUTH_RSP and number == 0 and server_code == self.code(b"rtrs auth server")

    def connection(self, cid: int, queue_pair: int) -> bytes:
        """The code of a further connection."""
        message = struct.pack("<16sHxxI", b"rtrs connection", cid, queue_pair)
        return code(self.code(b"rtrs auth path"), message)[:CODE_LEN]


class Client(rtrs.Peer):
    """A path of a client that proves who it is, or pretends to."""

    def __init__(self, address: str, *, client: str, number: int, key: str, connections: int = 2,
                 like: Client | None = None, paths_uuid: bytes | None = None) -> None:
        super().__init__(address, connections=connections, features=FEATURE_AUTH,
                         paths_uuid=like.paths_uuid if like else paths_uuid)
        if like:
            self.sess_uuid = like.sess_uuid
        self.client, self.key_number, self.key = client, number, bytes.fromhex(key)

    def begin(self) -> None:
        """Make connection 0; what both have said is known then."""
        service = self.connect_one()
        used = struct.unpack_from("<I", service.answer, 20)[0]
        said = Said(cid_num=self.count, sess_uuid=self.sess_uuid, paths_uuid=self.paths_uuid, offered=self.features,
                    used=used, queue_pair=service.number(), server_nonce=service.answer[24:56], server=self.address,
                    first_conn=self.first_conn)
        self.proof = Proof(said, self.client, self.key_number, self.key, os.urandom(32))

    def exchange(self, message: bytes) -> bytes:
        """Send a message on connection 0; the response."""
        service = self.connections[0]
        response, request = Memory(self.pd, 64), Memory(self.pd, 512, message)
        service.keep += [response, request]
        service.post_recv(response.sge(0, 64), 1 << 33)
        service.post_send(rtrs.SEND, [request.sge(0, len(message))])
        deadline = time.monotonic() + rtrs.TIMEOUT
        while time.monotonic() < deadline:
            wc = service.poll()
            if wc is None:
                time.sleep(0.002)
            elif wc.status != 0:
                raise rtrs.Closed()
            elif wc.opcode == WC_RECV:
                return bytes(response.buffer.raw[:wc.byte_len])
        raise TimeoutError("no response to the proof")

    def prove(self) -> None:
        """Prove the identity, and look at the server's proof."""
        response = self.exchange(self.proof.request())
        if not self.proof.is_answered_by(response):
            raise ValueError(f"response to a right proof: {response.hex()}")

    def further(self, cid: int, code: Callable[[int], bytes] | None = None) -> int:
        """Make a further connection, with the right code or another one; the errno if it is refused, or 0."""
        def right(queue_pair: int) -> bytes:
            return self.proof.connection(cid, queue_pair)

        try:
            self.connect_one(cid, code=code or right)
        except rtrs.Refused as refused:
            return int(refused.args[0])
        return 0

    def closed_after_its_name(self) -> bool:
        """Do all up to the name; whether the server closes the path then."""
        self.prove()
        for cid in range(1, self.count):
            if self.further(cid):
                return False
        self.send_info()
        return self.wait_closed()

    def establish(self, name: bytes = b"hostile") -> None:
        """All that a client does before its first request."""
        self.begin()
        self.prove()
        for cid in range(1, self.count):
            if errno := self.further(cid):
                raise rtrs.Refused(errno)
        self.send_info(name)
        self.receive_info()


Key = dict[str, str | int]


def client(address: str, key: Key, **options: object) -> Client:
    """A client with this key: its id, the number and the key as hexadecimal digits."""
    return Client(address, client=str(key["client"]), number=int(key["number"]), key=str(key["key"]),
                  **options)  # type: ignore[arg-type]


def polite(address: str, key: Key) -> int:
    """A client that does all as it should; how many chunks it gets."""
    with client(address, key) as peer:
        peer.establish()
        return len(peer.chunks)


def refused_proofs(address: str, key: Key) -> dict[str, tuple[int, bool]]:
    """Proofs that are wrong: the errno of each response, and whether the path was closed then."""
    results: dict[str, tuple[int, bool]] = {}

    def attempt(name: str, change: Callable[[Client, bytes], bytes]) -> None:
        with client(address, key) as peer:
            peer.begin()
            response = peer.exchange(change(peer, peer.proof.request()))
            results[name] = struct.unpack_from("<h", response, 2)[0], peer.wait_closed()

    def flip(at: int) -> Callable[[Client, bytes], bytes]:
        return lambda _, message: message[:at] + bytes([message[at] ^ 1]) + message[at + 1:]

    attempt("code", flip(135))
    attempt("random number", flip(8))
    attempt("number of the key", flip(4))
    attempt("client id", lambda _, message: message[:40] + b"nobody".ljust(64, b"\0") + message[104:])
    attempt("type", flip(0))
    attempt("version", flip(2))
    attempt("short", lambda _, message: message[:100])
    attempt("reflected", lambda peer, message: message[:104] + peer.proof.code(b"rtrs auth server"))
    return results


def replayed(address: str, key: Key) -> tuple[int, bool]:
    """A recorded proof, sent again on a path with the same identities: the errno, and whether it was closed."""
    with client(address, key) as first:
        first.begin()
        recorded = first.proof.request()
        first.prove()
    with client(address, key, like=first) as second:
        again(second.begin)
        response = second.exchange(recorded)
        return struct.unpack_from("<h", response, 2)[0], second.wait_closed()


def again(begin: Callable[[], None]) -> None:
    """Begin as soon as the server has closed the path of before."""
    deadline = time.monotonic() + rtrs.TIMEOUT
    while True:
        try:
            return begin()
        except rtrs.Refused:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def further_connections(address: str, key: Key) -> dict[str, int]:
    """Further connections of a path; the errno of each, 0 if it was accepted."""
    results = {}
    with client(address, key, connections=3) as peer:
        peer.begin()
        results["before the proof"] = peer.further(1)
        peer.prove()
        results["no code"] = peer.further(1, lambda _: bytes(CODE_LEN))
        results["code of another connection"] = peer.further(1, lambda number: peer.proof.connection(2, number))
        results["code of another queue pair"] = peer.further(1, lambda number: peer.proof.connection(1, number ^ 1))
        sent: list[bytes] = []

        def recorded(number: int) -> bytes:
            sent.append(peer.proof.connection(1, number))
            return sent[-1]

        results["right"] = peer.further(1, recorded)
        results["again"] = peer.further(2, lambda _: sent[0])
        results["right, the next one"] = peer.further(2)
        peer.send_info()
        peer.receive_info()
    return results


def name_before_a_proof(address: str, key: Key) -> tuple[bool, bool]:
    """Information requests where a proof is to come first: whether the path was closed."""
    with client(address, key, connections=1) as peer:
        peer.begin()
        peer.send_info()
        closed = peer.wait_closed()
    with client(address, key, connections=2) as peer:
        again(peer.begin)
        peer.prove()
        peer.send_info()
        return closed, peer.wait_closed()


def other_clients_session(address: str, key: Key, other: Key, source: str) -> tuple[bool, bool]:
    """A path of another client, and one without a proof, for a session: whether each was closed."""
    with client(address, key) as owner:
        owner.establish()
        with client(address, other, paths_uuid=owner.paths_uuid) as stranger:
            stranger.source = source
            stranger.first_conn = False
            stranger.begin()
            first = stranger.closed_after_its_name()
        with rtrs.Peer(address, paths_uuid=owner.paths_uuid, first_conn=False, source=source) as peer:
            again(peer.connect_all)
            peer.send_info()
            second = peer.wait_closed()
        # The owner's path has not suffered.
        owner.request(b"\0" * 16 + struct.pack("<HH", 2, 16), offset=16)
        owner.answer()
        return first, second
