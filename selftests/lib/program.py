# SPDX-License-Identifier: GPL-2.0
"""The administrator's program, `rnbdctl`, in the machines."""

from __future__ import annotations

from lab import rnbdctl
from lab.vm_node import Node

PATH = "/usr/bin/rnbdctl"


def install(node: Node) -> None:
    """Put this checkout's program, built if need be, into a machine's search path."""
    program = rnbdctl.program().read_bytes()
    if not node.exists(PATH) or node.read_bytes(PATH) != program:
        node.create(PATH, program)
