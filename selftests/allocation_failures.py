# SPDX-License-Identifier: GPL-2.0
"""Allocations that fail: every path of an error is taken, and nothing is leaked or left behind.

The runner asks kmemleak afterwards. Allocations of soft-RoCE itself do not fail.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import guest_faults
from lib import guest_io
from lib import rnbd
from lib.operations import requests
from lib.stream import Stream
from lib.stream import verified

TOPOLOGY = "one"
# Fewer connections, so fewer allocations that are all the same.
CPUS = 1

DEBUG = ("debug",)
# Of the cases that take allocations at random; on a busy machine an attempt takes several.
SECONDS = 240.0
# Of the cases that take one after the other until each had its turn.
TURNS_SECONDS = 3 * 3600.0
# What a control file may say when an allocation failed; how the transport hears of one differs.
EXPECTED = {errno.ENOMEM, errno.EAGAIN, errno.ENODEV, errno.ENOTCONN, errno.ECONNRESET,
            errno.ECONNREFUSED, errno.ECONNABORTED, errno.ETIMEDOUT, errno.EHOSTUNREACH,
            errno.EBUSY, errno.EIO, errno.ENOENT, errno.ENOBUFS}
MODULES = ("rtrs_core", "rtrs_client", "rnbd_client")
# Few tags, so that what there is for each is not tried a thousand times.
SERVER = "sess_queue_depth=4 max_chunk_size=16384"
SESSION = f"{rnbd.CLIENT_SESSIONS}/sess"


def prepared(t: Test, own: Sequence[str] = ()) -> None:
    """Modules loaded, fault injection set up."""
    rnbd.load(t, rtrs_server=SERVER)
    t.client.call_within(60, guest_faults.prepare, own=own)
    t.client.allocations_fail = True
    t.defer(t.client.call, guest_faults.end)


def named(outcomes: dict[Any, int]) -> str:
    """Text of how often each errno was seen."""
    return ", ".join(f"{count} x {errno.errorcode.get(number, 'succeeded')}"
                     for number, count in outcomes.items()) or "none"


def counted(outcomes: dict[Any, int]) -> str:
    """Text of how often each outcome was seen."""
    return ", ".join(f"{count} x {key}" for key, count in sorted(outcomes.items())) or "none"


def mapping(t: Test, disk: str, gone: list[str]) -> None:
    """Map with the first allocation failing, then with the second, to the last, and judge it.

    In the quick form with few of them."""
    step = 29 if t.quick else 1
    text = rnbd.map_text(session="sess", device_path=disk, paths=[f"ip:{t.server.address}"])
    link = f"{rnbd.CLIENT_DEVICES}/{rnbd.link_name(disk, 'sess')}"
    outcomes: dict[Any, int] = {}
    slowest, nth = 0.0, 1
    while nth:
        report = t.client.call_within(2 * SECONDS, guest_faults.map_failing, nth=nth, step=step,
                                      map_device=rnbd.MAP_DEVICE, text=text, link=link, gone=gone,
                                      seconds=60.0, patience=15.0 * t.client.slow)
        t.equal(report["odd"], "", "what should not be")
        for number, count in report["outcomes"]:
            outcomes[number] = outcomes.get(number, 0) + count
        slowest = max(slowest, report["slowest"])
        t.say(f"allocations up to {(report['next'] or nth) - step}: {named(outcomes)}; "
              f"the slowest took {slowest:.1f} s")
        nth = report["next"]
    # add_disk() does not look whether the device could be named; without a name it is invalid. The
    # name's memory, or a page for the cache that it comes from.
    t.check(outcomes.get(errno.EINVAL, 0) <= 2, "more than two allocations gave EINVAL")
    for number in outcomes:
        t.check(number in EXPECTED | {0, errno.EINVAL}, f"mapping failed with errno {number}")
    refused = sum(count for number, count in outcomes.items() if number)
    t.check(refused > sum(outcomes.values()) // 5,
            "next to nothing failed: faults were not injected")
    maps(t, disk)


def maps(t: Test, disk: str) -> None:
    """A disk can be mapped, used and unmapped."""
    device = rnbd.map_device(t, disk)
    rnbd.works(t, device)
    device.unmap()


@case(timeout=TURNS_SECONDS, kernels=DEBUG, quick=DEBUG, module_sets=("ours",))
def test_map_own(t: Test) -> None:
    """Mapping the first device of a session with each of the modules' own allocations failing."""
    prepared(t, MODULES)
    mapping(t, disks.PLAIN, [SESSION, f"{rnbd.SERVER_SESSIONS}/sess"])


@case(timeout=TURNS_SECONDS, kernels=DEBUG, quick=(), module_sets=("ours",))
def test_map(t: Test) -> None:
    """Mapping the first device of a session with each allocation failing, whoever makes it."""
    prepared(t)
    mapping(t, disks.PLAIN, [SESSION, f"{rnbd.SERVER_SESSIONS}/sess"])


@case(timeout=TURNS_SECONDS, kernels=DEBUG, quick=(), module_sets=("ours",))
def test_map_another(t: Test) -> None:
    """Mapping another device of a session with each allocation failing, whoever makes it."""
    prepared(t)
    rnbd.map_device(t, disks.WITHOUT_DISCARD)
    mapping(t, disks.PLAIN, [f"{rnbd.SERVER_DEVICES}/vdb"])


def tried(t: Test, path: str, text: str, nth: int, outcomes: dict[Any, int]) -> tuple[int, bool]:
    """Write with the nth allocation failing: the errno, and whether there were so many."""
    error, injected = t.client.call_within(60, guest_faults.write_failing, path=path, text=text,
                                           nth=nth)
    t.check(error == 0 or (injected and error in EXPECTED),
            f"{text!r} to {path} with allocation {nth} failing: errno {error}")
    name = path.rsplit("/", 1)[1]
    key = f"{name} {errno.errorcode.get(error, 'done')}"
    if injected:
        outcomes[key] = outcomes.get(key, 0) + 1
    return error, injected


@case(timeout=TURNS_SECONDS, kernels=DEBUG, quick=(), module_sets=("ours",))
def test_control_files(t: Test) -> None:
    """Adding, disconnecting, connecting and removing a path with each own allocation failing."""
    prepared(t, MODULES)
    device = rnbd.map_device(t, disks.PLAIN)
    stream = Stream(t, device, workers=2, blocks=16, sizes=(4 << 10, 8 << 10))
    address = t.server.address6
    outcomes: dict[Any, int] = {}
    nth, injected = 0, True
    while injected:
        nth += 1
        _, injected = tried(t, f"{SESSION}/add_path", f"ip:{address}", nth, outcomes)
        folder = [name for name in t.client.listdir(f"{SESSION}/paths") if address in name]
        if not folder:
            t.client.write(f"{SESSION}/add_path", f"ip:{address}")
            folder = [name for name in t.client.listdir(f"{SESSION}/paths") if address in name]
        path = f"{SESSION}/paths/{folder[0]}"
        error, _ = tried(t, f"{path}/disconnect", "1", nth % 8 + 1, outcomes)
        if error:
            t.client.write(f"{path}/disconnect", "1")
        tried(t, f"{path}/reconnect", "1", nth, outcomes)
        error, _ = tried(t, f"{path}/remove_path", "1", nth % 8 + 1, outcomes)
        if error:
            t.client.write(f"{path}/remove_path", "1")
        t.equal(len(t.client.listdir(f"{SESSION}/paths")), 1, "paths")
        if nth % 50 == 0:
            t.say(f"allocations up to {nth}: {counted(outcomes)}")
    stream.go_on()
    t.say(f"{counted(outcomes)}; {verified(stream.stop())}")
    t.check(outcomes, "nothing failed")


def map_and_unmap(t: Test, outcomes: dict[Any, int]) -> float:
    """Map, write and unmap, whatever comes of it; nothing may stay."""
    started = time.monotonic()
    try:
        device = rnbd.map_device(t, disks.PLAIN, keep=True)
    except OSError as error:
        t.check(error.errno in EXPECTED, f"mapping: {error}")
        key = f"mapping {errno.errorcode[error.errno or 0]}"
    else:
        key = "done"
        try:
            t.client.call(guest_io.write, path=device.path, offset=0, length=64 << 10, seed=1)
            t.client.call(guest_io.digest, path=device.path, offset=0, length=64 << 10)
        except OSError as error:
            t.equal(error.errno, errno.EIO, "errno of IO")
            key = "IO EIO"
        device.unmap()
    taken = time.monotonic() - started
    failed = t.client.call_within(60, guest_faults.end)
    for path in (SESSION, f"{rnbd.SERVER_SESSIONS}/sess", f"{rnbd.SERVER_DEVICES}/vdb"):
        t.client.wait_for(path, gone=True)
    if failed:
        outcomes[key] = outcomes.get(key, 0) + 1
    return taken


def in_turn(t: Test, module: str, one_round: Callable[[Test, dict[Any, int]], float]) -> None:
    """Rounds in which the first of a module's own allocations fails, then the second, to the last.

    ``one_round(t, outcomes)`` ends fault injection, counts what came of it if one failed, and returns
    how long that took."""
    for kind in ("failslab", "fail_page_alloc"):
        outcomes: dict[Any, int] = {}
        slowest, nth, without = 0.0, 0, 0
        # Rounds differ by a few allocations.
        while without < 3:
            nth += 1
            t.client.call_within(60, guest_faults.fail_once, module=module, kind=kind, nth=nth)
            before = sum(outcomes.values())
            slowest = max(slowest, one_round(t, outcomes))
            without = without + 1 if sum(outcomes.values()) == before else 0
        t.say(f"{module}, {kind}: {counted(outcomes)}; the slowest took {slowest:.1f} s")
        t.check(outcomes or kind != "failslab", f"{module}: nothing failed")


@case(timeout=TURNS_SECONDS, kernels=DEBUG, quick=(), module_sets=("ours",))
def test_server(t: Test) -> None:
    """Each of the server's allocations fails once while a device is mapped, used and unmapped."""
    prepared(t, MODULES)
    for module in ("rtrs_server", "rnbd_server"):
        in_turn(t, module, map_and_unmap)
    maps(t, disks.PLAIN)


@case(timeout=240, kernels=DEBUG, quick=(), module_sets=("ours",))
def test_scattered(t: Test) -> None:
    """A server whose memory is scattered has chunks of many blocks, and carries all data, but in more writes."""
    length = 256 << 10
    for mode in ("always_invalidate=Y", "always_invalidate=N"):
        rnbd.load(t, rtrs_server=f"{mode} sess_queue_depth=8 max_chunk_size={1 << 20}")
        t.client.call_within(60, guest_faults.prepare)
        t.defer(t.client.call, guest_faults.end)
        t.client.call_within(60, guest_faults.fail_blocks, module="rtrs_server")
        device = rnbd.map_device(t, disks.PLAIN)
        t.check(t.client.call_within(60, guest_faults.end), f"{mode}: no block was refused")
        t.client.write(f"/sys/block/{device.name}/queue/max_sectors_kb", str(length >> 10))
        t.client.call(guest_io.write, path=device.path, offset=512, length=length, seed=1)
        for path in (device.path, disks.PLAIN):
            t.intact(t.client.call(guest_io.compare, path=path, offset=512, length=length, seed=1), None,
                     f"{mode}: first wrong byte of {path}")
        device.unmap()


@case(timeout=240, kernels=DEBUG, quick=(), module_sets=("ours",))
def test_often(t: Test) -> None:
    """A fifth of each module's allocations fail while devices are mapped, used and unmapped."""
    prepared(t)
    modules = ("rtrs_server", "rnbd_server", "rtrs_client", "rnbd_client")
    for module in modules:
        outcomes: dict[Any, int] = {}
        rounds = 0
        started = time.monotonic()
        while time.monotonic() - started < SECONDS / len(modules):
            t.client.call_within(60, guest_faults.fail_often, module=module,
                                 percent=20 >> rounds % 4)
            map_and_unmap(t, outcomes)
            rounds += 1
        t.say(f"{module}: {counted(outcomes)}")
        t.check(outcomes, f"{module}: nothing failed")
    maps(t, disks.PLAIN)


@case(timeout=TURNS_SECONDS, kernels=DEBUG, quick=(), module_sets=("ours",))
def test_reconnect(t: Test) -> None:
    """Each of the client's allocations fails once while a path is connected again by itself and its
    device is found again."""
    prepared(t, MODULES)
    device = rnbd.map_device(t, disks.PLAIN)
    for name, value in (("hold_io_ms", 600000), ("reconnect_delay_ms", 200)):
        t.client.write(f"{SESSION}/{name}", str(value))
    stream = Stream(t, device, workers=2, blocks=16, sizes=(4 << 10, 8 << 10))
    attempts = f"{rnbd.client_path(t, 'sess')}/stats/reconnects"

    def connect_again(t: Test, outcomes: dict[Any, int]) -> float:
        before = t.client.read(attempts).split()
        started = time.monotonic()
        t.server.write(f"{rnbd.server_path(t, 'sess')}/disconnect", "1")
        stream.go_on(requests=2)
        taken = time.monotonic() - started
        t.client.wait_for(f"{device.sysfs}/state", matches="open")
        t.server.wait_for(f"{rnbd.SERVER_DEVICES}/vdb")
        if t.client.call_within(60, guest_faults.end):
            again = t.client.read(attempts).split()[1] != before[1]
            key = "after attempts that failed" if again else "at the first attempt"
            outcomes[key] = outcomes.get(key, 0) + 1
        return taken

    for module in ("rtrs_client", "rnbd_client"):
        in_turn(t, module, connect_again)
    t.say(verified(stream.stop()))


@case(timeout=240, kernels=DEBUG, quick=(), module_sets=("ours",))
def test_open_again(t: Test) -> None:
    """Each allocation of the server's opening of a device fails once: the client asks again."""
    prepared(t)
    device = rnbd.map_device(t, disks.PLAIN)
    t.client.write(f"{SESSION}/reconnect_delay_ms", "200")
    refused, nth, injected = 0, 0, 1
    while injected:
        nth += 1
        t.server.write(f"{rnbd.server_path(t, 'sess')}/disconnect", "1")
        mark = t.client.log_mark()
        t.client.call_within(60, guest_faults.fail_once, module="rnbd_server", kind="failslab",
                             nth=nth)
        t.client.wait_log("device remapped successfully", mark, timeout=30)
        injected = t.client.call_within(60, guest_faults.end)
        refused += any("Opening failed" in line for line in t.client.log_since(mark))
        t.equal(device.attribute("state"), "open", "state")
    t.say(f"{nth - 1} allocations, {refused} times the device was refused at first")
    t.check(refused, "opening never failed")
    maps(t, disks.WITHOUT_DISCARD)


@case(timeout=240, kernels=DEBUG, quick=(), module_sets=("ours",))
def test_io(t: Test) -> None:
    """Allocations fail under IO: a request that fails does so with EIO, and the path carries on."""
    prepared(t)
    device = rnbd.map_device(t, disks.PLAIN)
    for name, value in (("hold_io_ms", 600000), ("reconnect_delay_ms", 200)):
        t.client.write(f"{SESSION}/{name}", str(value))
    modules = ("rtrs_client", "rnbd_client", "rtrs_server", "rnbd_server")
    failures = 0
    request = requests(t.client, device.path, 1 << 20, 256 << 10)
    for module in modules:
        errors, made = 0, 0
        t.client.call_within(60, guest_faults.fail_often, module=module, percent=20)
        started = time.monotonic()
        while time.monotonic() - started < SECONDS / len(modules):
            for name in ("write", "read", "discard", "zero_out"):
                made += 1
                try:
                    request[name]()
                except OSError as error:
                    t.check(error.errno in (errno.EIO, errno.ENOMEM), f"{name}: {error}")
                    errors += 1
        failed = t.client.call_within(60, guest_faults.end)
        t.say(f"{module}: {failed} allocations failed, {errors} of {made} requests")
        t.check(errors < made, f"{module}: no request was successful")
        failures += failed
    t.check(failures, "nothing failed")
    t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=30)
    t.client.call(guest_io.write, path=device.path, offset=0, length=64 << 10, seed=1)
    t.intact(t.server.call(guest_io.compare, path=disks.PLAIN, offset=0, length=64 << 10, seed=1),
             None, "first wrong byte")
