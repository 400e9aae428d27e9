# SPDX-License-Identifier: GPL-2.0
"""Tracepoints: the events of the C modules, at the places where these have them."""

from __future__ import annotations

import os
import re

from lab.selftest_case import case
from lab.selftest_case import EVERYWHERE
from lab.selftest_case import KERNELS
from lab.selftest_case import search
from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import rnbd

TOPOLOGY = "one"
TRACING = "/sys/kernel/tracing"
PATH_FIELDS = ["state", "reconnect_attempts", "max_reconnect_attempts", "fail_cnt", "success_cnt",
               "sessname"]
# Of each system the events, and of each event the fields of the C modules.
EVENTS = {
    "rtrs_clt": {
        "rtrs_clt_close_conns": PATH_FIELDS, "rtrs_clt_reconnect_work": PATH_FIELDS,
        "rtrs_rdma_error_recovery": PATH_FIELDS,
    },
    "rtrs_srv": {
        "send_io_resp_imm": ["dir", "need_inval", "always_invalidate", "msg_id", "wr_cnt",
                             "signal_interval", "state", "errno", "sessname"],
    },
    "rnbd_srv": {
        "create_sess": ["qdepth", "sessname"], "destroy_sess": ["qdepth", "sessname"],
        "process_msg_close": ["device_id", "sessname"],
        "process_msg_open": ["access_mode", "sessname", "dev_name"],
        "process_msg_sess_info": ["proto_ver", "clt_ver", "srv_ver", "sessname"],
        "process_rdma": ["sessname", "dir", "ver", "device_id", "sector", "flags", "bi_size",
                         "ioprio", "datalen", "usrlen"],
    },
}
# Those that only ours have, after them.
OWN_FIELDS = {"rtrs_clt": ["session"], "rtrs_srv": ["session"], "rnbd_srv": []}
# Of what the message of a request asks for.
WRITE_ZEROES, NOUNMAP = 5, 1 << 11


def listen(t: Test, *systems: str) -> None:
    """Trace all events of these systems from here on."""
    t.client.run(f"echo >{TRACING}/trace")
    for system in systems:
        t.client.write(f"{TRACING}/events/{system}/enable", "1")
        t.defer(t.client.write, f"{TRACING}/events/{system}/enable", "0")


def told(t: Test, event: str) -> list[str]:
    """What the trace has of an event."""
    lines = t.client.read(f"{TRACING}/trace").splitlines()
    return [line.split(f" {event}: ", 1)[1] for line in lines if f" {event}: " in line]


def wait_told(t: Test, event: str, pattern: str) -> None:
    """Wait for an event whose text matches."""
    t.client.wait_for(f"{TRACING}/trace", matches=rf"(?m) {event}: .*{pattern}")


def matches(t: Test, event: str, pattern: str) -> None:
    """Some event's text must match."""
    texts = told(t, event)
    t.check(any(re.search(pattern, text) for text in texts),
            f"{event}: nothing matches {pattern!r} in {texts[:10]}")


def fields(t: Test, system: str, event: str) -> list[str]:
    """The names of an event's own fields."""
    text = t.client.read(f"{TRACING}/events/{system}/{event}/format")
    names = re.findall(r"^\tfield:[^;]*?(\w+)(?:\[\w*\])?;", text, re.MULTILINE)
    return [name for name in names if not name.startswith("common_")]


@case()
def test_events_exist(t: Test) -> None:
    """Every system has its events with C's fields; with the modules they go."""
    rnbd.load(t)
    for system, events in EVENTS.items():
        t.equal([name for name in t.client.listdir(f"{TRACING}/events/{system}")
                 if name not in ("enable", "filter")], list(events), f"events of {system}")
        own = OWN_FIELDS[system] if t.modules == "ours" else []
        for event, names in events.items():
            t.equal(fields(t, system, event), names + own, f"fields of {event}")
    listen(t, *EVENTS)
    t.client.modules_unload_all()
    for system in EVENTS:
        t.check(not t.client.exists(f"{TRACING}/events/{system}"), f"{system} is still there")
    rnbd.load(t)


@case()
def test_session(t: Test) -> None:
    """A session's life on the server: its versions, its devices, its end."""
    rnbd.load(t, rtrs_server="sess_queue_depth=64")
    listen(t, "rnbd_srv")
    device = rnbd.map_device(t, disks.PLAIN, session="traced", access_mode="migration")
    device.unmap()
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/traced", gone=True)
    t.equal(told(t, "create_sess"), ["sessname: traced qdepth: 64"], "create_sess")
    matches(t, "process_msg_sess_info",
            r"Session traced using proto-ver 2 \(clt-ver: 2, srv-ver: 2")
    matches(t, "process_msg_open", r"session='traced' path='/dev/vdb' access_mode=MIGRATION")
    matches(t, "process_msg_close", r"session='traced' device id='0'")
    t.equal(told(t, "destroy_sess"), [], "destroy_sess of a session without devices")
    rnbd.map_device(t, disks.PLAIN, session="traced")
    # The client may connect again at once.
    t.server.write(f"{rnbd.server_path(t, 'traced')}/disconnect", "1")
    wait_told(t, "destroy_sess", "sessname: traced qdepth: 64")
    t.equal(len(told(t, "destroy_sess")), 1, "destroy_sess of a session with a device")


@case(quick=EVERYWHERE)
def test_requests(t: Test) -> None:
    """Each request on the server, with what it asks for, and its response."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    listen(t, "rnbd_srv", "rtrs_srv")
    t.client.call(guest_io.write, path=device.path, offset=8192, length=4096, seed=1)
    t.client.call(guest_io.digest, path=device.path, offset=8192, length=4096)
    t.client.call(guest_io.fsync, path=device.path)
    t.client.run(f"ionice -c 2 -n 5 blkdiscard -o 65536 -l 8192 {device.path}")
    common = (r"I/O req: sess: sess, type: {}, ver: 2, devid: 0, sector: {}, bsize: {}, flags: {}, "
              r"ioprio: {}, datalen: {}, usrlen: 32")
    for direction, sector, size, flags, priority, data, names in (
            ("WRITE", 16, 4096, 0x101, r"\d+", 4096, "op: WRITE, opflags: SYNC"),
            ("READ", 16, 4096, 0x100, r"\d+", 4096, "op: READ, opflags: SYNC"),
            ("READ", r"\d+", 0, r"\d+", r"\d+", 0, r"op: FLUSH, opflags: \S*"),
            ("WRITE", 128, 8192, r"\d+", 16389, 0, r"op: DISCARD, opflags: \S*")):
        pattern = common.format(direction, sector, size, flags, priority, data)
        matches(t, "process_rdma", pattern + (f", {names}$" if t.modules == "ours" else "$"))
    path = os.path.basename(rnbd.server_path(t, "sess"))
    answer = (rf"^sess='{path}' state='CONNECTED' dir={{}} err='0' inval='{{}}' glob-inval='1' "
              r"msgid='\d+' wrcnt='\d+' sig-interval='\d+'")
    end = " session='sess'$" if t.modules == "ours" else "$"
    matches(t, "send_io_resp_imm", answer.format("WRITE", 0) + end)
    matches(t, "send_io_resp_imm", answer.format("READ", 0) + end)  # the flush's, in C
    if t.modules == "ours":  # C does not tell of responses with data
        t.equal(len(told(t, "send_io_resp_imm")), len(told(t, "process_rdma")),
                "answers, against requests")


@case()
def test_zeroes(t: Test) -> None:
    """Zeroes that are to stay allocated are asked for as such: all but those of a punched hole."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    for sector, how, no_unmap in ((2048, "blkdiscard -z", True), (4096, "fallocate -z", True),
                                  (6144, "fallocate -p", False)):
        listen(t, "rnbd_srv")
        t.client.call(guest_io.write, path=device.path, offset=sector * 512, length=8192, seed=1)
        t.client.run(f"{how} -o {sector * 512} -l 8192 {device.path}")
        found = [line for line in told(t, "process_rdma")
                 if int(search(r"flags: (\d+)", line)[1]) & 0xff == WRITE_ZEROES]
        t.equal(len(found), 1, f"requests for zeroes of {how}")
        t.check(f"sector: {sector}, bsize: 8192," in found[0], f"{how}: {found[0]}")
        t.equal(bool(int(search(r"flags: (\d+)", found[0])[1]) & NOUNMAP), no_unmap,
                f"NOUNMAP of {how}")
        if t.modules == "ours":
            names = re.search(r"op: WRITE_ZEROES, opflags: (\S*)$", found[0])
            t.check(names and ("NOUNMAP" in names[1]) == no_unmap, f"{how}: {found[0]}")
        t.check(t.server.call(guest_io.all_zero, path=disks.PLAIN, offset=sector * 512,
                              length=8192), f"{how} left something")


@case()
def test_errors(t: Test) -> None:
    """The response to a request that failed has its errno."""
    rnbd.load(t)
    disk = disks.null_blk(t, size=64, badblocks="+2048-2055")
    device = rnbd.map_device(t, disk)
    listen(t, "rtrs_srv")
    with t.expect_errno(5):
        t.client.call(guest_io.write, path=device.path, offset=1 << 20, length=4096, seed=1)
    matches(t, "send_io_resp_imm", "dir=WRITE err='-5'")


@case()
def test_path_names(t: Test) -> None:
    """Events of both ends name a path as its folder in sysfs is named."""
    rnbd.load(t)
    another = "10.77.0.9"
    t.client.run(f"ip addr add {another}/24 dev dummy0")
    t.defer(t.client.run, f"ip addr del {another}/24 dev dummy0")
    # The address of the client's end comes from the route, or is not that of the server's.
    for text in (f"ip:{t.server.address6}", f"ip:{another}@ip:{t.server.address}"):
        device = rnbd.map_device(t, disks.PLAIN, paths=[text])
        folders = {"rtrs_clt_close_conns": rnbd.client_path(t, "sess"),
                   "send_io_resp_imm": rnbd.server_path(t, "sess")}
        listen(t, "rtrs_clt", "rtrs_srv")
        t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
        device.unmap()
        t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True, timeout=30)
        for event, folder in folders.items():
            name = os.path.basename(folder)
            found = [search(r"sess='([^']*)'", line)[1] for line in told(t, event)]
            t.check(found and set(found) == {name}, f"{event} tells of {found}, not of {name}")
        t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/sess", gone=True, timeout=30)


@case(quick=KERNELS)
def test_paths(t: Test) -> None:
    """A path that is closed, one that fails, and its way back."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    path = rnbd.client_path(t, "sess")
    listen(t, "rtrs_clt")
    t.client.write(f"{path}/disconnect", "1")
    own = " session='sess'$" if t.modules == "ours" else "$"
    counts = r" attempts='\d+' max-attempts='-1' fail='\d+' success='{}'" + own
    common = f"^RTRS-CLT: sess='{os.path.basename(path)}' state="
    matches(t, "rtrs_clt_close_conns", f"{common}CONNECTED{counts.format(0)}")
    rnbd.reconnect(t, path)
    t.client.wait_for(f"{device.sysfs}/state", matches="open")
    # The server ends the path. The path may be back before a test reads that the device is closed.
    mark = t.client.log_mark()
    t.server.write(f"{rnbd.server_path(t, 'sess')}/disconnect", "1")
    wait_told(t, "rtrs_rdma_error_recovery", "success='1'")
    t.client.wait_log("Device disconnected", mark)
    matches(t, "rtrs_rdma_error_recovery", f"{common}CONNECTED{counts.format(1)}")
    rnbd.reconnect(t, path)
    matches(t, "rtrs_clt_reconnect_work", f"{common}RECONNECTING{counts.format(1)}")
    t.client.wait_for(f"{device.sysfs}/state", matches="open")
