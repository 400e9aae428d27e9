# SPDX-License-Identifier: GPL-2.0
"""A screen as a terminal shows it: text with control sequences becomes rows of coloured cells.

Only the sequences that rnbdctl writes are known, and another one is an error, so that no picture is wrong unnoticed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from dataclasses import replace

# One control sequence, or one character.
_TOKEN = re.compile(r"\x1b\[([?>]?)([\d;]*)([A-Za-z])|\x1b([()][A-Z0-9]|[78=>])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|(.)",
                    re.DOTALL)
_NAMED = {30: 0, 40: 0, 90: 8, 100: 8}


@dataclass(frozen=True)
class Style:
    """How a cell looks. A colour is the number of the palette with 256 colours; None is the terminal's own."""

    colour: int | None = None
    background: int | None = None
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underlined: bool = False
    reversed: bool = False


@dataclass(frozen=True)
class Cell:
    """A place of the screen."""

    text: str = " "
    style: Style = Style()


class Screen:
    """A terminal of some size; what is written below its last row moves it up."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns = columns
        self.rows = rows
        self.cells = [self._empty_row() for _ in range(rows)]
        self.row = 0
        self.column = 0
        self.style = Style()

    def _empty_row(self) -> list[Cell]:
        return [Cell()] * self.columns

    def text(self) -> str:
        """The characters, without spaces at the ends of lines."""
        return "\n".join("".join(cell.text for cell in row).rstrip() for row in self.cells)

    def feed(self, text: str) -> None:
        """Takes what a program writes. ValueError for a sequence that is not known here."""
        for found in _TOKEN.finditer(text):
            private, numbers, command, other, character = found.groups()
            if character is not None:
                self._character(character)
            elif command is not None:
                # Modes, such as a hidden cursor or another screen, change nothing here.
                if not (private and command in "hl"):
                    self._command([int(number or 0) for number in numbers.split(";")], private + command)
            elif other in ("7", "8"):
                raise ValueError(f"the sequence ESC {other} is not known")

    def _character(self, character: str) -> None:
        if character == "\n":
            self._next_row()
        elif character == "\r":
            self.column = 0
        elif character == "\b":
            self.column = max(self.column - 1, 0)
        elif character == "\t":
            self.column = min((self.column // 8 + 1) * 8, self.columns - 1)
        elif ord(character) < 32:
            raise ValueError(f"the character {ord(character):#x} is not known")
        else:
            if self.column == self.columns:
                self.column = 0
                self._next_row()
            self.cells[self.row][self.column] = Cell(character, self.style)
            self.column += 1

    def _next_row(self) -> None:
        if self.row + 1 < self.rows:
            self.row += 1
        else:
            self.cells = [*self.cells[1:], self._empty_row()]

    def _command(self, numbers: list[int], command: str) -> None:
        first = numbers[0]
        if command == "m":
            self._styles(numbers)
        elif command in ("H", "f"):
            self.row = min(max(first, 1), self.rows) - 1
            self.column = min(max(numbers[1] if len(numbers) > 1 else 1, 1), self.columns) - 1
        elif command == "G":
            self.column = min(max(first, 1), self.columns) - 1
        elif command in "ABCD":
            self._move(command, max(first, 1))
        elif command == "J" and first == 2:
            self.cells = [self._empty_row() for _ in range(self.rows)]
        elif command == "J" and first == 0:
            self._erase(self.row, self.column)
            for row in range(self.row + 1, self.rows):
                self._erase(row, 0)
        elif command == "K" and first == 0:
            self._erase(self.row, self.column)
        else:
            raise ValueError(f"the sequence CSI {numbers} {command} is not known")

    def _move(self, direction: str, count: int) -> None:
        if direction in "AB":
            self.row = min(max(self.row + (count if direction == "B" else -count), 0), self.rows - 1)
        else:
            self.column = min(max(self.column + (count if direction == "C" else -count), 0), self.columns - 1)

    def _erase(self, row: int, column: int) -> None:
        for place in range(column, self.columns):
            self.cells[row][place] = Cell(" ", Style(background=self.style.background))

    def _styles(self, numbers: list[int]) -> None:
        rest = list(numbers)
        while rest:
            number = rest.pop(0)
            if number in (38, 48):
                if len(rest) < 2 or rest.pop(0) != 5:
                    raise ValueError("only the colours of the palette are known")
                self._colour(number, rest.pop(0))
            else:
                self._simple_style(number)

    def _simple_style(self, number: int) -> None:
        on = {1: "bold", 2: "dim", 3: "italic", 4: "underlined", 7: "reversed"}
        off = {22: ("bold", "dim"), 23: ("italic",), 24: ("underlined",), 27: ("reversed",)}
        base = next((base for base in (30, 40, 90, 100) if base <= number < base + 8), None)
        if number == 0:
            self.style = Style()
        elif number in on:
            self.style = replace(self.style, **{on[number]: True})
        elif number in off:
            self.style = replace(self.style, **dict.fromkeys(off[number], False))
        elif number in (39, 49):
            self._colour(38 if number == 39 else 48, None)
        elif base is not None:
            self._colour(38 if base in (30, 90) else 48, number - base + _NAMED[base])
        elif number != 59:
            raise ValueError(f"the style {number} is not known")

    def _colour(self, what: int, colour: int | None) -> None:
        if what == 38:
            self.style = replace(self.style, colour=colour)
        else:
            self.style = replace(self.style, background=colour)
