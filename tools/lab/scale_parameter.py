# SPDX-License-Identifier: GPL-2.0
"""The costs of a module parameter's values: the connections of a path, and the chunks of a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lib import guest_rounds

from . import bench
from . import bench_report
from .bench_systems import Configuration
from .bench_systems import DISK_MIB
from .bench_systems import free_kib
from .bench_systems import Job
from .bench_systems import null_disks
from .bench_systems import Ready
from .scale_machine import KIB
from .scale_machine import load
from .scale_machine import machine
from .scale_machine import map_line
from .scale_machine import names_of
from .scale_machine import RDMA_MTU
from .scale_machine import say
from .scale_report import Point
from .vm_count import Instructions
from .vm_count import symbols

MAP_DEVICE = "/sys/class/rnbd-client/ctl/map_device"
# The longest time of a step in the guest, by the host's clock.
HOST_SECONDS = 3600.0
LEAST_REQUESTS = 1600
OURS = "ours"


@dataclass(frozen=True)
class Parameter:
    """A parameter, and the load with which its values are compared."""

    # The name of the counted things, for the curves.
    things: str
    counts: tuple[int, ...]
    # The module, and the text of its parameters, in which {} stands for the count.
    module: str
    text: str
    cpus: int
    # The number of devices that are busy at once.
    devices: int
    # The requests in flight of each device; 0: as many as the count.
    depth: int
    systems: tuple[str, ...]


# The connections of a path of a client with 8 processors; C has one for each processor.
CONNECTIONS = Parameter("connections", (1, 2, 4, 8), "rtrs_client", "nr_connections={}", cpus=8, devices=8, depth=1,
                        systems=(OURS,))
# Chunks of 64 KiB: an immediate can tell 4,096 of them apart. C's server fails to register so many.
MOST_CHUNKS_OF_C = 512
DEPTH = Parameter("chunks", (16, 128, 512, 4096), "rtrs_server", "sess_queue_depth={} max_chunk_size=65536", cpus=2,
                  devices=1, depth=0, systems=(OURS, "c"))


def measure(parameter: Parameter, modules: dict[str, Path], systems: Sequence[str],
            counts: Sequence[int]) -> list[Point]:
    """Open a session for each value of the parameter, and read 4 KiB at a time through it."""
    points = []
    with machine(modules, cpus=parameter.cpus, memory_mib=2048) as node:
        executed = Instructions(node.count_socket)
        disks = null_disks(node, parameter.devices)
        for system in (system for system in systems if system in parameter.systems):
            for count in counts:
                if parameter is DEPTH and system == "c" and count > MOST_CHUNKS_OF_C:
                    continue
                load(node, system, **{parameter.module: parameter.text.format(count)})
                before = free_kib(node)
                # A name for each session: C refuses a session while the session before with its name is being closed.
                lines = [map_line(node, f"scale{count}", disk) for disk in disks]
                opened = node.call_within(HOST_SECONDS, guest_rounds.write_each, path=MAP_DEVICE, lines=lines)
                memory = before - free_kib(node)
                depth = parameter.depth or count
                job = Job("randread", 4 * KIB, depth, max(LEAST_REQUESTS, 2 * depth))
                devices = [f"/dev/{name}" for name in names_of(len(disks))]
                report, spent = bench.run_job(node, job, Ready(devices, memory, DISK_MIB // 2), executed, symbols(node))
                if report["error"]:
                    raise RuntimeError(f"{system}, {count} {parameter.things}: fio error {report['error']}")
                one = bench_report.measured(Configuration(parameter.cpus, RDMA_MTU, len(disks)), system, job, report,
                                            memory, spent)
                points += say(system, count, {
                    f"own instructions of a read, by {parameter.things}": one.own_per_io,
                    f"session opened, by {parameter.things}: s": opened,
                    f"memory of a session, by {parameter.things}: MiB": memory / KIB})
                for name in names_of(len(disks)):
                    node.write(f"/sys/block/{name}/rnbd/unmap_device", "normal")
                node.modules_unload_all()
    return points
