# SPDX-License-Identifier: GPL-2.0
"""The driver for orchestrators of containers: each call does what the specification of CSI says."""

from __future__ import annotations

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import csi
from lib import disks
from lib import guest_io
from lib import rnbd
from lib.csi import capability
from lib.csi import Driver
from lib.csi import in_turn
from lib.csi import INVALID
from lib.csi import MIB
from lib.csi import nothing_left
from lib.csi import PRECONDITION
from lib.csi import prepare
from lib.csi import Use

TOPOLOGY = "one"
ONLY_OURS = ("ours",)
KERNELS = ("stock",)
GROUP = "csigroup"


def prepare_lvm(t: Test) -> Driver:
    """The same with logical volumes, on a disk that is full of old data."""
    # No udev runs in these machines.
    t.server.run("modprobe dm_mod && mkdir -p /etc/lvm")
    t.server.create("/etc/lvm/lvm.conf", "activation { udev_sync = 0 udev_rules = 0 }\n"
                                         "devices { use_devicesfile = 0 obtain_device_list_from_udev = 0 }\n")
    t.server.call_within(120, guest_io.write, path=disks.WITHOUT_DISCARD, offset=0, length=256 * MIB, seed=9)
    t.server.run(f"pvcreate -ff -y {disks.WITHOUT_DISCARD} && vgcreate {GROUP} {disks.WITHOUT_DISCARD}")
    t.defer(t.server.run, f"vgremove -ff -y {GROUP} && pvremove {disks.WITHOUT_DISCARD}; rm /etc/lvm/lvm.conf")
    rnbd.load(t, rnbd_server="dev_search_path=/dev")
    driver = Driver(t, *csi.both(t, "--volume-group", GROUP))
    driver.start()
    return driver


@case(module_sets=ONLY_OURS, kernels=KERNELS)
def test_identity(t: Test) -> None:
    """The driver says what it is, what it can do, and that it is ready."""
    driver = prepare(t)
    info = driver.call("GetPluginInfo")
    t.equal(info["name"], csi.NAME, "name")
    t.check(info["vendor_version"], "there is no version")
    t.equal(driver.call("Probe"), {"ready": {"value": True}}, "readiness")
    can = driver.call("GetPluginCapabilities")["capabilities"]
    t.equal([one["service"] for one in can if one["service"]], [{"kind": 1}], "services")
    t.equal(driver.call("NodeGetInfo")["node_id"], csi.NODE_ID, "id of the node")
    for name, wanted in (("NodeGetCapabilities", [1, 2, 3, 4, 5]),
                         ("ControllerGetCapabilities", [1, 3, 4, 9, 11, 12, 13])):
        can = driver.call(name)["capabilities"]
        t.equal([one["rpc"]["kind"] for one in can], wanted, name)
    t.equal(t.client.mode(csi.SOCKET), 0o700, "mode of the socket")


@case(module_sets=ONLY_OURS, kernels=KERNELS)
def test_file_system(t: Test) -> None:
    """A volume becomes a file system, for two containers, keeps its files, and is deleted."""
    driver = prepare(t)
    volume = driver.twice("CreateVolume", csi.create_request("pvc-1"))["volume"]
    t.equal((volume["volume_id"], volume["capacity_bytes"]), (f"{csi.SERVER}:csi/csi-pvc-1", 64 * MIB), "volume")
    use = Use(volume, capability("ext4", flags=["noatime"]))
    t.client.run(f"mkdir -p {use.staging}")
    for content in ("one", "two"):
        in_turn(driver, use.stage(), use.publish())
        if content == "two":
            t.equal(t.client.read(f"{use.target}/file"), "one", "content of the file")
        t.client.create(f"{use.target}/file", f"{content}\n")
        line = t.client.sh(f"findmnt -n -o OPTIONS {use.target}")
        t.check("noatime" in line and "rw" in line, line)
        other = f"{csi.PLACE}/other"
        in_turn(driver, use.publish(other, readonly=True))
        t.equal(t.client.read(f"{other}/file"), content, "content at the other place")
        refused = t.client.run(f"touch {other}/new", check=False)
        t.check("Read-only" in refused.err, f"touch at a read-only place: {refused}")
        message = driver.call(*csi.delete(volume), code=PRECONDITION)
        t.check("has mapped volume" in message, message)
        usage = driver.call(*use.stats())
        t.equal([one["unit"] for one in usage["usage"]], [1, 2], "units")
        for one in usage["usage"]:
            t.check(one["total"] > 0 and 0 <= one["used"] <= one["total"], f"usage: {usage}")
        t.equal(usage["volume_condition"], {"abnormal": False, "message": ""}, "condition")
        if content == "two":
            t.client.run(f"umount {use.target}")
            driver.call(*use.stats(), code="NOT_FOUND")
        in_turn(driver, use.unpublish(other), use.unpublish(), use.unstage())
        t.check(not t.client.exists(use.target), "the target is still there")
        nothing_left(t, "after unstaging")
    in_turn(driver, csi.delete(volume))
    t.equal(driver.call("ListVolumes")["entries"], [], "volumes")


@case(module_sets=ONLY_OURS, kernels=KERNELS)
def test_block(t: Test) -> None:
    """A volume becomes a block device, whose data is in the server's file."""
    driver = prepare(t)
    volume = driver.create("pvc-1")
    use = Use(volume, capability())
    t.client.run(f"mkdir -p {use.staging}")
    in_turn(driver, use.stage(), use.publish())
    t.equal(t.client.sh(f"stat -c %F {use.target}"), "block special file", "kind of the target")
    t.client.call(guest_io.write, path=use.target, offset=0, length=MIB, seed=1)
    for place in (use.target, use.staging):
        t.equal(driver.call(*use.stats(place))["usage"][0]["total"], 64 * MIB, f"size at {place}")
    error = driver.call(*use.publish(f"{csi.PLACE}/ro", readonly=True), code=INVALID)
    t.check("READER_ONLY" in error, error)
    in_turn(driver, use.unpublish(), use.unstage())
    nothing_left(t, "after unstaging")
    (file,) = t.server.sh("ls /mnt/*/csi/csi-pvc-1").split()
    t.intact(t.server.call(guest_io.compare, path=file, offset=0, length=MIB, seed=1), None,
             "first wrong byte of the server's file")
    # As a reader, it is a device that cannot be written.
    reader = Use(volume, capability(mode=3))
    in_turn(driver, reader.stage(), reader.publish(readonly=True))
    t.check(t.client.call(guest_io.is_read_only, path=reader.target), "a reader can write")
    in_turn(driver, reader.unpublish(), reader.unstage(), csi.delete(volume))


def expanded(t: Test, kind: str, first: int, then: int) -> None:
    """A file system grows while it is used."""
    driver = prepare(t)
    volume = driver.create("pvc-1", first)
    use = Use(volume, capability(kind))
    t.client.run(f"mkdir -p {use.staging}; modprobe -q {kind} || :")
    in_turn(driver, use.stage(), use.publish())
    t.client.create(f"{use.target}/file", "content\n")
    before = driver.call(*use.stats())["usage"][0]["total"]
    request = {"volume_id": use.id, "capacity_range": {"required_bytes": then * MIB}}
    done = driver.twice("ControllerExpandVolume", request)
    t.equal(done, {"capacity_bytes": then * MIB, "node_expansion_required": True}, "expansion at the server")
    # The place that is asked for may be read-only, and another one of the same volume not.
    other = f"{csi.PLACE}/other"
    driver.call(*use.publish(other, readonly=True))
    driver.call(*use.expand(then, csi.PLACE), code="NOT_FOUND")
    t.equal(driver.twice(*use.expand(then, other))["capacity_bytes"], then * MIB, "size at the node")
    t.equal(driver.call(*use.expand(then))["capacity_bytes"], then * MIB, "size at the other place")
    in_turn(driver, use.unpublish(other))
    after = driver.call(*use.stats())["usage"][0]["total"]
    t.check(after - before > (then - first) * MIB * 3 // 4, f"the file system had {before} bytes, and has {after}")
    t.equal(t.client.read(f"{use.target}/file"), "content", "the file")
    in_turn(driver, use.unpublish(), use.unstage(), csi.delete(volume))


@case(module_sets=ONLY_OURS, kernels=KERNELS)
def test_expand_ext4(t: Test) -> None:
    """An ext4 grows while it is used."""
    expanded(t, "ext4", 64, 128)


@case(module_sets=ONLY_OURS, kernels=KERNELS)
def test_expand_xfs(t: Test) -> None:
    """An XFS grows while it is used."""
    expanded(t, "xfs", 320, 400)


@case(module_sets=ONLY_OURS, kernels=KERNELS)
def test_wrong_requests(t: Test) -> None:
    """What is missing, not known or not possible has the code that the specification gives it."""
    driver = prepare(t)
    volume = driver.create("pvc-1")
    stranger = {"volume_id": f"{csi.SERVER}:csi/csi-stranger"}
    known = {"volume_id": volume["volume_id"]}
    staging = {"staging_target_path": f"{csi.PLACE}/stage1"}
    target = {"target_path": f"{csi.PLACE}/target1"}
    use = {"volume_capability": capability()}
    uses = {"volume_capabilities": [capability()]}
    name = {"name": "pvc-2"}
    size = {"capacity_range": {"required_bytes": 65 * MIB}}
    bad_use: csi.Request = {"volume_capability": {"block": {}}}
    shared = {"volume_capability": capability("ext4", mode=5)}
    for call, request, code in (
        ("CreateVolume", uses, INVALID),
        ("CreateVolume", name, INVALID),
        ("CreateVolume", {**name, **uses, "capacity_range": {"required_bytes": -1}}, INVALID),
        ("CreateVolume", {**name, **uses, "capacity_range": {"required_bytes": 2, "limit_bytes": 1}}, INVALID),
        ("CreateVolume", {**name, "volume_capabilities": [capability("vfat")]}, INVALID),
        ("CreateVolume", {**name, **uses, "parameters": {"servers": "a,b"}}, INVALID),
        ("CreateVolume", {**name, **uses, "volume_content_source": {}}, INVALID),
        ("CreateVolume", {**name, **uses, "capacity_range": {"required_bytes": 1 << 50}}, "RESOURCE_EXHAUSTED"),
        ("CreateVolume", {"name": "pvc-1", **uses, **size}, "ALREADY_EXISTS"),
        ("CreateVolume", {"name": "x" * 129, **uses}, INVALID),
        ("DeleteVolume", {}, INVALID),
        ("DeleteVolume", stranger, "OK"),
        ("DeleteVolume", {"volume_id": "nonsense"}, "OK"),
        ("ValidateVolumeCapabilities", uses, INVALID),
        ("ValidateVolumeCapabilities", known, INVALID),
        ("ValidateVolumeCapabilities", {**stranger, **uses}, "NOT_FOUND"),
        ("ControllerGetVolume", {}, INVALID),
        ("ControllerGetVolume", stranger, "NOT_FOUND"),
        ("ControllerExpandVolume", size, INVALID),
        ("ControllerExpandVolume", known, INVALID),
        ("ControllerExpandVolume", {**stranger, **size}, "NOT_FOUND"),
        ("ControllerExpandVolume", {**known, "capacity_range": {"limit_bytes": MIB}}, "OUT_OF_RANGE"),
        ("ListVolumes", {"max_entries": -1}, INVALID),
        ("ListVolumes", {"starting_token": "nonsense"}, "ABORTED"),
        ("NodeStageVolume", {**staging, **use}, INVALID),
        ("NodeStageVolume", {**known, **use}, INVALID),
        ("NodeStageVolume", {**known, **staging}, INVALID),
        ("NodeStageVolume", {**known, **staging, **bad_use}, INVALID),
        ("NodeStageVolume", {**known, **staging, **shared}, INVALID),
        ("NodeStageVolume", {**known, **staging, **use, "volume_context": {"x": "y"}}, INVALID),
        ("NodeStageVolume", {**known, **use, "staging_target_path": "a/b"}, INVALID),
        ("NodeStageVolume", {"volume_id": "nonsense", **staging, **use}, "NOT_FOUND"),
        ("NodeStageVolume", {**stranger, **staging, **use,
                             "volume_context": {"addresses": t.server.address}}, "NOT_FOUND"),
        ("NodeStageVolume", {**known, **staging, **use,
                             "volume_context": {"addresses": t.server.address, "port": "4321"}}, "UNAVAILABLE"),
        ("NodeUnstageVolume", staging, INVALID),
        ("NodeUnstageVolume", known, INVALID),
        ("NodeUnstageVolume", {**stranger, **staging}, "OK"),
        ("NodePublishVolume", {**staging, **target, **use}, INVALID),
        ("NodePublishVolume", {**known, **target, **use}, INVALID),
        ("NodePublishVolume", {**known, **staging, **use}, INVALID),
        ("NodePublishVolume", {**known, **staging, **target}, INVALID),
        ("NodePublishVolume", {**known, **staging, **target, **use}, PRECONDITION),
        ("NodeUnpublishVolume", target, INVALID),
        ("NodeUnpublishVolume", known, INVALID),
        ("NodeUnpublishVolume", {**known, **target}, "OK"),
        ("NodeGetVolumeStats", known, INVALID),
        ("NodeGetVolumeStats", {"volume_path": csi.PLACE}, INVALID),
        ("NodeGetVolumeStats", {**stranger, "volume_path": csi.PLACE}, "NOT_FOUND"),
        ("NodeExpandVolume", known, INVALID),
        ("NodeExpandVolume", {"volume_path": csi.PLACE}, INVALID),
        ("NodeExpandVolume", {**stranger, "volume_path": csi.PLACE}, "NOT_FOUND"),
    ):
        driver.call(call, request, code)
    nothing_left(t, "after requests that are wrong")
    listed = driver.call("ListVolumes")["entries"]
    t.equal([one["volume"] for one in listed], [volume], "volumes after requests that are wrong")
    t.equal(t.server.sh("ls -A /mnt/*/csi"), "csi-pvc-1", "files after requests that are wrong")


@case(module_sets=ONLY_OURS, kernels=KERNELS)
def test_controller(t: Test) -> None:
    """Volumes are made once, listed in parts, measured, confirmed, and take room until they are deleted."""
    driver = prepare(t)
    before = driver.call("GetCapacity")["available_capacity"]
    volumes = [driver.create(name) for name in ("c", "a", "b", "Ü/../x", "y" * 128)]
    ids = sorted(volume["volume_id"] for volume in volumes)
    t.equal(len(set(ids)), 5, "different ids")
    after = driver.call("GetCapacity")["available_capacity"]
    t.check(5 * 64 * MIB <= before - after < 6 * 64 * MIB, f"room before {before}, with five volumes {after}")
    error = driver.call("CreateVolume", csi.create_request("d", after // MIB + 1), "RESOURCE_EXHAUSTED")
    t.check("are free" in error, error)
    found, token = [], ""
    for _ in range(3):
        part = driver.call("ListVolumes", {"max_entries": 2, "starting_token": token})
        found += [one["volume"]["volume_id"] for one in part["entries"]]
        token = part["next_token"]
    t.equal((found, token), (ids, ""), "the listed volumes, and the last token")
    for volume in volumes:
        shown = driver.call("ControllerGetVolume", {"volume_id": volume["volume_id"]})
        t.equal(shown["volume"], volume, "volume")
        request = {"volume_id": volume["volume_id"], "volume_context": volume["volume_context"],
                   "volume_capabilities": [capability("ext4"), capability()]}
        confirmed = driver.call("ValidateVolumeCapabilities", request)["confirmed"]
        t.equal(len(confirmed["volume_capabilities"]), 2, "confirmed capabilities")
        request["volume_capabilities"] = [capability(), capability("ext4", mode=5)]
        refused = driver.call("ValidateVolumeCapabilities", request)
        t.check(refused["confirmed"] is None and "several nodes" in refused["message"], f"not refused: {refused}")
        in_turn(driver, csi.delete(volume))
    t.equal(driver.call("GetCapacity")["available_capacity"], before, "room when all are deleted")


@case(module_sets=ONLY_OURS, kernels=KERNELS)
def test_modes(t: Test) -> None:
    """One container or several, one mode at a time; and a disk that is not empty is not formatted."""
    driver = prepare(t)
    volume = driver.create("pvc-1")
    single = Use(volume, capability("ext4", mode=6))
    other = f"{csi.PLACE}/other"
    t.client.run(f"mkdir -p {single.staging}")
    in_turn(driver, single.stage(), single.publish())
    error = driver.call(*single.publish(other), code=PRECONDITION)
    t.check("for one container" in error, error)
    # Kubernetes' node agent mounts folders of a volume elsewhere, and asks again when it was restarted.
    t.client.run(f"set -e; mkdir {other}; mount --bind {single.target} {other}")
    in_turn(driver, single.publish())
    t.client.run(f"umount {other}; rmdir {other}")
    reader = Use(volume, capability("ext4", mode=3))
    driver.call(*reader.stage(), code="ALREADY_EXISTS")
    in_turn(driver, single.unpublish(), single.unstage())
    # Now it has a file system, and readers can have it.
    in_turn(driver, reader.stage(), reader.publish())
    t.check(t.client.run(f"touch {reader.target}/new", check=False).rc != 0, "a reader can write")
    in_turn(driver, reader.unpublish(), reader.unstage())
    error = driver.call(*Use(volume, capability("xfs")).stage(), code=PRECONDITION)
    t.check("has ext4, not xfs" in error, error)
    nothing_left(t, "after a staging that failed")
    driver.call(*single.unstage())
    # Data that is no file system.
    raw = Use(volume, capability())
    in_turn(driver, raw.stage(), raw.publish())
    t.client.call(guest_io.write, path=raw.target, offset=0, length=MIB, seed=7)
    in_turn(driver, raw.unpublish(), raw.unstage())
    error = driver.call(*single.stage(), code=PRECONDITION)
    t.check("is not formatted" in error, error)
    nothing_left(t, "after a disk that is not formatted")
    in_turn(driver, single.unstage())
    (file,) = t.server.sh("ls /mnt/*/csi/csi-pvc-1").split()
    t.intact(t.server.call(guest_io.compare, path=file, offset=0, length=MIB, seed=7), None,
             "first wrong byte of a disk that must not be formatted")


@case(module_sets=ONLY_OURS, kernels=KERNELS, timeout=300)
def test_lvm(t: Test) -> None:
    """Logical volumes are made, grown and deleted, show nothing of old data, and survive a killed driver."""
    driver = prepare_lvm(t)
    # Without the tag it is no volume, whatever its name.
    t.server.run(f"lvcreate -y -n csi-foreign -l 1 {GROUP}")
    room = driver.call("GetCapacity")["available_capacity"]
    request = csi.create_request("pvc-1")
    for point in ("create.allocated", "create.zeroed", "create.named"):
        driver.stop()
        driver.start(point)
        driver.dies("CreateVolume", request)
        driver.start()
        volume = driver.twice("CreateVolume", request)["volume"]
        t.equal(volume["volume_id"], f"{csi.SERVER}:{GROUP}/csi-pvc-1", "id")
        driver.stop()
        driver.start("delete.removed")
        driver.dies(*csi.delete(volume))
        driver.start()
        in_turn(driver, csi.delete(volume))
        t.equal(driver.call("GetCapacity")["available_capacity"], room, f"room, killed at {point}")
    volume = driver.create("pvc-1")
    use = Use(volume, capability())
    t.client.run(f"mkdir -p {use.staging}")
    in_turn(driver, use.stage(), use.publish())
    driver.call(*csi.delete(volume), code=PRECONDITION)
    t.intact(t.client.call(guest_io.all_zero, path=use.target, offset=0, length=64 * MIB), True,
             "a new volume is empty")
    t.client.call(guest_io.write, path=use.target, offset=63 * MIB, length=MIB, seed=1)
    grow = ("ControllerExpandVolume", {"volume_id": use.id, "capacity_range": {"required_bytes": 128 * MIB}})
    driver.stop()
    driver.start("extend.grown")
    driver.dies(*grow)
    driver.start()
    t.equal(driver.twice(*grow)["capacity_bytes"], 128 * MIB, "size at the server")
    t.equal(driver.twice(*use.expand(128))["capacity_bytes"], 128 * MIB, "size at the node")
    t.intact(t.client.call(guest_io.compare, path=use.target, offset=63 * MIB, length=MIB, seed=1), None,
             "first wrong byte of what was written before the volume grew")
    t.intact(t.client.call(guest_io.all_zero, path=use.target, offset=64 * MIB, length=64 * MIB), True,
             "what a volume has grown by is empty")
    in_turn(driver, use.unpublish(), use.unstage(), csi.delete(volume))
    t.equal(driver.call("GetCapacity")["available_capacity"], room, "room at the end")
    t.equal(t.server.sh(f"lvs --noheadings -o lv_name {GROUP}").split(), ["csi-foreign"], "logical volumes of others")
