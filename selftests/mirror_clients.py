# SPDX-License-Identifier: GPL-2.0
"""A second client takes a mirror over: it gets all data, and the first client's later writes are refused."""

from __future__ import annotations

import errno
from typing import Any

from lab.selftest_case import case
from lab.selftest_case import Test
from lab.vm import wait_until
from lib import guest_io
from lib import guest_reservations as pr
from lib import guest_stream
from lib import mirrors
from lib import program
from lib import rnbd
from lib.mirrors import DISK
from lib.mirrors import Mirror
from lib.mirrors import NAME
from lib.mirrors import Watched
from lib.rnbd import Device
from lib.stream import QUICK_PAUSE
from lib.stream import SMALL_SIZES
from lib.stream import Stream
from lib.stream import verified

TOPOLOGY = "four"
MEMORY_MIB = 512
OURS = ("ours",)
# The debug kernel has no md.
STOCK = ("stock",)
MIB = 1 << 20
FAILED = 5
HOST = "host_uuid=fedcba98-7654-3210-fedc-ba9876543210"
SESSIONS = ("web2-storage1", "web2-storage2")
LEGS = [f"{DISK}@{session}" for session in SESSIONS]
FILE = "/etc/rnbd/rnbd.toml"
RESERVED = "another machine has reserved the disk"
# The first client writes here before the second client has the mirror.
BEFORE = 32 * MIB


class SecondClient(Watched):
    """The second client, with its program and modules; it has mapped nothing."""

    def __init__(self, t: Test, mirror: Mirror) -> None:
        super().__init__(t.nodes[3])
        self.t, self.mirror = t, mirror
        # Of its own link to each server.
        self.addresses = [server.addresses[1] for server in mirror.servers]
        self.node.modules_load("rnbd_client", rtrs_client=mirrors.FAST_CLIENT, rnbd_client=HOST)
        program.install(self.node)
        t.defer(self.tidy)

    def map(self, **options: Any) -> list[Device]:
        """Maps the disks of both servers."""
        return [mirrors.map_leg(self.t, session, address, node=self.node, **options)
                for session, address in zip(SESSIONS, self.addresses, strict=True)]

    def apply(self) -> None:
        """Maps the disks beside the first client's mappings, by a configuration that names the mirror."""
        legs = ", ".join(f'"{one}"' for one in LEGS)
        tables = [f'[[session]]\nname = "{session}"\npaths = ["{address}"]\n'
                  f'devices = [{{ path = "{DISK}", access_mode = "migration" }}]\n'
                  for session, address in zip(SESSIONS, self.addresses, strict=True)]
        self.node.run("mkdir -p /etc/rnbd")
        self.node.create(FILE, "\n".join([*tables, f'[[mirror]]\nname = "{NAME}"\nlegs = [{legs}]\n']))
        # A machine that has just booted on a busy host may respond late.
        program.run(self.node, "apply", "--wait", timeout=120)

    def status(self) -> dict[str, Any]:
        """The entry of the mirror in the output of `mirror status`."""
        found: dict[str, Any] = program.json_of(self.node, "mirror", "status", NAME)["mirrors"][0]
        return found

    @property
    def device(self) -> Device:
        """The device of the running mirror."""
        return Device(self.node, self.status()["md"], "", "")

    def wait_whole(self) -> None:
        """Waits until both legs have all data."""
        wait_until(lambda: self.status()["state"] == "whole", 60 * self.node.slow, "a whole mirror")

    def has(self, seed: int) -> None:
        """Compares what the first client has written before its stream began."""
        wrong = self.node.call(guest_io.compare, path=self.device.path, offset=BEFORE, length=MIB, seed=seed)
        self.t.intact(wrong, None, "first wrong byte at the second client")

    def has_all_of(self, confirmed: list[dict[str, Any]]) -> None:
        """Compares what the first client's stream has written."""
        wrong = self.node.call_within(90, guest_stream.wrong, path=self.device.path, ranges=confirmed)
        self.t.intact(wrong, [], "wrong blocks of the first client's stream at the second client")

    def begin(self) -> None:
        """Begins a verified stream, at the place of the first client's stream."""
        self.node.call(guest_stream.start, path=self.device.path, name="second", sizes=list(SMALL_SIZES),
                       pause=QUICK_PAUSE)
        self.go_on()

    def go_on(self) -> None:
        """Waits until the stream has done some requests more."""
        found = self.node.call_within(90, guest_stream.go_on, requests=8, seconds=60.0, name="second")
        self.t.check(found["taken"] is not None, f"IO of the second client: {found}")

    def end(self) -> dict[str, Any]:
        """Ends the stream, and verifies all that it has written."""
        result = self.node.call_within(90, guest_stream.stop, name="second")
        self.t.intact(result["wrong"], [], "data of the second client that is wrong")
        self.t.equal((result["errnos"], result["hung"]), ([], 0), "failed and hung requests of the second client")
        return result

    def tidy(self) -> None:
        """Stops the mirror, and removes its record and the mappings."""
        self.stop_watching()
        self.node.run(f"rnbdctl mirror stop {NAME} --release; mdadm --stop --scan; rnbdctl unmap --all --force\n"
                      f"rm -rf {FILE} {mirrors.MEMORY}/mirrors /run/rnbd/*", check=False)
        self.node.modules_unload_all()


def ended(t: Test, writer: Stream) -> list[dict[str, Any]]:
    """Waits until all requests of the first client's stream have failed, and returns what it has written until then."""
    wait_until(lambda: writer.progress()["running"] == 0, 60 * t.client.slow, "the first client's writes fail")
    confirmed = t.client.call(guest_stream.confirmed, name="mirror")
    result = writer.stop(check=False)
    t.equal((result["errnos"], result["hung"]), ([errno.EIO], 0), "errnos and hung requests of the first client")
    t.check(all(one["versions"] for one in confirmed), f"the first client's stream has written nothing: {confirmed}")
    return confirmed


def refused(t: Test, mirror: Mirror) -> None:
    """The first client can neither write to a leg nor start the mirror."""
    for device in mirror.devices:
        t.equal(t.client.call(pr.access, path=device.path), [0, errno.EBADE], "errnos of the first client")
    said = program.run(t.client, "mirror", "assemble", NAME, code=FAILED).err
    t.check(RESERVED in said, f"the first client said {said!r}")


def back_again(t: Test, mirror: Mirror, second: SecondClient, seed: int, by_hand: bool = False) -> None:
    """The second client gives the mirror back to the first one, which finds the second client's data. The first client
    starts the mirror by itself unless it had given the mirror up, which needs a start `by_hand`."""
    second.node.call(guest_io.write, path=second.device.path, offset=0, length=MIB, seed=seed)
    leg = rnbd.find_device(second.node, DISK, SESSIONS[0])
    offset, size = mirrors.area(second.device, leg)
    second.stop_watching()
    program.run(second.node, "mirror", "stop", NAME, "--release")
    mirror.legs_are_the_same(offset, size)
    program.run(second.node, "unmap", "--all")
    if any(device.attribute("state") == "closed" for device in mirror.devices):
        program.run(t.client, "remap", "--all")
    if by_hand:
        program.run(t.client, "mirror", "assemble", NAME)
    mirror.wait("whole")
    t.intact(t.client.call(guest_io.compare, path=mirror.device.path, offset=0, length=MIB, seed=seed), None,
             "first wrong byte at the first client")
    mirror.same()


@case(module_sets=OURS, kernels=STOCK, timeout=600, quick=())
def test_after_release(t: Test) -> None:
    """A client gives a mirror up: another client starts it by its rnbd.toml, and the first one stays away from it, also
    after a boot."""
    mirror = Mirror(t)
    t.client.call(guest_io.write, path=mirror.device.path, offset=BEFORE, length=MIB, seed=1)
    said = program.run(t.client, "mirror", "stop", NAME, "--release").out
    t.check("could not reach" not in said, f"said {said!r}")
    second = SecondClient(t, mirror)
    second.apply()
    program.run(second.node, "mirror", "assemble", NAME)
    second.watch()
    t.equal(second.status()["state"], "whole", "state at the second client")
    second.has(1)
    second.begin()
    refused(t, mirror)
    mirror.reboot_client()
    mirror.watch()
    with t.expect_errno(errno.EPERM):
        mirrors.map_leg(t, mirrors.SESSIONS[0], t.server.address)
    mirror.devices = [mirrors.map_leg(t, session, server.address, access_mode="migration")
                      for session, server in zip(mirrors.SESSIONS, mirror.servers, strict=True)]
    refused(t, mirror)
    t.equal(mirror.status()["state"], "stopped", "state at the client that has given the mirror up")
    second.go_on()
    result = second.end()
    back_again(t, mirror, second, 2, by_hand=True)
    t.say(verified(result))


@case(module_sets=OURS, kernels=STOCK, timeout=600, quick=())
def test_take_over(t: Test) -> None:
    """A client is cut off, and another client takes its mirror over: when the first one is back, its writes are
    refused."""
    mirror = Mirror(t)
    t.client.call(guest_io.write, path=mirror.device.path, offset=BEFORE, length=MIB, seed=1)
    writer = Stream(t, mirror.device, name="mirror", operations=("write",), spares=True)
    second = SecondClient(t, mirror)
    for number in (0, 1):
        mirror.cut(number)
    wait_until(lambda: not any(server.listdir(rnbd.SERVER_SESSIONS) for server in mirror.servers), 30 * t.client.slow,
               "the servers notice that the first client is gone")
    confirmed = ended(t, writer)
    second.map()
    said = program.run(second.node, "mirror", "assemble", NAME, *LEGS, code=FAILED).err
    t.check(RESERVED in said, f"said {said!r}")
    program.run(second.node, "mirror", "assemble", NAME, *LEGS, "--take-over")
    second.has(1)
    second.has_all_of(confirmed)
    second.watch()
    second.begin()
    second.wait_whole()
    mark = t.client.log_mark()
    for number in (0, 1):
        mirror.mend(number)
    t.client.wait_for("/tmp/mirror-watch", matches="the mirror had lost its last leg", timeout=60)
    # Its disks are not opened again beside the second client's, which are mapped `rw`.
    wait_until(lambda: len([line for line in t.client.log_since(mark) if "Opening failed" in line]) == 2,
               60 * t.client.slow, "the servers refuse to open the disks for the first client")
    for device in mirror.devices:
        t.equal(device.attribute("state"), "closed", f"state of {device.name}")
    t.equal(mirror.status()["state"], "stopped", "state at the first client")
    second.go_on()
    result = second.end()
    back_again(t, mirror, second, 2)
    t.say(verified(result))


@case(module_sets=OURS, kernels=STOCK, timeout=600, quick=())
def test_take_over_from_a_client_that_is_well(t: Test) -> None:
    """A mirror is taken from a client that writes: the writes that are in flight and all later ones are refused."""
    mirror = Mirror(t)
    t.client.call(guest_io.write, path=mirror.device.path, offset=BEFORE, length=MIB, seed=1)
    writer = Stream(t, mirror.device, name="mirror", operations=("write",), spares=True)
    second = SecondClient(t, mirror)
    second.map(access_mode="migration")
    program.run(second.node, "mirror", "assemble", NAME, *LEGS, "--take-over")
    confirmed = ended(t, writer)
    second.has(1)
    second.has_all_of(confirmed)
    second.watch()
    second.begin()
    second.wait_whole()
    t.client.wait_for("/tmp/mirror-watch", matches=RESERVED, timeout=60)
    refused(t, mirror)
    second.go_on()
    result = second.end()
    back_again(t, mirror, second, 2)
    t.say(verified(result))
