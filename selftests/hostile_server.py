# SPDX-License-Identifier: GPL-2.0
"""Servers that break the protocol, and what the client makes of it."""

from __future__ import annotations

import errno
import re
import signal
import time
from collections.abc import Callable
from collections.abc import Iterable
from typing import Any
from typing import ParamSpec
from typing import TypeVar

from lab.selftest_case import case
from lab.selftest_case import Test
from lab.vm_node import Job
from lib import disks
from lib import guest_hostile_server as hostile
from lib import guest_io
from lib import rnbd
from lib.rnbd import Device

TOPOLOGY = "one"

ONLY_OURS = ("ours",)
DISK = "/dev/hostile"
PATHS = f"{rnbd.CLIENT_SESSIONS}/sess/paths"
KIB = 1 << 10
LONG = 64 * KIB  # such a read is registered for itself
PAGE = 4 * KIB  # such a one goes through the page of its tag
RECONNECT = "reconnect_delay_ms=100"
P = ParamSpec("P")
R = TypeVar("R")
# The numbers of the messages that say hello, and that open a device.
SESS_INFO, OPEN = 0, 2
# The numbers of libibverbs.
SEND, SEND_WITH_IMM = 2, 3


def serve(t: Test, *, connect_timeout_ms: int = 0, rtrs_client: str = RECONNECT,
          **settings: Any) -> None:
    """Have a server in user space, and the client's modules."""
    rnbd.load(t, server=False, rtrs_client=rtrs_client, connect_timeout_ms=connect_timeout_ms)
    t.server.run("modprobe rdma_ucm")
    call(t, hostile.start, **settings)
    t.defer(call, t, hostile.stop)


def call(t: Test, function: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
    """Call a function of guest_hostile_server.py."""
    return t.server.call_within(60, function, *arguments, **named)


def refused(t: Test, what: str, numbers: Iterable[int], log: str) -> None:
    """Mapping must fail with one of these errnos, say why, and leave nothing."""
    mark = t.client.log_mark()
    try:
        with t.expect_errno(*numbers):
            rnbd.map_device(t, DISK, keep=True)
    except AssertionError as error:
        for name in t.client.listdir(rnbd.CLIENT_DEVICES):
            t.client.write(f"{rnbd.CLIENT_DEVICES}/{name}/rnbd/unmap_device", "force")
        raise AssertionError(f"{what}: {error}") from None
    said = t.client.log_since(mark)
    t.check(any(re.search(log, line) for line in said), f"{what}: {log!r} does not match {said}")
    t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), [], f"{what}: sessions afterwards")
    t.equal(t.client.listdir(rnbd.CLIENT_DEVICES), [], f"{what}: mappings afterwards")


def accepted(t: Test, what: str) -> dict[str, int]:
    """Mapping must do, and the disk be readable; returns what the queue's limits are."""
    try:
        device = rnbd.map_device(t, DISK, keep=True)
    except OSError as error:
        raise AssertionError(f"{what}: {error}") from None
    names = ("logical_block_size", "physical_block_size", "max_hw_sectors_kb")
    limits = {name: int(device.queue(name)) for name in names}
    limits["size"] = device.size()
    device.unmap()
    t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True)
    return limits


def map_in_background(t: Test, path: str) -> Job:
    """Map a device of session "sess", by a program that may be killed."""
    text = rnbd.map_text(session="sess", device_path=path, paths=[f"ip:{t.server.address}"])
    return in_background(t, f"echo '{text}' > {rnbd.MAP_DEVICE}")


def in_background(t: Test, command: str) -> Job:
    """Start a shell's command, which may be killed."""
    started = "/tmp/started"
    t.client.run(["rm", "-f", started])
    job = t.client.start_job(f"echo > {started}; {command}")
    # A signal would be lost before.
    t.client.wait_for(started)
    return job


def killed(t: Test, job: Job, what: str) -> None:
    """A program that waits for the server ends when it is killed."""
    t.check(not job.done(), f"{what} does not wait for the answer")
    job.kill()
    t.equal(job.wait(30).rc, -signal.SIGKILL, f"{what}: how it ended")


def still_maps(t: Test) -> None:
    """With a server that keeps to the protocol everything works."""
    call(t, hostile.behave)
    call(t, hostile.fill, value=0x11)
    device = rnbd.map_device(t, DISK)
    for length in (PAGE, LONG):
        t.equal(call(t, hostile.read, path=device.path, length=length), [0x11], f"{length} bytes")
    device.unmap()


def path_state(t: Test) -> str:
    """The state of the only path."""
    return t.client.read(f"{rnbd.client_path(t, 'sess')}/state")


def ignored(t: Test, device: Device, what: str, log: str, length: int = PAGE) -> None:
    """A read, whose answer is wrong, is answered all the same, and the path stays."""
    mark = t.client.log_mark()
    reconnects = t.client.read(f"{rnbd.client_path(t, 'sess')}/stats/reconnects")
    t.equal(call(t, hostile.read, path=device.path, length=length), [0x11], what)
    if log:
        t.client.wait_log(log, mark)
    call(t, hostile.behave)
    t.equal(call(t, hostile.read, path=device.path, length=length), [0x11], f"after {what}")
    t.equal(path_state(t), "connected", f"path after {what}")
    t.equal(t.client.read(f"{rnbd.client_path(t, 'sess')}/stats/reconnects"), reconnects,
            f"reconnects after {what}")


def ends_the_path(t: Test, device: Device, what: str, log: str, length: int = PAGE,
                  function: Callable[[str, int], object] = hostile.read) -> None:
    """A read, whose answer is wrong, fails as its path does, which connects again. ``log`` is not
    waited for if it is empty: of one kind of line the first ten of some seconds are logged."""
    mark = t.client.log_mark()
    with t.expect_errno(errno.EIO):
        call(t, function, device.path, length)
        raise AssertionError(f"{what}: the read was answered")
    if log:
        t.client.wait_log(log, mark)
    recovers(t, device, what)


def recovers(t: Test, device: Device, what: str) -> None:
    """The server behaves again, and the device comes back by itself."""
    call(t, hostile.behave)
    t.client.wait_for(f"{rnbd.client_path(t, 'sess')}/state", matches="^connected", timeout=30)
    t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=30)
    call(t, hostile.fill, value=0x11)
    t.equal(call(t, hostile.read, path=device.path, length=PAGE), [0x11], f"read after {what}")


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
    """Wrong answers to connection requests: the session is not opened."""
    serve(t)
    for number, faults in ((errno.ECONNRESET, CONNECTIONS), (errno.EMSGSIZE, TOO_LARGE),
                           (errno.EINVAL, UNLIKE_THE_CHUNKS)):
        for what, (fault, log) in faults.items():
            call(t, hostile.misbehave, place="conn_response",
                 fault="conn_raw" if "data" in fault else "conn_fields", **fault)
            refused(t, what, (number,), log)
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
    # There is no room for more than one for each chunk.
    call(t, hostile.misbehave, place="info", fault="info", what="too many descriptors")
    refused(t, "too many descriptors", (errno.ECONNRESET,), "failed: ECONNRESET")
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
    # By what is wrong: the fields of the answer, log.
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
    # By what is odd: the fields of the answer, limits of the queue.
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
    """Wrong answers of the block driver: an errno, or a disk that can be used."""
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
            "answer to a request of another")
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


@case(module_sets=ONLY_OURS, quick=(), timeout=180)
def test_odd_answers(t: Test) -> None:
    """Answers that nobody asked for are ignored."""
    serve(t, queue_depth=4)
    call(t, hostile.fill, value=0x11)
    device = rnbd.map_device(t, DISK)
    # In this order, as the log is told of the first ten of a kind only, and the second answer must
    # have come before its tag is used again.
    for length in (PAGE, LONG):
        call(t, hostile.misbehave, place="io", fault="twice", times=1)
        ignored(t, device, "a second answer", "answer to request [0-9], which is not in flight",
                length)
    for length, logged in ((PAGE, True), (LONG, False)):
        for what, chunk in (("beyond the queue depth", 0x7FFFF), ("one beyond", 4),
                            ("the tag of service requests", 3)):
            call(t, hostile.misbehave, place="io", fault="first_immediates", kinds=[1, 2],
                 about=chunk)
            ignored(t, device, what,
                    f"answer to request {chunk}, which is not in flight" if logged else "", length)
        call(t, hostile.misbehave, place="io", fault="first_immediates",
             kinds=[0, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15], about=1)
        ignored(t, device, "unknown immediates", "unknown immediate" if logged else "", length)
    device.unmap()
    still_maps(t)


@case(module_sets=ONLY_OURS, quick=(), timeout=180)
def test_wrong_answers(t: Test) -> None:
    """Answers that are wrong in themselves end the path; requests fail, and it comes back."""
    serve(t, queue_depth=4, features=3)
    device = rnbd.map_device(t, DISK)
    joint = 3 << 28
    for length, log in ((PAGE, "answer to a request of another"), (LONG, "")):
        for cid, what in ((1, "another connection"), (0, "the service connection")):
            call(t, hostile.misbehave, place="io", fault="on_another", times=1, cid=cid)
            ends_the_path(t, device, f"answer on {what}", log, length)
    for what, fault, log in (
            ("message without an immediate", {"opcode": SEND}, "without a meaning"),
            ("bytes without an immediate", {"opcode": SEND, "data": "01020304"}, ""),
            ("message that is too long", {"opcode": SEND, "data": "00" * 200}, "connection"),
            ("key of no chunk", {"opcode": SEND_WITH_IMM, "data": "0400ffff00000000",
                                 "imm": 1 << 28}, "malformed key"),
            ("key of another chunk", {"opcode": SEND_WITH_IMM, "data": "0400010000000000",
                                      "imm": 1 << 28}, ""),
            ("three bytes of a key", {"opcode": SEND_WITH_IMM, "data": "040000", "imm": 1 << 28},
             ""),
            ("heartbeat with a key", {"opcode": SEND_WITH_IMM, "data": "0400000000000000",
                                      "imm": 8 << 28}, "malformed key"),
            ("fewer answers than said", {"opcode": SEND_WITH_IMM, "data": "0000",
                                         "imm": joint | 2}, "malformed answers"),
            ("more answers than said", {"opcode": SEND_WITH_IMM, "data": "00000100",
                                        "imm": joint | 1}, "malformed answers"),
            ("too many answers", {"opcode": SEND_WITH_IMM, "data": "ff" * 128,
                                  "imm": joint | 65}, "malformed answers")):
        call(t, hostile.misbehave, place="io", fault="message", times=1, **fault)
        ends_the_path(t, device, what, log)
    call(t, hostile.misbehave, place="io", fault="wrong_place", times=1)
    ends_the_path(t, device, "data beside the memory", "connection [0-9]", LONG)
    device.unmap()
    still_maps(t)
    # Whoever was not offered them sends none.
    call(t, hostile.stop)
    serve(t, features=0)
    device = rnbd.map_device(t, DISK)
    call(t, hostile.misbehave, place="io", fault="message", times=1, opcode=SEND_WITH_IMM,
         imm=joint)
    ends_the_path(t, device, "answers that were not agreed on", "malformed answers")
    device.unmap()


@case(module_sets=ONLY_OURS, quick=())
def test_errnos(t: Test) -> None:
    """Any errno of an answer fails the request, and so does not a lack of data."""
    serve(t, features=0)
    device = rnbd.map_device(t, DISK)
    for length, step in ((PAGE, 1), (LONG, 15)):
        results = call(t, hostile.errnos, path=device.path, length=length, step=step)
        t.check("0" not in results, f"{length} bytes: errnos {results.get('0')} were success")
        t.equal(path_state(t), "connected", "path after errnos")
    # The protocol does not say how much came. What did not come is what was in the tag's page,
    # which the server has sent before, or what was in the memory.
    call(t, hostile.fill, value=0x11)
    t.equal(call(t, hostile.read, path=device.path, length=PAGE), [0x11], "a page")
    call(t, hostile.misbehave, place="io", fault="fewer_bytes", length=512)
    t.equal(call(t, hostile.read, path=device.path, length=PAGE), [0x11, 0x55], "part of a page")
    t.equal(call(t, hostile.read, path=device.path, length=LONG), [0x55, 0xAA], "part of more")
    device.unmap()
    still_maps(t)


@case(module_sets=ONLY_OURS, timeout=180)
def test_keys(t: Test) -> None:
    """When a long read is over, its memory is out of the server's reach whatever it says."""
    serve(t, features=0)
    device = rnbd.map_device(t, DISK)
    call(t, hostile.read, path=device.path, length=PAGE)
    faults: tuple[tuple[str, dict[str, Any]], ...] = (
        ("invalidated", {"fault": "key_claims", "invalidate": True, "claim": True}),
        ("only said so", {"fault": "key_claims", "invalidate": False, "claim": True}),
        ("did not say so", {"fault": "key_claims", "invalidate": True, "claim": False}),
        ("did neither", {"fault": "key_claims", "invalidate": False, "claim": False}),
        ("invalidated another", {"fault": "key_of_another"}),
        ("invalidated elsewhere", {"fault": "key_elsewhere"}))
    for what, fault in faults:
        call(t, hostile.misbehave, place="io", times=1, **fault)
        result, changed = call(t, hostile.overwrite, path=device.path, length=LONG)
        t.equal((result, changed), ("refused", False), f"server that {what}: write, changed")
        recovers(t, device, f"server that {what}")
    call(t, hostile.misbehave, place="io", fault="key_of_another", times=1, key=0x12345678)
    ends_the_path(t, device, "invalidation of an unknown key", "connection", LONG)
    # A region has 256 keys in turn.
    written, same = call(t, hostile.repeated_key, path=device.path, length=2 * PAGE)
    t.equal((written, same), ("refused", True), "key of a region's last round: write, same key")
    recovers(t, device, "a key of a region's last round")
    # As long as a path stands, the pages of its tags are the server's to write to; not more.
    for length in (512, PAGE):
        result, changed = call(t, hostile.overwrite, path=device.path, length=length)
        t.equal((result, changed), ("accepted", False), f"{length} bytes: write, changed")
    t.equal(path_state(t), "connected", "path after writes to the pages of tags")
    device.unmap()
    still_maps(t)


@case(module_sets=ONLY_OURS)
def test_early_answers(t: Test) -> None:
    """A server that answers requests before it has them gets no say in when their memory is free: a
    registration that is invalidated before it is made would stay."""
    serve(t)
    device = rnbd.map_device(t, DISK)
    reconnects = f"{rnbd.client_path(t, 'sess')}/stats/reconnects"
    before = t.client.read(reconnects)
    call(t, hostile.answer_early, path=device.path, length=LONG, times=t.scaled(100))
    t.equal(t.client.read(reconnects), before, "reconnects")
    try:
        call(t, hostile.answer_early, path=device.path, length=PAGE, times=t.scaled(100))
    except OSError as error:
        # On a busy machine it answers faster than the client's device sends; when the send queue is
        # full the path ends.
        t.equal(error.errno, errno.EIO, "errno of a read")
        recovers(t, device, "a full send queue")
    t.equal(path_state(t), "connected", "path afterwards")
    result, changed = call(t, hostile.overwrite, path=device.path, length=LONG)
    t.equal((result, changed), ("refused", False), "write to what was read, changed")
    recovers(t, device, "a write that was refused")
    device.unmap()
    still_maps(t)


@case(module_sets=ONLY_OURS, quick=(), timeout=180)
def test_absence(t: Test) -> None:
    """A server that goes or is silent fails requests, or has them wait if that was asked for."""
    serve(t, rtrs_client=f"{RECONNECT} hb_interval_ms={int(300 * t.client.slow)} hb_missed_max=3")
    device = rnbd.map_device(t, DISK)
    for length in (PAGE, LONG):
        call(t, hostile.misbehave, place="io", fault="drop", times=1)
        ends_the_path(t, device, "disconnecting", "disconnected", length)
    t.client.write(f"{rnbd.CLIENT_SESSIONS}/sess/hold_io_ms", "60000")
    call(t, hostile.fill, value=0x22)
    call(t, hostile.misbehave, place="io", fault="drop", times=1)
    t.equal(call(t, hostile.read, path=device.path, length=LONG), [0x22], "a read that waits")
    t.client.write(f"{rnbd.CLIENT_SESSIONS}/sess/hold_io_ms", "0")
    # Nothing that comes is answered, though the machine is there.
    for place in ("io", "heartbeat"):
        call(t, hostile.misbehave, place=place, fault="nothing")
    ends_the_path(t, device, "silence", "does not answer heartbeats")
    # More than a slow machine takes in at once would cost the server its path.
    call(t, hostile.misbehave, place="heartbeat", fault="flood", times=1, number=t.scaled(1000))
    had = call(t, hostile.count, what="heartbeat", cid_or_message=0)
    call(t, hostile.wait_for, what="heartbeat", cid_or_message=0, count=had + 2)
    recovers(t, device, "a flood of heartbeats")
    device.unmap()
    still_maps(t)


@case(module_sets=ONLY_OURS, timeout=120)
def test_answers_count(t: Test) -> None:
    """A server that answers requests is there, whatever it makes of heartbeats, until it is silent."""
    interval = 0.3 * t.client.slow
    serve(t, rtrs_client=f"{RECONNECT} hb_interval_ms={int(interval * 1000)} hb_missed_max=3")
    device = rnbd.map_device(t, DISK)
    reconnects = f"{rnbd.client_path(t, 'sess')}/stats/reconnects"
    before = t.client.read(reconnects)
    call(t, hostile.misbehave, place="heartbeat", fault="nothing")
    mark = t.client.log_mark()
    started = time.monotonic()
    while time.monotonic() - started < 10 * interval:
        call(t, hostile.read, path=device.path, length=PAGE)
    t.equal(path_state(t), "connected", "path under requests")
    t.equal(t.client.read(reconnects), before, "reconnects under requests")
    t.client.wait_log("does not answer heartbeats", mark, timeout=30)
    recovers(t, device, "silence")


@case(module_sets=ONLY_OURS)
def test_no_answer(t: Test) -> None:
    """Whoever waits for a server that answers nothing but heartbeats gets out by its path."""
    serve(t)
    call(t, hostile.misbehave, place="control", fault="never_open")
    job = map_in_background(t, DISK)
    call(t, hostile.wait_for, what="request", cid_or_message=OPEN)
    t.check(not job.done(), "mapping does not wait for the answer")
    t.client.write(f"{rnbd.client_path(t, 'sess')}/disconnect", "1")
    result = job.wait()
    t.check(result.rc != 0 and "abort" in result.err, f"mapping: {result.rc}, {result.err}")
    t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), [], "sessions afterwards")
    still_maps(t)


@case(module_sets=ONLY_OURS)
def test_killed(t: Test) -> None:
    """Whoever waits for a server that answers nothing but heartbeats can be killed; what it asked for
    ends as if it had not been, and whoever comes next has to wait for that."""
    serve(t)
    call(t, hostile.misbehave, place="control", fault="never_open")
    job = map_in_background(t, DISK)
    call(t, hostile.wait_for, what="request", cid_or_message=OPEN)
    killed(t, job, "mapping the first device")
    t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), [], "sessions afterwards")

    call(t, hostile.misbehave, place="control", fault="nothing")
    first = map_in_background(t, DISK)
    call(t, hostile.wait_for, what="request", cid_or_message=SESS_INFO, count=2)
    second = map_in_background(t, "/dev/second")
    killed(t, second, "mapping with a session that is being opened")
    killed(t, first, "opening the session")
    t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), [], "sessions after the second")

    call(t, hostile.behave)
    device = rnbd.map_device(t, DISK, keep=True)
    call(t, hostile.misbehave, place="control", fault="never_open")
    call(t, hostile.drop_all)
    call(t, hostile.wait_for, what="request", cid_or_message=OPEN, count=3)
    remapping = in_background(t, f"echo 1 > {device.sysfs}/remap_device")
    unmapping = in_background(t, f"echo normal > {device.sysfs}/unmap_device")
    t.client.wait_for(device.path, gone=True)
    killed(t, unmapping, "unmapping a device that is being opened again")
    t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True)
    t.check(remapping.wait().rc != 0, "opening a device again that was unmapped succeeded")

    call(t, hostile.behave)
    device = rnbd.map_device(t, DISK)
    call(t, hostile.misbehave, place="control", fault="never_open")
    first = map_in_background(t, "/dev/first")
    call(t, hostile.wait_for, what="request", cid_or_message=OPEN, count=5)
    second = map_in_background(t, "/dev/second")
    unmapping = t.client.start_job(f"echo normal > {device.sysfs}/unmap_device")
    t.client.wait_for(device.path, gone=True)
    killed(t, first, "mapping another device")
    killed(t, unmapping, "unmapping")
    t.check(not second.done(), "mapping does not wait for the answer to who was killed")
    call(t, hostile.behave)
    call(t, hostile.answer_late)
    result = second.wait()
    t.equal(result.rc, 0, f"mapping after it: {result.err}")
    names = t.client.listdir(rnbd.CLIENT_DEVICES)
    t.equal(len(names), 1, f"mappings: {names}")
    t.client.write(f"{rnbd.CLIENT_DEVICES}/{names[0]}/rnbd/unmap_device", "normal")
    t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), [], "sessions at the end")
    still_maps(t)
