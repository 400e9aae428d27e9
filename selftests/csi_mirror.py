# SPDX-License-Identifier: GPL-2.0
"""Volumes that are mirrored over two servers: made, used without one of the servers, filled again, and deleted."""

from __future__ import annotations

import signal

from lab.selftest_case import case
from lab.selftest_case import Test
from lab.vm import wait_until
from lib import csi
from lib import guest_io
from lib import guest_reservations as pr
from lib import images
from lib import rnbd
from lib.csi import capability
from lib.csi import in_turn
from lib.csi import INVALID
from lib.csi import MIB
from lib.csi import PRECONDITION
from lib.csi import Use
from lib.csi_mirrors import leg
from lib.csi_mirrors import MEMORY
from lib.csi_mirrors import Mirrored
from lib.csi_mirrors import PARKED

TOPOLOGY = "three"
MEMORY_MIB = 512
ONLY_OURS = ("ours",)
# The debug kernel has no md.
KERNELS = ("stock",)

# The legs of the volume that most cases have.
LEG = leg("pvc-1")

# The key of machines that take a leg, and the type of their reservation.
OTHER = 7
WRITE_EXCLUSIVE = 1

# The points of tools/rnbd-csi/src/fail.rs by the call that comes to them.
NODE_POINTS = {
    "stage": ("mirror.noted", "mirror.mapped", "mirror.started", "stage.mapped", "stage.formatted", "stage.mounted"),
    "unstage": ("unstage.unmounted", "mirror.stopped", "mirror.unmapped", "mirror.parked", "unstage.unmapped"),
}


def made(t: Test, cluster: Mirrored, use: csi.Request, name: str = "pvc-1") -> Use:
    """A volume over both servers that is staged and published."""
    volume = cluster.driver.twice("CreateVolume", cluster.request(name))["volume"]
    t.check(volume["capacity_bytes"] >= 64 * MIB, f"{volume}")
    found = Use(volume, use)
    t.client.run(f"mkdir -p {found.staging}")
    in_turn(cluster.driver, found.stage(), found.publish())
    return found


def files(t: Test, use: Use, *names: str) -> None:
    """The volume has these files, each with its name in it."""
    for name in names:
        t.equal(t.client.read(f"{use.target}/{name}"), name, f"file {name}")


@case(module_sets=ONLY_OURS, kernels=KERNELS, timeout=600)
def test_server_dies(t: Test) -> None:
    """A volume loses a server, is written to, gets its leg back, keeps its data in the next staging, and is deleted."""
    cluster = Mirrored(t)
    driver = cluster.driver
    use = made(t, cluster, capability("ext4"))
    t.equal(use.id, f"storage1+storage2:csi/{LEG}", "id")
    t.equal([server.legs() for server in cluster.servers], [[LEG]] * 2, "legs")
    t.client.run(f"echo one >{use.target}/one")
    cluster.wait(use)
    driver.call("DeleteVolume", {"volume_id": use.id}, code=PRECONDITION)
    cluster.servers[1].power_cut()
    t.client.run(f"set -e; echo two >{use.target}/two; sync -f {use.target}/two; cat {use.target}/one")
    said = cluster.wait(use, f"storage2:csi/{LEG}")
    t.check("storage1" not in said, f"the condition blames the leg that is well: {said}")
    t.client.run(f"set -e; echo three >{use.target}/three; sync -f {use.target}/three")
    cluster.servers[1].power_back()
    cluster.wait(use)
    in_turn(driver, use.unpublish(), use.unstage())
    cluster.nothing_left("after unstaging")
    in_turn(driver, use.stage(), use.publish())
    files(t, use, "one", "two", "three")
    in_turn(driver, use.unpublish(), use.unstage(), ("DeleteVolume", {"volume_id": use.id}))
    cluster.nothing_left("at the end")
    cluster.no_legs("at the end")


@case(module_sets=ONLY_OURS, kernels=KERNELS, timeout=600, quick=())
def test_one_leg_is_enough(t: Test) -> None:
    """The node that had a volume last stages it without a server; the leg is mapped and filled when it is back."""
    cluster = Mirrored(t)
    driver = cluster.driver
    use = made(t, cluster, capability("ext4"))
    t.client.run(f"echo one >{use.target}/one")
    in_turn(driver, use.unpublish(), use.unstage())
    cluster.servers[0].power_cut()
    in_turn(driver, use.stage(), use.publish())
    files(t, use, "one")
    t.client.run(f"echo two >{use.target}/two")
    cluster.wait(use, f"storage1:csi/{LEG}", "not mapped")
    # A driver that was replaced meanwhile knows where the server is.
    driver.stop()
    driver.start()
    cluster.servers[0].power_back()
    cluster.wait(use)
    in_turn(driver, use.unpublish(), use.unstage())
    cluster.servers[1].power_cut()
    in_turn(driver, use.stage(), use.publish())
    files(t, use, "one", "two")
    cluster.servers[1].power_back()
    cluster.wait(use)
    in_turn(driver, use.unpublish(), use.unstage(), ("DeleteVolume", {"volume_id": use.id}))
    cluster.nothing_left("at the end")
    cluster.no_legs("at the end")


@case(module_sets=ONLY_OURS, kernels=KERNELS, timeout=600, quick=())
def test_old_leg_is_refused(t: Test) -> None:
    """A new volume waits for all servers; a volume is not staged from a leg that lacks what was written last."""
    cluster = Mirrored(t)
    driver, (first, second) = cluster.driver, cluster.servers
    volume = driver.twice("CreateVolume", cluster.request("pvc-1"))["volume"]
    use = Use(volume, capability())
    t.client.run(f"mkdir -p {use.staging}")
    second.power_cut()
    driver.call("CreateVolume", cluster.request("pvc-2"), code="UNAVAILABLE")
    driver.call("DeleteVolume", {"volume_id": use.id}, code="UNAVAILABLE")
    t.equal(first.legs(), [LEG], "legs while a server is away")
    # The leg that the killed driver has mapped does not stay either.
    driver.killed_at("mirror.mapped", *use.stage())
    t.check(csi.devices(t), "a leg is mapped")
    error = driver.call(*use.stage(), code="UNAVAILABLE")
    t.check(f"storage2:csi/{LEG}" in error, error)
    cluster.nothing_left("after the staging of a new volume without a server")
    second.power_back()
    in_turn(driver, use.stage(), use.publish())
    t.client.call(guest_io.write, path=use.target, offset=0, length=MIB, seed=1)
    second.power_cut()
    t.client.call_within(60, guest_io.write, path=use.target, offset=0, length=MIB, seed=2)
    cluster.wait(use, f"storage2:csi/{LEG}")
    in_turn(driver, use.unpublish(), use.unstage())
    cluster.nothing_left("after unstaging without a server")
    first.power_cut()
    second.power_back()
    error = driver.call(*use.stage(), code="UNAVAILABLE")
    t.check("newer data" in error and f"storage1:csi/{LEG}" in error, error)
    cluster.nothing_left("after an old leg was refused")
    first.power_back()
    in_turn(driver, use.stage(), use.publish())
    t.intact(t.client.call(guest_io.compare, path=use.target, offset=0, length=MIB, seed=2), None,
             "first wrong byte of what was written last")
    cluster.wait(use)
    in_turn(driver, use.unpublish(), use.unstage(), ("DeleteVolume", {"volume_id": use.id}))
    cluster.no_legs("at the end")


@case(module_sets=ONLY_OURS, kernels=KERNELS, timeout=600, quick=())
def test_expand(t: Test) -> None:
    """A volume grows while it is used: legs first, then the mirror, and only if no leg is missing."""
    cluster = Mirrored(t)
    driver = cluster.driver
    use = made(t, cluster, capability())
    room = ("GetCapacity", {"parameters": {"servers": "storage1,storage2"}})
    t.check(driver.call(*room)["available_capacity"] > 0, "there is room")
    t.client.call(guest_io.write, path=use.target, offset=63 * MIB, length=MIB, seed=1)

    def grow(mib: int) -> None:
        request = {"volume_id": use.id, "capacity_range": {"required_bytes": mib * MIB}}
        done = driver.twice("ControllerExpandVolume", request)
        t.check(done["capacity_bytes"] >= mib * MIB and done["node_expansion_required"], f"growth at servers: {done}")

    grow(128)
    size = driver.twice(*use.expand(128))["capacity_bytes"]
    t.check(size >= 128 * MIB, f"the mirror has {size} bytes")
    t.client.call(guest_io.write, path=use.target, offset=127 * MIB, length=MIB, seed=2)
    cluster.wait(use)
    grow(160)
    cluster.servers[1].power_cut()
    cluster.wait(use, f"storage2:csi/{LEG}")
    error = driver.call(*use.expand(160), code="UNAVAILABLE")
    t.check("not in sync" in error, error)
    cluster.servers[1].power_back()
    cluster.wait(use)
    driver.twice(*use.expand(160))
    cluster.wait(use)
    for offset, seed in ((63, 1), (127, 2)):
        t.intact(t.client.call(guest_io.compare, path=use.target, offset=offset * MIB, length=MIB, seed=seed), None,
                 f"first wrong byte of MiB {offset}")
    in_turn(driver, use.unpublish(), use.unstage(), use.stage(), use.publish())
    size = driver.call(*use.stats())["usage"][0]["total"]
    t.check(size >= 160 * MIB, f"after the next staging the mirror has {size} bytes")
    in_turn(driver, use.unpublish(), use.unstage(), ("DeleteVolume", {"volume_id": use.id}))
    cluster.no_legs("at the end")


@case(module_sets=ONLY_OURS, kernels=KERNELS, timeout=600, quick=())
def test_node_boots(t: Test) -> None:
    """A node loses its power, boots, and keeps no mirror of the volume, which it can stage again with all data."""
    cluster = Mirrored(t)
    driver = cluster.driver
    use = made(t, cluster, capability("ext4"))
    t.client.run(f"set -e; echo one >{use.target}/one; sync -f {use.target}/one")
    cluster.wait(use)
    cluster.reboot()
    cluster.nothing_left("after the boot")
    t.equal(len(cluster.parked()), 1, "records of volumes that were here")
    t.client.run(f"mkdir -p {use.staging}")

    def is_staged() -> bool:
        # Until the servers notice that the node was gone the legs are its.
        code, told = driver.ended(driver.start_call(*use.stage()).wait(), "NodeStageVolume")
        t.check(code in ("OK", PRECONDITION, "UNAVAILABLE"), f"staging after the boot: {code} {told}")
        return code == "OK"

    wait_until(is_staged, 60.0 * t.client.slow, "staging after the boot")
    in_turn(driver, use.stage(), use.publish())
    files(t, use, "one")
    cluster.wait(use)
    in_turn(driver, use.unpublish(), use.unstage(), ("DeleteVolume", {"volume_id": use.id}))
    cluster.nothing_left("at the end")
    cluster.no_legs("at the end")


@case(module_sets=ONLY_OURS, kernels=KERNELS, timeout=600, quick=())
def test_taken_over_meanwhile(t: Test) -> None:
    """Other machines have taken the legs of a volume that is staged here. The driver maps a leg that is missing, but
    does not take a leg back. When the other machines have given the legs up, the volume is staged with all data."""
    said = "/tmp/csi-said"
    cluster = Mirrored(t, within=("sh", "-c", f'exec "$@" 2>{said}', "sh"))
    driver = cluster.driver
    use = made(t, cluster, capability())
    t.client.call(guest_io.write, path=use.target, offset=0, length=MIB, seed=1)
    cluster.wait(use)
    driver.stop()
    (array,) = t.client.sh("cd /sys/block; ls -d md[0-9]*").split()
    (name,) = [name for name in t.client.listdir(rnbd.CLIENT_DEVICES) if f"-{cluster.servers[1].name}-" in name]
    link = f"{rnbd.CLIENT_DEVICES}/{name}"
    unmap = f"echo force >$(readlink -f '{link}')/rnbd/unmap_device"
    t.client.run(f"set -e; leg=/dev/$(basename $(readlink -f '{link}'))\n"
                 f"mdadm /dev/{array} --fail $leg\nmdadm /dev/{array} --remove $leg\n{unmap}")
    # md writes nothing, so it does not notice that the other leg is taken.
    t.client.write(f"/sys/block/{array}/md/array_state", "readonly")

    def at(number: int) -> rnbd.Device:
        """The leg at a server, mapped by another machine."""
        node = cluster.servers[number].node
        return rnbd.map_device(t, f"csi/{LEG}", session="other", node=node, access_mode="migration",
                               paths=[f"ip:{node.address}"])

    for number, server in enumerate(cluster.servers):
        server.node.modules_load("rnbd_client", rnbd_client=f"host_uuid=fedcba98-7654-3210-fedc-ba987654321{number}")
        device = at(number)
        for what, key, other in (("register", 0, OTHER), ("clear", OTHER, 0), ("register", 0, OTHER),
                                 ("reserve", OTHER, 0)):
            t.equal(server.node.call(pr.command, path=device.path, what=what, key=key, other=other,
                                     kind=WRITE_EXCLUSIVE), 0, f"{what} at {server.name}")
        # As if that machine had lost its power.
        device.unmap()
    driver.start()
    # By then the driver has done all that it does for the leg.
    t.client.wait_for(said, matches=f"mapped leg {cluster.servers[1].name}:", timeout=60)
    for number, server in enumerate(cluster.servers):
        device = at(number)
        t.equal(server.node.call(pr.held, path=device.path)["key"], OTHER, f"key of the reservation at {server.name}")
        t.equal(server.node.call(pr.command, path=device.path, what="clear", key=OTHER), 0, f"clear at {server.name}")
        device.unmap()
    in_turn(driver, use.unpublish(), use.unstage(), use.stage(), use.publish())
    t.intact(t.client.call(guest_io.compare, path=use.target, offset=0, length=MIB, seed=1), None, "first wrong byte")
    cluster.wait(use)
    in_turn(driver, use.unpublish(), use.unstage(), ("DeleteVolume", {"volume_id": use.id}))
    cluster.nothing_left("at the end")
    cluster.no_legs("at the end")


@case(module_sets=ONLY_OURS, kernels=KERNELS, timeout=600, quick=())
def test_leg_was_exchanged(t: Test) -> None:
    """A node without a record of the volume fills a leg that was made anew, but no disk that has other data."""
    cluster = Mirrored(t)
    driver = cluster.driver
    use = made(t, cluster, capability("ext4"))
    t.client.run(f"set -e; echo one >{use.target}/one; sync -f {use.target}/one")
    cluster.wait(use)
    second = cluster.servers[1]
    # The other leg notes that this leg takes part no longer, so that the volume can be staged without it.
    second.power_cut()
    t.client.run(f"set -e; echo two >{use.target}/two; sync -f {use.target}/two")
    cluster.wait(use, f"storage2:csi/{LEG}")
    in_turn(driver, use.unpublish(), use.unstage())
    second.power_back()
    file = f"{second.folder}/csi/{LEG}"

    def staged_with(make: str) -> str:
        """The digest of the second leg, which was exchanged before the volume was staged."""
        for record in cluster.parked():
            t.client.run(f"rm {PARKED}/{record}")
        second.node.run(f"set -e; size=$(stat -c %s {file}); rm {file}; truncate -s $size {file}; {make} {file}")
        digest = second.node.sh(f"sha256sum {file}")
        in_turn(driver, use.stage(), use.publish())
        files(t, use, "one", "two")
        return digest

    before = staged_with(images.MAKE["ext4"])
    cluster.wait(use, f"storage2:csi/{LEG}")
    in_turn(driver, use.unpublish(), use.unstage())
    t.equal(second.node.sh(f"sha256sum {file}"), before, "the disk with other data")
    staged_with("truncate -s +0")
    cluster.wait(use)
    in_turn(driver, use.unpublish(), use.unstage(), ("DeleteVolume", {"volume_id": use.id}))
    # Reservations of the disks that were exchanged by hand stay at the server.
    t.equal([server.legs() for server in cluster.servers], [[], []], "legs at the end")


@case(module_sets=ONLY_OURS, kernels=KERNELS, timeout=600, quick=())
def test_same_name_again(t: Test) -> None:
    """A volume is deleted and made again under its name; a node that only knows the old volume stages the new volume,
    and not without one of the servers."""
    cluster = Mirrored(t)
    driver = cluster.driver
    use = made(t, cluster, capability("ext4"))
    in_turn(driver, use.unpublish(), use.unstage(), ("DeleteVolume", {"volume_id": use.id}))
    # The new volume is on another node, so this node keeps the record of the old volume.
    (record,) = cluster.parked()
    t.client.run(f"mv {PARKED}/{record} {MEMORY}/old")
    use = made(t, cluster, capability("ext4"))
    t.client.run(f"echo new >{use.target}/new")
    in_turn(driver, use.unpublish(), use.unstage())
    t.client.run(f"mv {MEMORY}/old {PARKED}/{record}")
    cluster.servers[1].power_cut()
    error = driver.call(*use.stage(), code="UNAVAILABLE")
    t.check("newer data" in error, error)
    cluster.servers[1].power_back()
    in_turn(driver, use.stage(), use.publish())
    files(t, use, "new")
    in_turn(driver, use.unpublish(), use.unstage(), ("DeleteVolume", {"volume_id": use.id}))
    cluster.nothing_left("at the end")
    cluster.no_legs("at the end")


@case(module_sets=ONLY_OURS, kernels=KERNELS, timeout=1200, quick=())
def test_killed(t: Test) -> None:
    """A driver that is killed at any point of a mirrored volume's life is started again, and goes on from there."""
    cluster = Mirrored(t)
    driver = cluster.driver
    for number, point in enumerate(point for points in NODE_POINTS.values() for point in points):
        request = cluster.request(f"pvc-{number}")
        if number == 0:
            driver.killed_at("leg.made", "CreateVolume", request)
        volume = driver.twice("CreateVolume", request)["volume"]
        use = Use(volume, capability("ext4"))
        t.client.run(f"mkdir -p {use.staging}")
        if point in NODE_POINTS["stage"]:
            driver.killed_at(point, *use.stage())
        in_turn(driver, use.stage(), use.publish())
        t.client.run(f"set -e; echo content >{use.target}/file; sync -f {use.target}/file")
        cluster.wait(use)
        driver.call(*use.unpublish())
        if point in NODE_POINTS["unstage"]:
            driver.killed_at(point, *use.unstage())
        in_turn(driver, use.unstage(), use.stage(), use.publish())
        t.equal(t.client.read(f"{use.target}/file"), "content", f"file, killed at {point}")
        in_turn(driver, use.unpublish(), use.unstage())
        cluster.nothing_left(f"killed at {point}")
        delete = ("DeleteVolume", {"volume_id": use.id})
        if number == 0:
            driver.killed_at("leg.deleted", *delete)
        in_turn(driver, delete)
        cluster.no_legs(f"killed at {point}")
    use = made(t, cluster, capability())
    grow = ("ControllerExpandVolume", {"volume_id": use.id, "capacity_range": {"required_bytes": 128 * MIB}})
    for point, call in (("leg.grown", grow), ("mirror.grown", use.expand(128))):
        driver.killed_at(point, *call)
        t.check(driver.twice(*call)["capacity_bytes"] >= 128 * MIB, f"size, killed at {point}")
    in_turn(driver, use.unpublish(), use.unstage(), ("DeleteVolume", {"volume_id": use.id}))


@case(module_sets=ONLY_OURS, kernels=KERNELS, timeout=600, quick=())
def test_killed_with_mdadm(t: Test) -> None:
    """A driver is killed when mdadm has begun to create the mirror, and has written nothing, or all that it writes."""
    folder = "/tmp/csi-programs"
    t.client.run(f"mkdir -p {folder}")
    t.defer(t.client.run, f"rm -rf {folder}")
    t.client.create(f"{folder}/mdadm", f"""#!/bin/sh
die() {{ [ -e {folder}/$1 ] || return 0; rm {folder}/$1; kill -9 $PPID; exit 1; }}
[ "$1" != --create ] || die before
/usr/sbin/mdadm "$@"
code=$?
[ "$1" != --create ] || die after
exit $code
""")
    t.client.run(f"chmod 755 {folder}/mdadm; [ -x /usr/sbin/mdadm ]")
    cluster = Mirrored(t, within=("env", f"PATH={folder}:/usr/sbin:/usr/bin:/sbin:/bin"))
    driver = cluster.driver
    for when in ("before", "after"):
        volume = driver.call("CreateVolume", cluster.request(f"pvc-{when}"))["volume"]
        use = Use(volume, capability())
        t.client.run(f"mkdir -p {use.staging}; touch {folder}/{when}")
        driver.dies(*use.stage(), number=signal.SIGKILL)
        driver.start()
        in_turn(driver, use.stage(), use.publish())
        t.client.call(guest_io.write, path=use.target, offset=0, length=MIB, seed=1)
        cluster.wait(use)
        in_turn(driver, use.unpublish(), use.unstage(), ("DeleteVolume", {"volume_id": use.id}))
        cluster.nothing_left(f"killed {when} mdadm")
        cluster.no_legs(f"killed {when} mdadm")


@case(module_sets=ONLY_OURS, kernels=KERNELS, timeout=600, quick=())
def test_wrong_requests(t: Test) -> None:
    """What is missing, not known or not possible for a mirrored volume is refused before a leg is made or mapped."""
    cluster = Mirrored(t)
    driver = cluster.driver
    good = cluster.request("pvc-1")
    stranger = {"volume_id": f"storage1+storage2:csi/{leg('stranger')}"}
    stage = {"staging_target_path": f"{csi.PLACE}/stage1", "volume_capability": capability()}
    for call, request, code in (
        ("CreateVolume", {**good, "parameters": {}}, INVALID),
        ("CreateVolume", {**good, "parameters": {"servers": "storage1"}}, INVALID),
        ("CreateVolume", {**good, "parameters": {"servers": "storage1,storage3"}}, INVALID),
        ("CreateVolume", {**good, "volume_capabilities": [capability(mode=3)]}, INVALID),
        ("CreateVolume", {**good, "volume_capabilities": [capability(mode=5)]}, INVALID),
        ("CreateVolume", {**good, "capacity_range": {"required_bytes": 1 << 50}}, "RESOURCE_EXHAUSTED"),
        ("ListVolumes", {}, "UNIMPLEMENTED"),
        ("ControllerGetVolume", stranger, "NOT_FOUND"),
        ("DeleteVolume", stranger, "OK"),
        ("DeleteVolume", {"volume_id": f"storage1:csi/{leg('stranger')}"}, "OK"),
        ("NodeStageVolume", {**stranger, **stage, "volume_capability": capability(mode=3)}, INVALID),
        ("NodeStageVolume", {**stranger, **stage, "volume_context": {"hold": "1m"}}, INVALID),
        ("NodeStageVolume", {**stranger, **stage, "volume_context": {"addresses": "192.0.2.1"}}, INVALID),
        ("NodeStageVolume", {**stranger, **stage, "volume_context": {
            f"addresses.{server.name}": server.node.address for server in cluster.servers}}, "NOT_FOUND"),
        ("NodeUnstageVolume", {**stranger, "staging_target_path": f"{csi.PLACE}/stage1"}, "OK"),
    ):
        driver.call(call, request, code)
    cluster.nothing_left("after requests that are wrong")
    cluster.no_legs("after requests that are wrong")
