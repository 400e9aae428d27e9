# SPDX-License-Identifier: GPL-2.0
"""What is measured: the systems, how they are set up in a machine, and the jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from . import c_users
from .vm_node import Node

SESSION = "bench"
SUBSYSTEM = "/sys/kernel/config/nvmet/subsystems/bench"
PORT = "/sys/kernel/config/nvmet/ports/1"


@dataclass(frozen=True)
class System:
    """A module set and its setting; no set for NVMe."""

    modules: str | None
    always_invalidate: str = ""
    # What is mapped; null_blk disks if this is empty.
    backing: str = ""


# In the order in which they are measured; the first is the one that ratios are about.
SYSTEMS = {
    "ours": System("ours", "Y"),
    "ours-trusting": System("ours", "N"),
    "c": System("c", "Y"),
    "c-trusting": System("c", "N"),
    "nvme": System(None),
    # Another build of ours, for what a change brings.
    "before": System("before", "Y"),
    # The kernel's rnbd at both ends over our transport.
    "ours-c-api": System(c_users.MODULES, "Y"),
    "ours-c-api-trusting": System(c_users.MODULES, "N"),
}
ON_REQUEST = ("before", "ours-c-api", "ours-c-api-trusting")


# The client of one set with the server of another, see bench_mixed.py.
MIXED = {
    "ours-c": System("ours-c", "Y"),
    "ours-c-trusting": System("ours-c", "N"),
    "c-ours": System("c-ours", "Y"),
    "c-ours-trusting": System("c-ours", "N"),
}
# A file of the server as a disk, the same file below a loop device, and a disk like the one below its
# file system; see bench_files.py.
FILES = {name: System("ours", "Y", name) for name in ("file", "loop", "block")}
# What C's rtrs_core is called there.
RENAMED_CORE = "rtrs_corc"


@dataclass(frozen=True)
class Configuration:
    """A machine."""

    cpus: int
    rdma_mtu: int
    devices: int

    def __str__(self) -> str:
        return f"{self.cpus} CPU, RDMA MTU {self.rdma_mtu}, {self.devices} device(s)"


@dataclass(frozen=True)
class Job:
    """A pattern of requests."""

    rw: str
    size: int
    depth: int
    ios: int

    def __str__(self) -> str:
        return f"{self.rw} {self.size >> 10} KiB depth {self.depth}"


@dataclass
class Ready:
    """A system that is set up."""

    devices: list[str]
    # What setting it up took from the machine's free memory, both ends together.
    memory_kib: int
    # How much of each device is used.
    size_mib: int


def null_disks(node: Node, count: int) -> list[str]:
    """null_blk disks without memory that answer at once."""
    names = [f"bench{index}" for index in range(count)]
    lines = ["set -e; modprobe null_blk nr_devices=0",
             "grep -q configfs /proc/mounts || mount -t configfs configfs /sys/kernel/config"]
    for name in names:
        folder = f"/sys/kernel/config/nullb/{name}"
        lines.append(f"[ -d {folder} ] || {{ mkdir {folder}; echo 1024 >{folder}/size; "
                     f"echo 0 >{folder}/irqmode; echo 2 >{folder}/submit_queues; "
                     f"echo 1 >{folder}/power; }}")
    node.run("\n".join(lines))
    return [f"/dev/{name}" for name in names]


def free_kib(node: Node) -> int:
    """The machine's available memory."""
    node.run("sync; echo 3 >/proc/sys/vm/drop_caches")
    found = re.search(r"MemAvailable:\s+(\d+)", node.read("/proc/meminfo"))
    return int(found.group(1)) if found else 0


FILE_FOLDER, FILE_MIB = "/mnt/bench", 64


def file_disk(node: Node, backing: str) -> str:
    """A file on XFS in memory, a loop device over it that does direct IO, or a disk in memory; all written."""
    image, block = f"{FILE_FOLDER}/disk.img", "/dev/ram1"
    fill = f"bs=1M count={FILE_MIB} conv=fsync status=none"
    node.run(f"set -e; mountpoint -q {FILE_FOLDER} && exit\n"
             "modprobe xfs; modprobe brd rd_nr=2 rd_size=524288; mkfs.xfs -q -f /dev/ram0\n"
             f"mkdir -p {FILE_FOLDER}; mount -t xfs /dev/ram0 {FILE_FOLDER}\n"
             f"dd if=/dev/urandom of={image} {fill}; dd if={image} of={block} {fill}", timeout=120)
    if backing == "loop":
        return node.sh(f"modprobe loop; losetup --find --show --direct-io=on {image}")
    return {"file": image, "block": block}[backing]


@contextmanager
def prepare(node: Node, name: str, count: int) -> Iterator[Ready]:
    """Set a system up on ``count`` disks, and take it down again."""
    system = {**SYSTEMS, **MIXED, **FILES}[name]
    disks = [file_disk(node, system.backing)] if system.backing else null_disks(node, count)
    before = free_kib(node)
    if system.modules is None:
        devices = nvme_connect(node, disks)
    else:
        devices = rnbd_map(node, system, disks)
    try:
        yield Ready(devices, before - free_kib(node), FILE_MIB if system.backing else 512)
    finally:
        if system.modules is None:
            nvme_disconnect(node)
        else:
            for device in devices:
                disk = device.removeprefix("/dev/")
                node.write(f"/sys/block/{disk}/rnbd/unmap_device", "normal")
            node.modules_unload_all()
            node.module_unload(RENAMED_CORE)
        if system.backing == "loop":
            node.run(["losetup", "--detach", *disks])


def rnbd_map(node: Node, system: System, disks: list[str]) -> list[str]:
    """Load a module set and map all disks in one session."""
    node.module_set = system.modules or ""
    # NVMe's modules take these with them when they go.
    node.run(["modprobe", "-a", "ib_core", "rdma_cm"])
    if system.modules in {mixed.modules for mixed in MIXED.values()}:
        node.modules_load(RENAMED_CORE)
    # Files are given below a search path only.
    search_path = FILE_FOLDER if system.backing == "file" else "/"
    node.modules_load("rnbd_server", "rnbd_client", rnbd_server=f"dev_search_path={search_path}",
                      rtrs_server=f"always_invalidate={system.always_invalidate}")
    for disk in (disk.removeprefix(search_path) for disk in disks):
        node.write("/sys/class/rnbd-client/ctl/map_device",
                   f"sessname={SESSION} path=ip:{node.address} device_path={disk}")
    return [f"/dev/rnbd{index}" for index in range(len(disks))]


def nvme_connect(node: Node, disks: list[str]) -> list[str]:
    """Export all disks as namespaces of one subsystem, and connect to it."""
    lines = ["set -e; modprobe -a nvme-rdma nvmet-rdma", f"mkdir {SUBSYSTEM}",
             f"echo 1 >{SUBSYSTEM}/attr_allow_any_host"]
    for number, disk in enumerate(disks, 1):
        folder = f"{SUBSYSTEM}/namespaces/{number}"
        lines += [f"mkdir {folder}", f"echo -n {disk} >{folder}/device_path",
                  f"echo 1 >{folder}/enable"]
    lines += [f"mkdir {PORT}", f"echo rdma >{PORT}/addr_trtype", f"echo ipv4 >{PORT}/addr_adrfam",
              f"echo {node.address} >{PORT}/addr_traddr", f"echo 4420 >{PORT}/addr_trsvcid",
              f"ln -s {SUBSYSTEM} {PORT}/subsystems/bench",
              f"printf 'transport=rdma,traddr={node.address},trsvcid=4420,nqn=bench,"
              "hostid=2cd2c43b-a90a-45c1-a8cd-86b33ab273b5,"
              "hostnqn=nqn.2014-08.org.nvmexpress:uuid:2cd2c43b-a90a-45c1-a8cd-86b33ab273b5' "
              ">/dev/nvme-fabrics"]
    node.run("\n".join(lines))
    devices = [f"/dev/nvme0n{number}" for number in range(1, len(disks) + 1)]
    for device in devices:
        node.wait_for(device)
    return devices


def nvme_disconnect(node: Node) -> None:
    """Disconnect, and remove the subsystem."""
    node.run("echo 1 >/sys/class/nvme/nvme0/delete_controller\n"
             f"rm {PORT}/subsystems/bench; rmdir {PORT}\n"
             f"for i in {SUBSYSTEM}/namespaces/*; do echo 0 >$i/enable; rmdir $i; done\n"
             f"rmdir {SUBSYSTEM}; modprobe -ra nvme-rdma nvmet-rdma")
