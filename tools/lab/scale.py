# SPDX-License-Identifier: GPL-2.0
"""`lab scale`: what grows with the number of devices, sessions and processors, ours beside the C modules.

One machine is client and server at once, and its clock counts instructions. So times are those of instructions and of
waiting, and repeat whatever else the host does. Both systems are measured in one boot. Documentation/performance.md
says what each curve is.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import asdict
from dataclasses import dataclass
from pathlib import Path

from lib import guest_rounds
from lib import guest_scale

from . import bench
from . import bench_report
from . import paths
from . import scale_report
from . import scale_target
from . import vm_plugin
from .bench_systems import Configuration
from .bench_systems import DISK_MIB
from .bench_systems import free_kib
from .bench_systems import Job
from .bench_systems import null_disks
from .bench_systems import Ready
from .scale_report import Point
from .vm import Lab
from .vm import MachineDied
from .vm import Options
from .vm_count import Instructions
from .vm_count import symbols
from .vm_node import Node
from .vm_platform import module_folders
from .vm_platform import platform

SYSTEMS = ("ours", "c")
KIB = 1 << 10
# An Ethernet MTU for an RDMA MTU of 4096.
RDMA_MTU = 4096
MAP_DEVICE = "/sys/class/rnbd-client/ctl/map_device"
SESSIONS = "/sys/class/rtrs-client"
# A step may take so long by the guest's clock, which may stand for much more of the host's.
SECONDS = 600.0
HOST_SECONDS = 3600.0
REQUESTS = 1600


@contextmanager
def _machine(modules: dict[str, Path], cpus: int = 2, memory_mib: int = 1024) -> Iterator[Node]:
    lab = Lab(platform("stock", modules), "one",
              Options(cpus=cpus, mtu=bench.ETHERNET[RDMA_MTU], memory_mib=memory_mib, icount=True,
                      kernel_args=["transparent_hugepage=never"], plugin=vm_plugin.compiled("vm_count")))
    try:
        lab.start(timeout=300)
        yield lab.client
    except (MachineDied, TimeoutError):
        print(lab.last_words(40), file=sys.stderr)
        raise
    finally:
        lab.close()


def _load(node: Node, system: str) -> None:
    node.module_set = system
    node.modules_load("rnbd_server", "rnbd_client", rnbd_server="dev_search_path=/")


def _line(node: Node, session: str, disk: str) -> str:
    return f"sessname={session} path=ip:{node.address} device_path={disk}"


def _names(count: int) -> list[str]:
    return [f"rnbd{index}" for index in range(count)]


def _paths(node: Node, sessions: Sequence[str]) -> list[str]:
    return [f"{SESSIONS}/{session}/paths/{path}" for session in sessions
            for path in node.listdir(f"{SESSIONS}/{session}/paths")]


def _say(system: str, count: int, figures: dict[str, float]) -> list[Point]:
    text = ", ".join(f"{curve} {figure:,.2f}" for curve, figure in figures.items())
    print(f"  {system}, {count}: {text}", flush=True)
    return [Point(curve, system, count, figure) for curve, figure in figures.items()]


def mapped(modules: dict[str, Path], systems: Sequence[str], counts: Sequence[int]) -> list[Point]:
    """So many devices of one session: mapped, listed, opened again after the path was lost, and unmapped."""
    points = []
    with _machine(modules, memory_mib=1024 + 2 * max(counts)) as node:
        disks = null_disks(node, max(counts))
        for system in systems:
            _load(node, system)
            for count in counts:
                before = free_kib(node)
                # C refuses a session while the one before of the same name is being closed.
                session = f"scale{count}"
                lines = [_line(node, session, disk) for disk in disks[:count]]
                figures = {"devices mapped: s": node.call_within(HOST_SECONDS, guest_rounds.write_each,
                                                                 path=MAP_DEVICE, lines=lines)}
                memory = before - free_kib(node)
                names = _names(count)
                figures["devices listed: s"] = node.call_within(HOST_SECONDS, guest_scale.look_at_each, names=names)
                figures["devices opened again: s"] = node.call_within(
                    HOST_SECONDS, guest_scale.connect_again, paths=_paths(node, [session]), names=names,
                    seconds=SECONDS)
                figures["devices unmapped: s"] = node.call_within(HOST_SECONDS, guest_scale.unmap_each, names=names,
                                                                  seconds=SECONDS)
                figures["memory of devices: MiB"] = memory / KIB
                points += _say(system, count, figures)
            node.modules_unload_all()
    return points


def sessions(modules: dict[str, Path], systems: Sequence[str], counts: Sequence[int]) -> list[Point]:
    """So many sessions with a device each: opened, used, connected again at once, and closed."""
    points = []
    # A session of the defaults has 64 MiB of chunks, and some more.
    with _machine(modules, memory_mib=1024 + 100 * max(counts)) as node:
        executed = Instructions(node.count_socket)
        disks = null_disks(node, max(counts))
        for system in systems:
            _load(node, system)
            for count in counts:
                before = free_kib(node)
                names = [f"scale{count}-{index}" for index in range(count)]
                lines = [_line(node, name, disk) for name, disk in zip(names, disks, strict=False)]
                figures = {"sessions opened: s": node.call_within(HOST_SECONDS, guest_rounds.write_each,
                                                                  path=MAP_DEVICE, lines=lines)}
                memory = before - free_kib(node)
                devices = [f"/dev/{name}" for name in _names(count)]
                job = Job("randread", 4 * KIB, 1, REQUESTS)
                report, spent = bench.run_job(node, job, Ready(devices, memory, DISK_MIB // 2), executed, symbols(node))
                if report["error"]:
                    raise RuntimeError(f"{system}, {count} sessions: fio error {report['error']}")
                figures["sessions connected again: s"] = node.call_within(
                    HOST_SECONDS, guest_scale.connect_again, paths=_paths(node, names), names=_names(count),
                    seconds=SECONDS)
                figures["sessions closed: s"] = node.call_within(HOST_SECONDS, guest_scale.unmap_each,
                                                                 names=_names(count), seconds=SECONDS)
                figures["memory of sessions: MiB"] = memory / KIB
                measured = bench_report.measured(Configuration(2, RDMA_MTU, count), system, job, report, memory,
                                                 spent)
                figures["own instructions of a read, by sessions"] = measured.own_per_io
                points += _say(system, count, figures)
            node.modules_unload_all()
    return points


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
}


def measure(part: str, modules: dict[str, Path], systems: Sequence[str], counts: Sequence[int],
            out: Path) -> list[Point]:
    """One of the parts."""
    if part == "mapped":
        return mapped(modules, systems, counts)
    if part == "sessions":
        return sessions(modules, systems, counts)
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
    command.add_argument("--most", type=int, default=1000, help="leave out larger counts")
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
