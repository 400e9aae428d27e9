# SPDX-License-Identifier: GPL-2.0
"""Clients that take as much of a server as they get, for admission.py."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from pathlib import Path

from lib import guest_rtrs_peer as rtrs
from lib.guest_hostile import polite


def _request(connections: int = 1) -> bytes:
    """The request for the first connection of a new session."""
    return rtrs.conn_req(sess_uuid=os.urandom(16), paths_uuid=os.urandom(16), cid_num=connections)


def unconfirmed(address: str, count: int) -> int:
    """Paths that are not confirmed, all at a time; then the chunk of the response to a client that means well."""
    with contextlib.ExitStack() as held:
        for _ in range(count):
            held.callback(rtrs.Unconfirmed(address, _request(), receives=0, depth=16).close)
        return polite(address)


def _confirmed(address: str, count: int, held: contextlib.ExitStack) -> list[int]:
    """Ask for that many half-open paths, which are confirmed; the errnos of those that are refused."""
    refused = []
    for _ in range(count):
        try:
            held.callback(rtrs.Connection(address, _request(connections=2), receives=0, depth=16).close)
        except rtrs.Refused as refusal:
            refused.append(refusal.args[0])
    return refused


def confirmed(address: str, count: int) -> list[int]:
    """The errnos of the refusals when that many half-open paths are asked for, all at a time."""
    with contextlib.ExitStack() as held:
        return _confirmed(address, count, held)


def hold(address: str, count: int, until: str) -> list[int]:
    """The same, with the paths held until a file is there."""
    with contextlib.ExitStack() as held:
        refused = _confirmed(address, count, held)
        while not Path(until).exists():
            time.sleep(0.05)
        return refused


def flood(address: str, until: str, at_a_time: int) -> tuple[int, float]:
    """Ask for paths without confirming them, as fast as it goes, until a file is there: how many, and in what time."""
    held: list[rtrs.Connection] = []
    started, asked = time.monotonic(), 0
    try:
        while not Path(until).exists():
            held.append(rtrs.Unconfirmed(address, _request(), receives=0, depth=16))
            asked += 1
            if len(held) > at_a_time:
                held.pop(0).close()
        return asked, time.monotonic() - started
    finally:
        for connection in held:
            connection.close()


def establish(address: str, rounds: int) -> float:
    """The median of the times in which a client that means well is established, in ms."""
    times = []
    for _ in range(rounds):
        with rtrs.Peer(address, depth=64) as peer:
            started = time.monotonic()
            peer.establish(b"honest")
            times.append(time.monotonic() - started)
            # The next round uses the same name.
            peer.connections[0].close()
            peer.connections.pop(0)
    return statistics.median(times) * 1000
