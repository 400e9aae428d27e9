# SPDX-License-Identifier: GPL-2.0
"""Requests that a client sends again by other paths, or has given up, and what the server makes of it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Concatenate
from typing import ParamSpec
from typing import TypeVar

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import guest_paths
from lib import rnbd

P = ParamSpec("P")
R = TypeVar("R")
TOPOLOGY = "one"

ONLY_OURS = ("ours",)


def client(t: Test, scenario: Callable[Concatenate[str, list[str], P], R], *arguments: P.args,
           **named: P.kwargs) -> R:
    """Run a scenario of guest_paths.py from three addresses; nothing of it stays behind."""
    network = t.server.address.rsplit(".", 1)[0]
    sources = [f"{network}.{host}" for host in (77, 78, 79)]
    for source in sources:
        t.client.run(f"ip address add {source}/24 dev dummy0")
        t.defer(t.client.run, f"ip address del {source}/24 dev dummy0")
    t.client.run("modprobe rdma_ucm")
    result = t.client.call_within(100, scenario, t.server.address, sources, *arguments, **named)
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/hostile", gone=True)
    return result


@case(module_sets=ONLY_OURS)
def test_copies(t: Test) -> None:
    """A request that came by three paths is not answered before all its copies are carried out: the
    client would use its buffer for another one."""
    seconds = 4 if t.debug else 2
    disk = disks.null_blk(t, irqmode=2, completion_nsec=seconds * 10**9)
    rnbd.load(t, client=False)
    answers = client(t, guest_paths.copies, device=disk)
    t.say(f"path, chunk, errno, writes of the disk: {answers}")
    t.equal(sorted(answer[:3] for answer in answers), [[number, 1, 0] for number in range(3)],
            "paths, chunks and errnos of the answers")
    t.equal([answer[3] for answer in answers], [3, 3, 3], "writes of the disk at each answer")


@case(module_sets=ONLY_OURS)
def test_given_up(t: Test) -> None:
    """A client that has given up requests gets a new session, when the old one is gone. Who comes from
    where it never came from does not end its session."""
    rnbd.load(t, client=False)
    result = client(t, guest_paths.given_up)
    t.equal(result, {"stranger": -errno.ECONNRESET, "closed for a stranger": False,
                     "first": -errno.ECONNRESET, "closed": True,
                     "late": -errno.ECONNRESET, "same": True, "new path closed": False},
            "what the server did")


@case(module_sets=ONLY_OURS)
def test_path_ends(t: Test) -> None:
    """A client has a path ended by a message on another one and is told at once, though a disk still
    has a request of it; nobody can end the path that he asks on, or any without the extension."""
    disk = disks.null_blk(t, irqmode=2, completion_nsec=(8 if t.debug else 4) * 10**9)
    rnbd.load(t, client=False)
    result = client(t, guest_paths.path_ends, device=disk)
    numbers = {name: result.pop(name) for name in ("ended", "again", "itself")}
    t.equal([kind for kind, _ in numbers.values()], [5, 5, 5], f"types of answers: {numbers}")
    t.equal(numbers["ended"], numbers["again"], "answers when it had ended already")
    t.equal(result, {"writes by then": 0, "closed": True, "without": [9, 0], "alive": [9, 0],
                     "open": [False, False]}, "what the server did")
