# SPDX-License-Identifier: GPL-2.0
"""The driver for orchestrators of containers, when it is killed, misled, or left without its server."""

from __future__ import annotations

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import csi
from lib import guest_io
from lib import rnbd
from lib.csi import capability
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

# The points of tools/rnbd-csi/src/fail.rs by the call that comes to them.
NODE_POINTS = {
    "stage": ("stage.mapped", "stage.formatted", "stage.mounted"),
    "publish": ("publish.created", "publish.bound"),
    "unpublish": ("unpublish.unmounted", "unpublish.removed"),
    "unstage": ("unstage.unmounted", "unstage.unmapped"),
}
SERVER_POINTS = {
    "create": ("create.allocated", "create.named"),
    "delete": ("delete.renamed", "delete.removed"),
}


def is_mounted(t: Test, path: str) -> bool:
    """Whether something is mounted there."""
    return f" {path} " in t.client.read("/proc/self/mountinfo")


@case(module_sets=ONLY_OURS, kernels=KERNELS)
def test_hostile_paths(t: Test) -> None:
    """No link, foreign mount, wrong file, option or id has the driver touch what is no volume."""
    driver = prepare(t)
    volume = driver.create("pvc-1")
    use, raw = Use(volume, capability("ext4")), Use(volume, capability())
    outside, link, tmpfs = f"{csi.PLACE}/outside", f"{csi.PLACE}/link", f"{csi.PLACE}/tmpfs"
    t.client.run(f"set -e; mkdir -p {use.staging} {outside} {tmpfs}; mount -t tmpfs none {tmpfs}; echo x >{tmpfs}/file")
    for target in (outside, f"{outside}/file"):
        t.client.run(f"ln -sfn {target} {link}")
        for name, request in (raw.stage(), use.stage()):
            driver.call(name, {**request, "staging_target_path": link}, INVALID)
        driver.call(*use.publish(link), code=INVALID)
        driver.call(*raw.publish(link), code=INVALID)
        driver.call(*use.unpublish(link), code=INVALID)
        t.check(t.client.exists(outside) and not t.client.exists(f"{outside}/file"), "a link was followed")
    for name, request in (use.stage(), use.unstage()):
        driver.call(name, {**request, "staging_target_path": tmpfs}, PRECONDITION)
    nothing_left_but(t, tmpfs, "after calls for a foreign mount")
    driver.call(*use.stage())
    driver.call(*use.publish(tmpfs), code=PRECONDITION)
    driver.call(*use.unpublish(tmpfs), code=PRECONDITION)
    t.equal(t.client.read(f"{tmpfs}/file"), "x", "the file of a foreign mount")
    t.client.run(f"echo precious >{outside}/file")
    driver.call(*use.publish(f"{outside}/file"), code=PRECONDITION)
    driver.call(*use.unpublish(f"{outside}/file"), code="INTERNAL")
    driver.call(*use.unpublish(outside), code="INTERNAL")
    t.equal(t.client.read(f"{outside}/file"), "precious", "a file at a target")
    for path in ("/proc/self/../..", "/", f"{outside}/file/x", "/" + "x" * 5000):
        driver.call(*use.publish(path), code=INVALID)
    for disk in ("csi/../../etc/passwd", "../csi-pvc-1", "/"):
        stranger = {"volume_id": f"{csi.SERVER}:{disk}"}
        driver.call("DeleteVolume", stranger)
        driver.call("NodeStageVolume", {**use.stage()[1], **stranger}, "NOT_FOUND")
    driver.call(*use.unstage())
    for option in ("bind", "noatime,remount", "journal_path=/dev/vda", "X-mount.subdir=x"):
        error = driver.call(*Use(volume, capability("ext4", flags=[option])).stage(), code=INVALID)
        t.check("is not allowed" in error, error)
    t.client.run(f"umount {tmpfs}")
    nothing_left(t, "after all")
    in_turn(driver, csi.delete(volume))


def nothing_left_but(t: Test, place: str, what: str) -> None:
    """No device is mapped, and nothing is mounted but at a place."""
    t.equal(csi.devices(t), [], f"devices {what}")
    t.equal(t.client.read("/proc/self/mountinfo").count(f" {csi.PLACE}"), 1, f"mounts {what}")
    t.check(is_mounted(t, place), f"{place} was unmounted {what}")


@case(module_sets=ONLY_OURS, kernels=KERNELS)
def test_in_use(t: Test) -> None:
    """A volume in use is not unstaged, used otherwise, or covered by another one; calls at once do what one does."""
    driver = prepare(t)
    volume, second = driver.create("pvc-1"), driver.create("pvc-2")
    use, raw = Use(volume, capability("ext4")), Use(volume, capability())
    other = Use(second, capability("ext4"), number=2)
    t.client.run(f"mkdir -p {use.staging} {other.staging}")
    # A device that a container has, and has not opened.
    in_turn(driver, raw.stage(), raw.publish())
    error = driver.call(*raw.unstage(), code=PRECONDITION)
    t.check(raw.target in error, error)
    driver.call(*use.stage(), code="ALREADY_EXISTS")
    t.check(t.client.call(guest_io.all_zero, path=raw.target, offset=0, length=MIB), "a device in use was formatted")
    in_turn(driver, raw.unpublish(), raw.unstage())
    # Calls for one volume at once: each ends, one does the work, and the other is told so.
    jobs = [driver.start_call(*use.stage()) for _ in range(4)]
    codes = {driver.ended(job.wait(), "NodeStageVolume")[0] for job in jobs}
    t.check("OK" in codes and codes <= {"OK", "ABORTED"}, f"codes of four calls at once: {codes}")
    t.equal(t.client.read("/proc/self/mountinfo").count(f" {use.staging} "), 1, "mounts of four calls at once")
    in_turn(driver, use.stage(), other.stage(), use.publish())
    driver.call(*raw.stage(), code="ALREADY_EXISTS")
    driver.call(*raw.publish(f"{csi.PLACE}/raw"), code=PRECONDITION)
    driver.call(*other.publish(use.target), code=PRECONDITION)
    error = driver.call(*use.publish(readonly=True), code="ALREADY_EXISTS")
    t.check("for writing" in error, error)
    # Two volumes to one place at once: one of them has it.
    place = f"{csi.PLACE}/both"
    jobs = [driver.start_call(*one.publish(place)) for one in (use, other) * 2]
    codes = {driver.ended(job.wait(), "NodePublishVolume")[0] for job in jobs}
    t.check("OK" in codes and codes <= {"OK", "ABORTED", PRECONDITION}, f"codes of volumes for one place: {codes}")
    t.equal(t.client.read("/proc/self/mountinfo").count(f" {place} "), 1, "mounts of two volumes for one place")
    error = driver.call(*use.unstage(), code=PRECONDITION)
    t.check(use.target in error or place in error, error)
    # It is as it was before it was staged; the call can be made again.
    in_turn(driver, use.unpublish(place), use.unpublish(), use.unstage(), other.unstage(),
            csi.delete(volume), csi.delete(second))
    nothing_left(t, "at the end")


@case(module_sets=ONLY_OURS, kernels=KERNELS)
def test_namespace(t: Test) -> None:
    """A driver with a mount namespace of its own, as in a container: the node sees all that it mounts, as it is."""
    t.client.run(f"set -e; mkdir -p {csi.PLACE}; mount --bind {csi.PLACE} {csi.PLACE}; mount --make-shared {csi.PLACE}")
    driver = prepare(t, within=("unshare", "--mount", "--propagation", "unchanged"))
    t.defer(t.client.run, f"umount -R {csi.PLACE}")
    volume = driver.create("pvc-1")
    use = Use(volume, capability("ext4"))
    t.client.run(f"mkdir -p {use.staging}")
    in_turn(driver, use.stage(), use.publish())
    t.client.create(f"{use.target}/file", "content\n")
    reader = f"{csi.PLACE}/reader"
    in_turn(driver, use.publish(reader, readonly=True))
    t.equal(t.client.read(f"{reader}/file"), "content", "content on the node")
    refused = t.client.run(f"touch {reader}/new", check=False)
    t.check("Read-only" in refused.err, f"touch on the node at a read-only place: {refused}")
    t.client.run(f"touch {use.target}/new")
    in_turn(driver, use.unpublish(reader), use.unpublish(), use.unstage())
    t.equal(t.client.read("/proc/self/mountinfo").count(f" {csi.PLACE}"), 1, "mounts of the node at the end")
    t.equal(csi.devices(t), [], "devices at the end")
    in_turn(driver, csi.delete(volume))


@case(module_sets=ONLY_OURS, kernels=KERNELS)
def test_condition(t: Test) -> None:
    """The condition of a volume says that its file system takes no writes any more."""
    driver = prepare(t)
    for name, kind, mib, fail in (
        ("pvc-1", "ext4", 64, "echo 1 >/sys/fs/ext4/$(basename $(findmnt -n -o SOURCE {0}))/trigger_fs_error"),
        ("pvc-2", "xfs", 320, "xfs_io -x -c shutdown {0}"),
    ):
        volume = driver.create(name, mib)
        use = Use(volume, capability(kind, flags=["errors=remount-ro"] if kind == "ext4" else []))
        t.client.run(f"mkdir -p {use.staging}; modprobe -q {kind} || :")
        in_turn(driver, use.stage(), use.publish())
        reader = f"{csi.PLACE}/reader"
        in_turn(driver, use.publish(reader, readonly=True))
        for place in (use.target, reader):
            t.equal(driver.call(*use.stats(place))["volume_condition"]["abnormal"], False, f"condition of {kind}")
        t.client.run(fail.format(use.target))
        t.check(t.client.run(f"touch {use.target}/new", check=False).rc != 0, f"{kind} can be written after an error")
        for place in (use.target, reader):
            condition = driver.call(*use.stats(place))["volume_condition"]
            t.check(condition["abnormal"] and "file system" in condition["message"], f"{kind}: {condition}")
        in_turn(driver, use.unpublish(reader), use.unpublish(), use.unstage(), csi.delete(volume))


@case(module_sets=ONLY_OURS, kernels=KERNELS, timeout=300, quick=())
def test_killed_on_the_node(t: Test) -> None:
    """A driver that is killed at any point of a node's calls is started again, and goes on from there."""
    driver = prepare(t)
    volume = driver.create("pvc-1")
    use = Use(volume, capability("ext4"))
    t.client.run(f"mkdir -p {use.staging}")
    driver.killed_at("stage.mapped", *use.stage())
    t.check(csi.devices(t), "a disk is mapped")
    # The disk is too small for XFS.
    driver.call(*Use(volume, capability("xfs")).stage(), code="INTERNAL")
    nothing_left(t, "after a staging that was killed, and one that failed")
    calls = {"stage": use.stage(), "publish": use.publish(readonly=True), "unpublish": use.unpublish(),
             "unstage": use.unstage()}
    for killed, points in NODE_POINTS.items():
        for point in points:
            for name, call in calls.items():
                if name == killed:
                    driver.stop()
                    driver.start(point)
                    driver.dies(*call)
                    driver.start()
                driver.twice(*call)
                if name == "publish":
                    options = t.client.sh(f"findmnt -n -o OPTIONS {use.target}")
                    t.check(options.startswith("ro,"), f"options of a read-only place, killed at {point}: {options}")
                    t.equal(t.client.read("/proc/self/mountinfo").count(f" {use.target} "), 1,
                            f"mounts at the target, killed at {point}")
            nothing_left(t, f"after {point}")
            t.check(not t.client.exists(use.target), f"the target is still there, killed at {point}")


@case(module_sets=ONLY_OURS, kernels=KERNELS, timeout=300)
def test_killed_on_the_server(t: Test) -> None:
    """A driver that is killed when it makes, grows or deletes a volume is started again, and goes on from there."""
    driver = prepare(t)
    room = driver.call("GetCapacity")["available_capacity"]
    for killed, points in SERVER_POINTS.items():
        for point in points:
            request = csi.create_request("pvc-1")
            if killed == "create":
                driver.stop()
                driver.start(point)
                driver.dies("CreateVolume", request)
                driver.start()
            volume = driver.twice("CreateVolume", request)["volume"]
            t.equal(volume["capacity_bytes"], 64 * MIB, f"size, killed at {point}")
            if killed == "delete":
                driver.stop()
                driver.start(point)
                driver.dies(*csi.delete(volume))
                driver.start()
            driver.twice(*csi.delete(volume))
            t.equal(t.server.sh("ls -A /mnt/*/csi"), "", f"files, killed at {point}")
            t.equal(driver.call("GetCapacity")["available_capacity"], room, f"room, killed at {point}")
    volume = driver.create("pvc-1")
    use = Use(volume, capability("ext4"))
    t.client.run(f"mkdir -p {use.staging}")
    in_turn(driver, use.stage(), use.publish())
    grow = ("ControllerExpandVolume", {"volume_id": use.id, "capacity_range": {"required_bytes": 128 * MIB}})
    for point, call in (("extend.grown", grow), ("expand.grown", use.expand(128))):
        driver.stop()
        driver.start(point)
        driver.dies(*call)
        driver.start()
        t.equal(driver.twice(*call)["capacity_bytes"], 128 * MIB, f"size, killed at {point}")
    in_turn(driver, use.unpublish(), use.unstage(), csi.delete(volume))


@case(module_sets=ONLY_OURS, kernels=KERNELS)
def test_server_away(t: Test) -> None:
    """A server that does not answer holds up its own volumes; a second call for one is told so; conditions tell."""
    driver = prepare(t, connect_timeout_ms=3000)
    volume = driver.create("pvc-1")
    use = Use(volume, capability())
    t.client.run(f"mkdir -p {use.staging}")
    in_turn(driver, use.stage(), use.publish())
    # An address of the network that no machine has.
    nobody = t.server.address.rsplit(".", 1)[0] + ".250"
    away = {"volume_id": "away:csi/csi-x", "volume_context": {"addresses": nobody}}
    stage = {**away, "staging_target_path": f"{csi.PLACE}/away", "volume_capability": capability()}
    waiting = driver.start_call("NodeStageVolume", stage)
    begun = driver.start_call("NodeStageVolume", stage)
    driver.call("Probe")
    in_turn(driver, use.publish())
    codes = sorted(driver.ended(job.wait(), "NodeStageVolume")[0] for job in (waiting, begun))
    t.equal(codes, ["ABORTED", "UNAVAILABLE"], "codes of two calls for a volume whose server is away")
    path = csi.session_path(t)
    t.client.write(f"{path}/disconnect", "1")
    condition = driver.call(*use.stats())["volume_condition"]
    t.check(condition["abnormal"] and condition["message"], f"condition without a path: {condition}")
    rnbd.reconnect(t, path)
    (device,) = csi.devices(t)
    t.client.wait_for(f"/sys/block/{device}/rnbd/state", matches="open")
    t.equal(driver.call(*use.stats())["volume_condition"]["abnormal"], False, "condition with its path back")
    t.equal(t.client.read(f"/sys/block/{device}/rnbd/hold_io_ms"), "600000", "how long requests wait")
    in_turn(driver, use.unpublish(), use.unstage(), csi.delete(volume))
