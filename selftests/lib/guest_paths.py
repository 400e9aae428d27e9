# SPDX-License-Identifier: GPL-2.0
"""A client with several paths that sends requests again, inside the guest."""

from __future__ import annotations

import contextlib
import struct
import time
from pathlib import Path
from typing import Any

from lib import guest_rtrs_peer as rtrs
from lib.guest_hostile_io import IO
from lib.guest_hostile_io import Rnbd
from lib.guest_hostile_io import WRITE

SIZE = 512
CHUNK = 1


def writes(device: str) -> int:
    """How many writes a disk has seen the end of."""
    return int(Path("/sys/block", Path(device).name, "stat").read_text().split()[4])


def send_write(path: rtrs.Peer, device_id: int) -> None:
    """Send a write of one sector in chunk CHUNK, without waiting for the response."""
    header = struct.pack("<HxxIQIIH6x", IO, device_id, 0, WRITE, SIZE, 0)
    message = struct.pack("<HH", 2, len(header))
    path.request(bytes(SIZE) + header + message, chunk=CHUNK, offset=SIZE + len(header))


def next_answer(paths: list[rtrs.Peer]) -> tuple[int, tuple[int, int]]:
    """Wait for a response by any of these paths: its number, chunk and errno."""
    deadline = time.monotonic() + rtrs.TIMEOUT
    while time.monotonic() < deadline:
        for number, path in enumerate(paths):
            with contextlib.suppress(TimeoutError):
                return number, path.answer(timeout=0.01)
    raise TimeoutError("no answer")


def copies(address: str, sources: list[str], device: str) -> list[list[int]]:
    """Send the same write by one path after the other while the disk is slow. Returns for each response
    its path, its chunk and errno, and how many writes the disk had finished by then."""
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(rtrs.Peer(address, source=sources[0]))
        rnbd = Rnbd(first, device)
        paths = [first]
        for source in sources[1:]:
            paths.append(stack.enter_context(rtrs.Peer(
                address, source=source, paths_uuid=first.paths_uuid, first_conn=False)))
            paths[-1].establish()
        before = writes(device)
        for path in paths:
            send_write(path, rnbd.device_id)
        answers: list[list[int]] = []
        while len(answers) < len(paths):
            number, answer = next_answer(paths)
            answers.append([number, *answer, writes(device) - before])
        return answers


def attempt(stack: contextlib.ExitStack, **settings: Any) -> rtrs.Peer | int:
    """Make the first connection of a path; the path, or the errno of the server."""
    path = stack.enter_context(rtrs.Peer(**settings))
    try:
        path.connect_one()
    except rtrs.Refused as refused:
        return refused.args[0]
    return path


def given_up(address: str, sources: list[str]) -> dict[str, Any]:
    """A client that tells how many requests it has given up; what the server makes of it."""
    with contextlib.ExitStack() as stack:
        old = stack.enter_context(rtrs.Peer(address, source=sources[0], given_up=2**32 - 1))
        old.establish()
        session = {"address": address, "paths_uuid": old.paths_uuid}
        result = {"stranger": attempt(stack, **session, source=sources[1], given_up=1),
                  "closed for a stranger": old.connections[0].is_closed(),
                  "first": attempt(stack, **session, source=sources[0], given_up=1),
                  "closed": old.wait_closed()}
        deadline = time.monotonic() + rtrs.TIMEOUT
        while isinstance(new := attempt(stack, **session, source=sources[1], given_up=1), int):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the server refuses a new session: errno {new}")
            time.sleep(0.05)
        new.establish()
        result["late"] = attempt(stack, **session, source=sources[2], given_up=2**32 - 1)
        result["same"] = isinstance(attempt(stack, **session, source=sources[2], given_up=1),
                                    rtrs.Peer)
        result["new path closed"] = new.connections[0].is_closed()
        return result


def path_ends(address: str, sources: list[str], device: str) -> dict[str, Any]:
    """Have a path ended by a message on another one, while a slow disk has a request of it."""
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(rtrs.Peer(address, source=sources[0], features=rtrs.PATH_ENDS))
        rnbd = Rnbd(first, device)
        others = [stack.enter_context(rtrs.Peer(address, source=source, features=features,
                                                paths_uuid=first.paths_uuid, first_conn=False))
                  for source, features in ((sources[1], rtrs.PATH_ENDS), (sources[2], 0))]
        for path in others:
            path.establish()
        ended, without = others
        before = writes(device)
        send_write(ended, rnbd.device_id)
        result = {"ended": first.service(rtrs.PATH_END, ended.number()),
                  "writes by then": writes(device) - before,
                  "closed": ended.wait_closed(),
                  "again": first.service(rtrs.PATH_END, ended.number()),
                  "itself": first.service(rtrs.PATH_END, first.number())}
        # Nothing but the heartbeat is answered to who has not offered it.
        without.connections[0].post_send(rtrs.RDMA_WRITE_WITH_IMM,
                                         imm=rtrs.PATH_END << 28 | first.number())
        result["without"] = without.service(rtrs.HB_MSG)
        # By now the server has looked at it.
        result["alive"] = first.service(rtrs.HB_MSG)
        result["open"] = [path.connections[0].is_closed() for path in (first, without)]
        return result
