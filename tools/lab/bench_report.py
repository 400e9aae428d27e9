# SPDX-License-Identifier: GPL-2.0
"""The figures of `lab bench`: one record per job, and a table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Any

from . import bench_raid
from .bench_systems import Configuration
from .bench_systems import Job
from .bench_systems import SYSTEMS
from .vm_count import Place
from .vm_count import Spent

# What our header and the transport's add to the data of a write, about.
HEADERS = 48
# The modules that are compared; the kernel's atomic operations are functions for Rust.
OWN = ("rtrs_core", "rtrs_client", "rtrs_server", "rnbd_client", "rnbd_server", "rtrs_client_c",
       "rtrs_server_c")
OWN_HELPERS = "rust_helper_"
# The modules of the other systems; of a mirror they count beside ours. A machine has one system at a time.
OF_OTHERS = ("nvme_core", "nvme_fabrics", "nvme_rdma", "nvme_tcp", "nvmet", "nvmet_rdma", "nvmet_tcp",
             "ib_iser", "ib_isert", "ib_srp", "ib_srpt", "scsi_transport_iscsi", "scsi_transport_srp", "libiscsi",
             "libiscsi_tcp", "iscsi_tcp", "iscsi_target_mod", "target_core_mod", "target_core_iblock", "scsi_common",
             "scsi_mod", "sd_mod", "raid1", "md_mod")
# With more systems to compare with, a ratio to each of them is too wide.
MOST_RATIOS = 4
SYSTEM_OF_RATIOS = next(iter(SYSTEMS))


@dataclass
class Measured:
    """A job on a system."""

    cpus: int
    rdma_mtu: int
    devices: int
    system: str
    rw: str
    size: int
    depth: int
    iops: float
    p50_us: float
    p99_us: float
    packets_per_io: float
    messages_per_io: float
    instructions_per_io: int
    total_ios: int
    memory_kib: int
    # Instructions per IO by module, and those of the system's modules, with what Rust calls for ours.
    modules: dict[str, float] = field(default_factory=dict)
    own_per_io: float = 0

    @property
    def machine(self) -> tuple[int, int, int]:
        """The machine by its RDMA MTU, processors and devices."""
        return self.rdma_mtu, self.cpus, self.devices

    @property
    def job(self) -> tuple[int, int, int, str, int, int]:
        """What the ratio of two systems is formed over."""
        return self.rdma_mtu, self.cpus, self.devices, self.rw, self.size, self.depth


def messages(packets: float, rw: str, size: int, mtu: int, copies: int = 1) -> float:
    """RDMA messages per IO, from the packets of both ends together; none for a system without packets.

    One message (of each copy of a write) carries the data in so many packets, all others take one, and
    each is acknowledged by one. (Longer messages have more acknowledgements.)
    """
    if not packets:
        return 0
    is_write = "write" in rw
    data = math.ceil((size + (HEADERS if is_write else 0)) / mtu)
    return (packets + (1 - data) * (copies if is_write else 1)) / 2


def measured(configuration: Configuration, system: str, job: Job, report: dict[str, Any],
             memory_kib: int, spent: Mapping[Place, Spent] | None = None) -> Measured:
    """The record of a fio report."""
    side = report["read" if "read" in job.rw else "write"]
    total = side["total_ios"]
    packets = report["packets"] / total
    modules: Counter[str] = Counter()
    own = 0
    for place, function in (spent or {}).items():
        modules[place.module] += function.instructions
        if place.module in OWN or place.module in OF_OTHERS or place.function.startswith(OWN_HELPERS):
            own += function.instructions
    # From the submission on: some systems end a request within the call that submits it.
    percentiles = side["lat_ns"]["percentile"]
    copies = bench_raid.LEGS if system in SYSTEMS and SYSTEMS[system].is_mirrored else 1
    return Measured(
        cpus=configuration.cpus, rdma_mtu=configuration.rdma_mtu, devices=configuration.devices,
        system=system, rw=job.rw, size=job.size, depth=job.depth, iops=side["iops"],
        p50_us=percentiles["50.000000"] / 1000, p99_us=percentiles["99.000000"] / 1000,
        packets_per_io=round(packets, 2),
        messages_per_io=round(messages(packets, job.rw, job.size, configuration.rdma_mtu, copies), 2),
        instructions_per_io=round(1e9 / side["iops"]), total_ios=total, memory_kib=memory_kib,
        modules={name: round(count / total, 1) for name, count in modules.most_common()},
        own_per_io=round(own / total, 1))


def write_profile(out: Path, one: Measured, spent: Mapping[Place, Spent]) -> None:
    """Write the instructions per IO of each function to a file of its own."""
    folder = out / "profiles"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{one.system}-{one.rw}-{one.size >> 10}k-qd{one.depth}-mtu{one.rdma_mtu}-" \
           f"{one.cpus}cpu-{one.devices}dev.txt"
    most = sorted(spent.items(), key=lambda item: -item[1].instructions)
    lines = ["instructions and calls per IO, module, function\n"]
    lines += [f"{function.instructions / one.total_ios:>10.1f}{function.calls / one.total_ios:>10.3f} "
              f"{place.module} {place.function}\n"
              for place, function in most if function.instructions >= one.total_ios / 10]
    (folder / name).write_text("".join(lines))


def ratio(found: Iterable[Measured], one: Measured, other: str) -> float | None:
    """IOPS of a record over those of another system at the same job."""
    for candidate in found:
        if candidate.system == other and candidate.job == one.job:
            return one.iops / candidate.iops
    return None


def table(found: list[Measured]) -> str:
    """A table for each machine."""
    lines = []
    for machine in sorted({one.machine for one in found}):
        mtu, cpus, devices = machine
        here = sorted((one for one in found if one.machine == machine), key=lambda one: one.job)
        lines.append(f"RDMA MTU {mtu}, {cpus} CPU(s), {devices} device(s)")
        lines += _rows(here)
        lines += shares(here)
        memory = {one.system: one.memory_kib for one in here}
        lines.append("memory of a session, both ends: "
                     + ", ".join(f"{name} {kib} KiB" for name, kib in memory.items()))
        lines.append("")
    return "\n".join(lines)


def _rows(here: list[Measured]) -> list[str]:
    """The figures of a machine. Ratios are of IOPS: ours over another system, in the row of ours or in the other's."""
    others = [name for name in SYSTEMS
              if not name.startswith("ours") and any(one.system == name for one in here)]
    is_long = len(others) > MOST_RATIOS
    heads = ["ours over it"] if is_long else [f"/{name}" for name in others]
    lines = [f"{'job':<24}{'system':<20}{'IOPS':>8}{'instr/IO':>10}{'msg':>6}{'pkt':>7}"
             f"{'own/IO':>8}{'p50 us':>9}{'p99 us':>9}" + "".join(f"{head:>14}" for head in heads)]
    before = None
    for one in here:
        if is_long:
            inverse = ratio(here, one, SYSTEM_OF_RATIOS)
            ratios = [1 / inverse if inverse and one.system != SYSTEM_OF_RATIOS else None]
        else:
            ratios = [ratio(here, one, name) if one.system.startswith("ours") else None for name in others]
        if is_long and before not in (None, one.job):
            lines.append("")
        before = one.job
        job = f"{one.rw} {one.size >> 10}K qd{one.depth}"
        lines.append((f"{job:<24}{one.system:<20}{one.iops:>8.0f}{one.instructions_per_io:>10.0f}"
                      f"{one.messages_per_io:>6.1f}{one.packets_per_io:>7.1f}{one.own_per_io:>8.0f}{one.p50_us:>9.1f}"
                      f"{one.p99_us:>9.1f}"
                      + "".join(f"{value:>14.2f}" if value else f"{'':>14}" for value in ratios)).rstrip())
    return lines


def shares(here: list[Measured]) -> list[str]:
    """Instructions per IO by module, of 4 KiB requests at the highest depth up to 16."""
    lines = []
    wanted = max((one.depth for one in here if one.depth <= 16), default=0)
    for one in sorted(here, key=lambda one: one.rw):
        if one.size == 4096 and one.depth == wanted and one.modules:
            most = ", ".join(f"{name} {count:.0f}" for name, count in list(one.modules.items())[:12])
            lines.append(f"{one.rw} qd{one.depth} {one.system}: {most}")
    return lines


__all__ = ("Measured", "measured", "messages", "ratio", "table")
