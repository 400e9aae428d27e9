# SPDX-License-Identifier: GPL-2.0
"""`lab budget`: what a request costs in counts that do not depend on time, held to budget.toml.

One machine is client and server at once, and its clock counts instructions. fio makes each operation's requests; what
its start and its end take is measured by a run of one request, and subtracted. An operation that costs more than the
file says is measured up to three times more, and only what each time exceeds is an error. Documentation/benchmarks.md
has more.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path

from . import bench_report
from . import budget_file
from . import paths
from . import vm_plugin
from . import walk_frames
from .bench_systems import prepare
from .bench_systems import Ready
from .budget_file import CALLS
from .budget_file import Cost
from .budget_file import Costs
from .budget_file import INSTRUCTIONS
from .budget_file import LOCKS
from .vm import Lab
from .vm import MachineDied
from .vm import Options
from .vm_count import Instructions
from .vm_count import KERNEL
from .vm_count import Place
from .vm_count import Spent
from .vm_count import Symbols
from .vm_count import symbols
from .vm_node import Node
from .vm_platform import module_folders
from .vm_platform import platform

KIB = 1 << 10
_DIGEST = re.compile(r"\[[0-9a-f]{9,16}\]")
# Counts at depth 16 differ by up to 4 % from run to run, as requests complete together or not.
MORE_RUNS = 3
# An Ethernet MTU of 4500; then each message of these sizes has one acknowledgement.
MTU, RDMA_MTU = 4500, 4096
PACKETS = "/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts"
WAKES = "try_to_wake_up"
# The kernel's functions by which our modules have messages sent and tasks woken; their calls are in the file, too.
CAUSES = frozenset({
    "rxe_post_send", "rxe_post_recv", "rxe_req_notify_cq", "rxe_reg_fast_mr", "queue_work_on", "mod_delayed_work_on",
    "complete", "complete_all", "__wake_up", "wake_up_process", "blk_mq_complete_request", "irq_poll_sched",
    "smp_call_function_single_async", WAKES,
})  # fmt: skip


@dataclass(frozen=True)
class Operation:
    """A pattern of requests."""

    rw: str
    size: int
    depth: int
    requests: int

    @property
    def name(self) -> str:
        """What budget.toml calls it."""
        return f"{self.rw.removeprefix('rand')} {self.size // KIB} KiB, depth {self.depth}"


OPERATIONS = tuple(Operation(rw, size, depth, requests)
                   for size, requests in ((4 * KIB, 800), (64 * KIB, 300))
                   for rw in ("randread", "randwrite") for depth in (1, 16))


@dataclass
class Run:
    """What a run of fio takes in all."""

    requests: int
    packets: int
    wake_ups: int = 0
    # By the names of `budget_file.OF_FUNCTIONS`, and by function.
    functions: dict[str, Counter[str]] = field(
        default_factory=lambda: {kind: Counter() for kind in budget_file.OF_FUNCTIONS})


def is_own(place: Place) -> bool:
    """Whether a function is of our modules, or what the kernel has for Rust in place of C's inline functions."""
    return place.module in bench_report.OWN or place.function.startswith(bench_report.OWN_HELPERS)


def demangled(names: list[str]) -> dict[str, str]:
    """Names of functions as they are written in the sources, without the digests of crates, which change."""
    argv = walk_frames.tool("c++filt")
    done = subprocess.run(argv, input="\n".join(names), capture_output=True, text=True, check=True)
    return {name: _DIGEST.sub("", line) for name, line in zip(names, done.stdout.splitlines(), strict=True)}


def run_of(requests: int, packets: int, spent: Mapping[Place, Spent], names: Mapping[str, str]) -> Run:
    """What so many requests took, by function."""
    run = Run(requests, packets)
    for place, function in spent.items():
        if place.function == WAKES and place.module == KERNEL:
            run.wake_ups += function.calls
        own = is_own(place)
        if not own and place.function not in CAUSES:
            continue
        name = f"{place.module}: {names.get(place.function, place.function)}"
        run.functions[CALLS][name] += function.calls
        if own:
            run.functions[INSTRUCTIONS][name] += function.instructions
            run.functions[LOCKS][name] += function.locks
    return run


def cost_of(operation: Operation, run: Run, start: Run) -> Cost:
    """What a request takes, of a run with many and of one with a single request."""
    count = run.requests - start.requests
    packets = (run.packets - start.packets) / count
    functions = {kind: {name: max(figure - start.functions[kind][name], 0) / count
                        for name, figure in run.functions[kind].items()} for kind in budget_file.OF_FUNCTIONS}
    return Cost({
        budget_file.PACKETS: packets,
        budget_file.MESSAGES: bench_report.messages(packets, operation.rw, operation.size, RDMA_MTU),
        budget_file.OWN: sum(functions[INSTRUCTIONS].values()),
        budget_file.LOCKED: sum(functions[LOCKS].values()),
        budget_file.WAKE_UPS: (run.wake_ups - start.wake_ups) / count,
    }, functions)


def job(operation: Operation, device: str, requests: int) -> str:
    """A file for fio."""
    return "\n".join(["[budget]", "ioengine=io_uring", "direct=1", "thread=1", "randrepeat=1", f"rw={operation.rw}",
                      f"bs={operation.size}", f"iodepth={operation.depth}", f"number_ios={requests}", "size=512m",
                      f"filename={device}", ""])


class Measuring:
    """A machine with a device, in which operations are measured."""

    def __init__(self, node: Node, ready: Ready, known: Symbols) -> None:
        self._node = node
        self._device = ready.devices[0]
        self._known = known
        self._executed = Instructions(node.count_socket)
        self._names: dict[str, str] = {}
        self._starts: dict[str, Run] = {}

    def _run(self, operation: Operation, requests: int) -> Run:
        self._node.create("/tmp/job", job(operation, self._device, requests))
        before = int(self._node.read(PACKETS))
        self._executed.reset()
        report = self._node.run("fio --output-format=json /tmp/job", timeout=300).out
        spent = self._executed.spent(self._known)
        packets = int(self._node.read(PACKETS)) - before
        end = json.loads(report[report.index("{"):])["jobs"][0]
        done = end["read"]["total_ios"] + end["write"]["total_ios"]
        if end["error"] or done < requests:
            raise RuntimeError(f"{operation.name}: {done} of {requests} requests were done, fio error {end['error']}")
        unknown = sorted({place.function for place in spent if is_own(place)} - self._names.keys())
        self._names |= demangled(unknown) if unknown else {}
        return run_of(done, packets, spent, self._names)

    def cost(self, operation: Operation) -> Cost:
        """What a request takes."""
        if operation.rw not in self._starts:
            self._starts[operation.rw] = self._run(operation, 1)
        return cost_of(operation, self._run(operation, operation.requests), self._starts[operation.rw])


def measure(modules: dict[str, Path], allowed: Costs) -> Costs:
    """Boot a machine, and measure each operation in it; again if it takes more than is allowed."""
    lab = Lab(platform("stock", modules), "one",
              Options(cpus=2, mtu=MTU, icount=True, kernel_args=["transparent_hugepage=never"],
                      plugin=vm_plugin.compiled("vm_count")))
    found = {}
    try:
        lab.start(timeout=120)
        with prepare(lab.client, "ours", 1) as ready:
            measuring = Measuring(lab.client, ready, symbols(lab.client))
            for operation in OPERATIONS:
                cost = measuring.cost(operation)
                before = allowed.get(operation.name)
                for _ in range(MORE_RUNS):
                    if not before or not budget_file.exceeded(operation.name, before, cost):
                        break
                    cost = budget_file.lesser(cost, measuring.cost(operation))
                found[operation.name] = cost
    except (MachineDied, TimeoutError):
        print(lab.last_words(40), file=sys.stderr)
        raise
    finally:
        lab.close()
    return found


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command `lab budget`."""
    command = commands.add_parser("budget", help="hold what a request costs to budget.toml", description=__doc__)
    command.add_argument("--modules-dir", type=Path, help="folder of our .ko files")
    command.add_argument("--write", action="store_true", help="write what is measured to budget.toml")
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    started = time.monotonic()
    allowed = {} if options.write else budget_file.read(paths.CHECKOUT)
    found = measure(module_folders("stock", options.modules_dir), allowed)
    print(budget_file.table(allowed, found))
    print(f"{len(found)} operations in {time.monotonic() - started:.0f} s")
    if options.write:
        (paths.CHECKOUT / budget_file.FILE).write_text(budget_file.text(found))
        return 0
    for line in budget_file.lower(allowed, found):
        print(f"less than the budget, which can be lowered: {line}")
    problems = budget_file.errors(allowed, found)
    for line in problems:
        print(line)
    return int(bool(problems))
