# SPDX-License-Identifier: GPL-2.0
"""`lab walk`: what a request passes through in our modules, and how often it locks the bus.

One machine is client and server at once. A plugin of the emulator writes down the order
in which blocks of our modules are executed; the debug information says which functions,
inlined ones too, they belong to. See Documentation/benchmarks.md for what is counted.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from . import vm_plugin
from . import walk_frames
from . import walk_hops
from .bench_systems import prepare
from .vm import Lab
from .vm import MachineDied
from .vm import Options
from .vm_node import Node
from .vm_platform import module_folders
from .vm_platform import platform
from .vm_trace import Step
from .vm_trace import Trace
from .walk_calls import Call
from .walk_calls import calls
from .walk_calls import CLIENT
from .walk_calls import Functions
from .walk_calls import MODULES
from .walk_calls import SERVER

SIZE = 4096
# Of a trace of so many requests, 4 million blocks, there is room for several times as many.
REQUESTS = 400
DEPTHS = (1, 16)
PATTERNS = ("randwrite", "randread")
WALKED = ("randwrite", 1)
MTU = 1500


@dataclass
class Taken:
    """What the machine did, by pattern and depth."""

    functions: Functions
    # Where the section .text of each module is.
    bases: dict[str, int]
    steps: dict[tuple[str, int], list[Step]]


def _job(pattern: str, depth: int, device: str) -> str:
    return "\n".join(["[walk]", "ioengine=io_uring", "direct=1", "thread=1", "randrepeat=1", f"rw={pattern}",
                      f"bs={SIZE}", f"iodepth={depth}", f"number_ios={REQUESTS}", "size=512m",
                      f"filename={device}", ""])


def _loaded(node: Node) -> tuple[Functions, dict[str, int]]:
    node.sh("echo 0 >/proc/sys/kernel/kptr_restrict")
    functions = Functions(node.sh("cat /proc/kallsyms", timeout=120), walk_hops.MARKS)
    bases = {module: int(node.sh(f"cat /sys/module/{module}/sections/.text"), 16) for module in MODULES}
    return functions, bases


def take(modules: dict[str, Path]) -> Taken:
    """Boots a machine and traces each job in it."""
    lab = Lab(platform("stock", modules), "one",
              Options(cpus=2, mtu=MTU, icount=True, kernel_args=["transparent_hugepage=never"],
                      plugin=vm_plugin.compiled("vm_trace")))
    steps = {}
    try:
        lab.start(timeout=120)
        trace = Trace(lab.client.count_socket)
        with prepare(lab.client, "ours", 1) as ready:
            functions, bases = _loaded(lab.client)
            for pattern, depth in ((pattern, depth) for pattern in PATTERNS for depth in DEPTHS):
                lab.client.create("/tmp/job", _job(pattern, depth, ready.devices[0]))
                trace.begin(functions.ranges())
                lab.client.run("fio /tmp/job", timeout=300)
                steps[pattern, depth] = trace.end()
        return Taken(functions, bases, steps)
    except (MachineDied, TimeoutError):
        print(lab.last_words(40), file=sys.stderr)
        raise
    finally:
        lab.close()


def locked(roots: list[Call]) -> Counter[str]:
    """Locked instructions of all requests, by end; those of calls that are no end's are the server's."""
    found: Counter[str] = Counter()
    for root in roots:
        _locked(root, root.side() or SERVER, found)
    return found


def _locked(call: Call, side: str, found: Counter[str]) -> None:
    for part in call.parts:
        if isinstance(part, Call):
            _locked(part, part.side() or side, found)
        elif isinstance(part, Step):
            found[side] += part.locked


def locked_table(taken: Taken) -> str:
    """A table in Markdown of locked instructions per request."""
    lines = ["| 4 KiB, locked instructions per request | client | server |", "|---|---|---|"]
    for (pattern, depth), steps in taken.steps.items():
        found = locked(calls(steps, taken.functions))
        figures = " | ".join(f"{found[side] / REQUESTS:.1f}" for side in (CLIENT, SERVER))
        lines.append(f"| {pattern.removeprefix('rand')}, depth {depth} | {figures} |")
    return "\n".join(lines)


def walks_of(taken: Taken, folder: Path) -> tuple[list[walk_hops.Walk], int, int]:
    """The walks of the commonest request, how many were like it, and of how many."""
    found = walk_hops.requests(calls(taken.steps[WALKED], taken.functions))
    if not found:
        raise RuntimeError("no request in the trace")
    shapes = Counter(walk_hops.shape(request) for request in found)
    common, count = shapes.most_common(1)[0]
    request = next(request for request in found if walk_hops.shape(request) == common)
    wanted = walk_hops.wanted(request, taken.functions, taken.bases)
    frames = {module: walk_frames.frames(folder / f"{module}.ko", offsets) for module, offsets in wanted.items()}
    return walk_hops.walks(request, taken.functions, taken.bases, frames), count, len(found)


def walks_table(walks: list[walk_hops.Walk]) -> str:
    """A table in Markdown of the walks' lengths."""
    lines = ["| walk of a 4 KiB write | hops | of these in `bindings/` | files | functions entered |",
             "|---|---|---|---|---|"]
    lines += [f"| {walk.title} | {len(walk.hops)} | {walk.of('bindings')} | {walk.files} | {walk.entered} |"
              for walk in walks]
    return "\n".join(lines)


def short(name: str) -> str:
    """A function's name without what it is generic over: `Type::function`."""
    name = re.sub(r"(?<=[\w>])::<.*$", "", name)
    found = re.match(r"^<(.*)>(::\w+)$", name)
    if not found:
        return "::".join(name.split("::")[-2:])
    kind = re.sub(r" as .*$", "", found[1])
    kind = re.sub(r"<.*$", "", kind)
    return kind.split("::")[-1] + found[2]


def listing(walk: walk_hops.Walk) -> str:
    """A walk, hop by hop, in Markdown; deeper ones are indented."""
    least = min((hop.depth for hop in walk.hops), default=0)
    lines = [f"### {walk.title[0].upper()}{walk.title[1:]}", "", "```text"]
    lines += [f"{'  ' * min(hop.depth - least, 12)}{short(hop.name)}  {hop.file}" for hop in walk.hops]
    return "\n".join([*lines, "```", ""])


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command `lab walk`."""
    command = commands.add_parser("walk", help="count hops and locked instructions of a request",
                                  description=__doc__)
    command.add_argument("--modules-dir", type=Path, help="folder of our .ko files")
    command.add_argument("--list", action="store_true", help="print the walks hop by hop, too")
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    modules = module_folders("stock", options.modules_dir)
    for module in MODULES:
        if not walk_frames.has_debug_information(modules["ours"] / f"{module}.ko"):
            raise RuntimeError(f"{modules['ours']}/{module}.ko has no debug information")
    taken = take(modules)
    walks, alike, of = walks_of(taken, modules["ours"])
    print(walks_table(walks))
    print(f"\n{alike} of {of} requests took this way.\n")
    print(locked_table(taken))
    if options.list:
        print()
        for walk in walks:
            print(listing(walk))
    return 0
