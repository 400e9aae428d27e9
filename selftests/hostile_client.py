# SPDX-License-Identifier: GPL-2.0
"""Clients that break the protocol, and what the server makes of it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Concatenate
from typing import ParamSpec
from typing import TypeVar

from lab.selftest_case import case
from lab.selftest_case import EVERYWHERE
from lab.selftest_case import Test
from lib import disks
from lib import guest_hostile
from lib import rnbd

P = ParamSpec("P")
R = TypeVar("R")
ONLY_OURS = ("ours",)
# Of a session (RTRS's MAX_PATHS_NUM).
MAX_PATHS = 128


def hostile(t: Test, scenario: Callable[Concatenate[str, P], R], *arguments: P.args,
            **named: P.kwargs) -> R:
    """Run a scenario of guest_hostile.py against the server; nothing of it stays behind."""
    t.client.run("modprobe rdma_ucm")
    result = t.client.call(scenario, t.server.address, *arguments, **named)
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/hostile", gone=True)
    return result


def still_serves(t: Test) -> None:
    """A client that keeps to the protocol is answered."""
    t.equal(hostile(t, guest_hostile.polite), 0, "chunk of the answer")


@case(module_sets=ONLY_OURS, quick=())
def test_connection_requests(t: Test) -> None:
    """Malformed connection requests are refused with an errno."""
    rnbd.load(t, client=False)
    results = hostile(t, guest_hostile.refusals)
    for name in ("unknown session", "session of connection 1"):
        t.equal(results.pop(name), -errno.ENXIO, name)
    for name, number in results.items():
        t.equal(number, -errno.ECONNRESET, name)
    still_serves(t)


@case(module_sets=ONLY_OURS)
def test_second_requests(t: Test) -> None:
    """Connections that do not fit their path are refused."""
    rnbd.load(t, client=False)
    results = hostile(t, guest_hostile.second_requests)
    t.equal(results.pop("same addresses"), -errno.EEXIST, "same addresses")
    for name, number in results.items():
        t.equal(number, -errno.ECONNRESET, name)
    still_serves(t)


@case(module_sets=ONLY_OURS)
def test_connect_as_another(t: Test) -> None:
    """Who connects a path again from another address than its own does not close it."""
    source = f"{t.server.address.rsplit('.', 1)[0]}.77"
    t.client.run(f"ip address add {source}/24 dev dummy0")
    t.defer(t.client.run, f"ip address del {source}/24 dev dummy0")
    rnbd.load(t, client=False)
    t.equal(tuple(hostile(t, guest_hostile.connect_as_another, source=source)),
            (-errno.ECONNRESET, 0), "errno, chunk of the answer")


@case(module_sets=ONLY_OURS)
def test_info_requests(t: Test) -> None:
    """Malformed information requests close the path."""
    rnbd.load(t, client=False)
    for name, closed in hostile(t, guest_hostile.info_requests).items():
        t.check(closed, f"{name}: the path was not closed")
    still_serves(t)


@case(module_sets=ONLY_OURS)
def test_addresses(t: Test) -> None:
    """The server does not tell where its memory is: a chunk's address is its place among the session's chunks."""
    for setting in ("always_invalidate=Y", "always_invalidate=N"):
        rnbd.load(t, client=False, rtrs_server=setting)
        highest = max(hostile(t, guest_hostile.addresses))
        t.check(highest < 256 << 20, f"{setting}: a chunk is at {highest:#x}")


@case(module_sets=ONLY_OURS)
def test_name_in_use(t: Test) -> None:
    """The name of another client's session is refused; that client is not disturbed."""
    rnbd.load(t, client=False)
    t.equal(tuple(hostile(t, guest_hostile.name_in_use)), (True, False),
            "second closed, first closed")


@case(module_sets=ONLY_OURS, quick=EVERYWHERE)
def test_wrong_requests(t: Test) -> None:
    """Requests that are wrong are answered with an error, on both settings."""
    for setting in ("always_invalidate=Y", "always_invalidate=N"):
        rnbd.load(t, client=False, rtrs_server=setting)
        results = hostile(t, guest_hostile.answered)
        t.check(results.pop("untouched"), f"{setting}: a failed read sent data")
        for name, number in results.items():
            t.check(isinstance(number, int) and number != 0, f"{setting}: {name}: {number}")
        still_serves(t)


@case(module_sets=ONLY_OURS)
def test_clean_responses(t: Test) -> None:
    """A response has zeroes where it has no meaning, and nothing of what its chunk held before."""
    for setting in ("always_invalidate=Y", "always_invalidate=N"):
        rnbd.load(t, client=False, rtrs_server=setting)
        for name, values in hostile(t, guest_hostile.clean_responses, path=disks.PLAIN).items():
            t.check(values in ([], [0]), f"{setting}: {name}: bytes {values}")


@case(module_sets=ONLY_OURS)
def test_closing(t: Test) -> None:
    """What is no request closes the path, on both settings."""
    for invalidates in (True, False):
        setting = f"always_invalidate={'Y' if invalidates else 'N'}"
        # Not a power of two, so that there are numbers of chunks that do not exist.
        rnbd.load(t, client=False, rtrs_server=f"{setting} sess_queue_depth=500")
        for name, closed in hostile(t, guest_hostile.closing, invalidates=invalidates).items():
            t.check(closed, f"{setting}: {name}: the path was not closed")
        still_serves(t)


@case(module_sets=ONLY_OURS)
def test_unknown_immediates(t: Test) -> None:
    """Immediates without a meaning do no harm."""
    rnbd.load(t, client=False)
    t.equal(hostile(t, guest_hostile.unknown_immediates), 0, "chunk of the answer")


@case(module_sets=ONLY_OURS, timeout=180)
def test_heartbeats(t: Test) -> None:
    """Many heartbeats are acknowledged, and requests still answered."""
    rnbd.load(t, client=False)
    t.equal(tuple(hostile(t, guest_hostile.heartbeats, count=1500)), (1500, 0),
            "acknowledged, chunk")


@case(module_sets=ONLY_OURS, timeout=180)
def test_deaf(t: Test) -> None:
    """A client that takes no responses stops nobody but itself."""
    rnbd.load(t, client=False, rtrs_server="sess_queue_depth=64")
    sent = hostile(t, guest_hostile.deaf)
    t.check(sent >= 64, f"only {sent} requests were sent")
    still_serves(t)


@case(module_sets=ONLY_OURS, timeout=240, quick=())
def test_half_open(t: Test) -> None:
    """A path that is never established is closed after 30 s, whatever is requested meanwhile, and one that is silent
    after 35."""
    rnbd.load(t, client=False)
    closed, seconds = hostile(t, guest_hostile.half_open, seconds=60)
    t.check(closed and 25 <= seconds <= 45, f"closed: {closed}, after {seconds:.0f} s")
    number, seconds = hostile(t, guest_hostile.half_open_and_asking, seconds=60)
    t.check(25 <= seconds <= 45, f"refused: connection {number}, after {seconds:.0f} s")
    closed, seconds = hostile(t, guest_hostile.silent, seconds=60)
    t.check(closed and 25 <= seconds <= 45, f"closed: {closed}, after {seconds:.0f} s")


@case(module_sets=ONLY_OURS)
def test_many_paths(t: Test) -> None:
    """Paths that come and go leave nothing behind."""
    rnbd.load(t, client=False)
    hostile(t, guest_hostile.many_paths, rounds=30)
    still_serves(t)


@case(module_sets=ONLY_OURS, timeout=300, quick=())
def test_too_many_paths(t: Test) -> None:
    """A session has 128 paths; one more is refused, and gets in when another one has gone."""
    base = t.server.address.rsplit(".", 1)[0]
    sources = [f"{base}.{number}" for number in range(100, 100 + MAX_PATHS + 1)]
    for source in sources:
        t.client.run(f"ip address add {source}/24 dev dummy0")
        t.defer(t.client.run, f"ip address del {source}/24 dev dummy0")
    rnbd.load(t, client=False, rtrs_server="sess_queue_depth=8 max_chunk_size=8192")
    t.equal(tuple(hostile(t, guest_hostile.too_many_paths, sources=sources)),
            (MAX_PATHS, -errno.ECONNRESET, 0),
            "paths, errno of another one, and of one in another one's place")
    still_serves(t)


@case(module_sets=ONLY_OURS)
def test_stale_key(t: Test) -> None:
    """The key of a chunk whose data was used is worth nothing any more."""
    rnbd.load(t, client=False)
    t.equal(hostile(t, guest_hostile.stale_key), "refused", "a write with the old key")


def freezable_disk(t: Test) -> tuple[str, str]:
    """Make a loop disk of the server on a file system that can be frozen; the disk and the folder."""
    folder = "/mnt/frozen"
    t.server.run(f"set -e; mkfs.ext4 -q {disks.PLAIN}; mkdir -p {folder}\n"
                 f"mount {disks.PLAIN} {folder}; truncate -s 8M {folder}/disk", timeout=60)
    t.defer(t.server.run, f"umount {folder}")
    device = t.server.sh(f"modprobe loop; losetup --find --show {folder}/disk")
    t.defer(t.server.run, f"losetup -d {device}")
    return device, folder


@case(module_sets=ONLY_OURS, quick=EVERYWHERE)
def test_early_requests(t: Test) -> None:
    """A request that comes before its chunk's response is worked off after it; two are too many."""
    device, folder = freezable_disk(t)
    for setting in ("always_invalidate=Y", "always_invalidate=N"):
        rnbd.load(t, client=False, rtrs_server=setting)
        answers, disk = hostile(t, guest_hostile.early, device=device, folder=folder, requests=2)
        t.equal(answers, [[0, 0], [0, 0]], f"{setting}: answers")
        # With N the data of the first is changed by the second on its way.
        t.equal(disk[1], ord("b"), f"{setting}: what the second one wrote")
        answers, _ = hostile(t, guest_hostile.early, device=device, folder=folder, requests=3)
        t.equal(answers, [], f"{setting}: answers to three at a time")
        still_serves(t)


@case(module_sets=ONLY_OURS)
def test_rewritten_by_another_path(t: Test) -> None:
    """Data that is changed by another path's key does not reach the disk; a path that comes later waits."""
    source = f"{t.server.address.rsplit('.', 1)[0]}.77"
    t.client.run(f"ip address add {source}/24 dev dummy0")
    t.defer(t.client.run, f"ip address del {source}/24 dev dummy0")
    device, folder = freezable_disk(t)
    for length in (512, 8192, 65536):
        rnbd.load(t, client=False, rtrs_server="always_invalidate=Y")
        what, disk = hostile(t, guest_hostile.rewrite_by_another_path, device=device, folder=folder, length=length,
                             source=source)
        t.equal((what, disk), ("accepted", [ord("x")]), f"the second write of {length} bytes, the disk")
    early, late, disk = hostile(t, guest_hostile.add_path_beside_write, device=device, folder=folder, length=65536,
                                source=source)
    t.equal((early, late, disk), (False, True, [ord("x")]), "up before the write's end, up after it, the disk")


@case(module_sets=ONLY_OURS)
def test_rewritten_data(t: Test) -> None:
    """Data that is changed after the request does not reach the disk, however long it is."""
    device, folder = freezable_disk(t)
    submitted, changed = [ord("x")], [ord("y")]
    # Data of up to a page is copied, and the chunk stays the client's; more is taken from it.
    for length, second in ((512, "accepted"), (4096, "accepted"), (8192, "refused"),
                           (65536, "refused")):
        rnbd.load(t, client=False, rtrs_server="always_invalidate=Y")
        what, disk = hostile(t, guest_hostile.rewrite, device=device, folder=folder, length=length)
        t.equal(what, second, f"the second write of {length} bytes")
        t.equal(disk, submitted, f"the disk after {length} bytes")
    # That there is something to protect from: this setting says that clients are trusted.
    rnbd.load(t, client=False, rtrs_server="always_invalidate=N")
    what, disk = hostile(t, guest_hostile.rewrite, device=device, folder=folder, length=4096)
    t.equal((what, disk), ("accepted", changed), "the disk of a server that trusts")
