# SPDX-License-Identifier: GPL-2.0
"""`lab demo`: a disk of one machine used on another through RDMA, with a report.

Two machines with the stock kernel, joined by a virtual Ethernet with
soft-RoCE. Every step prints what it did; the first that fails ends the demo
with the last console lines of the machine it failed on.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lib import rnbd
from lib.fio import fio_jobs
from lib.fio import Report

from . import paths
from .vm import Disk
from .vm import Lab
from .vm import MachineDied
from .vm import Options
from .vm import sparse_disk
from .vm_node import CommandFailed
from .vm_platform import module_folders
from .vm_platform import platform

SESSION = "demo"
FILE = "greeting.bin"
FILE_BYTES = 6 << 20
BLOCK_SIZES = (512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
DEPTHS = (1, 32)
# Kilobytes that each fio job covers; small sizes take many IOs for little data.
REGION = {512: 96 << 10, 4 << 10: 1 << 20, 16 << 10: 2 << 20}
LARGE_REGION = 4 << 20


class DemoFailed(Exception):
    """A step did not do what it was to do."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command lines of `lab demo`."""
    parser = commands.add_parser("demo", help="a remote disk between two virtual machines")
    parser.add_argument("--kernel", type=paths.kernel_name, default=paths.STOCK, help=paths.KERNEL_HELP)
    parser.add_argument("--modules", choices=("ours", "c"), default="ours")
    parser.add_argument("--modules-dir", type=Path, help="folder of our .ko files")
    parser.set_defaults(run=main)


def say(text: str) -> None:
    """One line of the report."""
    print(text, flush=True)


@contextmanager
def step(what: str) -> Iterator[Callable[[str], None]]:
    """A line `what ... result`, with the seconds it took."""
    started = time.monotonic()
    results: list[str] = []
    yield results.append
    say(f"  {what:<44} {'; '.join(results) or 'done':<46} {time.monotonic() - started:5.1f} s")


def make_file_system(directory: Path) -> tuple[Path, str]:
    """A disk image with an ext4 file system that holds one file; its SHA-256."""
    content = random.Random(0x1BBD).randbytes(FILE_BYTES)
    with tempfile.TemporaryDirectory(dir=directory) as tree:
        (Path(tree) / FILE).write_bytes(content)
        image = sparse_disk(directory, "data.img", 64 << 20)
        root = paths.build_root()
        # The build root's own program, whatever the host has.
        command = [str(root / "lib64/ld-linux-x86-64.so.2"), "--library-path",
                   str(root / "usr/lib/x86_64-linux-gnu"), str(root / "usr/sbin/mkfs.ext4"),
                   "-q", "-F", "-d", tree, str(image)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise DemoFailed(f"mkfs.ext4 on the host: {done.stderr.strip()}")
    return image, hashlib.sha256(content).hexdigest()


class Demo:
    """The steps, in order."""

    def __init__(self, lab: Lab, modules: str, checksum: str) -> None:
        self.lab = lab
        self.client, self.server = lab.client, lab.server
        self.modules = modules
        self.checksum = checksum
        self.reports: list[tuple[int, int, Report]] = []

    def run(self) -> None:
        """Everything that the demo shows."""
        with step("boot two machines") as result:
            self.lab.start()
            result(f"Linux {self.client.release}, soft-RoCE")
        for node in self.lab.nodes:
            node.dmesg_check()
        with step("load the modules") as result:
            self.server.modules_load("rnbd_server")
            self.client.modules_load("rnbd_client")
            result(", ".join(name for name in sorted(
                {**self.client.loaded_parameters, **self.server.loaded_parameters})))
        data = self.map("/dev/vdb")
        scratch = self.map("/dev/vdc")
        with step("read the file on the server's disk") as result:
            self.client.run(f"mkdir -p /mnt/data; mount -o ro {data.path} /mnt/data")
            got = self.client.sh(f"sha256sum /mnt/data/{FILE}").split()[0]
            self.client.run("umount /mnt/data")
            if got != self.checksum:
                raise DemoFailed(f"checksum {got}, written on the host was {self.checksum}")
            result(f"{FILE_BYTES >> 20} MiB, checksum is right")
        self.use_xfs(scratch)
        self.use_fio(scratch)
        self.show(data, scratch)
        self.end([data, scratch])

    def map(self, device_path: str) -> rnbd.Device:
        """Map one disk of the server."""
        with step(f"map {device_path} of the server") as result:
            self.client.write(rnbd.MAP_DEVICE, rnbd.map_text(
                session=SESSION, device_path=device_path, paths=[f"ip:{self.server.address}"]))
            device = rnbd.find_device(self.client, device_path, SESSION)
            result(f"{device.path}, {device.size() >> 20} MiB")
        return device

    def use_xfs(self, device: rnbd.Device) -> None:
        """Make, fill and check an XFS file system."""
        with step("make, mount and fill an XFS file system") as result:
            self.client.run(
                f"set -e; mkfs.xfs -q -f {device.path}; mkdir -p /mnt/xfs\n"
                f"mount {device.path} /mnt/xfs; cd /mnt/xfs\n"
                "for i in $(seq 20); do head -c $((i * 9973)) /dev/urandom >file$i; done\n"
                "dd if=/dev/urandom of=big bs=1M count=8 status=none\n"
                "sha256sum * >/tmp/xfs.sums; sync; cd /; umount /mnt/xfs\n"
                f"mount {device.path} /mnt/xfs; cd /mnt/xfs; sha256sum --quiet -c /tmp/xfs.sums\n"
                "cd /; umount /mnt/xfs", timeout=120)
            result("21 files, checksums right after remounting")

    def use_fio(self, device: rnbd.Device) -> None:
        """Random reads and writes of every size, each block verified."""
        jobs = []
        offset = 0
        for size in BLOCK_SIZES:
            region = REGION.get(size, LARGE_REGION)
            for depth in DEPTHS:
                jobs.append({"name": f"bs{size}qd{depth}", "bs": size, "iodepth": depth,
                             "size": region, "offset": offset})
                offset += region
        with step("fio, random mix, verify=crc32c") as result:
            reports = fio_jobs(self.client, device.path, jobs, ioengine="io_uring", direct=1,
                               rw="randrw", verify="crc32c", verify_fatal=1, timeout=180)
            errors = sum(report.errors for report in reports)
            if errors:
                raise DemoFailed(f"fio counted {errors} errors")
            self.reports = [(job["bs"], job["iodepth"], report)  # type: ignore[misc]
                            for job, report in zip(jobs, reports, strict=True)]
            moved = sum(report.read.bytes + report.write.bytes for report in reports)
            result(f"{moved >> 20} MiB moved, all verified")

    def show(self, data: rnbd.Device, scratch: rnbd.Device) -> None:
        """Figures and state, as an administrator sees them."""
        say("\n  fio           depth 1                        depth 32")
        say("  block size      IOPS   mean read/write us       IOPS   mean read/write us")
        for size in BLOCK_SIZES:
            line = f"  {f'{size} B' if size < 1024 else f'{size >> 10} KiB':>9} "
            for depth in DEPTHS:
                report = next(report for bs, qd, report in self.reports
                              if (bs, qd) == (size, depth))
                line += (f"{report.iops:10.0f} {report.read.mean_latency_us:10.0f} /"
                         f"{report.write.mean_latency_us:8.0f}")
            say(line)
        say("  (emulated processors: compare ratios, not figures)\n")
        for line in self.client.sh("lsblk -o NAME,SIZE,RO,TYPE,MOUNTPOINTS").splitlines():
            say(f"    {line}")
        path = f"{rnbd.CLIENT_SESSIONS}/{SESSION}/paths"
        path = f"{path}/{self.client.listdir(path)[0]}"
        for device in (data, scratch):
            say(f"    {device.name}: {device.attribute('mapping_path')} of session "
                f"{device.attribute('session')}, {device.attribute('access_mode')}, "
                f"{device.attribute('state')}")
        state = self.client.read(f"{path}/state")
        counters = self.client.read(f"{path}/stats/rdma").split()
        reconnects = self.client.read(f"{path}/stats/reconnects").split()
        say(f"    path {path.rsplit('/', 1)[-1]} on {self.client.read(f'{path}/hca_name')}: {state}")
        say(f"    reads {counters[0]} ({int(counters[1]) >> 20} MiB), writes {counters[2]} "
            f"({int(counters[3]) >> 20} MiB), in flight {counters[4]}, failed over {counters[5]}, "
            f"reconnects {reconnects[0]}\n")
        if state != "connected":
            raise DemoFailed(f"the path is {state}")

    def end(self, devices: list[rnbd.Device]) -> None:
        """Unmap, see that nothing is left, unload."""
        with step("unmap both disks") as result:
            for device in devices:
                device.unmap()
            self.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/{SESSION}", gone=True)
            self.server.wait_for(f"{rnbd.SERVER_SESSIONS}/{SESSION}", gone=True)
            result("disks and session are gone on both machines")
        with step("unload all modules") as result:
            for node in self.lab.nodes:
                node.modules_unload_all()
            trouble = [line for node in self.lab.nodes for line in node.dmesg_check()]
            if trouble:
                raise DemoFailed("the kernel log has warnings:\n" + "\n".join(trouble[:40]))
            result("no warning in either kernel log")


def main(options: argparse.Namespace) -> int:
    """Run the demo; 0 if every step did what it was to do."""
    started = time.monotonic()
    modules = module_folders(options.kernel, options.modules_dir)
    if not any(modules[options.modules].rglob("*.ko")):
        print(f"demo: no modules in {modules[options.modules]}; build them first", file=sys.stderr)
        return 1
    say("RNBD: a disk of the server machine, used on the client machine through RDMA")
    lab = Lab(platform(options.kernel, {options.modules: modules[options.modules]}), "two",
              Options(module_sets=dict.fromkeys(("client", "server"), options.modules)))
    try:
        image, checksum = make_file_system(lab.directory)
        lab.server.spec.disks = [Disk(image, snapshot=True),
                                 Disk(sparse_disk(lab.directory, "scratch.img", 512 << 20))]
        Demo(lab, options.modules, checksum).run()
    except (DemoFailed, MachineDied, CommandFailed, OSError, TimeoutError,
            AssertionError) as error:
        say(f"\nFAILED: {error}\n")
        say(lab.last_words())
        for node in lab.nodes:
            show_kernel_log(node)
        return 1
    finally:
        lab.close()
    say(f"\nAll of it worked, in {time.monotonic() - started:.0f} s.")
    return 0


def show_kernel_log(node: rnbd.Node) -> None:
    """What a machine's kernel said last, which the console does not show in full."""
    try:
        lines = node.log_since(0)[-25:]
    except (MachineDied, OSError):
        return
    say(f"--- kernel log of {node.name}:\n" + "\n".join(lines))
