# SPDX-License-Identifier: GPL-2.0
"""`lab bench`: our modules, the C modules and NVMe over RDMA side by side, in instruction time.

One machine is client and server at once, and its clock counts instructions: a
nanosecond is an instruction. IOPS, latencies and ratios are therefore the same
whatever else the host does; see Documentation/benchmarks.md. All systems of
one configuration are measured in one boot, on null_blk disks without memory.
"""

from __future__ import annotations

import argparse
import json
import platform as host_platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from . import bench_chart
from . import bench_files
from . import bench_groups
from . import bench_hidden
from . import bench_image
from . import bench_mixed
from . import bench_parts_chart
from . import bench_report
from . import c_users
from . import paths
from . import setup
from . import steps
from . import vm_plugin
from .bench_report import Measured
from .bench_systems import Configuration
from .bench_systems import Job
from .bench_systems import MIXED
from .bench_systems import needs_own_image
from .bench_systems import ON_REQUEST
from .bench_systems import OTHERS
from .bench_systems import prepare
from .bench_systems import Ready
from .bench_systems import SYSTEMS
from .vm import Lab
from .vm import MachineDied
from .vm import Options
from .vm_count import Instructions
from .vm_count import Place
from .vm_count import Spent
from .vm_count import Symbols
from .vm_count import symbols
from .vm_node import Node
from .vm_platform import module_folders
from .vm_platform import platform

KIB = 1 << 10
# Ethernet MTUs by RDMA MTU.
ETHERNET = {1024: 1500, 4096: 4500}
# fio gets at least so many requests for each device.
LEAST_OF_A_DEVICE = 50


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command line of `lab bench`."""
    parser = commands.add_parser("bench", help="measure in instruction time, against C and NVMe",
                                 description=__doc__)
    parser.add_argument("--quick", action="store_true",
                        help="4 KiB, depth 1 and 16, two CPUs, RDMA MTU 1024, one device")
    parser.add_argument("--everybody", action="store_true",
                        help="iSER, SRP, NVMe/TCP, iSCSI and md RAID1, too: two CPUs, one device")
    parser.add_argument("--modules-dir", type=Path, help="folder of our .ko files")
    parser.add_argument("--c-modules-dir", type=Path, help="folder of the C modules")
    parser.add_argument("--before-dir", type=Path,
                        help="folder of another build of ours, measured as `before'")
    parser.add_argument("--systems", nargs="+", choices=[*SYSTEMS, *MIXED], default=None,
                        metavar="SYSTEM", help=f"some of {', '.join(SYSTEMS)}")
    parser.add_argument("--cpus", nargs="+", type=int, default=None)
    parser.add_argument("--rdma-mtu", nargs="+", type=int, choices=list(ETHERNET), default=None)
    parser.add_argument("--devices", nargs="+", type=int, default=None)
    parser.add_argument("--mixed", action="store_true",
                        help="C's modules on one side and ours on the other, jobs as with --quick")
    parser.add_argument("--files", action="store_true",
                        help="a file as a disk beside a loop device over the same file, jobs as with --quick")
    parser.add_argument("--groups", action="store_true",
                        help="a write to a group of two members beside two single writes, and the target for that")
    parser.add_argument("--hidden", action="store_true",
                        help="what instructions do not show: caches, locks, wake-ups, lines that processors share")
    parser.add_argument("--rounds", type=int, default=1,
                        help="with --mixed: how often, each time in machines of its own")
    parser.add_argument("--ios", type=int, default=None, help="requests of each job")
    parser.add_argument("--out", type=Path, default=paths.CHECKOUT / "build" / "bench",
                        help="folder for bench.json, bench.txt and bench.svg")
    parser.set_defaults(run=main)


def jobs(quick: bool, ios: int) -> list[Job]:
    """What is measured in each configuration."""
    depths = (1, 16) if quick else (1, 4, 16, 64)
    found = [Job(rw, 4 * KIB, depth, ios)
             for rw in ("randread", "randwrite") for depth in depths]
    if not quick:
        found += [Job(rw, size, 4, max(ios // 4, 100))
                  for rw in ("randread", "randwrite") for size in (64 * KIB, 128 * KIB)]
    return found


def default_systems(quick: bool, everybody: bool) -> list[str]:
    """What is measured if the command line names no systems."""
    if everybody:
        left_out = ON_REQUEST
    else:
        left_out = (*ON_REQUEST, *OTHERS, *(("nvme",) if quick else ()))
    return [name for name in SYSTEMS if name not in left_out]


def configurations(options: argparse.Namespace) -> list[Configuration]:
    """The machines to boot."""
    is_small = options.quick or options.everybody
    cpus = options.cpus or ([2] if is_small else [1, 2])
    mtus = options.rdma_mtu or ([1024] if options.quick else [1024, 4096])
    devices = options.devices or ([1] if is_small else [1, 8])
    return [Configuration(cpu, mtu, count) for mtu in mtus for cpu in cpus for count in devices]


def fio_file(job: Job, devices: list[str], counters: str, size_mib: int = 512) -> str:
    """A job file: all devices at once, the device's counters before and after."""
    lines = ["[global]", "ioengine=io_uring", "direct=1", "thread=1", "group_reporting=1",
             "randrepeat=1", "clat_percentiles=0", "lat_percentiles=1", f"rw={job.rw}", f"bs={job.size}",
             f"iodepth={job.depth}", f"number_ios={max(job.ios // len(devices), LEAST_OF_A_DEVICE)}",
             f"size={size_mib}m"]
    for index, device in enumerate(devices):
        lines += [f"[dev{index}]", f"filename={device}"]
        if index == 0:
            # fio writes what they print to dev0.prerun.txt and dev0.postrun.txt.
            lines += [f"exec_prerun={counters}", f"exec_postrun={counters}"]
    return "\n".join(lines) + "\n"


def run_job(node: Node, job: Job, ready: Ready, executed: Instructions,
            known: Symbols) -> tuple[dict[str, Any], dict[Place, Spent]]:
    """One fio run; its report, how much the counters grew, and where instructions went."""
    folder = "/tmp/bench"
    counters = "cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts"
    node.run(f"rm -rf {folder}; mkdir {folder}")
    node.create(f"{folder}/job", fio_file(job, ready.devices, counters, ready.size_mib))
    executed.reset()
    result = node.run(f"cd {folder}; fio --output-format=json --output=report job >&2; "
                      "cat report; echo; cat dev0.prerun.txt dev0.postrun.txt", timeout=300)
    spent = executed.spent(known)
    start, end = result.out.index("{"), result.out.rindex("}") + 1
    before, after = (int(text) for text in result.out[end:].split())
    report = json.loads(result.out[start:end])["jobs"][0]
    report["packets"] = after - before
    return report, spent


def measure(configuration: Configuration, names: list[str], work: list[Job],
            modules: dict[str, Path], out: Path,
            keep: Callable[[list[Measured]], object] = lambda _found: None) -> list[Measured]:
    """Boot a machine and measure all systems in it, one after the other; `keep` gets what was found after each."""
    made_of = platform("stock", modules)
    if needs_own_image(names):
        made_of = bench_image.of(made_of)
    lab = Lab(made_of, "one",
              Options(cpus=configuration.cpus, mtu=ETHERNET[configuration.rdma_mtu], icount=True,
                      # khugepaged copies megabytes in the middle of some job or other.
                      kernel_args=["transparent_hugepage=never"], plugin=vm_plugin.compiled("vm_count")))
    found = []
    try:
        lab.start(timeout=120)
        executed = Instructions(lab.client.count_socket)
        for name in names:
            started = time.monotonic()
            rest = list(work)
            while rest:
                # Once more after a job that failed, since its connection may be lost.
                with prepare(lab.client, name, configuration.devices) as ready:
                    known = symbols(lab.client)
                    while rest:
                        job = rest.pop(0)
                        report, spent = run_job(lab.client, job, ready, executed, known)
                        if report["error"]:
                            print(f"  {configuration}: {name}: {job} FAILED, fio error "
                                  f"{report['error']}", flush=True)
                            break
                        found.append(bench_report.measured(configuration, name, job, report,
                                                           ready.memory_kib, spent))
                        bench_report.write_profile(out, found[-1], spent)
            print(f"  {configuration}: {name} ({time.monotonic() - started:.0f} s)", flush=True)
            keep(found)
    except (MachineDied, TimeoutError):
        print(lab.last_words(40), file=sys.stderr)
        raise
    finally:
        lab.close()
    return found


def write(out: Path, found: list[Measured]) -> str:
    """Write all that was found so far; returns the table."""
    text = bench_report.table(found)
    out.mkdir(parents=True, exist_ok=True)
    facts = {"date": time.strftime("%Y-%m-%d"), "host": host_platform.machine(),
             "clock": "instructions", "kernel": str(paths.artifacts("stock").vmlinuz.name)}
    (out / "bench.json").write_text(json.dumps(
        {"about": facts, "measured": [asdict(one) for one in found]}, indent=1) + "\n")
    (out / "bench.txt").write_text(text)
    (out / "bench.svg").write_text(bench_chart.chart(found))
    (out / "parts.svg").write_text(bench_parts_chart.chart(found))
    return text


def measure_all(options: argparse.Namespace, names: list[str], work: list[Job],
                modules: dict[str, Path]) -> list[Measured]:
    """Measure in each machine. A run takes long: what is there is kept if it is ended."""
    found: list[Measured] = []
    for configuration in configurations(options):
        found += measure(configuration, names, work, modules, options.out,
                         keep=partial(_keep, options.out, list(found)))
    return found


def _keep(out: Path, before: list[Measured], here: list[Measured]) -> None:
    write(out, before + here)


def main_mixed(options: argparse.Namespace, modules: dict[str, Path]) -> int:
    """Measure pairs of module sets, print the table, write the files."""
    options.quick = True
    runs: list[list[Measured]] = []
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rnbd-mixed-") as folder:
        modules |= bench_mixed.stage(Path(folder), modules["ours"], modules["c"])
        for _ in range(options.rounds):
            runs.append([])
            for configuration in configurations(options):
                runs[-1] += measure(configuration, options.systems or bench_mixed.systems(),
                                    jobs(True, options.ios or 2500), modules, options.out)
                text = bench_mixed.table(runs[-1])
                (options.out / "mixed.txt").write_text(text)
                (options.out / "mixed.json").write_text(
                    json.dumps([asdict(one) for one in runs[-1]], indent=1) + "\n")
            print(text)
    if len(runs) > 1:
        print(f"the runs differ by {bench_mixed.spread(runs):.2%} at most")
    print(f"{options.out}/mixed.json, mixed.txt, profiles/")
    return 0


def main_files(options: argparse.Namespace, modules: dict[str, Path]) -> int:
    """Measure files as disks and loop devices; fail if files are not as much faster as they are said to be."""
    options.quick = True
    (configuration,) = configurations(options)
    work = jobs(True, options.ios or 10_000)
    found = measure(configuration, list(bench_files.SYSTEMS), work, modules, options.out)
    print(bench_files.table(found))
    slow = bench_files.too_slow(found, len(work))
    for line in slow:
        print(line)
    return int(bool(slow))


def main_groups(options: argparse.Namespace, modules: dict[str, Path]) -> int:
    """Measure a write to a group; fail if it takes more than it may."""
    costs = bench_groups.measure(modules)
    text = "\n".join(bench_groups.table(cost) for cost in costs)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "groups.txt").write_text(text)
    print(text)
    missed = bench_groups.missed(costs)
    for line in missed:
        print(line)
    return int(bool(missed))


def main_hidden(options: argparse.Namespace, modules: dict[str, Path]) -> int:
    """Look at what instructions do not show."""
    started = time.monotonic()
    found = bench_hidden.measure(modules, options.systems or list(bench_hidden.DEFAULT))
    print(bench_hidden.write(options.out, found))
    print(f"{options.out}/hidden.json, hidden.txt, hidden.svg ({time.monotonic() - started:.0f} s)")
    return 0


def main(options: argparse.Namespace) -> int:
    """Measure, print the table, write the files."""
    modules = module_folders("stock", options.modules_dir)
    if options.c_modules_dir:
        modules["c"] = options.c_modules_dir
    if options.before_dir:
        modules["before"] = options.before_dir
    if options.mixed:
        return main_mixed(options, modules)
    if options.files:
        return main_files(options, modules)
    if options.groups:
        return main_groups(options, modules)
    if options.hidden:
        return main_hidden(options, modules)
    names = options.systems or default_systems(options.quick, options.everybody)
    if options.before_dir and "before" not in names:
        names.append("before")
    if any(SYSTEMS[name].modules == c_users.MODULES for name in names if name in SYSTEMS):
        modules[c_users.MODULES] = c_users.folder("stock", modules["ours"])
    if needs_own_image(names) and not steps.run(setup.table(), (bench_image.STEP,), steps.Progress()):
        return 1
    work = jobs(options.quick, options.ios or (2500 if options.quick else 3000))
    started = time.monotonic()
    found = measure_all(options, names, work, modules)
    print(write(options.out, found))
    print(f"{options.out}/bench.json, bench.txt, bench.svg, parts.svg ({time.monotonic() - started:.0f} s)")
    # That others fail is a result, too.
    wanted = len(work) * len(configurations(options))
    ours = [one.system for one in found if one.system.startswith("ours")]
    return int(any(ours.count(name) < wanted for name in names if name.startswith("ours")))
