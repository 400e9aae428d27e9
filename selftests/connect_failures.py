# SPDX-License-Identifier: GPL-2.0
"""Servers that are not there, or are something else."""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Iterable
from typing import Any

from lab.selftest_case import case
from lab.selftest_case import Test
from lab.vm_node import Job
from lib import cable
from lib import disks
from lib import guest_io
from lib import guest_listener
from lib import rnbd
from lib.rnbd import Device

TOPOLOGY = "two"


def refused(t: Test, numbers: Iterable[int], paths: list[str] | None = None, log: str = "",
            **options: Any) -> float:
    """Mapping must fail, say why and leave nothing; returns the seconds it took."""
    mark = t.client.log_mark()
    started = time.monotonic()
    with t.expect_errno(*numbers):
        rnbd.map_device(t, disks.PLAIN, paths=paths, **options)
    taken = time.monotonic() - started
    said = t.client.log_since(mark)
    t.check(any(re.search(log, line) for line in said), f"no message matches {log!r}: {said}")
    t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), [], "sessions afterwards")
    t.equal(t.client.listdir(rnbd.CLIENT_DEVICES), [], "mappings afterwards")
    return taken


def test_no_module(t: Test) -> None:
    """A server machine without the module refuses at once."""
    rnbd.load(t, server=False)
    # Something on the server has to answer connection requests.
    t.server.run("modprobe rdma_cm")
    taken = refused(t, (errno.ECONNRESET, errno.ECONNREFUSED), log="reject|refused")
    t.check(taken < 10 * t.client.slow, f"the refusal took {taken:.0f} s")


def test_no_host(t: Test) -> None:
    """An address that nobody has."""
    rnbd.load(t, connect_timeout_ms=5000)
    refused(t, (errno.EHOSTUNREACH, errno.ETIMEDOUT), paths=["ip:10.77.0.99"], log="10.77.0.99")


def test_no_route(t: Test) -> None:
    """An address without a route, and one that is no host's."""
    rnbd.load(t)
    refused(t, (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENODEV), paths=["ip:192.0.2.1"],
            log="192.0.2.1")


def test_bad_source(t: Test) -> None:
    """A source address that is not this machine's."""
    rnbd.load(t)
    refused(t, (errno.EADDRNOTAVAIL, errno.ENODEV, errno.ECONNRESET, errno.EINVAL),
            paths=[f"ip:10.77.0.55@ip:{t.server.address}"], log="10.77.0.55")


def test_gid(t: Test) -> None:
    """A GID is an address of InfiniBand: soft-RoCE has none; what is no GID is EINVAL."""
    rnbd.load(t)
    mapped = f"gid:0000:0000:0000:0000:0000:ffff:{ipv4_words(t.server.address)}"
    for text in (mapped, f"gid:{t.server.address6}", "gid:fe80::1",
                 f"gid:{t.client.address6}@gid:{t.server.address6}"):
        refused(t, (errno.ENODEV,), paths=[text], log="(?i)gid:|resolve")
    for text in ("gid:", "gid:nonsense", "gid:1:2:3", f"gid:{t.server.address}"):
        refused(t, (errno.EINVAL,), paths=[text], log="map_device|parse path")
    rnbd.map_device(t, disks.PLAIN).unmap()


def ipv4_words(address: str) -> str:
    """An IPv4 address as the last two words of an IPv6 one."""
    octets = [int(octet) for octet in address.split(".")]
    return f"{octets[0]:02x}{octets[1]:02x}:{octets[2]:02x}{octets[3]:02x}"


def test_source_and_ipv6(t: Test) -> None:
    """A path with its source given, and one over IPv6."""
    rnbd.load(t)
    for path in (f"ip:{t.client.address}@ip:{t.server.address}",
                 f"ip:{t.client.address},ip:{t.server.address}", f"ip:{t.server.address6}"):
        device = rnbd.map_device(t, disks.PLAIN, paths=[path])
        t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
        device.unmap()
        t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True)


def test_other_port(t: Test) -> None:
    """dest_port= chooses the port, of later paths too; the wrong one is refused."""
    rnbd.load(t, rnbd_server="port_nr=4321")
    refused(t, (errno.ECONNRESET, errno.ECONNREFUSED), log="reject|refused")
    text = (f"dest_port=4321 sessname=sess path=ip:{t.server.address} "
            f"device_path={disks.PLAIN}")
    t.client.write(rnbd.MAP_DEVICE, text)
    session = f"{rnbd.CLIENT_SESSIONS}/sess"
    t.client.write(f"{session}/add_path", f"ip:{t.server.address6}")
    for name in t.client.listdir(f"{session}/paths"):
        t.equal(t.client.read(f"{session}/paths/{name}/state"), "connected", name)
        t.client.write(f"{session}/paths/{name}/disconnect", "1")
        rnbd.reconnect(t, f"{session}/paths/{name}")
    rnbd.find_device(t.client, disks.PLAIN, "sess").unmap()


@case(timeout=180)
def test_not_rtrs(t: Test) -> None:
    """Listeners that are not RTRS: rejecting and accepting with all kinds of private data."""
    rnbd.load(t, server=False)
    t.server.run("modprobe rdma_ucm")
    junk = (0xBD, 0x1B, 0, 2)  # an RTRS magic and version, then nothing
    for accept in (False, True):
        for data in (b"", b"\xff" * 56, bytes(56), bytes(junk) + b"\xff" * 52):
            t.server.call(guest_listener.start, port=4444, accept=accept, data=list(data))
            t.defer(t.server.call, guest_listener.stop)
            mark = t.client.log_mark()
            try:
                # The port counts for the paths after it.
                t.client.write(rnbd.MAP_DEVICE,
                               f"dest_port=4444 sessname=sess path=ip:{t.server.address} "
                               f"device_path={disks.PLAIN}")
            except OSError:
                # Which errno is the listener's choice, as it is part of the response.
                t.check(t.client.log_since(mark), "the log says nothing")
            else:
                raise AssertionError("mapped a device of a listener that is not RTRS")
            t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), [], "sessions afterwards")
            requests = t.server.call(guest_listener.stop)
            t.check(requests > 0, "the connection never came to the listener")


def test_session_name_in_use(t: Test) -> None:
    """A second session of the same name on the same client is the same session."""
    rnbd.load(t)
    rnbd.map_device(t, disks.PLAIN)
    second = rnbd.map_device(t, disks.WITHOUT_DISCARD)
    t.equal(len(t.client.listdir(f"{rnbd.CLIENT_SESSIONS}/sess/paths")), 1, "paths")
    second.unmap()


def waits_in_vain(t: Test, device: Device, job: Job, what: str) -> None:
    """Unmapping the session's last device ends what waits for a server that is not there."""
    t.check(not job.done(), f"{what} does not wait")
    started = time.monotonic()
    device.unmap()
    t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True)
    taken = time.monotonic() - started
    t.check(taken < 10 * t.client.slow, f"unmapping waited for {what}: {taken:.0f} s")
    t.check(job.wait().rc != 0, f"{what} succeeded")
    t.say(f"{what}: unmapped in {taken:.1f} s")


@case(module_sets=("ours",))
def test_unmapped_meanwhile(t: Test) -> None:
    """A device can be unmapped while somebody connects a path to nobody, and does not wait for that."""
    rnbd.load(t, connect_timeout_ms=50000)
    cable.prepare(t)
    session = f"{rnbd.CLIENT_SESSIONS}/sess"
    device = rnbd.map_device(t, disks.PLAIN)
    job = t.client.start_job(f"echo ip:10.77.0.98 > {session}/add_path")
    t.client.wait_for("/proc/net/arp", matches="10.77.0.98")
    waits_in_vain(t, device, job, "add_path")

    device = rnbd.map_device(t, disks.PLAIN)
    path = rnbd.client_path(t, "sess")
    t.client.write(f"{path}/disconnect", "1")
    cable.cut(t, 0)
    t.client.run("ip neigh flush all")
    job = t.client.start_job(f"echo 1 > {path}/reconnect")
    # It asks for the server's address again.
    t.client.wait_for("/proc/net/arp", matches=rf"{re.escape(t.server.address)} +0x1 +0x0")
    waits_in_vain(t, device, job, "reconnect")
