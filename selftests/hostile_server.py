# SPDX-License-Identifier: GPL-2.0
"""Servers that break the protocol, and what the client makes of it."""

from __future__ import annotations

import errno
from typing import Any

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import guest_hostile_server as hostile
from lib import guest_io
from lib import rnbd
from lib.hostile import accepted
from lib.hostile import call
from lib.hostile import DISK
from lib.hostile import KIB
from lib.hostile import ONLY_OURS
from lib.hostile import PAGE
from lib.hostile import recovers
from lib.hostile import refused
from lib.hostile import serve
from lib.hostile import still_maps

TOPOLOGY = "one"

REFUSALS = {
    # By the errno of a refusal: what the user gets.
    0: errno.ECONNRESET, errno.ENOMEM: errno.ECONNRESET, -errno.EIO: errno.EIO, -511: 511,
    # Numbers that are the kernel's own. It stops where a write to a file in sysfs ends with 529.
    -512: errno.ECONNRESET, -529: errno.ECONNRESET, -4095: errno.ECONNRESET,
    -4096: errno.ECONNRESET,
}
Faults = dict[str, tuple[dict[str, Any], str]]
CONNECTIONS: Faults = {
    # By what is wrong: the fault, log.
    "no private data": ({"data": ""}, "connection response|magic"),
    "short private data": ({"data": "bd1b0002"}, "connection response"),
    "junk": ({"data": "ff" * 56}, "magic"),
    "rejected without a message": ({"data": "", "accept": False}, "refused connection 0"),
    "magic": ({"magic": 0x1BBE}, "magic"),
    "version": ({"version": 0x0300}, "version"),
    "errno of an accept": ({"errno": -errno.ENOMEM}, "refused"),
    "queue depth 0": ({"queue_depth": 0}, "queue_depth"),
    "queue depth 1": ({"queue_depth": 1}, "queue depth"),
    "queue depth 65535": ({"queue_depth": 65535}, "chunk size"),
    "max_io_size 0": ({"max_io_size": 0}, "max_io_size"),
    "max_io_size 64": ({"max_io_size": 64}, "largest request of 64 bytes"),
    "max_io_size 1024": ({"max_io_size": 1024}, "largest request of 1024 bytes"),
    "huge max_io_size": ({"max_io_size": 0xFFFFFFFF}, "chunk size"),
    "max_hdr_size 0": ({"max_hdr_size": 0}, "max_hdr_size"),
    "huge max_hdr_size": ({"max_hdr_size": 0xFFFFFFFF}, "chunk size"),
    "magic of another connection": ({"magic": 0, "cid": 1}, "magic"),
    "errno of another connection": ({"errno": -errno.EIO, "cid": 2}, "refused"),
    "refusal of another connection": ({"errno": -529, "cid": 2, "accept": False},
                                      "refused connection 2"),
}
TOO_LARGE: Faults = {
    "max_hdr_size 16": ({"max_hdr_size": 16}, "cannot set up session"),
    "max_hdr_size 100": ({"max_hdr_size": 100}, "can't open"),
}
UNLIKE_THE_CHUNKS: Faults = {
    "queue depth 8192": ({"queue_depth": 8192, "max_io_size": 4096}, "total length of the info"),
}
HARMLESS = {
    "unknown features": {"features": 0xFFFFFFFF},
    "unknown flags": {"flags": 0xFFFFFFFF},
    "other sizes on another connection": {"cid": 1, "queue_depth": 9, "max_io_size": 8192},
}


def not_opened(t: Test, number: int, faults: Faults) -> None:
    """With each of these faults in a response to a connection request, mapping fails."""
    for what, (fault, log) in faults.items():
        call(t, hostile.misbehave, place="conn_response",
             fault="conn_raw" if "data" in fault else "conn_fields", **fault)
        refused(t, what, (number,), log)


@case(module_sets=ONLY_OURS)
def test_refusals(t: Test) -> None:
    """Whatever errno a server refuses with, the user gets one of user space."""
    serve(t)
    for number, got in REFUSALS.items():
        call(t, hostile.misbehave, place="conn_response", fault="conn_fields", errno=number,
             accept=False)
        refused(t, f"errno {number}", (got,), "refused connection 0")
    still_maps(t)


@case(module_sets=ONLY_OURS, quick=(), timeout=180)
def test_connections(t: Test) -> None:
    """Malformed responses to connection requests: the session is not opened."""
    serve(t)
    not_opened(t, errno.ECONNRESET, CONNECTIONS)
    not_opened(t, errno.EMSGSIZE, TOO_LARGE)
    not_opened(t, errno.EINVAL, UNLIKE_THE_CHUNKS)
    for what, fault in HARMLESS.items():
        call(t, hostile.misbehave, place="conn_response", fault="conn_fields", **fault)
        t.equal(accepted(t, what)["max_hw_sectors_kb"], 128, f"{what}: KiB of a request")
    still_maps(t)


@case(module_sets=ONLY_OURS, quick=())
def test_another_layout(t: Test) -> None:
    """A server that offers less when the path connects again is not used."""
    serve(t)
    call(t, hostile.fill, value=0x11)
    device = rnbd.map_device(t, DISK)
    for fields, log in (({"queue_depth": 3}, "queue depth changed from 2 to 3"),
                        ({"max_io_size": 64 * KIB}, "shrank from 131072 to 65536 bytes")):
        mark = t.client.log_mark()
        call(t, hostile.misbehave, place="conn_response", fault="conn_fields", **fields)
        call(t, hostile.drop_all)
        t.client.wait_log(log, mark)
        t.client.wait_for(f"{device.sysfs}/state", matches="closed")
        with t.expect_errno(errno.EIO):
            call(t, hostile.read, path=device.path, length=PAGE)
        t.client.wait_log("no more attempts to reconnect", mark)
        call(t, hostile.behave)
        t.client.write(f"{rnbd.client_path(t, 'sess')}/reconnect", "1")
        recovers(t, device, log)
    device.unmap()
    still_maps(t)


INFORMATION = {
    "type": "type", "no descriptors": "sg_cnt",
    "65535 descriptors": "sg_cnt", "too many chunks": "total length",
    "too few chunks": "total length", "parts of chunks": "descriptor length",
    "an empty descriptor": "descriptor length", "an address that overflows": "descriptor address",
    "no room for its descriptors": "info response", "three bytes": "info response",
}


@case(module_sets=ONLY_OURS, quick=(), timeout=180)
def test_information(t: Test) -> None:
    """Wrong information about the server's memory, or none: the session is not opened."""
    serve(t, connect_timeout_ms=int(2000 * t.client.slow))
    for what, log in INFORMATION.items():
        call(t, hostile.misbehave, place="info", fault="info", what=what)
        refused(t, what, (errno.EINVAL,), log)
    # A number of the kernel's own would stop the machine.
    for what, number in (("a refusal", errno.EACCES), ("a refusal with a number of the kernel's", errno.ECONNRESET)):
        call(t, hostile.misbehave, place="info", fault="info", what=what)
        refused(t, what, (number,), f"refused by the server: {errno.errorcode[number]}")
    # There is no room for more than one for each chunk.
    call(t, hostile.misbehave, place="info", fault="info", what="too many descriptors")
    # The debug kernel has no names of errors.
    refused(t, "too many descriptors", (errno.ECONNRESET,), r"failed: (ECONNRESET|Error\(104\))")
    for what in ("never", "no bytes"):
        if what == "never":
            call(t, hostile.misbehave, place="info", fault="nothing")
        else:
            call(t, hostile.misbehave, place="info", fault="info", what=what)
        refused(t, what, (errno.ETIMEDOUT,), "learning where the server's memory is took more")
    call(t, hostile.behave)
    call(t, hostile.misbehave, place="established", fault="early_info")
    call(t, hostile.misbehave, place="info", fault="nothing")
    accepted(t, "information before it was asked for")
    call(t, hostile.behave)
    call(t, hostile.misbehave, place="info", fault="info_twice")
    refused(t, "information twice", (errno.ECONNABORTED, errno.ECONNRESET), "connection 0")
    call(t, hostile.misbehave, place="info", fault="info_immediate")
    refused(t, "a heartbeat instead of information", (errno.ETIMEDOUT,), "took more")
    still_maps(t)


LARGEST = (1 << 63) // 512 - 1
DISKS = {
    # By what is wrong: the fields of the response, log.
    "type": ({"kind": 1}, "type"),
    "logical blocks of 0": ({"logical_block_size": 0}, "logical block size"),
    "logical blocks of 3": ({"logical_block_size": 3}, "logical block size"),
    "logical blocks of 256": ({"logical_block_size": 256}, "logical block size"),
    "logical blocks of 1536": ({"logical_block_size": 1536}, "logical block size"),
    "one sector too many": ({"nsectors": LARGEST + 1}, "size of the open response"),
    "2^55 sectors": ({"nsectors": 1 << 55}, "size of the open response"),
    "2^64 - 1 sectors": ({"nsectors": (1 << 64) - 1}, "size of the open response"),
}
ODD_DISKS = {
    # By what is odd: the fields of the response, limits of the queue.
    "no sectors": ({"nsectors": 0}, {"size": 0}),
    "the most sectors": ({"nsectors": LARGEST}, {"size": LARGEST * 512}),
    "half a logical block": ({"nsectors": 4, "logical_block_size": 4096}, {"size": 2048}),
    "logical blocks of 32 KiB": ({"logical_block_size": 1 << 15},
                                 {"logical_block_size": 1 << 15, "physical_block_size": 1 << 15}),
    "smaller physical blocks": ({"logical_block_size": 4096, "physical_block_size": 512},
                                {"physical_block_size": 4096}),
    "physical blocks of 0": ({"physical_block_size": 0}, {"physical_block_size": 512}),
    "physical blocks of 1000": ({"physical_block_size": 1000}, {"physical_block_size": 512}),
    "no segments": ({"max_segments": 0}, {"max_hw_sectors_kb": 128}),
    "requests of no sectors": ({"max_hw_sectors": 0}, {"max_hw_sectors_kb": 128}),
}


@case(module_sets=ONLY_OURS, quick=(), timeout=180)
def test_disks(t: Test) -> None:
    """Wrong responses of the block driver: an errno, or a disk that can be used."""
    serve(t)
    for what, (fields, log) in DISKS.items():
        call(t, hostile.misbehave, place="opened", fault="open_fields", **fields)
        refused(t, what, (errno.EINVAL,), log)
    call(t, hostile.misbehave, place="opened", fault="open_short", length=20)
    refused(t, "short answer", (errno.EINVAL,), "logical block size")
    call(t, hostile.behave)
    for number in (errno.ENOENT, errno.EBUSY, 511):
        call(t, hostile.misbehave, place="control", fault="reply", number=number, times=1)
        refused(t, f"errno {number}", (number,), f"err: -{number}")
    for what, arguments, log in (("type of the session's answer", {"kind": 3}, "type"),
                                 ("no answer of the session", {"kind": 0, "version": 0}, "type")):
        call(t, hostile.misbehave, place="session_info", fault="info_version", **arguments)
        refused(t, what, (errno.EINVAL,), log)
    call(t, hostile.behave)
    call(t, hostile.misbehave, place="control", fault="on_another", cid=1)
    refused(t, "answer on another connection", (errno.ECONNABORTED,),
            "response to a request of another")
    call(t, hostile.behave)
    for version in (0, 1, 255):
        call(t, hostile.misbehave, place="session_info", fault="info_version", version=version)
        accepted(t, f"version {version}")
    call(t, hostile.behave)
    for what, (fields, limits) in ODD_DISKS.items():
        if fields.get("logical_block_size", 0) > PAGE and not disks.can_exceed_page(t.client):
            t.say(f"this kernel has no {what}")
            continue
        call(t, hostile.misbehave, place="opened", fault="open_fields", **fields)
        got = accepted(t, what)
        t.equal({name: got[name] for name in limits}, limits, what)
    still_maps(t)


@case(module_sets=ONLY_OURS, quick=())
def test_odd_discards(t: Test) -> None:
    """Limits of discards that make no sense stop nobody."""
    serve(t)
    for fields in ({"max_discard_sectors": 1, "discard_granularity": 3},
                   {"max_discard_sectors": 0xFFFFFFFF, "discard_granularity": 0xFFFFFFFF},
                   {"max_discard_sectors": 7, "discard_granularity": 1 << 31}):
        call(t, hostile.misbehave, place="opened", fault="open_fields", logical_block_size=4096,
             discard_alignment=0xFFFFFFFF, secure_discard=1, max_write_zeroes_sectors=1, **fields)
        device = rnbd.map_device(t, DISK, keep=True)
        for operation in (guest_io.discard, guest_io.secure_erase, guest_io.zero_out):
            try:
                t.client.call(operation, path=device.path, offset=0, length=64 * KIB)
            except OSError as error:
                t.check(error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.EIO),
                        f"{operation.__name__}: {error}")
        device.unmap()
    still_maps(t)


@case(module_sets=ONLY_OURS, quick=())
def test_names(t: Test) -> None:
    """A name of a disk that leads elsewhere is refused; what only lies behind a response is no name."""
    serve(t)

    def shown(name: str) -> str | None:
        call(t, hostile.misbehave, place="opened", fault="named", name=name)
        device = rnbd.map_device(t, DISK, keep=True)
        file = f"/sys/block/{device.name}/wwid"
        text = t.client.read(file) if t.client.exists(file) else None
        device.unmap()
        return text

    # As a C server's chunk may have it.
    t.equal(shown("naa.5000"), None, "name of a disk without the extension")
    call(t, hostile.misbehave, place="session_info", fault="extension")
    for name in ("../../shadow", "naa.50\n00", 'x" RUN', "naa.5\0000", "é"):
        call(t, hostile.misbehave, place="opened", fault="named", name=name)
        refused(t, f"name {name!r}", (errno.EINVAL,), "character in the disk's wwid")
    for name in ("naa.5000", "x" * 64, "odd:name+1_2"):
        t.equal(shown(name), name, "name")
    call(t, hostile.behave)
    still_maps(t)
