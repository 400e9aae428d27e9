# SPDX-License-Identifier: GPL-2.0
"""The program of selftests/campaign/ in the machines: peers that lie, made up by a generator."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import dataclass

from lab import hostile_peers
from lab.vm_node import Node

PATH = "/host/campaign"
# How long rounds may take to come to their end when the time is over, in seconds.
END_SECONDS = 150.0
# Machines of several subjects run at once.
_LOCK = threading.Lock()


@dataclass
class Slice:
    """What a slice of a campaign has sent: the first round that was not run, messages, and what became of them."""

    next: int
    messages: dict[str, int]
    outcomes: dict[str, int]


def install(node: Node) -> None:
    """Put the program, built if need be, where a machine finds it."""
    share = node.spec.share / "campaign"
    with _LOCK:
        if not share.exists():
            partial = share.with_suffix(".partial")
            shutil.copy2(hostile_peers.program(node.spec.arch), partial)
            partial.rename(share)


def messages(node: Node, number: int, **options: object) -> dict[str, list[str]]:
    """What the client of a round sends, by its step, but for steps that found the path gone and connected again."""
    argv = [PATH, "clients", f"first={number}", "rounds=1", "jobs=1", "trace=1",
            *(f"{name}={value}" for name, value in options.items())]
    result = node.run(argv, check=False, timeout=END_SECONDS)
    if result.rc != 0:
        raise AssertionError(f"round {number}: exit code {result.rc}: {result.err[-2000:]}")
    found: dict[str, list[str]] = {}
    for line in result.err.splitlines():
        if line.startswith("step "):
            step = found.setdefault(line, [])
        elif found:
            step.append(line)
    return {name: lines for name, lines in found.items() if lines and "connect again" not in lines}


def attack(node: Node, end: str, *, seconds: float, disks: list[str] | None = None, **options: object) -> Slice:
    """Attack an end, ``clients`` that of the server and ``servers`` that of the client, for so long.

    ``options`` are the program's. Fails with its words if a peer did what it must not.
    """
    words = [f"{name}={value}" for name, value in options.items()]
    words += [f"disk={disk}" for disk in disks or []]
    argv = [PATH, end, f"milliseconds={int(1000 * seconds)}", *words]
    result = node.run(argv, check=False, timeout=seconds + END_SECONDS)
    if result.rc != 0:
        raise AssertionError(f"campaign {end}: exit code {result.rc}: {result.err[-2000:]}")
    said = json.loads(result.out)
    return Slice(said["next"], said["messages"], said["outcomes"])
