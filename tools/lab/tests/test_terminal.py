# SPDX-License-Identifier: GPL-2.0
"""Screens of terminals, and their pictures."""

from __future__ import annotations

import re
import unittest
from xml.etree import ElementTree

from lab import terminal_svg
from lab.terminal import Screen
from lab.terminal import Style


def screen(text: str, columns: int = 10, rows: int = 3) -> Screen:
    """A screen on which a text was written."""
    made = Screen(columns, rows)
    made.feed(text)
    return made


class Screens(unittest.TestCase):
    def test_lines_and_a_full_screen(self) -> None:
        self.assertEqual(screen("a\r\nb\r\n").text(), "a\nb\n")
        self.assertEqual(screen("a\r\nb\r\nc\r\nd").text(), "b\nc\nd")
        self.assertEqual(screen("0123456789ab").text(), "0123456789\nab\n")

    def test_places(self) -> None:
        self.assertEqual(screen("\x1b[2;3Hx\x1b[1;1Hy\x1b[5Gz").text(), "y   z\n  x\n")
        self.assertEqual(screen("abc\x1b[2J\x1b[HX").text(), "X\n\n")
        self.assertEqual(screen("abcd\r\x1b[2C\x1b[K").text(), "ab\n\n")
        self.assertEqual(screen("\x1b[?1049h\x1b[?25la\x1b[?25h").text(), "a\n\n")

    def test_looks(self) -> None:
        row = screen("\x1b[1;31ma\x1b[22;39mb\x1b[38;5;200;48;5;3mc\x1b[0md\x1b[7;92me").cells[0]
        self.assertEqual([cell.style for cell in row[:5]], [
            Style(colour=1, bold=True), Style(), Style(colour=200, background=3), Style(),
            Style(colour=10, reversed=True)])

    def test_what_is_not_known_is_an_error(self) -> None:
        for text in ("\x1b[3z", "\x1b[38;2;1;2;3m", "\x07", "\x1b[1J"):
            with self.assertRaises(ValueError):
                screen(text)


class Pictures(unittest.TestCase):
    def test_every_character_is_at_its_place(self) -> None:
        drawn = terminal_svg.picture(screen("a <\x1b[44m&b \x1b[0m\r\n\x1b[1mc"), "it & that")
        root = ElementTree.fromstring(drawn)
        texts = [(float(element.attrib["x"]), element.text, element.attrib["textLength"])
                 for element in root.iter("{http://www.w3.org/2000/svg}text")]
        left, width = terminal_svg.MARGIN, terminal_svg.WIDTH
        self.assertEqual(texts, [(left, "a <", f"{3 * width}"), (left + 3 * width, "&b", f"{2 * width}"),
                                 (left, "c", f"{width}")])
        self.assertEqual(len(re.findall("<rect", drawn)), 2)
        self.assertTrue(drawn.endswith("</svg>\n"))

    def test_bars_fill_their_line(self) -> None:
        root = ElementTree.fromstring(terminal_svg.picture(screen("█▄"), ""))
        bars = [element.attrib for element in root.iter("{http://www.w3.org/2000/svg}rect")][1:]
        self.assertEqual([float(bar["height"]) for bar in bars], [terminal_svg.HEIGHT, terminal_svg.HEIGHT / 2])
        self.assertEqual({float(bar["y"]) + float(bar["height"]) for bar in bars},
                         {float(terminal_svg.MARGIN + terminal_svg.HEIGHT)})

    def test_colours(self) -> None:
        self.assertEqual([terminal_svg.palette(number) for number in (16, 21, 231, 232, 255)],
                         ["#000000", "#0000ff", "#ffffff", "#080808", "#eeeeee"])
