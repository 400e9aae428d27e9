# SPDX-License-Identifier: GPL-2.0
"""The arithmetic of `lab bench --groups`."""

import unittest

from lab import bench_groups
from lab.bench_groups import Cost
from lab.vm_count import KERNEL
from lab.vm_count import Place
from lab.vm_count import Spent
from lab.vm_count import USER

ONE = {"rtrs_client": 500.0, "rtrs_core": 500.0, KERNEL: 9000.0}


def cost(length: int = 4096, **group: float) -> Cost:
    """A write to a group, beside single ones of 10,000 instructions each."""
    return Cost(length, ONE, {"rtrs_client": 900.0, "rtrs_group": 200.0, "rtrs_core": 1000.0, KERNEL: 15000.0} | group)


class Groups(unittest.TestCase):
    def test_a_group_is_compared_with_two_writes(self) -> None:
        found = bench_groups.ratios(cost())
        self.assertAlmostEqual(found[bench_groups.ALL], 17100 / 20000)
        self.assertAlmostEqual(found[bench_groups.CLIENT], 1.1)
        self.assertAlmostEqual(found[bench_groups.WITH_CORE], 1.05)
        self.assertEqual(bench_groups.missed([cost()]), [])

    def test_each_point_of_the_target_can_be_missed(self) -> None:
        for change, name in ((cost(**{KERNEL: 15901}), bench_groups.ALL),
                             (cost(rtrs_group=301), bench_groups.CLIENT),
                             (cost(rtrs_core=1301), bench_groups.WITH_CORE)):
            lines = bench_groups.missed([change])
            self.assertEqual([line.partition(":")[0] for line in lines], [name])

    def test_the_target_is_about_4_kib(self) -> None:
        self.assertEqual(bench_groups.missed([cost(64, rtrs_group=5000)]), [])

    def test_a_program_and_its_functions_are_left_out(self) -> None:
        spent = {Place(USER, ""): Spent(1000, 0), Place(KERNEL, "a"): Spent(1, 1), Place(KERNEL, "b"): Spent(2, 1),
                 Place("rtrs_client", "c"): Spent(4, 1)}
        self.assertEqual(bench_groups.by_module(spent), {KERNEL: 3, "rtrs_client": 4})

    def test_table(self) -> None:
        text = bench_groups.table(cost(rtrs_kv_group=3, other=1))
        self.assertIn("| rtrs_client | 1,000 | 900 | 0.90 |", text)
        self.assertIn("| rtrs_group | 0 | 200 | |", text)
        self.assertIn("| rtrs_kv_group | 0 | 3 | |", text)
        self.assertIn("| the kernel proper | 18,000 | 15,000 | 0.83 |", text)
        self.assertIn("at most 0.90 | | | 0.86 |", text)
        self.assertNotIn("other", text)


if __name__ == "__main__":
    unittest.main()
