# SPDX-License-Identifier: GPL-2.0
"""The administrator's program, `rnbdctl`, in the machines."""

from __future__ import annotations

import json
import shlex

from lab import rnbdctl
from lab.vm_node import Node
from lab.vm_node import Result

PATH = "/usr/bin/rnbdctl"


def install(node: Node) -> None:
    """Put this checkout's program, built if need be, into a machine's search path."""
    program = rnbdctl.program().read_bytes()
    if not node.exists(PATH) or node.read_bytes(PATH) != program:
        node.create(PATH, program)


def run(node: Node, *args: object, code: int = 0, timeout: float = 60.0) -> Result:
    """Run it; AssertionError unless it ends with this exit code."""
    argv = ["rnbdctl", *map(str, args)]
    result = node.run(argv, check=False, timeout=timeout)
    if result.rc != code:
        raise AssertionError(f"{shlex.join(argv)}: exit code {result.rc}, expected {code}\n"
                             f"{result.out}{result.err}")
    return result


def json_of(node: Node, *args: object, code: int = 0) -> dict:
    """Run it with -o json; what it printed."""
    return json.loads(run(node, *args, "-o", "json", code=code).out)
