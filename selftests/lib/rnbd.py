# SPDX-License-Identifier: GPL-2.0
"""RNBD from a test's side: load modules, map and unmap devices, look at both ends."""

from __future__ import annotations

import contextlib
import errno
import re
import time
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import dataclass

from lab.selftest_case import Test
from lab.vm import wait_until
from lab.vm_node import Node
from lib import guest_io

MAP_DEVICE = "/sys/class/rnbd-client/ctl/map_device"
SERVER_DEVICES = "/sys/class/rnbd-server/ctl/devices"
CLIENT_SESSIONS = "/sys/class/rtrs-client"
CLIENT_DEVICES = "/sys/class/rnbd-client/ctl/devices"
SERVER_SESSIONS = "/sys/class/rtrs-server"
# Modules that are only loaded because others need them.
NEEDED = ("rtrs_core", "rtrs_client_c", "rtrs_server_c")


# Longer than an emulated machine stands still on a busy host: soft-RoCE breaks
# connections when it has to send again.
ACK_TIMEOUT_MS = 8000


def fewer_buffers(t: Test) -> str:
    """A parameter of rtrs_server for tests that connect often: a path registers each buffer, and
    512 take the debug kernel seconds."""
    return "sess_queue_depth=64 " if t.debug else ""


def load(t: Test, *, rtrs_client: str = "", rtrs_server: str = "", rnbd_server: str = "", rnbd_client: str = "",
         client: bool = True, server: bool = True, ack_timeout_ms: int = ACK_TIMEOUT_MS,
         connect_timeout_ms: int = 0) -> None:
    """Have the modules loaded with these parameters, client's and server's.

    Modules that are loaded already with the same parameters stay. ``ack_timeout_ms``
    and ``connect_timeout_ms`` are for our modules; C has no such parameters and waits
    30 seconds for a connection.
    """
    if connect_timeout_ms and client and t.client.module_set != "c":
        rtrs_client = f"connect_timeout_ms={connect_timeout_ms} {rtrs_client}".rstrip()

    def patient(node: Node, text: str) -> str:
        ours = node.module_set != "c" and ack_timeout_ms
        return f"ack_timeout_ms={ack_timeout_ms} {text}".rstrip() if ours else text

    wanted: dict[str, tuple[Node, dict[str, str]]] = {}
    for node in t.nodes:
        wanted[node.name] = (node, {})
    if server:
        wanted[t.server.name][1].update(
            rtrs_server=patient(t.server, rtrs_server), rnbd_server=rnbd_server)
    if client:
        wanted[t.client.name][1].update(
            rtrs_client=patient(t.client, rtrs_client), rnbd_client=rnbd_client)
    for node, modules in wanted.values():
        load_exactly(node, modules)


def load_exactly(node: Node, modules: dict[str, str]) -> None:
    """Have these modules and what they need on a machine, and no others of ours."""
    loaded = {name: text for name, text in node.loaded_parameters.items() if name not in NEEDED}
    if loaded != modules:
        node.modules_unload_all()
        if modules:
            node.modules_load(*modules, **modules)


def use_set(node: Node, name: str) -> None:
    """Take a machine's modules from another set from now on."""
    if node.module_set != name:
        if node.module_set == "c" and not node.listdir(CLIENT_DEVICES):
            # The C transport calls rnbd_client until a session is gone, also if rnbd_client was unloaded.
            wait_until(lambda: not node.listdir(CLIENT_SESSIONS), 20 * node.slow, "the end of the C client's sessions")
        node.modules_unload_all()
        node.loaded_parameters.clear()
        node.module_set = name


@dataclass
class Device:
    """A mapped device on the client."""

    node: Node
    name: str
    session: str
    device_path: str

    @property
    def path(self) -> str:
        """Its node in /dev."""
        return f"/dev/{self.name}"

    @property
    def sysfs(self) -> str:
        """Its rnbd folder in sysfs."""
        return f"/sys/block/{self.name}/rnbd"

    def attribute(self, name: str) -> str:
        """An attribute's text, e.g. ``state``."""
        return self.node.read(f"{self.sysfs}/{name}")

    def queue(self, name: str) -> str:
        """A request queue limit's text."""
        return self.node.read(f"/sys/block/{self.name}/queue/{name}")

    def size(self) -> int:
        """Capacity in bytes."""
        return int(self.node.read(f"/sys/block/{self.name}/size")) * 512

    def unmap(self, how: str = "normal") -> None:
        """Unmap; the disk is gone when this returns."""
        self.node.write(f"{self.sysfs}/unmap_device", how)

    def unmap_if_mapped(self) -> None:
        """Unmap by force unless it is gone already."""
        if self.node.exists(self.sysfs):
            self.unmap("force")


def map_text(*, session: str, device_path: str, paths: list[str], **options: object) -> str:
    """What is written to map_device."""
    words = [f"sessname={session}", *(f"path={path}" for path in paths)]
    words += [f"{name}={value}" for name, value in options.items() if value is not None]
    return " ".join([*words, f"device_path={device_path}"])


def map_device(t: Test, device_path: str, *, session: str = "sess", paths: list[str] | None = None,
               node: Node | None = None, keep: bool = False, **options: object) -> Device:
    """Map a device of the server; unmapped when the test is over unless ``keep``."""
    node = node or t.client
    if paths is None:
        paths = [f"ip:{t.server.address}"]
    node.write(MAP_DEVICE, map_text(session=session, device_path=device_path, paths=paths,
                                    **options))
    device = find_device(node, device_path, session)
    if not keep:
        t.defer(device.unmap_if_mapped)
    return device


def link_name(device_path: str, session: str) -> str:
    """Name of a mapping in ctl/devices."""
    return f"{device_path.replace('/', '!')}@{session}"


def find_device(node: Node, device_path: str, session: str) -> Device:
    """The disk of a mapping, by its link in sysfs."""
    link = f"{CLIENT_DEVICES}/{link_name(device_path, session)}"
    if not node.exists(link):
        raise AssertionError(f"{link} is not there after mapping")
    disk = node.realpath(link).rsplit("/", 1)[-1]
    if not re.fullmatch(r"rnbd\d+", disk):
        raise AssertionError(f"{link} leads to {disk}, not to an rnbd disk")
    return Device(node, disk, session, device_path)


def client_path(t: Test, session: str, number: int = 0) -> str:
    """sysfs folder of a session's path on the client."""
    folder = f"{CLIENT_SESSIONS}/{session}/paths"
    return f"{folder}/{t.client.listdir(folder)[number]}"


def server_path(t: Test, session: str, number: int = 0) -> str:
    """sysfs folder of a session's path on the server."""
    folder = f"{SERVER_SESSIONS}/{session}/paths"
    return f"{folder}/{t.server.listdir(folder)[number]}"


def reconnect(t: Test, path: str, seconds: float = 15.0) -> None:
    """Connect a path again by its folder; while the server still closes the old connections it
    refuses new ones (ENOTCONN), and the path may be trying by itself (EBUSY)."""
    deadline = time.monotonic() + seconds * t.client.slow
    while True:
        try:
            return t.client.write(f"{path}/reconnect", "1")
        except OSError as error:
            if error.errno not in (errno.ENOTCONN, errno.EBUSY) or time.monotonic() > deadline:
                raise
            if t.client.read(f"{path}/state") == "connected":
                return None
            time.sleep(0.1)


def disk_stats(node: Node, disk: str) -> dict[str, int]:
    """Counters of a disk: reads, writes, discards, flushes and their sectors."""
    words = [int(word) for word in node.read(f"/sys/block/{disk}/stat").split()]
    return {"reads": words[0], "read_sectors": words[2], "writes": words[4],
            "write_merges": words[5], "write_sectors": words[6], "discards": words[11], "discard_sectors": words[13],
            "flushes": words[15]}


def configure(t: Test, **settings: object) -> None:
    """Write settings of the client's session sess."""
    for name, value in settings.items():
        t.client.write(f"{CLIENT_SESSIONS}/sess/{name}", str(value))


def path_to(t: Test, address: str) -> str:
    """The sysfs folder of the path of session sess to an address."""
    folder = f"{CLIENT_SESSIONS}/sess/paths"
    names = [name for name in t.client.listdir(folder) if name.endswith(f"@ip:{address}")]
    t.equal(len(names), 1, f"paths to {address} among {t.client.listdir(folder)}")
    return f"{folder}/{names[0]}"


def path_over(t: Test, link: int) -> str:
    """The sysfs folder of the path of session sess over a link."""
    return path_to(t, t.server.addresses[link])


def works(t: Test, device: Device, length: int = 64 << 10, seed: int = 1) -> None:
    """What is written to a device is read from it again."""
    t.client.call(guest_io.write, path=device.path, offset=0, length=length, seed=seed)
    t.intact(t.client.call(guest_io.compare, path=device.path, offset=0, length=length, seed=seed),
             None, "first wrong byte")


def unmap_all(t: Test) -> None:
    """Unmap by force what should not have been mapped."""
    for name in t.client.listdir(CLIENT_DEVICES):
        t.client.write(f"{CLIENT_DEVICES}/{name}/rnbd/unmap_device", "force")


@contextlib.contextmanager
def refusal(t: Test, what: str, numbers: Iterable[int], log: str) -> Iterator[None]:
    """What is done inside must fail with one of these errnos, say why, and leave nothing mapped.

    ``log`` is a regular expression that a message of our client matches; C's only has to say something.
    """
    mark = t.client.log_mark()
    try:
        with t.expect_errno(*numbers):
            yield
    except AssertionError as error:
        unmap_all(t)
        raise AssertionError(f"{what}: {error}") from None
    said = t.client.log_since(mark)
    if t.modules == "ours":
        t.check(any(re.search(log, line) for line in said), f"{what}: {log!r} does not match {said}")
    else:
        t.check(said, f"{what}: nothing in the log")
    t.equal(t.client.listdir(CLIENT_SESSIONS), [], f"{what}: sessions afterwards")
    t.equal(t.client.listdir(CLIENT_DEVICES), [], f"{what}: mappings afterwards")
    t.equal([name for name in t.client.listdir("/sys/block") if name.startswith("rnbd")], [],
            f"{what}: disks afterwards")
