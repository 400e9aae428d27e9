# SPDX-License-Identifier: GPL-2.0
"""The machine of `lab scale`, client and server at once, and the steps that its measurements share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path

from . import bench
from . import vm_plugin
from .scale_report import Point
from .vm import Lab
from .vm import MachineDied
from .vm import Options
from .vm_node import Node
from .vm_platform import platform

KIB = 1 << 10
# `machine` chooses the Ethernet MTU for it.
RDMA_MTU = 4096
SESSIONS = "/sys/class/rtrs-client"


@contextmanager
def machine(modules: dict[str, Path], cpus: int = 2, memory_mib: int = 1024) -> Iterator[Node]:
    """A machine that is client and server, whose clock counts instructions."""
    lab = Lab(platform("stock", modules), "one",
              Options(cpus=cpus, mtu=bench.ETHERNET[RDMA_MTU], memory_mib=memory_mib, icount=True,
                      kernel_args=["transparent_hugepage=never"], plugin=vm_plugin.compiled("vm_count")))
    try:
        lab.start(timeout=300)
        yield lab.client
    except (MachineDied, TimeoutError):
        print(lab.last_words(40), file=sys.stderr)
        raise
    finally:
        lab.close()


def load(node: Node, system: str, **parameters: str) -> None:
    """Load a module set, with parameters of its modules."""
    node.module_set = system
    node.modules_load("rnbd_server", "rnbd_client", rnbd_server="dev_search_path=/", **parameters)


def map_line(node: Node, session: str, disk: str) -> str:
    """The line for map_device that maps a disk."""
    return f"sessname={session} path=ip:{node.address} device_path={disk}"


def names_of(count: int) -> list[str]:
    """The names of the first `count` devices."""
    return [f"rnbd{index}" for index in range(count)]


def paths_of(node: Node, sessions: Sequence[str]) -> list[str]:
    """The folders of all paths of these sessions."""
    return [f"{SESSIONS}/{session}/paths/{path}" for session in sessions
            for path in node.listdir(f"{SESSIONS}/{session}/paths")]


def say(system: str, count: int, figures: dict[str, float]) -> list[Point]:
    """Print the figures of `count` things, by curve; return the points of the curves."""
    text = ", ".join(f"{curve} {figure:,.2f}" for curve, figure in figures.items())
    print(f"  {system}, {count}: {text}", flush=True)
    return [Point(curve, system, count, figure) for curve, figure in figures.items()]
