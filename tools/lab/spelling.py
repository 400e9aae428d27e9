# SPDX-License-Identifier: GPL-2.0
"""`lab spelling`: words of documents, comments and help texts that neither hunspell nor the project knows.

hunspell has a British dictionary. words.txt has the project's own words. Identifiers, options, paths, addresses and
words with a capital letter inside are not checked.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from pathlib import Path

from . import paths
from . import prose
from . import python_tools
from . import run

WORDS = Path("tools/lab/words.txt")
DICTIONARY = "en_GB"
# Suggestions of a word that a line has room for.
SUGGESTIONS = 4

_DASHES = "\N{EM DASH}\N{EN DASH}\N{HORIZONTAL ELLIPSIS}"
_APOSTROPHE = "\N{RIGHT SINGLE QUOTATION MARK}"
# Letters right after code are an ending of its name.
_TOKEN = re.compile(rf"(?<!{prose.CODE})(?<![^\s{prose.CODE}{_DASHES}])[^\s{prose.CODE}{_DASHES}]+")
# What may stand around a word, and belongs to it neither way.
_AROUND = "()[]{}\"'.,;:!?*&|\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}"
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")

# For words, those that are wrong, and what may be meant.
Speller = Callable[[Iterable[str]], dict[str, list[str]]]


def words(text: str) -> Iterator[tuple[int, str]]:
    """The words of a prose and their places; those with a hyphen in parts."""
    for token in _TOKEN.finditer(text):
        whole = token[0].replace(_APOSTROPHE, "'")
        start = len(whole) - len(whole.lstrip(_AROUND))
        whole = whole.strip(_AROUND)
        at = token.start() + start
        # An option, a file, a number, a path, an identifier.
        if whole.startswith("-"):
            continue
        parts = whole.split("-")
        if not all(_WORD.fullmatch(part) for part in parts):
            continue
        for part in parts:
            word = re.sub(r"'s?$", "", part)
            if len(word) > 1 and word[1:] == word[1:].lower():
                yield at, word
            at += len(part) + 1


class Words:
    """The project's words: of each group, which a comment explains, one in a line, sorted."""

    def __init__(self, text: str) -> None:
        self.errors: list[str] = []
        self.lines: dict[str, int] = {}
        before = ""
        for number, line in enumerate(text.splitlines(), 1):
            if not line or line.startswith("#"):
                before = ""
                continue
            if not _WORD.fullmatch(line):
                self.errors.append(f"{WORDS}:{number}: `{line}' is not one word")
            elif line in self.lines:
                self.errors.append(f"{WORDS}:{number}: `{line}' is in line {self.lines[line]}, too")
            elif line.lower() < before:
                self.errors.append(f"{WORDS}:{number}: `{line}' comes before `{before}': sort the group")
            self.lines.setdefault(line, number)
            before = line.lower()

    def entry(self, word: str) -> str | None:
        """The entry that allows a word: the word itself, without a capital at its start, or without a plural's s."""
        for form in (word, word[0].lower() + word[1:]):
            for entry in (form, form.removesuffix("s")):
                if entry in self.lines:
                    return entry
        return None


def parse(answers: str) -> dict[str, list[str]]:
    """What hunspell prints with -a: wrong words, and what may be meant."""
    found = {}
    for line in answers.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "&":
            facts, _, suggested = rest.partition(": ")
            found[facts.split()[0]] = suggested.split(", ")
        elif kind == "#":
            found[rest.split()[0]] = []
    return found


def hunspell(asked: Iterable[str]) -> dict[str, list[str]]:
    """Asks hunspell of the root tree about words."""
    argv = run.chroot_command(python_tools.tree().path / "root", ["hunspell", "-a", "-d", DICTIONARY, "-i", "UTF-8"])
    # `^` has hunspell take no word for a command.
    text = "".join(f"^{word}\n" for word in asked)
    result = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    if result.returncode:
        raise run.CommandFailed(f"hunspell: {result.stderr.strip()}")
    return parse(result.stdout)


def problems(texts: Iterable[prose.Prose], known: Words, speller: Speller = hunspell) -> list[str]:
    """The words that are wrong, and entries of words.txt that no text uses any more."""
    places: dict[str, list[tuple[prose.Prose, int]]] = {}
    for text in texts:
        for at, word in words(text.text):
            places.setdefault(word, []).append((text, at))
    entries = {word: known.entry(word) for word in places}
    wrong = speller(sorted(word for word in places if entries[word] is None))
    found = []
    for word, suggested in wrong.items():
        instead = f"perhaps {', '.join(suggested[:SUGGESTIONS])}" if suggested else "no word is like it"
        found += [(text.name, text.line(at), f"`{word}' is in no dictionary: {instead}") for text, at in places[word]]
    used = set(entries.values())
    lines = [f"{name}:{line}: {what}" for name, line, what in sorted(found)]
    if lines:
        lines.append(f"(a word that is right goes to {WORDS}; a name of code stands in backticks)")
    return [*known.errors, *lines, *(f"{WORDS}:{line}: no text has `{entry}' any more: take it out"
                                     for entry, line in known.lines.items() if entry not in used)]


def check(checkout: Path, texts: Iterable[prose.Prose]) -> list[str]:
    """What is wrong with the words of the texts of a checkout; empty if nothing is."""
    return problems(texts, Words((checkout / WORDS).read_text()))


def _run(_options: argparse.Namespace) -> int:
    errors = check(paths.CHECKOUT, prose.read(paths.CHECKOUT))
    for line in errors:
        print(line, file=sys.stderr)
    return 1 if errors else 0


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command `lab spelling`."""
    command = commands.add_parser("spelling", help="check the words of documents, comments and help texts",
                                  description=__doc__)
    command.set_defaults(run=_run)
