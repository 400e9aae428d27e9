# SPDX-License-Identifier: GPL-2.0
"""`lab screens`: pictures of rnbdctl for the documents, from what it writes in terminals of two sizes.

The machine is a tree of made-up files, so that `list` and `why` look the same each time, and a change of the program
shows as a change of a picture. A client has three disks of a server over two paths, and reads and writes; for
`rnbdctl why` one of the paths is down. `latency` has counted for two seconds on both ends.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from . import build
from . import paths
from . import rnbdctl
from . import run
from . import screens_latency
from . import terminal_run
from . import terminal_svg
from .terminal import Screen

FOLDER = paths.CHECKOUT / "Documentation/screens"
NAMES = ("top", "list", "latency", "why")
SIZES = ((80, 24), (200, 50))
SESSION = "web1-3fa2c1-storage"
SERVER_PATHS = (("192.0.2.20", "192.0.2.10"), ("198.51.100.20", "198.51.100.10"))
# Disk, access mode, bytes, and how often it is read from and written to in a step.
DISKS = (("nvme0n1", "rw", 1_920_383_410_176, 61, 22), ("vg0/backup", "rw", 2 << 40, 0, 9),
         ("images/base.img", "ro", 64 << 30, 4, 0))
# How long `top` is watched, and others may take, in seconds.
WATCHED, LONGEST = 15.0, 20.0
STEP_SECONDS = 0.05
# The number of the first step.
STEPS = 2000
UPTIME_SECONDS = 90061.5


class Machine:
    """The tree; its disks are in use until it is closed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.steps = STEPS
        self._closed = threading.Event()
        for folder in ("class/rtrs-client", "class/rnbd-client/ctl/devices"):
            (root / "sys" / folder).mkdir(parents=True)
        self.write("sys/class/rnbd-client/ctl/map_device", "")
        self.write("sys/module/rtrs_client/parameters/hb_interval_ms", "5000")
        self.write("proc/uptime", f"{UPTIME_SECONDS} 1000.0")
        session = f"sys/class/rtrs-client/{SESSION}"
        for name, text in {"mpath_policy": "min-inflight (MI: 1)", "add_path": "", "max_reconnect_attempts": "-1",
                           "hb_interval_ms": "5000", "hb_missed_max": "5", "reconnect_delay_ms": "30000",
                           "connect_timeout_ms": "30000", "ack_timeout_ms": "0", "hold_io_ms": "600000"}.items():
            self.write(f"{session}/{name}", text)
        for number in range(len(SERVER_PATHS)):
            self._path(number)
            self._rdma_device(number)
        for number, disk in enumerate(DISKS):
            self._disk(number, disk[0], disk[1], disk[2])
        self._count()
        self._thread = threading.Thread(target=self._go_on)
        self._thread.start()

    def write(self, name: str, text: str) -> None:
        """Replaces a file: whoever reads meanwhile gets the old or the new text."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}")
        partial.write_text(f"{text}\n")
        partial.rename(path)

    def _path(self, number: int) -> None:
        source, destination = SERVER_PATHS[number]
        folder = path_folder(number)
        for name, text in {"state": "connected", "src_addr": f"ip:{source}", "dst_addr": f"ip:{destination}",
                           "hca_name": f"mlx5_{number}", "hca_port": "1", "cur_latency": f"{8400 + 900 * number} ns",
                           "disconnect": "", "reconnect": "", "remove_path": "",
                           "stats/reconnects": f"{number} 0"}.items():
            self.write(f"{folder}/{name}", text)

    def _rdma_device(self, number: int) -> None:
        folder = f"sys/class/infiniband/mlx5_{number}"
        own = [int(part) for part in SERVER_PATHS[number][0].split(".")]
        gid = f"0000:0000:0000:0000:0000:ffff:{own[0]:02x}{own[1]:02x}:{own[2]:02x}{own[3]:02x}"
        self.write(f"{folder}/fw_ver", "")
        for name, text in {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "link_layer": "Ethernet",
                           "rate": "100 Gb/sec (4X EDR)", "gids/0": gid, "gid_attrs/types/0": "RoCE v2",
                           "gid_attrs/ndevs/0": f"eth{number + 2}"}.items():
            self.write(f"{folder}/ports/1/{name}", text)
        self.write(f"sys/class/net/eth{number + 2}/mtu", "9000")

    def _disk(self, number: int, disk: str, mode: str, size: int) -> None:
        name = f"rnbd{number}"
        for file, text in {"size": f"{size // 512}", "rnbd/state": "open", "rnbd/session": SESSION,
                           "rnbd/mapping_path": disk, "rnbd/access_mode": mode, "rnbd/nr_poll_queues": "0",
                           "rnbd/unmap_device": "", "rnbd/remap_device": "", "rnbd/resize": "", "rnbd/io_mode": "any",
                           "rnbd/closed_by": "", "rnbd/io_timeout_ms": "0", "rnbd/hold_io_ms": "-1",
                           "rnbd/io_timeouts": "0", "rnbd/io_unanswered": "0"}.items():
            self.write(f"sys/block/{name}/{file}", text)
        self.write(f"dev/{name}", "")
        link = self.root / f"sys/class/rnbd-client/ctl/devices/{disk.replace('/', '!')}@{SESSION}"
        link.symlink_to(f"../../../../block/{name}")

    def _count(self, in_flight: bool = True) -> None:
        """One more step of use."""
        self.steps += 1
        # Some steps have more to do than others.
        busy = self.steps + 12 * (self.steps // 80 % 3)
        sums = [0, 0, 0, 0]
        for number, (_, _, _, reads, writes) in enumerate(DISKS):
            read, written = reads * busy, writes * busy
            waiting = reads // 8 if in_flight else 0
            self.write(f"sys/block/rnbd{number}/stat",
                       f"{read} 0 {read * 16} {read // 9} {written} 0 {written * 32} {written // 6} "
                       f"{waiting} {self.steps * (40 if reads > 10 else 6)} 0 0 0 0 0 0 0")
            sums = [sums[0] + read, sums[1] + read * 8192, sums[2] + written, sums[3] + written * 16384]
        for number in range(len(SERVER_PATHS)):
            half = " ".join(f"{value // 2}" for value in sums)
            self.write(f"{path_folder(number)}/stats/rdma", f"{half} {4 - number if in_flight else 0} 0")

    def _go_on(self) -> None:
        while not self._closed.wait(STEP_SECONDS):
            self._count()

    def stop(self) -> None:
        """Nothing is in use any more; what was counted is the same each time."""
        self._closed.set()
        self._thread.join()
        self.steps = STEPS
        self._count(in_flight=False)

    def lose_a_path(self) -> None:
        """The second path is down, since its port is."""
        last = len(SERVER_PATHS) - 1
        self.write(f"{path_folder(last)}/state", "disconnected")
        self.write(f"sys/class/infiniband/mlx5_{last}/ports/1/state", "1: DOWN")
        self.write(f"sys/class/infiniband/mlx5_{last}/ports/1/phys_state", "3: Disabled")
        source, destination = SERVER_PATHS[last]
        name = f"ip:{source}@ip:{destination}"
        since = int((UPTIME_SECONDS - 252) * 1e6)
        lines = [(812, since, "the server does not respond to heartbeats"),
                 (813, since + 640_000, "connecting to the server failed: ENODEV")]
        self.write("dev/kmsg", "\n".join(f"4,{number},{when},-;rtrs_client: {name}: {text}"
                                         for number, when, text in lines))


def path_folder(number: int) -> str:
    """The folder of a path in sysfs."""
    source, destination = SERVER_PATHS[number]
    return f"sys/class/rtrs-client/{SESSION}/paths/ip:{source}@ip:{destination}"


def inside(program: Path, root: Path, words: Sequence[str]) -> list[str]:
    """The command line of a subcommand, which is made for the build root's libraries."""
    return run.chroot_command(paths.build_root(), [str(program), "--root", str(root), *words], [build.checkout_bind()],
                              env={"TERM": "xterm-256color"})


def screen(program: Path, root: Path, words: Sequence[str], size: tuple[int, int], typed: str = "") -> Screen:
    """What a subcommand shows in a terminal; what fills the screen has no prompt above it."""
    fills = words[0] == "top"
    text = terminal_run.output(inside(program, root, words), *size, WATCHED if fills else LONGEST, "q" if fills else "")
    shown = Screen(*size)
    shown.feed(text if fills else f"\x1b[1m$ rnbdctl {typed or ' '.join(words)}\x1b[0m\r\n{text}")
    return shown


def latency(program: Path, root: Path, size: tuple[int, int]) -> Screen:
    """The screen of `rnbdctl latency` with the times of the server, which its own run has measured before."""
    seconds = ["--seconds", str(screens_latency.SECONDS)]
    document = root.with_name("server.json")
    if not document.exists():
        server = root.with_name("server")
        counting = screens_latency.Counting(screens_latency.server_tree(server, SESSION), screens_latency.SERVER)
        argv = inside(program, server, ["latency", *seconds, "-o", "json"])
        done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
        counting.close()
        document.write_text(screens_latency.check_document(done.stdout))
    disk = f"rnbd{screens_latency.NUMBER}"
    counting = screens_latency.Counting(root / f"sys/block/{disk}/rnbd/latency", screens_latency.CLIENT)
    words = ["latency", disk, *seconds, "--server-json"]
    shown = screen(program, root, [*words, str(document)], size, " ".join([*words, document.name]))
    counting.close()
    return shown


def take(program: Path, folder: Path, names: Sequence[str] = NAMES) -> None:
    """Writes the pictures of some subcommands, in the order of `NAMES`."""
    (paths.CHECKOUT / "build").mkdir(exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="screens-", dir=paths.CHECKOUT / "build"))
    machine = Machine(made / "root")
    try:
        for name in names:
            if name != "top":
                machine.stop()
            if name == "why":
                machine.lose_a_path()
            for size in SIZES:
                shown = (latency(program, machine.root, size) if name == "latency" else
                         screen(program, machine.root, [name], size))
                title = f"rnbdctl {name} in a terminal of {size[0]} columns and {size[1]} rows"
                file = folder / f"{name}-{size[0]}x{size[1]}.svg"
                file.write_text(terminal_svg.picture(shown, title))
                print(f"== {title}\n{shown.text().rstrip()}\n", flush=True)
    finally:
        machine.stop()
        shutil.rmtree(made)


def main(options: argparse.Namespace) -> int:
    """Writes the pictures; the exit code."""
    FOLDER.mkdir(exist_ok=True)
    take(options.program or rnbdctl.program(), FOLDER)
    return 0


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command line."""
    command = commands.add_parser("screens", help="pictures of rnbdctl for the documents")
    command.add_argument("--program", type=Path, help="a rnbdctl below this checkout, instead of building it")
    command.set_defaults(run=main)
