# SPDX-License-Identifier: GPL-2.0
"""`lab bench --hidden`: what instructions do not show, for ours, the C modules and NVMe over RDMA.

Three plugins of the emulator look at the same requests, each in a machine of its own, as each costs time: one counts
instructions and calls of functions (vm_count.c), one models caches (vm_cache.c), and one looks at the cache lines of
data (vm_lines.c). All figures are per request, of both ends and the kernel below them. What the start and the end of
fio take is measured by a run of one request, and subtracted.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import asdict
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path

from . import bar_panels
from . import bench_report
from . import vm_cache
from . import vm_lines
from . import vm_plugin
from .bench_chart import COLOURS
from .bench_systems import prepare
from .bench_systems import SYSTEMS
from .vm import Lab
from .vm import MachineDied
from .vm import Options
from .vm_cache import Caches
from .vm_cache import Misses
from .vm_count import Instructions
from .vm_count import KERNEL
from .vm_count import Place
from .vm_count import Spent
from .vm_count import Symbols
from .vm_count import symbols
from .vm_count import USER
from .vm_lines import Lines
from .vm_lines import Names
from .vm_node import Node
from .vm_platform import platform

DEFAULT = ("ours", "c", "nvme")
REQUESTS = 400
SIZE = 4096
PATTERNS, DEPTHS = ("randread", "randwrite"), (1, 16)
# An Ethernet MTU for an RDMA MTU of 1024, as with --quick.
MTU = 1500
# The modules that are compared, of those that are part of the kernel.
NVME = ("nvme_core", "nvme_fabrics", "nvme_rdma", "nvmet", "nvmet_rdma")
# The kernel's functions by which io_uring begins a request.
BEGINS = ("io_read", "io_write")
# A line is printed if it is handed over once in so many requests.
RARE = 10
SHOWN = 20
ALL, OWN = "kernel", "own modules"

# The figures, in the order of the table: those of the whole kernel, and of these some of the own modules.
LOCKED, FENCES, MASKS = "locked instructions", "fences", "interrupts switched off"
WAKE_UPS, SWITCHES, INTERRUPTS, IPIS = "wake-ups", "context switches", "interrupts", "of these between processors"
INSTRUCTIONS, L1I, L1D, L2 = "instructions", "L1i misses", "L1d misses", "L2 misses"
LINES, HANDOVERS = "lines of data used", "lines handed over"
FIGURES = (INSTRUCTIONS, L1I, L1D, L2, LINES, HANDOVERS, LOCKED, FENCES, MASKS, WAKE_UPS, SWITCHES, INTERRUPTS, IPIS)
OF_OWN = (INSTRUCTIONS, L1I, L1D, L2, LINES, LOCKED, FENCES, MASKS)
SHOWN_FIGURES = (L1I, L1D, L2, LINES, HANDOVERS, LOCKED, MASKS, WAKE_UPS, SWITCHES)
_BETWEEN = ("asm_sysvec_call_function", "asm_sysvec_call_function_single", "asm_sysvec_reschedule_ipi",
            "asm_sysvec_irq_work")
_INTERRUPT = ("asm_sysvec_", "asm_common_interrupt")


@dataclass(frozen=True)
class Operation:
    """A pattern of requests."""

    rw: str
    depth: int

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"{self.rw.removeprefix('rand')} {SIZE >> 10} KiB, depth {self.depth}"


OPERATIONS = tuple(Operation(rw, depth) for rw in PATTERNS for depth in DEPTHS)


@dataclass
class Hidden:
    """What a request of a system takes."""

    system: str
    operation: str
    kernel: dict[str, float] = field(default_factory=dict)
    own: dict[str, float] = field(default_factory=dict)
    # The lines that are handed over most often: how often for each request, what they are, and the code.
    lines: list[tuple[float, str, str, str]] = field(default_factory=list)
    # The lines of data that the own modules use, by the function that uses a line first: the number for each request,
    # and the number of lines on a stack.
    first: list[tuple[str, float, float]] = field(default_factory=list)


def is_own(system: str, place: Place) -> bool:
    """Whether a function is of the modules that are compared, or of what Rust calls for them."""
    if SYSTEMS[system].modules is None:
        return place.module in NVME
    return place.module in bench_report.OWN or place.function.startswith(bench_report.OWN_HELPERS)


def job(operation: Operation, device: str, requests: int) -> str:
    """A file for fio."""
    return "\n".join(["[hidden]", "ioengine=io_uring", "direct=1", "thread=1", "randrepeat=1", f"rw={operation.rw}",
                      f"bs={SIZE}", f"iodepth={operation.depth}", f"number_ios={requests}", "size=512m",
                      f"filename={device}", ""])


Figures = tuple[Counter[str], Counter[str]]


def counted(system: str, spent: Mapping[Place, Spent]) -> Figures:
    """Of the kernel and of the own modules, what the count of instructions and calls says."""
    kernel: Counter[str] = Counter()
    own: Counter[str] = Counter()
    for place, function in spent.items():
        if place.module == USER:
            continue
        for found in (kernel, own) if is_own(system, place) else (kernel,):
            found[INSTRUCTIONS] += function.instructions
            found[LOCKED] += function.locks
            found[FENCES] += function.fences
            found[MASKS] += function.masks
        if place.module != KERNEL:
            continue
        if place.function == "try_to_wake_up":
            kernel[WAKE_UPS] += function.calls
        elif place.function == "__switch_to":
            kernel[SWITCHES] += function.calls
        elif place.function.startswith(_INTERRUPT):
            kernel[INTERRUPTS] += function.calls
            kernel[IPIS] += function.calls if place.function in _BETWEEN else 0
    return kernel, own


def missed(system: str, misses: Mapping[Place, Misses]) -> Figures:
    """Of the kernel and of the own modules, what the modelled caches say."""
    kernel: Counter[str] = Counter()
    own: Counter[str] = Counter()
    for place, function in misses.items():
        if place.module == USER:
            continue
        for found in (kernel, own) if is_own(system, place) else (kernel,):
            found[L1I] += function.l1i
            found[L1D] += function.l1d
            found[L2] += function.l2
    return kernel, own


def per_request(many: Counter[str], one: Counter[str], requests: int) -> dict[str, float]:
    """What a request takes, of runs with many requests and with one."""
    return {name: (count - one[name]) / (requests - 1) for name, count in many.items()}


class Machine:
    """A machine with a plugin, and what is measured in it."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def fio(self, operation: Operation, device: str, requests: int) -> None:
        """Make so many requests."""
        self.node.create("/tmp/job", job(operation, device, requests))
        self.node.run("fio /tmp/job", timeout=600)

    def differences(self, found: Hidden, operation: Operation, device: str, take: Callable[[int], Figures]) -> None:
        """Add what many requests take more than one. ``take`` makes so many and says what they took."""
        # The first run fills what is kept, of fio and of the kernel.
        self.fio(operation, device, REQUESTS // 4)
        one, many = take(1), take(REQUESTS)
        found.kernel |= per_request(many[0], one[0], REQUESTS)
        found.own |= per_request(many[1], one[1], REQUESTS)


Look = Callable[[Machine, Hidden, Operation, str], None]


def look_at_instructions(machine: Machine, found: Hidden, operation: Operation, device: str) -> None:
    """What vm_count.c sees."""
    executed = Instructions(machine.node.count_socket)
    known = symbols(machine.node)

    def take(requests: int) -> Figures:
        executed.reset()
        machine.fio(operation, device, requests)
        return counted(found.system, executed.spent(known))

    machine.differences(found, operation, device, take)
    executed.close()


def look_at_caches(machine: Machine, found: Hidden, operation: Operation, device: str) -> None:
    """What vm_cache.c sees."""
    caches = Caches(machine.node.count_socket)
    known: Symbols = symbols(machine.node)

    def take(requests: int) -> Figures:
        caches.begin()
        machine.fio(operation, device, requests)
        return missed(found.system, caches.end(known))

    machine.differences(found, operation, device, take)
    caches.close()


def look_at_lines(machine: Machine, found: Hidden, operation: Operation, device: str) -> None:
    """What vm_lines.c sees."""
    lines = Lines(machine.node.count_socket)
    known = vm_lines.names(machine.node)
    machine.fio(operation, device, REQUESTS // 4)
    lines.begin([known.start(name) for name in BEGINS], REQUESTS - 1,
                known.ranges(lambda place: is_own(found.system, place)))
    machine.fio(operation, device, REQUESTS)
    totals, shared = lines.end()
    first = lines.first()
    lines.close()
    if totals.requests < REQUESTS // 2:
        raise RuntimeError(f"{found.system}, {operation.name}: only {totals.requests} requests were seen")
    found.kernel |= {LINES: totals.kernel / totals.requests, HANDOVERS: totals.handovers / totals.requests}
    found.own |= {LINES: totals.modules / totals.requests}
    found.lines = handed_over(shared, known, totals.requests)
    found.first = used_first(first, known.functions, totals.requests)


def used_first(first: Sequence[vm_lines.First], known: Symbols, requests: int) -> list[tuple[str, float, float]]:
    """The functions that use lines first, with the lines of a request and those on a stack."""
    rows: Counter[str] = Counter()
    stacks: Counter[str] = Counter()
    for one in first:
        place, _ = known.place(one.code)
        name = f"{place.module}: {place.function}"
        rows[name] += one.lines
        stacks[name] += one.of_stack
    return [(name, count / requests, stacks[name] / requests) for name, count in rows.most_common()
            if count * RARE >= requests]


def handed_over(shared: Sequence[vm_lines.Shared], known: Names,
                requests: int) -> list[tuple[float, str, str, str]]:
    """The lines that are handed over most often, those without a name together by the code that writes them."""
    rows: Counter[tuple[str, str, str]] = Counter()
    for line in shared:
        code = [known.functions.place(address)[0] for address in (line.code_before, line.code)]
        before, after = (f"{place.module}: {place.function}" for place in code)
        rows[known.data(line.address) or "memory", before, after] += line.handovers
    return [(count / requests, *row) for row, count in rows.most_common(SHOWN) if count * RARE >= requests]


PARTS: dict[str, Look] = {"vm_count": look_at_instructions, "vm_cache": look_at_caches, "vm_lines": look_at_lines}


@contextmanager
def _machine(modules: dict[str, Path], plugin: str) -> Iterator[Machine]:
    lab = Lab(platform("stock", modules), "one",
              Options(cpus=2, mtu=MTU, icount=True, kernel_args=["transparent_hugepage=never"],
                      plugin=vm_plugin.compiled(plugin)))
    try:
        lab.start(timeout=300)
        yield Machine(lab.client)
    except (MachineDied, TimeoutError):
        print(lab.last_words(40), file=sys.stderr)
        raise
    finally:
        lab.close()


def measure(modules: dict[str, Path], systems: Sequence[str]) -> list[Hidden]:
    """Boot the machines, and look at the systems in each."""
    found = {(system, operation.name): Hidden(system, operation.name)
             for operation in OPERATIONS for system in systems}
    for plugin, look in PARTS.items():
        with _machine(modules, plugin) as machine:
            for system in systems:
                with prepare(machine.node, system, 1) as ready:
                    for operation in OPERATIONS:
                        look(machine, found[system, operation.name], operation, ready.devices[0])
                print(f"  {plugin}: {system}", flush=True)
    return list(found.values())


def table(found: Sequence[Hidden]) -> str:
    """A table in Markdown for each operation; in brackets the part of the own modules."""
    lines = [f"Caches: {vm_cache.SIZES}."]
    for name in dict.fromkeys(one.operation for one in found):
        here = [one for one in found if one.operation == name]
        lines += ["", f"| {name}, per request | " + " | ".join(one.system for one in here) + " |",
                  "|---" * (len(here) + 1) + "|"]
        for figure in FIGURES:
            cells = [_cell(one.kernel.get(figure), one.own.get(figure) if figure in OF_OWN else None) for one in here]
            lines.append(f"| {figure} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def chart(found: Sequence[Hidden]) -> str:
    """An SVG with a panel for each figure in `SHOWN_FIGURES`, of the whole kernel."""
    systems = list(dict.fromkeys(one.system for one in found))
    operations = list(dict.fromkeys(one.operation for one in found))
    by_place = {(one.system, one.operation): one.kernel for one in found}
    groups = tuple(operation.replace(f" {SIZE >> 10} KiB, depth", ",") for operation in operations)
    panels = [bar_panels.Panel(figure, groups, {
        system: [(by_place[system, operation].get(figure, 0.0),) for operation in operations]
        for system in systems}) for figure in SHOWN_FIGURES]
    return bar_panels.chart("Per request of 4 KiB, 1 and 16 at a time: both ends, network and kernel, MTU 1024, 2 CPUs",
                            {system: COLOURS[system] for system in systems}, panels,
                            {system: (COLOURS[system],) for system in systems}, 3)


def _cell(kernel: float | None, own: float | None) -> str:
    if kernel is None:
        return ""
    digits = 0 if kernel >= 100 else 1
    return f"{kernel:,.{digits}f}" + (f" ({own:,.1f})" if own is not None else "")


def lines_table(found: Sequence[Hidden]) -> str:
    """A table in Markdown of the lines that are handed over, of each system's operations."""
    lines = []
    for one in found:
        lines += ["", f"| {one.system}, {one.operation}: handed over per request | data | written by | then by |",
                  "|---|---|---|---|"]
        lines += [f"| {count:.2f} | {data} | {before} | {after} |" for count, data, before, after in one.lines]
    return "\n".join(lines) + "\n"


def first_table(found: Sequence[Hidden]) -> str:
    """A table in Markdown of the lines of data that each system's own modules use, by function."""
    lines = []
    for one in found:
        lines += ["", f"| {one.system}, {one.operation}: lines used first by | per request | on a stack |",
                  "|---|---|---|",
                  f"| all | {one.own.get(LINES, 0.0):.1f} | {sum(stack for _, _, stack in one.first):.1f} |"]
        lines += [f"| {name} | {count:.1f} | {stack:.1f} |" for name, count, stack in one.first]
    return "\n".join(lines) + "\n"


def write(out: Path, found: Sequence[Hidden]) -> str:
    """Write all figures; returns the tables of the counts."""
    out.mkdir(parents=True, exist_ok=True)
    text = table(found)
    (out / "hidden.txt").write_text(text + lines_table(found) + first_table(found))
    (out / "hidden.svg").write_text(chart(found))
    (out / "hidden.json").write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")
    return text
