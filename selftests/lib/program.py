# SPDX-License-Identifier: GPL-2.0
"""The administrator's program, `rnbdctl`, in the machines."""

from __future__ import annotations

import functools
import json
import shlex
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import json_schema
from lab import rnbdctl
from lab.arch import Arch
from lab.vm_node import Node
from lab.vm_node import Result

PATH = "/usr/bin/rnbdctl"
# Machines of several subjects run at once.
_LOCK = threading.Lock()
_SCHEMAS: dict[Arch, dict[str, Any]] = {}


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
    """Run it with -o json; what it printed, which must be as its schema says."""
    document = json.loads(run(node, *args, "-o", "json", code=code, timeout=timeout).out)
    check_schema(node, [(name_of(node, *args), document)])
    return document


def schema(node: Node) -> dict[str, Any]:
    """The schema of all that it prints, as it tells it in this machine."""
    with _LOCK:
        if node.spec.arch not in _SCHEMAS:
            _SCHEMAS[node.spec.arch] = json.loads(run(node, "schema").out)
        return _SCHEMAS[node.spec.arch]


def name_of(node: Node, *args: object) -> str:
    """The name in `$defs` of what a subcommand prints: `server_list`; AssertionError if it has none."""
    definitions = schema(node)["$defs"]
    words = [str(arg) for arg in args]
    names = ("_".join(words[:count]) for count in range(len(words), 0, -1))
    found = next((name for name in names if name in definitions), None)
    if found is None:
        raise AssertionError(f"rnbdctl {shlex.join(words)}: there is no schema of its output")
    return found


def check_schema(node: Node, documents: Sequence[json_schema.Document]) -> None:
    """AssertionError unless documents are as the schema says, each as its name in `$defs`."""
    wrong = json_schema.problems(schema(node), documents)
    if wrong:
        raise AssertionError("not as rnbdctl schema says: " + "; ".join(wrong))
