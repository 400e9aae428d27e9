# SPDX-License-Identifier: GPL-2.0
"""`lab scale`: what grows with the number of devices, sessions and processors, ours beside the C modules.

One machine is client and server at once, and its clock counts instructions. So times are those of instructions and of
waiting, and repeat whatever else the host does. Documentation/benchmarks.md says what each curve is.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from pathlib import Path

from lib import guest_rounds
from lib import guest_scale
from lib import program

from . import bench
from . import bench_report
from . import paths
from . import scale_parameter
from . import scale_report
from . import scale_target
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
from .scale_machine import paths_of
from .scale_machine import RDMA_MTU
from .scale_machine import say
from .scale_report import Point
from .vm_count import Instructions
from .vm_count import symbols
from .vm_node import Node
from .vm_platform import module_folders

OURS = "ours"
SYSTEMS = (OURS, "c")
MAP_DEVICE = "/sys/class/rnbd-client/ctl/map_device"
# A step may take so long by the guest's clock, which may stand for much more of the host's.
SECONDS = 600.0
HOST_SECONDS = 3600.0
REQUESTS = 1600
# The longer run of `own_of_a_read()` has so many requests more than the shorter run.
REQUESTS_MORE = 25_600


def mapped(modules: dict[str, Path], systems: Sequence[str], counts: Sequence[int]) -> list[Point]:
    """So many devices of one session: mapped, listed, opened again after the path was lost, and unmapped."""
    points = []
    for system in systems:
        # A machine for each system: the kernel keeps memory that a system has given back, and the next one uses it.
        with machine(modules, memory_mib=1024 + 2 * max(counts)) as node:
            disks = null_disks(node, max(counts))
            load(node, system)
            before = free_kib(node)
            for count in counts:
                figures = mapped_devices(node, before, disks[:count])
                if system == OURS:
                    figures["devices mapped at a boot: s"] = applied_devices(node, disks[:count])
                points += say(system, count, figures)
    return points


def mapped_devices(node: Node, before: int, disks: Sequence[str]) -> dict[str, float]:
    """The figures of devices of one session. ``before`` the first session so many KiB of memory were available."""
    # C refuses a session while the one before of the same name is being closed.
    session = f"scale{len(disks)}"
    lines = [map_line(node, session, disk) for disk in disks]
    figures = {"devices mapped: s": node.call_within(HOST_SECONDS, guest_rounds.write_each,
                                                     path=MAP_DEVICE, lines=lines)}
    memory = before - free_kib(node)
    names = names_of(len(disks))
    figures["devices listed: s"] = node.call_within(HOST_SECONDS, guest_scale.look_at_each, names=names)
    figures["devices opened again: s"] = node.call_within(
        HOST_SECONDS, guest_scale.connect_again, paths=paths_of(node, [session]), names=names, seconds=SECONDS)
    figures["devices unmapped: s"] = node.call_within(HOST_SECONDS, guest_scale.unmap_each, names=names,
                                                      seconds=SECONDS)
    figures["memory of devices: MiB"] = memory / KIB
    return figures


def applied_devices(node: Node, disks: Sequence[str]) -> float:
    """How long the command of `rnbd.service` takes to map these disks."""
    program.install(node)
    devices = "".join(f'  {{ path = "{disk}" }},\n' for disk in disks)
    node.run("mkdir -p /etc/rnbd")
    node.create("/etc/rnbd/rnbd.toml", f'[[session]]\nname = "boot{len(disks)}"\npaths = ["{node.address}"]\n'
                                       f'devices = [\n{devices}]\n')
    took = node.run("now() { cut -d' ' -f1 /proc/uptime; }; set -e; began=$(now); rnbdctl apply --wait >&2; "
                    "echo $(now) $began", timeout=HOST_SECONDS).out.split()
    node.call_within(HOST_SECONDS, guest_scale.unmap_each, names=names_of(len(disks)), seconds=SECONDS)
    return float(took[0]) - float(took[1])


def sessions(modules: dict[str, Path], systems: Sequence[str], counts: Sequence[int]) -> list[Point]:
    """So many sessions with a device each: opened, used, connected again at once, and closed."""
    points = []
    for system in systems:
        # A session of the defaults has 64 MiB of chunks, and some more. A machine for each system, as above.
        with machine(modules, memory_mib=1024 + 100 * max(counts)) as node:
            executed = Instructions(node.count_socket)
            disks = null_disks(node, max(counts))
            load(node, system)
            before = free_kib(node)
            for count in counts:
                points += say(system, count, opened_sessions(node, executed, system, before, disks[:count]))
    return points


def opened_sessions(node: Node, executed: Instructions, system: str, before: int,
                    disks: Sequence[str]) -> dict[str, float]:
    """The figures of sessions with one of these disks each; ``before`` as of `mapped_devices`."""
    count = len(disks)
    names = [f"scale{count}-{index}" for index in range(count)]
    lines = [map_line(node, name, disk) for name, disk in zip(names, disks, strict=True)]
    figures = {"sessions opened: s": node.call_within(HOST_SECONDS, guest_rounds.write_each,
                                                      path=MAP_DEVICE, lines=lines)}
    memory = before - free_kib(node)
    ready = Ready([f"/dev/{name}" for name in names_of(count)], memory, DISK_MIB // 2)
    of_a_read = own_of_a_read(node, executed, system, ready)
    busy_memory = before - free_kib(node)
    figures["sessions connected again: s"] = node.call_within(
        HOST_SECONDS, guest_scale.connect_again, paths=paths_of(node, names), names=names_of(count),
        seconds=SECONDS)
    figures["sessions closed: s"] = node.call_within(HOST_SECONDS, guest_scale.unmap_each,
                                                     names=names_of(count), seconds=SECONDS)
    figures["memory of sessions: MiB"] = memory / KIB
    figures["memory of sessions after requests: MiB"] = busy_memory / KIB
    figures["own instructions of a read, by sessions"] = of_a_read
    return figures


def own_of_a_read(node: Node, executed: Instructions, system: str, ready: Ready) -> float:
    """The own instructions that a read of 4 KiB takes more.

    fio starts a job for each session, which takes seconds. Twice a second the server looks at each session and each
    disk. So a run with the fewest requests that fio is given is subtracted.
    """
    count = len(ready.devices)
    runs = []
    for requests in (bench.LEAST_OF_A_DEVICE * count, bench.LEAST_OF_A_DEVICE * count + REQUESTS_MORE):
        job = Job("randread", 4 * KIB, 1, requests)
        report, spent = bench.run_job(node, job, ready, executed, symbols(node))
        if report["error"]:
            raise RuntimeError(f"{system}, {count} sessions: fio error {report['error']}")
        runs.append(bench_report.measured(Configuration(2, RDMA_MTU, count), system, job, report, 0, spent))
    few, many = runs
    own = many.own_per_io * many.total_ios - few.own_per_io * few.total_ios
    return own / (many.total_ios - few.total_ios)


@dataclass(frozen=True)
class Busy:
    """What is busy at once: so many processors, with so many devices."""

    configuration: Configuration
    count: int
    # What is counted, for the curves' names.
    things: str


def busy(modules: dict[str, Path], systems: Sequence[str], what: Busy, out: Path) -> list[Point]:
    """Devices of one session that are busy at once, with one request each at a time."""
    work = [Job(rw, 4 * KIB, 1, REQUESTS) for rw in ("randread", "randwrite")]
    found = bench.measure(what.configuration, list(systems), work, modules, out)
    return [Point(f"own instructions of a {one.rw.removeprefix('rand')}, by {what.things}", one.system, what.count,
                  one.own_per_io) for one in found]


# What each part measures, and the counts.
PARTS: dict[str, tuple[int, ...]] = {
    "mapped": (1, 10, 100, 1000),
    "sessions": (1, 10, 100),
    "devices": (1, 4, 16, 64),
    "cpus": (2, 4, 8, 16),
    "connections": scale_parameter.CONNECTIONS.counts,
    "depth": scale_parameter.DEPTH.counts,
}


def measure(part: str, modules: dict[str, Path], systems: Sequence[str], counts: Sequence[int],
            out: Path) -> list[Point]:
    """One of the parts."""
    if part == "mapped":
        return mapped(modules, systems, counts)
    if part == "sessions":
        return sessions(modules, systems, counts)
    if part == "connections":
        return scale_parameter.measure(scale_parameter.CONNECTIONS, modules, systems, counts)
    if part == "depth":
        return scale_parameter.measure(scale_parameter.DEPTH, modules, systems, counts)
    if part == "devices":
        wanted = [Busy(Configuration(2, RDMA_MTU, count), count, "devices") for count in counts]
    else:
        wanted = [Busy(Configuration(count, RDMA_MTU, count), count, "processors") for count in counts]
    return [point for what in wanted for point in busy(modules, systems, what, out)]


def write(out: Path, points: Sequence[Point]) -> str:
    """Write all that was found so far; returns the tables."""
    out.mkdir(parents=True, exist_ok=True)
    text = scale_report.table(points)
    (out / "scale.json").write_text(json.dumps([asdict(point) for point in points], indent=1) + "\n")
    (out / "scale.txt").write_text(text)
    (out / "scale.svg").write_text(scale_report.chart(points))
    return text


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command `lab scale`."""
    command = commands.add_parser("scale", help="what grows with devices, sessions and processors", description=__doc__)
    command.add_argument("--modules-dir", type=Path, help="folder of our .ko files")
    command.add_argument("--part", dest="parts", action="append", choices=list(PARTS),
                         help="only this; can be repeated")
    command.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="only these")
    command.add_argument("--most", type=int, default=max(map(max, PARTS.values())), help="leave out larger counts")
    command.add_argument("--out", type=Path, default=paths.CHECKOUT / "build" / "bench",
                         help="folder for scale.json, scale.txt and scale.svg")
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    modules = module_folders("stock", options.modules_dir)
    started = time.monotonic()
    points: list[Point] = []
    for part in options.parts or list(PARTS):
        counts = [count for count in PARTS[part] if count <= options.most]
        points += measure(part, modules, options.systems, counts, options.out)
        # A run takes long: what is there is kept if it is ended.
        text = write(options.out, points)
    print(text)
    print(f"{options.out}/scale.json, scale.txt, scale.svg ({time.monotonic() - started:.0f} s)")
    missed = scale_target.missed(points)
    for line in missed:
        print(line)
    return int(bool(missed))
