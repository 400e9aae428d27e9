# SPDX-License-Identifier: GPL-2.0
"""Command line of the laboratory: `python3 -m lab COMMAND`."""

import argparse
import json
import sys

from . import paths
from . import setup
from . import try_command
from .run import CommandFailed


def _setup(options: argparse.Namespace) -> int:
    return 0 if setup.setup(options.purpose, options.refresh) else 1


def _paths(options: argparse.Namespace) -> int:
    print(json.dumps(paths.artifacts(options.kernel).json(), indent=1))
    return 0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="lab", description=__doc__)
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("setup", help="make whatever is missing")
    command.add_argument("--for", dest="purpose", choices=sorted(setup.PURPOSES), default="demo")
    command.add_argument("--refresh", action="store_true", help="look for a newer stock kernel")
    command.set_defaults(run=_setup)

    command = commands.add_parser("paths", help="print where everything is, as JSON")
    command.add_argument("--kernel", choices=paths.KERNELS, default="stock")
    command.set_defaults(run=_paths)

    try_command.add_parser(commands)
    return top


def main() -> int:
    options = parser().parse_args()
    try:
        return options.run(options)
    except (CommandFailed, RuntimeError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


sys.exit(main())
