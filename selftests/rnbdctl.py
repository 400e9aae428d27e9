# SPDX-License-Identifier: GPL-2.0
"""The administrator's program: every subcommand does what it says."""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Callable

from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import program
from lib import rnbd
from lib.rnbd import Device

TOPOLOGY = "one"

# Exit codes.
FAILED, USAGE, NOT_FOUND, NOT_PERMITTED, BUSY, UNREACHABLE, UNSUPPORTED, CHECK = range(1, 9)


def prepare(t: Test) -> None:
    """The modules loaded, and the program in the machine."""
    rnbd.load(t)
    program.install(t.client)


def map_one(t: Test, disk: str = disks.PLAIN, session: str = "sess", *options: str) -> Device:
    """Map a disk by the program; the device, unmapped when the test is over."""
    done = program.json_of(t.client, "map", disk, "-s", session, "-p", t.server.address, *options)
    device = rnbd.Device(t.client, done["mapped"][0]["name"], session, disk)
    t.defer(device.unmap_if_mapped)
    return device


def until(t: Test, what: str, condition: Callable[[], bool], seconds: float = 15.0) -> None:
    """Wait for something that no file tells."""
    deadline = time.monotonic() + seconds * t.client.slow
    while not condition():
        t.check(time.monotonic() < deadline, f"not within {seconds} s: {what}")
        time.sleep(0.1)


def test_map_and_unmap(t: Test) -> None:
    """map gives devices that work, list and show tell of them, unmap takes them away."""
    prepare(t)
    mapped = program.json_of(t.client, "map", disks.PLAIN, disks.WITHOUT_DISCARD, "-s", "sess",
                             "-p", t.server.address, "-a", "rw")["mapped"]
    t.defer(t.client.run, "rnbdctl unmap --all --force")
    t.equal([one["device_path"] for one in mapped], [disks.PLAIN, disks.WITHOUT_DISCARD], "mapped")
    for one in mapped:
        t.client.call(guest_io.write, path=one["path"], offset=0, length=4096, seed=1)
    found = program.json_of(t.client, "list")
    device, other = found["client"]["devices"]
    t.equal((device["name"], device["state"], device["access_mode"], device["size_bytes"]),
            (mapped[0]["name"], "open", "rw", 512 << 20), "first device")
    session = found["client"]["sessions"][0]
    t.equal((session["name"], session["state"]), ("sess", "connected"), "session")
    t.check(session["paths"][0]["stats"]["writes"] >= 2, f"writes: {session['paths']}")
    exported = {each["name"]: each["exports"] for each in found["server"]["devices"]}
    t.equal(sorted(exported), ["vdb", "vdc"], "exported devices")
    t.equal(exported["vdb"][0]["session"], "sess", "session of the export")
    shown = program.json_of(t.client, "show", device["path"])
    t.equal((shown["kind"], shown["device"]["name"]), ("client-device", device["name"]), "shown")
    t.check(shown["statistics"]["writes"] >= 1, f"statistics: {shown['statistics']}")
    text = program.run(t.client, "list", "devices", "--client").out
    t.check(device["path"] in text and "512 MiB" in text, text)

    t.client.call(guest_io.hold, path=device["path"], name="holder")
    t.defer(t.client.call, guest_io.release, name="holder")
    refused = program.run(t.client, "unmap", device["name"], code=BUSY).err
    t.check("the device is in use (EBUSY)" in refused and "--force" in refused, refused)
    program.run(t.client, "unmap", device["name"], "--force")
    t.client.call(guest_io.release, name="holder")
    t.check(not t.client.exists(f"/sys/block/{device['name']}"), "the disk is still there")
    done = program.json_of(t.client, "unmap", "--all")["unmapped"]
    t.equal([one["name"] for one in done], [other["name"]], "unmapped")


def test_refusals(t: Test) -> None:
    """What cannot be mapped is said to be so, with a reason and an exit code of its own."""
    prepare(t)
    server = ("-s", "sess", "-p", t.server.address)
    error = program.run(t.client, "map", "/dev/nothing", *server, code=NOT_FOUND).err
    t.check("the server has no such disk (ENOENT)" in error, error)
    error = program.run(t.client, "map", disks.PLAIN, "-s", "new", code=NOT_FOUND).err
    t.check("--path" in error, error)
    map_one(t)
    error = program.run(t.client, "map", disks.PLAIN, *server, code=BUSY).err
    t.check("mapped the disk already" in error, error)
    error = program.run(t.client, "map", disks.PLAIN, "-s", "other", "-p", t.server.address,
                        code=NOT_PERMITTED).err
    t.check("another client has mapped the disk for writing (EPERM)" in error, error)
    map_one(t, disks.PLAIN, "other", "-a", "ro")
    error = program.run(t.client, "map", disks.LARGE_BLOCKS, "-s", "far", "-p", t.server.address,
                        "--port", 4321, code=UNREACHABLE).err
    t.check("no server listens" in error, error)
    program.run(t.client, "unmap", "rnbd77", code=NOT_FOUND)


def test_session_and_paths(t: Test) -> None:
    """Policy and tunables, and a path that goes, comes back and gets company."""
    prepare(t)
    device = map_one(t)
    program.run(t.client, "path", "policy", "sess", "round-robin")
    t.equal(program.run(t.client, "path", "policy", "sess").out, "round-robin\n", "policy")
    settings = ["max_reconnect_attempts=77"]
    if t.modules == "ours":
        settings += ["hb_interval_ms=4000", "hb_missed_max=6", "reconnect_delay_ms=2000",
                     "connect_timeout_ms=20000", "ack_timeout_ms=7000", "hold_io_ms=0"]
    else:
        error = program.run(t.client, "session", "set", "sess", "hold_io_ms=1",
                            code=UNSUPPORTED).err
        t.check("C module" in error, error)
    program.run(t.client, "session", "set", "sess", *settings)
    shown = program.json_of(t.client, "show", "sess")["session"]
    t.equal({f"{name}={value}" for name, value in shown["settings"].items()}, set(settings),
            "tunables")
    program.run(t.client, "session", "set", "sess", "max_reconnect_attempts=10000", code=USAGE)

    address = t.server.address
    refused = program.run(t.client, "path", "disconnect", address, code=BUSY).err
    t.check("no other path of the session is up" in refused and "--force" in refused, refused)
    program.run(t.client, "path", "disconnect", address, "--force")
    until(t, "closed", lambda: device.attribute("state") == "closed")
    shown = program.json_of(t.client, "show", address)["path"]
    t.equal((shown["state"], shown["session"]), ("disconnected", "sess"), "the path")
    error = program.run(t.client, "remap", device.name, code=UNREACHABLE).err
    t.check("remapping" in error and "no path that is up" in error, error)
    # The server may still be closing the old connections.
    until(t, "reconnected",
          lambda: t.client.run(f"rnbdctl path reconnect {address}", check=False).rc == 0)
    until(t, "open", lambda: device.attribute("state") == "open")
    error = program.run(t.client, "remap", device.path, code=BUSY).err
    t.check("the device is open" in error and "unmap --force" in error, error)
    program.run(t.client, "remap", "--all")

    # The C server takes all paths within one machine for the same.
    if t.modules == "ours":
        program.run(t.client, "path", "add", "sess", t.server.address6)
        sessions = program.json_of(t.client, "list", "paths", "--client")["client"]["sessions"]
        t.equal([path["state"] for path in sessions[0]["paths"]], ["connected"] * 2, "paths")
    error = program.run(t.client, "path", "add", "sess", t.server.address6, code=BUSY).err
    t.check("has a path with these addresses" in error, error)
    if t.modules == "ours":
        program.run(t.client, "path", "remove", t.server.address6)
        t.equal(len(t.client.listdir(f"{rnbd.CLIENT_SESSIONS}/sess/paths")), 1, "paths left")
    program.run(t.client, "path", "remove", address, "--force")
    t.equal(t.client.listdir(f"{rnbd.CLIENT_SESSIONS}/sess/paths"), [], "paths left")


def test_map_needs_no_session(t: Test) -> None:
    """A disk is mapped by its server and path alone; requests wait while the server is away."""
    prepare(t)
    t.defer(t.client.run, "rnbdctl unmap --all --force")
    first = program.json_of(t.client, "map", f"{t.server.address}:{disks.PLAIN}")["mapped"][0]
    second = program.json_of(t.client, "map", f"{t.server.address}:{disks.WITHOUT_DISCARD}")["mapped"][0]
    t.equal(second["session"], first["session"], "session of the second disk of a server")
    host = t.client.read("/proc/sys/kernel/hostname").split(".")[0].strip("()").lower()
    name = first["session"]
    t.check(name.startswith(f"{host}-") and name.endswith(t.server.address.replace(".", "-")), name)
    if t.modules == "ours":
        t.equal(t.client.read(f"{rnbd.CLIENT_SESSIONS}/{name}/hold_io_ms"), "600000", "hold_io_ms")
    t.client.run("rnbdctl unmap --all")
    t.client.run(f"echo '{t.server.address} storage1' >> /etc/hosts")
    t.defer(t.client.run, "sed -i '/ storage1$/d' /etc/hosts")
    named = program.json_of(t.client, "map", f"storage1:{disks.PLAIN}", "--hold", "0")["mapped"][0]
    t.check(named["session"].endswith("-storage1"), named["session"])
    if t.modules == "ours":
        folder = f"{rnbd.CLIENT_SESSIONS}/{named['session']}"
        t.equal(t.client.read(f"{folder}/hold_io_ms"), "0", "hold_io_ms")
    error = program.run(t.client, "map", "nowhere.invalid:x", code=UNREACHABLE).err
    t.check("looking up nowhere.invalid" in error, error)


def test_names_of_a_disk(t: Test) -> None:
    """With dev_search_path=/dev a disk goes by its name with and without /dev; C's server knows the second only."""
    rnbd.load(t, rnbd_server="dev_search_path=/dev")
    program.install(t.client)
    t.defer(t.client.run, "rnbdctl unmap --all --force")
    name = disks.PLAIN.removeprefix("/dev/")
    for given in (name, f"/{name}") if t.modules == "c" else (name, f"/{name}", f"/dev/{name}"):
        device = program.json_of(t.client, "map", f"{t.server.address}:{given}")["mapped"][0]
        t.client.call(guest_io.write, path=device["path"], offset=0, length=4096, seed=1)
        program.run(t.client, "unmap", device["name"])


def test_size(t: Test) -> None:
    """resize tells the machine what size the disk has."""
    prepare(t)
    disk = disks.loop(t, 32)
    device = map_one(t, disk)
    t.server.run(f"truncate -s 64M $(losetup -nO BACK-FILE {disk}) && losetup -c {disk}")
    program.run(t.client, "resize", device.path, "64M")
    t.equal(device.size(), 64 << 20, "size")
    program.run(t.client, "resize", device.path, "1000", code=USAGE)


def test_server(t: Test) -> None:
    """The server lists its clients, closes one of their devices and disconnects them."""
    prepare(t)
    device = map_one(t)
    found = program.json_of(t.server, "server", "list")["server"]
    t.equal(found["devices"][0]["exports"][0],
            {"session": "sess", "device_path": disks.PLAIN, "access_mode": "rw"}, "export")
    t.equal(found["sessions"][0]["name"], "sess", "session")
    t.equal(found["sessions"][0]["memory_bytes"] is None, t.modules == "c", "memory unknown")
    refused = program.run(t.server, "server", "force-close", "vdb", code=BUSY).err
    t.check("--force" in refused, refused)
    program.run(t.server, "server", "force-close", "vdb", "--force")
    with t.expect_errno(errno.EIO):
        t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
    program.run(t.server, "server", "force-close", "vdb", code=NOT_FOUND)
    program.run(t.server, "server", "disconnect", "sess", "--force")
    until(t, "the client has noticed",
          lambda: t.client.read(f"{rnbd.client_path(t, 'sess')}/state") == "disconnected")
    program.run(t.client, "unmap", device.name)


def test_drain(t: Test) -> None:
    """server drain has the clients leave and says what is next; the C modules cannot do that."""
    prepare(t)
    device = map_one(t)
    if t.modules == "c":
        program.run(t.server, "server", "drain", code=UNSUPPORTED)
        return
    t.defer(t.server.run, "rnbdctl server drain --cancel")
    said = program.run(t.server, "server", "drain", "--for", "5m").out
    for part in ("all clients have left\n", "modprobe -r rnbd_server"):
        t.check(part in said, f"no {part!r} in {said!r}")
    refused = program.run(t.client, "map", disks.WITHOUT_DISCARD, "-s", "other", "-p", t.server.address,
                          code=UNREACHABLE)
    t.check("the server is draining for maintenance" in refused.err, refused.err)
    program.run(t.server, "server", "drain", "--cancel")
    t.client.wait_for(f"{device.sysfs}/state", matches="open")
    rnbd.works(t, device)


def test_rdma_and_check(t: Test) -> None:
    """rdma shows the device of the tests, and check finds it good; without one it fails."""
    prepare(t)
    device = program.json_of(t.client, "rdma")["rdma_devices"][0]
    port = device["ports"][0]
    t.equal((device["name"], port["state"], port["link_layer"]), ("rxe0", "ACTIVE", "Ethernet"),
            "RDMA device")
    t.check(t.server.address in [gid["ip"] for gid in port["gids"]], f"GIDs: {port['gids']}")
    # There is no package in this machine, but the modules are loaded.
    found = program.json_of(t.client, "check", t.server.address)["findings"]
    status = {one["check"]: one["status"] for one in found}
    for check in ("client module", "server module", "permissions", "RDMA port", "route", "server"):
        t.equal(status[check], "ok", f"{check} in {found}")
    whose = next(one["message"] for one in found if one["check"] == "modules")
    t.check(("the C modules" in whose) == (t.modules == "c"), whose)
    for node in t.nodes:
        node.modules_unload_all()
    error = program.run(t.client, "map", disks.PLAIN, "-s", "sess", code=UNSUPPORTED).err
    t.check("modprobe rnbd_client" in error, error)
    found = program.json_of(t.client, "check", code=CHECK)["findings"]
    t.equal({one["check"] for one in found if one["status"] == "failed"},
            {"client module", "server module"},
            f"what failed in {found}")


def test_schema(t: Test) -> None:
    """What the program prints as JSON is as its own schema says."""
    prepare(t)
    device = map_one(t)
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
    exported = next(iter(program.json_of(t.server, "server", "list", "devices")["server"]["devices"]))["name"]
    for args in (("list",), ("server", "list"), ("show", device.name), ("show", "sess"), ("show", exported),
                 ("show", f"{t.server.address}"), ("path", "policy", "sess"), ("rdma",), ("stats",), ("why",),
                 ("top", "--once", "--interval", "0.2"), ("key", "list")):
        program.json_of(t.client, *args)
    if t.modules == "ours":
        program.json_of(t.client, "latency", "--seconds", 1)
    lines = program.run(t.client, "events", "--initial", "--for", 0).out.splitlines()
    events = [json.loads(line) for line in lines]
    t.check({"session-made", "path-added", "device-mapped"} <= {event["event"] for event in events}, f"{events}")
    error = json.loads(program.run(t.client, "show", "rnbd77", "-o", "json", code=NOT_FOUND).err)
    t.equal(error["error"]["kind"], "not-found", "kind of an error")
    program.check_schema(t.client, [("error", error), *(("events", event) for event in events)])


def test_completions_and_pages(t: Test) -> None:
    """bash takes the completions; there are manual pages of all subcommands."""
    program.install(t.client)
    t.client.run("set -e; rnbdctl completions bash >/tmp/completions; . /tmp/completions; "
                 "complete -p rnbdctl; rnbdctl man /tmp/man; ls /tmp/man/rnbdctl-path-add.8; "
                 "rm -r /tmp/man /tmp/completions")
