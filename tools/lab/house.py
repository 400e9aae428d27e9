# SPDX-License-Identifier: GPL-2.0
"""`lab house`: limits of the Rust sources that no compiler knows.

No line is longer than 100 columns, no function than 60 lines, no file than 600; unsafe
code is in bindings/ only; and nothing hides a failure behind a number. Tests are free of
all but the first. What the tree does not keep to yet is in ratchet.toml, and so are the
few reviewed places that may use a pattern below.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import paths
from . import ratchet
from . import rust_source

COLUMNS = 100
FUNCTION = 60
FILE = 600
LONG_LINES = f"lines over {COLUMNS} columns"
LONG_FUNCTIONS = f"lines of functions over {FUNCTION}"
LONG_FILES = f"lines of files over {FILE}"
UNSAFE = "unsafe outside of bindings"
# Where unsafe code may be.
UNSAFE_PLACES = ("bindings/",)
# What hides that something went wrong; each use is reviewed, and counted in ratchet.toml.
PATTERNS = {
    "unwrap_or of a number": re.compile(r"\bunwrap_or\(\s*\d\w*\s*\)|\bunwrap_or_default\(\)"),
    "saturating arithmetic": re.compile(r"\bsaturating_\w+"),
}
# Besides the crates of the modules.
PROGRAMS = ("tools/rnbdctl", "tools/rnbd-csi")


@dataclass(frozen=True)
class Function:
    """A function's name, and its first and last line."""

    name: str
    start: int
    end: int


def functions(words: list[rust_source.Token]) -> Iterator[Function]:
    """All functions with a body, also those inside of others."""
    open_: list[tuple[str, int] | None] = []
    waiting: tuple[str, int] | None = None
    for at, word in enumerate(words):
        following = words[at + 1].text if at + 1 < len(words) else ""
        if word.text == "fn" and following.isidentifier():
            waiting = (following, word.line)
        elif word.text == ";" and waiting and not _in_brackets(words, at):
            waiting = None
        elif word.text == "{":
            open_.append(waiting)
            waiting = None
        elif word.text == "}" and open_:
            ended = open_.pop()
            if ended:
                yield Function(*ended, word.line)


def _in_brackets(words: list[rust_source.Token], at: int) -> bool:
    """Whether a semicolon is that of an array's type, as in `fn f(a: [u8; 4])`."""
    depth = 0
    for word in reversed(words[max(0, at - 40):at]):
        if word.text == "]":
            depth += 1
        elif word.text == "[":
            if not depth:
                return True
            depth -= 1
        elif word.text in ("fn", "{", "}"):
            break
    return False


def sources(checkout: Path) -> list[Path]:
    """All Rust files of the project."""
    folders = [*rust_source.CRATES.values(), *PROGRAMS]
    return [path for folder in folders for path in sorted((checkout / folder).rglob("*.rs"))
            if "target" not in path.relative_to(checkout).parts]


def offences(checkout: Path) -> dict[str, dict[str, ratchet.Found]]:
    """By rule: a figure, and where.

    Of a function or file that is too long its length, else a number by folder.
    """
    rules = [LONG_LINES, LONG_FUNCTIONS, LONG_FILES, UNSAFE, *PATTERNS]
    found: dict[str, dict[str, ratchet.Found]] = {rule: {} for rule in rules}
    for path in sources(checkout):
        name = path.relative_to(checkout).as_posix()
        text = path.read_text()
        lines = text.split("\n")
        _each(found[LONG_LINES], name, [number for number, line in enumerate(lines, 1)
                                        if len(line.expandtabs(4)) > COLUMNS])
        if rust_source.is_test(path.relative_to(checkout)):
            continue
        if len(lines) - 1 > FILE:
            found[LONG_FILES][name] = ratchet.Found(len(lines) - 1, [])
        code = rust_source.without_tests(rust_source.code(text))
        for function in functions(rust_source.words(code)):
            length = function.end - function.start + 1
            key = f"{name}: {function.name}"
            if length > max(FUNCTION, found[LONG_FUNCTIONS].get(key, ratchet.Found(0, [])).figure):
                found[LONG_FUNCTIONS][key] = ratchet.Found(length, [f"{name}:{function.start}"])
        if not name.startswith(UNSAFE_PLACES):
            _each(found[UNSAFE], name, _matching(code, re.compile(r"\bunsafe\b")))
        for rule, pattern in PATTERNS.items():
            if not name.startswith(PROGRAMS):
                _each(found[rule], name, _matching(code, pattern))
    return found


def _matching(code: str, pattern: re.Pattern[str]) -> list[int]:
    """The line of each match."""
    return [number for number, line in enumerate(code.split("\n"), 1) for _ in pattern.finditer(line)]


def _each(found: dict[str, ratchet.Found], name: str, lines: list[int]) -> None:
    if lines:
        program = next((program for program in PROGRAMS if name.startswith(f"{program}/")), None)
        folder = program or name.split("/")[0]
        where = found.get(folder, ratchet.NOTHING).where + [f"{name}:{number}" for number in lines]
        found[folder] = ratchet.Found(len(where), where)


def check(checkout: Path, lower: bool = False) -> list[str]:
    """What is wrong with the sources; empty if nothing is."""
    allowed = ratchet.Ratchet(checkout)
    errors: list[str] = []
    for rule, found in offences(checkout).items():
        errors += allowed.compare(rule, found, lower)
    if lower:
        allowed.write()
    return errors


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command `lab house`."""
    command = commands.add_parser("house", help="check the limits of the Rust sources", description=__doc__)
    command.add_argument("--lower", action="store_true",
                         help="take what became better out of ratchet.toml")
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    errors = check(paths.CHECKOUT, options.lower)
    for line in errors:
        print(line, file=sys.stderr)
    return 1 if errors else 0
