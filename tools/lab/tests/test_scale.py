# SPDX-License-Identifier: GPL-2.0
"""The tables and the chart of `lab scale`."""

from __future__ import annotations

import json
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

from lab import scale
from lab import scale_report
from lab import scale_target
from lab.scale_report import Point

POINTS = [Point("unmapped: s", "ours", 1, 0.05), Point("unmapped: s", "ours", 1000, 40.0),
          Point("unmapped: s", "c", 1, 0.04), Point("unmapped: s", "c", 1000, 50.0),
          Point("memory: MiB", "ours", 10, 700.0)]
SVG = "{http://www.w3.org/2000/svg}"


class Report(unittest.TestCase):
    """Points become tables and a chart."""

    def test_ours_is_compared_with_c(self) -> None:
        text = scale_report.table(POINTS)
        self.assertIn("| unmapped: s | ours | c | ours over c |", text)
        self.assertIn("| 1,000 | 40.00 | 50.00 | 0.80 |", text)
        self.assertIn("| 10 | 700.00 | |", text)

    def test_chart_has_a_line_for_each_system_and_a_dot_for_each_point(self) -> None:
        root = ElementTree.fromstring(scale_report.chart(POINTS))
        self.assertEqual(len(list(root.iter(f"{SVG}polyline"))), 3)
        self.assertEqual(len(list(root.iter(f"{SVG}circle"))), len(POINTS))
        titles = [text.text for text in root.iter(f"{SVG}text")]
        self.assertIn("unmapped: s", titles)
        self.assertIn("memory: MiB", titles)

    def test_dots_are_inside_of_their_panel(self) -> None:
        root = ElementTree.fromstring(scale_report.chart(POINTS))
        for dot in root.iter(f"{SVG}circle"):
            self.assertTrue(0 <= float(dot.attrib["cx"]) <= scale_report.PANEL_WIDTH, dot.attrib)
            self.assertTrue(0 <= float(dot.attrib["cy"]) <= scale_report.PANEL_HEIGHT, dot.attrib)

    def test_all_is_written(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "bench"
            text = scale.write(out, POINTS)
            self.assertEqual((out / "scale.txt").read_text(), text)
            self.assertEqual(len(json.loads((out / "scale.json").read_text())), len(POINTS))
            self.assertTrue((out / "scale.svg").exists())


class Target(unittest.TestCase):
    """Ours is held to C, and to itself with few."""

    def test_the_largest_count_is_compared_with_c(self) -> None:
        self.assertEqual(scale_target.missed(POINTS), [])
        slower = [*POINTS[:1], Point("unmapped: s", "ours", 1000, 55.0), *POINTS[2:]]
        (line,) = scale_target.missed(slower)
        self.assertIn("55.00 with 1,000, 1.10 times what C takes", line)

    def test_own_instructions_stay_flat(self) -> None:
        points = [Point("own instructions of a read, by devices", "ours", count, figure)
                  for count, figure in ((1, 1000.0), (4, 1040.0), (64, 1100.0))]
        (line,) = scale_target.missed(points)
        self.assertIn("1100 with 64, 1.10 times", line)

    def test_few_connections_are_held_to_a_connection_for_each_processor(self) -> None:
        points = [Point("own instructions of a read, by connections", "ours", count, figure)
                  for count, figure in ((1, 1900.0), (8, 2000.0))]
        self.assertEqual(scale_target.missed(points), [])
        (line,) = scale_target.missed([Point(points[0].curve, "ours", 1, 2200.0), *points[1:]])
        self.assertIn("2200 with 1, 1.10 times", line)


if __name__ == "__main__":
    unittest.main()
