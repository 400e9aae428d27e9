# SPDX-License-Identifier: GPL-2.0
"""NVMe over RDMA or TCP, for the benchmark: nvmet's subsystem with all disks, and the kernel's initiator."""

from __future__ import annotations

from .vm_node import Node

SUBSYSTEM = "/sys/kernel/config/nvmet/subsystems/bench"
PORT = "/sys/kernel/config/nvmet/ports/1"
RDMA, TCP = "rdma", "tcp"


def connect(node: Node, disks: list[str], transport: str) -> list[str]:
    """Export all disks as namespaces of one subsystem, and connect to it; the devices."""
    lines = [f"set -e; modprobe -a nvme-{transport} nvmet-{transport}", f"mkdir {SUBSYSTEM}",
             f"echo 1 >{SUBSYSTEM}/attr_allow_any_host"]
    for number, disk in enumerate(disks, 1):
        folder = f"{SUBSYSTEM}/namespaces/{number}"
        lines += [f"mkdir {folder}", f"echo -n {disk} >{folder}/device_path",
                  f"echo 1 >{folder}/enable"]
    lines += [f"mkdir {PORT}", f"echo {transport} >{PORT}/addr_trtype", f"echo ipv4 >{PORT}/addr_adrfam",
              f"echo {node.address} >{PORT}/addr_traddr", f"echo 4420 >{PORT}/addr_trsvcid",
              f"ln -s {SUBSYSTEM} {PORT}/subsystems/bench",
              f"printf 'transport={transport},traddr={node.address},trsvcid=4420,nqn=bench,"
              "hostid=2cd2c43b-a90a-45c1-a8cd-86b33ab273b5,"
              "hostnqn=nqn.2014-08.org.nvmexpress:uuid:2cd2c43b-a90a-45c1-a8cd-86b33ab273b5' "
              ">/dev/nvme-fabrics"]
    node.run("\n".join(lines))
    devices = [f"/dev/nvme0n{number}" for number in range(1, len(disks) + 1)]
    for device in devices:
        node.wait_for(device)
    return devices


def disconnect(node: Node, transport: str) -> None:
    """Disconnect, and remove the subsystem."""
    node.run("echo 1 >/sys/class/nvme/nvme0/delete_controller\n"
             f"rm {PORT}/subsystems/bench; rmdir {PORT}\n"
             f"for i in {SUBSYSTEM}/namespaces/*; do echo 0 >$i/enable; rmdir $i; done\n"
             f"rmdir {SUBSYSTEM}; modprobe -ra nvme-{transport} nvmet-{transport}")
