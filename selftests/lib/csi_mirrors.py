# SPDX-License-Identifier: GPL-2.0
"""Two storage servers whose drivers make the legs of mirrored volumes, and a client that is node and controller."""

from __future__ import annotations

import hashlib
from typing import Any

from lab.selftest_case import Test
from lab.vm import wait_until
from lib import csi
from lib import disks
from lib import guest_relay
from lib import images
from lib import mirrors
from lib.csi import Driver
from lib.csi import Use

SERVERS = ("storage1", "storage2")
# A server counts as away if a connection takes longer. Emulated processors may stand still for seconds.
CLIENT = f"{mirrors.FAST} reconnect_delay_ms=1000 connect_timeout_ms=15000"
# Where the driver of a server is reached from another machine, in place of what ssh would carry.
PORT = 4000
# Records must outlive a power cut of the client, so a disk of the client is mounted here.
MEMORY = mirrors.MEMORY
RECORDS = f"{MEMORY}/mirrors"
PARKED = f"{MEMORY}/volumes"
KEPT = "/sys/class/rnbd-server/ctl/kept_reservations"
NOTES = "/run/rnbd"


def leg(name: str) -> str:
    """What the legs of a volume of that name are called at their servers."""
    servers = hashlib.sha256("+".join(SERVERS).encode()).hexdigest()[:8]
    return f"csim-{servers}-{name}"


class Storage:
    """A storage server: its legs are files on a disk that outlives a power cut."""

    def __init__(self, t: Test, number: int) -> None:
        self._t = t
        self.name = SERVERS[number]
        self.node = t.nodes[1 + number]
        self.folder = f"/mnt/{self.name}"
        self.node.run(f"{images.MAKE['ext4']} {disks.PLAIN}", timeout=120)
        place = ("--folder", f"{self.folder}/csi")
        self.driver = Driver(t, *csi.of_server(self.name, self.node, *place), node=self.node)
        t.defer(self._tidy)
        self._serve()

    def _serve(self) -> None:
        """What a boot does."""
        csi.install(self.node)
        self.node.run(f"set -e; modprobe -q ext4 || :; mkdir -p {self.folder}\nmount {disks.PLAIN} {self.folder}\n"
                      f"mkdir -p {self.folder}/csi", timeout=120)
        self.node.modules_load("rnbd_server", rtrs_server=mirrors.FAST, rnbd_server=f"dev_search_path={self.folder}")
        self.driver.start()
        self.node.call(guest_relay.start, at=f"{self.node.address}:{PORT}", to=csi.SOCKET)

    def _tidy(self) -> None:
        self.driver.stop()
        self.node.modules_unload_all()
        self.node.run(f"umount {self.folder}", check=False)

    @property
    def socket(self) -> str:
        """The socket of this server's driver on the client."""
        return f"/run/{self.name}.sock"

    def legs(self) -> list[str]:
        """The files of legs, also of those that are half made."""
        return self.node.sh(f"ls -A {self.folder}/csi").split()

    def power_cut(self) -> None:
        """Cuts the power."""
        self.driver.lost()
        self.node.kill()

    def power_back(self) -> None:
        """Boots the server again."""
        self.node.start()
        self._t.lab.finish_reboot(self.node)
        self._serve()


class Mirrored:
    """The servers, and the driver on the client."""

    def __init__(self, t: Test, within: tuple[str, ...] = ()) -> None:
        self.t = t
        for node in t.nodes:
            node.modules_unload_all()
            t.defer(node.modules_unload_all)
        self.servers = [Storage(t, number) for number in range(len(SERVERS))]
        t.client.run(f"{images.MAKE['ext4']} {disks.PLAIN}", timeout=120)
        options = ["--mirrors"]
        for server in self.servers:
            options += ["--server-socket", f"{server.name}=unix://{server.socket}"]
        t.defer(self._tidy)
        self.driver = Driver(t, *csi.OF_NODE, *options, within=within)
        self._begin()

    def _begin(self) -> None:
        """What a boot of the client does."""
        client = self.t.client
        client.run(f"set -e; modprobe -q ext4 || :; mkdir -p {MEMORY} {csi.PLACE}\n"
                   f"mount -t ext4 {disks.PLAIN} {MEMORY}", timeout=120)
        client.modules_load("rnbd_client", rtrs_client=CLIENT, rnbd_client=mirrors.HOST)
        for server in self.servers:
            client.call(guest_relay.start, at=server.socket, to=f"{server.node.address}:{PORT}")
        csi.install(client)
        self.driver.start()

    def reboot(self) -> None:
        """Cuts the power of the client, and boots it."""
        self.driver.lost()
        self.t.lab.reboot(self.t.client)
        self._begin()

    def parked(self) -> list[str]:
        """The records of volumes that were on the client."""
        return self.t.client.sh(f"mkdir -p {PARKED}; ls {PARKED}").split()

    def _tidy(self) -> None:
        """The driver has ended, and its mounts and mappings are gone, or could not be removed."""
        run = self.t.client.run
        run("for m in /dev/md[0-9]*; do [ ! -b $m ] || mdadm --stop $m; done\n"
            "for d in /sys/block/rnbd*; do [ ! -d $d ] || echo force >$d/rnbd/unmap_device; done\n"
            f"rm -rf {NOTES}/*; umount {MEMORY}", check=False)

    def request(self, name: str, mib: int = 64) -> csi.Request:
        """The request that makes a volume over both servers."""
        return {**csi.create_request(name, mib), "parameters": {"servers": ",".join(SERVERS)}}

    def condition(self, use: Use) -> dict[str, Any]:
        """The condition of a volume that is published."""
        found: dict[str, Any] = self.driver.call(*use.stats())["volume_condition"]
        return found

    def wait(self, use: Use, *words: str, seconds: float = 120.0) -> str:
        """Waits until the condition of a volume has these words, or is normal if there are none; what it says."""
        last: dict[str, Any] = {}

        def is_so() -> bool:
            last.update(self.condition(use))
            return bool(last["abnormal"]) == bool(words) and all(word in last["message"] for word in words)

        try:
            wait_until(is_so, seconds * self.t.client.slow, f"condition with {words}")
        except TimeoutError as error:
            told = self.t.client.run(f"cat /proc/mdstat {RECORDS}/*", check=False).out
            raise AssertionError(f"{error}; it is {last}\n{told}") from None
        return str(last["message"])

    def nothing_left(self, what: str) -> None:
        """The client has neither mapped nor mounted anything, runs no mirror, and has no record of one."""
        csi.nothing_left(self.t, what)
        client = self.t.client
        arrays = [name for name in client.listdir("/sys/block") if name.startswith("md")]
        self.t.equal(arrays, [], f"arrays {what}")
        self.t.equal(client.sh(f"ls -A {RECORDS}; ls -A {NOTES} | grep -v lock || :"), "", f"records and notes {what}")

    def no_legs(self, what: str) -> None:
        """No server has anything of a volume."""
        for server in self.servers:
            self.t.equal(server.legs(), [], f"files on {server.name} {what}")
            self.t.equal(server.node.read(KEPT), "", f"reservations on {server.name} {what}")
