# SPDX-License-Identifier: GPL-2.0
"""`lab try`: boot a machine, run a script in it, show what it and the kernel said."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from . import paths
from .vm import DEFAULT_MTU
from .vm import Disk
from .vm import Lab
from .vm import MachineDied
from .vm import Node
from .vm import Options
from .vm import sparse_disk
from .vm_platform import module_folders
from .vm_platform import platform

PRELUDE = """
. /host/selftests/lib/try.sh
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command line of `lab try`."""
    parser = commands.add_parser(
        "try", help="boot a machine and run a shell script in it",
        description="The script sees $SERVER (address), the functions of "
                    "selftests/lib/try.sh (load, unload, map, unmap, sessions) and a 256 MiB "
                    "scratch disk /dev/vdb.")
    parser.add_argument("--modules-dir", type=Path,
                        help="folder with .ko files, at any depth (default: what `lab build` made)")
    parser.add_argument("--server-modules-dir", type=Path,
                        help="another set for the server machine (implies --two)")
    parser.add_argument("--two", action="store_true",
                        help="two machines; the script runs on the client")
    parser.add_argument("--on-server", default="", metavar="SCRIPT",
                        help="with --two: run this on the server first")
    parser.add_argument("--after-on-server", default="", metavar="SCRIPT",
                        help="with --two: run this on the server afterwards")
    parser.add_argument("--kernel", type=paths.kernel_name, default=paths.STOCK, help=paths.KERNEL_HELP)
    parser.add_argument("--mtu", type=int, default=DEFAULT_MTU)
    parser.add_argument("--icount", action="store_true", help="clock counts instructions")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for the script")
    parser.add_argument("--kernel-args", default="", help="more of the kernel command line")
    parser.add_argument("script", nargs="+")
    parser.set_defaults(run=main)


def run_script(node: Node, server: Node, script: str, timeout: float) -> int:
    """Run a script, print its output, return its exit code."""
    result = node.run(PRELUDE + script, check=False, timeout=timeout,
                      env={"SERVER": server.address, "SERVER6": server.address6,
                           "CLIENT": node.address, "MODULES": f"/host/modules/{node.module_set}"})
    sys.stdout.write(result.out)
    sys.stdout.write(result.err)
    if result.timed_out:
        print(f"[{node.name}: timed out]")
    return result.rc


def main(options: argparse.Namespace) -> int:
    """Boot, run, report. The script's exit code, or 1 after trouble."""
    sets = {"ours": module_folders(options.kernel, options.modules_dir)["ours"]}
    two = options.two or options.server_modules_dir is not None
    module_sets = {}
    if options.server_modules_dir:
        sets["theirs"] = options.server_modules_dir
        module_sets["server"] = "theirs"
    lab = Lab(platform(options.kernel, sets), "two" if two else "one",
              Options(mtu=options.mtu, icount=options.icount, module_sets=module_sets,
                      kernel_args=options.kernel_args.split()))
    names = ["client", "server"] if two else ["one"]
    for node, name in zip(lab.nodes, names, strict=True):
        node.spec.disks.append(Disk(sparse_disk(lab.directory, f"{name}.disk", 256 << 20)))
    rc = 1
    started = time.monotonic()
    try:
        lab.start()
        print(f"[booted in {time.monotonic() - started:.1f} s]")
        for node in lab.nodes:
            node.dmesg_check()
        marks = {node.name: node.log_mark() for node in lab.nodes}
        rc = 0
        if options.on_server:
            rc |= run_script(lab.server, lab.server, options.on_server, options.timeout)
        rc |= run_script(lab.client, lab.server, " ".join(options.script), options.timeout)
        if options.after_on_server:
            rc |= run_script(lab.server, lab.server, options.after_on_server, options.timeout)
        for node in lab.nodes:
            print(f"--- kernel log of {node.name}:")
            print("\n".join(node.log_since(marks[node.name])))
            if node.dmesg_check():
                print(f"[{node.name}: the kernel log has warnings]")
                rc = rc or 1
    except (MachineDied, TimeoutError) as error:
        print(f"[{error}]")
        print(lab.last_words(60))
        rc = 1
    finally:
        lab.close()
    print(f"[exit {rc}, {time.monotonic() - started:.1f} s]")
    return rc
