# SPDX-License-Identifier: GPL-2.0
"""`lab first-hour`: the commands of Documentation/first-hour.md, typed on a server and two clients.

At the end each client has an encrypted disk mounted, over two paths, with metrics.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from . import deb
from . import deb_machine
from . import documents
from . import first_hour_machine
from . import paths
from . import run
from . import steps
from . import story
from .documents import Block
from .first_hour_machine import CLIENTS
from .first_hour_machine import NETWORKS
from .first_hour_machine import SERVER
from .story import expect
from .vm_node import CommandFailed
from .vm_node import Node
from .vm_platform import platform

DOCUMENT = paths.CHECKOUT / "Documentation/first-hour.md"
# The most commands that may be typed on a machine.
MOST = {"storage": 4, "clients": 8}
PASSPHRASE = "correct horse battery staple"
MOUNT = "/srv/data"
FETCH = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:9871/metrics').read().decode())"
# The link of a client that is cut, and its network.
CUT, CUT_NETWORK = "rdma1", 1


class Story:
    """The cases, in order; each goes on from what the one before left."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = steps.log_path("first-hour")
        self.log.write_text("")
        self.debs = directory / "debs"
        self.debs.mkdir()
        self.disk = deb_machine.fresh_disk(directory, [run.Bind(self.debs, "/mnt/debs")])
        self.blocks = documents.blocks(DOCUMENT)
        self.typed: dict[str, int] = dict.fromkeys(MOST, 0)
        self.machines: first_hour_machine.Machines | None = None

    def cases(self) -> list[Callable[[], None]]:
        """All of them."""
        return [self.install, self.boot, self.server, self.clients, self.few_commands, self.disks_are_in_use,
                self.others_disks_are_not_told, self.metrics, self.server_sees_no_text, self.mapped_at_boot,
                self.link_is_cut, self.give_back]

    def node(self, name: str) -> Node:
        """A machine, by its name."""
        assert self.machines is not None
        return self.machines.nodes[name]

    def next_blocks(self, place: str) -> list[Block]:
        """The blocks that come next in the document, as long as they are for the same machines."""
        found = []
        while self.blocks and self.blocks[0].place == place:
            found.append(self.blocks.pop(0))
        expect(bool(found), f"no block for {place} is left")
        return found

    def type_block(self, block: Block, nodes: list[Node]) -> None:
        """Types each command of a block on each of the machines; questions are answered with the passphrase."""
        for command in documents.commands(block.text):
            self.typed[block.place] += 1
            asks = f"{PASSPHRASE}\n" if command.startswith("cryptsetup ") else ""
            for node in nodes:
                result = node.run(command, check=False, timeout=300, stdin=asks)
                self.note(f"{node.name}# {command}\n{result.out}{result.err}")
                expect(result.rc == 0, f"{block} on {node.name}: {command}: exit code {result.rc}: "
                                       f"{result.out}{result.err}")

    def note(self, text: str) -> None:
        """Adds to the log what was typed and said."""
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(text)

    def wait(self, node: Node, command: str, what: str, timeout: int = 120) -> None:
        """Waits until a command succeeds on a machine, which looks itself."""
        script = f"for i in $(seq {2 * timeout}); do {command} && exit; sleep 0.5; done; exit 1"
        try:
            node.run(script, timeout=timeout + 60)
        except CommandFailed as error:
            state = node.run("rnbdctl list; rnbdctl why; dmesg | tail -30", check=False)
            raise AssertionError(f"{what}\n{state.out}{state.err}") from error

    # The cases

    def install(self) -> None:
        """The packages are installed by the commands for the server and for the clients."""
        # Made once from nothing is enough; `lab deb-test' does that.
        binds = [*self.disk.binds, run.Bind(deb_machine.metadata().path / "rnbd-dkms", "/mnt/metadata")]
        argv = run.chroot_command(self.disk.mount, ["cp", "-a", "/mnt/metadata/.", "/var/cache/rnbd-dkms"], binds,
                                  image=self.disk.file)
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
        for file in deb.build_to_test(crate=False):
            shutil.copy(file, self.debs / file.name)
        for place in MOST:
            block = next(block for block in self.blocks if block.place == place)
            self.blocks.remove(block)
            for command in documents.commands(block.text):
                expect(command.startswith("apt install "), f"{block} begins with {command}")
                self.typed[place] += 1
                self.note(self.disk.output(f"cd /mnt/debs\nexec 2>&1\n{command}"))

    def boot(self) -> None:
        """The server and the clients boot from copies of that disk."""
        folder = self.directory / "files"
        for name, text in first_hour_machine.files().items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        self.disk.binds.append(run.Bind(folder, "/mnt/files"))
        # As the document on copies of machines says, and not the first boot after an update, which makes all tables.
        self.disk.sh("rm /etc/modprobe.d/rnbd-host.conf; cp -r /mnt/files/. /; mkdir -p /host\n"
                     "touch /etc/.updated /var/.updated; systemctl -q enable systemd-networkd soft-roce", self.log)
        self.machines = first_hour_machine.Machines(platform("stock", {}), self.disk.file)
        self.machines.start()
        for name in first_hour_machine.NAMES:
            failed = self.node(name).sh("systemctl --failed --plain --no-legend; rdma link show | grep -c ACTIVE")
            links = len(first_hour_machine.interfaces(name))
            expect(failed == str(links), f"{name} has booted with {failed}, and not with {links} RDMA devices alone")
        # To be there before there are connections; selftests/lib/cable.py has the reason.
        self.node(CLIENTS[0]).run(f"tc qdisc replace dev {CUT} root netem limit 10000")

    def server(self) -> None:
        """The server is set up."""
        for block in self.next_blocks(SERVER):
            self.type_block(block, [self.node(SERVER)])

    def clients(self) -> None:
        """Both clients are set up by the same commands."""
        for block in self.next_blocks("clients"):
            self.type_block(block, [self.node(name) for name in CLIENTS])
        expect(not self.blocks, f"not typed: {[str(block) for block in self.blocks]}")

    def few_commands(self) -> None:
        """It took four commands on the server, and eight on each client, at most."""
        print(f"# commands: {self.typed}", flush=True)
        for place, most in MOST.items():
            expect(0 < self.typed[place] <= most, f"{place}: {self.typed[place]} commands, at most {most} are allowed")

    def disks_are_in_use(self) -> None:
        """Each client has its disk encrypted and mounted, by a session with two paths that are connected."""
        for name in CLIENTS:
            node = self.node(name)
            source = node.sh(f"findmnt -no SOURCE,FSTYPE {MOUNT}").split()
            expect(source == ["/dev/mapper/data", "ext4"], f"{name} has mounted {source}")
            status = node.sh("cryptsetup status data")
            expect("LUKS2" in status and "/dev/rnbd0" in status, status)
            listed = json.loads(node.sh("rnbdctl list --client -o json"))["client"]
            states = [(session["name"], path["state"]) for session in listed["sessions"] for path in session["paths"]]
            expect([state for _, state in states] == ["connected"] * len(NETWORKS), f"paths of {name}: {states}")
            expect(all(session.startswith(f"{name}-") for session, _ in states), f"sessions of {name}: {states}")
            node.run(f"echo first hour of {name} > {MOUNT}/file && sync {MOUNT}/file")

    def others_disks_are_not_told(self) -> None:
        """The server tells a client of its own disk only."""
        for name, disk in zip(CLIENTS, ("sda", "sdb"), strict=True):
            found = json.loads(self.node(name).sh("rnbdctl discover storage -o json"))["disks"]
            named = [entry["device_path"].removeprefix("/dev/") for entry in found]
            expect(named == [disk], f"{name} is told of {named}")

    def metrics(self) -> None:
        """The exporters of both ends say what is there."""
        for name in CLIENTS:
            said = self.node(name).sh(["python3", "-c", FETCH])
            for wanted, value in (("rnbd_device_open{", "1"), ("rnbd_session_paths_connected{", f"{len(NETWORKS)}")):
                lines = [line for line in said.splitlines() if line.startswith(wanted)]
                expect([line.rsplit(" ", 1)[-1] for line in lines] == [value], f"{name}: {lines}")
        said = self.node(SERVER).sh(["python3", "-c", FETCH])
        exports = [line for line in said.splitlines() if line.startswith("rnbd_server_export_info{")]
        expect(len(exports) == len(CLIENTS), f"exports in the server's metrics: {exports}")

    def server_sees_no_text(self) -> None:
        """The server's disks have nothing of what the clients wrote in plain text."""
        for name, disk in zip(CLIENTS, ("sda", "sdb"), strict=True):
            # Past the page cache, which may have what was there before.
            read = f"dd if=/dev/{disk} bs=1M iflag=direct status=none"
            script = f"{read} count=1 | head -c 4; {read} | grep -c -a 'first hour of {name}' || true"
            found = self.node(SERVER).sh(script, timeout=180)
            expect(found == "LUKS0", f"what {disk} begins with, and its lines with the text: {found!r}")

    def mapped_at_boot(self) -> None:
        """The saved file says what is mapped, and the services of it are enabled."""
        for name in CLIENTS:
            said = self.node(name).sh("rnbdctl apply --dry-run; systemctl is-enabled rnbd rnbd-exporter")
            expect(said.splitlines() == ["nothing to do", "enabled", "enabled"], f"{name}: {said}")
        said = self.node(SERVER).sh("rnbdctl server apply --dry-run; systemctl is-enabled rnbd-server rnbd-exporter")
        expect(said.splitlines() == ["nothing to do", "enabled", "enabled"], said)

    def link_is_cut(self) -> None:
        """With one network cut a write goes on by the other path, `rnbdctl why` says so, and the path comes back."""
        node = self.node(CLIENTS[0])
        cut = first_hour_machine.address(SERVER, CUT_NETWORK)
        node.run(f"tc qdisc change dev {CUT} root netem limit 10000 loss 100%")
        started = time.monotonic()
        node.run(f"dd if=/dev/zero of={MOUNT}/more bs=1M count=4 conv=fsync", timeout=180)
        print(f"# a write took {time.monotonic() - started:.0f} s with the link cut", flush=True)
        self.wait(node, f"rnbdctl list paths -o csv | grep {cut} | grep -q disconnected", "the path stays connected")
        said = node.run("rnbdctl why", check=False)
        self.note(f"{node.name}# rnbdctl why\n{said.out}")
        expect(said.rc == 8 and cut in said.out, f"exit code {said.rc}: {said.out}{said.err}")
        expect(node.sh(f"cat {MOUNT}/file") == f"first hour of {node.name}", "the file on the disk")
        node.run(f"tc qdisc change dev {CUT} root netem limit 10000 loss 0%")
        self.wait(node, "rnbdctl why > /dev/null", "something is wrong after the link is back")

    def give_back(self) -> None:
        """The disks are given back, and no kernel says anything bad."""
        for name in CLIENTS:
            self.node(name).run(f"umount {MOUNT} && cryptsetup close data && rnbdctl unmap --all", timeout=120)
        assert self.machines is not None
        trouble = [f"{node.name}: {line}" for node in self.machines.nodes.values() for line in node.dmesg_check()]
        expect(not trouble, "\n".join(trouble[:40]))

    def close(self) -> None:
        """Ends the machines."""
        if self.machines is not None:
            self.machines.close()


def main(options: argparse.Namespace) -> int:
    """Runs the cases; the exit code."""
    with tempfile.TemporaryDirectory(prefix="rnbd-first-hour-", dir=options.scratch) as folder:
        told = Story(Path(folder))
        try:
            return story.run(told.cases(), lambda: told.machines.last_words() if told.machines is not None else "")
        finally:
            told.close()


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command line."""
    command = commands.add_parser("first-hour", help="the commands of Documentation/first-hour.md, on three machines")
    command.add_argument("--scratch", type=Path, help="where to put the disk image for the time (a few GB)")
    command.set_defaults(run=main)
