# SPDX-License-Identifier: GPL-2.0
"""md RAID1 over pairs of our devices, for the benchmark: without metadata on them, set up by files of the kernel."""

from __future__ import annotations

from .vm_node import Node

LEGS = 2


def create(node: Node, devices: list[str], kib: int) -> list[str]:
    """Make a mirror over each pair of devices, of so many KiB, as if it was in sync."""
    node.run("modprobe raid1")
    mirrors = []
    for number in range(len(devices) // LEGS):
        name = f"md_bench{number}"
        node.write("/sys/module/md_mod/parameters/new_array", name)
        files = f"/sys/block/{name}/md"
        node.write(f"{files}/metadata_version", "none")
        node.write(f"{files}/level", "raid1")
        node.write(f"{files}/raid_disks", str(LEGS))
        for slot, device in enumerate(devices[number * LEGS:(number + 1) * LEGS]):
            disk = device.removeprefix("/dev/")
            node.write(f"{files}/new_dev", node.read(f"/sys/block/{disk}/dev").strip())
            node.write(f"{files}/dev-{disk}/slot", str(slot))
            node.write(f"{files}/dev-{disk}/size", str(kib))
        node.write(f"{files}/component_size", str(kib))
        node.write(f"{files}/resync_start", "none")
        node.write(f"{files}/array_state", "active")
        mirrors.append(f"/dev/{name}")
    return mirrors


def remove(node: Node, mirrors: list[str]) -> None:
    """Take the mirrors apart."""
    for mirror in mirrors:
        node.write(f"/sys/block/{mirror.removeprefix('/dev/')}/md/array_state", "clear")
