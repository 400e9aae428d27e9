# SPDX-License-Identifier: GPL-2.0
"""`lab shell`: the demo's two machines, with prompts."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from . import demo
from . import paths
from .vm import Disk
from .vm import Lab
from .vm import MachineDied
from .vm import Options
from .vm import sparse_disk
from .vm_console import main as console
from .vm_node import CommandFailed
from .vm_platform import module_folders
from .vm_platform import platform


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command line of `lab shell`."""
    parser = commands.add_parser("shell", help="two machines with prompts")
    parser.add_argument("--modules", choices=("ours", "c"), default="ours")
    parser.add_argument("--kernel", type=paths.kernel_name, default=paths.STOCK, help=paths.KERNEL_HELP)
    parser.add_argument("--modules-dir", type=Path, help="folder of our .ko files")
    parser.add_argument("--no-tmux", action="store_true", help="one console at a time")
    parser.set_defaults(run=main)


def prepare(lab: Lab) -> None:
    """Give both shells their environment; they wait for it."""
    size = shutil.get_terminal_size()
    for node in lab.nodes:
        node.run(f"stty -F /dev/{node.spec.arch.console} rows {size.lines - 1} cols {size.columns} || true")
        node.create("/run/lab.env", "".join(f"export {name}={shlex.quote(value)}\n" for name, value
                                            in {"SERVER": lab.server.address,
                                                "SERVER6": lab.server.address6,
                                                "CLIENT": lab.client.address,
                                                "NAME": node.name,
                                                "TERM": os.environ.get("TERM", "vt100"),
                                                "MODULES": f"/host/modules/{node.module_set}"
                                                }.items()))


def tmux(lab: Lab) -> None:
    """Two panes, one machine in each."""
    socket = ["tmux", "-S", str(lab.directory / "tmux")]
    tools = Path(__file__).resolve().parents[1]
    commands = [f"PYTHONPATH={shlex.quote(str(tools))} {shlex.quote(sys.executable)} "
                f"-m lab.vm_console {node.name}={lab.directory / node.name}.tty"
                for node in lab.nodes]
    subprocess.run([*socket, "new-session", "-d", "-s", "lab", commands[0]], check=True)
    subprocess.run([*socket, "split-window", "-v", "-t", "lab", commands[1]], check=True)
    subprocess.run([*socket, "set-option", "-t", "lab", "mouse", "on"], check=False)
    try:
        subprocess.run([*socket, "attach", "-t", "lab"], check=False)
    finally:
        subprocess.run([*socket, "kill-server"], check=False, capture_output=True)


def main(options: argparse.Namespace) -> int:
    """Boot, join the terminal, and end the machines when it is left."""
    if not sys.stdin.isatty():
        print("shell: this needs a terminal; `lab try` runs a script instead", file=sys.stderr)
        return 2
    modules = module_folders(options.kernel, options.modules_dir)
    lab = Lab(platform(options.kernel, {options.modules: modules[options.modules]}), "two",
              Options(shell=True,
                      module_sets=dict.fromkeys(("client", "server"), options.modules)))
    try:
        image, _checksum = demo.make_file_system(lab.directory)
        lab.server.spec.disks = [Disk(image, snapshot=True),
                                 Disk(sparse_disk(lab.directory, "scratch.img", 512 << 20))]
        print("booting two machines ...", flush=True)
        lab.start()
        prepare(lab)
        if shutil.which("tmux") and not options.no_tmux and "TMUX" not in os.environ:
            print("Ctrl-] q in a pane leaves it; the machines end with the last one.")
            tmux(lab)
        else:
            print("Ctrl-] n changes between client and server, Ctrl-] q ends both.")
            console([f"{node.name}={lab.directory / node.name}.tty" for node in lab.nodes])
    except (MachineDied, CommandFailed, OSError, TimeoutError) as error:
        print(f"\nshell: {error}\n{lab.last_words()}", file=sys.stderr)
        return 1
    finally:
        lab.close()
    print()
    return 0
