# SPDX-License-Identifier: GPL-2.0
"""What is measured: the systems, how they are set up in a machine, and the jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from . import bench_nvme
from . import bench_raid
from . import bench_scsi
from . import c_users
from .vm_node import Node

SESSION = "bench"


@dataclass(frozen=True)
class System:
    """A module set and its setting; no set for those that are part of the kernel."""

    modules: str | None
    always_invalidate: str = ""
    # What is mapped; null_blk disks if this is empty.
    backing: str = ""
    # How the kernel's own are reached: NVMe by one of the transports, SCSI by one of the protocols.
    nvme: str = ""
    scsi: str = ""
    # Mirrors over two devices each.
    is_mirrored: bool = False


# In the order in which they are measured; the first is the one that ratios are about.
SYSTEMS = {
    "ours": System("ours", "Y"),
    "ours-trusting": System("ours", "N"),
    "c": System("c", "Y"),
    "c-trusting": System("c", "N"),
    "nvme": System(None, nvme=bench_nvme.RDMA),
    "iser": System(None, scsi=bench_scsi.ISER),
    "srp": System(None, scsi=bench_scsi.SRP),
    "nvme-tcp": System(None, nvme=bench_nvme.TCP),
    "iscsi": System(None, scsi=bench_scsi.ISCSI),
    # md RAID1 over two of our disks.
    "raid1": System("ours", "Y", is_mirrored=True),
    # Another build of ours, for what a change brings.
    "before": System("before", "Y"),
    # The kernel's rnbd at both ends over our transport.
    "ours-c-api": System(c_users.MODULES, "Y"),
    "ours-c-api-trusting": System(c_users.MODULES, "N"),
}
ON_REQUEST = ("before", "ours-c-api", "ours-c-api-trusting")
# What is measured with --everybody.
OTHERS = ("iser", "srp", "nvme-tcp", "iscsi", "raid1")


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


# The size of null_blk disks in MiB.
DISK_MIB = 1024


def null_disks(node: Node, count: int) -> list[str]:
    """null_blk disks without memory that answer at once."""
    # A loop, as a line for each of 1,000 disks is longer than an argument may be.
    node.run(f"""
        set -e
        modprobe null_blk nr_devices=0
        grep -q configfs /proc/mounts || mount -t configfs configfs /sys/kernel/config
        cd /sys/kernel/config/nullb
        for index in $(seq 0 {count - 1}); do
            [ ! -d bench$index ] || continue
            mkdir bench$index
            echo {DISK_MIB} >bench$index/size
            echo 0 >bench$index/irqmode
            echo 2 >bench$index/submit_queues
            echo 1 >bench$index/power
        done""", timeout=60 + count)
    return [f"/dev/bench{index}" for index in range(count)]


PAGE_KIB = 4


def free_kib(node: Node) -> int:
    """The machine's available memory. The free pages that each processor keeps for itself, some MiB, are part of it."""
    node.run("sync; echo 3 >/proc/sys/vm/drop_caches")
    found = re.search(r"MemAvailable:\s+(\d+)", node.read("/proc/meminfo"))
    kept = sum(int(count) for count in re.findall(r"\n +count: +(\d+)", node.read("/proc/zoneinfo")))
    return (int(found.group(1)) if found else 0) + kept * PAGE_KIB


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


def needs_own_image(names: Iterable[str]) -> bool:
    """Whether some of the systems need what only the image of bench_image.py has: SCSI over a network."""
    return any(SYSTEMS[name].scsi for name in names if name in SYSTEMS)


def without_rdma(name: str) -> bool:
    """Whether a system sends no RDMA messages."""
    return name in SYSTEMS and (SYSTEMS[name].nvme == bench_nvme.TCP or SYSTEMS[name].scsi == bench_scsi.ISCSI)


@contextmanager
def prepare(node: Node, name: str, count: int) -> Iterator[Ready]:
    """Set a system up on ``count`` disks, and take it down again."""
    system = {**SYSTEMS, **MIXED, **FILES}[name]
    legs = bench_raid.LEGS if system.is_mirrored else 1
    disks = [file_disk(node, system.backing)] if system.backing else null_disks(node, count * legs)
    before = free_kib(node)
    devices = connect(node, system, disks)
    used = bench_raid.create(node, devices, DISK_MIB << 10) if system.is_mirrored else devices
    try:
        yield Ready(used, before - free_kib(node), FILE_MIB if system.backing else 512)
    finally:
        if system.is_mirrored:
            bench_raid.remove(node, used)
        disconnect(node, system, devices)
        if system.backing == "loop":
            node.run(["losetup", "--detach", *disks])


def connect(node: Node, system: System, disks: list[str]) -> list[str]:
    """Export all disks and connect to them; the devices."""
    if system.nvme:
        return bench_nvme.connect(node, disks, system.nvme)
    if system.scsi:
        return bench_scsi.connect(node, disks, system.scsi)
    return rnbd_map(node, system, disks)


def disconnect(node: Node, system: System, devices: list[str]) -> None:
    """Take the devices away again, and what has exported their disks."""
    if system.nvme:
        bench_nvme.disconnect(node, system.nvme)
    elif system.scsi:
        bench_scsi.disconnect(node, system.scsi)
    else:
        for device in devices:
            disk = device.removeprefix("/dev/")
            node.write(f"/sys/block/{disk}/rnbd/unmap_device", "normal")
        node.modules_unload_all()
        node.module_unload(RENAMED_CORE)


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
