# SPDX-License-Identifier: GPL-2.0
"""`lab bench --groups`: a write to a group of two members, beside two writes through one session each.

The samples do both: `rtrs_kv_client` has one session, `rtrs_kv_group` a group of two, whose members are two sessions
with the same machine. A task writes a value over and over, and waits for each write. What a write takes is the
difference between many writes and none, so that nothing of the start of the program is in it; the program itself is
left out. Documentation/benchmarks.md says what a write to a group may take.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lib import guest_kv

from . import vm_plugin
from .vm import Lab
from .vm import MachineDied
from .vm import Options
from .vm_count import Instructions
from .vm_count import KERNEL
from .vm_count import Place
from .vm_count import Spent
from .vm_count import Symbols
from .vm_count import symbols
from .vm_count import USER
from .vm_node import Node
from .vm_platform import platform

LENGTHS = (64, 4096)
WRITES = 200
# So that each tag in use, and each cache of the kernel's, has been used before.
FIRST = 100
MEMBERS = 2
SERVER = "rtrs_kv_server"
# Room for the chunks of three sessions in a small machine.
CHUNKS = "sess_queue_depth=64"
# An RDMA MTU of 4096.
MTU = 4500
# What the target is about: at most so many times what two writes take.
ALL, CLIENT = "all modules and the kernel", "the client's modules"
WITH_CORE = f"{CLIENT} and rtrs_core"
AT_MOST = {ALL: 0.90, CLIENT: 1.20, WITH_CORE: 1.20}
CLIENT_MODULES = ("rtrs_client", "rtrs_group")
# In the order of the table; the others follow.
FIRST_ROWS = (*CLIENT_MODULES, "rtrs_core", "rtrs_server", "ib_core", "rdma_rxe", KERNEL)


@dataclass(frozen=True)
class System:
    """A sample on the client: its module, how it is told of servers, and its value's file."""

    module: str
    parameters: str
    value: str


ONE = System("rtrs_kv_client", "server={address}", f"{guest_kv.FOLDER}/colour/value")
GROUP = System("rtrs_kv_group", "servers={address},{address}", "/sys/class/rtrs-kv-group/colour/value")


@dataclass(frozen=True)
class Cost:
    """What a write of so many bytes takes, in instructions by module."""

    length: int
    one: Mapping[str, float]
    group: Mapping[str, float]


def by_module(spent: Mapping[Place, Spent]) -> Counter[str]:
    """Instructions of the kernel, by module."""
    found: Counter[str] = Counter()
    for place, function in spent.items():
        if place.module != USER:
            found[place.module] += function.instructions
    return found


def counted(node: Node, executed: Instructions, known: Symbols, value: str, length: int, count: int) -> Counter[str]:
    """What so many writes take, with the start of the program."""
    executed.reset()
    node.call_within(300, guest_kv.put_often, path=value, length=length, count=count)
    return by_module(executed.spent(known))


def of_system(node: Node, executed: Instructions, system: System) -> dict[int, dict[str, float]]:
    """What a write takes, by its length and by module; the modules are unloaded afterwards."""
    # In a machine of its own each of these would be alone, too.
    node.modules_load(SERVER, rtrs_server=CHUNKS)
    node.modules_load(system.module, **{system.module: system.parameters.format(address=f"ip:{node.address}")})
    known = symbols(node)
    found = {}
    for length in LENGTHS:
        counted(node, executed, known, system.value, length, FIRST)
        none = counted(node, executed, known, system.value, length, 0)
        many = counted(node, executed, known, system.value, length, WRITES)
        found[length] = {module: (many[module] - none[module]) / WRITES for module in many}
    node.modules_unload_all()
    return found


def measure(modules: dict[str, Path]) -> list[Cost]:
    """Boot a machine, and measure both in it."""
    lab = Lab(platform("stock", modules), "one",
              Options(cpus=2, mtu=MTU, icount=True, kernel_args=["transparent_hugepage=never"],
                      plugin=vm_plugin.compiled("vm_count")))
    try:
        lab.start(timeout=120)
        executed = Instructions(lab.client.count_socket)
        one, group = (of_system(lab.client, executed, system) for system in (ONE, GROUP))
    except (MachineDied, TimeoutError):
        print(lab.last_words(40), file=sys.stderr)
        raise
    finally:
        lab.close()
    return [Cost(length, one[length], group[length]) for length in LENGTHS]


def ratios(cost: Cost) -> dict[str, float]:
    """What a write to the group takes, over what as many single writes as it has members take."""
    parts = {ALL: None, CLIENT: CLIENT_MODULES, WITH_CORE: (*CLIENT_MODULES, "rtrs_core")}
    return {name: _sum(cost.group, part) / (MEMBERS * _sum(cost.one, part)) for name, part in parts.items()}


def _sum(of: Mapping[str, float], modules: tuple[str, ...] | None) -> float:
    return sum(taken for module, taken in of.items() if modules is None or module in modules)


def rows(cost: Cost) -> list[str]:
    """The modules of which a write takes something, in the order of the table."""
    least = MEMBERS * _sum(cost.one, None) / 10000
    found = sorted(module for module in {*cost.one, *cost.group}
                   if module not in FIRST_ROWS and max(cost.one.get(module, 0), cost.group.get(module, 0)) >= least)
    return [*FIRST_ROWS, *found]


def table(cost: Cost) -> str:
    """A table in Markdown of the instructions by module, and the ratios."""
    lines = [f"| {cost.length} bytes, instructions | two single writes | a write to a group of two | ratio |",
             "|---|---|---|---|"]
    for module in rows(cost):
        one, group = MEMBERS * cost.one.get(module, 0), cost.group.get(module, 0)
        name = "the kernel proper" if module == KERNEL else module
        lines.append(f"| {name} | {one:,.0f} | {group:,.0f} | {group / one:.2f} |" if one >= 1 else
                     f"| {name} | {one:,.0f} | {group:,.0f} | |")
    lines += [f"| {name}: at most {AT_MOST[name]:.2f} | | | {ratio:.2f} |" for name, ratio in ratios(cost).items()]
    return "\n".join(lines) + "\n"


def missed(costs: list[Cost]) -> list[str]:
    """A line for each point of the target that a write of 4 KiB does not meet."""
    return [f"{name}: a write of {cost.length} bytes to a group takes {ratio:.3f} of two single writes, more than "
            f"{AT_MOST[name]:.2f}"
            for cost in costs if cost.length == max(LENGTHS)
            for name, ratio in ratios(cost).items() if ratio > AT_MOST[name]]
