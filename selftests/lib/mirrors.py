# SPDX-License-Identifier: GPL-2.0
"""A mirror on the client over a disk of each of two servers, and the faults that tests cause."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from lab.selftest_case import Test
from lab.vm import wait_until
from lab.vm_node import Job
from lab.vm_node import Node
from lib import cable
from lib import disks
from lib import guest_io
from lib import program
from lib import rnbd
from lib.rnbd import Device
from lib.rnbd import disk_stats

NAME = "db"
DISK = disks.LARGE_BLOCKS
SESSIONS = ("near", "far")
# Records must outlive a power cut of the client, so a disk of the client is mounted here.
MEMORY = "/var/lib/rnbd"
HOST = "host_uuid=01234567-89ab-cdef-0123-456789abcdef"
# Both ends give up a path after a second; the client soon tries to connect again.
FAST = f"ack_timeout_ms={rnbd.ACK_TIMEOUT_MS} hb_interval_ms=200 hb_missed_max=4"
FAST_CLIENT = f"{FAST} reconnect_delay_ms=1000 connect_timeout_ms=2000"
# A machine that has just booted may take longer than `connect_timeout_ms` to respond.
UNREACHABLE = (errno.EHOSTUNREACH, errno.ETIMEDOUT, errno.ECONNABORTED)
# A server that boots, or that still has the mappings of a client that is gone.
NOT_YET = (*UNREACHABLE, errno.ECONNREFUSED, errno.ECONNRESET, errno.ENOTCONN, errno.EBUSY, errno.EPERM)
SECTOR = 512
BLOCK = 4096


def leg(number: int) -> str:
    """The name of a leg."""
    return f"{DISK}@{SESSIONS[number]}"


def area(mirror: Device, disk: Device) -> tuple[int, int]:
    """The place of a mirror's data on each leg, and its length, in bytes. The mirror runs."""
    text = disk.node.sh(f"mdadm --examine {disk.path}")
    fields = {name.strip(): value.strip() for name, _, value in
              (line.partition(" : ") for line in text.splitlines())}
    return int(fields["Data Offset"].split()[0]) * SECTOR, mirror.size()


def by_modprobe(node: Node) -> None:
    """Has `modprobe` find the modules of the set, with a long time for acknowledgements: machines may stand still."""
    node.run("set -e; d=/lib/modules/$(uname -r)/updates; [ -d $d ] || {\n"
             f"mkdir -p $d; cp /host/modules/{node.module_set}/*.ko $d; depmod -a; }}\n"
             f"for m in rtrs_client rtrs_server; do echo options $m ack_timeout_ms={rnbd.ACK_TIMEOUT_MS}; done "
             "> /etc/modprobe.d/patience.conf", timeout=120)


def map_leg(t: Test, session: str, address: str, passing: Sequence[int] = UNREACHABLE, **options: Any) -> Device:
    """Maps a leg, and tries for a minute as long as the error is one of `passing`."""
    found: list[Device] = []

    def mapped() -> bool:
        try:
            found.append(rnbd.map_device(t, DISK, session=session, keep=True, paths=[f"ip:{address}"], **options))
        except OSError as error:
            if error.errno not in passing:
                raise
            return False
        return True

    wait_until(mapped, 60.0 * t.client.slow, f"mapping {DISK}@{session}")
    return found[0]


class Watched:
    """A client on which the service that tends mirrors can run."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.watcher: Job | None = None

    def watch(self) -> None:
        """Starts the service. Its process runs when this returns, so ``stop_watching`` can end it."""
        assert self.watcher is None
        begun = "/tmp/mirror-watch-begun"
        self.node.run(f"rm -f {begun}")
        self.watcher = self.node.start_job(
            f"echo >{begun}; exec rnbdctl mirror watch >>/tmp/mirror-watch 2>&1", timeout=3600)
        self.node.wait_for(begun)

    def stop_watching(self) -> None:
        """Ends the service."""
        if self.watcher is not None:
            self.watcher.kill()
            self.watcher.wait(60.0)
            self.watcher = None


class Mirror(Watched):
    """The mirror ``db``. It is whole when the object is made, and with ``watched`` the service runs. ``options`` are
    those of `mirror create`."""

    def __init__(self, t: Test, *, watched: bool = True, options: Sequence[str] = ()) -> None:
        super().__init__(t.client)
        self.t = t
        self.servers = t.nodes[1:1 + len(SESSIONS)]
        cable.prepare(t)
        for node in t.nodes:
            node.modules_unload_all()
            t.defer(node.modules_unload_all)
        for number in range(len(self.servers)):
            self.servers[number].run(f"blkdiscard --force --zeroout {DISK}")
            self.load_server(number)
        t.client.run(f"set -e; mkfs.ext4 -q -F {disks.PLAIN}")
        self.ready_client()
        t.defer(self.tidy)
        self.devices = [self.map(number) for number in range(len(self.servers))]
        legs = [leg(number) for number in range(len(SESSIONS))]
        # The disks are all zeroes.
        program.run(t.client, "mirror", "create", NAME, *legs, "--assume-clean", *options)
        t.client.run("rm -f /tmp/mirror-watch")
        if watched:
            self.watch()
        self.wait("whole")

    def load_server(self, number: int) -> None:
        """Loads a server's modules."""
        self.servers[number].modules_load("rnbd_server", rtrs_server=FAST, rnbd_server="")

    def ready_client(self) -> None:
        """Mounts the disk of records, loads the client's modules and installs the program, as a boot would."""
        client = self.t.client
        client.run(f"set -e; modprobe -q ext4 || :; mkdir -p {MEMORY}\n"
                   f"mountpoint -q {MEMORY} || mount -t ext4 {disks.PLAIN} {MEMORY}", timeout=120)
        client.modules_load("rnbd_client", rtrs_client=FAST_CLIENT, rnbd_client=HOST)
        program.install(client)

    def map(self, number: int) -> Device:
        """Maps a leg, and tries for a minute: a server may take a while to notice that the client was gone."""
        return map_leg(self.t, SESSIONS[number], self.servers[number].address, NOT_YET)

    def tidy(self) -> None:
        """Stops the mirror, and removes its record and its mappings."""
        client = self.t.client
        self.stop_watching()
        client.run(f"rnbdctl mirror stop {NAME}; rm -f /run/rnbd/*; rm -rf {MEMORY}/mirrors", check=False)
        client.run("for m in /dev/md*; do [ ! -b $m ] || mdadm --stop $m; done", check=False)
        rnbd.unmap_all(self.t)
        client.run(f"umount {MEMORY}", check=False)

    def status(self) -> dict[str, Any]:
        """The entry of the mirror in the output of `mirror status`."""
        found: dict[str, Any] = program.json_of(self.t.client, "mirror", "status", NAME)["mirrors"][0]
        return found

    def legs(self) -> list[str]:
        """The states of the legs, the near one first."""
        by_session = {one["session"]: one["state"] for one in self.status()["legs"]}
        return [by_session[session] for session in SESSIONS]

    def wait(self, state: str, seconds: float = 60.0) -> float:
        """Waits until the mirror has this state; returns the seconds that it took."""
        began = time.monotonic()
        try:
            wait_until(lambda: self.status()["state"] == state, seconds * self.t.client.slow, state)
        except TimeoutError as error:
            said = self.t.client.run("tail -n 20 /tmp/mirror-watch; cat /proc/mdstat", check=False).out
            raise AssertionError(f"{error}: {self.status()}\n{said}") from None
        return time.monotonic() - began

    def wait_for_leg(self, number: int, seconds: float = 120.0) -> float:
        """Waits until md has a leg that came back; the seconds that took."""
        began = time.monotonic()
        wait_until(lambda: self.legs()[number] in ("filling", "in-sync"), seconds * self.t.client.slow,
                   f"{leg(number)} in the mirror")
        return time.monotonic() - began

    @property
    def device(self) -> Device:
        """The device of the running mirror."""
        return Device(self.t.client, self.status()["md"], "", "")

    def written(self) -> tuple[int, list[int]]:
        """The bytes written so far to the mirror, and to each leg."""
        def count(disk: str) -> int:
            return disk_stats(self.t.client, disk)["write_sectors"] * SECTOR

        return count(self.device.name), [count(device.name) for device in self.devices]

    def power_cut(self, number: int) -> None:
        """Cuts the power of a server."""
        self.servers[number].kill()

    def power_back(self, number: int, before: Callable[[Node], object] | None = None) -> None:
        """Boots a server again, with its disk; ``before`` is called before it exports the disk."""
        node: Node = self.servers[number]
        node.start()
        self.t.lab.finish_reboot(node)
        if before is not None:
            before(node)
        self.load_server(number)

    def cut(self, number: int) -> None:
        """Has the link between the client and a server drop all packets."""
        cable.change(self.t, self.servers[number], [0], "loss 100%", "loss 0%")
        cable.change(self.t, self.t.client, [number], "loss 100%", "loss 0%")

    def mend(self, number: int) -> None:
        """Has the link carry packets again."""
        cable.have(self.servers[number], [0], "loss 0%")
        cable.have(self.t.client, [number], "loss 0%")

    def reboot_client(self) -> None:
        """Cuts the power of the client, and boots it; the caller maps the legs again."""
        self.watcher = None
        self.t.lab.reboot(self.t.client)
        self.t.client.run(f"set -e; modprobe -q ext4 || :; e2fsck -p {disks.PLAIN} || [ $? = 1 ]", timeout=120)
        self.ready_client()

    def area(self) -> tuple[int, int]:
        """The place of the data on each leg, and its length, in bytes."""
        return area(self.device, self.devices[0])

    def same(self) -> None:
        """Stops the mirror, and compares the data of both legs. Then starts the mirror without the service, and writes
        to it."""
        self.stop_watching()
        offset, size = self.area()
        program.run(self.t.client, "mirror", "stop", NAME)
        self.legs_are_the_same(offset, size)
        program.run(self.t.client, "mirror", "assemble", NAME)
        self.t.client.call(guest_io.write, path=self.device.path, offset=size - BLOCK, length=BLOCK, seed=0)

    def legs_are_the_same(self, offset: int, size: int) -> None:
        """Compares the SHA-256 of the data of both legs, read at the servers. The mirror must not run."""
        self.t.equal((offset % BLOCK, size % BLOCK), (0, 0), "data of a leg in whole blocks")
        sums = [node.sh(f"dd if={DISK} iflag=direct bs={BLOCK} skip={offset // BLOCK} count={size // BLOCK} "
                        "status=none | sha256sum", timeout=120) for node in self.servers]
        self.t.intact(sums[1], sums[0], "data of the far leg, and of the near one")
