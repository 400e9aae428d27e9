# SPDX-License-Identifier: GPL-2.0
"""Charts of bars."""

from __future__ import annotations

import unittest
from xml.etree import ElementTree

from lab import bar_panels
from lab import bench_hidden
from lab import bench_parts_chart
from lab.bar_panels import Panel
from lab.bench_report import Measured

SVG = "{http://www.w3.org/2000/svg}"
RECT, GROUP, TITLE = f"{SVG}rect", f"{SVG}g", f"{SVG}title"


def bars_of(group: ElementTree.Element) -> list[tuple[str, float, float]]:
    """The name of each bar's part in a panel, where it begins and how high it is."""
    return [(rect.findtext(TITLE) or "", float(rect.attrib["y"]), float(rect.attrib["height"]))
            for rect in group.iter(RECT)]


class Panels(unittest.TestCase):
    """A panel's bars."""

    def test_the_parts_of_a_bar_stand_on_each_other_inside_of_the_panel(self) -> None:
        panel = Panel("x", ("read",), {"ours": [(1.0, 3.0)], "c": [(2.0, 4.0)]})
        text = bar_panels.chart("t", {"low": "#111", "high": "#222"}, [panel],
                                dict.fromkeys(("ours", "c"), ("#111", "#222")), 1)
        group = next(ElementTree.fromstring(text).iter(GROUP))
        (_, ours_low, low), (_, ours_high, high), *theirs = bars_of(group)
        self.assertAlmostEqual(ours_high + high, ours_low, delta=0.11)
        self.assertAlmostEqual(high / low, 3, delta=0.01)
        self.assertEqual(len(theirs), 2)
        for _, y, tall in bars_of(group):
            self.assertGreaterEqual(y, bar_panels.TOP)
            self.assertLessEqual(y + tall, bar_panels.HEIGHT - bar_panels.BOTTOM + 0.1)

    def test_figures_that_are_all_zero_have_a_panel(self) -> None:
        panel = Panel("fences", ("read",), {"ours": [(0.0,)]})
        text = bar_panels.chart("t", {}, [panel], {"ours": ("#111",)}, 3)
        self.assertEqual([tall for _, _, tall in bars_of(next(ElementTree.fromstring(text).iter(GROUP)))], [0.0])


class Charts(unittest.TestCase):
    """What the charts are made of."""

    def test_the_parts_of_a_request_are_all_of_its_instructions(self) -> None:
        one = Measured(2, 1024, 1, "ours", "randread", 4096, 1, 1e4, 1, 1, 7, 2, 100_000, 10, 1,
                       modules={"kernel": 9e4, "user space": 5e4, "rdma_rxe": 1.6e4, "ib_core": 900.0}, own_per_io=1900)
        parts = bench_parts_chart.parts_of(one)
        self.assertEqual(parts, (1900, 16_900, 81_200))
        self.assertIn("read 4 KiB, depth 1", bench_parts_chart.chart([one]))

    def test_what_instructions_hide_has_a_panel_for_each_figure(self) -> None:
        found = [bench_hidden.Hidden(system, operation.name, dict.fromkeys(bench_hidden.FIGURES, 2.0))
                 for system in ("ours", "c") for operation in bench_hidden.OPERATIONS]
        root = ElementTree.fromstring(bench_hidden.chart(found))
        groups = list(root.iter(GROUP))
        self.assertEqual(len(groups), len(bench_hidden.SHOWN_FIGURES))
        self.assertEqual({len(bars_of(group)) for group in groups}, {2 * len(bench_hidden.OPERATIONS)})


if __name__ == "__main__":
    unittest.main()
