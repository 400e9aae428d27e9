# SPDX-License-Identifier: GPL-2.0
"""A hostile server answers requests wrongly, early, twice, or not at all."""

from __future__ import annotations

import errno
import time
from typing import Any

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import guest_hostile_server as hostile
from lib import rnbd
from lib.hostile import call
from lib.hostile import DISK
from lib.hostile import ENDS_PATHS
from lib.hostile import ends_the_path
from lib.hostile import ignored
from lib.hostile import in_background
from lib.hostile import killed
from lib.hostile import LONG
from lib.hostile import map_in_background
from lib.hostile import ONLY_OURS
from lib.hostile import OPEN
from lib.hostile import PAGE
from lib.hostile import path_state
from lib.hostile import RECONNECT
from lib.hostile import recovers
from lib.hostile import SEND
from lib.hostile import SEND_WITH_IMM
from lib.hostile import serve
from lib.hostile import SESS_INFO
from lib.hostile import still_maps

TOPOLOGY = "one"


@case(module_sets=ONLY_OURS, quick=(), timeout=180)
def test_odd_answers(t: Test) -> None:
    """Responses that nobody asked for are ignored."""
    serve(t, queue_depth=4)
    call(t, hostile.fill, value=0x11)
    device = rnbd.map_device(t, DISK)
    # In this order, as the log is told of the first ten of a kind only, and the second response must
    # have come before its tag is used again.
    for length in (PAGE, LONG):
        call(t, hostile.misbehave, place="io", fault="twice", times=1)
        ignored(t, device, "a second answer", "response to request [0-9], which is not in flight",
                length)
    for length, logged in ((PAGE, True), (LONG, False)):
        for what, chunk in (("beyond the queue depth", 0x7FFFF), ("one beyond", 4),
                            ("the tag of service requests", 3)):
            call(t, hostile.misbehave, place="io", fault="first_immediates", kinds=[1, 2],
                 about=chunk)
            ignored(t, device, what,
                    f"response to request {chunk}, which is not in flight" if logged else "", length)
        call(t, hostile.misbehave, place="io", fault="first_immediates",
             kinds=[0, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15], about=1)
        ignored(t, device, "unknown immediates", "unknown immediate" if logged else "", length)
    device.unmap()
    still_maps(t)


@case(module_sets=ONLY_OURS, quick=(), timeout=180)
def test_wrong_answers(t: Test) -> None:
    """Responses that are wrong in themselves end the path; requests fail, and it comes back."""
    serve(t, queue_depth=4, features=3)
    device = rnbd.map_device(t, DISK)
    joint = 3 << 28
    for length, log in ((PAGE, "response to a request of another"), (LONG, "")):
        for cid, what in ((1, "another connection"), (0, "the service connection")):
            call(t, hostile.misbehave, place="io", fault="on_another", times=1, cid=cid)
            ends_the_path(t, device, f"answer on {what}", log, length)
    for what, fault, log in (
            ("message without an immediate", {"opcode": SEND}, "unknown message"),
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
                                         "imm": joint | 2}, "malformed responses"),
            ("more answers than said", {"opcode": SEND_WITH_IMM, "data": "00000100",
                                        "imm": joint | 1}, "malformed responses"),
            ("too many answers", {"opcode": SEND_WITH_IMM, "data": "ff" * 128,
                                  "imm": joint | 65}, "malformed responses")):
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
    ends_the_path(t, device, "answers that were not agreed on", "malformed responses")
    device.unmap()


@case(module_sets=ONLY_OURS, quick=())
def test_errnos(t: Test) -> None:
    """Any errno of a response fails the request, and so does not a lack of data."""
    serve(t, features=0)
    device = rnbd.map_device(t, DISK)
    for length, step in ((PAGE, 1), (LONG, 15)):
        results = call(t, hostile.errnos, path=device.path, length=length, step=step)
        t.check("0" not in results, f"{length} bytes: errnos {results.get('0')} were success")
        # By these the layers above a disk repeat a request, which is not for a server to say.
        for number in (errno.EAGAIN, errno.EREMCHG):
            t.check(str(number) not in results, f"a read ended with {errno.errorcode[number]}")
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
def test_addresses(t: Test) -> None:
    """The client does not tell where its memory is: reads name places in its registrations."""
    serve(t)
    device = rnbd.map_device(t, DISK)
    call(t, hostile.fill, value=0x22)
    for length in (PAGE, LONG):
        t.equal(call(t, hostile.read, path=device.path, length=length), [0x22], f"a read of {length} bytes")
    targets = t.server.call(hostile.targets)
    t.check(len(targets) >= 2 and max(targets) < 256 << 20, f"reads named {[hex(target) for target in targets]}")
    device.unmap()


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
    ends_the_path(t, device, "silence", "does not respond to heartbeats")
    # More than a slow machine takes in at once would cost the server its path.
    call(t, hostile.misbehave, place="heartbeat", fault="flood", times=1, number=62 if t.debug else 1000)
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
    t.client.wait_log("does not respond to heartbeats", mark, timeout=30)
    recovers(t, device, "silence")


@case(module_sets=ONLY_OURS)
def test_no_answer(t: Test) -> None:
    """Whoever waits for a server that answers nothing but heartbeats gets out by its path."""
    serve(t)
    call(t, hostile.misbehave, place="control", fault="never_open")
    mapping = map_in_background(t, DISK)
    call(t, hostile.wait_for, what="request", cid_or_message=OPEN)
    mapping.wait_in_kernel()
    t.check(not mapping.job.done(), "mapping does not wait for the answer")
    t.client.write(f"{rnbd.client_path(t, 'sess')}/disconnect", "1")
    result = mapping.job.wait()
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
    t.check(remapping.job.wait().rc != 0, "opening a device again that was unmapped succeeded")

    call(t, hostile.behave)
    device = rnbd.map_device(t, DISK)
    call(t, hostile.misbehave, place="control", fault="never_open")
    first = map_in_background(t, "/dev/first")
    call(t, hostile.wait_for, what="request", cid_or_message=OPEN, count=5)
    second = map_in_background(t, "/dev/second")
    unmapping = in_background(t, f"echo normal > {device.sysfs}/unmap_device")
    t.client.wait_for(device.path, gone=True)
    killed(t, first, "mapping another device")
    killed(t, unmapping, "unmapping")
    t.check(not second.job.done(), "mapping does not wait for the answer to who was killed")
    call(t, hostile.behave)
    call(t, hostile.answer_late)
    result = second.job.wait()
    t.equal(result.rc, 0, f"mapping after it: {result.err}")
    names = t.client.listdir(rnbd.CLIENT_DEVICES)
    t.equal(len(names), 1, f"mappings: {names}")
    t.client.write(f"{rnbd.CLIENT_DEVICES}/{names[0]}/rnbd/unmap_device", "normal")
    t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), [], "sessions at the end")
    still_maps(t)


@case(module_sets=ONLY_OURS)
def test_end_of_path_not_confirmed(t: Test) -> None:
    """A server that does not answer whether a path has ended is asked again; the path's request has to wait until the
    server has answered, and not longer."""
    another = "10.77.0.9"
    t.client.run(f"ip addr add {another}/24 dev dummy0")
    t.defer(t.client.run, f"ip addr del {another}/24 dev dummy0")
    serve(t, queue_depth=4, features=ENDS_PATHS)
    device = rnbd.map_device(t, DISK, paths=[f"ip:{t.server.address}", f"ip:{another}@ip:{t.server.address}"])
    call(t, hostile.fill, value=0x33)
    call(t, hostile.misbehave, place="io", fault="lose_path", times=1)
    call(t, hostile.misbehave, place="path_end", fault="nothing", times=1)
    # A client that asks only once waits until the second path is lost, too.
    t.equal(call(t, hostile.read, path=device.path, length=PAGE), [0x33], "a read whose path was lost")
    path, chunks, questions = call(t, hostile.copies)
    t.check(questions[0] == 0 and questions[1] >= 2,
            f"before each copy of the request came {questions} questions for the end of path {path}")
    t.equal(len(set(chunks)), 1, f"chunks of both copies: {chunks}")
    for number in (0, 1):
        t.client.wait_for(f"{rnbd.client_path(t, 'sess', number)}/state", matches="^connected", timeout=30)
    device.unmap()
    still_maps(t)
