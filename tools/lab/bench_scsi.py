# SPDX-License-Identifier: GPL-2.0
"""SRP, iSER and iSCSI, for the benchmark: the kernel's target (LIO) with all disks as units, and its initiators.

SRP is set up by files of the kernel alone. Of iSCSI and iSER the login is made by a program, iscsid of open-iscsi.
"""

from __future__ import annotations

from .vm import wait_until
from .vm_node import Node

TARGET = "/sys/kernel/config/target"
CORE = f"{TARGET}/core/iblock_0"
SRP_PORT, ISCSI_PORT = 4421, 3260
IQN, CLIENT_IQN = "iqn.2026-01.org.example:bench", "iqn.2026-01.org.example:client"
# Requests of a session at a time; more than any job makes.
DEPTH = 128
SRP, ISER, ISCSI = "srp", "iser", "iscsi"
VENDOR = "LIO-ORG"


def _backstores(disks: list[str]) -> list[str]:
    lines = ["set -e; modprobe -a target_core_mod target_core_iblock sd_mod",
             "grep -q configfs /proc/mounts || mount -t configfs configfs /sys/kernel/config"]
    for number, disk in enumerate(disks):
        folder = f"{CORE}/bench{number}"
        lines += [f"mkdir -p {folder}", f"echo udev_path={disk} >{folder}/control", f"echo 1 >{folder}/enable"]
    return lines


def _units(group: str, count: int) -> list[str]:
    lines = []
    for number in range(count):
        lines += [f"mkdir {group}/lun/lun_{number}", f"ln -s {CORE}/bench{number} {group}/lun/lun_{number}/bench"]
    return lines


def _remove(group: str, wwn: str, count: int, fabric: str) -> list[str]:
    lines = [f"echo 0 >{group}/enable"]
    lines += [f"rm {group}/lun/lun_{number}/bench; rmdir {group}/lun/lun_{number}" for number in range(count)]
    lines += [f"[ ! -d {group}/np ] || rmdir {group}/np/*", f"rmdir {group} {wwn} {TARGET}/{fabric}"]
    return lines + [f"rmdir {CORE}/bench{number}" for number in range(count)] + [f"rmdir {CORE}"]


def _disks(node: Node) -> list[str]:
    """The disks of the target, as the initiator has them."""
    return node.sh(f"for d in /sys/block/sd*; do [ -e $d ] && grep -q {VENDOR} $d/device/vendor && "
                   "echo /dev/${d##*/}; done; true").split()


def _found(node: Node, count: int) -> list[str]:
    wait_until(lambda: len(_disks(node)) == count, 30 * node.slow, f"{count} disks of the target")
    return _disks(node)


def connect(node: Node, disks: list[str], transport: str) -> list[str]:
    """Export all disks, and connect to the target; the devices."""
    return _srp_connect(node, disks) if transport == SRP else _iscsi_connect(node, disks, transport)


def disconnect(node: Node, transport: str) -> None:
    """Disconnect, and remove the target."""
    count = len(_disks(node))
    if transport == SRP:
        _srp_disconnect(node, count)
    else:
        _iscsi_disconnect(node, count)


def _srp_group(node: Node) -> tuple[str, str]:
    """The folders of the target's port and of its group: the port's name is the last half of its first GID."""
    gid = node.read("/sys/class/infiniband/rxe0/ports/1/gids/0")
    port = ":".join(gid.split(":")[4:])
    return f"{TARGET}/srpt/{port}", f"{TARGET}/srpt/{port}/{port}"


def _srp_connect(node: Node, disks: list[str]) -> list[str]:
    node.run("modprobe -a ib_srpt ib_srp")
    _port, group = _srp_group(node)
    # Without an entry for the initiator its disks could not be written to.
    client = f"{group}/acls/{node.address}"
    lines = [*_backstores(disks), f"mkdir -p {group}", *_units(group, len(disks)), f"mkdir {client}"]
    for number in range(len(disks)):
        lines += [f"mkdir {client}/lun_{number}", f"ln -s {group}/lun/lun_{number} {client}/lun_{number}/unit"]
    lines += [f"echo {SRP_PORT} >{TARGET}/srpt/discovery_auth/rdma_cm_port", f"echo 1 >{group}/enable"]
    node.run("\n".join(lines))
    guid = node.read("/sys/module/ib_srpt/parameters/srpt_service_guid").strip().removeprefix("0x").zfill(16)
    node.write("/sys/class/infiniband_srp/srp-rxe0-1/add_target",
               f"id_ext={guid},ioc_guid={guid},dest={node.address}:{SRP_PORT},queue_size={DEPTH},"
               f"max_cmd_per_lun={DEPTH}")
    return _found(node, len(disks))


def _srp_disconnect(node: Node, count: int) -> None:
    port, group = _srp_group(node)
    client = f"{group}/acls/{node.address}"
    node.run("for p in /sys/class/srp_remote_ports/*; do echo 1 >$p/delete; done")
    wait_until(lambda: not _disks(node), 30 * node.slow, "the end of the target's disks")
    lines = [f"rm {client}/lun_{number}/unit; rmdir {client}/lun_{number}" for number in range(count)]
    node.run("\n".join([*lines, f"rmdir {client}", *_remove(group, port, count, "srpt"),
                        "modprobe -ra ib_srp ib_srpt target_core_iblock"]))


def _iscsi_connect(node: Node, disks: list[str], transport: str) -> list[str]:
    wwn = f"{TARGET}/iscsi/{IQN}"
    group, portal = f"{wwn}/tpgt_1", f"{node.address}:{ISCSI_PORT}"
    lines = [*_backstores(disks), f"mkdir -p {group} {group}/np/{portal}"]
    if transport == ISER:
        lines.append(f"echo 1 >{group}/np/{portal}/iser")
    lines += _units(group, len(disks))
    attributes = {"authentication": 0, "generate_node_acls": 1, "cache_dynamic_acls": 1, "demo_mode_write_protect": 0,
                  "default_cmdsn_depth": DEPTH}
    lines += [f"echo {value} >{group}/attrib/{name}" for name, value in attributes.items()]
    record = f"iscsiadm -m node -T {IQN} -p {portal}"
    lines += [f"echo 1 >{group}/enable", "mkdir -p /etc/iscsi /run/lock/iscsi",
              f"echo InitiatorName={CLIENT_IQN} >/etc/iscsi/initiatorname.iscsi",
              f"modprobe -a {'ib_iser' if transport == ISER else 'iscsi_tcp'}",
              "pgrep -x iscsid >/dev/null || iscsid", f"{record} -o new"]
    settings = {"iface.transport_name": ISER if transport == ISER else "tcp", "node.session.queue_depth": DEPTH,
                "node.session.cmds_max": DEPTH}
    lines += [f"{record} -o update -n {name} -v {value}" for name, value in settings.items()]
    node.run("\n".join([*lines, f"{record} --login"]), timeout=120)
    return _found(node, len(disks))


def _iscsi_disconnect(node: Node, count: int) -> None:
    wwn = f"{TARGET}/iscsi/{IQN}"
    group, portal = f"{wwn}/tpgt_1", f"{node.address}:{ISCSI_PORT}"
    record = f"iscsiadm -m node -T {IQN} -p {portal}"
    node.run(f"{record} --logout && {record} -o delete && iscsiadm -k 0", timeout=120)
    node.run("\n".join([*_remove(group, wwn, count, "iscsi"), "modprobe -ra ib_iser iscsi_tcp ib_isert || true"]))
