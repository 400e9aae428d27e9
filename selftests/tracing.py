# SPDX-License-Identifier: GPL-2.0
"""Tracepoints: the events of the C modules, at the places where these have them."""

import os
import re

from lab.selftest_case import case
from lib import disks
from lib import rnbd

TOPOLOGY = "one"
TRACING = "/sys/kernel/tracing"
EVENTS = {
    "rtrs_clt": ["rtrs_clt_close_conns", "rtrs_clt_reconnect_work", "rtrs_rdma_error_recovery"],
    "rtrs_srv": ["send_io_resp_imm"],
    "rnbd_srv": ["create_sess", "destroy_sess", "process_msg_close", "process_msg_open",
                 "process_msg_sess_info", "process_rdma"],
}
STOCK = ("stock",)  # the debug kernel has no tracing


def listen(t, *systems):
    """Trace all events of these systems from here on."""
    t.client.run(f"echo >{TRACING}/trace")
    for system in systems:
        t.client.write(f"{TRACING}/events/{system}/enable", "1")
        t.defer(t.client.write, f"{TRACING}/events/{system}/enable", "0")


def told(t, event):
    """What the trace has of an event."""
    lines = t.client.read(f"{TRACING}/trace").splitlines()
    return [line.split(f" {event}: ", 1)[1] for line in lines if f" {event}: " in line]


def wait_told(t, event, pattern):
    """Wait for an event whose text matches."""
    t.client.wait_for(f"{TRACING}/trace", matches=rf"(?m) {event}: .*{pattern}")


def matches(t, event, pattern):
    """Some event's text must match."""
    texts = told(t, event)
    t.check(any(re.search(pattern, text) for text in texts),
            f"{event}: nothing matches {pattern!r} in {texts[:10]}")


@case(kernels=STOCK)
def test_events_exist(t):
    """Every system has its events; with the modules they go."""
    rnbd.load(t)
    for system, names in EVENTS.items():
        t.equal([name for name in t.client.listdir(f"{TRACING}/events/{system}")
                 if name not in ("enable", "filter")], names, f"events of {system}")
    listen(t, *EVENTS)
    t.client.modules_unload_all()
    for system in EVENTS:
        t.check(not t.client.exists(f"{TRACING}/events/{system}"), f"{system} is still there")
    rnbd.load(t)


@case(kernels=STOCK)
def test_session(t):
    """A session's life on the server: its versions, its devices, its end."""
    rnbd.load(t, rtrs_server="sess_queue_depth=64")
    listen(t, "rnbd_srv")
    device = rnbd.map_device(t, disks.PLAIN, session="traced", access_mode="migration")
    device.unmap()
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/traced", gone=True)
    t.equal(told(t, "create_sess"), ["sessname: traced qdepth: 64"], "create_sess")
    matches(t, "process_msg_sess_info", r"Session traced using proto-ver 2 \(clt-ver: 2, srv-ver: 2")
    matches(t, "process_msg_open", r"session='traced' path='/dev/vdb' access_mode=MIGRATION")
    matches(t, "process_msg_close", r"session='traced' device id='0'")
    if t.modules == "ours":  # C tells only of sessions that have devices open
        t.equal(told(t, "destroy_sess"), ["sessname: traced qdepth: 64"], "destroy_sess")


@case(kernels=STOCK)
def test_requests(t):
    """Each request on the server, with what it asks for, and its answer."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    listen(t, "rnbd_srv", "rtrs_srv")
    t.client.call("guest_io.write", path=device.path, offset=8192, length=4096, seed=1)
    t.client.call("guest_io.digest", path=device.path, offset=8192, length=4096)
    t.client.call("guest_io.fsync", path=device.path)
    t.client.run(f"ionice -c 2 -n 5 blkdiscard -o 65536 -l 8192 {device.path}")
    common = r"I/O req: sess: sess, type: {}, ver: 2, devid: 0, sector: {}, bsize: {},"
    for pattern in (common.format("WRITE", 16, 4096) + ".* datalen: 4096, usrlen: 32",
                    common.format("READ", 16, 4096) + ".* datalen: 4096, usrlen: 32",
                    common.format("WRITE", 128, 8192) + ".* datalen: 0, usrlen: 32"):
        matches(t, "process_rdma", pattern)
    if t.modules == "ours":
        for pattern in ("op: WRITE, flags: SYNC", "op: READ, flags: SYNC", "op: FLUSH",
                        r"op: DISCARD, flags: \S*, ioprio: 16389"):
            matches(t, "process_rdma", pattern)
    matches(t, "send_io_resp_imm", r"sess=.* state='?CONNECTED'? dir=WRITE err='?0")
    if t.modules == "ours":  # C does not tell of answers with data
        matches(t, "send_io_resp_imm", "dir=READ err=0")
        t.equal(len(told(t, "send_io_resp_imm")), len(told(t, "process_rdma")),
                "answers, against requests")


@case(kernels=STOCK)
def test_errors(t):
    """The answer to a request that failed has its errno."""
    rnbd.load(t)
    disk = disks.null_blk(t, size=64, badblocks="+2048-2055")
    device = rnbd.map_device(t, disk)
    listen(t, "rtrs_srv")
    with t.expect_errno(5):
        t.client.call("guest_io.write", path=device.path, offset=1 << 20, length=4096, seed=1)
    matches(t, "send_io_resp_imm", r"dir=WRITE err='?-5")


@case(kernels=STOCK, module_sets=("ours",))
def test_path_names(t):
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
        t.client.call("guest_io.write", path=device.path, offset=0, length=4096, seed=1)
        device.unmap()
        t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True, timeout=30)
        for event, folder in folders.items():
            name = os.path.basename(folder)
            found = [re.search(r"path='?([^ ']*)", line)[1] for line in told(t, event)]
            t.check(found and set(found) == {name}, f"{event} tells of {found}, not of {name}")
        t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/sess", gone=True, timeout=30)


@case(kernels=STOCK)
def test_paths(t):
    """A path that is closed, one that fails, and its way back."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    path = rnbd.client_path(t, "sess")
    listen(t, "rtrs_clt")
    t.client.write(f"{path}/disconnect", "1")
    matches(t, "rtrs_clt_close_conns", r"sess='.*' .*state=CONNECTED")
    rnbd.reconnect(t, path)
    t.client.wait_for(f"{device.sysfs}/state", matches="open")
    # The server ends the path.
    t.server.write(f"{rnbd.server_path(t, 'sess')}/disconnect", "1")
    wait_told(t, "rtrs_rdma_error_recovery", "state=CONNECTED .*success='?1")
    t.client.wait_for(f"{device.sysfs}/state", matches="closed")
    rnbd.reconnect(t, path)
    wait_told(t, "rtrs_clt_reconnect_work", "state=RECONNECTING .*max-attempts='?-1")
    t.client.wait_for(f"{device.sysfs}/state", matches="open")
