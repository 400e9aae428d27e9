# SPDX-License-Identifier: GPL-2.0
"""How much memory a machine has, and whether it got it back."""

from __future__ import annotations

import contextlib
import re

from lab.selftest_case import search
from lab.selftest_case import Test
from lab.vm import wait_until
from lab.vm_node import Node

MIB = 1 << 20
PAGE = 4096
BALLAST = "/tmp/ballast"


def available(node: Node) -> int:
    """Bytes that programs could have; without what caches hold, with what CPUs keep as a stock."""
    node.run("sync; echo 3 >/proc/sys/vm/drop_caches")
    text = node.read("/proc/meminfo")
    stock = sum(int(count) for count in re.findall(r"\bcount:\s+(\d+)",
                                                   node.read("/proc/zoneinfo")))
    return (int(search(r"MemAvailable:\s+(\d+)", text)[1]) << 10) + stock * PAGE


def wait_returned(node: Node, before: int, tolerance: int, what: str) -> int:
    """Wait until a machine has the memory of before again; returns what is missing."""
    missing = 0

    def returned() -> bool:
        nonlocal missing
        missing = before - available(node)
        return missing < tolerance

    try:
        wait_until(returned, 10.0 * node.slow, what)
    except TimeoutError:
        raise AssertionError(f"{what}: {missing} bytes are missing") from None
    return missing


def take(t: Test, node: Node, leave: int) -> None:
    """Leave a machine about so many bytes, until the test is over."""
    node.run(f"mkdir -p {BALLAST}; mount -t tmpfs -o size=100% none {BALLAST}")
    t.defer(node.run, f"umount {BALLAST}; rmdir {BALLAST}")
    count = (available(node) - leave) // MIB
    t.check(count > 0, f"only {available(node)} bytes to begin with")
    node.run(f"dd if=/dev/zero of={BALLAST}/file bs=1M count={count} status=none")


def queues(node: Node) -> int:
    """Bytes of soft-RoCE's queues: those of queue pairs and of completions."""
    pages = re.findall(r"rxe_queue_init.*\bpages=(\d+)", node.read("/proc/vmallocinfo"))
    return sum(int(count) for count in pages) * PAGE


def slabs(node: Node) -> dict[str, int]:
    """The objects in use of each slab of the kernel; what is kept for later is given up first.

    Virtual addresses that were given back are kept until there are 32 MiB of them and more; they
    are not counted.
    """
    node.run("echo 3 >/proc/sys/vm/drop_caches; for f in /sys/kernel/slab/*/shrink; do "
             "echo 1 >$f; done")
    found = {line.split()[0]: int(line.split()[1])
             for line in node.read("/proc/slabinfo").splitlines()[2:]}
    if "vmap_area" in found:
        found["vmap_area"] -= node.read("/proc/vmallocinfo").count("unpurged")
    return found


def grown_slabs(node: Node, before: dict[str, int], rounds: int) -> dict[str, int]:
    """Slabs that have an object more for each round since ``before``, and keep them.

    Of kmalloc's one for every other round, and a hundred in all: those of processes and files come
    and go by dozens.
    """
    def allowed(name: str) -> int:
        return max(rounds // 2, 100) if name.startswith("kmalloc") else rounds + 100

    grown: dict[str, int] = {}

    def shrunk() -> bool:
        nonlocal grown
        grown = {name: count - before.get(name, 0) for name, count in slabs(node).items()
                 if count - before.get(name, 0) > allowed(name)}
        return not grown

    with contextlib.suppress(TimeoutError):
        wait_until(shrunk, 10.0 * node.slow, "slabs")
    return grown
