# SPDX-License-Identifier: GPL-2.0
"""What an administrator and a hostile client do about an export policy, for export_policy.py."""

from __future__ import annotations

import os
import struct
import time

from lib import guest_rtrs_peer as rtrs

FILE = "/sys/class/rnbd-server/ctl/export_policy"
SESS_INFO, OPEN, IO, CLOSE = 0, 2, 4, 5  # RNBD's messages
MODES = {"ro": 0, "rw": 1, "migration": 2}


def write(pieces: list[str]) -> list[str]:
    """Write pieces one after the other to the policy's file; what it reads after each."""
    read = []
    with open(FILE, "wb", buffering=0) as file:
        for piece in pieces:
            view = memoryview(piece.encode())
            while view:
                view = view[file.write(view):]
            with open(FILE, encoding="ascii") as again:
                read.append(again.read())
    return read


def interleaved(first: list[str], second: list[str]) -> list[int]:
    """Two writers with two pieces each, in turns; the errno of each write."""
    results = []
    files = [open(FILE, "wb", buffering=0) for _ in range(2)]  # noqa: SIM115 (closed in turns, below)
    turns = (first[0], second[0], first[1], second[1])
    for piece, file in zip(turns, files * 2, strict=True):
        try:
            file.write(piece.encode())
            results.append(0)
        except OSError as error:
            results.append(error.errno or 0)
    for file in files:
        file.close()
    return results


def ask(peer: rtrs.Peer, message: bytes, size: int) -> int:
    """A message that is answered with data; the errno."""
    place = 16384
    peer.request(message + peer.read_message(usr_len=len(message), length=size), place=place,
                 offset=place + len(message))
    return peer.answer()[1]


def probe(address: str, sessions: list[str],
          devices: list[str]) -> tuple[dict[str, list[int]], list[int]]:
    """A client that tries devices in all modes, and IO without a device, in several sessions.

    Returns the errnos of opens by session and device, and those of the IO.
    """
    opens, requests = {}, []
    for session in sessions:
        with rtrs.Peer(address) as peer:
            peer.establish(session.encode())
            ask(peer, struct.pack("<HxxB31x", SESS_INFO, 2), 36)
            for device in devices:
                opens[f"{session} {device}"] = [
                    ask(peer, struct.pack("<HxxBx255s3x", OPEN, mode, device.encode()), 56)
                    for mode in MODES.values()]
            message = struct.pack("<HxxIQIIH6x", IO, 0, 0, 0, 512, 0)
            requests.append(ask(peer, message, 512))
    return opens, requests


def refused(address: str, session: str, room: str = "", features: int = rtrs.REFUSAL) -> int | None:
    """A client that the server does not want: the errno that the server says, None if it just disconnects.

    With ``room`` the client takes the server's response only when there is a file of that name.
    """
    with rtrs.Peer(address, features=features) as peer:
        peer.connect_all()
        peer.send_info(session.encode(), room=not room)
        if room:
            while not os.path.exists(room):
                time.sleep(0.02)
            peer.make_room()
        try:
            peer.receive_info()
        except rtrs.Closed:
            return None
        if not peer.wait_closed():
            raise TimeoutError("the server keeps the path")
        return peer.refusal


def other_address(address: str, other: str) -> int:
    """A path whose second connection comes from another address; the errno of that."""
    with rtrs.Peer(address) as peer:
        peer.connect_one()
        peer.address = other
        try:
            peer.connect_one()
        except rtrs.Refused as refused:
            return refused.args[0]
        return 0
