# SPDX-License-Identifier: GPL-2.0
"""The project's Rust sources as checks read them: without comments and strings, as tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import paths

# Each crate by its name in Rust code, with its folder; from the bottom.
CRATES = {
    "proto": "proto",
    "kernel_ext": "bindings",
    "rtrs_core": "rtrs_core",
    "rtrs_client": "rtrs_client",
    "rtrs_server": "rtrs_server",
    "rnbd_client": "rnbd_client",
    "rnbd_server": "rnbd_server",
    "rtrs_client_c": "rtrs_client_c",
    "rtrs_server_c": "rtrs_server_c",
    "rtrs_group": "rtrs_group",
    "rtrs_group_c": "rtrs_group_c",
    "rtrs_test": "rtrs_test",
    "rtrs_test_client": "rtrs_test_client",
    "rtrs_test_server": "rtrs_test_server",
    "rtrs_kv_client": "samples/rtrs_kv_client",
    "rtrs_kv_group": "samples/rtrs_kv_group",
    "rtrs_kv_server": "samples/rtrs_kv_server",
}
# Folders inside a crate's folder that are other crates: they use it from outside.
OUTSIDE = ("tests", "fuzz")

_SPECIAL = re.compile(
    r"""
    (?P<line>//[^\n]*)
  | (?P<block>/\*)
  | (?P<char>b?'(?:[^'\\\n]|\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.))')
  | (?P<word>[A-Za-z_]\w*)
    """,
    re.VERBOSE,
)
_RAW_START = re.compile(r'(?:b|c)?r(#*)"')
_STRING_START = re.compile(r'[bc]?"')
_STRING_REST = re.compile(r'(?:[^"\\]|\\.)*"', re.DOTALL)
_BLOCK_MARK = re.compile(r"/\*|\*/")
_TEST_MODULE = re.compile(r"#\[(?:cfg\((?:test|RNBD_KUNIT)\)|kunit_tests\([^)]*\))\]\s*"
                          r"(?:#\[[^\]]*\]\s*)*(?:pub )?mod \w+ \{")
_TOKEN = re.compile(r"\$?[A-Za-z_]\w*|'[A-Za-z_]\w*|\d[\w.]*|::|->|=>|[^\s]")


@dataclass(frozen=True)
class Token:
    """A word or sign, with the number of its line (from 1)."""

    text: str
    line: int


def files(crate: str, checkout: Path = paths.CHECKOUT) -> list[Path]:
    """The source files of a crate, without those of `OUTSIDE`."""
    folder = checkout / CRATES[crate]
    return [path for path in sorted(folder.rglob("*.rs"))
            if not {"target", *OUTSIDE} & set(path.relative_to(folder).parts[:-1])]


def _end_of_block(text: str, start: int) -> int:
    """Where a block comment ends; they nest."""
    depth = 0
    for mark in _BLOCK_MARK.finditer(text, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(text)


def _skipped(text: str) -> Iterator[tuple[int, int, bool]]:
    """Start and end of each comment and literal, and whether it is a comment."""
    at = 0
    while at < len(text):
        raw = _RAW_START.match(text, at)
        string = _STRING_START.match(text, at)
        found = _SPECIAL.match(text, at)
        if raw:
            end = text.find('"' + raw[1], raw.end())
            end = len(text) if end < 0 else end + 1 + len(raw[1])
            yield at, end, False
        elif string:
            rest = _STRING_REST.match(text, string.end())
            end = rest.end() if rest else len(text)
            yield at, end, False
        elif found and found["line"]:
            end = found.end()
            yield at, end, True
        elif found and found["block"]:
            end = _end_of_block(text, at)
            yield at, end, True
        elif found and found["char"]:
            end = found.end()
            yield at, end, False
        else:
            end = found.end() if found and found["word"] else at + 1
        at = end


def _blank(text: str) -> str:
    return "".join(character if character == "\n" else " " for character in text)


def code(text: str) -> str:
    """The text with comments, and what is inside of strings, replaced by spaces; lines stay."""
    parts, last = [], 0
    for start, end, is_comment in _skipped(text):
        parts.append(text[last:start])
        literal = text[start:end]
        parts.append(_blank(literal) if is_comment or len(literal) < 2 else f'"{_blank(literal[1:-1])}"')
        last = end
    return "".join([*parts, text[last:]])


def words(text: str) -> list[Token]:
    """The words and signs of what `code` gave."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        found += [Token(token, number) for token in _TOKEN.findall(line) if token != '"']
    return found


def tokens(text: str) -> list[Token]:
    """The words and signs of a source, without comments and strings."""
    return words(code(text))


def is_test(path: Path) -> bool:
    """Whether a file (its path inside the checkout) is only there to test others."""
    return bool({*OUTSIDE, "tests.rs", "kunit", "kunit.rs"} & set(path.parts))


def without_tests(text: str) -> str:
    """What `code` gave, without the modules of tests that are inside of a file; lines stay."""
    while True:
        found = _TEST_MODULE.search(text)
        if not found:
            return text
        end, depth = found.end(), 1
        while end < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        text = text[: found.start()] + _blank(text[found.start() : end]) + text[end:]


def count_lines(text: str) -> int:
    """The lines of a source that have code: no tests, comments or blank lines."""
    return sum(bool(line.strip()) for line in without_tests(code(text)).split("\n"))
