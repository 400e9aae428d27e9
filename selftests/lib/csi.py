# SPDX-License-Identifier: GPL-2.0
"""The driver for orchestrators of containers, `rnbd-csi`, in a machine, and calls to it."""

from __future__ import annotations

import functools
import json
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

from lab import csi
from lab.arch import Arch
from lab.selftest_case import Test
from lab.vm_node import Job
from lab.vm_node import Node
from lab.vm_node import Result
from lib import disks
from lib import images
from lib import rnbd

PATH = "/usr/bin/rnbd-csi"
SOCKET = "/run/rnbd-csi.sock"
NODE_ID = "node1"
SERVER = "storage1"
NAME = "csi.rnbd.test"
# The options of a driver that is a node.
OF_NODE = ("--node", "--node-id", NODE_ID)
# Where volumes are staged and published.
PLACE = "/run/rnbd-csi"
MIB = 1 << 20
INVALID = "INVALID_ARGUMENT"
PRECONDITION = "FAILED_PRECONDITION"
# Machines of several subjects run at once.
_LOCK = threading.Lock()

Request = dict[str, Any]


@functools.cache
def _built(machine: Arch) -> Path:
    return csi.failing_program(machine)


def install(node: Node) -> None:
    """Put this checkout's driver, built with its failure points, into a machine's search path."""
    share = node.spec.share / "rnbd-csi"
    with _LOCK:
        if not share.exists():
            partial = share.with_suffix(".partial")
            shutil.copy2(_built(node.spec.arch), partial)
            partial.rename(share)
    node.run(f"[ -e {PATH} ] || cp /host/rnbd-csi {PATH}")


def capability(kind: str = "", mode: int = 1, flags: list[str] | None = None) -> Request:
    """A use of a volume: as a file system of a kind, or as a block device if it is empty."""
    form: Request = {"mount": {"fs_type": kind, "mount_flags": flags or []}} if kind else {"block": {}}
    return {**form, "access_mode": {"mode": mode}}


def both(t: Test, *place: str) -> tuple[str, ...]:
    """The options of a driver that is both node and storage server; `place` says where volumes are."""
    return (*OF_NODE, *of_server(SERVER, t.server, *place))


def of_server(name: str, node: Node, *place: str) -> tuple[str, ...]:
    """The options of a driver that is a storage server."""
    return ("--server", "--server-name", name, *place, "--addresses", node.address)


class Driver:
    """A driver in a machine, the client unless another one is given.

    `options` say what it serves; `within` is a command before the driver's own.
    """

    def __init__(self, t: Test, *options: str, node: Node | None = None, within: tuple[str, ...] = ()) -> None:
        self._t = t
        self._node = node or t.client
        self._options = options
        self._within = within
        self._job: Job | None = None
        install(self._node)
        self._node.run(f"mkdir -p {PLACE}")
        t.defer(self._node.run, f"rm -rf {PLACE}")
        t.defer(self.tidy)

    def start(self, fail_at: str = "") -> None:
        """Start it; at the point `fail_at` it dies."""
        self._node.run(f"rm -f {SOCKET}")
        env = {"RNBD_CSI_FAIL_AT": fail_at} if fail_at else {}
        self._job = self._node.start_job(
            [*self._within, PATH, "--endpoint", f"unix://{SOCKET}", "--name", NAME, *self._options],
            timeout=600, env=env)
        self._node.wait_for(SOCKET)

    def stop(self) -> None:
        """Have it end; it does so without an error."""
        if self._job is not None:
            self._job.kill(signal.SIGTERM)
            result = self._job.wait()
            self._job = None
            self._t.equal(result.rc, 0, f"exit code of the driver: {result.err}")

    def lost(self) -> None:
        """Its machine has lost its power."""
        self._job = None

    def died(self, number: int = signal.SIGABRT) -> None:
        """It has killed itself, or a signal has."""
        assert self._job is not None
        result = self._job.wait(30)
        self._job = None
        self._t.equal(result.rc, -number, f"end of the driver: {result.err}")

    def tidy(self) -> None:
        """Take back what a test has left."""
        self.stop()
        self._node.run(f"for m in $(awk '{{ print $5 }}' /proc/self/mountinfo | grep ^{PLACE}/ | tac); do umount $m\n"
                       "done\n"
                       "for d in /sys/block/rnbd*; do [ ! -d $d ] || echo force >$d/rnbd/unmap_device; done")

    # Calls

    def start_call(self, name: str, request: Request | None = None) -> Job:
        """Begin a call; `ended` has how it ended."""
        argv = [PATH, "call", "--endpoint", f"unix://{SOCKET}", name, json.dumps(request or {})]
        return self._node.start_job(argv, timeout=120)

    def ended(self, result: Result, what: str) -> tuple[str, Any]:
        """The code of a call, and its response or the text of its error."""
        if not result.out:
            raise AssertionError(f"{what}: {result.err}")
        told = json.loads(result.out)
        return told["code"], told.get("response", told.get("message"))

    def call(self, name: str, request: Request | None = None, code: str = "OK") -> Any:
        """Make a call, which must end with a code; its response, or the text of its error."""
        result = self.start_call(name, request).wait()
        got, told = self.ended(result, f"{name} {request}")
        self._t.equal(got, code, f"code of {name} {json.dumps(request)}: {told}")
        return told

    def dies(self, name: str, request: Request, number: int = signal.SIGABRT) -> None:
        """Make a call in which the driver dies."""
        result = self.start_call(name, request).wait()
        self._t.check(result.rc != 0 and not result.out, f"{name} succeeded: {result.out}")
        self.died(number)

    def killed_at(self, point: str, name: str, request: Request) -> None:
        """Make a call in which the driver dies at a point, and start the driver again."""
        self.stop()
        self.start(point)
        self.dies(name, request)
        self.start()

    def twice(self, name: str, request: Request) -> Any:
        """Make a call, and the same again, with the same response; it."""
        first = self.call(name, request)
        self._t.equal(self.call(name, request), first, f"second response of {name}")
        return first

    # Volumes

    def create(self, name: str, mib: int = 64) -> Request:
        """Make a volume; what the orchestrator keeps about it."""
        response = self.call("CreateVolume", create_request(name, mib))
        volume: Request = response["volume"]
        return volume


def create_request(name: str, mib: int = 64) -> Request:
    """The request that makes a volume for any use."""
    return {"name": name, "capacity_range": {"required_bytes": mib * MIB},
            "volume_capabilities": [capability(), capability("ext4")]}


class Use:
    """A volume as a node uses it: the requests for it."""

    def __init__(self, volume: Request, use: Request, number: int = 1) -> None:
        self.id = str(volume["volume_id"])
        self._context = volume.get("volume_context", {})
        self._use = use
        self.staging = f"{PLACE}/stage{number}"
        self.target = f"{PLACE}/target{number}"

    def stage(self) -> tuple[str, Request]:
        """Stage it."""
        return "NodeStageVolume", {"volume_id": self.id, "staging_target_path": self.staging,
                                   "volume_capability": self._use, "volume_context": self._context}

    def publish(self, target: str = "", readonly: bool = False) -> tuple[str, Request]:
        """Publish it."""
        return "NodePublishVolume", {"volume_id": self.id, "staging_target_path": self.staging,
                                     "target_path": target or self.target, "readonly": readonly,
                                     "volume_capability": self._use, "volume_context": self._context}

    def stats(self, path: str = "") -> tuple[str, Request]:
        """Ask how full it is."""
        return "NodeGetVolumeStats", {"volume_id": self.id, "volume_path": path or self.target,
                                      "staging_target_path": self.staging}

    def expand(self, mib: int, path: str = "") -> tuple[str, Request]:
        """Have the node use all of it."""
        return "NodeExpandVolume", {"volume_id": self.id, "volume_path": path or self.target,
                                    "capacity_range": {"required_bytes": mib * MIB}}

    def unpublish(self, target: str = "") -> tuple[str, Request]:
        """Undo the publishing."""
        return "NodeUnpublishVolume", {"volume_id": self.id, "target_path": target or self.target}

    def unstage(self) -> tuple[str, Request]:
        """Undo the staging."""
        return "NodeUnstageVolume", {"volume_id": self.id, "staging_target_path": self.staging}


def delete(volume: Request) -> tuple[str, Request]:
    """Delete a volume."""
    return "DeleteVolume", {"volume_id": volume["volume_id"]}


def devices(t: Test) -> list[str]:
    """The devices that are mapped."""
    return [name for name in t.client.listdir("/sys/block") if name.startswith("rnbd")]


def session_path(t: Test) -> str:
    """The folder of the path of the driver's session."""
    (session,) = [name for name in t.client.listdir(rnbd.CLIENT_SESSIONS) if name.startswith("csi-")]
    return rnbd.client_path(t, session)


# What the cases begin and end with


def prepare(t: Test, connect_timeout_ms: int = 0, within: tuple[str, ...] = ()) -> Driver:
    """A driver whose volumes are files on a disk of the machine, and the modules that see them."""
    folder = images.file_system(t, "ext4", disks.PLAIN)
    rnbd.load(t, rnbd_server=f"dev_search_path={folder}", connect_timeout_ms=connect_timeout_ms)
    t.server.run(f"mkdir {folder}/csi")
    t.defer(t.server.run, f"rm -rf {folder}/csi")
    driver = Driver(t, *both(t, "--folder", f"{folder}/csi"), within=within)
    driver.start()
    return driver


def nothing_left(t: Test, what: str) -> None:
    """No device is mapped, and nothing is mounted."""
    t.equal(devices(t), [], f"devices {what}")
    t.check(PLACE not in t.client.read("/proc/self/mountinfo"), f"something is mounted {what}")


def in_turn(driver: Driver, *calls: tuple[str, Request]) -> None:
    """Make calls, each twice."""
    for name, request in calls:
        driver.twice(name, request)
