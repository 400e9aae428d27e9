# SPDX-License-Identifier: GPL-2.0
"""What plugins see becomes figures per request, and lines with names."""

from __future__ import annotations

import unittest
from collections import Counter

from lab import bench_hidden
from lab.bench_hidden import Hidden
from lab.vm_cache import Misses
from lab.vm_count import KERNEL
from lab.vm_count import Place
from lab.vm_count import Spent
from lab.vm_count import USER
from lab.vm_lines import Names
from lab.vm_lines import Shared

KALLSYMS = """\
ffffffff80001000 T io_read
ffffffff80001100 T io_write
ffffffff80001200 T rust_helper_lock
ffffffff80001220 t __pfx_rust_helper_unlock
ffffffff80001230 T rust_helper_unlock
ffffffff80001280 T other
ffffffff80500000 D jiffies
ffffffffc0001000 t send\t[rtrs_client]
ffffffffc0001080 t answer\t[rtrs_client]
ffffffffc0001100 t reply\t[rtrs_server]
ffffffffc0001200 t foreign\t[nvme_rdma]
ffffffffc0004000 d counters\t[rtrs_client]
"""


class Counts(unittest.TestCase):
    """Figures of the whole kernel and of the own modules."""

    def test_what_is_counted(self) -> None:
        spent = {Place("rtrs_client", "send"): Spent(100, 1, 3, 1, 2),
                 Place(KERNEL, "rust_helper_lock"): Spent(5, 5, 5),
                 Place(USER, ""): Spent(999, 0), Place(KERNEL, "__switch_to"): Spent(70, 7),
                 Place(KERNEL, "asm_sysvec_call_function_single"): Spent(9, 3, 0, 0, 0),
                 Place(KERNEL, "asm_sysvec_apic_timer_interrupt"): Spent(9, 2),
                 Place(KERNEL, "try_to_wake_up"): Spent(40, 4, 4)}
        kernel, own = bench_hidden.counted("ours", spent)
        self.assertEqual(own, {bench_hidden.INSTRUCTIONS: 105, bench_hidden.LOCKED: 8, bench_hidden.FENCES: 1,
                               bench_hidden.MASKS: 2})
        self.assertEqual(kernel["locked instructions"], 12)
        self.assertEqual([kernel[name] for name in (bench_hidden.WAKE_UPS, bench_hidden.SWITCHES,
                                                    bench_hidden.INTERRUPTS, bench_hidden.IPIS)], [4, 7, 5, 3])

    def test_own_modules_of_nvme(self) -> None:
        misses = {Place("nvme_rdma", "a"): Misses(10, 5, 1, 2, 3), Place("rtrs_client", "b"): Misses(10, 5, 1, 1, 1)}
        kernel, own = bench_hidden.missed("nvme", misses)
        self.assertEqual(own, {bench_hidden.L1I: 1, bench_hidden.L1D: 2, bench_hidden.L2: 3})
        self.assertEqual(kernel[bench_hidden.L2], 4)

    def test_a_request_is_what_many_take_more_than_one(self) -> None:
        self.assertEqual(bench_hidden.per_request(Counter(a=50), Counter(a=10), 5), {"a": 10.0})


class Data(unittest.TestCase):
    """Lines have the names of what is there."""

    def setUp(self) -> None:
        self.names = Names(KALLSYMS)

    def test_names(self) -> None:
        self.assertEqual(self.names.start("io_write"), 0xffffffff80001100)
        self.assertEqual(self.names.data(0xffffffff80500008), "jiffies")
        self.assertEqual(self.names.data(0xffffffffc0004010), "rtrs_client: counters")
        self.assertEqual(self.names.data(0xffff888001234000), "")

    def test_ranges_of_modules(self) -> None:
        found = self.names.ranges(lambda place: bench_hidden.is_own("ours", place))
        self.assertEqual(found, [(0xffffffff80001200, 0xffffffff80001280), (0xffffffffc0001000, 0xffffffffc0001200)])

    def test_lines_of_the_same_code_are_one_row(self) -> None:
        send, reply = 0xffffffffc0001004, 0xffffffffc0001104
        shared = [Shared(0xffff888001234000, 20, 10, send, reply), Shared(0xffff888001234040, 20, 10, send, reply),
                  Shared(0xffffffff80500008, 5, 5, reply, send), Shared(0xffffffffc0004000, 1, 1, send, send)]
        self.assertEqual(bench_hidden.handed_over(shared, self.names, 20), [
            (1.0, "memory", "rtrs_server: reply", "rtrs_client: send"),
            (0.25, "jiffies", "rtrs_client: send", "rtrs_server: reply")])


class Tables(unittest.TestCase):
    """What is printed."""

    def test_tables(self) -> None:
        ours = Hidden("ours", "read", {bench_hidden.L2: 1234.5, bench_hidden.WAKE_UPS: 8.0}, {bench_hidden.L2: 3.25},
                      [(0.5, "memory", "a", "b")])
        text = bench_hidden.table([ours, Hidden("c", "read")])
        self.assertIn("| read, per request | ours | c |", text)
        self.assertIn("| L2 misses | 1,234 (3.2) |  |", text)
        self.assertIn("| wake-ups | 8.0 |  |", text)
        self.assertIn("| 0.50 | memory | a | b |", bench_hidden.lines_table([ours]))


if __name__ == "__main__":
    unittest.main()
