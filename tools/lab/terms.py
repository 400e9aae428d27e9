# SPDX-License-Identifier: GPL-2.0
"""`lab terms`: words that the glossary of design.md has another word for, in documents, comments and help texts.

The glossary is the tables below `## Terms`: their last column has the words that are not used. terms.toml has the
places where such a word means another thing.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from . import paths
from . import prose

GLOSSARY = "Documentation/design.md"
ALLOWED = Path("tools/lab/terms.toml")
_HEADING = "## Terms"
# How far from a word, in characters, the words of a phrase may be.
REACH = 120


@dataclass(frozen=True)
class Term:
    """A word that is not used, and the term that is."""

    word: str
    instead: str

    def pattern(self) -> re.Pattern[str]:
        """Finds the word in any of its forms, over the end of a line, too."""
        *first, last = self.word.split()
        stem = re.sub(r"(?:e|y)$", "", last)
        endings = {"": "(?:s|es|ed|ing)?", "e": "(?:e|es|ed|ing)", "y": "(?:y|ies|ied|ying)"}[last[len(stem):]]
        whole = r"\s+".join([*(re.escape(word) for word in first), re.escape(stem) + endings])
        return re.compile(rf"(?<![\w/.-]){whole}(?![\w/(-]|\.\w)", re.IGNORECASE)


@dataclass(frozen=True)
class Allowed:
    """Places where a word means another thing: by a pattern of the words there, by files, or by both."""

    number: int
    word: str
    phrase: re.Pattern[str] | None
    files: tuple[str, ...]

    def covers(self, text: prose.Prose, term: Term, found: re.Match[str]) -> bool:
        """Whether a hit is in such a place."""
        if term.word != self.word or (self.files and not any(fnmatch(text.name, pattern) for pattern in self.files)):
            return False
        if self.phrase is None:
            return True
        around = self.phrase.finditer(text.text, max(0, found.start() - REACH), found.end() + REACH)
        return any(phrase.start() <= found.start() and found.end() <= phrase.end() for phrase in around)


def allowed(text: str) -> list[Allowed]:
    """The places of terms.toml; ValueError for an entry that is wrong."""
    found = []
    for number, entry in enumerate(tomllib.loads(text).get("allowed", []), 1):
        if not set(entry) <= {"word", "phrase", "files", "why"} or not {"word", "why"} < set(entry):
            raise ValueError(f"{ALLOWED}: entry {number} has other keys than word, why, and phrase or files or both")
        phrase = re.sub(" +", r"\\s+", entry["phrase"]) if "phrase" in entry else None
        found.append(Allowed(number, entry["word"], re.compile(rf"\b(?:{phrase})\b", re.I) if phrase else None,
                             tuple(entry.get("files", ()))))
    return found


def table(document: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of the glossary's tables, with the numbers of their lines."""
    inside = False
    for number, line in enumerate(document.splitlines(), 1):
        if line.startswith("## "):
            inside = line.strip() == _HEADING
        elif inside and line.startswith("|") and not re.match(r"\|[-|\s]+$", line):
            yield number, [cell.strip() for cell in line.strip().strip("|").split("|")]


def terms(document: str) -> list[Term]:
    """The words that are not used; ValueError if there is no glossary."""
    head, *rows = [cells for _, cells in table(document)] or [[]]
    rows = [row for row in rows if row != head]
    if head != ["term", "meaning", "not"] or any(len(row) != len(head) for row in rows):
        raise ValueError(f"{GLOSSARY}: no table of term, meaning, not below `{_HEADING}'")
    return [Term(word.strip(), row[0]) for row in rows for word in row[2].split(",") if word.strip()]


def problems(texts: Iterable[prose.Prose], glossary: str, exceptions: str) -> list[str]:
    """The places that have a word that is not used, and entries of terms.toml that cover no place."""
    places = allowed(exceptions)
    forbidden = [(term, term.pattern()) for term in terms(glossary)]
    own = {number for number, _ in table(glossary)}
    used: set[int] = set()
    found = []
    for text in texts:
        for term, pattern in forbidden:
            for hit in pattern.finditer(text.text):
                line = text.line(hit.start())
                covering = [place.number for place in places if place.covers(text, term, hit)]
                used.update(covering)
                if not covering and not (text.name == GLOSSARY and line in own):
                    word = " ".join(hit[0].split())
                    found.append((text.name, line, f"`{word}': write `{term.instead}' (the glossary of {GLOSSARY})"))
    lines = [f"{name}:{line}: {what}" for name, line, what in sorted(found)]
    if lines:
        lines.append(f"(a place where the word means another thing goes to {ALLOWED}, with the reason)")
    words = {term.word for term, _ in forbidden}
    lines += [f"{ALLOWED}: entry {place.number}: the glossary has no word `{place.word}' that is not used"
              for place in places if place.word not in words]
    return lines + [f"{ALLOWED}: entry {place.number} (`{place.phrase.pattern if place.phrase else place.files}'): "
                    "no text has that any more, take it out" for place in places
                    if place.word in words and place.number not in used]


def check(checkout: Path, texts: Iterable[prose.Prose]) -> list[str]:
    """What is wrong with the words of the texts of a checkout; empty if nothing is."""
    try:
        return problems(texts, (checkout / GLOSSARY).read_text(), (checkout / ALLOWED).read_text())
    except ValueError as error:
        return [str(error)]


def _run(_options: argparse.Namespace) -> int:
    errors = check(paths.CHECKOUT, prose.read(paths.CHECKOUT))
    for line in errors:
        print(line, file=sys.stderr)
    return 1 if errors else 0


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command `lab terms`."""
    command = commands.add_parser("terms", help="check documents, comments and help texts for words that the glossary "
                                                "has another word for", description=__doc__)
    command.set_defaults(run=_run)
