# SPDX-License-Identifier: GPL-2.0
"""Mirrors over disks of two servers: when a machine or a link fails, no write is lost and no old leg is used."""

from __future__ import annotations

from lab import documents
from lab.paths import CHECKOUT
from lab.selftest_case import case
from lab.selftest_case import Test
from lab.vm import wait_until
from lib import disks
from lib import guest_io
from lib import guest_reservations as pr
from lib import guest_stream
from lib import mirrors
from lib import program
from lib import rnbd
from lib.mirrors import DISK
from lib.mirrors import leg
from lib.mirrors import Mirror
from lib.mirrors import NAME
from lib.reservations import READ_ONLY
from lib.rnbd import Device
from lib.stream import QUICK_PAUSE
from lib.stream import seconds
from lib.stream import Stream
from lib.stream import verified

TOPOLOGY = "three"
MEMORY_MIB = 512
OURS = ("ours",)
# The debug kernel has no md.
STOCK = ("stock",)
MIB = 1 << 20
FAILED = 5


def stream(t: Test, mirror: Mirror) -> Stream:
    """A verified stream on the mirror. It does not count the writes of the disk: md decides how many there are."""
    return Stream(t, mirror.device, name="mirror", operations=("write",), spares=True)


class Figures:
    """The costs of the faults of a case: pauses and times in s, written and copied bytes."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.whole: list[float] = []
        self.changed: list[int] = []
        self.copied: list[int] = []

    def __str__(self) -> str:
        copied = ", ".join(f"{copy / MIB:.1f} of {change / MIB:.1f}"
                           for copy, change in zip(self.copied[:5], self.changed[:5], strict=True))
        return (f"pauses: {seconds(self.pauses)}; whole again after {seconds(self.whole)}; "
                f"MiB copied of MiB written meanwhile: {copied}")


def outage(t: Test, mirror: Mirror, writer: Stream, number: int, figures: Figures, *, power: bool,
           counted: bool) -> None:
    """A leg is lost, the program goes on, and the leg comes back with all data; without ``power`` its link is cut. With
    ``counted`` the bytes that md copies are counted."""
    back = mirror.power_back if power else mirror.mend
    writer.longest()
    (mirror.power_cut if power else mirror.cut)(number)
    mirror.wait("degraded")
    writer.go_on()
    figures.pauses.append(writer.longest())
    before, _ = mirror.written()
    t.equal(mirror.legs()[1 - number], "in-sync", "the leg that is left")
    record = t.client.read(f"{mirrors.MEMORY}/mirrors/{NAME}.json")
    t.equal(record.count('"in_sync": false'), 1, f"legs that are not in sync in {record}")
    writer.go_on()
    if not counted:
        back(number)
        figures.whole.append(mirror.wait("whole", 120))
        writer.go_on()
        return
    # The stream begins nothing until md has the leg, so that all of its writes until then are missing there, and all
    # later ones go to it.
    with writer.held():
        changed, legs = mirror.written()
        back(number)
        whole = mirror.wait_for_leg(number)
    figures.whole.append(whole + mirror.wait("whole", 120))
    after, legs_after = mirror.written()
    # A leg that is being filled also gets the writes to the mirror.
    figures.changed.append(changed - before)
    figures.copied.append(legs_after[number] - legs[number] - (after - changed))
    # The stream writes to less than 8 MiB, and md copies whole pieces of 1 MiB.
    t.check(0 <= figures.copied[-1] <= 8 * MIB, f"bytes that were copied: {figures.copied}")
    writer.go_on()


def outages(t: Test, numbers: list[int], *, power: bool) -> None:
    """Each leg is lost and comes back in turn, under a verified stream; both legs are the same in the end."""
    mirror = Mirror(t)
    writer, figures = stream(t, mirror), Figures()
    for index, number in enumerate(numbers):
        outage(t, mirror, writer, number, figures, power=power, counted=index % 4 < 2)
    result = writer.stop()
    mirror.same()
    t.say(f"{len(numbers)} outages; {figures}; {verified(result)}")


@case(module_sets=OURS, kernels=STOCK, timeout=7200, quick=())
def test_servers_die_in_turn(t: Test) -> None:
    """The power of each server is cut in turn: the program sees a pause, and each leg is brought back."""
    outages(t, [number % 2 for number in range(2 * t.rounds(1))], power=True)


@case(module_sets=OURS, kernels=STOCK, timeout=3600, quick=())
def test_link_is_cut(t: Test) -> None:
    """A link carries nothing for a while: the program goes on, and its writes of that time are copied to the leg."""
    outages(t, [(number + 1) % 2 for number in range(t.rounds(1))], power=False)


@case(module_sets=OURS, kernels=STOCK, timeout=3600, quick=())
def test_client_dies(t: Test) -> None:
    """A client loses its power while it writes: after the boot the mirror starts, and its legs are made the same."""
    mirror, whole = Mirror(t), []
    for number in range(t.rounds(1)):
        t.client.call(guest_io.write, path=mirror.device.path, offset=32 * MIB, length=MIB, seed=number)
        t.client.call(guest_stream.start, path=mirror.device.path, name="dying", sizes=[4096, 16384], pause=QUICK_PAUSE)
        t.client.call_within(90, guest_stream.go_on, requests=8, seconds=60.0, name="dying")
        mirror.reboot_client()
        mirror.watch()
        mirror.devices = [mirror.map(1), mirror.map(0)][::-1]
        whole.append(mirror.wait("whole", 120))
        t.intact(t.client.call(guest_io.compare, path=mirror.device.path, offset=32 * MIB, length=MIB, seed=number),
                 None, "first wrong byte of what was written before")
        mirror.same()
        mirror.wait("whole")
    t.say(f"{len(whole)} power cuts; whole {seconds(whole)} after the legs were mapped")


def left_with_the_old_leg(t: Test, mirror: Mirror) -> None:
    """The far leg is lost, writes go on, the near leg is lost, and the client boots with the far leg alone. The far leg
    has the data of seed 1, the near leg that of seed 2."""
    path = mirror.device.path
    t.client.call(guest_io.write, path=path, offset=0, length=MIB, seed=1)
    mirror.power_cut(1)
    t.client.call_within(60, guest_io.write, path=path, offset=0, length=MIB, seed=2)
    mirror.wait("degraded")
    mirror.power_cut(0)
    mirror.reboot_client()
    mirror.power_back(1)
    mirror.devices[1] = mirror.map(1)


@case(module_sets=OURS, kernels=STOCK, timeout=600)
def test_old_leg_is_refused(t: Test) -> None:
    """A leg that was away while writes went on does not become the mirror when the client boots with that leg alone."""
    mirror = Mirror(t)
    left_with_the_old_leg(t, mirror)
    said = program.run(t.client, "mirror", "assemble", NAME, code=FAILED).err
    t.check(f"when this machine last used the mirror: {leg(0)};" in said and "newer data" in said, f"said {said!r}")
    mirror.watch()
    # The service waits half a minute for the missing leg before it says so.
    t.client.wait_for("/tmp/mirror-watch", matches="may have newer data", timeout=90)
    t.equal(mirror.status()["state"], "stopped", "state with the old leg alone")
    mirror.stop_watching()
    # A machine without a record of the mirror refuses the leg, too.
    t.client.run(f"mv {mirrors.MEMORY}/mirrors/{NAME}.json /tmp/record")
    said = program.run(t.client, "mirror", "assemble", NAME, leg(0), leg(1), code=FAILED).err
    t.check("may have newer data" in said, f"said {said!r}")
    t.client.run(f"mv /tmp/record {mirrors.MEMORY}/mirrors/{NAME}.json")
    # The newer leg is back, and the old leg is filled from it.
    mirror.watch()
    mirror.power_back(0)
    mirror.devices[0] = mirror.map(0)
    mirror.wait("whole", 120)
    t.intact(t.client.call(guest_io.compare, path=mirror.device.path, offset=0, length=MIB, seed=2),
             None, "first wrong byte")
    mirror.same()


@case(module_sets=OURS, kernels=STOCK, timeout=300, quick=())
def test_forced_start(t: Test) -> None:
    """An administrator may give up the data that only the missing leg has: that leg is then filled as a whole."""
    mirror = Mirror(t)
    left_with_the_old_leg(t, mirror)
    program.run(t.client, "mirror", "assemble", NAME, "--force-stale")
    t.intact(t.client.call(guest_io.compare, path=mirror.device.path, offset=0, length=MIB, seed=1),
             None, "first wrong byte of the old leg")
    t.client.call(guest_io.write, path=mirror.device.path, offset=0, length=MIB, seed=3)
    mirror.watch()
    mirror.power_back(0)
    mirror.devices[0] = mirror.map(0)
    mirror.wait("whole", 120)
    said = t.client.read("/tmp/mirror-watch")
    t.check("md copies all data to the leg" in said, f"the newer leg was not filled as a whole: {said}")
    mirror.same()
    t.intact(t.client.call(guest_io.compare, path=mirror.device.path, offset=0, length=MIB, seed=3),
             None, "first wrong byte")


def gone_on_alone(t: Test, mirror: Mirror) -> None:
    """After `left_with_the_old_leg` the far leg goes on, too, by md without the program, as by an administrator's hand:
    it then has the data of seed 3. In the end the mirror is stopped, and both legs are here."""
    far = mirror.devices[1].path
    t.client.run("mdadm --assemble /dev/md/by-hand --config=none --homehost=rnbd-mirror --run "
                 f"--readonly {far} && mdadm --readwrite /dev/md/by-hand", timeout=90)
    path = t.client.realpath("/dev/md/by-hand")
    t.client.call(guest_io.write, path=path, offset=0, length=MIB, seed=3)
    t.client.run("mdadm --stop /dev/md/by-hand")
    mirror.power_back(0)
    mirror.devices[0] = mirror.map(0)


def started_from(t: Test, number: int, seed: int) -> None:
    """Both legs went on without each other: the mirror starts only from the leg that is named, with its data."""
    mirror = Mirror(t)
    left_with_the_old_leg(t, mirror)
    gone_on_alone(t, mirror)
    for options in ([], ["--force-stale"]):
        said = program.run(t.client, "mirror", "assemble", NAME, *options, code=FAILED).err
        t.check("got writes without the other leg" in said, f"{options}: said {said!r}")
    program.run(t.client, "mirror", "assemble", NAME, "--force-stale", "--from", leg(number))
    t.equal(mirror.legs()[number], "in-sync", "the leg that was named")
    mirror.watch()
    mirror.wait("whole", 120)
    said = t.client.read("/tmp/mirror-watch")
    t.check("md copies all data to the leg" in said, f"the other leg was not filled as a whole: {said}")
    t.intact(t.client.call(guest_io.compare, path=mirror.device.path, offset=0, length=MIB, seed=seed), None,
             f"first wrong byte of the data of {leg(number)}")
    mirror.same()


@case(module_sets=OURS, kernels=STOCK, timeout=600, quick=())
def test_started_from_the_old_leg(t: Test) -> None:
    """Two legs went on without each other, and an administrator names the leg that was away first."""
    started_from(t, 1, 3)


@case(module_sets=OURS, kernels=STOCK, timeout=600, quick=())
def test_started_from_the_newer_leg(t: Test) -> None:
    """Two legs went on without each other, and an administrator names the leg that went on first."""
    started_from(t, 0, 2)


@case(module_sets=OURS, kernels=STOCK, timeout=300, quick=())
def test_stopped_in_order(t: Test) -> None:
    """A mirror that was stopped in order starts from one leg, as no other machine can have used the other leg."""
    mirror = Mirror(t, watched=False)
    t.client.call(guest_io.write, path=mirror.device.path, offset=0, length=MIB, seed=1)
    program.run(t.client, "mirror", "stop", NAME)
    t.equal(mirror.status()["why"], "an administrator stopped the mirror", "why it does not run")
    mirror.power_cut(1)
    t.client.wait_for(f"{mirror.devices[1].sysfs}/state", matches="closed", timeout=30)
    program.run(t.client, "mirror", "assemble", NAME)
    t.intact(t.client.call(guest_io.compare, path=mirror.device.path, offset=0, length=MIB, seed=1),
             None, "first wrong byte")
    mirror.watch()
    mirror.power_back(1)
    mirror.wait("whole", 120)
    mirror.same()


@case(module_sets=OURS, kernels=STOCK, timeout=600, quick=())
def test_other_machine(t: Test) -> None:
    """While a machine has a mirror, another machine can neither write to a leg nor start the mirror, until it takes the
    mirror over; then the first machine cannot write."""
    mirror = Mirror(t, watched=False)
    other = t.server
    other.modules_load("rnbd_client", rtrs_client=mirrors.FAST_CLIENT,
                       rnbd_client="host_uuid=fedcba98-7654-3210-fedc-ba9876543210")
    foreign = rnbd.map_device(t, DISK, session="other", node=other, access_mode="migration",
                              paths=[f"ip:{other.address}"])
    t.equal(other.call(pr.access, path=foreign.path), READ_ONLY, "errnos of the other machine")
    program.install(other)
    legs = [f"{DISK}@other", f"{DISK}@elsewhere"]
    said = program.run(other, "mirror", "assemble", NAME, *legs, "--force-stale", code=FAILED).err
    t.check("another machine has reserved the disk" in said, f"the other machine said {said!r}")
    t.check(not other.exists(f"{mirrors.MEMORY}/mirrors/{NAME}.json"), "the other machine has a record of the mirror")
    program.run(t.client, "mirror", "stop", NAME, "--release")
    t.equal(other.call(pr.command, path=foreign.path, what="register", other=7), 0, "register by the other machine")
    t.equal(other.call(pr.command, path=foreign.path, what="reserve", key=7, kind=1), 0, "reserve")
    said = program.run(t.client, "mirror", "assemble", NAME, code=FAILED).err
    t.check("another machine has reserved the disk" in said, f"said {said!r}")
    t.equal(t.client.call(pr.keys, path=mirror.devices[1].path)["keys"], [], "keys of the leg that was free")
    program.run(t.client, "mirror", "assemble", NAME, "--take-over")
    t.equal(other.call(pr.access, path=foreign.path), READ_ONLY, "errnos of the other machine after the takeover")
    t.client.call(guest_io.write, path=mirror.device.path, offset=0, length=MIB, seed=1)
    mirror.same()


@case(module_sets=OURS, kernels=STOCK, timeout=300, quick=())
def test_replace(t: Test) -> None:
    """A leg is replaced by another disk while a program writes; the old leg serves until the new leg has all data."""
    mirror = Mirror(t)
    far = mirror.servers[1]
    far.run(f"blkdiscard --force --zeroout --length {MIB} {disks.WITHOUT_DISCARD}")
    new = rnbd.map_device(t, disks.WITHOUT_DISCARD, session=mirrors.SESSIONS[1], paths=[f"ip:{far.address}"], keep=True)
    writer = stream(t, mirror)
    loop = far.sh("modprobe loop && truncate -s 8M /tmp/small && losetup --find --show /tmp/small")
    t.defer(far.run, f"losetup --detach {loop}")
    small = rnbd.map_device(t, loop, session=mirrors.SESSIONS[1], paths=[f"ip:{far.address}"], keep=True)
    program.run(t.client, "mirror", "replace", NAME, leg(1), f"{loop}@{mirrors.SESSIONS[1]}", code=1)
    t.equal([one["name"] for one in mirror.status()["legs"]], [leg(0), leg(1)], "legs after a disk that is too small")
    t.equal(mirror.status()["state"], "whole", "state after a disk that is too small")
    t.equal(t.client.call(pr.keys, path=small.path)["keys"], [], "keys of the disk that is too small")
    name = f"{disks.WITHOUT_DISCARD}@{mirrors.SESSIONS[1]}"
    said = program.run(t.client, "mirror", "replace", NAME, leg(1), name).out
    t.check("stays in the mirror until all data is copied" in said, f"said {said!r}")
    took = mirror.wait("whole", 120)
    writer.go_on()
    result = writer.stop()
    t.equal([one["name"] for one in mirror.status()["legs"]], [leg(0), name], "legs")
    t.client.wait_for(f"/sys/block/{mirror.devices[1].name}/holders/{mirror.device.name}", gone=True)
    said = program.run(t.client, "mirror", "replace", NAME, leg(1), code=3).err
    t.check("is no leg of this mirror" in said, f"said {said!r}")
    program.run(t.client, "mirror", "remove", NAME, "--force")
    t.equal(program.json_of(t.client, "mirror", "status")["mirrors"], [], "mirrors after the removal")
    for device in (mirror.devices[0], new):
        t.equal(t.client.run(f"blkid -p {device.path}", check=False).rc, 2, f"what blkid finds on {device.path}")
    # No machine is registered with a disk any more, the old leg included.
    for device in (*mirror.devices, new):
        t.equal(t.client.call(pr.keys, path=device.path)["keys"], [], f"keys of {device.path}")
    t.say(f"filled after {took:.1f} s; {verified(result)}")


@case(module_sets=OURS, kernels=STOCK, timeout=600, quick=())
def test_exchanged_disk(t: Test) -> None:
    """A disk is exchanged at its server under the same name: the new disk is no leg until an administrator replaces the
    leg by it."""
    mirror = Mirror(t)
    writer = stream(t, mirror)
    mirror.power_cut(1)
    mirror.wait("degraded")
    writer.go_on()
    # The new disk is blank.
    mirror.power_back(1, lambda far: far.run(f"blkdiscard --force --zeroout {DISK}"))
    t.client.wait_for(f"{mirror.devices[1].sysfs}/state", matches="open", timeout=60)
    wait_until(lambda: mirror.legs()[1] == "foreign", 60 * t.client.slow, "the new disk is seen as no leg")
    t.equal(mirror.status()["state"], "degraded", "state with the new disk")
    t.equal(t.client.call(pr.keys, path=mirror.devices[1].path)["keys"], [], "keys of the new disk")
    writer.go_on()
    said = program.run(t.client, "mirror", "replace", NAME, leg(1)).out
    t.check("md copies all data to the leg" in said, f"said {said!r}")
    took = mirror.wait("whole", 120)
    writer.go_on()
    result = writer.stop()
    t.equal([one["name"] for one in mirror.status()["legs"]], [leg(0), leg(1)], "legs")
    t.equal(t.client.call(pr.keys, path=mirror.devices[1].path)["keys"],
            t.client.call(pr.keys, path=mirror.devices[0].path)["keys"], "keys of the new leg, and of the other one")
    mirror.same()
    t.say(f"filled after {took:.1f} s; {verified(result)}")


@case(module_sets=OURS, kernels=STOCK, timeout=600, quick=())
def test_exchanged_disk_with_a_wwid(t: Test) -> None:
    """A disk with another wwid by the same name stays closed until it is mapped anew; then it replaces the leg."""
    mirror = Mirror(t)

    def exchange(command: str) -> None:
        mirror.power_cut(1)
        t.client.call_within(60, guest_io.write, path=mirror.device.path, offset=0, length=MIB, seed=1)
        mirror.wait("degraded")
        mirror.power_back(1, lambda node: node.run(command, timeout=120))

    def replace() -> None:
        program.run(t.client, "unmap", leg(1))
        mirror.devices[1] = mirror.map(1)
        said = program.run(t.client, "mirror", "replace", NAME, leg(1)).out
        t.check("md copies all data to the leg" in said, f"said {said!r}")
        mirror.wait("whole", 120)

    # The first disk has no wwid, and the client takes any disk for it.
    exchange("set -e; modprobe sd_mod; modprobe scsi_debug dev_size_mb=72 sector_size=4096 delay=0; "
             f"disk=$(ls /sys/bus/pseudo/drivers/scsi_debug/adapter*/host*/target*/*/block); ln -sf /dev/$disk {DISK}")
    wait_until(lambda: mirror.legs()[1] == "foreign", 60 * t.client.slow, "the new disk is seen as no leg")
    replace()
    wwid = t.client.read(f"/sys/block/{mirror.devices[1].name}/wwid")
    t.check(wwid, "the disk of scsi_debug has no wwid")
    mark = t.client.log_mark()
    exchange(f"blkdiscard --force --zeroout {DISK}")
    wait_until(lambda: any("the server has another disk by this device path now" in line
                           for line in t.client.log_since(mark)), 60 * t.client.slow, "the client sees another disk")
    t.equal(mirror.legs()[1], "away", "the leg whose disk has another wwid")
    replace()
    mirror.same()


@case(module_sets=OURS, kernels=STOCK, timeout=600, quick=())
def test_client_dies_while_a_leg_is_replaced(t: Test) -> None:
    """A client loses its power while md fills a new leg: the mirror starts from its old legs, and the service goes on
    with the replacement."""
    mirror = Mirror(t)
    far = mirror.servers[1]
    far.run(f"blkdiscard --force --zeroout --length {MIB} {disks.WITHOUT_DISCARD}")

    def new_leg() -> Device:
        return rnbd.map_device(t, disks.WITHOUT_DISCARD, session=mirrors.SESSIONS[1], paths=[f"ip:{far.address}"],
                               keep=True)

    new_leg()
    t.client.call(guest_io.write, path=mirror.device.path, offset=0, length=MIB, seed=1)
    for limit in ("min", "max"):
        t.client.write(f"/proc/sys/dev/raid/speed_limit_{limit}", "100")
    name = f"{disks.WITHOUT_DISCARD}@{mirrors.SESSIONS[1]}"
    program.run(t.client, "mirror", "replace", NAME, leg(1), name)
    t.equal([one["state"] for one in mirror.status()["legs"]], ["in-sync", "in-sync", "filling"], "legs meanwhile")
    mirror.reboot_client()
    mirror.watch()
    mirror.devices = [mirror.map(1), mirror.map(0)][::-1]
    new_leg()

    def names() -> list[str]:
        return [one["name"] for one in mirror.status()["legs"]]

    wait_until(lambda: names() == [leg(0), name], 120 * t.client.slow, "the old leg is a leg no longer")
    mirror.wait("whole")
    t.intact(t.client.call(guest_io.compare, path=mirror.device.path, offset=0, length=MIB, seed=1), None,
             "first wrong byte")
    mirror.stop_watching()


def drained(t: Test, mirror: Mirror, number: int) -> None:
    """Has a server of a mirror drain for maintenance, and its clients leave."""
    program.run(mirror.servers[number], "server", "drain", "--for", "10m")
    t.equal(mirror.servers[number].listdir(rnbd.SERVER_SESSIONS), [], "sessions of the server that was drained")


def maintained(mirror: Mirror, number: int) -> None:
    """Exchanges the modules of a server that was drained, which ends the drain."""
    mirror.servers[number].modules_unload_all()
    mirror.load_server(number)


@case(module_sets=OURS, kernels=STOCK, timeout=600, quick=())
def test_drain(t: Test) -> None:
    """A server of a mirror is drained for maintenance: its leg is taken out at once, and comes back afterwards."""
    mirror = Mirror(t)
    writer = stream(t, mirror)
    pauses, whole = [], []
    for number in (1, 0):
        program.install(mirror.servers[number])
        writer.longest()
        drained(t, mirror, number)
        mirror.wait("degraded")
        # The server still drains, for minutes.
        writer.go_on()
        pauses.append(writer.longest())
        t.equal(mirror.legs()[1 - number], "in-sync", "the leg that is left")
        maintained(mirror, number)
        whole.append(mirror.wait("whole", 120))
        writer.go_on()
    result = writer.stop()
    mirror.same()
    t.say(f"pauses: {seconds(pauses)}; whole again after {seconds(whole)}; {verified(result)}")


@case(module_sets=OURS, kernels=STOCK, timeout=600, quick=())
def test_drain_of_a_write_mostly_leg(t: Test) -> None:
    """A write-mostly leg would hold its requests while its server drains: it is failed by hand before, and comes back
    afterwards."""
    mirror = Mirror(t, options=["--write-mostly", leg(1)])
    writer = stream(t, mirror)
    program.install(mirror.servers[1])
    # The service would bring the leg back at once.
    mirror.stop_watching()
    t.client.run(f"mdadm /dev/md/{NAME} --fail {mirror.devices[1].path}")
    drained(t, mirror, 1)
    writer.go_on()
    pause = writer.longest()
    maintained(mirror, 1)
    mirror.watch()
    whole = mirror.wait("whole", 120)
    writer.go_on()
    result = writer.stop()
    mirror.same()
    t.say(f"pause: {pause:.2f} s; whole again after {whole:.1f} s; {verified(result)}")


@case(module_sets=OURS, kernels=STOCK, timeout=300, quick=())
def test_leg_with_bad_blocks(t: Test) -> None:
    """A leg of which md knows bad blocks is not taken for a leg with all data: it is taken out and filled anew."""
    mirror = Mirror(t)
    far = mirror.devices[1].name
    # As if the disk could not have stored 8 sectors.
    t.client.write(f"/sys/block/{mirror.device.name}/md/dev-{far}/bad_blocks", "65536 8")
    t.client.wait_for("/tmp/mirror-watch", matches="could not store some blocks", timeout=60)
    t.client.wait_for("/tmp/mirror-watch", matches="md copies all data to the leg", timeout=60)
    mirror.wait("whole", 120)
    t.equal(t.client.read(f"/sys/block/{mirror.device.name}/md/dev-{far}/bad_blocks"), "", "bad blocks afterwards")
    mirror.same()


@case(module_sets=OURS, kernels=STOCK, timeout=300, quick=())
def test_reservation_is_made_again(t: Test) -> None:
    """A server that boots while the mirror is idle has lost its reservation, and md has not lost the leg: the service
    reserves the leg again."""
    mirror = Mirror(t)
    device = mirror.devices[1]
    before = t.client.call(pr.keys, path=device.path)["keys"]
    t.equal(len(before), 1, f"keys of a leg: {before}")
    # md writes nothing to the legs, not even to their superblocks and bitmaps.
    t.client.write(f"/sys/block/{mirror.device.name}/md/array_state", "readonly")
    mirror.power_cut(1)
    t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=30)
    t.equal(mirror.legs()[1], "in-sync", "the leg of which md has noticed nothing")
    mirror.power_back(1)
    t.client.wait_for("/tmp/mirror-watch", matches="reserved .* again", timeout=60)
    t.equal(t.client.call(pr.keys, path=device.path)["keys"], before, "keys of the leg of the server that is back")


@case(module_sets=OURS, kernels=STOCK, timeout=300, quick=())
def test_what_is_refused(t: Test) -> None:
    """Disks with data, disks of one server and disks that are not mapped are refused, each with its reason."""
    mirror = Mirror(t, watched=False)
    program.run(t.client, "mirror", "remove", NAME, "--force")
    t.client.run(f"mkfs.ext4 -q -F {mirror.devices[1].path}")
    for legs, code, part in (([leg(0), leg(1)], FAILED, "has ext4 on it"),
                             ([leg(0), f"{disks.PLAIN}@near"], 2, "legs of two servers"),
                             ([leg(0), "nothing@far"], 3, "is not mapped"),
                             ([leg(0)], 2, "at least two legs")):
        said = program.run(t.client, "mirror", "create", NAME, *legs, code=code).err
        t.check(part in said, f"{legs}: said {said!r}")
        for device in mirror.devices:
            t.equal(t.client.call(pr.keys, path=device.path)["keys"], [], f"keys of {device.path} after {legs}")
    program.run(t.client, "mirror", "create", NAME, leg(0), leg(1), "--force", "--assume-clean")
    t.equal(mirror.legs(), ["in-sync", "in-sync"], "legs")


@case(module_sets=OURS, kernels=STOCK, timeout=600, quick=())
def test_document(t: Test) -> None:
    """The commands of mirrors.md, typed on a client and two servers."""
    nodes = {"mirror": t.client, "storage1": t.nodes[1], "storage2": t.nodes[2]}
    addresses = {"mirror": ("192.0.2.20", "198.51.100.20"), "storage1": ("192.0.2.10",), "storage2": ("198.51.100.10",)}
    for place, node in nodes.items():
        node.modules_unload_all()
        t.defer(node.modules_unload_all)
        mirrors.by_modprobe(node)
        for link, address in enumerate(addresses[place]):
            node.run(f"ip addr replace {address}/24 dev eth{link}")
            t.defer(node.run, f"ip addr del {address}/24 dev eth{link}")
        node.run(f"ln -sf {DISK} /dev/nvme0n1; blkdiscard --force --zeroout {DISK}")
        t.defer(node.run, "rm -f /dev/nvme0n1 /etc/modprobe.d/patience.conf")
    program.install(t.client)
    t.defer(t.client.run, f"rm -rf /etc/rnbd /run/rnbd {mirrors.MEMORY}")
    watcher = t.client.start_job("exec rnbdctl mirror watch >/tmp/mirror-watch 2>&1", timeout=600)
    t.defer(rnbd.unmap_all, t)
    t.defer(t.client.run, "rnbdctl mirror stop db", check=False)
    t.defer(watcher.kill)
    for block in documents.blocks(CHECKOUT / "Documentation/mirrors.md"):
        if block.place in nodes:
            result = nodes[block.place].run(f"set -e\n{block.text}", check=False, timeout=120)
            t.equal(result.rc, 0, f"exit code of {block}: {result.out[-500:]}{result.err[-500:]}")


@case(module_sets=OURS, kernels=STOCK, timeout=600, quick=())
def test_udev_leaves_legs_alone(t: Test) -> None:
    """With the package's udev rule mdadm's own rules do nothing with a leg; without it they would take the leg."""
    mirror = Mirror(t)
    disk = f"/sys/block/{mirror.devices[0].name}"
    rules = "/etc/udev/rules.d"
    t.defer(t.client.run, f"rm -f {rules}/6?-rnbd*; rm -rf /run/udev")

    def said(action: str) -> str:
        result = t.client.run(f"udevadm test --action={action} {disk} 2>&1", check=False)
        return result.out

    for with_rule in (False, True):
        names = ["60-rnbd.rules", *(["62-rnbd-mirror.rules"] if with_rule else [])]
        for name in names:
            t.client.create(f"{rules}/{name}", (CHECKOUT / "packaging/udev" / name).read_bytes())
        for action in ("online", "offline", "add"):
            text = said(action)
            if not with_rule and action != "offline":
                t.check("--incremental" in text, f"mdadm's rules are not there: {text[-2000:]}")
            if with_rule:
                t.check("--incremental" not in text, f"{action}: {text[-2000:]}")
                # Of a disk whose server is away the rule needs udev's database, and udevd does not run here.
                t.check(action == "offline" or "SYSTEMD_READY=0" in text, f"{action}: {text[-2000:]}")
