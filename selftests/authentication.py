# SPDX-License-Identifier: GPL-2.0
"""Clients and servers that prove to each other who they are."""

from __future__ import annotations

import errno
import re
import time
from typing import Any

from lab.selftest_case import case
from lab.selftest_case import OTHER
from lab.selftest_case import Test
from lib import disks
from lib import guest_auth
from lib import policy
from lib import program
from lib import rnbd
from lib.stream import Stream

TOPOLOGY = "one"
ONLY_OURS = ("ours",)
QUICK_ON = ("stock", OTHER)
FAILED = "/sys/module/rtrs_server/clients/auth_failed"
KEYS = "/etc/rnbd/keys"
REQUIRED = "require_auth=Y"


def forget(t: Test) -> None:
    """No keys, neither in files nor in the kernel."""
    t.server.run(f"rm -rf {KEYS}")
    program.run(t.server, "key", "load")


def with_rnbdctl(t: Test) -> None:
    """The program, and no keys when the test is over."""
    program.install(t.server)
    t.defer_once(forget, t)


def new_key(t: Test, client: str, *, own: bool = True, known: bool = True) -> guest_auth.Key:
    """A new key of a client: of this machine itself as a client, and known to its server, unless told otherwise."""
    with_rnbdctl(t)
    program.run(t.server, "key", "new", client)
    clients, mine = f"{KEYS}/clients/{client}", f"{KEYS}/own/{client}"
    text = t.server.read(clients)
    if own:
        t.server.run(f"mkdir -m 700 -p {KEYS}/own && cp -p {clients} {mine}")
    if not known:
        t.server.run(f"rm {clients}")
    program.run(t.server, "key", "load")
    number, key = re.findall(r"^rnbd-key-1:(\w+):(\w+):", text, re.MULTILINE)[-1]
    return {"client": client, "number": int(number, 16), "key": key}


def load(t: Test, parameters: str = "") -> None:
    """Our modules, the server's transport with these parameters."""
    rnbd.load(t, rtrs_server=f"{rnbd.fewer_buffers(t)}{parameters}".strip())


def refused(t: Test, number: int, client_log: str, server_log: str, **options: Any) -> None:
    """A device is not mapped, with this errno; both logs say why, and the server counts it."""
    failed, mark = int(t.server.read(FAILED)), t.server.log_mark()
    with t.expect_errno(number):
        rnbd.map_device(t, disks.PLAIN, **options)
    for pattern in filter(None, (client_log, server_log)):
        t.server.wait_log(pattern, mark)
    t.equal(int(t.server.read(FAILED)) - failed, int(bool(server_log)), "failures that the server has counted")
    t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), [], "sessions of the client")


def proved(t: Test, session: str = "sess") -> str:
    """The client id that a session's client has proved."""
    return t.server.read(f"{rnbd.SERVER_SESSIONS}/{session}/client_id")


@case(module_sets=ONLY_OURS, quick=QUICK_ON)
def test_right_key(t: Test) -> None:
    """With the same key at both ends a device works, and the server knows the client."""
    load(t, REQUIRED)
    new_key(t, "web1")
    device = rnbd.map_device(t, disks.PLAIN)
    t.equal(proved(t), "web1", "client id of the session")
    rnbd.works(t, device)
    rnbd.reconnect(t, rnbd.client_path(t, "sess"))
    # The path is connected a moment before the server opens the disk again.
    t.client.wait_for(f"{device.sysfs}/state", matches="open")
    rnbd.works(t, device, seed=2)
    t.equal(t.server.read(FAILED), "0", "failures")


@case(module_sets=ONLY_OURS)
def test_required(t: Test) -> None:
    """A server that asks for a proof refuses a client without a key, and both logs say what to do."""
    load(t, REQUIRED)
    with_rnbdctl(t)
    forget(t)
    refused(t, errno.ENOKEY, "give this machine a key with rnbdctl key",
            f"ip:{t.server.address}: refused: require_auth is set")


@case(module_sets=ONLY_OURS)
def test_not_required(t: Test) -> None:
    """A server that asks for no proof serves clients without a key, and takes the proof of others."""
    load(t)
    with_rnbdctl(t)
    forget(t)
    device = rnbd.map_device(t, disks.PLAIN)
    t.equal(proved(t), "", "client id of a client without a key")
    rnbd.works(t, device)
    device.unmap()
    new_key(t, "web1")
    device = rnbd.map_device(t, disks.PLAIN)
    t.equal(proved(t), "web1", "client id of a client with a key")
    rnbd.works(t, device)


@case(module_sets=ONLY_OURS)
def test_wrong_key(t: Test) -> None:
    """A client whose key the server does not have is refused, whether a proof is required or not."""
    for parameters in (REQUIRED, ""):
        load(t, parameters)
        new_key(t, "web1", known=False)
        refused(t, errno.EKEYREJECTED, "client id web1: .*load the same key at both ends",
                "refused: client id web1 is not known")
        # Another key of that client, with another number.
        new_key(t, "web1", own=False)
        refused(t, errno.EKEYREJECTED, "EKEYREJECTED", r"refused: client id web1 has a key \w+ that is not loaded")
        # The number is right and the key is wrong.
        own = t.server.read(f"{KEYS}/own/web1")
        number = re.findall(r"^rnbd-key-1:(\w+):", own, re.MULTILINE)[-1]
        forget(t)
        wrong: guest_auth.Key = {"client": "web1", "number": int(number, 16), "key": "5a" * 32}
        write_key(t, "own", own)
        write_key(t, "clients", key_text(wrong))
        program.run(t.server, "key", "load")
        refused(t, errno.EKEYREJECTED, "EKEYREJECTED",
                f"refused: client id web1 has not proved that it has key {number}")
        forget(t)


def key_text(key: guest_auth.Key) -> str:
    """A key as its file has it."""
    number, digits = int(key["number"]), str(key["key"])
    total = 0x811C9DC5
    for byte in number.to_bytes(4, "big") + bytes.fromhex(digits):
        total = (total ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"rnbd-key-1:{number:08x}:{digits}:{total:08x}\n"


def write_key(t: Test, folder: str, text: str, client: str = "web1") -> None:
    """A client's key file."""
    t.server.run(f"mkdir -m 700 -p {KEYS}/{folder} && umask 077 && touch {KEYS}/{folder}/{client}")
    t.server.create(f"{KEYS}/{folder}/{client}", text)


@case(module_sets=ONLY_OURS)
def test_servers_of_a_key(t: Test) -> None:
    """A key for one server's address is not used for another one."""
    load(t)
    with_rnbdctl(t)
    forget(t)
    program.run(t.server, "key", "new", "me", "--own", "--server", "ip:192.0.2.99")
    program.run(t.server, "key", "load")
    device = rnbd.map_device(t, disks.PLAIN)
    t.equal(proved(t), "", "client id with a key for another server")
    device.unmap()
    program.run(t.server, "key", "new", "me", "--own", "--server", f"ip:{t.server.address}")
    t.server.run(f"mkdir -m 700 -p {KEYS}/clients && cp -p {KEYS}/own/me {KEYS}/clients/me")
    program.run(t.server, "key", "load")
    rnbd.map_device(t, disks.PLAIN)
    t.equal(proved(t), "me", "client id with a key for this server")


@case(module_sets=ONLY_OURS)
def test_wrong_proofs(t: Test) -> None:
    """Proofs that are wrong in any part are refused, and the path is closed."""
    load(t, REQUIRED)
    key = new_key(t, "web1")
    t.client.run("modprobe rdma_ucm")
    address = t.server.address
    t.check(t.client.call(guest_auth.polite, address=address, key=key) > 0, "no chunks for the right key")
    results = t.client.call(guest_auth.refused_proofs, address=address, key=key)
    for name, (number, closed) in results.items():
        malformed = name in ("type", "version", "short")
        t.equal(number, -(errno.EINVAL if malformed else errno.EKEYREJECTED), f"{name}: errno")
        t.check(closed, f"{name}: the path was not closed")
    both = t.client.call(guest_auth.name_before_a_proof, address=address, key=key)
    t.equal(tuple(both), (True, True), "closed: a name without a proof, a name without all connections")


@case(module_sets=ONLY_OURS)
def test_replayed(t: Test) -> None:
    """A recorded proof lets nobody in."""
    load(t, REQUIRED)
    key = new_key(t, "web1")
    t.client.run("modprobe rdma_ucm")
    mark = t.server.log_mark()
    found = t.client.call(guest_auth.replayed, address=t.server.address, key=key)
    t.equal(tuple(found), (-errno.EKEYREJECTED, True), "errno, and whether the path was closed")
    t.server.wait_log("client id web1 has not proved that it has key", mark)


@case(module_sets=ONLY_OURS)
def test_further_connections(t: Test) -> None:
    """A connection without the right code does not get into a path."""
    load(t, REQUIRED)
    key = new_key(t, "web1")
    t.client.run("modprobe rdma_ucm")
    results = t.client.call(guest_auth.further_connections, address=t.server.address, key=key)
    for name, number in results.items():
        t.equal(number, 0 if name.startswith("right") else -errno.EKEYREJECTED, name)


@case(module_sets=ONLY_OURS)
def test_other_clients_session(t: Test) -> None:
    """Neither another client nor one without a proof adds a path to a client's session."""
    source = f"{t.server.address.rsplit('.', 1)[0]}.77"
    t.client.run(f"ip address add {source}/24 dev dummy0")
    t.defer(t.client.run, f"ip address del {source}/24 dev dummy0")
    load(t)
    key, other = new_key(t, "web1"), new_key(t, "web2", own=False)
    t.client.run("modprobe rdma_ucm")
    mark = t.server.log_mark()
    closed = t.client.call(guest_auth.other_clients_session, address=t.server.address, key=key, other=other,
                           source=source)
    t.equal(tuple(closed), (True, True), "closed: the path of another client, a path without a proof")
    t.server.wait_log("a path of client id web2 for the session of client id web1", mark)
    t.server.wait_log("a path of a client without a proof of identity for the session of client id web1", mark)


@case(module_sets=ONLY_OURS, timeout=180)
def test_session_without_a_proof(t: Test) -> None:
    """A session that was begun without a proof takes no path with one, and says what to do; as soon as all its paths
    were lost at once, it has the proof on all of them."""
    load(t)
    with_rnbdctl(t)
    forget(t)
    device = rnbd.map_device(t, disks.PLAIN)
    rnbd.configure(t, hold_io_ms=60000, reconnect_delay_ms=500)
    folder = f"{rnbd.CLIENT_SESSIONS}/sess"
    new_key(t, "web1")
    said = program.run(t.client, "key", "load").out
    t.check("these sessions do not change: sess;" in said, f"key load says {said!r}")
    mark = t.server.log_mark()
    with t.expect_errno(errno.EKEYREJECTED):
        t.client.write(f"{folder}/add_path", f"ip:{t.server.address6}")
    t.client.wait_log("refused by the server: EKEYREJECTED .*begun with another proof of identity, or without one: "
                      "disconnect all its paths, and reconnect them then", mark)
    t.server.wait_log("a path of client id web1 for the session of a client without a proof of identity", mark)
    rnbd.works(t, device)
    # The only path, so all of them.
    path = rnbd.client_path(t, "sess")
    t.client.write(f"{path}/disconnect", "1")
    rnbd.reconnect(t, path)
    t.equal(proved(t), "web1", "client id after all paths were disconnected")
    t.client.write(f"{folder}/add_path", f"ip:{t.server.address6}")
    rnbd.works(t, device, seed=2)
    device.unmap()
    # The same by itself, with two paths that the server loses.
    forget(t)
    address, address6 = t.server.address, t.server.address6
    device = rnbd.map_device(t, disks.PLAIN, paths=[f"ip:{address}", f"ip:{address6}"])
    # While one path asks, and is refused, the session is there for the other one, too.
    rnbd.configure(t, hold_io_ms=60000, reconnect_delay_ms=4000)
    new_key(t, "web1")
    paths = [rnbd.path_to(t, address), rnbd.path_to(t, address6)]
    mark = t.client.log_mark()
    for name in t.server.listdir(f"{rnbd.SERVER_SESSIONS}/sess/paths"):
        t.server.write(f"{rnbd.SERVER_SESSIONS}/sess/paths/{name}/disconnect", "1")
    t.client.wait_log("Device online, device remapped successfully", mark, timeout=60)
    for path in paths:
        t.client.wait_for(f"{path}/state", matches="connected", timeout=60)
    t.equal(proved(t), "web1", "client id after all paths were lost")
    rnbd.works(t, device, seed=3)


@case(module_sets=ONLY_OURS, timeout=300)
def test_rotation(t: Test) -> None:
    """Keys are replaced under IO, and a key that was removed lets nobody in."""
    load(t, REQUIRED)
    old = new_key(t, "web1")
    device = rnbd.map_device(t, disks.PLAIN)
    rnbd.configure(t, hold_io_ms=60000, reconnect_delay_ms=500)
    stream = Stream(t, device)
    new = new_key(t, "web1")
    t.check(old["number"] != new["number"], "the new key has the old one's number")
    path = rnbd.client_path(t, "sess")
    rnbd.reconnect(t, path)
    program.run(t.server, "key", "remove", "web1", "--key", f"{int(old['number']):08x}")
    program.run(t.server, "key", "load")
    rnbd.reconnect(t, path)
    stream.stop()
    t.equal(proved(t), "web1", "client id after the rotation")
    device.unmap()
    # A client that still has only the old key.
    write_key(t, "own", key_text(old))
    program.run(t.server, "key", "load")
    refused(t, errno.EKEYREJECTED, "EKEYREJECTED", f"has a key {int(old['number']):08x} that is not loaded")


@case(module_sets=ONLY_OURS, quick=QUICK_ON)
def test_policy(t: Test) -> None:
    """An export policy decides by the client id that was proved, and the log says so."""
    load(t)
    with_rnbdctl(t)
    forget(t)
    rule = policy.rule().replace("device=", "client-id=web* device=")
    policy.load(t, rule)
    mark = t.server.log_mark()
    with t.expect_errno(errno.EACCES):
        rnbd.map_device(t, disks.PLAIN)
    t.server.wait_log(r"\(no proof of identity\): the export policy refuses", mark)
    new_key(t, "web1")
    rnbd.map_device(t, disks.PLAIN).unmap()
    t.server.run(f"rm -r {KEYS}")
    new_key(t, "db")
    mark = t.server.log_mark()
    with t.expect_errno(errno.EACCES):
        rnbd.map_device(t, disks.PLAIN)
    t.server.wait_log(r"\(client id db\): the export policy refuses", mark)


def time_to_map(t: Test) -> float:
    """The time that mapping a device takes, in seconds, sysfs and all."""
    started = time.monotonic()
    device = rnbd.map_device(t, disks.PLAIN, keep=True)
    took = time.monotonic() - started
    device.unmap()
    return took


@case(module_sets=ONLY_OURS, quick=(), timeout=300)
def test_time_to_connect(t: Test) -> None:
    """Connecting with a proof takes at most a fifth longer than without."""
    load(t)
    with_rnbdctl(t)
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(t.rounds(10)):
        for proof in (False, True):
            if proof:
                new_key(t, "web1")
            else:
                forget(t)
            times[proof].append(time_to_map(t))
    without, with_proof = min(times[False]), min(times[True])
    found = f"{with_proof * 1000:.1f} ms with a proof, {without * 1000:.1f} ms without"
    t.check(with_proof <= 1.2 * without, found)
    t.say(found)
