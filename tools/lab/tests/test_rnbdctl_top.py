# SPDX-License-Identifier: GPL-2.0
"""`rnbdctl top` in a terminal, as a user sees it."""

import shlex
import shutil
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from lab import build
from lab import paths
from lab import rnbdctl
from lab import run

SECONDS = 60


class Machine:
    """A tree of files as the kernel's, with a device that reads all the time until it is stopped."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.reads = 1000
        self.stopped = threading.Event()
        self.write("sys/class/rnbd-client/ctl/map_device", "")
        for name, text in {"state": "open", "session": "storage", "mapping_path": "vg/disk", "access_mode": "rw",
                           "nr_poll_queues": "0"}.items():
            self.write(f"sys/block/rnbd0/rnbd/{name}", text)
        path = "sys/class/rtrs-client/storage/paths/ip:10.0.0.1@ip:10.0.0.2"
        self.write("sys/class/rtrs-client/storage/mpath_policy", "min-inflight (MI: 1)")
        for name, text in {"state": "connected", "src_addr": "ip:10.0.0.1", "dst_addr": "ip:10.0.0.2",
                           "cur_latency": "12300 ns", "stats/rdma": "1 4096 0 0 2 0",
                           "stats/reconnects": "3 4"}.items():
            self.write(f"{path}/{name}", text)
        self.read_some()
        self.thread = threading.Thread(target=self.go_on)
        self.thread.start()

    def write(self, name: str, text: str) -> None:
        """Replace a file: whoever reads meanwhile gets the old or the new text."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}")
        partial.write_text(f"{text}\n")
        partial.rename(path)

    def read_some(self) -> None:
        self.reads += 50
        self.write("sys/block/rnbd0/stat", f"{self.reads} 0 {self.reads * 8} {self.reads * 2} 0 0 0 0 5 {self.reads} 0")

    def go_on(self) -> None:
        while not self.stopped.wait(0.05):
            self.read_some()

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join()


class Screen:
    """A terminal of its own, with a program in it."""

    def __init__(self, folder: Path, argv: list[str]) -> None:
        self.socket = str(folder / "tmux")
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "130", "-y", "30", shlex.join(argv))

    def tmux(self, *args: str) -> str:
        argv = ["tmux", "-S", self.socket, *args]
        return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout

    def wait_for(self, *words: str, without: str = "\0") -> str:
        """The screen as soon as it has all these words, and not the one after ``without``."""
        deadline = time.monotonic() + SECONDS
        while True:
            text = self.tmux("capture-pane", "-p")
            if all(word in text for word in words) and without not in text:
                return text
            if time.monotonic() > deadline:
                raise AssertionError(f"no {words}, or {without!r}, on the screen:\n{text}")
            time.sleep(0.05)

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def is_there(self) -> bool:
        argv = ["tmux", "-S", self.socket, "has-session"]
        return subprocess.run(argv, stderr=subprocess.DEVNULL, check=False).returncode == 0


@unittest.skipUnless(shutil.which("tmux"), "tmux is not installed (make setup installs it)")
class Top(unittest.TestCase):
    def setUp(self) -> None:
        program = rnbdctl.program()
        (paths.CHECKOUT / "build").mkdir(exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="top-", dir=paths.CHECKOUT / "build"))
        self.addCleanup(shutil.rmtree, folder)
        self.machine = Machine(folder / "root")
        self.addCleanup(self.machine.stop)
        # The program is made for the build root's libraries.
        argv = [str(program), "--root", str(folder / "root"), "top", "--interval", "0.2"]
        env = {"TERM": "screen-256color"}
        command = run.chroot_command(paths.build_root(), argv, [build.checkout_bind()], env=env)
        self.screen = Screen(folder, command)
        self.addCleanup(subprocess.run, ["tmux", "-S", self.screen.socket, "kill-server"], stderr=subprocess.DEVNULL)

    def test_screen(self) -> None:
        """Rates change, keys do what the screen says, and q gives the terminal back."""
        text = self.screen.wait_for("rnbd0", "vg/disk", "ip:10.0.0.1@ip:10.0.0.2", "3/4", "12.3 us", "2 ms", "▇")
        self.assertIn("q  quit", text)
        self.assertRegex(text, r"rnbd0 .* open +[1-9]")
        self.screen.press("s")
        self.screen.wait_for("sort: IOPS")
        self.screen.press("Down")
        self.screen.wait_for("rnbd0: IOPS")
        self.screen.press("v", "v")
        self.screen.wait_for("Paths (1)", without="Devices (1)")
        self.screen.press("v")
        self.screen.wait_for("Devices (1)")
        self.screen.press("?")
        self.screen.wait_for("Keys and columns")
        self.screen.press("?", "p")
        self.screen.wait_for("PAUSED")
        shutil.rmtree(self.machine.root / "sys/class/rtrs-client")
        self.screen.press("p")
        self.screen.wait_for("Paths (0)")
        self.screen.press("q")
        deadline = time.monotonic() + SECONDS
        while self.screen.is_there():
            self.assertLess(time.monotonic(), deadline, "q did not end it")
            time.sleep(0.05)
