# SPDX-License-Identifier: GPL-2.0
"""What in a kernel log fails a test, and the reports that are known not to be of these modules."""

from __future__ import annotations

import re

# A kernel message that fails a test, whatever level it was logged at.
TROUBLE = re.compile(
    r"WARNING:|BUG:|BUG |Oops|Kernel panic|general protection|KASAN|KFENCE|UBSAN|KMSAN"
    r"|refcount_t|lockdep|deadlock|inconsistent lock|INFO: (?!NMI handler)|unsafe locking|unlock balance"
    r"|blocked for more than|soft lockup|hard LOCKUP|rcu.*stall|Call Trace|cut here"
    r"|kobject.*tried to|sysfs: cannot create duplicate|list_(add|del) corruption"
    r"|sleeping function called|scheduling while atomic|suspicious RCU|memory leak"
    r"|Unable to handle|stack-protector|DMA-API:|ODEBUG|rust_kernel: panicked|Objects remaining"
    r"|page allocation failure|bad: scheduling|unreferenced object|slab.*not empty")

# Reports that soft-RoCE makes with any user of it, and the C client; Documentation/test-results.md says how.
KNOWN = {
    "soft-RoCE queues a packet for a queue pair that is being destroyed":
        re.compile(r"WARNING: \S*\brxe_task\.c:\d+ at (rxe_sched_task|__reserve_if_idle)\b"),
    "the C client is unloaded while it frees a session":
        re.compile(r"WARNING: \S*\brnbd-clt\.c:\d+ at rnbd_client_exit\b"),
}

# What the kernel says, with a stack, of each large allocation that fails, as a test has some do.
NO_MEMORY = re.compile(r": vmalloc error: ")
END_OF_STACK = "</TASK>"
LONGEST_STACK = 200

BEGIN = "[ cut here ]"
END = "---[ end trace"
LINES_AFTER = 12


# RCU saw no CPU move: not the one that it waits for, nor that of its own thread.
STARVED = re.compile(r"rcu: .* kthread starved for")


def stood_still(trouble: list[str]) -> bool:
    """Whether all that a kernel has to complain of is that its machine stood still, which the
    emulator's host does to it."""
    bad = [line for line in trouble if TROUBLE.search(line) and "Call Trace:" not in line]
    return any(STARVED.search(line) for line in trouble) and all(line.startswith("rcu: ") for line in bad)


def _known(report: list[str]) -> str | None:
    """Which known report this is, if it is one and nothing else is in between."""
    bad = [line for line in report if TROUBLE.search(line)]
    rest = [line for line in bad if BEGIN not in line and "Call Trace:" not in line]
    for what, pattern in KNOWN.items():
        if len(rest) == 1 and pattern.search(rest[0]):
            return what
    return None


def troubled(lines: list[str], allocations_fail: bool = False) -> tuple[list[str], list[str]]:
    """The lines of trouble with what follows each, and which known reports there were.

    ``allocations_fail``: a test has them fail, which is no trouble.
    """
    trouble: list[str] = []
    known: list[str] = []
    keep = at = 0
    while at < len(lines):
        if BEGIN in lines[at]:
            ends = (end for end in range(at + 1, len(lines)) if END in lines[end])
            end = next(ends, None)
            what = _known(lines[at:end]) if end else None
            if what and end:
                known.append(what)
                at = end + 1
                continue
        if allocations_fail and NO_MEMORY.search(lines[at]):
            stack = range(at + 1, min(at + LONGEST_STACK, len(lines)))
            at = next((end for end in stack if END_OF_STACK in lines[end]), at)
        elif TROUBLE.search(lines[at]):
            keep = LINES_AFTER
        if keep:
            trouble.append(lines[at])
            keep -= 1
        at += 1
    return trouble, known
