# SPDX-License-Identifier: GPL-2.0
"""A picture of a terminal's screen, as SVG."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from itertools import groupby

from .terminal import Screen
from .terminal import Style

# Size of a character, and of the space around all of them, in units of the picture.
WIDTH, HEIGHT, MARGIN = 8, 17, 10
FONT = "'DejaVu Sans Mono', 'Liberation Mono', Menlo, Consolas, monospace"
COLOUR, BACKGROUND = "#d8dee9", "#1d2229"
# Bars of one to eight eighths of a line. A font would leave gaps between the lines.
BLOCKS = "▁▂▃▄▅▆▇█"
# The first 16 colours of the palette.
PALETTE = (
    "#3b4252", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dee9",
    "#7f8794", "#ff8a93", "#b5e08f", "#ffd98f", "#84c7ff", "#e39bf5", "#7fd6e0", "#ffffff",
)


def palette(number: int) -> str:
    """A colour of the palette with 256 colours."""
    if number < 16:
        return PALETTE[number]
    if number >= 232:
        return "#" + f"{8 + 10 * (number - 232):02x}" * 3
    steps = (0, 95, 135, 175, 215, 255)
    cube = number - 16
    return "#" + "".join(f"{steps[cube // base % 6]:02x}" for base in (36, 6, 1))


def picture(screen: Screen, title: str) -> str:
    """The picture; ``title`` is said to people who cannot see it."""
    width, height = screen.columns * WIDTH + 2 * MARGIN, screen.rows * HEIGHT + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" rx="6" fill="{BACKGROUND}"/>',
        f'<g font-family="{FONT}" font-size="13" xml:space="preserve">',
    ]
    for row, cells in enumerate(screen.cells):
        column = 0
        for (style, blocks), run in groupby(cells, key=lambda cell: (cell.style, cell.text in BLOCKS)):
            text = "".join(cell.text for cell in run)
            draw = _bars if blocks else _run
            parts += draw(text, style, MARGIN + column * WIDTH, MARGIN + row * HEIGHT)
            column += len(text)
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"


def _bars(text: str, style: Style, left: int, top: int) -> list[str]:
    """The elements of some characters of `BLOCKS`."""
    colour = COLOUR if style.colour is None else palette(style.colour)
    parts = []
    for number, character in enumerate(text):
        height = HEIGHT * (BLOCKS.index(character) + 1) / 8
        parts.append(f'<rect x="{left + number * WIDTH}" y="{top + HEIGHT - height:g}" width="{WIDTH}" '
                     f'height="{height:g}" fill="{colour}"/>')
    return parts


def _run(text: str, style: Style, left: int, top: int) -> list[str]:
    """The elements of some characters that look alike."""
    if style.reversed:
        style = replace(style, reversed=False)
        colour = BACKGROUND if style.background is None else palette(style.background)
        background = COLOUR if style.colour is None else palette(style.colour)
    else:
        colour = COLOUR if style.colour is None else palette(style.colour)
        background = "" if style.background is None else palette(style.background)
    parts = []
    if background:
        parts.append(f'<rect x="{left}" y="{top}" width="{len(text) * WIDTH}" height="{HEIGHT}" fill="{background}"/>')
    shown = text.rstrip()
    if shown:
        lead = len(shown) - len(shown.lstrip())
        shown = shown.lstrip()
        looks = f'fill="{colour}"'
        looks += ' font-weight="bold"' if style.bold else ""
        looks += ' font-style="italic"' if style.italic else ""
        looks += ' opacity="0.65"' if style.dim else ""
        looks += ' text-decoration="underline"' if style.underlined else ""
        # Whatever font there is, characters stand below each other.
        place = f'x="{left + lead * WIDTH}" y="{top + HEIGHT - 4}" textLength="{len(shown) * WIDTH}"'
        parts.append(f"<text {place} {looks}>{escape(shown)}</text>")
    return parts
