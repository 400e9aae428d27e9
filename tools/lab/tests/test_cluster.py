# SPDX-License-Identifier: GPL-2.0
"""The parts of `lab cluster-test` that need no machine."""

import tempfile
import unittest
from pathlib import Path

from lab import cluster_migration
from lab import cluster_test
from lab.cluster_story import Story


class Cluster(unittest.TestCase):
    def test_the_way_back_is_the_way_there_with_the_hosts_exchanged(self) -> None:
        there = "blkpr -c preempt -K 0x20 -k 0x10; migrate tcp:198.51.100.21:4444; ping 198.51.100.20; ls 192.0.2.10"
        back = "blkpr -c preempt -K 0x10 -k 0x20; migrate tcp:198.51.100.20:4444; ping 198.51.100.21; ls 192.0.2.10"
        self.assertEqual(cluster_migration.exchanged(there), back)
        self.assertEqual(cluster_migration.exchanged(back), there)

    def test_a_gap_is_found(self) -> None:
        self.assertEqual(cluster_migration.follow([4, 5, 6, 7]), [])
        self.assertEqual(cluster_migration.follow([]), [])
        self.assertEqual(cluster_migration.follow([1, 2, 3, 5, 6]), [1, 2, 3, 5, 6])
        self.assertEqual(cluster_migration.follow([1, 2, 2]), [1, 2, 2])

    def test_each_part_has_its_cases(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            named = {part: [case.__name__ for case in cluster_test.cases(Story(Path(folder)), part)]
                     for part in (None, *cluster_test.PARTS)}
        self.assertIn("host_stands_still", named["pacemaker"])
        self.assertNotIn("machine_moves", named["pacemaker"])
        self.assertIn("machine_moves", named["qemu"])
        self.assertEqual(set(named[None]) | {"other_recipe_is_skipped"}, set(named["pacemaker"]) | set(named["qemu"]))
