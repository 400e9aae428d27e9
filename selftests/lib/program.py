# SPDX-License-Identifier: GPL-2.0
"""The administrator's program, `rnbdctl`, in the machines."""

from __future__ import annotations

import functools
import json
import shlex
import shutil
import threading
from pathlib import Path
from typing import Any

from lab import rnbdctl
from lab.arch import Arch
from lab.vm_node import Node
from lab.vm_node import Result

PATH = "/usr/bin/rnbdctl"
# Machines of several subjects run at once.
_LOCK = threading.Lock()


@functools.cache
def _built(machine: Arch) -> Path:
    return rnbdctl.program(machine)


def install(node: Node) -> None:
    """Put this checkout's program, built if need be, into a machine's search path."""
    share = node.spec.share / "rnbdctl"
    with _LOCK:
        if not share.exists():
            partial = share.with_suffix(".partial")
            shutil.copy2(_built(node.spec.arch), partial)
            partial.rename(share)
    node.run(f"[ -e {PATH} ] || cp /host/rnbdctl {PATH}")


def run(node: Node, *args: object, code: int = 0, timeout: float = 60.0) -> Result:
    """Run it; AssertionError unless it ends with this exit code."""
    argv = ["rnbdctl", *map(str, args)]
    result = node.run(argv, check=False, timeout=timeout)
    if result.rc != code:
        raise AssertionError(f"{shlex.join(argv)}: exit code {result.rc}, expected {code}\n"
                             f"{result.out}{result.err}")
    return result


def json_of(node: Node, *args: object, code: int = 0, timeout: float = 60.0) -> Any:
    """Run it with -o json; what it printed."""
    return json.loads(run(node, *args, "-o", "json", code=code, timeout=timeout).out)
