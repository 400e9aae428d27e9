# SPDX-License-Identifier: GPL-2.0
"""Command line of the laboratory: `python3 -m lab COMMAND`."""

import argparse
import json
import signal
import sys
from pathlib import Path

from . import bench
from . import budget
from . import build
from . import cache
from . import canary
from . import check
from . import cluster_test
from . import deb
from . import deb_test
from . import demo
from . import first_hour
from . import house
from . import layers
from . import licences
from . import links
from . import paths
from . import rnbdctl
from . import rust_analyzer
from . import scale
from . import screens
from . import selftest
from . import setup
from . import sizes
from . import spelling
from . import stack_frames
from . import terms
from . import test_command
from . import try_command
from . import vm_shell
from . import walk
from .run import CommandFailed


def _setup(options: argparse.Namespace) -> int:
    return 0 if setup.setup(options.purpose, options.refresh, [options.kernel]) else 1


def _paths(options: argparse.Namespace) -> int:
    print(json.dumps(paths.artifacts(options.kernel).json(), indent=1))
    return 0


def _build(options: argparse.Namespace) -> int:
    kdir = Path(options.kdir) if options.kdir else None
    out = Path(options.out) if options.out else None
    build.modules(options.kernel, kdir, options.clippy, options.kunit, out)
    if not options.clippy:
        rnbdctl.program(paths.machine(options.kernel))
    return 0


def _prune(options: argparse.Namespace) -> int:
    for folder in cache.unused(options.days):
        print(f"removing {folder}", flush=True)
        cache.remove_tree(folder)
    return 0


def _chroot(options: argparse.Namespace) -> int:
    build.inside(options.argv, build.stock_tree().binds,
                 Path.cwd() if Path.cwd().is_relative_to(paths.CHECKOUT) else None)
    return 0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="lab", description=__doc__)
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("setup", help="make whatever is missing")
    command.add_argument("--for", dest="purpose", choices=sorted(setup.PURPOSES), default="demo")
    command.add_argument("--refresh", action="store_true", help="look for newer kernels")
    command.add_argument("--kernel", type=paths.kernel_name, default=paths.STOCK, help="for which kernel")
    command.set_defaults(run=_setup)

    command = commands.add_parser("paths", help="print where everything is, as JSON")
    command.add_argument("--kernel", type=paths.kernel_name, default=paths.STOCK, help=paths.KERNEL_HELP)
    command.set_defaults(run=_paths)

    command = commands.add_parser("build", help="build the modules and rnbdctl")
    command.add_argument("--kernel", type=paths.kernel_name, default=paths.STOCK, help=paths.KERNEL_HELP)
    command.add_argument("--kdir", metavar="DIR", help="another kernel tree, prepared for Rust modules")
    command.add_argument("--clippy", action="store_true", help="check with clippy instead")
    command.add_argument("--kunit", action="store_true", help="with the KUnit suites inside")
    command.add_argument("--out", metavar="DIR", help="where to put the results (default: build/KERNEL)")
    command.set_defaults(run=_build)

    command = commands.add_parser("chroot", help="run a program in the build root")
    command.add_argument("argv", nargs="+", metavar="ARG")
    command.set_defaults(run=_chroot)

    command = commands.add_parser("prune", help="remove what no set-up has used for a while")
    command.add_argument("--days", type=float, default=30)
    command.set_defaults(run=_prune)

    command = commands.add_parser("rust-analyzer", help="write rust-project.json for editors")
    command.set_defaults(run=lambda options: print(rust_analyzer.write()) or 0)

    bench.add_parser(commands)
    budget.add_parser(commands)
    canary.add_parser(commands)
    check.add_parsers(commands)
    deb.add_parser(commands)
    deb_test.add_parser(commands)
    cluster_test.add_parser(commands)
    demo.add_parser(commands)
    first_hour.add_parser(commands)
    house.add_parser(commands)
    layers.add_parser(commands)
    licences.add_parser(commands)
    links.add_parser(commands)
    scale.add_parser(commands)
    screens.add_parser(commands)
    selftest.add_parser(commands)
    sizes.add_parser(commands)
    spelling.add_parser(commands)
    stack_frames.add_parser(commands)
    terms.add_parser(commands)
    test_command.add_parser(commands)
    try_command.add_parser(commands)
    vm_shell.add_parser(commands)
    walk.add_parser(commands)
    return top


def main() -> int:
    options = parser().parse_args()
    # Both ways of being told to stop end what was started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return options.run(options)
    except (CommandFailed, RuntimeError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


sys.exit(main())
