# SPDX-License-Identifier: GPL-2.0
"""rnbdctl why names what is wrong, for the faults that the tests can make."""

from __future__ import annotations

from typing import Any

from lab.selftest_case import case
from lab.selftest_case import Test
from lab.vm import wait_until
from lib import cable
from lib import disks
from lib import guest_timeout
from lib import program
from lib import rnbd
from lib.rnbd import Device

TOPOLOGY = "two"
ONLY_OURS = ("ours",)
CHECK_FAILED = 8

FAST = {"hb_interval_ms": 200, "hb_missed_max": 3, "reconnect_delay_ms": 2000, "connect_timeout_ms": 10000}


def prepare(t: Test, disk: str = disks.PLAIN) -> Device:
    """A device by one path, with fast settings, and the program; nothing is wrong."""
    cable.prepare(t)
    rnbd.load(t, rtrs_client="connect_timeout_ms=120000",
              rtrs_server=f"{rnbd.fewer_buffers(t)}hb_interval_ms=200 hb_missed_max=3")
    program.install(t.client)
    device = rnbd.map_device(t, disk)
    rnbd.configure(t, **FAST)
    rnbd.works(t, device)
    t.equal(program.run(t.client, "why").out, "nothing is wrong\n", "where all is well")
    return device


def troubles(t: Test) -> dict[str, dict[str, Any]]:
    """The troubles that the program tells of, by name."""
    found = program.json_of(t.client, "why", code=CHECK_FAILED)["troubles"]
    return {trouble["trouble"]: trouble for trouble in found}


def named(t: Test, *names: str, seconds: float = 30.0) -> dict[str, dict[str, Any]]:
    """Wait until the program tells of these troubles; all that it tells."""
    def told() -> bool:
        result = t.client.run(["rnbdctl", "why", "-o", "json"], check=False)
        return result.rc == CHECK_FAILED and all(f'"{name}"' in result.out for name in names)

    wait_until(told, seconds * t.client.slow, f"rnbdctl why tells of {', '.join(names)}")
    return troubles(t)


@case(module_sets=ONLY_OURS, quick=())
def test_server_gone(t: Test) -> None:
    """A server without its modules: no path, refused; and nothing is wrong when it is back."""
    device = prepare(t)
    t.server.modules_unload_all()
    t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=30)
    found = named(t, "no-path")
    t.check(device.path in found["no-path"]["problem"], f"no {device.path} in {found['no-path']}")
    t.check(found["no-path"]["for_seconds"] is not None, f"since when is not told: {found['no-path']}")
    t.check(len(found) == 2 and found.keys() & {"refused", "silent", "not-connected"},
            f"the reason of the path: {list(found)}")
    told = program.run(t.client, "why", device.name, code=CHECK_FAILED).out
    t.check("to do:" in told and "kernel:" in told, told)
    t.server.modules_load("rnbd_server", rtrs_server=f"{rnbd.fewer_buffers(t)}hb_interval_ms=200 hb_missed_max=3",
                          rnbd_server="")
    t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=60)
    t.equal(program.run(t.client, "why").out, "nothing is wrong\n", "when the server is back")


@case(module_sets=ONLY_OURS, quick=())
def test_cable_cut(t: Test) -> None:
    """A cable that is cut: the server does not answer, or the port is down, and the path has that reason."""
    device = prepare(t)
    cable.cut(t, 0)
    t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=30)
    found = named(t, "no-path")
    t.check(found.keys() & {"silent", "port-down", "no-route"}, f"the reason of the path: {list(found)}")
    cable.mend(t, 0)
    t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=60)


@case(module_sets=ONLY_OURS, quick=())
def test_disconnected_by_hand(t: Test) -> None:
    """A path that was disconnected by hand, and one whose attempts are over."""
    device = prepare(t)
    path = rnbd.client_path(t, "sess")
    t.client.write(f"{path}/disconnect", "1")
    t.client.wait_for(f"{device.sysfs}/state", matches="closed")
    found = named(t, "no-path", "disconnected")
    remedy = found["disconnected"]["remedy"]
    t.check(remedy.startswith("rnbdctl path reconnect "), remedy)
    wait_until(lambda: t.client.run(remedy, check=False).rc == 0, 30 * t.client.slow, "what it says helps")
    t.client.wait_for(f"{device.sysfs}/state", matches="open")


@case(module_sets=ONLY_OURS)
def test_closed_there(t: Test) -> None:
    """A device that the server's administrator has closed, until it is remapped as the program says."""
    device = prepare(t)
    program.install(t.server)
    program.run(t.server, "server", "force-close", "vdb", "--force")
    found = named(t, "closed-by-server")
    t.equal(found["closed-by-server"]["device"], device.name, "device")
    program.run(t.client, "remap", device.name)
    t.equal(program.run(t.client, "why").out, "nothing is wrong\n", "after the remapping")


@case(module_sets=ONLY_OURS)
def test_disk_gone(t: Test) -> None:
    """A disk that is not there any more when the session comes back."""
    disk = disks.loop(t, 32)
    device = prepare(t, disk)
    path = rnbd.client_path(t, "sess")
    t.client.write(f"{path}/disconnect", "1")
    t.client.wait_for(f"{device.sysfs}/state", matches="closed")
    t.server.run(f"mv {disk} {disk}.away")
    t.defer(t.server.run, f"[ ! -e {disk}.away ] || mv {disk}.away {disk}")
    rnbd.reconnect(t, path)
    found = named(t, "not-opened")["not-opened"]
    t.check("ENOENT" in found["problem"], f"problem {found['problem']}")
    t.server.run(f"mv {disk}.away {disk}")
    program.run(t.client, "remap", device.name)
    t.equal(program.run(t.client, "why").out, "nothing is wrong\n", "when the disk is back")


@case(timeout=240, module_sets=ONLY_OURS, quick=())
def test_disk_hangs(t: Test) -> None:
    """A disk that hangs below the server: requests are stuck, or were ended and are not answered."""
    disk = disks.holdable(t, 32, disks.PLAIN)
    device = prepare(t, disk)
    disks.hold(t, disk)
    waits = t.client.start_call(120, guest_timeout.run, path=device.path, requests=[("read", 4096)])
    found = named(t, "requests-stuck")["requests-stuck"]
    t.check("io_timeout_ms" in found["remedy"], f"remedy {found['remedy']}")
    disks.let_go(t, disk)
    waits.wait()
    program.run(t.client, "device", "set", device.name, "io_timeout_ms=1000")
    disks.hold(t, disk)
    t.client.call_within(60, guest_timeout.run, path=device.path, requests=[("read", 4096)])
    t.equal(named(t, "disk-hangs")["disk-hangs"]["device"], device.name, "device")
    disks.let_go(t, disk)
    t.client.wait_for(f"{device.sysfs}/io_unanswered", matches="^0", timeout=30)
    t.equal(program.run(t.client, "why").out, "nothing is wrong\n", "when the disk goes on")


@case(module_sets=ONLY_OURS)
def test_maintenance(t: Test) -> None:
    """A server that has said that it goes away."""
    device = prepare(t)
    program.install(t.server)
    program.run(t.server, "server", "drain", "--for", "5m")
    t.defer(t.server.run, "rnbdctl server drain --cancel", check=False)
    t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=30)
    found = named(t, "no-path")
    t.check(any("maintenance" in line for line in found["no-path"]["kernel"]), f"told {found['no-path']}")
    program.run(t.server, "server", "drain", "--cancel")
    t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=60)
