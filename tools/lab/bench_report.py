# SPDX-License-Identifier: GPL-2.0
"""The figures of `lab bench`: one record per job, a table, and a chart."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Any

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
COLOURS = {"ours": "#b7410e", "ours-trusting": "#e8a07c", "c": "#1f4e79",
           "c-trusting": "#7fa8cc", "nvme": "#6a8f3c", "before": "#999999",
           "iser": "#c9a227", "srp": "#7d5a3c", "nvme-tcp": "#b5cf8f", "iscsi": "#e3d08a", "raid1": "#d4536b",
           "ours-c-api": "#8e5ea2", "ours-c-api-trusting": "#c9b3d3"}


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
    # Instructions per IO by module, and those of the five modules with what Rust calls for them.
    modules: dict[str, float] = field(default_factory=dict)
    own_per_io: float = 0

    @property
    def job(self) -> tuple[int, int, int, str, int, int]:
        """What the ratio of two systems is formed over."""
        return self.rdma_mtu, self.cpus, self.devices, self.rw, self.size, self.depth


def messages(packets: float, rw: str, size: int, mtu: int) -> float:
    """RDMA messages per IO, from the packets of both ends together.

    One message carries the data in so many packets, all others take one, and
    each is acknowledged by one. (Longer messages have more acknowledgements.)
    """
    data = math.ceil((size + (HEADERS if "write" in rw else 0)) / mtu)
    return (packets + 1 - data) / 2


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
        if place.module in OWN or place.function.startswith(OWN_HELPERS):
            own += function.instructions
    percentiles = side["clat_ns"]["percentile"]
    return Measured(
        cpus=configuration.cpus, rdma_mtu=configuration.rdma_mtu, devices=configuration.devices,
        system=system, rw=job.rw, size=job.size, depth=job.depth, iops=side["iops"],
        p50_us=percentiles["50.000000"] / 1000, p99_us=percentiles["99.000000"] / 1000,
        packets_per_io=round(packets, 2),
        messages_per_io=round(messages(packets, job.rw, job.size, configuration.rdma_mtu), 2),
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
    """A table for each machine; ratios are ours over the others."""
    lines = []
    machines = sorted({(one.rdma_mtu, one.cpus, one.devices) for one in found})
    others = [name for name in SYSTEMS
              if not name.startswith("ours") and any(one.system == name for one in found)]
    for machine in machines:
        mtu, cpus, devices = machine
        lines.append(f"RDMA MTU {mtu}, {cpus} CPU(s), {devices} device(s)")
        lines.append(f"{'job':<24}{'system':<20}{'IOPS':>8}{'instr/IO':>10}{'msg':>6}{'pkt':>7}"
                     f"{'own/IO':>8}{'p50 us':>9}{'p99 us':>9}" + "".join(f"{'/' + name:>12}" for name in others))
        here = [one for one in found if (one.rdma_mtu, one.cpus, one.devices) == machine]
        for one in sorted(here, key=lambda one: (one.rw, one.size, one.depth)):
            ratios = [ratio(here, one, name) if one.system.startswith("ours") else None
                      for name in others]
            job = f"{one.rw} {one.size >> 10}K qd{one.depth}"
            lines.append(
                f"{job:<24}{one.system:<20}{one.iops:>8.0f}{one.instructions_per_io:>10.0f}"
                f"{one.messages_per_io:>6.1f}{one.packets_per_io:>7.1f}{one.own_per_io:>8.0f}{one.p50_us:>9.1f}"
                f"{one.p99_us:>9.1f}"
                + "".join(f"{value:>12.2f}" if value else f"{'':>12}" for value in ratios))
        lines += shares(here)
        memory = {one.system: one.memory_kib for one in here}
        lines.append("memory of a session, both ends: "
                     + ", ".join(f"{name} {kib} KiB" for name, kib in memory.items()))
        lines.append("")
    return "\n".join(lines)


def shares(here: list[Measured]) -> list[str]:
    """Instructions per IO by module, of 4 KiB requests at the highest depth up to 16."""
    lines = []
    wanted = max((one.depth for one in here if one.depth <= 16), default=0)
    for one in sorted(here, key=lambda one: one.rw):
        if one.size == 4096 and one.depth == wanted and one.modules:
            most = ", ".join(f"{name} {count:.0f}" for name, count in list(one.modules.items())[:12])
            lines.append(f"{one.rw} qd{one.depth} {one.system}: {most}")
    return lines


def chart(found: list[Measured]) -> str:
    """Bars of the IOPS at 4 KiB, one group per job and machine."""
    small = [one for one in found if one.size == 4096]
    groups = sorted({one.job for one in small})
    names = [name for name in SYSTEMS if any(one.system == name for one in small)]
    bar, gap, height = 14, 22, 260
    width = 70 + len(groups) * (bar * len(names) + gap)
    top = max((one.iops for one in small), default=1.0)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + 130}" '
             'font-family="sans-serif" font-size="10">',
             '<rect width="100%" height="100%" fill="white"/>',
             '<text x="10" y="16" font-size="13">4 KiB, IOPS in instruction time</text>']
    for index, name in enumerate(names):
        x = 260 + index * 110
        parts.append(f'<rect x="{x}" y="7" width="10" height="10" fill="{COLOURS[name]}"/>'
                     f'<text x="{x + 14}" y="16">{name}</text>')
    base = height + 30
    for step in range(5):
        y = base - height * step / 5
        parts.append(f'<line x1="50" y1="{y:.0f}" x2="{width}" y2="{y:.0f}" stroke="#ddd"/>'
                     f'<text x="46" y="{y + 3:.0f}" text-anchor="end">{top * step / 5:.0f}</text>')
    for number, group in enumerate(groups):
        left = 60 + number * (bar * len(names) + gap)
        for index, name in enumerate(names):
            for one in small:
                if one.job == group and one.system == name:
                    tall = height * one.iops / top
                    parts.append(f'<rect x="{left + index * bar}" y="{base - tall:.0f}" '
                                 f'width="{bar - 2}" height="{tall:.0f}" fill="{COLOURS[name]}">'
                                 f'<title>{name}: {one.iops:.0f}</title></rect>')
        mtu, cpus, devices, rw, _, depth = group
        label = f"{rw[4:]} qd{depth}, {cpus} CPU, MTU {mtu}, {devices} dev"
        middle = left + bar * len(names) / 2
        parts.append(f'<text x="{middle:.0f}" y="{base + 8}" text-anchor="end" '
                     f'transform="rotate(-40 {middle:.0f} {base + 8})">{label}</text>')
    parts.append("</svg>\n")
    return "\n".join(parts)


__all__ = ("Measured", "chart", "measured", "messages", "ratio", "table")
